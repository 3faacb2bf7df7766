package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
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

// simWorker in the environment makes TestVirtual a child process. It runs a batch itself, and reports on each seed
// with lines of JSON: one when the seed begins, and one with Ended set.
const simWorker = "NEOKV_SIM_WORKER"

// simReport is such a line. If the last one is not Ended, its seed has ended the process.
type simReport struct {
	Seed    uint64
	Ended   bool
	Problem string
	Kinds   []evidence // of all problems
	Seconds float64
	simStats
}

const simReportMark = "SIM "

func (r *simReport) print() {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", simReportMark, text)
}

// simBatch runs seeds of a plan in child processes, one per core: a panic of any goroutine ends a process.
type simBatch struct {
	t       *testing.T
	plan    plan
	planted bool
	virtual time.Duration

	mu      sync.Mutex
	next    uint64
	end     uint64
	first   bool // stop at the first seed that shows the planted mistake
	shown   *simReport
	seeds   int
	seconds float64
	stats   simStats
	failed  []simReport
}

func newBatch(t *testing.T, p plan, planted bool, virtual time.Duration) *simBatch {
	return &simBatch{t: t, plan: p, planted: planted, virtual: virtual}
}

// again returns the command that runs a seed again.
func (b *simBatch) again(seed uint64) string {
	s := fmt.Sprintf("GOMAXPROCS=1 go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=%d -sim.virtual=%s -v",
		seed, b.virtual)
	if b.plan.name != general {
		s += fmt.Sprintf(" -sim.plan='%s'", b.plan.flag())
	}
	if b.planted {
		s += " -sim.planted"
	}
	return s
}

// report fails the test for each seed that failed, and prints its scenario and the command that runs it again.
func (b *simBatch) report() {
	b.t.Helper()
	for _, r := range b.failed {
		b.t.Errorf("seed %d: %q: %s\nscenario:\n%s\nagain: %s", r.Seed, r.Kinds, r.Problem, b.plan.scenario,
			b.again(r.Seed))
	}
	b.t.Logf("%s", b)
}

func (b *simBatch) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d seeds of %s: ", b.plan.flag(), b.seeds, b.virtual)
	for _, c := range counted {
		fmt.Fprintf(&out, "%d %s, ", *c.in(&b.stats), c.what)
	}
	fmt.Fprintf(&out, "%.1fs of CPU cores", b.seconds)
	return out.String()
}

// share scales a floor for 100 s of virtual time to so many runs of the batch.
func (b *simBatch) share(n, runs int) int {
	return int(int64(n) * int64(b.virtual/time.Millisecond) * int64(runs) / 100_000)
}

// missing lists what the batch has done too little of.
func (b *simBatch) missing() (short []string) {
	want, ok := least[b.plan.floors]
	switch {
	case b.plan.name == "": // a scenario from the command line has no floors
		return nil
	case !ok:
		return []string{"least does not say what the plan's runs must reach"}
	}
	for _, c := range counted {
		got, need := *c.in(&b.stats), b.share(*c.in(&want), b.seeds)
		if got < need {
			short = append(short, fmt.Sprintf("%d %s in %d seeds of %s; want at least %d",
				got, c.what, b.seeds, b.virtual, need))
		}
	}
	return short
}

// shortened divides the number of seeds of a batch under -short, unless the batch looks for a planted mistake.
const shortened = 100

// run runs n seeds or, with untilFirst, seeds until one shows the planted mistake, and n at most.
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
			b.t.Errorf("%s: %s", b.plan.flag(), short)
		}
	}
	slices.SortFunc(b.failed, func(x, y simReport) int { return int(x.Seed) - int(y.Seed) })
}

// take hands out the next few seeds, so that a process that dies takes few with it.
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

// child runs seeds in a child process. If a seed ends the process, another one goes on with the next seed.
func (b *simBatch) child(from uint64, count int) {
	for count > 0 {
		cmd := exec.CommandContext(b.t.Context(), os.Args[0], "-test.run=^TestVirtual$", "-test.timeout=0",
			fmt.Sprintf("-sim.first=%d", from), fmt.Sprintf("-sim.seeds=%d", count),
			fmt.Sprintf("-sim.virtual=%s", b.virtual), "-sim.plan="+b.plan.flag(),
			fmt.Sprintf("-sim.planted=%v", b.planted))
		cmd.Env = append(os.Environ(), simWorker+"=1", "GOMAXPROCS=1")
		if b.planted { // the histories are of no use to anybody
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
		// A panic comes first, and then a long dump.
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
	want := least[b.plan.floors]
	if want := b.share(want.Acknowledged/4, 1); !b.planted && r.Problem == "" && r.Acknowledged < want {
		r.Problem = fmt.Sprintf("%d operations acknowledged; want at least %d", r.Acknowledged, want)
	}
	if r.Problem != "" {
		b.failed = append(b.failed, r)
	}
	shows := slices.ContainsFunc(r.Kinds, func(k evidence) bool { return slices.Contains(b.plan.shows, k) })
	if shows && (b.shown == nil || b.shown.Seed > r.Seed) {
		b.shown = &r
	}
}
