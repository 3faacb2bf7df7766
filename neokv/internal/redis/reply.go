package redis

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Reply appends replies in RESP2 or RESP3. The zero value writes RESP2.
//
// A method that opens an aggregate (Array, Map, Set, Push) writes only the header; the caller appends the elements.
// Methods allocate nothing but what Buf needs to grow.
type Reply struct {
	Buf   []byte
	Proto int // 3 for RESP3, anything else RESP2

	// More, if it is set, bounds Buf. Before a bulk string makes Buf longer than Room, it calls More with the number of
	// bytes that are missing; More returns how many it adds to Room. If these are too few, the bulk string is left out
	// and Full is set. From then on the replies are useless, and bulk strings append nothing more.
	Room int
	More func(bytes int) int
	Full bool
}

// Discard empties a reply that nobody will read. It leaves bulk strings out of the next reply if that would have more
// than most bytes.
func (r *Reply) Discard(most int) {
	if cap(r.Buf) > most {
		r.Buf = nil
	}
	r.Buf, r.Room, r.More, r.Full = r.Buf[:0], most, noMore, false
}

func noMore(int) int { return 0 }

// Status appends a simple string, which must not contain CR or LF.
func (r *Reply) Status(s string) {
	r.Buf = append(r.Buf, '+')
	r.Buf = append(r.Buf, s...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// OK appends +OK.
func (r *Reply) OK() { r.Buf = append(r.Buf, "+OK\r\n"...) }

// Error appends an error. line is the whole line without the leading '-': the code, a space, the message.
func (r *Reply) Error(line string) {
	r.Buf = append(r.Buf, '-')
	r.Buf = append(r.Buf, line...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// Int appends an integer.
func (r *Reply) Int(n int64) {
	if r.Full {
		return
	}
	r.Buf = append(r.Buf, ':')
	r.Buf = strconv.AppendInt(r.Buf, n, 10)
	r.Buf = append(r.Buf, '\r', '\n')
}

// Bulk appends a bulk string.
func (r *Reply) Bulk(b []byte) {
	if !r.open(len(b)) {
		return
	}
	r.Buf = append(r.Buf, b...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// open begins a bulk string of n bytes: the caller appends these to Buf, and then CR and LF. It returns false where
// there is no room for them.
func (r *Reply) open(n int) bool {
	if r.Full || !r.has(n) {
		return false
	}
	if need := n + smallBytes; cap(r.Buf)-len(r.Buf) < need { // twofold: append would copy a long reply several times
		r.Buf = slices.Grow(r.Buf, max(need, len(r.Buf)))
	}
	r.header('$', n)
	return true
}

// has reports whether there is room for n more bytes. Bulk calls it by itself. A caller that may append any number of
// integers or nulls has to call it, too.
func (r *Reply) has(n int) bool { return r.More == nil || len(r.Buf)+n <= r.Room || r.fits(n) }

// fits asks More for the room that n more bytes need, or for as much as Buf has already if that is more, since Buf
// grows twofold. It reports whether there is room for n bytes now.
func (r *Reply) fits(n int) bool {
	if !r.Full {
		r.Room += r.More(max(len(r.Buf)+n-r.Room, len(r.Buf)))
	}
	r.Full = r.Full || len(r.Buf)+n > r.Room
	return !r.Full
}

// BulkString appends a bulk string.
func (r *Reply) BulkString(s string) {
	r.header('$', len(s))
	r.Buf = append(r.Buf, s...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// Null appends the absence of a value: the null bulk string in RESP2.
func (r *Reply) Null() {
	if r.Full {
		return
	}
	if r.Proto == 3 {
		r.Buf = append(r.Buf, "_\r\n"...)
		return
	}
	r.Buf = append(r.Buf, "$-1\r\n"...)
}

// NullArray appends the absence of a value in place of an array: the null array in RESP2.
func (r *Reply) NullArray() {
	if r.Proto == 3 {
		r.Buf = append(r.Buf, "_\r\n"...)
		return
	}
	r.Buf = append(r.Buf, "*-1\r\n"...)
}

// Array opens an array of n elements.
func (r *Reply) Array(n int) { r.header('*', n) }

// Map opens a map of n pairs: in RESP2 an array of 2n elements, key and value in turn.
func (r *Reply) Map(n int) {
	if r.Proto == 3 {
		r.header('%', n)
		return
	}
	r.header('*', 2*n)
}

// MapOf appends a map of keys and values in turn. A key is a string. A value is a string, a number, or a function that
// appends the value.
func (r *Reply) MapOf(pairs ...any) {
	r.Map(len(pairs) / 2)
	for _, x := range pairs {
		switch x := x.(type) {
		case string:
			r.BulkString(x)
		case int:
			r.Int(int64(x))
		case int64:
			r.Int(x)
		case float64:
			r.Double(x)
		case func():
			x()
		default:
			panic(fmt.Sprintf("reply: a %T in a map", x))
		}
	}
}

// Set opens a set of n elements: in RESP2 an array.
func (r *Reply) Set(n int) {
	if r.Proto == 3 {
		r.header('~', n)
		return
	}
	r.header('*', n)
}

// Push opens a message of n elements that is no reply: in RESP2 an array.
func (r *Reply) Push(n int) {
	if r.Proto == 3 {
		r.header('>', n)
		return
	}
	r.header('*', n)
}

// Double appends a floating point number with 17 significant digits, as Redis 7.0 does: a bulk string in RESP2.
func (r *Reply) Double(f float64) {
	var room [40]byte
	b := appendDouble(room[:0], f)
	if r.Proto != 3 {
		r.Bulk(b)
		return
	}
	if r.Full {
		return
	}
	r.Buf = append(r.Buf, ',')
	r.Buf = append(r.Buf, b...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// appendDouble appends the text that Double replies.
func appendDouble(dst []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case f == math.Trunc(f) && math.Abs(f) < 1<<53 && (f != 0 || !math.Signbit(f)): // the same text, faster
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', 17, 64)
}

// Verbatim appends text in a format of three letters ("txt", "mkd"): a bulk string in RESP2.
func (r *Reply) Verbatim(format, text string) {
	if r.Proto != 3 {
		r.BulkString(text)
		return
	}
	r.header('=', len(format)+1+len(text))
	r.Buf = append(r.Buf, format...)
	r.Buf = append(r.Buf, ':')
	r.Buf = append(r.Buf, text...)
	r.Buf = append(r.Buf, '\r', '\n')
}

// smallBytes is room for a number or a null.
const smallBytes = 32

func (r *Reply) header(kind byte, n int) {
	if r.Full {
		return
	}
	r.Buf = append(r.Buf, kind)
	r.Buf = strconv.AppendInt(r.Buf, int64(n), 10)
	r.Buf = append(r.Buf, '\r', '\n')
}

// toFront moves a header, which has been appended from end on, to start, before the elements that begin there.
func (r *Reply) toFront(start, end int) {
	if r.Full {
		return
	}
	var room [32]byte
	header := append(room[:0], r.Buf[end:]...)
	copy(r.Buf[start+len(header):], r.Buf[start:end])
	copy(r.Buf[start:], header)
}
