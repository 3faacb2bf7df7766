package neokv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/settings"
)

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
		c.folder, s.Cluster, s.Engine.WALDir = f, f.shape, f.walDir
	}
	c.settings = s
	if err := s.Validate(); err != nil {
		wrong = append(wrong, err)
	} else {
		c.announce = announce.Parse(announce.Settings{Announce: s.Redis.ClusterAnnounce,
			Hostname: s.Redis.ClusterAnnounceHostname, PreferredEndpointType: s.Redis.ClusterPreferredEndpointType,
			Stores: s.Cluster.Stores, Addresses: s.Addresses()}, func(setting, value, want string) {
			wrong = append(wrong, settings.Invalid{{Name: "redis." + setting,
				Text: fmt.Sprintf("redis.%s: %s: want %s", setting, value, want)}})
		})
	}
	if s.Cluster.Stores > 0 {
		wrong = append(wrong, CheckPorts(config.Port, config.ProxyPort, s))
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
	c.initial = meta.Initial(fmt.Sprintf("%x", c.identity), s.Cluster)
	c.boots, c.journal = boots{core: &c.core}, journal{core: &c.core, boots: &c.boots}
	c.nodes = makePlaces(&placeParts{core: &c.core, notices: &c.notices, shared: &c.shared, boots: &c.boots,
		journal: &c.journal, pins: &c.pins, newServer: c.servers.newServer, newStandIn: c.servers.newStandIn})
	c.regions = regions{core: &c.core, nodes: c.nodes}
	c.leaders = leaders{core: &c.core, pins: &c.pins, nodes: c.nodes, regions: &c.regions}
	c.changes = changes{core: &c.core, nodes: c.nodes, regions: &c.regions}
	c.power = power{core: &c.core, journal: &c.journal, nodes: c.nodes, changing: make(chan struct{}, 1)}
	c.migrations = migrations{core: &c.core, nodes: c.nodes, regions: &c.regions, leaders: &c.leaders,
		changes: &c.changes, power: &c.power, beginning: make(chan struct{}, 1)}
	c.backups = backups{core: &c.core, boots: &c.boots, journal: &c.journal, nodes: c.nodes, power: &c.power}
	c.table = proxyTable{nodes: c.nodes}
	c.info = info{core: &c.core, journal: &c.journal, nodes: c.nodes, regions: &c.regions}
	c.servers = servers{core: &c.core, notices: &c.notices, shared: &c.shared, nodes: c.nodes, regions: &c.regions,
		leaders: &c.leaders, backups: &c.backups, table: &c.table, info: &c.info}
	c.links = links{core: &c.core, nodes: c.nodes}
	c.refusals = refusals{nodes: c.nodes, servers: &c.servers}
	c.faults = faults{core: &c.core, pins: &c.pins, nodes: c.nodes, leaders: &c.leaders, changes: &c.changes,
		power: &c.power, migrations: &c.migrations, links: &c.links, refusals: &c.refusals}
	c.boot = boot{core: &c.core, boots: &c.boots, journal: &c.journal, nodes: c.nodes, leaders: &c.leaders,
		servers: &c.servers}
	c.inside = insideConns{limits: s.Redis, closing: c.closing, dial: func(ctx context.Context) (net.Conn, error) {
		return c.servers.inside.Dial(ctx)
	}}
	hooks.Cluster = inside{c}
	return c, nil
}

// CheckBind returns an error if a cluster with these settings may not listen on addr. An address beyond loopback needs
// a password (redis.requirepass).
func CheckBind(addr string, k settings.RedisKnobs) error {
	switch ip := net.ParseIP(addr); {
	case ip == nil:
		return errors.New("want an IP address such as 127.0.0.1 or ::1")
	case !ip.IsLoopback() && k.RequirePass == "":
		return errors.New("want a loopback address such as 127.0.0.1 or ::1, or a password in redis.requirepass")
	}
	return nil
}

// CheckNoDir returns an error if these settings need a data folder that stays, so that the cluster can run neither in
// memory nor in a temporary folder.
func CheckNoDir(k settings.EngineKnobs) error {
	switch {
	case k.Durable:
		return errors.New("engine.durable true: the data needs a folder that stays, not memory or a temporary one")
	case k.WALDir != "":
		return fmt.Errorf("engine.wal_dir %s: write-ahead logs apart need a data folder that stays", k.WALDir)
	}
	return nil
}

// shape returns the shape that the caller asked for, with zeros replaced by the numbers of the settings. It cuts the
// settings' number of replicas to the number of stores.
func shape(asked, from settings.ClusterKnobs) settings.ClusterKnobs {
	if asked.Stores == 0 {
		asked.Stores = from.Stores
	}
	if asked.Replicas == 0 {
		asked.Replicas = min(from.Replicas, asked.Stores)
	}
	if asked.Regions == 0 {
		asked.Regions = from.Regions
	}
	return asked
}

// CheckPorts returns an error if a cluster with these settings cannot listen on these ports: store 1 on port, the other
// stores on the ports that follow it, their second addresses, if they have any, behind, and the proxy on proxyPort. 0
// stands for free ports.
func CheckPorts(port, proxyPort int, s settings.Settings) error {
	stores := s.Cluster.Stores
	what := fmt.Sprintf("%d stores", stores)
	if s.Addresses() > stores {
		what += ", with a second address each (redis.follower_read),"
	}
	last, taken := port+s.Addresses()-1, proxyPort-port
	switch {
	case port < 0 || port > 0 && last > 65535:
		return fmt.Errorf("port %d: %s need the ports %d to %d, want 1 to 65535, or 0 for free ones",
			port, what, port, last)
	case proxyPort < 0 || proxyPort > 65535:
		return fmt.Errorf("proxy port %d: want 1 to 65535, or 0 for a free one", proxyPort)
	case port > 0 && port <= proxyPort && proxyPort <= last:
		who := fmt.Sprintf("store %d", taken%stores+1)
		if taken >= stores {
			who += " as a replica"
		}
		return fmt.Errorf("proxy port %d: it is the port of %s (ports %d to %d)", proxyPort, who, port, last)
	}
	return nil
}
