package redis

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// recount returns what redis_zset_rank must hold of a version with these members, in order: the rules of zset_counts.go
// once more.
func recount(slot topology.Slot, user []byte, version uint64, order []string,
	scores map[string]float64) map[string]string {
	want := map[string]string{}
	at := func(kind keys.RankKind) []byte {
		return append(keys.AppendCollection(nil, keys.ZSetRank, slot, user, version), byte(kind))
	}
	group, counts := at(keys.RankGroup), []uint64{0}
	parts := make([]uint64, 64)
	for _, member := range order {
		block, newGroup := begins(version, []byte(member))
		place := append(keys.AppendScore(nil, scores[member]), member...)
		switch {
		case newGroup:
			want[string(group)] = string(keys.AppendRankCounts(nil, counts))
			group, counts = append(at(keys.RankGroup), place...), []uint64{0}
		case block:
			want[string(append(at(keys.RankBlock), place...))] = "\x01"
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
		parts[keys.ElementHash([]byte(member))>>26]++
	}
	want[string(at(keys.RankParts))] = string(keys.AppendRankCounts(nil, parts))
	want[string(group)] = string(keys.AppendRankCounts(nil, counts))
	return want
}

// reclaim deletes all orphans.
func (d *region) reclaim() {
	d.t.Helper()
	err := d.write(func(w *Writer) error {
		for key, value := range d.stored() {
			if keys.Keyspace(key[0]) != keys.MetaInfo {
				continue
			}
			o, err := keys.ParseOrphan([]byte(key), []byte(value))
			if err != nil {
				return err
			}
			for _, ks := range Spaces(o.Type, o.Size) {
				lower := keys.AppendCollection(nil, ks, o.Slot, o.User, o.Version)
				if err := w.Batch.DeleteRange(lower, keys.Successor(bytes.Clone(lower))); err != nil {
					return err
				}
			}
			if err := w.Batch.Delete([]byte(key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// ranked checks the counts of all sorted sets against a recount, and that there are no others. Orphans have been
// reclaimed. It returns the sorted sets, by key, and the members in order.
func (d *region) ranked() (all map[string]map[string]float64, orders map[string][]string) {
	d.t.Helper()
	all, orders = d.zsets(), map[string][]string{}
	stored := d.stored()
	got := map[string]map[string]string{} // by front of the key
	for k, v := range stored {
		if keys.Keyspace(k[0]) == keys.ZSetRank {
			front := k[:keys.CollectionLen([]byte(k))]
			if got[front] == nil {
				got[front] = map[string]string{}
			}
			got[front][k] = v
		}
	}
	for user, scores := range all {
		orders[user] = slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
			return cmp.Or(cmp.Compare(scores[a], scores[b]), cmp.Compare(a, b))
		})
		slot := topology.SlotOf([]byte(user))
		m, err := keys.ParseMetadata([]byte(stored[string(keys.AppendMetadata(nil, slot, []byte(user)))]))
		if err != nil {
			d.t.Fatal(err)
		}
		front := string(keys.AppendCollection(nil, keys.ZSetRank, slot, []byte(user), m.Version))
		has := got[front]
		delete(got, front)
		if has == nil && len(scores) <= countFrom {
			continue
		}
		want := recount(slot, []byte(user), m.Version, orders[user], scores)
		if !maps.Equal(has, want) || len(scores) < countUntil {
			d.t.Errorf("%q, %d members: counts\n got %q\nwant %q", user, len(scores), has, want)
		}
	}
	for front := range got {
		d.t.Errorf("counts of a version that is not live: %q", front)
	}
	return all, orders
}

// TestRanks runs random batches of calls on sorted sets that grow and shrink beyond all limits of the counts. After
// each the counts are those of a recount, and what is read by them is what the order says. Many members begin blocks
// and groups.
func TestRanks(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	d := newRegion(t)
	pools := map[uint64][]string{}            // by version
	names := []string{"{t}a", "{t}b", "{t}c"} // all members of c have one score
	version := func(name string) uint64 {
		value, ok := d.has(metadataOf([]byte(name)))
		if !ok {
			return 0
		}
		m, err := keys.ParseMetadata([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		return m.Version
	}
	pool := func(v uint64) []string {
		if pools[v] == nil {
			for i, blocks, groups := 0, 0, 0; groups < 30; i++ {
				member := strconv.Itoa(random.IntN(1 << 30))
				block, group := begins(v, []byte(member))
				switch {
				case group:
					groups++
				case block && blocks < 300:
					blocks++
				case i > 2500:
					continue
				}
				pools[v] = append(pools[v], member)
			}
		}
		return pools[v]
	}
	str := strconv.Itoa
	call := func(name string, members []string) []string {
		some := func(n int) (out []string) {
			for range 1 + random.IntN(n) {
				out = append(out, members[random.IntN(len(members))])
			}
			return out
		}
		score := func() string {
			if name == "{t}c" {
				return "7"
			}
			return str(random.IntN(60) - 30)
		}
		other := names[random.IntN(len(names))]
		switch random.IntN(40) {
		case 0:
			return []string{[]string{"del", "unlink"}[random.IntN(2)], name}
		case 1:
			return []string{"copy", name, "{t}copy", "replace"}
		case 2:
			return []string{"rename", "{t}copy", other}
		case 3:
			return []string{"zunionstore", "{t}copy", "2", name, other}
		case 4:
			return []string{"set", name, "a string"}
		case 5, 6:
			return []string{"zpopmin", name, str(random.IntN(500))}
		case 7, 8:
			return []string{"zpopmax", name, str(random.IntN(500))}
		case 9, 10:
			first := random.IntN(2000)
			return []string{"zremrangebyrank", name, str(first), str(first + random.IntN(600))}
		case 11:
			first := random.IntN(60) - 30
			return []string{"zremrangebyscore", name, str(first), str(first + random.IntN(20))}
		case 12, 13, 14, 15:
			return append([]string{"zrem", name}, some(300)...)
		case 16, 17:
			if name == "{t}c" {
				return []string{"zremrangebylex", name, "[" + str(10+random.IntN(90)), "[" + str(10+random.IntN(90))}
			}
			return []string{"zincrby", name, str(random.IntN(30) - 15), some(1)[0]}
		case 18:
			if random.IntN(8) == 0 {
				return []string{"flushall"}
			}
			return []string{"expire", name, "1"}
		}
		args := []string{"zadd", name}
		for _, member := range some(400) {
			args = append(args, score(), member)
		}
		return args
	}
	run := func(w *Writer, args []string) {
		b := make([][]byte, len(args))
		for i, a := range args {
			b[i] = []byte(a)
		}
		var out Reply
		if err := w.Run(Lookup(b[0]), b, &out); err != nil {
			t.Fatalf("seed %d: %.60q: %v", seed, args, err)
		}
	}
	largest := 0
	steps := 200
	if testing.Short() {
		steps = 40
	}
	for step := range steps {
		own, other := d.w, random.IntN(8) == 0
		if other { // the Writer does not see this entry
			d.w = Writer{}
		}
		name := names[random.IntN(len(names))]
		members := pool(version(name))
		from, to, ranged := -1, -1, random.IntN(3)
		err := d.write(func(w *Writer) error {
			for range 1 + random.IntN(4) {
				run(w, call(name, members))
			}
			if from = random.IntN(2000); ranged == 0 {
				to = from + random.IntN(700)
				run(w, []string{"zrangestore", "{t}range", name, str(from), str(to)})
				if random.IntN(2) == 0 {
					run(w, []string{"zremrangebyrank", name, str(from), str(to)})
					from = -1
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if other {
			d.w = own
		}
		d.reclaim()
		if random.IntN(20) == 0 { // time goes by, what was to expire does
			d.state.TimeMS += 1000
		}
		all, orders := d.ranked()
		if t.Failed() {
			t.Fatalf("seed %d: step %d", seed, step)
		}
		order := orders[name]
		if largest = max(largest, len(order)); len(order) == 0 || d.must(2, "exists", name).String() != "1" {
			continue
		}
		if ranged == 0 && from >= 0 {
			want := order[min(from, len(order)):min(to+1, len(order))]
			if got := orders["{t}range"]; !slices.Equal(got, want) {
				t.Fatalf("seed %d: step %d: zrangestore %d %d: %q, want %q", seed, step, from, to, got, want)
			}
		} else if ranged == 0 {
			for _, member := range orders["{t}range"] {
				if _, there := all[name][member]; there {
					t.Fatalf("seed %d: step %d: zremrangebyrank leaves %q", seed, step, member)
				}
			}
		}
		reversed := slices.Clone(order)
		slices.Reverse(reversed)
		same := func(want []string, args ...string) {
			t.Helper()
			if got := texts(d.must(2, args...)); !slices.Equal(got, want) {
				t.Fatalf("seed %d: step %d: %q of %d: %q, want %q", seed, step, args, len(order), got, want)
			}
		}
		scores := all[name]
		for range 4 {
			n := len(order)
			i := random.IntN(n)
			j := min(i+random.IntN(8), n-1)
			d.scenario(fmt.Sprintf("zrank %s %s => %d\nzrevrank %s %s => %d", name, order[i], i, name, order[i], n-1-i))
			same(order[i:j+1], "zrange", name, str(i), str(j))
			same(reversed[i:j+1], "zrevrange", name, str(i), str(j))
			low, high := scores[order[i]], scores[order[random.IntN(n)]]
			low, high = min(low, high), max(low, high)
			var between []string
			for _, member := range order {
				if low <= scores[member] && scores[member] <= high {
					between = append(between, member)
				}
			}
			d.scenario(fmt.Sprintf("zcount %s %v %v => %d", name, low, high, len(between)))
			skip := random.IntN(len(between) + 100)
			part := between[min(skip, len(between)):min(skip+3, len(between))]
			same(part, "zrangebyscore", name, fmt.Sprint(low), fmt.Sprint(high), "limit", str(skip), "3")
			slices.Reverse(between)
			part = between[min(skip, len(between)):min(skip+3, len(between))]
			same(part, "zrevrangebyscore", name, fmt.Sprint(high), fmt.Sprint(low), "limit", str(skip), "3")
			if scores[order[0]] == scores[order[n-1]] {
				k := random.IntN(n)
				i, k := min(i, k), max(i, k)
				d.scenario(fmt.Sprintf("zlexcount %s [%s (%s => %d\nzlexcount %s - + => %d", name, order[i], order[k],
					k-i, name, n))
				skip := random.IntN(n)
				same(order[skip:min(skip+3, n)], "zrangebylex", name, "-", "+", "limit", str(skip), "3")
				same(reversed[skip:min(skip+3, n)], "zrevrangebylex", name, "+", "-", "limit", str(skip), "3")
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: step %d", seed, step)
		}
	}
	d.must(2, append([]string{"del", "{t}range", "{t}copy"}, names...)...)
	d.reclaim()
	if left := d.stored(); len(left) > 0 {
		t.Errorf("seed %d: %d records are left", seed, len(left))
	}
	if largest <= countFrom {
		t.Errorf("seed %d: at most %d members", seed, largest)
	}
}

// TestRanksWithinABatch reads places of a large sorted set in the batch in which members have come: a command finds its
// members by the counts of that moment, whatever the batch has yet to be told.
func TestRanksWithinABatch(t *testing.T) {
	for _, c := range []struct{ call, want string }{
		{"sort {a}z by nosort limit 3500 10 store {a}d", "10"},
		{"sort {a}z by nosort desc limit 3500 10 store {a}d", "10"},
		{"zrangestore {a}d {a}z 3500 3509", "10"},
		{"zrangestore {a}d {a}z 3500 3509 rev", "10"},
		{"zrangestore {a}d {a}z -inf +inf byscore limit 3500 10", "10"},
		{"zrangestore {a}d {a}z +inf -inf byscore rev limit 3500 10", "10"},
		{"zremrangebyrank {a}z 3500 3509", "10"},
	} {
		d := newRegion(t)
		add := func(from int) [][]byte {
			args := [][]byte{[]byte("zadd"), []byte("{a}z")}
			for i := range 2000 {
				args = append(args, fmt.Append(nil, from+i), fmt.Append(nil, "m", from+i))
			}
			return args
		}
		var out Reply
		if err := d.call(add(0), &out); err != nil {
			t.Fatal(err)
		}
		out.Buf = nil
		err := d.write(func(w *Writer) error {
			if err := w.Run(Lookup([]byte("zadd")), add(2000), &Reply{}); err != nil {
				return err
			}
			args, err := redistest.ParseCall(c.call)
			if err != nil {
				return err
			}
			var b [][]byte
			for _, a := range args {
				b = append(b, []byte(a))
			}
			return w.Run(Lookup(b[0]), b, &out)
		})
		if err != nil || string(out.Buf) != ":"+c.want+"\r\n" {
			t.Errorf("%s: %q, %v; want %s", c.call, out.Buf, err, c.want)
		}
	}
}

// TestBegins checks which members begin blocks and groups, which is part of the storage format.
func TestBegins(t *testing.T) {
	for _, c := range []struct {
		version uint64
		// Of the members 0, 1, 2 ...: the first that begin a block, and the first that begins a group.
		blocks, group []int
	}{
		{1, []int{234, 946, 1321, 1336}, []int{16032}},
		{0x0102030405060708, []int{371, 475, 625, 1885}, []int{1885}},
	} {
		var blocks, group []int
		for i := 0; len(group) == 0; i++ {
			ofBlock, ofGroup := begins(c.version, strconv.AppendInt(nil, int64(i), 10))
			if ofBlock && len(blocks) < 4 {
				blocks = append(blocks, i)
			}
			if ofGroup {
				group = append(group, i)
			}
		}
		if !slices.Equal(blocks, c.blocks) || !slices.Equal(group, c.group) {
			t.Errorf("version %d: blocks begin with %d, a group with %d; want %d and %d", c.version, blocks, group,
				c.blocks, c.group)
		}
	}
}

// BenchmarkRank measures, by the size of a sorted set, the cost of reading places in its order, and what the counts
// cost commands that change it. Members have random scores and come in random order, 64 commands in an entry. move
// gives a member another score, swap adds a member and removes another. Each read has a view of its own.
func BenchmarkRank(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		var d *region // one for all that follow, made when the first of them runs
		random := rand.New(rand.NewPCG(1, uint64(size)))
		number := func(n int) []byte { return strconv.AppendInt(nil, random.Int64N(int64(n)), 10) }
		member := func(i int) []byte { return fmt.Appendf(nil, "member:%09d", i) }
		made := func() {
			if d != nil {
				return
			}
			d = newRegionOf(b, 80<<20) // what a store of three has by default
			for i := 0; i < size; {
				args := [][]byte{[]byte("zadd"), []byte("z")}
				for ; i < size && len(args) < 200; i++ {
					args = append(args, number(size), member(i))
				}
				if err := d.call(args, &Reply{}); err != nil {
					b.Fatal(err)
				}
			}
		}
		reads := []struct {
			name string
			args func() [][]byte
		}{
			{"zrank", func() [][]byte { return [][]byte{[]byte("zrank"), []byte("z"), member(random.IntN(size))} }},
			{"zcount", func() [][]byte {
				return [][]byte{[]byte("zcount"), []byte("z"), number(size / 2),
					strconv.AppendInt(nil, int64(size/2)+random.Int64N(int64(size/2)), 10)}
			}},
			{"zcount-10", func() [][]byte {
				low := random.Int64N(int64(size))
				return [][]byte{[]byte("zcount"), []byte("z"), strconv.AppendInt(nil, low, 10),
					strconv.AppendInt(nil, low+9, 10)}
			}},
			{"zrange-10", func() [][]byte {
				first := random.Int64N(int64(size))
				return [][]byte{[]byte("zrange"), []byte("z"), strconv.AppendInt(nil, first, 10),
					strconv.AppendInt(nil, first+9, 10)}
			}},
		}
		for _, x := range reads {
			b.Run(fmt.Sprintf("%s/%d", x.name, size), func(b *testing.B) {
				made()
				calls := make([][][]byte, 1024)
				for i := range calls {
					calls[i] = x.args()
				}
				row, run := Lookup(calls[0][0]), Run{}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					run.Reset()
					run.Calls = append(run.Calls, Call{row, calls[i%len(calls)]})
					if err := d.read(func(r *Reader) error { return r.Execute(&run) }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		first := 0
		zadd, zrem := Lookup([]byte("zadd")), Lookup([]byte("zrem"))
		for _, name := range []string{"move", "swap"} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				made()
				const entry = 64
				out := Reply{}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					err := d.write(func(w *Writer) error {
						for range entry / 2 {
							other, row := first, zrem
							if name == "move" {
								other, row = first+random.IntN(size), zadd
							}
							out.Buf = out.Buf[:0]
							add := [][]byte{[]byte("zadd"), []byte("z"), number(size), member(first + size)}
							if name == "move" {
								add[3] = member(first + random.IntN(size))
							}
							if err := w.Run(zadd, add, &out); err != nil {
								return err
							}
							args := [][]byte{[]byte("zrem"), []byte("z"), member(other)}
							if name == "move" {
								args = [][]byte{[]byte("zadd"), []byte("z"), number(size), member(other)}
							} else {
								first++
							}
							if err := w.Run(row, args, &out); err != nil {
								return err
							}
							n += 2
						}
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/command")
			})
		}
	}
}
