package store

import (
	"context"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// wipes gives a store that was wiped a new replica of meta, and closes its wipe when all is back. The other replicas
// come back by moves.renew. tend is of the goroutine that reports.
type wipes struct {
	*core
	meta     *metaMember
	progress *progress
	busy     atomic.Bool   // a goroutine of tend is at work
	settled  topology.Wipe // for which settleMeta has done its work; only that goroutine uses it
}

// tend has the members of meta become its peers where a wipe is open, and closes the wipe when all is back. It runs on
// the store that leads meta.
func (x *wipes) tend(group *meta.Group) {
	w := group.Map().OpenWipe()
	if w == nil || w.Begun == 0 || !x.busy.CompareAndSwap(false, true) {
		return
	}
	x.wg.Go(func() { // the next heartbeat tries again what fails
		defer x.busy.Store(false)
		if x.settled != *w && !x.settleMeta(group) {
			return
		}
		x.settled = *w
		if group.Map().Lacks(w) == 0 {
			group.Change(x.ctx, meta.MapChange{Wipe: &meta.WipeChange{Close: &meta.WipeClose{Store: w.Store, Nth: w.Nth}}})
		}
	})
}

// settleMeta has the members of meta become its peers, and reports whether they are. It is a move of replicas as that
// of a region, by nextMember, but that the peers are on the map and not in the log of the region. No lease rests on the
// members of meta.
func (x *wipes) settleMeta(group *meta.Group) bool {
	ctx, cancel := context.WithTimeout(x.ctx, movePatience)
	defer cancel()
	near := false
	for wait := movePause; x.meta.leading(); wait = min(2*wait, longestMovePause) {
		members, err := group.Members(ctx)
		if err == nil {
			v := memberView{peers: metaPeers(group.Map().Peers(x.o.Founders), members), members: members,
				self: x.meta.self(), up: map[topology.ReplicaID]bool{x.meta.self(): true}}
			near = x.look(ctx, &v) && near
			v.near, near = near, x.look(ctx, &v)
			switch next, p, _ := nextMember(&v); next {
			case memberNone:
				return true
			case memberAdd:
				err = group.ChangeMember(ctx, stepTime, multiraft.AddNonVoter, p, members.Change)
			case memberPromote:
				err = group.ChangeMember(ctx, stepTime, multiraft.Promote, p, members.Change)
			case memberRemove:
				err = group.ChangeMember(ctx, stepTime, multiraft.RemoveMember, p, members.Change)
			default: // until the store's replica runs, or is near the end
				err = errWait
			}
		}
		if err != nil && !pause(ctx, wait) {
			return false
		}
	}
	return false
}

// look notes which peers of meta run, and reports whether one that joins is near the end of the log.
func (x *wipes) look(ctx context.Context, v *memberView) (near bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	mine, err := x.raft.LogEnd(topology.MetaRegion)
	for _, p := range v.peers {
		if p.Replica == v.self {
			continue
		}
		wg.Go(func() {
			b, askErr := x.progress.on(ctx, p.Store, boundsCall{Region: topology.MetaRegion})
			if err != nil || askErr != nil || !b.Runs || b.Replica != p.Replica {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			v.up[p.Replica] = true
			near = near || p.Role == topology.Joining && b.Log.Index > 0 && b.Log.Index+maxLag >= mine.Index
		})
	}
	wg.Wait()
	return near
}

// metaPeers returns the peers of meta with the roles that they have until the members are those that it shall have.
func metaPeers(want []topology.Peer, have multiraft.Members) (peers []topology.Peer) {
	for _, p := range want {
		if !isMember(have.Voters, p.Replica) {
			p.Role = topology.Joining
		}
		peers = append(peers, p)
	}
	for _, all := range [][]topology.Peer{have.Voters, have.NonVoters} {
		for _, p := range all {
			if !isMember(want, p.Replica) {
				p.Role = topology.Leaving
				peers = append(peers, p)
			}
		}
	}
	return peers
}
