package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
)

// memoryServer is a plain server on connections in memory, for bubbles of virtual time. Every command takes the time
// that delay says when it arrives; a negative one closes the connection.
type memoryServer struct {
	delay func(at time.Duration) time.Duration
	reply func(at time.Duration) string // in place of the right answer, unless it is ""
	start time.Time
	dials time.Duration // how long a connection takes to be made

	mu      sync.Mutex
	data    map[string]string
	past    map[string]string // what keys held before the last write
	refu    bool              // refuse connections
	info    map[string]string // sections of INFO beyond the first
	scripts map[string]string // the texts that EVAL has brought, by SHA1
	last    string            // the last element that was pushed
	calls   [][]any           // of EVAL and EVALSHA
	wg      sync.WaitGroup
}

func newMemory(delay func(at time.Duration) time.Duration) *memoryServer {
	return &memoryServer{delay: delay, start: time.Now(), data: map[string]string{}, past: map[string]string{},
		info: map[string]string{}, scripts: map[string]string{}}
}

func (m *memoryServer) dial(context.Context, string) (net.Conn, error) {
	time.Sleep(m.dials)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refu {
		return nil, errors.New("connection refused")
	}
	client, server := net.Pipe()
	m.wg.Go(func() { m.serve(server) })
	return client, nil
}

func (m *memoryServer) refuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refu = true
}

func (m *memoryServer) serve(nc net.Conn) {
	defer nc.Close()
	c := &loadConn{epoch: m.start, timeout: time.Hour}
	c.attach(nc)
	var tx memoryTransaction
	for {
		v, err := c.value(maxDepth)
		if err != nil {
			return
		}
		d, answer := m.delay(c.now()), ""
		if m.reply != nil {
			answer = m.reply(c.now())
		}
		if d < 0 {
			return
		}
		time.Sleep(d)
		if answer == "" {
			answer = tx.answer(m, v.([]any))
		}
		if _, err := nc.Write([]byte(answer)); err != nil {
			return
		}
	}
}

// memoryTransaction is what the server knows of transactions on a connection.
type memoryTransaction struct {
	open    bool
	queued  [][]any
	watched map[string]string // what a key held
}

func (tx *memoryTransaction) answer(m *memoryServer, args []any) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case args[0] == "WATCH":
		if tx.watched == nil {
			tx.watched = map[string]string{}
		}
		key := args[1].(string)
		tx.watched[key] = m.data[key]
		return "+OK\r\n"
	case args[0] == "MULTI":
		tx.open = true
		return "+OK\r\n"
	case args[0] == "EXEC":
		queued, answers := tx.queued, fmt.Sprintf("*%d\r\n", len(tx.queued))
		for key, held := range tx.watched {
			if m.data[key] != held {
				queued, answers = nil, "*-1\r\n"
			}
		}
		for _, q := range queued {
			answers += m.answer(q)
		}
		*tx = memoryTransaction{}
		return answers
	case tx.open:
		tx.queued = append(tx.queued, args)
		return "+QUEUED\r\n"
	}
	return m.answer(args)
}

func (m *memoryServer) answer(args []any) string {
	if len(args) > 1 {
		m.remember(args[0].(string), args[1].(string))
	}
	switch args[0] {
	case "FLUSHALL":
		clear(m.data)
		return "+OK\r\n"
	case "INFO":
		if len(args) > 1 {
			section := m.info[args[1].(string)]
			return fmt.Sprintf("$%d\r\n%s\r\n", len(section), section)
		}
		const info = "# Server\r\nredis_version:7.0.99\r\n# Cluster\r\ncluster_enabled:0\r\n"
		return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
	case "COMMAND":
		return "-ERR unknown command 'COMMAND'\r\n"
	case "EVAL", "EVALSHA":
		sha, brings := args[1].(string), args[0] == "EVAL"
		if brings {
			sum := sha1.Sum([]byte(sha))
			text := sha
			sha = hex.EncodeToString(sum[:])
			m.scripts[sha] = text
		} else if m.scripts[sha] == "" {
			return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
		}
		m.calls = append(m.calls, args)
		return ":1\r\n"
	case "SET":
		m.data[args[1].(string)] = args[2].(string)
		return "+OK\r\n"
	case "GET":
		if v, ok := m.data[args[1].(string)]; ok {
			return fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
		}
		return "$-1\r\n"
	}
	return m.other(args)
}

// other answers what workloads beside GET and SET send.
func (m *memoryServer) other(args []any) string {
	key := args[1].(string)
	v, there := m.data[key]
	n := 0
	switch args[0] {
	case "EXISTS", "DEL":
		if there {
			n = 1
		}
		if args[0] == "DEL" {
			delete(m.data, key)
		}
		return fmt.Sprintf(":%d\r\n", n)
	case "INCR":
		n, _ = strconv.Atoi(v)
		m.data[key] = strconv.Itoa(n + 1)
		return fmt.Sprintf(":%d\r\n", n+1)
	case "MGET":
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(args)-1)
		for _, k := range args[1:] {
			if v, there := m.data[k.(string)]; there {
				fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(v), v)
			} else {
				b.WriteString("$-1\r\n")
			}
		}
		return b.String()
	}
	return m.collection(args)
}

// collection answers what workloads of collections send. Elements of hashes and sorted sets are kept under key and
// name, of the others only how many there are, under the key; removing a key leaves the former.
func (m *memoryServer) collection(args []any) string {
	key := args[1].(string)
	n, _ := strconv.Atoi(m.data[key])
	element := func(name any) string { return key + " " + name.(string) }
	switch command := args[0]; command {
	case "HSET", "ZADD":
		name, value := 0, 1
		if command == "ZADD" {
			name, value = 1, 0
		}
		for rest := args[2:]; len(rest) >= 2; rest = rest[2:] {
			at := element(rest[name])
			m.past[at] = m.data[at]
			m.data[at] = rest[value].(string)
		}
		return ":0\r\n"
	case "HGET", "ZSCORE", "ZREVRANK":
		if v, there := m.data[element(args[2])]; there {
			return fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
		}
		return "$-1\r\n"
	case "RPUSH", "LPUSH", "SADD":
		m.data[key] = strconv.Itoa(n + len(args) - 2)
		m.last = args[len(args)-1].(string)
		return fmt.Sprintf(":%d\r\n", len(args)-2)
	case "BRPOP":
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(m.last), m.last)
	case "LPOP", "SPOP", "ZPOPMIN":
		if n == 0 && command == "ZPOPMIN" {
			return "*0\r\n"
		} else if n == 0 {
			return "$-1\r\n"
		}
		m.data[key] = strconv.Itoa(n - 1)
		return "$1\r\nx\r\n"
	case "LLEN", "SCARD", "SISMEMBER":
		return fmt.Sprintf(":%d\r\n", n)
	case "HGETALL", "SMEMBERS", "LRANGE", "ZREVRANGE":
		return "*1\r\n$1\r\nx\r\n"
	}
	return fmt.Sprintf("-ERR unknown command '%s'\r\n", args[0])
}

// remember keeps what a key held before a write.
func (m *memoryServer) remember(command, key string) {
	switch command {
	case "SET", "DEL", "INCR", "RPUSH", "LPUSH", "SADD", "LPOP", "SPOP":
		m.past[key] = m.data[key]
	}
}

// loseWrites brings one key of n back to what it held before its last write.
func (m *memoryServer) loseWrites(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := 0
	for _, key := range slices.Sorted(maps.Keys(m.past)) {
		if i++; i%n != 0 {
			continue
		}
		if m.data[key] = m.past[key]; m.data[key] == "" {
			delete(m.data, key)
		}
	}
}

// usual gives a test's options what the test does not care about.
func usual(o Options) Options {
	o.Seed = cmp.Or(o.Seed, 1)
	o.Groups = slices.Clone(o.Groups)
	for i := range o.Groups {
		g := &o.Groups[i]
		g.Clients, g.Pipeline, g.Elements = cmp.Or(g.Clients, 50), cmp.Or(g.Pipeline, 1), cmp.Or(g.Elements, 10)
		g.Records, g.ValueSize = cmp.Or(g.Records, 100_000), cmp.Or(g.ValueSize, 1000)
	}
	o.Duration = cmp.Or(o.Duration, 30*time.Second)
	return o
}

// inBubble runs a benchmark against a memory server in virtual time and reads its record back.
func inBubble(t *testing.T, m *memoryServer, ctx context.Context, o Options) (results.Summary, *results.Result, error) {
	t.Helper()
	if o.Targets == nil {
		o.Targets = []string{"memory:1"}
	}
	o.Dial = m.dial
	for i := range o.Groups {
		o.Groups[i].ValueSize = 10
	}
	o = usual(o)
	var buf bytes.Buffer
	s, runErr := Run(ctx, o, results.NewWriter(&buf))
	m.wg.Wait() // every connection was closed
	rec, err := results.Read(&buf)
	if err != nil {
		t.Fatalf("record: %v", err)
	}
	if rec.Summary == nil || len(rec.Warnings) > 0 {
		t.Fatalf("record is not whole: %v", rec.Warnings)
	}
	return s, rec, runErr
}

// above counts the values of a histogram above a bound.
func above(t *testing.T, l *results.Latency, bound time.Duration) (n int64) {
	t.Helper()
	if l == nil {
		t.Fatal("no latency recorded")
	}
	d, err := l.Distribution()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range d.Waited().Distribution() {
		if b.From > bound.Microseconds() {
			n += b.Count
		}
	}
	return n
}

// A server that stalls for two seconds delays every operation scheduled meanwhile, and response time says so; service
// time shows the stall only for the operations that were under way.
func TestOpenLoopShowsStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, rate = 4, 100
		from, to := 3*time.Second, 5*time.Second
		m := newMemory(func(at time.Duration) time.Duration {
			if at >= from && at < to {
				return to - at
			}
			return time.Millisecond
		})
		s, rec, err := inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "set", Clients: clients, Rate: Steady(rate), Records: 1000}},
				Duration: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		g := s.Groups[0]
		if want := int64(10 * rate); g.Total.Count != want || g.Ledger.Dropped != 0 || len(g.Kinds) != 0 {
			t.Errorf("%d operations, %d unsent, errors %v, want %d, none, none: no operation is skipped", g.Total.Count,
				g.Ledger.Dropped, g.Kinds, want)
		}
		// Scheduled 500 ms before the stall's end or earlier: 1.5 s of operations. What waits for its client's backlog
		// adds a few.
		if n := above(t, s.Groups[0].Total.Response, 500*time.Millisecond); n < 145 || n > 165 {
			t.Errorf("response time: %d operations above 500 ms, want about 150", n)
		}
		if n := above(t, &s.Groups[0].Total.Service, 500*time.Millisecond); n != clients {
			t.Errorf("service time: %d operations above 500 ms, want %d", n, clients)
		}
		if top := time.Duration(s.Groups[0].Total.Response.Max.US) * time.Microsecond; top < 1900*time.Millisecond ||
			top > 2100*time.Millisecond {
			t.Errorf("response time: at most %s, want about 2s", top)
		}
		if s.Groups[0].Total.Service.P50.US > 1100 || s.Groups[0].Total.Service.P50.US < 900 {
			t.Errorf("service time: median %d us, want 1000", s.Groups[0].Total.Service.P50.US)
		}
		// The stall's second shows a backlog, the last none, and the seconds add up.
		var sum, behind int64
		for _, iv := range rec.Intervals {
			sum += iv.Groups[0].Total.Count
			behind = max(behind, iv.Groups[0].Ledger.Behind)
		}
		last := rec.Intervals[len(rec.Intervals)-1].Groups[0].Ledger
		if sum != g.Total.Count || behind < 100 || last.Behind != 0 {
			t.Errorf("intervals add up to %d of %d, at most %d behind, %d at the end", sum, g.Total.Count, behind,
				last.Behind)
		}
		if len(rec.Intervals) != 10 {
			t.Errorf("%d intervals, want 10", len(rec.Intervals))
		}
	})
}

// The example of coordinated omission in the README of wrk2, at another scale: a server that answers in a millisecond
// and stalls once for 200 ms. The client then has a backlog, of which it sends two operations while one more is due. So
// an operation that is due x after the stall's beginning waits for 200 ms - x/2, until x is 400 ms: at 500 per second
// these are two hundred. Response time shows each of them, service time only the one that was sent.
func TestCoordinatedOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, stall = 500, 200 * time.Millisecond
		from := 3 * time.Second
		m := newMemory(func(at time.Duration) time.Duration {
			if at >= from && at < from+stall {
				return from + stall - at
			}
			return time.Millisecond
		})
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 1, Rate: Steady(rate), Records: 1000}},
			Duration: 10 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		g := s.Groups[0].Total
		for _, bound := range []time.Duration{150 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond} {
			want := rate * 2 * (stall - bound).Milliseconds() / 1000
			if n := above(t, g.Response, bound); n < want-2 || n > want+2 {
				t.Errorf("response time: %d operations above %s, want %d", n, bound, want)
			}
			if n := above(t, &g.Service, bound); n != 1 {
				t.Errorf("service time: %d operations above %s, want 1", n, bound)
			}
		}
		if g.Count != 10*rate || g.Response.P99.US < 100_000 || g.Service.P99.US > 1100 {
			t.Errorf("%d operations, response p99 %d us, service p99 %d us; want the stall in the first alone", g.Count,
				g.Response.P99.US, g.Service.P99.US)
		}
	})
}

// A pipeline lets a client catch up faster, and counts each operation from its own intended start.
func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return 100 * time.Millisecond })
		var last Tick
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 1, Rate: Steady(100), Records: 10}},
			Duration: 5 * time.Second,
			Progress: func(tick Tick) { last = tick },
		})
		if err != nil {
			t.Fatal(err)
		}
		// 10 a second for five seconds, and for one more to drain.
		g := s.Groups[0]
		if g.Total.Count < 58 || g.Total.Count > 62 || g.Ledger.Offered != 500 ||
			g.Ledger.InFlight > 1 || g.Ledger.Dropped < 438 {
			t.Errorf("%d operations, %+v, want about 60, and 500 offered", g.Total.Count, g.Ledger)
		}
		if last.Behind < 400 || !strings.Contains(last.String(), "behind") {
			t.Errorf("the last tick says %q", last)
		}
	})
}

// Warm-up is written down and not summed up.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(at time.Duration) time.Duration {
			if at < 1500*time.Millisecond {
				return 300 * time.Millisecond
			}
			return 10 * time.Millisecond
		})
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 2, Records: 10}},
			Duration: 2500 * time.Millisecond, Warmup: 2 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		g := s.Groups[0]
		if g.Total.Service.Max.US > 11_000 || g.Total.Count < 496 || g.Total.Count > 504 || s.Seconds < 2.5 ||
			s.Seconds > 2.52 {
			t.Errorf("summary of the run: %d operations in %g s, at most %d us", g.Total.Count, s.Seconds,
				g.Total.Service.Max.US)
		}
		var phases []string
		warm := results.Latency{}
		for _, iv := range rec.Intervals {
			phases = append(phases, fmt.Sprintf("%s %g+%.1f", iv.Phase, iv.Since, iv.Seconds))
			if iv.Phase == results.PhaseWarmup {
				warm.Max.US = max(warm.Max.US, iv.Groups[0].Total.Service.Max.US)
			}
		}
		if want := "warmup 0+1.0, warmup 1+1.0, run 0+1.0, run 1+1.0, run 2+0.5"; strings.Join(phases, ", ") != want ||
			warm.Max.US < 290_000 {
			t.Errorf("intervals %v, want %s; warm-up at most %d us", phases, want, warm.Max.US)
		}
	})
}

// The record of a long run stays bounded: its intervals are longer, while progress and the watch over the target go on
// each second.
func TestLongRun(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{
		time.Second: time.Second, time.Hour: time.Second, time.Hour + 1: 2 * time.Second,
		2 * time.Hour: 2 * time.Second, maxDuration: 168 * time.Second, 0: time.Second,
	} {
		if got := new(run).intervalOf(&phaseSegment{length: length}); got != want {
			t.Errorf("intervals of %s in %s, want %s", got, length, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		ticks, seconds := 0, int64(0)
		s, rec, err := inBubble(t, m, ctx, Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 1, Rate: Steady(50), Records: 10}},
			Duration: 2 * time.Hour, Progress: func(tick Tick) {
				if ticks++; ticks <= 2 {
					seconds += tick.Interval.Groups[0].Ledger.Offered
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		if iv := rec.Intervals[3]; len(rec.Intervals) != 5 || iv.Seconds < 2 || iv.Seconds > 2.01 || iv.Since != 6 ||
			ticks != 10 || seconds != rec.Intervals[0].Groups[0].Ledger.Offered {
			t.Errorf("%d intervals, %d ticks, the fourth %+v", len(rec.Intervals), ticks, iv)
		}
	})
}

func TestConnectionsLostAndMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 3
		m := newMemory(func(at time.Duration) time.Duration {
			if at > 2*time.Second && at < 2100*time.Millisecond { // the load phase takes one
				return -1
			}
			return 10 * time.Millisecond
		})
		s, _, err := inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "ycsb-a", Clients: clients, Records: 100}},
				Duration: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		// 10 ms, 20, 40, 80 between the attempts of each client, in a tenth of a second.
		if n := s.Groups[0].Kinds[kindConnection]; n < clients || n > 6*clients {
			t.Errorf("errors %v, want %d to %d of kind %s", s.Groups[0].Kinds, clients, 6*clients, kindConnection)
		}
		g := s.Groups[0]
		if g.Total.Unanswered != g.Kinds[kindConnection] || s.FirstErrors[kindConnection] == "" {
			t.Errorf("%d unanswered in total, kinds %v, first %v", g.Total.Unanswered, g.Kinds, s.FirstErrors)
		}
		if s.Groups[0].Total.Count < 800 || s.Groups[0].Ops[0].Misses > 0 {
			t.Errorf("%d operations, %d misses", s.Groups[0].Total.Count, s.Groups[0].Ops[0].Misses)
		}
	})
}

// The load phase repeats what failed until every record is there.
func TestLoadRepeatsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		m := newMemory(nil)
		m.delay = func(time.Duration) time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			if n++; n%7 == 0 {
				return -1
			}
			return time.Millisecond
		}
		s, _, err := inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "get", Clients: 2, Records: 50, Pipeline: 1}},
				Duration: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		g := s.Groups[0]
		if g.Inserted == nil || g.Inserted.Insert.Count != 50 || g.Inserted.Kinds[kindConnection] == 0 ||
			len(m.data) != 50 {
			t.Errorf("inserted %+v; %d keys", g.Inserted, len(m.data))
		}
		if s.Groups[0].Total.Misses > 0 {
			t.Errorf("%d misses after the load", s.Groups[0].Total.Misses)
		}
	})
}

// The generator closes its connections when a step ends with an operation in flight. The next step begins with new
// ones, for which no operation waits, and the target has no errors for it.
func TestStepsBeginConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		m.dials = 50 * time.Millisecond
		n := 0
		m.delay = func(time.Duration) time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			if n++; n%100 == 0 {
				return 4 * time.Second // in flight when the step ends
			}
			return time.Millisecond
		}
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups: []GroupOptions{
				{Workload: "set", Clients: 200, Rate: pace("steps 200..800 by 200 every 1s"), Records: 10},
			},
			Search: &RateSearch{Curve: true, Step: time.Second},
		})
		if err != nil || len(s.Curve.Rows) != 4 {
			t.Fatalf("%d steps, %v", len(s.Curve.Rows), err)
		}
		for _, row := range s.Curve.Rows {
			if row.Ledger.InFlight == 0 || row.Ledger.Errors+row.Ledger.Unknown > 0 {
				t.Errorf("at %g: %+v, errors %v; want operations in flight, and no errors", row.Rate, row.Ledger,
					row.Kinds)
			}
		}
		m.delay = func(time.Duration) time.Duration { return time.Millisecond }
		if s, _, err = inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 20, Rate: Steady(1000), Records: 10}},
			Duration: time.Second,
		}); err != nil || s.Groups[0].Total.Response.Max.US > 2000 {
			t.Errorf("%v: an operation took %d us, want 1000: the first ones wait for connections", err,
				s.Groups[0].Total.Response.Max.US)
		}
	})
}

func TestTargetDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(at time.Duration) time.Duration {
			if at > time.Second {
				return -1
			}
			return time.Millisecond
		})
		go func() {
			time.Sleep(time.Second)
			m.refuse()
		}()
		start := time.Now()
		s, rec, err := inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "set", Clients: 2, Records: 10}},
				Duration: time.Minute, DeadAfter: 5 * time.Second})
		if err == nil || !strings.Contains(err.Error(), "target dead") ||
			!strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took < 5*time.Second || took > 9*time.Second {
			t.Errorf("gave up after %s", took)
		}
		if s.Failure != err.Error() || rec.Summary.Failure != s.Failure || s.Groups[0].Total.Count == 0 ||
			s.Groups[0].Kinds[kindConnect] == 0 {
			t.Errorf("summary %+v", s)
		}
	})
}

// Interrupted at any point, a run leaves what it has and says so.
func TestInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		rate  float64
		count int64
	}{
		"in the load phase": {500 * time.Millisecond, 0, 0},
		"in warm-up":        {1500 * time.Millisecond, 0, 0},
		"in the run":        {3050 * time.Millisecond, 0, 100},
		"in an open loop":   {3050 * time.Millisecond, 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// 100 records take one second: 100 commands of 10 ms, one client.
				m := newMemory(func(time.Duration) time.Duration { return 10 * time.Millisecond })
				ctx, cancel := context.WithTimeout(t.Context(), c.after)
				defer cancel()
				s, rec, err := inBubble(t, m, ctx, Options{
					Groups: []GroupOptions{{Workload: "get", Clients: 1, Rate: Steady(c.rate), Records: 100}},
					Warmup: time.Second, Duration: time.Minute,
				})
				if err != nil || !s.Interrupted || !rec.Summary.Interrupted {
					t.Errorf("error %v, interrupted %v", err, s.Interrupted)
				}
				if s.Groups[0].Total.Count < c.count || s.Groups[0].Total.Count > c.count*11/10 {
					t.Errorf("%d operations, want %d", s.Groups[0].Total.Count, c.count)
				}
				if len(s.Groups[0].Kinds) > 0 {
					t.Errorf("errors %v", s.Groups[0].Kinds)
				}
			})
		})
	}
}

// An answer that never comes does not hold a run up, whether it is interrupted or ends by time: the operation stays in
// flight. A run that lasts longer counts it as a time-out.
func TestSilentServer(t *testing.T) {
	silent := func(at time.Duration) time.Duration {
		if at > time.Second {
			return 24 * time.Hour
		}
		return 10 * time.Millisecond
	}
	for _, c := range []struct {
		interrupt, duration, atMost time.Duration
		timeouts, inFlight          int64
	}{
		{2 * time.Second, time.Minute, 4 * time.Second, 0, 2},
		{time.Hour, 2 * time.Second, 3100 * time.Millisecond, 0, 2},
		{time.Hour, 6 * time.Second, 7100 * time.Millisecond, 2, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.interrupt)
			defer cancel()
			start := time.Now()
			m := newMemory(silent)
			defer m.wg.Wait()
			o := Options{
				Groups: []GroupOptions{{Workload: "set", Clients: 2}}, Targets: []string{"memory:1"}, Dial: m.dial,
				Duration: c.duration, Timeout: 4 * time.Second,
			}
			s, err := Run(ctx, usual(o), results.NewWriter(io.Discard))
			g, took := s.Groups[0], time.Since(start)
			if err != nil || s.Interrupted != (c.interrupt < c.duration) || took > c.atMost ||
				g.Kinds[kindTimeout] != c.timeouts || g.Total.Unanswered != c.timeouts+c.inFlight ||
				g.Ledger.InFlight != c.inFlight || g.Total.Count == 0 || g.Ledger.Balance(0) != 0 {
				t.Errorf("%s of %s: after %s: error %v, interrupted %v, errors %v, %+v", c.interrupt, c.duration, took,
					err, s.Interrupted, g.Kinds, g.Ledger)
			}
		})
	}
}

// A core is left to one server on this machine while closed loops load it, and to nobody else.
func TestCoreIsLeft(t *testing.T) {
	for _, c := range []struct {
		target string
		rate   float64 // 0: a closed loop
		want   bool
	}{
		{"127.0.0.1:1", 0, true}, {"localhost:1", 0, true}, {"[::1]:1", 0, true}, {"10.1.2.3:1", 0, false},
		{"elsewhere:1", 0, false}, {"127.0.0.1:1", 100, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
			left, given := 0, 0
			o := Options{Groups: []GroupOptions{{Workload: "get", Clients: 2, Records: 10}}, Targets: []string{c.target},
				Duration: time.Second, LeaveCore: func() func() {
					left++
					return func() { given++ }
				}}
			if c.rate > 0 {
				o.Groups[0].Rate = Steady(c.rate)
			}
			if _, _, err := inBubble(t, m, t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if left != given || left != 0 != c.want {
				t.Errorf("%s at %v: a core was left %d times and taken back %d times", c.target, c.rate, left, given)
			}
		})
	}
}

func TestOptionsRefused(t *testing.T) {
	_, err := Run(t.Context(), Options{
		Groups:  []GroupOptions{{Workload: "nope", Pipeline: 1 << 20, ValueSize: -1}},
		Targets: []string{"host"}, Duration: -1, Warmup: -1, Timeout: -1, DeadAfter: -1,
	}, nil)
	var wrong *OptionsError
	if !errors.As(err, &wrong) {
		t.Fatalf("error %v", err)
	}
	for _, name := range []string{"workload", "target", "clients", "pipeline", "duration", "warmup", "records",
		"elements",
		"value size", "timeout", "dead after"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not mention %s", err, name)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		m.refuse()
		_, err := Run(t.Context(), usual(Options{
			Groups: []GroupOptions{{Workload: "set"}}, Targets: []string{"a:1", "b:2"}, Dial: m.dial,
		}), nil)
		if err == nil || !strings.Contains(err.Error(), "target a:1: connection refused") || errors.As(err, &wrong) {
			t.Errorf("error %v", err)
		}
	})
}

// A recording is sent client by client, in order, at its pace, faster, or as fast as possible.
func TestReplay(t *testing.T) {
	var text strings.Builder
	for i := range 100 { // a command every 100 ms, from two clients by turns
		fmt.Fprintf(&text, "%d.%06d [0 127.0.0.1:%d] \"SET\" \"k%d\" \"v%d\"\n", 1700000000+i/10, i%10*100_000, 1+i%2,
			i%2, i)
	}
	text.WriteString("1700000010.000000 [0 127.0.0.1:1] \"MULTI\"\n")
	path := filepath.Join(t.TempDir(), "monitor.txt")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for speed, want := range map[float64]time.Duration{1: 9900 * time.Millisecond, 2: 4950 * time.Millisecond,
		0: 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(at time.Duration) time.Duration { return time.Millisecond })
			r, err := ReadReplay(path, speed)
			if err != nil || r.Clients() != 2 {
				t.Fatalf("%+v, %v", r, err)
			}
			o := Options{Groups: []GroupOptions{{Replay: r, Clients: 2, Pipeline: 1}}, Dial: m.dial,
				Targets: []string{"memory:1"}, Seed: 1}
			var buf bytes.Buffer
			s, err := Run(t.Context(), o, results.NewWriter(&buf))
			m.wg.Wait()
			if err != nil {
				t.Fatal(err)
			}
			g := s.Groups[0]
			if g.Total.Count != 100 || len(g.Ops) != 1 || g.Ops[0].Name != "set" || g.Ledger.Balance(0) != 0 ||
				g.Ledger.Offered != 100 || m.data["k0"] != "v98" || m.data["k1"] != "v99" {
				t.Errorf("speed %g: %+v, data %v", speed, g, m.data)
			}
			if took := time.Duration(s.Seconds * float64(time.Second)); took < want || took > want+10*time.Millisecond {
				t.Errorf("speed %g: took %s, want %s", speed, took, want)
			}
			if (g.Total.Response == nil) != (speed == 0) || g.Total.Response != nil && g.Total.Response.Max.US > 1100 {
				t.Errorf("speed %g: response time %+v", speed, g.Total.Response)
			}
			if !slices.Contains(s.Warnings, `the replay leaves out 1 "multi"`) {
				t.Errorf("speed %g: warnings %q", speed, s.Warnings)
			}
			rec, err := results.Read(&buf)
			if err != nil || len(rec.Warnings) > 0 || rec.Header.Groups[0].OpenLoop() != (speed > 0) {
				t.Fatalf("speed %g: %v, %v", speed, rec, err)
			}
			if c := rec.Header.Groups[0].Content; c == nil || c.Text != text.String() {
				t.Errorf("speed %g: the header has %+v, want the recording", speed, c)
			}
		})
	}
}

// The header holds all that makes a load what it is: a file of the same name with other contents is another one.
func TestHeaderHoldsTheLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	var loads []string
	for i, o := range []Options{
		{}, {}, {}, {Groups: []GroupOptions{{Slots: OneNode}}}, {Verify: true}, {Load: LoadedBefore},
		{Events: []ScheduledEvent{event("1s rate 20"), event("500ms kill 2")}},
		{Search: &RateSearch{Curve: true, Step: time.Second}},
	} {
		text := "records: [{key: 'k<n>', count: 9}]\nmix:\n  - do: SET <key> <value>\n"
		if i == 1 {
			text += "    share: 9\n  - do: GET <key>\n"
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if o.Groups == nil {
			o.Groups = []GroupOptions{{}}
		}
		g := &o.Groups[0]
		g.Workload, g.Clients, g.Records, g.Rate = path, 2, 9, Steady(10)
		o.Duration, o.Inject = 2*time.Second, (&recordedFaults{}).inject
		if o.Search != nil {
			g.Rate = pace("steps 1..2 by 1 every 1s")
		}
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
			_, rec, err := inBubble(t, m, t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			h := &rec.Header
			if c := h.Groups[0].Content; c == nil || c.Text != text || c.Bytes != int64(len(text)) {
				t.Errorf("%d: the header has %+v, want the file", i, c)
			}
			loads = append(loads, strings.Join(h.Load(), "; "))
			if s := h.Schedule; o.Events != nil &&
				(s == nil || s.Events != 2 || s.Faults != 1 || s.Text != "500ms kill 2\n1s rate 20\n") {
				t.Errorf("schedule %+v", s)
			}
		})
	}
	for i, load := range loads {
		if same := load == loads[0]; same != (i == 0 || i == 2) {
			t.Errorf("%d: %s\nand 0: %s", i, load, loads[0])
		}
	}
}

// A target that stalls makes a replay late, and one that is cut short says so; the ledger adds up.
func TestReplayStalls(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "%d.%06d [0 a%d] \"GET\" \"k%d\"\n", 1700000000+i/100, i%100*10_000, i%7, i)
	}
	path := filepath.Join(t.TempDir(), "monitor.txt")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	// One that stops for good has all commands that were due in the percentiles: from 2 s on they wait for 1 to 4 s.
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(at time.Duration) time.Duration {
			if at >= 2*time.Second {
				return endless
			}
			return time.Millisecond
		})
		r, err := ReadReplay(path, 1)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Run(t.Context(), Options{Groups: []GroupOptions{{Replay: r, Clients: 3, Pipeline: 4}}, Dial: m.dial,
			Duration: 5 * time.Second, Targets: []string{"memory:1"}, Seed: 1}, results.NewWriter(io.Discard))
		m.wg.Wait()
		g := s.Groups[0]
		if l := g.Total.Response; err != nil || g.Ledger.Offered != 500 || g.Ledger.Balance(0) != 0 ||
			g.Total.Count < 199 || g.Total.Count > 201 || g.Total.Unanswered != 500-g.Total.Count ||
			!l.P50.AtLeast || l.P95.US < 3_700_000 || l.P95.US > 3_800_000 {
			t.Errorf("a target that stops: ledger %+v, p50 %s, p95 %s, %v", g.Ledger, l.P50, l.P95, err)
		}
	})
	for _, limit := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(at time.Duration) time.Duration {
				if at >= 2*time.Second && at < 3*time.Second {
					return 3*time.Second - at
				}
				return time.Millisecond
			})
			r, err := ReadReplay(path, 1)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Groups: []GroupOptions{{Replay: r, Clients: 3, Pipeline: 4}}, Dial: m.dial, Duration: limit,
				Targets: []string{"memory:1"}, Seed: 1}
			s, err := Run(t.Context(), o, results.NewWriter(io.Discard))
			m.wg.Wait()
			g := s.Groups[0]
			want := int64(1000)
			if limit > 0 {
				want = 500
			}
			if err != nil || g.Total.Count < want || g.Total.Count > want+5 || g.Ledger.Balance(0) != 0 {
				t.Errorf("limit %s: %d commands of %d, ledger %+v, %v", limit, g.Total.Count, want, g.Ledger, err)
			}
			if n := above(t, g.Ops[0].Response, 500*time.Millisecond); n < 45 || n > 55 {
				t.Errorf("limit %s: %d commands took more than half of the stall, want about 50", limit, n)
			}
		})
	}
}

// Where the generator comes late to the end of an interval, the next one begins when it came. Intervals never overlap.
func TestLateIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		late := 0
		_, rec, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 2, Rate: Steady(100), Records: 10}},
			Duration: 10 * time.Second,
			Progress: func(tick Tick) {
				if late++; late%3 == 0 {
					time.Sleep(2500 * time.Millisecond) // of virtual time: the lateness itself
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		end, sum := 0.0, int64(0)
		for _, iv := range rec.Intervals {
			if iv.Since < end-1e-9 || iv.Since > end+1e-9 || iv.Seconds < 0.3 {
				t.Errorf("an interval from %g s on takes %g s; the one before ended after %g s", iv.Since, iv.Seconds,
					end)
			}
			end, sum = iv.Since+iv.Seconds, sum+iv.Groups[0].Ledger.Offered
		}
		if sum != 1000 || len(rec.Intervals) < 5 {
			t.Errorf("%d operations offered in %d intervals, want 1000", sum, len(rec.Intervals))
		}
	})
}
