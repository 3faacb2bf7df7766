package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file ends reads that take long: because their client is gone, because the server closes, or because they take
// longer than redis.command_time. The store that a read reads from ends it, too, when the store stops or fails; then
// the read is tried again elsewhere.

// errGone ends a call for which nobody waits any more. Its connection is closed.
var errGone = errors.New("nobody waits for the reply")

const (
	// peekEvery is how often a long read looks at its client, and peek how long that may take.
	peekEvery, peek = 100 * time.Millisecond, time.Millisecond
	// halfClosed is how long a read goes on for a client that sends no more. The client may have closed the connection, or
	// only its own direction to wait for the reply.
	halfClosed = time.Second
)

// look returns why the call that runs now must end, nil if it may go on. engine.Work calls it about once in a
// millisecond of work. The time of a call begins with its first look.
func (e *executor) look() error {
	select {
	case <-e.gone:
		return errGone
	default:
	}
	if e.scripting.now.Load() == killedScripts {
		return errKilled
	}
	now := time.Now()
	if e.timed != e.work.Calls {
		e.timed, e.begun, e.peeked = e.work.Calls, now, now
	}
	if limit := e.knobs.CommandTime; limit > 0 && now.Sub(e.begun) > limit {
		return redis.Refusal(fmt.Sprintf("ERR the command takes longer than redis.command_time, %s, allows", limit))
	}
	if now.Sub(e.peeked) >= peekEvery {
		e.peeked = now
		if e.caller.lost(now) {
			return errGone
		}
	}
	return nil
}

// lost reports whether the client is gone, and then closes the connection.
func (c *conn) lost(now time.Time) bool {
	lost := c.hungUp(now)
	if lost {
		c.kill()
	}
	return lost
}

// hungUp reports whether the client is gone. The reader keeps up to maxPipeline bytes that the client has sent
// meanwhile. The system tells of the end of a connection behind more bytes than that, as far as its own buffer holds
// them.
func (c *conn) hungUp(now time.Time) bool {
	gone, silent := hungUp(c.nc.(*clientConn).Conn)
	c.limited = true
	for peeking := !gone && !silent; peeking && c.rd.room(); {
		c.nc.SetReadDeadline(now.Add(peek))
		n, err := c.rd.read()
		c.s.stats.received(n, c.rd.takeReads())
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			peeking = false
		case errors.Is(err, io.EOF):
			peeking, silent = false, true
		default:
			return true
		}
	}
	if silent && c.eof.IsZero() {
		c.eof = now
	}
	return gone || silent && now.Sub(c.eof) > halfClosed
}

// hungUp returns what is known of a client without reading what it has sent: that it is gone, or sends no more.
func hungUp(nc net.Conn) (gone, silent bool) {
	switch nc := nc.(type) {
	case interface{ HungUp() (gone, silent bool) }:
		return nc.HungUp()
	case *net.TCPConn:
		return tcpHungUp(nc)
	}
	return false, false
}

// over answers a command of the server's own whose work is over. What the command has replied counts for nothing: its
// reply begins at start.
func (c *conn) over(start int) {
	err := c.exec.work.Ended()
	if err == nil {
		return
	}
	c.exec.work.Resume()
	c.out.Buf = c.out.Buf[:start]
	if line := redis.Refusal(""); errors.As(err, &line) {
		c.out.Error(string(line))
	} else {
		c.closing = true
	}
}
