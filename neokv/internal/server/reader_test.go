package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
)

// pieces is a connection that delivers the bytes cut at the given places, then io.EOF.
type pieces struct {
	net.Conn
	left [][]byte
}

func (p *pieces) LocalAddr() net.Addr  { return nil }
func (p *pieces) RemoteAddr() net.Addr { return nil }

func (p *pieces) Read(b []byte) (int, error) {
	for len(p.left) > 0 && len(p.left[0]) == 0 {
		p.left = p.left[1:]
	}
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[0])
	p.left[0] = p.left[0][n:]
	return n, nil
}

// testLimits are those of a reader: of an argument, and of a command 1 MiB or as much as a long argument needs.
func testLimits(bulk int64) *limits {
	l := &limits{}
	l.bulk.Store(bulk)
	l.query.Store(max(1<<20, 2*bulk))
	return l
}

// readAll reads all commands and the error that ends them, io.EOF for none.
func readAll(maxBulk int64, parts ...[]byte) (commands [][]string, err error) {
	r := newReader(&pieces{left: parts}, testLimits(maxBulk))
	for {
		if _, err := r.fill(); err != nil {
			return commands, err
		}
		for {
			args, ok := r.next(nil)
			if !ok {
				break
			}
			var words []string
			for _, a := range args {
				words = append(words, string(a))
			}
			commands = append(commands, words)
		}
	}
}

var readerCases = []struct {
	in   string
	want string // the commands, then the error
}{
	{"*1\r\n$4\r\nPING\r\n", `[PING] EOF`},
	{"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n*1\r\n$0\r\n\r\n", "[ECHO a\r\n] [] EOF"},
	{"*0\r\n*-1\r\n*-5\r\nPING\r\n", `[PING] EOF`},
	{"\r\n\n   \r\nPING\t a\n", `[PING a] EOF`},
	{`SET "a b\x41\n\"" 'c\'d\n' e"f"` + "\r\n", "[SET a bA\n\" c'd\\n ef] EOF"},
	{"\"\"\r\n", `[] EOF`},
	{"$4\r\nPING\r\n", `[$4] [PING] EOF`},
	{"*2147483647\r\n", `EOF`},
	{"*2147483648\r\n", `Protocol error: invalid multibulk length`},
	{"PING\r\n*a\r\n", `[PING] Protocol error: invalid multibulk length`},
	{"*\r\n", `Protocol error: invalid multibulk length`},
	{"*01\r\n", `Protocol error: invalid multibulk length`},
	{"*+1\r\n", `Protocol error: invalid multibulk length`},
	{"*-0\r\n", `Protocol error: invalid multibulk length`},
	{"*1 \r\n", `Protocol error: invalid multibulk length`},
	{"*1\n", `Protocol error: invalid multibulk length`},
	{"*99999999999999999999\r\n", `Protocol error: invalid multibulk length`},
	{"*1\r\n$-1\r\n", `Protocol error: invalid bulk length`},
	{"*1\r\n$101\r\n", `Protocol error: invalid bulk length`},
	{"*1\r\n$04\r\n", `Protocol error: invalid bulk length`},
	{"*1\r\n$\r\n", `Protocol error: invalid bulk length`},
	{"*1\r\n$4\nPING\r\n", `Protocol error: invalid bulk length`},
	{"*1\r\n$4\r\nPINGxx", `Protocol error: invalid bulk length`},
	{"*2\r\n$4\r\nPING\r\n:1\r\n", `Protocol error: expected '$', got ':'`},
	{"*1\r\n\r\n", `Protocol error: expected '$', got ' '`},
	{"PING\r\n\"PING\r\n", `[PING] Protocol error: unbalanced quotes in request`},
	{"'PING'x\r\n", `Protocol error: unbalanced quotes in request`},
	{strings.Repeat("a", maxLine+1), `Protocol error: too big inline request`},
	{"*" + strings.Repeat("1", maxLine+1), `Protocol error: too big mbulk count string`},
	{"*1\r\n$" + strings.Repeat("1", maxLine+1), `Protocol error: too big bulk count string`},
	{"*1\r\n$4\r\nPI", `EOF`},
}

func readerOutcome(commands [][]string, err error) string {
	s := ""
	for _, c := range commands {
		s += fmt.Sprint(c) + " "
	}
	return s + err.Error()
}

func TestReader(t *testing.T) {
	for _, c := range readerCases {
		if got := readerOutcome(readAll(100, []byte(c.in))); got != c.want {
			t.Errorf("%.60q: got %.100q, want %q", c.in, got, c.want)
		}
		if len(c.in) > 1000 {
			continue
		}
		for i := range len(c.in) { // the same, whatever the bytes come in
			if got := readerOutcome(readAll(100, []byte(c.in[:i]), []byte(c.in[i:]))); got != c.want {
				t.Errorf("%.60q cut at %d: got %.100q, want %q", c.in, i, got, c.want)
			}
		}
		var bytes [][]byte
		for i := range len(c.in) {
			bytes = append(bytes, []byte{c.in[i]})
		}
		if got := readerOutcome(readAll(100, bytes...)); got != c.want {
			t.Errorf("%.60q byte by byte: got %.100q, want %q", c.in, got, c.want)
		}
	}
}

// TestReaderPipeline reads more than any buffer in one go, and sees the buffer shrink again.
func TestReaderPipeline(t *testing.T) {
	var in []byte
	var want [][]string
	for i := range 20000 {
		k, v := fmt.Sprintf("key:%d", i), strings.Repeat("v", i%97)
		if i == 10000 {
			v = strings.Repeat("V", 3<<20)
		}
		in = fmt.Appendf(in, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(k), k, len(v), v)
		want = append(want, []string{"SET", k, v})
	}
	got, err := readAll(4<<20, in)
	if err != io.EOF || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %d commands and %v, want %d and EOF", len(got), err, len(want))
	}
	r := newReader(&pieces{left: [][]byte{in}}, testLimits(4<<20))
	fills := 0
	for ; ; fills++ {
		if _, err := r.fill(); err != nil {
			break
		}
		for {
			if _, ok := r.next(nil); !ok {
				break
			}
		}
		if r.start == r.end && len(r.buf) > 8<<20 {
			t.Fatalf("buffer of %d bytes", len(r.buf))
		}
	}
	if fills > 60 {
		t.Errorf("%d fills for %d bytes: pipelines are cut too small", fills, len(in))
	}
}

func TestReaderBoundsOneCommand(t *testing.T) {
	arg := fmt.Appendf(nil, "$%d\r\n%s\r\n", 1000, strings.Repeat("x", 1000))
	in := append([]byte("*100000\r\n"), bytes.Repeat(arg, 5000)...)
	r := newReader(&pieces{left: [][]byte{in}}, testLimits(1000))
	_, err := r.fill()
	if !errors.Is(err, errQueryTooLong) || len(r.buf) > 1<<20 {
		t.Fatalf("a command of %d bytes: error %v, buffer of %d", len(in), err, len(r.buf))
	}
}

// TestReaderTakesNoMoreThanALargeArgument reads one that doubled buffers would not end at.
func TestReaderTakesNoMoreThanALargeArgument(t *testing.T) {
	in := fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$%d\r\n%s\r\n", 5<<20, strings.Repeat("x", 5<<20))
	r := newReader(&pieces{left: [][]byte{in}}, testLimits(64<<20))
	grown := firstBuffer
	r.grow = func(r *requestReader, size int) bool { grown += size - len(r.buf); return r.move(size) }
	if _, err := r.fill(); err != nil || len(r.buf) != len(in) || grown != len(in) {
		t.Fatalf("a command of %d bytes: error %v, buffer of %d, asked for %d", len(in), err, len(r.buf), grown)
	}
	if args, ok := r.next(nil); !ok || len(args) != 3 || len(args[2]) != 5<<20 {
		t.Errorf("got %d arguments", len(args))
	}
}

func FuzzReader(f *testing.F) {
	for _, c := range readerCases {
		f.Add([]byte(c.in), uint16(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		whole := readerOutcome(readAll(1000, bytes.Clone(in)))
		at := int(cut) % (len(in) + 1)
		if parts := readerOutcome(readAll(1000, bytes.Clone(in[:at]), bytes.Clone(in[at:]))); parts != whole {
			t.Errorf("%q whole: %q, cut at %d: %q", in, whole, at, parts)
		}
		r := newReader(&pieces{left: [][]byte{bytes.Clone(in)}}, testLimits(512<<20))
		for {
			if _, err := r.fill(); err != nil {
				break
			}
			for ok := true; ok; {
				_, ok = r.next(nil)
			}
		}
		if len(r.buf) > 2*len(in)+2*maxPipeline {
			t.Errorf("a buffer of %d bytes for %d", len(r.buf), len(in))
		}
	})
}

func BenchmarkReader(b *testing.B) {
	in := bytes.Repeat([]byte("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000012345\r\n$64\r\n"+strings.Repeat("v", 64)+"\r\n"),
		16)
	loop := &repeat{in: in}
	r := newReader(loop, testLimits(1<<20))
	argv := make([][]byte, 0, 8)
	b.ReportAllocs()
	b.SetBytes(int64(len(in) / 16))
	for n := 0; n < b.N; {
		if _, err := r.fill(); err != nil {
			b.Fatal(err)
		}
		for {
			if _, ok := r.next(argv); !ok {
				break
			}
			n++
		}
	}
}

// repeat is a connection that delivers the same bytes for ever, one copy per read.
type repeat struct {
	net.Conn
	in []byte
}

func (r *repeat) Read(b []byte) (int, error) {
	if len(b) < len(r.in) {
		return 0, os.ErrInvalid
	}
	return copy(b, r.in), nil
}
