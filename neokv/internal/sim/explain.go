package sim

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// explainTime bounds each check of a changed history, in real time.
const explainTime = 5 * time.Second

// explainable reports whether a history is linearizable.
func explainable(ops []*op) bool {
	return decide(ops, explainTime) == porcupine.Ok
}

// seen is the history of a key as of an instant of its clock: operations that end later are open.
func seen(ops []*op, by int64) (out []*op) {
	for _, o := range ops {
		switch {
		case o.call > by:
		case o.end > by:
			open := *o
			open.end, open.reply, open.ended, open.mustGo = 0, "", forever, forever
			out = append(out, &open)
		default:
			out = append(out, o)
		}
	}
	return out
}

// culprit returns the first operation whose reply makes the history of a key not linearizable.
func culprit(ops []*op) *op {
	ended := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.end == 0 })
	slices.SortFunc(ended, func(a, b *op) int { return int(a.end - b.end) })
	low, high := 0, len(ended)-1
	for low < high {
		if at := (low + high) / 2; explainable(seen(ops, ended[at].end)) {
			low = at + 1
		} else {
			high = at
		}
	}
	return ended[high]
}

// with returns a history with an operation replaced by others.
func with(ops []*op, o *op, instead ...*op) []*op {
	return append(slices.DeleteFunc(slices.Clone(ops), func(x *op) bool { return x == o }), instead...)
}

// past reports whether an operation saw a past state of the key: its reply would be right at some earlier instant.
func past(ops []*op, o *op) bool {
	early := *o
	early.call, early.began, early.line, early.changesNothing = 0, 0, 0, true
	return explainable(with(ops, o, &early))
}

// latestWrites returns the writes of a history that were called last, so many at most.
func latestWrites(ops []*op, most int) []*op {
	writes := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.kind.reads() })
	slices.SortFunc(writes, func(a, b *op) int { return int(a.call - b.call) })
	return writes[max(0, len(writes)-most):]
}

// explain returns why the history of a key is not linearizable, and the operation that shows it. It tries which
// change would make the history right: leaving out the order of pipelines, letting the operation see a past state,
// letting one of the last writes take effect twice.
func explain(ops []*op) (evidence, *op) {
	first := culprit(ops)
	before := seen(ops, first.end)
	unordered := make([]*op, len(before))
	for i, o := range before {
		free := *o
		free.line = 0
		unordered[i] = &free
	}
	switch {
	case explainable(unordered):
		return outOfOrder, first
	case !past(before, first):
		again := slices.Clone(before)
		for _, o := range latestWrites(before, 12) {
			second := *o
			second.end, second.reply, second.ended, second.mustGo, second.line = 0, "", forever, forever, 0
			again = append(again, &second)
		}
		if explainable(again) {
			return doubled, first
		}
		return wrongEffect, first
	case !first.kind.reads():
		return lostWrite, first
	}
	// A read saw a past state. It was stale if the history without such reads is right, up to its last read.
	last := first
	for _, o := range ops {
		if o.kind.reads() && o.end != 0 && o.call > last.call {
			last = o
		}
	}
	for o, tries := first, 0; o.kind.reads() && o != last && tries < 100; tries++ {
		if ops = with(ops, o); explainable(ops) {
			return staleRead, first
		}
		o = culprit(ops)
	}
	return lostWrite, first
}
