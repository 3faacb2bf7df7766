package server

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/session"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

const (
	flushBytes = 64 << 10  // when a pipeline's replies reach this size they are sent, though it has not ended
	keepBytes  = 256 << 10 // largest buffer that is kept for the next pipeline
	sendBytes  = 256 << 10 // sent at once; then the limits on time are checked again
)

// conn is one client's connection. Its goroutine owns it. Fields that other goroutines read, for example for CLIENT
// LIST, are atomic.
type conn struct {
	s       *Server
	nc      net.Conn
	id      uint64
	created time.Time

	rd      requestReader
	argv    [][]byte // arguments of the pipeline's commands, one behind the other
	cmds    []command
	at      int       // the command that runs, or waits
	since   time.Time // since when the commands that run now could have run
	out     outbox
	closing bool // the connection ends after the replies so far
	limited bool // a read deadline is set
	trusted bool // see TakeTrusted
	session session.Session
	watched watched
	flushed bool // while the present command has run, the replies before it have been sent
	inside  insideScripts
	subs    subscriptions
	track   *tracker                        // nil if it tracks no keys
	hosts   bool                            // guests are known
	tells   *announce.Told                  // see announced
	written map[topology.RegionID]lastWrite // its last write in each region that it wrote to

	exec     executor
	blocking blocking
	parked   time.Time // since when it waits for the executor's pop
	ended    ending    // what has ended that
	eof      time.Time // when the client was seen to send no more

	ctx        context.Context // ends when the connection is killed
	hangUp     context.CancelFunc
	killed     atomic.Bool
	noEvict    atomic.Bool
	watches    atomic.Bool             // it is a monitor
	subscribes atomic.Bool             // it has a subscription
	tracks     atomic.Pointer[tracker] // track, for others
	guests     atomic.Int32            // connections that tell this one what they are to be told: CLIENT TRACKING REDIRECT
	mute       atomic.Bool             // CLIENT REPLY OFF: it gets no lines
	multi      atomic.Int64            // how many commands are queued, plus one; 0: it is in no transaction
	blocked    atomic.Bool             // it waits for the end of a pause, in WAIT, or in a blocking pop
	held       atomic.Int64            // bytes that ClientMemory counts for it
	waits      atomic.Int64            // bytes that a region holds for its blocking pop, about
	queues     atomic.Int64            // bytes of the commands that are queued
	// What the reader's buffer held when the connection last waited for its client, and how much room it had.
	unread, room atomic.Int64

	// For CLIENT INFO and LIST.
	info atomic.Pointer[session.Info] // a copy of session.Info, replaced when that changes
	last atomic.Pointer[redis.Command]
	seen atomic.Int64 // Unix ns of the last pipeline
}

// newConn returns a connection of a kind.
func newConn(s *Server, nc net.Conn, id uint64, kind connKind) *conn {
	trusted := kind == insideConn
	c := &conn{s: s, nc: nc, id: id, created: time.Now(), rd: newReader(nc, &s.limits), trusted: trusted}
	c.session = session.New(trusted || *s.limits.password.Load() == "")
	c.ctx, c.hangUp = context.WithCancel(context.Background())
	c.rd.before = c.setReadDeadline
	c.rd.grow = c.enlarge
	c.out.init(c)
	c.exec.init(&s.backend, c, c.ctx.Done(), &c.out.Reply)
	c.exec.breaks = !trusted && s.o.Settings.Redis.UnknownOutcome == settings.CloseUnknown
	c.exec.port.Replica = kind == replicaConn && c.exec.port.Store != 0
	c.exec.seen, c.exec.published = c.saw, c.inside.publish
	c.tell()
	c.seen.Store(c.created.UnixNano())
	return c
}

// replica reports whether the client has asked the store's second address.
func (c *conn) replica() bool { return c.exec.port.Replica }

// tell shows others what the client says about itself.
func (c *conn) tell() {
	i := c.session.Info
	c.info.Store(&i)
}

// mayIdle reports whether the client need not send anything: what it waits for others cause.
func (c *conn) mayIdle() bool { return c.watches.Load() || c.subscribes.Load() || c.trusted }

// setReadDeadline is called before each read of a pipeline.
func (c *conn) setReadDeadline() {
	shows(&c.unread, c.rd.end-c.rd.start)
	shows(&c.room, len(c.rd.buf)-c.rd.end)
	t := c.s.limits.timeout.Load()
	if c.mayIdle() {
		t = 0
	}
	if t > 0 || c.limited {
		c.limited = t > 0
		c.nc.SetReadDeadline(idleUntil(t))
	}
}

// shows sets a number that others read. It writes only what differs, so that it costs next to nothing.
func shows(at *atomic.Int64, n int) {
	if at.Load() != int64(n) {
		at.Store(int64(n))
	}
}

// refuse sends the client the text of err if it is a protocol error.
func (c *conn) refuse(err error) {
	if errors.Is(err, errQueryTooLong) {
		c.s.stats.queryClosed.Add(1)
	}
	if p := protocolError(""); errors.As(err, &p) && !c.session.Silent() {
		c.out.Error("ERR " + p.Error())
		c.out.flush()
	}
}

// locked reports whether the client has to give the password first.
func (c *conn) locked() bool { return !c.session.Known() && *c.s.limits.password.Load() != "" }

// idleUntil returns when a connection is closed that sends nothing from now on.
func idleUntil(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(seconds) * time.Second)
}

// idleUntil returns when the connection is closed if its client neither sends nor reads anything from now on.
func (c *conn) idleUntil() time.Time {
	t := c.s.limits.timeout.Load()
	if t > 0 && (c.watches.Load() || c.subscribes.Load()) {
		t = 0
	}
	return idleUntil(t)
}
