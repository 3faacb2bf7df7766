package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The cluster in virtual time:
//
//	go test ./neokv/internal/sim -run 'TestVirtual$'                                a fixed batch of seeds
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seeds=1000 -timeout=2h    more of them, from -sim.first on
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=123 -v               one seed; -count=20 runs it again and again
//	go test ./neokv/internal/sim -run TestExplore -sim.explore=1h -timeout=2h -v    fresh seeds of all plans, for so long
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan=lease-promise -sim.planted -sim.seed=2 -v
//
// Seeds run in child processes, one per core: a panic on any goroutine ends a process.
var (
	simSeed    = flag.Uint64("sim.seed", 0, "run this seed alone, in this process")
	simSeeds   = flag.Int("sim.seeds", 60, "how many seeds a batch runs")
	simFirst   = flag.Uint64("sim.first", 1, "first seed of a batch")
	simVirtual = flag.Duration("sim.virtual", 20*time.Second, "length of a run in virtual time")
	simPlan    = flag.String("sim.plan", chaos.name, "schedule of faults")
	simKeep    = flag.Bool("sim.keep", false, "keep the history of runs in which nothing was found, too")
	simPlanted = flag.Bool("sim.planted", false, "plant the mistake that the plan is made to find")
)

// simWorker in the environment makes TestVirtual a child that runs a batch in its own process and reports each seed in a line of JSON.
const simWorker = "NEOKV_SIM_WORKER"

// simReport is such a line. The one without an end, the last one, is of a seed that ended the process.
type simReport struct {
	Seed    uint64
	Ended   bool
	Problem string
	Kinds   []evidence // of all problems
	Seconds float64
	simStats
}

const simReportMark = "SIM "

func plans() []plan {
	return slices.Concat([]plan{chaos, overTCP, expiries, collections, members}, plantedPlans, plantedInGeneral)
}

func planNamed(t *testing.T, name string) plan {
	for _, p := range plans() {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("-sim.plan %s: there is none of that name", name)
	return plan{}
}

// TestVirtual runs seeds of a plan; see above.
func TestVirtual(t *testing.T) {
	p := planNamed(t, *simPlan)
	switch {
	case os.Getenv(simWorker) != "":
		for i := range *simSeeds {
			r := simReport{Seed: *simFirst + uint64(i)}
			r.print()
			start := time.Now()
			var err error
			r.simStats, r.Kinds, err = simulate(t, p, *simPlanted, r.Seed, *simVirtual)
			if err != nil {
				r.Problem = err.Error()
			}
			r.Ended, r.Seconds = true, time.Since(start).Seconds()
			r.print()
		}
	case *simSeed != 0:
		start := time.Now()
		stats, kinds, err := simulate(t, p, *simPlanted, *simSeed, *simVirtual)
		if err != nil {
			t.Errorf("seed %d: %q: %v", *simSeed, kinds, err)
		}
		t.Logf("seed %d: %+v in %.2fs", *simSeed, stats, time.Since(start).Seconds())
	default:
		b := newBatch(t, p, *simPlanted, *simVirtual)
		b.run(*simFirst, *simSeeds, false)
		for _, r := range b.failed {
			t.Errorf("seed %d: %q: %s\nagain: %s", r.Seed, r.Kinds, r.Problem, b.again(r.Seed))
		}
		t.Logf("%s", b)
	}
}

// TestVirtualTCP runs some seeds of the general plan with messages between stores on connections.
func TestVirtualTCP(t *testing.T) {
	b := newBatch(t, overTCP, false, *simVirtual)
	b.run(1, 40, false)
	for _, r := range b.failed {
		t.Errorf("seed %d: %s\nagain: %s", r.Seed, r.Problem, b.again(r.Seed))
	}
	t.Logf("%s", b)
}

func (r *simReport) print() {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", simReportMark, text)
}

// simBatch runs seeds of a plan in child processes, one per core.
type simBatch struct {
	t       *testing.T
	plan    plan
	planted bool
	virtual time.Duration

	mu      sync.Mutex
	next    uint64
	end     uint64
	first   bool // stop at the first problem of a kind that the planted mistake should show
	shown   *simReport
	seeds   int
	seconds float64
	stats   simStats
	failed  []simReport
}

func newBatch(t *testing.T, p plan, planted bool, virtual time.Duration) *simBatch {
	return &simBatch{t: t, plan: p, planted: planted, virtual: virtual}
}

// again is the command that runs a seed again.
func (b *simBatch) again(seed uint64) string {
	s := fmt.Sprintf("GOMAXPROCS=1 go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=%d -sim.virtual=%s -v", seed, b.virtual)
	if b.plan.name != chaos.name {
		s += " -sim.plan=" + b.plan.name
	}
	if b.planted {
		s += " -sim.planted"
	}
	return s
}

// counted lists what runs count.
var counted = []struct {
	what string
	in   func(*simStats) *int
}{
	{"operations acknowledged", func(s *simStats) *int { return &s.Acknowledged }},
	{"unknown", func(s *simStats) *int { return &s.Unknown }},
	{"kills", func(s *simStats) *int { return &s.Kills }},
	{"ends of the process", func(s *simStats) *int { return &s.Ends }},
	{"cuts", func(s *simStats) *int { return &s.Cuts }},
	{"transfers", func(s *simStats) *int { return &s.Transfers }},
	{"comparisons", func(s *simStats) *int { return &s.Compared }},
	{"snapshots installed", func(s *simStats) *int { return &s.Snapshots }},
	{"elements reclaimed", func(s *simStats) *int { return &s.Reclaimed }},
}

func (b *simBatch) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d seeds of %s: ", b.plan.name, b.seeds, b.virtual)
	for _, c := range counted {
		fmt.Fprintf(&out, "%d %s, ", *c.in(&b.stats), c.what)
	}
	fmt.Fprintf(&out, "%.1fs of CPU cores", b.seconds)
	return out.String()
}

// least is what the runs of a plan must reach without a mistake in 100 s of virtual time, together, and of the operations a quarter in each: it is
// half, or less, of what they do. Runs that do next to nothing prove nothing.
var least = map[string]simStats{
	"chaos":                {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"tcp":                  {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"expiries":             {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"collections":          {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15, Reclaimed: 1000},
	"members":              {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15, Reclaimed: 150},
	"log-unsynced":         {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
	"apply-index-apart":    {Acknowledged: 15000, Kills: 300, Compared: 10, Snapshots: 20},
	"lease-unchecked":      {Acknowledged: 3000, Cuts: 30, Compared: 40},
	"lease-promise":        {Acknowledged: 5000, Kills: 20, Cuts: 40, Compared: 30},
	"snapshot-dropped":     {Acknowledged: 9000, Kills: 10, Compared: 30, Snapshots: 10},
	"term-tag":             {Acknowledged: 2000, Transfers: 500, Compared: 50},
	"read-set-stale":       {Acknowledged: 2000, Compared: 50},
	"rows-kept":            {Acknowledged: 2000, Transfers: 500, Compared: 50},
	"follower-read":        {Acknowledged: 4000, Compared: 50},
	"expiry-clock":         {Acknowledged: 3000, Transfers: 100, Compared: 50},
	"version-repeated":     {Acknowledged: 3000, Transfers: 100, Compared: 50, Reclaimed: 900},
	"live-reclaimed":       {Acknowledged: 2800, Transfers: 100, Compared: 50, Reclaimed: 600},
	"unknown-retried":      {Acknowledged: 5000, Kills: 30, Ends: 2, Compared: 15},
	"map-order":            {Acknowledged: 3000, Transfers: 100, Compared: 50},
	"journal-unsynced":     {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
	"journal-not-replayed": {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
}

// leastOf is least of a plan. A general plan with a mistake is as the general plan.
func leastOf(p plan) (simStats, bool) {
	name := p.name
	if p.general {
		name, _, _ = strings.Cut(name, "-")
	}
	s, ok := least[name]
	return s, ok
}

// share scales what is to be reached in 100 s to so many runs.
func (b *simBatch) share(n, runs int) int {
	return int(int64(n) * int64(b.virtual/time.Millisecond) * int64(runs) / 100_000)
}

// missing says of what the batch has done too little.
func (b *simBatch) missing() (short []string) {
	want, ok := leastOf(b.plan)
	if !ok {
		return []string{"least does not say what the plan's runs must reach"}
	}
	for _, c := range counted {
		got, need := *c.in(&b.stats), b.share(*c.in(&want), b.seeds)
		if got < need {
			short = append(short, fmt.Sprintf("%d %s in %d seeds of %s; want at least %d", got, c.what, b.seeds, b.virtual, need))
		}
	}
	return short
}

// TestIdleRunsFail: a batch whose runs do next to nothing fails, whatever the plan.
func TestIdleRunsFail(t *testing.T) {
	for _, p := range plans() {
		b := simBatch{plan: p, virtual: 10 * time.Second}
		most, _ := leastOf(p)
		for range 10 { // 100 s
			b.add(simReport{simStats: simStats{Acknowledged: most.Acknowledged / 10}})
		}
		b.stats = most
		if short := b.missing(); most.Acknowledged == 0 || len(short)+len(b.failed) > 0 {
			t.Errorf("%s: runs that reach %+v: %q, %+v", p.name, most, short, b.failed)
		}
		for _, c := range counted {
			if b.stats = most; *c.in(&b.stats) > 0 {
				*c.in(&b.stats)--
				if len(b.missing()) != 1 {
					t.Errorf("%s: one too few of %s: %q", p.name, c.what, b.missing())
				}
			}
		}
		if b.add(simReport{}); len(b.failed) != 1 {
			t.Errorf("%s: a run that does nothing: %+v", p.name, b.failed)
		}
	}
}

// shortened is how many times fewer seeds without a mistake a batch runs with -short, as the race build does.
const shortened = 100

// run runs n seeds, or until the planted mistake shows.
func (b *simBatch) run(first uint64, n int, untilFirst bool) {
	if testing.Short() && !untilFirst {
		n = (n + shortened - 1) / shortened
	}
	b.next, b.end, b.first = first, first+uint64(n), untilFirst
	var wg sync.WaitGroup
	for range min(n, runtime.NumCPU()) {
		wg.Go(func() {
			for {
				from, count := b.take()
				if count == 0 {
					return
				}
				b.child(from, count)
			}
		})
	}
	wg.Wait()
	if !b.planted && !testing.Short() {
		for _, short := range b.missing() {
			b.t.Errorf("%s: %s", b.plan.name, short)
		}
	}
	slices.SortFunc(b.failed, func(x, y simReport) int { return int(x.Seed) - int(y.Seed) })
}

// take hands out a few seeds at a time, so that a process that dies takes few with it.
func (b *simBatch) take() (from uint64, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 10
	if b.first {
		if most = 1; b.shown != nil {
			return 0, 0
		}
	}
	from = b.next
	count = min(most, int(b.end-b.next))
	b.next += uint64(count)
	return from, count
}

// child runs seeds in a child process; where a seed ends it, another one goes on behind it.
func (b *simBatch) child(from uint64, count int) {
	for count > 0 {
		cmd := exec.CommandContext(b.t.Context(), os.Args[0], "-test.run=^TestVirtual$", "-test.timeout=0",
			fmt.Sprintf("-sim.first=%d", from), fmt.Sprintf("-sim.seeds=%d", count), fmt.Sprintf("-sim.virtual=%s", b.virtual),
			"-sim.plan="+b.plan.name, fmt.Sprintf("-sim.planted=%v", b.planted))
		cmd.Env = append(os.Environ(), simWorker+"=1", "GOMAXPROCS=1")
		if b.planted { // what is to be found need not be kept
			cmd.Env = append(cmd.Env, "TMPDIR="+b.t.TempDir())
		}
		out, err := cmd.CombinedOutput()
		var last simReport
		lines := bufio.NewScanner(bytes.NewReader(out))
		lines.Buffer(nil, 1<<26)
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), simReportMark)
			if !ok {
				continue
			}
			if err := json.Unmarshal([]byte(text), &last); err != nil {
				b.t.Errorf("report %q: %v", text, err)
				return
			}
			if last.Ended {
				b.add(last)
			}
		}
		if last.Seed == from+uint64(count)-1 && last.Ended && err == nil {
			return
		}
		if last.Seed == 0 || last.Ended {
			b.t.Errorf("seeds from %d on: %v\n%s", from, err, tail(out))
			return
		}
		last.Ended, last.Problem = true, fmt.Sprintf("process ended: %v\n%s", err, tail(out))
		b.add(last)
		count -= int(last.Seed + 1 - from)
		from = last.Seed + 1
		last = simReport{}
	}
}

func tail(out []byte) string {
	const most = 20000
	if len(out) > most {
		// The panic stands at the beginning of a long dump.
		if i := bytes.Index(out, []byte("panic")); i >= 0 {
			out = out[i:]
		}
		out = out[:min(most, len(out))]
	}
	return string(out)
}

func (b *simBatch) add(r simReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seeds++
	b.seconds += r.Seconds
	for _, c := range counted {
		*c.in(&b.stats) += *c.in(&r.simStats)
	}
	want, _ := leastOf(b.plan)
	if want := b.share(want.Acknowledged/4, 1); !b.planted && r.Problem == "" && r.Acknowledged < want {
		r.Problem = fmt.Sprintf("%d operations acknowledged; want at least %d", r.Acknowledged, want)
	}
	if r.Problem != "" {
		b.failed = append(b.failed, r)
	}
	if slices.ContainsFunc(r.Kinds, func(k evidence) bool { return slices.Contains(b.plan.shows, k) }) && (b.shown == nil || b.shown.Seed > r.Seed) {
		b.shown = &r
	}
}
