package server

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/session"
	"neokv.dev/neokv/settings"
)

// infoLines are the lines of one section of INFO by their names.
func infoLines(t *testing.T, c net.Conn, section string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(ask(t, c, "info "+section)) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// TestCallsAreCounted: made, rejected and failed calls, errors by their word, and what CONFIG RESETSTAT leaves of them.
func TestCallsAreCounted(t *testing.T) {
	_, dial := start(t, Options{Self: 1})
	c := dial()
	for _, request := range []string{"ping", "ping a", "PING a b", "ping", "echo", "nope", "get", "get " + key(1),
		"client setname x", "client nope", "latency graph x", "command count"} {
		ask(t, c, request)
	}
	send(c, "ping\r\nping\r\necho a\r\n")
	r := bufio.NewReader(c)
	for range 3 {
		readReply(t, r)
	}
	stats := infoLines(t, c, "commandstats")
	for name, want := range map[string]string{
		"ping": "calls=6 rejected_calls=0 failed_calls=1", "echo": "calls=1 rejected_calls=1 failed_calls=0",
		"get": "calls=0 rejected_calls=2 failed_calls=0", "client|setname": "calls=1 rejected_calls=0 failed_calls=0",
		"latency|graph": "calls=1 rejected_calls=0 failed_calls=1",
	} {
		var calls, usec, rejected, failed int
		var mean float64
		if _, err := fmt.Sscanf(stats["cmdstat_"+name],
			"calls=%d,usec=%d,usec_per_call=%f,rejected_calls=%d,failed_calls=%d", &calls, &usec, &mean, &rejected,
			&failed); err != nil {
			t.Errorf("%s: %q: %v", name, stats["cmdstat_"+name], err)
		}
		if got := fmt.Sprintf("calls=%d rejected_calls=%d failed_calls=%d", calls, rejected, failed); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := infoLines(t, c, "errorstats"); len(got) != 2 || got["errorstat_ERR"] != "count=6" ||
		got["errorstat_MOVED"] != "count=1" {
		t.Errorf("errors: %v", got)
	}
	if got := infoLines(t, c, "stats")["total_error_replies"]; got != "7" {
		t.Errorf("error replies: %s, want 7", got)
	}
	if got := infoLines(t, c, "latencystats"); got["latency_percentiles_usec_ping"] == "" ||
		got["latency_percentiles_usec_get"] != "" {
		t.Errorf("latencies: %v", got)
	}
	if got := ask(t, c, "latency histogram ping get nope"); !strings.HasPrefix(got,
		"*2\r\n$4\r\nping\r\n*4\r\n$5\r\ncalls\r\n:6\r\n$14\r\nhistogram_usec\r\n") ||
		!strings.HasSuffix(got, ":6\r\n") {
		t.Errorf("histogram: %q", got)
	}
	ask(t, c, "config resetstat")
	if got := infoLines(t, c, "commandstats"); len(got) != 1 ||
		!strings.HasPrefix(got["cmdstat_config|resetstat"], "calls=1,") {
		t.Errorf("after CONFIG RESETSTAT: %v", got)
	}
	if got := infoLines(t, c, "errorstats"); len(got) != 0 {
		t.Errorf("errors after CONFIG RESETSTAT: %v", got)
	}
}

// TestCountsOfTheNodeAreReset: INFO shows the node's counts since CONFIG RESETSTAT, and all of them once the node has
// begun to count anew.
func TestCountsOfTheNodeAreReset(t *testing.T) {
	n := &fakeNode{}
	_, dial := start(t, Options{Node: n})
	c := dial()
	for _, step := range []struct {
		counted int64
		reset   bool
		want    string
	}{{7, false, "7"}, {7, true, "0"}, {9, false, "2"}, {9, true, "0"}, {3, false, "3"}} {
		n.info = []Section{{Name: "Stats", Counts: []Count{{"keyspace_hits", step.counted}}}}
		if step.reset {
			ask(t, c, "config resetstat")
		}
		if got := infoLines(t, c, "stats")["keyspace_hits"]; got != step.want {
			t.Errorf("%+v: keyspace_hits is %s", step, got)
		}
	}
}

// TestHistogram: the percentiles of random durations, against those that sorting tells.
func TestHistogram(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var h histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(rng.Uint64() >> (29 + rng.IntN(35)))
		all = append(all, d)
		h[bucketOf(d)].Add(1)
	}
	slices.Sort(all)
	now := h.load()
	for _, permille := range []uint64{0, 10, 500, 990, 999, 1000} {
		want := float64(all[max(1, permille*uint64(len(all))/1000)-1])
		if got := float64(now.percentile(permille)); got < want || got > want*(1+1./bucketsOfTwo)+1 {
			t.Errorf("seed %d: percentile %v is %v, want %v", seed, float64(permille)/10, got, want)
		}
	}
	var ranks histogram // of 9990 calls of 1 ns and 10 of 20 ns the 9990th is the percentile 99.9
	ranks[bucketOf(1)].Add(9990)
	ranks[bucketOf(20)].Add(10)
	for permille, want := range map[uint64]uint64{999: 1, 1000: 20} {
		if got := ranks.load().percentile(permille); got != want {
			t.Errorf("percentile %v of 9990 calls of 1 ns and 10 of 20 ns is %d ns, want %d", float64(permille)/10, got,
				want)
		}
	}
	last := -1
	for i := range buckets - 1 {
		if end := bucketEnd(i); bucketOf(time.Duration(end)) != i || bucketOf(time.Duration(end+1)) != i+1 ||
			int(end) <= last {
			t.Fatalf("bucket %d ends at %d", i, end)
		}
	}
	if got := bucketOf(1 << 62); got != buckets-1 {
		t.Errorf("the longest is in bucket %d", got)
	}
}

// TestRates: commands per second are those of the last seconds, whenever INFO is asked.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := serve(t, Options{Settings: settings.Default()})
		defer stop()
		c := dial()
		load := func(every time.Duration, n int) {
			for range n {
				time.Sleep(every)
				ask(t, c, "ping")
			}
		}
		rate := func() int {
			var n int
			fmt.Sscan(infoLines(t, c, "stats")["instantaneous_ops_per_sec"], &n)
			return n
		}
		load(10*time.Millisecond, 1000)
		if n := rate(); n < 95 || n > 105 {
			t.Errorf("%d per second, want 100", n)
		}
		time.Sleep(time.Hour)
		if n := rate(); n > 1 {
			t.Errorf("%d per second after an hour without any", n)
		}
		load(time.Millisecond, 1000)
		if n := rate(); n < 900 || n > 1100 {
			t.Errorf("%d per second, want 1000", n)
		}
	})
}

// TestMonitor: what other clients run comes in order, until RESET. A monitor that does not read is closed and holds
// nobody up.
func TestMonitor(t *testing.T) {
	s, dial := start(t, Options{Self: 1})
	c, watcher := dial(), dial()
	if got := ask(t, watcher, "monitor"); got != "+OK\r\n" {
		t.Fatalf("%q", got)
	}
	lines := bufio.NewReader(watcher)
	for _, x := range []struct{ request, want string }{
		{"ping a", `"ping" "a"`}, {"client setname x", `"client" "setname" "x"`},
		{"auth default secret", `"auth" "(redacted)" "(redacted)"`}, {"config set requirepass ''", ""}, {"nope", ""},
		{"echo", ""}, {"echo '\"'", `"echo" "\""`}, {"get " + key(1), ""},
		{"echo " + strings.Repeat("a", monitorArgBytes+5),
			`"echo" "` + strings.Repeat("a", monitorArgBytes) + `"... (5 more bytes)`},
	} {
		ask(t, c, x.request)
		if x.want == "" {
			continue
		}
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasSuffix(line, " [0 pipe:0] "+x.want+"\r\n") {
			t.Errorf("%.40q: %q, %v; want %q", x.request, line, err, x.want)
		}
	}
	if got := ask(t, c, "client list"); !strings.Contains(got, "flags=O ") {
		// An administrator's command: it is not shown.
		t.Errorf("CLIENT LIST: %q", got)
	}
	send(watcher, "get a\r\nreset\r\n")
	ended := make(chan struct{})
	go func() { // until the monitor is none
		defer close(ended)
		for s.monitors.all.Load() != nil {
			ask(t, c, "ping")
		}
	}()
	var got []string
	for got = append(got, readReply(t, lines)); got[len(got)-1] != "+RESET\r\n"; got = append(got,
		readReply(t, lines)) {
	}
	<-ended
	if !slices.Contains(got, "-ERR Replica can't interact with the keyspace\r\n") {
		t.Errorf("a monitor may read keys: %q", got)
	}
	if got := ask(t, watcher, "echo b"); got != "$1\r\nb\r\n" {
		t.Errorf("after RESET: %q", got)
	}
}

// writeSeen is a connection that calls a function before each write.
type writeSeen struct {
	net.Conn
	write func(b []byte)
}

func (c writeSeen) Write(b []byte) (int, error) {
	c.write(b)
	return c.Conn.Write(b)
}

// TestMonitorMissesNothing: a client that has read its +OK gets the commands that others send from then on.
func TestMonitorMissesNothing(t *testing.T) {
	s, _ := start(t, Options{})
	here, there := net.Pipe()
	defer here.Close()
	s.Take(writeSeen{there, func(b []byte) {
		if s.monitors.all.Load() == nil {
			t.Errorf("the server sends %q, and does not send commands yet", b)
		}
	}})
	if got := ask(t, here, "monitor"); got != "+OK\r\n" {
		t.Errorf("%q", got)
	}
}

// TestSlowCallsTakeNoMemory: under load every write may be slow.
func TestSlowCallsTakeNoMemory(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := &conn{nc: here}
	c.info.Store(&session.Info{})
	var l slowLog
	l.length.Store(4)
	cmds := []command{{row: commands.Lookup([]byte("ping")), args: [][]byte{[]byte("PING"), []byte("a")}},
		{row: commands.Lookup([]byte("echo")), args: [][]byte{[]byte("ECHO"), []byte(strings.Repeat("x", slowArgBytes))}}}
	add := func() { l.add(c, cmds, time.Time{}, time.Second) }
	for range 4 {
		add()
	}
	if n := testing.AllocsPerRun(100, add); n > 0 {
		t.Errorf("%g allocations for a call that is kept", n)
	}
}
