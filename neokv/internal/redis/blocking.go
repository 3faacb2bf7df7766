package redis

import (
	"math/big"
	"slices"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has what is common to the blocking pops: BLPOP and its kin. Such a command pops from the first of its keys
// that has elements. If none has any, its Write replies null and sets Writer.Nothing. In a transaction or a script that
// null is the reply. Elsewhere the region keeps the call and serves it when one of the keys gets elements: see Serve.

// Blocking is what a region must know of a blocking pop.
type Blocking struct {
	Type    keys.Type // of the keys that it pops from
	Timeout int       // the place of the time-out among the arguments; a negative one counts from the end
	// Source says that it waits for its first key alone: the second one is where the element goes.
	Source bool
	// Parse reports whether the arguments are right; nil looks at the time-out alone. Else it replies an error.
	Parse func(args [][]byte, out *Reply) bool
}

// Waits reports whether a call of a blocking pop waits if none of its keys exists: else its arguments are wrong.
func (c *Command) Waits(args [][]byte) bool {
	if _, ok := c.TimeoutMS(args); !ok {
		return false
	}
	var out Reply
	return c.Blocks.Parse == nil || c.Blocks.Parse(args, &out)
}

// TimeoutMS returns the time-out of a blocking pop, in ms; 0 is none. ok is false if the time-out is an error.
func (c *Command) TimeoutMS(args [][]byte) (ms int64, ok bool) {
	at := c.Blocks.Timeout
	if at < 0 {
		at += len(args)
	}
	var out Reply
	return parseTimeout(args[at], &out)
}

// parseTimeout reads a time-out in seconds and returns it in ms, rounded up. As in Redis, a time-out that an int64 does
// not hold is negative.
func parseTimeout(arg []byte, out *Reply) (ms int64, ok bool) {
	x, ok := parseLongDouble(arg)
	if !ok {
		out.Error("ERR timeout is not a float or out of range")
		return 0, false
	}
	var exact big.Float
	if x.f != nil {
		exact.SetPrec(extendedPrec).Mul(x.f, big.NewFloat(1000))
	}
	ms, accuracy := exact.Int64()
	if x.inf || ms < 0 || exact.MantExp(nil) > 63 {
		out.Error("ERR timeout is negative")
		return 0, false
	}
	if accuracy == big.Below {
		ms++
	}
	return ms, true
}

// AppendWaits appends the positions of the keys that a blocking pop waits for.
func (c *Command) AppendWaits(dst []int, args [][]byte) []int {
	before := len(dst)
	dst = c.AppendKeys(dst, args)
	if c.Blocks.Source {
		dst = dst[:min(len(dst), before+1)]
	}
	return dst
}

// Serve runs a blocking pop that waits for a key, for that key alone. It returns false, and replies nothing, if the key
// has no elements of the type.
func (w *Writer) Serve(c *Command, args [][]byte, key []byte, out *Reply) (served bool, err error) {
	ready, err := w.Ready(c, key)
	if err != nil || !ready {
		return false, err
	}
	if !c.Blocks.Source {
		args = c.restricted(args, key)
	}
	start := len(out.Buf)
	if err := w.Run(c, args, out); err != nil {
		return false, err
	}
	if w.Nothing {
		out.Buf = out.Buf[:start]
	}
	return !w.Nothing, nil
}

// Ready reports whether a key has elements for a blocking pop that waits for it.
func (w *Writer) Ready(c *Command, key []byte) (bool, error) {
	rec, err := w.loadHead(topology.SlotOf(key), key)
	return rec.live && rec.Type == c.Blocks.Type, err
}

// restricted returns the arguments of a blocking pop with one key in place of its keys.
func (c *Command) restricted(args [][]byte, key []byte) [][]byte {
	if at := c.Keys[0].First; c.Keys[0].Counted {
		n := atoi(args[at])
		return append(append(append([][]byte{}, args[:at]...), []byte("1"), key), args[at+1+n:]...)
	}
	return [][]byte{args[0], key, args[len(args)-1]}
}

// AppendFills appends the positions of the keys that may get elements by a write, and returns how many elements each of
// them may get at most; -1 if that does not follow from the arguments.
func (c *Call) AppendFills(dst []int) (places []int, each int) {
	row := c.Command
	if row == nil || row.Write == nil {
		return dst, 0
	}
	switch row.Name {
	case "lpush", "rpush":
		return append(dst, 1), len(c.Args) - 2
	case "zadd":
		return append(dst, 1), (len(c.Args) - 2) / 2
	case "zincrby":
		return append(dst, 1), 1
	case "lmove", "rpoplpush", "blmove", "brpoplpush":
		return append(dst, 2), 1
	}
	if row.FindKeys != nil {
		return row.FindKeys(dst, c.Args), -1
	}
	for i := range row.Keys {
		if k := &row.Keys[i]; !k.onlyTakes() {
			dst, _ = k.appendKeys(dst, c.Args)
		}
	}
	return dst, -1
}

// onlyTakes reports whether a command reads keys, or takes from them, and adds nothing.
func (k *KeySpec) onlyTakes() bool {
	adds := func(flag string) bool { return flag == "insert" || flag == "update" || flag == "OW" }
	return !k.Unknown && !slices.ContainsFunc(k.Flags, adds)
}

// blockingPop runs BLPOP and BRPOP, BZPOPMIN and BZPOPMAX.
func (w *Writer) blockingPop(args [][]byte, from end, out *Reply) error {
	if _, ok := parseTimeout(args[len(args)-1], out); !ok {
		return nil
	}
	var c collection
	used := w.opened.used
	for _, name := range args[1 : len(args)-1] {
		w.opened.used = used
		if ok, err := w.open(&c, name, from.of, out); !ok {
			return err
		}
		switch {
		case c.Size == 0:
		case from.of == keys.ZSet:
			out.Array(3)
			out.Bulk(name)
			return w.popScored(&c, 1, from.last, false, out)
		default:
			out.Array(2)
			out.Bulk(name)
			if err := w.pop(&c, !from.last, 1, out); err != nil {
				return err
			}
			return w.close(&c)
		}
	}
	w.Nothing = true
	out.NullArray()
	return nil
}

// end is an end of collections of a type.
type end struct {
	of   keys.Type
	last bool // the right end, or that of the highest scores
}

func brpoplpush(w *Writer, args [][]byte, out *Reply) error {
	return w.blockingMove(args, false, true, out)
}

func blmove(w *Writer, args [][]byte, out *Reply) error {
	fromLeft, toLeft, ok := parseEnds(args, out)
	if !ok {
		return nil
	}
	return w.blockingMove(args, fromLeft, toLeft, out)
}

func parseEnds(args [][]byte, out *Reply) (fromLeft, toLeft, ok bool) {
	if fromLeft, ok = parseEnd(args[3], out); ok {
		toLeft, ok = parseEnd(args[4], out)
	}
	return fromLeft, toLeft, ok
}

// pops is the Blocking.Parse of BLMPOP and BZMPOP.
func pops(first, last string) func(args [][]byte, out *Reply) bool {
	return func(args [][]byte, out *Reply) bool {
		_, _, _, ok := parsePops(args, first, last, out)
		return ok
	}
}

func (w *Writer) blockingMove(args [][]byte, fromLeft, toLeft bool, out *Reply) error {
	if _, ok := parseTimeout(args[len(args)-1], out); !ok {
		return nil
	}
	source, err := w.load(args[1])
	switch {
	case err != nil || source.isNot(keys.List, out):
		return err
	case !source.live:
		w.Nothing = true
		out.Null()
		return nil
	}
	return w.moveItem(args, fromLeft, toLeft, out)
}

// A command of the list or the sorted set commands, in that it pops and blocks.
const (
	blocks     = FlagWrite | FlagBlocking
	blocksOnly = blocks | FlagNoScript
)

var blockingCommands = []*Command{
	{
		Name: "blpop", Arity: -3, Flags: blocksOnly, Keys: keysBeforeTimeout,
		Blocks: &Blocking{Type: keys.List, Timeout: -1},
		Write:  with((*Writer).blockingPop, end{of: keys.List}),
		Doc: Doc{"Removes the first element of the first of some lists that is not empty; waits for one.",
			"2.0.0", "list", "O(N) where N is the number of keys."},
	},
	{
		Name: "brpop", Arity: -3, Flags: blocksOnly, Keys: keysBeforeTimeout,
		Blocks: &Blocking{Type: keys.List, Timeout: -1},
		Write:  with((*Writer).blockingPop, end{of: keys.List, last: true}),
		Doc: Doc{"Removes the last element of the first of some lists that is not empty; waits for one.",
			"2.0.0", "list", "O(N) where N is the number of keys."},
	},
	{
		Name: "blmove", Arity: 6, Flags: blocksOnly | FlagDenyOOM,
		Keys: fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}),
		Blocks: &Blocking{Type: keys.List, Timeout: -1, Source: true, Parse: func(args [][]byte, out *Reply) bool {
			_, _, ok := parseEnds(args, out)
			return ok
		}},
		Write: blmove,
		Doc:   Doc{"Moves an element from an end of a list to an end of another, or of the same; waits for one.", "6.2.0", "list", "O(1)"},
	},
	{
		Name: "brpoplpush", Arity: 4, Flags: blocksOnly | FlagDenyOOM,
		Keys:   fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}),
		Blocks: &Blocking{Type: keys.List, Timeout: -1, Source: true}, Write: brpoplpush,
		Doc: Doc{"Moves the last element of a list before the first of another, or of the same; waits for one.", "2.2.0", "list", "O(1)"},
	},
	{
		Name: "blmpop", Arity: -5, Flags: blocks | FlagMovableKeys, Keys: countedKeys(2, "RW", "access", "delete"),
		Blocks: &Blocking{Type: keys.List, Timeout: 1, Parse: pops("left", "right")}, Write: lmpop,
		Doc: Doc{"Removes elements from an end of the first of some lists that is not empty; waits for one.",
			"7.0.0", "list", "O(N+M) where N is the number of keys and M the number of elements returned."},
	},
	{
		Name: "bzpopmin", Arity: -3, Flags: blocksOnly | FlagFast, Keys: keysBeforeTimeout,
		Blocks: &Blocking{Type: keys.ZSet, Timeout: -1}, Write: with((*Writer).blockingPop, end{of: keys.ZSet}),
		Doc: Doc{"Removes and returns the member with the lowest score of the first of some sorted sets; waits for one.", "5.0.0", zsets, "O(log(N)) where N is the size of the sorted set."},
	},
	{
		Name: "bzpopmax", Arity: -3, Flags: blocksOnly | FlagFast, Keys: keysBeforeTimeout,
		Blocks: &Blocking{Type: keys.ZSet, Timeout: -1},
		Write:  with((*Writer).blockingPop, end{of: keys.ZSet, last: true}),
		Doc:    Doc{"Removes and returns the member with the highest score of the first of some sorted sets; waits for one.", "5.0.0", zsets, "O(log(N)) where N is the size of the sorted set."},
	},
	{
		Name: "bzmpop", Arity: -5, Flags: blocks | FlagMovableKeys, Keys: countedKeys(2, "RW", "access", "delete"),
		Blocks: &Blocking{Type: keys.ZSet, Timeout: 1, Parse: pops("min", "max")}, Write: zmpop,
		Doc: Doc{"Removes and returns members with the lowest or highest scores of the first of some sorted sets; waits " +
			"for one.", "7.0.0", zsets,
			"O(K)+O(M*log(N)) where K is the number of keys, N the size of the sorted set and M the number of " +
				"members removed."},
	},
}

// keysBeforeTimeout is the key specification of commands whose last argument is a time-out.
var keysBeforeTimeout = []KeySpec{{First: 1, Last: -2, Step: 1, Flags: []string{"RW", "access", "delete"}}}
