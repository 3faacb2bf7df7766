package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/settings"
)

// TestLimitHeap holds memory: the limit follows what is live, and leaves room for what the settings allow.
func TestLimitHeap(t *testing.T) {
	k := settings.Default()
	room := min(int64(k.Redis.ClientMemory/2), mostRoom)
	before := debug.SetMemoryLimit(-1)
	stop := limitHeap(func(string) string { return "" }, neokv.Config{InMemory: true, Settings: &k})
	const size = 64 << 20
	// until waits for a limit that is near what is live and room; more may be live than the test holds.
	until := func(least, most int64) (limit int64) {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			runtime.GC()
			limit := debug.SetMemoryLimit(-1)
			if limit >= least && limit < most {
				return limit
			}
			if time.Now().After(end) {
				t.Fatalf("the limit is %d, want %d to %d", limit, least, most)
			}
		}
	}
	for range 5 { // what earlier tests held goes now, or stays
		runtime.GC()
		time.Sleep(2 * heapTick)
	}
	without := until(room, room+8*size)
	held := make([]byte, size)
	until(without+size/2, without+2*size)
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
