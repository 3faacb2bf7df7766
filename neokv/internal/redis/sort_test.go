package redis

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
)

// TestSortPatterns: a pattern has to keep all keys in the slot of the one that is sorted.
func TestSortPatterns(t *testing.T) {
	d := newRegion(t)
	const by, get = "ERR BY option of SORT denied in Cluster mode.", "ERR GET option of SORT denied in Cluster mode."
	d.scenario(`
		rpush {a}l 2 1 3 => 3
		mset {a}w1 5 {a}w2 4 {a}w3 6 w1 0 => OK
		hset a f 1 1 x 2 y => 3
		sort {a}l by {a}w* => ["2" "1" "3"]
		sort {a}l by x{a}w* get # => ["1" "2" "3"]
		sort {a}l by w* => ` + by + `
		sort {a}l by *{a} => ` + by + `
		sort {a}l by {a*} => ` + by + `
		sort {a}l by {}{a}* => ` + by + `
		sort {a}l by {b}* => ` + by + `
		sort {a}l by {b}{a}* => ` + by + `
		sort {a}l by nosort get {a}w* get w1 => ["4" (nil) "5" (nil) "6" (nil)]
		sort {a}l get w* => ` + get + `
		sort_ro {a}l get {b}*->f => ` + get + `
		sort {a}l get w* store d => ` + get + `
		exists d => 0
		rpush a 1 => WRONGTYPE Operation against a key holding the wrong kind of value
		rpush l 1 => 1
		sort l by l* => ` + by + `
		sort l by {l}* => ["1"]
		sort {l}no by {x}* => ` + by + `
		sort {a}l by {a}w* limit 1 1 get {a}w* store {a}d => 1
		lrange {a}d 0 -1 => ["5"]`)
}

// TestSortIsReadOrWrite: without STORE it is a read, whatever stands where an option should.
func TestSortIsReadOrWrite(t *testing.T) {
	for call, read := range map[string]bool{
		"sort a": true, "sort a desc by store": true, "sort a get store get store": true, "sort a limit store x": true,
		"sort a store": true, "sort a store b": false, "SORT a STORE b": false, "sort a nosuch store b": false,
		"sort a by store store b": false, "sort a limit 0 1 store store": false,
	} {
		args := bytes.Fields([]byte(call))
		if got := Lookup(args[0]).ReadBy(args) == sortRead; got != read {
			t.Errorf("%s: a read %v, want %v", call, got, read)
		}
	}
}

// TestStoredSorts has one replica run random calls in one batch each, and another one several in a batch: replies and
// bytes are the same.
func TestStoredSorts(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	a, b := newRegion(t), newRegion(t)
	g := redistest.CallGenerator{Rand: rand.New(rand.NewPCG(seed, 0))}
	run := func(w *Writer, call [][]byte, out *Reply) {
		c := Lookup(call[0])
		if c == nil || c.Write == nil || !c.CheckArity(len(call)) {
			return
		}
		if err := w.Run(c, call, out); err != nil {
			t.Fatalf("seed %d: %q: %v", seed, call, err)
		}
	}
	var calls [][][]byte
	for _, f := range redistest.Families {
		for f.Name == "sort" && len(calls) < 8000 {
			for _, call := range f.Make(&g) {
				args := make([][]byte, len(call))
				for i, arg := range call {
					args[i] = []byte(arg)
				}
				calls = append(calls, args)
			}
		}
	}
	stored := 0
	for len(calls) > 0 {
		some := calls[:min(1+random.IntN(40), len(calls))]
		calls = calls[len(some):]
		var single, joint Reply
		for _, call := range some {
			before := len(single.Buf)
			if err := a.write(func(w *Writer) error { run(w, call, &single); return nil }); err != nil {
				t.Fatal(err)
			}
			if Lookup(call[0]) == sortCommands[0] && storeOption(call) != 0 && single.Buf[before] == ':' {
				stored++
			}
		}
		if err := b.write(func(w *Writer) error {
			for _, call := range some {
				run(w, call, &joint)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(single.Buf, joint.Buf) {
			t.Fatalf("seed %d: %q:\n%q one by one\n%q together", seed, some, single.Buf, joint.Buf)
		}
	}
	if stored < 100 {
		t.Errorf("seed %d: %d sorts were stored", seed, stored)
	}
	if !maps.Equal(a.stored(), b.stored()) {
		t.Errorf("seed %d: two replicas differ", seed)
	}
}

// TestSortMemory: elements may lead to the same large value again and again, and may be many.
func TestSortMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it sorts hundreds of megabytes in one goroutine")
	}
	d := newRegion(t)
	d.must(2, "set", "{a}big", strings.Repeat("x", 16<<20))
	d.scenario(`
		rpush {a}l big big big big big big big => 7
		sort {a}l by {a}* alpha get # limit 0 1 => ["big"]
		sort {a}l by {a}* get {a}* alpha store {a}d => ` + errSortMemory + `
		rpush {a}l big big => 9
		sort {a}l by {a}* alpha get # limit 0 1 => ` + errSortMemory + `
		sort {a}l by nosort get {a}* store {a}d => ` + errSortMemory + `
		exists {a}d => 0`)
	long := strings.Repeat("y", 16<<20)
	for range 7 {
		d.must(2, "rpush", "{a}long", long)
	}
	d.scenario("sort {a}long alpha store {a}d => 7\nllen {a}d => 7")
	d.must(2, "rpush", "{a}long", long)
	d.scenario("sort {a}long alpha store {a}d => " + errSortMemory + "\nsort_ro {a}long by nosort => " + errSortMemory +
		"\nsort {a}long by nosort limit 0 7 store {a}d => 7")

	// More elements than there is memory for: the record says so, and none is read.
	d.plant("{a}many", keys.Metadata{Type: keys.Set, Version: 1, Size: 1 << 40})
	d.scenario("sort {a}many => " + errSortMemory + "\nsort {a}many alpha store {a}d => " + string(errWriteLimit))
}

// BenchmarkSort sorts lists of random numbers.
func BenchmarkSort(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		for _, call := range []string{"sort {a}l", "sort {a}l limit 0 10", "sort {a}l alpha",
			"sort {a}l by nosort limit 0 10", "sort {a}l by {a}w*", "sort {a}l by {a}h*->f", "sort {a}l store {a}d"} {
			b.Run(fmt.Sprintf("n=%d/%s", n, strings.ReplaceAll(strings.TrimPrefix(call, "sort {a}l"), " ", "_")),
				func(b *testing.B) {
					d := newRegion(b)
					random := rand.New(rand.NewPCG(1, 0))
					for range n {
						x := fmt.Sprint(random.IntN(1_000_000))
						d.must(2, "rpush", "{a}l", x)
						d.must(2, "set", "{a}w"+x, fmt.Sprint(random.IntN(1_000_000)))
						d.must(2, "hset", "{a}h"+x, "f", fmt.Sprint(random.IntN(1_000_000)))
					}
					args := bytes.Fields([]byte(call))
					var out Reply
					b.ReportAllocs()
					for b.Loop() {
						out.Buf = out.Buf[:0]
						if err := d.call(args, &out); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
				})
		}
	}
}
