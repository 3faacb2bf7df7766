package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// This file compares the replicas of a region by their checksums at one apply index.

const (
	// checksumPatience is how long a store may give no answer, or its replica make no progress, before the checksum
	// counts as unavailable.
	checksumPatience = 2 * time.Second
	// checksumPause is how long compare waits before it asks a store again: at first and at most.
	checksumPause, maxChecksumPause = time.Millisecond, 50 * time.Millisecond
)

// checksumCall asks a store for the checksum of its replica of a region at an apply index. With index 0 it asks the
// leader to make all replicas sum up, and the answer is a begunChecksum.
type checksumCall struct {
	Region topology.RegionID `json:"region"`
	Index  uint64            `json:"index,omitempty"`
}

// begunChecksum is the apply index at which the replicas of a region sum up, and the region's slots as of that index.
type begunChecksum struct {
	Index uint64             `json:"index"`
	Slots topology.SlotRange `json:"slots"`
}

// audit compares the replicas of a region. It has no state. All methods may run concurrently.
type audit struct {
	*core
	replicas *replicaSet
	cluster  *clusterMap
}

// answer answers a checksumCall.
func (x *audit) answer(ctx context.Context, c checksumCall) ([]byte, error) {
	r := x.replicas.get(c.Region)
	switch {
	case r == nil || !r.Running():
		return nil, fmt.Errorf("store %d: no replica of region %d runs", x.o.ID, c.Region)
	case c.Index != 0:
		return json.Marshal(r.Checksum(c.Index))
	}
	index, slots, err := r.BeginChecksum(ctx, time.Now().Add(callTimeout))
	if err != nil {
		return nil, fmt.Errorf("store %d: region %d: checksum: %w", x.o.ID, c.Region, err)
	}
	return json.Marshal(begunChecksum{index, slots})
}

// compare makes every replica of a region sum up: see Store.Compare.
func (x *audit) compare(ctx context.Context, id topology.RegionID) (region.Comparison, error) {
	c := region.Comparison{Region: id}
	peers, err := x.begin(ctx, &c)
	if err != nil {
		return c, err
	}
	c.Replicas = make([]region.ReplicaSum, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { c.Replicas[i] = x.sumOf(ctx, p.Store, checksumCall{id, c.Index}) })
	}
	wg.Wait()
	if c.Verdict() == "incomplete" && x.cluster.Table().ByID(id) == nil {
		return c, noRegion(id)
	}
	return c, ctx.Err()
}

func noRegion(id topology.RegionID) error { return fmt.Errorf("region %d: %w", id, region.ErrNone) }

// begin finds the region's leader and fills in the index and the slots.
func (x *audit) begin(ctx context.Context, c *region.Comparison) ([]topology.Peer, error) {
	deadline := time.Now().Add(x.o.Settings.Redis.LeaderlessWait)
	err := errors.New("no leader")
	for wait := checksumPause; ; wait = min(2*wait, maxChecksumPause) {
		t := x.cluster.Table()
		if t != nil {
			r := t.ByID(c.Region)
			if r == nil {
				return nil, noRegion(c.Region)
			}
			if r.Leader != 0 {
				var begun begunChecksum
				if err = x.ask(ctx, r.Leader, message{Checksum: &checksumCall{Region: c.Region}}, &begun); err == nil {
					c.Index, c.Slots = begun.Index, begun.Slots
					return r.Peers, nil
				}
			}
		}
		if !time.Now().Before(deadline) {
			return nil, fmt.Errorf("region %d: checksum: %w", c.Region, err)
		}
		if !pause(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// sumOf asks a store again and again until its replica has the sum or makes no progress.
func (x *audit) sumOf(ctx context.Context, on topology.StoreID, call checksumCall) region.ReplicaSum {
	out := region.ReplicaSum{Store: on}
	moved, progress := time.Now(), uint64(0)
	for wait := checksumPause; ; wait = min(2*wait, maxChecksumPause) {
		var sum region.Checksum
		err := x.ask(ctx, on, message{Checksum: &call}, &sum)
		if err == nil && (sum.Sum != "" || sum.Missing != "") {
			out.Sum, out.Missing = sum.Sum, sum.Missing
			return out
		}
		if err == nil && sum.Progress != progress {
			moved, progress = time.Now(), sum.Progress
		}
		if time.Since(moved) > checksumPatience || ctx.Err() != nil {
			if out.Missing = "it does not get there"; err != nil {
				out.Missing = err.Error()
			}
			return out
		}
		pause(ctx, wait)
	}
}
