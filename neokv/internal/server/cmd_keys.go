package server

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the commands that go over the keys in bounded steps: KEYS, DBSIZE, SCAN, and INFO's section keyspace.
// RANDOMKEY has a file of its own.

// walkSlots walks the part of a slot range that this server covers, in order. It sets w.Slots and calls step after each
// step of w, until step returns false. It returns nil, or the error reply of a region that it could not read. It meets
// each slot once, also if regions are split or merged meanwhile.
func (c *conn) walkSlots(m mode, slots topology.SlotRange, w *redis.KeyWalk, step func() bool) (failure []byte) {
regions:
	for at := int(slots.First); at <= int(slots.Last); {
		t := c.awaitTable(m)
		if t == nil {
			return []byte("-" + redis.ErrClusterDown + "\r\n")
		}
		part, covered := c.coveredFrom(t, topology.Slot(at))
		part.Last = min(part.Last, slots.Last)
		w.Slots = part
		for covered {
			outcome, failure := c.walkStep(m, w)
			if failure != nil {
				return failure
			}
			if outcome == scattered { // on from here, by the next table
				at = int(w.Slots.First)
				continue regions
			}
			if outcome == gone {
				break
			}
			if !step() {
				return nil
			}
			if !w.Advance() {
				break
			}
		}
		at, w.After = int(part.Last)+1, nil
	}
	return nil
}

// fails answers with the failure of a walk, if there is one, and reports whether there is.
func (c *conn) fails(failure []byte) bool {
	c.out.Buf = append(c.out.Buf, failure...)
	return failure != nil
}

// coveredFrom returns the slots from one on that lie in the same region, and whether this server covers them. A slot
// without a region stands alone.
func (c *conn) coveredFrom(t *route.Table, from topology.Slot) (slots topology.SlotRange, covered bool) {
	r, _ := t.Region(from)
	if r == nil {
		return oneSlot(from), false
	}
	return topology.SlotRange{First: from, Last: r.Slots.Last}, c.covers(r)
}

// walkStep runs a walk's next step. The outcome is executed; or gone, if this store no longer leads the slots; or
// scattered, if they lie in several regions by now.
func (c *conn) walkStep(m mode, w *redis.KeyWalk) (outcome outcome, failure []byte) {
	b := &c.batch
	b.reset()
	b.cuts, b.alone = true, true
	b.tasks = append(b.tasks, task{
		call: w.Call(), slot: w.Slots.First, span: w.Slots, scope: walkedSlots, ledOnly: !c.s.proxy(),
	})
	b.exec(m)
	x := &b.tasks[0]
	if x.outcome == failed || len(x.reply) > 0 { // a walk replies nothing unless it is ended
		return failed, bytes.Clone(x.reply)
	}
	return x.outcome, nil
}

var allSlots = topology.SlotRange{First: 0, Last: topology.SlotCount - 1}

func oneSlot(slot topology.Slot) topology.SlotRange {
	return topology.SlotRange{First: slot, Last: slot}
}

func runKeys(c *conn, args [][]byte) {
	found, pattern := c.collected(), redis.NewGlob(args[1])
	n := 0
	w := redis.KeyWalk{}
	failure := c.walkSlots(reads, allSlots, &w, func() bool {
		for _, k := range w.Keys {
			if pattern.Match(k.Key, &c.work) {
				found.Bulk(k.Key)
				n++
			}
		}
		return c.work.Ended() == nil
	})
	if c.fails(failure) || c.over() {
		return
	}
	c.out.Array(n)
	c.append(&found)
}

// keyCounts keeps the last count of each region.
type keyCounts struct {
	mu   sync.Mutex
	last map[topology.RegionID]*redis.KeyCount
}

func (x *keyCounts) of(r topology.RegionID) *redis.KeyCount {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last[r]
}

func (x *keyCounts) keep(r topology.RegionID, n *redis.KeyCount) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil {
		x.last = make(map[topology.RegionID]*redis.KeyCount)
	}
	x.last[r] = n
}

// prune forgets the counts of regions that are no more.
func (x *keyCounts) prune(t *route.Table) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.last) > len(t.Regions) {
		maps.DeleteFunc(x.last, func(r topology.RegionID, _ *redis.KeyCount) bool { return t.ByID(r) == nil })
	}
}

// count counts the keys that this server covers. It does not walk a region again if nobody has written to it since the
// last count. When CountTime is over, count estimates a region by the slots that it has walked, since CRC16 spreads
// keys evenly.
func (c *conn) count(m mode) (sum redis.KeyCount, estimated bool, failure []byte) {
	end := time.Now().Add(c.s.o.Settings.Redis.CountTime)
	for at := 0; at < topology.SlotCount; {
		t := c.awaitTable(m)
		if t == nil {
			return sum, false, []byte("-" + redis.ErrClusterDown + "\r\n")
		}
		c.s.keyCounts.prune(t)
		slots, covered := c.coveredFrom(t, topology.Slot(at))
		if covered {
			r, _ := t.Region(slots.First)
			n, partly, failure := c.countRegion(m, r.ID, slots, end)
			if failure != nil {
				return sum, false, failure
			}
			if n == nil {
				continue // from here anew, by the next table
			}
			sum.Keys, sum.Expires, sum.ExpireMS = sum.Keys+n.Keys, sum.Expires+n.Expires, sum.ExpireMS+n.ExpireMS
			estimated = estimated || partly
		}
		at = int(slots.Last) + 1
	}
	return sum, estimated, nil
}

// countRegion counts the keys in slots of a region. A store that no longer leads the region counts none. It returns no
// count if the slots lie in several regions by now.
func (c *conn) countRegion(
	m mode, r topology.RegionID, slots topology.SlotRange, end time.Time,
) (n *redis.KeyCount, estimated bool, failure []byte) {
	n = new(redis.KeyCount)
	w := redis.KeyWalk{Slots: slots, CountOnly: true, Known: c.s.keyCounts.of(r)}
	for {
		outcome, failure := c.walkStep(m, &w)
		switch {
		case failure != nil:
			return nil, false, failure
		case outcome == scattered:
			return nil, false, nil
		case outcome == gone:
			return new(redis.KeyCount), false, nil
		case w.Unchanged:
			return w.Known, false, nil
		}
		w.Known = nil
		n.Add(&w)
		switch more := w.Advance(); {
		case !more:
			c.s.keyCounts.keep(r, n)
			return n, false, nil
		case !time.Now().Before(end):
			seen := int(w.Slots.First - slots.First)
			if w.After != nil || seen == 0 {
				seen++
			}
			scale := float64(slots.Count()) / float64(seen)
			return &redis.KeyCount{
				Keys:     int(float64(n.Keys) * scale),
				Expires:  int(float64(n.Expires) * scale),
				ExpireMS: n.ExpireMS * scale,
			}, true, nil
		}
	}
}

func runDBSize(c *conn, args [][]byte) {
	n, _, failure := c.count(reads)
	if c.fails(failure) {
		return
	}
	c.out.Int(int64(n.Keys))
}

// keyspace returns INFO's section keyspace. It does not wait for leaders, so during an election it may be empty.
func (c *conn) keyspace() []string {
	n, estimated, failure := c.count(promptReads)
	if failure != nil || n.Keys == 0 {
		return nil
	}
	left := 0.0
	if n.Expires > 0 {
		left = max(0, n.ExpireMS/float64(n.Expires)-float64(time.Now().UnixMilli()))
	}
	line := fmt.Sprintf("db0:keys=%d,expires=%d,avg_ttl=%.0f", n.Keys, n.Expires, left)
	if estimated {
		line += ",estimated=1"
	}
	return []string{line}
}

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
			pattern = redis.NewGlob(args[i+1])
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
	if c.fails(failure) || c.over() {
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
