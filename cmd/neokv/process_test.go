package main

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/settings"
)

func TestSyncsSeen(t *testing.T) {
	var s syncsSeen
	total := int64(0)
	for i, c := range []struct {
		more, ticks int64
		waiting     bool // in each of them
		busy        bool // behind them
	}{
		{0, 1, false, true}, // it has just started
		{0, quietTicks, false, false},
		{manySyncs - 1, 3 * quietTicks, false, false},
		{manySyncs, 1, false, true},
		{0, quietTicks - 1, false, true},
		{1, 1, false, false},
		{-5, 1, false, true}, // a store has gone, and another has been busy
		{1000, 10, false, true},
		{0, 3 * quietTicks, true, true}, // a slow disk
		{0, quietTicks, false, false},
	} {
		var busy bool
		for range c.ticks {
			total += c.more
			busy = s.busy(total, c.waiting)
		}
		if busy != c.busy {
			t.Errorf("step %d: %d ticks with %d syncs, waiting %v: busy %v, want %v", i, c.ticks, c.more, c.waiting, busy, c.busy)
		}
	}
}

func TestFollowSyncs(t *testing.T) {
	none := func(string) string { return "" }
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	most := max(minProcs, runtime.NumCPU())
	synctest.Test(t, func(t *testing.T) {
		runtime.GOMAXPROCS(most)
		var made atomic.Int64
		syncs := func() (int64, bool) { return made.Load(), false }
		want := func(what string, n int) {
			t.Helper()
			if got := runtime.GOMAXPROCS(0); got != n {
				t.Errorf("%s: GOMAXPROCS %d, want %d", what, got, n)
			}
		}
		stop := followSyncs(none, syncs)
		time.Sleep(time.Second)
		synctest.Wait()
		want("nothing is synced", runtime.NumCPU())
		made.Add(manySyncs)
		time.Sleep(syncsTick)
		synctest.Wait()
		want("stores sync", most)
		time.Sleep(time.Second)
		synctest.Wait()
		want("not any more", runtime.NumCPU())
		stop()
		want("stopped", most)

		runtime.GOMAXPROCS(3)
		stop = followSyncs(func(string) string { return "3" }, syncs)
		time.Sleep(time.Second)
		want("as the environment has it", 3)
		stop()
	})
}

// TestLimitHeap holds memory: the limit follows what is live, and leaves room for what the settings allow.
func TestLimitHeap(t *testing.T) {
	k := settings.Default()
	room := int64(k.Redis.ClientMemory)
	before := debug.SetMemoryLimit(-1)
	stop := limitHeap(func(string) string { return "" }, neokv.Config{InMemory: true, Settings: &k})
	const size = 64 << 20
	held := make([]byte, size)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		limit := debug.SetMemoryLimit(-1)
		if limit > room+size && limit < room+2*size {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with %d bytes held the limit is %d, want a little more than that and %d", len(held), limit, room)
		}
	}
	runtime.KeepAlive(held)
	stop()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("behind it the limit is %d, want %d", got, before)
	}
	limitHeap(func(string) string { return "1GiB" }, neokv.Config{Settings: &k})()
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("with GOMEMLIMIT in the environment: %d, want %d", got, before)
	}
}
