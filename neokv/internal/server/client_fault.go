package server

import (
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/redis"
)

// trouble is what is wrong between a server and its clients. It does not change: SetClientFault, SetRefusals, Pause and
// Resume replace it.
type trouble struct {
	fault.Client
	refusals []fault.Refusal
	paused   bool
	replaced chan struct{} // closed when another one takes its place
}

// SetClientFault disturbs the clients from now on; the zero value ends that. A connection that is refused or reset has
// been accepted first, and ends with a reset, so that the port stays the server's own.
func (s *Server) SetClientFault(f fault.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeTrouble(func(t *trouble) { t.Client = f })
	if f.Reset {
		for _, c := range s.clients {
			c.nc.(*clientConn).reset()
			c.kill()
		}
	}
}

// SetRefusals lets shares of the calls of commands be answered with errors from now on, and of no others. Connections
// of this process, those of Do, are spared.
func (s *Server) SetRefusals(all []fault.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeTrouble(func(t *trouble) { t.refusals = all })
}

// HasCommand reports whether there is a command of a full name in any case, such as GET or CLIENT|LIST. "" is any.
func HasCommand(name string) bool { return name == "" || commands.Named([]byte(name)) != nil }

// refuseSome draws which commands of the pipeline are refused. runOwn answers these.
func (c *conn) refuseSome(refusals []fault.Refusal) {
	for i := range c.cmds {
		cmd := &c.cmds[i]
		if cmd.how == redis.HowNot {
			continue
		}
		name := cmd.row.FullName()
		container, _, _ := strings.Cut(name, "|")
		for _, r := range refusals {
			all := r.Command == "" || strings.EqualFold(r.Command, name) || strings.EqualFold(r.Command, container)
			if all && c.s.draw() < float64(r.Share) {
				cmd.how, cmd.reply = redis.HowNot, []byte(r.Error)
				break
			}
		}
	}
}

// draw draws a number from 0 to 1 for a refusal.
func (s *Server) draw() float64 {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	return s.refused.random.Float64()
}

// answerRefused answers a command that refuseSome has drawn, as Redis answers one that it rejects.
func (c *conn) answerRefused(cmd *command) {
	text := string(cmd.reply)
	if cmd.row.Name == "exec" && c.session.Inside() {
		c.endTransaction()
		text = "EXECABORT Transaction discarded because of: " + text
	}
	c.out.Error(text)
}

// Pause holds all that comes from clients and all that goes to them until Resume, as if the process were stopped by a
// signal. New connections are accepted, and hang. A read whose reply was made before the pause takes effect before it,
// and a command that was received and not begun begins after it, when it looks at leases and leaders anew. So a pause
// makes no reply older than its command.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeTrouble(func(t *trouble) { t.paused = true })
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeTrouble(func(t *trouble) { t.paused = false })
}

// changeTrouble replaces the trouble. The caller holds mu.
func (s *Server) changeTrouble(set func(*trouble)) {
	old := s.trouble.Load()
	next := &trouble{replaced: make(chan struct{})}
	if old != nil {
		next.Client, next.refusals, next.paused = old.Client, old.refusals, old.paused
	}
	if set(next); next.Client == (fault.Client{}) && len(next.refusals) == 0 && !next.paused {
		next = nil
	}
	s.trouble.Store(next)
	if old != nil {
		close(old.replaced)
	}
}

// clientConn is a client's connection as the server's trouble lets it be.
type clientConn struct {
	net.Conn
	s      *Server
	ended  sync.Once
	closed chan struct{}

	writeBy atomic.Int64 // the deadline of writes, Unix ns; 0 for none

	// Of the goroutine that writes:
	free  time.Time // when the client has read what it was sent
	tried bool      // trier is known
	trier tryWriter // of Conn, nil if it has none
}

func (s *Server) newClientConn(nc net.Conn) *clientConn {
	return &clientConn{Conn: nc, s: s, closed: make(chan struct{})}
}

// turnedAway resets a new connection if the server takes none, and reports whether it did.
func (x *clientConn) turnedAway() bool {
	t := x.s.trouble.Load()
	if t == nil || !t.Refuse && !t.Reset {
		return false
	}
	x.reset()
	x.Close()
	return true
}

// reset lets Close end the connection with a reset.
func (x *clientConn) reset() {
	if tcp, ok := x.Conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

// Close is part of net.Conn.
func (x *clientConn) Close() error {
	x.ended.Do(func() { close(x.closed) })
	return x.Conn.Close()
}

// SetWriteDeadline is part of net.Conn.
func (x *clientConn) SetWriteDeadline(t time.Time) error {
	by := int64(0)
	if !t.IsZero() {
		by = t.UnixNano()
	}
	x.writeBy.Store(by)
	return x.Conn.SetWriteDeadline(t)
}

// Read is part of net.Conn.
func (x *clientConn) Read(p []byte) (int, error) {
	n, err := x.Conn.Read(p)
	for t := x.s.trouble.Load(); t != nil && t.paused && err == nil; t = x.s.trouble.Load() {
		select {
		case <-t.replaced:
		case <-x.closed:
			return n, net.ErrClosed
		}
	}
	return n, err
}

// Write is part of net.Conn.
func (x *clientConn) Write(p []byte) (sent int, err error) {
	for sent < len(p) && err == nil {
		t := x.s.trouble.Load()
		rest, n := p[sent:], 0
		switch {
		case t == nil || !t.paused && t.Bandwidth == 0:
			n, err = x.Conn.Write(rest)
		case t.paused:
			err = x.wait(t, time.Time{})
		default:
			if time.Now().Before(x.free) {
				err = x.wait(t, x.free)
				continue // the trouble may be another one
			}
			n, err = x.Conn.Write(rest[:min(int64(len(rest)), max(1, int64(t.Bandwidth)/100))])
			if now := time.Now(); x.free.Before(now) {
				x.free = now
			}
			x.free = x.free.Add(time.Duration(float64(n) / float64(t.Bandwidth) * float64(time.Second)))
		}
		sent += n
	}
	return sent, err
}

// TryWrite is that of tryWriter. A client in trouble is written to by Write alone.
func (x *clientConn) TryWrite(p []byte) (int, error) {
	if x.s.trouble.Load() != nil {
		return 0, nil
	}
	if !x.tried {
		x.tried = true
		switch nc := x.Conn.(type) {
		case tryWriter:
			x.trier = nc
		case *net.TCPConn:
			x.trier = tryTCP(nc)
		}
	}
	if x.trier == nil {
		return 0, nil
	}
	return x.trier.TryWrite(p)
}

// wait returns when the trouble is replaced, or at an instant unless that is zero. The error says that the connection's
// deadline has passed, or that the connection is closed.
func (x *clientConn) wait(t *trouble, until time.Time) error {
	by := x.writeBy.Load()
	first := until
	if by != 0 && (first.IsZero() || time.Unix(0, by).Before(first)) {
		first = time.Unix(0, by)
	}
	var due <-chan time.Time
	if !first.IsZero() {
		timer := time.NewTimer(time.Until(first))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
		if by != 0 && !time.Now().Before(time.Unix(0, by)) {
			return os.ErrDeadlineExceeded
		}
		return nil
	case <-t.replaced:
		return nil
	case <-x.closed:
		return net.ErrClosed
	}
}
