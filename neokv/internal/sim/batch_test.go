package sim

import (
	"errors"
	"testing"
	"time"
)

// shortened divides the number of seeds of a batch under -short.
const shortened = 100

// runBatch runs n seeds of a plan without a mistake, and fails the test for each seed that fails.
func runBatch(t *testing.T, plan string, first uint64, n int, length time.Duration) *simBatch {
	t.Helper()
	if testing.Short() {
		n = (n + shortened - 1) / shortened
	}
	b, err := newBatch(job{Plan: plan, First: first, Count: n, Length: length})
	if err != nil {
		t.Fatal(err)
	}
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

// findPlanted runs seeds of a plan with its mistake until one shows it, as many as the plan says at most. If none does,
// it runs as many others: there are some 50 plans, so a search that fails by chance is not rare enough.
func findPlanted(t *testing.T, plan string, length time.Duration) {
	t.Helper()
	// The histories are of no use to anybody.
	p, err := planOf(plan)
	if err == nil && p.mistake.plant == nil {
		err = errors.New("there is no mistake to plant")
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBatch(job{Plan: plan, Mistake: p.mistake.name, First: 1, Length: length, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b.stop = b.shows
	for range 2 {
		b.Count += b.plan.bound // run goes on with the seeds behind those that it has run
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b.shown != nil {
			break
		}
		t.Logf("%s: %q not found in %d seeds", b.plan.mistake.what, b.plan.shows, b.Count)
	}
	if b.shown == nil {
		t.Errorf("%s: %q not found in two searches", b.plan.mistake.what, b.plan.shows)
		for _, r := range b.failed {
			t.Errorf("which is not what it should show: seed %d: %q: %.300s", r.Seed, r.Kinds, r.Problem)
		}
		return
	}
	t.Logf("%s: found by seed %d: %q: %.300s", b.plan.mistake.what, b.shown.Seed, b.shown.Kinds, b.shown.Problem)
}
