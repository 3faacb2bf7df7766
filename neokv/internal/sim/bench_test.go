package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/bench"
	"neokv.dev/neokv"
	"neokv.dev/results"
)

// TestBenchVerifiesUnderKills runs `bench --verify` against a cluster whose stores are killed, one at a time and all
// at once: it finds every acknowledged write. Where the log is not synced, the same run finds that writes are lost.
func TestBenchVerifiesUnderKills(t *testing.T) {
	notShort(t)
	const virtual = 12 * time.Second
	for _, x := range []struct {
		workload string
		planted  bool
	}{
		{"mixed", false}, {"ycsb-d", false}, {"ycsb-f", false}, {"hash", false}, {"queue", false},
		{"chat", false}, {"session", false}, {"bigkey", false},
		{"mixed", true}, {"queue", true},
	} {
		name := x.workload
		if x.planted {
			name += " without syncs"
		}
		t.Run(name, func(t *testing.T) {
			s := &sim{seed: *simFirst, config: neokv.Config{InMemory: true, NoSockets: true}}
			var sum results.Summary
			var benchErr error
			load := func(s *sim, _ *rand.Rand) {
				sum, benchErr = bench.Run(context.Background(), bench.Options{
					Targets: s.c.Addrs(), Dial: s.c.Dial, Duration: virtual - 4*time.Second, Seed: s.seed,
					Groups: []bench.GroupOptions{{
						Workload: x.workload, Clients: 16, Pipeline: 1, Rate: bench.Steady(400), Records: 200,
						Elements: 10, ValueSize: 20,
					}},
					Verify: true,
				}, results.NewWriter(io.Discard))
			}
			p, err := planOf("log-unsynced")
			if err != nil {
				t.Fatal(err)
			}
			if x.planted {
				// A snapshot that is recorded but not there would end the process. And a read set that contradicts
				// what a replica holds might stop its store before bench verifies anything.
				p.settings = []setting{{"raft.snapshot_entries", "1000000"}, {"raft.read_sets", "false"}}
			}
			p.clients, p.repeats, p.faults = 0, nil, []happening{{run: load}, {run: earlyBlackouts(!x.planted)}}
			err = s.record(p, x.planted, virtual, func(run func()) { synctest.Test(t, func(*testing.T) { run() }) })
			var v *results.Verified
			if len(sum.Groups) > 0 {
				v = sum.Groups[0].Verified
			}
			if v == nil {
				t.Fatalf("seed %d: nothing was verified: %v, %v", s.seed, benchErr, err)
			}
			t.Logf("seed %d: %d kills, %d operations, %v, verified %+v", s.seed, s.stats.Kills, sum.Groups[0].Total.Count,
				sum.Groups[0].Kinds, *v)
			switch {
			case x.planted:
				if v.Lost == 0 || benchErr == nil {
					t.Errorf("seed %d: %d lost, %v; want what unsynced logs lose to be found", s.seed, v.Lost, benchErr)
				}
			case err != nil || benchErr != nil || v.Lost > 0 || !v.Complete || s.stats.Kills < 6 ||
				sum.Groups[0].Total.Count < 1000:
				t.Errorf("seed %d: want kills and every record as acknowledged: %v, %v", s.seed, benchErr, err)
			}
		})
	}
}

// earlyBlackouts kills all stores, or by turns all and one, and starts them again at once, in the first part of a
// run. (Without syncs it always kills all: one store that comes back without its log is more than Raft takes, and
// ends the process.)
func earlyBlackouts(turns bool) func(*sim, *rand.Rand) {
	return func(s *sim, random *rand.Rand) {
		for i := 0; i < 8 && s.sleep(time.Duration(500+random.IntN(500))*time.Millisecond); i++ {
			victims := "all"
			if turns && i%2 > 0 {
				victims = fmt.Sprint(1 + i%len(s.nodes))
			}
			s.do("kill %s", victims)
			s.do("restart %s", victims)
		}
	}
}
