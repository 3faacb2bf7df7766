package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// request encodes a call.
func request(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

// TestManyChannels: one client has 100,000 channels, 10,000 patterns and 10,000 shard channels. Their memory is the
// client's, nobody else waits for them, and nothing is left when they end, or the client.
func TestManyChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default(), ClientMemory: NewClientMemory(512<<20, 3)}
		s, dial, stop := serve(t, o)
		defer stop()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c, other := dial(), dial()
		ask(t, other, "ping")
		idle := o.ClientMemory.Used()
		in := bufio.NewReader(c)
		call := func(name string, n, replies int) {
			words := []string{name}
			for i := range n {
				words = append(words, fmt.Sprintf("{x}%s %d", name[:1], i))
			}
			go io.WriteString(c, request(words...))
			for range replies {
				readReply(t, in)
			}
		}
		call("subscribe", 100_000, 100_000)
		call("psubscribe", 10_000, 10_000)
		call("ssubscribe", 10_000, 10_000)
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		counted, real := o.ClientMemory.Used()-idle, int64(after.HeapInuse)-int64(before.HeapInuse)
		t.Logf("%d bytes counted, %d bytes of heap", counted, real)
		if real > counted*3/2 || counted > 2*real {
			t.Errorf("%d bytes are counted for 120,000 subscriptions, %d bytes of heap", counted, real)
		}
		if got := ask(t, other, `publish "{x}s 99999" hello`); got != ":1\r\n" {
			t.Errorf("PUBLISH: %q", got)
		}
		if got := readReply(t, in); !strings.HasSuffix(got, "hello\r\n") {
			t.Errorf("the client got %q", got)
		}
		if got := ask(t, other, "pubsub numpat"); got != ":10000\r\n" {
			t.Errorf("PUBSUB NUMPAT: %q", got)
		}
		call("unsubscribe", 0, 100_000)
		call("punsubscribe", 5_000, 5_000)
		if n := s.channels.count.Load(); n != 15_000 {
			t.Errorf("%d subscriptions are left, want 15,000", n)
		}
		c.Close()
		synctest.Wait()
		if n := s.channels.count.Load(); n != 0 {
			t.Errorf("%d subscriptions are left behind the client", n)
		}
		if used := o.ClientMemory.Used(); used > idle {
			t.Errorf("%d bytes are counted when the client has gone, %d before", used, idle)
		}
	})
}

// TestManyChannelsBeyondMemory: a client that subscribes to more than fits into the memory of clients is closed.
func TestManyChannelsBeyondMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default(), ClientMemory: NewClientMemory(4<<20, 3)}
		s, dial, stop := serve(t, o)
		defer stop()
		c, other := dial(), dial()
		go func() {
			for i := 0; ; i++ {
				if _, err := io.WriteString(c, request("subscribe", fmt.Sprint(i))); err != nil {
					return
				}
			}
		}()
		n, over := closed(c)
		if !over || n < 100_000 {
			t.Errorf("the client got %d bytes of confirmations; closed: %v", n, over)
		}
		synctest.Wait()
		if n := s.channels.count.Load(); n != 0 {
			t.Errorf("%d subscriptions are left behind the client", n)
		}
		if got := ask(t, other, "publish 1 x"); got != ":0\r\n" {
			t.Errorf("PUBLISH: %q", got)
		}
	})
}

// TestLongNames: what is too long for a channel, a pattern or a message is refused, and nothing comes of it.
func TestLongNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := settings.Default()
		k.Redis.PubsubBufferLimit = 0
		s, dial, stop := serve(t, Options{Settings: k})
		defer stop()
		c, p := dial(), dial()
		x := func(n int) string { return strings.Repeat("x", n) }
		for _, call := range []struct {
			want  string
			words []string
		}{
			{"*3\r\n$9\r\nsubscribe", []string{"subscribe", x(maxChannel)}},
			{"*3\r\n$10\r\nssubscribe", []string{"ssubscribe", x(maxChannel)}},
			{"*3\r\n$10\r\npsubscribe", []string{"psubscribe", strings.Repeat("?", maxPattern)}},
			{"-ERR the channel's name is longer than 65536 bytes\r\n", []string{"subscribe", "a", x(maxChannel + 1)}},
			{"-ERR the channel's name is longer than 65536 bytes\r\n", []string{"ssubscribe", x(maxChannel + 1)}},
			{"-ERR the pattern is longer than 1024 bytes\r\n", []string{"psubscribe", "a", x(maxPattern + 1)}},
		} {
			go io.WriteString(c, request(call.words...))
			if got := readReply(t, bufio.NewReader(c)); !strings.HasPrefix(got, call.want) {
				t.Errorf("%s: %.100q, want %.100q", call.words[0], got, call.want)
			}
		}
		if n := s.channels.count.Load(); n != 3 {
			t.Errorf("%d subscriptions, want 3", n)
		}
		in := bufio.NewReader(c)
		for _, call := range []struct {
			want  string
			words []string
		}{
			{":1\r\n", []string{"publish", x(maxChannel), "a"}},
			{":1\r\n", []string{"spublish", x(maxChannel), "a"}},
			{":1\r\n", []string{"publish", x(maxPattern), x(maxPublished)}}, // for the pattern
			{"-ERR the channel's name is longer than 65536 bytes\r\n", []string{"publish", x(maxChannel + 1), "a"}},
			{"-ERR the channel's name is longer than 65536 bytes\r\n", []string{"spublish", x(maxChannel + 1), "a"}},
			{"-ERR the message is longer than 33554432 bytes\r\n", []string{"publish", x(maxPattern), x(maxPublished + 1)}},
		} {
			go io.WriteString(p, request(call.words...))
			got := readReply(t, bufio.NewReader(p))
			if got != call.want {
				t.Errorf("%s: %.100q, want %.100q", call.words[0], got, call.want)
			}
			if got[0] == ':' {
				readReply(t, in)
			}
		}
	})
}

// TestPatternsThatTakeLong: a pattern takes time in proportion to its length and the channel's at most. A client that
// publishes ends with redis.command_time, and then its message has gone nowhere.
func TestPatternsThatTakeLong(t *testing.T) {
	name := strings.Repeat("a", maxChannel)
	for _, pattern := range []string{
		strings.Repeat("*a", maxPattern/2-1) + "*b", "*" + strings.Repeat("a", maxPattern-2) + "b",
		strings.Repeat("*?", maxPattern/2-1) + "*b", strings.Repeat("*[a-b]", maxPattern/6-1) + "*b",
		"*" + strings.Repeat("?", maxPattern-2) + "b",
	} {
		w := &engine.Work{Look: func() error { return nil }}
		if redis.NewGlob([]byte(pattern), w).Match([]byte(name), w) {
			t.Errorf("%.20s matches", pattern)
		}
		if steps := 16 * w.Spent(); steps > 2*len(name)*len(pattern) {
			t.Errorf("%.20s takes %d steps", pattern, steps)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s, dial, stop := serve(t, Options{Settings: settings.Default()})
		defer stop()
		c := dial()
		go io.WriteString(c, request("psubscribe", "*"+strings.Repeat("a", maxPattern-2)+"b", "*"))
		in := bufio.NewReader(c)
		readReply(t, in)
		readReply(t, in)
		w := &engine.Work{Look: func() error { return errors.New("over") }}
		if n := s.deliver(namedChannel, []byte(name), []byte("x"), nil, 0, w); n != 0 {
			t.Errorf("%d clients got the message of a call that was over", n)
		}
		if n := s.deliver(namedChannel, []byte("short"), []byte("x"), nil, 0, nil); n != 1 {
			t.Errorf("%d clients got the next message", n)
		}
		if got := readReply(t, in); !strings.Contains(got, "short") {
			t.Errorf("the client got %q", got)
		}
		time.Sleep(time.Second)
	})
}

// TestMessagesBeforeReplies: a client in RESP3 publishes by a connection that has subscribed, and by another one. Each
// message comes when the reply to the one before has come, so the subscriber gets them in order.
func TestMessagesBeforeReplies(t *testing.T) {
	s, _ := start(t, Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	own, other := dial(), dial()
	ask(t, own, "hello 3")
	ask(t, own, "subscribe c")
	messages := 20_000
	if testing.Short() {
		messages /= 4
	}
	replies, failed := make(chan bool, 1), make(chan error, 1)
	go func() {
		in := bufio.NewReader(own)
		for next := 0; next < messages; {
			got := readReply(t, in)
			if got[0] == ':' {
				replies <- true
				continue
			}
			if want := fmt.Sprintf("%d\r\n", next); !strings.HasSuffix(got, "\n"+want) {
				failed <- fmt.Errorf("got %q, want message %d", got, next)
				return
			}
			next++
		}
		failed <- nil
	}()
	for i := range messages {
		call := fmt.Sprint("publish c ", i)
		if i%7 < 3 {
			ask(t, other, call)
			continue
		}
		fmt.Fprintf(own, "%s\r\n", call)
		select {
		case <-replies:
		case err := <-failed:
			t.Fatal(i, err)
		}
	}
	if err := <-failed; err != nil { // the other connection has published the last one
		t.Fatal(err)
	}
}
