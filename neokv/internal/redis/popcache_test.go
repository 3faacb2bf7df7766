package redis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSubkeyList compares a subkeyList with a sorted list: its content, where it stands, and the memory that is
// counted.
func TestSubkeyList(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	pops := popCache{memory: new(PopMemory)}
	var k popEntry
	x := &k.at[below]
	x.at = x.subs.Iter()
	var model []string
	want := int64(0)
	name := func() string { return fmt.Sprint("hash", random.IntN(6000)) }
	for i := range 40_000 {
		n := 4000
		if i > 25_000 { // then most of them go
			n = 200
		}
		sub := name()
		at, there := slices.BinarySearch(model, sub)
		if random.IntN(n+len(model)) < n {
			pops.insert(&k, x, []byte(sub))
			if !there {
				want += int64(len(sub) + memberBytes)
				model = slices.Insert(model, at, sub)
			}
		} else {
			if len(model) > 0 && random.IntN(4) > 0 {
				at = random.IntN(len(model))
				sub, there = model[at], true
			}
			pops.remove(&k, x, sub)
			if there {
				want -= int64(len(sub) + memberBytes)
				model = slices.Delete(model, at, at+1)
			}
		}
		if n, used := x.subs.Len(), pops.memory.used.Load(); n != len(model) || used != want || k.bytes != want {
			t.Fatalf("seed %d: step %d: %d subkeys and %d bytes, %d of the entry, want %d and %d", seed, i, n, used,
				k.bytes, len(model), want)
		}
		sub = name()
		at, _ = slices.BinarySearch(model, sub)
		check := func(what string, ok bool, want int) {
			if there := want >= 0 && want < len(model); ok != there || ok && string(x.sub()) != model[want] {
				t.Fatalf("seed %d: step %d: %s %q: %v, want subkey %d of %d", seed, i, what, sub, ok, want, len(model))
			}
		}
		if check("SeekBefore", x.SeekBefore([]byte(sub)), at-1); at > 0 {
			check("Prev", x.Prev(), at-2)
		}
		if check("Seek", x.Seek([]byte(sub)), at); at < len(model) {
			check("Next", x.Next(), at+1)
		}
		if i%100 == 0 {
			check("First", x.First(), 0)
			check("Last", x.Last(), len(model)-1)
		}
	}
}

// TestPopMemoryIsHonest: a list takes no more of the heap than is counted, filled or when most members are gone.
func TestPopMemoryIsHonest(t *testing.T) {
	const n = 100_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	order := rand.Perm(n)
	sub := func(i int) string { return fmt.Sprintf("member:%07d", i) }
	pops, before := popCache{memory: new(PopMemory)}, heap()
	var k popEntry
	for i := range n {
		pops.insert(&k, &k.at[below], []byte(sub(i)))
	}
	for i := 0; i <= n*3/4; i++ {
		if i%(n/4) == 0 {
			if got := heap() - before; got > k.bytes*11/10 {
				t.Errorf("%d bytes for %d members, counted %d", got, n-i, k.bytes)
			}
		}
		pops.remove(&k, &k.at[below], sub(order[i]))
	}
	runtime.KeepAlive(order)
}

// TestExtractsChangeNothing: pops return the same with the pop cache and without, and the cache has what the engine
// has.
func TestExtractsChangeNothing(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	with, without := newRegion(t), newRegion(t)
	both := func(args ...string) {
		t.Helper()
		without.w.Forget()
		if got, want := with.must(2, args...).String(), without.must(2, args...).String(); got != want {
			t.Fatalf("seed %d: %q: %s, want %s", seed, args, got, want)
		}
	}
	found := 0 // at most
	steps, sizes := 3, []int{30, 700, 2000}
	if testing.Short() {
		steps, sizes = 1, sizes[:2]
	}
	for _, size := range sizes {
		for i := 0; i < size; i += 50 {
			set, zset := []string{"sadd", "s"}, []string{"zadd", "z"}
			for range 50 {
				set = append(set, fmt.Sprint("m", random.IntN(2*size)))
				zset = append(zset, fmt.Sprint(random.IntN(size)), fmt.Sprint("m", random.IntN(2*size)))
			}
			both(set...)
			both(zset...)
		}
		for range steps * size {
			member, score := fmt.Sprint("m", random.IntN(2*size)), fmt.Sprint(random.IntN(size))
			calls := []string{"spop s", "spop s", "zpopmin z", "zpopmax z", "spop s 5", "zpopmin z 3", "zpopmax z 3",
				"sadd s " + member, "srem s " + member,
				"zadd z " + score + " " + member, "zrem z " + member, "zadd z -1 " + member, "smove s other " + member}
			both(strings.Fields(calls[random.IntN(len(calls))])...)
			for _, k := range with.w.pops.known {
				if k != nil {
					found = max(found, k.at[below].subs.Len())
				}
			}
		}
		both("smembers", "s")
		both("zrange", "z", "0", "-1", "withscores")
		if size < 2000 {
			both("del", "s", "z")
		} else {
			both("flushall")
		}
		if used := with.w.pops.memory.used.Load(); used != 0 {
			t.Errorf("seed %d: %d bytes of memory are left when all is gone", seed, used)
		}
	}
	if found < maxEnd {
		t.Errorf("seed %d: no more than %d members were kept", seed, found)
	}
}

// TestExtractsAreBounded: if there is no memory the cache keeps nothing, and pops go on.
func TestExtractsAreBounded(t *testing.T) {
	d := newRegion(t)
	d.w.PopMemory = new(PopMemory)
	d.w.PopMemory.used.Store(popMemoryBytes - 100)
	large := string(bytes.Repeat([]byte("m"), 600))
	for i := range 300 {
		d.must(2, "sadd", "s", fmt.Sprint(large, i))
		d.must(2, "zadd", "z", fmt.Sprint(i), fmt.Sprint(large, i))
	}
	for i := range 300 {
		d.must(2, "spop", "s")
		if got, want := d.must(2, "zpopmin", "z").Items[1].Text, fmt.Sprint(i); string(got) != want {
			t.Errorf("pop %d has score %s", i, got)
		}
		if n := d.w.PopMemory.used.Load(); n > popMemoryBytes {
			t.Fatalf("%d bytes more than there are after %d pops", n-popMemoryBytes, i+1)
		}
	}
	if n := d.w.PopMemory.used.Load(); n != popMemoryBytes-100 {
		t.Errorf("%d bytes are left", n-popMemoryBytes+100)
	}
}

// BenchmarkDrain counts pops, 64 of them in an entry, while a collection of 200,000 elements is emptied: of the first
// half, of the last tenth but for the last hundredth, and of that.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct{ pop, add string }{{"spop", "sadd"}, {"zpopmin", "zadd"}, {"lpop", "rpush"}} {
		b.Run(c.pop, func(b *testing.B) {
			const n, size = 200_000, 64
			pop, args := Lookup([]byte(c.pop)), [][]byte{[]byte(c.pop), []byte("k")}
			spent := map[string]time.Duration{}
			for b.Loop() {
				b.StopTimer()
				d := newRegion(b)
				for i := 0; i < n; {
					add := []string{c.add, "k"}
					for range 100 {
						if c.add == "zadd" {
							add = append(add, fmt.Sprint(i*7919%n))
						}
						add = append(add, fmt.Sprintf("element:%012d", i))
						i++
					}
					d.must(2, add...)
				}
				b.StartTimer()
				var out Reply
				for i := 0; i < n; i += size {
					before := time.Now()
					if err := d.write(func(w *Writer) error {
						for range size {
							out.Buf = out.Buf[:0]
							if err := w.Run(pop, args, &out); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						b.Fatal(err)
					}
					switch took := time.Since(before); {
					case i < n/2:
						spent["first"] += took * 2
					case i >= n-n/100:
						spent["last"] += took * 100
					case i >= n-n/10:
						spent["late"] += took * 100 / 9
					}
				}
			}
			for part, took := range spent {
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/n, "ns/"+part)
			}
		})
	}
}
