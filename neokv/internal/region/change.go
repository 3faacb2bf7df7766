package region

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A region's bounds change by entries of its own log alone. Such an entry has a single command, and no other calls
// travel with it:
//
//	bounds begin KIND OTHER BEGUN   opens a change; BEGUN 0 stands for the entry's own index; replies BEGUN
//	bounds end BEGUN                closes a split or a merge that has happened; replies 1, or 0 if there is none
//	bounds abort BEGUN              closes a split or a merge that has not happened; likewise
//	bounds thaw LEFT BEGUN          closes the right neighbour's part in a merge; a frozen region thaws; likewise
//	bounds split BEGUN SLOT CHILD STORE:REPLICA...
//	bounds freeze LEFT BEGUN        replies the entry's index
//	bounds merge BEGUN VERSION STATE
//	bounds peers CONF STORE:REPLICA:ROLE...     see peers.go
//
// A begin of the change that is open already replies its BEGUN, so that a step may be tried again at another leader.
//
// # Split
//
// A split moves no data. The region keeps the slots below SLOT, and the child gets the others, on the stores
// of the region. One engine batch of its own has the region's state, the child's state and the child's
// first records, on every store. So a child never begins on a store before its data is as of the split there, and a
// crash takes all of it or nothing. The child's log begins at childIndex, with a snapshot record that has no data: a
// store that holds nothing of the child is sent all of it.
//
// The leader gives its lease up before it proposes a split (Replica.Split). Otherwise a leader that is slow to apply it
// would go on reading slots that the child's leader, on another store, already writes.
//
// # Merge
//
// The left neighbour takes the right one over. The right one is frozen first: from that entry on it applies nothing and
// serves nothing. When all its replicas have applied that, and synced it, the merge is proposed to the left one, with
// the state that the right one was frozen in. A replica that applies it finds the right one's data beside its own.
// A merge that takes too long is called off by `abort` in the left one's log first, and then by `thaw` in the right
// one's: once the first is applied, no merge of that attempt can be. BEGUN is the number of the left one's attempt in
// the right one, too. A change of the right one's own may have the same number, so each entry closes changes of its own
// kinds only. So may an attempt of an earlier left neighbour, so LEFT stands beside BEGUN.

const changeCommand = "bounds"

// childIndex is the index at which the log of a child begins. It leaves room for what dragonboat takes for the entries
// of a group's first members.
const childIndex = 10

// ChildTerm and ChildIndex are the term and the index of the snapshot record at the beginning of a child's log.
const (
	ChildTerm  = 1
	ChildIndex = childIndex
)

// isChange reports whether the commands of an entry are about the bounds. The first of them has few arguments, so that
// their count is one byte, as is the length of the command.
func isChange(commands []byte) bool {
	const n = len(changeCommand)
	return len(commands) >= 2+n && commands[0] != groupTag && commands[1] == byte(n) && string(commands[2:2+n]) == changeCommand
}

// change runs such a command. A reply that is an error says why it has no effect.
func (m *machine) change(w *redis.Writer, args [][]byte, out *redis.Reply) error {
	if len(args) < 3 {
		return fmt.Errorf("%s: %d arguments", changeCommand, len(args))
	}
	verb, args := string(args[1]), args[2:]
	if verb == "peers" {
		return m.changePeers(w, args, out)
	}
	begun, err := strconv.ParseUint(string(args[len(args)-1]), 10, 64)
	if verb == "split" || verb == "merge" {
		begun, err = strconv.ParseUint(string(args[0]), 10, 64)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", changeCommand, verb, err)
	}
	s := &m.state
	open := s.Change.Kind != keys.NoChange && s.Change.Begun == begun && s.Phase != keys.Absorbed
	if verb == "thaw" || verb == "freeze" {
		left, err := strconv.ParseInt(string(args[0]), 10, 64)
		if err != nil || len(args) != 2 {
			return fmt.Errorf("%s %s: %q", changeCommand, verb, args)
		}
		open = open && s.Change.Kind == keys.Leaving && s.Change.Other == topology.RegionID(left)
	}
	switch verb {
	case "begin":
		return m.beginChange(w, args, begun, out)
	case "end":
		m.closeChange(open && (s.Change.Kind == keys.HasSplit || s.Change.Kind == keys.Merged), out)
		return nil
	case "abort":
		m.closeChange(open && (s.Change.Kind == keys.Splitting || s.Change.Kind == keys.Merging), out)
		return nil
	case "thaw":
		m.closeChange(open, out)
		return nil
	case "freeze":
		if !open {
			out.Error(errNoChange)
			return nil
		}
		s.Phase = keys.Frozen
		m.changed = true
		out.Int(int64(w.Index))
		return nil
	case "split":
		if !open || s.Change.Kind != keys.Splitting {
			out.Error(errNoChange)
			return nil
		}
		return m.split(w, args, out)
	case "merge":
		if !open || s.Change.Kind != keys.Merging {
			out.Error(errNoChange)
			return nil
		}
		return m.merge(w, args, out)
	}
	return fmt.Errorf("%s %s: unknown", changeCommand, verb)
}

// closeChange closes the change that is open, if the entry is about it.
func (m *machine) closeChange(about bool, out *redis.Reply) {
	if !about {
		out.Int(0)
		return
	}
	s := &m.state
	if s.Change = (keys.RegionChange{}); s.Phase == keys.Frozen {
		s.Phase = keys.Serving
	}
	m.changed = true
	out.Int(1)
}

// errNoChange is the reply to a step of a change that is not open, or not at that step.
const errNoChange = "ERR the change is not open any more"

func (m *machine) beginChange(w *redis.Writer, args [][]byte, begun uint64, out *redis.Reply) error {
	if len(args) != 3 || len(args[0]) != 1 {
		return fmt.Errorf("%s begin: %q", changeCommand, args)
	}
	other, err := strconv.ParseInt(string(args[1]), 10, 64)
	if err != nil {
		return fmt.Errorf("%s begin: %w", changeCommand, err)
	}
	s := &m.state
	change := keys.RegionChange{Kind: keys.ChangeKind(args[0][0] - '0'), Other: topology.RegionID(other), Begun: begun}
	if begun != 0 && s.Change == change && s.Phase != keys.Absorbed {
		out.Int(int64(begun))
		return nil
	}
	if s.Change.Kind != keys.NoChange || s.Phase != keys.Serving {
		out.Error("ERR another split or merge of the region is under way")
		return nil
	}
	if d := (topology.Region{Peers: m.record.Peers}); !d.Settled() {
		out.Error("ERR a move of a replica of the region is under way")
		return nil
	}
	if begun == 0 {
		change.Begun = w.Index
	}
	s.Change, m.changed = change, true
	out.Int(int64(change.Begun))
	return nil
}

// split runs `split BEGUN SLOT CHILD STORE:REPLICA...`.
func (m *machine) split(w *redis.Writer, args [][]byte, out *redis.Reply) error {
	if len(args) < 4 {
		return fmt.Errorf("%s split: %d arguments", changeCommand, len(args))
	}
	slot, err := strconv.ParseUint(string(args[1]), 10, 16)
	child, err2 := strconv.ParseInt(string(args[2]), 10, 64)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("%s split: %w", changeCommand, err)
	}
	s := &m.state
	at := topology.Slot(slot)
	if at <= s.Slots.First || at > s.Slots.Last {
		out.Error(fmt.Sprintf("ERR slot %d does not divide the slots %v", at, s.Slots))
		return nil
	}
	c := topology.Region{
		ID: topology.RegionID(child), Slots: topology.SlotRange{First: at, Last: s.Slots.Last},
		Version: s.Version + 1, ConfVersion: 1,
	}
	for _, text := range args[3:] {
		var p topology.Peer
		if _, err := fmt.Sscanf(string(text), "%d:%d", &p.Store, &p.Replica); err != nil {
			return fmt.Errorf("%s split: peer %q: %w", changeCommand, text, err)
		}
		c.Peers = append(c.Peers, p)
	}
	if err := m.endStage(w.Index, 0); err != nil { // what came before the split, in a batch of its own
		return err
	}
	state := keys.RegionState{
		ApplyIndex: childIndex, TimeMS: s.TimeMS, LastVersion: s.LastVersion, Legacy: s.Legacy,
		CollectedIn: s.CollectedIn, Slots: c.Slots, Version: c.Version,
	}
	if s.CollectedAt != 0 {
		state.CollectedAt = childIndex // the child's indexes begin anew
	}
	b := w.Batch
	if err := b.Set(keys.AppendRegionState(nil, c.ID), state.Append(nil)); err != nil {
		return err
	}
	if m.o.Beside != nil {
		if err := m.o.Beside.Child(b, c); err != nil {
			return err
		}
	}
	if m.o.Mistakes.EmptyChild {
		if m.o.Store != c.Peers[0].Store {
			if err := b.DeleteSlots(c.Slots); err != nil {
				return err
			}
		}
	}
	s.Slots.Last, s.Version, s.KeysExact = at-1, c.Version, false
	s.Change.Kind, s.Change.Other = keys.HasSplit, c.ID
	if err := m.settleChange(w); err != nil {
		return err
	}
	if m.mine {
		m.counters.Splits.Add(1)
	}
	out.Int(int64(w.Index))
	return nil
}

// merge runs `merge BEGUN VERSION STATE`.
func (m *machine) merge(w *redis.Writer, args [][]byte, out *redis.Reply) error {
	if len(args) != 3 {
		return fmt.Errorf("%s merge: %d arguments", changeCommand, len(args))
	}
	version, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		return fmt.Errorf("%s merge: %w", changeCommand, err)
	}
	right, err := keys.ParseRegionState(args[2])
	if err != nil {
		return fmt.Errorf("%s merge: %w", changeCommand, err)
	}
	s := &m.state
	if version != s.Version || right.Slots.First != s.Slots.Last+1 ||
		right.Phase != keys.Frozen || right.Change.Begun != s.Change.Begun || right.Change.Other != m.o.Region.ID {
		out.Error("ERR the regions are not as they were when the merge began")
		return nil
	}
	if err := m.endStage(w.Index, 0); err != nil {
		return err
	}
	switch { // the largest index at which the wider region may have written such a thing
	case m.o.Mistakes.AnySweep:
		s.CollectedAt = max(s.CollectedAt, right.CollectedAt)
	case right.CollectedAt != 0:
		s.CollectedAt = w.Index
	}
	s.Legacy = s.Legacy || right.Legacy
	s.CollectedIn |= right.CollectedIn
	s.TimeMS, s.LastVersion = max(s.TimeMS, right.TimeMS), max(s.LastVersion, right.LastVersion)
	s.KeysExact = false
	s.Slots.Last, s.Version = right.Slots.Last, max(s.Version, right.Version)+1
	s.Change.Kind = keys.Merged
	if m.o.Beside == nil {
		err = m.settleChange(w)
	} else {
		other := s.Change.Other
		err = m.o.Beside.Absorb(other, func() error {
			if err := retire(w.Batch, m.o.Engine, other, &right.Change); err != nil {
				return err
			}
			return m.settleChange(w)
		})
	}
	if err != nil {
		return err
	}
	m.expiry.Notice(0) // records of the right region may expire any time
	m.orphanWrites.Add(1)
	if m.mine {
		m.counters.Merges.Add(1)
	}
	out.Int(int64(w.Index))
	return nil
}

// retire adds the end of the store's replica of a region that another one takes over: its state says so, and its record
// goes, so that no start of the store starts it again. It returns an error if the replica is not at the freeze of that
// attempt, of any attempt if attempt is nil, which can only be if the protocol was broken.
func retire(b *engine.Batch, e *engine.Engine, id topology.RegionID, attempt *keys.RegionChange) error {
	state, ok, err := readState(e, id)
	switch {
	case err != nil:
		return err
	case !ok || state.Phase != keys.Frozen || attempt != nil && state.Change != *attempt:
		return fmt.Errorf("region %d is to be absorbed, and is not frozen here", id)
	}
	state.Phase = keys.Absorbed
	if err := b.Set(keys.AppendRegionState(nil, id), state.Append(nil)); err != nil {
		return err
	}
	return b.Delete(keys.AppendReplica(nil, id))
}

// settleChange commits new bounds together with the present entry's index, and lets readers see them.
func (m *machine) settleChange(w *redis.Writer) error {
	m.state.ApplyIndex = w.Index
	m.writer.Forget()
	if err := m.commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	m.writer.Batch = m.newBatch()
	m.rows.Renew()
	m.publishChange(ByEntry)
	return nil
}

// publishChange lets readers see bounds that are committed, and makes reads under way begin anew.
func (m *machine) publishChange(how BoundsChange) {
	m.changed = false
	m.writer.Changes += redis.AllChanged
	was := m.bounds.Load().Slots
	m.watches.drop()
	m.publish()
	if !m.o.Mistakes.KeptWaiters {
		m.proposer.dropWaiters(ErrBounds) // behind publish: from then on nobody comes into the table by the old bounds
	}
	m.epoch.Add(1)
	m.lost(was) // now that reads which began before are thrown away
	m.observeBounds(how)
	if f := m.o.OnBounds; f != nil {
		f(m.o.Region.ID)
	}
}

// observeBounds tells a test of the bounds.
func (m *machine) observeBounds(how BoundsChange) {
	if f := m.o.Hooks.BoundsChanged; f != nil {
		f(m.o.Store, m.o.Region.ID, *m.bounds.Load(), how)
	}
}

// A Refusal is the region's answer to a step of a change that cannot be taken. The step has no effect.
type Refusal string

func (e Refusal) Error() string { return string(e) }

// Begin opens a change in the region, which this replica must lead. It returns the number of the attempt, which is
// begun unless that is 0.
func (r *Replica) Begin(ctx context.Context, deadline time.Time, kind keys.ChangeKind, other topology.RegionID,
	begun uint64) (uint64, error) {
	return r.step(ctx, deadline, "begin", strconv.Itoa(int(kind)), strconv.FormatInt(int64(other), 10),
		strconv.FormatUint(begun, 10))
}

// End closes a split or a merge that has happened.
func (r *Replica) End(ctx context.Context, deadline time.Time, begun uint64) error {
	_, err := r.step(ctx, deadline, "end", strconv.FormatUint(begun, 10))
	return err
}

// Thaw closes the part that the region has in a merge that its left neighbour has called off.
func (r *Replica) Thaw(ctx context.Context, deadline time.Time, left topology.RegionID, begun uint64) error {
	_, err := r.step(ctx, deadline, "thaw", strconv.FormatInt(int64(left), 10), strconv.FormatUint(begun, 10))
	return err
}

// Abort closes a split or a merge that has not happened. When it returns without an error, Bounds says whether it has.
func (r *Replica) Abort(ctx context.Context, deadline time.Time, begun uint64) error {
	_, err := r.step(ctx, deadline, "abort", strconv.FormatUint(begun, 10))
	return err
}

// Split proposes the split of an open change. The replica holds no lease until it knows that the split has been applied
// here, or never will be. If it does not get to know that, it holds none for the rest of the term. It holds none in any
// term meanwhile, since it may lose the leadership and get it back before the split is proposed.
func (r *Replica) Split(ctx context.Context, deadline time.Time, begun uint64, at topology.Slot,
	child topology.RegionID, peers []topology.Peer) error {
	args := []string{"split", strconv.FormatUint(begun, 10), strconv.Itoa(int(at)), strconv.FormatInt(int64(child), 10)}
	for _, p := range peers {
		args = append(args, fmt.Sprintf("%d:%d", p.Store, p.Replica))
	}
	r.reader.suspend()
	_, err := r.step(ctx, deadline, args...)
	var unknown *UnknownOutcome
	if errors.As(err, &unknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		_, term, _ := r.Leading() // it was proposed in this term at the latest
		r.reader.revoke(term)
	}
	r.reader.resume()
	return err
}

// Freeze makes the region serve nothing any more. It returns the index of the entry that does.
func (r *Replica) Freeze(ctx context.Context, deadline time.Time, left topology.RegionID,
	begun uint64) (uint64, error) {
	return r.step(ctx, deadline, "freeze", strconv.FormatInt(int64(left), 10), strconv.FormatUint(begun, 10))
}

// Merge proposes that the region takes its right neighbour over, which was frozen in a state, encoded as
// keys.RegionState.
func (r *Replica) Merge(ctx context.Context, deadline time.Time, begun, version uint64, right []byte) error {
	_, err := r.step(ctx, deadline, "merge", strconv.FormatUint(begun, 10), strconv.FormatUint(version, 10),
		string(right))
	return err
}

// step proposes one entry that is about the bounds, and returns its reply. A Refusal says that it has no effect.
func (r *Replica) step(ctx context.Context, deadline time.Time, args ...string) (uint64, error) {
	call := redis.Call{Args: [][]byte{[]byte(changeCommand)}}
	for _, a := range args {
		call.Args = append(call.Args, []byte(a))
	}
	p := &Pending{Run: &redis.Run{Calls: []redis.Call{call}}, Deadline: deadline, alone: true, small: args[0] != "begin"}
	r.Propose(p)
	if !p.WaitUnless(ctx.Done()) {
		return 0, ctx.Err()
	}
	if p.Err != nil {
		return 0, p.Err
	}
	reply := string(p.Run.Out.Buf[1 : len(p.Run.Out.Buf)-2])
	if p.Run.Out.Buf[0] == '-' {
		return 0, Refusal(reply)
	}
	return strconv.ParseUint(reply, 10, 64)
}

// Retire ends a frozen replica in the engine whose region has been absorbed by another one, as a snapshot of that one
// or the cluster map says. If the replica runs, Absorbed calls this. It syncs: the tables of the snapshot are durable
// at once, and if a crash took the end of this replica and left the tables, its slots would have two owners for good.
func Retire(e *engine.Engine, id topology.RegionID) error {
	b := e.NewBatch()
	if err := retire(b, e, id, nil); err != nil {
		b.Close()
		return err
	}
	return b.Commit(true)
}

// Absorbed calls f while the replica applies nothing. If f succeeds, which ends the replica in the engine, the replica
// applies nothing and serves nothing any more.
func (r *Replica) Absorbed(how BoundsChange, f func() error) error {
	m := r.machine
	m.still.Lock()
	defer m.still.Unlock()
	if err := f(); err != nil {
		return err
	}
	m.state.Phase = keys.Absorbed
	m.publishChange(how)
	// What is open was not applied before the freeze, and so never will be.
	r.proposer.rejectAll(ErrBounds)
	return nil
}

// State returns the region state that the engine has, encoded as keys.RegionState.
func (r *Replica) State() ([]byte, error) {
	state, ok, err := readState(r.o.Engine, r.o.Region.ID)
	if err == nil && !ok {
		err = fmt.Errorf("region %d: no region state", r.o.Region.ID)
	}
	return state.Append(nil), err
}
