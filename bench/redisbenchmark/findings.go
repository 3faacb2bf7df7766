package redisbenchmark

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Findings are the results of all rounds.
type Findings struct {
	Started    time.Time       `json:"started"`
	Build      results.Build   `json:"build"`
	Machine    results.Machine `json:"machine"`
	Tool       string          `json:"tool"` // redis-benchmark and its version
	Load       SentLoad        `json:"load"`
	Durability string          `json:"durability"`
	Rounds     int             `json:"rounds"` // that are complete
	Pairs      []*Pair         `json:"pairs"`
	// Hidden says what figures of redis-benchmark do not say.
	Hidden []string `json:"hidden"`
}

// Pair is a NeoKV and what it is compared with.
type Pair struct {
	NeoKV SideFacts `json:"neokv"`
	Peer  SideFacts `json:"peer"`
	// Threads is how many redis-benchmark has; 0 is one that watches for the end of a test all the time.
	Threads int `json:"threads,omitempty"`
	// Generator says what NeoKV's own generator sends; it is empty if it sends nothing.
	Generator string `json:"generator,omitempty"`
	// Tests are by redis-benchmark. Spread are the same tests by NeoKV's own generator, over keys of all slots.
	Tests  []*TestFigures `json:"tests"`
	Spread []*TestFigures `json:"spread,omitempty"`
}

// SideFacts is one side of a pair.
type SideFacts struct {
	Name    string `json:"name"`
	Version string `json:"version"` // redis_version or neokv_version
	Started string `json:"started"` // what was started, with the settings that say when a write is durable
}

// TestFigures are the figures of both sides in a test.
type TestFigures struct {
	Test  string      `json:"test"`
	NeoKV SideFigures `json:"neokv"`
	Peer  SideFigures `json:"peer"`
	// Ratio is NeoKV's rate by its peer's, of the two runs of a round; nil where it would mean nothing.
	Ratio *compare.Estimate `json:"ratio,omitempty"`
	// TooShort says that the runs were too short for the clock of redis-benchmark, so there is no ratio.
	TooShort bool `json:"too_short,omitempty"`
}

// SideFigures are those of one side in a test; those of a list are one a round.
type SideFigures struct {
	PerSecond []float64 `json:"per_second"`
	P50       []float64 `json:"p50_ms"`
	P99       []float64 `json:"p99_ms"`
	CPU       []float64 `json:"cpu_us,omitempty"` // of the servers, microseconds an operation, where it is known
	// Errors counts error replies by their first word, of all runs. redis-benchmark counts them as answers.
	Errors map[string]int64 `json:"errors,omitempty"`
	// Reads and Misses count look-ups of keys, and those that found nothing, of all runs.
	Reads  int64 `json:"reads,omitempty"`
	Misses int64 `json:"misses,omitempty"`
}

const (
	// With threads redis-benchmark looks every threadsTick whether it is done. From shortest on that makes its rate at
	// most a tenth too low.
	threadsTick = 250 * time.Millisecond
	shortest    = 10 * threadsTick
)

// tooShort reports whether a run of a side was too short for redis-benchmark's clock.
func (f *Findings) tooShort(p *Pair, a SideFigures) bool {
	if p.Threads == 0 || len(a.PerSecond) == 0 {
		return false
	}
	return float64(f.Load.Requests)/slices.Max(a.PerSecond) < shortest.Seconds()
}

// newRatio compares the rates of the same rounds.
func newRatio(neokv, peer []float64) *compare.Estimate {
	var ratios []float64
	for i := range min(len(neokv), len(peer)) {
		ratios = append(ratios, neokv[i]/peer[i])
	}
	if len(ratios) == 0 {
		return nil
	}
	e := compare.NewEstimate(ratios)
	return &e
}

// finish compares what the rounds have found, and says what it hides.
func (f *Findings) finish() {
	for _, p := range f.Pairs {
		for _, t := range p.Tests {
			t.TooShort = f.tooShort(p, t.NeoKV) || f.tooShort(p, t.Peer)
		}
		for _, t := range slices.Concat(p.Tests, p.Spread) {
			if !t.TooShort && len(t.NeoKV.Errors) == 0 && len(t.Peer.Errors) == 0 {
				t.Ratio = newRatio(t.NeoKV.PerSecond, t.Peer.PerSecond)
			}
		}
	}
	f.Hidden = f.hidden()
}

// hidden says what a reader of redis-benchmark's figures is not told.
func (f *Findings) hidden() (lines []string) {
	say := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	var errors, misses []string
	cluster := false
	var short []string
	for _, p := range f.Pairs {
		cluster = cluster || p.Peer.Name == redisCluster
		for _, t := range p.Tests {
			if t.TooShort {
				short = append(short, t.Test+" of "+p.NeoKV.Name)
			}
			for side, of := range map[string]SideFigures{p.NeoKV.Name: t.NeoKV, p.Peer.Name: t.Peer} {
				for _, word := range slices.Sorted(maps.Keys(of.Errors)) {
					errors = append(errors, fmt.Sprintf("%s of %s: %s %s", t.Test, side, results.Count(of.Errors[word]),
						word))
				}
				if of.Misses*10 > of.Reads {
					misses = append(misses, fmt.Sprintf("%s of %s %.0f %%", t.Test, side,
						100*float64(of.Misses)/float64(of.Reads)))
				}
			}
		}
	}
	slices.Sort(errors)
	slices.Sort(misses)
	if len(errors) == 0 {
		say("With --cluster it counts error replies as answers, MOVED among them; old versions always do. The servers " +
			"counted none.")
	} else {
		say("It counts error replies as answers. The servers counted %s. Such tests have no ratio.",
			strings.Join(errors, ", "))
	}
	switch {
	case f.Load.Keys == 0 && f.Load.Command == nil:
		say("Without -r each test is about one key%s. SPOP and ZPOPMIN then find one element, and afterwards nothing.",
			map[bool]string{false: "", true: " per node with --cluster"}[cluster])
	case f.Load.Keys > 0:
		say("-r spreads strings and counters over %s keys. A list, set, hash or sorted set is one key all the same.",
			results.Count(f.Load.Keys))
	}
	if cluster {
		say("With --cluster it sends keys of one slot per node: 3 of 16,384 slots, so 3 of NeoKV's regions at most.")
	}
	say("A client sends when the command before is answered. While a server stalls nothing is sent and nothing counts " +
		"as late (coordinated omission). neokv bench --rate counts from when a command was due.")
	if len(misses) > 0 {
		say("Reads that found nothing count like others: %s.", strings.Join(misses, ", "))
	}
	if len(short) > 0 {
		say("With --threads, and with --cluster, which means threads, it looks every quarter of a second whether "+
			"it is done. Rates of runs of less than %v are far too low. There is no ratio of %s; a larger -n helps.",
			shortest, strings.Join(short, ", "))
	}
	return lines
}
