// Package raftlog is dragonboat's log store (raftio.ILogDB) on the store's shared engine, keyspace raft_log.
//
// All regions of a store share one WAL: one round of a step worker saves updates of many regions as one batch, with at
// most one sync. docs/storage.md, "Raft log", has the keys. The values:
//
//	log meta    [first index u64]               absent: the log begins with its first entry
//	log entry   dragonboat's entry
//	Raft state  [replica u64][dragonboat's state]
//	bootstrap   [replica u64][dragonboat's bootstrap]
//	snapshot    [replica u64][dragonboat's snapshot]
//
// No method returns an error to dragonboat, since dragonboat would end the process; SaveSnapshots may return the one
// with which a snapshot is called off. An error fences the store instead (Options.Fence). From then on the methods
// answer with placeholders, which cannot leave a fenced store. Check reads a replica's records before it starts, when
// an error can still be returned.
package raftlog

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// Options are the options of a log store.
type Options struct {
	// Sync is false if engine.wal_sync is none.
	Sync bool
	// Failed returns why the store is fenced, or nil. Methods of a fenced store answer with placeholders.
	Failed func() error
	// Applied returns a region's apply index in the engine, 0 for none. All entries up to it are committed.
	Applied func(topology.RegionID) (uint64, error)
	// Fence is called with a read error or a checksum mismatch, and fences the store.
	Fence func(error)
	// Wait waits for a disk while no lock is held: before a round is written, and again, with sync, before it is synced,
	// unless the round has a snapshot. It may be nil.
	Wait func(sync bool)
	// Stalls notes the rounds that are synced.
	Stalls   *Stalls
	Mistakes Mistakes
}

// Mistakes are errors in the logic of a log store that a test plants, to see that a checker finds them. None by
// default.
type Mistakes struct {
	NoSync   bool // what must be durable on return is not synced
	LateSync bool // every other round is synced with the next one
	NoCommit bool // the commit index is not saved with a change of members
}

// Log is the log store of all regions of a store. raftio.ILogDB documents most of its methods. All may run
// concurrently, as long as only one caller at a time saves the same region.
type Log struct {
	engine *engine.Engine
	o      Options

	mu       sync.RWMutex // of the map alone
	replicas map[topology.RegionID]*replica

	rounds, batches, syncs, entries, entryBytes, read, truncated atomic.Int64
}

// Stats are counters since the log store was made.
type Stats struct {
	Rounds     int64 // calls to SaveRaftState
	Batches    int64 // batches committed
	Syncs      int64 // batches committed with sync
	Entries    int64 // entries saved
	EntryBytes int64 // their size as stored, without keys
	Read       int64 // entries read back
	Truncated  int64 // entries cut off at the front
}

// New returns the log store on an engine. Close does not close the engine.
func New(e *engine.Engine, o Options) *Log {
	return &Log{engine: e, o: o, replicas: make(map[topology.RegionID]*replica)}
}

// Factory returns the value for dragonboat's Expert.LogDBFactory. It always hands out this log store.
func (l *Log) Factory() config.LogDBFactory { return logFactory{l} }

type logFactory struct{ l *Log }

func (f logFactory) Create(config.NodeHostConfig, config.LogDBCallback, []string, []string) (raftio.ILogDB, error) {
	return f.l, nil
}

func (f logFactory) Name() string { return f.l.Name() }

// Stats returns the counters so far.
func (l *Log) Stats() Stats {
	return Stats{
		Rounds: l.rounds.Load(), Batches: l.batches.Load(), Syncs: l.syncs.Load(),
		Entries: l.entries.Load(), EntryBytes: l.entryBytes.Load(), Read: l.read.Load(), Truncated: l.truncated.Load(),
	}
}

func (l *Log) Name() string         { return "neokv-raftlog" }
func (l *Log) BinaryFormat() uint32 { return 1 }

// Close does nothing: others use the engine, too.
func (l *Log) Close() error { return nil }

// fenced reports whether the store has failed. If it returns true, the store's endpoint is silent, so a placeholder
// cannot leave the store.
func (l *Log) fenced() bool {
	err := l.o.Failed()
	if err != nil {
		l.o.Fence(err)
	}
	return err != nil
}

// fail fences the store.
func (l *Log) fail(err error) { l.o.Fence(fmt.Errorf("raft log: %w", err)) }

// commit commits a batch, which must not be used afterwards. If durable is set it syncs, unless Options.Sync is false.
func (l *Log) commit(b *engine.Batch, durable bool) error {
	durable = durable && l.o.Sync && !l.o.Mistakes.NoSync
	l.batches.Add(1)
	if durable {
		l.syncs.Add(1)
	}
	return b.Commit(durable)
}

// SaveRaftState saves a round's updates, one per region, in one batch, synced: entries, a changed term or vote,
// snapshots. These are promises to other replicas. The commit index is not, and a replica that has forgotten it learns
// it again. So it is only written together with a term or vote, or with a change of members, and what is read back is
// at least the apply index (Options.Applied). A replica that has a change of members in its log must know after a
// crash, too, that the change before it is committed: otherwise it could win an election by members that are two
// changes old.
func (l *Log) SaveRaftState(updates []pb.Update, _ uint64) error {
	l.rounds.Add(1)
	if l.fenced() {
		l.pretend(updates)
		return nil
	}
	if l.o.Wait != nil {
		l.o.Stalls.begin()
		l.o.Wait(false)
		l.o.Stalls.end()
	}
	if err := l.save(updates); err != nil {
		l.fail(err)
		l.pretend(updates)
		return nil
	}
	for i := range updates {
		if ents := updates[i].EntriesToSave; len(ents) > 0 {
			l.replica(updates[i].ShardID).saved.Store(ents[len(ents)-1].Index)
		}
	}
	return nil
}

// Saved returns the index up to which a region's log is saved. It waits for nothing.
func (l *Log) Saved(region topology.RegionID) uint64 { return l.replica(uint64(region)).saved.Load() }

func (l *Log) save(updates []pb.Update) error {
	var b *engine.Batch
	durable := false
	// A region's records are locked while its part of the batch is made. If there is a snapshot, they stay locked until
	// the batch is committed, so that SaveSnapshots cannot commit a newer one in between.
	var held []*replica
	defer func() {
		for _, r := range held {
			r.mu.Unlock()
		}
	}()
	for i := range updates {
		ud := &updates[i]
		snapshot := !pb.IsEmptySnapshot(ud.Snapshot)
		if len(ud.EntriesToSave) == 0 && pb.IsEmptyState(ud.State) && !snapshot {
			continue
		}
		r, err := l.lock(ud.ShardID)
		if err == nil {
			if snapshot {
				held = append(held, r)
			}
			if b == nil {
				b = l.engine.NewBatch()
			}
			var promises bool
			promises, err = r.put(b, ud, l)
			durable = durable || promises
			if !snapshot {
				r.mu.Unlock()
			}
		}
		if err != nil {
			if b != nil {
				b.Close()
			}
			return fmt.Errorf("region %d: replica %d: %w", int64(ud.ShardID), ud.ReplicaID, err)
		}
	}
	if b == nil {
		return nil
	}
	if b.Empty() {
		b.Close()
		return nil
	}
	if !durable {
		return l.commit(b, false)
	}
	l.o.Stalls.begin()
	defer l.o.Stalls.end()
	if l.o.Wait != nil && held == nil {
		l.o.Wait(true)
	}
	return l.commit(b, !l.o.Mistakes.LateSync || l.rounds.Load()%2 == 0)
}

// pretend applies to the records in memory the updates that a fenced store does not write.
func (l *Log) pretend(updates []pb.Update) {
	for i := range updates {
		ud := &updates[i]
		r := l.replica(ud.ShardID)
		r.mu.Lock()
		r.note(ud)
		r.mu.Unlock()
	}
}

// IterateEntries reads entries. dragonboat's LogReader.Term asks for a term by asking for one entry with maxSize 0,
// several times at each election. The answer then has no payload and the entry is not read, since an entry may be
// large. An entry that is missing or damaged fences the store. IterateEntries then answers with empty entries from
// there on, with the right terms, since Raft ends the process if terms differ from those in its memory. The first
// entries of a region say who its members are. These are not empty, since dragonboat ends the process when it takes a
// snapshot of a region without members.
func (l *Log) IterateEntries(
	ents []pb.Entry, size, shard, id, low, high, maxSize uint64,
) ([]pb.Entry, uint64, error) {
	r, err := l.lock(shard)
	if err != nil { // the replica's log has never been read, so dragonboat knows of no entries
		l.fail(err)
		return ents, size, nil
	}
	first, last, ours := r.first, r.last, r.id == id
	term, known := r.term(low), len(r.terms) > 0 && r.terms[0].index <= low
	r.mu.Unlock()
	if !ours || low < first || low > last {
		return ents, size, nil
	}
	if maxSize == 0 && high == low+1 && known { // dragonboat asks for the term: see above
		return append(ents, pb.Entry{Index: low, Term: term}), size, nil
	}
	high = min(high, last+1)
	next := low
	visit := func(e pb.Entry) bool {
		next++
		size += uint64(e.SizeUpperLimit())
		ents = append(ents, e)
		return size <= maxSize
	}
	err = l.o.Failed()
	if err == nil {
		if err = l.walk(topology.RegionID(shard), low, high, visit); err == nil {
			l.read.Add(int64(next - low))
			return ents, size, nil
		}
		l.fail(fmt.Errorf("region %d: %w", int64(shard), err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	members := r.bootstrapEntries()
	for next < high {
		e := pb.Entry{Index: next, Term: r.term(next)}
		if next <= uint64(len(members)) {
			e.Type, e.Cmd = pb.ConfigChangeEntry, members[next-1]
		}
		if !visit(e) {
			break
		}
	}
	return ents, size, nil
}

// ReadRaftState returns the state and the entries after the snapshot at lastIndex.
func (l *Log) ReadRaftState(shard, id, lastIndex uint64) (raftio.RaftState, error) {
	r, err := l.lock(shard)
	if err != nil {
		l.fail(err)
		return raftio.RaftState{}, raftio.ErrNoSavedLog
	}
	defer r.mu.Unlock()
	if r.id != id || pb.IsEmptyState(r.state) {
		return raftio.RaftState{}, raftio.ErrNoSavedLog
	}
	applied, err := l.o.Applied(r.region)
	if err != nil {
		l.fail(fmt.Errorf("region %d: apply index: %w", r.region, err))
	}
	rs := raftio.RaftState{State: r.state, FirstIndex: lastIndex}
	rs.State.Commit = max(rs.State.Commit, min(applied, r.last), lastIndex)
	if first := max(r.first, lastIndex+1); first <= r.last {
		rs.FirstIndex, rs.EntryCount = first, r.last-first+1
	}
	return rs, nil
}

// RemoveEntriesTo truncates the log up to index, without sync, since dragonboat repeats a truncation that a crash
// loses. It deletes the entries a thousand at a time, since each range deletion slows down reads of its memtable.
func (l *Log) RemoveEntriesTo(shard, id, index uint64) error {
	if err := l.remove(shard, id, index); err != nil {
		l.fail(fmt.Errorf("region %d: truncate to %d: %w", int64(shard), index, err))
	}
	return nil
}

func (l *Log) remove(shard, id, index uint64) error {
	if l.fenced() {
		return nil
	}
	r, err := l.lock(shard)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	if index = min(index, r.last); r.id != id || index < r.first {
		return nil
	}
	b := l.engine.NewBatch()
	l.truncated.Add(int64(index + 1 - r.first))
	if err := r.truncate(b, index); err != nil {
		b.Close()
		return err
	}
	return l.commit(b, false)
}

// CompactEntriesTo has nothing to do: the engine's compactions drop deleted entries.
func (l *Log) CompactEntriesTo(uint64, uint64, uint64) (<-chan struct{}, error) {
	done := make(chan struct{})
	close(done)
	return done, nil
}

// SaveSnapshots saves snapshot records and leaves the logs alone. An older record never replaces a newer one, since
// SaveSnapshots commits under the lock that SaveRaftState holds for a snapshot.
func (l *Log) SaveSnapshots(updates []pb.Update) error {
	for i := range updates {
		ud := &updates[i]
		if pb.IsEmptySnapshot(ud.Snapshot) {
			continue
		}
		if !l.fenced() {
			err := l.saveSnapshot(ud)
			if err == nil {
				continue
			}
			if err == sm.ErrSnapshotAborted {
				return err
			}
			l.fail(fmt.Errorf("region %d: replica %d: snapshot %d: %w", int64(ud.ShardID), ud.ReplicaID,
				ud.Snapshot.Index, err))
		}
		r := l.replica(ud.ShardID)
		r.mu.Lock()
		r.noteSnapshot(&ud.Snapshot)
		r.mu.Unlock()
	}
	return nil
}

// saveSnapshot saves a snapshot record. It returns ErrSnapshotAborted for one that is ahead of what the replica has
// applied: a replica that broke a write off as it stopped has applied less than Raft believes.
func (l *Log) saveSnapshot(ud *pb.Update) error {
	r, err := l.lock(ud.ShardID)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	if r.id == ud.ReplicaID && ud.Snapshot.Index <= r.snapshot {
		return nil
	}
	if applied, err := l.o.Applied(r.region); err != nil {
		return err
	} else if ud.Snapshot.OnDiskIndex > applied {
		return sm.ErrSnapshotAborted
	}
	b := l.engine.NewBatch()
	err = r.claim(b, ud.ReplicaID)
	if err == nil {
		err = r.putSnapshot(b, &ud.Snapshot)
	}
	if err != nil {
		b.Close()
		return err
	}
	return l.commit(b, true)
}

// GetSnapshot returns the latest snapshot's record, empty if there is none.
func (l *Log) GetSnapshot(shard, id uint64) (pb.Snapshot, error) {
	r, err := l.lock(shard)
	if err != nil {
		l.fail(err)
		return pb.Snapshot{}, nil
	}
	defer r.mu.Unlock()
	var s pb.Snapshot
	if r.id == id && r.snapshotBytes != nil {
		err = unmarshal(r.snapshotBytes, &s)
	}
	return s, err // no error: these bytes were decoded or encoded before
}

// End is where the log of a replica ends.
type End struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

// Compare compares two ends by Raft's rule for votes: positive if e is of the newer log.
func (e End) Compare(o End) int {
	return cmp.Or(cmp.Compare(e.Term, o.Term), cmp.Compare(e.Index, o.Index))
}

// End returns where the log of a region's replica ends, with what is saved.
func (l *Log) End(shard uint64) (e End, err error) {
	r, err := l.lock(shard)
	if err != nil {
		return e, err
	}
	defer r.mu.Unlock()
	if n := len(r.terms); n > 0 {
		return End{Term: r.terms[n-1].term, Index: r.last}, nil
	}
	if r.snapshotBytes != nil {
		var s pb.Snapshot
		err = unmarshal(r.snapshotBytes, &s)
		e = End{Term: s.Term, Index: s.Index}
	}
	return e, err
}

// SaveBootstrapInfo begins a replica. It deletes records that an older replica of the region has left. It does not sync,
// since a replica whose bootstrap record a crash has lost has told nobody anything, and may begin anew. For the record
// lies before all that the replica saves, in the same write-ahead log, and what a replica says rests on what it has saved
// and synced: the members with which its log begins, or, if it has joined, the term of the leader whom it answers. Only
// answers to pre-votes rest on nothing, and these bind nobody.
func (l *Log) SaveBootstrapInfo(shard, id uint64, bootstrap pb.Bootstrap) error {
	if l.fenced() {
		return nil
	}
	if err := l.begin(shard, id, &bootstrap); err != nil {
		l.fail(err)
	}
	return nil
}

func (l *Log) begin(shard, id uint64, bootstrap *pb.Bootstrap) error {
	r, err := l.lock(shard)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	b := l.engine.NewBatch()
	if err := r.begin(b, id, bootstrap); err != nil {
		b.Close()
		return fmt.Errorf("region %d: replica %d: %w", int64(shard), id, err)
	}
	return l.commit(b, false)
}

// ImportSnapshot is for a tool of dragonboat's that NeoKV does not use.
func (l *Log) ImportSnapshot(pb.Snapshot, uint64) error { return errors.ErrUnsupported }

// Import makes the log of a replica that has no records yet begin after a snapshot. It adds what that takes to a batch
// of the caller's. If the batch is not committed afterwards, the Log must not be used any more.
func (l *Log) Import(b *engine.Batch, s pb.Snapshot, id uint64) error {
	r, err := l.lock(s.ShardID)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	err = r.begin(b, id, &pb.Bootstrap{Join: true, Type: s.Type})
	if err == nil {
		err = r.putState(b, pb.State{Term: s.Term, Commit: s.Index})
	}
	if err == nil {
		err = r.install(b, &s)
	}
	if err != nil {
		return fmt.Errorf("region %d: replica %d: %w", int64(s.ShardID), id, err)
	}
	return nil
}

// GetBootstrapInfo returns a replica's bootstrap record, or raftio.ErrNoBootstrapInfo.
func (l *Log) GetBootstrapInfo(shard, id uint64) (pb.Bootstrap, error) {
	r, err := l.lock(shard)
	if err != nil {
		l.fail(err)
		return pb.Bootstrap{}, raftio.ErrNoBootstrapInfo
	}
	defer r.mu.Unlock()
	if r.id != id || r.bootstrapBytes == nil {
		return pb.Bootstrap{}, raftio.ErrNoBootstrapInfo
	}
	var bootstrap pb.Bootstrap
	err = unmarshal(r.bootstrapBytes, &bootstrap)
	return bootstrap, err // no error: these bytes were decoded or encoded before
}

// ListNodeInfo lists the replicas that have a bootstrap record, by region.
func (l *Log) ListNodeInfo() ([]raftio.NodeInfo, error) {
	all, err := l.list()
	if err != nil {
		l.fail(err)
	}
	return all, nil
}

func (l *Log) list() ([]raftio.NodeInfo, error) {
	v := l.engine.NewView()
	defer v.Close()
	it, err := v.Iter(keys.AppendRaft(nil, math.MinInt64, 0), keys.AppendRaft(nil, math.MaxInt64, 0xff))
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var all []raftio.NodeInfo
	for ok := it.First(); ok; {
		region, _, _, err := keys.ParseRaft(it.Key())
		if err != nil {
			return all, err
		}
		lower := keys.AppendRaft(nil, region, keys.Bootstrap)
		if it.SeekGE(lower) && string(it.Key()) == string(lower) {
			value, err := it.ValueAndErr()
			if err != nil {
				return all, err
			}
			id, _, err := splitRecord(value)
			if err != nil {
				return all, fmt.Errorf("region %d: bootstrap record: %w", region, err)
			}
			all = append(all, raftio.NodeInfo{ShardID: uint64(region), ReplicaID: id})
		}
		_, upper := keys.RaftBounds(region)
		ok = it.SeekGE(upper)
	}
	return all, it.Error()
}

// RemoveNodeData removes all records of a replica, unless they belong to a later replica by now.
func (l *Log) RemoveNodeData(shard, id uint64) error {
	if l.fenced() {
		return nil
	}
	if err := l.removeReplica(shard, id); err != nil {
		l.fail(fmt.Errorf("region %d: replica %d: remove: %w", int64(shard), id, err))
	}
	return nil
}

func (l *Log) removeReplica(shard, id uint64) error {
	r, err := l.lock(shard)
	if err != nil {
		return err
	}
	defer r.mu.Unlock()
	if r.id != id {
		return nil
	}
	b := l.engine.NewBatch()
	if err := r.wipe(b); err != nil {
		b.Close()
		return err
	}
	if err := l.commit(b, true); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.replicas, r.region) // whoever still has r finds it empty, as the engine is
	return nil
}
