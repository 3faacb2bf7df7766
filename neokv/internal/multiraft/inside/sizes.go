package inside

import (
	"math"
	_ "unsafe" // for go:linkname
)

// These are variables of the library that NeoKV sets though they are not exported. They are sizes that fit a program
// with a few busy groups, and not one with thousands of replicas. Dragonboat takes other values only from a file in the
// working directory, which a program that embeds NeoKV need not have.
//
// They hold for the whole process, also for other users of the library in it. They are set before main begins, and
// stay: replicas read some of them all the time without a lock, so to set them later, or back, would be a race.
var (
	// Dragonboat keeps the entries of a region that are not applied yet in a slice. It makes a new slice of
	// entrySliceSize entries, of 96 bytes each, whenever all of them have been applied or fewer than minEntrySliceSize
	// places are left. With 512 and 96 each entry costs every replica 48 KiB, if one entry is in flight at a time.
	//
	//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
	entrySliceSize uint64
	//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
	minEntrySliceSize uint64

	// A replica has two queues of so many proposals, of 96 bytes each. At most raft.max_inflight of a region, which is 32
	// at most, wait in one, and a barrier. Where a queue is full, the proposer tries again.
	//
	//go:linkname incomingProposalsMaxLen github.com/lni/dragonboat/v4.incomingProposalsMaxLen
	incomingProposalsMaxLen uint64
	// Likewise for read index rounds, of 8 bytes each. Few of them are under way, since reads share them.
	//
	//go:linkname incomingReadIndexMaxLen github.com/lni/dragonboat/v4.incomingReadIndexMaxLen
	incomingReadIndexMaxLen uint64
	// Likewise for messages and ticks, of some 380 bytes each. At most raft.max_inflight entries of a region are under
	// way, and there are some 30 ticks a second. Where a queue is full, messages are lost, as on any network: that takes
	// a disk which hangs for a second.
	//
	//go:linkname receiveQueueLen github.com/lni/dragonboat/v4.receiveQueueLen
	receiveQueueLen uint64
	// A store sends messages to another through so many queues, each with a goroutine, and with memory for 2048 messages
	// of some 380 bytes.
	//
	//go:linkname streamConnections github.com/lni/dragonboat/v4.streamConnections
	streamConnections uint64
	// A replica has so many random sources of 5 KiB, and maps of proposals that wait, each with a lock.
	//
	//go:linkname pendingProposalShards github.com/lni/dragonboat/v4.pendingProposalShards
	pendingProposalShards uint64

	// After so many milliseconds by its ticks, which are of multiraft.HostTick, a replica has its state machine synced. A
	// region's state is synced with its log, so that is not needed.
	//
	//go:linkname syncTaskInterval github.com/lni/dragonboat/v4.syncTaskInterval
	syncTaskInterval uint64
	// Each time after so many nanoseconds all replicas take a step, whether there is something to do or not.
	//
	//go:linkname nodeReloadInterval github.com/lni/dragonboat/v4.nodeReloadInterval
	nodeReloadInterval uint64
)

// raftSizes are the variables, with dragonboat's own value of each and NeoKV's.
var raftSizes = []struct {
	size        *uint64
	theirs, own uint64
}{
	{&entrySliceSize, 512, 32},
	{&minEntrySliceSize, 96, 8},
	{&incomingProposalsMaxLen, 2048, 40},
	{&incomingReadIndexMaxLen, 4096, 64},
	{&receiveQueueLen, 1024, 48},
	{&streamConnections, 4, 1},
	{&pendingProposalShards, 16, 1},
	{&syncTaskInterval, 180_000, math.MaxUint64},
	{&nodeReloadInterval, 200e6, 1e9},
}

// foundSizes are the values that the variables had, 0 where dragonboat does not have the variable.
var foundSizes []uint64

func init() {
	for _, s := range raftSizes {
		foundSizes = append(foundSizes, *s.size)
		*s.size = s.own
	}
}
