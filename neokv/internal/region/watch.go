package region

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// This file has what WATCH needs. A client watches keys at the replica that serves them, from one instant on. A
// transaction of the client then has an effect only if no key was changed since.
//
// That is decided where the transaction is proposed, and proved at apply. The replica's table has the watches that are
// open. Apply makes a watch dirty when it has committed a change of one of its keys, before it stores the apply index
// and before an answer leaves. The proposer loads the apply index, and then looks at the watch: if it is dirty, the
// transaction has no effect. Else it travels in an exact entry, with the keys as marks. Apply refuses the entry as a
// whole unless it comes right behind that index, so that nothing has been applied in between. What is left are the
// units before the transaction in the same entry, and the time of the entry, at which a key may have expired: every
// replica looks at the marks for that.
//
// A change of the leader, of the bounds or of all data (a snapshot) makes all watches of the replica dirty.

// Watch is a watch of some keys. A dirty one stays dirty.
type Watch struct {
	table     *watches
	term      uint64 // in which the replica serves
	keys      []string
	places    []int  // where the keys are in their lists of the table; guarded by the table's mutex
	seen      []seen // what the client may have seen; guarded by the table's mutex until Replica.Watch returns
	markBytes int    // a bound of what appendMarks appends
	closed    bool   // it is not in the table; guarded by the table's mutex
	dirty     atomic.Bool
}

// seen is what a client may have seen of a key.
type seen struct {
	live    bool
	expires uint64 // Unix time in ms, 0 for never
}

// watches is a replica's table of watches.
type watches struct {
	open    atomic.Int32 // how many there are
	working atomic.Int32 // what apply does: one of the constants below
	waiting atomic.Int32 // how many wait in hear

	mu    sync.Mutex
	of    map[string][]watcher
	ended chan struct{} // closed when the present Update ends; nil if nobody waits for that
}

// watcher is a place in a watch.
type watcher struct {
	*Watch
	at int // the key is keys[at]
}

const (
	resting    = iota // no Update is under way
	deaf              // an Update is under way that collects no effects, since nobody watched when it began
	collecting        // an Update is under way that collects the effects on all keys
)

// Bytes returns how much memory a watch takes.
func (w *Watch) Bytes() int { return watchBytes(len(w.keys), w.markBytes) }

// WatchBytes returns how much memory a watch of some keys would take.
func WatchBytes(keys [][]byte) int {
	n := 0
	for _, key := range keys {
		n += markBytes(key)
	}
	return watchBytes(len(keys), n)
}

// watchBytes: of a key there is a string, which is its bytes and 16 more, 24 bytes of seen and place, and an entry of
// the map, of which up to half are empty, with a slice of watchers.
func watchBytes(keys, bytes int) int { return 128 + bytes + keys*216 }

// Watch begins to watch keys at this replica, which must lead. The keys were routed by bounds of a version, 0 for any.
// A read of the caller that begins after Watch sees every change that does not make the watch dirty. The errors are
// those of Read.
func (r *Replica) Watch(keys [][]byte, version uint64, deadline time.Time) (*Watch, error) {
	term := r.servingTerm.Load()
	if term == 0 {
		return nil, ErrNotLeader
	}
	w := &Watch{table: &r.watches, term: term, keys: make([]string, len(keys)), seen: make([]seen, len(keys)),
		places: make([]int, len(keys))}
	run := redis.Run{Version: version, Calls: make([]redis.Call, len(keys))}
	name := []byte("pexpiretime")
	row := redis.Lookup(name)
	for i, key := range keys {
		w.keys[i], w.seen[i].live = string(key), true
		w.markBytes += markBytes(key)
		run.Calls[i] = redis.Call{Command: row, Args: [][]byte{name, key}}
	}
	err := r.watches.add(w, deadline, r.stop, r.o.Mistakes.DeafWatch)
	if err == nil {
		err = r.Read(&run, deadline) // a key that it finds expired has expired by the region time
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	from := 0
	for i, end := range run.Ends {
		at, err := strconv.ParseInt(string(run.Out.Buf[from+1:end-len("\r\n")]), 10, 64) // -1 never, -2 absent
		if err != nil {
			return nil, err
		}
		w.seen[i], from = seen{live: at != -2, expires: uint64(max(at, 0))}, end
	}
	return w, nil
}

// Dirty reports whether a watched key may have been changed since the watch began.
func (w *Watch) Dirty() bool { return w.dirty.Load() }

// dirtyIn reports whether a transaction that a replica proposes in a term can have no effect.
func (w *Watch) dirtyIn(c *core, term uint64) bool {
	return w.Dirty() || w.table != &c.watches || w.term != term && !c.o.Mistakes.KeptWatches
}

// appendMarks appends the marks of an entry.
func (w *Watch) appendMarks(dst []byte, dirty bool) []byte {
	for i, key := range w.keys {
		m := mark{key: []byte(key), live: w.seen[i].live, dirty: dirty, expires: w.seen[i].expires}
		dst = m.append(dst)
	}
	return dst
}

// Close ends a watch, which is dirty from then on. It may be called more than once.
func (w *Watch) Close() {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(w)
}

// close is Close. The caller holds mu.
func (t *watches) close(w *Watch) {
	w.dirty.Store(true)
	if w.closed {
		return
	}
	w.closed = true
	t.open.Add(-1)
	for i, key := range w.keys {
		all := t.of[key]
		at, last := w.places[i], len(all)-1
		moved := all[last]
		moved.places[moved.at] = at
		all[at], all[last] = moved, watcher{}
		if t.of[key] = all[:last]; last == 0 {
			delete(t.of, key)
		}
	}
}

// add enters a watch. From its return on no change escapes the table: if an Update is under way that does not collect,
// add waits for its end.
func (t *watches) add(w *Watch, deadline time.Time, stop <-chan struct{}, deafToo bool) error {
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[string][]watcher)
	}
	for i, key := range w.keys {
		w.places[i] = len(t.of[key])
		t.of[key] = append(t.of[key], watcher{w, i})
	}
	t.open.Add(1)
	var ended chan struct{}
	if !deafToo {
		ended = t.endOfDeaf()
	}
	t.mu.Unlock()
	return await(ended, deadline, stop)
}

// endOfDeaf returns a channel that is closed when the present Update ends, nil if no change of it escapes those who
// watch or listen. The caller holds mu, and has made open or waiting more than 0.
func (t *watches) endOfDeaf() chan struct{} {
	if t.working.Load() != deaf {
		return nil
	}
	if t.ended == nil {
		t.ended = make(chan struct{})
	}
	return t.ended
}

// await waits until a channel is closed, not at all if it is nil.
func await(ended <-chan struct{}, deadline time.Time, stop <-chan struct{}) error {
	if ended == nil {
		return nil
	}
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
		return ErrDeadline
	case <-stop:
		return ErrStopped
	}
}

// hear returns when no change escapes those any more who listened before the call: if an Update is under way that does
// not collect, it waits for its end.
func (t *watches) hear(deadline time.Time, stop <-chan struct{}) error {
	for t.working.Load() == deaf { // again, since drop wakes all in the middle of an Update
		t.waiting.Add(1) // before endOfDeaf looks again: else the Update's end may look for nobody
		t.mu.Lock()
		ended := t.endOfDeaf()
		t.mu.Unlock()
		err := await(ended, deadline, stop)
		t.waiting.Add(-1)
		if err != nil {
			return err
		}
	}
	return nil
}

// begin begins an Update, and reports whether it has to collect effects: for watches, or for somebody who listens, and
// what these want. Who comes later sees that the Update does not, and waits.
func (t *watches) begin(serving bool, l Listener) (collect bool, wants Wants) {
	t.working.Store(deaf)
	if !serving {
		return false, 0
	}
	if l != nil {
		wants = l.Wants()
	}
	if wants == 0 && t.open.Load() == 0 {
		return false, 0
	}
	t.working.Store(collecting)
	return true, wants
}

// end ends an Update.
func (t *watches) end() {
	if t.working.Store(resting); t.open.Load() > 0 || t.waiting.Load() > 0 {
		t.mu.Lock()
		t.wake()
		t.mu.Unlock()
	}
}

// wake lets those go on who wait for the end of an Update. The caller holds mu.
func (t *watches) wake() {
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// happened makes the watches dirty whose keys have been changed by what is committed.
func (t *watches) happened(effects []redis.Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range effects {
		e := &effects[i]
		if e.What != redis.Flushed {
			touch(e, t.of[string(e.Key)])
			continue
		}
		for key, all := range t.of {
			if e.Slots.Contains(topology.SlotOf([]byte(key))) {
				touch(e, all)
			}
		}
	}
}

// touch makes the watches of a key dirty. Of a key that was not there, nobody can tell that it was removed.
func touch(e *redis.Effect, all []watcher) {
	if e.What == redis.Told {
		return
	}
	for _, x := range all {
		if e.What == redis.Changed || x.seen[x.at].live {
			x.dirty.Store(true)
		}
	}
}

// drop makes all watches dirty, and forgets them.
func (t *watches) drop() {
	if t.open.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.of {
		for _, x := range all {
			x.dirty.Store(true)
			x.closed = true
		}
	}
	t.of = nil
	t.open.Store(0)
	t.wake()
}

// Listener hears what replicas do to keys while they serve. Its methods may be called from any goroutine; they do not
// block.
type Listener interface {
	// Wants says what somebody wants to hear, 0 for nothing. Who begins to track says so here before the first read
	// whose keys matter.
	Wants() Wants
	// Happened tells what the replica of a store has committed, before anybody gets an answer about it. The effects are
	// valid during the call.
	Happened(store topology.StoreID, effects []redis.Effect)
	// Lost tells that changes of keys in these slots may have escaped the Listener: a replica of the store does not
	// serve any more, or begins to, or its bounds or its data have become others. No read of somebody who tracks began
	// before and ends after it.
	Lost(store topology.StoreID, slots topology.SlotRange)
}

// Wants is what a Listener wants to hear.
type Wants uint8

const (
	WantsChanges Wants = 1 << iota
	WantsOld           // with the changes, whether a key was there before, and had expired: redis.Effects.Looks
	WantsMisses        // keys that reads do not find
)

// lost tells the Listener that changes of keys in these slots may escape it.
func (c *core) lost(slots topology.SlotRange) {
	if c.o.Listener != nil && !c.o.Mistakes.KeptTracking {
		c.o.Listener.Lost(c.o.Store, slots)
	}
}

// hear begins a read for somebody who tracks, in a term: no change escapes the Listener that the read does not see.
func (c *core) hear(term uint64, deadline time.Time) error {
	switch {
	case term == 0:
		return ErrNotLeader
	case c.o.Mistakes.DeafTracking:
		return nil
	}
	return c.watches.hear(deadline, c.stop)
}
