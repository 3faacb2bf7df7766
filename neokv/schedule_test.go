package neokv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// TestSplitsByItself fills a region until it is larger than it may be, then sends all load to a few slots, then deletes
// all: regions split by size and by load, and the small ones merge. Each change is told with its reason.
func TestSplitsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := small()
		k.Cluster.Regions = 1
		k.Region.MaxBytes, k.Region.MergeBytes, k.Region.SplitLoad = 4<<20, 1<<20, 500
		var mu sync.Mutex
		var told []string
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: k, OnEvent: func(e ClusterEvent) {
			mu.Lock()
			defer mu.Unlock()
			if strings.HasPrefix(e.Text, "region ") && !strings.Contains(e.Text, "leads") {
				told = append(told, e.Text)
			}
		}})
		ctx := t.Context()
		do := func(args ...any) any {
			t.Helper()
			got, err := c.Do(ctx, args...)
			if err != nil {
				t.Fatalf("%v: %v", args, err)
			}
			return got
		}
		until := func(what string, limit time.Duration, ok func() bool) {
			t.Helper()
			for end := time.Now().Add(limit); !ok(); time.Sleep(time.Second) {
				if time.Now().After(end) {
					mu.Lock()
					defer mu.Unlock()
					t.Fatalf("%s: not in %s; told %q, status %+v", what, limit, told, c.Status().Regions)
				}
			}
		}
		said := func(text string) bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(strings.Join(told, "\n"), text)
		}
		const keys = 4000
		value := make([]byte, 4<<10)
		random := rand.NewChaCha8([32]byte{1})
		for i := range keys {
			random.Read(value)
			do("SET", fmt.Sprint("k", i), value)
		}
		flush := func() {
			for i := range c.in.Places() {
				if err := c.in.Places()[i].Store().Flush(ctx, false); err != nil {
					t.Fatal(err)
				}
			}
		}
		flush()
		until("splits by size", 5*time.Minute, func() bool { return len(c.Status().Regions) >= 4 })
		if !said("region.max_bytes") {
			t.Errorf("told %q; want the reason", told)
		}
		if got := do("DBSIZE"); got != int64(keys) {
			t.Errorf("DBSIZE = %v; want %d", got, keys)
		}

		// Load on two slots of one region.
		before := len(c.Status().Regions)
		busy, stop := context.WithCancel(ctx)
		var clients sync.WaitGroup
		for i := range 4 {
			key := keyIn(topology.Slot(100 + 20*i))
			clients.Go(func() {
				for busy.Err() == nil {
					c.Do(ctx, "SET", key, "v") // to its end: FLUSHALL comes after it
					time.Sleep(4 * time.Millisecond)
				}
			})
		}
		until("a split by load", 5*time.Minute, func() bool { return said("region.split_load") })
		stop()
		clients.Wait()
		if n := len(c.Status().Regions); n <= before {
			t.Errorf("%d regions behind a split of %d", n, before)
		}

		do("FLUSHALL")
		flush()
		until("merges", 3*time.Hour, func() bool { return len(c.Status().Regions) == 1 })
		if got := do("DBSIZE"); got != int64(0) {
			t.Errorf("DBSIZE = %v; want 0: %q", got, do("KEYS", "*"))
		}
	})
}
