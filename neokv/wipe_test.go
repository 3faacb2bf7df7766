package neokv

import (
	"context"
	"fmt"
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
