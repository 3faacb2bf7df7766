package server

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has RANDOMKEY. Keys may lie anywhere: all in one slot, or spread over all of them. So a server counts the
// keys of each region once, in stretches of some 128 keys, and remembers where the stretches begin and how many keys
// they had. A draw chooses a stretch by its number of keys, walks over it, and chooses one of the keys that it has now.
// If these are fewer than there were, the draw counts only with the probability present/remembered, else it begins
// anew. So each key has the same chance, whatever has been deleted; and the stretch has its present number from then
// on.
//
// Keys that are new to a stretch share its chance with the others. To bound that, a region is counted anew when half as
// many keys may have come or gone as it had. Then of n remembered keys at least n/2 are still there, among at most
// 3n/2: none is more than three times as likely as the mean.

const (
	stretchKeys     = 128  // keys of a stretch, at first
	maxStretches    = 4096 // of a region: beyond that, two become one
	maxStretchStart = 512  // bytes of a key after which a stretch may begin
)

// keyMap says where the keys of a region, or of a part of it, are.
type keyMap struct {
	of      mapped
	changes uint64 // region.Replica.KeyChanges when the walk began
	all     []stretch
	keys    int // of all stretches
	limit   int // keys of a stretch

	// If partly is set, the walk took longer than it may (RedisConstants.CountTime). It will go on from these slots, which
	// have this many keys if they are like the others.
	rest     topology.SlotRange
	restKeys int
	partly   bool
}

// mapped tells the states of a region's entry in the slot table that need maps of their own.
type mapped struct {
	id      topology.RegionID
	slots   topology.SlotRange
	version uint64
	leader  topology.StoreID
	term    uint64
}

// stretch begins after a key of a slot or, if that is nil, with the slot. It ends where the next one begins, the last
// one with the region.
type stretch struct {
	slot  topology.Slot
	after []byte
	keys  int
}

// before reports whether a key lies before the beginning of the stretch, in the order of walks.
func (s *stretch) before(k redis.WalkedKey) bool {
	return k.Slot < s.slot || k.Slot == s.slot && s.after != nil && redis.CompareKeys(k.Key, s.after) <= 0
}

// add adds the next key of the walk, which follows last.
func (m *keyMap) add(k, last redis.WalkedKey) {
	at := len(m.all) - 1
	if same := k.Slot == last.Slot; m.all[at].keys >= m.limit && (!same || len(last.Key) <= maxStretchStart) {
		s := stretch{slot: k.Slot}
		if same {
			s.after = append([]byte{}, last.Key...)
		}
		m.all = append(m.all, s)
		at++
	}
	m.all[at].keys++
	m.keys++
	if len(m.all) > maxStretches {
		n := 0
		for i := 0; i < len(m.all); i += 2 {
			m.all[n] = m.all[i]
			if i+1 < len(m.all) {
				m.all[n].keys += m.all[i+1].keys
			}
			n++
		}
		m.all, m.limit = m.all[:n], 2*m.limit
	}
}

// keyMaps has the maps of all regions. A map is replaced, but for the numbers of keys, which mu guards.
type keyMaps struct {
	mu     sync.Mutex
	maps   map[topology.Slot]*keyMap // by the first slot of what they are of
	random *rand.Rand
}

// source returns a source of random choices for one call.
func (x *keyMaps) source() *rand.Rand {
	x.mu.Lock()
	defer x.mu.Unlock()
	return rand.New(rand.NewPCG(x.random.Uint64(), x.random.Uint64()))
}

func (x *keyMaps) get(first topology.Slot) *keyMap {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.maps[first]
}

func (x *keyMaps) put(m *keyMap) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.maps == nil {
		x.maps = make(map[topology.Slot]*keyMap)
	}
	x.maps[m.of.slots.First] = m
}

// prune forgets the maps of what the table does not have any more.
func (x *keyMaps) prune(t *route.Table) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.maps) > len(t.Regions) {
		maps.DeleteFunc(x.maps, func(first topology.Slot, _ *keyMap) bool {
			r, _ := t.Region(first)
			return r == nil || r.Slots.First != first
		})
	}
}

// choose chooses one of some maps by their numbers of keys, and the index of one of its stretches: the number of
// stretches for what is not walked yet. It returns a nil map if there are no keys.
func (x *keyMaps) choose(some []*keyMap, by *rand.Rand) (m *keyMap, at, keys int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	total := 0
	for _, m := range some {
		total += m.keys + m.restKeys
	}
	if total == 0 {
		return nil, 0, 0
	}
	n := by.IntN(total)
	for _, m := range some {
		if n >= m.keys+m.restKeys {
			n -= m.keys + m.restKeys
			continue
		}
		for at, s := range m.all {
			if n < s.keys {
				return m, at, s.keys
			}
			n -= s.keys
		}
		return m, len(m.all), m.restKeys
	}
	panic("a key beyond the last map")
}

// correct sets the number of keys of a stretch.
func (x *keyMaps) correct(m *keyMap, at, keys int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at == len(m.all) {
		m.restKeys = keys
		return
	}
	m.keys += keys - m.all[at].keys
	m.all[at].keys = keys
}

// stale reports whether the region must be counted anew. changes is its present region.Replica.KeyChanges.
func (x *keyMaps) stale(m *keyMap, changes uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return changes-m.changes > uint64(m.keys+m.restKeys)/2
}

// runRandomKey is RANDOMKEY.
func runRandomKey(e *executor, cmd *command) {
	end, by := time.Now().Add(e.knobs.CountTime), e.keyMaps.source()
	for {
		all, failure := e.mapKeys(end)
		if e.fails(failure) {
			return
		}
		m, at, keys := e.keyMaps.choose(all, by)
		if m == nil {
			if slices.ContainsFunc(all, func(m *keyMap) bool { return m.partly }) {
				continue
			}
			e.out.Null()
			return
		}
		key, failure := e.draw(m, at, keys, by)
		switch {
		case e.fails(failure):
			return
		case key != nil:
			e.out.Bulk(key)
			return
		}
	}
}

// mapKeys returns the maps of all that this server covers. It makes those anew that are missing or stale. After end it
// makes one step for each that is incomplete.
func (e *executor) mapKeys(end time.Time) (all []*keyMap, failure []byte) {
	x := &e.keyMaps
	for at := 0; at < topology.SlotCount; {
		t := e.awaitTable(reads)
		if t == nil {
			return nil, []byte("-" + redis.ErrClusterDown + "\r\n")
		}
		if at == 0 {
			x.prune(t)
		}
		slots, covered := e.coveredFrom(t, topology.Slot(at))
		at = int(slots.Last) + 1
		if !covered {
			continue
		}
		r, _ := t.Region(slots.First)
		of := mapped{r.ID, slots, r.Version, r.Leader, r.Term}
		changes := uint64(0)
		if replica := e.node.Replica(r.Leader, r.ID); replica != nil {
			changes = replica.KeyChanges()
		}
		m := x.get(slots.First)
		if m == nil || m.of != of || x.stale(m, changes) {
			m = &keyMap{of: of, changes: changes, limit: stretchKeys, all: []stretch{{slot: slots.First}},
				rest: slots, partly: true}
		}
		if m.partly {
			if m, failure = e.mapOn(m, end); failure != nil {
				return nil, failure
			}
			x.put(m)
		}
		all = append(all, m)
	}
	return all, nil
}

// mapOn returns the map with more of the region in it, or with all of it.
func (e *executor) mapOn(from *keyMap, end time.Time) (m *keyMap, failure []byte) {
	x := &e.keyMaps
	x.mu.Lock()
	n := *from
	n.all = append([]stretch(nil), from.all...) // others may go on from there, too
	x.mu.Unlock()
	m = &n
	m.partly, m.restKeys = false, 0
	var last redis.WalkedKey
	w := redis.KeyWalk{WholeSlots: true}
	failure = e.walkSlots(reads, m.rest, &w, func() bool {
		for _, k := range w.Keys {
			m.add(k, last)
			last = k
		}
		last.Key = bytes.Clone(last.Key)
		if _, within := w.Within(); within || time.Now().Before(end) {
			return true
		}
		if w.Advance() {
			m.partly, m.rest.First = true, w.Slots.First
			seen := int(m.rest.First - m.of.slots.First)
			m.restKeys = int(int64(m.keys) * int64(m.rest.Count()) / int64(seen))
		}
		return false
	})
	return m, failure
}

// draw chooses a key of a stretch that had so many. It returns nil if the choice does not count.
func (e *executor) draw(m *keyMap, at, keys int, by *rand.Rand) (key, failure []byte) {
	slots, present := m.of.slots, 0
	w := redis.KeyWalk{Limit: min(keys+1, redis.MaxWalk)}
	next := &stretch{slot: topology.SlotCount}
	if at == len(m.all) { // somewhere in what is not walked yet
		slots.First = m.rest.First + topology.Slot(by.IntN(m.rest.Count()))
	} else {
		slots.First, w.After = m.all[at].slot, m.all[at].after
		switch {
		case at+1 < len(m.all):
			if next = &m.all[at+1]; next.after == nil {
				slots.Last = next.slot - 1
			} else {
				slots.Last = next.slot
			}
		case m.partly:
			slots.Last = m.rest.First - 1
		}
	}
	failure = e.walkSlots(reads, slots, &w, func() bool {
		for _, k := range w.Keys {
			if !next.before(k) {
				return false
			}
			if present++; by.IntN(present) == 0 {
				key = append([]byte{}, k.Key...)
			}
		}
		return at < len(m.all) || present == 0
	})
	if failure != nil {
		return nil, failure
	}
	if at < len(m.all) {
		e.keyMaps.correct(m, at, present)
		if by.IntN(max(keys, 1)) >= present {
			return nil, nil
		}
	} else if key == nil {
		e.keyMaps.correct(m, at, keys/2) // there are fewer keys than it seemed
	}
	return key, nil
}
