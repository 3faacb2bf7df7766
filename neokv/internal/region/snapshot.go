package region

import (
	"errors"
	"fmt"
	"io"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// export is a region snapshot that this replica is about to send.
type export struct {
	state  keys.RegionState
	peers  keys.PeerSet
	stage  []byte // the record of the stage in which the replica stopped; nil for none
	pinned *engine.Snapshot
}

// PrepareSnapshot implements multiraft.Machine: it pins the present state. dragonboat calls it while no Update
// runs.
func (m *machine) PrepareSnapshot() (any, error) {
	m.still.Lock()
	defer m.still.Unlock()
	if m.idle() {
		return (*export)(nil), nil
	}
	x := &export{state: m.state, peers: m.record.PeerSet, pinned: m.o.Engine.NewSnapshot()}
	if m.insideEntry() {
		x.stage = m.stage.Append(nil)
	}
	return x, nil
}

// SaveSnapshot implements multiraft.Machine: it sends a prepared snapshot. A store that has failed stops sending,
// and the receiver drops what it has received.
func (m *machine) SaveSnapshot(prepared any, w io.Writer, stop <-chan struct{}) error {
	x := prepared.(*export)
	if x == nil {
		return multiraft.ErrSnapshotAborted
	}
	err := m.save(x, w, stop)
	err = errors.Join(err, x.pinned.Close())
	for _, known := range []error{nil, multiraft.ErrSnapshotStopped, multiraft.ErrSnapshotStreaming} {
		if errors.Is(err, known) {
			return known
		}
	}
	m.o.Fence(fmt.Errorf("region %d: read a snapshot: %w", m.o.Region.ID, err))
	return multiraft.ErrSnapshotAborted
}

func (m *machine) save(x *export, out io.Writer, stop <-chan struct{}) (err error) {
	w := newFrameWriter(out)
	defer func() {
		if w.err != nil {
			err = w.err // the first error, rather than the one that the table's writer makes of it
		}
	}()
	if err := w.header(m.header(x)); err != nil {
		return err
	}
	going := func() error {
		select {
		case <-stop:
			return multiraft.ErrSnapshotStopped
		default:
			return nil
		}
	}
	for _, span := range m.spans(x.state.Slots) {
		if err := x.pinned.WriteTables(span, snapshotTableBytes, w.table, going); err != nil {
			return err
		}
	}
	one := func(key, value []byte) error {
		table, err := w.table()
		if err != nil {
			return err
		}
		return m.o.Engine.WriteTable(table, key, value)
	}
	err = one(keys.AppendRegionState(nil, m.o.Region.ID), x.state.Append(nil))
	if err == nil && x.stage != nil {
		err = one(keys.AppendStage(nil, m.o.Region.ID), x.stage)
	}
	if err == nil {
		err = w.end()
	}
	if err != nil {
		return err
	}
	m.counters.SnapshotsSent.Add(1)
	m.counters.SnapshotBytes.Add(w.total)
	return nil
}

// spans returns the ranges of keys that a snapshot of some slots replaces. It also replaces the region state, which is
// one key.
func (m *machine) spans(slots topology.SlotRange) (spans []engine.Span) {
	add := func(lower, upper []byte) { spans = append(spans, engine.Span{Lower: lower, Upper: upper}) }
	for _, ks := range keys.RegionKeyspaces {
		add(keys.SlotBounds(ks, slots))
	}
	add(keys.OrphanBounds(slots))
	return spans
}

func (m *machine) header(x *export) snapshotHeader {
	return snapshotHeader{region: m.o.Region.ID, slots: x.state.Slots, applyIndex: x.state.ApplyIndex, peers: x.peers}
}

// RecoverFromSnapshot implements multiraft.Machine. It replaces the region's data with a received snapshot, or
// leaves it as it is. A damaged snapshot makes the store fail; an error returned from here would make dragonboat end
// the process.
func (m *machine) RecoverFromSnapshot(in io.Reader, stop <-chan struct{}) error {
	m.still.Lock()
	defer m.still.Unlock()
	if m.broken {
		return multiraft.ErrSnapshotStopped
	}
	if m.idle() {
		return nil
	}
	err := m.install(in, stop)
	if errors.Is(err, multiraft.ErrSnapshotStopped) {
		return multiraft.ErrSnapshotStopped
	}
	if err != nil {
		m.o.Fence(fmt.Errorf("region %d: install a snapshot: %w", m.o.Region.ID, err))
	}
	return nil
}

func (m *machine) install(in io.Reader, stop <-chan struct{}) (err error) {
	tables, err := m.o.Engine.NewIngestion(fmt.Sprintf("region-%d", m.o.Region.ID))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tables.Abort()
		}
	}()
	h, size, err := receive(in, tables, stop)
	if err != nil {
		return err
	}
	if h.region != m.o.Region.ID {
		return fmt.Errorf("it is of region %d; want region %d", h.region, m.o.Region.ID)
	}
	if h.applyIndex <= m.state.ApplyIndex {
		return fmt.Errorf("it is of apply index %d, the region is at %d", h.applyIndex, m.state.ApplyIndex)
	}
	if m.recorded {
		record := m.record
		record.PeerSet = h.peers
		table, err := tables.Create()
		if err == nil {
			err = m.o.Engine.WriteTable(table, keys.AppendReplica(nil, m.o.Region.ID), record.Append(nil))
		}
		if err != nil {
			return err
		}
	}
	if m.o.Mistakes.LazyInstall {
		m.lazy = func() error { return m.replace(tables, h) }
		m.state.ApplyIndex = h.applyIndex
		return nil
	}
	if err := m.replace(tables, h); err != nil {
		return err
	}
	m.counters.SnapshotsReceived.Add(1)
	m.counters.SnapshotBytes.Add(size)
	return nil
}

// replace ingests the tables and then publishes the state that they hold. A read that sees only a part of that begins
// anew, since the epoch rises again at the end. A read that sees the tables but not yet the published state judges
// expiry by an older region time. So does any read that begins before an entry is applied.
//
// The region's slots may have changed between the old state and the new one. Where it has taken over another region, the
// store's replica of that one is frozen, and ends first: what a crash then leaves has an old state of the region, and the
// file of the snapshot. Where it has lost slots, their old data stays, unreachable, for the store to reclaim.
func (m *machine) replace(tables *engine.Ingestion, h snapshotHeader) (err error) {
	install := func() error { return m.ingest(tables, h) }
	if m.o.Beside != nil {
		err = m.o.Beside.Cover(m.o.Region.ID, h.slots, install)
	} else {
		err = install()
	}
	if err != nil {
		return err
	}
	m.proposer.disown()
	return nil
}

// ingest is the part of replace for which replicas that have ended wait: others see that these have ended only after they
// can see the new bounds, so that no slot table lacks the slots.
func (m *machine) ingest(tables *engine.Ingestion, h snapshotHeader) error {
	m.legacy.Store(true) // the tables may hold legacy strings: from now on reads look for them,
	m.epoch.Add(1)       // and reads under way begin anew
	if err := tables.Commit(m.rows); err != nil {
		return err
	}
	state, ok, err := readState(m.o.Engine, m.o.Region.ID)
	if err == nil && (!ok || state.ApplyIndex != h.applyIndex) {
		err = fmt.Errorf("its region state is of apply index %d, its header of %d", state.ApplyIndex, h.applyIndex)
	}
	if err != nil {
		return err
	}
	m.state = state
	if m.state.Slots != h.slots {
		return fmt.Errorf("its region state has slots %v, its header %v", m.state.Slots, h.slots)
	}
	if m.stage, m.staged, err = readStage(m.o.Engine, m.o.Region.ID); err != nil {
		return err
	}
	m.writer.Forget()
	m.record.PeerSet, m.regroup = h.peers, true
	m.publishPeers()
	m.publishChange(BySnapshot)
	return nil
}
