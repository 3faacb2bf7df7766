package redis

import (
	"bytes"
	"math"
	"strconv"

	"neokv.dev/neokv/internal/topology"
)

var genericCommands = []*Command{
	{
		Name: "del", Arity: -2, Flags: FlagWrite, Keys: allKeys(1, "RM", "delete"), Write: del,
		Split: SplitSum,
		Tips:  []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Doc: Doc{"Removes keys and returns how many there were.", "1.0.0", "generic",
			"O(N) where N is the number of keys; a collection costs as much as a string, its elements are " +
				"reclaimed in the background."},
	},
	{
		Name: "unlink", Arity: -2, Flags: FlagWrite | FlagFast, Keys: allKeys(1, "RM", "delete"), Write: del,
		Split: SplitSum,
		Tips:  []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Doc: Doc{"Removes keys and returns how many there were; the same as DEL here.", "4.0.0", "generic",
			"O(N) where N is the number of keys."},
	},
	{
		Name: "exists", Arity: -2, Flags: FlagReadonly | FlagFast, Keys: allKeys(1, "RO"), Read: exists,
		Split: SplitSum,
		Tips:  []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Doc: Doc{"Counts how many of the keys exist; a key named twice counts twice.", "1.0.0", "generic",
			"O(N) where N is the number of keys to check."},
	},
	{
		Name: "touch", Arity: -2, Flags: FlagReadonly | FlagFast, Keys: allKeys(1, "RO"), Read: exists, Split: SplitSum,
		Tips: []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		Doc: Doc{"Counts how many of the keys exist; the same as EXISTS, since times of access are not kept.", "3.2.1",
			"generic", "O(N) where N is the number of keys to check."},
	},
	{
		Name: "rename", Arity: 3, Flags: FlagWrite,
		Keys:  fromTo([]string{"RW", "access", "delete"}, []string{"OW", "update"}),
		Write: with((*Writer).rename, false),
		Doc: Doc{"Gives what a key holds, with its expire time, to another key, whatever that held.", "1.0.0",
			"generic",
			"O(N) where N is the length of the string or the size of the collection, whose elements are copied."},
	},
	{
		Name: "renamenx", Arity: 3, Flags: FlagWrite | FlagFast,
		Keys: fromTo([]string{"RW", "access", "delete"}, []string{"OW", "insert"}), Write: with((*Writer).rename, true),
		Doc: Doc{"Gives what a key holds, with its expire time, to another key, unless that exists.", "1.0.0",
			"generic",
			"O(N) where N is the length of the string or the size of the collection, whose elements are copied."},
	},
	{
		Name: "copy", Arity: -3, Flags: FlagWrite | FlagDenyOOM,
		Keys: fromTo([]string{"RO", "access"}, []string{"OW", "update"}), Write: copyCommand,
		Doc: Doc{"Makes another key hold, with its expire time, what a key holds; unless that exists, or REPLACE " +
			"is given.", "6.2.0", "generic",
			"O(N) where N is the length of the string or the size of the collection, whose elements are copied."},
	},
	{
		Name: "type", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"), Read: typeCommand,
		Doc: Doc{"Names the type of what a key holds, none for an absent key.", "1.0.0", "generic", "O(1)"},
	},
	{
		Name: "expire", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: with((*Writer).expire, seconds),
		Doc:   Doc{"Lets a key expire in so many seconds.", "1.0.0", "generic", "O(1)"},
	},
	{
		Name: "pexpire", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: with((*Writer).expire, milliseconds),
		Doc:   Doc{"Lets a key expire in so many milliseconds.", "2.6.0", "generic", "O(1)"},
	},
	{
		Name: "expireat", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: with((*Writer).expire, unixSeconds),
		Doc:   Doc{"Lets a key expire at a Unix time in seconds.", "1.2.0", "generic", "O(1)"},
	},
	{
		Name: "pexpireat", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: with((*Writer).expire, unixMilliseconds),
		Doc:   Doc{"Lets a key expire at a Unix time in milliseconds.", "2.6.0", "generic", "O(1)"},
	},
	{
		Name: "expiretime", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: expiretime,
		Doc: Doc{"Returns the Unix time in seconds at which a key expires, -1 if it never does, -2 if it is absent.",
			"7.0.0", "generic", "O(1)"},
	},
	{
		Name: "pexpiretime", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: pexpiretime,
		Doc: Doc{"Returns the Unix time in milliseconds at which a key expires, -1 if it never does, -2 if it is " +
			"absent.", "7.0.0", "generic", "O(1)"},
	},
	{
		Name: "ttl", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"), Read: ttl,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns how many seconds a key has left, -1 if it never expires, -2 if it is absent.", "1.0.0",
			"generic", "O(1)"},
	},
	{
		Name: "pttl", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"), Read: pttl,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns how many milliseconds a key has left, -1 if it never expires, -2 if it is absent.", "2.6.0",
			"generic", "O(1)"},
	},
	{
		Name: "persist", Arity: 2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "update"), Write: persist,
		Doc: Doc{"Lets a key never expire.", "2.2.0", "generic", "O(1)"},
	},
	{
		Name: "scan", Arity: -2, Flags: FlagReadonly, How: HowEverywhere, InUnit: scanInUnit,
		Tips: []string{"nondeterministic_output", "request_policy:special"},
		Doc: Doc{"Lists the keys part by part, from a cursor.", "2.8.0", "generic",
			"O(1) for every call, O(N) for all calls of one listing, N being the number of keys."},
	},
	{
		Name: "randomkey", Arity: 1, Flags: FlagReadonly, How: HowEverywhere, InUnit: randomKeyInUnit,
		Tips: []string{"request_policy:all_shards", "nondeterministic_output"},
		Doc: Doc{"Returns some key, null if there is none.", "1.0.0", "generic",
			"O(1), but O(N) over keys that have expired and are still there."},
	},
	{
		Name: "keys", Arity: 2, Flags: FlagReadonly, Categories: []string{"dangerous"},
		How: HowEverywhere, Split: SplitJoin, InUnit: keysInUnit,
		Tips: []string{"request_policy:all_shards", "nondeterministic_output_order"},
		Doc: Doc{"Lists all keys that match a pattern.", "1.0.0", "generic",
			"O(N) where N is the number of keys in the database."},
	},
	{
		Name: "dbsize", Arity: 1, Flags: FlagReadonly | FlagFast, Categories: []string{"keyspace"},
		How: HowEverywhere, Split: SplitSum, InUnit: dbsizeInUnit,
		Tips: []string{"request_policy:all_shards", "response_policy:agg_sum"},
		Doc: Doc{"Counts the keys.", "1.0.0", "server",
			"O(N) where N is the number of keys in regions that were written to since they were counted."},
	},
	{
		Name: "flushdb", Arity: -1, Flags: FlagWrite, Categories: []string{"keyspace", "dangerous"},
		How: HowEverywhere, Split: SplitOK, Write: flush,
		Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Doc:  Doc{"Removes all keys.", "1.0.0", "server", "O(1) for each region."},
	},
	{
		Name: "flushall", Arity: -1, Flags: FlagWrite, Categories: []string{"keyspace", "dangerous"},
		How: HowEverywhere, Split: SplitOK, Write: flush,
		Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Doc: Doc{"Removes all keys; the same as FLUSHDB, since there is one database.", "1.0.0", "server",
			"O(1) for each region."},
	},
}

func del(w *Writer, args [][]byte, out *Reply) error {
	n := 0
	for _, key := range args[1:] {
		old, err := w.load(key)
		if err != nil {
			return err
		}
		if err := w.remove(key, &old); err != nil {
			return err
		}
		if old.live {
			n++
		}
	}
	out.Int(int64(n))
	return nil
}

func exists(r *Reader, args [][]byte, out *Reply) error {
	load := r.load
	if len(args) == 2 {
		load = r.loadOnly
	}
	n := 0
	for _, key := range args[1:] {
		rec, err := load(key)
		if err != nil {
			return err
		}
		if rec.live {
			n++
		}
	}
	out.Int(int64(n))
	return nil
}

// Held answers 1 if a key exists, else 0, as EXISTS does, but is no look-up that is counted or told of. No client calls
// it.
var Held = &Command{
	Name: "exists", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: allKeys(1, "RO"), How: HowRead,
	Read: func(r *Reader, args [][]byte, out *Reply) error {
		rec, err := r.find(topology.SlotOf(args[1]), args[1], r.View.GetNow)
		if err != nil {
			return err
		}
		held := int64(0)
		if rec.live {
			held = 1
		}
		out.Int(held)
		return nil
	},
}

func typeCommand(r *Reader, args [][]byte, out *Reply) error {
	rec, err := r.loadOnly(args[1])
	switch {
	case err != nil:
		return err
	case !rec.live:
		out.Status("none")
	default:
		out.Status(rec.Type.String())
	}
	return nil
}

// fromTo is the key specification of a command with a source and a destination.
func fromTo(source, destination []string) []KeySpec {
	return []KeySpec{{First: 1, Last: 0, Step: 1, Flags: source}, {First: 2, Last: 0, Step: 1, Flags: destination}}
}

func (w *Writer) rename(args [][]byte, nx bool, out *Reply) error {
	source, destination, err := w.loadBoth(args)
	if err != nil {
		return err
	}
	same := bytes.Equal(args[1], args[2])
	switch {
	case !source.live:
		out.Error(ErrNoSuchKey)
		return nil
	case nx && (same || destination.live):
		out.Int(0)
		return nil
	case nx:
		out.Int(1)
	default:
		out.OK()
	}
	if same {
		return nil
	}
	if err := w.copyTo(args[2], &destination, args[1], &source); err != nil {
		return err
	}
	if err := w.remove(args[1], &source); err != nil {
		return err
	}
	w.tell(EventNew, args[2]) // whatever it held is removed before
	w.tell(EventRenameFrom, args[1])
	w.tell(EventRenameTo, args[2])
	return nil
}

// loadBoth reads the record of args[1], and that of args[2] without its value.
func (w *Writer) loadBoth(args [][]byte) (source, destination record, err error) {
	if destination, err = w.load(args[2]); err == nil {
		source, err = w.load(args[1])
	}
	destination.Value = nil // the second read makes it invalid
	return source, destination, err
}

// clusterDatabases is how many databases a Redis Cluster says that it has, of which it lets clients use number 0.
const clusterDatabases = 16

func copyCommand(w *Writer, args [][]byte, out *Reply) error {
	replace, elsewhere := false, false
	for i := 3; i < len(args); i++ {
		switch a := args[i]; {
		case IsOption(a, "replace"):
			replace = true
		case IsOption(a, "db") && i+1 < len(args):
			i++
			switch db, ok := ParseInt(args[i]); {
			case !ok:
				out.Error(ErrNotInteger)
				return nil
			case db != int64(int32(db)):
				out.Error(errNotInt32)
				return nil
			case db < 0 || db >= clusterDatabases:
				out.Error(ErrDBIndex)
				return nil
			default:
				elsewhere = db != 0
			}
		default:
			out.Error(ErrSyntax)
			return nil
		}
	}
	if elsewhere {
		out.Error(errCopyElsewhere)
		return nil
	}
	if bytes.Equal(args[1], args[2]) {
		out.Error(errSameObject)
		return nil
	}
	source, destination, err := w.loadBoth(args)
	if err != nil {
		return err
	}
	w.looked(args[1], source.live)
	switch {
	case !source.live || destination.live && !replace:
		out.Int(0)
		return nil
	}
	out.Int(1)
	if destination.live {
		w.tell(EventNew, args[2]) // what it held is removed before
	}
	return w.copyTo(args[2], &destination, args[1], &source)
}

// copyTo makes key hold a copy of what another key holds. old is the record of key, source that of from.
func (w *Writer) copyTo(key []byte, old *record, from []byte, source *record) error {
	if !source.Apart() {
		return w.restore(key, old, source.ExpireMS, source.Value)
	}
	return w.duplicate(from, source, key, old)
}

func expiretime(r *Reader, args [][]byte, out *Reply) error {
	at, err := r.expiresAt(args[1])
	if err == nil && at > 0 {
		at = int64((uint64(at) + 500) / 1000)
	}
	if err == nil {
		out.Int(at)
	}
	return err
}

func pexpiretime(r *Reader, args [][]byte, out *Reply) error {
	at, err := r.expiresAt(args[1])
	if err == nil {
		out.Int(at)
	}
	return err
}

// expiresAt returns the Unix time in ms at which the key expires, -1 for a key that never expires, -2 for an absent
// one.
func (r *Reader) expiresAt(key []byte) (int64, error) {
	rec, err := r.loadOnly(key)
	switch {
	case err != nil:
		return 0, err
	case !rec.live:
		return -2, nil
	case rec.ExpireMS == 0:
		return -1, nil
	}
	return int64(rec.ExpireMS), nil
}

func ttl(r *Reader, args [][]byte, out *Reply) error {
	left, err := r.timeLeft(args[1])
	if err == nil && left > 0 {
		left = (left + 500) / 1000
	}
	if err == nil {
		out.Int(left)
	}
	return err
}

func pttl(r *Reader, args [][]byte, out *Reply) error {
	left, err := r.timeLeft(args[1])
	if err == nil {
		out.Int(left)
	}
	return err
}

// timeLeft returns how many ms the key has left, -1 for a key that never expires, -2 for an absent one.
func (r *Reader) timeLeft(key []byte) (int64, error) {
	at, err := r.expiresAt(key)
	if at > 0 {
		at -= int64(r.InstantMS)
	}
	return at, err
}

func persist(w *Writer, args [][]byte, out *Reply) error {
	old, err := w.load(args[1])
	if err != nil {
		return err
	}
	if !old.live || old.ExpireMS == 0 {
		out.Int(0)
		return nil
	}
	out.Int(1)
	return w.setExpire(args[1], &old, 0)
}

// expire runs EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT. A time that has passed removes the key.
func (w *Writer) expire(args [][]byte, unit timeUnit, out *Reply) error {
	var nx, xx, gt, lt bool
	for _, a := range args[3:] {
		switch {
		case IsOption(a, "nx"):
			nx = true
		case IsOption(a, "xx"):
			xx = true
		case IsOption(a, "gt"):
			gt = true
		case IsOption(a, "lt"):
			lt = true
		default:
			out.unsupportedOption(a)
			return nil
		}
	}
	switch {
	case nx && (xx || gt || lt):
		out.Error(errExpireNX)
		return nil
	case gt && lt:
		out.Error(errExpireGTLT)
		return nil
	}
	when, ok := w.instant(args[0], args[2], unit, out)
	if !ok {
		return nil
	}
	old, err := w.load(args[1])
	if err != nil {
		return err
	}
	present := int64(old.ExpireMS)
	switch { // a key that never expires counts as one that expires after all others
	case !old.live, nx && present != 0, xx && present == 0,
		gt && (present == 0 || when <= present), lt && present != 0 && when >= present:
		out.Int(0)
		return nil
	}
	out.Int(1)
	if when <= int64(w.State.TimeMS) {
		return w.remove(args[1], &old)
	}
	return w.setExpire(args[1], &old, uint64(when))
}

// instant turns the time of EXPIRE and its kin into absolute Unix ms. If the argument is no number or does not fit, it
// appends the error of the named command.
func (w *Writer) instant(name, arg []byte, unit timeUnit, out *Reply) (ms int64, ok bool) {
	when, ok := ParseInt(arg)
	if !ok {
		out.Error(ErrNotInteger)
		return 0, false
	}
	if unit.inSeconds() {
		if when > math.MaxInt64/1000 || when < math.MinInt64/1000 {
			out.invalidExpire(name)
			return 0, false
		}
		when *= 1000
	}
	if unit.relative() {
		if when > math.MaxInt64-int64(w.State.TimeMS) {
			out.invalidExpire(name)
			return 0, false
		}
		when += int64(w.State.TimeMS)
	}
	return when, true
}

// flush removes everything that the region holds, with one range deletion for each keyspace. Slots outside of its
// bounds are other regions'.
func flush(w *Writer, args [][]byte, out *Reply) error {
	if !checkFlush(args, out) {
		return nil
	}
	if err := w.Batch.DeleteSlots(w.State.Slots); err != nil {
		return err
	}
	// A blind write can now replace nothing but a short string.
	w.State.KeyCount, w.State.KeysExact = 0, true
	w.State.Legacy, w.State.CollectedAt, w.State.CollectedIn = false, 0, 0
	w.Orphans, w.Flushed = Orphans{}, true
	w.Changes += AllChanged
	w.flushed(w.State.Slots)
	w.Forget() // what is not in the batch yet is deleted, too
	out.OK()
	return nil
}

// checkFlush reports whether a flush has the right arguments. If not, it appends Redis's error.
func checkFlush(args [][]byte, out *Reply) bool {
	if len(args) > 2 || len(args) == 2 && !IsOption(args[1], "sync") && !IsOption(args[1], "async") {
		out.Error(ErrSyntax)
		return false
	}
	return true
}

// flushSlots is the internal write that does what FLUSHALL does, in some slots of a region only:
//
//	flush-slots FIRST LAST flushall [ASYNC|SYNC]
//
// A FLUSHALL runs in each region once. If a region in which it has not run yet is merged with one in which it has, it
// must not delete there again, since clients may have written there meanwhile.
var flushSlots = &Command{Name: "flush-slots", Arity: -4, Flags: FlagWrite, Write: runFlushSlots}

func runFlushSlots(w *Writer, args [][]byte, out *Reply) error {
	if !checkFlush(args[3:], out) {
		return nil
	}
	first, err := strconv.ParseUint(string(args[1]), 10, 16)
	if err != nil {
		return err
	}
	last, err := strconv.ParseUint(string(args[2]), 10, 16)
	if err != nil {
		return err
	}
	bounds := w.State.Slots // nothing beyond them is deleted, whatever the entry says
	slots := topology.SlotRange{
		First: max(topology.Slot(first), bounds.First), Last: min(topology.Slot(last), bounds.Last),
	}
	if slots == bounds {
		return flush(w, args[3:], out)
	}
	// What the Writer keeps back of other slots must not be lost. So the batch gets all of it, before the deletion.
	if err := w.settleAll(); err != nil {
		return err
	}
	w.Forget()
	if slots.First <= slots.Last {
		if err := w.Batch.DeleteSlots(slots); err != nil {
			return err
		}
	}
	// Other slots may hold collections as before. The counter of orphans is too high until the reclaimer's next pass.
	w.State.KeysExact = false
	w.Changes += AllChanged
	w.flushed(slots)
	out.OK()
	return nil
}

// FlushSlots returns the call that does what a call of FLUSHALL or FLUSHDB does, in some slots of a region only.
func FlushSlots(slots topology.SlotRange, flush Call) Call {
	args := [][]byte{[]byte(flushSlots.Name), strconv.AppendUint(nil, uint64(slots.First), 10),
		strconv.AppendUint(nil, uint64(slots.Last), 10)}
	return Call{Command: flushSlots, Args: append(args, flush.Args...)}
}
