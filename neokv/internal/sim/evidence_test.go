package sim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// evidence is what kind of problem a run has found. A planted mistake counts as found by the kinds that it should show alone: a child that
// dies, a boot that fails or a watchdog says nothing of it.
type evidence string

const (
	// Of a key's history; see explain.
	lostWrite   evidence = "lost write"   // the key went back to a past state, for good or for a write to see it
	staleRead   evidence = "stale read"   // reads saw a past state, and later ones did not
	doubled     evidence = "effect twice" // a write took effect more than once
	outOfOrder  evidence = "out of order" // commands of one pipeline took effect in another order than they were sent in
	wrongEffect evidence = "wrong effect" // none of these explains what a command answered

	// Of the stores.
	replicasDiffer evidence = "replicas differ" // in what they hold at the same apply index
	logsDiffer     evidence = "logs differ"     // in what they took from the log at the same index, or in what of it they let take effect
	unreadable     evidence = "unreadable"      // a replica holds what no command can reach
	lags           evidence = "lags"            // a replica does not catch up after everything was healed
	noAnswer       evidence = "no answer"       // the cluster does not serve again after everything was healed
	oddReply       evidence = "odd reply"       // an error that no client should see
	storeFailed    evidence = "store failed"    // it stopped by itself
)

// finding is a problem of a known kind.
type finding struct {
	kind evidence
	error
}

func (f *finding) Unwrap() error      { return f.error }
func (f *finding) evidence() evidence { return f.kind }

func found(kind evidence, format string, args ...any) error {
	return &finding{kind, fmt.Errorf(format, args...)}
}

// evidenceOf returns a problem's kind, "" where it has none.
func evidenceOf(err error) evidence {
	var known interface{ evidence() evidence }
	if errors.As(err, &known) {
		return known.evidence()
	}
	return ""
}

// explainTime bounds each search for what would explain a history that is not linearizable.
const explainTime = 5 * time.Second

func explainable(ops []*op) bool {
	return porcupine.CheckOperationsTimeout(modelOf(ops), operations(ops), explainTime) == porcupine.Ok
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

// TestEvidence gives the checker histories that are not linearizable, of which the kind is plain.
func TestEvidence(t *testing.T) {
	o := func(k kind, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "k", value: value, call: call, end: end, reply: reply, expiry: expiry{ended: forever}}
	}
	in := func(line uint64, turn int, o *op) *op {
		o.line, o.turn = line, turn
		return o
	}
	for _, x := range []struct {
		name string
		ops  []*op
		want evidence
	}{
		{"an old value, then the new one", []*op{o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "a"), o(get, "", 7, 8, "b")}, staleRead},
		{"old values, then the new one", []*op{o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "a"), o(get, "", 6, 7, ""), o(get, "", 7, 8, "b")}, staleRead},
		{"an old value, for good", []*op{o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "b"), o(get, "", 7, 8, "a"), o(get, "", 9, 10, "a")}, lostWrite},
		{"nothing, for good", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "")}, lostWrite},
		{"a count that is given twice", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "2"), o(incr, "", 5, 6, "2"), o(get, "", 7, 8, "2")}, lostWrite},
		{"two winners", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "1")}, lostWrite},
		{"a count that is left out", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "3")}, doubled},
		{"a count of unknown outcome that counts twice", []*op{o(incr, "", 1, 0, ""), o(get, "", 2, 3, "1"), o(get, "", 4, 5, "2")}, doubled},
		{"a value out of nowhere", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "b")}, wrongEffect},
		{"the first of two remains", []*op{in(7, 0, o(set, "a", 1, 3, "OK")), in(7, 1, o(set, "b", 2, 4, "OK")), o(get, "", 5, 6, "a")}, outOfOrder},
		{"the second comes first", []*op{in(7, 0, o(incr, "", 1, 3, "2")), in(7, 1, o(incr, "", 2, 4, "1"))}, outOfOrder},
	} {
		h := &history{ops: x.ops}
		if got := evidenceOf(h.check()); got != x.want {
			t.Errorf("%s: %q; want %q", x.name, got, x.want)
		}
	}
}
