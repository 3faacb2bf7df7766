package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// compareReplicas waits until all replicas have applied the same entries, and then compares what they hold.
func (s *sim) compareReplicas() {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := s.replicasDiffer()
		if err == nil {
			s.fail(s.checksumsDiffer())
			return
		}
		if behind := new(lagging); errors.As(err, &behind) && time.Now().Before(deadline) {
			continue
		}
		s.fail(err)
		return
	}
}

// comparing compares the replicas of a region now and then while clients write, as of one entry of the log. So a
// difference is found even if a snapshot heals it before the end.
func (s *sim) comparing(random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(900)) * time.Millisecond) {
		s.fail(s.compare(s.someRegion(random), s.nodes[random.IntN(len(s.nodes))]))
	}
}

// compare asks a store, if it runs, for the checksums of a region's replicas. Replicas that do not answer are left out.
func (s *sim) compare(r topology.RegionID, asked seam.StorePlace) error {
	st := asked.Store()
	if st == nil || st.Failed() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, err := st.Compare(ctx, r)
	if err != nil {
		return nil // no store led for long enough
	}
	known := 0
	for _, replica := range got.Replicas {
		if replica.Sum != "" {
			known++
		}
	}
	if known > 1 {
		s.count(&s.stats.Compared)
	}
	if got.Verdict() == "different" {
		return found(replicasDiffer, "region %d: checksums %+v", r, got)
	}
	return nil
}

// checksumsDiffer asks the stores how the replicas of each region compare. Before it, replicasDiffer has found them
// equal.
func (s *sim) checksumsDiffer() error {
	for _, desc := range s.regions() {
		if err := s.regionDiffers(desc.ID); err != nil {
			return err
		}
	}
	return nil
}

// regionDiffers is checksumsDiffer for one region. Checksums that differ are a problem at once. While some are missing
// it asks again, for hangTime: in real time a busy machine may keep a store from its answer.
func (s *sim) regionDiffers(r topology.RegionID) error {
	asked := s.nodes[int(r)%len(s.nodes)].Store()
	for deadline := time.Now().Add(hangTime); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), hangTime)
		got, err := asked.Compare(ctx, r)
		cancel()
		switch verdict := got.Verdict(); {
		case verdict == "equal" && err == nil:
			return nil
		case verdict != "different" && time.Now().Before(deadline):
			continue
		case verdict != "different" && err != nil:
			return fmt.Errorf("region %d: checksums: %w", r, err)
		}
		return found(replicasDiffer, "region %d: checksums %+v", r, got)
	}
}

// lagging is the error of a replica that has not applied what another one has.
type lagging struct{ error }

func (*lagging) evidence() evidence { return lags }

// replicasDiffer reads the replicas of all regions in the engines and returns the first difference.
func (s *sim) replicasDiffer() error {
	for _, desc := range s.regions() {
		r := desc.ID
		var first [][]byte
		var state keys.RegionState
		one := topology.StoreID(0) // the store that first is of
		for _, n := range s.nodes {
			st := n.Store()
			if st == nil || st.Failed() != nil {
				return found(storeFailed, "store %d does not run at the end", n.ID())
			}
			if st.Table() == nil {
				return &lagging{fmt.Errorf("store %d does not know the regions", n.ID())}
			}
			if _, held := desc.PeerOn(n.ID()); !held {
				continue
			}
			content, err := regionContent(st, r)
			if err != nil {
				return fmt.Errorf("region %d: store %d: %w", r, n.ID(), err)
			}
			own, err := keys.ParseRegionState(content[0])
			if err != nil {
				return fmt.Errorf("region %d: store %d: %w", r, n.ID(), err)
			}
			if first == nil {
				first, state, one = content, own, n.ID()
				continue
			}
			if own.ApplyIndex != state.ApplyIndex {
				return &lagging{fmt.Errorf("region %d: store %d is at apply index %d, store %d at %d",
					r, n.ID(), own.ApplyIndex, one, state.ApplyIndex)}
			}
			if len(content) != len(first) {
				return found(replicasDiffer, "region %d: apply index %d: store %d has %d keys, store %d has %d",
					r, own.ApplyIndex, one, len(first)/2, n.ID(), len(content)/2)
			}
			for j := range content {
				if !bytes.Equal(content[j], first[j]) {
					return found(replicasDiffer,
						"region %d: apply index %d: behind key %q store %d has %q, store %d has %q",
						r, own.ApplyIndex, content[max(0, j-1)], one, first[j], n.ID(), content[j])
				}
			}
		}
	}
	return nil
}
