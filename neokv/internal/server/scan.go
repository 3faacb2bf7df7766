package server

import (
	"strconv"

	"github.com/cespare/xxhash/v2"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// Cursors of SCAN have 53 bits, since many clients take them for doubles: the slot to go on with, and above its 14 bits
// a place in the slot, 0 for its beginning. Only slots of more than redis.WholeSlotKeys keys are returned in parts.
// SCAN goes through such a slot in the order of a hash of the keys, and the place is the smallest hash that is not
// returned yet. So a cursor means the same to all servers at all times; nothing has to be remembered, and no key has to
// stay. Keys of the same hash come together.
//
// The keys are not stored in the order of that hash. So each part is searched for in the whole slot. A part has so many
// keys that there are about slotParts of them at most.
const (
	slotBits   = 14
	placeBits  = 39
	slotParts  = 32
	scanBudget = 16 // steps of one SCAN that find nothing
)

// placeBits returns the length of places.
func (s *Server) placeBits() int {
	if s.o.Mistakes.FewPlaces {
		return 4
	}
	return placeBits
}

func runScan(c *conn, args [][]byte) {
	cursor, ok := redis.ParseCursor(args[1])
	if !ok {
		c.out.Error(redis.ErrInvalidCursor)
		return
	}
	var pattern *redis.Glob
	var kind []byte
	count := int64(10)
	for i := 2; i < len(args); i += 2 {
		left := len(args) - i
		switch {
		case left >= 2 && redis.IsOption(args[i], "count"):
			if count, ok = redis.ParseInt(args[i+1]); !ok {
				c.out.Error(redis.ErrNotInteger)
				return
			}
			if count < 1 {
				c.out.Error(redis.ErrSyntax)
				return
			}
		case left >= 2 && redis.IsOption(args[i], "match"):
			pattern = redis.NewGlob(args[i+1], &c.work)
		case left >= 2 && redis.IsOption(args[i], "type"):
			kind = args[i+1]
		default:
			c.out.Error(redis.ErrSyntax)
			return
		}
	}
	wanted := func(k redis.WalkedKey) bool {
		return (pattern == nil || pattern.Match(k.Key, &c.work)) && (kind == nil || redis.IsOption(kind, k.Type.String()))
	}
	from, place := topology.Slot(cursor%topology.SlotCount), cursor>>slotBits%(1<<c.s.placeBits())
	found := c.collected()
	n, next, large := 0, uint64(0), place > 0
	var failure []byte
	if !large {
		n, next, large, failure = c.scanSlots(from, count, wanted, &found)
	}
	if large && failure == nil {
		n, next, failure = c.scanSlot(from, place, count, wanted, &found)
	}
	if c.fails(failure) || c.work.Ended() != nil {
		return
	}
	c.out.Array(2)
	c.out.BulkString(strconv.FormatUint(next, 10))
	c.out.Array(n)
	c.append(&found)
}

// scanSlots collects keys from the beginning of a slot on, of whole slots. It returns how many, and the next cursor. If
// the first slot has too many keys, it collects nothing and returns large.
func (c *conn) scanSlots(from topology.Slot, count int64, wanted func(redis.WalkedKey) bool, found *redis.Reply,
) (n int, next uint64, large bool, failure []byte) {
	w := redis.KeyWalk{Limit: int(min(count, redis.MaxWalk)), WholeSlots: true}
	looked, steps := int64(0), 0
	failure = c.walkSlots(reads, topology.SlotRange{First: from, Last: topology.SlotCount - 1}, &w, func() bool {
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
		if c.work.Ended() != nil {
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

// scanSlot collects the next part of a large slot, from a place on. It returns how many keys that are, and the next
// cursor.
func (c *conn) scanSlot(slot topology.Slot, from uint64, count int64, wanted func(redis.WalkedKey) bool,
	found *redis.Reply) (n int, next uint64, failure []byte) {
	type taken struct {
		hash uint64
		end  int // in found
	}
	bits := c.s.placeBits()
	to := uint64(1) << bits
	var all []taken
	looked := 0
	w := redis.KeyWalk{}
	failure = c.walkSlots(reads, oneSlot(slot), &w, func() bool {
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
		return !found.Full && c.work.Ended() == nil
	})
	if next = to<<slotBits | uint64(slot); to == 1<<bits {
		next = (uint64(slot) + 1) % topology.SlotCount
	}
	return len(all), next, failure
}
