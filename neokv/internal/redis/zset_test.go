package redis

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// zsets returns what is stored of sorted sets that are live, by key: members with their scores; it checks that the
// record counts them and that the score index has the same.
func (d *region) zsets() map[string]map[string]float64 {
	d.t.Helper()
	type version struct {
		key string
		n   uint64
	}
	stored := d.stored()
	sizes, skiplists := map[version]uint64{}, map[version]bool{}
	for k, v := range stored {
		if keys.Keyspace(k[0]) != keys.RedisMetadata {
			continue
		}
		parsed, err := keys.ParseRedis([]byte(k))
		if err != nil {
			d.t.Fatal(err)
		}
		m, err := keys.ParseMetadata([]byte(v))
		if err != nil {
			d.t.Fatal(err)
		}
		if m.Type == keys.ZSet {
			at := version{string(parsed.User), m.Version}
			sizes[at], skiplists[at] = m.Size, m.Skiplist
		}
	}
	all, indexed := map[string]map[string]float64{}, map[string]int{}
	for k, v := range stored {
		ks := keys.Keyspace(k[0])
		if ks != keys.Data && ks != keys.ZSetScore {
			continue
		}
		parsed, err := keys.ParseRedis([]byte(k))
		if err != nil {
			d.t.Fatal(err)
		}
		user := string(parsed.User)
		if ks == keys.Data {
			n, sub, _ := parsed.Subkey()
			if _, ok := sizes[version{user, n}]; ok {
				if all[user] == nil {
					all[user] = map[string]float64{}
				}
				all[user][string(nameIn(sub))] = keys.Score([]byte(v))
			}
			continue
		}
		n, score, member := parseScoreKey(parsed)
		if _, ok := sizes[version{user, n}]; !ok {
			continue
		}
		indexed[user]++
		at := subkeyOf(parsed.Slot, parsed.User, n, member)
		value, ok := stored[string(at)]
		if !ok || string(scoreKeyOf(parsed.Slot, parsed.User, n, keys.Score([]byte(value)),
			member)) != k || string(keys.ScoreSign(keys.Score([]byte(value)))) != v {
			d.t.Errorf("%q: the index has %q with score %v and %q, its element is %x, %v", user, member, score, v,
				value, ok)
		}
		if v != "" && !skiplists[version{user, n}] {
			d.t.Errorf("%q: %q has a score of -0, and the record names no skiplist", user, member)
		}
	}
	for v, size := range sizes {
		if len(all[v.key]) != int(size) || indexed[v.key] != int(size) || size == 0 {
			d.t.Errorf("%q: %d members, %d in the index, the record counts %d", v.key, len(all[v.key]), indexed[v.key],
				size)
		}
	}
	return all
}

// TestStoredZSets: after random calls records, members and score index agree, nothing but orphans is left beside them,
// and another replica has the same bytes.
func TestStoredZSets(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	a, b := newRegion(t), newRegion(t)
	g := redistest.CallGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), Tag: "{t}"}
	for _, f := range redistest.Families {
		if f.Name != "zset" {
			continue
		}
		for i := range 3000 {
			for _, call := range f.Make(&g) {
				replies := make([][]byte, 2)
				for i, d := range []*region{a, b} {
					args := make([][]byte, len(call))
					for i, arg := range call {
						args[i] = []byte(arg)
					}
					var out Reply
					if err := d.call(args, &out); err != nil {
						t.Fatalf("seed %d: %q: %v", seed, call, err)
					}
					replies[i] = out.Buf
				}
				if !bytes.Equal(replies[0], replies[1]) && call[0][0]|0x20 == 'z' &&
					!bytes.EqualFold([]byte(call[0]), []byte("zrandmember")) {
					t.Errorf("seed %d: %q: %q and %q", seed, call, replies[0], replies[1])
				}
			}
			if i%500 == 0 {
				if a.zsets(); t.Failed() {
					t.Fatalf("seed %d: after %d calls", seed, i)
				}
			}
		}
	}
	if len(a.zsets()) == 0 {
		t.Errorf("seed %d: nothing is stored", seed)
	}
	if !maps.Equal(a.stored(), b.stored()) || a.state != b.state {
		t.Errorf("seed %d: two replicas differ", seed)
	}
}

// TestZSetBytes checks the keys and values of a sorted set, and what is left of it.
func TestZSetBytes(t *testing.T) {
	d := newRegion(t)
	d.w.VersionBase = 1000
	slot := keys.RedisKey{}.Slot
	if k, err := keys.ParseRedis(metadataOf([]byte("z"))); err == nil {
		slot = k.Slot
	}
	check := func(when string, size uint64, members map[string]float64) {
		t.Helper()
		want := map[string]string{}
		if size > 0 {
			m := keys.Metadata{Type: keys.ZSet, Version: 1001, Size: size}
			want[string(keys.AppendMetadata(nil, slot, []byte("z")))] = string(m.Append(nil))
		}
		for member, score := range members {
			want[string(subkeyOf(slot, []byte("z"), 1001, []byte(member)))] = string(
				keys.AppendScore(nil, score))
			want[string(scoreKeyOf(slot, []byte("z"), 1001, score, []byte(member)))] = ""
		}
		if got := d.stored(); !maps.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", when, got, want)
		}
	}
	d.scenario("zadd z -1.5 a inf b -0 c => 3")
	check("made", 3, map[string]float64{"a": -1.5, "b": math.Inf(1), "c": 0})
	d.scenario("zadd z 2 a 0 c => 0\nzincrby z -0 c => \"0\"\nzrem z b => 1")
	check("changed", 2, map[string]float64{"a": 2, "c": 0})
	d.scenario("zpopmin z 5 => [\"c\" \"0\" \"a\" \"2\"]\nzadd no xx 1 a => 0\nzunionstore no 1 z => 0\n" +
		"zremrangebyscore z -inf inf => 0")
	check("emptied", 0, nil)

	long := strings.Repeat("l", maxPackedBytes+1)
	d.scenario("zadd y -0 " + long + " 0 m 1 n => 3\nzadd y -0 n => 0\nzrem y m => 1")
	zero, negative := keys.AppendScore(nil, 0), keys.AppendScore(nil, math.Copysign(0, -1))
	slot = topology.SlotOf([]byte("y"))
	m := keys.Metadata{Type: keys.ZSet, Version: 1002, Size: 2, Skiplist: true}
	want := map[string]string{string(keys.AppendMetadata(nil, slot, []byte("y"))): string(m.Append(nil))}
	for _, member := range []string{long, "n"} {
		want[string(subkeyOf(slot, []byte("y"), 1002, []byte(member)))] = string(negative)
		index := append(keys.AppendCollection(nil, keys.ZSetScore, slot, []byte("y"), 1002), zero...)
		want[string(index)+member] = "-"
	}
	if got := d.stored(); !maps.Equal(got, want) {
		t.Errorf("scores of -0:\n got %q\nwant %q", got, want)
	}
}

// TestZSetRanges compares ranges of a large sorted set with a sorted slice, also where they are walked to from the end.
func TestZSetRanges(t *testing.T) {
	d := newRegion(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 2500
	scores := map[string]int{}
	for len(scores) < n {
		args := []string{"zadd", "z"}
		for range 100 {
			member := strconv.Itoa(random.IntN(1 << 20))
			scores[member] = random.IntN(200) - 100
			args = append(args, strconv.Itoa(scores[member]), member)
		}
		d.must(2, args...)
	}
	order := slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
		if scores[a] != scores[b] {
			return scores[a] - scores[b]
		}
		return bytes.Compare([]byte(a), []byte(b))
	})
	reversed := slices.Clone(order)
	slices.Reverse(reversed)
	same := func(want []string, call ...string) {
		t.Helper()
		if got := texts(d.must(2, call...)); !slices.Equal(got, want) {
			t.Errorf("seed %d: %q: %d members, want %d", seed, call, len(got), len(want))
		}
	}
	for range 60 {
		first := random.IntN(len(order))
		last := min(first+random.IntN(50), len(order)-1)
		same(order[first:last+1], "zrange", "z", strconv.Itoa(first), strconv.Itoa(last))
		same(reversed[first:last+1], "zrange", "z", strconv.Itoa(first), strconv.Itoa(last), "rev")
		same(order[first:last+1], "zrange", "z", strconv.Itoa(first-len(order)), strconv.Itoa(last-len(order)))
		d.scenario(fmt.Sprintf("zrank z %s => %d\nzrevrank z %s => %d", order[first], first, order[first],
			len(order)-1-first))
		low := random.IntN(200) - 100
		high := low + random.IntN(20)
		var between, inside []string
		for _, member := range order {
			if s := scores[member]; low <= s && s <= high {
				between = append(between, member)
				if low < s && s < high {
					inside = append(inside, member)
				}
			}
		}
		d.scenario(fmt.Sprintf("zcount z %d %d => %d\nzcount z (%d (%d => %d", low, high, len(between), low, high,
			len(inside)))
		same(between, "zrangebyscore", "z", strconv.Itoa(low), strconv.Itoa(high))
		same(inside, "zrange", "z", fmt.Sprint("(", low), fmt.Sprint("(", high), "byscore")
		slices.Reverse(between)
		same(between, "zrevrangebyscore", "z", strconv.Itoa(high), strconv.Itoa(low))
	}
	// All members, part by part.
	seen, cursor := map[string]bool{}, "0"
	for {
		v := d.must(2, "zscan", "z", cursor, "count", "700")
		items := texts(v.Items[1])
		for i := 0; i < len(items); i += 2 {
			seen[items[i]] = items[i+1] == strconv.Itoa(scores[items[i]])
		}
		if cursor = string(v.Items[0].Text); cursor == "0" {
			break
		}
	}
	for _, member := range order {
		if !seen[member] {
			t.Errorf("seed %d: ZSCAN does not return %q with its score", seed, member)
		}
	}
}

// TestPopsFindTheEnds: whatever comes between them, pops return the lowest and the highest members; also where entries
// have been passed over that brought a member below what is remembered, as a region snapshot does.
func TestPopsFindTheEnds(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	var order []string // "score member", of two digits each
	for i := range 4000 {
		name, n := "zpopmin", 1+random.IntN(3)
		switch random.IntN(5) {
		case 0, 1:
			score, member := 10+random.IntN(90), fmt.Sprint(10+random.IntN(90))
			order = slices.DeleteFunc(order, func(s string) bool { return s[3:] == member })
			order = append(order, fmt.Sprint(score, " ", member))
			slices.Sort(order)
			w := d.w
			if elsewhere := random.IntN(4) == 0; elsewhere {
				d.w = Writer{}
				d.must(2, "zadd", "z", fmt.Sprint(score), member)
				d.w = w
			} else {
				d.must(2, "zadd", "z", fmt.Sprint(score), member)
			}
			continue
		case 2:
			name = "zpopmax"
			slices.Reverse(order)
		}
		n = min(n, len(order))
		want := slices.Clone(order[:n])
		if order = order[n:]; name == "zpopmax" {
			slices.Reverse(order)
		}
		var got []string
		popped := texts(d.must(2, name, "z", strconv.Itoa(n)))
		for i := 0; i+1 < len(popped); i += 2 {
			got = append(got, popped[i+1]+" "+popped[i])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: call %d: %s of %d: %q, want %q", seed, i, name, n, got, want)
		}
	}
}

// TestParseDouble compares with what C's strtod reads.
func TestParseDouble(t *testing.T) {
	for _, c := range []struct {
		text  string
		f     float64
		exact bool
		ok    bool
	}{
		{"1", 1, true, true}, {"-1.5e3", -1500, true, true}, {"+.5", .5, true, true}, {"5.", 5, true, true},
		{"0x10", 16, true, true}, {"0x.8", .5, true, true}, {"-0X1P3", -8, true, true}, {"0x", 0, false, false},
		{"0xp1", 0, false, false}, {"Inf", math.Inf(1), true, true}, {"-infinity", math.Inf(-1), true, true},
		{"nan", 0, false, false}, {"infin", 0, false, false}, {"1e400", math.Inf(1), false, true},
		{"-1e400", math.Inf(-1), false, true}, {"1e-400", 0, false, true}, {"0x1p-1080", 0, false, true},
		{"0e99999", 0, true, true}, {"0.000", 0, true, true}, {"0x0p5", 0, true, true}, {"5e-324", 5e-324, true, true},
		{"", 0, false, false}, {".", 0, false, false}, {"1_0", 0, false, false}, {"0x_1", 0, false, false},
		{"1e", 0, false, false}, {" 1", 0, false, false}, {"1 ", 0, false, false}, {"1\x00", 0, false, false},
		{"9007199254740993", 9007199254740992, true, true},
	} {
		if f, exact, ok := parseDouble([]byte(c.text)); f != c.f || exact != c.exact || ok != c.ok {
			t.Errorf("parseDouble(%q) = %v, %v, %v; want %v, %v, %v", c.text, f, exact, ok, c.f, c.exact, c.ok)
		}
	}
}

// BenchmarkZSet counts commands, 64 of them in an entry or a read, on a sorted set of 100,000 members.
func BenchmarkZSet(b *testing.B) {
	for _, name := range []string{"zadd", "zincrby", "zscore", "zpopmin", "zrange"} {
		b.Run(name, func(b *testing.B) {
			d := newRegion(b)
			const n, size = 100_000, 64
			for i := 0; i < n; {
				args := []string{"zadd", "z"}
				for ; i < n && len(args) < 2000; i++ {
					args = append(args, strconv.Itoa(i), fmt.Sprint("m", i))
				}
				d.must(2, args...)
			}
			random := rand.New(rand.NewPCG(1, 2))
			calls := make([][][]byte, 4096)
			for i := range calls {
				member, score := fmt.Append(nil, "m", random.IntN(2*n)), strconv.AppendInt(nil, random.Int64N(n), 10)
				switch calls[i] = [][]byte{[]byte(name), []byte("z")}; name {
				case "zscore":
					calls[i] = append(calls[i], member)
				case "zrange":
					calls[i] = append(calls[i], []byte("0"), []byte("9"))
				case "zadd", "zincrby":
					calls[i] = append(calls[i], score, member)
				}
			}
			row := Lookup([]byte(name))
			run := Run{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i += size {
				calls := calls[i%len(calls):][:size]
				run.Reset()
				var err error
				if row.Read != nil {
					for _, args := range calls {
						run.Calls = append(run.Calls, Call{row, args})
					}
					err = d.read(func(r *Reader) error { return r.Execute(&run) })
				} else {
					err = d.write(func(w *Writer) error {
						for _, args := range calls {
							if err := w.Run(row, args, &run.Out); err != nil {
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
