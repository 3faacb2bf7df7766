package bench

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// loadConn is one connection, and just enough of RESP2 to drive it. A loadConn appends requests to a buffer and sends
// them in one write; it finds replies in its read buffer and skips them there, without copying. A full client library
// would copy, allocate and change goroutines for every operation. On a machine shared with the target, its cost would
// be most of what is measured.
type loadConn struct {
	nc    net.Conn // nil while not connected
	epoch time.Time
	// timeout bounds a write or a read. The conn renews the deadline only when a quarter of it has passed, not at every
	// operation, so it strikes after three quarters at the earliest.
	timeout  time.Duration
	deadline time.Duration // when it was last renewed

	out  []byte // requests to flush
	in   []byte // in[r:w] is read and not consumed
	r, w int
	// readAt is when the last read from the network returned. It is the time of every reply that this read completed.
	readAt time.Duration

	// texts are the strings of the last array that the caller keeps, nil for null. A reply without them fits into
	// registers.
	texts [][]byte

	// queue holds the operations of the batch that wait for a reply on this conn, in order; askingReply stands for the
	// reply to an ASKING.
	queue []int32
	// failures counts those since the last good reply. Nobody uses the conn again before retryAt.
	failures int
	retryAt  time.Duration

	// Of a worker's conn:
	node    nodeID
	silence *silence
	heard   time.Duration // readAt of the last good reply
}

const askingReply = -1

// Sizes of the read buffer, and of the longest line (an error message, an INFO's length) that is accepted.
const (
	readBuffer = 16 << 10
	maxDepth   = 8 // of nested arrays
)

var errProtocol = errors.New("protocol error")

// reply is the outline of a reply. text is valid until the next read.
type reply struct {
	kind byte   // '+', '-', ':', '$', '*'
	null bool   // it is null, or an element is, or it is an empty array
	text []byte // the line after the type byte; for a string its bytes, if the caller keeps them
}

// kept says which strings of a reply the caller keeps.
type kept uint8

const (
	keepNone  kept = iota
	keepFirst      // of an array, the first: the cursor of a SCAN
	keepAll
)

func (c *loadConn) now() time.Duration { return time.Since(c.epoch) }

// attach makes the conn use a new connection.
func (c *loadConn) attach(nc net.Conn) {
	c.nc, c.r, c.w = nc, 0, 0
	c.out, c.queue = c.out[:0], c.queue[:0]
	if c.in == nil {
		c.in = make([]byte, readBuffer)
	}
	c.renew(c.now())
}

func (c *loadConn) renew(now time.Duration) {
	c.deadline = now
	_ = c.nc.SetDeadline(c.epoch.Add(now + c.timeout)) // some connections have no deadlines
}

// flush sends the buffered requests.
func (c *loadConn) flush(now time.Duration) error {
	if now-c.deadline > c.timeout/4 {
		c.renew(now)
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// fill reads more from the network behind in[r:w].
func (c *loadConn) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	} else if c.w == len(c.in) {
		if c.r == 0 {
			return fmt.Errorf("%w: a line of more than %d bytes", errProtocol, len(c.in))
		}
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := c.nc.Read(c.in[c.w:])
	c.w += n
	c.readAt = c.now()
	if n > 0 {
		return nil
	}
	return err
}

// line returns the next line without its end.
func (c *loadConn) line() ([]byte, error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(c.in[c.r+seen:c.w], '\n'); i >= 0 {
			line := c.in[c.r : c.r+seen+i]
			c.r += seen + i + 1
			if n := len(line); n >= 2 && line[n-1] == '\r' {
				return line[:n-1], nil
			}
			return nil, fmt.Errorf("%w: line %q", errProtocol, line)
		}
		seen = c.w - c.r
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// skip consumes n bytes.
func (c *loadConn) skip(n int) error {
	for n > c.w-c.r {
		n -= c.w - c.r
		c.r = c.w
		if err := c.fill(); err != nil {
			return err
		}
	}
	c.r += n
	return nil
}

// read consumes one reply. It skips the bytes of strings, unless the caller keeps them.
func (c *loadConn) read(depth int, keep kept) (reply, error) {
	line, err := c.line()
	if err != nil {
		return reply{}, err
	}
	rep := reply{kind: line[0], text: line[1:]}
	switch rep.kind {
	case '+', '-', ':':
		return rep, nil
	case '$', '*':
		n, err := length(line)
		if err != nil {
			return reply{}, err
		}
		if rep.text = nil; rep.kind == '*' {
			c.texts = nil
		}
		if rep.null = n < 0 || n == 0 && rep.kind == '*'; rep.null {
			return rep, nil
		}
		if rep.kind == '$' {
			if keep == keepAll {
				rep.text, err = c.bytes(n)
				return rep, err
			}
			return rep, c.skip(n + 2)
		}
		if depth == 0 {
			return reply{}, fmt.Errorf("%w: arrays nested too deep", errProtocol)
		}
		var texts [][]byte
		for i := range n {
			each := keep
			if keep == keepFirst {
				each = keepNone
				if i == 0 {
					each = keepAll
				}
			}
			element, err := c.read(depth-1, each)
			if err != nil {
				return reply{}, err
			}
			rep.null = rep.null || element.null
			if each == keepAll {
				texts = append(texts, element.text)
			}
		}
		c.texts = texts // of the outermost array in the end
		return rep, nil
	}
	return reply{}, fmt.Errorf("%w: reply %q", errProtocol, line)
}

// readTransaction consumes the replies to MULTI, to the commands, and to EXEC, and tells each command how it was
// answered. If one of the first was an error, that is the reply: EXEC says no more than that there was one. failed is
// the first error within the answer of EXEC. The other commands took effect.
func (c *loadConn) readTransaction(commands []sentStep) (rep reply, failed []byte, err error) {
	for range len(commands) + 1 { // MULTI, too
		r, err := c.read(maxDepth, keepNone)
		if err != nil {
			return rep, nil, err
		}
		if r.kind == '-' && rep.kind != '-' {
			rep = reply{kind: '-', text: bytes.Clone(r.text)}
		}
	}
	line, err := c.line()
	switch {
	case err != nil:
		return rep, nil, err
	case line[0] == '-' && rep.kind == '-':
		return rep, nil, nil
	case line[0] == '-':
		return reply{kind: '-', text: line[1:]}, nil, nil
	case line[0] != '*':
		return rep, nil, fmt.Errorf("%w: reply %q to EXEC", errProtocol, line)
	}
	n, err := length(line)
	if err != nil {
		return rep, nil, err
	}
	if n != len(commands) && n >= 0 {
		return rep, nil, fmt.Errorf("%w: EXEC answers %d of %d commands", errProtocol, n, len(commands))
	}
	rep = reply{kind: '*', null: n < 0}
	c.texts = nil
	for i := range commands {
		x := &commands[i]
		if x.void = n < 0; x.void {
			continue
		}
		r, err := c.read(maxDepth-1, keepNone)
		if err != nil {
			return rep, nil, err
		}
		switch x.miss = r.null; r.kind {
		case ':':
			x.number, _ = strconv.ParseInt(string(r.text), 10, 64)
		case '-':
			if x.void = true; failed == nil {
				failed = bytes.Clone(r.text)
			}
		}
		rep.null = rep.null || r.null
	}
	return rep, failed, nil
}

// bytes consumes a string of n bytes and its end.
func (c *loadConn) bytes(n int) ([]byte, error) {
	b := make([]byte, 0, min(n+2, 1<<20))
	for len(b) < n+2 {
		if c.r == c.w {
			if err := c.fill(); err != nil {
				return nil, err
			}
		}
		take := min(n+2-len(b), c.w-c.r)
		b = append(b, c.in[c.r:c.r+take]...)
		c.r += take
	}
	return b[:n], nil
}

func length(line []byte) (int, error) {
	n := 0
	digits := line[1:]
	if string(digits) == "-1" {
		return -1, nil
	}
	for _, d := range digits {
		if d < '0' || d > '9' || n > 512<<20 {
			return 0, fmt.Errorf("%w: length %q", errProtocol, line)
		}
		n = n*10 + int(d-'0')
	}
	if len(digits) == 0 {
		return 0, fmt.Errorf("%w: length %q", errProtocol, line)
	}
	return n, nil
}

// appendRequest encodes a request.
func appendRequest(dst []byte, args ...[]byte) []byte {
	dst = appendLength(dst, '*', len(args))
	for _, a := range args {
		dst = appendLength(dst, '$', len(a))
		dst = append(append(dst, a...), '\r', '\n')
	}
	return dst
}

func appendLength(dst []byte, kind byte, n int) []byte {
	switch {
	case n < 10:
		return append(dst, kind, byte('0'+n), '\r', '\n')
	case n < 100:
		return append(dst, kind, byte('0'+n/10), byte('0'+n%10), '\r', '\n')
	}
	return append(strconv.AppendInt(append(dst, kind), int64(n), 10), '\r', '\n')
}

// call sends one request and returns its whole reply: nil, string, int64 or []any. Bench asks about the target with it;
// load does not use it. An error reply is a serverError.
func (c *loadConn) call(args ...string) (any, error) {
	if err := c.ask(args...); err != nil {
		return nil, err
	}
	return c.value(maxDepth)
}

// ask sends one request; value reads its reply.
func (c *loadConn) ask(args ...string) error {
	request := make([][]byte, len(args))
	for i, a := range args {
		request[i] = []byte(a)
	}
	c.out = appendRequest(c.out[:0], request...)
	now := c.now()
	c.renew(now)
	return c.flush(now)
}

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }

func (c *loadConn) value(depth int) (any, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	text := string(line[1:])
	switch line[0] {
	case '+':
		return text, nil
	case '-':
		return nil, serverError(text)
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$', '*':
		n, err := length(line)
		if err != nil || n < 0 {
			return nil, err
		}
		if line[0] == '$' {
			b, err := c.bytes(n)
			return string(b), err
		}
		if depth == 0 {
			return nil, fmt.Errorf("%w: arrays nested too deep", errProtocol)
		}
		var list []any
		for range n {
			v, err := c.value(depth - 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return nil, fmt.Errorf("%w: reply %q", errProtocol, line)
}
