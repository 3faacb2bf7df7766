package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestFullDisks leaves less than the reserve on the disk of a store, and then of a majority.
func TestFullDisks(t *testing.T) {
	k := simSettings()
	k.Raft.LeaderReturn = leaderReturn
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		disk := func(store int, d fault.Drive) {
			t.Helper()
			s.fail(s.inject(t.Context(), fault.Fault{Verb: fault.Disk, Stores: []int{store}, Disk: d}))
		}
		status := func(store int) neokv.StoreStatus { return s.c.Status().Stores[store-1] }
		full := fault.Drive{Free: 400 << 10}
		s.config.Settings = k // for serves

		// Few writes, so that one which waits for something is not helped by the next.
		stop := s.steadyWriters(t, 25*time.Millisecond)
		disk(1, full)
		s.untilElected(t, s.nodes[0])
		until(t, "lag of the full store", func() bool { return status(1).Lag > 100 })
		if x := status(1); x.State != neokv.StateFull || !strings.Contains(x.Reason, "engine.disk_reserve keeps 512KiB") {
			t.Errorf("status %+v; want full, and why", x)
		}
		time.Sleep(3 * leaderReturn)
		if now := s.leaders(); slices.Contains(now[:], 1) {
			t.Errorf("leaders %v: one has returned to the full store", now)
		}
		// The reserve is for what the full store cannot put off, not for what the others write.
		if left, _, _ := s.nodes[0].FS().Free("/"); left < 300<<10 {
			t.Errorf("the full store has %d bytes left of 400 KiB", left)
		}
		if longest := stop(); longest > time.Second {
			t.Errorf("a write took %s; want none to wait for an election", longest)
		}

		disk(2, full)
		until(t, "refused writes", func() bool {
			c := s.newCaller(300)
			defer c.close()
			for r := range simRegions {
				if err := s.once(c, r, "SET"); !strings.HasPrefix(errorText(err), "MISCONF ") {
					return false
				}
			}
			return true
		})
		c := s.newCaller(301)
		defer c.close()
		for r := range simRegions {
			if err := s.once(c, r, "GET"); err != nil {
				t.Errorf("a read of region %d: %v", r+1, err)
			}
		}

		disk(1, fault.Drive{})
		disk(2, fault.Drive{})
		if err := s.serves(); err != nil {
			t.Error(err)
		}
		until(t, "an end of all lag", func() bool { return status(1).Lag+status(2).Lag == 0 })
		until(t, "leaders at home", func() bool { return s.leaders() == s.atHome() })
		if x := status(1); x.State != neokv.StateOK || s.nodes[0].FS().Failed() != nil {
			t.Errorf("status %+v, failed %v", x, s.nodes[0].FS().Failed())
		}
	})
}

// TestShortOfFiles lets tries to open, make, list and write files fail again and again, each time as often as stores
// wait out: none fails, and clients hardly notice.
func TestShortOfFiles(t *testing.T) {
	inBubbleWith(t, simSettings(), seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		stop := s.steadyWriters(t, 5*time.Millisecond)
		for range 50 {
			for store := range s.nodes {
				s.fail(s.inject(t.Context(), fault.Fault{Verb: fault.Disk, Stores: []int{store + 1},
					Disk: fault.Drive{Short: fault.ShortTries - 1}}))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if longest := stop(); longest > time.Second {
			t.Errorf("a write took %s", longest)
		}
		for _, n := range s.nodes {
			if retries := n.FS().Stats().Retries; n.FS().Failed() != nil || retries < fault.ShortTries {
				t.Errorf("store %d has failed with %v after %d retries", n.ID(), n.FS().Failed(), retries)
			}
		}
	})
}

// once sends a command once, to the store that leads the region.
func (s *sim) once(c *caller, region int, verb string) error {
	n, _ := s.leader(topology.RegionID(region + 1))
	if n == nil {
		return errors.New("no leader")
	}
	w, _, err := c.connect(n.Addr(), time.Now().Add(opTime))
	if err != nil {
		return err
	}
	args := []string{verb, s.key('r', region)}
	if verb == "SET" {
		args = append(args, "v")
	}
	_, err = w.call(args...)
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
