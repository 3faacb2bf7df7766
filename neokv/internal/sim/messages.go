package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	publishThink   = 20 * time.Millisecond // the mean time between two messages of a publisher
	messageChannel = "messages"            // the channel
)

// messages is publishers and subscribers at all ports of a cluster, and the checker of what the subscribers get. A
// message says who has published it, which is a connection, and has a number. A subscriber, which is a connection, too,
// may miss messages. It gets none twice, and those of a publisher in order.
type messages struct {
	s     *sim
	addrs []string // of the stores, and of the proxy port
	shard string   // a shard channel
	over  chan struct{}
	wg    sync.WaitGroup

	mu         sync.Mutex
	publishers int
	sent, got  int
	ended      int                  // subscriptions that the store has ended
	open       map[net.Conn]bool    // connections
	last       map[string]time.Time // when a subscriber of a kind at a port has got its last message
	problem    error
}

// newMessages starts publishers and subscribers.
func (s *sim) newMessages() *messages {
	m := &messages{s: s, over: make(chan struct{}), shard: "m{" + regionTags[0] + "}", open: map[net.Conn]bool{},
		last: map[string]time.Time{}}
	m.addrs = append(append(m.addrs, s.c.Addrs()...), s.c.ProxyAddr())
	for i, addr := range m.addrs {
		m.wg.Go(func() { m.publish(addr, s.random(uint64(200+i))) })
		m.wg.Go(func() { m.subscribe(addr, "SUBSCRIBE", messageChannel) })
		m.wg.Go(func() { m.subscribe(addr, "PSUBSCRIBE", messageChannel+"*") })
		m.wg.Go(func() { m.subscribe(addr, "SSUBSCRIBE", m.shard) })
	}
	return m
}

// dial connects. It returns nil when the publishers and subscribers shall end.
func (m *messages) dial(addr string) net.Conn {
	for {
		nc, err := m.s.c.Dial(context.Background(), addr)
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			select {
			case <-m.over:
				nc.Close()
				return nil
			default:
				m.open[nc] = true
				return nc
			}
		}
		select {
		case <-m.over:
			return nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hangUp closes a connection, and waits before the next: a port may close each at once.
func (m *messages) hangUp(nc net.Conn) {
	nc.Close()
	time.Sleep(50 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, nc)
}

// publish publishes one message after the other, each by one of the ways to do so.
func (m *messages) publish(addr string, r *rand.Rand) {
	for {
		nc := m.dial(addr)
		if nc == nil {
			return
		}
		w := newWire(nc)
		m.mu.Lock()
		m.publishers++
		who := m.publishers
		m.mu.Unlock()
		key := "m{" + regionTags[r.IntN(simRegions)] + "}"
		for n, err := 1, error(nil); err == nil || isRefusal(err); n++ {
			text := fmt.Sprintf("%d %d", who, n)
			switch r.IntN(6) {
			case 0:
				_, err = w.transaction([]string{"MULTI"}, []string{"PUBLISH", messageChannel, text}, []string{"INCR", key},
					[]string{"EXEC"})
			case 1:
				_, err = w.call("EVAL", "redis.call('PUBLISH', ARGV[1], ARGV[2]) return redis.call('INCR', KEYS[1])",
					"1", key, messageChannel, text)
			case 2:
				_, err = w.call("SPUBLISH", m.shard, text)
			default:
				_, err = w.call("PUBLISH", messageChannel, text)
			}
			m.mu.Lock()
			m.sent++
			m.mu.Unlock()
			time.Sleep(time.Duration(r.IntN(int(2 * publishThink))))
		}
		m.hangUp(nc)
	}
}

// isRefusal reports whether an error says that a command did not run, or that nobody knows whether it did. The
// connection goes on.
func isRefusal(err error) bool {
	var no refusal
	var maybe unknown
	return errors.As(err, &no) || errors.As(err, &maybe) || errors.Is(err, errUnexpected)
}

// subscribe subscribes and checks what comes, on one connection after the other.
func (m *messages) subscribe(addr, how, channel string) {
	for {
		nc := m.dial(addr)
		if nc == nil {
			return
		}
		w := newWire(nc)
		last := map[string]int{} // by publisher
		_, err := w.call(how, channel)
		for err == nil {
			var text string
			if text, err = w.read(); err == nil && !m.receive(addr, how, strings.Fields(text), last) {
				break
			}
		}
		m.hangUp(nc)
	}
}

// receive checks a message that a subscriber has got behind the last ones. It returns false when the subscription is
// over.
func (m *messages) receive(addr, how string, words []string, last map[string]int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if words[0] == "sunsubscribe" {
		m.ended++
		return false
	}
	n, err := strconv.Atoi(words[len(words)-1])
	who := words[len(words)-2]
	m.got++
	m.last[addr+" "+how] = time.Now()
	if (err != nil || n <= last[who]) && m.problem == nil {
		m.problem = found(wrongMessage, "a client at %s (%s) got message %d of publisher %s behind message %d", addr, how, n,
			who, last[who])
	}
	last[who] = n
	return true
}

// end ends publishers and subscribers, after all faults have ended. Until then each subscriber gets messages again: of
// those to a shard channel the one at the proxy port, and one at a store.
func (m *messages) end() {
	since := time.Now()
	missing := func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		sharded := 0
		for i, addr := range m.addrs {
			for _, how := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"} {
				switch got := m.last[addr+" "+how].After(since); {
				case how == "SSUBSCRIBE" && i < len(m.addrs)-1:
					if got {
						sharded++
					}
				case !got:
					return how + " at " + addr
				}
			}
		}
		if sharded == 0 {
			return "SSUBSCRIBE at the stores"
		}
		return ""
	}
	what := missing()
	for ; what != "" && time.Since(since) < hangTime; what = missing() {
		time.Sleep(10 * time.Millisecond)
	}
	if what != "" {
		m.s.fail(found(noAnswer, "messages: in %s after everything was healed none came by %s", hangTime, what))
	}
	m.mu.Lock()
	close(m.over)
	for nc := range m.open {
		nc.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
	m.s.fail(m.problem)
	m.s.h.note("messages: %d sent, %d got, %d subscriptions ended by stores", m.sent, m.got, m.ended)
	m.s.reachTimes(subscriptionEnded, m.ended)
}
