// Package meta is the cluster's map: its stores, its regions with their bounds and replicas, and the ids that were
// handed out. The map is the state of a Raft group of its own, region 0, which is replicated over up to three stores.
// Stores also send heartbeats, which say who is alive and who leads. Meta's leader keeps those in memory (directory),
// and nothing is decided by them alone.
package meta

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/raftlog"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// RedisTable is the internal table whose primary index holds all Redis data.
const RedisTable = "__redis__.kv"

// MaxReplicas bounds the meta group: stores 1 to this one hold it.
const MaxReplicas = 3

// Map is the cluster map. Nobody may change a Map that others can see.
type Map struct {
	Version     uint64             `json:"version"` // grows with every change
	Cluster     string             `json:"cluster"` // hex, made at first boot
	Stores      []Member           `json:"stores"`
	Regions     []topology.Region  `json:"regions"` // by first slot
	Tables      []SystemTable      `json:"tables"`
	NextReplica topology.ReplicaID `json:"next_replica"` // the next replica id to hand out
}

// Member is a store that belongs to the cluster.
type Member struct {
	ID     topology.StoreID `json:"id"`
	NodeID string           `json:"node_id"` // 40 hex characters, by which Redis clients know the store
}

// SystemTable is an internal table and its primary index.
type SystemTable struct {
	Name  string           `json:"name"`
	Index topology.IndexID `json:"index"`
}

// RedisIndex is the index under which Redis data lives, 0 if the map is empty.
func (m *Map) RedisIndex() topology.IndexID {
	for _, t := range m.Tables {
		if t.Name == RedisTable {
			return t.Index
		}
	}
	return 0
}

// Region returns the region with this id, nil if there is none.
func (m *Map) Region(id topology.RegionID) *topology.Region {
	for i := range m.Regions {
		if m.Regions[i].ID == id {
			return &m.Regions[i]
		}
	}
	return nil
}

// Check returns an error unless the map can be routed by: the ids of stores and regions are different, and regions have
// slots that exist and that no other region has. A map that was decoded may be anything.
func (m *Map) Check() error {
	stores := make(map[topology.StoreID]bool)
	for _, s := range m.Stores {
		if s.ID == 0 || stores[s.ID] {
			return fmt.Errorf("cluster map: store %d: not the id of one store", s.ID)
		}
		stores[s.ID] = true
	}
	regions := make(map[topology.RegionID]bool)
	next := 0 // the first slot that the regions so far leave
	for i := range m.Regions {
		r := &m.Regions[i]
		if r.ID <= topology.MetaRegion || regions[r.ID] {
			return fmt.Errorf("cluster map: region %d: not the id of one region", r.ID)
		}
		regions[r.ID] = true
		if int(r.Slots.First) < next || r.Slots.Last < r.Slots.First || r.Slots.Last >= topology.SlotCount {
			return fmt.Errorf("cluster map: region %d: slots %d to %d; want ascending ones from %d to %d", r.ID,
				r.Slots.First, r.Slots.Last, next, topology.SlotCount-1)
		}
		next = int(r.Slots.Last) + 1
	}
	return nil
}

// Initial returns the map of a new cluster. It splits the slots evenly over the regions and puts each region on
// consecutive stores, the first of which should lead it. So leaders and replicas are spread evenly.
func Initial(cluster string, shape settings.ClusterKnobs, ownSpaces bool) *Map {
	m := &Map{Cluster: cluster, Tables: []SystemTable{{Name: RedisTable, Index: 1}}, NextReplica: 1}
	for i := range shape.Stores {
		id := topology.StoreID(i + 1)
		sum := sha1.Sum(fmt.Appendf(nil, "%s store %d", cluster, id))
		m.Stores = append(m.Stores, Member{ID: id, NodeID: hex.EncodeToString(sum[:])})
	}
	for i, slots := range topology.SplitEvenly(shape.Regions) {
		r := topology.Region{ID: topology.RegionID(i + 1), Slots: slots, Version: 1, ConfVersion: 1}
		if r.Space = 1; ownSpaces {
			r.Space = topology.SpaceID(r.ID)
		}
		for j := range shape.Replicas {
			r.Peers = append(r.Peers, topology.Peer{Store: m.Stores[(i+j)%shape.Stores].ID, Replica: m.NextReplica})
			m.NextReplica++
		}
		m.Regions = append(m.Regions, r)
	}
	return m
}

// Members returns the stores with a replica of meta in a cluster of n stores. The replica id is the store's number.
func Members(n int) map[uint64]dragonboat.Target {
	m := make(map[uint64]dragonboat.Target)
	for i := range min(n, MaxReplicas) {
		s := topology.StoreID(i + 1)
		m[uint64(s)] = s.RaftAddress()
	}
	return m
}

// Group is this store's replica of the meta group.
type Group struct {
	host    *dragonboat.NodeHost
	machine *metaMachine
	work    leaderWork // while this replica leads
}

// Options are the options of a replica of the meta group.
type Options struct {
	Store  topology.StoreID
	Engine *engine.Engine
	Host   *dragonboat.NodeHost
	Knobs  settings.RaftKnobs
	Failed func() error
	Fence  func(error)
	// Initial is the map that the leader proposes if there is none. Interval is how often a store sends a heartbeat.
	Initial  *Map
	Interval time.Duration
	// Changed is called after a change of the map has been applied; it must not block.
	Changed func()
}

// Start starts the replica. members must be empty if the replica has run before.
func Start(o Options, members map[uint64]dragonboat.Target) (*Group, error) {
	g := &Group{host: o.Host, machine: &metaMachine{o: o}}
	g.machine.current.Store(new(Map))
	err := o.Host.StartOnDiskReplica(members, false, func(uint64, uint64) sm.IOnDiskStateMachine { return g.machine },
		raftlog.GroupConfig(topology.MetaRegion, topology.ReplicaID(o.Store), o.Knobs))
	if err != nil {
		return nil, fmt.Errorf("meta: start replica %d: %w", o.Store, err)
	}
	return g, nil
}

// Map returns the map that this replica has applied. Its Version is 0 if there is none yet.
func (g *Group) Map() *Map { return g.machine.current.Load() }

// Bootstrap makes m the map of a cluster that has none. If the cluster already has a map, Bootstrap changes nothing and
// returns no error.
func (g *Group) Bootstrap(ctx context.Context, m *Map) error {
	cmd, err := json.Marshal(change{Bootstrap: m})
	if err != nil {
		return fmt.Errorf("meta: bootstrap: %w", err)
	}
	_, err = g.host.SyncPropose(ctx, g.host.GetNoOPSession(uint64(topology.MetaRegion)), cmd)
	return err
}

// change is an entry of meta's log: exactly one field is set.
type change struct {
	Bootstrap *Map `json:"bootstrap,omitempty"`
}

// apply returns the map after the change; m itself stays as it was.
func (c *change) apply(m *Map) *Map {
	if c.Bootstrap != nil && m.Version == 0 {
		next := *c.Bootstrap
		next.Version = 1
		return &next
	}
	return m
}

// stateFormat is the first byte of the meta group's record: [format u8][apply index u64][map as JSON].
const stateFormat = 1

// metaMachine is the meta group's state machine on disk: one record, rewritten by every change.
type metaMachine struct {
	o       Options
	current atomic.Pointer[Map]
}

func stateKey() []byte { return keys.AppendMetaState(nil, "map") }

// Open implements sm.IOnDiskStateMachine.
func (m *metaMachine) Open(<-chan struct{}) (uint64, error) {
	saved, index, err := readState(m.o.Engine)
	if err == nil && saved != nil {
		m.current.Store(saved)
	}
	return index, err
}

// ApplyIndex returns the meta group's apply index that the engine has, 0 if it has none.
func ApplyIndex(e *engine.Engine) (uint64, error) {
	_, index, err := readState(e)
	return index, err
}

// readState reads the record; the map is nil if there is none.
func readState(e *engine.Engine) (m *Map, applyIndex uint64, err error) {
	view := e.NewView()
	defer view.Close()
	value, ok, err := view.Get(stateKey())
	if err != nil || !ok {
		return nil, 0, err
	}
	if m, applyIndex, err = parseState(value); err != nil {
		return nil, 0, fmt.Errorf("meta: %w", err)
	}
	return m, applyIndex, nil
}

// parseState decodes the record.
func parseState(value []byte) (m *Map, applyIndex uint64, err error) {
	if len(value) < 9 || value[0] != stateFormat {
		return nil, 0, fmt.Errorf("decode state: %d bytes, want format %d and at least 9", len(value), stateFormat)
	}
	m = new(Map)
	err = json.Unmarshal(value[9:], m)
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, 0, fmt.Errorf("decode state: %w", err)
	}
	return m, binary.BigEndian.Uint64(value[1:]), nil
}

// Update implements sm.IOnDiskStateMachine.
func (m *metaMachine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	if m.o.Failed() != nil {
		return entries, nil
	}
	next := m.current.Load()
	for i := range entries {
		var c change
		if err := json.Unmarshal(entries[i].Cmd, &c); err != nil {
			m.o.Fence(fmt.Errorf("meta: apply index %d: %w", entries[i].Index, err))
			return entries, nil
		}
		next = c.apply(next)
		entries[i].Result = sm.Result{Value: next.Version}
	}
	value := binary.BigEndian.AppendUint64([]byte{stateFormat}, entries[len(entries)-1].Index)
	text, err := json.Marshal(next)
	if err != nil {
		return nil, fmt.Errorf("meta: encode state: %w", err)
	}
	b := m.o.Engine.NewBatch()
	if err := errors.Join(b.Set(stateKey(), append(value, text...)), b.Commit(false)); err != nil {
		m.o.Fence(fmt.Errorf("meta: commit: %w", err))
		return entries, nil
	}
	m.current.Store(next)
	m.o.Changed()
	return entries, nil
}

// Lookup implements sm.IOnDiskStateMachine.
func (m *metaMachine) Lookup(any) (any, error) { return m.current.Load(), nil }

// Sync implements sm.IOnDiskStateMachine.
func (m *metaMachine) Sync() error {
	if m.o.Failed() != nil {
		return nil
	}
	return m.o.Engine.Sync()
}

// maxStateBytes bounds the meta group's record.
const maxStateBytes = 64 << 20

// PrepareSnapshot implements sm.IOnDiskStateMachine: it returns the record, which is small.
func (m *metaMachine) PrepareSnapshot() (any, error) {
	if m.o.Failed() != nil {
		return []byte(nil), nil
	}
	view := m.o.Engine.NewView()
	defer view.Close()
	value, _, err := view.Get(stateKey())
	if err != nil {
		m.o.Fence(fmt.Errorf("meta: prepare a snapshot: %w", err))
	}
	return bytes.Clone(value), nil
}

// SaveSnapshot implements sm.IOnDiskStateMachine. A snapshot is [record][CRC-32C of it u32].
func (m *metaMachine) SaveSnapshot(prepared any, w io.Writer, _ <-chan struct{}) error {
	value := prepared.([]byte)
	if m.o.Failed() != nil {
		return sm.ErrSnapshotAborted
	}
	sum := crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
	_, err := w.Write(binary.BigEndian.AppendUint32(value, sum))
	return err // dragonboat's own error
}

// RecoverFromSnapshot implements sm.IOnDiskStateMachine. A damaged snapshot fences the store and changes nothing.
func (m *metaMachine) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	if m.o.Failed() != nil {
		return nil
	}
	if err := m.install(r); err != nil {
		m.o.Fence(fmt.Errorf("meta: install a snapshot: %w", err))
	}
	return nil
}

func (m *metaMachine) install(r io.Reader) (err error) {
	defer func() {
		if p := recover(); p != nil { // the library's reader panics on damaged bytes
			err = fmt.Errorf("read: %v", p)
		}
	}()
	value, err := io.ReadAll(io.LimitReader(r, maxStateBytes))
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if len(value) < crc32.Size {
		return fmt.Errorf("%d bytes, want more than %d", len(value), crc32.Size)
	}
	value, end := value[:len(value)-crc32.Size], value[len(value)-crc32.Size:]
	sum := crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
	if want := binary.BigEndian.Uint32(end); sum != want {
		return fmt.Errorf("checksum %08x, want %08x", sum, want)
	}
	next, _, err := parseState(value)
	if err != nil {
		return err
	}
	b := m.o.Engine.NewBatch()
	if err := errors.Join(b.Set(stateKey(), value), b.Commit(false)); err != nil {
		return err
	}
	m.current.Store(next)
	m.o.Changed()
	return nil
}

// Close implements sm.IOnDiskStateMachine.
func (m *metaMachine) Close() error { return nil }

// deadAfter is how many heartbeats a store may miss before it counts as dead.
const deadAfter = 3

// Beat is a store's heartbeat to meta's leader.
type Beat struct {
	Store      topology.StoreID `json:"store"`
	Host       string           `json:"host"` // the address that Redis clients are told
	Port       int              `json:"port"`
	MapVersion uint64           `json:"map_version"` // of the store's map; the answer has a newer one if there is one
	Leads      []Lead           `json:"leads"`
	Full       bool             `json:"full,omitempty"` // the store's disk has less space left than the reserve
}

// Lead says that a store serves a region in a term.
type Lead struct {
	Region topology.RegionID `json:"region"`
	Store  topology.StoreID  `json:"store"`
	Term   uint64            `json:"term"`
}

// ClusterView is the answer of meta's leader to a heartbeat. It also sends one to all stores when something has
// changed.
type ClusterView struct {
	Map    *Map     `json:"map,omitempty"` // set if it is newer than that of the store that asks
	Stores []Status `json:"stores"`
	Leads  []Lead   `json:"leads"`
}

// Status is what meta's leader knows of a store.
type Status struct {
	ID    topology.StoreID `json:"id"`
	Host  string           `json:"host"`
	Port  int              `json:"port"`
	Alive bool             `json:"alive"`
	Full  bool             `json:"full,omitempty"` // as it said last
}

var stub int

// Allocate is a stub.
func (g *Group) Allocate(ctx context.Context, regions, replicas int) (topology.RegionID, topology.ReplicaID, error) {
	stub += 1
	return topology.RegionID(1000 + stub), topology.ReplicaID(100000 + 100*stub), nil
}
