package neokv

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// eventsOf has a client of each port subscribe to the events of keys, changes keys of all stores, and returns what the
// client of the proxy port is told, which is at least so much, and whether those of the stores are told of no other
// keys than the store's.
func eventsOf(t *testing.T, least int, mistakes seam.Mistakes) (proxy []string, local bool) {
	s := small()
	s.Redis.NotifyKeyspaceEvents = "KEAm"
	c := startWith(t, Config{InMemory: true, NoSockets: true, Settings: s}, &seam.Hooks{Mistakes: mistakes})
	var all []*listener
	for _, addr := range append(c.Addrs(), c.ProxyAddr()) {
		l := c.listener(t, addr)
		l.ask(t, "PSUBSCRIBE __key*__:*")
		all = append(all, l)
	}
	writer := c.listener(t, c.ProxyAddr())
	var keys []string
	for i := range c.in.Places() {
		key := keyAt(t, c, c.in.Places()[i].ID())
		keys = append(keys, key)
		for _, call := range []string{"SET " + key + " 1", "GET " + key, "DEL " + key, "GET " + key} {
			writer.ask(t, call)
		}
	}
	local = true
	waitFor(t, 20*time.Second, fmt.Sprint(least, " events at the proxy port"), func() bool {
		for at, l := range all {
			fmt.Fprint(l, "PING\r\n") // its reply comes behind what has been pushed
			for {
				got := l.next(t)
				if strings.HasPrefix(got, "* pong") {
					break
				}
				if at == len(c.in.Places()) {
					proxy = append(proxy, strings.TrimPrefix(got, "* pmessage __key*__:* "))
				} else if !strings.Contains(got+" ", keys[at]+" ") {
					local = false
				}
			}
		}
		return len(proxy) >= least
	})
	return proxy, local
}

// TestEventsAreLocal: what happens to a key is told once at the port of the store that serves it, and once at the proxy
// port. If all replicas told, the proxy port's clients would hear it three times.
func TestEventsAreLocal(t *testing.T) {
	got, local := eventsOf(t, 18, seam.Mistakes{})
	if len(got) != 18 || !local {
		t.Errorf("the proxy port tells %d events, %q; of their own keys alone the stores tell: %v", len(got), got, local)
	}
	var mistakes seam.Mistakes
	mistakes.Store.Region.AllTell = true
	told, local := eventsOf(t, 19, mistakes)
	if local {
		t.Errorf("all replicas tell, and the proxy port tells %d events; of their own keys alone the stores tell: %v",
			len(told), local)
	}
	t.Logf("%d events, and %d where all replicas tell", len(got), len(told))
}
