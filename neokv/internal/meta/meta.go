// Package meta is the cluster's map: its stores, its regions with their bounds and replicas, and the ids that were
// handed out. The map is the state of a Raft group of its own, region 0, which is replicated over up to three stores.
// Stores also send heartbeats, which say who is alive and who leads. Meta's leader keeps those in memory (directory),
// and nothing is decided by them alone.
package meta

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// MaxReplicas bounds the meta group: the first stores of a new cluster hold it, up to this one.
const MaxReplicas = 3

// Map is the cluster map. Nobody may change a Map that others can see.
type Map struct {
	Version uint64            `json:"version"` // grows with every change of more than the next ids
	Cluster string            `json:"cluster"` // hex, made at first boot
	Stores  []Member          `json:"stores"`  // by number; those that have gone, too: see members.go
	Regions []topology.Region `json:"regions"` // by first slot, as their leaders have reported them
	// NextReplica and NextRegion are the next ids to hand out.
	NextReplica topology.ReplicaID `json:"next_replica"`
	NextRegion  topology.RegionID  `json:"next_region"`
	// Windows are the migrations that clients are shown: see windows.go. No two have a slot in common.
	Windows []route.Window `json:"windows,omitempty"`
	// Wipes has the last wipe of each store that was ever wiped. One at most is not done.
	Wipes []topology.Wipe `json:"wipes,omitempty"`
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

// ByID returns the regions by their ids, for many look-ups.
func (m *Map) ByID() map[topology.RegionID]*topology.Region {
	all := make(map[topology.RegionID]*topology.Region, len(m.Regions))
	for i := range m.Regions {
		all[m.Regions[i].ID] = &m.Regions[i]
	}
	return all
}

// Check returns an error unless the map can be routed by: the ids of stores and regions are different, and regions have
// slots that exist and that no other region has. A map that was decoded may be anything.
func (m *Map) Check() error {
	stores := make(map[topology.StoreID]bool)
	for _, s := range m.Stores {
		if s.ID == 0 || stores[s.ID] {
			return fmt.Errorf("cluster map: store %d: not the id of one store", s.ID)
		}
		if s.State > Gone {
			return fmt.Errorf("cluster map: store %d: state %d, want %d at most", s.ID, s.State, Gone)
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
	if err := errors.Join(m.checkWindows(), m.checkWipes()); err != nil {
		return fmt.Errorf("cluster map: %w", err)
	}
	return nil
}

// Initial returns the map of a new cluster. It splits the slots evenly over the regions and puts each region on
// consecutive stores, the first of which should lead it. So leaders and replicas are spread evenly.
func Initial(cluster string, shape settings.ClusterKnobs) *Map {
	m := &Map{
		Cluster: cluster, NextReplica: 1,
		NextRegion: topology.RegionID(shape.Regions) + 1,
	}
	for i := range shape.Stores {
		m.Stores = append(m.Stores, newMember(cluster, topology.StoreID(i+1)))
	}
	for i, slots := range topology.SplitEvenly(shape.Regions) {
		r := topology.Region{ID: topology.RegionID(i + 1), Slots: slots, Version: 1, ConfVersion: 1}
		for j := range shape.Replicas {
			r.Peers = append(r.Peers, topology.Peer{Store: m.Stores[(i+j)%shape.Stores].ID, Replica: m.NextReplica})
			m.NextReplica++
		}
		m.Regions = append(m.Regions, r)
	}
	return m
}

// Members returns the first replicas of meta in a cluster that began with n stores: see ReplicaOn.
func Members(n int) (all []topology.Peer) {
	for i := range min(n, MaxReplicas) {
		store := topology.StoreID(i + 1)
		all = append(all, topology.Peer{Store: store, Replica: ReplicaOn(store, 0)})
	}
	return all
}

// IsMember reports whether a store has a replica of meta in a cluster that began with n stores.
func IsMember(n int, s topology.StoreID) bool { return s >= 1 && int(s) <= min(n, MaxReplicas) }

// Group is this store's replica of the meta group.
type Group struct {
	raft    multiraft.Replica
	machine *metaMachine
	work    leaderWork // while this replica leads
}

// Options are the options of a replica of the meta group.
type Options struct {
	Store  topology.StoreID
	Wipes  uint64 // of the store so far: see ReplicaOn
	Engine *engine.Engine
	Host   *multiraft.Host
	Knobs  settings.RaftKnobs
	Failed func() error
	Fence  func(error)
	// Members is how many replicas meta has, on the stores from 1 on.
	Members int
	// Initial is the map that the leader proposes if there is none. Interval is how often a store sends a heartbeat.
	Initial  *Map
	Interval time.Duration
	// Changed is called after a change of the map has been applied; it must not block.
	Changed func()
}

// Start starts the replica.
func Start(o Options, b multiraft.Beginning) (*Group, error) {
	g := &Group{
		raft: o.Host.Replica(topology.MetaRegion, ReplicaOn(o.Store, o.Wipes)), machine: &metaMachine{o: o},
	}
	g.machine.current.Store(new(Map))
	if err := g.raft.Start(g.machine, b); err != nil {
		return nil, fmt.Errorf("meta: start replica %d: %w", o.Store, err)
	}
	return g, nil
}

// Map returns the map that this replica has applied. Its Version is 0 if there is none yet.
func (g *Group) Map() *Map { return g.machine.current.Load() }

// proposalTimeout bounds a proposal to meta.
const proposalTimeout = 5 * time.Second

// Bootstrap makes m the map of a cluster that has none. If the cluster already has a map, Bootstrap changes nothing and
// returns no error.
//
// This store must lead meta, as for Allocate and Propose: no proposal is forwarded, so elsewhere they fail, in the
// worst case after 5 s. After an error the outcome is unknown.
func (g *Group) Bootstrap(ctx context.Context, m *Map) error {
	_, err := g.propose(ctx, &change{Bootstrap: m})
	return err
}

// Allocate hands out ids, so many consecutive ones of regions and of replicas, and returns the first of each. No id is
// handed out twice; after an error some may be lost. This store must lead meta; another one has to ask it.
func (g *Group) Allocate(ctx context.Context, regions, replicas int) (got Allocated, err error) {
	data, err := g.propose(ctx, &change{Allocate: &allocate{Regions: regions, Replicas: replicas}})
	if err == nil && data == nil {
		err = errors.New("refused") // see change.apply
	}
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		return Allocated{}, fmt.Errorf("meta: allocate %d regions, %d replicas: %w", regions, replicas, err)
	}
	return got, nil
}

// Propose puts what a report says on the map, as far as the map does not know better by then. This store must lead
// meta. While another call is at work, Propose returns nil at once: the next heartbeat finds what the map then still
// lacks.
func (g *Group) Propose(ctx context.Context, r *RegionReport) error {
	if !g.work.proposing.CompareAndSwap(false, true) {
		return nil
	}
	defer g.work.proposing.Store(false)
	_, err := g.propose(ctx, &change{Report: r})
	return err
}

func (g *Group) propose(ctx context.Context, c *change) (data []byte, err error) {
	cmd, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("meta: encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	result, err := g.raft.ProposeAndWait(ctx, cmd)
	return result.Data, err
}

// change is an entry of meta's log: exactly one field is set, or none in an entry that is but a barrier.
type change struct {
	Bootstrap *Map          `json:"bootstrap,omitempty"`
	Allocate  *allocate     `json:"allocate,omitempty"`
	Report    *RegionReport `json:"report,omitempty"`
	Window    *WindowChange `json:"window,omitempty"`
	Store     *StoreChange  `json:"store,omitempty"`
	Wipe      *WipeChange   `json:"wipe,omitempty"`
}

// allocate asks for so many ids, Allocated has the first of each.
type (
	allocate struct {
		Regions  int `json:"regions"`
		Replicas int `json:"replicas"`
	}
	Allocated struct {
		Region  topology.RegionID  `json:"region"`
		Replica topology.ReplicaID `json:"replica"`
	}
)

// maxAllocate bounds how many ids one change hands out; maxID bounds ids. So the next ids never overflow.
const (
	maxAllocate = 1 << 20
	maxID       = 1 << 62
)

// apply returns the map after the change, m itself if it has no effect; m stays as it was. data is the answer to the
// proposer; there is none to an allocation that is refused, because there is no map or because it asks for no number of
// ids from 0 to maxAllocate, nor to a change of a window, a store or a wipe of no map.
func (c *change) apply(m *Map) (after *Map, data []byte) {
	switch a := c.Allocate; {
	case c.Bootstrap != nil && m.Version == 0:
		next := *c.Bootstrap
		next.Version = 1
		return &next, nil
	case a != nil && m.Version != 0 && min(a.Regions, a.Replicas) >= 0 && max(a.Regions, a.Replicas) <= maxAllocate:
		got := Allocated{Region: m.NextRegion, Replica: m.NextReplica}
		if got.Region >= maxID || got.Replica >= maxID {
			break
		}
		next := *m // no store looks at the next ids, so none is to be told
		next.NextRegion = got.Region + topology.RegionID(a.Regions)
		next.NextReplica += topology.ReplicaID(a.Replicas)
		data, err := json.Marshal(got)
		if err != nil {
			panic(err)
		}
		return &next, data
	case c.Report != nil:
		after, _ = m.take(c.Report.Regions)
		return after, nil
	case c.Store != nil && m.Version != 0:
		stores, changed, got := c.Store.apply(m)
		data, err := json.Marshal(got)
		if err != nil {
			panic(err)
		}
		if !changed {
			return m, data
		}
		next := *m
		next.Version++
		next.Stores = stores
		return &next, data
	case c.Window != nil && m.Version != 0:
		windows, changed, got := c.Window.apply(m)
		data, err := json.Marshal(got)
		if err != nil {
			panic(err)
		}
		if !changed {
			return m, data
		}
		next := *m
		next.Version++
		next.Windows = windows
		return &next, data
	case c.Wipe != nil && m.Version != 0:
		wipes, changed, got := c.Wipe.apply(m)
		data, err := json.Marshal(got)
		if err != nil {
			panic(err)
		}
		if !changed {
			return m, data
		}
		next := *m
		next.Version++
		next.Wipes = wipes
		return &next, data
	}
	return m, nil
}

// metaMachine is the meta group's state machine on disk; see records.go.
type metaMachine struct {
	o       Options
	current atomic.Pointer[Map]
}

// Open implements multiraft.Machine.
func (m *metaMachine) Open(<-chan struct{}) (uint64, error) {
	s, err := readState(m.o.Engine)
	if err == nil && s.m != nil {
		m.current.Store(s.m)
	}
	return s.index, err
}

// ApplyIndex returns the meta group's apply index that the engine has, 0 if it has none.
func ApplyIndex(e *engine.Engine) (uint64, error) {
	s, err := readState(e)
	return s.index, err
}

// Update implements multiraft.Machine.
func (m *metaMachine) Update(entries []multiraft.Entry) ([]multiraft.Entry, error) {
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
		var data []byte
		next, data = c.apply(next)
		entries[i].Result = multiraft.Result{Value: next.Version, Data: data}
	}
	if err := m.commit(next, entries[len(entries)-1].Index); err != nil {
		m.o.Fence(fmt.Errorf("meta: %w", err))
	}
	return entries, nil
}

// commit makes next the map, and index the apply index.
func (m *metaMachine) commit(next *Map, index uint64) error {
	b := m.o.Engine.NewBatch()
	if err := writeState(b, m.current.Load(), next, index); err != nil {
		b.Close()
		return err
	}
	if err := b.Commit(false); err != nil {
		return err
	}
	m.current.Store(next)
	m.o.Changed()
	return nil
}

// Lookup implements multiraft.Machine.
func (m *metaMachine) Lookup(any) (any, error) { return m.current.Load(), nil }

// Sync implements multiraft.Machine.
func (m *metaMachine) Sync() error {
	if m.o.Failed() != nil {
		return nil
	}
	return m.o.Engine.Sync()
}

// maxStateBytes bounds the meta group's snapshot.
const maxStateBytes = 64 << 20

// PrepareSnapshot implements multiraft.Machine: it returns the state in one piece, which is small.
func (m *metaMachine) PrepareSnapshot() (any, error) {
	if m.o.Failed() != nil {
		return []byte(nil), nil
	}
	s, err := readState(m.o.Engine)
	if err != nil {
		m.o.Fence(fmt.Errorf("meta: prepare a snapshot: %w", err))
	}
	if err != nil || s.m == nil {
		return []byte(nil), nil
	}
	return encodeState(s.index, s.m)
}

// SaveSnapshot implements multiraft.Machine. A snapshot is [state][CRC-32C of it u32]; its map has
// the regions.
func (m *metaMachine) SaveSnapshot(prepared any, w io.Writer, _ <-chan struct{}) error {
	value := prepared.([]byte)
	if m.o.Failed() != nil {
		return multiraft.ErrSnapshotAborted
	}
	sum := crc32.Checksum(value, crc32.MakeTable(crc32.Castagnoli))
	_, err := w.Write(binary.BigEndian.AppendUint32(value, sum))
	return err // dragonboat's own error
}

// RecoverFromSnapshot implements multiraft.Machine. A damaged snapshot fences the store and changes nothing.
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
	next, err := parseState(value)
	if err != nil {
		return err
	}
	return m.commit(next.m, next.index)
}

// Close implements multiraft.Machine.
func (m *metaMachine) Close() error { return nil }

// deadAfter is how many heartbeats a store may miss before it counts as dead.
const deadAfter = 3

// Beat is a store's heartbeat to meta's leader.
type Beat struct {
	Store      topology.StoreID `json:"store"`
	Host       string           `json:"host"` // the address that Redis clients are told
	Port       int              `json:"port"`
	Replica    int              `json:"replica_port,omitempty"` // see route.PublicStore
	MapVersion uint64           `json:"map_version"`            // of the store's map; the answer has a newer one if there is one
	Leads      Leads            `json:"leads"`
	Full       bool             `json:"full,omitempty"` // the store's disk has less space left than the reserve
	Free       int64            `json:"free,omitempty"` // bytes that the store's disk has beyond the reserve; 0: not known
	// Regions are the regions of which the store knows more than its map has: those that it leads, as it has applied
	// them, and any others of which it has a replica, so that parent and child of a split come together. A store sends
	// them with each heartbeat until the map has them.
	Regions []topology.Region `json:"regions,omitempty"`
	Loads   []LedLoad         `json:"loads,omitempty"` // of regions that the store leads
}

// LedLoad is how much a region has and does, as its leader measures it.
type LedLoad struct {
	Region   topology.RegionID `json:"region"`
	Changing bool              `json:"changing,omitempty"` // a split or a merge of it is open
	schedule.RegionLoad
}

// HeardLoad is a LedLoad and the store that has sent it.
type HeardLoad struct {
	LedLoad
	Store topology.StoreID
}

// Lead says that a store serves a region in a term.
type Lead struct {
	Region topology.RegionID
	Store  topology.StoreID
	Term   uint64
}

// Leads has a compact text, since each store sends its own every second and gets those of all: region, store and term
// of each as unsigned varints, in base64.
type Leads []Lead

func (l Leads) MarshalText() ([]byte, error) {
	b := make([]byte, 0, 5*len(l))
	for _, x := range l {
		b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, uint64(x.Region)), uint64(x.Store)), x.Term)
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

func (l *Leads) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("leads: %w", err)
	}
	*l = nil
	for len(b) > 0 {
		var x [3]uint64
		for i := range x {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return errors.New("leads do not decode")
			}
			x[i], b = v, b[n:]
		}
		*l = append(*l, Lead{Region: topology.RegionID(x[0]), Store: topology.StoreID(x[1]), Term: x[2]})
	}
	return nil
}

// ClusterView is the answer of meta's leader to a heartbeat. It also sends one to all stores when something has
// changed.
type ClusterView struct {
	Map    *Map     `json:"map,omitempty"` // set if it is newer than that of the store that asks
	Stores []Status `json:"stores"`
	Leads  Leads    `json:"leads"`
}

// Status is what meta's leader knows of a store.
type Status struct {
	ID      topology.StoreID `json:"id"`
	Host    string           `json:"host"`
	Port    int              `json:"port"`
	Replica int              `json:"replica_port,omitempty"`
	Alive   bool             `json:"alive"`
	Full    bool             `json:"full,omitempty"` // as it said last
}
