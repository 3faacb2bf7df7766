package sim

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// away runs a store's absence: it is killed, the others go on until their logs no longer hold what it lacks, and it starts again.
func (s *sim) away(c *caller, n seam.Node, writes int) error {
	s.kill(100, s.random(1), n)
	for i := range writes {
		for r := range simRegions {
			for ok, deadline := false, time.Now().Add(20*time.Second); !ok; {
				var err error
				if ok, err = c.do(set, s.key('r', r), fmt.Sprintf("away-%d", i)); err != nil {
					return err
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("region %d: no write in 20s with two of three stores", r+1)
				}
			}
		}
	}
	return nil
}

// stages says how far installations had come on the disk that a kill left.
func stages(fs *disk.FS, path string, found map[string]bool) {
	list, err := fs.List(path)
	if err != nil {
		return
	}
	for _, name := range list {
		full := fs.PathJoin(path, name)
		info, err := fs.Stat(full)
		switch {
		case err != nil:
		case strings.HasSuffix(name, ".receiving"):
			found["chunks written"] = true
		case name == "dragonboat.snapshot.message":
			found["complete, not recorded"] = true
		case strings.Contains(full, "/incoming/"):
			found["half recovered"] = true
		case strings.HasSuffix(name, ".gbsnap") && info.Size() > 4096: // it shrinks when the recovery is synced
			found["received and kept"] = true
		}
		if err == nil && info.IsDir() {
			stages(fs, full, found)
		}
	}
}

// TestSnapshotKills has a store that was away catch up by snapshots and kills it, or the store that sends them, at every sync of that, one run
// each: what it has received is written, the record of that is saved, half of it is recovered, it is recovered and not synced. Each time the
// store starts again, every other time in another folder, catches up and holds what the others hold.
func TestSnapshotKills(t *testing.T) {
	for _, whose := range []struct {
		name    string
		atLeast int // so many syncs
		during  int // kills while a snapshot was still to be installed
		sends   bool
	}{
		{name: "receiver", atLeast: 90, during: 60},
		{name: "sender", sends: true, atLeast: 6, during: 3},
	} {
		t.Run(whose.name, func(t *testing.T) {
			const lanes = 4
			step := int64(1)
			if testing.Short() {
				step = 10
			}
			var mu sync.Mutex
			left := map[string]bool{}
			kills, during, installed := 0, 0, uint64(0)
			t.Run("kills", func(t *testing.T) {
				for lane := range int64(lanes) {
					t.Run(fmt.Sprint(lane), func(t *testing.T) {
						t.Parallel()
						for k := lane*step + 1; !t.Failed(); k += lanes * step {
							sprung := false
							inBubble(t, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
								found := map[string]bool{}
								early, behind := 0, uint64(0)
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
			t.Logf("%d kills, %d of them while snapshots were to be installed; %d snapshots installed behind them", kills, during, installed)
			if testing.Short() {
				return
			}
			if kills < whose.atLeast || during < whose.during || installed < uint64(during) {
				t.Errorf("too few to mean much; want %d, %d and %d", whose.atLeast, whose.during, during)
			}
			if whose.sends {
				return
			}
			for _, want := range []string{"chunks written", "complete, not recorded", "received and kept", "half recovered"} {
				if !left[want] {
					t.Errorf("no kill left a store with an installation at the stage %q", want)
				}
			}
		})
	}
}

// killCatchingUp has store 3 catch up by snapshots and kills it, or the leader of most of the regions, at the k-th sync of that, unless it has
// fewer. stages are those in which the kill has left the installations; early is 1 if the kill came before all of them were complete, and
// installed counts those of the life behind it.
func (s *sim) killCatchingUp(t *testing.T, c *caller, sender bool, k int64, found map[string]bool) (sprung bool, early int, installed uint64) {
	s.epochs = []string{""}
	receiver := s.nodes[2]
	if err := s.away(c, receiver, 50); err != nil {
		t.Fatal(err)
	}
	victim := receiver
	if sender {
		victim, _ = s.leader(1)
	}
	random := rand.New(rand.NewPCG(uint64(k), 5))
	received := func() (regions int, snapshots uint64) {
		st := receiver.Store()
		if st == nil {
			return 0, 0
		}
		for r := topology.RegionID(1); r <= simRegions; r++ {
			if replica := st.Replica(r); replica != nil {
				if n := replica.Counters().SnapshotsReceived.Load(); n > 0 {
					regions++
					snapshots += n
				}
			}
		}
		return regions, snapshots
	}
	s.lives[receiver.ID()-1].Add(1)
	x := s.setTrap(victim.FS(), k, []int{0, 50, 100}[k%3], random, victim)
	err := receiver.Start()
	for end := time.Now().Add(3 * time.Second); err == nil && time.Now().Before(end) && x.count.Load() < k; {
		time.Sleep(time.Millisecond)
	}
	killed := x.disarm()
	if killed == nil {
		if err != nil {
			t.Fatal(err)
		}
	} else {
		sprung = true
		regions, before := received()
		if regions < simRegions {
			early = 1
		}
		stages(killed.disks[0], victim.Dir(), found)
		s.bury(*killed)
		if k/3%2 == 0 {
			elsewhere := "/elsewhere" + victim.Dir()
			if err := errors.Join(victim.FS().MkdirAll("/elsewhere", 0o755), victim.FS().Rename(victim.Dir(), elsewhere)); err != nil {
				t.Fatal(err)
			}
			victim.Move(victim.FS(), elsewhere)
		}
		s.restart(victim)
		if victim != receiver {
			installed -= before
		}
	}
	s.compareReplicas()
	_, n := received()
	installed += n
	if s.problem != nil {
		t.Errorf("store %d killed at sync %d of catching up: %v", victim.ID(), k, s.problem)
	}
	return sprung, early, installed
}

// healed lets every other replica of region 1 be brought up to date by a snapshot of the leader's, and reports what a comparison at the end finds.
func (s *sim) healed(t *testing.T, c *caller) error {
	leader, _ := s.leader(1)
	for _, n := range s.others(leader) {
		if err := s.away(c, n, 50); err != nil {
			t.Fatal(err)
		}
		s.restart(n)
		replica := n.Store().Replica(1)
		for end := time.Now().Add(10 * time.Second); replica.Counters().SnapshotsReceived.Load() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("store %d: no snapshot of region 1 in 10s", n.ID())
			}
		}
		if now, _ := s.leader(1); now != leader {
			t.Fatalf("region 1 is led by store %d, and was by store %d", now.ID(), leader.ID())
		}
	}
	s.compareReplicas()
	return s.problem
}

// TestDifferenceBeforeASnapshot has replicas differ, and snapshots heal that: a comparison while they do finds it, and one at the end does not.
func TestDifferenceBeforeASnapshot(t *testing.T) {
	k := simSettings()
	k.Raft.ReadSets = false // which would tell the followers what SPOP took
	var faults store.Faults
	faults.Region.MapOrder = true
	inBubbleWith(t, k, faults, func(t *testing.T, s *sim, c *caller) {
		leader, _ := s.leader(1)
		at := s.session(t, leader)
		for i := range 100 {
			at.ask("SADD", s.nearby(0), strconv.Itoa(i))
		}
		if err := s.compare(1, leader); err != nil {
			t.Errorf("before any difference: %v", err)
		}
		for range 20 {
			at.ask("SPOP", s.nearby(0))
		}
		if err := s.compare(1, leader); evidenceOf(err) != replicasDiffer {
			t.Errorf("replicas that differ: %v", err)
		}
		if err := s.healed(t, c); err != nil {
			t.Errorf("behind snapshots: %v", err)
		}
	})
}

// TestPayloadThatDiffers has the payload of an entry change on its way to a follower, which a snapshot heals: apply's witness finds it.
func TestPayloadThatDiffers(t *testing.T) {
	var witness atomic.Pointer[sim]
	var faults store.Faults
	faults.Region.Observe = func(st topology.StoreID, r topology.RegionID, index, tag uint64, payload []byte, applied bool) {
		if s := witness.Load(); s != nil {
			s.observe(st, r, index, tag, payload, applied)
		}
	}
	inBubble(t, faults, func(t *testing.T, s *sim, c *caller) {
		s.entries = make(map[topology.RegionID]map[uint64]entry)
		witness.Store(s)
		leader, _ := s.leader(1)
		at := s.session(t, leader)
		at.ask("SET", s.nearby(0), "sent")
		if s.problem != nil {
			t.Errorf("before any difference: %v", s.problem)
		}
		follower := s.others(leader)[0]
		s.network.Hold(leader.ID(), follower.ID(), time.Millisecond, func(m *pb.Message) bool {
			m.Entries = slices.Clone(m.Entries) // the log has them, too
			for i := range m.Entries {
				m.Entries[i].Cmd = bytes.ReplaceAll(m.Entries[i].Cmd, []byte("sent"), []byte("seen"))
			}
			return false
		})
		at.ask("SET", s.nearby(0), "sent")
		s.network.Hold(leader.ID(), follower.ID(), 0, nil)
		time.Sleep(time.Second)
		s.mu.Lock()
		problem := s.problem
		s.problem = nil
		s.mu.Unlock()
		if evidenceOf(problem) != logsDiffer {
			t.Errorf("an entry that differs on store %d: %v", follower.ID(), problem)
		}
		witness.Store(nil)
		if err := s.healed(t, c); err != nil {
			t.Errorf("behind snapshots: %v", err)
		}
	})
}

// TestSnapshotBySize has the log cut because of the bytes that were applied, long before there are as many entries as cut it, so that a store that
// was away needs snapshots.
func TestSnapshotBySize(t *testing.T) {
	k := simSettings()
	k.Raft.SnapshotEntries, k.Raft.SnapshotBytes, k.Raft.CompactionOverhead = 1_000_000, 64<<10, 5
	inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
		s.epochs = []string{""}
		victim := s.nodes[2]
		s.kill(100, s.random(1), victim)
		value := strings.Repeat("v", 8<<10)
		for r := range simRegions {
			for n, end := 0, time.Now().Add(20*time.Second); n < 40; {
				home, _ := s.leader(topology.RegionID(r + 1))
				if home != nil && s.ask(t, home, "SET", fmt.Sprint(n, "{", regionTags[r], "}"), value) == "OK" {
					n++
				} else {
					time.Sleep(10 * time.Millisecond)
				}
				if time.Now().After(end) {
					t.Fatalf("region %d: %d writes in 20s with two of three stores", r+1, n)
				}
			}
		}
		s.restart(victim)
		s.compareReplicas()
		for r := topology.RegionID(1); r <= simRegions; r++ {
			if n := victim.Store().Replica(r).Counters().SnapshotsReceived.Load(); n == 0 {
				t.Errorf("region %d: caught up without a snapshot after 320 KiB, with raft.snapshot_bytes at 64 KiB", r)
			}
		}
	})
}

// TestLogsAtRest: the log of a region in which nothing happens any more goes where it takes twice the space of the region's data, and
// stays where it does not. A store that was away then is brought up to date all the same.
func TestLogsAtRest(t *testing.T) {
	k := simSettings()
	k.Raft.SnapshotEntries, k.Raft.CompactionOverhead = 10_000, 2000
	inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
		at := s.session(t, s.leads(t))
		rng := rand.New(rand.NewPCG(1, 1))
		logs := func() (low, high uint64) {
			low = math.MaxUint64
			for _, n := range s.nodes {
				lower, upper := keys.RaftBounds(1)
				bytes, err := n.Store().Engine().TableBytes(engine.Span{Lower: lower, Upper: upper})
				if err != nil {
					t.Fatal(err)
				}
				low, high = min(low, bytes), max(high, bytes)
			}
			return low, high
		}
		value := make([]byte, 50_000)
		for i := range 120 {
			for j := range value {
				value[j] = byte(rng.Uint32()) // does not compress
			}
			at.ask("HSET", s.nearby(0), strconv.Itoa(i), string(value))
		}
		for _, n := range s.nodes {
			if err := n.Store().Engine().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if low, _ := logs(); low < 5_000_000 {
			t.Errorf("%d bytes of log where the data is as large; it was to stay", low)
		}
		at.ask("DEL", s.nearby(0))
		for _, n := range s.nodes {
			if err := n.Store().Engine().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if _, high := logs(); high > 300_000 {
			t.Errorf("%d bytes of log a minute after all of 6 MB was deleted", high)
		}
		at.ask("SET", s.nearby(0), "v")
		if err := s.away(c, s.nodes[1], 10); err != nil {
			t.Error(err)
		}
		if got := at.ask("GET", s.nearby(0)); got != "v" {
			t.Errorf("GET = %q", got)
		}
	})
}

// received finds the files of snapshots that a store has received and not installed.
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
		case err == nil && strings.HasSuffix(name, ".gbsnap") && !strings.Contains(full, ".receiving") && info.Size() > 4096:
			files = append(files, full)
		}
	}
	return files
}

// TestSnapshotDamaged kills a store between the reception and the end of the installation of snapshots, damages the files that it has received, and
// starts it again. It stops, and says why, or it did not need them; the others go on, and so does the process.
func TestSnapshotDamaged(t *testing.T) {
	const seed = 4
	stopped, unharmed := 0, 0
	for k := int64(4); k < 400 && !t.Failed(); k += 7 {
		sprung := false
		inBubble(t, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
			s.epochs = []string{""}
			victim := s.nodes[2]
			if err := s.away(c, victim, 60); err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(seed, uint64(k)))
			s.lives[victim.ID()-1].Add(1)
			x := s.setTrap(victim.FS(), k, 100, random, victim)
			err := victim.Start()
			for end := time.Now().Add(3 * time.Second); err == nil && time.Now().Before(end) && x.count.Load() < k; {
				time.Sleep(10 * time.Millisecond)
			}
			killed := x.disarm()
			if sprung = killed != nil; !sprung {
				return
			}
			files := received(killed.disks[0], "/store-3")
			for _, name := range files {
				f, err := killed.disks[0].OpenReadWrite(name, vfs.WriteCategoryUnspecified)
				if err != nil {
					t.Fatal(err)
				}
				at := random.Int64N(2048) // header, or first block
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
			s.bury(*killed)
			failure := victim.Start() // it may notice on the way, or later
			s.lives[victim.ID()-1].Add(1)
			for end := time.Now().Add(3 * time.Second); failure == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				failure = victim.Failure()
			}
			switch {
			case failure == nil:
				if len(files) > 0 {
					unharmed++
				}
				s.compareReplicas()
			case len(files) == 0 || !strings.Contains(failure.Error(), ".gbsnap: damaged: "):
				t.Errorf("seed %d: killed at sync %d, %d files damaged: the store failed with %v", seed, k, len(files), failure)
			default:
				stopped++
				for r := range simRegions {
					for ok, end := false, time.Now().Add(20*time.Second); !ok; {
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
