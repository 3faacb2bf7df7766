package bench

import (
	"bytes"
	"context"
	"testing"
	"time"

	"neokv.dev/results"
)

// With OneNode the operations of a pipeline go to one node, in full pipelines, and the keys are still those of the
// workload.
func TestOneNode(t *testing.T) {
	w := nullWorker("ycsb-f", 8)
	table := new(slotTable)
	for s := range table {
		table[s] = nodeID(s % 3)
	}
	w.run.target.table.Store(table)
	used := map[nodeID]int{}
	for range 100 {
		w.reset()
		for full := false; !full; {
			w.gen.Next(&w.req)
			w.append(-1)
			request := bytes.Clone(w.arena)
			node := w.route(&w.batch[0])
			full = w.setAside() == 8
			a := &w.aside[node]
			p := a.batch[len(a.batch)-1]
			if got := a.arena[a.steps[p.first].from:a.steps[p.last-1].to]; !bytes.Equal(got, request) {
				t.Fatalf("set aside %q, want %q", got, request)
			}
		}
		w.pickUp()
		node := w.route(&w.batch[0])
		for i := range w.batch {
			if w.route(&w.batch[i]) != node || len(w.batch) != 8 {
				t.Fatalf("a pipeline of %d for nodes %d and %d", len(w.batch), node, w.route(&w.batch[i]))
			}
		}
		used[node]++
	}
	if len(used) != 3 || used[0] < 20 || used[1] < 20 || used[2] < 20 {
		t.Errorf("pipelines of the nodes: %v", used)
	}
	if !w.waiting() || w.abandon() == 0 || w.waiting() {
		t.Error("operations that are set aside are not abandoned")
	}
	if n := testing.AllocsPerRun(100, func() {
		w.reset()
		for full := false; !full; {
			w.gen.Next(&w.req)
			w.append(-1)
			full = w.setAside() == 8
		}
		w.pickUp()
	}); n > 0 {
		t.Errorf("%g allocations for a pipeline", n)
	}
}

// The ledger adds up where operations are set aside, and nothing is lost.
func TestOneNodeRuns(t *testing.T) {
	f := startFakeCluster(t)
	for _, rate := range []Pace{{}, Steady(5000), Steady(1e6)} {
		var buf bytes.Buffer
		s, err := Run(context.Background(), usual(Options{
			Groups: []GroupOptions{{
				Workload: "ycsb-d", Clients: 3, Pipeline: 4, OneNode: true, Rate: rate, Records: 500, ValueSize: 20,
			}},
			Targets: f.addrs, Duration: 200 * time.Millisecond, Warmup: 100 * time.Millisecond, Seed: 1,
		}), results.NewWriter(&buf))
		if err != nil {
			t.Fatal(err)
		}
		rec, err := results.Read(&buf)
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		if g := s.Groups[0]; g.Total.Count == 0 || g.Total.Errors > 0 || g.Ops[0].Misses > 0 ||
			!rec.Header.Groups[0].OneNode {
			t.Errorf("rate %s: %+v, %d misses", rate, g.Ledger, g.Ops[0].Misses)
		}
	}
}
