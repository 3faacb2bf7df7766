package redis

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/engine"
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
	options := ScanOptions{Count: 10}
	if c.Size > 0 { // as in Redis, nobody looks at the options of what is absent
		if options, ok = ParseScanOptions(args[3:], false, r.work, out); !ok {
			return nil
		}
	}
	pattern, count := options.Pattern, options.Count
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

// ScanOptions are the options of SCAN, or of a scan of a collection.
type ScanOptions struct {
	Count   int64
	Pattern *Glob  // nil: all
	Type    []byte // of keys; nil: any
}

// Wants reports whether SCAN returns a key.
func (o *ScanOptions) Wants(k WalkedKey, work *engine.Work) bool {
	return (o.Pattern == nil || o.Pattern.Match(k.Key, work)) && (o.Type == nil || IsOption(o.Type, k.Type.String()))
}

// ParseScanOptions reads the options from the arguments behind the cursor. TYPE is one of them if ofKeys is set. If they
// are wrong, ParseScanOptions answers with the error and returns false.
func ParseScanOptions(args [][]byte, ofKeys bool, work *engine.Work, out *Reply) (o ScanOptions, ok bool) {
	o.Count = 10
	for i := 0; i < len(args); i += 2 {
		left := len(args) - i
		switch {
		case left >= 2 && IsOption(args[i], "count"):
			if o.Count, ok = ParseInt(args[i+1]); !ok {
				out.Error(ErrNotInteger)
				return o, false
			}
			if o.Count < 1 {
				out.Error(ErrSyntax)
				return o, false
			}
		case left >= 2 && IsOption(args[i], "match"):
			o.Pattern = NewGlob(args[i+1], work)
		case left >= 2 && ofKeys && IsOption(args[i], "type"):
			o.Type = args[i+1]
		default:
			out.Error(ErrSyntax)
			return o, false
		}
	}
	return o, true
}
