package main

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSyncsSeen(t *testing.T) {
	var s syncsSeen
	total := int64(0)
	for i, c := range []struct {
		more, ticks int64
		busy        bool // behind them
	}{
		{0, 1, true}, // it has just started
		{0, quietTicks, false},
		{manySyncs - 1, 3 * quietTicks, false},
		{manySyncs, 1, true},
		{0, quietTicks - 1, true},
		{1, 1, false},
		{-5, 1, true}, // a store has gone, and another has been busy
		{1000, 10, true},
	} {
		var busy bool
		for range c.ticks {
			total += c.more
			busy = s.busy(total)
		}
		if busy != c.busy {
			t.Errorf("step %d: %d ticks with %d syncs: busy %v, want %v", i, c.ticks, c.more, busy, c.busy)
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
		var syncs atomic.Int64
		want := func(what string, n int) {
			t.Helper()
			if got := runtime.GOMAXPROCS(0); got != n {
				t.Errorf("%s: GOMAXPROCS %d, want %d", what, got, n)
			}
		}
		stop := followSyncs(none, syncs.Load)
		time.Sleep(time.Second)
		synctest.Wait()
		want("nothing is synced", runtime.NumCPU())
		syncs.Add(manySyncs)
		time.Sleep(syncsTick)
		synctest.Wait()
		want("stores sync", most)
		time.Sleep(time.Second)
		synctest.Wait()
		want("not any more", runtime.NumCPU())
		stop()
		want("stopped", most)

		runtime.GOMAXPROCS(3)
		stop = followSyncs(func(string) string { return "3" }, syncs.Load)
		time.Sleep(time.Second)
		want("as the environment has it", 3)
		stop()
	})
}
