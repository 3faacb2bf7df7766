package region

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
)

// lease lets the leader of a term read without asking the other replicas, until an instant of its monotonic clock.
type lease struct {
	term  uint64
	since time.Duration // from reader.base until its round was sent
	until time.Duration // from reader.base until it ends
}

// reader serves linearizable reads by lease or read index.
//
// A lease begins before its read index round is sent. It ends before any voter of that round grants a vote again; the
// transport's filter holds the voters to that. It is void in another term, and it is revoked for good before a message
// that makes it unsafe leaves the store.
//
// A read under a lease looks at the lease, the term and the epoch again after it has read. If one of them has changed,
// it throws its replies away and begins anew.
type reader struct {
	*core
	proposer *proposer    // moves the region time
	base     time.Time    // origin of the times in leases
	stopped  func() error // why a long read must end, nil while it need not

	choices redis.Choices

	lease atomic.Pointer[lease]
	busy  atomic.Bool // a copy of running that is read without mu

	mu        sync.Mutex
	revoked   uint64 // the latest term in which no lease may be held any more
	suspended bool   // no lease may be held in any term, for now: see suspend
	next      *round // the round that readers may still join, nil if none
	running   bool   // a goroutine runs rounds
	far       bool   // the last round got no answer in time, or a late one; the goroutine's that runs rounds

	advance   sync.Mutex
	advancing *advance // the entry in flight, nil if none
}

func (x *reader) init(c *core, p *proposer) {
	x.core, x.proposer, x.base = c, p, time.Now()
	x.choices.Seed = c.o.Seed
	x.stopped = func() error {
		select {
		case <-c.stop:
			return ErrStopped
		default:
		}
		if c.o.Failed() != nil {
			return ErrStopped
		}
		return nil
	}
}

// round is one read index round. Readers that have joined it wait for done.
type round struct {
	done chan struct{}
	err  error
}

// advance is an empty entry in flight that moves the region time past an instant.
type advance struct {
	done chan struct{}
	err  error
}

// roundTimeout bounds a read index round. A round that is in flight when the leader changes hangs until then. Behind a
// round that got no answer, or a late one, the bound is the election time-out, if that is longer: a quorum that answers
// later than that elects no leader either.
const roundTimeout = 150 * time.Millisecond

// readers pools Readers, since their scratch space is expensive to allocate.
var readers = sync.Pool{New: func() any { return new(redis.Reader) }}

// read is Replica.Read, or Replica.ReadFollowing if anywhere is set.
func (x *reader) read(run *redis.Run, deadline time.Time, anywhere bool) error {
	out, ends := len(run.Out.Buf), len(run.Ends)
	byRegionTime := run.ByRegionTime // the read judges expiry by the region time; else once it has moved that far enough
	lost := false                    // a read under a lease was thrown away
	for {
		term := x.servingTerm.Load()
		if run.By != nil {
			if err := x.hear(term, deadline); err != nil {
				return err
			}
		}
		if !x.gate.enter() {
			return ErrStopped
		}
		now := time.Now()
		l := x.validLease(now)
		if lost {
			l = nil
		}
		following := false
		if l == nil {
			x.gate.leave()
			following = anywhere && x.servingTerm.Load() == 0
			if !following || !x.o.Mistakes.NoReadIndex {
				if err := x.readIndex(deadline, anywhere); err != nil {
					return err
				}
			}
			if !x.gate.enter() {
				return ErrStopped
			}
		}
		epoch := x.epoch.Load() // before the bounds: a change of the bounds stores them first
		bounds := x.bounds.Load()
		if bounds.stale(run) {
			x.gate.leave()
			return ErrBounds
		}
		rd := readers.Get().(*redis.Reader)
		rd.Slots, rd.Legacy = bounds.Slots, x.legacy.Load()
		rd.Ahead, rd.Hits, rd.Misses = false, 0, 0
		rd.Choose(&x.choices)
		rd.RegionTimeMS, rd.Region, rd.Index = x.regionTime.Load(), x.o.Region.ID, x.applied.Load()
		rd.InstantMS = rd.RegionTimeMS
		if !byRegionTime {
			rd.InstantMS = x.LeaderTimeMS(now)
		}
		if x.o.Mistakes.LocalClock {
			rd.InstantMS = x.localTime(now)
			rd.RegionTimeMS = rd.InstantMS
		}
		var missed *redis.Effects
		if l := x.o.Listener; l != nil && l.Wants()&WantsMisses != 0 {
			missed = &redis.Effects{Misses: true}
		}
		rd.Effects = missed
		rd.Log, rd.Halted, rd.View = x.o.ScriptLog, x.stopped, x.o.Engine.NewLazyView(x.rows)
		err := rd.Execute(run)
		rd.View.Close()
		good := (l == nil || x.stillValid(l)) && x.epoch.Load() == epoch &&
			(run.By == nil || x.servingTerm.Load() == term) // else nobody tells the reader of changes
		x.gate.leave()
		ahead, instant, hits, misses := rd.Ahead, rd.InstantMS, rd.Hits, rd.Misses
		rd.View, rd.Halted, rd.Log, rd.Effects = nil, nil, nil, nil
		readers.Put(rd)
		var ended *redis.Ended
		switch {
		case x.o.Failed() != nil:
			err = ErrStopped
		case errors.As(err, &ended):
			err = ended.Reason
		case err != nil:
			x.o.Fence(err)
			err = ErrStopped
		}
		if err == nil && good && !ahead {
			x.counters.KeysFound.Add(uint64(hits))
			x.counters.KeysMissed.Add(uint64(misses))
			if missed != nil && len(missed.All) > 0 {
				x.o.Listener.Happened(x.o.Store, missed.All)
			}
			switch {
			case following:
				x.counters.FollowerReads.Add(1)
			case l == nil:
				x.counters.IndexReads.Add(1)
			default:
				x.counters.LeaseReads.Add(1)
				if now.Sub(x.base)-l.since > (l.until-l.since)/4 {
					x.renew()
				}
			}
			return nil
		}
		run.Out.Buf, run.Ends = run.Out.Buf[:out], run.Ends[:ends]
		if err != nil {
			return err
		}
		lost = !good
		if l != nil { // the deadline is for waiting, not for a read that took longer than the lease
			deadline = deadline.Add(time.Since(now))
		}
		if good && ahead {
			if anywhere && x.servingTerm.Load() == 0 {
				x.counters.PassedReads.Add(1)
				return ErrAtLeader
			}
			if err := x.advanceTo(instant, deadline); err != nil {
				return err
			}
			byRegionTime = true
		}
	}
}

// validLease returns the lease that holds at now, nil if there is none.
func (x *reader) validLease(now time.Time) *lease {
	l := x.lease.Load()
	if l == nil || now.Sub(x.base) >= l.until && !x.o.Mistakes.TrustLease {
		return nil
	}
	return l
}

// stillValid reports whether a read that began under l may be answered: time has not run out, the lease has not been
// revoked, and leadership has not changed meanwhile.
func (x *reader) stillValid(l *lease) bool {
	if x.o.Mistakes.TrustLease {
		return true
	}
	c := x.lease.Load()
	return c != nil && c.term == l.term && time.Since(x.base) < c.until && x.leads(l.term)
}

// readIndex waits for a read index round that begins after the call, and until this replica has applied the log up to
// that index. Unless anywhere is set, it returns ErrNotLeader if this replica does not lead.
func (x *reader) readIndex(deadline time.Time, anywhere bool) error {
	for {
		if !anywhere && x.servingTerm.Load() == 0 {
			return ErrNotLeader
		}
		now := time.Now()
		if !now.Before(deadline) {
			return ErrDeadline
		}
		w := x.join()
		if w == nil {
			return ErrStopped
		}
		t := time.NewTimer(deadline.Sub(now))
		select {
		case <-w.done:
			t.Stop()
			if w.err != errRoundLost {
				return w.err
			}
		case <-t.C:
			return ErrDeadline
		}
	}
}

// renew starts a round in the background unless one is running.
func (x *reader) renew() {
	if !x.busy.Load() {
		x.join()
	}
}

// join returns the next round, and makes sure that it begins. It returns nil when the replica stops.
func (x *reader) join() *round {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.next == nil {
		x.next = &round{done: make(chan struct{})}
	}
	w := x.next
	if !x.running {
		select {
		case <-x.stop:
			x.next = nil
			return nil
		default:
		}
		x.running = true
		x.busy.Store(true)
		x.wg.Add(1)
		go x.rounds()
	}
	return w
}

// rounds runs rounds as long as a reader has joined the next one.
func (x *reader) rounds() {
	defer x.wg.Done()
	for {
		x.mu.Lock()
		w := x.next
		x.next = nil
		if w == nil {
			x.running = false
			x.busy.Store(false)
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		w.err = x.round()
		close(w.done)
	}
}

type roundError string

func (e roundError) Error() string { return string(e) }

// errRoundLost is the error of a round that got no answer. Another round may get one.
const errRoundLost = roundError("read index round lost")

// round runs one read index round. If another replica leads, Raft asks that one. If this replica serves, and still
// leads in the same term afterwards, round extends the lease.
func (x *reader) round() error {
	term := x.servingTerm.Load()
	since := time.Since(x.base)
	if !x.hosted.enter() {
		return ErrStopped
	}
	timeout := roundTimeout
	if x.far {
		timeout = max(timeout, x.o.Knobs.RTT*time.Duration(x.o.Knobs.ElectionTicks))
	}
	rs, err := x.raft.ReadIndex(timeout)
	x.hosted.leave()
	if err != nil {
		select {
		case <-x.stop:
			return ErrStopped
		case <-time.After(x.o.Knobs.RTT): // too busy, or not ready
			return errRoundLost
		}
	}
	answer := rs.Answer()
	if x.o.Mistakes.LostRounds {
		answer = nil
	}
	var res multiraft.Answer
	select {
	case res = <-answer:
		rs.Release()
	case <-x.stop: // Raft gives no answer to a request that arrives while it closes
		return ErrStopped
	}
	switch multiraft.Outcome(res) {
	case nil:
	case multiraft.ErrClosed:
		return ErrStopped
	case multiraft.ErrDropped, multiraft.ErrAborted:
		select {
		case <-x.stop:
		case <-time.After(x.o.Knobs.RTT):
		}
		return errRoundLost
	default:
		x.far = true
		return errRoundLost
	}
	x.far = time.Since(x.base)-since > roundTimeout/2
	x.counters.ReadIndexRounds.Add(1)
	if term == 0 || !x.leads(term) {
		return nil // there is no lease, but the round is good: its readers may read
	}
	x.extend(term, since)
	return nil
}

// extend takes the lease that a round of a term has brought which began at since.
func (x *reader) extend(term uint64, since time.Duration) {
	d := x.o.Knobs.Lease()
	if d <= 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if term > x.revoked && !x.suspended {
		x.lease.Store(&lease{term: term, since: since, until: since + d})
	}
}

// revoke is Replica.Revoke.
func (x *reader) revoke(term uint64) {
	x.mu.Lock()
	x.revoked = max(x.revoked, term)
	if l := x.lease.Load(); l != nil && l.term <= x.revoked {
		x.lease.Store(nil)
	}
	x.mu.Unlock()
}

// leaseless reports whether the leader of a term may hold no lease in it, though the settings give it one.
func (x *reader) leaseless(term uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.revoked >= term && x.o.Knobs.Lease() > 0
}

// suspend gives the lease up and takes none until resume. Reads go by read index meanwhile.
func (x *reader) suspend() {
	if x.o.Mistakes.KeptLease {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.suspended = true
	x.lease.Store(nil)
}

func (x *reader) resume() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.suspended = false
}

// advanceTo returns when the region time has reached instant. It proposes an empty entry to move the time; all readers
// share one such entry at a time.
func (x *reader) advanceTo(instant uint64, deadline time.Time) error {
	for x.regionTime.Load() < instant {
		x.advance.Lock()
		a := x.advancing
		if a != nil {
			x.advance.Unlock()
			t := time.NewTimer(time.Until(deadline))
			select {
			case <-a.done:
				t.Stop()
				if a.err != nil && a.err != ErrDeadline { // ErrDeadline concerns only the reader that proposed the entry
					return a.err
				}
			case <-t.C:
				return ErrDeadline
			}
			continue
		}
		a = &advance{done: make(chan struct{})}
		x.advancing = a
		x.advance.Unlock()
		if now := time.Now(); x.LeaderTimeMS(now) < instant { // the clock was set back meanwhile
			x.clock.Store(&clockBase{term: x.servingTerm.Load(), ms: instant, at: now})
		}
		p := Pending{Run: new(redis.Run), Deadline: deadline}
		x.proposer.propose(&p)
		p.Wait()
		a.err = p.Err
		if _, unknown := p.Err.(*UnknownOutcome); unknown {
			a.err = ErrDeadline
		}
		x.advance.Lock()
		x.advancing = nil
		x.advance.Unlock()
		close(a.done)
		if a.err != nil {
			return a.err
		}
	}
	return nil
}
