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

// A generator leaves a core to a target beside it, unless the environment says how many it shall use.
func TestTuneGenerator(t *testing.T) {
	for target, want := range map[string]bool{
		"127.0.0.1:6379": true, "[::1]:6379": true, "localhost:6379": true, "203.0.113.1:6379": false, "": false,
	} {
		if got := onThisMachine(t.Context(), []string{"203.0.113.2:1", target}); got != want {
			t.Errorf("target %q is on this machine: %v, want %v", target, got, want)
		}
	}
	before := runtime.GOMAXPROCS(0)
	for _, c := range []struct {
		env    string
		beside bool
		want   int
	}{{"", true, max(1, runtime.NumCPU()-1)}, {"", false, runtime.NumCPU()}, {"3", true, before}} {
		restore := tuneGenerator(func(string) string { return c.env }, c.beside)
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("GOMAXPROCS=%s, beside its target %v: uses %d, want %d", c.env, c.beside, got, c.want)
		}
		if restore(); runtime.GOMAXPROCS(0) != before {
			t.Errorf("leaves GOMAXPROCS at %d, was %d", runtime.GOMAXPROCS(0), before)
		}
	}
}
