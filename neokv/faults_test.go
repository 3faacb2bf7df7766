package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// do carries out faults in turn.
func do(t *testing.T, c *Cluster, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := doText(t.Context(), c, text); err != nil {
			t.Fatal(err)
		}
	}
}

func doText(ctx context.Context, c *Cluster, text string) error {
	f, err := fault.Parse(text)
	if err != nil {
		return err
	}
	_, err = c.Inject(ctx, f)
	return err
}

// inForce are the texts of the faults in force.
func inForce(c *Cluster) (texts []string) {
	for _, f := range c.Faults() {
		texts = append(texts, f.String())
	}
	return texts
}

// await waits for a condition.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in 30s", what)
		}
	}
}

// served reports whether every region has a leader.
func served(c *Cluster) bool {
	return !slices.ContainsFunc(c.Status().Regions, func(r RegionStatus) bool { return r.Leader == 0 })
}

// TestFaultsInForce gives a cluster faults, whose list has the texts that bring them about again.
func TestFaultsInForce(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	want := []string{
		"pause 2",
		"partition 1 2",
		"link 1 3 one-way delay=5ms loss=1%",
		"link 2 3 jitter=1ms",
		"network 3 regions",
		"disk 1 latency=1ms",
		"clock 1 -1s",
		"clock 3 500ms",
		"clients 1 refuse",
		"clients 2 bandwidth=1KiB",
		"clients 3 reset",
		"fail all CLIENT|LIST 100% ERR no",
		"fail all GET 10% LOADING Redis is loading",
		"fail 2 SET 0.5% BUSY",
		"fail 3 SET 1% BUSY",
	}
	order := rand.New(rand.NewPCG(1, 1))
	for _, i := range order.Perm(len(want)) {
		do(t, c, want[i])
	}
	if got := inForce(c); !slices.Equal(got, want) {
		t.Errorf("faults in force:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range c.Faults() {
		if _, err := c.Inject(t.Context(), f.End()); err != nil {
			t.Error(err)
		}
	}
	if got := inForce(c); len(got) > 0 {
		t.Errorf("in force after the end of each: %q", got)
	}
	do(t, c, append(want, "stop 3", "kill 1")...)
	if got := inForce(c); len(got) != len(want)+2 {
		t.Errorf("in force: %q; want the same and two stores that are down", got)
	}
	seen := make(map[fault.Verb]bool)
	for _, f := range c.Faults() {
		seen[f.Verb] = true
	}
	for _, v := range fault.Verbs() {
		if f := (fault.Fault{Verb: v}); f.Lasts() != seen[v] {
			t.Errorf("%s is in the list: %v", v, seen[v])
		}
	}
	do(t, c, "heal")
	if got := inForce(c); len(got) > 0 {
		t.Errorf("in force after heal: %q", got)
	}
	for _, bad := range []string{"hang", "bandwidth=1MiB", "full", "free=1GiB", "read-errors", "write-errors",
		"sync-errors", "flipped-bit"} {
		text := "disk 3 " + bad
		do(t, c, text)
		if got := inForce(c); !slices.Contains(got, text) {
			t.Errorf("in force: %q; want %s", got, text)
		}
		do(t, c, "disk 3 ok", "heal") // heal starts the store, if it has failed
	}
	if got := inForce(c); len(got) > 0 {
		t.Errorf("in force after all of a disk: %q", got)
	}
	await(t, "leader of each region", func() bool { return served(c) })
	r := directClient(t, c)
	defer r.Close()
	for i := range 50 {
		if err := r.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Error(err)
		}
	}
}

// inMemoryAndOnDisk runs a test on a cluster in memory, in virtual time, and on one on disk, in real time, with ticks
// that are short, since most of the time goes into elections. Clients reach it as directClient does.
func inMemoryAndOnDisk(t *testing.T, name string, journal int64, test func(t *testing.T, c *Cluster)) {
	config := Config{Stores: 3, Settings: small()}
	hooks := &seam.Hooks{VirtualTime: true}
	if journal > 0 {
		hooks.JournalBytes = func() int64 { return journal }
	}
	t.Run("memory"+name, func(t *testing.T) {
		config := config
		config.InMemory, config.NoSockets = true, true
		synctest.Test(t, func(t *testing.T) { test(t, startWith(t, config, hooks)) })
	})
	if journal == 0 {
		return
	}
	// Its journal has a length that follows from the settings, so there are no hooks.
	config.Settings.Raft.RTT = 10 * time.Millisecond
	t.Run("disk"+name, func(t *testing.T) {
		config.Dir = t.TempDir()
		test(t, start(t, config))
	})
}

// directClient returns a client of the proxy port: through a socket, or in memory if the cluster has none.
func directClient(t *testing.T, c *Cluster) *redis.Client {
	o := &redis.Options{Addr: c.ProxyAddr()}
	if strings.HasPrefix(c.ProxyAddr(), noSocket) {
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
	}
	return redis.NewClient(o)
}

// TestKill kills stores, one by one and all at once: no acknowledged write is lost, and the others serve everything
// meanwhile.
func TestKill(t *testing.T) {
	for _, journal := range []int64{0, 64 << 10} {
		inMemoryAndOnDisk(t, fmt.Sprint(", journal ", journal > 0), journal, func(t *testing.T, c *Cluster) {
			r := directClient(t, c)
			defer r.Close()
			n := 0
			write := func() {
				t.Helper()
				for range 40 {
					surelySet(t, r, fmt.Sprint("k", n), n)
					n++
				}
			}
			check := func() {
				t.Helper()
				for i := range n {
					if got, err := r.Get(t.Context(), fmt.Sprint("k", i)).Int(); err != nil || got != i {
						t.Fatalf("k%d = %d, %v", i, got, err)
					}
				}
			}
			state := func(store int) string { return c.Status().Stores[store-1].State }
			write()
			for store := 1; store <= 3; store++ {
				do(t, c, fmt.Sprint("kill ", store))
				if got := state(store); got != StateKilled {
					t.Errorf("store %d is %s; want killed", store, got)
				}
				check()
				write()
				do(t, c, fmt.Sprint("restart ", store))
				if got := state(store); got != StateOK {
					t.Errorf("store %d is %s; want ok", store, got)
				}
			}
			for _, text := range []string{"kill all", "kill all keep=50%", "kill all sync=2", "kill 2 sync=3",
				"kill all", "restart all sync=3", "restart 2 keep=50% sync=2", "stop all"} {
				write()
				do(t, c, text, "heal")
				check()
			}
		})
	}
}

// TestDoRefuses asks for what the cluster cannot do.
func TestDoRefuses(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	do(t, c, "stop 3")
	for text, want := range map[string]string{
		"kill 4":        `fault "kill 4": there is no store 4; want 1 to 3`,
		"transfer 99 1": `transfer 99 1: there is no region 99; want one of 1-8`,
		"kill 3":        "kill 3: store 3 does not run",
		"stop 2,3":      "stop 2,3: store 3 does not run",
		"pause 3":       "pause 3: store 3 does not run",
		"transfer 1 3":  "transfer 1 3: store 3 does not run",
	} {
		if err := doText(t.Context(), c, text); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	if got := inForce(c); !slices.Equal(got, []string{"stop 3"}) {
		t.Errorf("in force: %q; want the stop of store 3 alone", got)
	}
	if _, err := c.Inject(t.Context(), fault.Fault{}); err == nil {
		t.Error("no error of a fault without a verb")
	}
	alone := start(t, Config{Stores: 1, InMemory: true, NoSockets: true})
	for _, text := range []string{"partition 1 all", "stepdown 1"} {
		if err := doText(t.Context(), alone, text); err == nil {
			t.Errorf("%s of a single store: no error", text)
		}
	}
}

// TestRegionsOfStoppedStores asks for changes of regions while no store has a map. Regions that exist are waited for.
func TestRegionsOfStoppedStores(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	do(t, c, "stop all")
	for _, text := range []string{"split 99", "merge 99", "transfer 99 1", "stepdown 99"} {
		if err := doText(t.Context(), c, text); !errors.Is(err, ErrNoRegion) {
			t.Errorf("%s: %v; want ErrNoRegion", text, err)
		}
	}
	for _, text := range []string{"split 8", "merge 7", "transfer 8 1", "stepdown 8"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := doText(ctx, c, text); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want it to wait", text, err)
		}
		cancel()
	}
	split := make(chan error)
	go func() { split <- doText(t.Context(), c, "split 8 16000") }()
	do(t, c, "heal")
	if err := <-split; err != nil {
		t.Error(err)
	}
	do(t, c, "merge 8")
}

// TestRegionsOfAnOldMap starts a store alone that was down when a region was split.
func TestRegionsOfAnOldMap(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	do(t, c, "kill 3", "split 8", "kill all", "restart 3")
	if err := doText(t.Context(), c, "split 99"); err == nil || !strings.HasSuffix(err.Error(), "want one of 1-9") {
		t.Errorf("%v; want it to name region 9, too", err)
	}
}

// TestTransfer moves leaders to a store, and away from one.
func TestTransfer(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	for _, r := range c.Status().Regions {
		for to := 1; to <= 3; to++ {
			do(t, c, fmt.Sprintf("transfer %d %d", r.Region, to))
			if got := c.Status().Regions[r.Region-1].Leader; got != to {
				t.Errorf("store %d leads region %d; want %d", got, r.Region, to)
			}
		}
		do(t, c, fmt.Sprintf("stepdown %d", r.Region))
		if got := c.Status().Regions[r.Region-1].Leader; got == 3 || got == 0 {
			t.Errorf("store %d leads region %d after a step down of store 3", got, r.Region)
		}
	}
}

// TestClusterFailover: a store that follows regions leads them when CLUSTER FAILOVER has answered, and keeps them. One
// that follows none says so.
func TestClusterFailover(t *testing.T) {
	c := start(t, Config{Stores: 4, Replicas: 3, Regions: 6, InMemory: true, NoSockets: true})
	call := func(store int, line string) string {
		conn, err := c.Dial(t.Context(), c.Addrs()[store-1])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s\r\n", line)
		reply, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(reply)
	}
	for i, form := range []string{"", " force", " TAKEOVER"} {
		store := 2 + i
		if got := call(store, "CLUSTER FAILOVER"+form); got != "+OK" {
			t.Errorf("store %d: %s", store, got)
		}
		leads := 0
		for _, r := range c.Status().Regions {
			if slices.ContainsFunc(r.Replicas, func(x ReplicaStatus) bool { return x.Store == store }) {
				if leads++; r.Leader != store || !r.Pinned {
					t.Errorf("region %d is led by store %d, pinned: %v; want store %d to lead it", r.Region, r.Leader, r.Pinned, store)
				}
			}
		}
		want := fmt.Sprintf("-ERR store %d follows no region: it leads all %d of which it has a replica", store, leads)
		if got := call(store, "CLUSTER FAILOVER"); got != want || leads == 0 {
			t.Errorf("again: %s; want %s", got, want)
		}
	}
	do(t, c, "kill 1")
	if got, want := call(1, "CLUSTER FAILOVER"), "-ERR the store is down"; got != want {
		t.Errorf("a stand-in: %s; want %s", got, want)
	}
}

// TestTransferDuringSync asks for new leaders while a sync keeps Raft from taking requests. A transfer goes on asking
// until the disk answers. If that takes too long, its error says what Raft has answered. What the cluster lacks for a
// transfer it says at once.
func TestTransferDuringSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Stores: 4, Replicas: 3, Regions: 4, InMemory: true, NoSockets: true})
		// hang lets the syncs of some stores hang, and returns when Raft waits in one of each region.
		hang := func(stores string) {
			set := func(i int) error {
				_, err := c.Do(t.Context(), "SET", fmt.Sprint("k", i), i)
				return err
			}
			const keys = 40 // some of each region
			for i := range keys {
				if err := set(i); err != nil { // after it, the next one finds the leader at once
					t.Fatal(err)
				}
			}
			do(t, c, "disk "+stores+" hang")
			for i := range keys {
				go set(i)
			}
			synctest.Wait()
		}
		for _, verb := range []string{"transfer", "stepdown"} {
			region := c.Status().Regions[0]
			next := region.Replicas[(slices.IndexFunc(region.Replicas,
				func(r ReplicaStatus) bool { return r.Store == region.Leader })+1)%3].Store
			text := fmt.Sprintf("%s %d", verb, region.Region)
			if verb == "transfer" {
				text += fmt.Sprint(" ", next)
			}
			hang(fmt.Sprint(region.Leader))
			moved := make(chan error)
			go func() { moved <- doText(t.Context(), c, text) }()
			time.Sleep(2*transferAgain + transferAgain/2) // it has asked three times, and Raft has room for one request
			do(t, c, fmt.Sprintf("disk %d ok", region.Leader))
			if err := <-moved; err != nil {
				t.Error(err)
			}
			if got := c.Status().Regions[0].Leader; got == region.Leader || verb == "transfer" && got != next {
				t.Errorf("after %s, store %d leads; store %d did before", text, got, region.Leader)
			}
		}

		region := c.Status().Regions[0]
		var without int
		for s := 1; s <= 4; s++ {
			if !slices.ContainsFunc(region.Replicas, func(r ReplicaStatus) bool { return r.Store == s }) {
				without = s
			}
		}
		begin := time.Now()
		text := fmt.Sprintf("transfer %d %d", region.Region, without)
		want := fmt.Sprintf("%s: region %d has no replica on store %d", text, region.Region, without)
		if err := doText(t.Context(), c, text); err == nil || err.Error() != want || time.Since(begin) > 0 {
			t.Errorf("%s: %v after %s; want %s at once", text, err, time.Since(begin), want)
		}

		hang("all")
		text = fmt.Sprintf("stepdown %d", region.Region)
		want = text + ": the leader has not moved in 5s: " + multiraft.ErrBusy.Error()
		if err := doText(t.Context(), c, text); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
		do(t, c, "disk all ok")
	})
}

// TestCloseDuringFaults closes a cluster while faults are carried out: each ends, and none after it begins.
func TestCloseDuringFaults(t *testing.T) {
	for seed := range uint64(6) {
		c, err := Start(t.Context(), Config{Stores: 3, InMemory: true, NoSockets: true, Settings: small(), Seed: 1 + seed})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(seed, 1))
		o := fault.DrawOptions{Stores: 3, Regions: 8, Length: time.Second, Verbs: fault.Drawn(), Gap: 100 * time.Millisecond}
		var wg sync.WaitGroup
		for range 4 {
			schedule := fault.Draw(random, o)
			wg.Go(func() {
				for _, e := range schedule {
					c.Inject(context.Background(), e.Fault)
				}
			})
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		if err := c.Close(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		ended := make(chan struct{})
		go func() {
			wg.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatalf("seed %d: faults have not ended 30s after Close", seed)
		}
	}
}

// footprint is what a process holds while its cluster is at rest.
type footprint struct {
	goroutines int
	files      int    // open ones, see openFiles
	heap       uint64 // bytes that are in use
}

// hold measures what the process holds. What is just ending does not count: hold takes the least that it sees in a
// while.
func hold() (least footprint) {
	for i := range 20 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := footprint{runtime.NumGoroutine(), openFiles(), m.HeapAlloc}
		if i == 0 {
			least = now
		}
		least = footprint{min(least.goroutines, now.goroutines), min(least.files, now.files), min(least.heap, now.heap)}
		time.Sleep(50 * time.Millisecond)
	}
	return least
}

// openFiles counts the open files of the process, 0 where the system does not list them. It counts no table that
// exists, except for what has it open a second time: how many tables there are depends on compactions.
func openFiles() (n int) {
	const list = "/proc/self/fd"
	entries, _ := os.ReadDir(list)
	seen := map[string]bool{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(list, e.Name()))
		if err == nil && (!strings.HasSuffix(to, ".sst") || seen[to]) {
			n++
		}
		seen[to] = true
	}
	return n
}

// TestKillsHoldNothing kills a store and starts it again, many times, while a client writes. The process has as many
// goroutines and open files afterwards as after the first kills, and its heap is as large.
func TestKillsHoldNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("a long run of one cluster")
	}
	inMemoryAndOnDisk(t, "", 64<<10, func(t *testing.T, c *Cluster) {
		warm, rounds := 22, 100 // the same store was the last to be killed
		if dir, _ := c.Dir(); dir != "" {
			rounds = 52 // which takes real time; the heap varies less there
		}
		var level footprint
		for round := 1; round <= rounds; round++ {
			do(t, c, fmt.Sprint("kill ", 1+round%3))
			writeAndRead(t, c, round)
			do(t, c, fmt.Sprint("restart ", 1+round%3))
			if round == warm {
				await(t, "leader of each region", func() bool { return served(c) })
				level = hold()
			}
		}
		await(t, "leader of each region", func() bool { return served(c) })
		now := hold()
		t.Logf("after %d kills %+v, after %d %+v", warm, level, rounds, now)
		// A quarter of what one goroutine, one file or one MiB per kill would come to.
		kills, slack := rounds-warm, (rounds-warm)/4
		if now.goroutines > level.goroutines+slack || now.files > level.files+slack ||
			now.heap > level.heap+uint64(slack)<<20 {
			t.Errorf("%d kills more: %+v; before them %+v", kills, now, level)
		}
	})
}

// TestCloudRegions: in virtual time, a write takes the round trip from its leader to the nearest other store, since a
// message takes half of it in each direction.
func TestCloudRegions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Stores: 3, Regions: 3, InMemory: true, NoSockets: true})
		const text = "network us-east-1 eu-west-1 ap-southeast-1"
		do(t, c, text)
		if got := inForce(c); !slices.Equal(got, []string{text}) {
			t.Errorf("in force: %q; want %s", got, text)
		}
		want := map[int]time.Duration{1: 70 * time.Millisecond, 2: 70 * time.Millisecond, 3: 182 * time.Millisecond}
		for i, slots := range topology.SplitEvenly(3) {
			n := 0
			for !slots.Contains(topology.SlotOf([]byte(strconv.Itoa(n)))) {
				n++
			}
			leader := c.Status().Regions[i].Leader
			begin := time.Now()
			if _, err := c.Do(t.Context(), "SET", n, "v"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took != want[leader] {
				t.Errorf("region %d, led by store %d: a write took %s, want %s", i+1, leader, took, want[leader])
			}
			delete(want, leader)
		}
		if len(want) > 0 {
			t.Errorf("stores that lead no region: %v", want)
		}
	})
}

// writeAndRead writes some keys and reads them, as a client that comes and goes.
func writeAndRead(t *testing.T, c *Cluster, value int) {
	t.Helper()
	r := directClient(t, c)
	defer r.Close()
	for i := range 20 {
		key := fmt.Sprint("k", i)
		surelySet(t, r, key, value)
		if got, err := r.Get(t.Context(), key).Int(); err != nil || got != value {
			t.Fatalf("%s = %d, %v; want %d", key, got, err, value)
		}
	}
}
