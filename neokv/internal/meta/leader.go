package meta

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// This file has the work of meta's leader that is not in the log. The leader proposes the map of a new cluster, takes
// the heartbeats of stores, and decides what to tell which store and what to propose. The store sends the messages. It
// calls Serve once per interval and whenever something has changed, Hear for each heartbeat of another store, and
// Resign when another store leads. While it is not Followed, it does none of that but Hear. If Serve or Hear returns a
// report, it calls Propose, in a goroutine, since that waits.

// leaderWork is what meta's leader keeps in memory.
type leaderWork struct {
	mu        sync.Mutex
	directory *directory // nil while another store leads, as far as Raft has told
	untold    bool       // the directory has news that Serve has not returned yet

	proposing atomic.Bool // see Propose
	joining   atomic.Bool // see Join
}

// heard returns the directory. A new leader begins with an empty one. The caller holds mu.
func (g *Group) heard(now time.Time) *directory {
	if g.work.directory == nil {
		g.work.directory = newDirectory(g.machine.o.Interval, now)
	}
	return g.work.directory
}

// EnsureMap proposes Options.Initial if the cluster has no map.
func (g *Group) EnsureMap(ctx context.Context) error {
	if g.Map().Version != 0 || g.machine.o.Initial == nil {
		return nil
	}
	return g.Bootstrap(ctx, g.machine.o.Initial)
}

// Serve takes the heartbeat of the leader's own store. mine is the view for that store. If there is news, tell lists
// the other stores, and all is the view for each of them. report is what the map lacks of what stores have reported so
// far, nil if it lacks nothing.
func (g *Group) Serve(own Beat, now time.Time) (
	mine, all ClusterView, tell []topology.StoreID, report *RegionReport) {
	m := g.Map()
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	d := g.heard(now)
	news := d.Hear(own, m, now)
	report = d.News(m)
	news = d.Expire(m.Stores, now) || news || g.work.untold || m.Version > own.MapVersion
	g.work.untold = false
	mine = d.View(m, own.MapVersion)
	if !news {
		return mine, all, nil, report
	}
	for _, s := range m.Stores {
		if s.ID != own.Store && s.State != Gone {
			tell = append(tell, s.ID)
		}
	}
	return mine, d.View(m, 0), tell, report
}

// Hear takes the heartbeat of another store and returns the view for that store. news says that the other stores should
// be told: the next Serve lists them. report is as that of Serve.
func (g *Group) Hear(b Beat, now time.Time) (told ClusterView, report *RegionReport, news bool) {
	m := g.Map()
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	if int(b.Store) <= g.machine.o.Members && !g.followed(m, now) {
		g.work.directory = nil // followers come back, and all get time to
	}
	d := g.heard(now)
	news = d.Hear(b, m, now)
	g.work.untold = g.work.untold || news
	return d.View(m, b.MapVersion), d.News(m), news
}

// Followed reports whether this replica, which Raft calls the leader, hears of those that should follow it. If not,
// they may have another leader, of which a replica does not learn while its disk hangs. It then has nothing to tell
// anybody: what it would take for silent stores are stores that talk to the other leader. A leader that begins gets
// time to hear of them.
func (g *Group) Followed(now time.Time) bool {
	m := g.Map()
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	return g.followed(m, now)
}

// followed is Followed while the caller holds mu.
func (g *Group) followed(m *Map, now time.Time) bool {
	d := g.work.directory
	return d == nil || m.Version == 0 || d.Followed(g.machine.o.Store, g.machine.o.Members, now)
}

// Loads returns the last load of each region on the map that stores have sent to this replica since it leads, by
// region.
func (g *Group) Loads() []HeardLoad {
	m := g.Map()
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	if g.work.directory == nil {
		return nil
	}
	return g.work.directory.Loads(m)
}

// HeardStore is how a store is, by its heartbeats.
type HeardStore struct {
	ID       topology.StoreID
	Draining bool
	Full     bool
	Free     int64 // Beat.Free
	// Silent is for how long nothing has been heard of a store that is dead, or of which this leader has heard nothing
	// yet; 0 of all others.
	Silent time.Duration
}

// Heard returns how the stores are that the cluster has now, in the order of the map.
func (g *Group) Heard(now time.Time) []HeardStore {
	m := g.Map()
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	return g.heard(now).Heard(m, now)
}

// Resign forgets the heartbeats, since another store leads.
func (g *Group) Resign() {
	g.work.mu.Lock()
	defer g.work.mu.Unlock()
	g.work.directory = nil
}
