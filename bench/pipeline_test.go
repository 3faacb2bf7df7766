package bench

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"neokv.dev/results"
)

// With OneNode the operations of a pipeline go to one node, in full pipelines, and the keys are still those of the
// workload.
func TestOneNode(t *testing.T) {
	w := nullWorker("ycsb-f", 8, OneNode)
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
			node := int(w.route(&w.batch[0]))
			full = w.setAside(node) == 8
			a := &w.aside[node]
			p := a.batch[len(a.batch)-1]
			if got := a.arena[a.steps[p.first].from:a.steps[p.last-1].to]; !bytes.Equal(got, request) {
				t.Fatalf("set aside %q, want %q", got, request)
			}
		}
		w.settle()
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
	abandoned := 0
	waited := w.waiting()
	if w.abandon(func(uint8, time.Duration) { abandoned++ }); !waited || abandoned == 0 || w.waiting() {
		t.Error("operations that are set aside are not abandoned")
	}
	if n := testing.AllocsPerRun(100, w.pipeline); n > 0 {
		t.Errorf("%g allocations for a pipeline", n)
	}
}

// pipeline draws a pipeline.
func (w *worker) pipeline() {
	for full := w.begin(w.group.o.Pipeline); !full; {
		full = w.draw(-1, w.group.o.Pipeline)
	}
	w.settle()
}

// With OneSlot the operations of a pipeline are about keys of one slot. Operations and slots are as frequent as
// without.
func TestOneSlot(t *testing.T) {
	cases := []struct {
		workload string
		length   float64 // how many operations a pipeline has on average, at least
	}{{"hash", 8}, {"ycsb-f", 8}, {"read-missing", 8}, {"ycsb-e", 5}, {"ycsb-d", 5}, {"queue", 4}, {"members", 4},
		{"mixed", 5}, {"chat", 1.2}, {"scan", 1.5}, {"redis-benchmark", 1.2}}
	if testing.Short() {
		cases = cases[:1]
	}
	for _, c := range cases {
		w := nullWorker(c.workload, 8, OneSlot)
		spread := nullWorker(c.workload, 8, SpreadSlots)
		const pipelines = 4000
		drawn, usual, total := make([]int, len(w.ops)), make([]int, len(w.ops)), 0
		slotsOf, usualSlots := map[int32]int{}, map[int32]int{}
		for range pipelines {
			w.pipeline()
			slot := w.steps[0].slot
			for i := range w.batch {
				p := &w.batch[i]
				x := &w.steps[p.first]
				if x.slot != slot {
					t.Fatalf("%s: a pipeline has slots %d and %d", c.workload, slot, x.slot)
				}
				request := w.arena[x.from:x.to]
				if key := keyOf(request); slot >= 0 && len(key) > 0 && w.ops[p.op].Name != "ping" &&
					int32(slotOf(key)) != slot {
					t.Fatalf("%s: %q in a pipeline of slot %d", c.workload, request, slot)
				}
				drawn[p.op]++
				w.ended(p)
			}
			if total += len(w.batch); len(w.batch) > 8 {
				t.Fatalf("%s: a pipeline of %d", c.workload, len(w.batch))
			}
			slotsOf[slot]++
			spread.pipeline()
			for i := range spread.batch {
				usual[spread.batch[i].op]++
				spread.ended(&spread.batch[i])
			}
			x := spread.steps[0]
			usualSlots[int32(slotOf(keyOf(spread.arena[x.from:x.to])))]++
		}
		if length := float64(total) / pipelines; length < c.length {
			t.Errorf("%s: pipelines have %.2f operations, want at least %g", c.workload, length, c.length)
		} else {
			t.Logf("%s: pipelines have %.2f operations", c.workload, length)
		}
		for i := range drawn {
			got, want := float64(drawn[i])/float64(total), float64(usual[i])/(8*pipelines)
			if d := math.Abs(got - want); d > 0.03 {
				t.Errorf("%s: %s has a share of %.3f, want %.3f", c.workload, w.ops[i].Name, got, want)
			}
		}
		if c.workload != "hash" {
			continue
		}
		// The hottest slots are those of the workload, as hot as without.
		most := func(m map[int32]int) (at int32) {
			for s := range m {
				if m[s] > m[at] {
					at = s
				}
			}
			return at
		}
		hot := most(usualSlots)
		if most(slotsOf) != hot || math.Abs(float64(slotsOf[hot]-usualSlots[hot])) > 0.3*float64(usualSlots[hot]) ||
			len(slotsOf) < len(usualSlots)*9/10 {
			t.Errorf("%d slots, the hottest %d with %d pipelines; want about %d, %d with %d", len(slotsOf),
				most(slotsOf), slotsOf[most(slotsOf)], len(usualSlots), hot, usualSlots[hot])
		}
	}
	w := nullWorker("queue", 8, OneSlot)
	for range 1000 {
		w.pipeline()
	}
	if n := testing.AllocsPerRun(100, w.pipeline); n > 0 {
		t.Errorf("%g allocations for a pipeline", n)
	}
}

// keyOf returns the second word of an encoded request.
func keyOf(request []byte) []byte {
	if words := bytes.Split(request, []byte("\r\n")); len(words) > 4 {
		return words[4]
	}
	return nil
}

// The ledger adds up where operations are set aside, and nothing is lost.
func TestPipelineSlotsRun(t *testing.T) {
	f := startFakeCluster(t)
	for _, slots := range []PipelineSlots{OneNode, OneSlot} {
		for _, rate := range []Pace{{}, Steady(5000), Steady(1e6)} {
			var buf bytes.Buffer
			s, err := Run(context.Background(), usual(Options{
				Groups: []GroupOptions{{
					Workload: "ycsb-d", Clients: 3, Pipeline: 4, Slots: slots, Rate: rate, Records: 500, ValueSize: 20,
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
			if g, h := s.Groups[0], rec.Header.Groups[0]; g.Total.Count == 0 || g.Total.Errors > 0 ||
				g.Ops[0].Misses > 0 || h.OneNode != (slots == OneNode) || h.OneSlot != (slots == OneSlot) {
				t.Errorf("%d at rate %s: %+v, %d misses, %+v", slots, rate, g.Ledger, g.Ops[0].Misses, h)
			}
		}
	}
}
