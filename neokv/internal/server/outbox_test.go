package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/settings"
)

// TestOutbox runs the scenarios of testdata/outbox.txt, which says how to read them.
func TestOutbox(t *testing.T) { runScenarios(t, "outbox.txt", runOutbox) }

// outboxCase is an outbox, its owner, and the client.
type outboxCase struct {
	s      *Server
	c      *conn
	client net.Conn
	out    strings.Builder

	todo  chan func()
	asked int64        // what the owner was told to do
	done  atomic.Int64 // and has done
	waits bool
	over  bool
}

func runOutbox(t *testing.T, lines []string) string {
	here, there := net.Pipe() // a write returns when it is read
	x := &outboxCase{
		s:      New(Options{Self: 1, Node: &fakeNode{}, Settings: settings.Default()}),
		client: here, todo: make(chan func(), 100),
	}
	x.c = newConn(x.s, x.s.newClientConn(there), 1, plainConn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for do := range x.todo {
			do()
			x.done.Add(1)
		}
	}()
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := x.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		synctest.Wait()
		if waits := x.done.Load() < x.asked; waits != x.waits {
			x.waits = waits
			x.say("the owner %s", map[bool]string{true: "waits", false: "goes on"}[waits])
		}
		if over := x.c.killed.Load(); over && !x.over {
			x.over = true
			x.say("the connection is over, %d for its limit", x.s.stats.outputClosed.Load())
		}
	}
	out := x.out.String()
	here.Close()
	x.c.kill()
	close(x.todo)
	<-ended
	x.c.out.mu.Lock()
	for x.c.out.writing {
		x.c.out.idle.Wait()
	}
	x.c.out.mu.Unlock()
	x.c.release()
	if n := x.s.o.ClientMemory.Used(); n != 0 {
		t.Errorf("%d bytes are counted in the end", n)
	}
	x.s.Close()
	return out
}

func (x *outboxCase) say(format string, args ...any) { fmt.Fprintf(&x.out, format+"\n", args...) }

func (x *outboxCase) do(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	o := &x.c.out
	owner := func(f func()) {
		x.asked++
		x.todo <- f
	}
	switch verb {
	case "share":
		owner(o.share)
	case "unshare":
		owner(func() { o.drain(); o.unshare(); o.flush(); o.settle() })
	case "begin":
		owner(func() { o.begin(); o.top = len(o.Buf) })
	case "drain":
		owner(o.drain)
	case "tell":
		owner(func() { o.tell([]byte(rest), o.top) })
	case "silent":
		owner(func() { x.c.session.ReplyOff() })
	case "hush":
		owner(func() { o.hush(o.top) })
	case "reply":
		owner(func() { o.Buf = append(o.Buf, rest...) })
	case "flush":
		owner(func() { o.flush() })
	case "part":
		owner(func() { o.within = true; o.flush(); o.within = false })
	case "proto":
		n, err := strconv.Atoi(rest)
		owner(func() { o.Proto = n })
		return err
	case "push":
		resp2, resp3, both := strings.Cut(rest, "|")
		if !both {
			resp3 = resp2
		}
		m := newMessage(x.s.o.ClientMemory, []byte(resp2), []byte(resp3))
		o.push(m)
		m.release()
	case "read":
		b := make([]byte, 1000)
		if n, err := strconv.Atoi(rest); err == nil {
			b = b[:n]
		}
		n := 0
		for err := error(nil); n < len(b) && err == nil; {
			var m int
			x.client.SetReadDeadline(time.Now().Add(time.Millisecond))
			m, err = x.client.Read(b[n:])
			if n += m; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				x.say("%v", err)
			}
		}
		x.say("client: %s", b[:n])
	case "limit":
		next, problem := parseOutputLimits("normal " + rest)
		if problem != "" {
			return errors.New(problem)
		}
		x.s.limits.output.Store(next["normal"])
	case "wait":
		d, err := time.ParseDuration(rest)
		time.Sleep(d)
		return err
	case "holds":
		x.say("%d messages and replies, %d bytes, %d counted", o.length(), o.waiting.Load()+o.queued.Load(),
			x.s.o.ClientMemory.Used())
	case "leave":
		x.client.Close()
	case "kill":
		x.c.kill()
	default:
		return errors.New("unknown line")
	}
	return nil
}

// TestClientsThatDoNotRead: a monitor is closed when it is as far behind as a normal client may be, a subscriber when
// it is as far behind as one of the class pubsub may be, and either when clients hold more than they may. Neither holds
// anybody up.
func TestClientsThatDoNotRead(t *testing.T) {
	for _, x := range []struct{ class, other, begin, send, flag string }{
		{"normal", "pubsub", "monitor", "echo ", "flags=O"},
		{"pubsub", "normal", "subscribe c", "publish c ", "flags=P"},
	} {
		t.Run(x.class, func(t *testing.T) { testDoesNotRead(t, x.class, x.other, x.begin, x.send, x.flag) })
	}
}

func testDoesNotRead(t *testing.T, class, other, begin, send, flag string) {
	word := strings.Repeat("a", monitorArgBytes)
	for _, x := range []struct {
		name   string
		limit  string        // client-output-buffer-limit of the class
		memory int64         // of all clients
		every  time.Duration // between two lines
		least  int           // lines behind which it is closed
		most   int
		counts func(*Server) uint64
	}{
		{"hard limit", "1mb 0 0", 512 << 20, 0, 63, 82, func(s *Server) uint64 { return s.stats.outputClosed.Load() }},
		{"soft limit", "0 1mb 60", 512 << 20, time.Second, 123, 142, func(s *Server) uint64 {
			return s.stats.outputClosed.Load()
		}},
		{"memory", "0 0 0", 4 << 20, 0, 230, 290, func(s *Server) uint64 { return s.stats.evicted.Load() }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := Options{Settings: settings.Default(), ClientMemory: NewClientMemory(settings.Bytes(x.memory), 3)}
				s, dial, stop := serve(t, o)
				defer stop()
				c, watcher := dial(), dial()
				ask(t, c, `config set client-output-buffer-limit "`+class+" "+x.limit+" "+other+` 0 0 0"`)
				ask(t, watcher, begin)
				sent := 0
				for ; s.count() > 1; sent++ {
					if sent == 2*memconn.BufferBytes/monitorArgBytes { // the connection's own buffer is full
						var n, bytes int
						list := ask(t, c, "client list")
						for line := range strings.Lines(list) {
							if strings.Contains(line, flag) {
								fmt.Sscanf(line[strings.Index(line, " oll="):], " oll=%d omem=%d", &n, &bytes)
							}
						}
						if n < 8 || n > 18 || bytes < n*monitorArgBytes {
							t.Errorf("behind %d lines: CLIENT LIST shows %d, %d bytes: %s", sent, n, bytes, list)
						}
					}
					if sent > x.most {
						t.Fatalf("%d lines of %d bytes wait for a client that does not read", sent, len(word))
					}
					ask(t, c, send+word)
					time.Sleep(x.every)
					synctest.Wait()
				}
				if sent < x.least {
					t.Errorf("a client was closed behind %d lines, want %d", sent, x.least)
				}
				if n := x.counts(s); n != 1 {
					t.Errorf("%d clients were counted as closed, want 1", n)
				}
				if used := o.ClientMemory.Used(); used > 1<<20 {
					t.Errorf("%d bytes are counted for a client that waits", used)
				}
			})
		})
	}
}

// TestManyMonitors: a line is held once, however many monitors have not read it.
func TestManyMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		monitors, lines, lineBytes := 10_000, 200, 1000
		if testing.Short() {
			monitors = 1000
		}
		o := Options{Settings: settings.Default(), ClientMemory: NewClientMemory(512<<20, 3)}
		o.Settings.Redis.MaxClients = monitors + 1
		s, dial, stop := serve(t, o)
		defer stop()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var all []net.Conn
		defer func() {
			for _, c := range all {
				c.Close()
			}
		}()
		for range monitors {
			here, there := net.Pipe()
			s.Take(there)
			all = append(all, here)
			if got := ask(t, here, "monitor"); got != "+OK\r\n" {
				t.Fatalf("%q", got)
			}
		}
		c := dial()
		idle := o.ClientMemory.Used()
		for range lines {
			ask(t, c, "echo "+strings.Repeat("x", lineBytes))
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		counted, real := o.ClientMemory.Used(), int64(after.HeapInuse)-int64(before.HeapInuse)
		t.Logf("%d monitors: %d bytes counted, %d for each when idle; %d bytes of heap, %d goroutines", monitors,
			counted, idle/int64(monitors), real, runtime.NumGoroutine())
		if n := s.count(); n != monitors+1 {
			t.Errorf("%d clients are left of %d", n, monitors+1)
		}
		if most := int64(monitors) * 20 << 10; counted > most {
			t.Errorf("%d bytes are counted, want at most %d: %d lines would be %d", counted, most, lines,
				monitors*lines*lineBytes)
		}
		if real > 2*counted {
			t.Errorf("%d bytes of heap, %d are counted", real, counted)
		}
		last := all[len(all)-1]
		got := 0
		for buf := make([]byte, 1<<16); got < lines*lineBytes; {
			last.SetReadDeadline(time.Now().Add(time.Hour))
			n, err := last.Read(buf)
			if got += n; err != nil {
				t.Fatalf("%d bytes, then %v", got, err)
			}
		}
		for _, c := range all {
			c.Close()
		}
		synctest.Wait()
		if used := o.ClientMemory.Used(); used > 64<<10 {
			t.Errorf("%d bytes are counted when the monitors have gone", used)
		}
	})
}

// lineTimes is what differs from line to line of MONITOR.
var lineTimes = regexp.MustCompile(`\+\d+\.\d{6} \[0 \S+\] `)

// TestMonitorOfItself: what a monitor runs comes behind the reply, as in Redis, and behind the whole reply of EXEC.
func TestMonitorOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := serve(t, Options{Settings: settings.Default()})
		defer stop()
		c := dial()
		send(c, "ping 1\r\nmonitor\r\nping 2\r\nmonitor\r\nmulti\r\nping 3\r\nexec\r\nreset\r\nping 4\r\nquit\r\n")
		got, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		text := lineTimes.ReplaceAllString(string(got), "+")
		const want = "$1\r\n1\r\n+OK\r\n$1\r\n2\r\n+\"ping\" \"2\"\r\n+OK\r\n+\"multi\"\r\n+QUEUED\r\n*1\r\n" +
			"$1\r\n3\r\n+\"ping\" \"3\"\r\n+\"exec\"\r\n+RESET\r\n$1\r\n4\r\n+OK\r\n"
		if text != want {
			t.Errorf("got  %q\nwant %q", text, want)
		}
	})
}
