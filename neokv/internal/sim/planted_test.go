package sim

import (
	"testing"
	"time"
)

// TestPlanted plants each mistake and runs seeds until one shows it. Then it runs seeds of the same plan without the
// mistake.
func TestPlanted(t *testing.T) {
	notShort(t)
	const virtual = 10 * time.Second
	for _, p := range plans {
		if p.mistake.plant == nil {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			b := newBatch(t, p, true, virtual)
			b.run(1, p.bound, true)
			if b.shown == nil {
				t.Errorf("%s: %q not found in %d seeds", p.mistake.what, p.shows, p.bound)
				for _, r := range b.failed {
					t.Errorf("which is not what it should show: seed %d: %q: %.300s", r.Seed, r.Kinds, r.Problem)
				}
			} else {
				t.Logf("%s: found by seed %d: %q: %.300s", p.mistake.what, b.shown.Seed, b.shown.Kinds, b.shown.Problem)
			}
			if !p.special() { // TestVirtual and others run more seeds without the mistake
				return
			}
			b = newBatch(t, p, false, virtual)
			b.run(1, min(p.bound, 8), false)
			b.report()
		})
	}
}
