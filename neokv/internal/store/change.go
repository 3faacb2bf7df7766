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
	"neokv.dev/neokv/internal/topology"
)

// The store that leads a region drives its splits, and the merges that widen it. What a change has got to is in the
// logs of the regions (keys.RegionChange), and nextStep tells from that which step is next. One loop takes the steps,
// proceed. Split and Merge begin a change and enter the loop. When the driver is gone, whichever store leads then
// enters it, and finishes the change or calls it off: settleChanges. Region and replica ids come from meta's leader.
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
	onStep  func(topology.RegionID, step) // for a test: called when a step has been taken; nil: not called
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

// leading returns the store's replica of a region, which must serve, while the store has a slot table.
func (s *Store) leading(id topology.RegionID) (*region.Replica, error) {
	r := s.replicas.get(id)
	if r == nil || s.cluster.Table() == nil || r.Bounds().Phase == keys.Absorbed {
		return nil, errNotLeading
	}
	if _, _, serving := r.Leading(); !serving {
		return nil, errNotLeading
	}
	return r, nil
}

// undone returns the error of a change that nobody has to finish, as ErrAgain if another store may do better.
func (s *Store) undone(err error) error {
	if s.ctx.Err() != nil || errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
		return notYet{err}
	}
	return err
}

// Split splits a region, which this store must lead, so that a new region has its slots from at on. If at is 0, the
// split halves what the region has in tables. Split returns the new region when that has taken its first entry, or at
// the latest when ctx ends. A reason, if there is one, has the store tell of the split.
func (s *Store) Split(ctx context.Context, id topology.RegionID, at topology.Slot,
	reason string) (child topology.Region, err error) {
	ctx, end, ok := s.enter(ctx)
	if !ok {
		return child, errNotLeading
	}
	defer end()
	r, err := s.leading(id)
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
	done, ok := s.drivers.drive(id)
	if !ok {
		return child, errBusy
	}
	defer done()
	if at == 0 {
		at = s.halve(r)
	}
	child = topology.Region{Slots: topology.SlotRange{First: at, Last: desc.Slots.Last}}
	var replica topology.ReplicaID
	if child.ID, replica, err = s.meta.allocate(ctx, len(desc.Peers)); err != nil {
		return child, err
	}
	child.Peers = s.spread(desc.Peers)
	for i := range child.Peers {
		child.Peers[i].Replica = replica + topology.ReplicaID(i)
	}
	begun, err := r.Begin(ctx, time.Now().Add(stepTime), keys.Splitting, child.ID, 0)
	if err != nil {
		return child, s.undone(err)
	}
	// What goes wrong from here on settleChanges puts right.
	if r.Bounds().Version != desc.Version { // the id of a child is larger than those of all that had its slots before
		return child, errBusy
	}
	d := &driven{Replica: r, begun: begun, other: child}
	d.wants = keys.Splitting
	d.happened = func() {
		if reason != "" {
			s.tell("region %d is split at slot %d: region %d has slots %v (%s)", id, at, child.ID, child.Slots, reason)
		}
	}
	switch x, err := s.proceed(ctx, d); {
	case x != stepSplit: // the region is split
		return child, nil
	case errors.Is(err, region.ErrNotLeader):
		return child, notYet{err}
	case ctx.Err() != nil:
		return child, fmt.Errorf("it is not known whether region %d will be split: %w", id, err)
	default:
		return child, err
	}
}

// spread returns a region's replicas with the one in front that is to lead a child: on the store that is the home of
// the fewest regions, of those that are alive.
func (s *Store) spread(peers []topology.Peer) []topology.Peer {
	t := s.cluster.Table()
	homes := make(map[topology.StoreID]int)
	for i := range t.Regions {
		homes[t.Regions[i].Peers[0].Store]++
	}
	peers = slices.Clone(peers)
	slices.SortStableFunc(peers, func(a, b topology.Peer) int {
		cost := func(p topology.Peer) int {
			if st := t.Store(p.Store); st == nil || !st.Alive || st.Full {
				return 1 << 20
			}
			return homes[p.Store]
		}
		return cost(a) - cost(b)
	})
	return peers
}

// hasBegun reports whether a child has applied an entry of its own here, so that a quorum of it has its log.
func (s *Store) hasBegun(child topology.RegionID) bool {
	r := s.replicas.get(child)
	return r != nil && r.Applied() > region.ChildIndex
}

// Merge merges a region's right neighbour into it, and returns that one. This store must lead the region. A reason,
// if there is one, has the store tell of the merge. Merge adds to held how long it has held the clients of the right
// region in vain. Its error is ErrAgain only if another attempt of the same command fits into mostHeld.
func (s *Store) Merge(ctx context.Context, left topology.RegionID, reason string,
	held *time.Duration) (right topology.RegionID, err error) {
	ctx, end, ok := s.enter(ctx)
	if !ok {
		return 0, errNotLeading
	}
	defer end()
	r, err := s.leading(left)
	if err != nil {
		return 0, err
	}
	desc, _ := r.Region()
	neighbour, err := s.neighbour(&desc)
	if err != nil {
		return 0, err
	}
	if neighbour.Leader == 0 {
		return 0, notYet{fmt.Errorf("region %d has no leader", neighbour.ID)}
	}
	if r.Bounds().Change.Kind != keys.NoChange {
		return 0, errBusy
	}
	if x := s.replicas.get(neighbour.ID); x != nil && x.Bounds().Change.Kind != keys.NoChange {
		return 0, errBusy
	}
	done, ok := s.drivers.drive(left)
	if !ok {
		return 0, errBusy
	}
	defer done()
	for _, x := range []*topology.Region{&desc, &neighbour.Region} { // so that the freeze is short
		if err := s.keepUp(ctx, x); err != nil {
			return 0, s.undone(err)
		}
	}
	begun, err := r.Begin(ctx, time.Now().Add(stepTime), keys.Merging, neighbour.ID, 0)
	if err != nil {
		return 0, s.undone(err)
	}
	started, merged := time.Now(), false
	d := &driven{Replica: r, begun: begun, other: neighbour.Region, until: started.Add(freezeTime)}
	d.wants = keys.Merging
	d.happened = func() {
		merged = true
		if now, _ := r.Region(); reason != "" {
			s.tell("region %d has taken region %d over: it has slots %v (%s)", left, neighbour.ID, now.Slots, reason)
		}
	}
	x, err := s.proceed(ctx, d)
	if merged {
		return neighbour.ID, nil
	}
	*held += time.Since(started)
	switch {
	case x == stepCallOff:
		return 0, fmt.Errorf("%w; it is not known whether the regions will be merged: %w", d.failed, err)
	case *held <= mostHeld-freezeTime-3*promptly || s.o.Mistakes.StubbornMerge:
		return 0, notYet{d.failed}
	default:
		return 0, fmt.Errorf("the merge is called off: %w", d.failed)
	}
}

// maxLag is how many entries a replica may be behind when a merge begins.
const maxLag = 1000

// keepUp waits until all replicas of a region are near the end of its log, on disks that sync promptly.
func (s *Store) keepUp(ctx context.Context, r *topology.Region) error {
	mine := s.replicas.get(r.ID)
	if mine == nil {
		return fmt.Errorf("region %d: no replica on store %d", r.ID, s.o.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	return s.progress.everyStore(ctx, r, !s.o.Mistakes.StubbornMerge, func(b boundsAnswer) bool {
		return b.Version > 0 && b.Applied+maxLag >= mine.Applied() && b.took <= promptly
	})
}

// neighbour returns a region's right neighbour, if the two can be merged.
func (s *Store) neighbour(left *topology.Region) (*route.LedRegion, error) {
	t := s.cluster.Table()
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

// abort ends an attempt at a merge, and reports whether it has not happened and never will. The entry that ends it
// tells: behind that entry no merge of the attempt takes effect.
func (s *Store) abort(ctx context.Context, left *region.Replica, begun uint64) (over bool, err error) {
	if err := left.Abort(ctx, time.Now().Add(stepTime), begun); err != nil {
		return false, err
	}
	c := left.Bounds().Change
	return c.Kind != keys.Merged || c.Begun != begun, nil
}

// settleChanges finishes the changes of the regions that this store leads and that nobody drives.
func (s *Store) settleChanges() {
	for id, r := range s.replicas.all() {
		if r.Bounds().Change.Kind == keys.NoChange {
			continue
		}
		if _, _, serving := r.Leading(); !serving {
			continue
		}
		if done, ok := s.drivers.drive(id); ok {
			s.wg.Go(func() {
				defer done()
				s.settleChange(r)
			})
		}
	}
}

func (s *Store) settleChange(r *region.Replica) {
	ctx, cancel := context.WithTimeout(s.ctx, Heartbeat)
	defer cancel()
	c := r.Bounds().Change
	s.proceed(ctx, &driven{Replica: r, begun: c.Begun, other: topology.Region{ID: c.Other}})
}

// absorbed reports whether one of the stores knows that a region has been absorbed, which is never undone. Then the
// changes of its own were over before. Had it absorbed its right neighbour in one of them, no replica of that would be
// left, since a merge ends when all stores have it for good.
//
// That a store has no replica of the region proves nothing. A power cut may have taken the replica together with the
// split that made it, which the log of the parent brings back, or the store may have missed the split and not have
// joined yet. The merge may be on its way all the same.
func (s *Store) absorbed(ctx context.Context, id topology.RegionID, peers []topology.Peer) bool {
	return slices.ContainsFunc(peers, func(p topology.Peer) bool {
		b, err := s.progress.on(ctx, p.Store, boundsCall{Region: id})
		return err == nil && b.Phase == keys.Absorbed
	})
}

// changeCall asks the store that leads a region for a step of a change.
type changeCall struct {
	Region topology.RegionID `json:"region"`
	Do     string            `json:"do"`
	Left   topology.RegionID `json:"left,omitempty"` // of doFreeze and doThaw
	Begun  uint64            `json:"begun"`
}

const (
	// doFreeze, of the right region: begin and freeze; the answer is true. If the leader moves in between, the next one
	// finds the change open, and freezes.
	doFreeze = "freeze"
	doThaw   = "thaw" // of the right region; the answer is true
	// doAsk, of the left region: the answer is true if the merge of this attempt has not happened and never will.
	doAsk = "ask"
)

// changeAnswer is the answer to a changeCall.
type changeAnswer struct {
	Done       bool `json:"done"`
	NotLeading bool `json:"notLeading,omitempty"` // another store leads the region, or will
}

// answerChange takes a step of a change for another store.
func (s *Store) answerChange(ctx context.Context, c changeCall) (bool, error) {
	r, err := s.leading(c.Region)
	if err != nil {
		return false, err
	}
	done, err := s.takeStep(ctx, r, c)
	if errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
		err = errNotLeading // since a moment ago
	}
	return done, err
}

func (s *Store) takeStep(ctx context.Context, r *region.Replica, c changeCall) (bool, error) {
	deadline := time.Now().Add(freezeTime)
	switch c.Do {
	case doFreeze:
		if _, err := r.Begin(ctx, deadline, keys.Leaving, c.Left, c.Begun); err != nil {
			return false, err
		}
		_, err := r.Freeze(ctx, deadline, c.Left, c.Begun)
		return err == nil, err
	case doThaw:
		err := r.Thaw(ctx, deadline, c.Left, c.Begun)
		return err == nil, err
	case doAsk:
		done, ok := s.drivers.drive(c.Region)
		if !ok { // this merge goes on, or another change
			begun := r.Applied() >= c.Begun
			open := r.Bounds().Change
			return begun && (open.Kind == keys.NoChange || open.Begun != c.Begun), nil
		}
		defer done()
		return s.abort(ctx, r, c.Begun)
	}
	return false, fmt.Errorf("region %d: unknown step %q of a change", c.Region, c.Do)
}

// atLeader has the leader of a region take a step.
func (s *Store) atLeader(ctx context.Context, c changeCall) error {
	done, err := s.callLeader(ctx, c)
	if err == nil && !done {
		err = fmt.Errorf("region %d: %s: no", c.Region, c.Do)
	}
	return err
}

// callLeader makes a call to the leader of a region. As long as the region has none it waits for one.
func (s *Store) callLeader(ctx context.Context, c changeCall) (done bool, err error) {
	retry(ctx, longestPause, func() bool {
		done, err = s.callLeaderOnce(ctx, c)
		return !errors.Is(err, errNotLeading)
	})
	return done, err
}

func (s *Store) callLeaderOnce(ctx context.Context, c changeCall) (done bool, err error) {
	var r *route.LedRegion
	if t := s.cluster.Table(); t != nil {
		r = t.ByID(c.Region)
	}
	switch {
	case r == nil:
		return false, fmt.Errorf("region %d is not known here", c.Region)
	case r.Leader == 0:
		return false, fmt.Errorf("region %d has no leader: %w", c.Region, errNotLeading)
	case r.Leader == s.o.ID:
		return s.answerChange(ctx, c)
	}
	var a changeAnswer
	if err = s.askLong(ctx, r.Leader, message{Change: &c}, &a); err == nil && a.NotLeading {
		err = errNotLeading
	}
	return a.Done, err
}
