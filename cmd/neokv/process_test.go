package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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
	held := make([]byte, size)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) { // tests before this one may hold more
		runtime.GC()
		metrics.Read(live)
		is, limit := int64(live[0].Value.Uint64()), debug.SetMemoryLimit(-1)
		if is >= size && limit > is+room-1<<20 && limit < is+room+1<<20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with %d bytes live the limit is %d, want them and %d", is, limit, room)
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
