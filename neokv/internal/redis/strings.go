package redis

import (
	"math"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

var stringCommands = []*Command{
	{
		Name: "get", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"), Read: get,
		Doc: Doc{"Returns what a string key holds.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "set", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Write: set, Reads: Reads{Blind: true},
		Keys: oneKey("RW and ACCESS due to the optional `GET` argument", "RW", "access", "update", "variable_flags"),
		Doc: Doc{"Makes a key hold a string, whatever it held before; options say under which condition and for " +
			"how long.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "setnx", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "OW", "insert"),
		Write: setnx,
		Doc:   Doc{"Makes a key hold a string unless the key exists.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "mget", Arity: -2, Flags: FlagReadonly | FlagFast, Keys: allKeys(1, "RO", "access"), Read: mget,
		Split: SplitArray,
		Tips:  []string{"request_policy:multi_shard"},
		Doc: Doc{"Returns what several string keys hold, null for a key that is absent or no string.", "1.0.0",
			"string", "O(N) where N is the number of keys to retrieve."},
	},
	{
		Name: "mset", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: allKeys(2, "OW", "update"), Write: mset,
		Reads: Reads{Blind: true}, Split: SplitOK,
		Tips: []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
		Doc: Doc{"Makes each of several keys hold the string that follows it.", "1.0.1", "string",
			"O(N) where N is the number of keys to set."},
	},
	{
		Name: "incr", Arity: 2, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"),
		Write: with((*Writer).add, 1),
		Doc:   Doc{"Adds one to the integer that a key holds; an absent key counts as 0.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "incrby", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"),
		Write: incrby,
		Doc: Doc{"Adds an integer to the one that a key holds; an absent key counts as 0.", "1.0.0", "string",
			"O(1)"},
	},
	{
		Name: "decr", Arity: 2, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"),
		Write: with((*Writer).add, -1),
		Doc: Doc{"Subtracts one from the integer that a key holds; an absent key counts as 0.", "1.0.0", "string",
			"O(1)"},
	},
	{
		Name: "decrby", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"),
		Write: decrby,
		Doc: Doc{"Subtracts an integer from the one that a key holds; an absent key counts as 0.", "1.0.0", "string",
			"O(1)"},
	},
	{
		Name: "append", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: appendCommand,
		Doc: Doc{"Adds bytes to the end of a string, made when the key is absent, and returns the new length.", "2.0.0",
			"string", "O(N) where N is the length of what is added: of what is there at most 64 KiB are stored anew."},
	},
	{
		Name: "setex", Arity: 4, Flags: FlagWrite | FlagDenyOOM, Keys: oneKey("", "OW", "update"),
		Write: with((*Writer).setFor, seconds),
		Reads: Reads{Blind: true},
		Doc:   Doc{"Makes a key hold a string for so many seconds.", "2.0.0", "string", "O(1)"},
	},
	{
		Name: "psetex", Arity: 4, Flags: FlagWrite | FlagDenyOOM, Keys: oneKey("", "OW", "update"),
		Write: with((*Writer).setFor, milliseconds),
		Reads: Reads{Blind: true},
		Doc:   Doc{"Makes a key hold a string for so many milliseconds.", "2.6.0", "string", "O(1)"},
	},
	{
		Name: "msetnx", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: allKeys(2, "OW", "insert"), Write: msetnx,
		Tips: []string{"request_policy:multi_shard", "response_policy:agg_min"},
		Doc: Doc{"Makes each of several keys hold the string that follows it, unless one of them exists.", "1.0.1",
			"string", "O(N) where N is the number of keys to set."},
	},
	{
		Name: "getset", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "access", "update"),
		Write: getset,
		Doc:   Doc{"Makes a key hold a string and returns the one before.", "1.0.0", "string", "O(1)"},
	},
	{
		Name: "getdel", Arity: 2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"),
		Write: getdel,
		Doc:   Doc{"Returns what a string key holds, and removes it.", "6.2.0", "string", "O(1)"},
	},
	{
		Name: "getex", Arity: -2, Flags: FlagWrite | FlagFast,
		Keys: oneKey("RW and UPDATE because it changes the TTL", "RW", "access", "update"), Write: getex,
		Doc: Doc{"Returns what a string key holds; options change when it expires.", "6.2.0", "string", "O(1)"},
	},
	{
		Name: "getrange", Arity: 4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: getrange,
		Doc: Doc{"Returns a part of a string, from one index to another; negative ones count from the end.", "2.4.0",
			"string", "O(N) where N is the length of the part, or that of a string of up to 64 KiB."},
	},
	{
		Name: "substr", Arity: 4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: getrange,
		Doc: Doc{"The old name of GETRANGE.", "1.0.0", "string",
			"O(N) where N is the length of the part, or that of a string of up to 64 KiB."},
	},
	{
		Name: "setrange", Arity: 4, Flags: FlagWrite | FlagDenyOOM, Keys: oneKey("", "RW", "update"), Write: setrange,
		Doc: Doc{"Writes over a part of a string, made or filled up with zero bytes where it is too short, and " +
			"returns the new length.", "2.2.0", "string",
			"O(N) where N is the length of what is written, and of up to 64 KiB on both sides of it."},
	},
	{
		Name: "incrbyfloat", Arity: 3, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Keys: oneKey("", "RW", "access", "update"), Write: incrbyfloat,
		Doc: Doc{"Adds a number to the one that a key holds; an absent key counts as 0.", "2.6.0", "string", "O(1)"},
	},
	{
		Name: "lcs", Arity: -3, Flags: FlagReadonly,
		Keys: []KeySpec{{First: 1, Last: 1, Step: 1, Flags: []string{"RO", "access"}}}, Read: lcs,
		Doc: Doc{"Finds the longest common subsequence of two strings.", "7.0.0", "string",
			"O(N*M) where N and M are the lengths of the two strings."},
	},
	{
		Name: "strlen", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"), Read: strlen,
		Doc: Doc{"Returns the length of a string in bytes, 0 for an absent key.", "2.2.0", "string",
			"O(1), but a string of up to 64 KiB is read."},
	},
}

// oneKey is the key specification of a command whose only key is its first argument.
func oneKey(notes string, flags ...string) []KeySpec {
	return []KeySpec{{First: 1, Last: 0, Step: 1, Flags: flags, Notes: notes}}
}

// allKeys is the key specification of a command of which every step-th argument is a key.
func allKeys(step int, flags ...string) []KeySpec {
	return []KeySpec{{First: 1, Last: -1, Step: step, Flags: flags}}
}

func get(r *Reader, args [][]byte, out *Reply) error {
	rec, err := r.loadText(args[1])
	if err != nil || rec.wrongType(out) {
		return err
	}
	return r.reply(args[1], &rec, out)
}

func strlen(r *Reader, args [][]byte, out *Reply) error {
	rec, err := r.loadOnly(args[1])
	if err != nil || rec.wrongType(out) {
		return err
	}
	out.Int(int64(rec.length()))
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
		if err := r.reply(key, &rec, out); err != nil || out.Full {
			return err
		}
	}
	return nil
}

// setOptions are the options of SET, or of GETEX, as given.
type setOptions struct {
	nx, xx, get, keepTTL bool // SET
	persist              bool // GETEX
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

// parse reads the options and returns false for a syntax error. A call may repeat an expire option; the last one
// counts. It may not combine it with another expire option, KEEPTTL or PERSIST.
func (o *setOptions) parse(args [][]byte, getex bool) bool {
	for i := 0; i < len(args); i++ {
		a := args[i]
		unit := unitNone
		switch {
		case !getex && IsOption(a, "nx") && !o.xx:
			o.nx = true
		case !getex && IsOption(a, "xx") && !o.nx:
			o.xx = true
		case !getex && IsOption(a, "get"):
			o.get = true
		case !getex && IsOption(a, "keepttl") && o.unit == unitNone:
			o.keepTTL = true
		case getex && IsOption(a, "persist") && o.unit == unitNone:
			o.persist = true
		case IsOption(a, "ex"):
			unit = seconds
		case IsOption(a, "px"):
			unit = milliseconds
		case IsOption(a, "exat"):
			unit = unixSeconds
		case IsOption(a, "pxat"):
			unit = unixMilliseconds
		default:
			return false
		}
		if unit == unitNone {
			continue
		}
		if o.keepTTL || o.persist || o.unit != unitNone && o.unit != unit || i+1 == len(args) {
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
	if len(args) > 3 && !o.parse(args[3:], false) {
		out.Error(ErrSyntax)
		return nil
	}
	var expireMS uint64
	if o.unit != unitNone {
		var ok bool
		if expireMS, ok = w.expireTime(args[0], o.expire, o.unit, out); !ok {
			return nil
		}
	}
	if !o.nx && !o.xx && !o.get && !o.keepTTL {
		out.OK()
		return w.store(key, expireMS, value)
	}
	load := w.loadHead
	if o.get {
		load = w.readIn
	}
	old, err := load(topology.SlotOf(key), key)
	if err != nil {
		return err
	}
	if o.get {
		if old.wrongType(out) {
			return nil
		}
		if err := w.reply(key, &old, out); err != nil {
			return err
		}
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
	err = w.setString(key, &old, expireMS, value)
	if o.unit != unitNone {
		w.tell(EventExpire, key)
	}
	return err
}

// store stores a string, whatever the key held before.
func (w *Writer) store(key []byte, expireMS uint64, value []byte) error {
	slot := topology.SlotOf(key)
	if w.mayBeBlind(slot) && !isLong(len(value)) {
		if err := w.setBlind(slot, key, expireMS, value); err != nil {
			return err
		}
	} else {
		old, err := w.loadHead(slot, key)
		if err == nil {
			err = w.setString(key, &old, expireMS, value)
		}
		if err != nil {
			return err
		}
	}
	if expireMS != 0 {
		w.tell(EventExpire, key)
	}
	return nil
}

// mayBeBlind reports whether a write may store a short string in a slot without looking at what it replaces.
func (w *Writer) mayBeBlind(slot topology.Slot) bool {
	return w.State.CollectedIn&keys.SlotBit(slot) == 0
}

// setBlind stores a short string over whatever the key holds, in a slot for which mayBeBlind is true. It writes
// straight into the batch's memory.
func (w *Writer) setBlind(slot topology.Slot, key []byte, expireMS uint64, value []byte) error {
	w.State.KeysExact = false // nobody knows whether the key is new
	w.Changes++
	w.notice(expireMS)
	if w.Effects != nil && w.Effects.Looks { // for those who are told; it changes nothing of what is stored
		old, err := w.loadHead(slot, key)
		if err != nil {
			return err
		}
		w.replaced(key, &old)
	}
	w.changed(slot, key)
	if !w.Work.Spend(2) { // SetDeferred counts nothing; the value is short
		return w.Work.Ended()
	}
	op := w.Batch.SetDeferred(keys.UserKeyOffset+len(key), keys.StringLen(len(value)))
	keys.AppendMetadata(op.Key[:0], slot, key)
	keys.AppendString(op.Value[:0], expireMS, value)
	return op.Finish()
}

func (w *Writer) setFor(args [][]byte, unit timeUnit, out *Reply) error {
	expireMS, ok := w.expireTime(args[0], args[2], unit, out)
	if !ok {
		return nil
	}
	out.OK()
	return w.store(args[1], expireMS, args[3])
}

// expireTime turns the argument of an expire option of SET, which must be positive, into absolute Unix ms. If the
// argument is not positive or does not fit, it appends the error of the named command.
func (w *Writer) expireTime(name, arg []byte, unit timeUnit, out *Reply) (ms uint64, ok bool) {
	if n, ok := ParseInt(arg); ok && n <= 0 {
		out.invalidExpire(name)
		return 0, false
	}
	when, ok := w.instant(name, arg, unit, out)
	return uint64(when), ok
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
	return w.setString(args[1], &old, 0, args[2])
}

func mset(w *Writer, args [][]byte, out *Reply) error {
	if len(args)%2 == 0 {
		out.wrongArity(args[0])
		return nil
	}
	for i := 1; i < len(args); i += 2 {
		if err := w.store(args[i], 0, args[i+1]); err != nil {
			return err
		}
	}
	out.OK()
	return nil
}

func msetnx(w *Writer, args [][]byte, out *Reply) error {
	if len(args)%2 == 0 {
		out.wrongArity(args[0])
		return nil
	}
	for i := 1; i < len(args); i += 2 {
		old, err := w.load(args[i])
		if err != nil {
			return err
		}
		if old.live {
			out.Int(0)
			return nil
		}
	}
	for i := 1; i < len(args); i += 2 {
		if err := w.store(args[i], 0, args[i+1]); err != nil {
			return err
		}
	}
	out.Int(1)
	return nil
}

func getset(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.readIn(topology.SlotOf(args[1]), args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	if err := w.reply(args[1], &old, out); err != nil {
		return err
	}
	return w.setString(args[1], &old, 0, args[2])
}

func getdel(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.readIn(topology.SlotOf(args[1]), args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	if err := w.reply(args[1], &old, out); err != nil {
		return err
	}
	return w.remove(args[1], &old)
}

// getex replies before it changes anything, since old aliases memory that it changes.
func getex(w *Writer, args [][]byte, out *Reply) error {
	var o setOptions
	if !o.parse(args[2:], true) {
		out.Error(ErrSyntax)
		return nil
	}
	old, err := w.readIn(topology.SlotOf(args[1]), args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	if !old.live {
		out.Null()
		return nil
	}
	var expireMS uint64
	if o.unit != unitNone {
		var ok bool
		if expireMS, ok = w.expireTime(args[0], o.expire, o.unit, out); !ok {
			return nil
		}
	}
	if err := w.reply(args[1], &old, out); err != nil {
		return err
	}
	if o.persist {
		w.event = EventPersist
	}
	switch {
	case o.unit != unitNone && expireMS <= w.State.TimeMS:
		return w.remove(args[1], &old)
	case o.unit != unitNone || o.persist && old.ExpireMS != 0:
		return w.setExpire(args[1], &old, expireMS)
	}
	return nil
}

func incrby(w *Writer, args [][]byte, out *Reply) error {
	n, ok := ParseInt(args[2])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	return w.add(args, n, out)
}

func decrby(w *Writer, args [][]byte, out *Reply) error {
	n, ok := ParseInt(args[2])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return nil
	case n == math.MinInt64:
		out.Error(ErrDecrOverflow)
		return nil
	}
	return w.add(args, -n, out)
}

// add adds n to the integer that the key args[1] holds, and keeps the key's expire time.
func (w *Writer) add(args [][]byte, n int64, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	sum, ok := addInt(old.Value, old.live, n, ErrNotInteger, out)
	if !ok {
		return nil
	}
	var room [maxIntBytes]byte
	return w.setShort(args[1], &old, old.keptExpiry(), appendInt(room[:0], sum))
}

func appendCommand(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	n := old.length() + len(args[2])
	if old.live && n > maxStringBytes {
		out.Error(ErrTooLong)
		return nil
	}
	out.Int(int64(n))
	return w.patch(args[1], &old, old.length(), args[2])
}

func getrange(r *Reader, args [][]byte, out *Reply) error {
	first, last, ok := parseInts(args[2], args[3], out)
	if !ok {
		return nil
	}
	rec, err := r.loadText(args[1])
	if err != nil || rec.wrongType(out) {
		return err
	}
	from, to := byteRange(rec.length(), first, last)
	if rec.live && rec.Long() {
		return r.replyRange(args[1], &rec, from, to, out)
	}
	out.Bulk(rec.Value[from:to])
	return nil
}

// byteRange returns where, in a string of this many bytes, the bytes from index first to index last are, both included.
// Negative indexes count from the end.
func byteRange(bytes int, first, last int64) (from, to int) {
	n := int64(bytes)
	if first < 0 && last < 0 && first > last {
		return 0, 0
	}
	if first < 0 {
		first = max(0, n+first)
	}
	if last < 0 {
		last = max(0, n+last)
	}
	if last = min(last, n-1); first > last {
		return 0, 0
	}
	return int(first), int(last + 1)
}

func setrange(w *Writer, args [][]byte, out *Reply) error {
	offset, ok := ParseInt(args[2])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return nil
	case offset < 0:
		out.Error(errOffset)
		return nil
	}
	old, err := w.load(args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	patch := args[3]
	if len(patch) == 0 {
		out.Int(int64(old.length()))
		return nil
	}
	if offset > maxStringBytes || int(offset)+len(patch) > maxStringBytes {
		out.Error(ErrTooLong)
		return nil
	}
	out.Int(int64(max(int(offset)+len(patch), old.length())))
	return w.patch(args[1], &old, int(offset), patch)
}

func incrbyfloat(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil || old.wrongType(out) {
		return err
	}
	n, ok := parseLongDouble(args[2])
	if !ok {
		out.Error(ErrNotFloat)
		return nil
	}
	text, ok := addLongDouble(old.Value, old.live, n, ErrNotFloat, out)
	if !ok {
		return nil
	}
	return w.setShort(args[1], &old, old.keptExpiry(), text)
}
