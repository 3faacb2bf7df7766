package region

import (
	"errors"
	"fmt"
	"time"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// machine is the replica's state machine on disk. dragonboat calls it from one apply worker at a time. Data, apply index and
// region state of a run of entries are one engine batch, committed without sync: the Raft log is the journal, and it is on the
// same WAL, so that what a crash takes from the data is a suffix that the log replays.
type machine struct {
	r     *Replica
	space keys.Space
	state keys.RegionState

	// Scratch of Update.
	writer  redis.Writer
	args    [][]byte
	claimed []*batch
	discard redis.Reply
	buf     []byte

	cutting cutting
	summing bool         // the present entry asks for a checksum
	lazy    func() error // planted: what Faults.LazyInstall has left to do
}

// Open implements sm.IOnDiskStateMachine: it returns the apply index found in the engine.
func (m *machine) Open(<-chan struct{}) (uint64, error) {
	state, ok, err := readState(m.r.o.Engine, m.space)
	if err != nil {
		return 0, fmt.Errorf("region %d: open: %w", m.space.Region, err)
	}
	if ok {
		m.state = state
		m.publish()
	} else {
		m.state.KeysExact = true // none
	}
	return m.state.ApplyIndex, nil
}

// ApplyIndex is the apply index of a region as the engine has it, 0 where there is no region state.
func ApplyIndex(e *engine.Engine, id topology.RegionID) (uint64, error) {
	state, _, err := readState(e, keys.Space{Region: id})
	return state.ApplyIndex, err
}

func readState(e *engine.Engine, s keys.Space) (state keys.RegionState, ok bool, err error) {
	view := e.NewView()
	defer view.Close()
	value, ok, err := view.Get(keys.AppendRegionState(nil, s.Region))
	if err != nil || !ok {
		return state, false, err
	}
	state, err = keys.ParseRegionState(value)
	return state, err == nil, err
}

// Update implements sm.IOnDiskStateMachine. A failed store applies nothing any more: nothing can leave it.
func (m *machine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	r := m.r
	if r.o.Failed() != nil {
		return entries, nil
	}
	if m.lazy != nil {
		if err := m.lazy(); err != nil {
			r.o.Fence(err)
		}
		m.lazy = nil
	}
	b := m.newBatch()
	w := &m.writer
	w.Batch, w.Space, w.State, w.SoonestMS = b, m.space, &m.state, redis.NoExpiry
	w.Orphans, w.Flushed = redis.Orphans{}, false
	w.Memory, w.MapOrder = r.o.Memory, r.o.Faults.MapOrder
	for i := range entries {
		if err := m.apply(w, &entries[i]); err != nil {
			b.Close()
			r.o.Fence(fmt.Errorf("region %d: apply index %d: %w", m.space.Region, entries[i].Index, err))
			m.finish(&UnknownOutcome{"store failed"})
			return entries, nil
		}
		entries[i].Result = sm.Result{Value: 1}
		if m.summing { // as of this entry
			m.summing = false
			m.settle(b)
			m.pin()
			b = m.newBatch()
			w.Batch = b
		}
	}
	m.settle(b)
	w.Release()
	m.publish()
	r.notice(w.SoonestMS)
	r.orphaned(w.Orphans, w.Flushed)
	var failed error
	if r.o.Failed() != nil {
		failed = &UnknownOutcome{"store failed"}
	}
	m.finish(failed)
	return entries, nil
}

// newBatch returns a batch for the region's data.
func (m *machine) newBatch() *engine.Batch {
	b := m.r.o.Engine.NewBatch()
	if !m.r.o.Faults.KeptRows || m.r.servingTerm.Load() != 0 {
		b.Keep(m.r.rows)
	}
	return b
}

// settle commits the batch, or fences the store.
func (m *machine) settle(b *engine.Batch) {
	if err := m.commit(b); err != nil {
		m.r.o.Fence(fmt.Errorf("region %d: commit: %w", m.space.Region, err))
	}
}

// finish finishes the batches that this update has claimed: with err, unless they were refused.
func (m *machine) finish(err error) {
	for i, c := range m.claimed {
		c.applied = true
		m.claimed[i] = nil
		if c.err != nil {
			m.r.finish(c, c.err)
		} else {
			m.r.finish(c, err)
		}
	}
	m.claimed = m.claimed[:0]
}

// commit writes the region state into the batch and commits it.
func (m *machine) commit(b *engine.Batch) error {
	if err := m.writer.Finish(); err != nil {
		b.Close()
		return err
	}
	if m.r.o.Faults.SplitApply {
		if err := b.Commit(true); err != nil { // synced, so that any crash before the next sync tears the two apart
			return err
		}
		b = m.r.o.Engine.NewBatch()
	}
	if m.state.LegacyAt != 0 { // before anybody can see that a record has become a legacy string
		m.r.legacyAt.Store(m.state.LegacyAt)
	}
	key := keys.AppendRegionState(m.buf[:0], m.space.Region)
	m.buf = m.state.Append(key)
	if err := b.Set(key, m.buf[len(key):]); err != nil {
		b.Close()
		return err
	}
	return b.Commit(false)
}

// apply runs one entry on the batch. Its replies go to the runs that wait for it, if it was proposed here.
func (m *machine) apply(w *redis.Writer, e *sm.Entry) error {
	r := m.r
	m.state.ApplyIndex = e.Index
	w.Follow(e.Index)
	m.count(len(e.Cmd))
	h, commands, err := parseEntry(e.Cmd)
	if err != nil {
		return err
	}
	var b *batch
	if h.store == r.o.Store && h.incarnation == r.o.Incarnation {
		if b = r.claim(h.sequence); b != nil {
			m.claimed = append(m.claimed, b)
		}
	}
	r.counters.AppliedEntries.Add(1)
	refused := h.term < m.state.TermTag && !r.o.Faults.NoTermTag
	if f := r.o.Faults.Observe; f != nil {
		f(r.o.Store, m.space.Region, e.Index, h.term, !refused)
	}
	if refused {
		r.counters.RefusedEntries.Add(1)
		if b != nil {
			b.err = ErrNotLeader
		}
		return nil
	}
	if r.o.Faults.SameVersions {
		if h.version = 0; h.term > m.state.TermTag {
			m.state.LastVersion = 0
		}
	}
	m.state.TermTag = max(m.state.TermTag, h.term)
	m.state.TimeMS = max(m.state.TimeMS, h.timeMS)
	if b != nil {
		if c := r.clock.Load(); c == nil || c.term < h.term { // the first of this replica's entries in its term
			r.clock.Store(&clockBase{term: h.term, ms: m.state.TimeMS, at: time.Now()})
		}
	}
	w.Index, w.VersionBase, w.AllSlots = e.Index, h.version, h.old
	if b != nil {
		b.index = e.Index
	}

	reads := h.reads
	if h.base != e.Index-1 && !r.o.Faults.AnyBase {
		reads = nil
	}
	if len(reads) > 0 {
		r.counters.ReadSetsUsed.Add(1)
	}
	part, call, n := 0, 0, uint64(0)
	for len(commands) > 0 {
		if m.args, commands, err = parseCall(commands, m.args[:0]); err != nil {
			return err
		}
		if reads, err = w.Expect(m.args, reads); err != nil {
			return err
		}
		row := redis.Lookup(m.args[0])
		if row == nil {
			row = m.internal(m.args[0])
		}
		if row == nil {
			row = m.own(m.args[0])
		}
		if row == nil || row.Write == nil {
			return fmt.Errorf("unknown write command %q", m.args[0])
		}
		n++
		if b == nil {
			if m.discard.Buf = m.discard.Buf[:0]; cap(m.discard.Buf) > keptReplyBytes {
				m.discard.Buf = nil
			}
			if err := w.Run(row, m.args, &m.discard); err != nil {
				return err
			}
			continue
		}
		for b.parts[part].from+call == b.parts[part].to {
			part, call = part+1, 0
		}
		run := b.parts[part].p.Run
		if err := w.Run(row, m.args, &run.Out); err != nil {
			return err
		}
		run.Ends = append(run.Ends, len(run.Out.Buf))
		call++
	}
	if len(reads) > 0 {
		return fmt.Errorf("decode entry: %d bytes of the read set are left over", len(reads))
	}
	r.counters.AppliedCommands.Add(n)
	if cap(m.args) > keptArgs {
		m.args = nil
	}
	return nil
}

// keptArgs and keptReplyBytes bound what one large command leaves behind for the next: its arguments, and the reply that nobody waits for.
const keptArgs, keptReplyBytes = 1 << 12, 64 << 10

// publish makes the applied state visible to readers.
func (m *machine) publish() {
	m.r.legacyAt.Store(m.state.LegacyAt)
	m.r.collectedAt.Store(m.state.CollectedAt)
	m.r.collectedIn.Store(m.state.CollectedIn)
	m.r.regionTime.Store(m.state.TimeMS)
	m.r.applied.Store(m.state.ApplyIndex)
}

// Lookup implements sm.IOnDiskStateMachine; reads do not come this way.
func (m *machine) Lookup(any) (any, error) { return nil, errors.New("reads go to the engine") }

// Sync implements sm.IOnDiskStateMachine.
func (m *machine) Sync() error {
	if m.r.o.Failed() != nil {
		return nil
	}
	return m.r.o.Engine.Sync()
}

// Close implements sm.IOnDiskStateMachine; the engine is the store's, and so is what the writer has kept in memory.
func (m *machine) Close() error {
	m.writer.Forget()
	return nil
}
