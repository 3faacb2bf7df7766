package multiraft

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/topology"
)

// Replica is a region's replica on a host. It is a few words, which a user keeps where it uses them. The zero Replica
// is of no host: none of its methods may be called.
type Replica struct {
	host    *Host
	node    *dragonboat.NodeHost
	session *client.Session
	shard   uint64
	id      uint64
	tick    time.Duration
}

// Replica returns a replica, which may run or not. The host must have been started. With a nil Host, which tests of a
// machine have, it returns the zero Replica.
func (h *Host) Replica(region topology.RegionID, id topology.ReplicaID) Replica {
	if h == nil {
		return Replica{}
	}
	return Replica{
		host: h, node: h.node, session: h.node.GetNoOPSession(uint64(region)), shard: uint64(region), id: uint64(id),
		tick: h.o.Knobs.RTT,
	}
}

// Ran reports whether a replica has run before: its log says so.
func (h *Host) Ran(region topology.RegionID, id topology.ReplicaID) bool {
	return h.node.HasNodeInfo(uint64(region), uint64(id))
}

// Beginning says how a replica starts.
type Beginning struct {
	// Members are the first members of a region that is new here. There are none if the replica has run before, nor if
	// it joins: then it begins empty, and the leader sends it everything.
	Members []topology.Peer
	Joins   bool
	// NonVoter says that the replica has joined as a non-voter, also if it has become a voter since.
	NonVoter bool
	// OwnCuts says that the log is cut by calls of Cut alone, and not after raft.snapshot_entries.
	OwnCuts bool
}

// Start starts the replica. Errors of the machine, after it has been opened, end the process.
func (r *Replica) Start(m Machine, b Beginning) error {
	c := groupConfig(topology.RegionID(r.shard), topology.ReplicaID(r.id), r.host.o.Knobs)
	if b.OwnCuts {
		c.SnapshotEntries = 0
	}
	c.IsNonVoting = b.NonVoter
	err := r.node.StartOnDiskReplica(members(b.Members), b.Joins,
		func(uint64, uint64) sm.IOnDiskStateMachine { return m }, c)
	return mapped(err)
}

// members returns peers as the library has them. It is nil without peers.
func members(peers []topology.Peer) map[uint64]dragonboat.Target {
	if len(peers) == 0 {
		return nil
	}
	m := make(map[uint64]dragonboat.Target, len(peers))
	for _, p := range peers {
		m[uint64(p.Replica)] = p.Store.RaftAddress()
	}
	return m
}

// Stop stops a replica that may have been stopped already. Workers may still be at work for it: see RemoveLog.
func (h *Host) Stop(region topology.RegionID, id topology.ReplicaID) error {
	err := h.node.StopReplica(uint64(region), uint64(id))
	if errors.Is(err, dragonboat.ErrShardNotFound) {
		return nil
	}
	return mapped(err)
}

// RemoveLog removes the log of a replica that has been stopped. It returns false if the library has not let go of the
// replica yet, and is to be called again then.
func (h *Host) RemoveLog(region topology.RegionID, id topology.ReplicaID) (removed bool, err error) {
	// Not SyncRemoveData: it panics if a worker takes the replica up just when it stops.
	err = h.node.RemoveData(uint64(region), uint64(id))
	if errors.Is(err, dragonboat.ErrShardNotStopped) {
		return false, nil
	}
	return err == nil, mapped(err)
}

// Leader is Host.Leader.
func (r *Replica) Leader() (leader topology.ReplicaID, term uint64, known bool, err error) {
	id, term, known, err := r.node.GetLeaderID(r.shard)
	return topology.ReplicaID(id), term, known, err
}

// Propose proposes an entry; it does not wait. payload must stay as it is until the answer is there. If Propose returns
// an error, the entry is in no log and never will be. The answer comes within a tick after timeout.
func (r *Replica) Propose(payload []byte, timeout time.Duration) (Request, error) {
	rs, err := r.node.Propose(r.session, payload, Timeout(timeout, r.tick))
	return Request{rs}, mapped(err)
}

// ProposeAndWait proposes an entry and returns its result when the entry has been applied here. ctx must have a
// deadline. After ErrTimeout or ErrClosed the outcome is unknown.
func (r *Replica) ProposeAndWait(ctx context.Context, payload []byte) (Result, error) {
	result, err := r.node.SyncPropose(Context(ctx, r.tick), r.session, payload)
	return result, mapped(err)
}

// ReadIndex begins a read index round. Its answer comes when the replica has applied what had been committed when the
// round began.
func (r *Replica) ReadIndex(timeout time.Duration) (Request, error) {
	rs, err := r.node.ReadIndex(r.shard, Timeout(timeout, r.tick))
	return Request{rs}, mapped(err)
}

// Transfer asks Raft to hand the leadership to another replica. Raft may ignore the request.
func (r *Replica) Transfer(to topology.ReplicaID) error {
	return mapped(r.node.RequestLeaderTransfer(r.shard, uint64(to)))
}

// Cut asks Raft to take a snapshot record and to cut the log behind index; 0 cuts nothing. Nobody waits for it, and
// Raft may refuse.
func (r *Replica) Cut(index uint64) {
	option := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionOverhead: math.MaxUint64}
	if index > 0 {
		option.CompactionIndex, option.CompactionOverhead = index, 0
	}
	if rs, err := r.node.RequestSnapshot(r.shard, option, Timeout(time.Minute, r.tick)); err == nil {
		rs.Release()
	}
}

// Request is a proposal or a read index round under way. The zero Request never gets an answer.
type Request struct{ state *dragonboat.RequestState }

// Answer is what becomes of a request: see Outcome.
type Answer = dragonboat.RequestResult

// Answer returns the channel on which the one answer comes. There is none to a request that is made while the host
// closes.
func (q Request) Answer() <-chan Answer {
	if q.state == nil {
		return nil
	}
	return q.state.AppliedC()
}

// Release gives the request back after its answer has come. It must not be used then.
func (q Request) Release() { q.state.Release() }
