package sim

import (
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// TestReadsBesideEarlyReplies: with the planted mistake that SETs are answered early, a read of a key that has expired
// comes to an end, also while Raft drops proposals. Otherwise the reader would propose without a pause, and virtual
// time stand still.
func TestReadsBesideEarlyReplies(t *testing.T) {
	var hooks seam.Hooks
	hooks.Mistakes.Store.Region.EarlyReply = true
	inBubble(t, hooks, func(t *testing.T, s *sim, c *caller) {
		key := s.key('e', 0)
		c.doFor(set, key, "v", 50*time.Millisecond)
		time.Sleep(60 * time.Millisecond)
		leader := s.leads(t)
		away := s.others(leader)[0]
		s.do("partition %d all", away.ID())
		s.transfer(1, away) // until it fails, Raft drops each proposal at once
		if ok, err := c.do(get, key, ""); !ok || err != nil {
			t.Errorf("GET: %v, %v", ok, err)
		}
	})
}
