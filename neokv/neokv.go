// Package neokv boots a Redis Cluster inside this process. The cluster has several stores, each with a port and a
// Pebble database of its own. The slots are split into regions, and each region is a Raft group replicated over the
// stores.
//
// Start boots a cluster, Addrs and Dial connect clients to it, Close ends it.
package neokv

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// Version is the version of NeoKV, as INFO and results name it.
const Version = "0.1.0"

// Config says what to boot. The zero value boots three stores on disk, in a temporary folder, on free ports.
type Config struct {
	// Stores, Replicas and Regions shape the cluster. 0 takes the number recorded in Dir, or for a new folder the
	// number in Settings. A number that differs from the recorded one is an error.
	Stores, Replicas, Regions int
	// Dir is the folder that holds the data; Start makes it if it is missing. If Dir is empty, a temporary folder holds
	// the data until Close.
	Dir string
	// InMemory keeps the data in memory until Close. Dir must be empty then.
	InMemory bool
	// From is an image from which a cluster in memory starts, with its shape and, if Settings is nil, its settings.
	// InMemory is true then, whether it is set or not.
	From *Image
	// Discard lets Start empty a folder that was not closed cleanly while engine.wal_sync was none, since its data may
	// be torn. Without Discard, Start refuses such a folder.
	Discard bool
	// Rebuild is a store that is wiped after the boot if it does not start, since its folder lacks a part or all: it
	// comes back empty, and gets its replicas anew. The others must have a quorum of each region; until they have, it is
	// tried again. A store that starts is left alone. 0 for none.
	Rebuild int
	// NoSockets opens no ports: clients reach the cluster by Dial only. Its addresses are such that a client
	// which dials them otherwise fails at once.
	NoSockets bool
	// Bind is the IP address of the ports, 127.0.0.1 if empty. An address beyond loopback needs redis.requirepass.
	Bind string
	// Port is the port of store 1; the other stores have the ports that follow it, and the stores' second addresses
	// (Cluster.ReplicaAddrs), if there are any, those behind. ProxyPort is the proxy's port, where
	// clients that know nothing of clusters may send any command. 0 picks free ports.
	Port, ProxyPort int
	// Settings are the knobs; nil takes settings.Default.
	Settings *settings.Settings
	// Seed seeds every random choice that NeoKV makes; 0 picks a seed.
	Seed uint64
	// OnEvent, if not nil, is called with each ClusterEvent. It must not block, and may be called by several goroutines
	// at once.
	OnEvent func(ClusterEvent)
	// Progress, if not nil, is called once a second during a boot that takes longer, with what the boot waits for. It is
	// also called with what becomes of Rebuild, with what redis.cluster_announce has clients told, and where the process
	// has too few file descriptors with the settings that Start has reduced.
	Progress func(string)
}

// Cluster is a running cluster. Its methods may run concurrently.
type Cluster struct {
	in     *cluster.Cluster
	inside insideConns
}

// Start boots a cluster. It returns when every slot is served. If there are at least as many regions as stores, it also
// waits until every store leads a region. An error leaves nothing running. It lists all that is wrong with config.
//
// Start writes nothing to standard error: the first one in a process silences the Raft library, unless the program has
// called LogRaft before.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if ctx == nil {
		return nil, ErrNilContext
	}
	LogRaft(io.Discard) // unless the program has called it
	hooks := seam.Of(ctx)
	hooks.OpenImage = func(fsys vfs.FS, dir string) (any, error) { return openImage(fsys, dir) }
	in, err := cluster.Start(ctx, config.inside(), hooks)
	if taken := new(cluster.PortsTaken); errors.As(err, &taken) {
		err = &PortsTakenError{Addrs: taken.Addrs, all: err}
	}
	if err != nil {
		return nil, err
	}
	return &Cluster{in: in,
		inside: insideConns{limits: in.Settings().Redis, dial: in.DialInside, closing: in.Closing()}}, nil
}

// inside is the configuration as package cluster takes it.
func (config *Config) inside() cluster.Config {
	in := cluster.Config{
		Stores: config.Stores, Replicas: config.Replicas, Regions: config.Regions, Dir: config.Dir,
		InMemory: config.InMemory, Discard: config.Discard, Rebuild: config.Rebuild, NoSockets: config.NoSockets,
		Bind: config.Bind, Port: config.Port, ProxyPort: config.ProxyPort, Settings: config.Settings, Seed: config.Seed,
		Progress: config.Progress, Version: Version,
	}
	if config.From != nil {
		in.From = config.From.in
	}
	if f := config.OnEvent; f != nil {
		in.OnEvent = func(kind, text string) { f(ClusterEvent{time.Now(), EventKind(kind), text}) }
	}
	return in
}

// PortsTakenError says on which addresses, host:port, Start cannot listen because others do.
type PortsTakenError struct {
	Addrs []string
	all   error // this and what else is wrong
}

func (e *PortsTakenError) Error() string { return e.all.Error() }

// Addrs returns the stores' addresses, host:port, in the order of their numbers.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, n := range c.in.Places() {
		out = append(out, n.Addr())
	}
	return out
}

// ReplicaAddrs returns the stores' second addresses, host:port, in the order of their numbers. With redis.follower_read
// each store has one, at which it is only a replica: there it serves reads of the regions that it follows. It is nil
// without that setting, and where regions have one replica.
func (c *Cluster) ReplicaAddrs() (addrs []string) {
	for _, n := range c.in.Places() {
		if addr := n.ReplicaAddr(); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// ProxyAddr returns the address of the proxy port, host:port.
func (c *Cluster) ProxyAddr() string { return c.in.ProxyAddr() }

// ClusterEvent is something that has happened to a cluster: a fault, a store that starts, ends or fails, a new leader.
type ClusterEvent struct {
	Time time.Time
	Kind EventKind
	Text string // such as `region 3: store 2 leads, term 5`
}

// EventKind says what an event is about.
type EventKind string

// The kinds of events.
const (
	EventCluster EventKind = "cluster" // it serves, or its clocks go ahead
	EventFault   EventKind = "fault"   // one begins, is done, or cannot be
	EventFailure EventKind = "failure" // of a store
	EventLeader  EventKind = "leader"  // a store leads a region
	EventRegion  EventKind = "region"  // a split or merge goes on
	// EventImpaired is of what gets worse, or well again, though nothing fails.
	EventImpaired EventKind = "impaired"
	EventScript   EventKind = "script" // a script has called redis.log, at the level notice or warning
	// EventClient is of a command that a client calls and NeoKV lacks, once for each of the first hundred; of a parameter
	// that a client sets and that has no effect; and of connections that are closed because the outcome of a write is
	// unknown, at most once a second.
	EventClient EventKind = "client"
)

func (e ClusterEvent) String() string { return e.Time.Format("15:04:05.000 ") + e.Text }

// Dial connects, through memory, to an address that Addrs, ReplicaAddrs or ProxyAddr returned. go-redis takes as its
// Dialer a function that passes on to Dial: func(ctx, network, addr) { return c.Dial(ctx, addr) }.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.in.Dial(ctx, addr)
}

// Dir returns the folder that holds the data, empty for a cluster in memory, and whether Close removes it.
func (c *Cluster) Dir() (dir string, temporary bool) { return c.in.Dir() }

// Settings returns the settings in force. Their Cluster part is the shape that Shape returns.
func (c *Cluster) Settings() settings.Settings { return c.in.Settings() }

// Shape returns how many stores and replicas the cluster has, and how many regions it had at first.
func (c *Cluster) Shape() settings.ClusterKnobs { return c.in.Settings().Cluster }

// Seed returns the seed of every random choice that NeoKV makes: the one in Config, or the one that Start picked.
func (c *Cluster) Seed() uint64 { return c.in.Seed() }

// BootTime returns how long Start took.
func (c *Cluster) BootTime() time.Duration { return c.in.BootTime() }

// Failed returns a channel that gets the error of each store that fails, mostly because of its disk. Such a store
// stops; the others go on.
func (c *Cluster) Failed() <-chan error { return c.in.Failed() }

// Close stops the cluster and returns when all of its goroutines have ended. It may be called again.
func (c *Cluster) Close() error {
	err := c.in.Close()
	c.inside.close()
	return err
}
