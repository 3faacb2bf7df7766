package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// serve answers every call with what answer says.
func serve(t *testing.T, answer func(call string) string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			in, out := bufio.NewReader(server), bufio.NewWriter(server)
			replies := make(chan string, 1<<12) // a pipe has no buffer, and calls come before replies are read
			written := make(chan struct{})
			go func() {
				defer close(written)
				for r := range replies {
					_, _ = out.WriteString(r)
					_ = out.Flush()
				}
			}()
			defer func() {
				close(replies)
				<-written
			}()
			for {
				v, err := Read(in)
				if err != nil {
					return
				}
				var words []string
				for _, item := range v.Items {
					words = append(words, string(item.Text))
				}
				replies <- answer(strings.Join(words, " "))
			}
		}()
		t.Cleanup(func() {
			_ = client.Close()
			<-done
		})
		return client, nil
	}
}

func TestRunFindsDifferences(t *testing.T) {
	right := func(call string) string {
		if strings.HasPrefix(strings.ToLower(call), "object idletime ") {
			return ":5\r\n"
		}
		switch name, _, _ := strings.Cut(strings.ToLower(call), " "); name {
		case "keys":
			return "*2\r\n$1\r\na\r\n$1\r\nb\r\n"
		case "ttl", "pttl":
			return ":5000\r\n"
		}
		return "+OK\r\n"
	}
	for _, c := range []struct {
		name        string
		got         func(call string) string
		differences int // of at most one
		excepted    bool
	}{
		{"equal", right, 0, false},
		{"other order", func(call string) string {
			return strings.Replace(right(call), "*2\r\n$1\r\na\r\n$1\r\nb\r\n", "*2\r\n$1\r\nb\r\n$1\r\na\r\n", 1)
		}, 0, false},
		{"other time", func(call string) string { return strings.Replace(right(call), ":5000", ":4999", 1) }, 0, false},
		{"much other time", func(call string) string { return strings.Replace(right(call), ":5000", ":4900", 1) }, 1,
			false},
		{"never expires", func(call string) string { return strings.Replace(right(call), ":5000", ":-1", 1) }, 1,
			false},
		{"other kind", func(call string) string { return strings.Replace(right(call), "+OK", "-OK", 1) }, 1, false},
		{"meant", func(call string) string {
			if strings.HasPrefix(strings.ToLower(call), "object idletime ") {
				return ":0\r\n"
			}
			return right(call)
		}, 0, true},
	} {
		r, err := Run(Options{Want: serve(t, right), Got: serve(t, c.got), Calls: 300, Seed: 1, Most: 1,
			DataOnly: true})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if min(1, len(r.Differences)) != c.differences ||
			r.Excepted["times of access are not kept"] > 0 != c.excepted || c.differences == 0 && r.Calls < 300 {
			t.Errorf("%s: %d calls, excepted %v, differences %v", c.name, r.Calls, r.Excepted, r.Differences)
		}
	}
}

// TestPlain: behind a write of the whole value the encoding and the references are compared; times of access never are.
func TestPlain(t *testing.T) {
	past := []Difference{{Call: toBytes([]string{"mset", "k", "75"}), Want: ReplyValue{Kind: '+', Text: []byte("OK")}}}
	for word, want := range map[string]bool{"encoding": true, "REFCOUNT": true, "idletime": false, "freq": false} {
		d := Difference{Call: toBytes([]string{"object", word, "k"})}
		if got := d.plain(past); got != want {
			t.Errorf("object %s: %t", word, got)
		}
	}
}

func TestRunEndsOnGarbage(t *testing.T) {
	for _, garbage := range []string{"OK\r\n", "$3\r\nab\r\n", ":x\r\n", "*1\r\n$1\r\nab\r\n", "+a\rb\r\n", "$-2\r\n",
		"$01\r\na\r\n"} {
		n := 0
		got := func(string) string {
			if n++; n == 20 {
				return garbage + "+OK\r\n"
			}
			return "+OK\r\n"
		}
		r, err := Run(Options{Want: serve(t, func(string) string { return "+OK\r\n" }), Got: serve(t, got), Calls: 10})
		if err == nil {
			t.Errorf("%q: no error, differences %v", garbage, r.Differences)
		}
	}
}

// TestSameSeedSameCalls: a seed names a sequence, and every key has the tag.
func TestSameSeedSameCalls(t *testing.T) {
	make1 := func(seed uint64) (calls [][]string) {
		g := CallGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), Tag: "{t}"}
		for range 1000 {
			if k := g.Key(); !strings.HasPrefix(k, "{t}") {
				t.Fatalf("key %q", k)
			}
			calls = append(calls, g.Calls(false)...)
		}
		return calls
	}
	if !reflect.DeepEqual(make1(5), make1(5)) {
		t.Error("one seed, two sequences")
	}
	if reflect.DeepEqual(make1(5), make1(6)) {
		t.Error("two seeds, one sequence")
	}
}

// TestNoDeadlinePasses: what a call that sets a deadline says is no time at all, has passed long ago, or does not pass
// while calls are compared.
func TestNoDeadlinePasses(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	g := CallGenerator{Rand: rand.New(rand.NewPCG(9401, 0))}
	times := 0
	check := func(call []string, unit, value string) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != value {
			return
		}
		times++
		soon, late := int64(1), int64(10_000) // seconds
		if strings.HasSuffix(unit, "at") {
			soon, late = 1_000_001, 10_000_000_000
		}
		if strings.HasPrefix(unit, "p") {
			late *= 1000
		}
		if n >= soon && n < late {
			t.Errorf("%q sets a deadline that may pass", call)
		}
	}
	for range 300_000 {
		for _, call := range slices.Concat(g.set(), g.getex(), g.Calls(true)) {
			for i := range call {
				call[i] = strings.ToLower(call[i])
			}
			switch name := call[0]; name {
			case "expire", "expireat", "pexpire", "pexpireat", "setex", "psetex":
				if len(call) > 2 {
					check(call, strings.NewReplacer("expire", "", "set", "", "ex", "").Replace(name), call[2])
				}
			case "set", "getex":
				for i := 2; i+1 < len(call); i++ {
					switch unit := call[i]; unit {
					case "ex", "px", "exat", "pxat":
						check(call, unit, call[i+1])
					}
				}
			}
		}
	}
	if times < 10_000 {
		t.Errorf("%d calls set a deadline", times)
	}
}

// TestHistory: a difference tells the calls before it that named its keys, and those alone.
func TestHistory(t *testing.T) {
	right := func(call string) string {
		switch call {
		case "command getkeys get a":
			return "*1\r\n$1\r\na\r\n"
		case "command getkeys keys *":
			return "-ERR no keys\r\n"
		case "keys *":
			return "*2\r\n$1\r\na\r\n$1\r\nb\r\n"
		}
		return "+OK\r\n"
	}
	wrong := func(call string) string {
		switch call {
		case "get a":
			return "+wrong\r\n"
		case "keys *":
			return "*1\r\n$1\r\na\r\n"
		}
		return right(call)
	}
	c, err := connect(Options{Want: serve(t, right), Got: serve(t, wrong)})
	if err != nil {
		t.Fatal(err)
	}
	calls := "set a 0\nflushall\n" + strings.Repeat("set a 1\n", historyCalls) + "set b 2\ncopy b a\nget a\nkeys *"
	if err := c.exchange("", parseCalls(calls, "")); err != nil || len(c.report.Differences) != 2 {
		t.Fatalf("%v, differences %v", err, c.report.Differences)
	}
	for i, want := range []string{strings.Repeat("[set a 1] ", historyCalls-1) + "[copy b a]", "[set b 2] [copy b a]"} {
		var got [][][]byte
		for _, p := range c.report.Differences[i].History {
			got = append(got, p.Call)
		}
		if text := strings.Trim(fmt.Sprintf("%s", got), "[]"); text != strings.Trim(want, "[]") {
			t.Errorf("%v:\nwant %s", c.report.Differences[i], want)
		}
	}
}

func TestParseCall(t *testing.T) {
	got, err := ParseCall(`  set "a \"b\x00"  {t}c ""`)
	if want := []string{"set", "a \"b\x00", "{t}c", ""}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if _, err := ParseCall(`set "a`); err == nil {
		t.Error("an open quote is no error")
	}
	if got := AppendCall(nil, []byte("get"), nil); string(got) != "*2\r\n$3\r\nget\r\n$0\r\n\r\n" {
		t.Errorf("%q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n%1\r\n:1\r\n,1.5\r\n"))
	f.Add([]byte("*1048576\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := Parse(b); err == nil && !v.Equal(v) && !bytes.Contains(b, []byte("nan")) {
			t.Errorf("%q does not equal itself", b)
		}
	})
}

// TestSilence: CLIENT REPLY takes replies away, and which ones is compared too.
func TestSilence(t *testing.T) {
	silent := func(loud string) func(call string) string {
		off := false
		return func(call string) string {
			switch call {
			case "client reply off":
				off = true
			case "client reply on":
				off = false
			}
			if off && call != loud {
				return ""
			}
			if text, ok := strings.CutPrefix(call, "echo "); ok {
				return "+" + text + "\r\n"
			}
			return "+OK\r\n"
		}
	}
	calls := parseCalls("client reply off\nset a 1\nget a\nclient reply on\nget a", "")
	for loud, differences := range map[string]int{"": 0, "get a": 1} {
		c, err := connect(Options{Want: serve(t, silent("")), Got: serve(t, silent(loud))})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.exchange("", calls); err != nil || len(c.report.Differences) != differences {
			t.Errorf("loud %q: %v, differences %v", loud, err, c.report.Differences)
		}
	}
}

// TestWithoutOrder compares replies whose pieces may come in any order, and random choices.
func TestWithoutOrder(t *testing.T) {
	parse := func(wire string) ReplyValue {
		t.Helper()
		v, err := Parse([]byte(strings.ReplaceAll(wire, " ", "\r\n") + "\r\n"))
		if err != nil {
			t.Fatalf("%q: %v", wire, err)
		}
		return v
	}
	const all = "*4 +a +1 +b +2"
	for _, c := range []struct {
		call, want, got string
		equal           bool
	}{
		{"hgetall k", all, "*4 +b +2 +a +1", true},
		{"hgetall k", all, "*4 +b +1 +a +2", false},
		{"hgetall k", "%2 +a +1 +b +2", "%2 +b +2 +a +1", true},
		{"hgetall k", "%2 +a +1 +b +2", "*4 +a +1 +b +2", false},
		{"HKEYS k", "*2 +a +b", "*2 +b +a", true},
		{"hmget k a b", "*2 +a +b", "*2 +b +a", false},
		{"hscan k 0", "*2 +0 " + all, "*2 +0 *4 +b +2 +a +1", true},
		{"hscan k 0", "*2 +0 " + all, "*2 +1 *4 +b +2 +a +1", false},
		{"hrandfield k", "+a", "+b", true},
		{"hrandfield k", "+a", "+c", false},
		{"hrandfield k", "+a", "_", false},
		{"hrandfield k 2", "*2 +a +b", "*2 +b +a", true},
		{"hrandfield k 2", "*2 +a +b", "*2 +b +b", false},
		{"hrandfield k 2", "*2 +a +b", "*1 +b", false},
		{"hrandfield k -2", "*2 +a +b", "*2 +b +b", true},
		{"hrandfield k 1 withvalues", "*2 +a +1", "*2 +b +2", true},
		{"hrandfield k 1 withvalues", "*2 +a +1", "*2 +b +1", false},
		{"hrandfield k 1 withvalues", "*1 *2 +a +1", "*1 *2 +b +2", true},
		{"hrandfield k 1 withvalues", "*1 *2 +a +1", "*2 +b +2", false},
		{"hrandfield k x", "-ERR", "-ERRR", false},
		{"hrandfield other 2", "*2 +a +b", "*2 +b +a", false}, // the call behind is about another key
	} {
		r := &comparison{report: Report{Excepted: map[string]int{}}}
		behind := &Difference{Call: toBytes([]string{"hgetall", "k"}), Want: parse(all), Got: parse(all)}
		r.compare(Difference{Call: toBytes(strings.Fields(c.call)), Want: parse(c.want), Got: parse(c.got),
			Behind: behind})
		if equal := len(r.report.Differences) == 0; equal != c.equal {
			t.Errorf("%s: %s and %s: equal %v, want %v", c.call, c.want, c.got, equal, c.equal)
		}
	}
}

// TestWhatFollowsFromCalls: answers that follow from the calls before them, or beside them, have to be those.
func TestWhatFollowsFromCalls(t *testing.T) {
	int1, int2 := "100000000000", "100000000001"
	for _, c := range []struct {
		before, call, behind string // call=reply, the same of both sides
		want, got            string
		equal                bool
	}{
		{"set k 1=+OK", "object encoding k", "", "$int", "$raw", false},
		{"set other 1=+OK", "object encoding k", "", "$int", "$raw", true},
		{"set k 1 nx get=$old", "object encoding k", "", "$int", "$raw", true},
		{"append k 1=:1", "object encoding k", "", "$int", "$raw", true},
		{"set k 1=+OK", "object refcount k", "", ":1", ":2", false},
		{"append k 1=:1", "object refcount k", "", ":1", ":2", true},
		{"del k=:0;hset k f v=:1;hset k g v=:1", "object encoding k", "", "$listpack", "$hashtable", false},
		{"del k=:0;hset k f v=:1;hdel k f=:1;hset k g v=:1", "object encoding k", "", "$listpack", "$hashtable", true},
		{"hset k f v=:1", "object encoding k", "", "$listpack", "$hashtable", true},
		{"", "randomkey", "keys *=*2 $a $b", "$a", "$b", true},
		{"", "randomkey", "keys *=*2 $a $b", "$a", "$c", false},
		{"", "randomkey", "keys *=*2 $a $b", "$a", "_", false},
		{"", "randomkey", "keys a=*1 $a", "$a", "$b", false},
		{"", "expiretime k", "", ":" + int1, ":" + int2, false},
		{"", "pexpiretime k", "", ":" + int1 + "000", ":" + int1 + "001", false},
		{"", "pexpiretime k", "", ":2000000000000", ":2000000000001", true},
		{"", "expiretime k", "", ":2000000000", ":2000000001", true},
		{"", "ttl k", "", ":" + int1, ":" + int2, true},
	} {
		parse := func(wire string) ReplyValue {
			t.Helper()
			var b []byte
			for _, word := range strings.Fields(wire) {
				if text, ok := strings.CutPrefix(word, "$"); ok {
					word = fmt.Sprintf("$%d\r\n%s", len(text), text)
				}
				b = append(append(b, word...), "\r\n"...)
			}
			v, err := Parse(b)
			if err != nil {
				t.Fatalf("%q: %v", wire, err)
			}
			return v
		}
		both := func(text string) Difference {
			call, reply, _ := strings.Cut(text, "=")
			return Difference{Call: toBytes(strings.Fields(call)), Want: parse(reply), Got: parse(reply)}
		}
		r := &comparison{report: Report{Excepted: map[string]int{}}}
		for _, text := range strings.FieldsFunc(c.before, func(r rune) bool { return r == ';' }) {
			r.past = append(r.past, both(text))
		}
		d := Difference{Call: toBytes(strings.Fields(c.call)), Want: parse(c.want), Got: parse(c.got)}
		if c.behind != "" {
			behind := both(c.behind)
			d.Behind = &behind
		}
		if equal := r.compare(d); equal != c.equal {
			t.Errorf("%s, %s, %s: %s and %s: equal %v, want %v", c.before, c.call, c.behind, c.want, c.got, equal,
				c.equal)
		}
	}
}

// TestScansToTheEnd: scans are the same if they return the same in the end, however they are cut, and whatever comes
// twice.
func TestScansToTheEnd(t *testing.T) {
	scan := func(parts ...string) func(call string) string { // the cursor of part i is i
		return func(call string) string {
			words := strings.Fields(call)
			i, err := strconv.Atoi(words[min(2, len(words)-1)])
			if err != nil {
				return "-ERR " + call + "\r\n"
			}
			elements := strings.Fields(parts[i])
			reply := fmt.Sprintf("*2\r\n+%d\r\n*%d\r\n", (i+1)%len(parts), len(elements))
			for _, e := range elements {
				reply += "+" + e + "\r\n"
			}
			return reply
		}
	}
	for _, c := range []struct {
		call      string
		want, got func(call string) string
		equal     bool
	}{
		{"sscan k 0 count 2", scan("a b c", "", "d"), scan("d b", "a", "c"), true},
		{"sscan k 0", scan("a b", "c"), scan("c b", "b", "a c"), true},
		{"sscan k 0", scan("a b", "c"), scan("b", "c"), false},
		{"sscan k 0", scan("a b"), scan("b", "a c"), false},
		{"sscan k 0", scan("a b"), func(string) string { return "-ERR no\r\n" }, false},
		{"sscan k x", scan("a b"), scan("c"), true},
		{"HSCAN k 0", scan("a 1 b 2", "c 3"), scan("b 2 c 3", "a 1 b 2"), true},
		{"hscan k 0", scan("a 1 b 2"), scan("b 1 a 2"), false},
		{"zscan k 0", scan("a 1 b 2"), scan("b 2 a 1", "a 3"), false},
	} {
		s, err := connect(Options{Want: serve(t, c.want), Got: serve(t, c.got)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.scan("", toBytes(strings.Fields(c.call))); err != nil || len(s.report.Differences) == 0 != c.equal {
			t.Errorf("%s: %v, differences %v, want equal %v", c.call, err, s.report.Differences, c.equal)
		}
	}
	s, err := connect(Options{Want: serve(t, scan("a")), Got: serve(t, func(string) string {
		return "*2\r\n+1\r\n*0\r\n"
	})})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.scan("", toBytes([]string{"sscan", "k", "0"})); err == nil {
		t.Error("a scan without end is no error")
	}
}
