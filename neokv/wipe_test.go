package neokv

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
)

// inject carries out what a text of ctl says.
func inject(t *testing.T, c *Cluster, text string) (outcome string, err error) {
	t.Helper()
	f, err := fault.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return c.Inject(ctx, f)
}

// TestWipe wipes each store of a cluster in turn, on disk and in memory. Each comes back empty, gets all its replicas
// anew, that of meta among them, and is needed after that: another store is killed then.
func TestWipe(t *testing.T) {
	for _, memory := range []bool{true, false} {
		t.Run(fmt.Sprintf("memory=%v", memory), func(t *testing.T) {
			t.Parallel()
			l := newLostCluster(t, false)
			if memory {
				l.config.Dir, l.config.InMemory = "", true
			}
			c, err := l.open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for round := range 2 {
				for store := 1; store <= 3; store++ {
					l.write(t, c, 60)
					want := fmt.Sprintf("store %d has come back empty, and its replicas have been made anew", store)
					if got, err := inject(t, c, fmt.Sprint("wipe ", store)); got != want || err != nil {
						t.Fatalf("round %d: wipe %d: %q, %v; want %q", round, store, got, err, want)
					}
					if w := c.Status().Wipes; len(w) > 0 {
						t.Errorf("after the wipe of store %d: %+v", store, w)
					}
					l.write(t, c, 60)
					do(t, c, fmt.Sprint("kill ", store%3+1))
					l.write(t, c, 60)
					if n := l.missing(t, c); n != 0 {
						t.Errorf("store %d was wiped, and %d acknowledged writes are missing", store, n)
					}
					do(t, c, fmt.Sprint("restart ", store%3+1))
					if err := c.WaitHealthy(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestRebuildParts is the matrix of TestLostParts for store 3, with Rebuild: each case ends with all data on all stores.
// The seed draws some cases; with -lost.all all run.
func TestRebuildParts(t *testing.T) {
	if raceBuild {
		t.Skip("as TestLostParts")
	}
	seed := cmp.Or(*lostSeed, rand.Uint64())
	t.Logf("again: go test ./neokv -run TestRebuildParts -lost.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	for _, x := range [][2]bool{{false, false}, {true, true}} {
		f := newLostFolder(t, x[0], x[1])
		whole := lostCase{"store-#", []int{3}, "gone"}
		var cases []lostCase
		for i := range f.parts {
			for _, way := range slices.Concat(losses, damages) {
				c := lostCase{f.parts[i].kind, []int{3}, way}
				if f.parts[i].paths[0] == nil && f.can(c.kind, c.stores, way) && c.String() != whole.String() {
					cases = append(cases, c)
				}
			}
		}
		random.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
		if !*lostAll {
			cases = cases[:4]
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range append(cases, whole) {
				t.Run(c.String(), func(t *testing.T) {
					copyTree(t, f.newer, f.base)
					f.hurt(t, c.kind, 3, c.way)
					f.rebuild(t)
				})
			}
		})
	}
}

// rebuild starts the cluster, whose store 3 may lack something, with Rebuild. All data is there, and on all stores.
func (l *lostCluster) rebuild(t *testing.T) {
	config := l.config
	config.Rebuild = 3
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil && len(c.Failed()) == 0 {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	wiped := false
	well := func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return c.WaitHealthy(ctx) == nil
	}
	for !well() && ctx.Err() == nil {
		// Some damage shows only when the store has run for a moment.
		if s := c.Status(); len(s.Wipes) == 0 && s.Stores[2].State == StateFailed && !wiped {
			_, err := inject(t, c, "wipe 3")
			wiped = err == nil
		}
	}
	if err := c.WaitHealthy(ctx); err != nil {
		t.Fatalf("%v: %+v", err, c.Status())
	}
	if n := l.missing(t, c); n != 0 {
		t.Errorf("%d acknowledged writes are missing", n)
	}
	do(t, c, "kill 1")
	if n := l.missing(t, c); n != 0 {
		t.Errorf("without store 1 %d acknowledged writes are missing", n)
	}
}
