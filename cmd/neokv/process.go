package main

import (
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"neokv.dev/neokv"
)

// printable writes text without what could move a terminal's cursor, change its colours or type for its user: a server
// or a file may have sent that. Control characters appear as they do in a Go string, such as \x1b. Tabs and line ends
// stay.
type printable struct{ io.Writer }

func (p printable) Write(b []byte) (int, error) {
	_, err := io.WriteString(p.Writer, escape(string(b), "\n\t"))
	return len(b), err
}

// escape returns text with escapes in place of all control characters but those to keep.
func escape(text, keep string) string {
	moves := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(keep, r) }
	if strings.IndexFunc(text, moves) < 0 {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if moves(r) {
			out.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
	return out.String()
}

// Settings of the whole process. Only this binary touches them; the library leaves its host process as it is.
const (
	// minProcs is the least GOMAXPROCS. A thread blocked in fdatasync keeps its P until the scheduler takes notice, and
	// when it returns it needs one that no flush or long apply holds, for up to 10 ms each. On two cores 8 beside 4,
	// over all keys, 50 clients, medians of five rounds in turn (ranges): SET 1.27x (0.84-1.57) and in pipelines of 16
	// 1.09x (1.02-1.18), GET 1.14x (0.80-1.18) and 1.06x (0.85-1.38), INCR 0.96x (0.70-1.11) and 0.92x (0.82-1.10).
	minProcs = 8
	// gcPercent trades memory for fewer garbage collections. The Go heap has rows and, in a build without C, memtables
	// and block caches, which the collector does not search; see limitHeap.
	gcPercent = 400
)

// tuneProcess sets GOMAXPROCS and the GC percentage, unless the environment sets them, raises the limit of file
// descriptors, and makes the Raft library log errors only.
func tuneProcess(getenv func(string) string, stderr io.Writer) {
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU()))
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	raiseFileLimit()
	neokv.LogRaft(stderr)
}

// tuneGenerator sets GOMAXPROCS for a verb that sends load and runs no cluster, unless the environment sets it, until
// restore is called. On two cores, against a redis-server, 50 clients with pipelines of 16: beside redis-benchmark with
// as many threads, medians of six rounds in turn (ranges), SET 0.95x (0.68-1.08), GET 1.00x (0.91-1.30), with minProcs
// 0.83x (0.80-0.98) and 0.73x (0.70-0.87). One P left operations late at 5,000 per second beside a NeoKV: by p99 5.7 ms
// in place of 3.3 ms. Closed loops to one server take fewer: see leaveCore.
func tuneGenerator(getenv func(string) string) (restore func()) {
	if getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	return func() { runtime.GOMAXPROCS(before) }
}

// coresLeft says how many runs leave a core, and GOMAXPROCS without them.
var coresLeft struct {
	sync.Mutex
	runs, procs int
}

// leaveCore takes one core less than there are for a run of closed loops to one server on this machine, unless the
// environment sets GOMAXPROCS, until back is called. Threads of the generator on the one core of a redis-server slow
// it down. On two cores, 50 clients, GET of 100,000 keys, nine rounds in turn beside redis-benchmark, medians (ranges):
// without pipelines 1.06x (0.98-1.27), with two Ps 0.89x (0.77-0.97); in pipelines of 16 0.97x (0.93-1.04). A NeoKV,
// which has more threads, takes 5 % less from one P.
func leaveCore() (back func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	coresLeft.Lock()
	defer coresLeft.Unlock()
	if coresLeft.runs++; coresLeft.runs == 1 {
		coresLeft.procs = runtime.GOMAXPROCS(max(1, runtime.NumCPU()-1))
	}
	return func() {
		coresLeft.Lock()
		defer coresLeft.Unlock()
		if coresLeft.runs--; coresLeft.runs == 0 {
			runtime.GOMAXPROCS(coresLeft.procs)
		}
	}
}

// heapTick is how often limitHeap looks at the heap, mostRoom how much the heap may grow between two collections at
// most. With 256 regions most of what the process takes is such room.
const (
	heapTick = 100 * time.Millisecond
	mostRoom = 128 << 20
)

// limitHeap bounds the garbage that gcPercent allows, until stop is called. Without it, data in memory, caches and
// clients' buffers would multiply the garbage. After a collection the heap may grow by half of what clients may hold
// (redis.client_memory), or by mostRoom, before the next one. What is allocated during a collection comes on top: if
// clients ask for large replies as fast as they can, that is about the other half. More room bought nothing: over all
// keys, medians of five rounds in turn, SET 0.99x and in pipelines of 16 1.01x, GET in pipelines 0.87x.
func limitHeap(getenv func(string) string, c neokv.Config) (stop func()) {
	if getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := int64(c.Settings.Redis.ClientMemory / 2)
	if room == 0 || room > mostRoom { // 0: no limit
		room = mostRoom
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	before, last := debug.SetMemoryLimit(-1), int64(0)
	follow := func() {
		metrics.Read(live)
		if limit := int64(live[0].Value.Uint64()) + room; limit != last { // it stops the world
			debug.SetMemoryLimit(limit)
			last = limit
		}
	}
	follow()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heapTick)
		defer tick.Stop()
		for {
			select {
			case <-done:
				debug.SetMemoryLimit(before)
				return
			case <-tick.C:
				follow()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
