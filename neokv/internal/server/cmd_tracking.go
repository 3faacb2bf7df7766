package server

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/tracking"
)

// This file has client-side caching: CLIENT TRACKING, CACHING, TRACKINGINFO and GETREDIR. The server's table remembers
// who has read what. While a connection runs a command, or commands that run together, what it is told waits behind
// their replies. It is entered for what they read before they are routed, and a read of it tells the replica so
// (redis.Run.By).

// tracker is a connection that tracks keys.
type tracker struct {
	tracking.Client
	c         *conn
	mode      atomic.Pointer[trackingMode]
	broken    atomic.Bool
	caching   bool     // CLIENT CACHING has been sent for the next command
	prefixes  int64    // bytes that the prefixes take, about
	keys      [][]byte // scratch
	positions []int    // scratch
}

// trackingMode is what CLIENT TRACKING ON has said. It does not change.
type trackingMode struct {
	optIn, optOut     bool
	broadcast, noLoop bool
	to                *conn // REDIRECT: who is told, else nil
}

const (
	maxPrefixes = 1000 // of a client
	prefixBytes = 200  // that a prefix takes besides its own
	keptKeys    = 1000 // for which a connection keeps scratch memory
)

const (
	errRedirectTwice = "ERR A client can only redirect to a single other client"
	errNoRedirect    = "ERR The client ID you want redirect to does not exist"
	errPrefixBcast   = "ERR PREFIX option requires BCAST mode to be enabled"
	errSwitchBcast   = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then " +
		"re-enabling it with a different mode."
	errOptBcast  = "ERR OPTIN and OPTOUT are not compatible with BCAST"
	errOptBoth   = "ERR You can't specify both OPTIN mode and OPTOUT mode"
	errSwitchOpt = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then " +
		"re-enabling it with a different mode."
	errNotCaching = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode " +
		"enabled"
	errCachingYes = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
	errCachingNo  = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
)

func runClientTracking(c *conn, args [][]byte) {
	var prefixes []string
	var m trackingMode
	redirect := int64(0)
	for i := 3; i < len(args); i++ {
		if !c.exec.work.Spend(1) {
			return
		}
		switch a := args[i]; {
		case redis.IsOption(a, "redirect") && i+1 < len(args):
			i++
			if redirect != 0 {
				c.out.Error(errRedirectTwice)
				return
			}
			var ok bool
			if redirect, ok = redis.ParseInt(args[i]); !ok {
				c.out.Error(redis.ErrNotInteger)
				return
			}
			c.s.mu.Lock()
			m.to = c.s.clients[uint64(redirect)]
			c.s.mu.Unlock()
			if m.to == nil {
				c.out.Error(errNoRedirect)
				return
			}
		case redis.IsOption(a, "bcast"):
			m.broadcast = true
		case redis.IsOption(a, "optin"):
			m.optIn = true
		case redis.IsOption(a, "optout"):
			m.optOut = true
		case redis.IsOption(a, "noloop"):
			m.noLoop = true
		case redis.IsOption(a, "prefix") && i+1 < len(args):
			i++
			prefixes = append(prefixes, string(args[i]))
		default:
			c.out.Error(redis.ErrSyntax)
			return
		}
	}
	on, ok := c.onOff(args[2])
	if !ok {
		return
	}
	if !on {
		c.endTracking()
		c.out.OK()
		return
	}
	t := c.track
	var was trackingMode
	if t != nil {
		was = *t.mode.Load()
	}
	switch {
	case !m.broadcast && len(prefixes) > 0:
		c.out.Error(errPrefixBcast)
		return
	case t != nil && was.broadcast != m.broadcast:
		c.out.Error(errSwitchBcast)
		return
	case m.broadcast && (m.optIn || m.optOut):
		c.out.Error(errOptBcast)
		return
	case m.optIn && m.optOut:
		c.out.Error(errOptBoth)
		return
	case m.optIn && was.optOut || m.optOut && was.optIn:
		c.out.Error(errSwitchOpt)
		return
	}
	if m.broadcast {
		var old []string
		if t != nil {
			old = c.s.tracked.Prefixes(&t.Client)
		}
		if len(old)+len(prefixes) > maxPrefixes {
			c.out.Error(fmt.Sprintf("ERR a client can have %d prefixes", maxPrefixes))
			return
		}
		if a, b, isOld, overlaps := tracking.Overlap(old, prefixes); overlaps {
			which := "another provided prefix"
			if isOld {
				which = "an existing prefix"
			}
			c.out.Error(fmt.Sprintf("ERR Prefix '%s' overlaps with %s '%s'. Prefixes for a single client must not overlap.",
				oneLine([]byte(a)), which, oneLine([]byte(b))))
			return
		}
	}
	if t == nil {
		t = &tracker{c: c}
		t.Send = t.send
		c.out.share()
		c.session.Track(true)
	}
	for _, p := range prefixes {
		t.prefixes += int64(len(p)) + prefixBytes
	}
	m.to.invite(1)
	t.mode.Store(&m)
	was.to.invite(-1)
	t.broken.Store(false)
	c.track, c.exec.by = t, &t.Client
	c.s.tracked.Start(&t.Client, tracking.Options{Broadcast: m.broadcast, Prefixes: prefixes, NoLoop: m.noLoop})
	c.s.o.Hub.update()
	c.tracks.Store(t)
	c.out.OK()
}

// endTracking ends what CLIENT TRACKING ON began.
func (c *conn) endTracking() {
	t := c.track
	if t == nil {
		return
	}
	c.s.tracked.Stop(&t.Client)
	c.s.o.Hub.update()
	c.track, c.exec.by = nil, nil
	c.tracks.Store(nil)
	c.session.Track(c.hosts)
	c.out.unshare()
	t.mode.Load().to.invite(-1)
}

// invite notes that so many more connections tell this one what they are to be told. Any goroutine may call it. It
// wakes the connection's own, which alone can share the outbox.
func (c *conn) invite(more int32) {
	if c != nil && c.guests.Add(more) == more {
		c.nc.SetReadDeadline(past)
	}
}

// past is a read deadline that wakes the goroutine of a connection.
var past = time.Unix(1, 0)

// welcome shares the outbox while others tell this connection what they are to be told. It returns false if the
// connection is over.
func (c *conn) welcome() bool {
	if invited := c.guests.Load() > 0; invited != c.hosts {
		c.limited = true // the next read has the deadline of an idle client
		if c.hosts = invited; invited {
			c.out.share()
		} else {
			c.out.unshare()
		}
		c.session.Track(c.hosts || c.track != nil)
		if !c.out.flush() {
			return false
		}
		c.out.settle()
	}
	return true
}

func runClientCaching(c *conn, args [][]byte) {
	t := c.track
	yes := redis.IsOption(args[2], "yes")
	switch {
	case t == nil:
		c.out.Error(errNotCaching)
	case !yes && !redis.IsOption(args[2], "no"):
		c.out.Error(redis.ErrSyntax)
	case yes && !t.mode.Load().optIn:
		c.out.Error(errCachingYes)
	case !yes && !t.mode.Load().optOut:
		c.out.Error(errCachingNo)
	default:
		t.caching = true
		c.out.OK()
	}
}

func runClientTrackingInfo(c *conn, args [][]byte) {
	flags, redirect, prefixes := []string{"off"}, int64(-1), []string(nil)
	if t := c.track; t != nil {
		m := t.mode.Load()
		flags, redirect, prefixes = flags[:0], t.redirect(), c.s.tracked.Prefixes(&t.Client)
		for _, x := range [...]struct {
			set  bool
			name string
		}{
			{true, "on"}, {m.broadcast, "bcast"}, {m.optIn, "optin"}, {m.optIn && t.caching, "caching-yes"},
			{m.optOut, "optout"}, {m.optOut && t.caching, "caching-no"}, {m.noLoop, "noloop"},
			{t.broken.Load(), "broken_redirect"},
		} {
			if x.set {
				flags = append(flags, x.name)
			}
		}
	}
	c.out.MapOf("flags", func() {
		c.out.Set(len(flags))
		for _, f := range flags {
			c.out.BulkString(f)
		}
	}, "redirect", redirect, "prefixes", func() {
		c.out.Array(len(prefixes))
		for _, p := range prefixes {
			c.out.BulkString(p)
		}
	})
}

func runClientGetRedir(c *conn, args [][]byte) {
	if t := c.track; t != nil {
		c.out.Int(t.redirect())
	} else {
		c.out.Int(-1)
	}
}

// redirect returns the id of the client that is told in place of this one, 0 if this one is.
func (t *tracker) redirect() int64 {
	if to := t.mode.Load().to; to != nil {
		return int64(to.id)
	}
	return 0
}

// beginTracked is called before the next commands of the pipeline run. It enters the connection for the keys that they
// read, and returns how many of them may run together before endTracked.
func (c *conn) beginTracked(cmds []command) (n int) {
	t := c.track
	t.keys = t.keys[:0]
	n = 1
	switch first := &cmds[0]; {
	case t.mode.Load().broadcast:
		n = len(cmds)
	case first.is("exec") && c.session.Inside():
		for i := range c.session.Queued().Commands {
			q := &c.session.Queued().Commands[i]
			t.note(q.Row, q.Args, t.caching)
		}
	case c.session.Inside() || first.how == redis.HowNot:
	default:
		if first.joins(first.how) && c.session.Together() {
			n = c.exec.together(cmds)
		}
		for i := range cmds[:n] {
			t.note(cmds[i].row, cmds[i].args, t.caching && i == 0)
		}
	}
	if c.s.mistakes.LateInterest {
		c.s.tracked.Begin(&t.Client, nil)
	} else {
		c.s.tracked.Begin(&t.Client, t.keys)
	}
	return n
}

// idle reports whether the commands that run now read nothing that the client tracks.
func (t *tracker) idle() bool { return len(t.keys) == 0 && !t.mode.Load().broadcast }

// note notes the keys that a command reads, if the client wants that. Of a script it notes all that are declared: who
// knows whether the script reads. caching says that CLIENT CACHING came before the command.
func (t *tracker) note(row *redis.Command, args [][]byte, caching bool) {
	if m := t.mode.Load(); m.optIn && !caching || m.optOut && caching {
		return
	}
	if row.How != redis.HowScript && (row.Flags&redis.FlagReadonly == 0 || row.How != redis.HowRead) {
		return
	}
	t.positions = row.AppendKeys(t.positions[:0], args)
	for _, p := range t.positions {
		t.keys = append(t.keys, args[p])
	}
}

// endTracked is called when commands have been answered, from start of the replies on. What the client is told comes
// behind.
func (c *conn) endTracked(last *command, start int) {
	t := c.track
	if c.s.mistakes.LateInterest {
		c.s.tracked.Begin(&t.Client, t.keys)
	}
	if clear(t.keys); cap(t.keys) > keptKeys {
		t.keys, t.positions = nil, nil
	}
	if !c.session.Inside() && (last.row == nil || !isClient(last.row)) {
		t.caching = false
	}
	to := t.mode.Load().to
	for _, m := range c.s.tracked.End(&t.Client) {
		if to != nil && to != c {
			if !c.out.flush() { // another connection shall not be told before this one has its replies
				c.closing = true
				return
			}
			t.send(m)
			continue
		}
		switch {
		case c.out.Proto != 3:
		case c.s.mistakes.EarlyTelling:
			c.out.Buf = slices.Insert(c.out.Buf, min(start, len(c.out.Buf)), invalidate3(m)...)
		default:
			c.out.Buf = append(c.out.Buf, invalidate3(m)...)
		}
	}
}

// parkTracked lets the client be told while it waits in a command that has read nothing.
func (c *conn) parkTracked() {
	if t := c.track; t != nil {
		for _, m := range c.s.tracked.End(&t.Client) {
			t.send(m)
		}
	}
}

// isClient reports whether a row is of the command CLIENT, which does not use up CLIENT CACHING.
func isClient(row *redis.Command) bool {
	return row.Name == "client" || strings.HasPrefix(row.FullName(), "client|")
}

// send is tracking.Client.Send.
func (t *tracker) send(m *tracking.Message) {
	to, redirected := t.c, t.mode.Load().to
	var resp2 []byte // in RESP2 only who is told for others, and subscribes, is told anything, as by Redis
	if redirected != nil {
		if to = redirected; to.subscribes.Load() {
			resp2 = invalidate2(m)
		}
	}
	x := newMessage(t.c.s.o.ClientMemory, resp2, invalidate3(m))
	sent := to.out.push(x)
	x.release()
	if sent || redirected == nil {
		return
	}
	t.broken.Store(true)
	b := append([]byte(">2\r\n$21\r\ntracking-redir-broken\r\n:"), fmt.Sprint(t.redirect())...)
	x = newMessage(t.c.s.o.ClientMemory, nil, append(b, "\r\n"...))
	t.c.out.push(x)
	x.release()
}

// invalidate3 encodes a message as a push of RESP3.
func invalidate3(m *tracking.Message) []byte {
	r := redis.Reply{Proto: 3}
	r.Push(2)
	r.BulkString("invalidate")
	return namesOf(&r, m)
}

// invalidate2 encodes a message for a client of RESP2 that has subscribed to the channel of Redis for this.
func invalidate2(m *tracking.Message) []byte {
	r := redis.Reply{Proto: 2}
	r.Push(3)
	r.BulkString("message")
	r.BulkString("__redis__:invalidate")
	return namesOf(&r, m)
}

// namesOf appends the keys of a message, and returns all of it.
func namesOf(r *redis.Reply, m *tracking.Message) []byte {
	if m.Keys == nil {
		r.Null()
		return r.Buf
	}
	r.Array(len(m.Keys))
	for _, k := range m.Keys {
		r.BulkString(k)
	}
	return r.Buf
}
