package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ReplyValue is one reply in Redis's wire format, of RESP2 or RESP3.
type ReplyValue struct {
	Kind  byte   // the first byte on the wire
	Text  []byte // of all kinds without elements, without prefix, length and CRLF
	Null  bool   // $-1, *-1 or _
	Items []ReplyValue
}

// maxNesting and maxElements bound what is read of a peer that has gone wrong.
const (
	maxNesting  = 16
	maxElements = 1 << 20
	maxBulk     = 1 << 29
)

// Read reads one value. What does not follow the protocol to the letter is an error.
func Read(r *bufio.Reader) (ReplyValue, error) { return read(r, 0) }

// Parse reads a value that fills b.
func Parse(b []byte) (ReplyValue, error) {
	r := bufio.NewReader(bytes.NewReader(b))
	v, err := Read(r)
	if err != nil {
		return v, err
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return v, fmt.Errorf("reply %q goes on behind its end", b)
	}
	return v, nil
}

func read(r *bufio.Reader, depth int) (v ReplyValue, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return v, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return v, fmt.Errorf("reply line %q: want a kind and CRLF at the end", line)
	}
	v.Kind, v.Text = line[0], line[1:len(line)-2]
	if bytes.IndexByte(v.Text, '\r') >= 0 {
		return v, fmt.Errorf("reply line %q holds a CR", line)
	}
	switch v.Kind {
	case '+', '-':
	case ':':
		_, err = strconv.ParseInt(string(v.Text), 10, 64)
	case ',':
		_, err = strconv.ParseFloat(string(v.Text), 64)
	case '#':
		if s := string(v.Text); s != "t" && s != "f" {
			err = fmt.Errorf("reply line %q: want t or f", line)
		}
	case '_':
		v.Null = true
		if len(v.Text) != 0 {
			err = fmt.Errorf("reply line %q: null with text", line)
		}
	case '$', '=':
		return v, readBulk(r, &v)
	case '*', '%', '~', '>':
		return v, readItems(r, &v, depth)
	default:
		err = fmt.Errorf("reply line %q: unknown kind", line)
	}
	return v, err
}

func readLength(v *ReplyValue, limit int) (int, error) {
	n, err := strconv.Atoi(string(v.Text))
	if err != nil || n < -1 || n > limit || strconv.Itoa(n) != string(v.Text) {
		return 0, fmt.Errorf("reply of kind %c: length %q, want -1 to %d", v.Kind, v.Text, limit)
	}
	return n, nil
}

func readBulk(r *bufio.Reader, v *ReplyValue) error {
	n, err := readLength(v, maxBulk)
	if err != nil {
		return err
	}
	v.Text = nil
	if v.Null = n < 0; v.Null {
		return nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if string(b[n:]) != "\r\n" {
		return fmt.Errorf("bulk of %d bytes ends in %q, want CRLF", n, b[n:])
	}
	v.Text = b[:n]
	return nil
}

func readItems(r *bufio.Reader, v *ReplyValue, depth int) error {
	n, err := readLength(v, maxElements)
	if err != nil {
		return err
	}
	if depth == maxNesting {
		return errors.New("reply is nested too deeply")
	}
	v.Text, v.Null = nil, n < 0
	if v.Kind == '%' {
		n *= 2
	}
	if n > 0 {
		v.Items = make([]ReplyValue, 0, min(n, 1<<10)) // a length that is a lie costs no more
	}
	for range max(n, 0) {
		item, err := read(r, depth+1)
		if err != nil {
			return err
		}
		v.Items = append(v.Items, item)
	}
	return nil
}

// Equal reports whether two values are the same bytes on the wire.
func (v ReplyValue) Equal(o ReplyValue) bool {
	return v.Kind == o.Kind && v.Null == o.Null && bytes.Equal(v.Text, o.Text) &&
		slices.EqualFunc(v.Items, o.Items, ReplyValue.Equal)
}

// Int returns an integer reply.
func (v ReplyValue) Int() (n int64, ok bool) {
	if v.Kind != ':' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Text), 10, 64)
	return n, err == nil
}

// String prints a value for people: OK, "bulk", 12, (nil), [a b], map{k v}, or an error's line as it is. Statuses and
// errors look alike but for their text.
func (v ReplyValue) String() string {
	if v.Null {
		return "(nil)"
	}
	switch v.Kind {
	case '$':
		return strconv.Quote(string(v.Text))
	case '*', '~', '%', '>':
		items := make([]string, len(v.Items))
		for i, item := range v.Items {
			items[i] = item.String()
		}
		return map[byte]string{'*': "", '~': "set", '%': "map", '>': "push"}[v.Kind] + "[" + strings.Join(items, " ") +
			"]"
	}
	return string(v.Text)
}

// AppendCall appends a call in the form in which clients send it.
func AppendCall(dst []byte, args ...[]byte) []byte {
	dst = fmt.Appendf(dst, "*%d\r\n", len(args))
	for _, a := range args {
		dst = fmt.Appendf(dst, "$%d\r\n", len(a))
		dst = append(append(dst, a...), '\r', '\n')
	}
	return dst
}
