package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
)

// TestSnapshotKills makes a store that was away catch up by snapshots, and kills it, or the store that sends them, at
// each sync of that, one run each. The kills come when the file has been written, when the store has recorded it,
// when half of it is in the engine, and when all of it is there but not synced. Each time the store starts again,
// every other time in another folder, catches up, and holds what the others hold.
func TestSnapshotKills(t *testing.T) {
	for _, whose := range []struct {
		name    string
		atLeast int // kills, one at each sync
		during  int // of them before all snapshots were installed
		sends   bool
	}{
		{name: "receiver", atLeast: 90, during: 60},
		{name: "sender", sends: true, atLeast: 6, during: 3},
	} {
		t.Run(whose.name, func(t *testing.T) {
			const lanes = 4
			step := int64(1)
			if testing.Short() {
				step = 40
			}
			var mu sync.Mutex
			left := map[string]bool{}
			kills, during, installed := 0, 0, 0
			t.Run("kills", func(t *testing.T) {
				for lane := range int64(lanes) {
					t.Run(fmt.Sprint(lane), func(t *testing.T) {
						t.Parallel()
						for k := lane*step + 1; !t.Failed(); k += lanes * step {
							sprung := false
							inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
								found := map[string]bool{}
								early, behind := 0, 0
								if sprung, early, behind = s.killCatchingUp(t, c, whose.sends, k, found); !sprung {
									return
								}
								mu.Lock()
								defer mu.Unlock()
								kills, during, installed = kills+1, during+early, installed+behind
								maps.Copy(left, found)
							})
							if !sprung {
								return
							}
						}
					})
				}
			})
			t.Logf("%d kills, %d of them before all snapshots were installed; %d snapshots installed after kills",
				kills, during, installed)
			if testing.Short() {
				return
			}
			if kills < whose.atLeast || during < whose.during || installed < during {
				t.Errorf("too few to mean much; want %d, %d and %d", whose.atLeast, whose.during, during)
			}
			if whose.sends {
				return
			}
			for _, want := range []string{"chunks written", "complete, not recorded", "received and kept",
				"half recovered"} {
				if !left[want] {
					t.Errorf("no kill left a store with an installation at the stage %q", want)
				}
			}
		})
	}
}

// killCatchingUp makes store 3 catch up by snapshots, and kills it, or the leader of most regions, at the k-th sync
// of that; sprung is false if there were fewer. It adds to found how far the installations had come. early is 1 if
// some were not complete, and installed counts those after the kill.
func (s *sim) killCatchingUp(
	t *testing.T, c *caller, sender bool, k int64, found map[string]bool,
) (sprung bool, early, installed int) {
	s.epochs = []string{""}
	receiver := s.nodes[2]
	if err := s.away(c, receiver, 50); err != nil {
		t.Fatal(err)
	}
	victim := receiver
	if sender {
		victim, _ = s.leader(1)
	}
	received := func() int { // snapshots, by all stores in all lives
		s.tally()
		return s.stats.Snapshots
	}
	boot := received()
	keep := []int{0, 50, 100}[k%3]
	var writing sync.WaitGroup
	if sender {
		s.do("link %d %d delay=5ms", victim.ID(), receiver.ID()) // snapshots take a while
		s.do("restart %d", receiver.ID())
		writing.Go(func() { // which makes the sender sync
			for i := range 3 * simRegions {
				c.do(set, s.key('r', i%simRegions), fmt.Sprint("sent-", i))
			}
		})
		s.do("kill %d keep=%d%% sync=%d", victim.ID(), keep, k)
	} else {
		s.do("restart %d keep=%d%% sync=%d", receiver.ID(), keep, k)
	}
	before := received()
	if sprung = s.stats.States[killedAtSync] > 0; sprung {
		if before < boot+simRegions {
			early = 1
		}
		stages(victim.FS(), victim.Dir(), found)
		if k/3%2 == 0 {
			elsewhere := "/elsewhere" + victim.Dir()
			fs := victim.FS()
			if err := errors.Join(fs.MkdirAll("/elsewhere", 0o755), fs.Rename(victim.Dir(), elsewhere)); err != nil {
				t.Fatal(err)
			}
			victim.Move(fs, elsewhere)
		}
	}
	writing.Wait()
	if sender {
		s.do("link %d %d ok", victim.ID(), receiver.ID())
	}
	s.do("restart %d", victim.ID())
	s.compareReplicas()
	installed = received() - before
	if s.problem != nil {
		t.Errorf("store %d killed at sync %d of catching up: %v", victim.ID(), k, s.problem)
	}
	return sprung, early, installed
}

// received finds the files of snapshots that a store has received and not yet installed.
func received(fs *disk.FS, path string) (files []string) {
	list, err := fs.List(path)
	if err != nil {
		return nil
	}
	for _, name := range list {
		full := fs.PathJoin(path, name)
		info, err := fs.Stat(full)
		switch {
		case err == nil && info.IsDir():
			files = append(files, received(fs, full)...)
		case err == nil && strings.HasSuffix(name, ".gbsnap") && !strings.Contains(full, ".receiving") &&
			info.Size() > 4096:
			files = append(files, full)
		}
	}
	return files
}

// TestSnapshotDamaged kills a store after it has received snapshots and before it has installed them, damages the
// files, and starts the store again. Either the store stops and says why, or it did not need the files. The others go
// on, and so does the process.
func TestSnapshotDamaged(t *testing.T) {
	notShort(t)
	const seed = 4
	stopped, unharmed := 0, 0
	for k := int64(4); k < 400 && !t.Failed(); k += 7 {
		sprung := false
		inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
			s.epochs = []string{""}
			victim := s.nodes[2]
			if err := s.away(c, victim, 60); err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(seed, uint64(k)))
			s.do("restart %d keep=100%% sync=%d", victim.ID(), k)
			if sprung = s.stats.States[killedAtSync] > 0; !sprung {
				return
			}
			files := received(victim.FS(), victim.Dir())
			for _, name := range files {
				f, err := victim.FS().OpenReadWrite(name, vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				at := random.Int64N(2048) // in the header, or the first block
				var b [1]byte
				f.ReadAt(b[:], at)
				b[0] ^= 1 << random.IntN(8)
				if _, err := f.WriteAt(b[:], at); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// The store may notice the damage while it starts, or later.
			failure := s.inject(t.Context(), fault.Fault{Verb: fault.Restart, Stores: []int{int(victim.ID())}})
			for end := time.Now().Add(3 * time.Second); failure == nil && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
				failure = victim.Failure()
			}
			switch {
			case failure == nil:
				if len(files) > 0 {
					unharmed++
				}
				s.compareReplicas()
			case len(files) == 0 || !strings.Contains(failure.Error(), ".gbsnap: damaged: "):
				t.Errorf("seed %d: killed at sync %d, %d files damaged: the store failed with %v", seed, k, len(files),
					failure)
			default:
				stopped++
				for r := range simRegions {
					for ok, end := false, time.Now().Add(20*time.Second); !ok; {
						var err error
						if ok, err = c.do(set, s.key('r', r), "after"); err != nil || time.Now().After(end) {
							t.Fatalf("region %d: no write in 20s with two of three stores: %v", r+1, err)
						}
					}
				}
			}
			if s.problem != nil {
				t.Errorf("seed %d: killed at sync %d, %d files damaged: %v", seed, k, len(files), s.problem)
			}
		})
		if !sprung {
			break
		}
	}
	t.Logf("%d starts on damaged files ended with a stopped store, %d did not need the files", stopped, unharmed)
	if stopped < 2 || unharmed < 1 {
		t.Errorf("%d stopped, %d unharmed: too few to mean much", stopped, unharmed)
	}
}
