package server

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// Cursors of SCAN have 53 bits, since many clients take them for doubles: the slot to go on with, and above its 14 bits
// a place in the slot, 0 for its beginning. Only slots of more than redis.WholeSlotKeys keys are returned in parts, in
// one of two orders.
//
// At first SCAN goes through such a slot as the keys are stored, up to the key that was the last one when it began: so
// it ends, whatever is written meanwhile. A place has no room for a key. So Scans remembers the keys, and the place is
// a number there, with inOrder set.
//
// A number that is forgotten, or was given by a process that is gone, begins the slot anew, in the order of a hash of
// the keys. Then a place is the smallest hash that is not returned yet. It means the same to all servers at all times;
// nothing has to be remembered, and no key has to stay. Keys of the same hash come together. The keys are not stored in
// that order, so each part is searched for in the whole slot, and has so many keys that there are about slotParts of
// them at most.
const (
	slotBits   = 14
	placeBits  = 38
	inOrder    = 1 << placeBits
	slotParts  = 32
	scanBudget = 16 // steps of one SCAN that find nothing
)

// placeBits returns the length of places in the order of the hash.
func (b *backend) placeBits() int {
	if b.mistakes.FewPlaces {
		return 4
	}
	return placeBits
}

// Scans remembers how far SCAN has got in slots that it returns in parts. Servers that share the same data share it.
type Scans struct {
	mu    sync.Mutex
	all   []scanned // the oldest first
	bytes int       // of their keys
	last  uint64
}

const (
	maxScans     = 1024
	maxScanBytes = 1 << 20
)

// scanned says how far a scan has got in a slot.
type scanned struct {
	slot       topology.Slot
	after, end []byte // it goes on after a key, nil for the beginning, and ends with another; see redis.CompareKeys
	place      uint64 // the number in the cursor
	before     uint64 // that of the scan's cursor before, which is not needed any more when this one comes back
}

func (s *scanned) size() int { return len(s.after) + len(s.end) }

// note remembers a scan, and returns the place for its cursor. It forgets the oldest ones if there are too many.
//
// Numbers rise, at least as the clock does in ms. So no process gives a number twice, nor one that a process before it
// gave on the same data, unless that one gave a thousand a second or the clock goes back.
func (x *Scans) note(s scanned) (place uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = max(x.last+1, uint64(time.Now().UnixMilli()))
	s.place = x.last%inOrder + inOrder
	x.all, x.bytes = append(x.all, s), x.bytes+s.size()
	for len(x.all) > maxScans || x.bytes > maxScanBytes {
		x.forget(0)
	}
	return s.place
}

// find returns the scan that has got to a place of a slot, if it is remembered.
func (x *Scans) find(slot topology.Slot, place uint64) (s scanned, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.all, func(s scanned) bool { return s.place == place && s.slot == slot })
	if i < 0 {
		return s, false
	}
	s = x.all[i]
	if i := slices.IndexFunc(x.all, func(o scanned) bool { return o.place == s.before }); i >= 0 {
		x.forget(i)
	}
	return s, true
}

// forget forgets the i-th scan. The caller holds mu.
func (x *Scans) forget(i int) {
	x.bytes -= x.all[i].size()
	x.all = slices.Delete(x.all, i, i+1)
}

func runScan(e *executor, cmd *command) {
	args := cmd.args
	cursor, ok := redis.ParseCursor(args[1])
	if !ok {
		e.out.Error(redis.ErrInvalidCursor)
		return
	}
	options, ok := redis.ParseScanOptions(args[2:], true, &e.work, e.out)
	if !ok {
		return
	}
	count := options.Count
	wanted := func(k redis.WalkedKey) bool { return options.Wants(k, &e.work) }
	from, place := topology.Slot(cursor%topology.SlotCount), cursor>>slotBits%(2*inOrder)
	found := e.collected()
	scan, remembered := scanned{slot: from}, place == 0
	n, next, large := 0, uint64(0), place > 0
	var failure []byte
	switch {
	case !large:
		n, next, large, failure = e.scanSlots(from, count, wanted, &found)
	case place >= inOrder && !e.mistakes.ForgetScans:
		scan, remembered = e.scans.find(from, place)
	}
	switch {
	case !large || failure != nil:
	case remembered:
		n, next, failure = e.scanInOrder(scan, count, wanted, &found)
	default:
		if place >= inOrder {
			place = 0
		}
		n, next, failure = e.scanSlot(from, place%(1<<e.placeBits()), count, wanted, &found)
	}
	if e.fails(failure) || e.work.Ended() != nil {
		return
	}
	e.out.Array(2)
	e.out.BulkString(strconv.FormatUint(next, 10))
	e.out.Array(n)
	e.append(&found)
}

// scanSlots collects keys from the beginning of a slot on, of whole slots. It returns how many, and the next cursor. If
// the first slot has too many keys, it collects nothing and returns large.
func (e *executor) scanSlots(from topology.Slot, count int64, wanted func(redis.WalkedKey) bool, found *redis.Reply,
) (n int, next uint64, large bool, failure []byte) {
	w := redis.KeyWalk{Limit: int(min(count, redis.MaxWalk)), WholeSlots: true}
	looked, steps := int64(0), 0
	failure = e.walkSlots(reads, topology.SlotRange{First: from, Last: topology.SlotCount - 1}, &w, func() bool {
		slot, within := w.Within()
		for _, k := range w.Keys {
			if (!within || k.Slot < slot) && wanted(k) {
				found.Bulk(k.Key)
				n++
			}
		}
		if within {
			next, large = uint64(slot), slot == from
			return false
		}
		if e.work.Ended() != nil {
			return false
		}
		looked += int64(w.Count)
		steps++
		if looked < count && steps < scanBudget {
			return true
		}
		if last := w.Slots.Last; w.Advance() {
			next = uint64(w.Slots.First)
		} else {
			next = (uint64(last) + 1) % topology.SlotCount
		}
		return false
	})
	return n, next, large, failure
}

// scanInOrder collects the next part of a large slot, in the order in which its keys are stored. It returns how many
// keys that are, and the next cursor.
func (e *executor) scanInOrder(s scanned, count int64, wanted func(redis.WalkedKey) bool, found *redis.Reply) (
	n int, next uint64, failure []byte) {
	w := redis.KeyWalk{After: s.after, Limit: int(min(count, redis.MaxWalk)), ToLast: s.after == nil}
	next = (uint64(s.slot) + 1) % topology.SlotCount
	looked, steps := int64(0), 0
	failure = e.walkSlots(reads, oneSlot(s.slot), &w, func() bool {
		if w.ToLast {
			s.end, w.ToLast = w.Last, false
		}
		for _, k := range w.Keys {
			if redis.CompareKeys(k.Key, s.end) > 0 {
				return false
			}
			if wanted(k) {
				found.Bulk(k.Key)
				n++
			}
		}
		looked += int64(w.Count)
		steps++
		if looked < count && steps < scanBudget || found.Full || e.work.Ended() != nil {
			return !found.Full && e.work.Ended() == nil
		}
		if w.Advance() {
			s.before, s.after = s.place, w.After
			next = e.scans.note(s)<<slotBits | uint64(s.slot)
		}
		return false
	})
	return n, next, failure
}

// scanSlot collects the next part of a large slot in the order of the hash, from a place on. It returns how many keys
// that are, and the next cursor.
func (e *executor) scanSlot(slot topology.Slot, from uint64, count int64, wanted func(redis.WalkedKey) bool,
	found *redis.Reply) (n int, next uint64, failure []byte) {
	type taken struct {
		hash uint64
		end  int // in found
	}
	bits := e.placeBits()
	to := uint64(1) << bits
	var all []taken
	looked := 0
	w := redis.KeyWalk{}
	failure = e.walkSlots(reads, oneSlot(slot), &w, func() bool {
		looked += len(w.Keys)
		most := max(count, redis.WholeSlotKeys, int64(looked/slotParts))
		for _, k := range w.Keys {
			hash := xxhash.Sum64(k.Key) >> (64 - bits)
			if hash < from || hash >= to || !wanted(k) {
				continue
			}
			found.Bulk(k.Key)
			all = append(all, taken{hash, len(found.Buf)})
			for int64(len(all)/2) >= most && to-from > 1 {
				to = from + (to-from)/2
				kept, start, end := all[:0], 0, 0
				for _, x := range all {
					if x.hash < to {
						end += copy(found.Buf[end:], found.Buf[start:x.end])
						kept = append(kept, taken{x.hash, end})
					}
					start = x.end
				}
				all, found.Buf = kept, found.Buf[:end]
			}
		}
		return !found.Full && e.work.Ended() == nil
	})
	if next = to<<slotBits | uint64(slot); to == 1<<bits {
		next = (uint64(slot) + 1) % topology.SlotCount
	}
	return len(all), next, failure
}
