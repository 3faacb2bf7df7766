// Package cluster is a cluster in one process: its stores, their ports, the network between them, what is done to them
// on purpose, and the data folder. Package neokv is the façade by which programs use it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// ErrClosed says that the cluster is closed, or closes.
var ErrClosed = errors.New("the cluster is closed")

// Config says what to boot. Fields that have no comment are those of neokv.Config.
type Config struct {
	Stores, Replicas, Regions int
	Dir                       string
	InMemory                  bool
	From                      *Image
	Discard                   bool
	Rebuild                   int
	NoSockets                 bool
	Bind                      string
	Port, ProxyPort           int
	Settings                  *settings.Settings
	Seed                      uint64
	OnEvent                   func(kind, text string) // kind is that of a neokv.ClusterEvent
	Progress                  func(string)
	Version                   string // of NeoKV, as INFO names it
}

// Cluster is a running cluster. It is the door to its parts: each has its own state, and its doc comment says what
// guards that. A part knows only parts that stand above it here. The places of the stores call the servers, which stand
// below, by functions that they were given. All methods may run concurrently.
type Cluster struct {
	core
	notices    notices
	shared     shared
	pins       pins
	boots      boots
	journal    journal
	places     placeSet
	regions    regions
	leaders    leaders
	changes    changes
	power      power
	migrations migrations
	wipes      wipes
	backups    backups
	table      proxyTable
	info       info
	servers    servers
	links      links
	refusals   refusals
	members    members
	faults     faults
	boot       boot

	bootTime time.Duration
	close    sync.Once
	closeErr error
}

// Start boots a cluster. It returns when the cluster serves: see neokv.Start. An error leaves nothing running, and
// lists all that is wrong with config.
func Start(ctx context.Context, config Config, hooks *seam.Hooks) (*Cluster, error) {
	begin := time.Now()
	c, err := open(config, hooks)
	if err != nil {
		return nil, err
	}
	if err := c.boot.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.wg.Go(c.members.run)
	c.bootTime = time.Since(begin)
	c.wg.Go(func() { c.wipes.run(topology.StoreID(config.Rebuild)) })
	c.event(eventCluster, "the cluster serves, %s after its start", c.bootTime.Round(time.Millisecond))
	return c, nil
}

// open checks the configuration and opens the data folder. The cluster that it returns has not started. The error lists
// all that is wrong with the configuration; the folder is opened only if nothing is.
func open(config Config, hooks *seam.Hooks) (_ *Cluster, err error) {
	s := settings.Default()
	if config.Settings != nil {
		s = *config.Settings
	}
	if config.Bind == "" {
		config.Bind = "127.0.0.1"
	}
	for config.Seed == 0 {
		config.Seed = rand.Uint64()
	}
	var wrong []error
	if config.From != nil {
		if s, err = config.checkFrom(hooks); err != nil {
			return nil, err
		}
		config.InMemory = true
	}
	if err := CheckBind(config.Bind, s.Redis); err != nil {
		wrong = append(wrong, fmt.Errorf("bind %s: %w", config.Bind, err))
	}
	if config.Dir == "" {
		wrong = append(wrong, CheckNoDir(s.Engine))
	} else if config.InMemory {
		wrong = append(wrong, fmt.Errorf("folder %s: a cluster in memory has none", config.Dir))
	}
	c := &Cluster{
		core: core{config: config, hooks: hooks, rand: rand.New(rand.NewPCG(config.Seed, 1)), closing: make(chan struct{})},
	}
	c.notices = notices{core: &c.core, unknown: make(map[string]bool), kept: make(map[string]bool)}
	if config.From != nil {
		c.advanced.Store(int64(config.From.advanced))
	}
	asked := settings.ClusterKnobs{Stores: config.Stores, Replicas: config.Replicas, Regions: config.Regions}
	if config.InMemory || errors.Join(wrong...) != nil {
		s.Cluster = shape(asked, s.Cluster)
	} else {
		f, err := openFolder(vfs.Default, config.Dir, asked, s, config.Discard, c.random128)
		if err != nil {
			return nil, err
		}
		c.folder, s.Cluster, s.Engine.WALDir, c.roster = f, f.shape, f.walDir, f.roster
		if f.coming > 0 {
			c.roster.Founders = f.roster.founders(f.shape.Stores)
			s.Cluster.Stores += f.coming
		}
	}
	if config.From != nil {
		c.roster = config.From.roster
	}
	c.settings = s
	if err := s.Validate(); err != nil {
		wrong = append(wrong, err)
	} else {
		c.announce = announce.Parse(announce.Settings{Announce: s.Redis.ClusterAnnounce,
			Hostname: s.Redis.ClusterAnnounceHostname, PreferredEndpointType: s.Redis.ClusterPreferredEndpointType,
			Stores: c.row(), Addresses: c.addresses()}, func(setting, value, want string) {
			wrong = append(wrong, settings.Invalid{{Name: "redis." + setting,
				Text: fmt.Sprintf("redis.%s: %s: want %s", setting, value, want)}})
		})
	}
	if config.Rebuild < 0 || config.Rebuild > 0 && s.Cluster.Stores > 0 && config.Rebuild > s.Cluster.Stores {
		wrong = append(wrong, fmt.Errorf("rebuild store %d: want one of 1 to %d", config.Rebuild, s.Cluster.Stores))
	}
	if s.Cluster.Stores > 0 {
		wrong = append(wrong, checkPorts(config.Port, config.ProxyPort, c.row(), s))
	}
	err = errors.Join(wrong...)
	if err == nil {
		err = c.shared.takeDescriptors(&c.core)
	}
	if err != nil {
		if c.folder != nil {
			err = errors.Join(err, c.folder.close(true)) // no store has been opened
		}
		return nil, err
	}
	c.failed = make(chan error, s.Cluster.Stores)
	c.shared.memory = server.NewClientMemory(s.Redis.ClientMemory, s.Cluster.Stores)
	switch c.identity = c.random128(); {
	case c.folder != nil:
		c.identity, c.copy = c.folder.cluster, c.folder.copy
	case config.From != nil:
		c.identity, c.copy = config.From.cluster, config.From.copy
	}
	c.network = c.newNetwork()
	first := s.Cluster
	first.Stores = c.founders()
	c.initial = meta.Initial(fmt.Sprintf("%x", c.identity), first)
	c.boots, c.journal = boots{core: &c.core}, journal{core: &c.core, boots: &c.boots}
	makePlaces(&placeParts{core: &c.core, notices: &c.notices, shared: &c.shared, boots: &c.boots, journal: &c.journal,
		pins: &c.pins, places: &c.places, newServer: c.servers.newServer, newStandIn: c.servers.newStandIn})
	c.regions = regions{core: &c.core, places: &c.places}
	c.leaders = leaders{core: &c.core, pins: &c.pins, places: &c.places, regions: &c.regions}
	c.changes = changes{core: &c.core, places: &c.places, regions: &c.regions}
	c.power = power{core: &c.core, journal: &c.journal, places: &c.places, changing: make(chan struct{}, 1)}
	c.migrations = migrations{core: &c.core, places: &c.places, regions: &c.regions, leaders: &c.leaders,
		changes: &c.changes, power: &c.power, beginning: make(chan struct{}, 1)}
	c.wipes = wipes{core: &c.core, places: &c.places, regions: &c.regions, power: &c.power}
	c.backups = backups{core: &c.core, boots: &c.boots, journal: &c.journal, places: &c.places, power: &c.power}
	c.table = proxyTable{places: &c.places}
	c.info = info{core: &c.core, journal: &c.journal, places: &c.places, regions: &c.regions}
	c.servers = servers{core: &c.core, notices: &c.notices, shared: &c.shared, places: &c.places, regions: &c.regions,
		leaders: &c.leaders, backups: &c.backups, table: &c.table, info: &c.info}
	c.links = links{core: &c.core, places: &c.places}
	c.refusals = refusals{places: &c.places, servers: &c.servers}
	c.members = members{core: &c.core, shared: &c.shared, boots: &c.boots, journal: &c.journal, places: &c.places,
		regions: &c.regions, leaders: &c.leaders, power: &c.power, servers: &c.servers, links: &c.links,
		wake: make(chan struct{}, 1)}
	c.faults = faults{core: &c.core, pins: &c.pins, places: &c.places, leaders: &c.leaders, changes: &c.changes,
		power: &c.power, migrations: &c.migrations, wipes: &c.wipes, links: &c.links, refusals: &c.refusals,
		members: &c.members}
	c.boot = boot{core: &c.core, boots: &c.boots, journal: &c.journal, places: &c.places, leaders: &c.leaders,
		servers: &c.servers}
	hooks.Cluster = c.Inside()
	return c, nil
}

// Close stops the cluster and returns when all of its goroutines have ended. It may be called again.
func (c *Cluster) Close() error {
	c.close.Do(func() { c.closeErr = c.shutdown() })
	return c.closeErr
}

// shutdown ends everything that start has started.
func (c *Cluster) shutdown() error {
	close(c.closing)
	if l := c.servers.inside; l != nil {
		l.Close()
	}
	c.backups.wait()
	for _, n := range c.places.all() {
		n.release()
	}
	c.power.changing <- struct{}{} // a change that is under way ends first; no other one begins
	// Clients go first, those of all stores at once: what a client still waits for needs the other stores.
	var clients sync.WaitGroup
	if proxy := c.servers.proxy.Load(); proxy != nil {
		clients.Go(func() { proxy.Close() })
	}
	for _, n := range c.places.all() {
		clients.Go(n.leave)
	}
	clients.Wait()
	errs := []error{c.places.all().onAll((*Place).stop)}
	c.network.Close()
	c.wg.Wait()
	errs = append(errs, c.journal.close())
	if c.folder != nil {
		errs = append(errs, c.folder.close(errors.Join(errs...) == nil && !c.anyFailed.Load()))
	}
	return errors.Join(errs...)
}

// Places returns the places of the stores, as of now. The caller does not change them.
func (c *Cluster) Places() Places { return c.places.all() }

// ProxyAddr returns the address of the proxy port, host:port.
func (c *Cluster) ProxyAddr() string { return c.servers.proxyAddr }

// Dial connects, through memory, to an address of a place or to the proxy's.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == c.servers.proxyAddr {
		return c.servers.proxyPipe.Dial(ctx)
	}
	var all, second []string
	for _, n := range c.places.all() {
		for _, d := range n.doors {
			switch {
			case d.addr == addr:
				return n.dial(ctx, d)
			case d.replica:
				second = append(second, d.addr)
			default:
				all = append(all, d.addr)
			}
		}
	}
	return nil, fmt.Errorf("dial %s: no listener of this cluster, want one of %s or %s",
		addr, strings.Join(append(all, second...), ", "), c.servers.proxyAddr)
}

// DialInside connects to the proxy's server, which trusts the connection: it needs no password, and no client sees or
// ends it.
func (c *Cluster) DialInside(ctx context.Context) (net.Conn, error) {
	return c.servers.inside.Dial(ctx)
}

// Dir returns the data folder, empty for a cluster in memory, and whether Close removes it.
func (c *Cluster) Dir() (dir string, temporary bool) {
	if c.folder == nil {
		return "", false
	}
	return c.folder.dir, c.folder.temporary
}

// Settings returns the settings in force, with the present number of stores.
func (c *Cluster) Settings() settings.Settings {
	s := c.settings
	s.Cluster.Stores = len(c.places.all())
	return s
}

// Seed returns the seed of every random choice.
func (c *Cluster) Seed() uint64 { return c.config.Seed }

// BootTime returns how long Start took.
func (c *Cluster) BootTime() time.Duration { return c.bootTime }

// Failed returns a channel that gets the error of each store that fails.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Closing returns a channel that is closed when Close begins.
func (c *Cluster) Closing() <-chan struct{} { return c.closing }

// Advance sets the clocks of all stores ahead, for good.
func (c *Cluster) Advance(d time.Duration) {
	c.advanced.Add(int64(d))
	c.event(eventCluster, "the clocks go ahead by %s", d)
}

// Inject carries out a fault: see neokv.Cluster.Inject.
func (c *Cluster) Inject(ctx context.Context, f fault.Fault) (outcome string, err error) {
	return c.faults.inject(ctx, f)
}

// AddStore adds a store: see neokv.Cluster.AddStore.
func (c *Cluster) AddStore(ctx context.Context) (topology.StoreID, error) {
	n, err := c.members.add(ctx)
	if err != nil {
		return 0, err
	}
	return n.id, nil
}

// Faults returns the faults that are in force, by verb.
func (c *Cluster) Faults() []fault.Fault { return c.faults.all() }

// Backup copies the cluster, as of one instant, into a new folder: see neokv.Cluster.Backup.
func (c *Cluster) Backup(ctx context.Context, dir string) (Backup, error) {
	return c.backups.backup(ctx, dir)
}

// BackupText says how far the backup under way is, "" if there is none.
func (c *Cluster) BackupText() string { return c.backups.text() }

// Snapshot takes an image of a cluster in memory: see neokv.Cluster.Snapshot.
func (c *Cluster) Snapshot(ctx context.Context) (*Image, error) { return c.backups.snapshot(ctx) }

// Regions returns the regions by all that the stores know, ascending.
func (c *Cluster) Regions() []topology.Region { return c.regions.all() }

// Pinned reports whether a region stays with the leader that it has, until heal.
func (c *Cluster) Pinned(id topology.RegionID) bool { return c.pins.has(id) }

// UnderWay returns what the cluster map has under way: the migrations that clients are shown, by slots, and the last
// wipe of each store that was ever wiped. known says that a store knows the map.
func (c *Cluster) UnderWay() (windows []route.Window, wipes []topology.Wipe, known bool) {
	windows, known = c.migrations.windows()
	return windows, c.wipes.all(), known
}

// Plan returns what meta's leader would do with replicas and homes.
func (c *Cluster) Plan(ctx context.Context) (store.PlacementPlan, error) { return c.changes.plan(ctx) }

// Impaired says what is worse than it should be, though every store runs and every region is served.
func (c *Cluster) Impaired() []string { return append(c.info.impaired(), c.places.all().unplaced()...) }

// Table returns the proxy's slot table, nil before there is one.
func (c *Cluster) Table() *route.Table { return c.table.get() }

// Inside returns the inside of the cluster, for tests.
func (c *Cluster) Inside() seam.Inside { return inside{c} }
