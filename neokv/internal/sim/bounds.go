package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// Regions split and merge, so a run goes by the regions that there are. Their bounds must obey rules at all times, and
// must come to rest after all faults have ended.

// boundsSeen is what a run has seen of the bounds of regions.
type boundsSeen struct {
	slots   map[boundsKey]topology.SlotRange // which slots a region has at a version
	now     map[topology.StoreID]map[topology.RegionID]region.Bounds
	passed  map[passedKey]bool // by entries
	born    map[topology.RegionID]bool
	joins   map[storeRegion]bool                                          // replicas that began empty, and have got nothing yet
	retired map[topology.StoreID]map[topology.RegionID]topology.SlotRange // replicas of absorbed regions
	tags    map[topology.RegionID]uint64                                  // of the last entry seen
	opened  map[topology.RegionID]uint64                                  // tag of the entry that made the open change
	repairs int                                                           // of replicas that merges had left behind
}

type boundsKey struct {
	region  topology.RegionID
	version uint64
}

type storeRegion struct {
	store  topology.StoreID
	region topology.RegionID
}

type passedKey struct {
	store topology.StoreID
	boundsKey
	kind keys.ChangeKind
}

func newBoundsSeen() boundsSeen {
	return boundsSeen{
		slots: make(map[boundsKey]topology.SlotRange), passed: make(map[passedKey]bool),
		joins: make(map[storeRegion]bool),
		now:   make(map[topology.StoreID]map[topology.RegionID]region.Bounds),
		born:  make(map[topology.RegionID]bool), tags: make(map[topology.RegionID]uint64),
		retired: make(map[topology.StoreID]map[topology.RegionID]topology.SlotRange),
		opened:  make(map[topology.RegionID]uint64),
	}
}

// observeBounds hears of all bounds that replicas get. A version of a region has the same slots everywhere. It counts
// the states that changes of bounds make.
func (s *sim) observeBounds(st topology.StoreID, r topology.RegionID, b region.Bounds, how region.BoundsChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.bounds
	key := boundsKey{r, b.Version}
	if known, ok := x.slots[key]; ok && known != b.Slots {
		s.keepLocked(found(boundsWrong, "region %d: version %d: store %d has slots %v, another replica had %v", r, b.Version,
			st, b.Slots, known))
	}
	x.slots[key] = b.Slots
	if x.now[st] == nil {
		x.now[st] = make(map[topology.RegionID]region.Bounds)
		x.retired[st] = make(map[topology.RegionID]topology.SlotRange)
	}
	old, known := x.now[st][r]
	x.now[st][r] = b
	if b.Phase == keys.Absorbed {
		x.retired[st][r] = b.Slots
	}
	if at := (storeRegion{st, r}); how == region.ByJoin {
		x.joins[at] = true
	} else if x.joins[at] && how == region.BySnapshot {
		delete(x.joins, at)
		s.reachLocked(joined, 1)
	}
	if how == region.ByRepair {
		x.repairs++
		s.keepLocked(found(boundsWrong, "store %d had a frozen replica of region %d, slots %v, which a merge had left behind",
			st, r, b.Slots))
	}
	if known && how == region.ByEntry {
		s.sawEntry(st, r, old, b)
	}
	if known && how == region.BySnapshot {
		s.sawSnapshot(st, r, old, b)
	}
}

// sawEntry counts the states that an entry makes which changes bounds. The caller holds mu.
func (s *sim) sawEntry(st topology.StoreID, r topology.RegionID, old, b region.Bounds) {
	x := &s.bounds
	if old.Version != b.Version {
		key := passedKey{st, boundsKey{r, b.Version}, b.Change.Kind}
		again := x.passed[key]
		x.passed[key] = true
		x.opened[r] = x.tags[r]
		switch {
		case b.Change.Kind == keys.HasSplit && again:
			s.reachLocked(splitReplayed, 1)
		case b.Change.Kind == keys.HasSplit:
			s.reachLocked(hasSplit, 1)
			x.born[b.Change.Other] = true
		case b.Change.Kind == keys.Merged && again:
			s.reachLocked(mergeReplayed, 1)
		case b.Change.Kind == keys.Merged:
			s.reachLocked(hasMerged, 1)
		}
	}
	switch {
	case old.Phase == keys.Frozen && b.Phase == keys.Serving:
		s.reachLocked(thawed, 1)
	case old.Change.Kind == keys.HasSplit && b.Change.Kind == keys.NoChange && x.tags[r] > x.opened[r]:
		s.reachLocked(splitEndedLater, 1)
	case old.Change.Kind == keys.Merged && b.Change.Kind == keys.NoChange && x.tags[r] > x.opened[r]:
		s.reachLocked(mergeEndedLater, 1)
	case old.Change.Kind == keys.Splitting && b.Change.Kind == keys.NoChange:
		s.reachLocked(splitCalledOff, 1)
	}
}

// sawSnapshot counts the states that a snapshot makes which brings other bounds. The caller holds mu.
func (s *sim) sawSnapshot(st topology.StoreID, r topology.RegionID, old, b region.Bounds) {
	switch {
	case old.Slots.Count() > b.Slots.Count():
		s.reachLocked(splitMissed, 1)
	case old.Slots.Count() < b.Slots.Count():
		s.reachLocked(mergeMissed, 1)
		for _, slots := range s.bounds.retired[st] {
			if slots.Overlaps(b.Slots) && !slots.Overlaps(old.Slots) {
				s.reachLocked(frozenCovered, 1)
			}
		}
	}
}

// sawKill counts the states that a kill of stores finds.
func (s *sim) sawKill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for child := range s.bounds.born {
		if s.entries[child] == nil {
			s.reachLocked(killedUnborn, 1)
		}
	}
	for _, all := range s.bounds.now {
		for _, b := range all {
			if b.Phase == keys.Frozen {
				s.reachLocked(killedFrozen, 1)
				return
			}
		}
	}
}

// forgetBounds forgets what is in force on stores that end.
func (s *sim) forgetBounds(st topology.StoreID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.bounds.now, st)
	delete(s.bounds.retired, st)
}

// stores are the stores that run.
func (s *sim) stores() (all []*store.Store) {
	for _, n := range s.nodes {
		if st := n.Store(); st != nil && st.Failed() == nil {
			all = append(all, st)
		}
	}
	return all
}

// regions are the regions by all that the stores which run have applied, by their first slots.
func (s *sim) regions() (all []topology.Region) {
	newest := make(map[topology.RegionID]route.LedRegion)
	for _, st := range s.stores() {
		for id, r := range st.Replicas() {
			if r.Bounds().Phase == keys.Absorbed {
				continue
			}
			desc, _ := r.Region()
			if known := newest[id]; known.Version < desc.Version ||
				known.Version == desc.Version && known.ConfVersion < desc.ConfVersion {
				newest[id] = route.LedRegion{Region: desc}
			}
		}
	}
	for _, r := range route.Disjoint(slices.Collect(maps.Values(newest))) {
		if n := len(all); n == 0 || all[n-1].ID != r.ID {
			all = append(all, r.Region)
		}
	}
	return all
}

// someRegion draws a region of those that there are.
func (s *sim) someRegion(random *rand.Rand) topology.RegionID {
	n := random.IntN(64)
	return s.regionOf(1 + n)
}

// regionOf returns the region of a number: the one with that id or, if there is none, another one.
func (s *sim) regionOf(number int) topology.RegionID {
	all := s.regions()
	if len(all) == 0 {
		return topology.RegionID(number)
	}
	i := slices.IndexFunc(all, func(r topology.Region) bool { return r.ID == topology.RegionID(number) })
	if i < 0 {
		i = (number - 1) % len(all)
	}
	return all[i].ID
}

// watchBounds looks again and again for replicas of one store that serve the same slot.
func (s *sim) watchBounds() {
	for s.sleep(20 * time.Millisecond) {
		s.fail(s.servedTwice())
	}
}

// servedTwice returns an error if a slot of a data space belongs to two replicas of a store that serve.
func (s *sim) servedTwice() error {
	for _, st := range s.stores() {
		for try := 0; ; try++ { // twice, since the bounds of replicas are not of one moment
			err := overlapping(st)
			if err == nil {
				break
			}
			if try > 0 {
				return err
			}
		}
	}
	return nil
}

func overlapping(st *store.Store) error {
	var all []topology.Region
	for _, r := range st.Replicas() {
		if desc, _ := r.Region(); r.Bounds().Phase == keys.Serving {
			all = append(all, desc)
		}
	}
	slices.SortFunc(all, func(a, b topology.Region) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	for i := 1; i < len(all); i++ {
		if a, b := &all[i-1], &all[i]; a.Slots.Overlaps(b.Slots) {
			return found(boundsWrong, "store %d: regions %d and %d both have slots %v and %v, at versions %d and %d",
				st.ID(), a.ID, b.ID, a.Slots, b.Slots, a.Version, b.Version)
		}
	}
	return nil
}

// restTime is how long after the end of all faults the last change of bounds may be open.
const restTime = 15 * time.Second

// atRest checks that all bounds come to rest soon after all faults have ended.
func (s *sim) atRest() error {
	for end := time.Now().Add(restTime); ; time.Sleep(20 * time.Millisecond) {
		err := s.unrest()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// unrest returns why the bounds are not at rest. At rest the regions are a partition of the slots, by what each store
// has applied and by its slot table, all replicas agree, no change is open, and the records of each store name the
// replicas that run.
func (s *sim) unrest() error {
	all := s.regions()
	next := topology.Slot(0)
	for _, r := range all {
		if r.Slots.First != next {
			return found(boundsWrong, "in the end no region has slot %d: %v", next, all)
		}
		next = r.Slots.Last + 1
	}
	if next != topology.SlotCount {
		return found(boundsWrong, "in the end no region has slot %d: %v", next, all)
	}
	var errs []error
	for _, n := range s.nodes {
		st := n.Store()
		if st == nil || st.Failed() != nil {
			return found(storeFailed, "store %d does not run at the end: %w", n.ID(), n.Failure())
		}
		errs = append(errs, unrestAt(st, all))
	}
	return errors.Join(errs...)
}

// unrestAt is unrest for what one store has.
func unrestAt(st *store.Store, all []topology.Region) error {
	wrong := func(format string, args ...any) error {
		return found(boundsWrong, "in the end store %d: %s", st.ID(), fmt.Sprintf(format, args...))
	}
	replicas := st.Replicas()
	records, err := store.Records(st.Engine())
	if err != nil {
		return wrong("%v", err)
	}
	table := st.Table()
	if table == nil {
		return wrong("no slot table")
	}
	for i := range all {
		want := &all[i]
		_, held := want.PeerOn(st.ID())
		r := replicas[want.ID]
		state, recorded := records[want.ID]
		entry, _ := table.Region(want.Slots.First)
		if held {
			if r == nil || !r.Running() {
				return wrong("no replica of region %d runs", want.ID)
			}
			got, _ := r.Region()
			b := r.Bounds()
			switch {
			case got.Slots != want.Slots || got.Version != want.Version:
				return wrong("region %d has slots %v at version %d; want %v at %d", want.ID, got.Slots, got.Version,
					want.Slots, want.Version)
			case got.ConfVersion != want.ConfVersion || !slices.Equal(got.Peers, want.Peers) || !got.Settled():
				return wrong("region %d has peers %v at conf %d; want %v at %d", want.ID, got.Peers, got.ConfVersion,
					want.Peers, want.ConfVersion)
			case b.Phase != keys.Serving || b.Change.Kind != keys.NoChange:
				return wrong("region %d is in phase %d, its change %+v is open", want.ID, b.Phase, b.Change)
			case !recorded || state.Slots != want.Slots || state.Version != want.Version:
				return wrong("the record of region %d has slots %v at version %d; want %v at %d", want.ID, state.Slots,
					state.Version, want.Slots, want.Version)
			}
		}
		switch {
		case entry == nil || entry.ID != want.ID || entry.Slots != want.Slots || entry.Version != want.Version ||
			entry.ConfVersion != want.ConfVersion:
			return wrong("slot table: slot %d: %+v; want %+v", want.Slots.First, entry, *want)
		case entry.Leader == 0:
			return wrong("slot table: region %d has no leader", want.ID)
		}
		delete(replicas, want.ID)
		delete(records, want.ID)
	}
	if len(replicas) > 0 || len(records) > 0 {
		return wrong("replicas %v and records %v are left over", slices.Collect(maps.Keys(replicas)),
			slices.Collect(maps.Keys(records)))
	}
	return nil
}
