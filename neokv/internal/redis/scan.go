package redis

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/keys"
)

// This file has the cursors of SCAN, HSCAN, SSCAN and ZSCAN.

// ParseCursor reads a cursor as Redis does, with the rules of C's strtoul but no leading space: a sign is allowed, an
// empty text is 0, a NUL ends the number. It refuses a number that is out of range.
func ParseCursor(arg []byte) (uint64, bool) {
	text, _, _ := strings.Cut(string(arg), "\x00")
	if text == "" {
		return 0, true
	}
	negative := strings.HasPrefix(text, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimPrefix(text, "-"), "+"), 10, 64)
	if err != nil || strings.HasPrefix(text, "-+") {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

// scanWhole is the size of a collection up to which HSCAN, SSCAN and ZSCAN return all of it at once, whatever the
// cursor and COUNT say. In Redis that is so for listpacks.
const scanWhole = 128

// scan runs HSCAN, SSCAN and ZSCAN. f appends an element, as so many values. The listing returns every element that
// exists from the first call to the last. It goes through a larger collection in the order of subkeys, and so of
// hashes; the cursor is the hash with which it goes on. So nothing has to be remembered, and no element has to stay.
// Elements of the same hash come together. A number that is no hash counts as one.
func (r *Reader) scan(args [][]byte, t keys.Type, values int, out *Reply,
	f func(c *collection, out *Reply, name, value []byte)) error {
	cursor, ok := ParseCursor(args[2])
	if !ok {
		out.Error(ErrInvalidCursor)
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], t, out); !ok {
		return err
	}
	var pattern *Glob
	count := int64(10)
	for i := 3; c.Size > 0 && i < len(args); i += 2 {
		left := len(args) - i
		switch {
		case left >= 2 && IsOption(args[i], "count"):
			if count, ok = ParseInt(args[i+1]); !ok {
				out.Error(ErrNotInteger)
				return nil
			}
			if count < 1 {
				out.Error(ErrSyntax)
				return nil
			}
		case left >= 2 && IsOption(args[i], "match"):
			pattern = NewGlob(args[i+1], r.work)
		default:
			out.Error(ErrSyntax)
			return nil
		}
	}
	var from []byte
	if c.Size <= scanWhole {
		count = math.MaxInt64
	} else {
		from = binary.BigEndian.AppendUint32(nil, uint32(cursor))
	}
	found := r.aside(out)
	n, last, next := 0, uint32(0), uint64(0)
	err := c.each(from, func(name, value []byte) bool {
		if count <= 0 { // there is more
			if hash := keys.ElementHash(name); hash != last {
				next = uint64(hash)
				return false
			}
		}
		if count--; count == 0 {
			last = keys.ElementHash(name)
		}
		if pattern == nil || pattern.Match(name, r.work) {
			f(&c, &found, name, value)
			n += values
		}
		return !found.Full
	})
	if err != nil {
		return err
	}
	out.Array(2)
	var room [maxIntBytes]byte
	out.Bulk(strconv.AppendUint(room[:0], next, 10))
	out.Array(n)
	r.join(out, &found)
	return nil
}

// aside begins a Reply for the elements of a reply whose header is not known yet. They count against the reply's room.
func (r *Reader) aside(out *Reply) Reply {
	return Reply{Buf: r.found[:0], Proto: out.Proto, Room: out.Room - len(out.Buf), More: out.More}
}

// join appends the elements to the reply, which has its header now.
func (r *Reader) join(out, behind *Reply) {
	out.Buf, out.Room, out.Full = append(out.Buf, behind.Buf...), behind.Room+len(out.Buf), out.Full || behind.Full
	r.found = behind.Buf
}
