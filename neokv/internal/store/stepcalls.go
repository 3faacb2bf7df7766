package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// stepCalls has the leader of the other region take its steps of a change: it calls the store that leads that region,
// perhaps this one, and answers such calls. It has no state. All methods may run concurrently.
type stepCalls struct {
	*core
	replicas *replicaSet
	cluster  *clusterMap
	drivers  *drivers
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

// leading returns the store's replica of a region, which must serve, while the store has a slot table.
func (x *stepCalls) leading(id topology.RegionID) (*region.Replica, error) {
	r := x.replicas.get(id)
	if r == nil || x.cluster.Table() == nil || r.Bounds().Phase == keys.Absorbed {
		return nil, errNotLeading
	}
	if _, _, serving := r.Leading(); !serving {
		return nil, errNotLeading
	}
	return r, nil
}

// answer takes a step of a change for another store.
func (x *stepCalls) answer(ctx context.Context, c changeCall) (bool, error) {
	r, err := x.leading(c.Region)
	if err != nil {
		return false, err
	}
	done, err := x.take(ctx, r, c)
	if errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
		err = errNotLeading // since a moment ago
	}
	return done, err
}

func (x *stepCalls) take(ctx context.Context, r *region.Replica, c changeCall) (bool, error) {
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
		done, ok := x.drivers.drive(c.Region)
		if !ok { // this merge goes on, or another change
			begun := r.Applied() >= c.Begun
			open := r.Bounds().Change
			return begun && (open.Kind == keys.NoChange || open.Begun != c.Begun), nil
		}
		defer done()
		return x.abort(ctx, r, c.Begun)
	}
	return false, fmt.Errorf("region %d: unknown step %q of a change", c.Region, c.Do)
}

// want has the leader of a region take a step.
func (x *stepCalls) want(ctx context.Context, c changeCall) error {
	done, err := x.call(ctx, c)
	if err == nil && !done {
		err = fmt.Errorf("region %d: %s: no", c.Region, c.Do)
	}
	return err
}

// call makes a call to the leader of a region. As long as the region has none it waits for one.
func (x *stepCalls) call(ctx context.Context, c changeCall) (done bool, err error) {
	retry(ctx, longestPause, func() bool {
		done, err = x.callOnce(ctx, c)
		return !errors.Is(err, errNotLeading)
	})
	return done, err
}

func (x *stepCalls) callOnce(ctx context.Context, c changeCall) (done bool, err error) {
	var r *route.LedRegion
	if t := x.cluster.Table(); t != nil {
		r = t.ByID(c.Region)
	}
	switch {
	case r == nil:
		return false, fmt.Errorf("region %d is not known here", c.Region)
	case r.Leader == 0:
		return false, fmt.Errorf("region %d has no leader: %w", c.Region, errNotLeading)
	case r.Leader == x.o.ID:
		return x.answer(ctx, c)
	}
	var a changeAnswer
	if err = x.askLong(ctx, r.Leader, message{Change: &c}, &a); err == nil && a.NotLeading {
		err = errNotLeading
	}
	return a.Done, err
}

// abort ends an attempt at a merge, and reports whether it has not happened and never will. The entry that ends it
// tells: behind that entry no merge of the attempt takes effect.
func (x *stepCalls) abort(ctx context.Context, left *region.Replica, begun uint64) (over bool, err error) {
	if err := left.Abort(ctx, time.Now().Add(stepTime), begun); err != nil {
		return false, err
	}
	c := left.Bounds().Change
	return c.Kind != keys.Merged || c.Begun != begun, nil
}
