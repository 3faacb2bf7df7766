package server

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the commands that go over the keys in bounded steps: KEYS, DBSIZE, and INFO's section keyspace. SCAN
// and RANDOMKEY have files of their own.

// walkSlots walks the part of a slot range that this server covers, in order. It sets w.Slots and calls step after each
// step of w, until step returns false. It returns nil, or the error reply of a region that it could not read. It meets
// each slot once, also if regions are split or merged meanwhile.
func (e *executor) walkSlots(m mode, slots topology.SlotRange, w *redis.KeyWalk, step func() bool) (failure []byte) {
regions:
	for at := int(slots.First); at <= int(slots.Last); {
		t := e.awaitTable(m)
		if t == nil {
			return []byte("-" + redis.ErrClusterDown + "\r\n")
		}
		part, covered := e.coveredFrom(t, topology.Slot(at))
		part.Last = min(part.Last, slots.Last)
		w.Slots = part
		for covered {
			outcome, failure := e.walkStep(m, w)
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
func (e *executor) fails(failure []byte) bool {
	e.out.Buf = append(e.out.Buf, failure...)
	return failure != nil
}

// coveredFrom returns the slots from one on that lie in the same region, and whether this server covers them. A slot
// without a region stands alone.
func (e *executor) coveredFrom(t *route.Table, from topology.Slot) (slots topology.SlotRange, covered bool) {
	r, _ := t.Region(from)
	if r == nil {
		return oneSlot(from), false
	}
	return topology.SlotRange{First: from, Last: r.Slots.Last}, e.covers(r)
}

// walkStep runs a walk's next step. The outcome is executed; or gone, if this port no longer covers the slots; or
// scattered, if they lie in several regions by now.
func (e *executor) walkStep(m mode, w *redis.KeyWalk) (outcome outcome, failure []byte) {
	e.reset()
	e.cuts, e.alone = true, true
	e.tasks = append(e.tasks, task{
		call: w.Call(), slot: w.Slots.First, span: w.Slots, scope: walkedSlots, ledOnly: !e.proxy(),
		follow: e.port.Replica && !e.standIn,
	})
	e.exec(m)
	x := &e.tasks[0]
	if x.outcome == failed || len(x.reply) > 0 { // a walk replies nothing unless it is ended
		return failed, bytes.Clone(x.reply)
	}
	return x.outcome, nil
}

var allSlots = topology.SlotRange{First: 0, Last: topology.SlotCount - 1}

func oneSlot(slot topology.Slot) topology.SlotRange {
	return topology.SlotRange{First: slot, Last: slot}
}

func runKeys(e *executor, cmd *command) {
	found, pattern := e.collected(), redis.NewGlob(cmd.args[1], &e.work)
	n := 0
	w := redis.KeyWalk{}
	failure := e.walkSlots(reads, allSlots, &w, func() bool {
		for _, k := range w.Keys {
			if pattern.Match(k.Key, &e.work) {
				found.Bulk(k.Key)
				n++
			}
		}
		return e.work.Ended() == nil
	})
	if e.fails(failure) || e.work.Ended() != nil {
		return
	}
	e.out.Array(n)
	e.append(&found)
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
func (e *executor) count(m mode) (sum redis.KeyCount, estimated bool, failure []byte) {
	end := time.Now().Add(e.knobs.CountTime)
	for at := 0; at < topology.SlotCount; {
		t := e.awaitTable(m)
		if t == nil {
			return sum, false, []byte("-" + redis.ErrClusterDown + "\r\n")
		}
		e.keyCounts.prune(t)
		slots, covered := e.coveredFrom(t, topology.Slot(at))
		if covered {
			r, _ := t.Region(slots.First)
			n, partly, failure := e.countRegion(m, r.ID, slots, end)
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
func (e *executor) countRegion(
	m mode, r topology.RegionID, slots topology.SlotRange, end time.Time,
) (n *redis.KeyCount, estimated bool, failure []byte) {
	n = new(redis.KeyCount)
	w := redis.KeyWalk{Slots: slots, CountOnly: true, Known: e.keyCounts.of(r)}
	for {
		outcome, failure := e.walkStep(m, &w)
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
			e.keyCounts.keep(r, n)
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

func runDBSize(e *executor, cmd *command) {
	n, _, failure := e.count(reads)
	if e.fails(failure) {
		return
	}
	e.out.Int(int64(n.Keys))
}

// keyspace returns INFO's section keyspace. It does not wait for leaders, so during an election it may be empty.
func (e *executor) keyspace() []string {
	n, estimated, failure := e.count(promptReads)
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
