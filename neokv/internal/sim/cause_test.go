package sim

import (
	"errors"
	"testing"
	"time"
)

// TestCause: what an unsynced log loses is lost when all stores lose their power, and the run may still take another
// course before. A run that does not fail has no cause.
func TestCause(t *testing.T) {
	o := CauseOptions{Branches: 4, TortureOptions: TortureOptions{
		Seed: 1, Length: 2 * time.Second, Faults: []string{allKinds}, Planted: "log-unsynced", Dir: t.TempDir(),
		Scenario: "6 clients, an operation every 5ms\nreads 1, writes 3, increments 1, counter reads 1\n" +
			"at 1300ms for 10ms: kill all",
	}}
	c, err := TortureCause(t.Context(), o)
	if err != nil {
		t.Fatalf("%v: %+v", err, c)
	}
	t.Logf("%+v", c)
	const kill = 1300 * time.Millisecond
	if c.Before > kill || c.From < kill || c.From-c.Before > 40*time.Millisecond || len(c.Between) != 1 {
		t.Errorf("between %s and %s: %q; want the kill at %s", c.Before, c.From, c.Between, kill)
	}
	o.Planted = ""
	if c, err := TortureCause(t.Context(), o); !errors.Is(err, ErrNoFailure) || len(c.Moments) != 1 {
		t.Errorf("without the mistake: %v, %+v", err, c)
	}
}
