package redis

import (
	"math"

	"neokv.dev/neokv/internal/keys"
)

var stringCommands = []*Command{
	{
		Name: "get", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"), Read: get,
		Doc: Doc{"Returns what a string key holds.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "set", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Write: set,
		Keys: oneKey("RW and ACCESS due to the optional `GET` argument", "RW", "access", "update", "variable_flags"),
		Doc:  Doc{"Makes a key hold a string, whatever it held before; options say under which condition and for how long.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "setnx", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "OW", "insert"), Write: setnx,
		Doc: Doc{"Makes a key hold a string unless the key exists.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "mget", Arity: -2, Flags: FlagReadonly | FlagFast, Keys: allKeys(1, "RO", "access"), Read: mget, Split: SplitArray,
		Tips: []string{"request_policy:multi_shard"},
		Doc:  Doc{"Returns what several string keys hold, null for a key that is absent or no string.", "1.0.0", "string", "O(N) where N is the number of keys to retrieve."},
	},
	{
		Name: "mset", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: allKeys(2, "OW", "update"), Write: mset, Split: SplitOK,
		Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
		Doc:  Doc{"Makes each of several keys hold the string that follows it.", "1.0.1", "string", "O(N) where N is the number of keys to set."},
	},
	{
		Name: "incr", Arity: 2, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"), Write: incr,
		Doc: Doc{"Adds one to the integer that a key holds; an absent key counts as 0.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "incrby", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"), Write: incrby,
		Doc: Doc{"Adds an integer to the one that a key holds; an absent key counts as 0.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "decr", Arity: 2, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"), Write: decr,
		Doc: Doc{"Subtracts one from the integer that a key holds; an absent key counts as 0.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "decrby", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"), Write: decrby,
		Doc: Doc{"Subtracts an integer from the one that a key holds; an absent key counts as 0.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "append", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"), Write: appendCommand,
		Doc: Doc{"Adds bytes to the end of a string, made when the key is absent, and returns the new length.", "2.0.0", "string", "O(N) where N is the new length: the value is stored as a whole."},
	},
	{
		Name: "strlen", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"), Read: strlen,
		Doc: Doc{"Returns the length of a string in bytes, 0 for an absent key.", "2.2.0", "string", "O(N) where N is the length: the value is read as a whole."},
	},
}

// oneKey is the key specification of a command whose only key is its first argument.
func oneKey(notes string, flags ...string) []KeySpec {
	return []KeySpec{{First: 1, Last: 0, Step: 1, Flags: flags, Notes: notes}}
}

// allKeys is that of a command whose every step-th argument is a key.
func allKeys(step int, flags ...string) []KeySpec {
	return []KeySpec{{First: 1, Last: -1, Step: step, Flags: flags}}
}

func get(r *Reader, args [][]byte, out *Reply) error {
	rec, err := r.load(args[1])
	if err == nil && !rec.wrongType(out) {
		rec.reply(out)
	}
	return err
}

// reply appends the value of a string, null if there is none.
func (rec *record) reply(out *Reply) {
	if !rec.live {
		out.Null()
		return
	}
	out.Bulk(rec.Value)
}

func strlen(r *Reader, args [][]byte, out *Reply) error {
	rec, err := r.load(args[1])
	if err != nil || rec.wrongType(out) {
		return err
	}
	if !rec.live {
		rec.Value = nil
	}
	out.Int(int64(len(rec.Value)))
	return nil
}

func mget(r *Reader, args [][]byte, out *Reply) error {
	out.Array(len(args) - 1)
	for _, key := range args[1:] {
		rec, err := r.load(key)
		if err != nil {
			return err
		}
		rec.live = rec.live && rec.Type == keys.String
		rec.reply(out)
	}
	return nil
}

// setOptions are SET's options as given.
type setOptions struct {
	nx, xx, get, keepTTL bool
	unit                 timeUnit
	expire               []byte // nil: no expire time
}

// timeUnit says what an expire time counts, and from when.
type timeUnit byte

const (
	unitNone timeUnit = iota
	seconds
	milliseconds
	unixSeconds
	unixMilliseconds
)

func (u timeUnit) inSeconds() bool { return u == seconds || u == unixSeconds }
func (u timeUnit) relative() bool  { return u == seconds || u == milliseconds }

// parse reads the options; false means a syntax error. An expire option may be repeated, and then the last counts, but not joined
// by another one or KEEPTTL.
func (o *setOptions) parse(args [][]byte) bool {
	for i := 0; i < len(args); i++ {
		a := args[i]
		unit := unitNone
		switch {
		case isOption(a, "nx") && !o.xx:
			o.nx = true
		case isOption(a, "xx") && !o.nx:
			o.xx = true
		case isOption(a, "get"):
			o.get = true
		case isOption(a, "keepttl") && o.unit == unitNone:
			o.keepTTL = true
		case isOption(a, "ex"):
			unit = seconds
		case isOption(a, "px"):
			unit = milliseconds
		case isOption(a, "exat"):
			unit = unixSeconds
		case isOption(a, "pxat"):
			unit = unixMilliseconds
		default:
			return false
		}
		if unit == unitNone {
			continue
		}
		if o.keepTTL || o.unit != unitNone && o.unit != unit || i+1 == len(args) {
			return false
		}
		i++
		o.unit, o.expire = unit, args[i]
	}
	return true
}

func set(w *Writer, args [][]byte, out *Reply) error {
	key, value := args[1], args[2]
	var o setOptions
	if len(args) > 3 && !o.parse(args[3:]) {
		out.Error(ErrSyntax)
		return nil
	}
	var expireMS uint64
	if o.unit != unitNone {
		var ok bool
		if expireMS, ok = w.expireTime("set", o.expire, o.unit, out); !ok {
			return nil
		}
	}
	if w.mayBeBlind() && !o.nx && !o.xx && !o.get && !o.keepTTL {
		out.OK()
		return w.setBlind(key, expireMS, value)
	}
	old, err := w.load(key)
	if err != nil {
		return err
	}
	if o.get {
		if old.wrongType(out) {
			return nil
		}
		old.reply(out)
	}
	if o.nx && old.live || o.xx && !old.live {
		if !o.get {
			out.Null()
		}
		return nil
	}
	if !o.get {
		out.OK()
	}
	if o.keepTTL && old.live {
		expireMS = old.ExpireMS
	}
	return w.setString(key, &old, expireMS, value, nil)
}

// expireTime makes absolute Unix ms of the argument of SET's expire options, which must be positive; it appends the error of the
// named command if it is not or does not fit.
func (w *Writer) expireTime(name string, arg []byte, unit timeUnit, out *Reply) (ms uint64, ok bool) {
	n, ok := parseInt(arg)
	if !ok {
		out.Error(ErrNotInteger)
		return 0, false
	}
	if n <= 0 || unit.inSeconds() && n > math.MaxInt64/1000 {
		out.InvalidExpire(name)
		return 0, false
	}
	if unit.inSeconds() {
		n *= 1000
	}
	if unit.relative() {
		if n > math.MaxInt64-int64(w.State.TimeMS) {
			out.InvalidExpire(name)
			return 0, false
		}
		n += int64(w.State.TimeMS)
	}
	return uint64(n), true
}

func setnx(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil {
		return err
	}
	if old.live {
		out.Int(0)
		return nil
	}
	out.Int(1)
	return w.setString(args[1], &old, 0, args[2], nil)
}

func mset(w *Writer, args [][]byte, out *Reply) error {
	if len(args)%2 == 0 {
		out.wrongArity("mset")
		return nil
	}
	blind := w.mayBeBlind()
	for i := 1; i < len(args); i += 2 {
		if blind {
			if err := w.setBlind(args[i], 0, args[i+1]); err != nil {
				return err
			}
			continue
		}
		old, err := w.load(args[i])
		if err != nil {
			return err
		}
		if err := w.setString(args[i], &old, 0, args[i+1], nil); err != nil {
			return err
		}
	}
	out.OK()
	return nil
}

func incr(w *Writer, args [][]byte, out *Reply) error { return w.add(args[1], 1, out) }

func decr(w *Writer, args [][]byte, out *Reply) error { return w.add(args[1], -1, out) }

func incrby(w *Writer, args [][]byte, out *Reply) error {
	n, ok := parseInt(args[2])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	return w.add(args[1], n, out)
}

func decrby(w *Writer, args [][]byte, out *Reply) error {
	n, ok := parseInt(args[2])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return nil
	case n == math.MinInt64:
		out.Error(ErrDecrOverflow)
		return nil
	}
	return w.add(args[1], -n, out)
}

// add adds n to the integer that key holds and keeps its expire time.
func (w *Writer) add(key []byte, n int64, out *Reply) error {
	old, err := w.load(key)
	if err != nil || old.wrongType(out) {
		return err
	}
	var value int64
	var expireMS uint64
	if old.live {
		var ok bool
		if value, ok = parseInt(old.Value); !ok {
			out.Error(ErrNotInteger)
			return nil
		}
		expireMS = old.ExpireMS
	}
	if n < 0 && value < math.MinInt64-n || n > 0 && value > math.MaxInt64-n {
		out.Error(ErrOverflow)
		return nil
	}
	value += n
	out.Int(value)
	var room [maxIntBytes]byte
	return w.setString(key, &old, expireMS, appendInt(room[:0], value), nil)
}

func appendCommand(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	var head []byte
	var expireMS uint64
	if old.live {
		head, expireMS = old.Value, old.ExpireMS
		if len(head)+len(args[2]) > maxStringBytes {
			out.Error(ErrTooLong)
			return nil
		}
	}
	out.Int(int64(len(head) + len(args[2])))
	return w.setString(args[1], &old, expireMS, head, args[2])
}
