package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
)

// messages is publishers and subscribers at all ports of a cluster, and the checker of what the subscribers get. A message
// says who publishes it, which is a connection, and is numbered. A subscriber, which is a connection, too, may miss
// messages. It gets none twice, and those of a publisher in order.
type messages struct {
	s     *sim
	addrs []string // of the stores, and of the proxy port
	shard string   // a shard channel
	over  chan struct{}
	wg    sync.WaitGroup

	mu         sync.Mutex
	publishers int
	sent, got  int
	ended      int // subscriptions that the store has ended
	open       []net.Conn
	problem    string
}

func newMessages(s *sim) *messages {
	m := &messages{s: s, over: make(chan struct{}), shard: "s{" + regionTags[0] + "}"}
	m.addrs = append(append(m.addrs, s.c.Addrs()...), s.c.ProxyAddr())
	for i, addr := range m.addrs {
		for n := range 2 {
			m.wg.Go(func() { m.publish(addr, s.random(uint64(100+10*i+n))) })
			m.wg.Go(func() { m.subscribe(addr, "SUBSCRIBE", "c") })
		}
		m.wg.Go(func() { m.subscribe(addr, "PSUBSCRIBE", "c*") })
		m.wg.Go(func() { m.subscribe(addr, "SSUBSCRIBE", m.shard) })
	}
	return m
}

// dial connects. It returns nil when the run is over.
func (m *messages) dial(addr string) net.Conn {
	for {
		nc, err := m.s.c.Dial(context.Background(), addr)
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.open = append(m.open, nc)
			select {
			case <-m.over:
				nc.Close()
				return nil
			default:
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
		key := "k{" + regionTags[r.IntN(simRegions)] + "}"
		for n, err := 1, error(nil); err == nil || isRefusal(err); n++ {
			text := fmt.Sprintf("%d %d", who, n)
			switch r.IntN(6) {
			case 0:
				_, err = w.transaction([]string{"MULTI"}, []string{"PUBLISH", "c", text}, []string{"INCR", key}, []string{"EXEC"})
			case 1:
				_, err = w.call("EVAL", "redis.call('PUBLISH', 'c', ARGV[1]) return redis.call('INCR', KEYS[1])", "1", key, text)
			case 2:
				_, err = w.call("SPUBLISH", m.shard, text)
			default:
				_, err = w.call("PUBLISH", "c", text)
			}
			m.mu.Lock()
			m.sent++
			m.mu.Unlock()
			time.Sleep(time.Duration(r.IntN(int(4 * time.Millisecond))))
		}
		nc.Close()
	}
}

// isRefusal reports whether an error says that a command did not run, or that nobody knows whether it did. The connection
// goes on.
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
		last := map[string]int{}
		_, err := w.call(how, channel)
		if isRefusal(err) { // another store has the slot
			nc.Close()
			time.Sleep(50 * time.Millisecond)
			continue
		}
		for err == nil {
			var text string
			if text, err = w.read(); err != nil {
				break
			}
			words := strings.Fields(text)
			if words[0] == "sunsubscribe" {
				m.mu.Lock()
				m.ended++
				m.mu.Unlock()
				break
			}
			n, wrong := strconv.Atoi(words[len(words)-1])
			who := words[len(words)-2]
			m.mu.Lock()
			m.got++
			if (wrong != nil || n <= last[who]) && m.problem == "" {
				m.problem = fmt.Sprintf("a client at %s (%s) got message %d of publisher %s behind message %d", addr, how, n, who, last[who])
			}
			m.mu.Unlock()
			last[who] = n
		}
		nc.Close()
	}
}

// end ends publishers and subscribers.
func (m *messages) end() {
	m.mu.Lock()
	close(m.over)
	for _, nc := range m.open {
		nc.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
}

// runMessages runs publishers and subscribers for so long under random faults, and returns what is wrong.
func runMessages(t *testing.T, seed uint64, hooks seam.Hooks, lasts time.Duration) (problem string) {
	k := simSettings()
	if seed%2 == 1 {
		k.Raft.Transport = "tcp"
	}
	inBubbleWith(t, k, hooks, func(t *testing.T, s *sim, c *caller) {
		s.seed = seed
		m := newMessages(s)
		r := s.random(1)
		any := func() int { return 1 + r.IntN(3) }
		did := 0
		for end := time.Now().Add(lasts); time.Now().Before(end); {
			text := ""
			switch r.IntN(10) {
			case 0:
				text = fmt.Sprintf("kill %d", any())
			case 1:
				text = fmt.Sprintf("partition %d all", any())
			case 2:
				text = fmt.Sprintf("link %d %d one-way loss=0.3", any(), any())
			case 3:
				text = fmt.Sprintf("link %d all delay=%dms", any(), 1+r.IntN(300))
			case 4:
				text = fmt.Sprintf("pause %d", any())
			case 5, 6:
				text = fmt.Sprintf("transfer %d %d", 1+r.IntN(simRegions), any())
			case 7:
				text = fmt.Sprintf("split %d", 1+r.IntN(simRegions))
			case 8:
				text = fmt.Sprintf("merge %d", 1+r.IntN(simRegions))
			default:
				text = fmt.Sprintf("partition %d %d", any(), any())
			}
			f, err := fault.Parse(text)
			if err != nil {
				continue // a store and itself
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err = s.c.Inject(ctx, f); err == nil {
				did++
			}
			time.Sleep(time.Duration(r.IntN(int(1500 * time.Millisecond))))
			if f.Lasts() {
				if _, err := s.c.Inject(ctx, f.End()); err != nil {
					t.Errorf("seed %d: %s: %v", seed, f.End(), err)
				}
			}
			cancel()
			time.Sleep(time.Duration(r.IntN(int(300 * time.Millisecond))))
		}
		s.heal()
		m.mu.Lock()
		before := m.got
		m.mu.Unlock()
		until(t, "message after all faults", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.got > before+100
		})
		m.end()
		problem = m.problem
		t.Logf("seed %d: %d faults, %d messages sent, %d got, %d subscriptions ended by stores", seed, did, m.sent, m.got, m.ended)
		if problem == "" && (did < 3 || m.got < m.sent) {
			t.Errorf("seed %d: %d faults, %d messages reached subscribers of %d sent: the run proves nothing", seed, did, m.got, m.sent)
		}
	})
	return problem
}

// TestMessages: subscribers at all ports under faults get no message twice, and those of each publisher in order.
func TestMessages(t *testing.T) {
	seeds := uint64(2)
	if n, err := strconv.Atoi(os.Getenv("NEOKV_MESSAGE_SEEDS")); err == nil {
		seeds = uint64(n)
	}
	for seed := range seeds {
		if problem := runMessages(t, seed, seam.Hooks{}, 10*time.Second); problem != "" {
			t.Errorf("seed %d: %s", seed, problem)
		}
	}
}

// TestMessagesFindRepeats: a lane that sends again what was not answered is found.
func TestMessagesFindRepeats(t *testing.T) {
	for seed := range uint64(6) {
		hooks := seam.Hooks{}
		hooks.Mistakes.Store.RepeatBatch = true
		if problem := runMessages(t, seed, hooks, 10*time.Second); problem != "" {
			t.Logf("seed %d: %s", seed, problem)
			return
		}
	}
	t.Error("six seeds find nothing wrong with a lane that repeats")
}
