package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// The store that leads a region drives its splits, and the merges that widen it. What a change has got to is in the
// logs of the regions (keys.RegionChange), and nextStep tells from that which step is next. One loop takes the steps,
// proceed. split and merge begin a change and enter the loop. When the driver is gone, whichever store leads then
// enters it, and finishes the change or calls it off: settleAll. Region and replica ids come from meta's leader.
//
// A merge has these steps; region/change.go says why they are safe.
//
//	left   begin                     no other change of the left region from here on
//	right  begin, freeze             by the right region's leader; its clients wait from here on
//	all    every store has applied the freeze, and synced it
//	left   merge                     its clients and those of the right region go on
//	all    every store has applied the merge, and synced it
//	left   end
//
// If a step fails before the merge, the left region's leader ends the attempt, and then the right region thaws.
//
// The end waits for syncs since the next change of the left region relies on it. If a crash took the merge from a
// store, the frozen right region would keep its slots there. After a split of the wider region the store would get the
// narrower one as a snapshot, which ends no replica beyond its own slots, and could never begin the child.

// drivers are the changes that the store drives at present, by the region that they belong to.
type drivers struct {
	mu      sync.Mutex
	driving map[topology.RegionID]bool
	// For a test: onStep is called when a step has been taken, onMember before one of a move. nil: not called.
	onStep   func(topology.RegionID, step)
	onMember func(topology.RegionID, memberStep)
}

// drive reports whether the caller may drive a change of the region. If so it must call the function that it gets.
func (x *drivers) drive(id topology.RegionID) (done func(), ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.driving[id] {
		return nil, false
	}
	if x.driving == nil {
		x.driving = make(map[topology.RegionID]bool)
	}
	x.driving[id] = true
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.driving, id)
	}, true
}

const (
	// stepTime bounds one entry of a change.
	stepTime = 2 * time.Second
	// mostHeld bounds how long a command may hold the clients of a region whose merge does not succeed, in all
	// attempts.
	mostHeld = time.Second
	// freezeTime bounds the time from when an attempt freezes the region until it proposes the merge or calls it off.
	// The rest of mostHeld is for the region to thaw.
	freezeTime = 600 * time.Millisecond
	// promptly is how soon a store must have answered and synced its disk before a merge holds anybody. While the
	// region is frozen each store syncs three times, and to thaw it takes as long again.
	promptly = 120 * time.Millisecond
	// heldRest is how long the scheduler merges no region whose clients it has held in vain.
	heldRest = time.Minute
	// changePause is how long a driver first waits before it asks again, longestPause how long it waits at most: a
	// store may be down for long while a merge is open.
	changePause, longestPause = time.Millisecond, 16 * time.Millisecond
)

// maxPeers bounds the replicas of a region.
const maxPeers = 64

// ErrAgain is in the error of a split or a merge that has had no effect, and may have one if it is asked for again: of
// the store that leads the region by then, or of the same one when it knows more.
var ErrAgain = errors.New("it may work later")

// notYet is an error that is ErrAgain.
type notYet struct{ error }

func (notYet) Is(target error) bool { return target == ErrAgain }

// errBusy is the error of a change of a region whose last one is not over yet.
var errBusy error = notYet{errors.New("another split or merge of the region is under way")}

// changes begins splits and merges, and has those go on that nobody drives. Which of them this store drives is in
// drivers. All methods may run concurrently.
type changes struct {
	*core
	records   *records
	replicas  *replicaSet
	cluster   *clusterMap
	meta      *metaMember
	progress  *progress
	drivers   *drivers
	stepCalls *stepCalls
	steps     *steps
}

// undone returns the error of a change that nobody has to finish, as ErrAgain if another store may do better.
func (x *changes) undone(err error) error {
	if x.ctx.Err() != nil || errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
		return notYet{err}
	}
	return err
}

// split splits a region, which this store must lead: see Store.Split.
func (x *changes) split(ctx context.Context, id topology.RegionID, at topology.Slot, home topology.StoreID,
	reason string) (child topology.Region, err error) {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return child, errNotLeading
	}
	defer end()
	r, err := x.stepCalls.leading(id)
	if err != nil {
		return child, err
	}
	desc, _ := r.Region()
	switch {
	case desc.Slots.Count() == 1:
		return child, fmt.Errorf("region %d has the single slot %v", id, desc.Slots)
	case at != 0 && (at <= desc.Slots.First || at > desc.Slots.Last):
		return child, fmt.Errorf("slot %d does not divide region %d, which has the slots %v; want %d to %d", at, id,
			desc.Slots, desc.Slots.First+1, desc.Slots.Last)
	case r.Bounds().Change.Kind != keys.NoChange:
		return child, errBusy
	}
	if err := x.refills(&desc); err != nil {
		return child, err
	}
	done, ok := x.drivers.drive(id)
	if !ok {
		return child, errBusy
	}
	defer done()
	if at == 0 {
		at = x.halve(r)
	}
	child = topology.Region{Slots: topology.SlotRange{First: at, Last: desc.Slots.Last}}
	var replica topology.ReplicaID
	if child.ID, replica, err = x.meta.allocate(ctx, len(desc.Peers)); err != nil {
		return child, err
	}
	child.Peers = x.spread(desc.Peers, home)
	for i := range child.Peers {
		child.Peers[i].Replica = replica + topology.ReplicaID(i)
	}
	begun, err := r.Begin(ctx, time.Now().Add(stepTime), keys.Splitting, child.ID, 0)
	if err != nil {
		return child, x.undone(err)
	}
	// What goes wrong from here on settle puts right.
	if r.Bounds().Version != desc.Version { // the id of a child is larger than those of all that had its slots before
		return child, errBusy
	}
	d := &driven{Replica: r, begun: begun, other: child}
	d.wants = keys.Splitting
	d.happened = func() {
		if reason != "" {
			x.tell("region %d is split at slot %d: region %d has slots %v (%s)", id, at, child.ID, child.Slots, reason)
		}
	}
	switch last, err := x.steps.proceed(ctx, d); {
	case last != stepSplit: // the region is split
		return child, nil
	case errors.Is(err, region.ErrNotLeader):
		return child, notYet{err}
	case ctx.Err() != nil:
		return child, fmt.Errorf("it is not known whether region %d will be split: %w", id, err)
	default:
		return child, err
	}
}

// spread returns a region's replicas with the one in front that is to lead a child: the one on the store home or, if
// that is 0, on the store that is the home of the fewest regions, of those that are alive.
func (x *changes) spread(peers []topology.Peer, home topology.StoreID) []topology.Peer {
	t := x.cluster.Table()
	homes := make(map[topology.StoreID]int)
	for i := range t.Regions {
		homes[t.Regions[i].Peers[0].Store]++
	}
	peers = slices.Clone(peers)
	slices.SortStableFunc(peers, func(a, b topology.Peer) int {
		cost := func(p topology.Peer) int {
			if p.Store == home {
				return -1
			}
			if st := t.Store(p.Store); st == nil || !st.Alive || st.Full {
				return 1 << 20
			}
			return homes[p.Store]
		}
		return cost(a) - cost(b)
	})
	return peers
}

// merge merges a region's right neighbour into it, and returns that one: see Store.Merge.
func (x *changes) merge(ctx context.Context, left topology.RegionID, reason string,
	held *time.Duration) (right topology.RegionID, err error) {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return 0, errNotLeading
	}
	defer end()
	r, err := x.stepCalls.leading(left)
	if err != nil {
		return 0, err
	}
	desc, _ := r.Region()
	neighbour, err := x.neighbour(&desc)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(x.refills(&desc), x.refills(&neighbour.Region)); err != nil {
		return 0, err
	}
	if neighbour.Leader == 0 {
		return 0, notYet{fmt.Errorf("region %d has no leader", neighbour.ID)}
	}
	if r.Bounds().Change.Kind != keys.NoChange {
		return 0, errBusy
	}
	if mine := x.replicas.get(neighbour.ID); mine != nil && mine.Bounds().Change.Kind != keys.NoChange {
		return 0, errBusy
	}
	done, ok := x.drivers.drive(left)
	if !ok {
		return 0, errBusy
	}
	defer done()
	for _, side := range []*topology.Region{&desc, &neighbour.Region} { // so that the freeze is short
		if err := x.keepUp(ctx, side); err != nil {
			return 0, x.undone(err)
		}
	}
	begun, err := r.Begin(ctx, time.Now().Add(stepTime), keys.Merging, neighbour.ID, 0)
	if err != nil {
		return 0, x.undone(err)
	}
	started, merged := time.Now(), false
	d := &driven{Replica: r, begun: begun, other: neighbour.Region, until: started.Add(freezeTime)}
	d.wants = keys.Merging
	d.happened = func() {
		merged = true
		if now, _ := r.Region(); reason != "" {
			x.tell("region %d has taken region %d over: it has slots %v (%s)", left, neighbour.ID, now.Slots, reason)
		}
	}
	last, err := x.steps.proceed(ctx, d)
	if merged {
		return neighbour.ID, nil
	}
	*held += time.Since(started)
	switch {
	case last == stepCallOff:
		return 0, fmt.Errorf("%w; it is not known whether the regions will be merged: %w", d.failed, err)
	case *held <= mostHeld-freezeTime-3*promptly || x.o.Mistakes.StubbornMerge:
		return 0, notYet{d.failed}
	default:
		return 0, fmt.Errorf("the merge is called off: %w", d.failed)
	}
}

// refills returns an error if a replica of a region has ended by a wipe of its store, and no other one is in its place
// yet.
func (x *changes) refills(r *topology.Region) error {
	if p, ok := x.cluster.endedOf(r); ok {
		return fmt.Errorf("region %d has no replica on store %d yet, since the store was wiped", r.ID, p.Store)
	}
	return nil
}

// maxLag is how many entries a replica may be behind when a merge begins.
const maxLag = 1000

// keepUp waits until all replicas of a region are near the end of its log, on disks that sync promptly.
func (x *changes) keepUp(ctx context.Context, r *topology.Region) error {
	mine := x.replicas.get(r.ID)
	if mine == nil {
		return fmt.Errorf("region %d: no replica on store %d", r.ID, x.o.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	return x.progress.everyStore(ctx, r, !x.o.Mistakes.StubbornMerge, func(b boundsAnswer) bool {
		return b.Version > 0 && b.Applied+maxLag >= mine.Applied() && b.took <= promptly
	})
}

// neighbour returns a region's right neighbour, if the two can be merged.
func (x *changes) neighbour(left *topology.Region) (*route.LedRegion, error) {
	t := x.cluster.Table()
	if left.Slots.Last == topology.SlotCount-1 {
		return nil, fmt.Errorf("region %d has the last slot: there is no region to its right", left.ID)
	}
	right, _ := t.Region(left.Slots.Last + 1)
	if right == nil || right.ID == left.ID || right.Slots.First != left.Slots.Last+1 {
		return nil, notYet{fmt.Errorf("the region to the right of region %d is not known here yet", left.ID)}
	}
	for _, p := range left.Peers {
		if _, ok := right.PeerOn(p.Store); !ok || len(right.Peers) != len(left.Peers) {
			return nil, fmt.Errorf("regions %d and %d have replicas on different stores", left.ID, right.ID)
		}
		switch st := t.Store(p.Store); {
		case st == nil: // this store has started, and the leader of meta has not told it of the others
			return nil, notYet{fmt.Errorf("it is not known here yet whether store %d is up", p.Store)}
		case !st.Alive:
			return nil, fmt.Errorf("store %d is down, and a merge needs all replicas of regions %d and %d", p.Store,
				left.ID, right.ID)
		case st.Full:
			return nil, fmt.Errorf("store %d has no space, and a merge needs all replicas of regions %d and %d", p.Store,
				left.ID, right.ID)
		}
	}
	return right, nil
}

// settleAll finishes the changes of the regions that this store leads and that nobody drives.
func (x *changes) settleAll() {
	for id, r := range x.replicas.all() {
		if r.Bounds().Change.Kind == keys.NoChange {
			continue
		}
		if _, _, serving := r.Leading(); !serving {
			continue
		}
		if done, ok := x.drivers.drive(id); ok {
			x.wg.Go(func() {
				defer done()
				x.settle(r)
			})
		}
	}
}

func (x *changes) settle(r *region.Replica) {
	ctx, cancel := context.WithTimeout(x.ctx, Heartbeat)
	defer cancel()
	c := r.Bounds().Change
	x.steps.proceed(ctx, &driven{Replica: r, begun: c.Begun, other: topology.Region{ID: c.Other}})
}

// halve returns the slot before which the region's bytes are halved.
func (x *changes) halve(r *region.Replica) topology.Slot {
	slots := r.Bounds().Slots
	return schedule.Halve(slots, x.records.bisect(slots))
}
