package redis

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	undoCalls = flag.Int("undo.calls", 10_000, "random calls of TestUndo")
	undoSeed  = flag.Uint64("undo.seed", 0, "seed of its random choices; 0 for any")
)

// sober compares a region that takes calls back with one that never makes them.
type sober struct {
	*testing.T
	*rand.Rand
	regions [2]*region // the first one makes the calls that it takes back
	now     uint64
	undone  int
	ahead   int // calls taken back that have written ahead of their batch
	done    map[*Command]int
}

// batch runs some units, and commits them together. Of the units one of four is taken back.
func (x *sober) batch(units [][]Call) {
	index := x.regions[0].state.ApplyIndex + 1
	x.now += x.Uint64N(50)
	base := x.Uint64N(1000)
	var batches [2]*engine.Batch
	var replies [2]Reply
	for i, d := range x.regions {
		batches[i] = d.e.NewBatch()
		d.state.ApplyIndex, d.state.TimeMS = index, max(d.state.TimeMS, x.now)
		d.w.Batch, d.w.State, d.w.Index, d.w.VersionBase = batches[i], &d.state, index, base
		d.w.SoonestMS, d.w.Orphans, d.w.Flushed = NoExpiry, Orphans{}, false
		d.w.Effects.Reset()
	}
	run := func(i int, c *Call) {
		replies[i].Buf = replies[i].Buf[:0]
		if err := x.regions[i].w.Run(c.Command, c.Args, &replies[i]); err != nil {
			x.Fatalf("%q: %v", c.Args, err)
		}
	}
	for _, unit := range units {
		back := x.IntN(4) == 0
		drunk := x.regions[0]
		point, err := Point{}, error(nil)
		if back || x.IntN(2) == 0 { // Save alone changes nothing
			point, err = drunk.w.Save()
		}
		for i := range unit {
			if err != nil {
				x.Fatal(err)
			}
			before := batches[0].Len()
			run(0, &unit[i])
			if !back {
				run(1, &unit[i])
				if !bytes.Equal(replies[0].Buf, replies[1].Buf) {
					x.Fatalf("%.1000q: reply %.300q, without the calls taken back %.300q", unit[i].Args, replies[0].Buf,
						replies[1].Buf)
				}
			} else if batches[0].Len() > before {
				x.done[unit[i].Command]++
			}
		}
		if !back {
			continue
		}
		x.undone += len(unit)
		given := len(drunk.w.begun) - point.begun
		if err := drunk.w.Undo(point); err != nil {
			x.Fatal(err)
		}
		x.ahead += given
		other := x.regions[1]
		other.state.LastVersion = max(other.state.LastVersion, drunk.state.LastVersion)
		if got, want := drunk.w.Orphans.Collections-uint64(given), point.orphans.Collections; got != want {
			x.Fatalf("%d orphans besides the %d versions given up, want %d", got, given, want)
		}
		drunk.w.Orphans = point.orphans
	}
	if got, want := batches[0].HasRanges(), batches[1].HasRanges(); got != want {
		x.Fatalf("range deletions: %v, without the calls taken back %v", got, want)
	}
	a, b := &x.regions[0].w, &x.regions[1].w
	if a.SoonestMS != b.SoonestMS || a.Orphans != b.Orphans || a.Flushed != b.Flushed {
		x.Fatalf("soonest %d, orphans %v, flushed %v; without the calls taken back %d, %v, %v", a.SoonestMS, a.Orphans,
			a.Flushed, b.SoonestMS, b.Orphans, b.Flushed)
	}
	if len(a.Effects.All) != len(b.Effects.All) {
		x.Fatalf("effects %v, without the calls taken back %v", a.Effects.All, b.Effects.All)
	}
	for i, d := range x.regions {
		if err := d.w.Finish(); err != nil {
			x.Fatal(err)
		}
		if err := batches[i].Commit(false); err != nil {
			x.Fatal(err)
		}
	}
	if a, b := x.regions[0].state, x.regions[1].state; a != b {
		x.Fatalf("region state %+v, without the calls taken back %+v", a, b)
	}
}

// compare compares what both store once their orphans are reclaimed.
func (x *sober) compare() {
	var all [2]map[string]string
	for i, d := range x.regions {
		d.reclaim()
		all[i] = d.stored()
		if err := sound(all[i]); err != nil {
			x.Fatal(err)
		}
	}
	for key, value := range all[0] {
		if other, ok := all[1][key]; !ok || value != other {
			x.Errorf("under %.200q there is %.100q, without the calls taken back %.100q, %v", key, value, other, ok)
		}
	}
	if len(all[0]) != len(all[1]) {
		x.Fatalf("%d records, without the calls taken back %d", len(all[0]), len(all[1]))
	}
}

// TestUndo runs random units of calls, takes some of them back, and compares with a region that has never run those.
func TestUndo(t *testing.T) {
	seed := *undoSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-undo.seed=%d", seed)
	limit(t, 20<<10)
	x := &sober{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), now: start, done: map[*Command]int{}}
	normal := engine.AheadBytes
	defer func() { engine.AheadBytes = normal }()
	for i := range x.regions {
		x.regions[i] = newRegion(t)
		x.regions[i].w.Effects = new(Effects)
	}
	if x.IntN(2) == 0 {
		setWriteLimit(t, 50+x.IntN(500))
	}
	shortPieces(t, 1+x.IntN(40))
	g := &redistest.CallGenerator{Rand: x.Rand, Tag: "{t}", Piece: pieceBytes}
	most := *undoCalls
	if testing.Short() {
		most /= 10
	}
	var left []string
	never := func() (all []string) { // which a run of chance goes on for
		for _, row := range withOwn.Rows() {
			for _, c := range append([]*Command{row}, row.Sub...) {
				if c.Write != nil && x.done[c] == 0 && !testing.Short() {
					all = append(all, c.FullName())
				}
			}
		}
		return all
	}
	for calls, last := 0, 0; calls < most || len(left) > 0 || calls < 20*most && len(never()) > 0; {
		engine.AheadBytes = 100 + x.IntN(20_000)
		var units [][]Call
		for range 1 + x.IntN(6) {
			var unit []Call
			for range 1 + x.IntN(6) {
				some, surely := odd(g), x.IntN(4) == 0
				if surely {
					if len(left) == 0 {
						left = append(left, sure...)
					}
					n := x.IntN(len(left))
					some = nil
					for call := range strings.SplitSeq(left[n], "; ") {
						some = append(some, callOf(call))
					}
					left = append(left[:n], left[n+1:]...)
				}
				if x.IntN(8) == 0 { // choices that show
					set := fmt.Sprintf("{t}set%d", 4+x.IntN(3))
					some = append(some, callOf("sadd "+set+" a b c d e f g h i j k"), callOf("srandmember "+set),
						callOf("spop "+set))
				}
				for _, args := range some {
					if row := LookupInUnit(args); row != nil && row.CheckArity(len(args)) {
						if !strings.HasPrefix(row.Name, "flush") || surely || x.IntN(3) == 0 {
							unit = append(unit, Call{row, args})
						}
					}
				}
			}
			units = append(units, unit)
			calls += len(unit)
		}
		x.batch(units)
		switch x.IntN(20) {
		case 0:
			for _, d := range x.regions { // a restart
				d.w = Writer{Effects: new(Effects)}
			}
		}
		if calls > last+500 {
			x.compare()
			last = calls
		}
	}
	x.compare()
	t.Logf("%d calls taken back, with %d versions that may have been written ahead", x.undone, x.ahead)
	if all := never(); len(all) > 0 {
		t.Errorf("%v have never been taken back after they had changed something", all)
	}
}
