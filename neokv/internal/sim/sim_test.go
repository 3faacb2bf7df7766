package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// sim is a cluster, of three stores mostly, in virtual time, with clients, under faults. A seed fixes the schedule of faults and operations, not
// the interleaving: equal seeds give nearly equal runs.
type sim struct {
	seed    uint64
	config  neokv.Config
	c       *neokv.Cluster
	inside  seam.Cluster
	h       *history
	epoch   string // names the keys in use; a new one keeps histories of a key short
	epochs  []string
	nodes   []seam.Node
	network *transport.Network

	lives  []atomic.Uint64 // by store: odd while it is dead
	over   chan struct{}   // closed when the schedule ends
	starts *rand.Rand      // how the process starts again
	ended  bool            // the whole process has, and no store has started since

	mu      sync.Mutex
	problem error      // the first
	kinds   []evidence // of all problems, each once
	entries map[topology.RegionID]map[uint64]entry
	stats   simStats
	gate    *writeGate // of the plan that needs one
	disks   [maxStores]slowDisk
	skews   [maxStores]atomic.Int64 // by store: how far its clock is ahead, ns, where the plan has clocks that disagree
}

// entry is what a replica did with an entry of the log.
type entry struct {
	tag     uint64
	payload uint64 // its hash
	applied bool
}

// payloads is how payloads are hashed.
var payloads = maphash.MakeSeed()

// simStats is what a run consisted of.
type simStats struct {
	Acknowledged, Unknown, Kills, Cuts, Transfers int
	Ends                                          int // of the whole process, its journal included
	Compared                                      int // times that two replicas and more were compared while the plan ran
	Snapshots, Reclaimed                          int // region snapshots installed, elements of orphans deleted
}

// simRegions is how many regions there are; each has a register, a counter and a lock per epoch.
const simRegions = 4

// simSettings are the smallest that a run needs: boots and restarts are most of its cost.
func simSettings() *settings.Settings {
	s := settings.Default()
	s.Cluster = settings.Cluster{Stores: 3, Replicas: 3, Regions: simRegions}
	s.Engine.MemtableSize, s.Engine.BlockCache = 3<<20, 1<<20
	s.Raft.SnapshotEntries, s.Raft.CompactionOverhead = 30, 10 // who is away for a second or two needs a snapshot
	s.Raft.MaxInflight = 4                                     // several entries of a region may be lost, refused or repeated at once
	s.Redis.FollowerRead = true
	return &s
}

// simulate runs a plan with a seed in a bubble and returns what went wrong. The plan's mistake is planted if planted is set.
func simulate(t *testing.T, p plan, planted bool, seed uint64, virtual time.Duration) (simStats, []evidence, error) {
	s := &sim{seed: seed, config: neokv.Config{InMemory: true, NoSockets: true}}
	err := s.record(p, planted, virtual, func(run func()) { synctest.Test(t, func(*testing.T) { run() }) })
	return s.stats, s.kinds, err
}

// record runs a plan and checks its history, which is written to a file; it is removed if all went well.
func (s *sim) record(p plan, planted bool, d time.Duration, inside func(run func())) error {
	out, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("neokv-%s-%d-%d.history", p.name, s.seed, os.Getpid())))
	if err != nil {
		return err
	}
	defer out.Close()
	// Virtual time stands still for ever when somebody waits where it does not count as waiting.
	patience := d + 10*time.Minute // a race build on a busy machine takes minutes
	watchdog := time.AfterFunc(patience, func() {
		fmt.Fprintf(os.Stderr, "plan %s, seed %d: still running after %s of real time\n", p.name, s.seed, patience)
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(3)
	})
	defer watchdog.Stop()
	s.lives = make([]atomic.Uint64, maxStores)
	s.entries = make(map[topology.RegionID]map[uint64]entry)
	inside(func() {
		s.over = make(chan struct{})
		s.h = newHistory(out)
		s.run(p, planted, d)
	})
	for _, err := range s.h.problems(8) {
		s.fail(err)
	}
	s.fail(s.checkEntries())
	s.stats.Acknowledged, s.stats.Unknown = s.h.count()
	if s.problem != nil {
		return fmt.Errorf("%w\nhistory: %s", s.problem, out.Name())
	}
	if *simKeep {
		return nil
	}
	return os.Remove(out.Name())
}

// fail keeps the first problem, and the kinds of all.
func (s *sim) fail(err error) {
	if err == nil {
		return
	}
	s.h.note("PROBLEM: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(err)
}

func (s *sim) keepLocked(err error) {
	if s.problem == nil {
		s.problem = err
	}
	if kind := evidenceOf(err); kind != "" && !slices.Contains(s.kinds, kind) {
		s.kinds = append(s.kinds, kind)
	}
}

// random returns a source of its own for each purpose, so that one does not shift the other's choices.
func (s *sim) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, purpose)) }

// run is a whole run, from boot to Close.
func (s *sim) run(p plan, planted bool, d time.Duration) {
	hooks := new(seam.Hooks)
	if planted {
		hooks.Server = p.serve
		if p.plant != nil {
			p.plant(&hooks.Store)
		}
	}
	if p.seams != nil {
		p.seams(s, &hooks.Store)
	}
	hooks.Store.Region.Observe = s.observe
	s.nextEpoch(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.config.Seed, s.config.Settings, s.config.Hooks = s.seed, simSettings(), hooks
	if p.tcp {
		s.config.Settings.Raft.Transport = "tcp"
	}
	s.starts = s.random(8)
	hooks.JournalBytes = journalBytes(s.starts)
	if p.general {
		s.vary(s.config.Settings)
	}
	if p.settings != nil {
		p.settings(s.config.Settings)
	}
	c, err := neokv.Start(ctx, s.config)
	if err != nil {
		s.fail(fmt.Errorf("boot: %w", err))
		return
	}
	s.attach(c, hooks)
	s.h.note("up after %s", c.BootTime())
	var clients, lanes sync.WaitGroup
	end := time.AfterFunc(d, func() { close(s.over) })
	defer end.Stop()
	each := p.each
	if each == 0 {
		each = time.Duration(5+s.random(1).IntN(46)) * time.Millisecond // 20 to 200 operations a second
	}
	for i := range p.clients {
		clients.Go(func() { s.client(i, p, time.Duration(p.clients)*each) })
	}
	lanes.Go(func() {
		for i := 1; s.sleep(5 * time.Second); i++ {
			s.nextEpoch(i)
		}
	})
	lanes.Go(func() { s.comparing(s.random(10)) })
	for i, lane := range p.lanes {
		lanes.Go(func() { lane(s, s.random(uint64(100+i))) })
	}
	lanes.Wait()
	s.heal()
	clients.Wait()
	s.h.note("the end: all keys are read")
	s.finalReads()
	s.compareReplicas()
	for _, n := range s.nodes {
		s.tally(n)
	}
	s.fail(c.Close())
}

// attach gives the run its cluster, and its hold of the inside.
func (s *sim) attach(c *neokv.Cluster, hooks *seam.Hooks) {
	s.c, s.inside, s.nodes, s.network = c, hooks.Cluster, hooks.Cluster.Nodes(), hooks.Cluster.Network()
}

// sleep reports false when the schedule is over.
func (s *sim) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.over:
		return false
	}
}

// Keys: r, c, n, e, h, l, s or z (register, counter, lock, what expires, hash, list, set, sorted set), g or j (see mset), or o or p (hashes that make work), the
// epoch, and a tag that lies in the region.

func (s *sim) nextEpoch(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = fmt.Sprint(i)
	s.epochs = append(s.epochs, s.epoch)
}

func simKey(sort byte, epoch string, region int) string {
	return fmt.Sprintf("%c%s{%s}", sort, epoch, regionTags[region])
}

// regionTags has a hash tag for each region.
var regionTags = func() (tags [simRegions]string) {
	for i, slots := range topology.SplitEvenly(simRegions) {
		for n := 0; tags[i] == ""; n++ {
			if tag := fmt.Sprintf("t%d", n); slots.Contains(topology.SlotOf([]byte(tag))) {
				tags[i] = tag
			}
		}
	}
	return tags
}()

func (s *sim) key(sort byte, region int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simKey(sort, s.epoch, region)
}

func (s *sim) newCaller(id int) *caller {
	dial := s.c.Dial
	if !s.config.NoSockets {
		dial = dialTCP
	}
	return &caller{
		id: id, h: s.h, addrs: s.c.Addrs(), dial: dial, random: s.random(uint64(1000 + id)),
		life: func(addr string) uint64 {
			if addr == s.c.ProxyAddr() { // it lives as long as the process, and answers for what stores have told it
				return 0
			}
			return s.lives[slices.Index(s.c.Addrs(), addr)].Load()
		},
	}
}

// client runs operations until the schedule is over. mix says which: one letter per operation, equally likely. R and W read and
// set registers, + and # count and read counters, N, D and L set locks, delete them and look at them. X sets keys that expire, E, Z and P
// read, delete and persist them. H, h, F and G count, read, delete and delete with its hash a field of a hash. O, C, U, V and S fill, copy, delete,
// let expire and set strings over hashes that nobody reads. l, r, p, q and i push, pop and read lists, s, m and d sets, z, x and y sorted sets; of
// these three, k deletes one, f lets it expire, a keeps it, and w sets a string over it.
func (s *sim) client(id int, p plan, think time.Duration) {
	c := s.newCaller(id)
	c.readOnly = id%3 == 1
	if p.general && id%3 == 2 || p.proxied {
		c.proxied, c.addrs = true, []string{s.c.ProxyAddr()}
	}
	mix, others := p.mix, weights(p.also)
	defer c.close()
	for n := 0; s.sleep(time.Duration(c.random.ExpFloat64() * float64(think))); n++ {
		region := c.random.IntN(simRegions)
		value := fmt.Sprintf("%d-%d", id, n)
		var err error
		choice := c.random.IntN(len(mix) + others)
		if choice >= len(mix) {
			s.fail(choose(p.also, choice-len(mix)).run(&user{s, c, region, n}))
			continue
		}
		switch mix[choice] {
		case 'R':
			_, err = c.do(get, s.key('r', region), "")
		case 'W':
			_, err = c.do(set, s.key('r', region), value)
		case '+':
			_, err = c.do(incr, s.key('c', region), "")
		case '#':
			_, err = c.do(get, s.key('c', region), "")
		case 'N':
			_, err = c.do(setNX, s.key('n', region), value)
		case 'D':
			_, err = c.do(del, s.key('n', region), "")
		case 'L':
			_, err = c.do(get, s.key('n', region), "")
		case 'X':
			_, err = c.doFor(set, s.key('e', region), value, randomTTL(c.random))
		case 'E':
			_, err = c.do(get, s.key('e', region), "")
		case 'Z':
			_, err = c.do(del, s.key('e', region), "")
		case 'P':
			_, err = c.do(keep, s.key('e', region), "")
		case 'H':
			_, err = c.do(hincr, s.key('h', region), "1")
		case 'h':
			_, err = c.do(hget, s.key('h', region), "")
		case 'F':
			_, err = c.do(hdel, s.key('h', region), "")
		case 'G':
			_, err = c.do(del, s.key('h', region), "")
		case 'O':
			_, err = c.do(hfill, s.key('o', region), fmt.Sprint(1+c.random.IntN(40)))
		case 'C':
			_, err = c.do(copyTo, s.key('o', region), s.key('p', region))
		case 'U':
			_, err = c.do(del, s.key("op"[c.random.IntN(2)], region), "")
		case 'S':
			_, err = c.do(set, s.key("op"[c.random.IntN(2)], region), value)
		case 'l':
			_, err = c.do(lpush, s.key('l', region), value)
		case 'r':
			_, err = c.do(rpush, s.key('l', region), value)
		case 'p':
			_, err = c.do(lpop, s.key('l', region), "")
		case 'q':
			_, err = c.do(rpop, s.key('l', region), "")
		case 'i':
			_, err = c.do(lrange, s.key('l', region), "")
		case 's':
			_, err = c.do(sadd, s.key('s', region), fmt.Sprintf("%d-%d", id, n/20)) // now and then one that is there
		case 'd':
			_, err = c.do(spop, s.key('s', region), "")
		case 'm':
			_, err = c.do(smembers, s.key('s', region), "")
		case 'z':
			_, err = c.do(zadd, s.key('z', region), fmt.Sprintf("%d %d-%d", c.random.IntN(10), id, n/20))
		case 'x':
			_, err = c.do(zpopmin, s.key('z', region), "")
		case 'y':
			_, err = c.do(zrange, s.key('z', region), "")
		case 'k':
			_, err = c.do(del, s.key("lsz"[c.random.IntN(3)], region), "")
		case 'f':
			_, err = c.doFor(fade, s.key("lsz"[c.random.IntN(3)], region), "", max(time.Millisecond, randomTTL(c.random)))
		case 'a':
			_, err = c.do(keep, s.key("lsz"[c.random.IntN(3)], region), "")
		case 'w':
			_, err = c.do(set, s.key("lsz"[c.random.IntN(3)], region), overwritten)
		case 'V':
			_, err = c.do(fade, s.key("op"[c.random.IntN(2)], region), fmt.Sprint(c.random.IntN(300)))
		}
		s.fail(err)
	}
}

// heal mends everything: the links first, then the stores.
func (s *sim) heal() {
	for _, a := range s.nodes {
		for _, b := range s.nodes {
			s.network.Heal(a.ID(), b.ID())
			s.network.Delay(a.ID(), b.ID(), 0)
			s.network.Hold(a.ID(), b.ID(), 0, nil)
			s.network.Disturb(a.ID(), b.ID(), nil)
		}
	}
	for _, n := range s.nodes {
		if !s.alive(n) {
			s.restart(n)
		}
	}
}

// finalReads reads every key: with them an acknowledged write that is lost shows up in the history, and a cluster that does not serve
// again is found.
func (s *sim) finalReads() {
	c := s.newCaller(99)
	defer c.close()
	for _, epoch := range s.epochs {
		for region := range simRegions {
			for i, k := range []kind{get, get, get, get, hget, lrange, smembers, zrange, mget, hmget} {
				key, ok := simKey("rcnehlszgj"[i], epoch, region), false
				for deadline := time.Now().Add(20 * time.Second); !ok && time.Now().Before(deadline); {
					var err error
					if ok, err = c.do(k, key, ""); err != nil {
						s.fail(err)
						return
					}
				}
				if !ok {
					s.fail(found(noAnswer, "key %s: no answer in 20s after everything was healed", key))
					return
				}
			}
		}
	}
}

// journalBytes is the length of a segment of the journal: a run sees some changes of segment, or many.
func journalBytes(random *rand.Rand) int64 { return 64 << 10 << random.IntN(4) }

// Killing. What is not synced is gone, log and data of a store at the same instant. A store that is killed alone leaves its part of the journal,
// which the others go on using. All of them are the process: then the journal ends with them, and is opened anew from what it had synced.

// cut is the instant of a kill. It may be called from the middle of a sync.
func (s *sim) cut(n seam.Node) *disk.FS {
	if s.alive(n) {
		s.lives[n.ID()-1].Add(1)
	}
	n.Condemn()
	return n.FS()
}

func (s *sim) alive(n seam.Node) bool { return s.lives[n.ID()-1].Load()%2 == 0 }

// remains is what kills leave.
type remains struct {
	victims []seam.Node
	disks   []*disk.FS // theirs
	journal *disk.FS   // where the whole process was killed, and had one
}

// end kills stores at this instant. It may be called from the middle of a sync.
func (s *sim) end(percent int, random *rand.Rand, victims ...seam.Node) remains {
	left := remains{victims: victims}
	for _, n := range victims {
		left.disks = append(left.disks, s.cut(n))
	}
	if fs, _ := s.inside.Journal(); len(victims) == len(s.nodes) && fs != nil {
		left.journal, left.disks = disk.CrashTogether(percent, random, fs, left.disks...)
		return left
	}
	for i, fs := range left.disks {
		left.disks[i] = fs.Crash(percent, random)
	}
	return left
}

// tally takes down what a store has counted in its life.
func (s *sim) tally(n seam.Node) {
	st := n.Store()
	if st == nil {
		return
	}
	for _, r := range st.Counters().Regions {
		s.stats.Snapshots += int(r.SnapshotsReceived.Load())
		s.stats.Reclaimed += int(r.ReclaimedElements.Load())
	}
}

// bury ends what is left of killed stores and gives their places the disks that they left behind.
func (s *sim) bury(left remains) {
	for i, n := range left.victims {
		s.tally(n)
		s.fail(n.Stop())
		n.Move(left.disks[i], n.Dir())
	}
	s.stats.Kills += len(left.victims)
	if left.journal != nil {
		s.fail(s.inside.EndJournal(left.journal))
		s.ended = true
		s.stats.Ends++
	}
}

// openJournal is how a process starts again: now and then with another size of the journal, or without one, and now and then it is killed on the
// way.
func (s *sim) openJournal() {
	for s.ended {
		bytes, shared := journalBytes(s.starts), s.starts.IntN(4) > 0
		var x *trap
		if s.starts.IntN(3) == 0 {
			at, _ := s.inside.Journal()
			if s.starts.IntN(2) == 0 {
				at = s.nodes[s.starts.IntN(len(s.nodes))].FS()
			}
			x = s.setTrap(at, int64(1+s.starts.IntN(6)), []int{0, 50, 100}[s.starts.IntN(3)], s.starts, s.nodes...)
		}
		err := s.inside.OpenJournal(bytes, shared)
		var left *remains
		if x != nil {
			left = x.disarm()
		}
		s.h.note("the process starts, shared_sync %v, killed on the way %v: %v", shared, left != nil, err)
		if left != nil {
			s.bury(*left)
			continue
		}
		s.ended = false
		if err != nil {
			s.fail(fmt.Errorf("restart of the process: %w", err))
		}
	}
}

// restart starts a store that was killed.
func (s *sim) restart(n seam.Node) {
	s.openJournal()
	s.h.note("restart %d", n.ID())
	if err := n.Start(); err != nil {
		s.fail(fmt.Errorf("restart: %w", err))
		return
	}
	s.lives[n.ID()-1].Add(1)
}

// kill kills stores at this instant, when nothing moves.
func (s *sim) kill(percent int, random *rand.Rand, victims ...seam.Node) {
	for _, n := range victims {
		s.h.note("kill %d, %d%% of the unsynced stays", n.ID(), percent)
	}
	s.bury(s.end(percent, random, victims...))
}

// trap kills stores at the k-th sync from now of a file system, before that sync takes effect.
type trap struct {
	fs    *disk.FS
	k     int64
	count atomic.Int64
	left  chan *remains // once
}

func (s *sim) setTrap(at *disk.FS, k int64, percent int, random *rand.Rand, victims ...seam.Node) *trap {
	x := &trap{fs: at, k: k, left: make(chan *remains, 1)}
	x.fs.BeforeSync(func(int64) {
		if x.count.Add(1) == k {
			left := s.end(percent, random, victims...)
			x.left <- &left
		}
	})
	return x
}

// disarm returns what the trap has left of its victims, nil if it has not sprung and never will.
func (x *trap) disarm() *remains {
	x.fs.BeforeSync(nil)
	if x.count.Add(1<<40)-1<<40 < x.k {
		return nil
	}
	return <-x.left
}

// killAtSync kills stores at the k-th sync from now of the first of them or, where that is the whole process, of its journal. It reports false
// when there were not that many syncs within two seconds.
func (s *sim) killAtSync(k int64, percent int, random *rand.Rand, victims ...seam.Node) bool {
	at, whose := victims[0].FS(), fmt.Sprintf("store %d", victims[0].ID())
	if fs, open := s.inside.Journal(); len(victims) == len(s.nodes) && open && random.IntN(2) == 0 {
		at, whose = fs, "the journal"
	}
	x := s.setTrap(at, k, percent, random, victims...)
	timeout := time.NewTimer(2 * time.Second)
	defer timeout.Stop()
	var left *remains
	select {
	case left = <-x.left:
	case <-timeout.C:
		if left = x.disarm(); left == nil {
			return false
		}
	}
	for _, n := range victims {
		s.h.note("killed %d at sync %d of %s, %d%% of the unsynced stays", n.ID(), k, whose, percent)
	}
	s.bury(*left)
	return true
}

// killRestarting restarts a store and kills it at the k-th sync of that, or soon after, if there are so many.
func (s *sim) killRestarting(n seam.Node, k int64, percent int, random *rand.Rand) {
	s.openJournal()
	s.lives[n.ID()-1].Add(1) // its next life, which may end before anybody is asked
	x := s.setTrap(n.FS(), k, percent, random, n)
	err := n.Start()
	left := x.disarm()
	if left == nil {
		s.h.note("restart %d", n.ID())
		if err != nil {
			s.fail(fmt.Errorf("restart: %w", err))
		}
		return
	}
	s.h.note("killed %d at sync %d of its restart (%v), %d%% of the unsynced stays", n.ID(), k, err, percent)
	s.bury(*left)
}

// observe is told of every entry that reaches apply. Replicas, and a replica's lives, must agree on each.
func (s *sim) observe(st topology.StoreID, r topology.RegionID, index, tag uint64, payload []byte, applied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[r] == nil {
		s.entries[r] = make(map[uint64]entry)
	}
	e := entry{tag, maphash.Bytes(payloads, payload), applied}
	if other, ok := s.entries[r][index]; ok && other != e {
		s.keepLocked(found(logsDiffer, "region %d: index %d: store %d has %+v, another replica had %+v", r, index, st, e, other))
	}
	s.entries[r][index] = e
}

// checkEntries checks that after a barrier of a term nothing with a smaller tag takes effect, on any replica.
func (s *sim) checkEntries() error {
	for r, entries := range s.entries {
		indexes := make([]uint64, 0, len(entries))
		for i := range entries {
			indexes = append(indexes, i)
		}
		slices.Sort(indexes)
		largest := uint64(0)
		for _, i := range indexes {
			e := entries[i]
			if e.applied != (e.tag >= largest) {
				return found(logsDiffer, "region %d: index %d: tag %d, applied %v, after tag %d", r, i, e.tag, e.applied, largest)
			}
			largest = max(largest, e.tag)
		}
	}
	return nil
}

// compareReplicas waits until all replicas have applied the same, and compares what they hold.
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

// comparing compares a region's replicas now and then, as of an entry between others: a difference that a snapshot would heal before the
// end is found, too.
func (s *sim) comparing(random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(900)) * time.Millisecond) {
		s.fail(s.compare(topology.RegionID(1+random.IntN(simRegions)), s.nodes[random.IntN(len(s.nodes))]))
	}
}

// compare asks a store, if it runs, for the checksums of a region's replicas. Some may be missing.
func (s *sim) compare(r topology.RegionID, asked seam.Node) error {
	st := asked.Store()
	if st == nil || st.Failed() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, err := st.Compare(ctx, r)
	if err != nil {
		return nil // no leader, or not for long enough
	}
	known := 0
	for _, replica := range got.Replicas {
		if replica.Sum != "" {
			known++
		}
	}
	if known > 1 {
		s.mu.Lock()
		s.stats.Compared++
		s.mu.Unlock()
	}
	if got.Verdict() == "different" {
		return found(replicasDiffer, "region %d: checksums %+v", r, got)
	}
	return nil
}

// checksumsDiffer asks the stores for what replicasDiffer has read in their engines.
func (s *sim) checksumsDiffer() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for r := topology.RegionID(1); r <= simRegions; r++ {
		asked := s.nodes[int(r)%len(s.nodes)].Store()
		switch got, err := asked.Compare(ctx, r); {
		case err != nil:
			return fmt.Errorf("region %d: checksums: %w", r, err)
		case got.Verdict() != "equal":
			return found(replicasDiffer, "region %d: checksums %+v", r, got)
		}
	}
	return nil
}

// lagging says that a replica has not applied what another has.
type lagging struct{ error }

func (*lagging) evidence() evidence { return lags }

func (s *sim) replicasDiffer() error {
	for r := topology.RegionID(1); r <= simRegions; r++ {
		var first [][]byte
		var state keys.RegionState
		one := topology.StoreID(0) // that has first
		for _, n := range s.nodes {
			st := n.Store()
			if st == nil || st.Failed() != nil {
				return found(storeFailed, "store %d does not run at the end", n.ID())
			}
			if st.Table() == nil {
				return &lagging{fmt.Errorf("store %d does not know the regions", n.ID())}
			}
			if !slices.ContainsFunc(st.Table().ByID(r).Peers, func(p topology.Peer) bool { return p.Store == n.ID() }) {
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
				return &lagging{fmt.Errorf("region %d: store %d is at apply index %d, store %d at %d", r, n.ID(), own.ApplyIndex, one, state.ApplyIndex)}
			}
			if len(content) != len(first) {
				return found(replicasDiffer, "region %d: apply index %d: store %d has %d keys, store %d has %d",
					r, own.ApplyIndex, one, len(first)/2, n.ID(), len(content)/2)
			}
			for j := range content {
				if !bytes.Equal(content[j], first[j]) {
					return found(replicasDiffer, "region %d: apply index %d: behind key %q store %d has %q, store %d has %q",
						r, own.ApplyIndex, content[max(0, j-1)], one, first[j], n.ID(), content[j])
				}
			}
		}
	}
	return nil
}

// regionContent returns a replica's region state, and then its keys and values.
func regionContent(st *store.Store, r topology.RegionID) ([][]byte, error) {
	if st.Replica(r) == nil {
		return nil, &lagging{errors.New("no replica yet")}
	}
	v := st.Engine().NewView()
	defer v.Close()
	state, ok, err := v.Get(keys.AppendRegionState(nil, r))
	if err != nil {
		return nil, err
	}
	if !ok { // it has lost what it had not synced, and is behind all others
		return nil, &lagging{errors.New("no region state")}
	}
	out := [][]byte{bytes.Clone(state)}
	region, _ := st.Replica(r).Region()
	space := keys.Space{Region: r, Index: 1}
	for _, ks := range keys.RegionKeyspaces {
		it, err := v.Iter(space.Bounds(ks, region.Slots))
		if err != nil {
			return nil, err
		}
		for ok := it.First(); ok; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return nil, errors.Join(err, it.Close())
			}
			out = append(out, bytes.Clone(it.Key()), bytes.Clone(value))
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return nil, err
		}
	}
	return out, unreachable(v, space, region.Slots, out)
}

// unreachable says what of a replica's content no command can read: nothing, once the reclaimer has done its work.
func unreachable(v *engine.View, space keys.Space, slots topology.SlotRange, content [][]byte) error {
	it, err := v.Iter(space.OrphanBounds(slots))
	if err != nil {
		return err
	}
	waits := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if waits {
		return &lagging{errors.New("orphans wait to be reclaimed")}
	}
	versions := map[string]uint64{}
	for i := 1; i < len(content); i += 2 {
		if k, err := keys.ParseRedis(content[i]); err == nil && k.Keyspace == keys.RedisMetadata {
			if m, err := keys.ParseMetadata(content[i+1]); err == nil {
				versions[string(k.User)] = m.Version
			}
		}
	}
	for i := 1; i < len(content); i += 2 {
		k, err := keys.ParseRedis(content[i])
		if err != nil {
			return err
		}
		if version, _, ok := k.Subkey(); ok && version != versions[string(k.User)] {
			return found(unreadable, "key %q: an element of version %d is left, the key is at %d", k.User, version, versions[string(k.User)])
		}
	}
	return nil
}

// leader returns the store that serves a region and its term, nil if none does.
func (s *sim) leader(r topology.RegionID) (leader seam.Node, term uint64) {
	for _, n := range s.nodes {
		st := n.Store()
		if st == nil || st.Failed() != nil {
			continue
		}
		for _, l := range st.Leads() {
			if l.Region == r && l.Term >= term {
				leader, term = n, l.Term
			}
		}
	}
	return leader, term
}

// others are the nodes but one.
func (s *sim) others(n seam.Node) []seam.Node {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(o seam.Node) bool { return o == n })
}

// link cuts or heals the links between a and others, towards a and from it.
func (s *sim) link(heal, to, from bool, a seam.Node, others ...seam.Node) {
	f, what := s.network.Cut, "cut"
	if heal {
		f, what = s.network.Heal, "heal"
	} else {
		s.stats.Cuts++
	}
	for _, b := range others {
		if to {
			s.h.note("%s %d -> %d", what, b.ID(), a.ID())
			f(b.ID(), a.ID())
		}
		if from {
			s.h.note("%s %d -> %d", what, a.ID(), b.ID())
			f(a.ID(), b.ID())
		}
	}
}

// plan is a schedule of faults, and perhaps a mistake that it is made to find.
type plan struct {
	name     string
	lanes    []func(*sim, *rand.Rand) // they run side by side until the schedule is over
	clients  int
	also     []operation               // what clients do besides the mix
	general  bool                      // some clients use the proxy port; how the cluster is made follows from the seed
	proxied  bool                      // all clients use the proxy port
	mix      string                    // see sim.client
	each     time.Duration             // the clients together do one operation in this time; 0: the seed says
	tcp      bool                      // stores reach each other over connections, which are in memory in virtual time
	seams    func(*sim, *store.Faults) // what the plan needs to look at or to hold, planted or not
	settings func(*settings.Settings)  // that differ from simSettings

	mistake string // what is planted, in words
	plant   func(*store.Faults)
	serve   server.Faults
	shows   []evidence // by which alone it counts as found
	bound   int        // the mistake is found within so many seeds
}

// chaos is the general plan: everything happens.
var chaos = plan{name: "chaos", lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing}, clients: 6, mix: "RRRWWW++++#NNDLXXEEE", also: everyday, general: true, seams: (*sim).everyNature}

// overTCP is the general plan with messages between stores on connections.
var overTCP = func() plan {
	p := chaos
	p.name, p.tcp = "tcp", true
	return p
}()

// killing kills stores and starts them again.
func killing(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(2500)) * time.Millisecond) {
		victims := []seam.Node{s.nodes[random.IntN(len(s.nodes))]}
		if random.IntN(4) == 0 { // all of them, in any order
			victims = nil
			for _, i := range random.Perm(len(s.nodes)) {
				victims = append(victims, s.nodes[i])
			}
		}
		percent := []int{0, 0, 50, 100}[random.IntN(4)]
		dead := s.killSomehow(percent, random, victims)
		for _, n := range dead {
			if random.IntN(3) > 0 && !s.sleep(time.Duration(random.IntN(1500))*time.Millisecond) {
				return // heal restarts what is dead
			}
			if random.IntN(4) == 0 {
				s.killRestarting(n, int64(1+random.IntN(8)), percent, random)
			}
			if !s.alive(n) {
				s.restart(n)
			}
		}
	}
}

// killSomehow kills at a sync, or at a moment at which nothing moves, and returns who died.
func (s *sim) killSomehow(percent int, random *rand.Rand, victims []seam.Node) []seam.Node {
	if random.IntN(4) > 0 {
		if !s.killAtSync(int64(1+random.IntN(30)), percent, random, victims...) {
			return nil
		}
		return victims
	}
	s.kill(percent, random, victims...)
	return victims
}

// partitioning cuts, delays and heals links and moves leaders.
func partitioning(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(1500)) * time.Millisecond) {
		a := s.nodes[random.IntN(len(s.nodes))]
		others := s.others(a)
		if random.IntN(2) == 0 && len(others) > 0 {
			others = others[random.IntN(len(others)):][:1]
		}
		pause := time.Duration(20+random.IntN(1500)) * time.Millisecond
		switch random.IntN(6) {
		case 0: // both ways
			s.link(false, true, true, a, others...)
		case 1: // one way
			s.link(false, true, false, a, others...)
		case 2:
			s.link(false, false, true, a, others...)
		case 3: // slow, or only the answers that carry leases are
			d := time.Duration(1+random.IntN(60)) * time.Millisecond
			late := random.IntN(2) == 0
			for _, b := range others {
				s.h.note("delay %d -> %d by %s, only confirmations %v", a.ID(), b.ID(), d, late)
				if late {
					s.network.Hold(a.ID(), b.ID(), d, func(m *pb.Message) bool { return m.Type == pb.HeartbeatResp })
				} else {
					s.network.Delay(a.ID(), b.ID(), d)
				}
			}
		default:
			for _, r := range random.Perm(simRegions)[:1+random.IntN(simRegions)] {
				s.transfer(topology.RegionID(1+r), s.nodes[random.IntN(len(s.nodes))])
			}
			continue
		}
		s.sleep(pause)
		s.link(true, true, true, a, others...)
		for _, b := range others {
			s.network.Delay(a.ID(), b.ID(), 0)
			s.network.Hold(a.ID(), b.ID(), 0, nil)
		}
	}
}

// transfer asks for a region's leadership to go to a store.
func (s *sim) transfer(r topology.RegionID, to seam.Node) {
	from, _ := s.leader(r)
	if from == nil || from == to {
		return
	}
	if st := from.Store(); st != nil {
		s.h.note("transfer region %d from %d to %d: %v", r, from.ID(), to.ID(), st.Transfer(r, to.ID()))
		s.stats.Transfers++
	}
}
