package transport

import (
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// TestCommits: per follower and interval one message may say what is committed; the others go without, or stay if they
// say nothing else. A change of members always has the commit index.
func TestCommits(t *testing.T) {
	const ms = time.Millisecond
	c := commits{interval: 20 * ms}
	entry := []pb.Entry{{Index: 8}}
	members := []pb.Entry{{Index: 9}, {Index: 10, Type: pb.ConfigChangeEntry}}
	for i, m := range []struct {
		at     time.Duration
		m      pb.Message
		stays  bool
		commit uint64
	}{
		{0, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 7, Entries: entry}, false, 7},
		{1 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 8}, true, 0},
		// Another follower.
		{1 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 3, Commit: 8}, false, 8},
		// Another region.
		{1 * ms, pb.Message{Type: pb.Replicate, ShardID: 2, To: 2, Commit: 8}, false, 8},
		// Entries always leave.
		{19 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 8, Entries: entry}, false, 0},
		{19 * ms, pb.Message{Type: pb.Heartbeat, ShardID: 1, To: 2, Commit: 8}, false, 8}, // and so do heartbeats
		// Also a question that comes late.
		{20 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 9}, false, 9},
		{39 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 10}, true, 0},
		{41 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 10, Entries: entry}, false, 10},
		// A change of members tells that the one before it is committed.
		{42 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 11, Entries: members}, false, 11},
		{43 * ms, pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Commit: 11, Entries: entry}, false, 0},
	} {
		got := m.m
		leaves := c.leave(&got, time.Time{}.Add(time.Hour+m.at))
		if leaves == m.stays || leaves && got.Commit != m.commit || len(got.Entries) != len(m.m.Entries) {
			t.Errorf("message %d: leaves %v with commit index %d and %d entries", i, leaves, got.Commit,
				len(got.Entries))
		}
	}
	m := pb.Message{Type: pb.Replicate, Commit: 5}
	for range 2 {
		if c := (commits{}); !c.leave(&m, time.Time{}) || m.Commit != 5 {
			t.Error("without an interval a message does not leave as it is")
		}
	}
}

// BenchmarkCommits judges a message of 16 entries that says no commit index.
func BenchmarkCommits(b *testing.B) {
	c := commits{interval: time.Hour}
	now := time.Now()
	m := pb.Message{Type: pb.Replicate, ShardID: 1, To: 2, Entries: make([]pb.Entry, 16)}
	c.leave(&m, now)
	b.ReportAllocs()
	for b.Loop() {
		m.Commit = 7
		c.leave(&m, now)
	}
}
