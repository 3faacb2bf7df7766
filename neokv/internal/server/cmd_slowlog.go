package server

import (
	"fmt"
	"net"
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

// slowLog keeps the last slow calls. Each has a bounded size. Under load most writes may be slow, so a new call takes
// the memory of the one that leaves.
type slowLog struct {
	limit  atomic.Int64 // a call that takes so many microseconds is slow; negative: no call is
	length atomic.Int64 // calls that are kept

	mu     sync.Mutex
	lastID int64
	calls  []slowCall // a ring once there are as many as are kept
	oldest int        // index in calls
}

type slowCall struct {
	id   int64
	at   time.Time
	took time.Duration
	text []byte // the arguments, one behind the other
	ends []int  // where each ends in text
	addr net.Addr
	name string // of the client
}

func (l *slowLog) add(c *conn, cmds []command, now time.Time, took time.Duration) {
	rows := make([]*redis.Command, 0, 8)
	for i := range cmds {
		cmd := &cmds[i]
		if cmd.rejected || cmd.row == nil || cmd.row.Flags&redis.FlagSkipSlowLog != 0 || slices.Contains(rows, cmd.row) {
			continue
		}
		rows = append(rows, cmd.row)
		l.addCall(c, c.session.Name, c.shown(cmd), now, took)
	}
}

// addCall adds one call, of a client that has given itself a name.
func (l *slowLog) addCall(c *conn, name string, args [][]byte, now time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.lastID
	l.lastID++
	if call := l.next(); call != nil {
		call.id, call.at, call.took, call.addr, call.name = id, now, took, c.nc.RemoteAddr(), name
		call.keep(args)
	}
}

// next returns the place of a new call, nil if none is kept. The caller holds mu.
func (l *slowLog) next() *slowCall {
	switch n := int(l.length.Load()); {
	case n == 0:
		return nil
	case len(l.calls) < n:
		l.calls = append(l.calls, slowCall{})
		return &l.calls[len(l.calls)-1]
	}
	call := &l.calls[l.oldest]
	l.oldest = (l.oldest + 1) % len(l.calls)
	return call
}

// inOrder moves the calls so that the oldest is the first. The caller holds mu.
func (l *slowLog) inOrder() {
	l.calls = slices.Concat(l.calls[l.oldest:], l.calls[:l.oldest])
	l.oldest = 0
}

// keep copies those arguments of a call, and that much of each, that Redis keeps.
func (x *slowCall) keep(args [][]byte) {
	x.text, x.ends = x.text[:0], x.ends[:0]
	for i, a := range args {
		more := i == slowArgs-1 && len(args) > slowArgs
		switch {
		case more:
			x.text = fmt.Appendf(x.text, "... (%d more arguments)", len(args)-i)
		case len(a) > slowArgBytes:
			x.text = fmt.Appendf(append(x.text, a[:slowArgBytes]...), "... (%d more bytes)", len(a)-slowArgBytes)
		default:
			x.text = append(x.text, a...)
		}
		x.ends = append(x.ends, len(x.text))
		if more {
			return
		}
	}
}

// resize changes how many calls are kept.
func (l *slowLog) resize(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.length.Store(n)
	l.inOrder()
	l.calls = l.calls[max(0, len(l.calls)-int(n)):]
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
	l.mu.Lock() // for the whole reply, since a new call would change the memory of an old one
	defer l.mu.Unlock()
	l.inOrder()
	calls := l.calls
	if n >= 0 {
		calls = calls[len(calls)-int(min(n, int64(len(calls)))):]
	}
	o := &c.out.Reply
	o.Array(len(calls))
	for _, x := range slices.Backward(calls) {
		o.Array(6)
		o.Int(x.id)
		o.Int(x.at.Unix())
		o.Int(x.took.Microseconds())
		o.Array(len(x.ends))
		from := 0
		for _, end := range x.ends {
			o.Bulk(x.text[from:end])
			from = end
		}
		o.BulkString(x.addr.String())
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
	c.s.slow.calls, c.s.slow.oldest = nil, 0
	c.out.OK()
}
