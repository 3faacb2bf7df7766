package transport_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/multiraft/raftlog"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "first seed of the lease runs, 0 for a random one")
	seedsFlag = flag.Int("seeds", 4, "lease runs")
)

func TestMain(m *testing.M) {
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "config", "raftpb",
		"settings", "utils", "tan", "pebblekv", "server", "order", "registry"} {
		logger.GetLogger(name).SetLevel(logger.CRITICAL)
	}
	os.Exit(m.Run())
}

const (
	rtt       = 10 * time.Millisecond
	electRTT  = 30
	lease     = (electRTT-2)*rtt - 20*time.Millisecond
	stores    = 3
	readLimit = 250 * time.Millisecond
)

// countingMachine is a state machine that counts.
type countingMachine struct{ n uint64 }

func (c *countingMachine) Update(sm.Entry) (sm.Result, error) {
	c.n++
	return sm.Result{Value: c.n}, nil
}
func (c *countingMachine) Lookup(any) (any, error) { return c.n, nil }
func (c *countingMachine) SaveSnapshot(io.Writer, sm.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
func (c *countingMachine) RecoverFromSnapshot(io.Reader, []sm.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (c *countingMachine) Close() error { return nil }

// storeRun is one run of a store.
type storeRun struct {
	id       topology.StoreID
	endpoint *transport.Endpoint
	engine   *engine.Engine
	host     *dragonboat.NodeHost
}

// testCluster is three stores with the same regions, all in memory. Replica ids are store ids. A test may start one
// more store: its replicas join, and do not vote until the test has promoted them.
type testCluster struct {
	t        testing.TB
	net      *transport.Network
	mistakes transport.Mistakes
	regions  int
	booted   bool
	commits  time.Duration // Options.CommitInterval
	fs       [stores + 2]*disk.FS
	nodes    [stores + 2]*storeRun
	watch    *watch
}

func newCluster(t testing.TB, net *transport.Network, regions int, mistakes transport.Mistakes) *testCluster {
	c := &testCluster{t: t, net: net, regions: regions, mistakes: mistakes, watch: &watch{t: t}}
	for i := 1; i <= stores; i++ {
		c.fs[i] = disk.Mem()
		c.start(topology.StoreID(i))
	}
	c.booted = true
	return c
}

func (c *testCluster) start(id topology.StoreID) {
	n := &storeRun{id: id}
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 3<<20, 3<<20
	var err error
	n.engine, err = engine.Open(engine.Options{Dir: "engine", FS: c.fs[id], Knobs: k, Stores: 3,
		Fatal: func(err error) {
			c.t.Error(err)
		}})
	c.must(err)
	n.endpoint = c.net.NewEndpoint(transport.Options{
		Store: id, Lease: lease, Tick: rtt, HeartbeatTicks: 3, ElectionTicks: electRTT, Booting: !c.booted,
		Mistakes: c.mistakes, CommitInterval: c.commits,
		Stalled:   func() (time.Time, bool) { return time.Time{}, false },
		Revoke:    func(r topology.RegionID, term uint64) { c.watch.revoke(r, id, term) },
		Forwarded: func(_ topology.RegionID, ents []pb.Entry) { c.watch.forwarded(len(ents)) },
		Handle: func(_ context.Context, from topology.StoreID, request []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%d to %d: %s", from, id, request), nil
		},
	})
	n.host, err = dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir: "raft", RaftAddress: id.RaftAddress(), RTTMillisecond: uint64(multiraft.HostTick / time.Millisecond),
		RaftEventListener: c.watch, Expert: config.ExpertConfig{
			LogDBFactory: raftlog.New(n.engine,
				raftlog.Options{Sync: true, Failed: c.fs[id].Failed, Fence: func(err error) { c.t.Error(err) },
					Applied: func(topology.RegionID) (uint64, error) { return 0, nil },
					Stalls:  raftlog.NewStalls(0)}).Factory(),
			Engine: config.EngineConfig{ExecShards: 2, CommitShards: 1, ApplyShards: 2, SnapshotShards: 2,
				CloseShards: 1},
			LogDB: logDB(), FS: c.fs[id].Raft(nil), TransportFactory: n.endpoint.Factory(),
		},
	})
	c.must(err)
	c.must(n.endpoint.Attach(n.host))
	for r := 1; r <= c.regions; r++ {
		members := map[uint64]dragonboat.Target{}
		joins := id > stores
		if !joins && !n.host.HasNodeInfo(uint64(r), uint64(id)) {
			n.endpoint.Fresh(topology.RegionID(r))
			for i := topology.StoreID(1); i <= stores; i++ {
				members[uint64(i)] = i.RaftAddress()
			}
		}
		c.must(n.host.StartReplica(members, joins, func(uint64, uint64) sm.IStateMachine {
			return &countingMachine{}
		}, config.Config{
			ReplicaID: uint64(id), ShardID: uint64(r), ElectionRTT: electRTT, HeartbeatRTT: 3, CheckQuorum: true,
			PreVote: true, IsNonVoting: joins,
		}))
	}
	c.nodes[id] = n
}

func logDB() config.LogDBConfig {
	l := config.GetTinyMemLogDBConfig()
	l.Shards = 2
	return l
}

// stop ends a store's run at once: first nothing leaves the store any more, then stop closes it.
func (c *testCluster) stop(id topology.StoreID) {
	n := c.nodes[id]
	c.nodes[id] = nil
	n.endpoint.Isolate()
	c.watch.stopped(id)
	n.host.Close()
	n.endpoint.Close()
	c.must(n.engine.Close())
}

func (c *testCluster) close() {
	for id, n := range c.nodes {
		if n != nil {
			c.stop(topology.StoreID(id))
		}
	}
	c.net.Close()
}

func (c *testCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// leader waits until some store other than not leads a region with all running ones agreeing, and returns it.
func (c *testCluster) leader(r int, not topology.StoreID) topology.StoreID {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for id, n := range c.nodes {
			if n == nil || topology.StoreID(id) == not {
				continue
			}
			if leader, _, ok, err := n.host.GetLeaderID(uint64(r)); err == nil && ok && leader == uint64(id) {
				return topology.StoreID(id)
			}
		}
	}
	c.t.Fatalf("region %d: no leader", r)
	return 0
}

func (c *testCluster) propose(id topology.StoreID, r int) (uint64, error) {
	h := c.nodes[id].host
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	result, err := h.SyncPropose(multiraft.Context(ctx, rtt), h.GetNoOPSession(uint64(r)), []byte("x"))
	return result.Value, err
}

func (c *testCluster) cut(a, b topology.StoreID) {
	c.net.SetLink(a, b, fault.Net{Cut: true}, nil)
	c.net.SetLink(b, a, fault.Net{Cut: true}, nil)
}

func (c *testCluster) heal() {
	for a := topology.StoreID(1); a <= stores; a++ {
		c.net.Resume(a)
		for b := topology.StoreID(1); b <= stores; b++ {
			c.net.SetLink(a, b, fault.Net{}, nil)
			c.net.Hold(a, b, 0, nil)
		}
	}
}

// watch records which replicas lead and which leases they hold, and reports a leader that was elected while another's
// lease held.
type watch struct {
	t  testing.TB
	mu sync.Mutex
	// elected says when a replica became leader of a term; ended, when it stopped leading or its lease was revoked.
	elected map[tenure]time.Time
	ended   map[tenure]time.Time
	leases  int
	bad     []string
	forward int
}

type tenure struct {
	region topology.RegionID
	store  topology.StoreID
	term   uint64
}

func (w *watch) LeaderUpdated(i raftio.LeaderInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.init()
	region, store := topology.RegionID(i.ShardID), topology.StoreID(i.ReplicaID)
	if i.LeaderID == i.ReplicaID {
		w.elected[tenure{region, store, i.Term}] = time.Now()
	}
	for t := range w.elected {
		if t.region == region && t.store == store && (t.term < i.Term || i.LeaderID != i.ReplicaID) {
			w.end(t)
		}
	}
}

func (w *watch) init() {
	if w.elected == nil {
		w.elected, w.ended = map[tenure]time.Time{}, map[tenure]time.Time{}
	}
}

func (w *watch) end(t tenure) {
	if _, ok := w.ended[t]; !ok {
		w.ended[t] = time.Now()
	}
}

func (w *watch) revoke(r topology.RegionID, s topology.StoreID, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.init()
	for t := range w.elected {
		if t.region == r && t.store == s && t.term <= term {
			w.end(t)
		}
	}
}

func (w *watch) stopped(s topology.StoreID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.init()
	for t := range w.elected {
		if t.store == s {
			w.end(t)
		}
	}
}

func (w *watch) forwarded(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forward += n
}

// held records a lease that was confirmed now, for a read index issued at issued, and checks the time from now to the
// lease's end.
func (w *watch) held(t tenure, issued time.Time) {
	confirmed := time.Now()
	until := issued.Add(lease)
	if wait := time.Until(until); wait > 0 {
		time.Sleep(wait)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.init()
	if end, ok := w.ended[t]; ok && end.Before(until) {
		until = end
	}
	w.leases++
	for other, at := range w.elected {
		if other.region == t.region && other.term > t.term && other.store != t.store && at.Before(until) &&
			confirmed.Before(until) {
			w.bad = append(w.bad, fmt.Sprintf(
				"store %d elected for term %d at %v; store %d held a lease of term %d, read index at %v, confirmed "+
					"at %v, until %v",
				other.store, other.term, at.UnixMilli(), t.store, t.term, issued.UnixMilli(), confirmed.UnixMilli(),
				until.UnixMilli()))
		}
	}
}

func TestCluster(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		c := newCluster(t, newNet(), 6, transport.Mistakes{})
		defer c.close()

		// Campaign elects the store that is wanted, long before an election time-out.
		begin := time.Now()
		for r := 1; r <= c.regions; r++ {
			want := topology.StoreID(r%stores + 1)
			for {
				c.nodes[want].endpoint.Campaign(topology.RegionID(r), topology.ReplicaID(want))
				time.Sleep(time.Millisecond)
				if leader, _, ok, _ := c.nodes[want].host.GetLeaderID(uint64(r)); ok && leader != 0 {
					break
				}
			}
			if got := c.leader(r, 0); got != want {
				t.Errorf("region %d: led by store %d, want %d", r, got, want)
			}
		}
		if took := time.Since(begin); took > electRTT*rtt {
			t.Errorf("leaders of %d regions after %v", c.regions, took)
		}
		first := c.leader(1, 0)
		if n, err := c.propose(first, 1); err != nil || n != 1 {
			t.Fatalf("propose: %d, %v", n, err)
		}

		// A follower's proposal goes nowhere, and its store is told.
		follower := first%stores + 1
		if _, err := c.propose(follower, 1); err == nil {
			t.Error("a follower's proposal was answered")
		}
		if c.watch.forward == 0 || c.nodes[follower].endpoint.Stats().Returned == 0 {
			t.Error("nobody was told of the forwarded proposal")
		}

		// A transfer works in spite of promises.
		if _, err := c.nodes[first].host.ReadIndex(1, multiraft.Timeout(time.Second, rtt)); err != nil {
			t.Fatal(err)
		}
		c.must(c.nodes[first].host.RequestLeaderTransfer(1, uint64(follower)))
		begin = time.Now()
		if got := c.leader(1, first); got != follower {
			t.Errorf("transferred to store %d, want %d", got, follower)
		}
		if took := time.Since(begin); took > lease {
			t.Errorf("transfer took %v", took)
		}

		// A leader that is cut off is replaced, and after healing the old one follows.
		for id := topology.StoreID(1); id <= stores; id++ {
			if id != follower {
				c.cut(follower, id)
			}
		}
		next := c.leader(1, follower)
		if n, err := c.propose(next, 1); err != nil || n != 2 {
			t.Errorf("propose after a cut: %d, %v, want 2", n, err)
		}
		c.heal()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(rtt) {
			if leader, _, ok, _ := c.nodes[follower].host.GetLeaderID(1); ok &&
				leader == uint64(c.leader(1, follower)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the old leader does not follow after healing")
			}
		}

		// A store that is stopped and started again takes part.
		next = c.leader(1, 0)
		c.stop(next)
		other := c.leader(1, next)
		c.start(next)
		for i := topology.StoreID(1); i <= stores; i++ {
			if i != other && i != next {
				c.stop(i)
			}
		}
		other = c.leader(1, 0)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			if n, err := c.propose(c.leader(1, 0), 1); err == nil {
				if n < 3 {
					t.Errorf("propose after restarts: %d, want at least 3", n)
				}
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("propose after restarts, leader %d: %v", other, err)
			}
		}
	})
}

// leaseRun makes trouble for a while and returns what the watch saw.
func leaseRun(t *testing.T, newNet func() *transport.Network, seed uint64) (bad []string, leases int, withheld int64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 7))
		c := newCluster(t, newNet(), 1, transport.Mistakes{})
		c.leader(1, 0)
		var mu sync.Mutex // of c.nodes
		var readers sync.WaitGroup
		done := make(chan struct{})
		read := func(n *storeRun) {
			leader, term, ok, err := n.host.GetLeaderID(1)
			if err != nil || !ok || leader != uint64(n.id) {
				return
			}
			issued := time.Now()
			rs, err := n.host.ReadIndex(1, multiraft.Timeout(readLimit, rtt))
			if err != nil {
				return
			}
			readers.Add(1)
			go func() {
				defer readers.Done()
				r := <-rs.ResultC()
				if !r.Completed() {
					return
				}
				rs.Release()
				if leader, now, ok, err := n.host.GetLeaderID(1); err != nil || !ok || leader != uint64(n.id) ||
					now != term {
					return
				}
				c.watch.held(tenure{1, n.id, term}, issued)
			}()
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
				}
				mu.Lock()
				for _, n := range c.nodes {
					if n != nil {
						read(n)
					}
				}
				mu.Unlock()
			}
		}()
		kinds := []pb.MessageType{pb.HeartbeatResp, pb.HeartbeatResp, pb.RequestVoteResp, pb.Heartbeat, pb.RequestVote,
			pb.RequestPreVoteResp}
		for range 60 {
			a, b := topology.StoreID(1+rng.IntN(stores)), topology.StoreID(1+rng.IntN(stores))
			d := time.Duration(20+rng.IntN(500)) * time.Millisecond
			switch rng.IntN(10) {
			case 0:
				c.net.SetLink(a, b, fault.Net{Cut: true}, nil)
			case 1:
				c.cut(a, b)
			case 2:
				c.net.SetLink(a, b, fault.Net{Delay: d / 4}, nil)
			case 3, 4:
				kind := kinds[rng.IntN(len(kinds))]
				c.net.Hold(a, b, d, func(m *pb.Message) bool { return m.Type == kind })
			case 5:
				mu.Lock()
				if n := c.nodes[a]; n != nil {
					_ = n.host.RequestLeaderTransfer(1, uint64(b))
				}
				mu.Unlock()
			case 6:
				mu.Lock()
				c.stop(a)
				mu.Unlock()
				time.Sleep(d / 8)
				mu.Lock()
				c.start(a)
				mu.Unlock()
			case 7:
				c.heal()
			case 8:
				c.net.SetLink(a, b, fault.Net{Delay: d / 8, Jitter: d / 8, Loss: 0.1, Duplicate: 0.2, Reorder: 0.2,
					Bandwidth: settings.Bytes(1000 + rng.Int64N(100_000))}, rng)
			case 9: // and perhaps a longer pause, a kill, or both
				c.net.Pause(a)
				if rng.IntN(2) == 0 {
					time.Sleep(d)
					c.net.Resume(a)
				}
			}
			time.Sleep(d)
			if rng.IntN(3) == 0 {
				c.heal()
			}
		}
		close(done)
		readers.Wait()
		for _, n := range c.nodes[1 : stores+1] {
			withheld += n.endpoint.Stats().Withheld
		}
		c.close()
		bad, leases = c.watch.bad, c.watch.leases
	})
	return bad, leases, withheld
}

// TestNoLeaderWithinALease looks for a leader elected while another's lease holds, under cuts, delays, messages that
// are lost or overtaken, single kinds of messages held back, pauses, transfers and restarts.
func TestNoLeaderWithinALease(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	for _, kind := range networks {
		leases := 0
		for i := range *seedsFlag {
			bad, n, withheld := leaseRun(t, kind.make, seed+uint64(i))
			leases += n
			for _, b := range bad {
				t.Errorf("%s, seed %d: %s", kind.name, seed+uint64(i), b)
			}
			if testing.Verbose() {
				t.Logf("%s, seed %d: %d leases, %d messages withheld", kind.name, seed+uint64(i), n, withheld)
			}
		}
		if leases < 100**seedsFlag {
			t.Errorf("%s, seed %d: only %d leases", kind.name, seed, leases)
		}
	}
}

// A voter that restarts forgets whom it follows. It has just confirmed a leader, which is then cut off; the third store
// asks it for its vote. The promise must hold it back, and the scenario must find it when it does not.
func forgetful(t *testing.T, newNet func() *transport.Network, mistakes transport.Mistakes) (bad int, withheld int64) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, newNet(), 1, mistakes)
		defer c.close()
		// In some runs the third store's time-outs miss the lease for long.
		shown := func() bool { return withheld > 0 && !mistakes.NoPromise || len(c.watch.bad) > 0 }
		for round := 0; round < 12 || round < 100 && !shown(); round++ {
			l := c.leader(1, 0)
			voter, third := l%stores+1, (l+1)%stores+1
			c.cut(l, third)
			time.Sleep(2 * electRTT * rtt) // the third store asks for pre-votes from now on
			host := c.nodes[l].host
			_, term, _, err := host.GetLeaderID(1)
			c.must(err)
			issued := time.Now()
			rs, err := host.ReadIndex(1, multiraft.Timeout(readLimit, rtt))
			c.must(err)
			if r := <-rs.ResultC(); !r.Completed() {
				t.Fatal("no read index with a quorum")
			}
			rs.Release()
			c.cut(l, voter)
			withheld += c.nodes[voter].endpoint.Stats().Withheld
			c.stop(voter)
			c.start(voter)
			c.watch.held(tenure{1, l, term}, issued)
			c.leader(1, l)
			withheld += c.nodes[voter].endpoint.Stats().Withheld
			c.heal()
			time.Sleep(2 * electRTT * rtt)
		}
		bad = len(c.watch.bad)
	})
	return bad, withheld
}

func TestForgetfulVoter(t *testing.T) {
	for _, kind := range networks {
		if bad, withheld := forgetful(t, kind.make, transport.Mistakes{}); bad != 0 || withheld == 0 {
			t.Errorf("%s: %d leaders within a lease, %d messages withheld; want none and some", kind.name, bad,
				withheld)
		}
		if bad, _ := forgetful(t, kind.make, transport.Mistakes{NoPromise: true}); bad == 0 {
			t.Errorf("%s: the scenario does not find that no promise is kept", kind.name)
		}
	}
}

// HeartbeatResp alone is held back, for longer than a lease: confirmations arrive when others may have been elected.
func TestHeldConfirmations(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		c := newCluster(t, newNet(), 1, transport.Mistakes{})
		defer c.close()
		for range 10 {
			l := c.leader(1, 0)
			for id := topology.StoreID(1); id <= stores; id++ {
				c.net.Hold(id, l, lease*3/4, func(m *pb.Message) bool { return m.Type == pb.HeartbeatResp })
			}
			host := c.nodes[l].host
			_, term, _, err := host.GetLeaderID(1)
			c.must(err)
			issued := time.Now()
			rs, err := host.ReadIndex(1, multiraft.Timeout(time.Second, rtt))
			if err != nil {
				continue
			}
			third := l%stores + 1
			c.cut(l, third)
			if r := <-rs.ResultC(); r.Completed() {
				rs.Release()
				if leader, now, ok, err := host.GetLeaderID(1); err == nil && ok && leader == uint64(l) && now == term {
					c.watch.held(tenure{1, l, term}, issued)
				}
			}
			time.Sleep(electRTT * rtt)
			c.heal()
			time.Sleep(electRTT * rtt)
		}
		for _, b := range c.watch.bad {
			t.Error(b)
		}
		if c.watch.leases == 0 {
			t.Error("no lease was confirmed")
		}
	})
}

// TestOldQuorumElectsNobody changes the members of a region twice, in less time than followers wait to hear what is
// committed: store d becomes a voter, and then a is none any more. The network parts into b with d, who are a majority
// of the members, and a with c, who were one two changes ago. c must not win with a's vote, nor after both have started
// anew.
func TestOldQuorumElectsNobody(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, networks[0].make(), 1, transport.Mistakes{})
			defer c.close()
			for i := topology.StoreID(1); i <= stores; i++ { // from here on only heartbeats tell what is committed
				c.stop(i)
			}
			c.commits = time.Hour
			for i := topology.StoreID(1); i <= stores; i++ {
				c.start(i)
			}
			b := c.leader(1, 0)
			a, other, d := b%stores+1, (b+1)%stores+1, topology.StoreID(stores+1)
			h := c.nodes[b].host
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ctx = multiraft.Context(ctx, rtt)
			c.must(h.SyncRequestAddNonVoting(ctx, 1, uint64(d), d.RaftAddress(), 0))
			c.fs[d] = disk.Mem()
			c.start(d)
			_, err := c.propose(b, 1)
			c.must(err)
			time.Sleep(time.Second)
			c.must(h.SyncRequestAddReplica(ctx, 1, uint64(d), d.RaftAddress(), 0))
			c.must(h.SyncRequestDeleteReplica(ctx, 1, uint64(a), 0))
			synctest.Wait() // all stores have the entries, and no heartbeat has come since
			for _, x := range []topology.StoreID{a, other} {
				c.cut(x, b)
				c.cut(x, d)
			}
			if restart {
				for _, x := range []topology.StoreID{a, other} {
					c.stop(x)
					c.start(x)
				}
			}
			time.Sleep(20 * electRTT * rtt)
			for _, x := range []topology.StoreID{a, other} {
				if leader, _, ok, err := c.nodes[x].host.GetLeaderID(1); err == nil && ok && leader != uint64(b) {
					t.Errorf("store %d follows store %d; want nobody, or store %d", x, leader, b)
				}
			}
			if l := c.leader(1, 0); l != b {
				t.Errorf("store %d leads; want store %d", l, b)
			}
			_, err = c.propose(b, 1)
			c.must(err)
		})
	}
}

// TestCatchingUpOverASlowLink has a follower that lacks 3 MB, which its link carries in 3 s. Heartbeats come late
// behind them, and the leader stays.
func TestCatchingUpOverASlowLink(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		const entries = 30
		c := newCluster(t, newNet(), 1, transport.Mistakes{})
		defer c.close()
		leader := c.leader(1, 0)
		_, term, _, err := c.nodes[leader].host.GetLeaderID(1)
		c.must(err)
		follower := leader%stores + 1
		c.cut(leader, follower)
		h := c.nodes[leader].host
		for range entries {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := h.SyncPropose(multiraft.Context(ctx, rtt), h.GetNoOPSession(1), make([]byte, 100_000))
			cancel()
			c.must(err)
		}
		c.net.SetLink(leader, follower, fault.Net{Bandwidth: 1_000_000}, nil)
		c.net.SetLink(follower, leader, fault.Net{}, nil)
		begin := time.Now()
		for {
			n, err := c.nodes[follower].host.StaleRead(1, nil)
			c.must(err)
			if n.(uint64) >= entries {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("the follower has applied %d of %d entries in a minute", n, entries)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(begin); took < 3*time.Second || took > 7*time.Second {
			t.Errorf("3 MB took %s over 1 MB/s, want 3 s and little more", took)
		}
		if now, at, ok, err := h.GetLeaderID(1); err != nil || !ok || now != uint64(leader) || at != term {
			t.Errorf("store %d leads in term %d, %v; want still store %d in term %d", now, at, err, leader, term)
		}
	})
}

func TestCall(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		echo := func(_ context.Context, from topology.StoreID, request []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%s from %d", request, from), nil
		}
		one := net.NewEndpoint(transport.Options{Store: 1, Handle: echo})
		call := func(to topology.StoreID) (string, time.Duration, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			begin := time.Now()
			answer, err := one.Call(ctx, to, []byte("hello"))
			return string(answer), time.Since(begin), err
		}
		want := func(what string, to topology.StoreID, answer, failure string, took time.Duration) {
			t.Helper()
			got, d, err := call(to)
			if got != answer || fmt.Sprint(err) != failure || d != took {
				t.Errorf("%s: %q, %v after %v; want %q, %v after %v", what, got, err, d, answer, failure, took)
			}
		}
		want("itself", 1, "hello from 1", "<nil>", 0)
		want("absent", 2, "", "store-2: not running", 0)
		two := net.NewEndpoint(transport.Options{Store: 2, Handle: echo})
		want("up", 2, "hello from 1", "<nil>", 0)
		net.SetLink(1, 2, fault.Net{Delay: 30 * time.Millisecond}, nil)
		net.SetLink(2, 1, fault.Net{Delay: 20 * time.Millisecond}, nil)
		want("delayed", 2, "hello from 1", "<nil>", 50*time.Millisecond)
		net.SetLink(1, 2, fault.Net{}, nil)
		net.SetLink(2, 1, fault.Net{}, nil)
		for _, d := range [][2]topology.StoreID{{1, 2}, {2, 1}} {
			net.SetLink(d[0], d[1], fault.Net{Cut: true}, nil)
			want("cut", 2, "", "store-2: no answer: context deadline exceeded", time.Second)
			net.SetLink(d[0], d[1], fault.Net{}, nil)
		}
		two.Isolate()
		want("isolated", 2, "", "store-2: no answer: context deadline exceeded", time.Second)
		two.Close()
		want("closed", 2, "", "store-2: not running", 0)

		// Close of either end ends a call and waits for the handler.
		handled := make(chan struct{})
		slow := func(ctx context.Context, _ topology.StoreID, _ []byte) ([]byte, error) {
			<-ctx.Done()
			close(handled)
			return nil, ctx.Err()
		}
		two = net.NewEndpoint(transport.Options{Store: 2, Handle: slow})
		failed := make(chan error, 1)
		go func() {
			_, err := one.Call(context.Background(), 2, nil)
			failed <- err
		}()
		synctest.Wait()
		two.Close()
		select {
		case <-handled:
		default:
			t.Error("Close did not wait for the handler")
		}
		if err := <-failed; fmt.Sprint(err) != "store-2: stopped before it answered" {
			t.Errorf("call to a store that stops: %v", err)
		}
		handled = make(chan struct{})
		net.NewEndpoint(transport.Options{Store: 2, Handle: slow})
		go func() {
			_, err := one.Call(context.Background(), 2, nil)
			failed <- err
		}()
		synctest.Wait()
		one.Close()
		if err := <-failed; fmt.Sprint(err) != "store-1: endpoint closed" {
			t.Errorf("call of a store that stops: %v", err)
		}
	})
}
