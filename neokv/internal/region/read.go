package region

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"

	"neokv.dev/neokv/internal/redis"
)

// lease lets the leader of a term read without asking anybody until an instant of the replica's monotonic clock.
type lease struct {
	term  uint64
	since time.Duration // when its round was sent, since Replica.base
	until time.Duration
}

// reads is the replica's part in linearizable reads.
//
// A lease begins before its read index round is sent and ends before any voter of that round lets a vote out again (the
// transport's filter holds the voters to it). It is void in another term, and revoked for good before a message that makes it
// unsafe leaves the store.
type reads struct {
	lease atomic.Pointer[lease]
	busy  atomic.Bool // a round is running

	mu      sync.Mutex
	revoked uint64 // no lease in terms up to this one
	next    *round // the round that readers may still join, nil if none
	running bool   // a goroutine works on rounds

	advance   sync.Mutex
	advancing *advance
}

// round is one read index round and who waits for it.
type round struct {
	done chan struct{}
	err  error
}

// advance is an empty entry in flight that moves the region time past an instant.
type advance struct {
	done chan struct{}
	err  error
}

// roundTimeout bounds a read index round: what is in flight at a change of leader hangs until then.
const roundTimeout = 150 * time.Millisecond

// readers keeps Readers, whose scratch is what they cost.
var readers = sync.Pool{New: func() any { return new(redis.Reader) }}

// Read runs a run of reads on the local replica, which must lead, linearizably, and returns nil; or one of the errors above, with run
// as it was.
func (r *Replica) Read(run *redis.Run, deadline time.Time) error { return r.read(run, deadline, false) }

// ReadFollowing is Read on a replica that need not lead: behind a read index where it does not. ErrAtLeader says that a record
// was met of which only the leader can tell whether it has expired.
//
// A record that has not expired by this store's clock is there, though the leader's clock may be ahead: who was told otherwise
// was told so behind an entry that moved the region time, and that entry is applied here before this read.
func (r *Replica) ReadFollowing(run *redis.Run, deadline time.Time) error {
	return r.read(run, deadline, true)
}

// Prepare begins a read index round in the background if a Read would have to wait for one, so that those of several regions
// run side by side.
func (r *Replica) Prepare() {
	if r.servingTerm.Load() != 0 && r.validLease(time.Now()) == nil {
		r.renew()
	}
}

func (r *Replica) read(run *redis.Run, deadline time.Time, anywhere bool) error {
	out, ends := len(run.Out.Buf), len(run.Ends)
	byRegionTime := false // the region time has passed the instant of a read that was ahead of it
	lost := false         // a read under a lease was thrown away
	for {
		if !r.gate.enter() {
			return ErrStopped
		}
		now := time.Now()
		l := r.validLease(now)
		if lost {
			l = nil
		}
		following := false
		if l == nil {
			r.gate.leave()
			following = anywhere && r.servingTerm.Load() == 0
			if !following || !r.o.Faults.NoReadIndex {
				if err := r.readIndex(deadline, anywhere); err != nil {
					return err
				}
			}
			if !r.gate.enter() {
				return ErrStopped
			}
		}
		epoch := r.epoch.Load()
		rd := readers.Get().(*redis.Reader)
		rd.Space, rd.Legacy, rd.Cursors = r.machine.space, r.legacyAt.Load() != 0, &r.cursors
		rd.Ahead, rd.Hits, rd.Misses = false, 0, 0
		rd.RegionTimeMS, rd.Index = r.regionTime.Load(), r.applied.Load()
		rd.InstantMS = rd.RegionTimeMS
		if !byRegionTime {
			rd.InstantMS = r.leaderTime(now)
		}
		if r.o.Faults.LocalClock {
			rd.InstantMS = r.localTime(now)
			rd.RegionTimeMS = rd.InstantMS
		}
		rd.View = r.o.Engine.NewLazyView(r.rows)
		err := rd.Execute(run)
		rd.View.Close()
		good := (l == nil || r.stillValid(l)) && r.epoch.Load() == epoch
		r.gate.leave()
		ahead, instant, hits, misses := rd.Ahead, rd.InstantMS, rd.Hits, rd.Misses
		rd.View, rd.Cursors = nil, nil
		readers.Put(rd)
		if failed := r.o.Failed(); failed != nil {
			err = ErrStopped
		} else if err != nil {
			r.o.Fence(err)
			err = ErrStopped
		}
		if err == nil && good && !ahead {
			r.counters.KeysFound.Add(uint64(hits))
			r.counters.KeysMissed.Add(uint64(misses))
			switch {
			case following:
				r.counters.FollowerReads.Add(1)
			case l == nil:
				r.counters.IndexReads.Add(1)
			default:
				r.counters.LeaseReads.Add(1)
				if now.Sub(r.base)-l.since > (l.until-l.since)/4 {
					r.renew()
				}
			}
			return nil
		}
		run.Out.Buf, run.Ends = run.Out.Buf[:out], run.Ends[:ends]
		if err != nil {
			return err
		}
		lost = !good
		if good && ahead {
			if anywhere && r.servingTerm.Load() == 0 {
				return ErrAtLeader
			}
			if err := r.advanceTo(instant, deadline); err != nil {
				return err
			}
			byRegionTime = true
		}
	}
}

// validLease returns the lease that holds at now, nil if none does.
func (r *Replica) validLease(now time.Time) *lease {
	l := r.reads.lease.Load()
	if l == nil || now.Sub(r.base) >= l.until && !r.o.Faults.TrustLease {
		return nil
	}
	return l
}

// stillValid reports whether a read that began under l may be answered: neither has time run out, nor has the lease been
// revoked, nor has leadership changed meanwhile.
func (r *Replica) stillValid(l *lease) bool {
	if r.o.Faults.TrustLease {
		return true
	}
	c := r.reads.lease.Load()
	return c != nil && c.term == l.term && time.Since(r.base) < c.until && r.leads(l.term)
}

// readIndex returns once a read index round that began after the call has completed, and this replica has applied that far.
// Unless anywhere is set it ends when this replica does not lead.
func (r *Replica) readIndex(deadline time.Time, anywhere bool) error {
	for {
		if !anywhere && r.servingTerm.Load() == 0 {
			return ErrNotLeader
		}
		now := time.Now()
		if !now.Before(deadline) {
			return ErrDeadline
		}
		w := r.join()
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
func (r *Replica) renew() {
	if !r.reads.busy.Load() {
		r.join()
	}
}

// join returns the next round to begin, and sees to it that it does; nil when the replica stops.
func (r *Replica) join() *round {
	x := &r.reads
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.next == nil {
		x.next = &round{done: make(chan struct{})}
	}
	w := x.next
	if !x.running {
		select {
		case <-r.stop:
			x.next = nil
			return nil
		default:
		}
		x.running = true
		x.busy.Store(true)
		r.wg.Add(1)
		go r.rounds()
	}
	return w
}

// rounds runs rounds as long as somebody has joined the next one.
func (r *Replica) rounds() {
	defer r.wg.Done()
	x := &r.reads
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
		w.err = r.round()
		close(w.done)
	}
}

type roundError string

func (e roundError) Error() string { return string(e) }

// errRoundLost is the error of a round that got no answer; another may.
const errRoundLost = roundError("read index round lost")

// round runs one read index round, through the leader where another replica leads, and extends the lease if it completes in the
// term that was served here when it began.
func (r *Replica) round() error {
	term := r.servingTerm.Load()
	since := time.Since(r.base)
	rs, err := r.o.Host.ReadIndex(r.shard, roundTimeout)
	if err != nil {
		select {
		case <-r.stop:
			return ErrStopped
		case <-time.After(r.o.Knobs.RTT): // too busy, or not ready
			return errRoundLost
		}
	}
	answer := rs.ResultC()
	if r.o.Faults.LostRounds {
		answer = nil
	}
	var res dragonboat.RequestResult
	select {
	case res = <-answer:
		rs.Release()
	case <-r.stop: // the library gives no answer to a request that it takes up while it closes
		return ErrStopped
	}
	if !res.Completed() {
		if res.Terminated() {
			return ErrStopped
		}
		if res.Dropped() || res.Aborted() {
			select {
			case <-r.stop:
			case <-time.After(r.o.Knobs.RTT):
			}
		}
		return errRoundLost
	}
	r.counters.ReadIndexRounds.Add(1)
	if term == 0 || !r.leads(term) {
		return nil // the round itself is good; whoever waited for it may read
	}
	if d := r.o.Knobs.Lease(); d > 0 {
		x := &r.reads
		x.mu.Lock()
		if term > x.revoked {
			x.lease.Store(&lease{term: term, since: since, until: since + d})
		}
		x.mu.Unlock()
	}
	return nil
}

// Revoke ends the lease for all terms up to term. It is called before the message that makes it unsafe leaves the store.
func (r *Replica) Revoke(term uint64) {
	if !r.o.Faults.TrustLease {
		r.revoke(term)
	}
}

func (r *Replica) revoke(term uint64) {
	x := &r.reads
	x.mu.Lock()
	x.revoked = max(x.revoked, term)
	if l := x.lease.Load(); l != nil && l.term <= x.revoked {
		x.lease.Store(nil)
	}
	x.mu.Unlock()
}

// advanceTo returns once the region time has reached instant: an empty entry carries it there, one at a time for all readers.
func (r *Replica) advanceTo(instant uint64, deadline time.Time) error {
	x := &r.reads
	for r.regionTime.Load() < instant {
		x.advance.Lock()
		a := x.advancing
		if a != nil {
			x.advance.Unlock()
			t := time.NewTimer(time.Until(deadline))
			select {
			case <-a.done:
				t.Stop()
				if a.err != nil && a.err != ErrDeadline { // else that of another reader, whose deadline it was
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
		if now := time.Now(); r.leaderTime(now) < instant { // the clock was set back meanwhile
			r.clock.Store(&clockBase{term: r.servingTerm.Load(), ms: instant, at: now})
		}
		p := Pending{Run: new(redis.Run), Deadline: deadline}
		r.Propose(&p)
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
