package transport_test

import (
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/transport"
)

// TestQuietRegions fails when dragonboat's queues are not where inboxes look for them. It also sees that regions whose
// heartbeats wait keep their leaders, and that a proposal is applied at once.
func TestQuietRegions(t *testing.T) { synctest.Test(t, testQuietRegions) }

func testQuietRegions(t *testing.T) {
	c := newCluster(t, transport.NewNetwork(), 3, transport.Faults{})
	defer c.close()
	propose := func() {
		t.Helper()
		for r := 1; r <= 3; r++ {
			_, err := c.propose(c.leader(r, 0), r)
			c.must(err)
		}
	}
	propose()
	stats := func() (waited, campaigns int64) {
		for i := 1; i <= stores; i++ {
			s := c.nodes[i].endpoint.Stats()
			waited, campaigns = waited+s.Waited, campaigns+s.Campaigns
		}
		return waited, campaigns
	}
	_, before := stats()
	for bound := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		waited, campaigns := stats()
		if campaigns != before {
			t.Fatalf("%d campaigns", campaigns-before)
		}
		if waited >= 300 { // more than an election time-out of them
			break
		}
		if time.Now().After(bound) {
			t.Fatalf("%d heartbeats have waited", waited)
		}
	}
	propose()
}
