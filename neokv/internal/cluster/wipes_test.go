package cluster

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var wipeStep = flag.Int64("wipe.step", 13, "TestWipeCuts cuts the power at each sync of so many")

// wiped is a cluster in virtual time, in which a test wipes stores, and what was acknowledged there.
type wiped struct {
	*Cluster
	t    *testing.T
	mu   sync.Mutex
	want acked
}

// acked has by key what was acknowledged last, and what was sent since, whose outcome is not known.
type acked map[string][]string

func startWiped(t *testing.T, from *Image) *wiped {
	t.Helper()
	s := small()
	s.Engine.MemtableSize, s.Engine.BlockCache, s.Engine.RowCache, s.Engine.DiskReserve = 3<<20, 1<<20, 1<<20, 512<<10
	s.Raft.SnapshotEntries, s.Raft.CompactionOverhead = 30, 10
	s.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2}
	c, err := Start(t.Context(), Config{From: from, InMemory: true, NoSockets: true, Seed: 1, Settings: s},
		&seam.Hooks{VirtualTime: true})
	if err != nil {
		t.Fatal(err)
	}
	return &wiped{Cluster: c, t: t, want: make(acked)}
}

// do runs a command, for a while at most, and returns the first line of its reply without its kind.
func (w *wiped) do(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	nc, err := w.DialInside(ctx)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(nc, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(nc, "$%d\r\n%s\r\n", len(arg), arg)
	}
	r := bufio.NewReader(nc)
	line, err := r.ReadString('\n')
	if err == nil && line[0] == '$' && line[1] != '-' {
		line, err = r.ReadString('\n')
		line = "$" + line
	}
	switch line = strings.TrimSpace(line); {
	case err != nil:
		return "", err
	case line[0] == '-':
		return "", fmt.Errorf("%s", line)
	}
	return line[1:], nil
}

// write sets keys of all regions, one after the other, until stop is closed, and remembers what is acknowledged.
func (w *wiped) write(stop <-chan struct{}) {
	for i := 0; ; i++ {
		key, value := fmt.Sprint("k", i%40), fmt.Sprint("v", i)
		w.mu.Lock()
		if w.want[key] == nil {
			w.want[key] = []string{""} // there is none
		}
		w.want[key] = append(w.want[key], value)
		w.mu.Unlock()
		if _, err := w.do("SET", key, value); err == nil {
			w.mu.Lock()
			w.want[key] = []string{value}
			w.mu.Unlock()
		}
		select {
		case <-stop:
			return
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// check checks that all is there that was acknowledged.
func (w *wiped) check(want acked) {
	w.t.Helper()
	for key, values := range want {
		got, err := w.do("GET", key)
		if got == "-1" {
			got = ""
		}
		if err != nil || !slices.Contains(values, got) {
			w.t.Errorf("%s: %q, %v; want one of %q", key, got, err, values)
		}
	}
}

// settle waits until no wipe is open and each store runs with a replica of each region, which is a voter, and that of
// meta. Then the replicas of each region must have applied the same.
func (w *wiped) settle() {
	w.t.Helper()
	var lacks string
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if lacks = w.lacks(); lacks == "" {
			return
		}
	}
	w.t.Fatalf("after five minutes %s", lacks)
}

func (w *wiped) lacks() string {
	for _, x := range w.wipes.all() {
		if !x.Done {
			return fmt.Sprintf("the wipe %+v is open", x)
		}
	}
	for _, n := range w.places.all() {
		if err := n.Failure(); err != nil || !n.running() {
			return fmt.Sprintf("store %d does not run: %v", n.id, err)
		}
	}
	for _, r := range w.Regions() {
		for id := topology.StoreID(1); id <= 3; id++ {
			p, ok := r.PeerOn(id)
			replica, leader := w.places.all().Replica(id, r.ID), w.places.all().LeaderOf(r.ID)
			if !ok || p.Role != topology.Voter || replica == nil || leader == nil || leader.Store() == nil {
				return fmt.Sprintf("region %d lacks its replica on store %d, or a leader", r.ID, id)
			}
			if _, self := replica.Region(); self != p.Replica {
				return fmt.Sprintf("region %d has peers %+v, and store %d has %d", r.ID, r.Peers, id, self)
			}
			if lead := leader.Store().Replica(r.ID); lead == nil || replica.Applied() < lead.Applied() ||
				replica.Bounds().Phase != keys.Serving {
				return fmt.Sprintf("region %d: the replica on store %d lags", r.ID, id)
			}
		}
	}
	return ""
}

// TestWipeCuts wipes a store while a client writes, and cuts the power of all stores at one of their syncs, at every
// few in turn. The stores start again on what is left, in another process as it were. If the wipe had been ordered, it
// goes on by itself. All that was acknowledged is there, all replicas are, and the loss of another store changes nothing.
func TestWipeCuts(t *testing.T) {
	step := *wipeStep
	if testing.Short() {
		step = 41
	}
	cuts, ordered := 0, 0
	for k := int64(1); !t.Failed(); k += step {
		sprung, was := true, false
		synctest.Test(t, func(t *testing.T) { sprung, was = cutWipe(t, k) })
		if !sprung {
			break
		}
		cuts++
		if was {
			ordered++
		}
	}
	t.Logf("%d cuts, %d of them while a wipe was open: %v", cuts, ordered, wipesCut)
	if ordered < 10 && step < 20 {
		t.Errorf("want 10 cuts and more while a wipe is open")
	}
}

// wipesCut counts the cuts by how far the wipe was.
var wipesCut = make(map[string]int)

// cutWipe is TestWipeCuts for the k-th sync. It reports false if there were fewer, and whether a wipe was open.
func cutWipe(t *testing.T, k int64) (sprung, open bool) {
	w := startWiped(t, nil)
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { w.write(stop) })
	time.Sleep(300 * time.Millisecond)
	random := rand.New(rand.NewPCG(uint64(k), 1))
	keep := []int{0, 50, 100}[random.IntN(3)]
	var want acked
	var syncs atomic.Int64
	image := &Image{cluster: w.identity, settings: w.settings}
	for _, n := range w.places.all() {
		image.dirs, image.disks = append(image.dirs, n.dir), append(image.disks, nil)
	}
	cut := make(chan struct{})
	var once sync.Once
	power := func() {
		once.Do(func() {
			w.mu.Lock() // what is acknowledged from here on does not count
			want = make(acked)
			for key, values := range w.want {
				want[key] = slices.Clone(values)
			}
			w.mu.Unlock()
			for i, n := range w.places.all() {
				image.disks[i] = n.FS().Crash(keep, random)
			}
			close(cut)
		})
	}
	victim := topology.StoreID(1 + k%3)
	for _, n := range w.places.all() {
		n.FS().Hook(disk.BeforeSync, func(int64) {
			if syncs.Add(1) == k {
				power()
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		_, err := w.Inject(ctx, fault.Fault{Verb: fault.Wipe, To: int(victim)})
		over <- err
	}()
	ended := false
	select {
	case <-cut:
		sprung = true
	case err := <-over:
		ended = true
		once.Do(func() {}) // no cut comes any more
		select {
		case <-cut:
			sprung = true
		default:
			if err != nil {
				t.Fatalf("wipe %d: %v", victim, err)
			}
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("cut %d: the wipe of store %d does not end: %s", k, victim, w.lacks())
	}
	cancel()
	if !ended {
		<-over
	}
	close(stop)
	if !sprung {
		writer.Wait()
		w.settle()
		w.check(w.want)
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		return false, false
	}
	w.Close() // its disks are dead
	writer.Wait()
	again := startWiped(t, image)
	at := "ordered"
	for _, x := range again.wipes.all() {
		if open = open || !x.Done; x.Begun != 0 {
			at = "begun"
		}
	}
	if err := again.places.all().At(victim).Failure(); err != nil {
		at += ", " + err.Error()
	}
	again.settle()
	again.check(want)
	other := again.places.all().At(victim%3 + 1)
	if _, err := again.Inject(t.Context(), fault.Fault{Verb: fault.Kill, Stores: []int{int(other.id)}}); err != nil {
		t.Error(err)
	}
	again.check(want)
	if err := again.Close(); err != nil && !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	if open {
		wipesCut[at]++
	}
	if t.Failed() {
		t.Logf("cut %d, keeping %d %%, store %d, while a wipe was open: %v, %s", k, keep, victim, open, at)
	}
	return true, open
}

// TestWipeRefused: a store is not wiped where the cluster could not do without what it has, and the error has every
// reason. Nothing is changed.
func TestWipeRefused(t *testing.T) {
	for _, x := range []struct {
		shape settings.ClusterKnobs
		kill  []int
		want  []string
	}{
		{settings.ClusterKnobs{Stores: 3, Replicas: 1, Regions: 3}, nil,
			[]string{"region 2 has no other replica than that on store 2"}},
		{settings.ClusterKnobs{Stores: 2, Replicas: 2, Regions: 2}, nil, []string{
			"without store 2, 1 of the 2 stores with a replica of the cluster map are up, which is no majority",
			"region 1: without that on store 2, 1 of its 2 replicas are up and near the end of the log, which is no majority",
			"region 2: without"}},
		{settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2}, []int{3}, []string{
			"without store 2, 1 of the 3 stores with a replica of the cluster map are up, which is no majority",
			"region 1: without that on store 2, 1 of its 3 replicas are up and near the end of the log, which is no " +
				"majority; that on store 3 does not run", "region 2: without"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := small()
			s.Cluster = x.shape
			c, err := Start(t.Context(), Config{InMemory: true, NoSockets: true, Seed: 1, Settings: s},
				&seam.Hooks{VirtualTime: true})
			if err != nil {
				t.Fatal(err)
			}
			if x.kill != nil {
				if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Kill, Stores: x.kill}); err != nil {
					t.Fatal(err)
				}
			}
			_, err = c.Inject(t.Context(), fault.Fault{Verb: fault.Wipe, To: 2})
			for _, want := range x.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%+v: %v; want %q", x.shape, err, want)
				}
			}
			if len(c.wipes.all()) > 0 || !c.places.all().At(2).running() {
				t.Errorf("%+v: wipes %+v", x.shape, c.wipes.all())
			}
			c.Close()
		})
	}
	if slices.Contains(fault.Drawn(), fault.Wipe) {
		t.Error("wipes are drawn: name them in the scenario of a plan")
	}
}
