package sim

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// explainTime bounds each search for what would explain a history that is not linearizable.
const explainTime = 5 * time.Second

func explainable(ops []*op) bool {
	return porcupine.CheckOperationsTimeout(modelOf(ops), forPorcupine(ops), explainTime) == porcupine.Ok
}

// seen is a key's history as of an instant of its clock: what has not ended by then is open.
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

// culprit returns the first operation whose reply nothing explains, of a key's history that is not linearizable.
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

// with returns a history in which an operation is replaced by others.
func with(ops []*op, o *op, instead ...*op) []*op {
	return append(slices.DeleteFunc(slices.Clone(ops), func(x *op) bool { return x == o }), instead...)
}

// past reports whether an operation's reply would be right of some state that the key has been in: it saw a past state.
func past(ops []*op, o *op) bool {
	early := *o
	early.call, early.began, early.line, early.changesNothing = 0, 0, 0, true
	return explainable(with(ops, o, &early))
}

// latestWrites returns those of a history that were called last: to try all of them twice takes too long.
func latestWrites(ops []*op, most int) []*op {
	writes := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.kind.reads() })
	slices.SortFunc(writes, func(a, b *op) int { return int(a.call - b.call) })
	return writes[max(0, len(writes)-most):]
}

// explain says of which kind the problem is in a key's history that is not linearizable, and with which operation it shows.
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
	// A read saw a past state. It was stale, if the last read of all is right once such reads are left out.
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
