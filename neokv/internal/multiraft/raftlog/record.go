package raftlog

import (
	"encoding/binary"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

type unmarshaler interface{ Unmarshal([]byte) error }

const recordKeyLen = keys.LogEntryKeyLen - 8

// splitRecord splits a record into the replica id and the rest.
func splitRecord(value []byte) (id uint64, rest []byte, err error) {
	if len(value) < 8 {
		return 0, nil, fmt.Errorf("%d bytes, want at least 8", len(value))
	}
	if id = binary.BigEndian.Uint64(value); id == 0 {
		return 0, nil, fmt.Errorf("replica id is 0")
	}
	return id, value[8:], nil
}

// decodeEntry decodes the entry stored under index; it shares no memory with value.
func decodeEntry(value []byte, index uint64) (pb.Entry, error) {
	var e pb.Entry
	if err := unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("entry %d: %w", index, err)
	}
	if e.Index != index {
		return e, fmt.Errorf("entry %d: says that it is entry %d", index, e.Index)
	}
	return e, nil
}

// unmarshal turns the panics of dragonboat's decoders on damaged bytes into errors.
func unmarshal(data []byte, into unmarshaler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decode %T: %v", into, p)
		}
	}()
	if err := into.Unmarshal(data); err != nil {
		return fmt.Errorf("decode %T: %w", into, err)
	}
	return nil
}

// walk visits the entries low <= index < high in order, until visit returns false. A missing entry is an error.
func (l *Log) walk(region topology.RegionID, low, high uint64, visit func(pb.Entry) bool) error {
	v := l.engine.NewView()
	defer v.Close()
	it, err := v.Iter(keys.LogBounds(region, low, high))
	if err != nil {
		return err
	}
	defer it.Close()
	want := low
	for ok := it.First(); ok && want < high; ok = it.Next() {
		_, _, index, err := keys.ParseRaft(it.Key())
		if err != nil {
			return err
		}
		if index != want {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		e, err := decodeEntry(value, index)
		if err != nil {
			return err
		}
		want++
		if !visit(e) {
			return nil
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if want < high {
		return fmt.Errorf("entry %d is missing, want %d to %d", want, low, high-1)
	}
	return nil
}

// Check reads all records of a replica before the replica starts, and returns an error if one is damaged. Later such an
// error would fence the store. A replica without records passes, unless it has applied something. Check costs as much
// as reading the log. The Log remembers the terms of the entries that Check has read.
func (l *Log) Check(region topology.RegionID, id topology.ReplicaID) error {
	r, err := l.lock(uint64(region))
	if err != nil {
		return fmt.Errorf("raft log: %w", err)
	}
	defer r.mu.Unlock()
	if r.id == uint64(id) {
		err = l.check(r)
	} else {
		var applied uint64
		if applied, err = l.o.Applied(region); err == nil && applied > 0 {
			err = fmt.Errorf("apply index %d, there is no log", applied)
		}
	}
	if err != nil {
		return fmt.Errorf("raft log: region %d: replica %d: %w", region, id, err)
	}
	return nil
}

// Last returns the index at which the log of a replica ends, that of its last snapshot if it has no entries behind that.
func (l *Log) Last(region topology.RegionID) (uint64, error) {
	r, err := l.lock(uint64(region))
	if err != nil {
		return 0, fmt.Errorf("raft log: %w", err)
	}
	defer r.mu.Unlock()
	return max(r.last, r.snapshot), nil
}

// First returns the index with which the log of a replica begins.
func (l *Log) First(region topology.RegionID) (uint64, error) {
	r, err := l.lock(uint64(region))
	if err != nil {
		return 0, fmt.Errorf("raft log: %w", err)
	}
	defer r.mu.Unlock()
	return r.first, nil
}

// checkApplied returns an error if the log lacks entries that the replica has applied, or if the replica lacks what the
// log no longer has. The log is saved before anything of it is applied, and data is synced before the log is cut.
func (l *Log) checkApplied(r *replica) error {
	applied, err := l.o.Applied(r.region)
	if err != nil {
		return fmt.Errorf("apply index: %w", err)
	}
	if end := max(r.last, r.snapshot); applied > end {
		return fmt.Errorf("apply index %d, the log ends at %d", applied, end)
	}
	var s pb.Snapshot
	if r.snapshotBytes != nil {
		err = unmarshal(r.snapshotBytes, &s)
	}
	if err == nil && s.Dummy && s.OnDiskIndex > applied { // a snapshot that was received brings what is lacking
		err = fmt.Errorf("apply index %d, the log was cut at %d", applied, s.OnDiskIndex)
	}
	return err
}

func (l *Log) check(r *replica) error {
	if r.snapshot+1 < r.first {
		return fmt.Errorf("the log begins at %d, the snapshot before it is %d", r.first, r.snapshot)
	}
	if end := max(r.last, r.snapshot); r.state.Commit > end {
		return fmt.Errorf("commit index %d, the log ends at %d", r.state.Commit, end)
	}
	if err := l.checkApplied(r); err != nil {
		return err
	}
	if r.last < r.first {
		return nil
	}
	var bad error
	term := uint64(0)
	r.terms = nil
	err := l.walk(r.region, r.first, r.last+1, func(e pb.Entry) bool {
		r.noteTerm(e.Index, e.Term)
		if e.Term < term || e.Term > r.state.Term {
			bad = fmt.Errorf("entry %d is of term %d, after term %d, in term %d", e.Index, e.Term, term, r.state.Term)
		}
		term = e.Term
		return bad == nil
	})
	if err != nil {
		return err
	}
	return bad
}
