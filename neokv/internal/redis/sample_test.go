package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
)

// sampled are the names of a collection.
type sampled struct {
	what  string
	names []string
}

// samples are collections with names of many kinds, in no order. They are the same in every run.
func samples() (all []sampled) {
	random := rand.New(rand.NewPCG(36, 0))
	add := func(what string, n int, name func(i int) string) {
		var names []string
		for i := range n {
			names = append(names, name(i))
		}
		random.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
		all = append(all, sampled{what, names})
	}
	user := func(i int) string { return fmt.Sprint("user:", i+1) }
	add("one apart", 1000, func(i int) string {
		if i == 0 {
			return "zebra"
		}
		return user(i - 1)
	})
	add("numbers", 1000, user)
	add("just enough", pickExact+1, user)
	add("many", 3000, user)
	add("longer and longer", 300, func(i int) string { return strings.Repeat("a", i) })
	add("a few with other beginnings", 1000, func(i int) string {
		if i < 20 {
			return fmt.Sprintf("%c:%d", 'a'+i, i)
		}
		return fmt.Sprintf("user:{1000000}:%06d", i)
	})
	add("like hashes", 1000, func(i int) string { return fmt.Sprintf("%016x", random.Uint64()) })
	add("different lengths", 1000, func(i int) string { return strings.Repeat(strconv.Itoa(i%7), 1+i/7) })
	return all
}

// leastTimes and mostTimes bound how often an element may be drawn, as a multiple of the mean.
const leastTimes, mostTimes = 0.45, 2.0

// fair checks how often each of some names was drawn.
func fair(t *testing.T, what string, names []string, times map[string]int) {
	t.Helper()
	draws := 0
	for _, n := range times {
		draws += n
	}
	mean := float64(draws) / float64(len(names))
	rarest, commonest := names[0], names[0]
	for _, name := range names {
		if times[name] < times[rarest] {
			rarest = name
		}
		if times[name] > times[commonest] {
			commonest = name
		}
	}
	least, most := float64(times[rarest])/mean, float64(times[commonest])/mean
	t.Logf("%s: %d draws of %d: %.2f to %.2f times the mean", what, draws, len(names), least, most)
	if least < leastTimes || most > mostTimes || len(times) > len(names) {
		t.Errorf("%s: %.40q is drawn %.2f times as often as the mean, %.40q %.2f times", what, rarest, least, commonest,
			most)
	}
}

// uniform checks by chi-square that draws are as even as if all names were equally likely, but not more even: it is
// within six standard deviations.
func uniform(t *testing.T, what string, names []string, times map[string]int) {
	t.Helper()
	draws, square := 0, 0.0
	for _, n := range times {
		draws += n
	}
	mean := float64(draws) / float64(len(names))
	for _, name := range names {
		n := float64(times[name])
		square += (n - mean) * (n - mean) / mean
	}
	free := float64(len(names) - 1)
	t.Logf("%s: %d draws of %d: chi-square %.0f, %.0f degrees of freedom", what, draws, len(names), square, free)
	if math.Abs(square-free) > 6*math.Sqrt(2*free) || len(times) > len(names) {
		t.Errorf("%s: chi-square is %.0f with %.0f degrees of freedom", what, square, free)
	}
}

// draw counts what a call returns that draws n elements, as often as is needed for so many draws.
func (d *region) draw(draws, n int, call ...string) map[string]int {
	times := map[string]int{}
	for range draws / n {
		v := d.must(2, call...)
		if v.Kind == '$' {
			times[string(v.Text)]++
		}
		for _, name := range texts(v) {
			times[name]++
		}
	}
	return times
}

// makeOf makes a set, a hash and a sorted set of some names: s, h and z.
func (d *region) makeOf(names []string) {
	d.addMembers("s", names)
	d.addScored("z", names)
	for part := range slices.Chunk(names, 500) {
		hset := []string{"hset", "h"}
		for _, name := range part {
			hset = append(hset, name, "v")
		}
		d.must(2, hset...)
	}
}

// addScored makes a sorted set of names.
func (d *region) addScored(key string, names []string) {
	for part := range slices.Chunk(names, 500) {
		zadd := []string{"zadd", key}
		for i, name := range part {
			zadd = append(zadd, strconv.Itoa(i%10), name)
		}
		d.must(2, zadd...)
	}
}

// TestDrawsAreFair: no element of a set or a hash is drawn much more often, or much less often, than the mean, whatever
// the names are like. Members of sorted sets, and elements of small collections, are all equally likely. The draws are
// the same in every run.
func TestDrawsAreFair(t *testing.T) {
	oneGoroutine(t)
	const each = 75 // draws for each element
	for _, c := range samples() {
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			d := newRegion(t)
			seedDraws(d, 1)
			d.makeOf(c.names)
			n := each * len(c.names)
			fair(t, "SRANDMEMBER", c.names, d.draw(n, 100, "srandmember", "s", "-100"))
			fair(t, "HRANDFIELD", c.names, d.draw(n, 100, "hrandfield", "h", "-100"))
			uniform(t, "ZRANDMEMBER", c.names, d.draw(n/10, 100, "zrandmember", "z", "-100"))
			fair(t, "SRANDMEMBER of several", c.names, d.draw(n, 10, "srandmember", "s", "10"))
			if c.what == "one apart" {
				fair(t, "SRANDMEMBER of one", c.names, d.draw(n, 1, "srandmember", "s"))
			}
		})
	}
	t.Run("few", func(t *testing.T) {
		for _, n := range []int{2, 3, 65, 128, pickExact} {
			names := samples()[3].names[:n]
			d := newRegion(t)
			seedDraws(d, 2)
			d.makeOf(names)
			for _, call := range []string{"srandmember s -100", "hrandfield h -100", "zrandmember z -100"} {
				uniform(t, fmt.Sprint(call, " of ", n), names, d.draw(500*n, 100, strings.Fields(call)...))
			}
		}
	})
	t.Run("what is left of many", func(t *testing.T) {
		var names []string
		for i := range 4000 {
			names = append(names, fmt.Sprint("user:", i))
		}
		d := newRegion(t)
		seedDraws(d, 3)
		d.makeOf(names)
		var left []string
		for i, name := range names {
			if i >= 3000 || i%100 == 0 {
				left = append(left, name)
				continue
			}
			d.must(2, "srem", "s", name)
			d.must(2, "zrem", "z", name)
		}
		fair(t, "SRANDMEMBER", left, d.draw(each*len(left), 100, "srandmember", "s", "-100"))
		uniform(t, "ZRANDMEMBER", left, d.draw(10*len(left), 100, "zrandmember", "z", "-100"))
	})
}

// listed is elements in a list.
type listed struct {
	subs []string // hashes and names, in order
	at   int
}

func (x *listed) to(at int) bool {
	x.at = at
	return at >= 0 && at < len(x.subs)
}

func (x *listed) First() bool          { return x.to(0) }
func (x *listed) Last() bool           { return x.to(len(x.subs) - 1) }
func (x *listed) Next() bool           { return x.to(x.at + 1) }
func (x *listed) Prev() bool           { return x.to(x.at - 1) }
func (x *listed) Seek(sub []byte) bool { return x.to(sort.SearchStrings(x.subs, string(sub))) }
func (x *listed) SeekBefore(sub []byte) bool {
	return x.to(sort.SearchStrings(x.subs, string(sub)) - 1)
}
func (x *listed) sub() []byte                  { return []byte(x.subs[x.at]) }
func (x *listed) ValueAndErr() ([]byte, error) { return nil, nil }
func (x *listed) Error() error                 { return nil }
func (x *listed) Close() error                 { return nil }

// TestPointsOfElements tries all points of arcs: each element of an arc has exactly as many as any other, however their
// hashes lie, and draws together have the elements that each of them has alone.
func TestPointsOfElements(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 36))
	for i := range 1000 {
		a := arc{first: random.Uint32N(1000), width: 1 + random.Int64N(40), n: 1 + random.Int64N(30)}
		if i%10 == 0 {
			a.first = math.MaxUint32 - uint32(a.width) + 1 // ends with the last hash
		}
		e := &listed{}
		add := func(hash uint32) {
			sub := binary.BigEndian.AppendUint32(nil, hash)
			e.subs = append(e.subs, string(append(sub, strconv.Itoa(len(e.subs))...)))
		}
		within := 1 + random.Int64N(a.width) // the smaller, the more elements have the same hash
		from := random.Int64N(a.width - within + 1)
		for range a.n {
			add(a.first + uint32(from+random.Int64N(within)))
		}
		for range random.IntN(3) { // elements of other arcs
			add(a.first - 1 - random.Uint32N(100))
			add(a.first + uint32(a.width) + random.Uint32N(100))
		}
		e.subs = slices.DeleteFunc(e.subs, func(sub string) bool { // what has wrapped around
			hash := binary.BigEndian.Uint32([]byte(sub))
			return int64(hash) >= int64(a.first)+a.width && a.first > 1<<31 || hash > 1<<31 && a.first < 1<<31
		})
		slices.Sort(e.subs)
		x := draws{c: &collection{Metadata: keys.Metadata{Size: uint64(a.n)}}, e: e}
		times := map[string]int64{}
		var alone []string
		var all []draw
		for point := range a.width * a.n {
			all = append(all, draw{arc: a, point: point})
			err := x.find([]draw{{arc: a, point: point}}, func(name, _ []byte) {
				times[string(name)]++
				alone = append(alone, string(name))
			})
			if err != nil {
				t.Fatal(seed, i, err)
			}
		}
		for name, n := range times {
			if n != a.width {
				t.Errorf("seed %d: arc %d, %+v of %q: %q has %d points, want %d", seed, i, a, e.subs, name, n, a.width)
			}
		}
		if len(times) != int(a.n) {
			t.Errorf("seed %d: arc %d: %d elements have points, want %d", seed, i, len(times), a.n)
		}
		if err := x.find(all, nil); err != nil {
			t.Fatal(seed, i, err)
		}
		for point, d := range all {
			if name := string(x.held[d.name:d.value]); name != alone[point] {
				t.Errorf("seed %d: arc %d: point %d of all is of %q, alone of %q", seed, i, point, name, alone[point])
			}
		}
		a.n++ // one more than there are
		x.c.Size++
		if err := x.find([]draw{{arc: a, point: random.Int64N(a.width)}}, func(_, _ []byte) {}); err != nil &&
			!strings.Contains(err.Error(), "counts") {
			t.Errorf("seed %d: arc %d: %v", seed, i, err)
		}
	}
}

// TestDrawsTakeFewMoves: an element that is drawn is found without a walk over a large part of the others.
func TestDrawsTakeFewMoves(t *testing.T) {
	oneGoroutine(t)
	every := engine.LookEvery
	defer func() { engine.LookEvery = every }()
	for _, c := range []struct {
		size int
		call string
		n    int     // elements in a reply
		most float64 // seeks and steps for each, on average
	}{
		{100, "zrandmember z", 1, 30}, {100, "zrandmember z -10", 10, 10}, {100, "zrandmember z -100", 100, 2},
		{100, "srandmember s -100", 100, 2},
		{1000, "zrandmember z", 1, 20}, {1000, "zrandmember z -10", 10, 25}, {1000, "zrandmember z -100", 100, 15},
		{100_000, "zrandmember z", 1, 60}, {100_000, "zrandmember z -100", 100, 45},
	} {
		d := newRegion(t)
		seedDraws(d, 4)
		var names []string
		for i := range c.size {
			names = append(names, fmt.Sprint("user:", i))
		}
		if c.size <= 1000 {
			d.makeOf(names)
		} else {
			d.addScored("z", names)
		}
		var args [][]byte
		for _, a := range strings.Fields(c.call) {
			args = append(args, []byte(a))
		}
		engine.LookEvery = 1
		const calls = 100
		moves := 0
		run := Run{Calls: []Call{{Lookup(args[0]), args}}, Work: &engine.Work{Look: func() error { moves++; return nil }}}
		for range calls {
			if err := d.read(func(r *Reader) error { return r.Execute(&run) }); err != nil {
				t.Fatal(err)
			}
		}
		engine.LookEvery = every
		if got := float64(moves) / float64(calls*c.n); got > c.most {
			t.Errorf("%s of %d: %.1f seeks and steps for an element, want at most %.0f", c.call, c.size, got, c.most)
		}
	}
}

// TestPopsAreFair: SPOP is as fair as SRANDMEMBER, and makes the same choice where the members are in memory. What is
// popped comes back.
func TestPopsAreFair(t *testing.T) {
	oneGoroutine(t)
	for _, c := range samples() {
		if c.what != "one apart" && c.what != "numbers" && c.what != "longer and longer" {
			continue
		}
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			with, without := newRegion(t), newRegion(t)
			for _, d := range []*region{with, without} {
				d.w.VersionBase = 36
				d.addMembers("s", c.names)
			}
			times := map[string]int{}
			for i := range 60 * len(c.names) {
				popped := string(with.must(2, "spop", "s").Text)
				times[popped]++
				with.must(2, "sadd", "s", popped)
				if i < 300 {
					without.w.Forget()
					if other := string(without.must(2, "spop", "s").Text); other != popped {
						t.Fatalf("pop %d: %q in memory, %q in the engine", i, popped, other)
					}
					without.must(2, "sadd", "s", popped)
				}
			}
			fair(t, "SPOP", c.names, times)
		})
	}
}

// TestDrawsOfAMillion: how likely elements are follows from their hashes, so it can be calculated: of a million names
// none is more or less likely than is promised.
func TestDrawsOfAMillion(t *testing.T) {
	for _, name := range []string{"user:%d", "%d", "{tag}some:long:prefix:%09d:suffix", "%08x"} {
		const n = 1_000_000
		hashes := make([]uint64, n, n+pickSpread)
		for i := range n {
			hashes[i] = uint64(keys.ElementHash(fmt.Appendf(nil, name, i)))
		}
		slices.Sort(hashes)
		for i := range pickSpread {
			hashes = append(hashes, hashes[i]+1<<32)
		}
		least, most := math.Inf(1), 0.0
		for i := range n { // an element is chosen from any of the gaps between the pickSpread elements around it
			share := float64(hashes[i+pickSpread]-hashes[i]) / pickSpread / (1 << 32) * n
			least, most = min(least, share), max(most, share)
		}
		t.Logf("%s: %.2f to %.2f times the mean", name, least, most)
		if least < leastTimes || most > mostTimes {
			t.Errorf("%s: %.2f to %.2f times the mean", name, least, most)
		}
	}
}

// TestNamesOfOneHash: names that have the same hash are different elements, and a scan returns all of them at once.
func TestNamesOfOneHash(t *testing.T) {
	oneGoroutine(t)
	first := map[uint32]int{}
	var same []string // pairs
	for i := 0; len(same) < 20; i++ {
		name := strconv.Itoa(i)
		hash := keys.ElementHash([]byte(name))
		if other, there := first[hash]; there {
			same = append(same, strconv.Itoa(other), name)
		}
		first[hash] = i
	}
	d := newRegion(t)
	names := slices.Clone(same)
	for i := range 300 {
		names = append(names, fmt.Sprint("user:", i))
	}
	d.makeOf(names)
	for _, c := range []struct {
		scan   string
		values int
	}{{"sscan s", 1}, {"hscan h", 2}, {"zscan z", 2}} {
		var got []string
		for cursor, calls := "0", 0; calls == 0 || cursor != "0"; calls++ {
			if calls > len(names) {
				t.Fatalf("%s: no end", c.scan)
			}
			v := d.must(2, append(strings.Fields(c.scan), cursor, "count", "1")...)
			if cursor = string(v.Items[0].Text); len(cursor) > len("4294967295") {
				t.Fatalf("%s: cursor %s", c.scan, cursor)
			}
			part := texts(v.Items[1])
			for i := 0; i < len(part); i += c.values {
				got = append(got, part[i])
			}
			if n := len(part) / c.values; n == 0 || n > 2 {
				t.Errorf("%s: %d elements at once", c.scan, n)
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
			t.Errorf("%s: %d elements, want %d, each once", c.scan, len(got), len(want))
		}
	}
	for _, name := range same {
		d.must(2, "srem", "s", name)
	}
	if got := len(texts(d.must(2, "smembers", "s"))); got != 300 {
		t.Errorf("%d members are left, want 300", got)
	}
}

// BenchmarkDraw measures one draw, or several, in a read or an entry of its own, by the size of the collection and the
// kind of names.
func BenchmarkDraw(b *testing.B) {
	calls := []string{"srandmember s", "hrandfield h", "zrandmember z", "zrandmember z -10", "zrandmember z -100",
		"zrandmember z 10", "spop s"}
	for _, size := range []int{100, 1000, 100_000, 1_000_000} {
		for _, kind := range []string{"user:%d", "%016x"} {
			var d *region // one for all that follow, made when the first of them runs
			made := func() {
				if d != nil {
					return
				}
				d = newRegionOf(b, 80<<20)
				var names []string
				for i := range size {
					n := i
					if kind == "%016x" {
						n = int(uint64(i) * 0x9e3779b97f4a7c15 >> 1)
					}
					names = append(names, fmt.Sprintf(kind, n))
				}
				d.makeOf(names)
				if err := d.e.FlushAll(context.Background()); err != nil {
					b.Fatal(err)
				}
				d.must(2, "set", "other", "1") // no view is from before the flush
			}
			for _, call := range calls {
				if size == 1_000_000 && kind != "user:%d" {
					continue
				}
				name := "hash"
				if kind == "user:%d" {
					name = "number"
				}
				b.Run(fmt.Sprintf("%s/%d/%s", strings.ReplaceAll(call, " ", "_"), size, name), func(b *testing.B) {
					made()
					args := [][]byte{}
					for _, a := range strings.Fields(call) {
						args = append(args, []byte(a))
					}
					var out Reply
					b.ReportAllocs()
					for b.Loop() {
						out.Buf = out.Buf[:0]
						if err := d.call(args, &out); err != nil {
							b.Fatal(err)
						}
						if call == "spop s" {
							member := out.Buf[slices.Index(out.Buf, '\n')+1 : len(out.Buf)-2]
							if err := d.call([][]byte{[]byte("sadd"), []byte("s"), member}, &out); err != nil {
								b.Fatal(err)
							}
						}
					}
				})
			}
		}
	}
}

// seedDraws makes the draws of reads the same in every run.
func seedDraws(d *region, seed uint64) { d.r.chance = rand.New(rand.NewPCG(seed, 36)) }
