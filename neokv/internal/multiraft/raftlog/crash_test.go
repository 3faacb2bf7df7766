package raftlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/topology"
)

// model has what the log store should hold. It is a value that is copied at each step, so that the state after a crash
// can be compared with every past one.
type model [4]modelReplica

type modelReplica struct {
	id        uint64
	bootstrap bool
	state     pb.State
	recorded  pb.State // as of the latest change of term or vote
	first     uint64   // of terms
	terms     []uint64
	snapshot  uint64
}

func (r *modelReplica) last() uint64 { return r.first + uint64(len(r.terms)) - 1 }

// print returns what dragonboat would find, as text.
func (r *modelReplica) print() string {
	if r.id == 0 {
		return "-"
	}
	return fmt.Sprintf("%d boot=%v %v snap=%d log=%d%v", r.id, r.bootstrap, r.state, r.snapshot, r.first, r.terms)
}

func (m *model) print() string {
	var out []string
	for i := range m {
		out = append(out, m[i].print())
	}
	return strings.Join(out, " | ")
}

// found prints what a log store holds, in the model's words.
func (s *store) found(m *model) string {
	list, err := s.ListNodeInfo()
	must(s.t, err)
	var out []string
	for region := range m {
		r := modelReplica{}
		for id := uint64(1); id < 40; id++ { // ids are handed out upwards; few are used
			ss, err := s.GetSnapshot(uint64(region), id)
			must(s.t, err)
			rs, err := s.ReadRaftState(uint64(region), id, ss.Index)
			boot := slices.Contains(list, raftio.NodeInfo{ShardID: uint64(region), ReplicaID: id})
			if err != nil && !boot && ss.Index == 0 {
				continue
			}
			if r.id != 0 {
				s.t.Fatalf("region %d: replicas %d and %d", region, r.id, id)
			}
			r = modelReplica{id: id, bootstrap: boot, state: rs.State, snapshot: ss.Index, first: ss.Index + 1}
			if rs.EntryCount > 0 {
				r.first = rs.FirstIndex
				ents, _, err := s.IterateEntries(nil, 0, uint64(region), id, rs.FirstIndex, rs.FirstIndex+rs.EntryCount,
					all)
				must(s.t, err)
				for _, e := range ents {
					r.terms = append(r.terms, e.Term)
				}
			}
			must(s.t, s.Check(topology.RegionID(region), topology.ReplicaID(id)))
		}
		out = append(out, r.print())
	}
	return strings.Join(out, " | ")
}

// seen is the model as ReadRaftState shows it after a start: the commit index is what it was along with the latest term
// and vote, but not below the snapshot; entries below that are out of sight.
func (m model) seen() model {
	for i := range m {
		r := &m[i]
		if r.id == 0 {
			continue
		}
		r.state = r.recorded
		if r.state != (pb.State{}) {
			r.state.Commit = max(r.state.Commit, r.snapshot)
		}
		if len(r.terms) == 0 || r.last() <= r.snapshot {
			r.first, r.terms = r.snapshot+1, nil
		} else if r.first <= r.snapshot {
			r.terms = r.terms[r.snapshot+1-r.first:]
			r.first = r.snapshot + 1
		}
	}
	return m
}

// step does something at random to the log store and to the model, and reports whether it must survive a crash.
func (s *store) step(m *model, rng *rand.Rand, nextID *uint64) (durable bool) {
	region := rng.IntN(len(m))
	r := &m[region]
	if r.id == 0 {
		*nextID++
		*r = modelReplica{id: *nextID, bootstrap: true, first: 1}
		must(s.t, s.SaveBootstrapInfo(uint64(region), r.id, pb.Bootstrap{Join: true}))
		return false
	}
	switch rng.IntN(12) {
	case 0:
		if rng.IntN(4) > 0 {
			return false
		}
		must(s.t, s.RemoveNodeData(uint64(region), r.id))
		*r = modelReplica{}
		return true
	case 1: // a local snapshot of what is committed
		if r.state.Commit <= r.snapshot {
			return false
		}
		r.snapshot = r.state.Commit
		must(s.t, s.SaveSnapshots([]pb.Update{{ShardID: uint64(region), ReplicaID: r.id,
			Snapshot: pb.Snapshot{Index: r.snapshot, Term: 1}}}))
		return true
	case 2: // truncation below the snapshot
		if r.snapshot < r.first || len(r.terms) == 0 {
			return false
		}
		to := r.first + uint64(rng.IntN(int(r.snapshot-r.first)+1))
		must(s.t, s.RemoveEntriesTo(uint64(region), r.id, to))
		cut := min(int(to+1-r.first), len(r.terms))
		r.terms, r.first = r.terms[cut:], r.first+uint64(cut)
		return false
	default: // a round of a step worker over some regions
		var uds []pb.Update
		for region := range m {
			r := &m[region]
			if r.id == 0 || rng.IntN(3) == 0 {
				continue
			}
			ud := pb.Update{ShardID: uint64(region), ReplicaID: r.id}
			if rng.IntN(5) == 0 || r.state.Term == 0 {
				r.state.Term++
				r.state.Vote = uint64(rng.IntN(3))
				durable = true
			}
			if rng.IntN(15) == 0 {
				index := max(r.last(), r.snapshot) + uint64(rng.IntN(5)) + 1
				ud.Snapshot = pb.Snapshot{Index: index, Term: r.state.Term}
				r.snapshot, r.first, r.terms, r.state.Commit = index, index+1, nil, index
				durable = true
			}
			if rng.IntN(3) > 0 {
				low := r.last() + 1
				if floor := max(r.state.Commit, r.first-1) + 1; low > floor && rng.IntN(3) == 0 {
					low = floor + uint64(rng.IntN(int(low-floor))) // a conflict
				}
				high := low + uint64(rng.IntN(6))
				ud.EntriesToSave = span(r.state.Term, low, high)
				r.terms = slices.Clone(r.terms[:low-r.first])
				for range ud.EntriesToSave {
					r.terms = append(r.terms, r.state.Term)
				}
				durable = true
			}
			if len(r.terms) > 0 && r.last() > r.state.Commit {
				r.state.Commit += uint64(rng.IntN(int(r.last()-r.state.Commit) + 1))
			}
			if ud.State = r.state; r.state.Term != r.recorded.Term || r.state.Vote != r.recorded.Vote {
				r.recorded = r.state
			}
			uds = append(uds, ud)
		}
		s.save(uds...)
		return durable
	}
}

// crashRun does steps until the power fails within one, at a random sync, and reports whether what is found afterwards
// is a past from the last durable one on.
func crashRun(t *testing.T, seed uint64, mistakes Mistakes) (err error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := &store{t: t, fs: disk.Mem()}
	s.open(Options{Sync: true, Mistakes: mistakes})
	var m model
	var nextID uint64
	for range 3 { // crashes on the same data
		var after *disk.FS
		at, percent := int64(1+rng.IntN(60)), rng.IntN(101)
		cut := rand.New(rand.NewPCG(rng.Uint64(), 2))
		begun := int64(0)
		fs := s.fs
		fs.Hook(disk.BeforeSync, func(int64) {
			if begun++; begun == at {
				after = fs.Crash(percent, cut)
			}
		})
		pasts := []string{m.clone().seen().printed()}
		for range 400 {
			durable := s.step(&m, rng, &nextID)
			if after != nil { // the last step was under way
				pasts = append(pasts, m.clone().seen().printed())
				break
			}
			if durable {
				pasts = pasts[:0]
			}
			pasts = append(pasts, m.clone().seen().printed())
		}
		if after == nil {
			after = fs.Crash(percent, cut)
		}
		s.close()
		s.fs = after
		s.open(Options{Sync: true, Mistakes: mistakes})
		found := s.found(&m)
		s.healthy()
		if !slices.Contains(pasts, found) {
			s.close()
			return fmt.Errorf("found %s\nwant one of\n%s", found, strings.Join(pasts, "\n"))
		}
		// Go on from what was found.
		m = s.reload(len(m))
	}
	s.close()
	return nil
}

func (m model) printed() string { return m.print() }

func (m *model) clone() model {
	c := *m
	for i := range c {
		c[i].terms = slices.Clone(c[i].terms)
	}
	return c
}

// reload makes the model of what the log store holds.
func (s *store) reload(regions int) (m model) {
	for region := range regions {
		r, err := s.lock(uint64(region))
		must(s.t, err)
		m[region] = modelReplica{id: r.id, bootstrap: r.bootstrapBytes != nil, state: r.state, recorded: r.state,
			first: r.first, snapshot: r.snapshot}
		first, last := r.first, r.last
		r.mu.Unlock()
		must(s.t, s.walk(topology.RegionID(region), first, last+1, func(e pb.Entry) bool {
			m[region].terms = append(m[region].terms, e.Term)
			return true
		}))
	}
	return m
}

func TestCrash(t *testing.T) {
	first, seeds := seed(), uint64(60)
	if testing.Short() {
		seeds = 6
	}
	for i := range seeds {
		if err := crashRun(t, first+i, Mistakes{}); err != nil {
			t.Fatalf("seed %d: %v", first+i, err)
		}
	}
	for i := range uint64(20) {
		if crashRun(t, first+i, Mistakes{NoSync: true}) != nil {
			t.Logf("a log that is not synced is found with seed %d, number %d", first+i, i+1)
			return
		}
	}
	t.Errorf("seeds from %d: a log that is not synced is not found", first)
}
