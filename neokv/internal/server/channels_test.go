package server

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// subscriber returns a connection that may be pushed to, and what its client receives until the connection is killed.
func subscriber(s *Server, id uint64, proto int) (c *conn, received func() string) {
	here, there := net.Pipe()
	c = newConn(s, s.newClientConn(there), id, plainConn)
	c.out.Proto, c.session.Proto = proto, proto
	c.out.share()
	c.out.flush()
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(here)
		text <- string(b)
	}()
	return c, func() string {
		for c.out.length() > 0 || c.out.queued.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
		c.kill()
		return <-text
	}
}

// TestChannels: random subscriptions come and go; each message reaches those, and only those, who have a channel or a
// matching pattern at that time, in their protocol, and in order.
func TestChannels(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := New(Options{Self: 1, Node: &fakeNode{}, Settings: settings.Default()})
		const clients = 6
		var all [clients]*conn
		var received [clients]func() string
		var want [clients]strings.Builder
		for i := range all {
			all[i], received[i] = subscriber(s, uint64(i+1), 2+i%2)
		}
		names := [channelKinds][]string{
			{"a", "ab", "abc", "b", ""}, {"*", "a*", "?", "[ab]", "a*c", "b"}, {"a", "ab", "abc"},
		}
		has := map[[3]string]bool{} // client, kind, name
		key := func(i int, kind channelKind, name string) [3]string {
			return [3]string{fmt.Sprint(i), fmt.Sprint(kind), name}
		}
		for n := range 400 {
			i, kind := r.IntN(clients), channelKind(r.IntN(int(channelKinds)))
			name := names[kind][r.IntN(len(names[kind]))]
			switch r.IntN(4) {
			case 0:
				s.channels.mu.Lock()
				s.channels.add(all[i], kind, name)
				s.channels.mu.Unlock()
				has[key(i, kind, name)] = true
			case 1:
				s.channels.mu.Lock()
				s.channels.remove(all[i], kind, name)
				s.channels.mu.Unlock()
				delete(has, key(i, kind, name))
			default:
				if kind == patternChannel {
					kind = namedChannel
					name = names[kind][r.IntN(len(names[kind]))]
				}
				payload, got := fmt.Sprint(n), 0
				for i := range all {
					var lines []string
					if has[key(i, kind, name)] {
						what := map[channelKind]string{namedChannel: "message", shardChannel: "smessage"}[kind]
						lines = append(lines, fmt.Sprint("3 ", what, " ", name, " ", payload, "\n"))
					}
					for _, p := range names[patternChannel] {
						if kind == namedChannel && has[key(i, patternChannel, p)] &&
							redis.NewGlob([]byte(p), nil).Match([]byte(name), nil) {
							lines = append(lines, fmt.Sprint("4 pmessage ", p, " ", name, " ", payload, "\n"))
						}
					}
					got += len(lines)
					slices.Sort(lines)
					for _, l := range lines {
						want[i].WriteString(map[int]string{2: "*", 3: ">"}[2+i%2] + l)
					}
				}
				if n := s.deliver(kind, []byte(name), []byte(payload), nil, 0, nil); n != got {
					t.Fatalf("seed %d: a message on %q reached %d subscriptions, want %d", seed, name, n, got)
				}
			}
		}
		if n := s.channels.count.Load(); int(n) != len(has) {
			t.Errorf("seed %d: %d subscriptions are counted, want %d", seed, n, len(has))
		}
		for i := range all {
			if got := shown(received[i]()); got != want[i].String() {
				t.Errorf("seed %d, client %d:\n got %s\nwant %s", seed, i, got, want[i].String())
			}
			s.channels.mu.Lock()
			for kind := range all[i].subs.of {
				for name := range all[i].subs.of[kind] {
					s.channels.remove(all[i], channelKind(kind), name)
				}
			}
			s.channels.mu.Unlock()
			if all[i].subscribes.Load() || all[i].subs.bytes.Load() != 0 {
				t.Errorf("seed %d, client %d: it has no subscriptions, and %d bytes", seed, i, all[i].subs.bytes.Load())
			}
			all[i].release()
		}
		for kind := range s.channels.of {
			if len(s.channels.of[kind])+len(s.channels.patterns) > 0 {
				t.Errorf("seed %d: channels without subscribers are left", seed)
			}
		}
		if n := s.o.ClientMemory.Used(); n != 0 {
			t.Errorf("seed %d: %d bytes are counted in the end", seed, n)
		}
		s.Close()
	}
}

// shown shows messages, one in a line. Those of one publication that patterns match are sorted, as they come in any
// order.
func shown(received string) string {
	var all []string
	words := strings.Split(received, "\r\n")
	for i := 0; i+1 < len(words); {
		line := words[i]
		n := int(line[1] - '0')
		for k := range n {
			line += " " + words[i+2+2*k]
		}
		all = append(all, line+"\n")
		i += 1 + 2*n
	}
	last := func(line string) string { return line[strings.LastIndexByte(line, ' '):] }
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && last(all[to]) == last(all[from]) {
			to++
		}
		slices.Sort(all[from:to])
		from = to
	}
	return strings.Join(all, "")
}
