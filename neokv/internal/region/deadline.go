package region

import (
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"

	"neokv.dev/neokv/internal/redis"
)

// outcome turns the answer of Raft into an error. It is called for a proposal that apply has not claimed.
func outcome(res dragonboat.RequestResult) error {
	switch {
	case res.Completed():
		return &UnknownOutcome{"applied without an answer"}
	case res.Dropped():
		return ErrNotLeader
	case res.Terminated():
		return &UnknownOutcome{"store stopped"}
	default:
		return errNoQuorum
	}
}

// What is known of a run at its deadline, while Raft has its entry and while apply works on it.
var (
	errNoQuorum = &UnknownOutcome{"no answer from a quorum in time"}
	errApplying = &UnknownOutcome{"not applied in time"}
)

// expect sets the timer so that overdue is called at a deadline, or before it. The caller holds mu.
func (x *proposer) expect(deadline time.Time) {
	switch {
	case !x.watched.IsZero() && !deadline.Before(x.watched):
		return
	case x.watch == nil:
		x.watch = time.AfterFunc(time.Until(deadline), x.overdue)
	default:
		x.watch.Reset(time.Until(deadline))
	}
	x.watched = deadline
}

// overdue answers the runs whose deadline has passed. For a run in the queue it is certain that the calls which are in
// no entry are not applied. A run whose entry is under way is taken out of its proposal. If apply has claimed the
// proposal, it writes replies into the run, so that run is lost.
func (x *proposer) overdue() {
	var late []*Pending
	var next time.Time
	x.mu.Lock()
	now := time.Now()
	over := func(p *Pending) bool {
		if !p.Deadline.After(now) {
			return true
		}
		if next.IsZero() || p.Deadline.Before(next) {
			next = p.Deadline
		}
		return false
	}
	x.queue = slices.DeleteFunc(x.queue, func(p *Pending) bool {
		if !over(p) {
			return false
		}
		p.Err = ErrDeadline
		late = append(late, p)
		return true
	})
	for _, b := range x.open {
		for i := range b.parts {
			part := &b.parts[i]
			if part.answered || !over(part.p) {
				continue
			}
			late = append(late, part.p)
			part.answered = true
			if b.claimed {
				part.p.Err, part.p.Lost = errApplying, true
			} else {
				part.p.Err = errNoQuorum
				part.p = &Pending{Run: &redis.Run{Out: redis.Reply{More: func(int) int { return 0 }}}} // nobody's
			}
		}
	}
	x.watched = time.Time{}
	if !next.IsZero() {
		x.expect(next)
	}
	x.mu.Unlock()
	for _, p := range late {
		p.done <- struct{}{}
	}
}
