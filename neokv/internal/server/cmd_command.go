package server

import (
	"bytes"

	"neokv.dev/neokv/internal/redis"
)

func runCommand(c *conn, args [][]byte)     { commands.WriteInfo(&c.out.Reply, nil, &c.exec.work) }
func runCommandInfo(c *conn, args [][]byte) { commands.WriteInfo(&c.out.Reply, args[2:], &c.exec.work) }
func runCommandDocs(c *conn, args [][]byte) { commands.WriteDocs(&c.out.Reply, args[2:], &c.exec.work) }
func runCommandGetKeys(c *conn, args [][]byte) {
	commands.WriteGetKeys(&c.out.Reply, args[2:], &c.exec.work)
}
func runCommandGetKeysAndFlags(c *conn, args [][]byte) {
	commands.WriteGetKeysAndFlags(&c.out.Reply, args[2:], &c.exec.work)
}
func runCommandCount(c *conn, args [][]byte) { c.out.Int(int64(len(commands.Rows()))) }

func runCommandList(c *conn, args [][]byte) {
	keep := func(*redis.Command) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) != 5 || !redis.IsOption(args[2], "filterby"):
		c.out.Error(redis.ErrSyntax)
		return
	case redis.IsOption(args[3], "pattern"):
		pattern := redis.NewGlob(bytes.ToLower(args[4]), &c.exec.work)
		keep = func(r *redis.Command) bool { return pattern.Match([]byte(r.FullName()), &c.exec.work) }
	case redis.IsOption(args[3], "aclcat"):
		keep = func(r *redis.Command) bool { return inCategory(r, string(bytes.ToLower(args[4]))) }
	case redis.IsOption(args[3], "module"):
		keep = func(*redis.Command) bool { return false }
	default:
		c.out.Error(redis.ErrSyntax)
		return
	}
	var names []string
	for _, r := range commands.Rows() {
		for _, x := range append([]*redis.Command{r}, r.Sub...) {
			if keep(x) {
				names = append(names, x.FullName())
			}
		}
	}
	c.out.Array(len(names))
	for _, n := range names {
		c.out.BulkString(n)
	}
}

// runDocs answers NEOKV DOCS: what commands do here, where COMMAND DOCS says what they do in Redis.
func runDocs(c *conn, args [][]byte) {
	var rows []*redis.Command
	for _, name := range args[2:] {
		if !c.exec.work.Spend(1) {
			return
		}
		if r := commands.Named(name); r != nil {
			rows = append(rows, r)
		}
	}
	if len(args) == 2 {
		for _, r := range commands.Rows() {
			rows = append(append(rows, r), r.Sub...)
		}
	}
	c.out.Map(len(rows))
	for _, r := range rows {
		c.out.BulkString(r.FullName())
		c.out.BulkString(r.Doc.Summary)
	}
}

// inCategory reports whether COMMAND INFO lists an ACL category for the row itself.
func inCategory(r *redis.Command, category string) bool {
	alone := *r
	alone.Sub = nil
	var o redis.Reply
	alone.WriteInfo(&o)
	return bytes.Contains(o.Buf, []byte("+@"+category+"\r\n"))
}

func runHelp(c *conn, args [][]byte) { commands.Lookup(args[0]).WriteHelp(&c.out.Reply) }
