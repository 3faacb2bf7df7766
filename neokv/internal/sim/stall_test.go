package sim

import (
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestStalledDisk makes the disk that all stores share take half a second for a sync, under load, or when a load begins
// after the regions have been at rest. No region changes its leader, and no write fails.
func TestStalledDisk(t *testing.T) {
	notShort(t)
	t.Run("busy", func(t *testing.T) { testStalledDisk(t, 0) })
	t.Run("at rest", func(t *testing.T) { testStalledDisk(t, 4*time.Second) })
}

func testStalledDisk(t *testing.T, rest time.Duration) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		changes := func() (n uint64) {
			for _, node := range s.nodes {
				for _, r := range node.Store().Counters().Regions {
					n += r.LeaderChanges.Load()
				}
			}
			return n
		}
		writes, refused, stop := s.writers()
		time.Sleep(time.Second)
		before := changes()
		for range 3 {
			if rest > 0 {
				stop()
				time.Sleep(rest)
				if refused.Load() > 0 {
					break
				}
				writes, refused, stop = s.writers()
			}
			s.hangAll(500 * time.Millisecond)
			time.Sleep(2 * time.Second)
		}
		stop()
		if n := changes() - before; n > 0 || refused.Load() > 0 {
			t.Errorf("%d changes of leader, %d writes without success; want none", n, refused.Load())
		}
		t.Logf("%d writes", writes.Load())
	})
}

// TestSlowDisk makes every sync take longer than a stall, and kills a store under load. The others elect leaders even
// so.
func TestSlowDisk(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		_, _, stop := s.writers()
		time.Sleep(time.Second)
		s.do("disk all latency=200ms")
		time.Sleep(3 * time.Second)
		for region := topology.RegionID(1); region <= simRegions; region++ {
			if at, _ := s.leader(region); at == nil {
				t.Errorf("region %d has no leader while syncs are slow", region)
			}
		}
		victim, _ := s.leader(1)
		s.do("kill %d keep=100%%", victim.ID())
		begun := time.Now()
		for region := topology.RegionID(1); region <= simRegions; region++ {
			for time.Since(begun) < 40*time.Second {
				if at, _ := s.leader(region); at != nil && at != victim {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("leaders after %s", took)
		} else {
			t.Logf("leaders after %s", took)
		}
		s.do("disk all ok")
		s.do("restart %d", victim.ID())
		stop()
	})
}
