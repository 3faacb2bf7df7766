package sim

import (
	"testing"
	"time"
)

// TestIdleRunsFail: a batch fails whose runs do next to nothing, or one thing too seldom, whatever the plan.
func TestIdleRunsFail(t *testing.T) {
	for _, p := range plans {
		b := simBatch{plan: p, job: job{Length: 10 * time.Second}}
		most := least[p.floors]
		for range 10 { // 100 s of virtual time
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
