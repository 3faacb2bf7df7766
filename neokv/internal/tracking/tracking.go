// Package tracking remembers which clients cache which keys, and says what each is told: CLIENT TRACKING. It knows no
// connection and no clock.
//
// A client in the default mode is told once of each key that it has read; then the key is forgotten until the client
// reads it again. A client that has asked for broadcast is told of every change of a key that begins with one of its
// prefixes.
//
// A client never keeps a stale value. While it runs commands (Begin), what it is to be told is kept back until these
// have been answered (End). Begin comes before the commands read anything, with their keys. So whatever changes after a
// value has been read is told behind the reply that has the value. Where changes may have escaped the table, or where
// it has no room for a key any more, it tells the clients that these keys have changed, or all.
package tracking

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// Options are those of CLIENT TRACKING ON that concern the table.
type Options struct {
	Broadcast bool
	Prefixes  []string // of Broadcast; none: all keys
	NoLoop    bool     // the client is not told of what it does itself
}

// Client is a client that tracks, or has tracked. Its methods are the Table's.
type Client struct {
	// Send sends the client what it is told, all that has changed, or everything if keys is nil. It is called while the
	// table is locked, never while the client is busy, and must not block.
	Send func(*Message)

	// The table's mutex guards these.
	options Options
	on      bool
	busy    bool
	waiting []*Message
	behind  int64 // bytes of what waits
}

// Message is what clients are told: keys have changed, or any key may have.
type Message struct {
	Keys  []string // nil: any key
	bytes int64    // that it takes, about
}

// Table has the clients of one port that track. The zero value has none, and knows no bound.
type Table struct {
	// Held, if it is not nil, is told how many bytes more the table holds, or fewer. Full, if it is not nil, says
	// whether these are too many: then the table gives up keys. Both are set before the first call, and do not block.
	Held func(bytes int64)
	Full func(held int64) bool

	most int // bound of keys, 0 for none

	mu       sync.Mutex
	clients  map[*Client]bool
	slots    []slot // nil while nobody has read a key
	prefixes map[string]map[*Client]bool
	lengths  map[int]int // of prefixes: how many have it
	keys     int
	items    int           // clients of all keys
	alive    int           // the last sweep has left so many items, or fewer
	next     topology.Slot // from which keys are given up next
	held     int64
	sweeping bool
}

// slot has the keys of a slot that somebody has read.
type slot struct {
	readers map[string]readers // nil if there are none
	items   int
	bytes   int64 // counted in held
}

// readers are the clients that have read a key. Most keys have few.
type readers struct {
	few  []*Client
	many map[*Client]bool // in place of few, if there are more than maxFew
}

// maxFew is how many clients may be searched one by one.
const maxFew = 32

// add adds a client, and reports whether it is new.
func (r *readers) add(c *Client) bool {
	switch {
	case r.many != nil:
		if r.many[c] {
			return false
		}
		r.many[c] = true
	case slices.Contains(r.few, c):
		return false
	case len(r.few) < maxFew:
		r.few = append(r.few, c)
	default:
		r.many = make(map[*Client]bool, 2*maxFew)
		for _, old := range r.few {
			r.many[old] = true
		}
		r.few, r.many[c] = nil, true
	}
	return true
}

// all is each of them.
func (r readers) all(yield func(*Client) bool) {
	for _, c := range r.few {
		if !yield(c) {
			return
		}
	}
	for c := range r.many {
		if !yield(c) {
			return
		}
	}
}

func (r readers) count() int { return len(r.few) + len(r.many) }

// What the table holds, about: of a key besides its bytes, of a client of a key, and of a message besides its keys.
const (
	keyBytes     = 128
	itemBytes    = 16
	messageBytes = 64
)

// Counts are how much there is in a table, as INFO shows it.
type Counts struct{ Clients, Keys, Items, Prefixes int }

const (
	// manyKeys is how many keys a client is told of one by one that have changed unseen. Of more it is told that all
	// have.
	manyKeys = 1000
	// maxBehind bounds what waits for a client that is busy. If there is more, it is told that all keys have changed.
	maxBehind = 256 << 10
	// chunk is how many items sweep and Lost go through while they hold the mutex, one key more at most.
	chunk = 1000
)

func newMessage(keys []string) *Message {
	m := &Message{Keys: keys, bytes: messageBytes}
	for _, k := range keys {
		m.bytes += int64(len(k)) + itemBytes
	}
	return m
}

// hold counts bytes. The caller holds mu.
func (t *Table) hold(bytes int64) {
	t.held += bytes
	if t.Held != nil {
		t.Held(bytes)
	}
}

// SetMost sets how many keys the table has at most, 0 for any number. What is too much goes with the next key.
func (t *Table) SetMost(keys int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = keys
}

// Counts returns how much there is.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Counts{len(t.clients), t.keys, t.items, len(t.prefixes)}
}

// Start lets a client track, or track in another way. A client that tracks already keeps its prefixes and gets more. It
// is busy: the caller runs a command of it.
func (t *Table) Start(c *Client, o Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clients == nil {
		t.clients, t.prefixes, t.lengths = map[*Client]bool{}, map[string]map[*Client]bool{}, map[int]int{}
	}
	added := o.Prefixes
	if o.Broadcast && len(added) == 0 {
		added = []string{""}
	}
	o.Prefixes = c.options.Prefixes
	if o.Broadcast {
		for _, p := range added {
			if !slices.Contains(o.Prefixes, p) {
				o.Prefixes = append(o.Prefixes, p)
				if t.prefixes[p] == nil {
					t.prefixes[p] = map[*Client]bool{}
					t.lengths[len(p)]++
				}
				t.prefixes[p][c] = true
			}
		}
	}
	c.options, c.on, c.busy = o, true, true
	t.clients[c] = true
}

// Stop ends the tracking of a client. What it has not been told yet it does not learn.
func (t *Table) Stop(c *Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.on {
		return
	}
	delete(t.clients, c)
	for _, p := range c.options.Prefixes {
		if delete(t.prefixes[p], c); len(t.prefixes[p]) > 0 {
			continue
		}
		delete(t.prefixes, p)
		if t.lengths[len(p)]--; t.lengths[len(p)] == 0 {
			delete(t.lengths, len(p))
		}
	}
	t.take(c)
	c.options, c.on, c.busy = Options{}, false, false
	switch {
	case len(t.clients) == 0: // whatever keys are left, nobody reads them any more
		t.slots, t.keys, t.items, t.alive = nil, 0, 0, 0
		t.hold(-t.held)
	case t.items > 2*t.alive+chunk: // so a sweep costs each item little, however many clients come and go
		t.sweep()
	}
}

// sweep takes clients out of the table that do not track any more. It lets others use the table meanwhile, as each
// does. The caller holds mu.
func (t *Table) sweep() {
	if t.sweeping {
		return
	}
	t.sweeping = true
	t.each(topology.SlotRange{Last: topology.SlotCount - 1}, func(at topology.Slot, key string, all readers) {
		var alive readers
		for c := range all.all {
			if c.on {
				alive.add(c)
			}
		}
		switch gone := all.count() - alive.count(); {
		case alive.count() == 0:
			t.forget(at, key)
		case gone > 0:
			t.slots[at].readers[key] = alive
			t.count(at, -gone, -int64(gone)*itemBytes)
		}
	}, func() {})
	t.alive, t.sweeping = t.items, false
}

// each calls f with the keys of some slots and their readers. f may forget the key. The caller holds mu. each calls
// pause and gives mu up now and then: a key that comes meanwhile may be left out.
func (t *Table) each(slots topology.SlotRange, f func(at topology.Slot, key string, all readers), pause func()) {
	n := 0
	for at := slots.First; at <= slots.Last; at++ {
		if t.slots == nil {
			return
		}
		for key := range t.slots[at].readers {
			if n > chunk {
				n = 0
				pause()
				t.mu.Unlock()
				runtime.Gosched() // else those who wait for mu find it locked again
				t.mu.Lock()
				if t.slots == nil {
					return
				}
			}
			if all, there := t.slots[at].readers[key]; there {
				n += 1 + all.count()
				f(at, key, all)
			}
		}
	}
}

// count adds items and bytes to a slot. The caller holds mu.
func (t *Table) count(at topology.Slot, items int, bytes int64) {
	s := &t.slots[at]
	s.items += items
	s.bytes += bytes
	t.items += items
	t.alive = min(t.alive, t.items)
	t.hold(bytes)
}

// Prefixes returns the prefixes of a client, in order.
func (t *Table) Prefixes(c *Client) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(slices.Values(c.options.Prefixes))
}

// Begin begins commands of a client. If they read, it is called with their keys before they do.
func (t *Table) Begin(c *Client, keys [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.busy = true
	if !c.on || c.options.Broadcast || len(keys) == 0 {
		return
	}
	if t.slots == nil {
		t.slots = make([]slot, topology.SlotCount)
	}
	for _, key := range keys {
		at := topology.SlotOf(key)
		of := &t.slots[at]
		all, there := of.readers[string(key)]
		if !all.add(c) {
			continue
		}
		if !there {
			if of.readers == nil {
				of.readers = map[string]readers{}
			}
			t.keys++
			t.count(at, 0, keyBytes+int64(len(key)))
		}
		t.count(at, 1, itemBytes)
		of.readers[string(key)] = all
	}
	t.shrink()
}

// End ends commands of a client, and returns what it is told behind their replies.
func (t *Table) End(c *Client) (told []*Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.busy = false
	return t.take(c)
}

// take takes what waits for a client. The caller holds mu.
func (t *Table) take(c *Client) (told []*Message) {
	told = c.waiting
	t.hold(-c.behind)
	c.waiting, c.behind = nil, 0
	return told
}

// tell tells a client. The caller holds mu.
func (t *Table) tell(c *Client, m *Message) {
	switch n := len(c.waiting); {
	case !c.on:
		return
	case !c.busy:
		c.Send(m)
		return
	case n > 0 && c.waiting[n-1].Keys == nil: // it has been told all
		return
	case m.Keys == nil || c.behind+m.bytes > maxBehind: // then this says no less
		t.take(c)
		m = newMessage(nil)
	}
	c.waiting = append(c.waiting, m)
	c.behind += m.bytes
	t.hold(m.bytes)
}

// forget takes a key out of the table, and returns who has read it. The caller holds mu.
func (t *Table) forget(at topology.Slot, key string) readers {
	of := &t.slots[at]
	all, there := of.readers[key]
	if there {
		if delete(of.readers, key); len(of.readers) == 0 {
			of.readers = nil
		}
		t.keys--
		t.count(at, -all.count(), -keyBytes-int64(len(key))-int64(all.count())*itemBytes)
	}
	return all
}

// clear takes all keys of some slots out of the table. The caller holds mu.
func (t *Table) clear(slots topology.SlotRange) {
	for at := slots.First; at <= slots.Last && t.slots != nil; at++ {
		of := &t.slots[at]
		t.keys -= len(of.readers)
		of.readers = nil
		t.count(at, -of.items, -of.bytes)
	}
}

// shrink gives up keys beyond the bound, and tells those who have read them. The caller holds mu.
func (t *Table) shrink() {
	for t.keys > 0 && (t.most > 0 && t.keys > t.most || t.Full != nil && t.Full(t.held)) {
		for t.slots[t.next].readers == nil {
			t.next = (t.next + 1) % topology.SlotCount
		}
		for key := range t.slots[t.next].readers { // any one
			t.invalidate(t.next, key, nil)
			break
		}
		t.next = (t.next + 1) % topology.SlotCount
	}
}

// invalidate tells those who have read a key that it has changed. The caller holds mu.
func (t *Table) invalidate(at topology.Slot, key string, by *Client) {
	var m *Message
	for c := range t.forget(at, key).all {
		if c == by && c.options.NoLoop || c.options.Broadcast {
			continue
		}
		if m == nil {
			m = newMessage([]string{key})
		}
		t.tell(c, m)
	}
}

// Happened tells the clients what has happened to keys. An effect is By a *Client, or by nobody who tracks.
func (t *Table) Happened(effects []redis.Effect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		return
	}
	flushed := false
	var changed map[string][]change // by prefix
	for i := range effects {
		e := &effects[i]
		switch e.What {
		case redis.Changed, redis.Expired:
			author, _ := e.By.(*Client)
			if t.slots != nil {
				if _, there := t.slots[e.Slots.First].readers[string(e.Key)]; there {
					t.invalidate(e.Slots.First, string(e.Key), author)
				}
			}
			for n := range t.lengths {
				if n > len(e.Key) || len(t.prefixes[string(e.Key[:n])]) == 0 {
					continue
				}
				if changed == nil {
					changed = map[string][]change{}
				}
				changed[string(e.Key[:n])] = append(changed[string(e.Key[:n])], change{e.Key, author})
			}
		case redis.Flushed:
			flushed = true
			t.clear(e.Slots)
		}
	}
	if flushed {
		m := newMessage(nil)
		for c := range t.clients {
			t.tell(c, m)
		}
		return
	}
	for _, prefix := range slices.Sorted(maps.Keys(changed)) {
		t.broadcast(t.prefixes[prefix], changed[prefix])
	}
}

// change is one that clients with prefixes may be told.
type change struct {
	key []byte
	by  *Client
}

// broadcast tells the clients of a prefix of changes. They get the keys in order, each once, as from Redis.
func (t *Table) broadcast(all map[*Client]bool, changed []change) {
	keys := func(but *Client) *Message {
		var keys []string
		for _, x := range changed {
			if but == nil || x.by != but {
				keys = append(keys, string(x.key))
			}
		}
		if keys == nil {
			return nil
		}
		slices.Sort(keys)
		return newMessage(slices.Compact(keys))
	}
	everything := keys(nil)
	for c := range all {
		m := everything
		if c.options.NoLoop && slices.ContainsFunc(changed, func(x change) bool { return x.by == c }) {
			m = keys(c)
		}
		if m != nil {
			t.tell(c, m)
		}
	}
}

// Lost tells the clients that keys of some slots may have changed unseen. A client of many of these keys is told that
// all have changed, more than once: each key leaves the table in the instant in which its clients are told.
func (t *Table) Lost(slots topology.SlotRange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	anything := newMessage(nil)
	for c := range t.clients {
		if c.options.Broadcast {
			t.tell(c, anything)
		}
	}
	lost, told := map[*Client][]string{}, map[*Client]int{}
	tell := func() {
		for c, keys := range lost {
			if told[c] += len(keys); told[c] > manyKeys {
				t.tell(c, anything)
			} else {
				t.tell(c, newMessage(keys))
			}
		}
		clear(lost)
	}
	t.each(slots, func(at topology.Slot, key string, all readers) {
		t.forget(at, key)
		for c := range all.all {
			if c.on && !c.options.Broadcast {
				lost[c] = append(lost[c], key)
			}
		}
	}, tell)
	tell()
}

// Overlap returns two prefixes of which one begins with the other, if there are any: one that is added, and one that
// the client has or that is added behind it. Of one client, no prefixes may overlap.
func Overlap(old, added []string) (a, b string, isOld, overlaps bool) {
	overlap := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	for i, a := range added {
		for _, b := range old {
			if overlap(a, b) {
				return a, b, true, true
			}
		}
		for _, b := range added[i+1:] {
			if overlap(a, b) {
				return a, b, false, true
			}
		}
	}
	return "", "", false, false
}
