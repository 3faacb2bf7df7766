package bench

import (
	"errors"
	"slices"
	"time"
)

// A client of a Redis Cluster that sends whatever comes next has a pipeline whose operations go to several nodes, and
// waits for the slowest of them. A client that is asked to keep its pipelines to one node sets operations aside by node
// until there are enough for one of them. So the keys are those of the workload, in nearly its order. A client that is
// asked to keep its pipelines to one slot asks the generator for records there. An operation that cannot be in the slot
// ends the pipeline, and begins the next one.

// PipelineSlots says where the operations of a pipeline go.
type PipelineSlots uint8

const (
	SpreadSlots PipelineSlots = iota // to wherever their keys are
	OneNode                          // to one node of a cluster
	OneSlot                          // to keys of one slot
)

// ParsePipelineSlots reads what a user typed.
func ParsePipelineSlots(text string) (PipelineSlots, error) {
	if i := slices.Index([]string{"spread", "node", "slot"}, text); i >= 0 {
		return PipelineSlots(i), nil
	}
	return 0, errors.New("want spread, node or slot")
}

// begin begins a batch with what was set aside for it, and reports whether that is a whole pipeline.
func (w *worker) begin(size int) (full bool) {
	w.reset()
	if w.slot = anySlot; w.group.o.Slots == OneSlot && w.waiting() {
		w.pickUp()
		w.slot = w.steps[0].slot
		return len(w.batch) == size
	}
	return false
}

// draw draws the next operation of the workload, due at an instant, for the batch or to be set aside. It reports
// whether there is a whole pipeline.
func (w *worker) draw(planned time.Duration, size int) (full bool) {
	if w.group.o.Slots != OneSlot {
		w.gen.Next(&w.req)
		w.append(planned)
		if w.group.o.Slots == OneNode {
			return w.setAside(int(w.route(&w.batch[len(w.batch)-1]))) >= size
		}
		return len(w.batch) == size
	}
	w.gen.NextIn(&w.req, int(max(anySlot, w.slot)))
	w.append(planned)
	switch slot := w.steps[w.batch[len(w.batch)-1].first].slot; {
	case slot == anySlot || slot == w.slot:
	case w.slot == anySlot:
		w.slot = slot
	default:
		w.setAside(0)
		return true
	}
	return len(w.batch) == size
}

// settle makes the batch what is to be sent: of operations that are set aside by node, those of one node. In a pipeline
// of one slot, commands without a key go where the others go.
func (w *worker) settle() {
	switch w.group.o.Slots {
	case OneNode:
		w.pickUp()
	case OneSlot:
		for i := range w.steps {
			if w.steps[i].slot == anySlot {
				w.steps[i].slot = w.slot
			}
		}
	}
}

// asideBatch holds operations that the worker has drawn and not taken up.
type asideBatch struct {
	batch []sentOp
	steps []sentStep
	arena []byte
}

// setAside moves the last operation of the batch to those at a place. It returns how many are there.
func (w *worker) setAside(place int) int {
	last := len(w.batch) - 1
	p := w.batch[last]
	for place >= len(w.aside) {
		w.aside = append(w.aside, asideBatch{})
	}
	a := &w.aside[place]
	from := w.steps[p.first].from
	for _, x := range w.steps[p.first:] {
		x.from, x.to = x.from-from+len(a.arena), x.to-from+len(a.arena)
		a.steps = append(a.steps, x)
	}
	a.arena = append(a.arena, w.arena[from:]...)
	w.batch, w.steps, w.arena = w.batch[:last], w.steps[:p.first], w.arena[:from]
	n := p.last - p.first
	p.first, p.step, p.last = len(a.steps)-n, len(a.steps)-n, len(a.steps)
	a.batch = append(a.batch, p)
	return len(a.batch)
}

// pickUp makes the operations of the place that has most of them the batch.
func (w *worker) pickUp() {
	most := 0
	for i := range w.aside {
		if len(w.aside[i].batch) > len(w.aside[most].batch) {
			most = i
		}
	}
	a := &w.aside[most]
	w.reset()
	w.batch, w.steps, w.arena, *a = a.batch, a.steps, a.arena, asideBatch{w.batch, w.steps, w.arena}
}

// waiting reports whether operations are set aside.
func (w *worker) waiting() bool {
	return slices.ContainsFunc(w.aside, func(a asideBatch) bool { return len(a.batch) > 0 })
}

// abandon ends the operations that are set aside without sending them, and tells drop, unless it is nil.
func (w *worker) abandon(drop func(op uint8, due time.Duration)) {
	for ; w.waiting(); w.reset() {
		w.pickUp()
		for i := range w.batch {
			p := &w.batch[i]
			p.failure = cutOff
			w.ended(p)
			if drop != nil {
				drop(p.op, p.planned)
			}
		}
	}
}
