package neokvtest_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"neokv.dev/neokv"
	"neokv.dev/neokv/neokvtest"
)

// TestStart: a cluster takes writes on every slot from the beginning, and its seed follows from the test's name.
func TestStart(t *testing.T) {
	c := neokvtest.Start(t)
	client := c.Client()
	for i := range 1000 {
		if err := client.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	shape := c.Shape()
	if shape.Stores != 3 || shape.Replicas != 3 || shape.Regions != 3 {
		t.Errorf("shape %+v", shape)
	}
	again := neokvtest.Start(t, func(config *neokv.Config) { config.Stores, config.Regions = 5, 7 })
	if again.Seed() != c.Seed() || c.Seed() == 0 {
		t.Errorf("seeds %d and %d in one test", c.Seed(), again.Seed())
	}
	if shape := again.Shape(); shape.Stores != 5 || shape.Regions != 7 {
		t.Errorf("shape %+v", shape)
	}
	t.Run("sub", func(t *testing.T) {
		if sub := neokvtest.Start(t); sub.Seed() == c.Seed() {
			t.Error("another test has the same seed")
		}
	})
}

// TestMethods tries what a TestCluster adds to a Cluster.
func TestMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := neokvtest.Start(t)
		client, ctx := c.Client(), t.Context()
		want := func(c *neokvtest.TestCluster, want any, args ...any) {
			t.Helper()
			if got, err := c.Do(ctx, args...); err != nil || got != want {
				t.Errorf("%v = %v, %v; want %v", args, got, err, want)
			}
		}
		want(c, "OK", "SET", "k", "v", "EX", 3600)
		leader := c.Leader("k")
		if leader == 0 {
			t.Fatal("no store leads k")
		}
		c.Fault(fmt.Sprint("kill ", leader))
		if got, err := client.Get(ctx, "k").Result(); err != nil || got != "v" {
			t.Errorf("after the kill: %q, %v", got, err)
		}
		if now := c.Leader("k"); now == leader || now == 0 {
			t.Errorf("store %d leads after the kill of %d", now, leader)
		}
		c.Fault("heal")
		c.WaitHealthy()
		if s := c.Status().Stores[leader-1]; s.State != neokv.StateOK || s.Lag != 0 {
			t.Errorf("healed: %+v", s)
		}

		fork, image := c.Fork(t), c.Snapshot()
		fork.Advance(time.Hour)
		want(fork, nil, "GET", "k")
		want(c, "v", "GET", "k")
		c.Flush()
		want(c, int64(0), "DBSIZE")
		want(neokvtest.Start(t, neokvtest.From(image)), "v", "GET", "k")
	})
}

// TestSplits: the texts of faults split and merge regions, too.
func TestSplits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := neokvtest.Start(t)
		client := c.Client()
		ctx := t.Context()
		before := len(c.Status().Regions)
		for n, text := range []string{"split 1", "split 1 1", "merge 1", "merge 1"} {
			c.Fault(text)
			for i := range 50 {
				if got, err := client.Incr(ctx, fmt.Sprint("k", i)).Result(); err != nil || got != int64(n+1) {
					t.Errorf("%s: k%d is %d, %v; want %d", text, i, got, err, n+1)
				}
			}
		}
		if after := len(c.Status().Regions); after != before {
			t.Errorf("%d regions; want %d", after, before)
		}
	})
}

// TestSockets: with ports the cluster serves clients that know nothing of Go.
func TestSockets(t *testing.T) {
	c := neokvtest.Start(t, neokvtest.Sockets)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

// TestRueidis: rueidis works through memory, with its cache.
func TestRueidis(t *testing.T) {
	c := neokvtest.Start(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: c.Addrs(),
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return c.Dial(ctx, addr)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx := t.Context()
	for i := range 100 {
		key := fmt.Sprint("k", i)
		if err := client.Do(ctx, client.B().Set().Key(key).Value(key).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString(); err != nil || got != key {
			t.Fatalf("%s = %q, %v", key, got, err)
		}
		for hit := range 2 {
			got := client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Minute)
			if text, err := got.ToString(); err != nil || text != key || got.IsCacheHit() != (hit == 1) {
				t.Fatalf("%s, cached %v, is %q, %v", key, got.IsCacheHit(), text, err)
			}
		}
	}
}

// awaitLeader waits until a store leads the region of the key k, and returns it. There may be none for a moment.
func awaitLeader(t *testing.T, c *neokvtest.TestCluster) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if leader := c.Leader("k"); leader != 0 {
			return leader
		}
		if time.Now().After(end) {
			t.Fatal("no store leads the region of k")
		}
	}
}

// TestParallel runs 16 clusters at once, each with a fail-over.
func TestParallel(t *testing.T) {
	for i := range 16 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := neokvtest.Start(t)
			client, ctx := c.Client(), t.Context()
			if err := client.Set(ctx, "k", i, 0).Err(); err != nil {
				t.Fatal(err)
			}
			c.Fault(fmt.Sprint("kill ", awaitLeader(t, c)))
			// A read needs a new leader, which may take longer than the client's retries while 16 clusters share two
			// cores.
			for end := time.Now().Add(time.Minute); ; {
				got, err := client.Get(ctx, "k").Int()
				if err == nil && got == i {
					break
				}
				if err == nil || time.Now().After(end) {
					t.Fatalf("%d, %v; want %d", got, err, i)
				}
			}
		})
	}
}

var starts = flag.Int("neokvtest.starts", 30, "how many clusters TestLeaksNothing starts")

// TestLeaksNothing starts clusters one after the other. Goroutines and open files stay level, and no cluster that has
// ended stays in memory.
func TestLeaksNothing(t *testing.T) {
	var left atomic.Int64 // clusters in memory
	watch := func(c *neokvtest.TestCluster) *neokvtest.TestCluster {
		left.Add(1)
		runtime.AddCleanup(c.Cluster, func(int) { left.Add(-1) }, 0)
		return c
	}
	use := func() {
		t.Run("", func(t *testing.T) {
			c := watch(neokvtest.Start(t, neokvtest.Sockets))
			if err := c.Client().Set(t.Context(), "k", make([]byte, 1<<20), 0).Err(); err != nil {
				t.Error(err)
			}
			watch(c.Fork(t)).Fault("kill 1")
		})
	}
	// What is left falls for a while: go-redis ends some goroutines late, and some timers hold a cluster for seconds.
	level := func(ok func(goroutines, files int, clusters int64) bool) (goroutines, files int, clusters int64) {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			runtime.GC()
			open, _ := os.ReadDir("/proc/self/fd") // where there is none, files are not counted
			goroutines, files, clusters = runtime.NumGoroutine(), len(open), left.Load()
			if ok(goroutines, files, clusters) || time.Now().After(end) {
				return goroutines, files, clusters
			}
		}
	}
	for range 3 {
		use()
	}
	few := *starts / 4
	goroutines, files, clusters := level(func(_, _ int, clusters int64) bool { return clusters <= 2 })
	for range *starts {
		use()
	}
	g, f, c := level(func(g, f int, c int64) bool {
		return g <= goroutines+few && f <= files+few && c <= clusters+int64(few)
	})
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("after 3 and their forks %d goroutines, %d files, %d clusters; after %d more %d, %d, %d, %d MiB of heap",
		goroutines, files, clusters, *starts, g, f, c, m.HeapAlloc>>20)
	if g > goroutines+few || f > files+few || c > clusters+int64(few) {
		t.Error("clusters leave something behind")
	}
}

// failing is the name of the environment variable that makes TestThatFails fail.
const failing = "NEOKVTEST_FAILING"

// TestThatFails is run by TestWhatATestSees in a process of its own.
func TestThatFails(t *testing.T) {
	t.Run("in a part", func(t *testing.T) {
		c := neokvtest.Start(t)
		c.Fault(fmt.Sprint("kill ", awaitLeader(t, c)))
		if _, err := c.Do(t.Context(), "GET", "k"); err != nil {
			t.Error(err)
		}
		c.Fault("disk 1 latency=1ms")
		if os.Getenv(failing) != "" {
			t.Error("on purpose")
		}
	})
}

// TestWhatATestSees: nothing while it passes; and when it fails, the seed, how to run it again, and what happened.
func TestWhatATestSees(t *testing.T) {
	run := func(env ...string) string {
		cmd := exec.Command(os.Args[0], "-test.run=^TestThatFails$")
		cmd.Env = append(os.Environ(), env...)
		out, _ := cmd.CombinedOutput() // a failing test's exit status is an error
		return string(out)
	}
	if out := run(neokvtest.SeedVariable + "=5"); out != "PASS\n" && !strings.HasPrefix(out, "PASS\ncoverage:") {
		t.Errorf("a test that passes prints\n%s", out)
	}
	out := run(failing+"=1", neokvtest.SeedVariable+"=7")
	// The store that is killed leads the region of k, which is region 2. On a busy machine it may be any store.
	before, victim, _ := strings.Cut(out, "kill ")
	victim, _, _ = strings.Cut(victim, ":")
	if want := "region 2: store " + victim + " leads, term "; !strings.Contains(before, want) {
		t.Errorf("a test that fails prints\n%s\nwithout %q before the kill", out, want)
	}
	at := 0
	for _, want := range []string{
		"on purpose",
		"neokvtest: seed 7; again with: NEOKVTEST_SEED=7 go test -run '^TestThatFails$/^in_a_part$'",
		"region 1: store ", " leads, term ", "the cluster serves, ", "kill " + victim + ": begins",
		"kill " + victim + ": done", " leads, term ", "disk 1 latency=1ms: done",
		"in the end store " + victim + " is killed", "in the end this is in force: disk 1 latency=1ms",
	} {
		i := strings.Index(out[at:], want)
		if i < 0 {
			t.Fatalf("a test that fails prints\n%s\nwithout %q behind byte %d", out, want, at)
		}
		at += i
	}
	out = run(neokvtest.SeedVariable + "=x")
	if !strings.Contains(out, "NEOKVTEST_SEED=x: want a number from 1 to 2^64-1") {
		t.Errorf("a seed that is no number:\n%s", out)
	}
}

// fatal is a testing.TB that notes why a test would have ended.
type fatal struct {
	testing.TB
	why string
}

func (f *fatal) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestBadInput: what is wrong ends the test with a reason.
func TestBadInput(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(t testing.TB)
		want string
	}{
		{"a fault that does not parse", func(t testing.TB) { neokvtest.Start(t).Fault("burn 2") },
			"neokvtest: fault: unknown verb"},
		{"a store that is not there", func(t testing.TB) { neokvtest.Start(t).Fault("kill 4") },
			`neokvtest: fault "kill 4": there is no store 4; want 1 to 3`},
		{"a fault after the end", func(t testing.TB) {
			c := neokvtest.Start(t)
			c.Close()
			c.Fault("kill 1")
		}, "neokvtest: kill 1: the cluster is closed"},
		{"an impossible cluster", func(t testing.TB) {
			neokvtest.Start(t, func(c *neokv.Config) { c.Stores, c.Replicas = 2, 3 })
		}, "neokvtest: "},
		{"no such setting", func(t testing.TB) { neokvtest.Start(t, neokvtest.With("engine.blom_bits", "5")) },
			`neokvtest: With("engine.blom_bits", "5"): unknown setting: engine.blom_bits; did you mean engine.bloom_bits?`},
		{"no such value", func(t testing.TB) { neokvtest.Start(t, neokvtest.With("engine.bloom_bits", "x")) },
			`neokvtest: With("engine.bloom_bits", "x"): `},
		{"the shape as a setting", func(t testing.TB) { neokvtest.Start(t, neokvtest.With("cluster.stores", "5")) },
			`neokvtest: With("cluster.stores"): Stores, Replicas and Regions of the Config say that`},
		{"no such command", func(t testing.TB) { neokvtest.Start(t).Fail("GTE", "ERR x", 1) },
			"neokvtest: fail all GTE 100% ERR x: there is no command GTE"},
		{"an error of two lines", func(t testing.TB) { neokvtest.Start(t).Fail("GET", "ERR x\r\n+OK", 1) },
			"neokvtest: fault "},
		{"a share above 1", func(t testing.TB) { neokvtest.Start(t).Fail("GET", "ERR x", 10) }, "neokvtest: fault "},
		{"time that goes back", func(t testing.TB) { neokvtest.Start(t).Advance(-1) }, "neokvtest: advance by -1ns: "},
	} {
		f := &fatal{TB: t}
		var wg sync.WaitGroup
		wg.Go(func() { x.do(f) })
		wg.Wait()
		if !strings.HasPrefix(f.why, x.want) {
			t.Errorf("%s: %q; want %q", x.name, f.why, x.want)
		}
	}
}

// TestInterrupted: a write whose time is over has an unknown outcome, and a client finds out later.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := neokvtest.Start(t)
		c.Fault("partition 1 2,3")
		c.Fault("partition 2 3")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Do(ctx, "SET", "k", "v"); !errors.Is(err, neokv.ErrUnknownOutcome) {
			t.Errorf("a write: %v", err)
		}
		c.Fault("heal")
		c.WaitHealthy()
		if got, err := c.Do(t.Context(), "GET", "k"); err != nil || got != nil && got != "v" {
			t.Errorf("GET k = %v, %v", got, err)
		}
	})
}

// TestWith: one setting changes, those for tests stay.
func TestWith(t *testing.T) {
	usual := neokvtest.Start(t).Settings()
	c := neokvtest.Start(t, neokvtest.With("engine.bloom_bits", "5"), neokvtest.With("raft.rtt", "7ms"))
	want := usual
	want.Engine.BloomBits, want.Raft.RTT = 5, 7*time.Millisecond
	if got := c.Settings(); got != want {
		t.Errorf("settings %+v\nwant %+v", got, want)
	}
	want.Engine.BloomBits = 6
	if got := c.Fork(t, neokvtest.With("engine.bloom_bits", "6")).Settings(); got != want {
		t.Errorf("settings of the fork %+v\nwant %+v", got, want)
	}
}
