package redis

import (
	"math/rand/v2"
	"strconv"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/topology"
)

// This file has reads inside a unit of writes: a transaction or a script. They run at apply, on every replica, through
// Writer.Run. Such a read sees what the calls before it have written to the batch, and below that the state before the
// batch, as of the entry's time, and nothing that it finds depends on what a replica has in memory. What it chooses at
// random follows from the entry, unless Writer.Choices is set. So all replicas reply the same, except that a replica
// may have no room for a reply.
//
// A region waits for its apply. So such a read is bounded as a write is (limit.go), and refused beyond the bound.
// A read goes over the batch in order only after the batch has indexed all its writes (engine.Batch.Iter). The caller
// should therefore end a long stage before a unit with a call that Iterates.

// unitReader is the Reader of a Writer.
type unitReader struct {
	Reader
	steps  engine.Work // of the present read: moves of iterators, and what the read computes
	billed int         // how many of them the Writer has counted
}

// bill has the Writer count the steps since the last call.
func (r *unitReader) bill() error {
	n := r.steps.Spent() - r.billed
	r.billed += n
	return r.unit.spend(n)
}

// Reader returns a Reader for reads inside a unit, which sees the batch as it is now. It belongs to the Writer. Run
// uses it for the rows of reads.
func (w *Writer) Reader() *Reader {
	r := w.reader
	if r == nil {
		r = &unitReader{}
		r.steps.Look = func() error {
			if !w.Work.Spend(engine.LookEvery) {
				return w.Work.Ended()
			}
			return r.bill()
		}
		w.reader = r
	}
	r.unit, r.work, r.choices, r.seeded = w, &r.steps, w.Choices, false
	r.InstantMS, r.RegionTimeMS = w.State.TimeMS, w.State.TimeMS
	r.Slots, r.Index, r.Legacy, r.Effects = w.State.Slots, w.Index, w.State.Legacy, w.Effects
	return &r.Reader
}

// read runs a read command.
func (w *Writer) read(c *Command, args [][]byte, out *Reply) error {
	r := w.Reader()
	steps := &w.reader.steps
	*steps, w.reader.billed = engine.Work{Look: steps.Look}, 0
	w.Batch.WatchIters(steps)
	run := c.Read
	if run == nil {
		run = c.InUnit
	}
	err := run(r, args, out)
	w.Batch.WatchIters(w.Work)
	r.opened.release()
	r.release()
	if over := steps.Ended(); over != nil {
		return over
	}
	if err == nil {
		err = w.reader.bill()
	}
	return err
}

// Spent returns how much the last call of Run has gone through, in units of MaxWork. It is the same on all replicas,
// unless one had no room for the reply of a read.
func (w *Writer) Spent() int { return w.spent }

// chanceInUnit returns the source of a read's random choices. It takes one number of the Writer's, however many choices
// the read makes: those depend on the room for the reply.
func (r *Reader) chanceInUnit() *rand.Rand {
	if !r.seeded {
		by := r.unit.random()
		r.numbers.Seed(by.Uint64(), by.Uint64())
		r.seeded = true
	}
	return r.chance
}

// Iterates reports whether a call of a read command may go over keys or elements in order. Else it only looks some up.
func (c *Command) Iterates() bool {
	switch c.Name {
	case "zcount", "zlexcount", "zrank", "zrevrank":
		return true
	}
	return c.InUnit != nil || c.Read != nil && c.Flags&FlagFast == 0
}

// LookupInUnit finds the command of a call inside a unit: a row with a function to run it there, also a subcommand. A
// call of a write that only reads gets the row that reads. It returns nil if there is none.
func LookupInUnit(args [][]byte) *Command {
	c := Lookup(args[0])
	if c == nil && len(args[0]) == len("neokv") && IsOption(args[0], "neokv") {
		if ScriptText(args) > 0 {
			return Script
		}
		c = &Command{Sub: Own}
	}
	if c != nil && len(c.Sub) > 0 && len(args) > 1 {
		c = c.Subcommand(args[1])
	}
	switch {
	case c == nil, c.Read == nil && c.Write == nil && c.InUnit == nil:
		return nil
	case c.ReadBy != nil && c.CheckArity(len(args)):
		if row := c.ReadBy(args); row != nil {
			return row
		}
	}
	return c
}

// walkAll calls f with each key of some slots of the region, in the order of walks, until f returns false.
func (r *Reader) walkAll(w KeyWalk, f func(WalkedKey) bool) error {
	for more := true; more; more = w.Advance() {
		if err := r.Step(&w); err != nil {
			return err
		}
		for _, k := range w.Keys {
			if !f(k) {
				return nil
			}
		}
	}
	return nil
}

// dbsizeInUnit counts the region's keys.
func dbsizeInUnit(r *Reader, _ [][]byte, out *Reply) error {
	n := 0
	w := KeyWalk{Slots: r.Slots, CountOnly: true}
	for more := true; more; more = w.Advance() {
		if err := r.Step(&w); err != nil {
			return err
		}
		n += w.Count
	}
	out.Int(int64(n))
	return nil
}

// keysInUnit lists those keys of the region that match a pattern.
func keysInUnit(r *Reader, args [][]byte, out *Reply) error {
	pattern := NewGlob(args[1], r.work)
	start, n := len(out.Buf), 0
	err := r.walkAll(KeyWalk{Slots: r.Slots}, func(k WalkedKey) bool {
		if pattern.Match(k.Key, r.work) {
			out.Bulk(k.Key)
			n++
		}
		return !out.Full && r.work.Ended() == nil
	})
	end := len(out.Buf)
	out.Array(n)
	out.toFront(start, end)
	return err
}

// scanInUnit runs SCAN over the region's slots from that of the cursor on. The cursor is a slot, as outside of units. A
// cursor from there may name a place in a slot: that slot begins anew. Each slot is listed as a whole.
func scanInUnit(r *Reader, args [][]byte, out *Reply) error {
	cursor, ok := ParseCursor(args[1])
	if !ok {
		out.Error(ErrInvalidCursor)
		return nil
	}
	options, ok := ParseScanOptions(args[2:], true, r.work, out)
	if !ok {
		return nil
	}
	slots := topology.SlotRange{First: max(topology.Slot(cursor%topology.SlotCount), r.Slots.First), Last: r.Slots.Last}
	found, n, looked, next := r.aside(out), 0, int64(0), uint64(slots.Last)+1
	if slots.First <= slots.Last {
		at := slots.First
		err := r.walkAll(KeyWalk{Slots: slots}, func(k WalkedKey) bool {
			if k.Slot != at && looked >= options.Count {
				next = uint64(k.Slot)
				return false
			}
			at = k.Slot
			looked++
			if options.Wants(k, r.work) {
				found.Bulk(k.Key)
				n++
			}
			return !found.Full && r.work.Ended() == nil
		})
		if err != nil {
			return err
		}
	}
	out.Array(2)
	out.BulkString(strconv.FormatUint(next%topology.SlotCount, 10))
	out.Array(n)
	r.join(out, &found)
	return nil
}

// randomKeyNear is how many keys RANDOMKEY chooses from inside a unit.
const randomKeyNear = 100

// randomKeyInUnit returns one of the keys that follow a random slot of the region. So a key that follows a large gap is
// more likely than others, and the keys behind the first ones of a slot are not found.
func randomKeyInUnit(r *Reader, _ [][]byte, out *Reply) error {
	by := r.random()
	first := r.Slots.First + topology.Slot(by.IntN(r.Slots.Count()))
	var key []byte
	met := 0
	choose := func(k WalkedKey) bool {
		if met++; by.IntN(met) == 0 {
			key = append([]byte{}, k.Key...)
		}
		return met < randomKeyNear
	}
	err := r.walkAll(KeyWalk{Slots: topology.SlotRange{First: first, Last: r.Slots.Last}}, choose)
	if err == nil && met == 0 && first > r.Slots.First {
		err = r.walkAll(KeyWalk{Slots: topology.SlotRange{First: r.Slots.First, Last: first - 1}}, choose)
	}
	switch {
	case err != nil:
		return err
	case key == nil:
		out.Null()
	default:
		out.Bulk(key)
	}
	return nil
}

// source returns where the Reader reads.
func (r *Reader) source() source {
	if r.unit != nil {
		return (*writtenSource)(r.unit)
	}
	return r.View
}
