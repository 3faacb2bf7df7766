package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// replica keeps in memory what the Log needs of a region's records. It is ahead of the engine by the batch that is
// being committed.
type replica struct {
	region topology.RegionID

	saved atomic.Uint64 // the index up to which the log is in the engine, for good

	mu     sync.Mutex
	loaded bool
	records
}

// records are a region's records.
type records struct {
	id    uint64 // the replica to which they belong, 0 if there are none
	state pb.State
	// The log is first..last, empty when last = first-1. Entries [stored, first) are truncated and not yet deleted.
	stored, first, last uint64
	// Bytes of entries written since the last deletion, at least those of truncated entries that are not deleted yet.
	written uint64
	// Where the log's terms begin, in order. The first may begin before the log. Empty if the log is.
	terms    []termStart
	meta     uint64 // the first index on record, 0 for none
	snapshot uint64 // index of the snapshot record, 0 for none
	// The records as dragonboat encodes them, nil for none. They are few bytes, and dragonboat reads them also when the
	// store is fenced.
	snapshotBytes, bootstrapBytes []byte
}

// termStart says with which index a term begins.
type termStart struct{ index, term uint64 }

var none = records{stored: 1, first: 1}

// Truncated entries are deleted together: when there are deleteStep of them, when deleteBytes of entries were written
// since the last deletion, or when the log is cut to its last entry.
const (
	deleteStep  = 1024
	deleteBytes = 16 << 20
)

// replica returns a region's records, which may not be loaded yet.
func (l *Log) replica(shard uint64) *replica {
	region := topology.RegionID(shard)
	l.mu.RLock()
	r := l.replicas[region]
	l.mu.RUnlock()
	if r != nil {
		return r
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r = l.replicas[region]; r == nil {
		r = &replica{region: region, records: none}
		l.replicas[region] = r
	}
	return r
}

// lock returns a region's records, loaded and locked. With an error they are not locked.
func (l *Log) lock(shard uint64) (*replica, error) {
	r := l.replica(shard)
	r.mu.Lock()
	if !r.loaded {
		if err := r.load(l.engine); err != nil {
			r.mu.Unlock()
			return nil, fmt.Errorf("region %d: %w", r.region, err)
		}
		r.loaded = true
		r.saved.Store(r.last)
	}
	return r, nil
}

// load reads a region's records from the engine.
func (r *replica) load(e *engine.Engine) error {
	v := e.NewView()
	defer v.Close()
	fresh := replica{region: r.region}
	get := func(k keys.RaftRecord, into unmarshaler) ([]byte, error) {
		value, ok, err := v.Get(keys.AppendRaft(nil, r.region, k))
		if err != nil || !ok {
			return nil, err
		}
		id, rest, err := splitRecord(value)
		if err == nil {
			err = unmarshal(rest, into)
		}
		if err == nil && fresh.id != 0 && fresh.id != id {
			err = fmt.Errorf("of replica %d, others of %d", id, fresh.id)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", k, err)
		}
		fresh.id = id
		return bytes.Clone(rest), nil
	}
	var snapshot pb.Snapshot
	var bootstrap pb.Bootstrap
	var err error
	if _, err = get(keys.RaftState, &fresh.state); err != nil {
		return err
	}
	if fresh.bootstrapBytes, err = get(keys.Bootstrap, &bootstrap); err != nil {
		return err
	}
	if fresh.snapshotBytes, err = get(keys.RaftSnapshot, &snapshot); err != nil {
		return err
	}
	fresh.snapshot = snapshot.Index
	value, ok, err := v.Get(keys.AppendRaft(nil, r.region, keys.LogMeta))
	if err != nil {
		return err
	}
	if ok {
		if len(value) != 8 {
			return fmt.Errorf("log meta: %d bytes, want 8", len(value))
		}
		fresh.meta = binary.BigEndian.Uint64(value)
	}
	if err := fresh.loadBounds(v); err != nil {
		return err
	}
	r.records = fresh.records
	return nil
}

// loadBounds finds the ends of the log.
func (r *replica) loadBounds(v *engine.View) error {
	it, err := v.Iter(keys.LogBounds(r.region, 0, 0))
	if err != nil {
		return err
	}
	defer it.Close()
	r.first = max(r.meta, 1)
	r.stored, r.last = r.first, r.first-1
	if it.First() {
		_, _, index, err := keys.ParseRaft(it.Key())
		if err != nil {
			return err
		}
		r.stored = min(index, r.first)
		if r.meta == 0 {
			r.stored, r.first, r.last = index, index, index-1
		}
	}
	if it.SeekGE(keys.AppendLogEntry(nil, r.region, r.first)) {
		_, _, index, err := keys.ParseRaft(it.Key())
		if err != nil {
			return err
		}
		// A log that was empty may have gone on further up, after a snapshot.
		r.first = index
	}
	if it.Last() {
		_, _, index, err := keys.ParseRaft(it.Key())
		if err != nil {
			return err
		}
		if index >= r.first {
			value, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			e, err := decodeEntry(value, index)
			if err != nil {
				return err
			}
			r.last = index
			r.noteTerm(index, e.Term) // Check tells the terms before it
		}
	}
	return it.Error()
}

// claim makes the records belong to replica id. Replica ids only grow and are never used again. So a larger id takes
// over, and claim deletes the records of the smaller one. A smaller id is that of a replica that was removed, which is
// an error.
func (r *replica) claim(b *engine.Batch, id uint64) error {
	switch {
	case r.id == id:
		return nil
	case id == 0:
		return errors.New("replica id is 0")
	case r.id > id:
		return fmt.Errorf("the log is of replica %d", r.id)
	case r.id != 0:
		if err := r.wipe(b); err != nil {
			return err
		}
	}
	r.id = id
	return r.putState(b, pb.State{})
}

// wipe deletes all records.
func (r *replica) wipe(b *engine.Batch) error {
	lower, upper := keys.RaftBounds(r.region)
	r.records = none
	return b.DeleteRange(lower, upper)
}

// begin writes the first records of a replica.
func (r *replica) begin(b *engine.Batch, id uint64, bootstrap *pb.Bootstrap) error {
	if err := r.claim(b, id); err != nil {
		return err
	}
	return r.putBootstrap(b, bootstrap)
}

// put adds an update to a batch and reports whether it must be durable before anything of it leaves the store.
func (r *replica) put(b *engine.Batch, ud *pb.Update, l *Log) (durable bool, err error) {
	if r.id != ud.ReplicaID {
		if err := r.claim(b, ud.ReplicaID); err != nil {
			return false, err
		}
		durable = true
	}
	if !pb.IsEmptyState(ud.State) && ud.State != r.state {
		promises := ud.State.Term != r.state.Term || ud.State.Vote != r.state.Vote
		r.state = ud.State
		if promises {
			durable = true
			if err := r.putState(b, ud.State); err != nil {
				return false, err
			}
		}
	}
	if !pb.IsEmptySnapshot(ud.Snapshot) && ud.Snapshot.Index > r.snapshot {
		durable = true
		if err := r.install(b, &ud.Snapshot); err != nil {
			return false, err
		}
	}
	ents := ud.EntriesToSave
	for len(ents) > 0 && ents[0].Index < r.first && ents[0].Index <= r.snapshot {
		ents = ents[1:] // the snapshot contains them
	}
	if len(ents) == 0 {
		return durable, nil
	}
	if changesMembers(ents) && !l.o.Mistakes.NoCommit {
		if err := r.putState(b, r.state); err != nil {
			return false, err
		}
	}
	return true, r.append(b, ents, l)
}

func changesMembers(ents []pb.Entry) bool {
	for i := range ents { // not by value: an entry is large
		if ents[i].Type == pb.ConfigChangeEntry {
			return true
		}
	}
	return false
}

// append appends consecutive entries. They replace entries that the log has from the first of them on.
func (r *replica) append(b *engine.Batch, ents []pb.Entry, l *Log) error {
	low, high := ents[0].Index, ents[len(ents)-1].Index
	if high != low+uint64(len(ents))-1 {
		return fmt.Errorf("append of %d entries from %d to %d", len(ents), low, high)
	}
	if low < r.meta {
		return fmt.Errorf("append at %d, the log is truncated below %d", low, r.meta)
	}
	switch {
	case r.last < r.first: // empty
		r.first, r.stored = low, min(r.stored, low)
	case low > r.last+1:
		if r.snapshot+1 < low {
			return fmt.Errorf("append at %d, the log ends at %d", low, r.last)
		}
		// A snapshot was recorded without discarding the log, and all its entries lie before that snapshot.
		if err := r.discard(b, low); err != nil {
			return err
		}
	case high < r.last:
		// The replaced suffix reaches further than the new entries. Its rest must be deleted, too, or the next start
		// would take it for the end of the log.
		if err := b.DeleteRange(keys.LogBounds(r.region, high+1, r.last+1)); err != nil {
			return err
		}
	}
	if low < r.first {
		r.first, r.stored = low, min(r.stored, low)
	}
	total := 0
	for i := range ents {
		e := &ents[i]
		if e.Index != low+uint64(i) {
			return fmt.Errorf("append: entry %d where %d should be", e.Index, low+uint64(i))
		}
		size := e.Size()
		op := b.SetDeferred(keys.LogEntryKeyLen, size)
		keys.PutLogEntry(op.Key, r.region, e.Index)
		if n, err := e.MarshalTo(op.Value); err != nil || n != size {
			return fmt.Errorf("append: entry %d: %d bytes of %d encoded: %w", e.Index, n, size, err)
		}
		if err := op.Finish(); err != nil {
			return err
		}
		r.noteTerm(e.Index, e.Term)
		total += size
	}
	r.last = high
	r.written += uint64(total)
	l.entries.Add(int64(len(ents)))
	l.entryBytes.Add(int64(total))
	return nil
}

// noteTerm is called with the entries that are appended, in order.
func (r *records) noteTerm(index, term uint64) {
	n := len(r.terms)
	for n > 0 && r.terms[n-1].index >= index {
		n--
	}
	if r.terms = r.terms[:n]; n == 0 || r.terms[n-1].term != term {
		r.terms = append(r.terms, termStart{index, term})
	}
}

// forgetTerms drops terms that end before the log's first entry.
func (r *records) forgetTerms() {
	n := 0
	for n+1 < len(r.terms) && r.terms[n+1].index <= r.first {
		n++
	}
	r.terms = slices.Delete(r.terms, 0, n)
}

// term returns the term of an entry.
func (r *records) term(index uint64) (term uint64) {
	for i := range r.terms {
		if i > 0 && r.terms[i].index > index {
			break
		}
		term = r.terms[i].term
	}
	return term
}

// install records a snapshot that replaces the whole log.
func (r *replica) install(b *engine.Batch, s *pb.Snapshot) error {
	if err := r.putSnapshot(b, s); err != nil {
		return err
	}
	return r.discard(b, s.Index+1)
}

// discard deletes the whole log. The next entry will have the index next.
func (r *replica) discard(b *engine.Batch, next uint64) error {
	if r.stored <= r.last {
		if err := b.DeleteRange(keys.LogBounds(r.region, r.stored, r.last+1)); err != nil {
			return err
		}
	}
	r.stored, r.first, r.last, r.written, r.terms = next, next, next-1, 0, nil
	return r.putMeta(b)
}

// truncate removes entries up to index, first <= index <= last.
func (r *replica) truncate(b *engine.Batch, index uint64) error {
	r.first = index + 1
	r.forgetTerms()
	if r.first-r.stored >= deleteStep || r.written >= deleteBytes || r.first == r.last {
		if err := b.DeleteRange(keys.LogBounds(r.region, r.stored, r.first)); err != nil {
			return err
		}
		r.stored, r.written = r.first, 0
	}
	return r.putMeta(b)
}

func (r *replica) putMeta(b *engine.Batch) error {
	r.meta = r.first
	var value [8]byte
	binary.BigEndian.PutUint64(value[:], r.first)
	return b.Set(keys.AppendRaft(nil, r.region, keys.LogMeta), value[:])
}

func (r *replica) putState(b *engine.Batch, s pb.State) error {
	r.state = s
	size := s.Size()
	op := b.SetDeferred(recordKeyLen, 8+size)
	keys.AppendRaft(op.Key[:0], r.region, keys.RaftState)
	binary.BigEndian.PutUint64(op.Value, r.id)
	if n, err := s.MarshalTo(op.Value[8:]); err != nil || n != size {
		return fmt.Errorf("state: %d bytes of %d encoded: %w", n, size, err)
	}
	return op.Finish()
}

func (r *replica) putSnapshot(b *engine.Batch, s *pb.Snapshot) (err error) {
	if r.snapshotBytes, err = s.Marshal(); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	r.snapshot = s.Index
	return r.putRecord(b, keys.RaftSnapshot, r.snapshotBytes)
}

func (r *replica) putBootstrap(b *engine.Batch, s *pb.Bootstrap) (err error) {
	if r.bootstrapBytes, err = s.Marshal(); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return r.putRecord(b, keys.Bootstrap, r.bootstrapBytes)
}

func (r *replica) putRecord(b *engine.Batch, k keys.RaftRecord, encoded []byte) error {
	value := append(binary.BigEndian.AppendUint64(nil, r.id), encoded...)
	return b.Set(keys.AppendRaft(nil, r.region, k), value)
}

// note makes the changes in memory that put makes, for a store that does not write any more.
func (r *replica) note(ud *pb.Update) {
	r.loaded = true
	if r.id < ud.ReplicaID {
		r.records = none
		r.id = ud.ReplicaID
	}
	if !pb.IsEmptyState(ud.State) {
		r.state = ud.State
	}
	if s := &ud.Snapshot; r.noteSnapshot(s) {
		r.first, r.last, r.terms = s.Index+1, s.Index, nil
	}
	if n := len(ud.EntriesToSave); n > 0 {
		low := ud.EntriesToSave[0].Index
		if r.last < r.first || low < r.first || low > r.last+1 {
			r.first, r.terms = low, nil
		}
		for i := range ud.EntriesToSave {
			r.noteTerm(ud.EntriesToSave[i].Index, ud.EntriesToSave[i].Term)
		}
		r.last = ud.EntriesToSave[n-1].Index
	}
}

func (r *replica) noteSnapshot(s *pb.Snapshot) bool {
	if pb.IsEmptySnapshot(*s) || s.Index <= r.snapshot {
		return false
	}
	encoded, err := s.Marshal()
	if err != nil {
		return false
	}
	r.snapshot, r.snapshotBytes = s.Index, encoded
	return true
}

// bootstrapEntries returns the commands of the entries with which the log of a new region begins: they add the members
// of the bootstrap record, by replica id, as dragonboat's bootstrap does. It returns none for a replica that joined.
func (r *records) bootstrapEntries() (commands [][]byte) {
	var b pb.Bootstrap
	if r.bootstrapBytes == nil || unmarshal(r.bootstrapBytes, &b) != nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(b.Addresses)) {
		add := pb.ConfigChange{Type: pb.AddNode, ReplicaID: id, Initialize: true, Address: b.Addresses[id]}
		commands = append(commands, pb.MustMarshal(&add))
	}
	return commands
}
