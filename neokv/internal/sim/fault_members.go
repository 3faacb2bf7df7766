package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// replicaMove is a move of a replica in a region of three that is at rest. The store that leads keeps its replica, and
// so does another one.
type replicaMove struct {
	region                    topology.Region
	leaver                    topology.ReplicaID
	leads, stays, loses, gets seam.StorePlace
}

// someMove draws a move; ok is false if no store leads the region, or if it is not at rest.
func (s *sim) someMove(random *rand.Rand) (m replicaMove, ok bool) {
	id := s.someRegion(random)
	if m.leads, _ = s.leader(id); m.leads == nil {
		return m, false
	}
	all := s.regions()
	i := slices.IndexFunc(all, func(r topology.Region) bool { return r.ID == id })
	if i < 0 || !all[i].Settled() || len(all[i].Peers) != 3 {
		return m, false
	}
	m.region = all[i]
	var with, without []seam.StorePlace
	for _, n := range s.others(m.leads) {
		if _, held := m.region.PeerOn(n.ID()); held {
			with = append(with, n)
		} else {
			without = append(without, n)
		}
	}
	if len(with) != 2 || len(without) == 0 {
		return m, false
	}
	k := random.IntN(2)
	m.stays, m.loses, m.gets = with[k], with[1-k], without[random.IntN(len(without))]
	peer, _ := m.region.PeerOn(m.loses.ID())
	m.leaver = peer.Replica
	return m, true
}

// beginMove begins a move, and returns a function that waits until it is over, or takes too long.
func (s *sim) beginMove(m replicaMove) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		s.change(fault.Fault{Verb: fault.MoveReplica, Region: int(m.region.ID), From: int(m.loses.ID()),
			To: int(m.gets.ID())})
	})
	return wg.Wait
}

// within waits until something is so, and reports whether it is.
func within(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// partedMembers moves replicas. As soon as the replica that stays has the removal in its log, its store and the one
// that loses a replica hear no more of the two others. These are a majority of the members behind the move, and the
// first two one of the members before. Meanwhile no heartbeat tells the one that stays what is committed, since these
// are late. Half of the stores that stay lose their power right when they have saved the removal.
func partedMembers(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		if m, ok := s.someMove(random); ok {
			s.partMembers(m, random.IntN(2) == 0)
		}
	}
}

func (s *sim) partMembers(m replicaMove, killed bool) {
	const late = 2 * time.Second
	var parted atomic.Bool
	var removal atomic.Uint64 // its index
	saved := make(chan struct{})
	var once sync.Once
	for _, from := range []seam.StorePlace{m.leads, m.gets} {
		for _, to := range []seam.StorePlace{m.stays, m.loses} {
			s.inside.Network().Hold(from.ID(), to.ID(), late, func(x *multiraft.Message) bool {
				if topology.RegionID(x.ShardID) != m.region.ID || parted.Load() {
					return topology.RegionID(x.ShardID) == m.region.ID
				}
				for i := range x.Entries {
					id, ok := multiraft.Removal(&x.Entries[i])
					if ok && id == m.leaver && from == m.leads && to == m.stays {
						removal.Store(x.Entries[i].Index)
						parted.Store(true) // behind this message
					}
				}
				return x.Type == multiraft.Heartbeat && to == m.stays // it tells what is committed
			})
		}
	}
	s.inside.Network().Hold(m.stays.ID(), m.leads.ID(), late, func(x *multiraft.Message) bool {
		if topology.RegionID(x.ShardID) == m.region.ID && x.Type == multiraft.ReplicateResp && parted.Load() &&
			x.LogIndex >= removal.Load() {
			once.Do(func() { close(saved) })
		}
		return false
	})
	wait := s.beginMove(m)
	select {
	case <-saved:
		if killed {
			s.do("kill %d", m.stays.ID())
			s.do("restart %d", m.stays.ID())
		}
		time.Sleep(late * 3 / 4)
	case <-time.After(late):
	}
	s.hold(0, nil)
	wait()
}

// killedStays moves replicas, and kills the store of one that stays while the move is under way. The leader's replica
// and the one that is to leave, or the one that has joined, go on serving.
func killedStays(s *sim, random *rand.Rand) {
	c := s.newCaller(320)
	defer c.close()
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		m, ok := s.someMove(random)
		if !ok {
			continue
		}
		wait := s.beginMove(m)
		open := func() bool {
			st := m.leads.Store()
			r := st.Replica(m.region.ID)
			desc, _ := r.Region()
			return !desc.Settled()
		}
		if within(time.Second, open) {
			s.do("kill %d", m.stays.ID())
			within(time.Second, func() bool { return !open() })
			if !within(s.soon(), func() bool {
				acknowledged, err := c.do(set, s.keyIn(m.region.Slots), "v")
				s.fail(err)
				return acknowledged
			}) {
				s.fail(found(noAnswer, "one store of four is down, a replica moves or has moved, and slots %v take no write",
					m.region.Slots))
			}
			s.do("restart %d", m.stays.ID())
		}
		wait()
	}
}

// membersWrong checks, at rest, that the members of each region's Raft group are its peers.
func (s *sim) membersWrong() error {
	for _, r := range s.regions() {
		var members multiraft.Members
		var peers []topology.Peer
		for end := time.Now().Add(hangTime); ; time.Sleep(10 * time.Millisecond) {
			at, _ := s.leader(r.ID)
			if at == nil {
				if time.Now().After(end) {
					return found(noAnswer, "region %d has no leader that tells its members", r.ID)
				}
				continue
			}
			replica := at.Store().Replica(r.ID)
			var err error
			members, err = replica.Members(context.Background(), time.Now().Add(time.Second))
			if err == nil {
				peers = slices.Clone(replica.Peers().Peers)
				break
			}
			if time.Now().After(end) {
				return found(noAnswer, "region %d: its members: %w", r.ID, err)
			}
		}
		slices.SortFunc(peers, func(a, b topology.Peer) int { return int(a.Replica) - int(b.Replica) })
		if !slices.Equal(peers, members.Voters) || len(members.NonVoters) > 0 {
			return found(membersDiffer, "region %d: its peers are %v, the members of its Raft group %v, non-voters %v",
				r.ID, peers, members.Voters, members.NonVoters)
		}
	}
	return nil
}
