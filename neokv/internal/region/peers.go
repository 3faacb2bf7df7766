package region

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// The peers of a region change by entries of its own log alone, as its bounds do:
//
//	bounds peers CONF STORE:REPLICA:ROLE...     replies the entry's index
//
// The entry replaces the peers, if these are of CONF and no split or merge is open. The new ones are of CONF+1. A move
// begins with an entry that makes a peer joining, or leaving, or both; another one may turn it round; the last one has
// voters alone. In between the store that leads the region changes the members of its Raft group, one at a time: see
// nextMember in package store. The group's members are not the machine's business, and no entry of a region tells of
// them. While no move is open, the peers are the members.
//
// The peers stand in the store's record of the replica, and travel with snapshots. The region state, which every batch
// writes, does not have them.

// openPeers takes the peers from the record, if the store has one.
func (m *machine) openPeers() error {
	m.record = keys.ReplicaRecord{ID: m.o.Replica, PeerSet: *m.peers.Load()}
	view := m.o.Engine.NewView()
	defer view.Close()
	value, ok, err := view.Get(keys.AppendReplica(nil, m.o.Region.ID))
	if err != nil || !ok {
		return err
	}
	if m.record, err = keys.ParseReplica(value); err != nil {
		return err
	}
	if m.record.ID != m.o.Replica {
		return fmt.Errorf("the record is of replica %d; want %d", m.record.ID, m.o.Replica)
	}
	m.recorded = true
	set := m.record.PeerSet
	m.peers.Store(&set)
	return nil
}

// changePeers runs `peers CONF STORE:REPLICA:ROLE...`.
func (m *machine) changePeers(w *redis.Writer, args [][]byte, out *redis.Reply) error {
	conf, err := strconv.ParseUint(string(args[0]), 10, 64)
	if err != nil {
		return fmt.Errorf("%s peers: %w", changeCommand, err)
	}
	if !m.recorded {
		return fmt.Errorf("%s peers: the store has no record of the replica", changeCommand)
	}
	next := keys.PeerSet{Conf: conf + 1, Since: w.Index}
	for _, text := range args[1:] {
		var p topology.Peer
		_, err := fmt.Sscanf(string(text), "%d:%d:%d", &p.Store, &p.Replica, &p.Role)
		if err == nil && p.Role >= topology.RoleCount {
			err = fmt.Errorf("role %d, want less than %d", p.Role, topology.RoleCount)
		}
		if err != nil {
			return fmt.Errorf("%s peers: peer %q: %w", changeCommand, text, err)
		}
		next.Peers = append(next.Peers, p)
	}
	s := &m.state
	switch {
	case conf != m.record.Conf:
		out.Error("ERR the peers of the region have changed meanwhile")
		return nil
	case s.Change.Kind != keys.NoChange || s.Phase != keys.Serving:
		out.Error("ERR a split or merge of the region is under way")
		return nil
	}
	m.record.PeerSet, m.regroup = next, true
	out.Int(int64(w.Index))
	return w.Batch.Set(keys.AppendReplica(nil, m.o.Region.ID), m.record.Append(nil))
}

// publishPeers lets others see peers that are committed, if they have changed.
func (m *machine) publishPeers() {
	if !m.regroup {
		return
	}
	m.regroup = false
	set := m.record.PeerSet
	m.noteRemoved(m.peers.Swap(&set).Peers, set.Peers)
	if f := m.o.OnBounds; f != nil {
		f(m.o.Region.ID)
	}
}

// noteRemoved notes the replicas that are peers no more. A move ends when the members of the group are the peers, so
// these have been removed, or were never members, and ids never come back.
func (m *machine) noteRemoved(old, now []topology.Peer) {
	var all []topology.ReplicaID
	if known := m.removed.Load(); known != nil {
		all = slices.Clone(*known)
	}
	for _, p := range old {
		if !slices.ContainsFunc(now, func(o topology.Peer) bool { return o.Replica == p.Replica }) {
			all = append(all, p.Replica)
		}
	}
	m.removed.Store(&all)
}

// Peers returns the peers as of the entries that this replica has applied. Nobody may change them.
func (r *Replica) Peers() *keys.PeerSet { return r.peers.Load() }

// Opened reports whether the state that the engine has of the replica has been read: Raft reads it some time after
// Start.
func (r *Replica) Opened() bool { return r.opened.Load() }

// Born is the least Conf of peers that have this replica, as far as its store knows.
func (r *Replica) Born() uint64 { return r.o.Born }

// ChangePeers replaces the peers of the region, which this replica must lead, if these are of conf. A Refusal says
// that they are not, or that a split or merge is open.
func (r *Replica) ChangePeers(ctx context.Context, deadline time.Time, conf uint64, peers []topology.Peer) error {
	args := []string{"peers", strconv.FormatUint(conf, 10)}
	for _, p := range peers {
		args = append(args, fmt.Sprintf("%d:%d:%d", p.Store, p.Replica, p.Role))
	}
	_, err := r.step(ctx, deadline, args...)
	return err
}

// Members returns the members of the region's Raft group, which this replica must lead. They are those behind an entry
// that Members proposes, so no earlier request for a change, whatever its outcome, changes them later on: the library
// puts changes into the log before entries that are proposed after them, and no store forwards either to another one.
func (r *Replica) Members(ctx context.Context, deadline time.Time) (m multiraft.Members, err error) {
	p := &Pending{Run: new(redis.Run), Deadline: deadline}
	r.Propose(p)
	if !p.WaitUnless(ctx.Done()) {
		return m, ctx.Err()
	}
	if p.Err != nil {
		return m, p.Err
	}
	if !r.hosted.enter() {
		return m, ErrStopped
	}
	defer r.hosted.leave()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	return r.raft.Members(ctx)
}

// ChangeMember changes a member of the region's Raft group, which this replica must lead: see
// multiraft.Replica.Change. The replica holds no lease until it knows that the change has been applied here, or never
// will be, and none for the rest of the term if it does not get to know that. For quorums of members one change apart
// have a store in common, and those of members two changes apart need not: a store that has made no promise could
// elect another leader.
func (r *Replica) ChangeMember(ctx context.Context, deadline time.Time, what multiraft.MemberChange, p topology.Peer,
	latest uint64) error {
	if !r.hosted.enter() {
		return ErrStopped
	}
	defer r.hosted.leave()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	r.reader.suspend()
	defer r.reader.resume()
	err := r.raft.Change(ctx, what, p, latest)
	if errors.Is(err, multiraft.ErrTimeout) || errors.Is(err, multiraft.ErrClosed) {
		_, term, _ := r.Leading() // the change was asked for in this term at the latest
		r.reader.revoke(term)
	}
	return err
}

// Hold keeps the region's log from an index on, for a joiner that has all before; 0 ends that.
func (r *Replica) Hold(index uint64) {
	if !r.o.Mistakes.NoHold {
		r.hold.Store(index)
	}
}

// Logged returns how many bytes of entries this replica has applied since it began.
func (r *Replica) Logged() uint64 { return r.logged.Load() }

// Cut cuts the log behind an index, so that a replica without data is sent a snapshot. Nobody waits for it, and Raft
// may refuse.
func (r *Replica) Cut(index uint64) {
	if r.hosted.enter() {
		r.raft.Cut(min(index, r.heldTo()))
		r.hosted.leave()
	}
}

// heldTo is the index up to which the log may be cut.
func (r *Replica) heldTo() uint64 {
	held := r.bounds.Load().held()
	if at := r.hold.Load(); at > 0 {
		held = min(held, at)
	}
	return held
}

// Takes reports whether the replica may get a message. Nobody votes for a replica that this one knows to be removed,
// so that a store that has not heard of the removal disturbs no term. After a restart a replica knows only of later
// removals. From ids of which it knows nothing it takes requests for votes: a new member may need its vote before it
// has applied that one's addition.
//
// A replica that begins as a non-voter, and has no data yet, takes neither the first entries of the region, which may
// be older than the slots that its store has reserved for it, nor a snapshot of before it became a peer. So it begins
// with a snapshot behind the last change of the bounds.
func (r *Replica) Takes(m *multiraft.Message) bool {
	if m.Type == multiraft.RequestVote || m.Type == multiraft.RequestPreVote {
		gone := r.removed.Load()
		return gone == nil || !slices.Contains(*gone, topology.ReplicaID(m.From))
	}
	if r.o.After == 0 || r.Applied() > 0 || r.o.Mistakes.AnyBeginning {
		return true
	}
	switch m.Type {
	case multiraft.Replicate:
		return m.LogIndex > 0 || len(m.Entries) == 0
	case multiraft.InstallSnapshot:
		return m.Snapshot.Index >= r.o.After
	}
	return true
}

// Remove ends the store's replica of a region in the engine, which has left the region: its data and its records go,
// and no replica of this id begins on the store again. It syncs. If the replica runs, Absorbed calls this.
func Remove(e *engine.Engine, id topology.RegionID, replica topology.ReplicaID) error {
	state, ok, err := readState(e, id)
	if err != nil {
		return err
	}
	b := e.NewBatch()
	if ok {
		err = b.DeleteSlots(state.Slots)
	}
	err = errors.Join(err, b.Delete(keys.AppendRegionState(nil, id)), b.Delete(keys.AppendStage(nil, id)),
		b.Delete(keys.AppendReplica(nil, id)), b.Set(keys.AppendEnded(nil, id), keys.AppendEndedID(nil, replica)))
	if err != nil {
		b.Close()
		return err
	}
	return b.Commit(true)
}
