package sim

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// shortened divides the number of seeds of a batch under -short.
const shortened = 100

// runBatch runs n seeds of a plan without a mistake, and fails the test for each seed that fails.
func runBatch(t *testing.T, plan string, first uint64, n int, length time.Duration) *simBatch {
	t.Helper()
	return runBatchBy(t, runtime.NumCPU(), plan, first, n, length)
}

// runBatchBy is runBatch with so many processes at once.
func runBatchBy(t *testing.T, workers int, plan string, first uint64, n int, length time.Duration) *simBatch {
	t.Helper()
	if testing.Short() {
		n = (n + shortened - 1) / shortened
	}
	b, err := newBatch(job{Plan: plan, First: first, Count: n, Length: length})
	if err != nil {
		t.Fatal(err)
	}
	b.workers = workers
	b.judge(t)
	return b
}

// judge runs the batch, and fails the test for each seed that fails. It prints the scenario and the command that runs
// the seed again.
func (b *simBatch) judge(t *testing.T) {
	t.Helper()
	if err := b.run(t.Context()); err != nil {
		t.Error(err)
	}
	if !testing.Short() {
		for _, short := range b.missing() {
			t.Errorf("%s: %s", b.Plan, short)
		}
	}
	for _, r := range b.failed {
		t.Errorf("seed %d: %q: %s\nscenario:\n%s\nagain: %s", r.Seed, r.Kinds, r.Problem,
			b.plan.draw(r.Seed, b.Length), b.again(r.Seed))
	}
	t.Logf("%s", b)
}

// again returns the command that runs a seed again as a test.
func (b *simBatch) again(seed uint64) string {
	s := fmt.Sprintf("GOMAXPROCS=1 go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=%d -sim.virtual=%s -v",
		seed, b.Length)
	if b.plan.name != general {
		s += fmt.Sprintf(" -sim.plan='%s'", b.Plan)
	}
	if b.Mistake != "" {
		s += " -sim.planted"
	}
	return s
}

func (b *simBatch) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d seeds of %s: ", b.Plan, b.seeds, b.Length)
	for _, c := range counted {
		fmt.Fprintf(&out, "%d %s, ", *c.in(&b.stats), c.what)
	}
	fmt.Fprintf(&out, "%.1fs of CPU cores", b.seconds)
	return out.String()
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
				got, c.what, b.seeds, b.Length, need))
		}
	}
	return short
}

// firstSeeds are seeds that show the mistakes of plans which few seeds show: in five or six of six runs, and in four if
// it is apply-index-apart. Where the product or a plan changes, other seeds show a mistake: the search is longer then,
// not in vain.
var firstSeeds = map[string]uint64{
	"apply-index-apart":       12,
	"caches-tracking-kept":    12,
	"chaos-retried-backward":  24,
	"end-early":               9,
	"merge-stubborn":          3,
	"messages-batch-repeated": 16,
	"queues-waiter-kept":      14,
	"sweep-straddles":         23,
	"tcp-lease-unchecked":     3,

	"two-changes-commit-unsaved": 19,

	"torture-child-early":          4,
	"torture-child-empty":          4,
	"torture-expiry-clock":         16,
	"torture-follower-read":        3,
	"torture-journal-not-replayed": 2,
	"torture-journal-unsynced":     2,
	"torture-log-unsynced":         2,
	"torture-map-order":            3,
	"torture-merge-early":          7,
	"torture-rows-kept":            3,
}

// findPlanted runs seeds of a plan with its mistake until one shows it: three times the one that did so before, since
// the runs of a seed differ a little; then as many as the plan says at most; then as many others: there are some 50
// plans, so a search that fails by chance is not rare enough. It returns the seed that has shown the mistake, 0 for
// none. With more than one process at once, seeds are run to their end that nobody needs any more.
func findPlanted(t *testing.T, workers int, plan string, length time.Duration) (shown uint64) {
	t.Helper()
	// The histories are of no use to anybody.
	p, err := planOf(plan)
	if err == nil && p.mistake.plant == nil {
		err = errors.New("there is no mistake to plant")
	}
	if err != nil {
		t.Fatal(err)
	}
	j := job{Plan: plan, Mistake: p.mistake.name, Length: length, Dir: t.TempDir()}
	var searches []job
	search := func(first uint64, count int, same bool) {
		j.First, j.Count, j.Same = first, count, same
		searches = append(searches, j)
	}
	if known := firstSeeds[plan]; known != 0 {
		search(known, 3, true)
	}
	search(1, p.bound, false)
	search(1+uint64(p.bound), p.bound, false)
	var failed []simReport
	for _, j := range searches {
		b, err := newBatch(j)
		if err != nil {
			t.Fatal(err)
		}
		b.stop, b.workers = b.shows, workers
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.shown != nil {
			t.Logf("%s: found by seed %d: %q: %.300s", p.mistake.what, b.shown.Seed, b.shown.Kinds, b.shown.Problem)
			return b.shown.Seed
		}
		t.Logf("%s: %q not found in %d runs from seed %d on", p.mistake.what, p.shows, j.Count, j.First)
		failed = append(failed, b.failed...)
	}
	t.Errorf("%s: %q not found", p.mistake.what, p.shows)
	for _, r := range failed {
		t.Errorf("which is not what it should show: seed %d: %q: %.300s", r.Seed, r.Kinds, r.Problem)
	}
	return 0
}
