//go:build redisserver

package lua

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// server is a connection to a real redis-server, and the Host of scripts that run here.
type server struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

func connect(t testing.TB, addr string) *server {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &server{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (s *server) do(args ...string) []byte {
	var b [][]byte
	for _, a := range args {
		b = append(b, []byte(a))
	}
	return s.send(nil, b)
}

func (s *server) send(reply []byte, args [][]byte) []byte {
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(a), a)
	}
	_ = s.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := s.conn.Write(out); err != nil {
		s.t.Fatalf("%q: %v", args, err)
	}
	reply, err := appendReply(reply, s.r)
	if err != nil {
		s.t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// appendReply copies one reply as it is.
func appendReply(b []byte, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return b, err
	}
	b = append(b, line...)
	n, _ := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	switch line[0] {
	case '$', '=':
		if n >= 0 {
			text := make([]byte, n+2)
			if _, err := io.ReadFull(r, text); err != nil {
				return b, err
			}
			b = append(b, text...)
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~':
		for range n {
			if b, err = appendReply(b, r); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func (s *server) Call(reply []byte, args [][]byte, protocol int) []byte {
	if protocol == 3 {
		s.do("HELLO", "3")
		defer s.do("HELLO", "2")
	}
	n := len(reply)
	reply = s.send(reply, args)
	// Scripts have texts of their own for these.
	switch text := string(reply[n:]); {
	case strings.HasPrefix(text, "-ERR unknown command"):
		return append(reply[:n], "-ERR Unknown Redis command called from script\r\n"...)
	case strings.HasPrefix(text, "-ERR wrong number of arguments"):
		return append(reply[:n], "-ERR Wrong number of args calling Redis command from script\r\n"...)
	}
	return reply
}

func (s *server) Log(int, string) {}

// pair runs scripts on a real redis-server and here.
type pair struct {
	t          testing.TB
	real, host *server
	state      *State
	protocol   int
}

func newPair(t testing.TB, protocol int) *pair {
	p := &pair{t: t, state: NewState(), protocol: protocol}
	p.real, p.host = connect(t, redistest.RedisServer(t)), connect(t, redistest.RedisServer(t))
	p.real.do("HELLO", strconv.Itoa(protocol))
	return p
}

func (p *pair) compare(text string) (want, got []byte) {
	keys, argv := []string{"k1", "k2"}, []string{"a1", "", "3"}
	p.real.do("FLUSHALL")
	p.host.do("FLUSHALL")
	want = p.real.do(append(append([]string{"EVAL", text, "2"}, keys...), argv...)...)
	script, err := Compile(text)
	if err != nil {
		return want, append([]byte("-ERR "), strings.Map(noLines, err.Error())+"\r\n"...)
	}
	r := Run{Script: script, Seed: 1, Limits: testLimits, Protocol: p.protocol, Host: p.host}
	for _, k := range keys {
		r.Keys = append(r.Keys, []byte(k))
	}
	for _, a := range argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	got, err = p.state.Run(nil, r)
	if err != nil {
		return want, []byte(err.Error())
	}
	return want, got
}

func noLines(r rune) rune {
	if r == '\r' || r == '\n' {
		return ' '
	}
	return r
}

// scripts reads a file of cases: paragraphs that are scripts, and lines that begin with "= ", each an expression.
func scripts(t testing.TB, name string) (all []string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, paragraph := range strings.Split(string(text), "\n\n") {
		if !strings.HasPrefix(paragraph, "= ") {
			all = append(all, strings.TrimSpace(paragraph))
			continue
		}
		for _, line := range strings.Split(strings.TrimSpace(paragraph), "\n") {
			all = append(all, show+strings.TrimPrefix(line, "= ")+")")
		}
	}
	return all
}

// show replies with the types and the texts of its arguments, numbers with all of their digits.
const show = "local function show(...) local r = {} for i = 1, select('#', ...) do local v = select(i, ...) " +
	"if type(v) == 'number' then v = string.format('%.17g', v) elseif type(v) ~= 'string' then v = type(v) .. " +
	"(type(v) == 'boolean' and tostring(v) or '') end r[i] = v end return r end return show("

// TestScriptsAreThoseOfRedis: replies are those of redis-server 7.0, byte for byte.
func TestScriptsAreThoseOfRedis(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		p := newPair(t, protocol)
		all := scripts(t, "testdata/scripts.txt")
		if len(all) < 300 {
			t.Fatalf("%d scripts", len(all))
		}
		for _, text := range all {
			if want, got := p.compare(text); !bytes.Equal(want, got) {
				t.Errorf("RESP%d: %s\nwant %q\ngot  %q", protocol, strings.TrimPrefix(text, show), want, got)
			}
		}
	}
}

// TestMathIsThatOfRedis compares functions of random numbers: with the 14 digits that scripts print, they are equal. In
// all bits glibc's own errors remain, of which there are few.
func TestMathIsThatOfRedis(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	p := newPair(t, 2)
	number := func() string {
		switch r.IntN(4) {
		case 0:
			return strconv.Itoa(r.IntN(200) - 100)
		case 1:
			return strconv.FormatFloat(r.Float64()*2-1, 'g', -1, 64)
		case 2:
			return strconv.FormatFloat((r.Float64()*2-1)*math.Pow(10, float64(r.IntN(40)-20)), 'g', -1, 64)
		}
		return strconv.FormatFloat((r.Float64()*2-1)*50, 'g', -1, 64)
	}
	differ, all := map[string]int{}, 0
	for range 3000 {
		f := []string{"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "log10", "sqrt",
			"pow", "atan2", "fmod"}[r.IntN(16)]
		text := "return {string.format('%%.%dg', math." + f + "(" + number() + ", " + number() + "))}"
		if want, got := p.compare(fmt.Sprintf(text, 14)); !bytes.Equal(want, got) {
			t.Errorf("seed %d: %s: %q, want %q", seed, text, got, want)
		}
		all++
		if want, got := p.compare(fmt.Sprintf(text, 17)); !bytes.Equal(want, got) {
			differ[f]++
		}
	}
	n := 0
	for _, d := range differ {
		n += d
	}
	if t.Logf("seed %d: of %d, these differ in the last bit: %v", seed, all, differ); n > all/20 {
		t.Errorf("%d of %d differ in the last bit: %v", n, all, differ)
	}
}
