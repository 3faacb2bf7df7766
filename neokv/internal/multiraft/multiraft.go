// Package multiraft is the Raft library's room: a host of many regions' replicas on one store. Region, meta and store
// know Raft by this package alone, and import nothing of the library, dragonboat.
//
// Three packages beside it touch the library, too, each an adapter of one side: raftlog saves logs in the store's
// engine, transport carries messages over the stores' network, and disk gives the library a file system. Package inside
// has what the library does not export. docs/raft.md goes through the library's known defects.
//
// Types that stand in the way of every entry or message are the library's own under another name, so that nothing is
// copied: Entry, Result, LogEntry, Message, Answer.
package multiraft

import (
	"errors"
	"fmt"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft/raftlog"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// Options of a host.
type Options struct {
	Store topology.StoreID
	FS    *disk.FS
	Dir   string // of the library's own files, which are received snapshots
	Knobs settings.RaftKnobs
	Sync  bool // false if engine.wal_sync is none
	// Applied returns a region's apply index in the engine, 0 for none. All entries up to it are committed.
	Applied func(topology.RegionID) (uint64, error)
	// Failed returns why the store has failed, nil while it has not. Fence makes it fail.
	Failed func() error
	Fence  func(error)
	// LeaderChanged hears who leads a region, as soon as Raft knows here. It must not block.
	LeaderChanged func(Leader)
	Mistakes      Mistakes
}

type (
	// Mistakes are errors in the logic of the log store that a test plants, to see that a checker finds them.
	Mistakes raftlog.Mistakes
	// Stats are counters of the log store.
	Stats = raftlog.Stats
	// End is where a log ends.
	End = raftlog.End
)

// Leader says which replica leads a region in a term; Leader is 0 if none is known.
type Leader struct {
	Region topology.RegionID
	Leader topology.ReplicaID
	Term   uint64
}

// Host runs the replicas of a store. New makes one, OpenLog gives it the store's engine, and Start lets it take part.
// All methods may run concurrently, but for these three and Close.
type Host struct {
	o      Options
	stalls *raftlog.Stalls
	log    *raftlog.Log
	node   *dragonboat.NodeHost // nil before Start
}

// New returns a host with no log yet.
func New(o Options) *Host {
	return &Host{o: o, stalls: raftlog.NewStalls(o.Knobs.RTT * time.Duration(o.Knobs.ElectionTicks) / 3)}
}

// OpenLog makes the engine hold the logs.
func (h *Host) OpenLog(e *engine.Engine) {
	h.log = raftlog.New(e, raftlog.Options{
		Sync: h.o.Sync, Applied: h.o.Applied, Failed: h.o.Failed, Fence: h.o.Fence, Wait: h.o.FS.LogWait(),
		Stalls: h.stalls, Mistakes: raftlog.Mistakes(h.o.Mistakes),
	})
}

// Start starts the host, with no replicas yet, and makes it send and receive through an endpoint.
func (h *Host) Start(e *transport.Endpoint) error {
	// A step worker waits in each sync, and all regions that share the worker wait with it. A worker for snapshots
	// sends one, or starts a replica: a child must not wait for snapshots that throttled links delay.
	workers := config.EngineConfig{ExecShards: 8, CommitShards: 1, ApplyShards: 4, SnapshotShards: 16, CloseShards: 1}
	log := config.GetTinyMemLogDBConfig()
	log.Shards = workers.ExecShards
	node, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir: h.o.Dir, RaftAddress: h.o.Store.RaftAddress(),
		RTTMillisecond:    uint64(HostTick / time.Millisecond),
		RaftEventListener: leaderListener(h.o.LeaderChanged),
		Expert: config.ExpertConfig{
			LogDBFactory:     h.log.Factory(),
			TransportFactory: e.Factory(),
			Engine:           workers, LogDB: log, FS: h.o.FS.Raft(h.spare),
		},
	})
	if err == nil && node == nil {
		err = errors.New("no reason given")
	}
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	h.node = node
	return e.Attach(node)
}

// Close stops all replicas. Calls that are under way end with ErrClosed, or without an answer.
func (h *Host) Close() {
	if h.node != nil {
		h.node.Close()
	}
}

// spare reports whether a replica has all that a received snapshot holds, so that nobody needs the snapshot's file.
func (h *Host) spare(shard, index uint64) bool {
	applied, err := h.o.Applied(topology.RegionID(shard))
	return err == nil && applied >= index
}

// Stalled reports whether a sync of the logs takes long at this moment, and since when.
func (h *Host) Stalled() (began time.Time, ok bool) { return h.stalls.Now() }

// StallOver returns when the last such sync ended: the present if there is one now, and the instant at which the host
// was made if there has been none.
func (h *Host) StallOver() time.Time { return h.stalls.Over() }

// Leader returns the leader that Raft knows of a region, and its term; known is false if it knows none. The error says
// that there is no replica here. Leader takes no lock.
func (h *Host) Leader(region topology.RegionID) (leader topology.ReplicaID, term uint64, known bool, err error) {
	id, term, known, err := h.node.GetLeaderID(uint64(region))
	return topology.ReplicaID(id), term, known, err
}

// leaderListener takes the library's leader events.
type leaderListener func(Leader)

var _ raftio.IRaftEventListener = leaderListener(nil)

// LeaderUpdated implements raftio.IRaftEventListener.
func (l leaderListener) LeaderUpdated(i raftio.LeaderInfo) {
	l(Leader{Region: topology.RegionID(i.ShardID), Leader: topology.ReplicaID(i.LeaderID), Term: i.Term})
}

type (
	// Message is a message between replicas. Only transport makes, changes and keeps messages.
	Message = pb.Message
	// LogEntry is an entry as a log and a message have it.
	LogEntry = pb.Entry
)

// The types of messages that others than transport look at.
const (
	Heartbeat       = pb.Heartbeat
	Replicate       = pb.Replicate
	ReplicateResp   = pb.ReplicateResp
	RequestVote     = pb.RequestVote
	RequestPreVote  = pb.RequestPreVote
	InstallSnapshot = pb.InstallSnapshot
	TimeoutNow      = pb.TimeoutNow
)

// Payload returns the bytes that were proposed. ok is false for an entry that has none, and for a change of members.
func Payload(e *LogEntry) (payload []byte, ok bool) {
	if e.Type == pb.ConfigChangeEntry || len(e.Cmd) == 0 {
		return nil, false
	}
	if e.Type == pb.EncodedEntry {
		return e.Cmd[1:], true // the library's one-byte header, uncompressed
	}
	return e.Cmd, true
}
