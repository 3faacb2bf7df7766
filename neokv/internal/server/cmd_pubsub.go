package server

import (
	"bytes"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// This file has the commands about messages: SUBSCRIBE, PUBLISH and their kin, and PUBSUB.

const (
	// maxPattern and maxChannel bound how long the matching of one pattern takes. Names that people give are far
	// shorter.
	maxPattern = 1 << 10
	maxChannel = 64 << 10
	// maxPublished is how long a message may be. It waits for the way to other stores, beside as many bytes of others.
	maxPublished = 32 << 20
)

// subscribing says how clients subscribe to a kind of channel.
var subscribing = [channelKinds]struct{ subscribe, unsubscribe, message string }{
	namedChannel:   {"subscribe", "unsubscribe", "message"},
	patternChannel: {"psubscribe", "punsubscribe", "pmessage"},
	shardChannel:   {"ssubscribe", "sunsubscribe", "smessage"},
}

func runSubscribe(c *conn, args [][]byte)    { c.subscribe(namedChannel, args[1:]) }
func runPSubscribe(c *conn, args [][]byte)   { c.subscribe(patternChannel, args[1:]) }
func runUnsubscribe(c *conn, args [][]byte)  { c.unsubscribe(namedChannel, args[1:]) }
func runPUnsubscribe(c *conn, args [][]byte) { c.unsubscribe(patternChannel, args[1:]) }

func runSSubscribe(c *conn, args [][]byte) {
	if c.session.Inside() {
		c.out.Error("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
		return
	}
	if c.servesChannels(args) {
		c.subscribe(shardChannel, args[1:])
	}
}

func runSUnsubscribe(c *conn, args [][]byte) {
	if len(args) == 1 || c.servesChannels(args) {
		c.unsubscribe(shardChannel, args[1:])
	}
}

// servesChannels reports whether this port serves the slot of shard channels. If not, the reply says so. On the proxy
// port all slots are served.
func (c *conn) servesChannels(args [][]byte) bool {
	if c.s.proxy() {
		return true
	}
	slot := topology.SlotOf(args[1])
	for _, name := range args[2:] {
		if topology.SlotOf(name) != slot {
			c.out.Error(redis.ErrCrossSlot)
			return false
		}
	}
	return c.exec.awaitServed(slot)
}

// subscribe subscribes to channels or patterns, and confirms each.
func (c *conn) subscribe(kind channelKind, names [][]byte) {
	for _, name := range names {
		switch most := maxChannel; {
		case kind == patternChannel && len(name) > maxPattern:
			c.out.Error(fmt.Sprintf("ERR the pattern is longer than %d bytes", maxPattern))
			return
		case len(name) > most:
			c.out.Error(fmt.Sprintf("ERR the channel's name is longer than %d bytes", most))
			return
		}
	}
	if !c.subs.shares {
		c.subs.shares = true
		c.out.share()
	}
	x := &c.s.channels
	for _, name := range names {
		if !c.exec.work.Spend(2) || !c.hold(bytesOfSubscription(string(name))) {
			c.closing = true
			return
		}
		x.mu.Lock()
		x.add(c, kind, string(name))
		n := c.subs.confirmed(kind)
		x.mu.Unlock()
		c.confirm(subscribing[kind].subscribe, name, n)
	}
	c.session.Subscribe(true)
	if kind == shardChannel {
		c.s.watchSlots()
	}
}

// confirmed is the number that the confirmation of a subscription, or of its end, has.
func (s *subscriptions) confirmed(kind channelKind) int64 {
	if kind == shardChannel {
		return s.counts[shardChannel].Load()
	}
	return s.counts[namedChannel].Load() + s.counts[patternChannel].Load()
}

// removedAtOnce is how many subscriptions of a client end before other clients may use the register.
const removedAtOnce = 1000

// unsubscribe ends subscriptions, all of the kind if there are no names, and confirms each. Messages that were
// published before come first.
func (c *conn) unsubscribe(kind channelKind, names [][]byte) {
	x := &c.s.channels
	if len(names) == 0 {
		x.mu.RLock()
		for name := range c.subs.of[kind] {
			names = append(names, []byte(name))
		}
		x.mu.RUnlock()
		slices.SortFunc(names, bytes.Compare)
		if len(names) == 0 {
			names = append(names, nil)
		}
	}
	counts := make([]int64, len(names))
	for i := 0; i < len(names); {
		x.mu.Lock()
		for end := min(len(names), i+removedAtOnce); i < end; i++ {
			x.remove(c, kind, string(names[i]))
			counts[i] = c.subs.confirmed(kind)
		}
		x.mu.Unlock()
	}
	c.out.drain()
	for i, name := range names {
		c.confirm(subscribing[kind].unsubscribe, name, counts[i])
	}
	c.noteSubscriptions()
}

// noteSubscriptions notes whether the client has any subscription left. Those to shard channels others end, too.
func (c *conn) noteSubscriptions() {
	if c.subs.shares && !c.subscribes.Load() {
		c.subs.shares = false
		c.out.unshare()
		c.session.Subscribe(false)
	}
}

// unsubscribeAll ends all subscriptions, and confirms none. Messages that were published before come first.
func (c *conn) unsubscribeAll() {
	if !c.subs.shares {
		return
	}
	x := &c.s.channels
	for more := true; more; {
		x.mu.Lock()
		n := 0
		for kind := range c.subs.of {
			for name := range c.subs.of[kind] {
				if n++; n > removedAtOnce {
					break
				}
				x.remove(c, channelKind(kind), name)
			}
		}
		x.mu.Unlock()
		more = n > removedAtOnce
	}
	c.out.drain()
	c.noteSubscriptions()
}

// confirm tells the client of a subscription, or of the end of one. As in Redis these are no replies: CLIENT REPLY does
// not keep them back.
func (c *conn) confirm(what string, name []byte, n int64) {
	c.out.tell(appendConfirmation(nil, what, name, n, c.out.Proto), len(c.out.Buf))
}

// appendConfirmation appends a confirmation. A name of nil stands for none.
func appendConfirmation(b []byte, what string, name []byte, n int64, proto int) []byte {
	r := redis.Reply{Buf: b, Proto: proto}
	r.Push(3)
	r.BulkString(what)
	if name != nil {
		r.Bulk(name)
	} else {
		r.Null()
	}
	r.Int(n)
	return r.Buf
}

func runPublish(c *conn, args [][]byte) {
	if c.publishable(args) {
		c.out.Int(int64(c.publish(namedChannel, args[1], args[2], len(c.out.Buf), &c.exec.work)))
	}
}

func runSPublish(c *conn, args [][]byte) {
	if c.publishable(args) && c.servesChannels(args[:2]) {
		c.out.Int(int64(c.publish(shardChannel, args[1], args[2], len(c.out.Buf), &c.exec.work)))
	}
}

// publishable reports whether a message is short enough. If not, the reply says so.
func (c *conn) publishable(args [][]byte) bool {
	switch {
	case len(args[1]) > maxChannel:
		c.out.Error(fmt.Sprintf("ERR the channel's name is longer than %d bytes", maxChannel))
	case len(args[2]) > maxPublished:
		c.out.Error(fmt.Sprintf("ERR the message is longer than %d bytes", maxPublished))
	default:
		return true
	}
	return false
}

// publish publishes a message: here, and then at all other ports. It returns how many subscriptions of this port's
// clients get it. Those of the client itself come before the reply that begins at an index of Buf. If w is over, the
// message has gone nowhere.
func (c *conn) publish(kind channelKind, name, payload []byte, at int, w *engine.Work) (got int) {
	if got = c.s.deliver(kind, name, payload, c, at, w); w.Ended() == nil {
		c.s.o.Node.Publish(c.s, kind == shardChannel, name, payload)
	}
	return got
}

func runPubsubChannels(c *conn, args [][]byte)      { c.listChannels(namedChannel, args) }
func runPubsubShardChannels(c *conn, args [][]byte) { c.listChannels(shardChannel, args) }
func runPubsubNumSub(c *conn, args [][]byte)        { c.countSubscribers(namedChannel, args[2:]) }
func runPubsubShardNumSub(c *conn, args [][]byte)   { c.countSubscribers(shardChannel, args[2:]) }

func runPubsubNumPat(c *conn, args [][]byte) {
	x := &c.s.channels
	x.mu.RLock()
	n := len(x.patterns)
	x.mu.RUnlock()
	c.out.Int(int64(n))
}

// listChannels lists the channels of this port that have subscribers.
func (c *conn) listChannels(kind channelKind, args [][]byte) {
	var pattern *redis.Glob
	switch {
	case len(args) > 3:
		c.unknownUse(args)
		return
	case len(args) == 3:
		pattern = redis.NewGlob(args[2], &c.exec.work)
	}
	x := &c.s.channels
	x.mu.RLock()
	names := make([]string, 0, len(x.of[kind]))
	for name := range x.of[kind] {
		names = append(names, name)
	}
	x.mu.RUnlock()
	if pattern != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !pattern.Match([]byte(name), &c.exec.work) })
	}
	slices.Sort(names)
	c.out.Array(len(names))
	for _, name := range names {
		c.out.BulkString(name)
	}
}

func (c *conn) countSubscribers(kind channelKind, names [][]byte) {
	c.out.Array(2 * len(names))
	for _, name := range names {
		if !c.exec.work.Spend(1) {
			return
		}
		x := &c.s.channels
		x.mu.RLock()
		n := 0
		if to := x.of[kind][string(name)]; to != nil {
			n = len(to.all)
		}
		x.mu.RUnlock()
		c.out.Bulk(name)
		c.out.Int(int64(n))
	}
}
