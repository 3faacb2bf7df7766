package redis

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
)

// addMembers makes a set of some members, or adds them to it.
func (d *region) addMembers(key string, members []string) {
	for some := range slices.Chunk(members, 2000) {
		d.must(2, append([]string{"sadd", key}, some...)...)
	}
}

// randomMembers are n of a few more members than that, of lengths 0 to 4.
func randomMembers(random *rand.Rand, n int) (members []string) {
	for range n {
		b := make([]byte, random.IntN(5))
		for i := range b {
			b[i] = []byte{0, 'a', 'b', 0xff}[random.IntN(4)]
		}
		members = append(members, string(b))
	}
	return members
}

// TestCombinations compares unions, intersections and differences, replied and stored, with those of a model: of one
// set to more than are gone through at once, some of them absent, one named twice, and the key that is made being one
// of them.
func TestCombinations(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	d := newRegion(t)
	d.state.KeysExact = true
	for round := range 60 {
		d.must(2, "flushall")
		n := 1 + random.IntN(5)
		if limit(t, 8<<20); round%3 == 1 { // few at a time, in windows of few members
			limit(t, 200)
		}
		if round%6 == 0 {
			n = maxSideBySide + 2 + random.IntN(20)
		}
		names := make([]string, n)
		sets := make([]map[string]bool, n)
		for i := range names {
			names[i], sets[i] = fmt.Sprint("s", i), map[string]bool{}
			switch {
			case i > 0 && random.IntN(20) == 0:
				names[i], sets[i] = names[0], sets[0]
				continue
			case n <= maxSideBySide && random.IntN(20) == 0:
				continue
			}
			members := randomMembers(random, 1+random.IntN(1<<random.IntN(10)))
			if n > maxSideBySide { // something has to be in all of them
				members = append(members, "a", "b", "ab")
			}
			switch {
			case n > maxSideBySide && i == 0:
				members = append(members, "not in the difference")
			case n > maxSideBySide && i == n-1: // the largest one is looked into last
				members = []string{"not in the difference", "a", "ab"}
				for m := range 2000 {
					members = append(members, fmt.Sprint("m", m))
				}
			}
			d.addMembers(names[i], members)
			for _, m := range members {
				sets[i][m] = true
			}
		}
		want := map[string]map[string]bool{"sunion": {}, "sinter": maps.Clone(sets[0]), "sdiff": maps.Clone(sets[0])}
		for i, set := range sets {
			maps.Copy(want["sunion"], set)
			maps.DeleteFunc(want["sinter"], func(m string, _ bool) bool { return !set[m] })
			maps.DeleteFunc(want["sdiff"], func(m string, _ bool) bool { return i > 0 && set[m] })
		}
		for name, want := range want {
			same := func(call string, got []string) {
				t.Helper()
				slices.Sort(got)
				if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
					t.Fatalf("seed %d, round %d: %s of %v: got %q, want %q", seed, round, call, names, got,
						slices.Sorted(maps.Keys(want)))
				}
			}
			same(name, texts(d.must(2, append([]string{name}, names...)...)))
			target := "made"
			if name == "sdiff" { // the last one, since the sets change
				continue
			}
			got := d.must(2, append([]string{name + "store", target}, names...)...).String()
			if got != strconv.Itoa(len(want)) {
				t.Fatalf("seed %d, round %d: %sstore of %v: %s, want %d", seed, round, name, names, got, len(want))
			}
			same(name+"store", texts(d.must(2, "smembers", target)))
		}
		limit := random.IntN(5)
		card := len(want["sinter"])
		if limit > 0 {
			card = min(card, limit)
		}
		args := append(append([]string{"sintercard", strconv.Itoa(n)}, names...), "limit", strconv.Itoa(limit))
		if got := d.must(2, args...).String(); got != strconv.Itoa(card) {
			t.Fatalf("seed %d, round %d: %q: %s, want %d", seed, round, args, got, card)
		}
		target := names[random.IntN(n)]
		d.must(2, append([]string{"sdiffstore", target}, names...)...)
		if got := texts(d.must(2, "smembers", target)); len(got) != len(want["sdiff"]) {
			t.Fatalf("seed %d, round %d: sdiffstore over %s of %v: %q, want %v", seed, round, target, names, got,
				want["sdiff"])
		}
		count, err := strconv.Atoi(d.must(2, "dbsize").String())
		if err != nil || d.state.KeyCount != uint64(count) {
			t.Fatalf("seed %d, round %d: %d keys counted, there are %d: %v", seed, round, d.state.KeyCount, count, err)
		}
	}
}

// TestScoredCombinations has unions, intersections and differences of sorted sets and sets reply and store the same
// whether they are made at once or in many windows, of few inputs at a time: scores are added up in the same order.
func TestScoredCombinations(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	d := newRegion(t)
	for i := range 12 {
		members := randomMembers(random, 1+random.IntN(300))
		if i%4 == 3 {
			d.addMembers(fmt.Sprint("{t}", i), members)
			continue
		}
		args := []string{"zadd", fmt.Sprint("{t}", i)}
		for _, m := range append(members, "a", "b") {
			args = append(args, fmt.Sprint(random.NormFloat64()*math.Pow10(random.IntN(20))), m)
		}
		d.must(2, args...)
	}
	d.scenario("zadd {t}12 inf a -inf b => 2\nzadd {t}13 -inf a inf b 1 c => 3")
	large := 0
	for range 200 {
		n := 1 + random.IntN(14)
		call := fmt.Sprint(n)
		weights := " weights"
		for range n {
			call += fmt.Sprint(" {t}", random.IntN(14))
			weights += fmt.Sprint(" ", random.IntN(3)-1)
		}
		name := []string{"zunion", "zinter", "zdiff"}[random.IntN(3)]
		if name != "zdiff" {
			call += []string{"", weights}[random.IntN(2)] + []string{"", " aggregate min",
				" aggregate max"}[random.IntN(3)]
		}
		var got [2]string
		for i, bytes := range []int{8 << 20, 100} {
			limit(t, bytes)
			got[i] = d.must(2, strings.Fields(name+" "+call+" withscores")...).String() + d.must(2,
				strings.Fields(name+"store {t}made "+call)...).String() +
				d.must(2, "zrange", "{t}made", "0", "-1", "withscores").String()
		}
		if got[0] != got[1] {
			t.Fatalf("seed %d: %s %s:\n%.1000s\nin windows\n%.1000s", seed, name, call, got[0], got[1])
		}
		if len(got[0]) > 1000 {
			large++
		}
	}
	if large < 20 {
		t.Errorf("seed %d: %d results were large", seed, large)
	}
}

// TestPop: what SPOP removes is what it returns, and follows from the log entry alone: neither another replica's memory
// nor the room for the reply matters.
func TestPop(t *testing.T) {
	a, b := newRegion(t), newRegion(t)
	b.w.random().Uint64() // of another entry
	members := map[string]bool{}
	for i := range 3000 {
		members[fmt.Sprint("m", i)] = true
	}
	for i, call := range []string{"spop s", "spop s 1", "spop s 3", "spop s 50", "spop s 1500", "spop s 800", "spop s",
		"spop s 0", "spop s 10000", "spop s", "spop s 3"} {
		for _, d := range []*region{a, b} {
			d.w.VersionBase = 500
			if i == 0 {
				d.addMembers("s", slices.Sorted(maps.Keys(members)))
			}
		}
		before := len(members)
		popped := a.must(2, strings.Fields(call)...)
		got := texts(popped)
		if popped.Kind == '$' && !popped.Null {
			got = []string{string(popped.Text)}
		}
		for _, m := range got {
			if !members[m] {
				t.Fatalf("%s: %q is no member, or not any more", call, m)
			}
			delete(members, m)
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(call, "spop s"), " ")); err == nil &&
			before-len(members) != min(n, before) {
			t.Errorf("%s: %d members of %d", call, before-len(members), before)
		}
		if left := texts(a.must(2, "smembers", "s")); len(left) != len(members) ||
			!slices.Equal(slices.Sorted(slices.Values(left)), slices.Sorted(maps.Keys(members))) {
			t.Fatalf("%s: %d members are left, want %d", call, len(left), len(members))
		}
		var args [][]byte
		for _, arg := range strings.Fields(call) {
			args = append(args, []byte(arg))
		}
		if err := b.call(args, &Reply{More: func(int) int { return 0 }}); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(a.stored(), b.stored()) {
			t.Fatalf("%s: two replicas differ", call)
		}
	}
	for k := range a.stored() {
		if ks := keys.Keyspace(k[0]); ks == keys.RedisMetadata {
			t.Errorf("record %x of an empty set", k)
		}
	}
}

// TestStoreLarge stores a union that is larger than a batch should be over one of the sets that it is made of.
func TestStoreLarge(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	var members []string
	for i := range 30_000 {
		members = append(members, fmt.Sprintf("%s%d", strings.Repeat("m", 60), i))
	}
	d.addMembers("a", members[:20_000])
	d.addMembers("b", members[10_000:])
	d.scenario("sunionstore a a b => 30000\nscard a => 30000\nsinterstore b a b => 20000\n" +
		"sdiffstore a a b => 10000\nscard b => 20000")
	got := texts(d.must(2, "smembers", "a"))
	slices.Sort(got)
	if slices.Sort(members[:10_000]); !slices.Equal(got, members[:10_000]) {
		t.Errorf("%d members, want the %d that b has not", len(got), 10_000)
	}
}

// BenchmarkSet counts commands, 64 of them in an entry or a read: on a set of 100,000 members, half of those named
// being there, or on two sets of 1,000 that share half of them.
func BenchmarkSet(b *testing.B) {
	for _, call := range []string{"sadd s %d", "sismember s %d", "spop s", "srandmember s", "sinter a b", "sunion a b",
		"sdiff a b", "sunionstore c a b", "smembers a"} {
		b.Run(strings.ReplaceAll(call, " ", "_"), func(b *testing.B) {
			const size, n = 64, 100_000
			d := newRegion(b)
			var members []string
			for i := range n {
				members = append(members, fmt.Sprint("m", i))
			}
			d.addMembers("s", members)
			d.addMembers("a", members[:1000])
			d.addMembers("b", members[500:1500])
			random := rand.New(rand.NewPCG(1, 2))
			row := Lookup([]byte(strings.Fields(call)[0]))
			calls := make([]Call, 4096)
			for i := range calls {
				calls[i].Command = row
				for _, arg := range strings.Fields(call) {
					if arg == "%d" {
						arg = fmt.Sprint("m", random.IntN(2*n))
					}
					calls[i].Args = append(calls[i].Args, []byte(arg))
				}
			}
			var run Run
			b.ReportAllocs()
			for i := 0; b.Loop(); i += size {
				run.Reset()
				run.Calls = append(run.Calls, calls[i%len(calls):][:size]...)
				var err error
				if row.Read != nil {
					err = d.read(func(r *Reader) error { return r.Execute(&run) })
				} else {
					err = d.write(func(w *Writer) error {
						for _, c := range run.Calls {
							if err := w.Run(c.Command, c.Args, &run.Out); err != nil {
								return err
							}
						}
						return nil
					})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/command")
		})
	}
}
