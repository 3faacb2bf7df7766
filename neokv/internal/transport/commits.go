package transport

import (
	"maps"
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// commits limits how often a leader tells its followers what is committed. Raft sends each follower a message of its
// own as soon as an entry is committed. Every follower then takes a step, applies that entry alone and answers, and the
// leader takes a step for each answer. But the leader answers clients by itself, so followers need not apply at once.
// Here a follower hears what is committed at most once per interval, together with the next entries if there are any,
// and applies all of it as one batch. After the last entry it hears by the next heartbeat.
//
// For the follower it is as if a message was lost: it learns later what it may apply, and never anything wrong. A
// message without entries can also ask whether the follower has the entries that it was sent. If that message is
// dropped, the answer to the next heartbeat makes Raft ask again, at least an interval later.
//
// A message with a change of members keeps its commit index. Raft applies one such change before it appends the next
// one, so a replica that has a change in its log must know that the change before it is committed. A replica that does
// not know this could win an election by members that are two changes old, with voters that the newer members need not.
type commits struct {
	interval time.Duration // 0: no limit
	all      bool          // see Mistakes.AnyCommit

	mu   sync.Mutex
	told map[follower]time.Time
}

// follower is a replica that this store's replica of the region leads.
type follower struct{ region, replica uint64 }

// forget forgets the followers of a region.
func (c *commits) forget(region topology.RegionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.told, func(f follower, _ time.Time) bool { return f.region == uint64(region) })
}

// leave judges a Raft message that is about to leave at now. It reports whether to send the message, and may take the
// commit index out of it.
func (c *commits) leave(m *pb.Message, now time.Time) bool {
	if c.interval <= 0 || m.Type != pb.Replicate {
		return true
	}
	to := follower{m.ShardID, m.To}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch last, ok := c.told[to]; {
	case !ok || now.Sub(last) >= c.interval || changesMembers(m.Entries) && !c.all:
		if c.told == nil {
			c.told = make(map[follower]time.Time)
		}
		c.told[to] = now
	case len(m.Entries) == 0:
		return false
	default:
		m.Commit = 0 // with 0 the follower keeps the commit index that it knows
	}
	return true
}

func changesMembers(ents []pb.Entry) bool {
	for i := range ents { // not by value: an entry is large
		if ents[i].Type == pb.ConfigChangeEntry {
			return true
		}
	}
	return false
}
