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
		if p.mistake.plant == nil || p.drawn != nil { // TestTorturePlanted looks for some of the latter
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			findPlanted(t, p.name, virtual)
			if p.special() { // TestVirtual and others run more seeds of the other plans, TestExplore fresh ones of all
				runBatch(t, p.name, 1, min(p.bound, 5), virtual)
			}
		})
	}
}
