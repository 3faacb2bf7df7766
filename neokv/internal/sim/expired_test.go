package sim

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// TestExpiredKeysVanish: expired keys leave the disks of all stores soon, though no client asks for them, and other
// keys stay. Then the cleaner proposes nothing.
func TestExpiredKeysVanish(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const expiring, staying = 400, 100
		at := s.session(t, s.leads(t))
		for i := range expiring {
			at.w.call("SET", s.nearby(i), "v", "PX", strconv.Itoa(500+10*i))
		}
		for i := range staying {
			at.w.call("SET", s.nearby(expiring+i), "v")
		}
		at.w.call("SET", s.nearby(expiring+staying), "v", "EX", "100000")
		if got := at.ask("DBSIZE"); got != strconv.Itoa(expiring+staying+1) {
			t.Fatalf("DBSIZE = %s before anything expires", got)
		}
		s.records(t, 70*time.Second, staying+1) // samples may miss a few keys; the next round finds them
		if got := at.ask("DBSIZE"); got != strconv.Itoa(staying+1) {
			t.Errorf("DBSIZE = %s, want %d", got, staying+1)
		}
		if got := s.expired(); got != expiring {
			t.Errorf("%d keys counted as expired, want %d", got, expiring)
		}
		entries := s.appliedEntries()
		time.Sleep(2 * time.Minute)
		if got := s.appliedEntries() - entries; got != 0 {
			t.Errorf("%d entries in two minutes in which nothing expired", got)
		}
	})
}

// TestCleanerRounds: without samples, a round of the cleaner looks at ExpireKeys keys of a region and deletes those
// that have expired. The next round goes on from there.
func TestCleanerRounds(t *testing.T) {
	notShort(t)
	k := simSettings()
	k.Redis.ExpireSample, k.Redis.ExpireKeys, k.Redis.ExpireInterval = 0, 100, 5*time.Second
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const n = 350
		at := s.session(t, s.leads(t))
		for i := range n {
			at.w.call("SET", s.nearby(i), "v", "PX", "1000")
		}
		before, left := time.Now(), n
		for left > 0 {
			s.records(t, 10*time.Second, max(0, left-100))
			left -= 100
		}
		if took := time.Since(before); took < 15*time.Second || took > 21*time.Second {
			t.Errorf("%d keys vanished in %s at 100 every 5s", n, took)
		}
	})
}

// TestManyExpiredKeysGiveSpaceBack: where many keys have expired, each store flushes its memtable once, though no
// client writes.
func TestManyExpiredKeysGiveSpaceBack(t *testing.T) {
	notShort(t)
	k := simSettings()
	// No memtable is full, and no log is cut, so neither is a reason to flush.
	k.Engine.MemtableSize, k.Raft.SnapshotEntries = 96<<20, 1_000_000
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const n = 12_000
		at := s.session(t, s.leads(t))
		flushes := func() (all []int64) {
			for _, node := range s.nodes {
				all = append(all, node.Store().Counters().Engine.Flushes)
			}
			return all
		}
		for i := range n {
			at.w.call("SET", s.nearby(i), "v", "EX", "30")
		}
		if n, _ := strconv.Atoi(at.ask("DBSIZE")); n == 0 {
			t.Fatal("the keys are gone before they have been counted")
		}
		before := flushes()
		for deadline := time.Now().Add(2 * time.Minute); s.expired() < n && time.Now().Before(deadline); {
			time.Sleep(time.Second)
		}
		s.records(t, 10*time.Second, 0) // followers may not have applied the last deletes
		time.Sleep(2 * time.Minute)
		once := flushes()
		for i := range once {
			if once[i] == before[i] {
				t.Errorf("flushes %d, and %d when %d keys had been deleted for two minutes", before, once, n)
			}
		}
		time.Sleep(5 * time.Minute)
		if got := flushes(); !slices.Equal(got, once) {
			t.Errorf("flushes %d, and %d five minutes later", once, got)
		}
	})
}

// TestExpirySwitchedOff: the cleaner deletes nothing while DEBUG or the settings switch it off. Clients do not see
// expired keys even so.
func TestExpirySwitchedOff(t *testing.T) {
	notShort(t)
	never := simSettings()
	never.Redis.ExpireSample, never.Redis.ExpireInterval = 0, 0
	for name, k := range map[string]*settings.Settings{"settings": never, "switch": simSettings()} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
				at := s.session(t, s.leads(t))
				set := func(on string) {
					if got := at.ask("DEBUG", "SET-ACTIVE-EXPIRE", on); got != "OK" {
						t.Errorf("DEBUG SET-ACTIVE-EXPIRE = %s", got)
					}
				}
				if k != never {
					set("0")
				}
				at.w.call("SET", s.nearby(0), "v", "PX", "100")
				time.Sleep(70 * time.Second)
				if got := at.ask("EXISTS", s.nearby(0)); got != "0" {
					t.Errorf("EXISTS = %s of an expired key", got)
				}
				s.records(t, 0, 1)
				if k != never {
					set("1")
					s.records(t, 10*time.Second, 0)
					if got := at.ask("INFO", "stats"); !strings.Contains(got, "\r\nexpired_keys:1\r\n") {
						t.Errorf("INFO stats = %s, want expired_keys:1", got)
					}
				}
			})
		})
	}
}

// records waits until the engine of each store holds so many records of region 1.
func (s *sim) records(t *testing.T, patience time.Duration, want int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		have := make([]int, 0, len(s.nodes))
		good := true
		for _, n := range s.nodes {
			content, err := regionContent(n.Store(), 1)
			if late := (*lagging)(nil); err != nil && !errors.As(err, &late) {
				// A follower may not have applied the writes yet.
				t.Fatal(err)
			}
			have = append(have, len(content)/2)
			good = good && len(content)/2 == want
		}
		if good {
			return
		}
		if !time.Now().Before(deadline) {
			t.Fatalf("the stores hold %d records after %s, want %d", have, patience, want)
		}
	}
}

// expired sums the keys that the stores have counted as expired.
func (s *sim) expired() (n uint64) {
	for _, node := range s.nodes {
		for _, c := range node.Store().Counters().Regions {
			n += c.ExpiredKeys.Load()
		}
	}
	return n
}

// appliedEntries sums the entries that the stores have applied.
func (s *sim) appliedEntries() (n uint64) {
	for _, node := range s.nodes {
		for _, c := range node.Store().Counters().Regions {
			n += c.AppliedEntries.Load()
		}
	}
	return n
}
