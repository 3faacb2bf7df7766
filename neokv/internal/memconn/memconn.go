// Package memconn connects a client and a server of one process through memory, by buffered net.Conns.
package memconn

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// BufferBytes is how much a connection holds in each direction before its writer has to wait.
const BufferBytes = 256 << 10

// firstBuffer is how much an idle connection keeps in each direction.
const firstBuffer = 4 << 10

// Listener is a net.Listener in memory. Dial makes a pair of connected, buffered net.Conns, returns one and hands the
// other to Accept. Their addresses are the listener's and `pipe:0`.
type Listener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a listener that answers to the given address.
func Listen(addr net.Addr) *Listener {
	return &Listener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept returns the other end of the next Dial, or net.ErrClosed.
func (p *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, p.error("accept", net.ErrClosed)
	}
}

// Addr returns the address given to Listen.
func (p *Listener) Addr() net.Addr { return p.addr }

// Close ends Accept and Dial. Connections stay open.
func (p *Listener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Dial connects to the listener. It returns when Accept has returned the other end.
func (p *Listener) Dial(ctx context.Context) (net.Conn, error) {
	client, server := connPair(p.addr)
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, p.error("dial", errRefused)
	case <-ctx.Done():
		return nil, p.error("dial", ctx.Err())
	}
}

var errRefused = errors.New("connection refused")

func (p *Listener) error(op string, err error) error {
	return &net.OpError{Op: op, Net: p.addr.Network(), Addr: p.addr, Err: err}
}

// connPair returns the two ends of a connection in memory.
func connPair(server net.Addr) (client, accepted net.Conn) {
	up, down := newStream(), newStream()
	return newConn(down, up, pipeAddr{}, server), newConn(up, down, server, pipeAddr{})
}

// pipeAddr is the address of the end that dialled.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe:0" }

// pipeEnd is one end of a connection. All methods may run concurrently.
type pipeEnd struct {
	in, out               *stream
	local, remote         net.Addr
	reading, writing      chan struct{} // capacity 1: held by a call of Read, of Write
	readLimit, writeLimit deadline
	closed                chan struct{}
	once                  sync.Once
}

func newConn(in, out *stream, local, remote net.Addr) *pipeEnd {
	c := &pipeEnd{
		in: in, out: out, local: local, remote: remote,
		reading: make(chan struct{}, 1), writing: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	c.readLimit.expired, c.writeLimit.expired = make(chan struct{}), make(chan struct{})
	return c
}

// Read reads what there is, up to len(b) bytes, and waits while there is nothing.
func (c *pipeEnd) Read(b []byte) (int, error) {
	n, err := c.read(b)
	if err != nil && err != io.EOF {
		err = &net.OpError{Op: "read", Net: "pipe", Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

func (c *pipeEnd) read(b []byte) (int, error) {
	if err := c.await(c.reading, nil, &c.readLimit); err != nil {
		return 0, err
	}
	defer func() { <-c.reading }()
	for {
		n, eof := c.in.take(b)
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if eof {
			return 0, io.EOF
		}
		if err := c.await(nil, c.in.filled, &c.readLimit); err != nil {
			return 0, err
		}
	}
}

// Write returns when all of b is in the buffer.
func (c *pipeEnd) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if err != nil {
		err = &net.OpError{Op: "write", Net: "pipe", Source: c.local, Addr: c.remote, Err: err}
	}
	return n, err
}

func (c *pipeEnd) write(b []byte) (n int, err error) {
	if err := c.await(c.writing, nil, &c.writeLimit); err != nil {
		return 0, err
	}
	defer func() { <-c.writing }()
	for {
		m, broken := c.out.put(b[n:])
		n += m
		if broken {
			return n, io.ErrClosedPipe
		}
		if n == len(b) {
			return n, nil
		}
		if err := c.await(nil, c.out.drained, &c.writeLimit); err != nil {
			return n, err
		}
	}
}

// TryWrite writes as much of b as there is room for, and does not wait. Deadlines do not matter to it.
func (c *pipeEnd) TryWrite(b []byte) (n int, err error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	select {
	case c.writing <- struct{}{}:
	default:
		return 0, nil
	}
	defer func() { <-c.writing }()
	n, broken := c.out.put(b)
	if broken {
		err = io.ErrClosedPipe
	}
	return n, err
}

// await returns when it could put a token into one channel or take one from the other. A closed connection and a passed
// deadline come first.
func (c *pipeEnd) await(put chan<- struct{}, take <-chan struct{}, limit *deadline) error {
	expired := limit.channel()
	select {
	case <-c.closed:
		return net.ErrClosed
	default:
	}
	select {
	case <-expired:
		return os.ErrDeadlineExceeded
	default:
	}
	select {
	case put <- struct{}{}:
	case <-take:
	case <-c.closed:
		return net.ErrClosed
	case <-expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Close lets the other end read what was written, and then io.EOF; its writes fail.
func (c *pipeEnd) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.out.end(true)
		c.in.end(false)
		c.SetDeadline(time.Time{}) // stops the timers
	})
	return nil
}

// HungUp reports, however much is unread, whether the other end has been closed, and whether it writes no more.
func (c *pipeEnd) HungUp() (gone, silent bool) {
	c.in.mu.Lock()
	silent = c.in.eof
	c.in.mu.Unlock()
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.broken, silent
}

func (c *pipeEnd) LocalAddr() net.Addr  { return c.local }
func (c *pipeEnd) RemoteAddr() net.Addr { return c.remote }

func (c *pipeEnd) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *pipeEnd) SetReadDeadline(t time.Time) error {
	c.readLimit.set(t)
	return nil
}

func (c *pipeEnd) SetWriteDeadline(t time.Time) error {
	c.writeLimit.set(t)
	return nil
}

// stream is one direction of a connection: a ring of bytes that grows up to BufferBytes. One reader and one writer use
// it at a time. Each waits outside of its lock for a token that the other leaves.
type stream struct {
	filled, drained chan struct{} // capacity 1

	mu          sync.Mutex
	ring        []byte
	from, n     int
	eof, broken bool // the writer has gone; the reader has gone
}

func newStream() *stream {
	return &stream{filled: make(chan struct{}, 1), drained: make(chan struct{}, 1)}
}

// take moves bytes out of the ring. eof says that there are none and that none will come.
func (s *stream) take(b []byte) (n int, eof bool) {
	s.mu.Lock()
	for n < len(b) && s.n > 0 {
		m := copy(b[n:], s.ring[s.from:min(s.from+s.n, len(s.ring))])
		n += m
		s.n -= m
		s.from = (s.from + m) % len(s.ring)
	}
	if s.n == 0 && len(s.ring) > firstBuffer {
		s.ring, s.from = nil, 0 // an idle connection gives its memory back
	}
	eof = s.n == 0 && s.eof
	s.mu.Unlock()
	if n > 0 {
		leaveToken(s.drained)
	}
	return n, eof
}

// put moves bytes into the ring, as many as fit.
func (s *stream) put(b []byte) (n int, broken bool) {
	s.mu.Lock()
	if s.broken {
		s.mu.Unlock()
		return 0, true
	}
	if need := min(s.n+len(b), BufferBytes); need > len(s.ring) {
		ring := make([]byte, min(max(need, 2*len(s.ring), 512), BufferBytes))
		for at := 0; at < s.n; {
			m := copy(ring[at:s.n], s.ring[s.from:])
			at += m
			s.from = (s.from + m) % len(s.ring)
		}
		s.ring, s.from = ring, 0
	}
	for n < len(b) && s.n < len(s.ring) {
		at := (s.from + s.n) % len(s.ring)
		m := copy(s.ring[at:min(at+len(s.ring)-s.n, len(s.ring))], b[n:])
		n += m
		s.n += m
	}
	s.mu.Unlock()
	if n > 0 {
		leaveToken(s.filled)
	}
	return n, false
}

// end notes that the writer, or the reader, has gone.
func (s *stream) end(writer bool) {
	s.mu.Lock()
	if writer {
		s.eof = true
	} else {
		s.broken, s.ring, s.from, s.n = true, nil, 0, 0
	}
	s.mu.Unlock()
	leaveToken(s.filled)
	leaveToken(s.drained)
}

func leaveToken(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deadline closes a channel at a point in time that can be changed.
type deadline struct {
	mu      sync.Mutex
	expired chan struct{}
	over    bool // expired is closed
	timer   *time.Timer
	setting int // counts set: a timer that fires late must not end the next deadline
}

func (d *deadline) channel() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setting++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.over {
		d.expired, d.over = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		close(d.expired)
		d.over = true
		return
	}
	setting := d.setting
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.setting == setting {
			close(d.expired)
			d.over = true
		}
	})
}
