package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CommandTable finds commands by name. It does not change once it is made, and goroutines may share it.
type CommandTable struct {
	rows   []*Command
	byName map[string]*Command
}

// maxNameBytes bounds the names that Lookup turns into lower case without allocation. No command of Redis is longer.
const maxNameBytes = 32

// NewTable makes a table of the rows and keeps their order. Names must be distinct and lower case.
func NewTable(rows ...*Command) *CommandTable {
	t := &CommandTable{rows: rows, byName: make(map[string]*Command, len(rows))}
	for _, c := range rows {
		if len(c.Name) > maxNameBytes || t.byName[c.Name] != nil || strings.ToLower(c.Name) != c.Name {
			panic(fmt.Sprintf("command table: name %q is taken, not lower case or longer than %d bytes",
				c.Name, maxNameBytes))
		}
		t.byName[c.Name] = c
		c.settle()
		for _, s := range c.Sub {
			if s.parent != c { // only the first table of a row writes to it
				s.parent = c
			}
			s.settle()
		}
	}
	return t
}

// settle sets How where the row leaves it to its functions, and the event of a write.
func (c *Command) settle() {
	if event := eventOf[c.Name]; c.Write != nil && c.parent == nil && c.event != event {
		c.event = event
	}
	switch { // only the first table of a row writes to it
	case c.How != HowNot:
	case c.Read != nil:
		c.How = HowRead
	case c.Blocks != nil:
		c.How = HowBlocking
	case c.Write != nil:
		c.How = HowWrite
	case len(c.Sub) == 0:
		panic(fmt.Sprintf("command table: %s does not say how it runs", c.FullName()))
	}
}

// Rows returns the top-level commands in order. The caller must not change them.
func (t *CommandTable) Rows() []*Command { return t.rows }

// Lookup finds a top-level command by its name in any case. It returns nil if there is none. It does not allocate.
func (t *CommandTable) Lookup(name []byte) *Command {
	var room [maxNameBytes]byte
	if len(name) > maxNameBytes {
		return nil
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		room[i] = c
	}
	return t.byName[string(room[:len(name)])]
}

// Find finds the command that args call: the row named args[0] or, if that is a container and there are more arguments,
// its subcommand named args[1]. If there is none, Find appends Redis's error to out and returns nil. It does not check
// the arity.
func (t *CommandTable) Find(args [][]byte, out *Reply) *Command {
	c := t.Lookup(args[0])
	switch {
	case c == nil:
		out.UnknownCommand(args)
		return nil
	case len(c.Sub) == 0 || len(args) == 1:
		return c
	}
	if s := c.Subcommand(args[1]); s != nil {
		return s
	}
	out.UnknownSubcommand(args)
	return nil
}

// data is the table of this package's rows.
var data = NewTable(slices.Concat(stringCommands, hashCommands, setCommands, listCommands, zsetCommands,
	blockingCommands, genericCommands, sortCommands, objectCommands)...)

// Own lists the data commands that Redis does not have. They are subcommands of the server's container NEOKV. The
// caller must not change them.
var Own = []*Command{LegacySet, Batch, ScanPrefix}

// Lookup finds a command of this package, one that touches data, by its name in any case. It returns nil if there is
// none. It does not allocate.
func Lookup(name []byte) *Command { return data.Lookup(name) }

// Rows returns the commands of this package in order. The caller must not change the rows.
func Rows() []*Command { return data.Rows() }

// Bind gives rows of this package that run outside of regions their functions, by full name. Package server calls it
// once, while it is initialized.
func Bind(runs map[string]any) {
	for name, run := range runs {
		row := data.Named([]byte(name))
		if row == nil || row.Run != nil || row.How < HowEverywhere {
			panic(fmt.Sprintf("command table: %s takes no function", name))
		}
		row.Run = run
	}
}

// with returns the function of a row: run, with its option set.
func with[From *Reader | *Writer, Option any](run func(From, [][]byte, Option, *Reply) error, option Option,
) func(From, [][]byte, *Reply) error {
	return func(from From, args [][]byte, out *Reply) error { return run(from, args, option, out) }
}

// FullName returns the name as errors and COMMAND print it: a subcommand has its container's name and '|' before its
// own.
func (c *Command) FullName() string {
	if c.parent == nil {
		return c.Name
	}
	return c.parent.Name + "|" + c.Name
}

// Subcommand finds a subcommand by its name in any case. It returns nil if there is none.
func (c *Command) Subcommand(name []byte) *Command {
	for _, s := range c.Sub {
		if IsOption(name, s.Name) && len(name) == len(s.Name) {
			return s
		}
	}
	return nil
}

// CheckArity reports whether a call may have n arguments, the name included.
func (c *Command) CheckArity(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// AppendKeys appends the positions in args of the call's keys, in order. The caller has checked the arity. It leaves
// out positions beyond the end of args. For a call with a wrong number of keys it appends nothing.
func (c *Command) AppendKeys(dst []int, args [][]byte) []int {
	if c.FindKeys != nil {
		return c.FindKeys(dst, args)
	}
	before := len(dst)
	for i := range c.Keys {
		ok := true
		if dst, ok = c.Keys[i].appendKeys(dst, args); !ok {
			return dst[:before] // the call is an error
		}
	}
	return dst
}

// appendKeys appends the positions of the keys of one specification. It returns false where the number of keys is
// wrong.
func (k *KeySpec) appendKeys(dst []int, args [][]byte) (all []int, ok bool) {
	first, last := k.First, k.First+k.Last
	switch {
	case k.Unknown:
		return dst, true
	case k.Counted:
		if first >= len(args) {
			return dst, false
		}
		n := atoi(args[first])
		if first++; n < 1 || n > len(args)-first {
			return dst, false
		}
		last = first + n - 1
	case k.Last < 0:
		last = len(args) + k.Last
	}
	for p := first; p <= last && p < len(args); p += k.Step {
		dst = append(dst, p)
	}
	return dst, true
}

// atoi reads a number of keys as Redis does to find the keys, with C's atoi(3): it ignores what follows the digits, and
// keeps only the low bits of a number that does not fit. The command itself, when it runs, is stricter.
func atoi(arg []byte) int {
	arg = bytes.TrimLeft(arg, " \t\n\v\f\r")
	end := 0
	for end < len(arg) && ('0' <= arg[end] && arg[end] <= '9' || end == 0 && (arg[0] == '+' || arg[0] == '-')) {
		end++
	}
	n, _ := strconv.ParseInt(string(arg[:end]), 10, 64) // a larger one becomes the largest
	return int(int32(n))
}

// IsOption reports whether an argument spells an option, in any case. As Redis compares C strings, it looks at the
// argument up to the first NUL. name is lower case.
func IsOption(arg []byte, name string) bool {
	if len(arg) < len(name) || len(arg) > len(name) && arg[len(name)] != 0 {
		return false
	}
	for i := range len(name) {
		c := arg[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != name[i] {
			return false
		}
	}
	return true
}
