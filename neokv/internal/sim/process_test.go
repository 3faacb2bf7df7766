package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
)

// These tests run a cluster in a process of its own, on the machine's disk and over sockets, and do to the process what
// an operating system does.

var (
	processKills = flag.Int("process.kills", 10, "how often TestKillNine kills the process")
	processSeed  = flag.Uint64("process.seed", 0, "the seed of TestKillNine and TestPausedProcess, 0 for a fresh one")
)

// What the environment tells serveRole.
const (
	dirVariable     = "NEOKV_TEST_DIR"
	movesVariable   = "NEOKV_TEST_MOVES"   // "" or not: the child cuts stores off and moves leaders
	wipesVariable   = "NEOKV_TEST_WIPES"   // "" or not: the child wipes one store after the other
	mistakeVariable = "NEOKV_TEST_MISTAKE" // the name of a mistake to plant; "" for none
)

// serveRole runs a cluster on the folder that the environment names, and prints its addresses.
func serveRole() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	hooks := new(seam.Hooks)
	m, err := mistakeOf(os.Getenv(mistakeVariable))
	if err == nil {
		m.plant(&hooks.Mistakes)
	}
	c, err := neokv.Start(seam.With(ctx, hooks), neokv.Config{Dir: os.Getenv(dirVariable), Settings: simSettings()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(c.Addrs(), ","))
	if os.Getenv(movesVariable) != "" {
		go moveAndCut(c)
	}
	if os.Getenv(wipesVariable) != "" {
		go wipeInTurn(c)
	}
	untilOrphaned()
}

// wipeInTurn wipes one store after the other, as far as none is open of an earlier life.
func wipeInTurn(c *neokv.Cluster) {
	for i := os.Getpid(); ; i++ {
		_, _ = c.Inject(context.Background(), fault.Fault{Verb: fault.Wipe, To: 1 + i%3})
		time.Sleep(10 * time.Millisecond)
	}
}

// moveAndCut cuts one store after the other off, for longer than an election takes, and moves leaders.
func moveAndCut(c *neokv.Cluster) {
	for i := 0; ; i++ {
		for _, x := range []struct {
			lasts time.Duration
			text  string
		}{
			{600 * time.Millisecond, fmt.Sprintf("partition %d all", 1+i%3)},
			{200 * time.Millisecond, "heal"},
			{100 * time.Millisecond, fmt.Sprint("stepdown ", 1+i%simRegions)},
		} {
			f, err := fault.Parse(x.text)
			if err != nil {
				panic(err)
			}
			_, _ = c.Inject(context.Background(), f) // a region without a leader has none to step down
			time.Sleep(x.lasts)
		}
	}
}

// outside are clients of a cluster that runs in a process of its own, or in several one after the other, and what they
// have seen.
type outside struct {
	t       *testing.T
	seed    uint64
	out     *os.File
	h       *history
	clients int // so far
}

// newOutside makes the history. The file of it stays if the test fails.
func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{t: t, seed: *processSeed}
	if o.seed == 0 {
		o.seed = rand.Uint64()
	}
	var err error
	if o.out, err = os.CreateTemp("", "neokv-process-*.history"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.out.Close()
		if !t.Failed() {
			os.Remove(o.out.Name())
		}
	})
	o.h = newHistory(o.out)
	return o
}

// random returns a random source for one purpose.
func (o *outside) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, purpose)) }

// start starts a process.
func (o *outside) start(env ...string) (p *childProcess, addrs []string) {
	o.t.Helper()
	p = startRole(o.t, "serve", env...)
	o.h.note("a process starts: %s", p.line)
	if addrs = strings.Split(p.line, ","); len(addrs) != 3 {
		o.t.Fatalf("seed %d: %s", o.seed, p.line)
	}
	return p, addrs
}

// work lets n clients work until over is closed, and waits for them. Answers that come after that do not count.
func (o *outside) work(n int, addrs []string, over <-chan struct{}, work func(c *caller)) {
	var wg sync.WaitGroup
	for range n {
		o.clients++
		c := &caller{id: o.clients, h: o.h, addrs: addrs, dial: dialTCP, over: over}
		c.random = o.random(uint64(100 + o.clients))
		c.life = func(string) uint64 {
			if ended(over) {
				return 1
			}
			return 0
		}
		wg.Go(func() {
			defer c.close()
			work(c)
		})
	}
	wg.Wait()
}

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// readAll reads every key that clients have used. A single try may fail, since stores may still be cut off in turn.
func (o *outside) readAll(addrs []string) {
	var keys []string
	for _, x := range o.h.ops {
		keys = append(keys, x.key)
	}
	slices.Sort(keys)
	o.work(1, addrs, nil, func(c *caller) {
		for _, key := range slices.Compact(keys) {
			if err := c.readPatiently(get, key, ""); err != nil {
				o.t.Errorf("seed %d: %v", o.seed, err)
				return
			}
		}
	})
}

// TestKillNine kills the process of a cluster at random moments and starts it again on the same folder. No
// acknowledged write is lost, and the history of all lives together is linearizable.
func TestKillNine(t *testing.T) { killNine(t) }

// TestKillNineWipes is TestKillNine while stores are wiped all the time. Each start serves, and goes on with the wipe.
func TestKillNineWipes(t *testing.T) { killNine(t, wipesVariable+"=1") }

func killNine(t *testing.T, env ...string) {
	notShort(t)
	t.Parallel() // beside TestPausedProcess: both mostly wait
	o := newOutside(t)
	random := o.random(1)
	dir := dirVariable + "=" + t.TempDir()
	key := func(sort byte, life, region int) string { return simKey(sort, fmt.Sprint(life), region) }
	for life := 1; life <= *processKills; life++ {
		p, addrs := o.start(append(env, dir)...)
		dead := make(chan struct{})
		kill := time.AfterFunc(time.Duration(100+random.IntN(700))*time.Millisecond, func() {
			p.kill()
			close(dead)
		})
		o.work(4, addrs, dead, func(c *caller) {
			for n := 0; !ended(dead); n++ {
				region := c.random.IntN(simRegions)
				var err error
				switch c.random.IntN(4) {
				case 0:
					_, err = c.do(get, key('r', life, region), "")
				case 1:
					_, err = c.do(set, key('r', life, region), fmt.Sprintf("%d-%d", c.id, n))
				case 2:
					_, err = c.do(incr, key('c', life, region), "")
				case 3: // a key that no other operation writes
					_, err = c.do(set, fmt.Sprintf("k%d-%d", c.id, n), "there")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		kill.Stop()
	}
	p, addrs := o.start(dir)
	o.readAll(addrs)
	p.kill()
	if err := o.h.check(); err != nil {
		t.Errorf("seed %d: %v\nhistory: %s", o.seed, err, o.out.Name())
	}
	acknowledged, unknown := o.h.count()
	t.Logf("seed %d: %d kills, %d operations acknowledged, %d unknown", o.seed, *processKills, acknowledged, unknown)
	if acknowledged < 20**processKills {
		t.Errorf("only %d operations acknowledged", acknowledged)
	}
}
