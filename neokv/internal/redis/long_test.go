package redis

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis/redistest"
)

// TestLongCallsLook makes random calls of every command of the table, about large keys and with many arguments, and
// ends each at one of its first looks. No call works for long without a look, and each returns soon after the look that
// ended it. That takes some milliseconds; the bound is a thousand times as long.
func TestLongCallsLook(t *testing.T) {
	oneGoroutine(t)
	const bound = 10 * time.Second
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	d := newRegion(t)
	fill := func(call string, n int, f func(i int) string) {
		for i := 0; i < n; i += 1000 {
			args := strings.Fields(call)
			for k := range 1000 {
				args = append(args, strings.Fields(f(i+k))...)
			}
			d.must(2, args...)
		}
	}
	const n = 50_000
	for i := range 3 {
		fill(fmt.Sprint("hset {t}hash", i+1), n, func(k int) string { return fmt.Sprint("f", k, " ", k) })
		fill(fmt.Sprint("sadd {t}set", i+1), n, func(k int) string { return fmt.Sprint("m", k) })
		fill(fmt.Sprint("rpush {t}list", i+1), n, func(k int) string { return fmt.Sprint(k * 7919 % n) })
		fill(fmt.Sprint("zadd {t}zset", i+1), n, func(k int) string { return fmt.Sprint(k%100, " m", k) })
	}
	for i, key := range []string{"a", "b", "c", "d"} {
		d.must(2, "set", "{t}"+key, strings.Repeat("ab", 5000+i))
	}
	d.must(2, "set", "{t}e", strings.Repeat("x", 64<<20))

	over := errors.New("over")
	type timing struct{ gap, end time.Duration }
	var worst = map[string]timing{}
	run := func(c *Command, args [][]byte) {
		last := time.Now()
		var times timing
		left := random.IntN(4)
		w := &engine.Work{Look: func() error {
			times.gap = max(times.gap, time.Since(last))
			last = time.Now()
			if left--; left < 0 {
				return over
			}
			return nil
		}}
		w.Spend(1) // the first look
		if c.Write != nil {
			state := d.state
			b := d.e.NewBatch()
			state.ApplyIndex++
			writer := Writer{Batch: b, State: &state, Index: state.ApplyIndex, VersionBase: random.Uint64() >> 1, Work: w}
			out := Reply{Room: 1 << 20, More: noMore}
			_ = writer.Run(c, args, &out)
			b.Close()
		} else {
			calls := Run{Calls: []Call{{c, args}}, Work: w}
			calls.Out.Room, calls.Out.More = 64<<20, noMore
			_ = d.read(func(r *Reader) error { return r.Execute(&calls) })
		}
		times.end = time.Since(last)
		if times.gap > bound || times.end > bound {
			t.Errorf("%.200q: %s without a look, %s after the last look", args, times.gap, times.end)
		}
		best := worst[c.FullName()]
		worst[c.FullName()] = timing{max(best.gap, times.gap), max(best.end, times.end)}
	}
	g := &redistest.CallGenerator{Rand: random, Tag: "{t}"}
	drawn := map[*Command]int{}
	for range 20_000 {
		for _, call := range g.Calls(true) {
			args := make([][]byte, len(call))
			for i := range call {
				args[i] = []byte(call[i])
			}
			c := withOwn.Find(args, new(Reply))
			if c == nil || !c.CheckArity(len(args)) || c.Read == nil && c.Write == nil || drawn[c] == 25 {
				continue
			}
			if c.ReadBy != nil && c.ReadBy(args) != nil {
				c = c.ReadBy(args)
			}
			drawn[c]++
			run(c, args)
			if c.Arity < 0 && len(args) > 2 { // the last one or two again and again
				n := 3000
				if drawn[c] <= 2 {
					n = 1 << 18
				}
				many, step := slices.Clone(args), 1+random.IntN(2)
				for len(many) < n {
					many = append(many, args[len(args)-step:]...)
				}
				run(c, many)
			}
		}
	}
	for _, line := range sure { // the generator draws none that may wait
		for call := range strings.SplitSeq(line, "; ") {
			args := callOf(call)
			if c := withOwn.Find(args, new(Reply)); c.Blocks != nil {
				drawn[c]++
				run(c, args)
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(worst), func(a, b string) int {
		return cmp.Compare(max(worst[b].gap, worst[b].end), max(worst[a].gap, worst[a].end))
	})
	for _, name := range names[:min(12, len(names))] {
		t.Logf("%s: %s without a look, %s after the last look", name, worst[name].gap, worst[name].end)
	}
	for _, row := range data.Rows() {
		if (row.Read != nil || row.Write != nil) && drawn[row] == 0 {
			t.Errorf("%s was not called", row.Name)
		}
	}
}
