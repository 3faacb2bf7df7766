package sim

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"neokv.dev/neokv"
)

var linearizableTime = flag.Duration("linearizable.time", 8*time.Second,
	"length of TestLinearizable on each transport, in real time")

// TestLinearizable runs a cluster on real files and sockets in real time, while links are cut and leaders move, and
// other processes keep all cores busy. Late ticks, late messages and slow disks of this sort do not occur in virtual
// time.
func TestLinearizable(t *testing.T) {
	for range runtime.NumCPU() {
		startRole(t, "burn")
	}
	length := *linearizableTime
	if testing.Short() {
		length /= 4
	}
	for _, name := range []string{"memory", "tcp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they keep each other from the cores, too
			x, err := parseScenario(`
				8 clients, an operation every 2ms
				reads 3, writes 3, increments 4, counter reads 1, locks 2, unlocks 1, lock reads 1, expiring writes 2,
				expiring reads 3
				cut leaders off, draws partition link transfer every 800ms`)
			if err != nil {
				t.Fatal(err)
			}
			p := plan{name: "live-" + name, scenario: x}
			p.tcp = name == "tcp"
			s := &sim{seed: rand.Uint64(), real: true, config: neokv.Config{Dir: t.TempDir()}}
			err = s.record(p, false, length, func(run func()) { run() })
			if err != nil {
				t.Errorf("seed %d: %v", s.seed, err)
			}
			t.Logf("seed %d: %+v in %s", s.seed, s.stats, length)
		})
	}
}
