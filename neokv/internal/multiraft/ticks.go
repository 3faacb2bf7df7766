package multiraft

import (
	"context"
	"math"
	"time"

	"github.com/lni/dragonboat/v4/config"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// groupConfig returns the configuration of a replica's Raft group: when its replicas elect, and how much of its log
// they keep. It is the same for all regions and for meta.
func groupConfig(id topology.RegionID, replica topology.ReplicaID, k settings.RaftKnobs) config.Config {
	return config.Config{
		ShardID: uint64(id), ReplicaID: uint64(replica),
		CheckQuorum: true, PreVote: true, OrderedConfigChange: true,
		ElectionRTT: uint64(k.ElectionTicks), HeartbeatRTT: uint64(max(1, k.ElectionTicks/5)),
		SnapshotEntries: uint64(k.SnapshotEntries), CompactionOverhead: uint64(k.CompactionOverhead),
	}
}

// HeartbeatTicks returns how many ticks of raft.rtt a leader lets pass between two heartbeats.
func HeartbeatTicks(k settings.RaftKnobs) int { return int(groupConfig(0, 0, k).HeartbeatRTT) }

// HostTick is the tick of a NodeHost in place of raft.rtt, since transport ticks the replicas; see transport/quiet.go.
// One such tick still comes each day. It shortens an election time-out by one tick; the lease allows for that. Requests
// made between it and the next tick of the endpoint expire at once.
const HostTick = 24 * time.Hour

// Timeout returns what dragonboat must be told for it to give up a request after d. Dragonboat counts time-outs in
// ticks and takes each for HostTick; in truth the replicas get one every tick. The time-out is one tick at least, and
// some 100,000 at most.
func Timeout(d, tick time.Duration) time.Duration {
	return min(max(1, d/tick), math.MaxInt64/HostTick) * HostTick
}

// Context returns ctx for a call of dragonboat that makes a time-out of the deadline: it has the deadline that Timeout
// gives.
func Context(ctx context.Context, tick time.Duration) context.Context { return hostContext{ctx, tick} }

type hostContext struct {
	context.Context
	tick time.Duration
}

func (c hostContext) Deadline() (time.Time, bool) {
	d, ok := c.Context.Deadline()
	now := time.Now()
	return now.Add(Timeout(d.Sub(now)+c.tick, c.tick)), ok // one tick more, since dragonboat rounds down
}
