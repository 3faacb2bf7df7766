package region

import (
	"time"

	"github.com/lni/dragonboat/v4"
)

// cutting is how much has been applied since the machine last asked for the log to be cut.
type cutting struct {
	entries, bytes uint64
}

// count adds an applied entry, and asks for a snapshot record when SnapshotBytes have been applied. The library counts
// entries alone, and large ones may fill a disk before there are raft.snapshot_entries of them.
func (m *machine) count(bytes int) {
	c := &m.cutting
	c.entries++
	c.bytes += uint64(bytes)
	if c.bytes < uint64(m.o.Knobs.SnapshotBytes) {
		return
	}
	if m.askCut(c.entries) {
		*c = cutting{}
	}
}

// cutLog asks for a snapshot record behind which so many entries stay in the log. Nobody waits for it: if Raft refuses,
// the next request comes.
func (r *Replica) cutLog(entries uint64) {
	rs, err := r.o.Host.RequestSnapshot(r.shard, dragonboat.SnapshotOption{
		OverrideCompactionOverhead: true, CompactionOverhead: min(entries, uint64(r.o.Knobs.CompactionOverhead)),
	}, time.Minute)
	if err == nil {
		rs.Release()
	}
}

// askCut is Replica.CutLog.
func (c *core) askCut(entries uint64) bool {
	select {
	case c.cut <- entries:
		return true
	default:
		return false
	}
}
