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
// server runs, until the connection sends RESET. The connection that runs a command makes the line once and pushes it
// into the outbox of each monitor.

const (
	monitorLineBytes = 64 << 10 // bytes of arguments that a line shows, about
	monitorArgBytes  = 16 << 10 // of an argument
)

// monitors are the monitors of a server.
type monitors struct {
	mu  sync.Mutex // held to change all
	all atomic.Pointer[[]*conn]
}

const errMonitorInside = "ERR MONITOR isn't allowed for DENY BLOCKING client"

// runMonitor makes the connection a monitor. A client that has read its +OK misses no command that is sent from then
// on.
func runMonitor(c *conn, args [][]byte) {
	if c.session.Inside() {
		c.out.Error(errMonitorInside)
		return
	}
	if c.watches.Load() {
		return // like Redis: no reply
	}
	c.out.share()
	c.session.Monitor(true)
	c.watches.Store(true)
	c.s.monitors.change(func(all []*conn) []*conn { return append(all, c) })
	c.out.OK()
}

// endMonitor makes the connection an ordinary one. All lines so far come before the reply of the present command.
func (c *conn) endMonitor() {
	if !c.watches.Load() {
		return
	}
	c.s.monitors.change(func(all []*conn) []*conn {
		return slices.DeleteFunc(all, func(x *conn) bool { return x == c })
	})
	c.out.drain()
	c.out.unshare()
	c.session.Monitor(false)
	c.watches.Store(false)
}

func (s *monitors) change(to func([]*conn) []*conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*conn
	if old := s.all.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if all = to(all); len(all) == 0 {
		s.all.Store(nil)
		return
	}
	s.all.Store(&all)
}

// show sends the commands that ran to the monitors, except those that only administrators should see. An EXEC that did
// not run is shown, too: it ends the transaction.
func (c *conn) show(all []*conn, cmds []command, now time.Time) {
	for i := range cmds {
		cmd := &cmds[i]
		if cmd.row == nil || cmd.row.Flags&redis.FlagAdmin != 0 || cmd.rejected && cmd.row.Name != "exec" {
			continue
		}
		line := append(c.monitorLine(cmd, now), c.inside.shown(cmd.script)...)
		m := newMessage(c.s.o.ClientMemory, line, line)
		for _, x := range all {
			switch {
			case x.mute.Load():
			case x == c: // behind its reply
				c.out.Buf = append(c.out.Buf, line...)
			default:
				x.out.push(m)
			}
		}
		m.release()
	}
}

// monitorLine is the line of a command that ran.
func (c *conn) monitorLine(cmd *command, now time.Time) []byte {
	return appendLine(nil, now, c.nc.RemoteAddr().String(), c.shown(cmd))
}

// appendLine appends the line of a call.
func appendLine(line []byte, now time.Time, from string, args [][]byte) []byte {
	us, start := now.UnixMicro(), len(line)
	line = fmt.Appendf(line, "+%d.%06d [0 %s]", us/1e6, us%1e6, from)
	for j, a := range args {
		if len(line)-start > monitorLineBytes {
			line = fmt.Appendf(line, " ... (%d more arguments)", len(args)-j)
			break
		}
		line = appendQuoted(append(line, ' '), a[:min(len(a), monitorArgBytes)])
		if len(a) > monitorArgBytes {
			line = fmt.Appendf(line, "... (%d more bytes)", len(a)-monitorArgBytes)
		}
	}
	return append(line, '\r', '\n')
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
