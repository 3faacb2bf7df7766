package server

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file has the command MONITOR. The server sends a connection that asks for it a line for each command that the
// server runs, until the connection sends RESET.
//
// The connection that runs a command makes the line once and puts it into the buffer of each monitor. Each monitor has
// one goroutine that writes its buffer to the socket, the monitor's own replies included, so that lines and replies
// stay whole. The server closes a monitor that is monitorBytes behind. So a monitor never delays commands, and never
// holds more than two buffers.

const (
	monitorBytes     = 1 << 20
	monitorLineBytes = 64 << 10 // bytes of arguments that a line shows, about
	monitorArgBytes  = 16 << 10 // of an argument
)

// monitors are the monitors of a server.
type monitors struct {
	mu  sync.Mutex // held to change all
	all atomic.Pointer[[]*monitor]
}

// monitor holds the lines and replies that wait to be sent to one monitor.
type monitor struct {
	c       *conn
	more    chan struct{} // capacity 1: there is something, or no more will come
	written chan struct{} // closed when the writing goroutine has ended

	mu    sync.Mutex
	buf   []byte
	ended bool
}

const errMonitorInside = "ERR MONITOR isn't allowed for DENY BLOCKING client"

// runMonitor makes the connection a monitor. It sends all earlier replies before the first line comes. A client
// that has read its +OK misses no command that is sent from then on.
func runMonitor(c *conn, args [][]byte) {
	if c.session.Inside() {
		c.out.Error(errMonitorInside)
		return
	}
	if c.monitor != nil {
		return // like Redis: no reply
	}
	if !c.flush() {
		c.closing = true
		return
	}
	m := &monitor{
		c: c, more: make(chan struct{}, 1), written: make(chan struct{}), buf: []byte("+OK\r\n"),
	}
	c.monitor = m
	c.session.Monitor(true)
	c.watches.Store(true)
	c.s.monitors.change(func(all []*monitor) []*monitor { return append(all, m) })
	m.wake()
	go m.write()
}

// endMonitor makes the connection an ordinary one. It returns when all lines so far have been sent.
func (c *conn) endMonitor() {
	m := c.monitor
	if m == nil {
		return
	}
	c.s.monitors.change(func(all []*monitor) []*monitor {
		return slices.DeleteFunc(all, func(x *monitor) bool { return x == m })
	})
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.wake()
	<-m.written
	c.monitor = nil
	c.session.Monitor(false)
	c.watches.Store(false)
}

func (s *monitors) change(to func([]*monitor) []*monitor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*monitor
	if old := s.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if all = to(all); len(all) == 0 {
		s.all.Store(nil)
		return
	}
	s.all.Store(&all)
}

// take sends the monitor's own replies.
func (m *monitor) take(out *redis.Reply) bool {
	ok := !out.Full && m.put(out.Buf)
	out.Buf, out.Room, out.Full = out.Buf[:0], freeRoom, false
	return ok
}

// put appends bytes to send. If the monitor is too far behind, put closes it and returns false.
func (m *monitor) put(b []byte) bool {
	m.mu.Lock()
	full := len(m.buf) > 0 && len(m.buf)+len(b) > monitorBytes
	if !full {
		m.buf = append(m.buf, b...)
	}
	m.mu.Unlock()
	if full {
		if m.c.kill() {
			m.c.s.stats.outputClosed.Add(1)
		}
		return false
	}
	m.wake()
	return true
}

// wake tells the writing goroutine that there is something to do.
func (m *monitor) wake() {
	select {
	case m.more <- struct{}{}:
	default: // it has been told
	}
}

// write sends the buffer's content until the monitor or its connection ends.
func (m *monitor) write() {
	defer close(m.written)
	var out []byte
	for range m.more {
		m.mu.Lock()
		out, m.buf = m.buf, out[:0]
		ended := m.ended
		m.mu.Unlock()
		n, err := m.c.nc.Write(out)
		m.c.s.stats.bytesOut.Add(uint64(n))
		if cap(out) > keepBytes {
			out = nil
		}
		if err != nil {
			m.c.kill()
			return
		}
		if ended {
			return
		}
	}
}

// show sends the commands that ran to the monitors, except those that only administrators should see.
func (c *conn) show(all []*monitor, cmds []command, now time.Time) {
	var line []byte
	for i := range cmds {
		cmd := &cmds[i]
		if cmd.rejected || cmd.row == nil || cmd.row.Flags&redis.FlagAdmin != 0 {
			continue
		}
		us := now.UnixMicro()
		line = fmt.Appendf(line[:0], "+%d.%06d [0 %s]", us/1e6, us%1e6, c.nc.RemoteAddr())
		args := c.shown(cmd)
		for j, a := range args {
			if len(line) > monitorLineBytes {
				line = fmt.Appendf(line, " ... (%d more arguments)", len(args)-j)
				break
			}
			line = appendQuoted(append(line, ' '), a[:min(len(a), monitorArgBytes)])
			if len(a) > monitorArgBytes {
				line = fmt.Appendf(line, "... (%d more bytes)", len(a)-monitorArgBytes)
			}
		}
		line = append(line, '\r', '\n')
		for _, m := range all {
			m.put(line)
		}
	}
}

// appendQuoted appends an argument as Redis's sdscatrepr prints it.
func appendQuoted(dst, arg []byte) []byte {
	dst = append(dst, '"')
	for _, x := range arg {
		switch {
		case x == '"' || x == '\\':
			dst = append(dst, '\\', x)
		case x == '\n':
			dst = append(dst, '\\', 'n')
		case x == '\r':
			dst = append(dst, '\\', 'r')
		case x == '\t':
			dst = append(dst, '\\', 't')
		case x == '\a':
			dst = append(dst, '\\', 'a')
		case x == '\b':
			dst = append(dst, '\\', 'b')
		case ' ' <= x && x <= '~':
			dst = append(dst, x)
		default:
			dst = append(dst, '\\', 'x')
			if x < 16 {
				dst = append(dst, '0')
			}
			dst = strconv.AppendUint(dst, uint64(x), 16)
		}
	}
	return append(dst, '"')
}
