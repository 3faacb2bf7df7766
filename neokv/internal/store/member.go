package store

import (
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// A memberStep is a step of a move of a replica. The store that leads the region takes it.
type memberStep int

const (
	memberReserve  memberStep = iota // the joiner's store makes its records, and starts it
	memberAdd                        // the joiner becomes a non-voter
	memberCatchUp                    // wait until the joiner is near the end of the log
	memberPromote                    // the joiner becomes a voter
	memberHandOver                   // another store is to lead, since the leader leaves
	memberRemove                     // the leaver is no member any more
	memberEnd                        // the entry that closes the move
	memberRenew                      // the entry that has another replica join in the place of a joiner that has ended
	memberTurn                       // the entry that turns it round: the joiner leaves, and the leaver stays
	memberWait                       // wait until a step is safe
	memberNone                       // no move is open
)

var memberNames = [...]string{
	"reserve", "add", "catch up", "promote", "hand over", "remove", "end", "renew", "turn", "wait", "none",
}

func (x memberStep) String() string { return memberNames[x] }

// memberView is all that the next step of a move depends on.
type memberView struct {
	peers   []topology.Peer
	members multiraft.Members
	self    topology.ReplicaID          // the leader's replica
	up      map[topology.ReplicaID]bool // the peers that run
	ended   map[topology.ReplicaID]bool // the peers that ended when their store was wiped
	near    bool                        // the joiner is near the end of the log
	lax     bool                        // planted: see Mistakes.CountNonVoters
}

// nextMember returns the step that a move needs next, and the peer that it is about. While it has to wait it says why.
//
// Leavers go when the joiner is a voter, so that a region has no fewer voters than it shall have. Three go before: a
// leaver that is down, when the joiner is near, since with one of four voters down a promotion would need all others;
// one that is no voter, which was to join; and one on the store where another replica is to join.
func nextMember(v *memberView) (next memberStep, p topology.Peer, why string) {
	settled := topology.Region{Peers: v.peers}
	if settled.Settled() {
		return memberNone, p, ""
	}
	waits := slices.ContainsFunc(v.peers, func(p topology.Peer) bool {
		return p.Role == topology.Joining && !v.votes(p.Replica)
	})
	for _, p := range v.peers {
		if p.Role != topology.Leaving || !v.votes(p.Replica) && !v.listens(p.Replica) {
			continue
		}
		early := !v.up[p.Replica] && v.near || !v.votes(p.Replica) || v.shared(p)
		if waits && !early {
			continue
		}
		switch {
		case p.Replica == v.self:
			if heir, ok := v.heir(); ok {
				return memberHandOver, heir, ""
			}
			return memberWait, p, "no other replica that stays could lead the region"
		case v.votes(p.Replica) && !v.quorum(p.Replica, 0):
			return memberWait, p, fmt.Sprintf("without replica %d, those that are up would be no majority", p.Replica)
		}
		return memberRemove, p, ""
	}
	for _, p := range v.peers {
		switch {
		case p.Role != topology.Joining || v.votes(p.Replica):
		case v.ended[p.Replica]:
			return memberRenew, p, ""
		case v.members.Removed[p.Replica]: // an earlier driver has called it off, and the entry is lost
			return memberTurn, p, ""
		case !v.listens(p.Replica) && !v.up[p.Replica]:
			return memberReserve, p, ""
		case !v.listens(p.Replica):
			return memberAdd, p, ""
		case !v.near:
			return memberCatchUp, p, ""
		case !v.quorum(0, p.Replica):
			return memberWait, p, fmt.Sprintf("with replica %d as a voter, those that are up would be no majority", p.Replica)
		default:
			return memberPromote, p, ""
		}
	}
	return memberEnd, p, ""
}

// votes reports whether a replica is a voter, listens whether it is a non-voter.
func (v *memberView) votes(id topology.ReplicaID) bool {
	return isMember(v.members.Voters, id) || v.lax && v.listens(id)
}
func (v *memberView) listens(id topology.ReplicaID) bool { return isMember(v.members.NonVoters, id) }

func isMember(all []topology.Peer, id topology.ReplicaID) bool {
	return slices.ContainsFunc(all, func(p topology.Peer) bool { return p.Replica == id })
}

// shared reports whether a replica is to join on the store of a leaver.
func (v *memberView) shared(leaver topology.Peer) bool {
	return slices.ContainsFunc(v.peers, func(p topology.Peer) bool {
		return p.Role == topology.Joining && p.Store == leaver.Store
	})
}

// heir returns a voter that runs and stays.
func (v *memberView) heir() (topology.Peer, bool) {
	i := slices.IndexFunc(v.peers, func(p topology.Peer) bool {
		return p.Role != topology.Leaving && p.Replica != v.self && v.votes(p.Replica) && v.up[p.Replica]
	})
	if i < 0 {
		return topology.Peer{}, false
	}
	return v.peers[i], true
}

// quorum reports whether those that are up are a majority of the voters without one replica and with another one.
func (v *memberView) quorum(without, with topology.ReplicaID) bool {
	n, up := 0, 0
	count := func(id topology.ReplicaID) {
		n++
		if v.up[id] {
			up++
		}
	}
	for _, p := range v.members.Voters {
		if p.Replica != without {
			count(p.Replica)
		}
	}
	if with != 0 {
		count(with)
	}
	for _, p := range v.members.NonVoters {
		if v.lax {
			count(p.Replica)
		}
	}
	return 2*up > n
}

// renewed returns the peers of the move in which another replica joins in the place of one that has ended.
func (v *memberView) renewed(gone topology.Peer, as topology.ReplicaID) (next []topology.Peer) {
	for _, p := range v.peers {
		if p == gone {
			next = append(next, topology.Peer{Store: p.Store, Replica: as, Role: topology.Joining})
			p.Role = topology.Leaving
		}
		next = append(next, p)
	}
	return next
}

// renews reports whether a replica joins in the place of one that its store has lost.
func (v *memberView) renews() bool {
	return slices.ContainsFunc(v.peers, func(p topology.Peer) bool { return p.Role == topology.Leaving && v.shared(p) })
}

// turned returns the peers of the move that calls this one off. A leaver that is no voter any more cannot stay.
func (v *memberView) turned() []topology.Peer {
	next := slices.Clone(v.peers)
	for i := range next {
		switch p := &next[i]; {
		case p.Role == topology.Joining:
			p.Role = topology.Leaving
		case v.votes(p.Replica):
			p.Role = topology.Voter
		}
	}
	return next
}

// ended returns the peers behind a move.
func ended(peers []topology.Peer) (next []topology.Peer) {
	for _, p := range peers {
		if p.Role != topology.Leaving {
			p.Role = topology.Voter
			next = append(next, p)
		}
	}
	return next
}
