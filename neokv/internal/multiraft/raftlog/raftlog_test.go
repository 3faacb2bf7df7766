package raftlog

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests, 0 for a random one")

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return rand.Uint64N(1 << 32)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openEngine(t testing.TB, fs vfs.FS, dir string) *engine.Engine {
	t.Helper()
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 4<<20, 4<<20
	e, err := engine.Open(engine.Options{Dir: dir, FS: fs, Knobs: k, Stores: 1, Fatal: func(error) {}})
	must(t, err)
	return e
}

// store is a log store that can be opened again.
type store struct {
	*Log
	t      testing.TB
	fs     *disk.FS
	engine *engine.Engine
	fenced error
}

func newStore(t testing.TB) *store {
	s := &store{t: t, fs: disk.Mem()}
	s.open(Options{Sync: true})
	return s
}

func (s *store) open(o Options) {
	s.engine = openEngine(s.t, s.fs, "engine")
	o.Failed = func() error { return s.fenced }
	o.Fence = func(err error) {
		if s.fenced == nil {
			s.fenced = err
		}
	}
	if o.Applied == nil {
		o.Applied = nothingApplied
	}
	if o.Stalls == nil {
		o.Stalls = NewStalls(0)
	}
	s.Log = New(s.engine, o)
}

func nothingApplied(topology.RegionID) (uint64, error) { return 0, nil }

func (s *store) close() { must(s.t, s.engine.Close()) }

// twice runs a check on the open store and on the store opened again.
func (s *store) twice(check func(t *testing.T)) {
	s.t.(*testing.T).Run("open", check)
	s.close()
	s.open(s.o)
	s.t.(*testing.T).Run("reopened", check)
	s.healthy()
}

func (s *store) healthy() {
	s.t.Helper()
	if s.fenced != nil {
		s.t.Errorf("fenced: %v", s.fenced)
	}
}

// span makes entries low..high of a term.
func span(term, low, high uint64) []pb.Entry {
	var ents []pb.Entry
	for i := low; i <= high; i++ {
		ents = append(ents, pb.Entry{Term: term, Index: i, Type: pb.ApplicationEntry,
			Cmd: fmt.Appendf(nil, "%d/%d", term, i)})
	}
	return ents
}

func update(shard, id uint64, st pb.State, ents []pb.Entry) pb.Update {
	return pb.Update{ShardID: shard, ReplicaID: id, State: st, EntriesToSave: ents}
}

func (s *store) save(uds ...pb.Update) { s.t.Helper(); must(s.t, s.SaveRaftState(uds, 1)) }

// log prints the entries of a replica in [low, high) as term/index.
func (s *store) log(shard, id, low, high, maxSize uint64) string {
	s.t.Helper()
	ents, _, err := s.IterateEntries(nil, 0, shard, id, low, high, maxSize)
	must(s.t, err)
	var out []string
	for _, e := range ents {
		if want := fmt.Sprintf("%d/%d", e.Term, e.Index); len(e.Cmd) > 0 && string(e.Cmd) != want {
			s.t.Errorf("entry %s holds %q", want, e.Cmd)
		}
		out = append(out, fmt.Sprintf("%d/%d", e.Term, e.Index))
	}
	return strings.Join(out, " ")
}

const all = math.MaxUint64

func TestBootstrap(t *testing.T) {
	s := newStore(t)
	if _, err := s.GetBootstrapInfo(1, 2); !errors.Is(err, raftio.ErrNoBootstrapInfo) {
		t.Errorf("no record: %v", err)
	}
	for i, shard := range []uint64{3, 0, 1000} {
		must(t, s.SaveBootstrapInfo(shard, uint64(i+2),
			pb.Bootstrap{Addresses: map[uint64]string{7: "store-7"}, Type: pb.OnDiskStateMachine}))
	}
	s.twice(func(t *testing.T) {
		b, err := s.GetBootstrapInfo(3, 2)
		if err != nil || b.Join || b.Addresses[7] != "store-7" || b.Type != pb.OnDiskStateMachine {
			t.Errorf("bootstrap = %+v, %v", b, err)
		}
		if _, err := s.GetBootstrapInfo(3, 1); !errors.Is(err, raftio.ErrNoBootstrapInfo) {
			t.Errorf("another replica's: %v", err)
		}
		got, err := s.ListNodeInfo()
		want := []raftio.NodeInfo{{ShardID: 0, ReplicaID: 3}, {ShardID: 3, ReplicaID: 2}, {ShardID: 1000, ReplicaID: 4}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("list = %v, %v, want %v", got, err, want)
		}
		if _, err := s.ReadRaftState(3, 2, 0); !errors.Is(err, raftio.ErrNoSavedLog) {
			t.Errorf("state of a replica that has saved none: %v", err)
		}
	})
}

// TestReadRaftState covers what dragonboat makes of the answer at a start.
func TestReadRaftState(t *testing.T) {
	st := pb.State{Term: 2, Vote: 3, Commit: 8}
	for _, c := range []struct {
		name  string
		save  []pb.Update
		after uint64 // the snapshot asked with
		state pb.State
		first uint64
		count uint64
		err   error
	}{
		{name: "nothing", err: raftio.ErrNoSavedLog},
		{name: "snapshot alone", save: []pb.Update{{Snapshot: pb.Snapshot{Index: 9, Term: 2}}}, after: 9,
			err: raftio.ErrNoSavedLog},
		{name: "state alone", save: []pb.Update{{State: st}}, state: st},
		{name: "state is replaced", save: []pb.Update{{State: pb.State{Term: 1}}, {State: st}}, state: st},
		{name: "entries", save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10)}}, state: st, first: 1,
			count: 10},
		{name: "entries from afar", save: []pb.Update{{State: st, EntriesToSave: span(1, 3, 10)}}, after: 2, state: st,
			first: 3, count: 8},
		{name: "more entries", save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10)},
			{EntriesToSave: span(2, 11, 11)}},
			state: st, first: 1, count: 11},
		{name: "entries and a snapshot within", after: 6, state: st, first: 7, count: 4,
			save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10), Snapshot: pb.Snapshot{Index: 6, Term: 1}}}},
		{name: "a snapshot at the end", after: 10, state: pb.State{Term: 2, Vote: 3, Commit: 10}, first: 10,
			save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10), Snapshot: pb.Snapshot{Index: 10, Term: 1}}}},
		{name: "an installed snapshot discards the log", after: 5, state: st, first: 5,
			save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10)}, {Snapshot: pb.Snapshot{Index: 5, Term: 1}}}},
		{name: "the log goes on after a snapshot", after: 20, state: pb.State{Term: 2, Vote: 3, Commit: 20}, first: 21,
			count: 3,
			save: []pb.Update{{State: st, EntriesToSave: span(1, 1, 10)}, {Snapshot: pb.Snapshot{Index: 20, Term: 2}},
				{EntriesToSave: span(2, 21, 23)}}},
		{name: "a commit index behind the snapshot", after: 9, state: pb.State{Term: 2, Vote: 3, Commit: 9}, first: 10,
			count: 1,
			save:  []pb.Update{{State: st, EntriesToSave: span(1, 1, 10)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			defer func() { s.close() }()
			for _, ud := range c.save {
				ud.ShardID, ud.ReplicaID = 3, 4
				s.save(ud)
			}
			s.twice(func(t *testing.T) {
				rs, err := s.ReadRaftState(3, 4, c.after)
				want := raftio.RaftState{State: c.state, FirstIndex: c.first, EntryCount: c.count}
				if !errors.Is(err, c.err) || rs != want {
					t.Errorf("state = %+v, %v; want %+v, %v", rs, err, want, c.err)
				}
			})
		})
	}
}

// TestCommitIndex says what is left of a commit index that was saved without a term or vote: the apply index.
func TestCommitIndex(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	s.save(update(3, 4, pb.State{Term: 2, Vote: 3, Commit: 4}, span(1, 1, 10)))
	s.save(update(3, 4, pb.State{Term: 2, Vote: 3, Commit: 9}, nil))
	read := func() uint64 {
		rs, err := s.ReadRaftState(3, 4, 0)
		must(t, err)
		return rs.State.Commit
	}
	if got := read(); got != 9 {
		t.Errorf("commit index %d while the store runs, want 9", got)
	}
	for _, c := range []struct{ applied, want uint64 }{{0, 4}, {3, 4}, {7, 7}, {12, 10}} {
		s.close()
		s.open(Options{Sync: true, Applied: func(topology.RegionID) (uint64, error) { return c.applied, nil }})
		if got := read(); got != c.want {
			t.Errorf("commit index %d after a start with apply index %d, want %d", got, c.applied, c.want)
		}
	}
}

// TestCommitIndexOfAChange: an entry that changes members is saved together with the commit index, which says that the
// change before it is committed; the entries around it are not.
func TestCommitIndexOfAChange(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	st := pb.State{Term: 2, Vote: 3, Commit: 4}
	s.save(update(3, 4, st, span(2, 1, 6)))
	change := span(2, 7, 8)
	change[1].Type = pb.ConfigChangeEntry
	for _, c := range []struct {
		commit, want uint64
		ents         []pb.Entry
	}{{6, 6, change}, {8, 6, nil}, {9, 6, span(2, 9, 10)}} {
		st.Commit = c.commit
		s.save(update(3, 4, st, c.ents))
		s.close()
		s.open(Options{Sync: true})
		rs, err := s.ReadRaftState(3, 4, 0)
		must(t, err)
		want := st
		if want.Commit = c.want; rs.State != want {
			t.Errorf("state after a start: %+v; want %+v", rs.State, want)
		}
	}
	// Raft gives no state with an update if only entries are new.
	s.save(update(3, 4, pb.State{Term: 2, Vote: 3, Commit: 10}, nil))
	change = span(2, 11, 11)
	change[0].Type = pb.ConfigChangeEntry
	s.save(update(3, 4, pb.State{}, change))
	s.close()
	s.open(Options{Sync: true})
	rs, err := s.ReadRaftState(3, 4, 0)
	must(t, err)
	if want := (pb.State{Term: 2, Vote: 3, Commit: 10}); rs.State != want {
		t.Errorf("state after a start: %+v; want %+v", rs.State, want)
	}
}

// TestSnapshotAheadOfData: no snapshot record is ahead of what the engine has applied, since a start from it would have
// to end the process. The log goes on.
func TestSnapshotAheadOfData(t *testing.T) {
	s := &store{t: t, fs: disk.Mem()}
	s.open(Options{Sync: true, Applied: func(topology.RegionID) (uint64, error) { return 7, nil }})
	s.save(update(1, 1, pb.State{Term: 1, Vote: 1, Commit: 9}, span(1, 1, 9)))
	at := func(index, onDisk uint64) error {
		return s.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1,
			Snapshot: pb.Snapshot{Index: index, OnDiskIndex: onDisk, Term: 1, Type: pb.OnDiskStateMachine}}})
	}
	for _, c := range []struct {
		index, onDisk uint64
		want          error
		kept          uint64
	}{{5, 5, nil, 5}, {8, 8, sm.ErrSnapshotAborted, 5}, {8, 7, nil, 8}} {
		if err := at(c.index, c.onDisk); err != c.want {
			t.Errorf("record at %d of data at %d: %v, want %v", c.index, c.onDisk, err, c.want)
		}
		if got, err := s.GetSnapshot(1, 1); err != nil || got.Index != c.kept {
			t.Errorf("record at %d of data at %d: the log has %d, %v; want %d", c.index, c.onDisk, got.Index, err, c.kept)
		}
	}
	s.healthy()
	s.close()
}

func TestIterateEntries(t *testing.T) {
	s := newStore(t)
	st := pb.State{Term: 2, Vote: 3, Commit: 12}
	if got := s.log(3, 4, 10, 13, all); got != "" {
		t.Errorf("empty log: %s", got)
	}
	ents := append(span(1, 10, 11), span(2, 12, 12)...)
	s.save(update(3, 4, st, ents), update(4, 4, st, span(2, 10, 12)))
	size := uint64(ents[0].SizeUpperLimit())
	s.twice(func(t *testing.T) {
		for _, c := range []struct {
			low, high, maxSize uint64
			want               string
		}{
			{10, 11, all, "1/10"}, {10, 13, all, "1/10 1/11 2/12"}, {10, 12, all, "1/10 1/11"},
			{11, all, all, "1/11 2/12"}, {10, 13, 0, "1/10"}, {10, 13, size - 1, "1/10"}, {10, 13, size, "1/10 1/11"},
			{12, 13, 0, "2/12"}, {13, 14, all, ""}, {9, 10, all, ""},
		} {
			if got := s.log(3, 4, c.low, c.high, c.maxSize); got != c.want {
				t.Errorf("[%d, %d) up to %d bytes = %s, want %s", c.low, c.high, c.maxSize, got, c.want)
			}
		}
		if got := s.log(3, 5, 10, 13, all); got != "" {
			t.Errorf("another replica's entries: %s", got)
		}
	})
	before := pb.Entry{Index: 9}
	got, bytes, err := s.IterateEntries([]pb.Entry{before}, 100, 3, 4, 10, 12, all)
	if err != nil || len(got) != 3 || got[0].Index != 9 || bytes != 100+2*size {
		t.Errorf("appended to others: %v, %d bytes, %v", got, bytes, err)
	}
	s.close()
}

func TestConflictingSuffix(t *testing.T) {
	for _, c := range []struct {
		name string
		ents []pb.Entry
		want string
		wide bool // the old log reaches further
	}{
		{"shorter", span(3, 4, 5), "1/1 1/2 1/3 3/4 3/5", true},
		{"one entry", span(3, 6, 6), "1/1 1/2 1/3 1/4 1/5 3/6", true},
		{"as long", span(3, 4, 8), "1/1 1/2 1/3 3/4 3/5 3/6 3/7 3/8", false},
		{"longer", span(3, 8, 9), "1/1 1/2 1/3 1/4 1/5 1/6 1/7 3/8 3/9", false},
		{"all", span(3, 1, 2), "3/1 3/2", true},
		{"none", span(3, 9, 9), "1/1 1/2 1/3 1/4 1/5 1/6 1/7 1/8 3/9", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			defer func() { s.close() }()
			s.save(update(1, 1, pb.State{Term: 1}, span(1, 1, 8)))
			s.save(update(1, 1, pb.State{Term: 3}, c.ents))
			s.twice(func(t *testing.T) {
				if got := s.log(1, 1, 1, all, all); got != c.want {
					t.Errorf("log = %s, want %s", got, c.want)
				}
				must(t, s.Check(1, 1))
			})
			// What was cut does not come back when the log grows over it.
			next := c.ents[len(c.ents)-1].Index + 1
			s.save(update(1, 1, pb.State{Term: 4}, span(4, next, next)))
			s.twice(func(t *testing.T) {
				if got, want := s.log(1, 1, 1, all, all), fmt.Sprintf("%s 4/%d", c.want, next); got != want {
					t.Errorf("log = %s, want %s", got, want)
				}
			})
		})
	}
}

func TestRemoveEntriesTo(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	st := pb.State{Term: 1, Commit: 5000}
	s.save(update(0, 1, st, span(1, 1, 5000)), update(1, 1, st, span(1, 1, 10)))
	must(t, s.SaveSnapshots([]pb.Update{{ShardID: 0, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 4990, Term: 1}}}))
	stored := func() (n int) { // entries of region 0 that the engine still holds
		v := s.engine.NewView()
		defer v.Close()
		it, err := v.Iter(keys.LogBounds(0, 0, 0))
		must(t, err)
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		return n
	}
	for _, c := range []struct {
		to, first uint64
		stored    int
	}{{10, 11, 5000}, {5, 11, 5000}, {1023, 1024, 5000}, {1024, 1025, 3976}, {2000, 2001, 3976}, {4900, 4901, 100}} {
		must(t, s.RemoveEntriesTo(0, 1, c.to))
		s.twice(func(t *testing.T) {
			rs, err := s.ReadRaftState(0, 1, c.first-1)
			if err != nil || rs.FirstIndex != c.first || rs.EntryCount != 5000-c.first+1 {
				t.Errorf("truncated to %d: %+v, %v", c.to, rs, err)
			}
			if got := s.log(0, 1, c.first-1, all, all); got != "" {
				t.Errorf("truncated to %d: removed entries are there: %.20s...", c.to, got)
			}
			if got := stored(); got != c.stored {
				t.Errorf("truncated to %d: %d entries stored, want %d", c.to, got, c.stored)
			}
			must(t, s.Check(0, 1))
		})
	}
	must(t, s.RemoveEntriesTo(0, 1, all))
	done, err := s.CompactEntriesTo(0, 1, all)
	must(t, err)
	<-done
	s.save(update(0, 1, st, span(1, 5001, 5002)))
	s.twice(func(t *testing.T) {
		if got := s.log(0, 1, 5001, all, all); got != "1/5001 1/5002" {
			t.Errorf("after removing all: %s", got)
		}
		if got := s.log(1, 1, 1, 3, all); got != "1/1 1/2" {
			t.Errorf("the other region: %s", got)
		}
	})
}

// TestRemoveLargeEntries truncates a log of large entries: they are deleted as soon as 16 MiB were written since the
// last time, few as they are.
func TestRemoveLargeEntries(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	st := pb.State{Term: 1, Commit: 100}
	stored := func() (low, high uint64) {
		v := s.engine.NewView()
		defer v.Close()
		it, err := v.Iter(keys.LogBounds(0, 0, 0))
		must(t, err)
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			_, _, index, err := keys.ParseRaft(it.Key())
			must(t, err)
			if low == 0 {
				low = index
			}
			high = index
		}
		return low, high
	}
	value := make([]byte, 1<<20)
	last := uint64(0)
	for _, c := range []struct{ writeTo, truncateTo, low uint64 }{
		{20, 15, 16}, // 20 MiB
		{30, 25, 16}, // 10 MiB since
		{35, 26, 16}, // 15 MiB since: the entries' own bytes are few
		{36, 30, 31}, // 16 MiB
		{37, 37, 31},
	} {
		ents := span(1, last+1, c.writeTo)
		for i := range ents {
			ents[i].Cmd = value
		}
		s.save(update(0, 1, st, ents))
		last = c.writeTo
		must(t, s.RemoveEntriesTo(0, 1, c.truncateTo))
		if low, high := stored(); low != c.low || high != last {
			t.Errorf("%d MiB written, truncated to %d: entries %d to %d are stored; want %d to %d", last, c.truncateTo,
				low, high, c.low, last)
		}
		if rs, err := s.ReadRaftState(0, 1, c.truncateTo); err != nil || rs.EntryCount != last-c.truncateTo {
			t.Errorf("truncated to %d: %+v, %v", c.truncateTo, rs, err)
		}
	}
	s.healthy()
}

func TestSnapshots(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	if ss, err := s.GetSnapshot(1, 2); err != nil || !pb.IsEmptySnapshot(ss) {
		t.Errorf("no snapshot: %+v, %v", ss, err)
	}
	at := func(index uint64) pb.Update {
		return pb.Update{ShardID: 1, ReplicaID: 2,
			Snapshot: pb.Snapshot{Index: index, Term: 2, Filepath: fmt.Sprint("s", index),
				Membership: pb.Membership{Addresses: map[uint64]string{2: "store-1"}}}}
	}
	s.save(update(1, 2, pb.State{Term: 2, Commit: 20}, span(2, 1, 30)))
	must(t, s.SaveSnapshots([]pb.Update{at(5), at(20)}))
	must(t, s.SaveSnapshots([]pb.Update{at(10)}))
	s.save(at(15)) // an old one discards nothing, either
	s.twice(func(t *testing.T) {
		ss, err := s.GetSnapshot(1, 2)
		if err != nil || ss.Index != 20 || ss.Filepath != "s20" || ss.Membership.Addresses[2] != "store-1" {
			t.Errorf("snapshot = %+v, %v; want that at 20", ss, err)
		}
		if got := s.log(1, 2, 29, all, all); got != "2/29 2/30" {
			t.Errorf("log = %s", got)
		}
		if ss, err := s.GetSnapshot(1, 1); err != nil || !pb.IsEmptySnapshot(ss) {
			t.Errorf("another replica's snapshot: %+v, %v", ss, err)
		}
	})
}

func TestReplicaIDs(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	fill := func(id uint64) {
		must(t, s.SaveBootstrapInfo(7, id, pb.Bootstrap{Join: true}))
		s.save(pb.Update{ShardID: 7, ReplicaID: id, State: pb.State{Term: id, Commit: 3},
			EntriesToSave: span(id, 1, id+2),
			Snapshot:      pb.Snapshot{Index: 1, Term: id}})
	}
	fill(4)
	must(t, s.SaveBootstrapInfo(8, 4, pb.Bootstrap{}))
	fill(5) // begins although 4 was not removed: nothing of 4 is left
	must(t, s.RemoveNodeData(7, 4))
	s.twice(func(t *testing.T) {
		if rs, err := s.ReadRaftState(7, 5, 1); err != nil || rs.State.Term != 5 || rs.FirstIndex != 2 ||
			rs.EntryCount != 6 {
			t.Errorf("the newer replica = %+v, %v", rs, err)
		}
		if _, err := s.ReadRaftState(7, 4, 1); !errors.Is(err, raftio.ErrNoSavedLog) {
			t.Errorf("the older replica: %v", err)
		}
		must(t, s.Check(7, 5))
	})
	must(t, s.RemoveNodeData(7, 5))
	s.twice(func(t *testing.T) {
		if _, err := s.ReadRaftState(7, 5, 1); !errors.Is(err, raftio.ErrNoSavedLog) {
			t.Errorf("removed: state: %v", err)
		}
		if ss, err := s.GetSnapshot(7, 5); err != nil || !pb.IsEmptySnapshot(ss) {
			t.Errorf("removed: snapshot %+v, %v", ss, err)
		}
		if got := s.log(7, 5, 0, all, all); got != "" {
			t.Errorf("removed: log %s", got)
		}
		if got, _ := s.ListNodeInfo(); len(got) != 1 || got[0].ShardID != 8 {
			t.Errorf("removed: list %v", got)
		}
	})
	fill(6)
	s.healthy()
	s.save(update(7, 5, pb.State{Term: 9}, nil)) // from the dead
	if s.fenced == nil || !strings.Contains(s.fenced.Error(), "replica 5: the log is of replica 6") {
		t.Errorf("a removed replica writes: %v", s.fenced)
	}
}

func TestImport(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	s.close()
	s.open(Options{Sync: true, Applied: func(id topology.RegionID) (uint64, error) {
		return map[topology.RegionID]uint64{2: 110, 3: 10}[id], nil
	}})
	b := s.engine.NewBatch()
	must(t, s.Import(b, pb.Snapshot{Type: pb.OnDiskStateMachine, ShardID: 2, Index: 110, Term: 2, OnDiskIndex: 110,
		Dummy: true}, 4))
	must(t, s.Import(b, pb.Snapshot{Type: pb.OnDiskStateMachine, ShardID: 3, Index: 10, Term: 1}, 4))
	must(t, b.Commit(true))
	s.twice(func(t *testing.T) {
		ss, err := s.GetSnapshot(2, 4)
		if err != nil || ss.Index != 110 || !ss.Dummy {
			t.Errorf("snapshot = %+v, %v", ss, err)
		}
		if b, err := s.GetBootstrapInfo(2, 4); err != nil || !b.Join || b.Type != pb.OnDiskStateMachine {
			t.Errorf("bootstrap = %+v, %v", b, err)
		}
		want := raftio.RaftState{State: pb.State{Term: 2, Commit: 110}, FirstIndex: 110}
		if rs, err := s.ReadRaftState(2, 4, 110); err != nil || rs != want {
			t.Errorf("state = %+v, %v; want %+v", rs, err, want)
		}
		must(t, s.Check(2, 4))
	})
	s.save(update(3, 4, pb.State{Term: 2, Commit: 10}, span(2, 11, 12)))
	s.twice(func(t *testing.T) {
		if got := s.log(3, 4, 11, all, all); got != "2/11 2/12" {
			t.Errorf("log after an import = %s", got)
		}
		must(t, s.Check(3, 4))
	})
}

// TestCheckApplied: a log and the data that do not go together are found before the replica starts.
func TestCheckApplied(t *testing.T) {
	for _, c := range []struct {
		applied uint64
		want    string
	}{{5, ""}, {6, "apply index 6, the log ends at 5"}, {2, "apply index 2, the log was cut at 3"}} {
		s := newStore(t)
		applied := uint64(3)
		o := Options{Sync: true, Applied: func(topology.RegionID) (uint64, error) { return applied, nil }}
		s.close()
		s.open(o)
		s.save(update(1, 1, pb.State{Term: 2, Commit: 5}, span(2, 1, 5)))
		must(t, s.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{ShardID: 1, Index: 3, Term: 2,
			OnDiskIndex: 3, Dummy: true, Type: pb.OnDiskStateMachine}}}))
		s.close()
		applied = c.applied
		s.open(o)
		if err := s.Check(1, 1); c.want == "" && err != nil || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("applied %d: %v; want %q", c.applied, err, c.want)
		}
		s.close()
	}
}

// TestSyncs says which saves must be durable on return.
func TestSyncs(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	base := pb.State{Term: 2, Vote: 1, Commit: 5}
	s.save(update(1, 1, base, span(2, 1, 10)), update(2, 1, base, span(2, 1, 2000)))
	for _, c := range []struct {
		name           string
		do             func()
		batches, syncs int64
	}{
		{"nothing", func() { s.save(); s.save(pb.Update{ShardID: 1, ReplicaID: 1}) }, 0, 0},
		{"the same state", func() { s.save(update(1, 1, base, nil)) }, 0, 0},
		{"commit index", func() { base.Commit++; s.save(update(1, 1, base, nil), update(2, 1, base, nil)) }, 0, 0},
		{"vote", func() { base.Vote++; s.save(update(1, 1, base, nil)) }, 1, 1},
		{"term", func() { base.Term++; s.save(update(1, 1, base, nil)) }, 1, 1},
		{"entries of many", func() {
			s.save(update(1, 1, base, span(3, 11, 12)), update(2, 1, base, span(3, 2001, 2001)))
		}, 1, 1},
		{"snapshot", func() { s.save(pb.Update{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 20, Term: 3}}) },
			1, 1},
		{"snapshot record", func() {
			must(t, s.SaveSnapshots([]pb.Update{{ShardID: 2, ReplicaID: 1,
				Snapshot: pb.Snapshot{Index: 1500, Term: 2}}}))
		}, 1, 1},
		{"truncation", func() { must(t, s.RemoveEntriesTo(2, 1, 1500)) }, 1, 0},
		{"truncation of nothing", func() { must(t, s.RemoveEntriesTo(2, 1, 1500)) }, 0, 0},
		{"bootstrap", func() { must(t, s.SaveBootstrapInfo(3, 1, pb.Bootstrap{})) }, 1, 0},
		{"removal", func() { must(t, s.RemoveNodeData(3, 1)) }, 1, 1},
	} {
		before, disk := s.Stats(), s.fs.Stats().Syncs
		c.do()
		after := s.Stats()
		if b, y := after.Batches-before.Batches, after.Syncs-before.Syncs; b != c.batches || y != c.syncs {
			t.Errorf("%s: %d batches, %d syncs; want %d, %d", c.name, b, y, c.batches, c.syncs)
		}
		if c.syncs > 0 && s.fs.Stats().Syncs == disk {
			t.Errorf("%s: nothing was synced on disk", c.name)
		}
	}
	s.healthy()
	for _, o := range []Options{{Sync: false}, {Sync: true, Mistakes: Mistakes{NoSync: true}}} {
		s.close()
		s.open(o)
		if s.save(update(1, 1, pb.State{Term: 9}, span(9, 21, 22))); s.Stats().Syncs != 0 || s.Stats().Batches != 1 {
			t.Errorf("%+v: %+v", o, s.Stats())
		}
	}
}

// TestFenced: a store that has failed goes on answering, in the order of indexes and never with a smaller term.
func TestFenced(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	s.save(update(1, 1, pb.State{Term: 2, Commit: 3}, span(2, 1, 5)))
	must(t, s.SaveBootstrapInfo(1, 1, pb.Bootstrap{Join: true}))
	must(t, s.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 1, Term: 2}}}))
	s.fenced = errors.New("disk gone")
	batches := s.Stats().Batches
	s.save(update(1, 1, pb.State{Term: 3, Commit: 6}, span(3, 6, 8)))
	must(t, s.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 6, Term: 3}}}))
	must(t, s.RemoveEntriesTo(1, 1, 4))
	must(t, s.RemoveNodeData(2, 1))
	must(t, s.SaveBootstrapInfo(2, 1, pb.Bootstrap{}))
	if got := s.log(1, 1, 2, 9, all); got != "2/2 2/3 2/4 2/5 3/6 3/7 3/8" {
		t.Errorf("placeholders = %s", got)
	}
	if got := s.log(1, 1, 3, 9, 0); got != "2/3" {
		t.Errorf("placeholders within a size = %s", got)
	}
	if ss, err := s.GetSnapshot(1, 1); err != nil || ss.Index != 6 {
		t.Errorf("snapshot = %+v, %v", ss, err)
	}
	if b, err := s.GetBootstrapInfo(1, 1); err != nil || !b.Join {
		t.Errorf("bootstrap = %+v, %v", b, err)
	}
	if rs, err := s.ReadRaftState(1, 1, 6); err != nil || rs.State.Term != 3 || rs.FirstIndex != 7 ||
		rs.EntryCount != 2 {
		t.Errorf("state = %+v, %v", rs, err)
	}
	if got := s.Stats().Batches; got != batches {
		t.Errorf("%d batches written by a fenced store", got-batches)
	}
}

// TestPlaceholderTerms asks a fenced store for the terms of its entries: Raft ends the process if they differ from
// those in its memory.
func TestPlaceholderTerms(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	s.save(update(1, 1, pb.State{Term: 1}, span(1, 1, 3)))
	s.save(update(1, 1, pb.State{Term: 2}, append(span(1, 4, 5), span(2, 6, 9)...)))
	s.save(update(1, 1, pb.State{Term: 4, Commit: 7}, span(4, 8, 9))) // over a suffix of term 2
	want := func(t *testing.T, low uint64, want string) {
		t.Helper()
		s.fenced = errors.New("disk gone")
		defer func() { s.fenced = nil }()
		if got := s.log(1, 1, low, 20, all); got != want {
			t.Errorf("placeholders = %s, want %s", got, want)
		}
	}
	s.twice(func(t *testing.T) {
		must(t, s.Check(1, 1)) // as before every start
		want(t, 1, "1/1 1/2 1/3 1/4 1/5 2/6 2/7 4/8 4/9")
	})
	must(t, s.RemoveEntriesTo(1, 1, 6))
	want(t, 7, "2/7 4/8 4/9")
	s.fenced = errors.New("disk gone")
	s.save(update(1, 1, pb.State{Term: 5}, span(5, 9, 10)))
	want(t, 7, "2/7 4/8 5/9 5/10")
}

// TestTermsAreNotRead: a term of an entry costs no read of the entry, which may be large.
func TestTermsAreNotRead(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	s.save(update(1, 1, pb.State{Term: 1}, span(1, 1, 3)))
	large := span(2, 4, 4)
	large[0].Cmd = make([]byte, 1<<20)
	s.save(update(1, 1, pb.State{Term: 2}, large))
	s.twice(func(t *testing.T) {
		must(t, s.Check(1, 1)) // as before every start
		before := s.Stats().Read
		for index, want := range []uint64{1: 1, 2: 1, 3: 1, 4: 2} {
			if index == 0 {
				continue
			}
			ents, size, err := s.IterateEntries(nil, 0, 1, 1, uint64(index), uint64(index)+1, 0)
			got := fmt.Sprintf("%+v, %d bytes, %v", ents, size, err)
			if want := fmt.Sprintf("%+v, 0 bytes, <nil>", []pb.Entry{{Index: uint64(index), Term: want}}); got != want {
				t.Errorf("term of %d: %.200s; want %s", index, got, want)
			}
		}
		if read := s.Stats().Read - before; read != 0 {
			t.Errorf("%d entries read for their terms", read)
		}
	})
}

// raw writes a record behind the log store's back.
func (s *store) raw(key, value []byte) {
	b := s.engine.NewBatch()
	if value == nil {
		must(s.t, b.Delete(key))
	} else {
		must(s.t, b.Set(key, value))
	}
	must(s.t, b.Commit(true))
}

func TestDamage(t *testing.T) {
	record := func(k keys.RaftRecord) []byte { return keys.AppendRaft(nil, 1, k) }
	other, err := (&pb.Entry{Index: 4, Term: 2}).Marshal()
	must(t, err)
	older, err := (&pb.Entry{Index: 3, Term: 1}).Marshal()
	must(t, err)
	for _, c := range []struct {
		name       string
		key, value []byte
		want       string // of Check
	}{
		{"missing entry", keys.AppendLogEntry(nil, 1, 3), nil, "entry 3 is missing"},
		{"missing end", keys.AppendLogEntry(nil, 1, 5), nil, "commit index 5, the log ends at 4"},
		{"missing start", keys.AppendLogEntry(nil, 1, 1), nil, "the log begins at 2, the snapshot before it is 0"},
		{"entry of another index", keys.AppendLogEntry(nil, 1, 3), other, "entry 3: says that it is entry 4"},
		{"garbage entry", keys.AppendLogEntry(nil, 1, 3), []byte{9}, "entry 3: decode"},
		{"terms go back", keys.AppendLogEntry(nil, 1, 3), older, "entry 3 is of term 1, after term 2"},
		{"short state", record(keys.RaftState), []byte{1, 2}, "record 3: 2 bytes, want at least 8"},
		{"garbage state", record(keys.RaftState), []byte("\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff"),
			"record 3: decode"},
		{"bootstrap of another", record(keys.Bootstrap), []byte("\x00\x00\x00\x00\x00\x00\x00\x02"),
			"record 4: of replica 2, others of 1"},
		{"snapshot of nobody", record(keys.RaftSnapshot), make([]byte, 8), "record 5: replica id is 0"},
		{"short log meta", record(keys.LogMeta), []byte{1}, "log meta: 1 bytes, want 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			defer func() { s.close() }()
			s.save(update(1, 1, pb.State{Term: 2, Commit: 5}, span(2, 1, 5)))
			s.raw(c.key, c.value)
			s.close()
			s.open(s.o)
			if err := s.Check(1, 1); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check = %v, want %s", err, c.want)
			}
			s.healthy() // an error before the start is no fence
		})
	}
	t.Run("while running", func(t *testing.T) {
		s := newStore(t)
		defer func() { s.close() }()
		s.save(update(1, 1, pb.State{Term: 2, Commit: 5}, append(span(1, 1, 3), span(2, 4, 5)...)))
		s.raw(keys.AppendLogEntry(nil, 1, 3), nil)
		if got := s.log(1, 1, 1, 6, all); got != "1/1 1/2 1/3 2/4 2/5" {
			t.Errorf("log = %s, want empty entries from the missing one on", got)
		}
		if s.fenced == nil || !strings.Contains(s.fenced.Error(), "region 1: entry 3 is missing") {
			t.Errorf("fenced: %v", s.fenced)
		}
	})
	t.Run("gap", func(t *testing.T) {
		s := newStore(t)
		defer func() { s.close() }()
		s.save(update(1, 1, pb.State{Term: 2}, span(2, 1, 5)))
		s.save(update(1, 1, pb.State{Term: 2}, span(2, 7, 8)))
		if s.fenced == nil || !strings.Contains(s.fenced.Error(), "append at 7, the log ends at 5") {
			t.Errorf("fenced: %v", s.fenced)
		}
	})
}

// TestConcurrently has a worker per region and a second goroutine that takes snapshots and truncates.
func TestConcurrently(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	const regions, rounds = 6, 150
	var wg sync.WaitGroup
	for region := uint64(1); region <= regions; region++ {
		saved := make(chan uint64, rounds)
		wg.Go(func() {
			defer close(saved)
			last := uint64(0)
			for n := uint64(1); n <= rounds; n++ {
				ud := update(region, 1, pb.State{Term: 1, Commit: last}, span(1, last+1, last+n%7+1))
				must(t, s.SaveRaftState([]pb.Update{ud}, region%2+1))
				last += n%7 + 1
				if got := s.log(region, 1, last, last+1, all); got != fmt.Sprintf("1/%d", last) {
					t.Errorf("region %d: last entry %s, want 1/%d", region, got, last)
				}
				saved <- last
			}
		})
		wg.Go(func() {
			for last := range saved {
				ud := pb.Update{ShardID: region, ReplicaID: 1, Snapshot: pb.Snapshot{Index: last, Term: 1}}
				must(t, s.SaveSnapshots([]pb.Update{ud}))
				must(t, s.RemoveEntriesTo(region, 1, last-min(last, 20)))
				if ss, err := s.GetSnapshot(region, 1); err != nil || ss.Index < last {
					t.Errorf("region %d: snapshot %d, %v; want at least %d", region, ss.Index, err, last)
				}
			}
		})
	}
	wg.Wait()
	s.twice(func(t *testing.T) {
		for region := uint64(1); region <= regions; region++ {
			must(t, s.Check(topology.RegionID(region), 1))
		}
	})
}

func FuzzRecord(f *testing.F) {
	ent, _ := (&pb.Entry{Index: 7, Term: 3, Cmd: []byte("x")}).Marshal()
	st, _ := (&pb.State{Term: 3, Vote: 2, Commit: 9}).Marshal()
	ss, _ := (&pb.Snapshot{Index: 3, Membership: pb.Membership{Addresses: map[uint64]string{1: "a"}}}).Marshal()
	bs, _ := (&pb.Bootstrap{Addresses: map[uint64]string{1: "a"}}).Marshal()
	for _, seed := range [][]byte{nil, ent, st, ss, bs, {0x87},
		{7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		f.Add(seed)
		f.Add(append([]byte{0, 0, 0, 0, 0, 0, 0, 1}, seed...))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if e, err := decodeEntry(value, 7); err == nil && e.Index != 7 {
			t.Errorf("entry 7 decodes as %d", e.Index)
		}
		id, rest, err := splitRecord(value)
		if err != nil {
			return
		}
		if id == 0 || len(rest) != len(value)-8 {
			t.Errorf("split: replica %d, %d of %d bytes", id, len(rest), len(value))
		}
		for _, into := range []unmarshaler{new(pb.State), new(pb.Bootstrap), new(pb.Snapshot)} {
			_ = unmarshal(rest, into)
		}
	})
}

// BenchmarkSave is a round of 8 regions with 16 entries of 128 bytes each, synced on the machine's disk.
func BenchmarkSave(b *testing.B) {
	for _, sync := range []bool{true, false} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			e := openEngine(b, vfs.Default, filepath.Join(b.TempDir(), "engine"))
			defer func() { must(b, e.Close()) }()
			l := New(e, Options{Sync: sync, Failed: func() error { return nil }, Fence: func(err error) { b.Error(err) },
				Applied: nothingApplied, Stalls: NewStalls(0)})
			uds := make([]pb.Update, 8)
			cmd := make([]byte, 128)
			for i := range uds {
				uds[i] = pb.Update{ShardID: uint64(i + 1), ReplicaID: 1, State: pb.State{Term: 1},
					EntriesToSave: make([]pb.Entry, 16)}
			}
			index := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				for i := range uds {
					uds[i].State.Commit = index
					for j := range uds[i].EntriesToSave {
						uds[i].EntriesToSave[j] = pb.Entry{Term: 1, Index: index + uint64(j) + 1, Cmd: cmd}
					}
				}
				index += 16
				must(b, l.SaveRaftState(uds, 1))
			}
			b.ReportMetric(float64(b.N)*8*16/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// TestPlaceholderMembers asks a fenced store for the entries that say who the members of a region are.
func TestPlaceholderMembers(t *testing.T) {
	s := newStore(t)
	defer func() { s.close() }()
	members := map[uint64]string{5: "store-2", 4: "store-1", 6: "store-3"}
	must(t, s.SaveBootstrapInfo(1, 4, pb.Bootstrap{Addresses: members}))
	s.save(update(1, 4, pb.State{Term: 1}, span(1, 1, 5)))
	s.twice(func(t *testing.T) {
		must(t, s.Check(1, 4)) // as before every start
		s.fenced = errors.New("disk gone")
		defer func() { s.fenced = nil }()
		got, _, err := s.IterateEntries(nil, 0, 1, 4, 1, 6, all)
		if err != nil || len(got) != 5 {
			t.Fatalf("placeholders = %+v, %v; want 5", got, err)
		}
		for i, e := range got {
			id := uint64(4 + i)
			if i >= len(members) {
				if e.Type != pb.ApplicationEntry || len(e.Cmd) > 0 {
					t.Errorf("placeholder %d = %+v; want an empty entry", e.Index, e)
				}
				continue
			}
			var add pb.ConfigChange
			if err := add.Unmarshal(e.Cmd); err != nil || e.Type != pb.ConfigChangeEntry {
				t.Errorf("placeholder %d = %+v, %v; want a change of members", e.Index, e, err)
			}
			want := pb.ConfigChange{Type: pb.AddNode, ReplicaID: id, Initialize: true, Address: members[id]}
			if add != want {
				t.Errorf("placeholder %d adds %+v; want %+v", e.Index, add, want)
			}
		}
	})
}
