package region

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// This file has the waiters: clients whose blocking pop (BLPOP and its kin) has found nothing. A waiter is a Pending
// whose only call is the pop. It is in one place at a time:
//
//	the caller's hands -> queue -> proposal -----------------------> the caller's hands: popped, or an error
//	                        ^         |  ^
//	          no leader, ...'         v  | a write that may fill a key
//	                                 table ------------------------> the caller's hands: canceled, or an error
//
// All of these moves are made under the proposer's mutex, but for those of the caller.
//
// At first the pop travels in an entry like any write (a try). If it finds nothing, the proposal's end puts the waiter
// into the table. A write that may fill a key which somebody waits for takes waiters out of the table, as many as it
// can serve, in the order in which their commands arrived. They become marks of its entry. Apply serves them right
// after the unit that has filled the key, and before the next unit. So what decides who gets an element stands in the
// log, and followers know no connections. Who was not served goes back to the table. If the outcome of the entry is
// unknown, so is that of the waiter's command, which is not tried again.
//
// Why nobody is forgotten: the keys were empty when the waiter came into the table, and each entry that fills one since
// carries the waiter. For an entry with a try or with waiters is formed while no other proposal is open, and no other
// is formed while it is open. So no push is under way while a waiter comes into the table. In the entry of a try no
// later unit may fill its keys. If an entry had too few marks, it ends after the unit that has filled the key, on every
// replica; the waiters that were left out are tried next, and what is left of the entry after them.
//
// The table is that of a term and of bounds. At the end of either, all waiters go back to their callers, who try again
// where the keys are served then. That try goes through the log, so it finds what was pushed meanwhile.

// ErrCanceled: the caller of a blocking pop has canceled it before anything was popped.
var ErrCanceled = errors.New("canceled")

const (
	// maxMarks is how many waiters a call takes along at most if its arguments do not tell how many elements it adds.
	maxMarks = 256
	// maxServed is how many waiters an entry takes along at most.
	maxServed = 1024
	// maxWaiterBytes bounds the arguments of a blocking pop, which an entry has to take along.
	maxWaiterBytes = 1 << 20
)

// waiters is the table of a replica that leads. The proposer's mutex guards it.
type waiters struct {
	lines map[string]*line        // by key
	slots map[topology.Slot]*line // the lines of a slot are a chain
	count int                     // of waiters
	last  uint64                  // see waiting.order
	// filled are keys that may have elements though clients wait for them: an entry had too few marks. Nobody but their
	// waiters comes into a proposal.
	filled []filling
}

// filling is a key that has elements of a type.
type filling struct {
	key  string
	kind int // as in line.of
}

// waiting is the proposer's part of a Pending that is a blocking pop.
type waiting struct {
	term     uint64 // that of the last proposal that it was in
	canceled bool
	retried  bool          // it is in the queue, or in a proposal, since a key of its is filled
	order    uint64        // of arrival here, among equal Since
	places   []int         // where it is in its lines; nil unless it is in the table
	patience time.Duration // how long a try may wait
}

// line has the waiters for one key.
type line struct {
	key        string
	slot       topology.Slot
	prev, next *line
	of         [2]lineup // of lists, of sorted sets
}

// lineup is the waiters for keys of one type, a heap by arrival. p waits for the line's key as the at-th of its keys.
type lineup []struct {
	p  *Pending
	at int
}

func (l lineup) Len() int           { return len(l) }
func (l lineup) Less(i, j int) bool { return l[i].p.compare(l[j].p) < 0 }
func (l lineup) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].p.waiting.places[l[i].at], l[j].p.waiting.places[l[j].at] = i, j
}
func (l *lineup) Push(x any) { panic("add appends") }
func (l *lineup) Pop() any {
	n := len(*l) - 1
	(*l)[n].p = nil
	*l = (*l)[:n]
	return nil
}

// blocks reports whether the run is a blocking pop that may wait.
func (p *Pending) blocks() bool { return !p.Since.IsZero() }

// pop returns the blocking pop of a waiter.
func (p *Pending) pop() *redis.Call { return &p.Run.Calls[0] }

// compare compares two waiters by their arrival.
func (p *Pending) compare(other *Pending) int {
	return cmp.Or(p.Since.Compare(other.Since), cmp.Compare(p.waiting.order, other.waiting.order))
}

// lineOf returns which lineup a waiter is in.
func lineOf(row *redis.Command) int {
	if row.Blocks.Type == keys.ZSet {
		return 1
	}
	return 0
}

// add puts a waiter into the table.
func (t *waiters) add(p *Pending) {
	if t.lines == nil {
		t.lines, t.slots = make(map[string]*line), make(map[topology.Slot]*line)
	}
	c := p.pop()
	places := c.Command.AppendWaits(nil, c.Args)
	p.waiting.places = make([]int, len(places))
	if t.count++; p.waiting.order == 0 {
		t.last++
		p.waiting.order = t.last
	}
	for i, place := range places {
		key := c.Args[place]
		l := t.lines[string(key)]
		if l == nil {
			l = &line{key: string(key), slot: topology.SlotOf(key)}
			if l.next = t.slots[l.slot]; l.next != nil {
				l.next.prev = l
			}
			t.lines[l.key], t.slots[l.slot] = l, l
		}
		of := &l.of[lineOf(c.Command)]
		n := len(*of)
		*of = append(*of, struct {
			p  *Pending
			at int
		}{p, i})
		p.waiting.places[i] = n
		heap.Fix(of, n)
	}
}

// remove takes a waiter out of the table.
func (t *waiters) remove(p *Pending) {
	c := p.pop()
	for i, place := range c.Command.AppendWaits(nil, c.Args) {
		l := t.lines[string(c.Args[place])]
		of := &l.of[lineOf(c.Command)]
		heap.Remove(of, p.waiting.places[i])
		if len(l.of[0])+len(l.of[1]) > 0 {
			continue
		}
		delete(t.lines, l.key)
		if l.next != nil {
			l.next.prev = l.prev
		}
		if l.prev != nil {
			l.prev.next = l.next
		} else if t.slots[l.slot] = l.next; l.next == nil {
			delete(t.slots, l.slot)
		}
	}
	p.waiting.places = nil
	t.count--
}

// drop empties the table and returns who was in it.
func (t *waiters) drop() (all []*Pending) {
	for _, l := range t.lines {
		for _, of := range l.of {
			for _, x := range of {
				if x.at == 0 { // it is in several lines, or twice in one
					all = append(all, x.p)
				}
			}
		}
	}
	for _, p := range all {
		p.waiting.places = nil
	}
	*t = waiters{last: t.last}
	return all
}

// Block hands a run to the region whose only call is a blocking pop, and whose Since is set. The caller then calls
// Wait. If Parked is set after that, there was nothing to pop, and the caller calls Wait again: that returns once Wake
// has been called. In between the caller may Cancel.
func (r *Replica) Block(p *Pending) {
	if n := callBytes(p.pop()); n > maxWaiterBytes {
		p.begin()
		p.finish(fmt.Errorf("%w: a call that may wait has %d bytes, at most %d", ErrTooLarge, n, maxWaiterBytes))
		return
	}
	if !r.parkEmpty(p) {
		r.proposer.propose(p)
	}
}

// parkEmpty puts a waiter into the table without an entry if it can prove that all its keys are absent and that no
// entry under way may fill one: it reads the apply index, sees no key in a view, and then finds, under the mutex, that
// nothing has been applied since and that no proposal is open, or may be applied later since its outcome is unknown.
func (r *Replica) parkEmpty(p *Pending) bool {
	term, base := r.servingTerm.Load(), r.applied.Load()
	if term == 0 {
		return false
	}
	c := p.pop()
	exists := []byte("exists")
	run := redis.Run{Version: p.Run.Version}
	for _, at := range c.Command.AppendWaits(nil, c.Args) {
		run.Calls = append(run.Calls, redis.Call{Command: redis.Lookup(exists), Args: [][]byte{exists, c.Args[at]}})
	}
	if len(run.Calls) == 0 || len(run.Calls) > maxLooked || !c.Command.Waits(c.Args) {
		return false
	}
	if err := r.Read(&run, p.Deadline); err != nil || len(run.Ends) < len(run.Calls) {
		return false
	}
	for from := 0; from < len(run.Out.Buf); from += len(":0\r\n") {
		if run.Out.Buf[from+1] != '0' {
			return false
		}
	}
	x := &r.proposer
	x.mu.Lock()
	defer x.mu.Unlock()
	if (r.applied.Load() != base || len(x.queue)+len(x.open) > 0 || x.doubt != 0) && !r.o.Mistakes.LateParking {
		return false
	}
	p.begin()
	p.waiting = waiting{term: term, order: p.waiting.order, patience: time.Until(p.Deadline)}
	if x.parking(p) != nil {
		return false
	}
	x.park(p)
	return true
}

// maxLooked is how many keys parkEmpty looks up.
const maxLooked = 64

// parking returns why a waiter cannot wait here. The caller holds mu.
func (x *proposer) parking(p *Pending) error {
	switch {
	case p.waiting.canceled:
		return ErrCanceled
	case x.stopped:
		return ErrStopped
	case x.servingTerm.Load() != p.waiting.term:
		return ErrNotLeader
	case x.bounds.Load().stale(p.Run) && !x.o.Mistakes.KeptWaiters:
		return ErrBounds
	}
	return nil
}

// park puts a waiter into the table, which parking has allowed, and tells its caller once. The caller holds mu.
func (x *proposer) park(p *Pending) {
	p.Run.Ends, p.Run.Out.Buf, p.next = p.Run.Ends[:0], p.Run.Out.Buf[:0], 0
	p.waiting.retried = false
	x.waiters.add(p)
	if !p.Parked {
		p.Parked = true
		p.done <- struct{}{}
	}
}

// Cancel has a blocking pop end as soon as may be: Wait returns with ErrCanceled, unless an entry under way decides
// otherwise. It may be called between Block and the last Wait.
func (r *Replica) Cancel(p *Pending) {
	x := &r.proposer
	x.mu.Lock()
	p.waiting.canceled = true
	found := p.waiting.places != nil
	if found {
		x.waiters.remove(p)
	} else {
		for i, q := range x.queue {
			if q == p {
				x.queue = append(x.queue[:i:i], x.queue[i+1:]...)
				found = true
				break
			}
		}
	}
	x.mu.Unlock()
	if found {
		p.finish(ErrCanceled)
	}
}

// Done gets a value when Wait would return.
func (p *Pending) Done() <-chan struct{} { return p.done }

// dropWaiters gives the waiters of the table back to their callers.
func (x *proposer) dropWaiters(err error) {
	x.mu.Lock()
	all := x.waiters.drop()
	x.mu.Unlock()
	for _, p := range all {
		p.finish(err)
	}
}

// fills calls f with each line of the table to which a unit may add elements, and with how many, until f returns false.
// It returns false then. The caller holds mu.
func (x *proposer) fills(unit []redis.Call, f func(l *line, n int) bool) bool {
	if x.waiters.count == 0 {
		return true
	}
	for i := range unit {
		c := &unit[i]
		if c.Script() {
			slot, one := c.ScriptSlot()
			if one {
				for l := x.waiters.slots[slot]; l != nil; {
					next := l.next // f may empty the line
					if !f(l, maxMarks) {
						return false
					}
					l = next
				}
				continue
			}
			for _, l := range x.waiters.lines {
				if !f(l, maxMarks) {
					return false
				}
			}
			continue
		}
		base, n := len(x.places), 0 // f may call fills
		if x.places, n = c.AppendFills(x.places); n < 0 {
			n = maxMarks
		}
		on := true
		for _, place := range x.places[base:] {
			if l := x.waiters.lines[string(c.Args[place])]; l != nil && on {
				on = f(l, n)
			}
		}
		if x.places = x.places[:base]; !on {
			return false
		}
	}
	return true
}

// touchesWaiters reports whether a unit may fill a key that somebody waits for.
func (x *proposer) touchesWaiters(unit []redis.Call) bool {
	return !x.fills(unit, func(*line, int) bool { return false })
}

// fillsTried reports whether a unit may fill a key that a try before it in the proposal waits for. Waiters that the
// unit serves may do so, too.
func (x *proposer) fillsTried(b *proposal, unit []redis.Call) bool {
	if len(b.tried) == 0 {
		return false
	}
	if x.touchesWaiters(unit) {
		return true
	}
	for i := range unit {
		c := &unit[i]
		if c.Script() {
			return true
		}
		x.places, _ = c.AppendFills(x.places[:0])
		for _, place := range x.places {
			if b.tried[string(c.Args[place])] {
				return true
			}
		}
	}
	return false
}

// take takes the first n waiters of each type out of a line, for a proposal. If one of them moves its element to a key
// that others wait for, the first of these comes along. If the proposal has no room for all of them, it is short: it
// takes no further unit, and apply tells which keys the last one has filled.
func (x *proposer) take(b *proposal, l *line, n int) {
	for kind := range l.of {
		for i := 0; i < n && len(l.of[kind]) > 0; i++ {
			if len(b.waiters) >= maxServed || len(b.waiters) > 0 && b.markBytes >= b.markRoom {
				b.short = true
				return
			}
			p := l.of[kind][0].p
			x.waiters.remove(p)
			b.waiters = append(b.waiters, stretch{p: p, to: 1})
			b.markBytes += 1 + callBytes(p.pop())
			x.fills(p.Run.Calls, func(to *line, n int) bool {
				x.take(b, to, n)
				return !b.short
			})
		}
	}
}

// more reports whether others wait for one of the keys that a waiter waits for.
func (x *proposer) more(p *Pending) bool {
	c := p.pop()
	for _, place := range c.Command.AppendWaits(nil, c.Args) {
		if l := x.waiters.lines[string(c.Args[place])]; l != nil && len(l.of[lineOf(c.Command)]) > 0 {
			return true
		}
	}
	return false
}

// retry sees to it that the queue begins with waiters for the keys in filled, while there are any. The caller holds mu.
func (x *proposer) retry() {
	t := &x.waiters
	if len(t.filled) == 0 {
		return
	}
	retried := func(p *Pending) bool { return p.waiting.retried }
	if slices.ContainsFunc(x.queue, retried) {
		return // nobody else comes to their front
	}
	var tries []*Pending
	t.filled = slices.DeleteFunc(t.filled, func(f filling) bool {
		before := len(tries)
		for l := t.lines[f.key]; l != nil && len(l.of[f.kind]) > 0 && len(tries)-before < maxMarks; {
			p := l.of[f.kind][0].p
			t.remove(p)
			p.waiting.retried, p.Deadline = true, time.Now().Add(p.waiting.patience)
			tries = append(tries, p)
			x.expect(p.Deadline)
		}
		return len(tries) == before
	})
	x.queue = append(tries, x.queue...)
}

// fill notes the keys that a proposal has left with elements, if clients wait for them. The caller holds mu.
func (x *proposer) fill(keys []string) {
	for _, key := range keys {
		for kind := range 2 {
			f := filling{key, kind}
			if l := x.waiters.lines[key]; l != nil && len(l.of[kind]) > 0 && !slices.Contains(x.waiters.filled, f) {
				x.waiters.filled = append(x.waiters.filled, f)
			}
		}
	}
}

// emptied notes that a waiter has found nothing in its keys.
func (x *proposer) emptied(p *Pending) {
	if len(x.waiters.filled) == 0 {
		return
	}
	c := p.pop()
	for _, place := range c.Command.AppendWaits(nil, c.Args) {
		empty := filling{string(c.Args[place]), lineOf(c.Command)}
		x.waiters.filled = slices.DeleteFunc(x.waiters.filled, func(f filling) bool { return f == empty })
	}
}

// try notes that a proposal has the first try of a blocking pop, or a further one.
func (x *proposer) try(b *proposal, p *Pending, term uint64) {
	p.waiting.term, b.exact = term, true
	if b.tried == nil {
		b.tried = make(map[string]bool)
	}
	c := p.pop()
	for _, place := range c.Command.AppendWaits(nil, c.Args) {
		b.tried[string(c.Args[place])] = true
	}
}

// settle decides what becomes of a waiter whose proposal is finished: it was served, waits on, or ends with an error.
// The caller holds mu.
func (x *proposer) settle(p *Pending, err error) {
	if unknown(err) {
		p.finish(err)
		return
	}
	if len(p.Run.Out.Buf) > 0 {
		p.finish(nil)
		return
	}
	if err := x.parking(p); err != nil {
		p.Run.Ends = p.Run.Ends[:0]
		p.finish(err)
		return
	}
	x.park(p)
}
