package store

import (
	"fmt"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// A store whose disk has less free space than engine.disk_reserve is full. What is left is for what cannot be put off:
// flushes, votes, the entries of meta. A full store
//
//   - tells meta's leader, which tells the others, so that nobody makes it a leader;
//   - hands over the regions that it leads, and does not propose until then;
//   - drops Raft's messages with entries that write, and snapshots. So its replicas fall behind, as those of a store
//     that is away, but they go on voting and confirming reads.
//
// If the stores that run and are not full have no majority of a region's replicas, its leader refuses writes. Reads go
// on. Once there is space, the leaders send again what the stores lack.

// spaceEvery is how often a store looks at the free space of its disk.
const spaceEvery = 200 * time.Millisecond

// watchSpace looks at the disk until the store closes.
func (s *Store) watchSpace() {
	for pause(s.ctx, spaceEvery) {
		if s.Failed() == nil {
			s.lookAtSpace()
			s.refuseWrites()
		}
	}
}

// lookAtSpace finds out whether the store is full. Once it is, it needs a quarter more than the reserve to be well.
func (s *Store) lookAtSpace() {
	free, reserve, ok := s.space()
	full := ok && (free < reserve || s.full.Load() && free < reserve+reserve/4)
	if s.full.Swap(full) != full {
		s.publish()
		s.Wake()
	}
}

// space returns the free space of the store's disk and the reserve, in bytes: an eighth of the disk at most. If data
// and log are on two disks, it is that of the disk with less beyond its reserve. ok is false if it is not known.
func (s *Store) space() (free, reserve int64, ok bool) {
	for _, dir := range []string{s.o.Dir, s.o.WALDir} {
		if dir == "" {
			continue
		}
		left, total, known := s.o.FS.Free(dir)
		if !known {
			continue
		}
		least := min(int64(s.o.Settings.Engine.DiskReserve), total/8)
		if !ok || left-least < free-reserve {
			free, reserve, ok = left, least, true
		}
	}
	return free, reserve, ok
}

// Full returns why the store takes no more writes, "" while it does.
func (s *Store) Full() string {
	if !s.full.Load() {
		return ""
	}
	free, reserve, _ := s.space()
	if free > 1<<20 {
		free = free >> 20 << 20 // it changes all the time
	}
	return fmt.Sprintf("its disk has %s left, and engine.disk_reserve keeps %s", settings.Bytes(free>>10<<10),
		settings.Bytes(reserve))
}

// refuseWrites lets the regions that this store leads take writes or not, by the space that the stores have, and hands
// regions over if this one has none.
func (s *Store) refuseWrites() {
	t := s.Table()
	if t == nil {
		return
	}
	away := true
	for i := range t.Regions {
		r := &t.Regions[i]
		replica := s.Replica(r.ID)
		if replica == nil {
			continue
		}
		heirs, enough, full := s.takers(t, r)
		switch {
		case full && !enough:
			replica.Refuse(region.ErrNoSpace)
		case s.full.Load():
			replica.Refuse(region.ErrNotLeader) // soon it is true
			if r.Leader == s.o.ID && away {
				// One at a time, and no other one if it fails: the next look tries another heir.
				if away = s.handOver(r.ID, heirs[(int(r.ID)+s.handed)%len(heirs)]); !away {
					s.handed++
				}
			}
		default:
			replica.Refuse(nil)
		}
	}
}

// takers returns the other stores that could lead a region, and whether the stores that take its writes are a majority.
// full says that some store is full.
func (s *Store) takers(t *route.Table, r *route.LedRegion) (heirs []topology.StoreID, enough, full bool) {
	takers := 0
	for _, p := range r.Peers {
		st := t.Store(p.Store)
		switch {
		case p.Store == s.o.ID && s.full.Load(), st != nil && p.Store != s.o.ID && st.Full:
			full = true
		case p.Store == s.o.ID:
			takers++
		case st != nil && st.Alive:
			takers++
			heirs = append(heirs, p.Store)
		}
	}
	return heirs, takers > len(r.Peers)/2, full
}

// drops reports whether a full store drops a message of Raft: one with entries that write, or the begin of a snapshot.
// Meta's are few and small.
func (s *Store) drops(m *pb.Message) bool {
	if m.Type == pb.InstallSnapshot && !s.running(topology.RegionID(m.ShardID)) {
		return true // dragonboat ends the process if a snapshot comes for a replica that has never run here
	}
	if !s.full.Load() || topology.RegionID(m.ShardID) == topology.MetaRegion {
		return false
	}
	if m.Type == pb.InstallSnapshot {
		return true
	}
	if m.Type == pb.Replicate {
		for i := range m.Entries {
			if region.Writes(&m.Entries[i]) {
				return true
			}
		}
	}
	return false
}
