package server

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/session"
)

// This file has the command CLIENT.

func runClientSetName(c *conn, args [][]byte) {
	if !c.setName(args[2]) {
		c.out.Error(errClientName)
		return
	}
	c.out.OK()
}

func runClientGetName(c *conn, args [][]byte) {
	if name := c.session.Name; name != "" {
		c.out.BulkString(name)
		return
	}
	c.out.Null()
}

func runClientSetInfo(c *conn, args [][]byte) {
	field := &c.session.LibName
	switch {
	case redis.IsOption(args[2], "lib-ver"):
		field = &c.session.LibVer
	case !redis.IsOption(args[2], "lib-name"):
		c.out.Error("ERR Unrecognized option '" + oneLine(args[2]) + "'")
		return
	}
	if !plain(args[3]) {
		c.out.Error("ERR " + string(bytes.ToLower(args[2])) + " cannot contain spaces, newlines or special characters.")
		return
	}
	*field = string(args[3])
	c.tell()
	c.out.OK()
}

func runClientID(c *conn, args [][]byte) { c.out.Int(int64(c.id)) }

func runClientInfo(c *conn, args [][]byte) {
	c.out.Verbatim("txt", string(c.describe(nil, time.Now(), true)))
}

func runClientList(c *conn, args [][]byte) {
	want := func(*conn) bool { return true }
	switch {
	case len(args) == 2:
	case len(args) == 4 && redis.IsOption(args[2], "type"):
		of := c.clientKind(args[3])
		if of == nil {
			return
		}
		want = of
	case len(args) > 3 && redis.IsOption(args[2], "id"):
		ids := map[uint64]bool{}
		for _, a := range args[3:] {
			if !c.exec.work.Spend(2) {
				return
			}
			id, ok := redis.ParseInt(a)
			if !ok {
				c.out.Error("ERR Invalid client ID")
				return
			}
			ids[uint64(id)] = true
		}
		want = func(c *conn) bool { return ids[c.id] }
	default:
		c.out.Error(redis.ErrSyntax)
		return
	}
	var conns []*conn
	c.s.mu.Lock()
	for _, x := range c.s.clients {
		if want(x) {
			conns = append(conns, x)
		}
	}
	c.s.mu.Unlock()
	slices.SortFunc(conns, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	var text []byte
	now := time.Now()
	for _, x := range conns {
		text = x.describe(text, now, x == c)
	}
	c.out.Verbatim("txt", string(text))
}

// describe appends the connection's line of CLIENT LIST. own says that the connection's goroutine calls it: then the
// buffers are those of the present command, else those of when the connection last waited for its client. Figures
// without a counterpart here are 0.
func (c *conn) describe(b []byte, now time.Time, own bool) []byte {
	unread, room, argv := c.unread.Load(), c.room.Load(), c.waits.Load()
	if own {
		unread, room = int64(c.rd.end), int64(len(c.rd.buf)-c.rd.end)
		for _, a := range c.cmds[c.at].args {
			argv += int64(len(a))
		}
	}
	i, t, redirect, broadcast := c.info.Load(), c.tracks.Load(), int64(-1), false
	if t != nil {
		redirect, broadcast = t.redirect(), t.mode.Load().broadcast
	}
	flags, name := "", "NULL"
	for _, f := range [...]struct {
		set  bool
		flag string
	}{{c.watches.Load(), "O"}, {c.subscribes.Load(), "P"}, {c.multi.Load() > 0, "x"}, {c.blocked.Load(), "b"}, {i.ReadOnly, "r"},
		{c.noEvict.Load(), "e"}, {t != nil, "t"}, {t != nil && t.broken.Load(), "R"}, {broadcast, "B"}} {
		if f.set {
			flags += f.flag
		}
	}
	if flags == "" {
		flags = "N"
	}
	if last := c.last.Load(); last != nil {
		name = last.FullName()
	}
	b = fmt.Appendf(b, "id=%d addr=%v laddr=%v fd=0 name=%s age=%d idle=%d flags=%s db=0 sub=%d psub=%d ssub=%d multi=%d"+
		" qbuf=%d qbuf-free=%d argv-mem=%d multi-mem=%d rbs=0 rbp=0 obl=%d oll=%d omem=%d tot-mem=%d events=r cmd=%s"+
		" user=default redir=%d resp=%d",
		c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), i.Name, int64(now.Sub(c.created).Seconds()),
		int64(now.Sub(time.Unix(0, c.seen.Load())).Seconds()), flags,
		c.subs.counts[namedChannel].Load(), c.subs.counts[patternChannel].Load(), c.subs.counts[shardChannel].Load(),
		c.multi.Load()-1, unread, room, argv, c.queues.Load(), c.out.waiting.Load(), c.out.length(),
		c.out.waiting.Load()+c.out.queued.Load(), c.size(), name, redirect, i.Proto)
	if i.LibName != "" || i.LibVer != "" {
		b = fmt.Appendf(b, " lib-name=%s lib-ver=%s", i.LibName, i.LibVer)
	}
	return append(b, '\n')
}

// clientKind returns which clients are of a type, nil for a type that Redis does not know; the reply then says so.
// There are no clients but normal ones and subscribers here.
func (c *conn) clientKind(kind []byte) func(*conn) bool {
	switch {
	case redis.IsOption(kind, "normal"):
		return func(x *conn) bool { return !x.subscribes.Load() }
	case redis.IsOption(kind, "pubsub"):
		return func(x *conn) bool { return x.subscribes.Load() }
	case redis.IsOption(kind, "slave"), redis.IsOption(kind, "replica"), redis.IsOption(kind, "master"):
		return func(*conn) bool { return false }
	}
	c.out.Error("ERR Unknown client type '" + oneLine(kind) + "'")
	return nil
}

// runClientKill closes connections: one by its address, in the old form, or all that match the filters.
func runClientKill(c *conn, args [][]byte) {
	old := len(args) == 3
	var id int64
	var addr, laddr string
	of, skipMe := func(*conn) bool { return true }, !old
	if old {
		addr = string(args[2])
	} else {
		for i := 2; i < len(args); i += 2 {
			if !c.exec.work.Spend(1) {
				return
			}
			if i+1 == len(args) {
				c.out.Error(redis.ErrSyntax)
				return
			}
			value := args[i+1]
			switch option := args[i]; {
			case redis.IsOption(option, "id"):
				n, ok := redis.ParseInt(value)
				if !ok || n < 1 {
					c.out.Error("ERR client-id should be greater than 0")
					return
				}
				id = n
			case redis.IsOption(option, "type"):
				if of = c.clientKind(value); of == nil {
					return
				}
			case redis.IsOption(option, "addr"):
				addr = string(value)
			case redis.IsOption(option, "laddr"):
				laddr = string(value)
			case redis.IsOption(option, "user"):
				if string(value) != "default" {
					c.out.Error("ERR No such user '" + oneLine(value) + "'")
					return
				}
			case redis.IsOption(option, "skipme") && redis.IsOption(value, "yes"):
				skipMe = true
			case redis.IsOption(option, "skipme") && redis.IsOption(value, "no"):
				skipMe = false
			default:
				c.out.Error(redis.ErrSyntax)
				return
			}
		}
	}
	var found []*conn
	c.s.mu.Lock()
	for _, x := range c.s.clients {
		if of(x) && (id == 0 || x.id == uint64(id)) && (addr == "" && !old || x.nc.RemoteAddr().String() == addr) &&
			(laddr == "" || x.nc.LocalAddr().String() == laddr) && (x != c || !skipMe) {
			found = append(found, x)
			if x != c {
				delete(c.s.clients, x.id) // it is gone as soon as the reply comes
				x.block(false)
			}
		}
	}
	c.s.mu.Unlock()
	for _, x := range found {
		if x == c {
			c.closing = true
		} else {
			x.kill()
		}
	}
	switch {
	case !old:
		c.out.Int(int64(len(found)))
	case len(found) == 0:
		c.out.Error("ERR No such client")
	default:
		c.out.OK()
	}
}

// pause is what CLIENT PAUSE asked for.
type pause struct {
	until time.Time
	all   bool          // false: only writes are paused
	over  chan struct{} // closed when this pause ends or another replaces it
}

// setPause replaces the pause; nil ends it.
func (s *Server) setPause(p *pause) {
	if old := s.pause.Swap(p); old != nil {
		close(old.over)
	}
}

func runClientPause(c *conn, args [][]byte) {
	all := true
	switch {
	case len(args) > 4:
		c.unknownUse(args)
		return
	case len(args) == 4 && redis.IsOption(args[3], "write"):
		all = false
	case len(args) == 4 && !redis.IsOption(args[3], "all"):
		c.out.Error("ERR CLIENT PAUSE mode must be WRITE or ALL")
		return
	}
	ms, ok := c.timeout(args[2])
	if !ok {
		return
	}
	p := &pause{until: after(ms), all: all, over: make(chan struct{})}
	c.s.mu.Lock() // of two pauses the longer time and the wider kind count
	defer c.s.mu.Unlock()
	if old := c.s.pause.Load(); old != nil && time.Now().Before(old.until) {
		p.all = p.all || old.all
		if old.until.After(p.until) {
			p.until = old.until
		}
	}
	c.s.setPause(p)
	c.out.OK()
}

func runClientUnpause(c *conn, args [][]byte) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.setPause(nil)
	c.out.OK()
}

// mayWrite reports whether a command writes, or executes a transaction with one that does.
func (c *conn) mayWrite(cmd *command) bool {
	if cmd.row != nil && cmd.row.Name == "exec" {
		return slices.ContainsFunc(c.session.Queued().Commands, func(q session.Command) bool {
			return q.Row.Flags&(redis.FlagWrite|redis.FlagMayReplicate) != 0
		})
	}
	return cmd.row != nil && cmd.row.Flags&(redis.FlagWrite|redis.FlagMayReplicate) != 0
}

// awaitUnpause holds a command back while clients are paused. It returns false when the connection has ended meanwhile.
// It does not hold back a command that gets an error.
func (c *conn) awaitUnpause(p *pause, cmd *command) bool {
	for ; p != nil; p = c.s.pause.Load() {
		if !p.all && !c.mayWrite(cmd) || !time.Now().Before(p.until) {
			return true
		}
		if cmd.row == nil || !cmd.row.CheckArity(len(cmd.args)) || c.locked() && !cmd.open() {
			return true
		}
		if !c.out.flush() {
			return false
		}
		c.block(true)
		t := time.NewTimer(time.Until(p.until))
		select {
		case <-t.C:
		case <-p.over:
		case <-c.ctx.Done():
		}
		t.Stop()
		c.block(false)
		if c.ctx.Err() != nil {
			c.closing = true
			return false
		}
	}
	return true
}

// timeout parses a time-out in milliseconds as Redis does. If it is wrong, timeout answers with the error.
func (c *conn) timeout(arg []byte) (ms int64, ok bool) {
	ms, ok = redis.ParseInt(arg)
	switch {
	case !ok:
		c.out.Error("ERR timeout is not an integer or out of range")
	case ms < 0:
		c.out.Error("ERR timeout is negative")
		ok = false
	}
	return ms, ok
}

// after returns the instant so many milliseconds from now. A time that a time.Duration cannot hold is cut to the
// longest that it can hold, which is as good as never.
func after(ms int64) time.Time {
	return time.Now().Add(time.Duration(min(ms, math.MaxInt64/2/int64(time.Millisecond))) * time.Millisecond)
}

func runClientReply(c *conn, args [][]byte) {
	switch {
	case redis.IsOption(args[2], "on"):
		c.session.ReplyOn()
		c.out.OK()
	case redis.IsOption(args[2], "off"):
		c.session.ReplyOff()
	case redis.IsOption(args[2], "skip"):
		c.session.ReplySkip()
	default:
		c.out.Error(redis.ErrSyntax)
	}
	c.mute.Store(c.session.Off())
}

func runClientNoEvict(c *conn, args [][]byte) {
	on, ok := c.onOff(args[2])
	if ok {
		c.noEvict.Store(on)
		c.out.OK()
	}
}

// runClientNoTouch has nothing to switch, since NeoKV keeps no access times.
func runClientNoTouch(c *conn, args [][]byte) {
	if _, ok := c.onOff(args[2]); ok {
		c.out.OK()
	}
}

func (c *conn) onOff(arg []byte) (on, ok bool) {
	on = redis.IsOption(arg, "on")
	if !on && !redis.IsOption(arg, "off") {
		c.out.Error(redis.ErrSyntax)
		return false, false
	}
	return on, true
}

// unknownUse is the error of a subcommand that has more arguments than any of its forms.
func (c *conn) unknownUse(args [][]byte) {
	c.out.Error("ERR unknown subcommand or wrong number of arguments for '" + oneLine(args[1]) + "'. Try " +
		strings.ToUpper(string(args[0])) + " HELP.")
}
