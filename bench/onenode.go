package bench

import "slices"

// A client of a Redis Cluster that sends whatever comes next has a pipeline whose operations go to several nodes, and
// waits for the slowest of them. A client that is asked to keep its pipelines to one node sets operations aside by node
// until there are enough for one of them. So the keys are those of the workload, in nearly its order.

// asideBatch holds operations that the worker has drawn and not taken up, all for one node.
type asideBatch struct {
	batch []sentOp
	steps []sentStep
	arena []byte
}

// setAside moves the last operation of the batch to those of its node. It returns how many the node has.
func (w *worker) setAside() int {
	last := len(w.batch) - 1
	p := w.batch[last]
	node := int(w.route(&p))
	for node >= len(w.aside) {
		w.aside = append(w.aside, asideBatch{})
	}
	a := &w.aside[node]
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

// pickUp makes the operations of the node that has most of them the batch.
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

// abandon ends the operations that are set aside without sending them, and returns how many there were.
func (w *worker) abandon() (n int64) {
	for ; w.waiting(); w.reset() {
		w.pickUp()
		for i := range w.batch {
			w.batch[i].failure = cutOff
			w.ended(&w.batch[i])
		}
		n += int64(len(w.batch))
	}
	return n
}
