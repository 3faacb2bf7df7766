package multiraft

import (
	"fmt"
	"io"
	"log"

	"github.com/lni/dragonboat/v4/logger"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/topology"
)

// Check returns an error if a replica cannot start, since its log lacks something.
func (h *Host) Check(region topology.RegionID, replica topology.ReplicaID) error {
	return h.log.Check(region, replica)
}

// LogEnd returns where a region's log ends.
func (h *Host) LogEnd(region topology.RegionID) (End, error) { return h.log.End(uint64(region)) }

// Saved returns the index up to which the log of a region's replica is saved. It waits for nothing.
func (h *Host) Saved(region topology.RegionID) uint64 { return h.log.Saved(region) }

// LastLogged returns the index of the last entry of a region's log.
func (h *Host) LastLogged(region topology.RegionID) (uint64, error) { return h.log.Last(region) }

// FirstLogged returns the index of the first entry of a region's log.
func (h *Host) FirstLogged(region topology.RegionID) (uint64, error) { return h.log.First(region) }

// Snapshot returns the index of a replica's last snapshot record, 0 if it has none, and whether another store had sent
// the snapshot. It is for tests.
func (h *Host) Snapshot(region topology.RegionID, replica topology.ReplicaID) (index uint64, received bool, err error) {
	record, err := h.log.GetSnapshot(uint64(region), uint64(replica))
	return record.Index, record.Index > 0 && !record.Dummy, err
}

// LogStats returns the counters of the logs.
func (h *Host) LogStats() Stats { return h.log.Stats() }

// BeginAfter makes the log of a replica that has none begin after an entry of a term, as if a snapshot of its region
// had been received. It adds what that takes to a batch. If the batch is not committed afterwards, the host must not be
// used any more.
func (h *Host) BeginAfter(b *engine.Batch, r topology.Region, replica topology.ReplicaID, index, term uint64) error {
	return h.log.Import(b, pb.Snapshot{
		ShardID: uint64(r.ID), Index: index, Term: term, OnDiskIndex: index,
		Membership: pb.Membership{ConfigChangeId: 1, Addresses: members(r.Peers)},
		Dummy:      true, Type: pb.OnDiskStateMachine,
	}, uint64(replica))
}

// RemoveOthers removes the logs of replicas that are not owned, which a crash has left behind, and their folders for
// snapshots. The library removes the log first, so a folder may be all that is left. RemoveOthers is called before
// replicas start.
func (h *Host) RemoveOthers(owned func(topology.RegionID, topology.ReplicaID) bool) error {
	infos, err := h.log.ListNodeInfo()
	if err != nil {
		return err
	}
	for _, i := range infos {
		if owned(topology.RegionID(i.ShardID), topology.ReplicaID(i.ReplicaID)) {
			continue
		}
		if err := h.log.RemoveNodeData(i.ShardID, i.ReplicaID); err != nil {
			return err
		}
	}
	return h.removeFolders(h.o.Dir, owned)
}

// removeFolders removes the folders for snapshots of replicas that are not owned, wherever they are in dir.
func (h *Host) removeFolders(dir string, owned func(topology.RegionID, topology.ReplicaID) bool) error {
	names, err := h.o.FS.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := h.o.FS.PathJoin(dir, name)
		var region, replica uint64
		if n, _ := fmt.Sscanf(name, "snapshot-%d-%d", &region, &replica); n == 2 {
			if owned(topology.RegionID(region), topology.ReplicaID(replica)) {
				continue
			}
			if err := h.o.FS.RemoveAll(path); err != nil {
				return err
			}
			continue
		}
		if info, err := h.o.FS.Stat(path); err != nil {
			return err
		} else if info.IsDir() {
			if err := h.removeFolders(path, owned); err != nil {
				return err
			}
		}
	}
	return nil
}

// LogTo makes the library write its errors, and nothing else, to w. The choice holds for the whole process, also for
// other users of the library in it, and cannot be undone: the library takes one logger in the life of a process.
func LogTo(w io.Writer) {
	out := log.New(w, "neokv: ", log.LstdFlags|log.Lmsgprefix)
	logger.SetLoggerFactory(func(pkg string) logger.ILogger { return errorLogger{pkg, out} })
}

// errorLogger prints errors.
type errorLogger struct {
	pkg string
	out *log.Logger
}

func (errorLogger) SetLevel(logger.LogLevel) {}
func (errorLogger) Debugf(string, ...any)    {}
func (errorLogger) Infof(string, ...any)     {}
func (errorLogger) Warningf(string, ...any)  {}
func (l errorLogger) Errorf(f string, a ...any) {
	l.out.Printf("raft: %s: %s", l.pkg, fmt.Sprintf(f, a...))
}

// Panicf must not return.
func (l errorLogger) Panicf(f string, a ...any) {
	panic(fmt.Errorf("raft: %s: "+f, append([]any{l.pkg}, a...)...))
}
