package sim

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestRedirectionsWhileAMergeIsApplied has the leader of the left region, or a follower of both, apply a merge late.
// Meanwhile clients ask each store for a key of the right region. No store sends them to and fro.
func TestRedirectionsWhileAMergeIsApplied(t *testing.T) {
	for _, late := range []topology.StoreID{1, 2, 3} {
		t.Run(fmt.Sprint("store ", late), func(t *testing.T) {
			var applying chan struct{} // made in the bubble
			slow := func(st topology.StoreID, id topology.RegionID, _, _ uint64, payload []byte, _ error) {
				if st == late && id == 1 && bytes.Contains(payload, []byte("\x06bounds\x05merge")) {
					applying <- struct{}{}
					time.Sleep(200 * time.Millisecond)
				}
			}
			inBubble(t, seam.Hooks{Region: region.Hooks{BeforeApply: slow}}, func(t *testing.T, s *sim, c *caller) {
				applying = make(chan struct{}, 1)
				s.do("transfer 1 1")
				s.do("transfer 2 2")
				key := s.keyIn(topology.SplitEvenly(simRegions)[1])
				merged := make(chan struct{})
				go func() {
					defer close(merged)
					s.do("merge 1")
				}()
				<-applying
				time.Sleep(50 * time.Millisecond) // the others have applied it
				for _, n := range s.nodes {
					s.follows(t, n, key)
				}
				<-merged
			})
		})
	}
}

// follows asks a store for a key, and follows redirections as a client does, four times at most.
func (s *sim) follows(t *testing.T, at seam.StorePlace, key string) {
	t.Helper()
	addr, path := at.Addr(), []string{}
	for range 4 {
		nc, err := s.c.Dial(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		_, err = newWire(nc).call("GET", key)
		nc.Close()
		if err == nil {
			return
		}
		path = append(path, fmt.Sprintf("%s: %v", addr, err))
		addr = err.Error()[strings.LastIndex(err.Error(), " ")+1:]
	}
	t.Errorf("a client is sent to and fro: %q", path)
}
