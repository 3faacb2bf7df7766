package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// start boots a cluster and closes it at the end of the test.
func start(t *testing.T, c neokv.Config) *neokv.Cluster {
	t.Helper()
	return startWith(t, c, new(seam.Hooks))
}

// startWith is start with hooks.
func startWith(t *testing.T, c neokv.Config, hooks *seam.Hooks) *neokv.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(seam.With(t.Context(), hooks), 30*time.Second)
	defer cancel()
	cluster, err := neokv.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// until waits for a condition, for a minute at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in a minute", what)
		}
	}
}

// inBubble runs a test on a cluster in virtual time. No faults happen but those that the test makes.
func inBubble(t *testing.T, hooks seam.Hooks, test func(t *testing.T, s *sim, c *caller)) {
	inBubbleWith(t, simSettings(), hooks, test)
}

// inBubbleWith is inBubble with other settings.
func inBubbleWith(t *testing.T, k *settings.Settings, hooks seam.Hooks, test func(t *testing.T, s *sim, c *caller)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{seed: 1, config: neokv.Config{NoSockets: true, Settings: k}, h: newHistory(io.Discard),
			bounds: newBoundsSeen(), holds: newHeldTimes()}
		s.starts = s.random(8)
		s.hook(&hooks)
		s.attach(startWith(t, neokv.Config{InMemory: true, NoSockets: true, Seed: 1, Settings: k}, &hooks), &hooks)
		c := s.newCaller(1)
		defer c.close()
		test(t, s, c)
		if s.problem != nil {
			t.Error(s.problem)
		}
	})
}

// ask runs a command on one store, on a new connection, and returns its reply.
func (s *sim) ask(t *testing.T, at seam.StorePlace, args ...string) string {
	t.Helper()
	nc, err := s.c.Dial(t.Context(), at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reply, err := newWire(nc).call(args...)
	if err != nil {
		return err.Error()
	}
	return reply
}

// session is a connection on which a test runs one command after the other.
type session struct {
	t *testing.T
	w *respConn
}

// session connects to a store.
func (s *sim) session(t *testing.T, at seam.StorePlace) *session {
	t.Helper()
	return s.sessionAt(t, at.Addr())
}

func (s *sim) sessionAt(t *testing.T, addr string) *session {
	t.Helper()
	nc, err := s.c.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &session{t, newWire(nc)}
}

// ask runs a command and returns its reply, or its error as text.
func (x *session) ask(args ...string) string {
	reply, err := x.w.call(args...)
	if err != nil {
		return err.Error()
	}
	return reply
}

// want runs a command and compares its reply. A wanted reply that ends with "..." is a part of the reply.
func (x *session) want(want string, args ...string) {
	x.t.Helper()
	if got := x.ask(args...); !like(got, want) {
		x.t.Errorf("%s = %q; want %q", args, got, want)
	}
}

// like reports whether a reply is the wanted one; see want.
func like(got, want string) bool {
	part, open := strings.CutSuffix(want, "...")
	return got == want || open && strings.Contains(got, part)
}

// pipeline sends commands at once and returns their replies.
func pipeline(t *testing.T, nc net.Conn, commands ...[]string) (replies []string) {
	t.Helper()
	var b []byte
	for _, args := range commands {
		b = fmt.Appendf(b, "*%d\r\n", len(args))
		for _, a := range args {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	w := newWire(nc)
	for range commands {
		reply, err := w.read()
		if err != nil {
			reply = err.Error()
		}
		replies = append(replies, reply)
	}
	return replies
}

// writers keep all regions busy until stop has returned. They count their writes, and the writes that failed.
func (s *sim) writers() (writes, refused *atomic.Int64, stop func()) {
	writes, refused = new(atomic.Int64), new(atomic.Int64)
	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 * simRegions {
		clients.Go(func() {
			c := s.newCaller(100 + i)
			defer c.close()
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
				}
				ok, err := c.do(set, s.key('r', i%simRegions), "v")
				s.fail(err)
				writes.Add(1)
				if !ok {
					refused.Add(1)
				}
			}
		})
	}
	return writes, refused, func() {
		close(over)
		clients.Wait()
	}
}

// leads is the store that leads region 1.
func (s *sim) leads(t *testing.T) seam.StorePlace {
	n, _ := s.leader(1)
	if n == nil {
		t.Fatal("region 1 has no leader")
	}
	return n
}

// nearby names keys of region 1, each in another slot.
func (s *sim) nearby(i int) string {
	slots := topology.SplitEvenly(simRegions)[0]
	for n := i; ; n += 100_000 {
		if key := strconv.Itoa(n); slots.Contains(topology.SlotOf([]byte(key))) {
			return key
		}
	}
}

// transfer asks the leader of a region once to hand over to a store, and does not wait.
func (s *sim) transfer(r topology.RegionID, to seam.StorePlace) {
	from, _ := s.leader(r)
	if from == nil || from == to {
		return
	}
	if st := from.Store(); st != nil {
		s.h.note("transfer region %d from %d to %d: %v", r, from.ID(), to.ID(), st.Transfer(r, to.ID()))
		s.count(&s.stats.Transfers)
	}
}
