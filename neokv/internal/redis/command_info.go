package redis

import (
	"slices"
	"strings"

	"neokv.dev/neokv/internal/engine"
)

// This file has the command COMMAND: what a table says about its rows, in the form of redis-server 7.0. Where a call
// may name very many commands or keys, its reply counts as work; if that is over, the reply is not whole.

// entryUnits is about what it takes to write what COMMAND INFO or COMMAND DOCS say of a command.
const entryUnits = 20

// Named finds a command by its full name in any case, such as "get" or "client|setname". It returns nil if there is
// none.
func (t *CommandTable) Named(name []byte) *Command {
	for i, b := range name {
		if b == '|' {
			if c := t.Lookup(name[:i]); c != nil {
				return c.Subcommand(name[i+1:])
			}
			return nil
		}
	}
	return t.Lookup(name)
}

// WriteInfo appends what COMMAND INFO says about each of the named commands, null for an unknown one. Without names it
// does so for all commands, which is also the reply of COMMAND alone.
func (t *CommandTable) WriteInfo(out *Reply, names [][]byte, w *engine.Work) {
	if len(names) == 0 {
		out.Array(len(t.rows))
		for _, c := range t.rows {
			c.WriteInfo(out)
		}
		return
	}
	out.Array(len(names))
	for _, name := range names {
		if !w.Spend(entryUnits) {
			return
		}
		if c := t.Named(name); c != nil {
			c.WriteInfo(out)
		} else {
			out.Null()
		}
	}
}

// WriteDocs appends what COMMAND DOCS says about the named commands, and leaves unknown ones out. Without names it does
// so for all commands.
func (t *CommandTable) WriteDocs(out *Reply, names [][]byte, w *engine.Work) {
	if len(names) == 0 {
		out.Map(len(t.rows))
		for _, c := range t.rows {
			c.WriteDocs(out)
		}
		return
	}
	n := 0
	for _, name := range names {
		if !w.Spend(1) {
			return
		}
		if t.Named(name) != nil {
			n++
		}
	}
	out.Map(n)
	for _, name := range names {
		if !w.Spend(entryUnits) {
			return
		}
		if c := t.Named(name); c != nil {
			c.WriteDocs(out)
		}
	}
}

// WriteGetKeys appends what COMMAND GETKEYS says about a call. args begin with the command's name.
func (t *CommandTable) WriteGetKeys(out *Reply, args [][]byte, w *engine.Work) {
	if _, positions := t.keysOf(out, args); positions != nil {
		out.Array(len(positions))
		for _, p := range positions {
			if !w.Spend(1) {
				return
			}
			out.Bulk(args[p])
		}
	}
}

// WriteGetKeysAndFlags appends what COMMAND GETKEYSANDFLAGS says about such a call.
func (t *CommandTable) WriteGetKeysAndFlags(out *Reply, args [][]byte, w *engine.Work) {
	c, positions := t.keysOf(out, args)
	if positions == nil {
		return
	}
	out.Array(len(positions))
	spec, left := -1, 0 // the specification of the keys at hand, and how many of its keys are to come
	for i, p := range positions {
		if !w.Spend(2) {
			return
		}
		for ; left == 0; spec++ {
			left = c.keysOfSpec(spec+1, len(positions)-i, args)
		}
		left--
		out.Array(2)
		out.Bulk(args[p])
		flags := c.Keys[spec].flags(args)
		out.Set(len(flags))
		for _, f := range flags {
			out.Status(f)
		}
	}
}

// keysOf finds the command that args call and the positions of its keys. If it finds none, it appends the error and
// returns nil.
func (t *CommandTable) keysOf(out *Reply, args [][]byte) (c *Command, positions []int) {
	c = t.Lookup(args[0])
	if c != nil && len(c.Sub) > 0 && len(args) > 1 {
		c = c.Subcommand(args[1])
	}
	switch {
	case c == nil:
		out.Error(errGetKeysCommand)
		return nil, nil
	case !slices.ContainsFunc(c.Keys, func(k KeySpec) bool { return !slices.Contains(k.Flags, "not_key") }):
		// A channel is no key.
		out.Error(errGetKeysNone)
		return nil, nil
	case !c.CheckArity(len(args)):
		out.Error(errGetKeysCount)
		return nil, nil
	}
	positions = c.AppendKeys([]int{}, args)
	if len(positions) == 0 && c.Flags&FlagNoMandatoryKeys == 0 {
		out.Error(errGetKeysArgs)
		return nil, nil
	}
	return c, positions
}

// keysOfSpec returns how many of a call's keys belong to one of the specifications. rest is how many follow those of
// the specifications before it.
func (c *Command) keysOfSpec(spec, rest int, args [][]byte) int {
	switch {
	case c.FindKeys == nil:
		found, _ := c.Keys[spec].appendKeys(nil, args)
		return len(found)
	case spec == len(c.Keys)-1: // the command finds the keys of its last specification itself
		return rest
	case spec == 0:
		return 1
	}
	return 0
}

// flags are the flags of a call's keys.
func (k *KeySpec) flags(args [][]byte) []string {
	if n := len(k.Flags) - 1; k.Flags[n] == "variable_flags" { // SET, whose flags are those of a call with GET
		if !slices.ContainsFunc(args[3:], func(arg []byte) bool { return IsOption(arg, "get") }) {
			return []string{"OW", "update"}
		}
		return k.Flags[:n]
	}
	return k.Flags
}

// WriteInfo appends the row's entry in COMMAND INFO.
func (c *Command) WriteInfo(out *Reply) {
	out.Array(10)
	out.BulkString(c.FullName())
	out.Int(int64(c.Arity))
	c.writeFlags(out)
	first, last, step := 0, 0, 0
	n := 0
	for n < len(c.Keys) && !c.Keys[n].Counted && !c.Keys[n].Unknown {
		n++
	}
	if n > 0 { // Redis sums these specifications up as one range
		first, step = c.Keys[0].First, c.Keys[0].Step
		if last = c.Keys[n-1].Last; last >= 0 {
			last += c.Keys[n-1].First
		}
	}
	out.Int(int64(first))
	out.Int(int64(last))
	out.Int(int64(step))
	c.writeCategories(out)
	out.Set(len(c.Tips))
	for _, tip := range c.Tips {
		out.BulkString(tip)
	}
	out.Set(len(c.Keys))
	for i := range c.Keys {
		c.Keys[i].write(out)
	}
	if len(c.Sub) == 0 {
		out.Set(0)
		return
	}
	out.Array(len(c.Sub))
	for _, s := range c.Sub {
		s.WriteInfo(out)
	}
}

func (c *Command) writeFlags(out *Reply) {
	var names []string
	for _, f := range flagNames {
		if c.Flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	out.statuses(names)
}

func (c *Command) writeCategories(out *Reply) {
	var names []string
	for _, name := range categoryNames {
		if c.inCategory(name) {
			names = append(names, "@"+name)
		}
	}
	out.statuses(names)
}

// statuses appends a set of simple strings.
func (r *Reply) statuses(names []string) {
	r.Set(len(names))
	for _, name := range names {
		r.Status(name)
	}
}

func (k *KeySpec) write(out *Reply) {
	if k.Notes != "" {
		out.Map(4)
		out.BulkString("notes")
		out.BulkString(k.Notes)
	} else {
		out.Map(3)
	}
	out.BulkString("flags")
	out.statuses(k.Flags)
	part := func(name, kind string, spec ...any) {
		out.BulkString(name)
		out.MapOf("type", kind, "spec", func() { out.MapOf(spec...) })
	}
	if k.Unknown {
		part("begin_search", "unknown")
		part("find_keys", "unknown")
		return
	}
	part("begin_search", "index", "index", k.First)
	if k.Counted {
		part("find_keys", "keynum", "keynumidx", 0, "firstkey", 1, "keystep", k.Step)
		return
	}
	part("find_keys", "range", "lastkey", k.Last, "keystep", k.Step, "limit", 0)
}

// WriteHelp appends the reply of a container's HELP: two lines for each subcommand, its name and what it does.
func (c *Command) WriteHelp(out *Reply) {
	out.Array(1 + 2*len(c.Sub))
	out.Status(strings.ToUpper(c.Name) + " <subcommand> [<arg> ...]. Subcommands are:")
	for _, s := range c.Sub {
		out.Status(strings.ToUpper(s.Name))
		out.Status("    " + s.Doc.Summary)
	}
}
