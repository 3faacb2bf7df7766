package transport_test

import (
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// TestRegionsAtRest sees that regions come to rest and keep their leaders then, that proposals wait for no tick, and
// that a leader is replaced which dies or is cut off while its region is at rest. It fails when dragonboat's queues are
// not where inboxes look for them.
func TestRegionsAtRest(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		const regions = 3
		c := newCluster(t, newNet(), regions, transport.Mistakes{})
		defer c.close()
		propose := func() {
			t.Helper()
			for r := 1; r <= regions; r++ {
				leader := c.leader(r, 0)
				begin := time.Now()
				_, err := c.propose(leader, r)
				c.must(err)
				if d := time.Since(begin); d >= rtt {
					t.Errorf("region %d: a proposal took %v", r, d)
				}
			}
		}
		stats := func() (rested, campaigns int64) {
			for _, n := range c.nodes {
				if n != nil {
					s := n.endpoint.Stats()
					rested, campaigns = rested+s.Rested, campaigns+s.Campaigns
				}
			}
			return rested, campaigns
		}
		rest := func() {
			t.Helper()
			time.Sleep(2 * time.Second)
			rested, campaigns := stats()
			const d = 20 * time.Second
			time.Sleep(d)
			again, stood := stats()
			live := int64(0)
			for _, n := range c.nodes {
				if n != nil {
					live++
				}
			}
			if all := live * regions * int64(d/rtt); again-rested < all*8/10 || stood != campaigns {
				t.Errorf("replicas at rest did not get %d of %d ticks, %d campaigns; want 8 of 10 and none",
					again-rested, all, stood-campaigns)
			}
		}
		propose()
		rest()
		propose()
		rest()

		// The cluster has other leaders soon after one died, and after it was cut off. It follows them when it is back.
		const bound = 5 * electRTT * rtt
		old := c.leader(1, 0)
		c.stop(old)
		begin := time.Now()
		c.leader(1, old)
		if d := time.Since(begin); d > bound {
			t.Errorf("%v without a leader after its store was killed", d)
		}
		propose()
		rest()
		c.start(old)
		time.Sleep(3 * time.Second)
		rest()
		propose()

		old = c.leader(1, 0)
		rest()
		for s := topology.StoreID(1); s <= stores; s++ {
			if s != old {
				c.cut(s, old)
			}
		}
		begin = time.Now()
		c.leader(1, old)
		if d := time.Since(begin); d > bound {
			t.Errorf("%v without a leader after it was cut off", d)
		}
		time.Sleep(4 * time.Second)
		if id, _, ok, _ := c.nodes[old].host.GetLeaderID(1); ok && topology.StoreID(id) == old {
			t.Error("a leader that was cut off leads for seconds")
		}
		c.heal()
		time.Sleep(time.Second)
		propose()
		rest()

		// A transfer to a replica that is away is given up after an election time-out, as of a busy region.
		leader := c.leader(1, 0)
		away := leader%stores + 1
		c.stop(away)
		time.Sleep(3 * time.Second)
		_, err := c.propose(leader, 1) // so that the replica which is away is behind
		c.must(err)
		rest()
		c.nodes[leader].endpoint.Stir(1)
		c.must(c.nodes[leader].host.RequestLeaderTransfer(1, uint64(away)))
		begin = time.Now()
		time.Sleep(rtt) // a proposal that comes together with the request is taken before it
		for {
			if _, err := c.propose(leader, 1); err == nil {
				break
			}
			if time.Since(begin) > bound {
				t.Fatalf("no proposal %v after a transfer that fails", bound)
			}
			time.Sleep(rtt)
		}
		c.start(away)
		time.Sleep(5 * time.Second)

		// A leader whose replica has ended is replaced although its store goes on.
		old = c.leader(1, 0)
		rest()
		c.must(c.nodes[old].host.StopReplica(1, uint64(old)))
		begin = time.Now()
		c.leader(1, old)
		if d, most := time.Since(begin), bound+3*10*3*rtt; d > most {
			t.Errorf("%v without a leader after its replica ended; want %v at most", d, most)
		}
	})
}
