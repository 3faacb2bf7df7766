package server

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

const (
	flushBytes = 64 << 10  // replies that are sent before the pipeline is through
	keepBytes  = 256 << 10 // largest buffer that is kept for the next pipeline
	sendBytes  = 256 << 10 // that are sent before the limits on time are looked at again
)

// conn is one client's connection. Its goroutine owns it; what other connections may read (CLIENT LIST) is atomic.
type conn struct {
	s       *Server
	nc      net.Conn
	id      uint64
	created time.Time

	rd      reader
	argv    [][]byte // arguments of the pipeline's commands, one behind the other
	cmds    []command
	arrived time.Time // of the pipeline
	since   time.Time // when the commands that run now could run
	out     redis.Reply
	closing bool // after the replies so far
	limited bool // a read deadline is set
	authed  bool
	quiet   silence
	monitor *monitor                     // set while it is one
	wrote   map[topology.RegionID]uint64 // apply index of its last write in each region that it wrote to

	batch

	turns     chan struct{} // of the store that it reads from
	turn      chan struct{} // of which it has one, and so may make large replies; else nil
	wantsTurn bool          // a reply ended for want of one

	ctx     context.Context // ends when the connection is killed
	hangUp  context.CancelFunc
	killed  atomic.Bool
	noEvict atomic.Bool
	watches atomic.Bool  // it is a monitor
	held    atomic.Int64 // bytes that Memory counts for it

	// For CLIENT INFO and LIST.
	info atomic.Pointer[clientInfo]
	last atomic.Pointer[redis.Command]
	seen atomic.Int64 // Unix ns of the last pipeline
}

// clientInfo is what a client says about itself. It is replaced, not changed.
type clientInfo struct {
	name            string
	libName, libVer string
	readOnly        bool
	proto           int
}

// silence says which replies CLIENT REPLY keeps back.
type silence struct{ off, skip, skipNext bool }

func (q *silence) holds() bool { return q.off || q.skip }

// next is called behind each command.
func (q *silence) next() { q.skip, q.skipNext = q.skipNext, false }

// command is one command of a pipeline.
type command struct {
	row  *redis.Command // nil if there is none of that name
	kind kind
	cut  bool // a write that the proxy port cuts
	// rejected says that it was answered with an error instead of being run, or that nobody knows whether it has run.
	rejected bool
	args     [][]byte
}

// kind says how a command is run.
type kind byte

const (
	own    kind = iota // by the server itself, or answered with an error
	read               // in one region, with other reads
	write              // with other writes, in one region, or in several where it is cut
	spread             // in several regions, alone
)

func newConn(s *Server, nc net.Conn, id uint64) *conn {
	c := &conn{s: s, nc: nc, id: id, created: time.Now(), rd: newReader(nc, &s.limits), authed: *s.limits.password.Load() == ""}
	c.ctx, c.hangUp = context.WithCancel(context.Background())
	c.rd.before = c.setReadDeadline
	c.rd.grow = c.enlarge
	c.out.More, c.out.Room = c.more, freeRoom
	c.batch.c, c.batch.more = c, c.moreOfReads
	c.batch.readLimit = firstReads
	c.info.Store(&clientInfo{proto: 2})
	c.seen.Store(c.created.UnixNano())
	return c
}

// serve answers pipelines until the connection ends. The caller closes it.
func (c *conn) serve() {
	defer c.batch.close()
	defer c.endMonitor()
	defer c.endTurn()
	c.account()
	for !c.closing {
		c.rd.strange = c.locked()
		if c.rd.tight = c.s.o.Memory.tight(); c.rd.tight {
			c.cmds, c.argv = nil, nil
			c.batch.shed()
		}
		n, err := c.rd.fill()
		c.s.stats.bytesIn.Add(uint64(n))
		if err != nil {
			c.refuse(err)
			return
		}
		c.arrived = time.Now()
		if !c.take() || !c.account() {
			return
		}
		c.run()
		if !c.flush() || !c.account() {
			return
		}
	}
}

// setReadDeadline is called before each read of a pipeline.
func (c *conn) setReadDeadline() {
	t := c.s.limits.timeout.Load()
	if c.monitor != nil { // it has nothing to send
		t = 0
	}
	if t > 0 || c.limited {
		c.limited = t > 0
		c.nc.SetReadDeadline(idleUntil(t))
	}
}

// refuse tells the client what is wrong with what it sends, if it is the protocol.
func (c *conn) refuse(err error) {
	if errors.Is(err, errQueryTooLong) {
		c.s.stats.queryClosed.Add(1)
	}
	if p := protocolError(""); errors.As(err, &p) && !c.quiet.holds() {
		c.out.Error("ERR " + p.Error())
		c.flush()
	}
}

// locked reports whether the client has to give the password first.
func (c *conn) locked() bool { return !c.authed && *c.s.limits.password.Load() != "" }

// idleUntil is when a connection that begins to idle now is closed.
func idleUntil(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(seconds) * time.Second)
}

// flush sends the replies so far; false when the connection is over. Nothing leaves a store that has failed.
func (c *conn) flush() bool {
	if c.s.o.Failed() != nil {
		return false
	}
	if c.monitor != nil {
		return c.monitor.take(&c.out)
	}
	left := c.out.Buf
	limit := c.s.limits.output.Load()
	if c.out.Full || limit.hard > 0 && int64(len(left)) > limit.hard {
		c.overflow()
		return false
	}
	if len(left) >= flushBytes && !c.account() { // for as long as the client does not read
		return false
	}
	var soft time.Time // until when the client may exceed the soft limit
	timed := false
	for len(left) > 0 {
		deadline := idleUntil(c.s.limits.timeout.Load())
		over := limit.soft > 0 && int64(len(left)) > limit.soft
		if over {
			if soft.IsZero() {
				soft = time.Now().Add(limit.softTime)
			}
			if deadline.IsZero() || soft.Before(deadline) {
				deadline = soft
			}
		} else {
			soft = time.Time{}
		}
		if timed || !deadline.IsZero() {
			timed = !deadline.IsZero()
			c.nc.SetWriteDeadline(deadline)
		}
		n, err := c.nc.Write(left[:min(len(left), sendBytes)])
		c.s.stats.bytesOut.Add(uint64(n))
		if err != nil {
			if over && errors.Is(err, os.ErrDeadlineExceeded) && deadline.Equal(soft) {
				c.overflow()
			}
			return false
		}
		left = left[n:]
	}
	if timed {
		c.nc.SetWriteDeadline(time.Time{})
	}
	if cap(c.out.Buf) > keepBytes || c.s.o.Memory.tight() {
		c.out.Buf = nil
	}
	c.out.Buf, c.out.Room, c.out.Full = c.out.Buf[:0], freeRoom, false
	return true
}

// linger waits until the given time, and reports false when the connection ends before it. What the client sends meanwhile is kept.
func (c *conn) linger(until time.Time) bool {
	c.limited = true
	for c.rd.room() {
		c.nc.SetReadDeadline(until)
		n, err := c.rd.read()
		c.s.stats.bytesIn.Add(uint64(n))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if !time.Now().Before(until) { // else CONFIG SET timeout has come between
				return true
			}
		case err != nil:
			c.closing = true
			return false
		}
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		c.closing = true
		return false
	}
}

// take makes commands of all that the reader has complete; false when their arguments are more than clients may hold, which has
// closed the connection.
func (c *conn) take() bool {
	clear(c.cmds)
	c.cmds = c.cmds[:0]
	if cap(c.argv) > 1<<14 {
		c.argv = nil
	}
	clear(c.argv)
	c.argv = c.argv[:0]
	if words := c.rd.words; words > cap(c.argv) {
		if !c.hold(argBytes * int64(words-cap(c.argv))) {
			return false
		}
		c.argv = make([][]byte, 0, max(words, 16))
	}
	for {
		n := len(c.argv)
		args, ok := c.rd.next(c.argv[n:n])
		if !ok {
			break
		}
		c.argv = c.argv[:n+len(args)]
		c.cmds = append(c.cmds, c.classify(args[:len(args):len(args)]))
	}
	now := c.arrived.UnixNano()
	c.s.stats.rates.note(&c.s.stats, c.arrived, now)
	c.s.stats.commands.Add(uint64(len(c.cmds)))
	if n := len(c.cmds); n > 0 {
		c.last.Store(c.cmds[n-1].row)
		c.seen.Store(now)
	}
	return true
}

// classify finds a command's row and how it is run. What is wrong with its name or arity is answered in its turn, by runOwn.
func (c *conn) classify(args [][]byte) command {
	row := commands.Lookup(args[0])
	if row != nil && len(row.Sub) > 0 && len(args) > 1 {
		row = row.Subcommand(args[1])
	}
	cmd := command{row: row, args: args}
	if row == nil || !row.CheckArity(len(args)) {
		return cmd
	}
	if row.ReadBy != nil {
		if r := row.ReadBy(args); r != nil {
			row, cmd.row = r, r
		}
	}
	switch {
	case row.Read == nil && row.Write == nil:
	case row.Everywhere, row.Split != redis.NoSplit && row.Read != nil && c.s.proxy():
		cmd.kind = spread
	case row.Write != nil:
		cmd.kind, cmd.cut = write, row.Split != redis.NoSplit && c.s.proxy()
	case row.Read != nil:
		cmd.kind = read
	}
	return cmd
}

// run runs the pipeline's commands.
func (c *conn) run() {
	c.since = c.arrived
	for i := 0; i < len(c.cmds) && !c.closing; {
		if len(c.out.Buf) >= flushBytes {
			if !c.flush() {
				c.closing = true
				return
			}
			c.since = time.Now()
		}
		if p := c.s.pause.Load(); p != nil {
			if !c.awaitUnpause(p, &c.cmds[i]) {
				return
			}
			c.since = time.Now()
		}
		start, n := len(c.out.Buf), 1
		switch k := c.cmds[i].kind; {
		case c.locked() && !c.cmds[i].open():
			c.out.Error(redis.ErrNoAuth)
			c.answered(&c.cmds[i], start, false)
		case c.monitor != nil && c.cmds[i].touchesKeys():
			c.out.Error(errMonitor)
			c.answered(&c.cmds[i], start, false)
		case k == read || k == write:
			if !c.quiet.skip {
				for limit := c.batch.limit(k); n < limit && i+n < len(c.cmds) && c.cmds[i+n].kind == k; n++ {
				}
			}
			n = c.batch.runTogether(c.cmds[i:i+n], k)
		case k == spread:
			c.runSpread(&c.cmds[i])
			c.answered(&c.cmds[i], start, true)
		default:
			c.runOwn(&c.cmds[i])
		}
		c.endTurn()
		if c.quiet.holds() {
			c.out.Buf = c.out.Buf[:min(start, len(c.out.Buf))]
		}
		c.quiet.next()
		if c.out.Full {
			c.overflow()
		}
		c.ran(c.cmds[i : i+n])
		i += n
	}
}

// open reports whether a command may be run, or refused for another reason, before the client has given the password.
func (cmd *command) open() bool {
	return cmd.row == nil || !cmd.row.CheckArity(len(cmd.args)) || cmd.row.Flags&redis.FlagNoAuth != 0
}

// runOwn runs a command of the server's own, or answers why there is none.
func (c *conn) runOwn(cmd *command) {
	start := len(c.out.Buf)
	switch {
	case cmd.row == nil:
		if row := commands.Find(cmd.args, &c.out); row != nil {
			panic("a command was found the second time: " + row.Name)
		}
		c.answered(cmd, start, false)
		if isHTTP(cmd.args[0]) {
			c.out.Buf, c.closing = c.out.Buf[:0], true
		}
	case !cmd.row.CheckArity(len(cmd.args)):
		c.out.WrongArity(cmd.row)
		c.answered(cmd, start, false)
	default:
		runners[cmd.row](c, cmd.args)
		c.answered(cmd, min(start, len(c.out.Buf)), true) // it may have sent what came before it
	}
}

// isHTTP recognizes a browser that was lured into talking to this port; as in Redis it gets no answer.
func isHTTP(name []byte) bool {
	return len(name) <= 5 && (redis.IsOption(name, "post") || redis.IsOption(name, "host:"))
}
