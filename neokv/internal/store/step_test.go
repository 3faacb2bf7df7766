package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// TestNextStep runs the scenarios of testdata/steps.txt.
func TestNextStep(t *testing.T) {
	text, err := os.ReadFile("testdata/steps.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]keys.ChangeKind{"none": keys.NoChange, "splitting": keys.Splitting, "has-split": keys.HasSplit,
		"merging": keys.Merging, "merged": keys.Merged, "leaving": keys.Leaving}
	said := make(map[step]bool)
	for i, line := range strings.Split(string(text), "\n") {
		known, want, ok := strings.Cut(line, " -> ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		known, last, _ := strings.Cut(known, " last ")
		words := strings.Fields(known)
		v := changeView{gaveUp: strings.HasSuffix(known, "gave up")}
		if len(words) > 1 {
			v.wants = kinds[words[2]]
		}
		if last != "" {
			if v.last = step(slices.Index(stepNames[:], last)); v.last < 0 {
				t.Fatalf("line %d: no step %q", i+1, last)
			}
		}
		got := nextStep(kinds[words[0]], v)
		if got.String() != want {
			t.Errorf("line %d: %s; want %s", i+1, got, want)
		}
		said[got] = true
	}
	for x := stepBegin + 1; x <= stepNone; x++ {
		if !said[x] {
			t.Errorf("no scenario needs the step %s", x)
		}
	}
}

// TestCrashAtEveryStep cuts the power of the store that drives a split or a merge when it has taken a step. The stores
// that are left, and the one that comes back, undo the change or finish it, and nothing is lost.
func TestCrashAtEveryStep(t *testing.T) {
	for _, c := range []struct {
		change  string
		stepped []step // in order
		undone  int    // after so many of them the change is undone, after the others finished
	}{
		{"split", []step{stepBegin, stepSplit, stepChildBegins, stepEnd}, 1},
		{"merge", []step{stepBegin, stepFreeze, stepAllFrozen, stepMerge, stepAllMerged, stepEnd}, 3},
		{"merge that is late", []step{stepBegin, stepFreeze, stepCallOff, stepThaw}, 4},
	} {
		for i, x := range c.stepped {
			regions := 3
			switch {
			case i < c.undone:
			case c.change == "split":
				regions = 4
			default:
				regions = 2
			}
			t.Run(c.change+"/"+x.String(), func(t *testing.T) { crashAt(t, c.change, x, regions) })
		}
	}
}

// crashAt has region 1 split, or merged with region 2, and wants so many regions when all is settled.
func crashAt(t *testing.T, change string, at step, regions int) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		for i := range 60 {
			c.want("+OK\r\n", "SET", fmt.Sprint("k", i), fmt.Sprint(i))
		}
		s := c.leader(1)
		c.lead(2, 1+s.ID()%3)
		reached := make(chan struct{})
		s.drivers.onStep = func(id topology.RegionID, x step) {
			switch {
			case id != 1:
			case x == at && s.ctx.Err() == nil:
				close(reached)
				<-s.ctx.Done()
			case x == stepFreeze && change == "merge that is late":
				time.Sleep(freezeTime)
			}
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if change == "split" {
				s.Split(t.Context(), 1, 100, 0, "")
			} else {
				s.Merge(t.Context(), 1, "", new(time.Duration))
			}
		}()
		select {
		case <-reached:
		case <-ended:
			t.Fatalf("the change is over before the step %s", at)
		}
		i := int(s.ID()) - 1
		left := c.fs[i].Crash(50, rand.New(rand.NewPCG(uint64(at), 1)))
		if err := s.Close(); err != nil {
			t.Errorf("close the store that crashed: %v", err)
		}
		<-ended
		c.stores[i], c.fs[i] = nil, left
		time.Sleep(3 * Heartbeat)
		c.open(i, false)
		c.until("end of the change on all stores", func() bool {
			for _, s := range c.stores {
				t := s.Table()
				if t == nil || len(t.Regions) != regions || len(s.replicas.all()) != regions {
					return false
				}
				for _, e := range t.Regions {
					if b := s.Replica(e.ID).Bounds(); e.Leader == 0 || b.Change.Kind != keys.NoChange ||
						b.Phase != keys.Serving {
						return false
					}
				}
			}
			return true
		})
		for i := range 60 {
			key := fmt.Sprint("k", i)
			x := run("GET", key)
			c.until("read of "+key, func() bool { // the leader may change yet: a store that starts late campaigns
				entry, _ := c.stores[0].Table().Region(topology.SlotOf([]byte(key)))
				return entry.Leader != 0 &&
					c.stores[entry.Leader-1].Replica(entry.ID).Read(x, time.Now().Add(time.Second)) == nil
			})
			if got, want := string(x.Out.Buf), fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i); got != want {
				t.Errorf("%s = %q; want %q", key, got, want)
			}
		}
	})
}
