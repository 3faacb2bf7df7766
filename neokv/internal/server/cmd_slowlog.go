package server

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file has the command SLOWLOG: the commands that took longest, by the times of stats.go. Of the commands that ran
// together it keeps the first of each name.

const (
	slowMicros   = 10_000 // slowlog-log-slower-than at first
	slowCalls    = 128    // slowlog-max-len at first
	slowArgs     = 32     // arguments of a call that are kept
	slowArgBytes = 128    // of an argument
	maxSlowCalls = 10_000
)

// slowLog keeps the last slow calls. Each has a bounded size.
type slowLog struct {
	limit  atomic.Int64 // a call that takes so many microseconds is slow; negative: no call is
	length atomic.Int64 // calls that are kept

	mu     sync.Mutex
	lastID int64
	calls  []slowCall // the oldest at first
}

type slowCall struct {
	id   int64
	at   time.Time
	took time.Duration
	args [][]byte
	addr string
	name string // of the client
}

func (l *slowLog) add(c *conn, cmds []command, now time.Time, took time.Duration) {
	var rows []*redis.Command
	for i := range cmds {
		cmd := &cmds[i]
		if cmd.rejected || cmd.row == nil || slices.Contains(rows, cmd.row) {
			continue
		}
		rows = append(rows, cmd.row)
		call := slowCall{
			at: now, took: took, args: shorten(cmd.shown()), addr: c.nc.RemoteAddr().String(), name: c.info.Load().name,
		}
		l.mu.Lock()
		call.id = l.lastID
		l.lastID++
		l.calls = append(l.calls, call)
		l.trim()
		l.mu.Unlock()
	}
}

// trim lets the oldest calls go. The caller holds mu.
func (l *slowLog) trim() {
	if over := len(l.calls) - int(l.length.Load()); over > 0 {
		l.calls = slices.Delete(l.calls, 0, over)
	}
}

// shorten copies those arguments of a call, and that much of each, that Redis keeps.
func shorten(args [][]byte) [][]byte {
	out := make([][]byte, 0, min(len(args), slowArgs))
	for i, a := range args {
		switch {
		case i == slowArgs-1 && len(args) > slowArgs:
			return append(out, fmt.Appendf(nil, "... (%d more arguments)", len(args)-i))
		case len(a) > slowArgBytes:
			out = append(out, fmt.Appendf(nil, "%s... (%d more bytes)", a[:slowArgBytes], len(a)-slowArgBytes))
		default:
			out = append(out, slices.Clone(a))
		}
	}
	return out
}

var redacted = []byte("(redacted)")

// shown returns the arguments that other clients may see: passwords are left out.
func (cmd *command) shown() [][]byte {
	hide := func(first, n int) [][]byte {
		args := slices.Clone(cmd.args)
		for i := first; i < min(first+n, len(args)); i++ {
			args[i] = redacted
		}
		return args
	}
	switch cmd.row.FullName() {
	case "auth":
		return hide(1, 2)
	case "hello":
		for i := 2; i < len(cmd.args); i++ {
			if redis.IsOption(cmd.args[i], "auth") {
				return hide(i+1, 2)
			}
		}
	case "config|set":
		for i := 2; i < len(cmd.args); i += 2 {
			if redis.IsOption(cmd.args[i], "requirepass") {
				return hide(i+1, 1)
			}
		}
	}
	return cmd.args
}

// keep changes how many calls are kept.
func (l *slowLog) keep(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length.Store(n)
	l.trim()
}

func runSlowLogGet(c *conn, args [][]byte) {
	n := int64(10)
	switch len(args) {
	case 2:
	case 3:
		ok := false
		if n, ok = redis.ParseInt(args[2]); !ok || n < -1 {
			c.out.Error("ERR count should be greater than or equal to -1")
			return
		}
	default:
		c.unknownUse(args)
		return
	}
	l := &c.s.slow
	l.mu.Lock()
	calls := slices.Clone(l.calls)
	l.mu.Unlock()
	if n >= 0 {
		calls = calls[len(calls)-int(min(n, int64(len(calls)))):]
	}
	o := &c.out
	o.Array(len(calls))
	for _, x := range slices.Backward(calls) {
		o.Array(6)
		o.Int(x.id)
		o.Int(x.at.Unix())
		o.Int(x.took.Microseconds())
		o.Array(len(x.args))
		for _, a := range x.args {
			o.Bulk(a)
		}
		o.BulkString(x.addr)
		o.BulkString(x.name)
	}
}

func runSlowLogLen(c *conn, args [][]byte) {
	c.s.slow.mu.Lock()
	defer c.s.slow.mu.Unlock()
	c.out.Int(int64(len(c.s.slow.calls)))
}

func runSlowLogReset(c *conn, args [][]byte) {
	c.s.slow.mu.Lock()
	defer c.s.slow.mu.Unlock()
	c.s.slow.calls = nil
	c.out.OK()
}
