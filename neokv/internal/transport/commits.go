package transport

import (
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// commits says how often a leader tells its followers what is committed: a leader that answers for itself needs nobody
// to apply at once. Raft tells each follower as soon as an entry is committed, by a message of its own; every follower
// then takes a step, applies that entry alone and answers, and the leader takes a step for each answer. Here a follower
// hears of it once per interval at most, along with the next entries if there are any, and applies what has come
// together as one batch. After the last entry the next heartbeat says it.
//
// To a follower this is a message that was lost: it learns later what it may apply, never anything wrong. A message
// without entries can also be the question whether the follower has what it was sent. Where that is dropped, the next
// heartbeat's answer makes Raft ask again, an interval later at least.
type commits struct {
	interval time.Duration // 0: as Raft does it

	mu   sync.Mutex
	told map[follower]time.Time
}

// follower is a replica that this store's replica of the region leads.
type follower struct{ region, replica uint64 }

// leave judges a Raft message that is about to leave at now: it reports whether it is worth sending, and may take the
// commit index out of it.
func (c *commits) leave(m *pb.Message, now time.Time) bool {
	if c.interval <= 0 || m.Type != pb.Replicate {
		return true
	}
	to := follower{m.ShardID, m.To}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch last, ok := c.told[to]; {
	case !ok || now.Sub(last) >= c.interval:
		if c.told == nil {
			c.told = make(map[follower]time.Time)
		}
		c.told[to] = now
	case len(m.Entries) == 0:
		return false
	default:
		m.Commit = 0 // what is known to be committed never goes back
	}
	return true
}
