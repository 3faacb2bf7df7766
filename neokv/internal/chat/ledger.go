package chat

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger has all that was written, and what is known of it. Its clock counts: a commit happens at one instant between
// its begin and its end, and a read sees one instant between its from and its to.
type ledger struct {
	skew time.Duration

	mu     sync.Mutex
	clock  int64
	writes map[string][]*chatWrite // by key, in the order in which the commits began
	seen   int                     // how often a read has shown that a commit has happened
}

func newLedger(skew time.Duration) *ledger {
	return &ledger{skew: skew, writes: make(map[string][]*chatWrite)}
}

// deed is a commit.
type deed struct {
	what       string
	begin, end int64  // end is 0 as long as nobody knows that it has happened
	how        string // is it known that it has happened: by its acknowledgement, or by a key that was seen
	refused    bool   // it has not happened, and will not

	// Keys that it gives a time to live have been given it between the two.
	began, ended time.Time
}

// chatWrite is what a commit leaves at one key.
type chatWrite struct {
	*deed
	Write
}

// late is how long after a commit of unknown outcome has returned it may still happen. A cluster tries for 2 s by
// default (redis.leaderless_wait).
const late = 10 * time.Second

// rounding is the precision of times to live.
const rounding = 2 * time.Millisecond

// now returns an instant behind all that has happened.
func (l *ledger) now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return l.clock
}

// begin enters a commit that is about to be made. What counts of several writes to one key is the last.
func (l *ledger) begin(what string, writes []Write) *deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	now := time.Now()
	d := &deed{what: what, begin: l.clock, began: now, ended: now.Add(1000 * time.Hour)}
	for i, w := range writes {
		if !slices.ContainsFunc(writes[i+1:], func(x Write) bool { return x.Key == w.Key }) {
			l.writes[w.Key] = append(l.writes[w.Key], &chatWrite{d, w})
		}
	}
	return d
}

// acknowledge enters that a commit has happened by now.
func (l *ledger) acknowledge(d *deed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	d.happened(l.clock, "acknowledged", time.Now())
}

// lose enters that nobody knows what becomes of a commit.
func (l *ledger) lose(d *deed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.end == 0 {
		d.ended = time.Now().Add(late)
	}
}

// refuse enters that a commit has not happened. The error says that somebody has seen it.
func (l *ledger) refuse(d *deed, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.end != 0 {
		return fmt.Errorf("%s was refused (%v), and is %s", d.what, why, d.how)
	}
	d.refused = true
	return nil
}

// happened enters that a commit had happened at an instant.
func (d *deed) happened(at int64, how string, now time.Time) {
	if d.end == 0 || at < d.end {
		d.end, d.how, d.ended = at, how, now
	}
}

// sighting is what a read has found at a key: at an instant between from and to, or if to comes before from, at both.
type sighting struct {
	key, value string
	found      bool
	from, to   int64
}

// judge compares what a read has found with what was written. If only one commit can be the reason, that commit has
// happened. The error says that nothing that was written explains what the read has found.
func (l *ledger) judge(x sighting) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	all := l.writes[x.key]
	// A write is past if another one, which began after its end, had ended when the read began.
	last := int64(0)
	for _, w := range all {
		if w.end != 0 && w.end < x.from {
			last = max(last, w.begin)
		}
	}
	nothing := last == 0 // the key may be as it was before the first write
	reasons := 0
	if nothing && !x.found {
		reasons++
	}
	var reason *chatWrite
	for _, w := range all {
		if !w.refused && w.begin < x.to && !w.past(last) && w.shows(x, l.skew, now) {
			reasons++
			reason = w
		}
	}
	switch {
	case reasons == 0:
		return l.unexplained(x, last, now)
	case reasons == 1 && reason != nil && (reason.end == 0 || reason.end > x.to):
		reason.happened(x.to, "seen at "+x.key, now)
		l.seen++
	}
	return nil
}

// past reports whether a write has been overtaken by one that began at last.
func (w *chatWrite) past(last int64) bool { return w.end != 0 && w.end < last }

// shows reports whether a key may look so after the write. A value with a time to live may be gone when the time has
// passed by the fastest of clocks, and is gone when it has by the slowest.
func (w *chatWrite) shows(x sighting, skew time.Duration, now time.Time) bool {
	switch {
	case w.Delete:
		return !x.found
	case x.found:
		return x.value == w.Value && !w.expired(skew, now)
	}
	return w.TTL > 0 && !now.Before(w.began.Add(w.TTL-2*skew-rounding))
}

// expired reports whether the time to live of a value has passed by any clock.
func (w *chatWrite) expired(skew time.Duration, now time.Time) bool {
	return w.TTL > 0 && now.After(w.ended.Add(w.TTL+2*skew+rounding))
}

// unexplained says what a read should have found.
func (l *ledger) unexplained(x sighting, last int64, now time.Time) error {
	is, want := "is not there", []string(nil)
	if x.found {
		is = fmt.Sprintf("is %.50q", x.value)
	}
	if last == 0 {
		want = append(want, "nothing")
	}
	for _, w := range l.writes[x.key] {
		if w.refused || w.begin >= x.to || w.past(last) || len(want) == 3 {
			continue
		}
		fate := w.how
		if w.end == 0 {
			fate = "of unknown outcome"
		}
		what := fmt.Sprintf("%.50q", w.Value)
		switch {
		case w.Delete:
			what = "nothing"
		case w.expired(l.skew, now):
			what, fate = "nothing", fmt.Sprintf("%s, for %s, %s before", fate, w.TTL, now.Sub(w.began))
		}
		want = append(want, fmt.Sprintf("%s after %s (%s)", what, w.what, fate))
	}
	return fmt.Errorf("%s %s; want %s", x.key, is, strings.Join(want, ", or "))
}

// keys returns all keys with a prefix that anybody has written, in order.
func (l *ledger) keys(prefix string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.writes {
		if strings.HasPrefix(key, prefix) {
			all = append(all, key)
		}
	}
	slices.Sort(all)
	return all
}

// sights is how often a read has shown that a commit has happened.
func (l *ledger) sights() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}
