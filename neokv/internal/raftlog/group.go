package raftlog

import (
	"github.com/lni/dragonboat/v4/config"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// GroupConfig returns the configuration of a replica's Raft group: when its replicas elect, and how much of its log
// they keep. It is the same for all regions and for meta.
func GroupConfig(id topology.RegionID, replica topology.ReplicaID, k settings.RaftKnobs) config.Config {
	return config.Config{
		ShardID: uint64(id), ReplicaID: uint64(replica),
		CheckQuorum: true, PreVote: true, OrderedConfigChange: true,
		ElectionRTT: uint64(k.ElectionTicks), HeartbeatRTT: uint64(max(1, k.ElectionTicks/5)),
		SnapshotEntries: uint64(k.SnapshotEntries), CompactionOverhead: uint64(k.CompactionOverhead),
	}
}
