package server

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/redis"
)

// outbox is all that waits to be sent to one client.
//
//	the owner:  Reply -------------- flush --\
//	                                          the client
//	anybody:    push -- queue ----- write --/
//
// The owner is the goroutine that runs the connection. It appends replies to Reply, and flush sends them. While the
// outbox is shared, anybody may push messages: lines of MONITOR, and what is published. Nobody can push to an outbox
// that is not shared, so then it takes no lock and knows no goroutine but the owner's. Each reason to share it calls
// share when it begins and unshare when it ends. A session whose outbox is shared is not Plain, so that begin is called.
//
// Of a shared outbox one goroutine writes at a time, whole replies or whole messages: the owner in flush, or one that
// push or flush has started and that ends when nothing is queued. While the owner runs a command (busy), messages wait
// behind its replies. So no message overtakes a reply that was made before it. A message of the owner's own commands
// joins its replies at once: see tell. So do the messages that wait, where the client must have them before it has a
// reply: see drain.
//
// The replies of the owner and the messages together may not exceed the limits of the client's class. An owner that
// sends waits for its client. A push never waits: if the client is too far behind, the push ends the connection.
type outbox struct {
	redis.Reply // of the owner

	c *conn

	top    int    // where the reply of the present command begins in Buf
	aside  []byte // messages to the client itself, while its replies are kept back
	within bool   // flush sends a part of a reply: no message may follow
	timed  bool   // a write deadline is set; of the goroutine that writes

	held    atomic.Int64 // bytes that ClientMemory counts for it, besides the messages
	waiting atomic.Int64 // bytes of replies that flush sends, where these are many or the outbox is shared
	queued  atomic.Int64 // bytes of messages that are not written yet

	mu      sync.Mutex // no other lock is taken while it is held
	idle    sync.Cond  // a goroutine has ended writing
	shared  bool       // the owner may read it without mu
	reasons int        // to share it; the owner's
	busy    bool       // the owner may read it without mu
	writing bool       // a goroutine writes messages
	ended   bool       // nothing more is sent
	queue   []*message
	soft    time.Time // since when the client exceeds the soft limit; zero if it does not
}

// message is what several clients may be sent, encoded once. Its bytes do not change.
type message struct {
	resp2   []byte
	resp3   []byte     // where it is no push
	pushed  *pushBytes // of a push
	memory  *ClientMemory
	held    atomic.Int64 // bytes that ClientMemory counts
	holders atomic.Int64
}

// pushBytes are the bytes of a push in RESP3, made when the first client needs them.
type pushBytes struct {
	once  sync.Once
	bytes []byte
}

const (
	gatherBytes  = 4 << 10 // messages are written together up to this size
	pointerBytes = 2 * int64(unsafe.Sizeof((*message)(nil)))
)

// newMessage returns a message, which counts in the memory of clients until release has been called as often as hold,
// and once more. resp2 and resp3 may be the same.
func newMessage(m *ClientMemory, resp2, resp3 []byte) *message {
	x := &message{resp2: resp2, resp3: resp3, memory: m}
	x.holders.Store(1)
	x.count(x.bytes())
	return x
}

// newPush returns a message that is an array in RESP2, and in RESP3 a push with the same elements.
func newPush(m *ClientMemory, resp2 []byte) *message {
	x := newMessage(m, resp2, nil)
	x.pushed = new(pushBytes)
	return x
}

// bytes is how many bytes the message takes in either protocol at most.
func (m *message) bytes() int64 { return int64(max(len(m.resp2), len(m.resp3))) }

// count counts bytes more.
func (m *message) count(n int64) {
	m.held.Add(n)
	m.memory.used.Add(n)
}

func (m *message) in(proto int) []byte {
	switch {
	case proto != 3:
		return m.resp2
	case m.pushed == nil:
		return m.resp3
	}
	m.pushed.once.Do(func() {
		m.count(m.bytes())
		m.pushed.bytes = bytes.Clone(m.resp2)
		m.pushed.bytes[0] = '>'
	})
	return m.pushed.bytes
}

func (m *message) release() {
	if m.holders.Add(-1) == 0 {
		m.memory.used.Add(-m.held.Load())
	}
}

func (o *outbox) init(c *conn) {
	o.c, o.idle.L = c, &o.mu
	o.More, o.Room = c.more, freeRoom
}

// share lets others push from now on. The owner calls it while it runs a command; messages wait behind its reply.
func (o *outbox) share() {
	if o.reasons++; o.reasons > 1 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shared, o.busy = true, true
}

// unshare ends a reason to share the outbox. Nobody may push for that reason any more. If it was the last one, settle
// ends the sharing.
func (o *outbox) unshare() { o.reasons-- }

// settle makes the outbox the owner's alone again once there is no reason to share it. The owner calls it when it has
// flushed. It waits for the client.
func (o *outbox) settle() {
	if !o.shared || o.reasons > 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.ended && len(o.queue) > 0 || o.writing {
		o.idle.Wait()
	}
	o.shared, o.busy = false, false
}

// tell puts the bytes of a message in front of the reply that begins at an index of Buf. The owner calls it while it runs
// a command: what it has to tell its own client comes where the command has caused it, also if replies are kept back.
func (o *outbox) tell(message []byte, at int) {
	if o.c.session.Silent() {
		o.aside = append(o.aside, message...)
		return
	}
	o.Buf = slices.Insert(o.Buf, min(at, len(o.Buf)), message...)
}

// hush takes back the replies from an index of Buf on, since the client does not want them. It leaves messages.
func (o *outbox) hush(from int) {
	o.Buf = append(o.Buf[:min(from, len(o.Buf))], o.aside...)
	o.aside = o.aside[:0]
}

// drain puts the messages that are queued in front of the present command's reply. The owner calls it while it runs a
// command after which the client does not expect them any more.
func (o *outbox) drain() {
	if !o.shared {
		return
	}
	o.mu.Lock()
	queue := o.queue
	o.queue = nil
	o.mu.Unlock()
	size := int64(0)
	for _, m := range queue {
		size += m.bytes()
	}
	room := size <= freeRoom || o.c.hold(size)
	var all []byte
	for _, m := range queue {
		if room {
			all = append(all, m.in(o.Proto)...)
		}
		m.release()
	}
	o.queued.Add(-size)
	o.hold(-int64(len(queue)) * pointerBytes)
	o.tell(all, o.top)
}

// begin keeps messages back until the next flush has sent replies. The owner calls it before it runs a command.
func (o *outbox) begin() {
	if !o.shared || o.busy {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = true
	for o.writing { // at most what it writes at once
		o.idle.Wait()
	}
}

// push queues a message. It never waits for the client. The caller holds no lock that Server or ClientMemory use.
func (o *outbox) push(m *message) {
	if !o.hold(pointerBytes) {
		return
	}
	o.mu.Lock()
	if !o.shared || o.ended {
		o.mu.Unlock()
		o.hold(-pointerBytes)
		return
	}
	m.holders.Add(1)
	o.queue = append(o.queue, m)
	o.queued.Add(m.bytes())
	beyond, until := o.judge(o.waiting.Load() + o.queued.Load())
	if !until.IsZero() {
		o.c.nc.SetWriteDeadline(until) // for a write that is under way
	}
	o.wake()
	o.mu.Unlock()
	if beyond {
		o.c.cut()
	}
}

// wake has a goroutine write messages if there are any and nobody writes. The caller holds mu.
func (o *outbox) wake() {
	if len(o.queue) > 0 && !o.busy && !o.writing {
		o.writing = true
		go o.write()
	}
}

// write sends messages until none is queued, or the owner runs a command.
func (o *outbox) write() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for more := true; more && len(o.queue) > 0; more = !o.busy {
		n, size := 1, o.queue[0].bytes()
		for n < len(o.queue) && size+o.queue[n].bytes() <= gatherBytes {
			size += o.queue[n].bytes()
			n++
		}
		some := o.queue[:n:n]
		if o.queue = o.queue[n:]; len(o.queue) == 0 {
			o.queue = nil
		}
		o.mu.Unlock()
		sent := o.deliver(some, size)
		o.queued.Add(-size)
		o.hold(-int64(n) * pointerBytes)
		if !sent {
			o.c.kill()
			o.drop()
		}
		o.mu.Lock()
		o.judge(o.waiting.Load() + o.queued.Load()) // it may have caught up
	}
	o.writing = false
	o.idle.Broadcast()
}

// deliver writes messages that have size bytes together, and releases them.
func (o *outbox) deliver(some []*message, size int64) (sent bool) {
	if len(some) == 1 {
		defer some[0].release()
		return o.send(some[0].in(o.Proto), false)
	}
	if !o.hold(size) {
		size = 0
	}
	defer o.hold(-size)
	together := make([]byte, 0, size)
	for _, m := range some {
		if size > 0 {
			together = append(together, m.in(o.Proto)...)
		}
		m.release()
	}
	return size > 0 && o.send(together, false)
}

// flush sends the replies so far. It returns false when the connection is over.
func (o *outbox) flush() bool {
	if len(o.Buf) > 0 {
		o.begin()
	}
	if o.Full {
		o.c.overflow()
		return false
	}
	if !o.send(o.Buf, true) {
		o.Buf = nil
		o.waiting.Store(0)
		o.drop()
		return false
	}
	if cap(o.Buf) > keepBytes || o.c.s.o.ClientMemory.tight() {
		o.Buf = nil
	}
	o.Buf, o.Room, o.Full = o.Buf[:0], freeRoom, false
	if o.shared && !o.within {
		o.mu.Lock()
		o.busy = false
		o.wake()
		o.mu.Unlock()
	}
	return true
}

// send writes to the client. It returns false when the connection is over. Nothing leaves a store that has failed.
func (o *outbox) send(left []byte, owner bool) bool {
	c := o.c
	if c.s.o.Node.Failed() != nil {
		return false
	}
	if len(left) == 0 {
		return true // and leave the write deadline to a goroutine that writes messages
	}
	if owner && len(left) >= flushBytes {
		o.waiting.Store(int64(len(left)))
		if !c.account() { // for as long as the client does not read
			return false
		}
	}
	for len(left) > 0 {
		beyond, soft := o.check(left, owner)
		if beyond {
			c.cut()
			return false
		}
		idle := c.idleUntil()
		by := idle
		if !soft.IsZero() && (by.IsZero() || soft.Before(by)) {
			by = soft
		}
		if o.timed || !by.IsZero() {
			o.timed = !by.IsZero()
			c.nc.SetWriteDeadline(by)
		}
		n, err := c.nc.Write(left[:min(len(left), sendBytes)])
		c.s.stats.bytesOut.Add(uint64(n))
		left = left[n:]
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded) || !idle.IsZero() && !time.Now().Before(idle):
			return false
		default: // the time of the soft limit is over, or was that of an earlier write
			o.timed = true
		}
	}
	if o.timed {
		o.timed = false
		c.nc.SetWriteDeadline(time.Time{})
	}
	if owner && (o.shared || o.waiting.Load() > 0 || !o.soft.IsZero()) {
		o.check(nil, true)
	}
	return true
}

// limit is that of the client's class. A monitor is a normal client, as in Redis.
func (o *outbox) limit() *outputLimit {
	if o.c.subscribes.Load() {
		return o.c.s.limits.pubsub.Load()
	}
	return o.c.s.limits.output.Load()
}

// check judges what waits while so much of a write is left.
func (o *outbox) check(left []byte, owner bool) (beyond bool, until time.Time) {
	if owner && (o.shared || o.waiting.Load() > 0) {
		o.waiting.Store(int64(len(left)))
	}
	if !o.shared {
		return o.judge(int64(len(left)))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.judge(o.waiting.Load() + o.queued.Load())
}

// judge reports whether a client may not leave so many bytes unread any longer, or until when it may; until is zero if
// it may for ever. The caller holds mu, if the outbox is shared.
func (o *outbox) judge(bytes int64) (beyond bool, until time.Time) {
	limit := o.limit()
	if limit.soft == 0 || bytes <= limit.soft {
		o.soft = time.Time{}
		return limit.hard > 0 && bytes > limit.hard, time.Time{}
	}
	now := time.Now()
	if o.soft.IsZero() {
		o.soft = now
	}
	until = o.soft.Add(limit.softTime)
	return limit.hard > 0 && bytes > limit.hard || !now.Before(until), until
}

// drop gives up what is queued: the connection is over. Anybody may call it.
func (o *outbox) drop() {
	o.mu.Lock()
	queue := o.queue
	o.queue, o.ended = nil, true
	o.idle.Broadcast()
	o.mu.Unlock()
	for _, m := range queue {
		o.queued.Add(-m.bytes())
		m.release()
	}
	o.c.s.o.ClientMemory.used.Add(-o.held.Swap(0))
}

// hold is conn.hold for what is queued.
func (o *outbox) hold(n int64) bool { return o.c.count(&o.held, n) }

// length is how many messages and replies wait to be sent.
func (o *outbox) length() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.queue)
	if o.waiting.Load() > 0 {
		n++
	}
	return n
}
