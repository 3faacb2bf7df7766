package region

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// machine is the replica's state machine on disk: it applies the entries of the log. dragonboat calls it from one
// goroutine at a time.
//
// Apply works in stages. A stage is a sequence of units, of one entry or of many. One engine batch has their writes,
// the region state and with it the apply index. A stage ends with the last entry that dragonboat hands over, or after
// the unit that brings the batch to stageBytes. So apply never needs more memory than a stage and the largest single
// unit, whatever is in the log. If a stage ends inside an entry, its batch says how many units of the entry are applied
// (keys.Stage). A replica that starts from there skips those units, so it applies each unit once.
//
// A write that takes long is broken off where the replica stops, between two of its reads or computations, and so is
// the sort of a large batch. Nothing of the stage is committed then, and the machine applies nothing more. Raft goes on
// to believe that it has applied the entries, but nobody can see the difference: no reader is left, the machine sends
// and installs no snapshots, and the log store takes no snapshot record that is ahead of the engine. The next start of
// the replica applies the entries again.
//
// Stages are committed without sync. The Raft log is in the same WAL: a crash can only lose the last writes to the
// data, and the log replays these. Replicas may end their stages at different units, since no unit depends on that.
type machine struct {
	*core
	still    sync.Mutex // held while the machine works, and by a region that absorbs this one
	proposer *proposer  // the machine claims and finishes its proposals
	sums     *sums
	state    keys.RegionState
	record   keys.ReplicaRecord // the store's record of the replica
	recorded bool               // the store has one; a test of a machine alone has none

	work   engine.Work // of calls
	broken bool        // a stage was broken off

	// Scratch of Update.
	writer  redis.Writer
	args    [][]byte
	texts   [][]byte // of the present entry's scripts
	places  []int
	claimed []*proposal
	mine    bool // the present entry was proposed here
	discard redis.Reply
	buf     []byte

	collecting bool // the present Update tells the watches what it does
	effects    redis.Effects
	marks      marks

	stageBytes int    // tests have shorter stages
	unitBytes  uint64 // and smaller units
	unitWork   int
	choices    redis.Choices // of reads in units

	stage   keys.Stage // of the entry that is being applied, or was being applied when the replica stopped
	staged  bool       // the engine holds a record of a stage
	cutting cutting
	summing bool           // the entry being applied asks for a checksum
	changed bool           // the bounds or the phase have changed since they were last published
	regroup bool           // likewise the peers
	lazy    func() error   // planted: what Mistakes.LazyInstall has left to do
	untold  []redis.Effect // planted: what Mistakes.LateTelling has left to tell
}

func newMachine(c *core, p *proposer, s *sums) *machine {
	b := c.bounds.Load()
	m := &machine{core: c, proposer: p, sums: s, stageBytes: stageBytes, unitBytes: redis.MaxWrittenBytes,
		unitWork: redis.MaxWork, choices: redis.Choices{Seed: ^c.o.Seed},
		state: keys.RegionState{KeysExact: true, Slots: b.Slots, Version: b.Version}} // an empty region
	m.work.Look = func() error {
		if c.halted.Load() || c.o.Failed() != nil {
			return ErrStopped
		}
		return nil
	}
	return m
}

// idle reports whether the machine applies nothing more.
func (m *machine) idle() bool {
	return m.broken || m.failed() || m.state.Phase == keys.Absorbed
}

// failed reports whether the store has failed. Then it returns only once nothing reaches the disk any more. For
// dragonboat takes what the machine leaves out as done: once Sync has returned, it takes the data from the file of a
// received snapshot.
func (m *machine) failed() bool {
	err := m.o.Failed()
	if err != nil {
		m.o.Fence(err)
	}
	return err != nil
}

// Open implements multiraft.Machine: it returns the apply index that the engine has.
func (m *machine) Open(<-chan struct{}) (uint64, error) {
	m.still.Lock()
	defer m.still.Unlock()
	state, ok, err := readState(m.o.Engine, m.o.Region.ID)
	if err != nil {
		return 0, fmt.Errorf("region %d: open: %w", m.o.Region.ID, err)
	}
	if ok {
		m.state = state
		m.publish()
		if how := ByStart; m.o.Hooks.BoundsChanged != nil {
			if state.ApplyIndex == 0 {
				how = ByJoin
			}
			m.observeBounds(how)
		}
	}
	m.stage, m.staged, err = readStage(m.o.Engine, m.o.Region.ID)
	if err == nil {
		err = m.openPeers()
	}
	if err != nil {
		return 0, fmt.Errorf("region %d: open: %w", m.o.Region.ID, err)
	}
	m.opened.Store(true)
	return m.state.ApplyIndex, nil
}

// ApplyIndex returns the apply index of a region that the engine has, 0 if it has no region state.
func ApplyIndex(e *engine.Engine, id topology.RegionID) (uint64, error) {
	state, _, err := readState(e, id)
	return state.ApplyIndex, err
}

// PhaseOf returns the phase of a region that the engine has, Serving if it has no region state.
func PhaseOf(e *engine.Engine, id topology.RegionID) (keys.RegionPhase, error) {
	state, _, err := readState(e, id)
	return state.Phase, err
}

func readState(e *engine.Engine, id topology.RegionID) (state keys.RegionState, ok bool, err error) {
	view := e.NewView()
	defer view.Close()
	value, ok, err := view.Get(keys.AppendRegionState(nil, id))
	if err != nil || !ok {
		return state, false, err
	}
	state, err = keys.ParseRegionState(value)
	return state, err == nil, err
}

func readStage(e *engine.Engine, id topology.RegionID) (stage keys.Stage, ok bool, err error) {
	view := e.NewView()
	defer view.Close()
	value, ok, err := view.Get(keys.AppendStage(nil, id))
	if err != nil || !ok {
		return stage, false, err
	}
	stage, err = keys.ParseStage(bytes.Clone(value))
	return stage, err == nil, err
}

// Update implements multiraft.Machine. A store that has failed applies nothing more, since it cannot answer
// anybody.
func (m *machine) Update(entries []multiraft.Entry) ([]multiraft.Entry, error) {
	m.still.Lock()
	defer m.still.Unlock()
	if m.idle() {
		return entries, nil
	}
	if m.record.After > 0 && m.state.ApplyIndex == 0 && !m.o.Mistakes.AnyBeginning {
		m.o.Fence(fmt.Errorf("region %d: a replica that joins is to begin with a snapshot, and got entry %d", m.o.Region.ID,
			entries[0].Index))
		return entries, nil
	}
	if m.lazy != nil {
		if err := m.lazy(); err != nil {
			m.o.Fence(err)
		}
		m.lazy = nil
	}
	var wants Wants
	m.collecting, wants = m.watches.begin(m.servingTerm.Load() != 0 || m.o.Mistakes.AllTell, m.o.Listener)
	m.effects.Looks, m.effects.Misses = wants&WantsOld != 0, wants&WantsMisses != 0
	defer m.watches.end()
	w := &m.writer
	if w.Effects = nil; m.collecting {
		w.Effects = &m.effects
	}
	if m.o.Mistakes.LateTelling {
		defer m.tellLate()
	}
	w.Batch, w.State, w.SoonestMS = m.newBatch(), &m.state, redis.NoExpiry
	w.Orphans, w.Flushed = redis.Orphans{}, false
	w.PopMemory, w.MapOrder, w.ScriptMistakes = m.o.PopMemory, m.o.Mistakes.MapOrder, m.o.Mistakes.Scripts
	for i := range entries {
		if err := m.apply(w, &entries[i]); err != nil {
			m.fail(fmt.Errorf("apply index %d: %w", entries[i].Index, err))
			return entries, nil
		}
		m.state.ApplyIndex = entries[i].Index
		entries[i].Result = multiraft.Result{Value: 1}
		if m.summing { // as of this entry
			m.summing = false
			if err := m.commit(); err != nil {
				m.fail(fmt.Errorf("commit: %w", err))
				return entries, nil
			}
			m.pin()
			w.Batch = m.newBatch()
		}
	}
	if err := m.commit(); err != nil {
		m.fail(fmt.Errorf("commit: %w", err))
		return entries, nil
	}
	w.Release()
	if m.changed {
		m.publishChange(ByEntry)
	} else {
		m.publish()
	}
	m.publishPeers()
	m.expiry.Notice(w.SoonestMS)
	m.orphaned(w.Orphans, w.Flushed)
	var failed error
	if m.failed() {
		failed = &UnknownOutcome{"store failed"}
	}
	m.finish(failed)
	return entries, nil
}

// newBatch returns a batch for the region's data.
func (m *machine) newBatch() *engine.Batch {
	b := m.o.Engine.NewBatch()
	if !m.o.Mistakes.KeptRows || m.servingTerm.Load() != 0 {
		b.Keep(m.rows)
	}
	return b
}

// fail ends an update whose present stage is not committed: it was broken off, or err fences the store.
func (m *machine) fail(err error) {
	if b := m.writer.Batch; b != nil {
		b.Close()
	}
	if m.broken = m.work.Ended() != nil; m.broken {
		m.finish(&UnknownOutcome{"store stopped"})
		return
	}
	m.o.Fence(fmt.Errorf("region %d: %w", m.o.Region.ID, err))
	m.finish(&UnknownOutcome{"store failed"})
}

// stageBytes is the size of a stage's batch at which the stage ends. An update of small writes hardly ever reaches it,
// and it is small beside a memtable.
const stageBytes = 4 << 20

// insideEntry reports, between two updates, whether some units of the next entry are already applied: the replica
// stopped inside that entry, or it got a snapshot from a replica that had.
func (m *machine) insideEntry() bool { return m.staged && m.stage.Index > m.state.ApplyIndex }

// full reports whether the present stage should end. It also ends after a range deletion, since a later unit's writes
// ahead of the batch would have to wait for that deletion (engine.Batch.SetAhead).
func (m *machine) full() bool {
	b := m.writer.Batch
	return b.Len() >= m.stageBytes || b.HasRanges()
}

// endStage commits the present stage and begins the next one. units says how many units of the entry at index are
// applied then.
func (m *machine) endStage(index, units uint64) error {
	if units > 0 {
		m.stage.Index, m.stage.Units = index, units
		m.stage.Choice = m.writer.AppendChoice(m.stage.Choice[:0])
		key := keys.AppendStage(m.buf[:0], m.o.Region.ID)
		m.buf = m.stage.Append(key)
		if err := m.writer.Batch.Set(key, m.buf[len(key):]); err != nil {
			return err
		}
		m.staged = true
	}
	if err := m.commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	m.writer.Batch = m.newBatch()
	return nil
}

// leaveStage deletes the record of a stage after the last unit of its entry.
func (m *machine) leaveStage() error {
	m.staged = false
	key := keys.AppendStage(m.buf[:0], m.o.Region.ID)
	m.buf = key
	return m.writer.Batch.Delete(key)
}

// finish finishes the proposals that this update has claimed. Each gets err, unless it was refused.
func (m *machine) finish(err error) {
	for i, c := range m.claimed {
		c.applied = true
		m.claimed[i] = nil
		if c.err != nil && (c.err != errCut || err == nil) {
			m.proposer.finish(c, c.err)
		} else {
			m.proposer.finish(c, err)
		}
	}
	m.claimed = m.claimed[:0]
}

// commit writes the region state into the writer's batch and commits the batch, which nobody may use afterwards.
func (m *machine) commit() error {
	m.counters.Stages.Add(1)
	b := m.writer.Batch
	b.Watch(nil) // what is left to write is little
	err := m.writer.Finish()
	m.writer.Batch = nil
	if err != nil {
		b.Close()
		return err
	}
	if m.o.Mistakes.SplitApply {
		if err := b.Commit(false); err != nil {
			return err
		}
		b = m.o.Engine.NewBatch()
	}
	if m.state.Legacy && !m.legacy.Swap(true) {
		// The batch may hold the region's first legacy string. Reads under way do not look for one, so they begin anew.
		m.epoch.Add(1)
	}
	key := keys.AppendRegionState(m.buf[:0], m.o.Region.ID)
	m.buf = m.state.Append(key)
	if err := b.Set(key, m.buf[len(key):]); err != nil {
		b.Close()
		return err
	}
	b.Watch(&m.work)
	if err := b.Commit(false); err != nil {
		return err
	}
	if len(m.effects.All) > 0 {
		if m.collecting {
			m.happened()
		}
		m.effects.Reset()
		m.marks.effects, m.marks.served = 0, 0
	}
	return nil
}

// happened tells those who watch or listen what has been committed.
func (m *machine) happened() {
	m.watches.happened(m.effects.All)
	switch l := m.o.Listener; {
	case l == nil:
	case m.o.Mistakes.LateTelling:
		for _, e := range m.effects.All {
			e.Key = bytes.Clone(e.Key)
			m.untold = append(m.untold, e)
		}
	default:
		l.Happened(m.o.Store, m.effects.All)
	}
}

// tellLate is what Mistakes.LateTelling does when the answers have left.
func (m *machine) tellLate() {
	if all := m.untold; len(all) > 0 {
		m.untold = nil
		time.AfterFunc(m.o.Knobs.RTT, func() { m.o.Listener.Happened(m.o.Store, all) })
	}
}

// apply runs one entry in the present stage, and in further ones if it needs them. If the entry was proposed here, its
// replies go to the runs that wait for it.
func (m *machine) apply(w *redis.Writer, e *multiraft.Entry) error {
	w.Follow(e.Index)
	m.count(len(e.Cmd))
	h, units, err := parseEntry(e.Cmd)
	if err != nil {
		return err
	}
	var b *proposal
	m.mine = h.store == m.o.Store && h.incarnation == m.o.Incarnation
	if m.mine {
		if b = m.proposer.claim(h.sequence); b != nil {
			m.claimed = append(m.claimed, b)
		}
	}
	m.counters.AppliedEntries.Add(1)
	refusal := m.refusal(&h, units, e.Index)
	if f := m.o.Hooks.BeforeApply; f != nil {
		f(m.o.Store, m.o.Region.ID, e.Index, h.term, e.Cmd, refusal)
	}
	if refusal != nil {
		m.counters.RefusedEntries.Add(1)
		if b != nil {
			b.err = refusal
		}
		return nil
	}
	if m.o.Mistakes.SameVersions {
		if h.version = 0; h.term > m.state.TermTag {
			m.state.LastVersion = 0
		}
	}
	if h.term > m.state.TermTag {
		m.state.TermTag = h.term
		m.proposer.outrun(h.term)
	}
	m.state.TimeMS = max(m.state.TimeMS, h.timeMS)
	if b != nil {
		if c := m.clock.Load(); c == nil || c.term < h.term { // the first of this replica's entries in its term
			m.clock.Store(&clockBase{term: h.term, ms: m.state.TimeMS, at: time.Now()})
		}
		b.index = e.Index
	}
	w.Index, w.VersionBase = e.Index, h.version
	if h.scripts != nil {
		if m.texts, w.ScriptLimits, err = parseScripts(h.scripts, m.texts[:0]); err != nil {
			return err
		}
		if w.Log = nil; m.mine {
			w.Log = m.o.ScriptLog
		}
	}
	if h.base != e.Index-1 && !m.o.Mistakes.AnyBase {
		h.reads = nil
	}
	turn := m.o.ScriptTurn
	if h.scripts == nil {
		turn = nil
	}
	if turn != nil {
		turn <- struct{}{}
	}
	err = m.run(w, &h, units, b)
	if hits, misses := w.TakeLookups(); m.mine && hits+misses > 0 {
		m.counters.KeysFound.Add(uint64(hits))
		m.counters.KeysMissed.Add(uint64(misses))
	}
	if turn != nil {
		<-turn
	}
	if err != nil {
		return err
	}
	m.unmark()
	if m.staged {
		return m.leaveStage()
	}
	return nil
}

// refusal returns why an entry has no effect, nil if it has one. An entry without units fits any bounds, and so does
// one that is about the bounds.
func (m *machine) refusal(h *entryHeader, units []byte, index uint64) error {
	switch {
	case h.term < m.state.TermTag && !m.o.Mistakes.NoTermTag:
		return ErrNotLeader
	case len(units) == 0 || isChange(units):
		return nil
	case m.o.Mistakes.AnySweep && bytes.Contains(units, []byte("\x05swept")):
		return nil
	case h.bounds != uint32(m.state.Version) && !m.o.Mistakes.AnyBounds, m.state.Phase != keys.Serving:
		return ErrBounds
	case len(h.marks) > 0 && h.base != index-1 && !m.o.Mistakes.AnyExact:
		return ErrBase
	}
	return nil
}

// cutting is how much has been applied since the machine last asked Raft to cut the log.
type cutting struct {
	entries, bytes uint64
}

// count adds an applied entry, and asks for a snapshot record after raft.snapshot_entries of them, or when
// SnapshotBytes have been applied: large entries may fill a disk before. dragonboat could count entries, but it would
// cut the log without asking.
func (m *machine) count(bytes int) {
	c := &m.cutting
	c.entries++
	c.bytes += uint64(bytes)
	m.logged.Add(uint64(bytes))
	if c.bytes < uint64(m.o.Knobs.SnapshotBytes) && c.entries < uint64(m.o.Knobs.SnapshotEntries) {
		return
	}
	if m.CutLog(c.entries) {
		*c = cutting{}
	}
}

// run runs the units of an entry. b is the proposal that waits for the replies, nil for none.
func (m *machine) run(w *redis.Writer, h *entryHeader, units []byte, b *proposal) (err error) {
	reads, applied := h.reads, uint64(0)
	inside := m.staged && m.stage.Index == w.Index
	if inside { // the replica stopped inside this entry, so no run waits for it
		applied, reads = m.stage.Units, nil
		if err := w.RestoreChoice(m.stage.Choice); err != nil {
			return err
		}
	}
	if len(reads) > 0 {
		m.counters.ReadSetsUsed.Add(1)
	}
	if len(h.marks) > 0 {
		if err := m.mark(h.marks, inside); err != nil {
			return err
		}
	} else if !inside {
		m.stage.Touched = m.stage.Touched[:0]
	}
	a, calls := answers{b: b}, uint64(0)
	for n := uint64(1); len(units) > 0; n++ {
		var u unit
		if units[0] == groupTag {
			u, _, units, err = parseUnit(units, nil)
		} else {
			m.args, units, err = parseCall(units, m.args[:0])
		}
		if err != nil {
			return err
		}
		if n <= applied {
			m.marks.next += u.marks
			continue
		}
		if m.full() || u.kind != 0 && !w.Batch.Empty() && m.walks(u.calls) {
			if err := m.endStage(w.Index, n-1); err != nil {
				return err
			}
			reads = nil // the reads are older than those units
		}
		if u.kind != 0 {
			var n uint64
			if reads, n, err = m.group(w, u, reads, &a); err != nil {
				return err
			}
			calls += n
		} else {
			if h.scripts != nil {
				if err := withText(m.args, m.texts); err != nil {
					return err
				}
			}
			if reads, err = w.Expect(m.args, reads); err != nil {
				return err
			}
			row := redis.Lookup(m.args[0])
			if row == nil {
				row = m.internal(m.args)
			}
			if w.Work = &m.work; row == nil {
				row, w.Work = m.own(m.args[0]), nil // it may commit its writes by itself
			}
			if row == nil || row.Write == nil {
				return fmt.Errorf("unknown write command %q", m.args[0])
			}
			if err := m.call(w, row, &a); err != nil {
				return err
			}
			if w.Nothing && row.Blocks != nil {
				a.nothing()
			}
			calls++
		}
		if len(m.marks.all) == 0 {
			continue
		}
		m.touch()
		if m.marks.on == nil {
			continue
		}
		cut, err := m.serve(w, b)
		if err != nil {
			return err
		}
		m.touch()
		if cut && len(units) > 0 {
			if units, reads = nil, nil; b != nil {
				b.err = errCut
			}
		}
	}
	if len(reads) > 0 {
		return fmt.Errorf("decode entry: %d bytes of the read set are left over", len(reads))
	}
	m.counters.AppliedCommands.Add(calls)
	if cap(m.args) > keptArgs {
		m.args = nil
	}
	if h.scripts != nil {
		clear(m.texts)
		m.texts = m.texts[:0]
	}
	return nil
}

// call runs one call, whose arguments are in args.
func (m *machine) call(w *redis.Writer, row *redis.Command, a *answers) error {
	var run *redis.Run
	out := &m.discard
	if w.Seen, w.Published, m.effects.By = nil, nil, nil; a.b == nil {
		out.Discard(keptReplyBytes)
	} else {
		var call int
		run, call = a.next()
		w.SeeCall(run, call)
		run.Speak(call)
		m.effects.By = run.By
		out = &run.Out
	}
	if err := w.Run(row, m.args, out); err != nil {
		return err
	}
	if m.o.Mistakes.FlushSpace && (row.Name == "flushdb" || row.Name == "flushall") {
		if err := w.Batch.DeleteSlots(topology.SlotRange{Last: topology.SlotCount - 1}); err != nil {
			return err
		}
	}
	if run != nil {
		run.Ends = append(run.Ends, len(out.Buf))
		a.call++
	}
	return nil
}

// internal returns the command of a call that redis.Lookup does not find, or nil if there is none.
func (m *machine) internal(args [][]byte) *redis.Command {
	row := redis.LookupInternal(args)
	if row == nil || !m.o.Mistakes.LocalClock {
		return row
	}
	return &redis.Command{Name: row.Name, Write: func(w *redis.Writer, args [][]byte, out *redis.Reply) error {
		agreed := w.State.TimeMS
		defer func() { w.State.TimeMS = agreed }()
		w.State.TimeMS = m.localTime(time.Now())
		return row.Write(w, args, out)
	}}
}

// keptArgs bounds the array of arguments that the machine keeps for the next command. keptReplyBytes likewise bounds
// the buffer for replies that nobody waits for.
const keptArgs, keptReplyBytes = 1 << 12, 64 << 10

// publish makes the applied state visible to readers.
func (m *machine) publish() {
	s := &m.state
	if b := m.bounds.Load(); *b != (Bounds{s.Slots, s.Version, s.Phase, s.Change}) {
		if b.Phase == keys.Frozen && s.Phase == keys.Serving {
			now := time.Now()
			m.thawed.Store(&now)
		}
		m.bounds.Store(&Bounds{s.Slots, s.Version, s.Phase, s.Change})
	}
	m.legacy.Store(s.Legacy)
	m.unblind.Store(s.CollectedIn)
	m.regionTime.Store(m.state.TimeMS)
	m.keyChanges.Store(m.writer.Changes)
	m.applied.Store(m.state.ApplyIndex)
}

// Lookup implements multiraft.Machine. Reads do not use it.
func (m *machine) Lookup(any) (any, error) { return nil, errors.New("reads go to the engine") }

// Sync implements multiraft.Machine.
func (m *machine) Sync() error {
	if m.failed() {
		return nil
	}
	return m.o.Engine.Sync()
}

// Close implements multiraft.Machine. It leaves the engine open, which belongs to the store, and gives the
// writer's pop cache memory back to the store.
func (m *machine) Close() error {
	m.writer.Forget()
	return nil
}
