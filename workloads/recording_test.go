package workloads

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestRecording(t *testing.T) {
	const text = `OK
1700000000.000100 [0 127.0.0.1:50000] "SET" "key" "a \"b\"\\\x00\xff\n\r\t\a\b"
1700000000.500100 [0 127.0.0.1:50001] "get" "key"
1700000001.000100 [3 unix:/tmp/a b.sock] "MSET" "{a}1" "" "{a}2" "x"
1700000001.000200 [0 127.0.0.1:50000] "AUTH" "(redacted)"
1700000001.000300 [0 lua] "incr" "n"
1699999999.000000 [0 127.0.0.1:50001] "PING"
+1700000002.000100 [0 127.0.0.1:50001] "EVAL" "return 1" "1" "k"
1700000002.000100 [0 127.0.0.1:50001] "XREAD" "BLOCK" "0" "STREAMS" "s" "0"
1700000003.000100 [0 127.0.0.1:50001] "XREAD" "STREAMS" "s" "0"
1700000003.000100 [0 127.0.0.1:50001] "OBJECT" "ENCODING" "o"
1700000003.000100 [0 127.0.0.1:50001] "FROBNICATE" "x"
1700000003.000100 [0 127.0.0.1:50001] "EVAL" "return 1" "0"`
	want := []string{
		`0s 0 set "key" ["SET" "key" "a \"b\"\\\x00\xff\n\r\t\a\b"]`,
		`500ms 1 get "key" ["get" "key"]`,
		`1s 2 mset "{a}1" ["MSET" "{a}1" "" "{a}2" "x"]`,
		`1.0002s 1 ping "" ["PING"]`,
		`2s 1 eval "k" ["EVAL" "return 1" "1" "k"]`,
		`3s 1 xread "s" ["XREAD" "STREAMS" "s" "0"]`,
		`3s 1 object "o" ["OBJECT" "ENCODING" "o"]`,
		`3s 1 eval "" ["EVAL" "return 1" "0"]`,
	}
	r := NewRecording("m.txt", strings.NewReader(text))
	for i := 0; ; i++ {
		x, err := r.Next()
		if err == io.EOF && i == len(want) {
			break
		}
		if err != nil || i == len(want) {
			t.Fatalf("command %d: %+v, %v", i, x, err)
		}
		if got := fmt.Sprintf("%s %d %s %q %q", x.At, x.Client, x.Name, x.Key, x.Args); got != want[i] {
			t.Errorf("command %d: %s, want %s", i, got, want[i])
		}
	}
	if got := fmt.Sprint(r.Skipped()); got != "map[auth:1 by scripts:1 frobnicate:1 xread:1]" {
		t.Errorf("left out %s", got)
	}
}

func TestRecordingFacts(t *testing.T) {
	const good = `1.000000 [0 a] "SET" "k" "v"` + "\n" + `3.500000 [0 b] "GET" "k"` + "\n" + `4.000000 [0 b] "QUIT"` + "\n"
	f, err := ReadFacts("m.txt", strings.NewReader(good))
	if err != nil || f.Commands != 2 || f.Clients != 2 || f.Skipped["quit"] != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	for text, want := range map[string]string{
		good + "x\n" + good + "y": `m.txt:4: "x" is no line of MONITOR: want a time, [database client], and a command ` +
			`in quotes` + "\n" + `m.txt:8: "y" is no line of MONITOR: want a time, [database client], and a command in quotes`,
		"": "m.txt: no command to send",
	} {
		if _, err := ReadFacts("m.txt", strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for i, op := range Replay("x").Ops {
		if ReplayOp(op.Name) != i || i > 255 {
			t.Errorf("operation %d is %s", i, op.Name)
		}
	}
}

func TestRecordingRefused(t *testing.T) {
	for text, want := range map[string]string{
		"hello":                           `m.txt:1: "hello" is no line of MONITOR`,
		`1.000000 [0 a] SET`:              "m.txt:1: want words in double quotes",
		`1.000000 [0 a] "SET`:             "m.txt:1: want words in double quotes",
		`1.000000 [0 a] "SET"  "k"`:       "m.txt:1: want words in double quotes",
		`1.000000 [0 a] "SET" `:           "m.txt:1: want words in double quotes",
		"OK\n" + `1.000000 [0 a] ""`:      "m.txt:2: no command",
		`1.000000 [0 a] "SET" "\xg0"`:     "m.txt:1: want words in double quotes",
		`x.000000 [0 a] "SET"`:            `m.txt:1: time "x.000000"`,
		`1.5 [0 a] "SET"`:                 `m.txt:1: time "1.5"`,
		`-1.000000 [0 a] "SET"`:           `m.txt:1: time "-1.000000"`,
		"+OK\n" + `1.000000 [0 a] "SET\`:  "m.txt:2: ",
		`1.000000 [0 a] "SET" "k" "\x0`:   "m.txt:1: want words in double quotes",
		strings.Repeat("x", maxFile) + "": "is no line of MONITOR",
	} {
		_, err := NewRecording("m.txt", strings.NewReader(text)).Next()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
}

// endlessLine is a line without an end.
type endlessLine struct{ read int }

func (e *endlessLine) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	if e.read += len(b); e.read > 2*maxRecordedLine {
		return 0, fmt.Errorf("read %d bytes of a line", e.read)
	}
	return len(b), nil
}

func TestRecordingWithoutEnd(t *testing.T) {
	if _, err := NewRecording("m.txt", &endlessLine{}).Next(); err == nil ||
		err.Error() != fmt.Sprintf("m.txt:1: more than %d bytes", maxRecordedLine) {
		t.Error(err)
	}
}

func FuzzRecording(f *testing.F) {
	f.Add(`1700000000.000100 [0 127.0.0.1:50000] "SET" "key" "a \"b\"\\\x00\xff\n"`)
	f.Fuzz(func(t *testing.T, text string) {
		r := NewRecording("m.txt", strings.NewReader(text))
		last := time.Duration(0)
		for {
			x, err := r.Next()
			if err != nil {
				return
			}
			if x.At < last || len(x.Args) == 0 {
				t.Fatalf("%+v behind %s", x, last)
			}
			last = x.At
		}
	})
}
