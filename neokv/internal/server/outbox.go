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
// share when it begins and unshare when it ends. A session whose outbox is shared is not Plain, so that begin is
// called.
//
// Of a shared outbox one goroutine writes at a time, whole replies or whole messages: the owner in flush, or one of the
// server's senders, which have few goroutines for all outboxes. A sender does not wait for a client: of what the
// connection does not take at once the rest is sent by a goroutine of the outbox's own, which ends when nothing is
// queued. While the owner runs a command (busy), messages wait behind its replies. So no message overtakes a reply that
// was made before it. A message of the owner's own commands joins its replies at once: see tell. So do the messages
// that wait, where the client must have them before it has a reply: see drain.
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

	mu      sync.Mutex // of other locks only that of senders is taken while it is held
	idle    sync.Cond  // a goroutine has ended writing
	shared  bool       // the owner may read it without mu
	reasons int        // to share it; the owner's
	busy    bool       // the owner may read it without mu
	due     bool       // a sender is about to write messages
	writing bool       // a goroutine writes messages
	ended   bool       // nothing more is sent
	queue   []*message // those that are not sent yet
	begun   int        // bytes of the first one that are sent
	flying  int        // how many of the first ones somebody writes
	soft    time.Time  // since when the client exceeds the soft limit; zero if it does not
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
	senderBytes  = 16 << 10 // a sender writes messages together up to this size
	helpBytes    = 64 << 10 // where more waits for a sender, who pushes writes it
	gatherBytes  = 4 << 10  // so does the goroutine of one outbox
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

// tell puts the bytes of a message in front of the reply that begins at an index of Buf. The owner calls it while it
// runs a command: what it has to tell its own client comes where the command has caused it, also if replies are kept
// back.
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

// drain puts the messages that are queued in front of the present command's reply, but for those that somebody writes
// and for which flush waits. The owner calls it while it runs a command after which the client does not expect them any
// more.
func (o *outbox) drain() {
	if !o.shared {
		return
	}
	o.mu.Lock()
	left := o.flying
	if o.begun > 0 {
		left = max(left, 1)
	}
	queue := o.queue[left:]
	o.queue = o.queue[:left:left]
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
	if len(o.queue) > 0 && !o.writing { // else an owner that goes on and on would leave no time for messages
		o.mu.Unlock()
		o.c.s.senders.help(o)
		o.mu.Lock()
	}
	o.busy = true
	for o.writing { // at most what it writes at once
		o.idle.Wait()
	}
}

// push queues a message. It never waits for the client. The caller holds no lock that Server or ClientMemory use. It
// returns false if nobody may push, or the connection ends.
func (o *outbox) push(m *message) bool {
	if !o.hold(pointerBytes) {
		return false
	}
	invited := o.c.guests.Load() > 0
	o.mu.Lock()
	if !o.shared && !invited || o.ended {
		o.mu.Unlock()
		o.hold(-pointerBytes)
		return false
	}
	m.holders.Add(1)
	o.queue = append(o.queue, m)
	queued := o.queued.Add(m.bytes())
	beyond, until := false, time.Time{}
	if o.shared { // else the owner shares it soon
		beyond, until = o.judge(o.waiting.Load() + o.queued.Load())
		o.wake()
	}
	if !until.IsZero() {
		o.c.nc.SetWriteDeadline(until) // for a write that is under way
	}
	if !beyond && (invited || o.c.tracks.Load() != nil) { // replies have the limit of its class, messages this one
		most := o.c.s.limits.pubsub.Load().hard
		beyond = most > 0 && o.queued.Load() > most
	}
	late := o.due && queued > helpBytes
	o.mu.Unlock()
	switch {
	case beyond:
		o.c.cut()
	case late:
		o.c.s.senders.help(o)
	}
	return !beyond
}

// wake has a sender write messages if there are any and nobody writes. The caller holds mu.
func (o *outbox) wake() {
	if len(o.queue) > 0 && !o.busy && !o.due && !o.writing {
		o.due = true
		o.c.s.senders.add(o)
	}
}

// write sends messages that are queued, as much as goes into room at once, or one message. It does not wait for the
// client.
func (o *outbox) write(room []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 || o.busy || o.writing {
		return
	}
	o.writing = true
	some := o.gather(room)
	o.mu.Unlock()
	n, whole := o.try(some)
	o.mu.Lock()
	o.sent(n)
	if !whole && !o.ended {
		go o.finish()
		return
	}
	o.writing = false
	o.idle.Broadcast()
	o.wake()
}

// try sends as much as the connection takes at once. whole says that this is all.
func (o *outbox) try(some []byte) (n int, whole bool) {
	c := o.c
	if c.s.o.Node.Failed() != nil {
		return 0, false
	}
	w, ok := c.nc.(tryWriter)
	if !ok {
		return 0, false
	}
	n, err := w.TryWrite(some[:min(len(some), sendBytes)])
	c.s.stats.sent(n)
	return n, err == nil && n == len(some)
}

// tryWriter is a connection that can be written to without a wait. TryWrite may write less than it is given, also
// nothing. What is wrong with the connection then Write tells.
type tryWriter interface {
	TryWrite(p []byte) (n int, err error)
}

// finish sends messages, once at least, until none is queued, or the owner wants to run a command and none is begun. It
// waits for the client. The caller has set writing.
func (o *outbox) finish() {
	if o.hold(gatherBytes) {
		defer o.hold(-gatherBytes)
	}
	room := make([]byte, 0, gatherBytes)
	o.mu.Lock()
	defer o.mu.Unlock()
	for first := true; len(o.queue) > 0 && (first || !o.busy || o.begun > 0); first = false {
		some := o.gather(room)
		o.mu.Unlock()
		whole := o.send(some, false)
		if !whole {
			o.c.kill()
			o.drop()
		}
		o.mu.Lock()
		o.sent(len(some))
		o.judge(o.waiting.Load() + o.queued.Load()) // it may have caught up
	}
	o.writing = false
	o.idle.Broadcast()
}

// gather returns the first bytes of what is queued: as many messages as go into room together, at least one. The caller
// holds mu.
func (o *outbox) gather(room []byte) []byte {
	first := o.queue[0].in(o.Proto)[o.begun:]
	o.flying = 1
	if len(o.queue) == 1 || len(first)+len(o.queue[1].in(o.Proto)) > cap(room) {
		return first
	}
	room = append(room[:0], first...)
	for _, m := range o.queue[1:] {
		next := m.in(o.Proto)
		if len(room)+len(next) > cap(room) {
			break
		}
		room = append(room, next...)
		o.flying++
	}
	return room
}

// sent notes that so many bytes of what is queued have been sent. The caller holds mu.
func (o *outbox) sent(n int) {
	if o.ended {
		return // drop has released all messages
	}
	done := 0
	o.flying = 0
	for _, m := range o.queue {
		left := len(m.in(o.Proto)) - o.begun
		if n < left {
			break
		}
		n -= left
		o.begun = 0
		o.queued.Add(-m.bytes())
		m.release()
		done++
	}
	o.begun += n
	clear(o.queue[:done])
	if o.queue = o.queue[done:]; len(o.queue) == 0 {
		o.queue = nil
	}
	o.hold(-int64(done) * pointerBytes)
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
		c.s.stats.sent(n)
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
	o.queue, o.begun, o.flying, o.ended = nil, 0, 0, true
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

// senders write what has been pushed to the clients of a server. Each outbox that has something to write takes its
// turn. While the senders are at others, its messages gather, and are written together. So a message costs less the
// more there are, and nobody needs a goroutine for each client. Whoever pushes faster than they write helps them. The
// zero value has nothing to write.
type senders struct {
	mu    sync.Mutex
	due   []*outbox // in the order of their turns
	work  int       // goroutines that write
	rooms [][]byte  // that nobody uses
}

// maxSenders is how many goroutines of a server write to clients at once. None of them waits for anything.
const maxSenders = 2

// add gives an outbox a turn.
func (s *senders) add(o *outbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, o)
	if s.work < min(len(s.due), maxSenders) {
		s.work++
		go s.run(s.room())
	}
}

// room returns room for messages. The caller holds mu.
func (s *senders) room() []byte {
	last := len(s.rooms) - 1
	if last < 0 {
		return make([]byte, 0, senderBytes)
	}
	room := s.rooms[last]
	s.rooms = s.rooms[:last]
	return room
}

// run gives outboxes their turns until none is due.
func (s *senders) run(room []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.due) > 0 {
		o := s.due[0]
		s.due[0] = nil
		s.due = s.due[1:]
		s.mu.Unlock()
		o.mu.Lock()
		o.due = false
		o.mu.Unlock()
		o.write(room)
		s.mu.Lock()
	}
	s.work--
	s.due = nil
	s.keep(room)
}

// help writes for an outbox whose turn takes long to come.
func (s *senders) help(o *outbox) {
	s.mu.Lock()
	room := s.room()
	s.mu.Unlock()
	o.write(room)
	s.mu.Lock()
	s.keep(room)
	s.mu.Unlock()
}

// keep keeps room for another time. The caller holds mu.
func (s *senders) keep(room []byte) {
	if len(s.rooms) < maxSenders {
		s.rooms = append(s.rooms, room)
	}
}
