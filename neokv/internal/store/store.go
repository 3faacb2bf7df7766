// Package store is one store, a logical node: a Raft host, an engine, and replicas of many regions. Every second a
// store tells meta's leader what it has and leads, and learns the cluster map from it. It publishes the slot table by
// which its server routes commands.
package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/janitor"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/placement"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// Heartbeat is how often a store reports to meta's leader.
const Heartbeat = time.Second

// Options of a store.
type Options struct {
	ID       topology.StoreID
	FS       *disk.FS
	Dir      string
	WALDir   string // of the engine, empty to keep its log in Dir
	Network  *transport.Network
	Settings settings.Settings
	// Host and Port are the address that Redis clients are told.
	Host string
	Port int
	// ReplicaPort is that of the second address, 0 if there is none: see route.PublicStore.
	ReplicaPort int
	// Founders is with how many stores the cluster began: the first of them have meta's replicas. 0 stands for those of
	// Settings.
	Founders int
	// Cluster is the identity of the cluster to which the folder belongs. Initial is the map that meta's leader
	// proposes if the cluster has none.
	Cluster [16]byte
	Initial *meta.Map
	// Known says that the store has taken part in the cluster before: there must be a database in its folder. Otherwise
	// the cluster must never have served, since an empty folder then becomes that of a voter in the first regions.
	Known bool
	// Wiped says which wipe of the store its folder is of. A store whose folder is empty begins with no replica.
	Wiped disk.Wiped
	// Admit is called when the store has read what it needs of its folder, before it takes part in anything. If it
	// returns an error, Open does, too. nil: not called.
	Admit func() error
	// Booting says that all stores of the cluster start now. No leader can hold a lease then, so the store that should
	// lead a region campaigns at once.
	Booting bool
	// Absent reports, once Admit has returned, whether a store does not start with the others. nil: all do.
	Absent func(topology.StoreID) bool
	Rand   *rand.Rand
	Seed   uint64 // of the random choices of reads
	// ClockAhead returns how far the store's clock is ahead of the machine's, negative if behind. nil: they agree.
	ClockAhead func() time.Duration
	// Pinned reports whether a region stays with the leader that it has: see home.go. It must not block. nil: none
	// does.
	Pinned func(topology.RegionID) bool
	// OnScriptLog gets what scripts log for clients of this store, at a level from debug, 0, to warning, 3. It must not
	// block. nil: nobody does.
	OnScriptLog func(level int, text string)
	// OnMessage gets what clients of other stores have published. It must not block, and keeps neither slice. nil:
	// nobody does.
	OnMessage func(shard bool, channel, payload []byte)
	// Listener, if it is not nil, hears what the store's replicas do to keys while they serve.
	Listener region.Listener
	// OnServe is called when the store's replica of a region begins to serve as its leader. It must not block. nil: not
	// called.
	OnServe func(r topology.RegionID, term uint64)
	// OnChange is called with what the store has to tell of a split or a merge, or of why there is none. It must not
	// block. nil: not called.
	OnChange func(text string)
	// OnFail is called once, with the reason, when the store fails. It must not block.
	OnFail   func(error)
	Mistakes Mistakes
	Hooks    region.Hooks // of the replicas
}

// Mistakes are errors in the logic of a store that a test plants, to see that a checker finds them. None by default.
type Mistakes struct {
	Log        multiraft.Mistakes
	Region     region.Mistakes
	Janitor    janitor.Mistakes
	Transport  transport.Mistakes
	EarlyMerge bool // a merge does not wait until all replicas of the right region are frozen
	// UnsyncedFreeze: a merge does not wait until the freeze is durable everywhere.
	UnsyncedFreeze bool
	// EarlyEnd: a merge ends when all stores have applied it, durably or not.
	EarlyEnd bool
	// StubbornMerge: a merge asks no disk how long it takes, and may be tried again however long it has held clients.
	StubbornMerge bool
	AnyJoin       bool // a store joins a region whose slots another of its replicas has
	StaleRemoval  bool // a replica is destroyed by a map that is older than its reservation
	AnyReturn     bool // a map of before its removal brings a replica back
	// CountNonVoters: a move takes a non-voter for a voter.
	CountNonVoters bool
	// EarlyMoveEnd: a move ends before its last change of the members.
	EarlyMoveEnd bool
	RepeatBatch  bool // published messages of which no other store has told that it has them are sent again
}

// Store is a running store. It is the door to its parts: each has its own state, and its doc comment says which
// goroutine and which lock guard that. A part knows only parts that stand above it here; to wake one below, it rings a
// bell of core. All methods may run concurrently, but for Close.
type Store struct {
	core
	records    records
	replicas   replicaSet
	space      space
	meta       metaMember
	cluster    clusterMap
	progress   progress
	leadership leadership
	homes      homes
	watch      spaceWatch
	bus        bus
	scripts    scripts
	audit      audit
	drivers    drivers
	stepCalls  stepCalls
	steps      steps
	changes    changes
	moves      moves
	orders     orders
	loads      loads
	placement  placing
	plans      plans
	windows    windows
	wipes      wipes
	heartbeat  heartbeat
	slots      slots
	counters   regionCounters
	keeper     keeper
	calls      calls
	janitor    *janitor.Janitor // nil until Open has started it
}

// engineDir and raftDir are the folders of the engine and of the Raft library within the store's folder.
const (
	engineDir = "engine"
	raftDir   = "raft"
)

// Places returns the folders of a store. dir and walDir are its Options.Dir and Options.WALDir.
func Places(dir, walDir string) disk.Places {
	p := disk.Places{Store: dir, Engine: filepath.Join(dir, engineDir), Logs: walDir}
	if walDir == "" {
		p.Logs = p.Engine
	}
	return p
}

// newStore returns a store whose parts know each other, and of which nothing runs yet.
func newStore(o Options) *Store {
	s := new(Store)
	c := &s.core
	o.Founders = cmp.Or(o.Founders, o.Settings.Cluster.Stores)
	c.o, c.reporting, c.tending = o, newBell(), newBell()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	s.records = records{c}
	s.replicas.now.Store(&Replicas{})
	s.space = space{core: c}
	s.meta = metaMember{core: c, last: 1}
	s.cluster.init(c, &s.records, &s.replicas, &s.space)
	s.progress = progress{core: c, replicas: &s.replicas, meta: &s.meta, cluster: &s.cluster,
		syncing: make(chan struct{}, 1)}
	s.leadership = leadership{core: c, replicas: &s.replicas, meta: &s.meta, cluster: &s.cluster, progress: &s.progress}
	s.homes = homes{core: c, replicas: &s.replicas, space: &s.space, cluster: &s.cluster, leadership: &s.leadership,
		away: make(map[topology.RegionID]*awayRegion)}
	s.watch = spaceWatch{core: c, replicas: &s.replicas, space: &s.space, cluster: &s.cluster, leadership: &s.leadership}
	s.bus.open(c, &s.cluster)
	s.scripts = scripts{core: c, cluster: &s.cluster}
	s.audit = audit{core: c, replicas: &s.replicas, cluster: &s.cluster}
	s.stepCalls = stepCalls{core: c, replicas: &s.replicas, cluster: &s.cluster, drivers: &s.drivers}
	s.steps = steps{core: c, replicas: &s.replicas, progress: &s.progress, drivers: &s.drivers, stepCalls: &s.stepCalls}
	s.changes = changes{core: c, records: &s.records, replicas: &s.replicas, meta: &s.meta, cluster: &s.cluster,
		progress: &s.progress, drivers: &s.drivers, stepCalls: &s.stepCalls, steps: &s.steps}
	s.moves = moves{core: c, replicas: &s.replicas, cluster: &s.cluster, meta: &s.meta, progress: &s.progress,
		leadership: &s.leadership, drivers: &s.drivers, stepCalls: &s.stepCalls}
	s.orders = orders{core: c, replicas: &s.replicas, changes: &s.changes, moves: &s.moves,
		queue: make(chan schedule.Order, 1), places: make(chan placement.Order, 1)}
	s.loads = loads{core: c, records: &s.records, replicas: &s.replicas}
	if o.Settings.Region.SplitLoad > 0 {
		s.loads.sampler = new(schedule.SlotSampler)
	}
	s.placement = placing{core: c, meta: &s.meta, cluster: &s.cluster, orders: &s.orders}
	s.plans = plans{core: c, cluster: &s.cluster, orders: &s.orders, placement: &s.placement}
	s.windows = windows{core: c, cluster: &s.cluster}
	s.wipes = wipes{core: c, meta: &s.meta, progress: &s.progress}
	s.heartbeat = heartbeat{core: c, replicas: &s.replicas, space: &s.space, meta: &s.meta, cluster: &s.cluster,
		loads: &s.loads, plans: &s.plans, windows: &s.windows, wipes: &s.wipes}
	s.slots = slots{core: c, records: &s.records, replicas: &s.replicas, space: &s.space, cluster: &s.cluster,
		ending: make(map[topology.RegionID]bool)}
	s.counters.regions = make(map[topology.RegionID]*region.Counters)
	s.keeper = keeper{core: c, records: &s.records, replicas: &s.replicas, cluster: &s.cluster,
		leadership: &s.leadership, changes: &s.changes, moves: &s.moves, slots: &s.slots, counters: &s.counters,
		sampler: s.loads.sampler, scriptTurn: make(chan struct{}, max(1, runtime.NumCPU()/2))}
	s.calls = calls{core: c, space: &s.space, meta: &s.meta, cluster: &s.cluster, progress: &s.progress,
		leadership: &s.leadership, homes: &s.homes, bus: &s.bus, scripts: &s.scripts, audit: &s.audit,
		stepCalls: &s.stepCalls, orders: &s.orders, placement: &s.placement, heartbeat: &s.heartbeat, slots: &s.slots,
		replicas: &s.replicas}
	return s
}

// Open opens the store's folder and starts its replicas.
func Open(o Options) (s *Store, err error) {
	s = newStore(o)
	s.counters.disk = o.FS.Stats()
	s.raft = multiraft.New(multiraft.Options{
		Store: o.ID, FS: o.FS, Dir: o.FS.PathJoin(o.Dir, raftDir), Knobs: o.Settings.Raft,
		Sync: o.Settings.Engine.WALSync == "always", Applied: s.records.applied, Failed: o.FS.Failed, Fence: o.FS.Fence,
		LeaderChanged: s.leadership.leaderChanged, Mistakes: o.Mistakes.Log,
	})
	// The endpoint and the fence come first: from here on the disk may fail at any moment, and they then cut the store
	// off.
	s.endpoint = o.Network.NewEndpoint(transport.Options{
		Store: o.ID, Lease: o.Settings.Raft.Lease(), CommitInterval: o.Settings.Raft.RTT, Booting: o.Booting,
		Saved: s.raft.Saved, SnapshotRate: int64(o.Settings.Region.MoveRate),
		Tick: o.Settings.Raft.RTT, ElectionTicks: o.Settings.Raft.ElectionTicks,
		HeartbeatTicks: multiraft.HeartbeatTicks(o.Settings.Raft),
		Stalled:        s.raft.Stalled, Revoke: s.replicas.revoke, Forwarded: s.replicas.forwarded,
		Handle: s.calls.handle, Drops: s.calls.drops, Mistakes: o.Mistakes.Transport,
	})
	o.FS.OnFence(s.keeper.fenced)
	defer func() {
		if err != nil {
			if cause := o.FS.Failed(); cause != nil { // it names the file; err may be what followed from that
				err = cause
			}
			err = fmt.Errorf("store %d: %w", o.ID, err)
			s.Close()
			s = nil
		}
	}()
	s.engine, err = engine.Open(engine.Options{
		Dir: o.FS.PathJoin(o.Dir, engineDir), WALDir: o.WALDir, MustExist: o.Known, FS: o.FS, Knobs: o.Settings.Engine,
		Stores: o.Settings.Cluster.Stores, Nth: (int(o.ID) - 1) % o.Settings.Cluster.Stores, Fatal: o.FS.Fence,
	})
	if err == nil {
		err = o.FS.Failed() // a write failed meanwhile, and no call has returned that error
	}
	if err != nil {
		return s, err
	}
	forJanitor := rand.New(rand.NewPCG(o.Rand.Uint64(), o.Rand.Uint64())) // now, while nobody else draws from o.Rand
	known, err := s.records.identify()
	if err != nil {
		return s, err
	}
	cached, err := s.records.keptMap()
	switch {
	case err == nil && !known && o.Known:
		err = fmt.Errorf("folder %s: the database lacks the store's identity", o.Dir)
	case err == nil && !known:
		err = s.records.found()
	}
	if err != nil {
		return s, err
	}
	if cached != nil {
		s.cluster.begin(cached)
	}
	all, err := s.records.owned()
	if err != nil {
		return s, err
	}
	s.watch.look()
	s.raft.OpenLog(s.engine)
	if err := s.keeper.checkLogs(all); err != nil {
		return s, err
	}
	if o.Admit != nil {
		if err := o.Admit(); err != nil {
			return s, err
		}
	}
	if err := s.raft.Start(s.endpoint); err != nil {
		return s, err
	}
	if err := s.meta.start(); err != nil {
		return s, err
	}
	s.leadership.campaignForMeta()
	if err := s.keeper.removeLogs(all); err != nil {
		return s, err
	}
	if err := s.keeper.startAll(all); err != nil {
		return s, err
	}
	if err := o.FS.Failed(); err != nil {
		return s, err
	}
	s.slots.left.Store(true)
	s.wg.Go(s.heartbeat.run)
	s.wg.Go(s.keeper.run)
	s.wg.Go(s.orders.run)
	s.wg.Go(s.leadership.bridgeStalls)
	s.wg.Go(s.watch.run)
	if o.Settings.Raft.LeaderReturn > 0 {
		s.wg.Go(s.homes.run)
	}
	s.janitor = janitor.Start(s.ctx, janitor.Options{
		Knobs: o.Settings.Redis, Engine: s.engine, Rand: forJanitor, Failed: o.FS.Failed, Fence: o.FS.Fence,
		Replicas: func() map[topology.RegionID]*region.Replica { return s.replicas.all() },
		Mistakes: o.Mistakes.Janitor,
	})
	return s, nil
}

// Close stops the store and returns when all its goroutines have ended. The caller must have cut off its clients
// before.
func (s *Store) Close() error {
	s.leave()
	replicas := s.replicas.all()
	for _, r := range replicas {
		r.Stop()
	}
	if s.janitor != nil {
		s.janitor.Join()
	}
	s.raft.Close()
	for _, r := range replicas {
		r.Join()
	}
	s.endpoint.Close()
	if s.engine == nil {
		return nil
	}
	err := s.engine.Close()
	if err == nil && s.o.FS.Failed() == nil {
		err = s.o.FS.Seal()
	}
	return err
}

// ID returns the store's number.
func (s *Store) ID() topology.StoreID { return s.o.ID }

// Replica returns the store's replica of a region, nil if it has none. It takes no lock.
func (s *Store) Replica(id topology.RegionID) *region.Replica { return s.replicas.get(id) }

// Replicas returns the store's replicas, as of now, in a map of the caller's own.
func (s *Store) Replicas() Replicas { return maps.Clone(s.replicas.all()) }

// Table returns the present slot table, nil before there is one. It takes no lock.
func (s *Store) Table() *route.Table { return s.cluster.Table() }

// Changed returns a channel that the store closes after it has published a newer table. A caller that gets the channel
// first and then the table misses no table. The channel may close although the caller already has the newest table.
func (s *Store) Changed() <-chan struct{} { return s.cluster.Changed() }

// SetActiveExpire switches the background deletion of expired keys on or off. It is on at first. No client sees an
// expired key in either case.
func (s *Store) SetActiveExpire(on bool) { s.janitor.SetActiveExpire(on) }

// Flush writes the memtables to tables, and waits until they are written. With settle it also compacts L0, and waits
// until no compaction is under way or due.
func (s *Store) Flush(ctx context.Context, settle bool) error {
	if settle {
		return s.whileOpen(ctx, s.engine.Settle)
	}
	return s.whileOpen(ctx, s.engine.FlushAll)
}

// Outdated reports whether the store knows more of a slot than an entry of its slot table says, so that no client is to
// be redirected by it.
func (s *Store) Outdated(slot topology.Slot, r *route.LedRegion) bool {
	return s.cluster.outdated(slot, r)
}

// Replicated returns how many stores beside a region's leader have applied the entry at index, 0 if this store knows of
// no leader. It counts those that answer before ctx ends.
func (s *Store) Replicated(ctx context.Context, id topology.RegionID, index uint64) int {
	return s.progress.replicated(ctx, id, index)
}

// AwaitReplicas waits until all other replicas of the regions that this store leads have applied what it has applied
// when AwaitReplicas begins.
func (s *Store) AwaitReplicas(ctx context.Context) error { return s.whileOpen(ctx, s.progress.await) }

// Transfer asks Raft to hand the leadership of a region from this store to another. Raft may ignore the request, so the
// caller checks and asks again.
func (s *Store) Transfer(id topology.RegionID, to topology.StoreID) error {
	return s.leadership.transfer(id, to)
}

// Publish sends a message to the clients of all other stores. It does not wait, and keeps neither slice. shard says
// that it is one of SPUBLISH, for the clients of the store that serves the channel's slot.
func (s *Store) Publish(shard bool, channel, payload []byte) { s.bus.publish(shard, channel, payload) }

// Scripts are the scripts that were loaded at this store.
func (s *Store) Scripts() *lua.Scripts { return &s.scripts.loaded }

// FindScript asks all other stores for a script and keeps it. It returns nil if none has it, as far as they answer.
func (s *Store) FindScript(sha string) *lua.Script { return s.scripts.find(sha) }

// Compare makes every replica of a region sum up at the same apply index, and returns the checksums. A replica that
// passes the index by installing a snapshot has none, nor has one whose store does not answer. Compare fails if the
// region has no leader within redis.leaderless_wait. It returns region.ErrNone if this store knows no such region, or
// if a merge has ended the region before its replicas had summed up.
func (s *Store) Compare(ctx context.Context, id topology.RegionID) (region.Comparison, error) {
	return s.audit.compare(ctx, id)
}

// Split splits a region, which this store must lead, so that a new region has its slots from at on. If at is 0, the
// split halves what the region has in tables. Split returns the new region when that has taken its first entry, or at
// the latest when ctx ends. home is the store that is to lead the new region, 0 for the one that is the home of the
// fewest regions. A reason, if there is one, has the store tell of the split.
func (s *Store) Split(ctx context.Context, id topology.RegionID, at topology.Slot, home topology.StoreID,
	reason string) (child topology.Region, err error) {
	return s.changes.split(ctx, id, at, home, reason)
}

// Merge merges a region's right neighbour into it, and returns that one. This store must lead the region. A reason,
// if there is one, has the store tell of the merge. Merge adds to held how long it has held the clients of the right
// region in vain. Its error is ErrAgain only if another attempt of the same command fits into mostHeld.
func (s *Store) Merge(ctx context.Context, left topology.RegionID, reason string,
	held *time.Duration) (right topology.RegionID, err error) {
	return s.changes.merge(ctx, left, reason, held)
}

// Move has a region's replica on one store give way to one on another. This store must lead the region. With from 0
// the region gets one more replica, with to 0 one less. Move returns when the move is over, or has been called off, or
// with ErrAgain when another store leads. If ctx ends, the move goes on. If the replicas are so already, nothing is
// done.
func (s *Store) Move(ctx context.Context, id topology.RegionID, from, to topology.StoreID) error {
	return s.moves.move(ctx, id, from, to)
}

// Failed returns why the store has failed, nil while it has not.
func (s *Store) Failed() error { return s.failed() }

// Full returns why the store takes no more writes, "" while it does.
func (s *Store) Full() string { return s.space.why() }

// Engine returns the store's engine, for tests to inspect.
func (s *Store) Engine() *engine.Engine { return s.engine }

// AtMeta is what the leader of meta does for callers of any store.
type AtMeta struct {
	meta      *metaMember
	placement *placing
}

// Meta asks the leader of meta.
func (s *Store) Meta() AtMeta { return AtMeta{&s.meta, &s.placement} }

// ChangeMap changes a window, a store or a wipe of the map. It returns the id, or which wipe of the store it is.
func (x AtMeta) ChangeMap(ctx context.Context, c meta.MapChange) (id uint64, err error) {
	return x.meta.change(ctx, c)
}

// Unplaced says what of the replicas of stores that drain or are gone cannot move, if this store leads meta.
func (x AtMeta) Unplaced() []string { return x.placement.unplaced() }

// Plan returns where meta's leader would have replicas and homes.
func (x AtMeta) Plan(ctx context.Context) (PlacementPlan, error) { return x.placement.ask(ctx) }
