package server

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the register of subscriptions: which clients of a server get which messages. A message that is
// published at any port of the cluster reaches every server, by Deliver. Each message is encoded once for a channel,
// and once for each pattern that matches, however many clients get it.

// channels are the channels and patterns of a server that have subscribers. The zero value has none.
//
// Pushes are made while mu is held, so that a message and the end of a subscription come in the same order to a client.
// They never wait. Patterns are matched before, since that may take long.
type channels struct {
	count atomic.Int64 // subscriptions

	mu       sync.RWMutex
	of       [channelKinds]map[string]*channel
	patterns []*channel                 // in any order
	matched  atomic.Pointer[[]*channel] // a copy of patterns, nil if they have changed since it was made
	watching bool                       // see watchSlots
}

// channelKind is what a client can subscribe to. Each kind has names of its own.
type channelKind byte

const (
	namedChannel channelKind = iota
	patternChannel
	shardChannel // one whose slot its subscribers' store leads
	channelKinds = iota
)

// channel is a channel or a pattern that has subscribers.
type channel struct {
	kind  channelKind
	name  string
	glob  *redis.Glob     // of a pattern
	place int             // of a pattern: in channels.patterns
	all   []*subscription // in any order
}

// subscription is what a client gets.
type subscription struct {
	c  *conn
	to *channel
	at int // in to.all
}

// subscriptions are those of a client. Server.channels.mu guards the maps.
type subscriptions struct {
	of     [channelKinds]map[string]*subscription
	counts [channelKinds]atomic.Int64
	bytes  atomic.Int64 // of memory that the subscriptions take, about
	shares bool         // the outbox is shared for them; the owner's
}

// total is how many subscriptions there are.
func (s *subscriptions) total() (n int64) {
	for i := range s.counts {
		n += s.counts[i].Load()
	}
	return n
}

// subscriptionBytes is what a subscription takes besides its channel's name: it is in two maps.
const subscriptionBytes = int64(unsafe.Sizeof(subscription{})+unsafe.Sizeof(channel{})) + 96

func bytesOfSubscription(name string) int64 { return subscriptionBytes + int64(len(name)) }

// add adds a subscription unless the client has it. The caller holds mu.
func (s *channels) add(c *conn, kind channelKind, name string) {
	if c.subs.of[kind][name] != nil {
		return
	}
	to := s.of[kind][name]
	if to == nil {
		to = &channel{kind: kind, name: name}
		if s.of[kind] == nil {
			s.of[kind] = map[string]*channel{}
		}
		s.of[kind][name] = to
		if kind == patternChannel {
			to.glob, to.place = redis.NewGlob([]byte(name), nil), len(s.patterns)
			s.patterns = append(s.patterns, to)
			s.matched.Store(nil)
		}
	}
	x := &subscription{c: c, to: to, at: len(to.all)}
	to.all = append(to.all, x)
	if c.subs.of[kind] == nil {
		c.subs.of[kind] = map[string]*subscription{}
	}
	c.subs.of[kind][name] = x
	c.subs.counts[kind].Add(1)
	c.subs.bytes.Add(bytesOfSubscription(name))
	c.subscribes.Store(true)
	s.count.Add(1)
}

// remove removes a subscription if the client has it. The caller holds mu.
func (s *channels) remove(c *conn, kind channelKind, name string) {
	x := c.subs.of[kind][name]
	if x == nil {
		return
	}
	delete(c.subs.of[kind], name)
	c.subs.counts[kind].Add(-1)
	c.subs.bytes.Add(-bytesOfSubscription(name))
	if c.subs.total() == 0 {
		c.subscribes.Store(false)
	}
	s.count.Add(-1)
	to := x.to
	last := len(to.all) - 1
	to.all[x.at], to.all[last].at = to.all[last], x.at
	to.all[last] = nil
	if to.all = to.all[:last]; last > 0 {
		return
	}
	delete(s.of[kind], name)
	if kind == patternChannel {
		last := len(s.patterns) - 1
		s.patterns[to.place], s.patterns[last].place = s.patterns[last], to.place
		s.patterns[last] = nil
		s.patterns = s.patterns[:last]
		s.matched.Store(nil)
	}
}

// allPatterns returns the patterns, in a slice that does not change.
func (s *channels) allPatterns() []*channel {
	if all := s.matched.Load(); all != nil {
		return *all
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := append([]*channel(nil), s.patterns...)
	s.matched.Store(&all)
	return all
}

// Deliver sends a message that was published at another port to the clients of this server that have subscribed to its
// channel. shard says that it is one of SPUBLISH. The server keeps neither slice.
func (s *Server) Deliver(shard bool, name, payload []byte) {
	kind := namedChannel
	if shard {
		kind = shardChannel
	}
	s.deliver(kind, name, payload, nil, 0, nil)
}

// deliver sends a message to the clients of this server that have subscribed to its channel, and returns how many
// subscriptions got it. own is the connection that publishes, nil if it is none of this server's; its own messages come
// before the reply that begins at an index of its Buf. If w is over, nobody has got it.
func (s *Server) deliver(kind channelKind, name, payload []byte, own *conn, at int, w *engine.Work) (got int) {
	x := &s.channels
	if x.count.Load() == 0 {
		return 0
	}
	var matching []*channel
	if kind == namedChannel {
		for _, p := range x.allPatterns() {
			if !w.Spend(1) {
				return 0
			}
			if p.glob.Match(name, w) {
				matching = append(matching, p)
			}
		}
	}
	if w.Ended() != nil {
		return 0
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	send := func(to *channel) {
		if to == nil || len(to.all) == 0 {
			return
		}
		var m *message
		for _, sub := range to.all {
			if m == nil {
				m = newPush(s.o.ClientMemory, to.encode(name, payload))
			}
			if sub.c == own {
				bytes := m.in(own.out.Proto)
				own.out.tell(bytes, at)
				at += len(bytes)
			} else {
				sub.c.out.push(m)
			}
		}
		m.release()
		got += len(to.all)
	}
	send(x.of[kind][string(name)])
	for _, p := range matching {
		send(p)
	}
	return got
}

// encode returns a message for those who have subscribed to the channel or pattern, in RESP2.
func (x *channel) encode(name, payload []byte) []byte {
	r := redis.Reply{Buf: make([]byte, 0, len(x.name)+len(name)+len(payload)+160), Proto: 2}
	if x.kind == patternChannel {
		r.Push(4)
	} else {
		r.Push(3)
	}
	r.BulkString(subscribing[x.kind].message)
	if x.kind == patternChannel {
		r.BulkString(x.name)
	}
	r.Bulk(name)
	r.Bulk(payload)
	return r.Buf
}

// watchSlots ends subscriptions to shard channels whose slots this store no longer serves, from now on and until there
// are none. A server that redirects nobody serves all slots.
func (s *Server) watchSlots() {
	x := &s.channels
	if s.proxy() {
		return
	}
	x.mu.Lock()
	begun := x.watching
	x.watching = true
	x.mu.Unlock()
	if begun { // perhaps it has looked before the subscription was there
		s.endForeign(false)
		return
	}
	s.wg.Go(func() {
		for {
			changed := s.node.Changed()
			if s.endForeign(true) {
				return
			}
			select {
			case <-changed:
			case <-s.closing:
				return
			}
		}
	})
}

// endForeign ends subscriptions to shard channels of slots that another store serves, and tells their clients. If none
// is left, watchSlots may end, if it asks so.
func (s *Server) endForeign(mayEnd bool) (ends bool) {
	x := &s.channels
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, to := range x.of[shardChannel] {
		t, port, slot := s.node.Table(), route.Port{Store: s.self}, topology.SlotOf([]byte(name))
		d := route.Decide(t, port, []topology.Slot{slot}, false)
		if d.Action == route.Serve || d.Action == route.Wait || t.Window(port, slot) != nil {
			continue
		}
		for len(to.all) > 0 {
			c := to.all[0].c
			n := c.subs.confirmed(shardChannel) - 1
			m := newPush(s.o.ClientMemory, appendConfirmation(nil, "sunsubscribe", []byte(name), n, 2))
			c.out.push(m) // before the owner can see that it has no subscription left: then nobody may push any more
			m.release()
			x.remove(c, shardChannel, name)
		}
	}
	if ends = mayEnd && len(x.of[shardChannel]) == 0; ends {
		x.watching = false
	}
	return ends
}
