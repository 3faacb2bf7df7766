package neokv

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
)

// TestSplitAndMerge splits a region several times and merges all of it again, while keys stay what they were.
func TestSplitAndMerge(t *testing.T) {
	k := small()
	k.Cluster.Regions = 1
	k.Redis.CountTime = time.Minute // no estimates
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	ctx := t.Context()
	do := func(args ...any) any {
		t.Helper()
		got, err := c.Do(ctx, args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return got
	}
	inject := func(text string) {
		t.Helper()
		f, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := c.Inject(ctx, f); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %v", text, time.Since(begin))
	}
	const keys = 1000
	for i := range keys {
		do("SET", fmt.Sprint("k", i), i)
		do("SADD", fmt.Sprint("s", i), i)
	}
	check := func() {
		t.Helper()
		for i := range keys {
			if got := do("GET", fmt.Sprint("k", i)); got != fmt.Sprint(i) {
				t.Fatalf("GET k%d = %v", i, got)
			}
			if got := do("SISMEMBER", fmt.Sprint("s", i), i); got != int64(1) {
				t.Fatalf("SISMEMBER s%d = %v", i, got)
			}
		}
		if got := do("DBSIZE"); got != int64(2*keys) {
			t.Errorf("DBSIZE = %v", got)
		}
	}
	check()
	inject("split 1")
	check()
	inject("split 1 100")
	check()
	for range 2 {
		inject("merge 1")
		check()
	}
	do("FLUSHALL")
	if got := do("DBSIZE"); got != int64(0) {
		t.Errorf("DBSIZE = %v", got)
	}
}

// TestChangesTakeTurns merges a region with its neighbours by three callers at once. Each waits for the others.
func TestChangesTakeTurns(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true, Regions: 4})
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Merge, Region: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := len(c.Status().Regions); n != 1 {
		t.Errorf("%d regions are left; want 1", n)
	}
}

// TestWaitBesideACutStore has WAIT on the proxy port count replicas while the first store is cut off.
func TestWaitBesideACutStore(t *testing.T) {
	k := small()
	k.Raft.LeaderReturn = 0
	c := start(t, Config{InMemory: true, Settings: k})
	do(t, c, "partition 1 all")
	client := proxyClient(t, c).Conn()
	t.Cleanup(func() { client.Close() })
	ctx := t.Context()
	waitFor(t, 20*time.Second, "a write", func() bool { return client.Set(ctx, "k", "v", 0).Err() == nil })
	if n, err := client.Wait(ctx, 1, 5*time.Second).Result(); err != nil || n != 1 {
		t.Errorf("WAIT is %d, %v; want 1", n, err)
	}
}
