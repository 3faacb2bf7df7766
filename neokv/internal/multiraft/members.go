package multiraft

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/lni/dragonboat/v4"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// Members are the members of a region's Raft group, as of an entry of its log.
type Members struct {
	// Change is the index of the latest change, 1 for the first members. A change names the one that it was planned on,
	// and is rejected if that is not the latest any more.
	Change    uint64
	Voters    []topology.Peer // ascending, by replica id, as the others
	NonVoters []topology.Peer
	Removed   map[topology.ReplicaID]bool // these never come back
}

// ErrRejected: the members have changed since the change was planned, or it makes no sense. It has no effect.
var ErrRejected = errors.New(dragonboat.ErrRejected.Error())

// Members returns the members as of all that was committed when it was called. ctx must have a deadline. On a replica
// that installs snapshots the library reads them without a lock, so this one must lead.
func (r *Replica) Members(ctx context.Context) (m Members, err error) {
	have, err := r.node.SyncGetShardMembership(Context(ctx, r.tick), r.shard)
	if err != nil {
		return m, mapped(err)
	}
	m.Change, m.Voters, m.NonVoters = have.ConfigChangeID, peers(have.Nodes), peers(have.NonVotings)
	m.Removed = make(map[topology.ReplicaID]bool, len(have.Removed))
	for id := range have.Removed {
		m.Removed[topology.ReplicaID(id)] = true
	}
	return m, nil
}

// peers is the inverse of members, in order.
func peers(members map[uint64]dragonboat.Target) (all []topology.Peer) {
	for _, id := range slices.Sorted(maps.Keys(members)) {
		store, _ := topology.StoreOf(members[id])
		all = append(all, topology.Peer{Store: store, Replica: topology.ReplicaID(id)})
	}
	return all
}

// Removal returns the replica that an entry removes from its region's Raft group.
func Removal(e *LogEntry) (id topology.ReplicaID, ok bool) {
	var c pb.ConfigChange
	if e.Type != pb.ConfigChangeEntry || c.Unmarshal(e.Cmd) != nil || c.Type != pb.RemoveNode {
		return 0, false
	}
	return topology.ReplicaID(c.ReplicaID), true
}

// MemberChange is a change of one member of a region's Raft group.
type MemberChange byte

const (
	AddNonVoter  MemberChange = iota
	Promote                   // makes a non-voter a voter
	RemoveMember              // a voter or a non-voter
)

// Change changes one member, as planned on members whose latest change is that one. This replica must lead. After
// ErrTimeout and ErrClosed the outcome is unknown; after other errors the change has no effect.
func (r *Replica) Change(ctx context.Context, what MemberChange, p topology.Peer, latest uint64) error {
	ctx = Context(ctx, r.tick)
	to := uint64(p.Replica)
	var err error
	switch what {
	case AddNonVoter:
		err = r.node.SyncRequestAddNonVoting(ctx, r.shard, to, p.Store.RaftAddress(), latest)
	case Promote:
		err = r.node.SyncRequestAddReplica(ctx, r.shard, to, p.Store.RaftAddress(), latest)
	default:
		err = r.node.SyncRequestDeleteReplica(ctx, r.shard, to, latest)
	}
	return mapped(err)
}
