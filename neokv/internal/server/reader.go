package server

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/tidwall/redcon"
)

const (
	firstBuffer  = 4 << 10   // the buffer of a connection that has sent nothing yet
	maxPipeline  = 256 << 10 // bytes of a pipeline that are read at once
	maxLine      = 64 << 10  // an inline request, or the line of a length
	maxMultibulk = math.MaxInt32
	maxCommands  = 4 << 10 // of one fill: a command of two bytes takes a hundred times that in memory

	// For a client that has not given the password.
	strangeMultibulk = 10
	strangeBulk      = 16384
)

// errQueryTooLong ends a connection without a reply, as in Redis.
var errQueryTooLong = errors.New("command longer than the query buffer may be")

// protocolError ends a connection. The server sends its text to the client first.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// requestReader reads pipelines from a connection into one buffer and hands out the commands, whose arguments alias the
// buffer. It frames commands as bytes arrive and looks at each byte once. It parses no command that is incomplete, so a
// half command costs no more than its bytes. Its rules and errors are Redis's (networking.c, processMultibulkBuffer and
// processInlineBuffer).
//
//	0        start         ready           scan       end       len(buf)
//	| done   | complete    | of a command that is ... | free    |
//	|        | commands    | seen          not seen   |         |
type requestReader struct {
	conn   net.Conn
	limits *limits
	before func()                                // called before each read of fill; may be nil
	grow   func(r *requestReader, size int) bool // calls move, or returns false if the client may not hold that much
	// strange is set while the client has not given the password. The reader then frames commands one by one, since
	// each may be the AUTH that gives it.
	strange bool
	tight   bool // clients' memory is tight: an empty buffer shrinks

	buf                     []byte
	start, ready, scan, end int
	args                    int  // arguments of the command at ready that are still to come, 0 between commands
	bulk                    int  // length of the argument whose bytes come next, -1 when its length comes next
	full                    bool // the last read left no room
	reads                   int  // see takeReads
	failed                  error

	count           int // arguments of the command at ready, when its first line has been seen
	commands, words int // the last fill has completed, and the arguments of all of them
}

func newReader(conn net.Conn, l *limits) requestReader {
	return requestReader{conn: conn, limits: l, grow: (*requestReader).move, buf: newFirstBuffer(), bulk: -1}
}

// firstBuffers has buffers that blocked connections have given back: they would be garbage, 4 KiB for each, until the
// collector runs.
var firstBuffers sync.Pool // of *[firstBuffer]byte

func newFirstBuffer() []byte {
	if b, _ := firstBuffers.Get().(*[firstBuffer]byte); b != nil {
		return b[:]
	}
	return make([]byte, firstBuffer)
}

// slim gives the buffer back, which is empty, for a very small one. No arguments may be left that alias it.
func (r *requestReader) slim() {
	old := r.buf
	if r.move(slimBuffer); cap(old) == firstBuffer {
		firstBuffers.Put((*[firstBuffer]byte)(old[:firstBuffer]))
	}
}

// widen gives a reader that has been slim a buffer of the usual size.
func (r *requestReader) widen() {
	if len(r.buf) < firstBuffer {
		buf := newFirstBuffer()
		copy(buf, r.buf[r.start:r.end])
		r.buf = buf
		r.shift()
	}
}

// fill reads until at least one command is complete and returns how many bytes it has read. The caller must have taken
// all commands of the last fill with next; their arguments are no longer valid.
func (r *requestReader) fill() (n int, err error) {
	r.compact()
	r.commands, r.words = 0, 0
	for r.frame(); r.ready == r.start; r.frame() {
		if r.failed != nil {
			return n, r.failed
		}
		if r.end == len(r.buf) {
			most := int(r.limits.query.Load())
			if len(r.buf) >= most {
				return n, errQueryTooLong
			}
			size := min(2*len(r.buf), most)
			if need := r.scan - r.start + r.bulk + 2; r.bulk > maxPipeline && need > len(r.buf) {
				size = min(size, need) // a large argument does not get twice its memory
			}
			if !r.grow(r, size) {
				return n, net.ErrClosed
			}
		}
		if r.before != nil {
			r.before()
		}
		m, err := r.read()
		n += m
		if m == 0 && err != nil {
			return n, err
		}
	}
	return n, nil
}

// read reads what has arrived, once, and waits while there is nothing. The buffer must have room.
func (r *requestReader) read() (n int, err error) {
	n, err = r.conn.Read(r.buf[r.end:])
	r.end += n
	r.full = r.end == len(r.buf)
	if n > 0 {
		r.reads++
	}
	return n, err
}

// takeReads returns how many reads have brought bytes since the last takeReads.
func (r *requestReader) takeReads() (n int) {
	n, r.reads = r.reads, 0
	return n
}

// room reports whether the buffer has room between two fills. It may take another buffer for what is unread; the
// arguments handed out stay valid.
func (r *requestReader) room() bool {
	if unread := r.end - r.start; r.end == len(r.buf) && unread < maxPipeline {
		r.move(max(firstBuffer, 2*unread))
	}
	return r.end < len(r.buf)
}

// compact makes room for the next pipeline.
func (r *requestReader) compact() {
	switch {
	case r.full && len(r.buf) < maxPipeline:
		r.move(2 * len(r.buf))
	case r.start == r.end && (len(r.buf) > maxPipeline || r.tight && len(r.buf) > firstBuffer):
		r.move(firstBuffer)
	case r.start > 0:
		copy(r.buf, r.buf[r.start:r.end])
		r.shift()
	}
	r.full = false
}

// move moves the unread bytes to a new buffer of the given size, and returns true.
func (r *requestReader) move(size int) bool {
	buf := make([]byte, size)
	copy(buf, r.buf[r.start:r.end])
	r.buf = buf
	r.shift()
	return true
}

func (r *requestReader) shift() {
	r.ready -= r.start
	r.scan -= r.start
	r.end -= r.start
	r.start = 0
}

// frame moves scan over what has arrived, and ready behind each complete command, up to the first error.
func (r *requestReader) frame() {
	for r.failed == nil && !(r.strange && r.ready > r.start) && r.commands < maxCommands && r.step() {
	}
}

// complete moves ready behind the command that scan has passed.
func (r *requestReader) complete() {
	r.ready = r.scan
	r.commands++
	r.words += r.count
}

// step moves scan over one line or one argument, and reports whether it could.
func (r *requestReader) step() bool {
	if r.bulk >= 0 {
		n := r.bulk + 2
		if r.end-r.scan < n {
			return false
		}
		if r.buf[r.scan+n-2] != '\r' || r.buf[r.scan+n-1] != '\n' {
			return r.fail("invalid bulk length")
		}
		r.scan += n
		r.bulk = -1
		if r.args--; r.args == 0 {
			r.complete()
		}
		return true
	}
	if r.scan == r.end {
		return false
	}
	kind := r.buf[r.scan]
	if r.args > 0 && kind != '$' {
		return r.fail(fmt.Sprintf("expected '$', got '%s'", printable(kind)))
	}
	n := bytes.IndexByte(r.buf[r.scan:r.end], '\n')
	if n < 0 {
		if r.end-r.scan <= maxLine {
			return false
		}
		switch {
		case r.args > 0:
			return r.fail("too big bulk count string")
		case kind == '*':
			return r.fail("too big mbulk count string")
		}
		return r.fail("too big inline request")
	}
	line := r.buf[r.scan : r.scan+n]
	switch {
	case r.args > 0:
		size, ok := length(line)
		if !ok || size < 0 || size > r.limits.bulk.Load() {
			return r.fail("invalid bulk length")
		}
		if r.strange && size > strangeBulk {
			return r.fail("unauthenticated bulk length")
		}
		r.bulk = int(size)
	case kind == '*':
		count, ok := length(line)
		if !ok || count > maxMultibulk {
			return r.fail("invalid multibulk length")
		}
		if r.strange && count > strangeMultibulk {
			return r.fail("unauthenticated multibulk length")
		}
		r.args = int(max(count, 0))
		r.count = r.args
	default:
		words, ok := splitInline(line)
		if !ok {
			return r.fail("unbalanced quotes in request")
		}
		r.count = len(words)
	}
	r.scan += n + 1
	if r.args == 0 {
		r.complete()
	}
	return true
}

func (r *requestReader) fail(reason string) bool {
	r.failed = protocolError(reason)
	return false
}

// printable is how an error line shows a byte.
func printable(c byte) string {
	if c == '\r' || c == '\n' {
		return " "
	}
	return string([]byte{c})
}

// length parses the number of a line `*3\r` or `$5\r` as Redis's string2ll does: no '+', no leading zero, no space.
func length(line []byte) (n int64, ok bool) {
	if len(line) < 3 || line[len(line)-1] != '\r' {
		return 0, false
	}
	digits := line[1 : len(line)-1]
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && (len(digits) > 1 || negative) {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// next returns the arguments of the next complete command, at least one, or false when there is none. It appends them
// to into, which is usually empty and has room. They are valid until the next fill.
func (r *requestReader) next(into [][]byte) (args [][]byte, ok bool) {
	for r.start < r.ready {
		b := r.buf[r.start:r.ready]
		if b[0] == '*' && '1' <= b[1] && b[1] <= '9' {
			_, args, _, rest, err := redcon.ReadNextCommand(b, into)
			if err != nil || len(rest) >= len(b) { // frame has checked it
				panic(fmt.Sprintf("a complete command is none: %v: %q", err, b[:min(len(b), 100)]))
			}
			r.start = r.ready - len(rest)
			return args, true
		}
		n := bytes.IndexByte(b, '\n')
		r.start += n + 1
		if b[0] == '*' { // *0 and *-1 are no commands and get no reply
			continue
		}
		if words, _ := splitInline(b[:n]); len(words) > 0 {
			return append(into, words...), true
		}
	}
	return nil, false
}

// splitInline splits an inline request into words as Redis's sdssplitargs does. It returns false when a quote is not
// closed, or when no space follows a closing quote.
func splitInline(line []byte) (words [][]byte, ok bool) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		word := []byte{}
		for i < len(line) && !isSpace(line[i]) {
			quote := line[i]
			if quote != '"' && quote != '\'' {
				word = append(word, quote)
				i++
				continue
			}
			for i++; ; i++ {
				if i == len(line) {
					return nil, false
				}
				c := line[i]
				if c == quote {
					break
				}
				if c == '\\' && i+1 < len(line) {
					switch e := line[i+1]; {
					case quote == '\'' && e == '\'':
						c, i = e, i+1
					case quote == '"' && e == 'x' && i+3 < len(line) && isHex(line[i+2]) && isHex(line[i+3]):
						c, i = hexValue(line[i+2])<<4|hexValue(line[i+3]), i+3
					case quote == '"':
						c, i = unescape(e), i+1
					}
				}
				word = append(word, c)
			}
			i++
			if i < len(line) && !isSpace(line[i]) {
				return nil, false
			}
		}
		words = append(words, word)
	}
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
