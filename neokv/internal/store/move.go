package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/placement"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// moves moves replicas between stores. The store that leads a region drives its move. How far that is stands in two
// places: the peers, which are in the region's log, say what is wanted; the members of its Raft group say what is.
// Both are read behind a barrier before each step, nextMember tells the step, and each step is one entry, one change
// of a member, or a call that may be repeated. So a driver needs to remember nothing: where one is gone, the next
// leader's store goes on. All methods may run concurrently.
//
// A move of replica r3 on store 3 to store 4, as r9, takes these steps:
//
//	begin      the peers: r9 joins, r3 leaves; no split or merge begins from here on
//	reserve    store 4 makes the records of r9, and starts it
//	add        r9 is a non-voter; the leader sends it a snapshot, and holds the log behind that
//	catch up   wait until r9 has nearly all entries
//	promote    r9 is a voter, one of four
//	hand over  to another voter, if r3 leads: its store drives from here on
//	remove     r3 is no member any more
//	end        the peers: r9 in the place of r3
//
// Then the map tells store 3 that r3 is no peer, and it destroys r3: slots.leave. A dead r3 is removed before r9
// comes, since with one of four voters dead a promotion needs all others. To call a move off is the same: r9 leaves,
// and r3 stays.
type moves struct {
	*core
	replicas   *replicaSet
	cluster    *clusterMap
	meta       *metaMember
	progress   *progress
	leadership *leadership
	drivers    *drivers
	stepCalls  *stepCalls
}

const (
	// reservePatience is how long a move waits for the store that is to have the replica, and movePatience how long for
	// any other step. Then it is called off.
	reservePatience = 10 * time.Second
	movePatience    = 10 * time.Minute
	// mostHeldLog bounds the entries, in bytes, that a region's log keeps for a joiner. Beyond that the move is called
	// off.
	mostHeldLog = 1 << 30
	// movePause is how long a driver first waits before it looks again, longestMovePause how long it waits at most. Each
	// look costs an entry.
	movePause, longestMovePause = 10 * time.Millisecond, 200 * time.Millisecond
)

// driving is what a driver of a move remembers. A driver that finds the move open begins with nothing: all of it is
// about when to give up.
type driving struct {
	*region.Replica
	last  memberStep
	since time.Time // since when that is the next step
	near  bool      // the joiner was near the end of the log at the last look
	held  uint64    // Logged when the joiner was last seen to go on; 0 while the log is not held
	// refused is why the joiner's store has not begun the replica, why the reason for which the move is called off.
	refused, why string
	failed       error // of the last step, nil if it has been taken
}

// move has a region's replica on one store give way to one on another: see Store.Move.
func (x *moves) move(ctx context.Context, id topology.RegionID, from, to topology.StoreID) error {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return errNotLeading
	}
	defer end()
	r, err := x.stepCalls.leading(id)
	if err != nil {
		return err
	}
	desc, _ := r.Region()
	if desc.Settled() {
		if placed(&desc, from, to) {
			return nil
		}
		if err := x.check(&desc, r, from, to); err != nil {
			return err
		}
		done, ok := x.drivers.drive(id)
		if !ok {
			return errBusy
		}
		err := x.begin(ctx, r, from, to)
		done()
		if err != nil {
			return err
		}
		desc, _ = r.Region()
	}
	if from != 0 && !hasPeer(&desc, from, topology.Leaving) || to != 0 && !hasPeer(&desc, to, topology.Joining) {
		return errMoving
	}
	d := &driving{Replica: r}
	for { // whoever else drives it, too
		if done, ok := x.drivers.drive(id); ok {
			err = x.proceed(ctx, d)
			done()
		} else if err = nil; !pause(ctx, movePause) {
			err = ctx.Err()
		}
		desc, _ = r.Region()
		switch {
		case err != nil && ctx.Err() == nil && (errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped)):
			return errNotLeading
		case err != nil:
			return err
		case !desc.Settled():
			if _, _, serving := r.Leading(); !serving {
				return errNotLeading
			}
		case placed(&desc, from, to):
			return nil
		case d.why != "":
			return fmt.Errorf("the move is called off: %s", d.why)
		default:
			return errors.New("the move is called off")
		}
	}
}

var errMoving error = notYet{errors.New("another move of a replica of the region is under way")}

// hasPeer reports whether a region has a peer of a role on a store.
func hasPeer(r *topology.Region, on topology.StoreID, role topology.Role) bool {
	p, ok := r.PeerOn(on)
	return ok && p.Role == role
}

// placed reports whether a region has a voter on one store and none on another, where these are not 0.
func placed(r *topology.Region, not, on topology.StoreID) bool {
	_, there := r.PeerOn(not)
	return !there && (on == 0 || hasPeer(r, on, topology.Voter))
}

// check returns an error unless a move may begin.
func (x *moves) check(desc *topology.Region, r *region.Replica, from, to topology.StoreID) error {
	id, t := desc.ID, x.cluster.Table()
	if from != 0 && !hasPeer(desc, from, topology.Voter) {
		return fmt.Errorf("region %d has no replica on store %d", id, from)
	}
	if _, there := desc.PeerOn(to); there {
		return fmt.Errorf("region %d has a replica on store %d already", id, to)
	}
	if to != 0 {
		switch st := t.Store(to); {
		case st == nil:
			return notYet{fmt.Errorf("store %d is not known here", to)}
		case !st.Alive:
			return fmt.Errorf("store %d is down", to)
		case st.Full:
			return fmt.Errorf("store %d has no space", to)
		case st.Draining:
			return fmt.Errorf("store %d drains", to)
		}
	}
	gone, wiped := x.cluster.endedOf(desc)
	switch {
	case from == 0 && len(desc.Peers) >= maxPeers:
		return fmt.Errorf("region %d has %d replicas; want at most %d", id, len(desc.Peers), maxPeers)
	case to == 0 && len(desc.Peers) == 1:
		return fmt.Errorf("region %d has no other replica than that on store %d", id, from)
	case r.Bounds().Change.Kind != keys.NoChange:
		return errBusy
	case wiped && gone.Store != from:
		return fmt.Errorf("region %d has no replica on store %d yet, since the store was wiped", id, gone.Store)
	case x.cluster.migrates(id):
		return fmt.Errorf("clients are shown a migration of slots of region %d", id)
	}
	stay, up := 0, 0
	for _, p := range desc.Peers {
		if p.Store == from {
			continue
		}
		stay++
		if st := t.Store(p.Store); st != nil && st.Alive {
			up++
		}
	}
	if stay > 0 && up <= stay/2 {
		return fmt.Errorf("region %d: of the stores that keep their replicas, %d of %d are up, which is no majority", id, up,
			stay)
	}
	return nil
}

// begin proposes the entry that opens a move. With from and to the same store, which has lost its replica, that one
// leaves and another one joins in its place.
func (x *moves) begin(ctx context.Context, r *region.Replica, from, to topology.StoreID) error {
	joiner := topology.Peer{Store: to, Role: topology.Joining}
	if to != 0 {
		var err error
		if _, joiner.Replica, err = x.meta.allocate(ctx, 1); err != nil {
			return err
		}
	}
	now := r.Peers()
	if d := (topology.Region{Peers: now.Peers}); !d.Settled() || to != from && hasPeer(&d, to, topology.Voter) ||
		from != 0 && !hasPeer(&d, from, topology.Voter) {
		return errMoving // since the caller has looked
	}
	var next []topology.Peer
	for _, p := range now.Peers {
		if p.Store != from {
			next = append(next, p)
			continue
		}
		p.Role = topology.Leaving
		next = append(next, p)
		if to != 0 { // the joiner takes the leaver's place, which may be that of the region's home
			next = append(next, joiner)
		}
	}
	if from == 0 {
		next = append(next, joiner)
	}
	err := r.ChangePeers(ctx, time.Now().Add(stepTime), now.Conf, next)
	if errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
		return errNotLeading
	}
	return err
}

// obey begins what an order of meta's leader says, if the region's peers are still those that the order was made for.
// It does not wait for the end of a move: settleAll goes on with it.
func (x *moves) obey(ctx context.Context, o placement.Order) error {
	r, err := x.stepCalls.leading(o.Region)
	if err != nil {
		return err
	}
	desc, _ := r.Region()
	if desc.ConfVersion != o.Conf || !desc.Settled() {
		return nil // the order has begun already, or is stale
	}
	done, ok := x.drivers.drive(o.Region)
	if !ok {
		return errBusy
	}
	defer done()
	if o.Kind == placement.MoveHome {
		return x.rehome(ctx, r, &desc, o)
	}
	if err := x.check(&desc, r, o.From, o.To); err != nil {
		return err
	}
	if err := x.begin(ctx, r, o.From, o.To); err != nil {
		return err
	}
	x.tell("%s", o)
	x.tending.ring()
	return nil
}

// rehome makes another store the home of a region: its peer comes first. This store hands the lead over if it has it
// as the home that was; else the region's leader does so in time, see homes.
func (x *moves) rehome(ctx context.Context, r *region.Replica, desc *topology.Region, o placement.Order) error {
	next := slices.Clone(desc.Peers)
	i := slices.IndexFunc(next, func(p topology.Peer) bool { return p.Store == o.To })
	if i < 0 || next[0].Store != o.From {
		return nil
	}
	next[0], next[i] = next[i], next[0]
	if err := r.ChangePeers(ctx, time.Now().Add(stepTime), o.Conf, next); err != nil {
		return notYet{err} // another leader, or a change that has begun: the order comes again if it is still due
	}
	x.tell("%s", o)
	if o.From == x.o.ID {
		x.leadership.handOver(o.Region, o.To)
	}
	return nil
}

// settleAll goes on with the moves of the regions that this store leads and that nobody drives.
func (x *moves) settleAll() {
	for id, r := range x.replicas.all() {
		if desc, _ := r.Region(); desc.Settled() {
			continue
		}
		if _, _, serving := r.Leading(); !serving {
			continue
		}
		if done, ok := x.drivers.drive(id); ok {
			x.wg.Go(func() {
				defer done()
				_ = x.proceed(x.ctx, &driving{Replica: r}) // whoever leads then goes on
			})
		}
	}
}

// renew begins to give replicas to a store that was wiped, in the place of those that have ended, where this store
// leads. One region of the cluster is at work at a time, as far as this store knows: the first one that can be. Each is
// a move that nobody calls off.
func (x *moves) renew() {
	t := x.cluster.Table()
	if t == nil || len(t.Wipes) == 0 {
		return
	}
	up := func(s topology.StoreID) bool {
		st := t.Store(s)
		return st != nil && st.Alive && !st.Full
	}
	for _, i := range byID(t) {
		r := &t.Regions[i]
		at := slices.IndexFunc(r.Peers, x.cluster.ended)
		voters, n := 0, 0
		for _, p := range r.Peers {
			if p.Role == topology.Joining {
				continue
			}
			if voters++; up(p.Store) && !x.cluster.ended(p) {
				n++
			}
		}
		if at < 0 || 2*n <= voters || !up(r.Leader) || !up(r.Peers[at].Store) {
			continue
		}
		if r.Leader == x.o.ID {
			x.renewIn(r.ID)
		}
		return
	}
}

// byID returns where the regions of a table stand, by id.
func byID(t *route.Table) []int {
	all := make([]int, len(t.Regions))
	for i := range all {
		all[i] = i
	}
	slices.SortFunc(all, func(a, b int) int { return cmp.Compare(t.Regions[a].ID, t.Regions[b].ID) })
	return all
}

// renewIn is renew in one region, unless a change of it is under way.
func (x *moves) renewIn(id topology.RegionID) {
	r, err := x.stepCalls.leading(id)
	if err != nil || r.Bounds().Change.Kind != keys.NoChange {
		return
	}
	desc, _ := r.Region()
	p, ok := x.cluster.endedOf(&desc)
	if !ok || !desc.Settled() {
		return
	}
	if done, ok := x.drivers.drive(id); ok {
		x.wg.Go(func() {
			defer done()
			if x.begin(x.ctx, r, p.Store, p.Store) == nil { // else the next call tries again
				_ = x.proceed(x.ctx, &driving{Replica: r})
			}
		})
	}
}

// proceed takes the steps of a move until it is over, or until this store does not lead the region any more.
func (x *moves) proceed(ctx context.Context, d *driving) error {
	defer d.Hold(0)
	for wait := movePause; ; wait = min(2*wait, longestMovePause) {
		if _, _, serving := d.Leading(); !serving {
			return region.ErrNotLeader
		}
		v, err := x.look(ctx, d)
		if err == nil {
			next, p, why := nextMember(v)
			if next == memberNone {
				return nil
			}
			if next != d.last || d.since.IsZero() {
				d.last, d.since, wait = next, time.Now(), movePause
			}
			if f := x.drivers.onMember; f != nil {
				f(d.ID(), next)
			}
			if turn := x.impatient(d, v, why); turn != "" {
				d.why, next = turn, memberTurn
				x.tell("region %d: a move of a replica is called off: %s", d.ID(), turn)
			}
			err = x.take(ctx, d, v, next, p)
		}
		if errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) {
			return err
		}
		if d.failed = err; err != nil && !pause(ctx, wait) || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// impatient returns why a move is to be called off, "" if it is not.
func (x *moves) impatient(d *driving, v *memberView, why string) string {
	joins := slices.ContainsFunc(v.peers, func(p topology.Peer) bool { return p.Role == topology.Joining })
	patience := movePatience
	if d.last == memberReserve {
		patience = reservePatience
		why = d.refused
	}
	switch {
	case !joins || d.last == memberEnd:
		return ""
	case v.renews(): // the region would have a replica less
		if d.held > 0 && d.Logged()-d.held > mostHeldLog {
			d.Hold(0) // the joiner gets another snapshot
			d.held = 0
		}
		return ""
	case d.held > 0 && d.Logged()-d.held > mostHeldLog:
		return fmt.Sprintf("the joiner lags behind by more than %d MiB of entries", mostHeldLog>>20)
	case time.Since(d.since) > patience && why != "":
		return why
	case time.Since(d.since) > patience:
		return fmt.Sprintf("its step %s takes longer than %s: %v", d.last, patience, d.failed)
	}
	return ""
}

// look reads the peers, the members, and how the stores of all these are.
func (x *moves) look(ctx context.Context, d *driving) (*memberView, error) {
	members, err := d.Members(ctx, time.Now().Add(stepTime))
	if err != nil {
		return nil, err
	}
	_, self := d.Region()
	set := d.Peers()
	v := &memberView{peers: set.Peers, members: members, self: self, up: map[topology.ReplicaID]bool{self: true},
		ended: make(map[topology.ReplicaID]bool), lax: x.o.Mistakes.CountNonVoters}
	if d.held == 0 {
		d.Hold(d.Applied())
		d.held = max(1, d.Logged())
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range set.Peers {
		v.ended[p.Replica] = x.cluster.ended(p)
	}
	for _, p := range set.Peers {
		if p.Replica == self {
			continue
		}
		wg.Go(func() {
			applied := d.Applied()
			b, err := x.progress.on(ctx, p.Store, boundsCall{Region: d.ID()})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !b.Runs || b.Replica != p.Replica {
				return
			}
			v.up[p.Replica] = true
			if p.Role == topology.Joining {
				near := b.Applied > 0 && b.Applied+maxLag >= applied
				v.near, d.near = near && d.near, near
				if b.Applied > 0 {
					d.Hold(b.Applied)
					d.held = max(1, d.Logged())
				}
			}
		})
	}
	wg.Wait()
	return v, nil
}

// take takes a step of a move.
func (x *moves) take(ctx context.Context, d *driving, v *memberView, next memberStep, p topology.Peer) error {
	deadline := time.Now().Add(stepTime)
	set := d.Peers()
	switch next {
	case memberReserve:
		desc, _ := d.Region()
		var a reserveAnswer
		call := reserveCall{Region: desc, Since: set.Since, As: p.Replica}
		if err := x.ask(ctx, p.Store, message{Reserve: &call}, &a); err != nil {
			return err
		}
		if d.refused = a.Refused; a.Refused != "" {
			d.refused = fmt.Sprintf("store %d cannot take the replica: %s", p.Store, a.Refused)
		}
		return errWait // until it runs
	case memberAdd:
		// A log that has all entries would feed the joiner from the first one on.
		first, err := x.raft.FirstLogged(d.ID())
		if err != nil || first <= 1 && !x.o.Mistakes.Region.AnyBeginning {
			d.Cut(1)
			return errors.Join(errWait, err)
		}
		return d.ChangeMember(ctx, deadline, multiraft.AddNonVoter, p, v.members.Change)
	case memberPromote:
		return d.ChangeMember(ctx, deadline, multiraft.Promote, p, v.members.Change)
	case memberHandOver:
		if !x.leadership.handOver(d.ID(), p.Store) {
			return errWait
		}
		return region.ErrNotLeader
	case memberRemove:
		if x.o.Mistakes.EarlyMoveEnd {
			if err := d.ChangePeers(ctx, deadline, set.Conf, ended(set.Peers)); err != nil {
				return err
			}
		}
		return d.ChangeMember(ctx, deadline, multiraft.RemoveMember, p, v.members.Change)
	case memberEnd:
		return d.ChangePeers(ctx, deadline, set.Conf, ended(set.Peers))
	case memberRenew:
		_, as, err := x.meta.allocate(ctx, 1)
		if err != nil {
			return err
		}
		return d.ChangePeers(ctx, deadline, set.Conf, v.renewed(p, as))
	case memberTurn:
		return d.ChangePeers(ctx, deadline, set.Conf, v.turned())
	default: // catch up, or wait
		return errWait
	}
}
