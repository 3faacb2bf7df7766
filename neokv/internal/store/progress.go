package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// progress tells how far replicas are: those of this store, and by calls those of the others. All methods may run
// concurrently.
type progress struct {
	*core
	replicas *replicaSet
	cluster  *clusterMap
	meta     *metaMember
	syncing  chan struct{} // capacity 1: held while sync is at work
}

// settlePause is how long awaitRegion waits before it asks the other stores again.
const settlePause = 2 * time.Millisecond

// boundsCall asks for what a store's replica of a region has applied; the answer is a boundsAnswer.
type boundsCall struct {
	Region topology.RegionID `json:"region"`
	Sync   bool              `json:"sync,omitempty"` // the answer waits until all that it says is durable
}

// boundsAnswer says what a store's replica of a region has applied.
type boundsAnswer struct {
	Runs bool `json:"runs"` // it has been started
	// Replica is its id, 0 if there is none.
	Replica topology.ReplicaID `json:"replica,omitempty"`
	Version uint64             `json:"version"` // 0 if there is no replica that runs, and for meta
	Phase   keys.RegionPhase   `json:"phase"`
	Change  keys.RegionChange  `json:"change"` // the one that is open
	Applied uint64             `json:"applied"`
	Log     multiraft.End      `json:"log"`
	Synced  bool               `json:"synced,omitempty"` // all this is durable

	took time.Duration // to get the answer
}

// runs reports whether this store's replica of a region has been started.
func (x *progress) runs(id topology.RegionID) bool {
	if id == topology.MetaRegion {
		return x.meta.group.Load() != nil
	}
	r := x.replicas.get(id)
	return r != nil && r.Running()
}

// on returns what the replica of a region on a store, perhaps this one, has applied.
func (x *progress) on(ctx context.Context, on topology.StoreID, c boundsCall) (b boundsAnswer, err error) {
	begin := time.Now()
	switch {
	case c.Sync: // which takes as long as the disk does, also on this store
		err = x.askLong(ctx, on, message{Bounds: &c}, &b)
	case on == x.o.ID:
		return x.answer(ctx, c), nil
	default:
		err = x.ask(ctx, on, message{Bounds: &c}, &b)
	}
	b.took = time.Since(begin)
	return b, err
}

// answer answers a boundsCall.
func (x *progress) answer(ctx context.Context, c boundsCall) (b boundsAnswer) {
	if b.Runs = x.runs(c.Region); b.Runs {
		b.Log, _ = x.raft.LogEnd(c.Region) // without it, another one stands for election
	}
	if c.Region == topology.MetaRegion {
		b.Replica = x.self()
		return b
	}
	r := x.replicas.get(c.Region)
	if r == nil && x.cluster.Table() != nil { // else the engine may not be open yet
		if was, err := region.PhaseOf(x.engine, c.Region); err == nil && was == keys.Absorbed {
			b.Phase = was
		}
	}
	if r == nil || !b.Runs {
		return b
	}
	_, b.Replica = r.Region()
	b.Applied = r.Applied()
	now := r.Bounds()
	b.Version, b.Phase, b.Change = now.Version, now.Phase, now.Change
	b.Synced = c.Sync && x.sync(ctx) == nil
	return b
}

// sync makes all durable that the store has written. A disk that hangs holds one goroutine, and the caller until ctx
// ends.
func (x *progress) sync(ctx context.Context) error {
	select {
	case x.syncing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	_, end, ok := x.enter(ctx)
	if !ok {
		<-x.syncing
		return errNotLeading
	}
	synced := make(chan error, 1)
	go func() {
		defer end()
		if wait := x.o.FS.LogWait(); wait != nil {
			wait(true)
		}
		synced <- errors.Join(x.engine.Sync(), x.failed())
		<-x.syncing
	}()
	select {
	case err := <-synced:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// everyStore waits until the replicas of a region on all of its stores are in a state, and with synced until that is
// durable there. A replica that has ended by a wipe of its store does not count: the next one begins with a snapshot.
func (x *progress) everyStore(ctx context.Context, r *topology.Region, synced bool, is func(boundsAnswer) bool) error {
	var mu sync.Mutex
	var late []topology.StoreID
	var wg sync.WaitGroup
	for _, p := range r.Peers {
		if x.cluster.ended(p) {
			continue // the store has nothing of the region
		}
		wg.Go(func() {
			if !retry(ctx, longestPause, func() bool {
				b, err := x.on(ctx, p.Store, boundsCall{Region: r.ID})
				if err == nil && is(b) && synced { // only now, since a sync takes long
					b, err = x.on(ctx, p.Store, boundsCall{Region: r.ID, Sync: true})
				}
				return err == nil && is(b) && b.Synced == synced
			}) {
				mu.Lock()
				late = append(late, p.Store)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(late) > 0 {
		slices.Sort(late)
		return fmt.Errorf("region %d: the replicas on stores %v are down, behind, or on disks that take long for a sync;"+
			" a merge waits for all, but not for long", r.ID, late)
	}
	return nil
}

// endedAlike returns an error if a store that was wiped has lost the replica of one of two regions alone. If these
// merged, the other one's replica there would be without the data of the first.
func (x *progress) endedAlike(a, b *topology.Region) error {
	for _, p := range a.Peers {
		if q, ok := b.PeerOn(p.Store); ok && x.cluster.ended(p) != x.cluster.ended(q) {
			return fmt.Errorf("store %d was wiped, and has a replica of one of the regions %d and %d alone", p.Store, a.ID,
				b.ID)
		}
	}
	return nil
}

// replicated returns how many stores beside a region's leader have applied the entry at index, 0 if this store knows of
// no leader. It counts those that answer before ctx ends, and none whose replica joins or leaves the region.
func (x *progress) replicated(ctx context.Context, id topology.RegionID, index uint64) int {
	t := x.cluster.Table()
	if t == nil || t.ByID(id) == nil || t.ByID(id).Leader == 0 {
		return 0
	}
	var have atomic.Int64
	var wg sync.WaitGroup
	for _, p := range t.ByID(id).Peers {
		if p.Store == t.ByID(id).Leader || p.Role != topology.Voter {
			continue
		}
		wg.Go(func() {
			if b, err := x.on(ctx, p.Store, boundsCall{Region: id}); err == nil && b.Applied >= index {
				have.Add(1)
			}
		})
	}
	wg.Wait()
	return int(have.Load())
}

// await waits until all other replicas of the regions that this store leads have applied what it has applied when await
// begins.
func (x *progress) await(ctx context.Context) error {
	t := x.cluster.Table()
	if t == nil {
		return nil
	}
	for i := range t.Regions {
		r := &t.Regions[i]
		if r.Leader != x.o.ID {
			continue
		}
		if replica := x.replicas.get(r.ID); replica != nil {
			if err := x.awaitRegion(ctx, r.ID, replica.Applied()); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitRegion waits until all other replicas of a region have applied the entry at index. If the region is no more, a
// merge has ended it, and that waited until all replicas had applied the region's writes.
func (x *progress) awaitRegion(ctx context.Context, id topology.RegionID, index uint64) error {
	for {
		r := x.cluster.Table().ByID(id)
		if r == nil {
			return nil
		}
		others := 0
		for _, p := range r.Peers {
			if p.Store != r.Leader && p.Role == topology.Voter {
				others++
			}
		}
		if r.Leader == 0 {
			others--
		}
		if x.replicated(ctx, id, index) >= others {
			return nil
		}
		if !pause(ctx, settlePause) {
			return fmt.Errorf("region %d: not all replicas have applied %d: %w", id, index, context.Cause(ctx))
		}
	}
}
