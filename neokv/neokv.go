// Package neokv boots a cluster of logical store nodes in this process: full Multi-Raft, one Pebble per store, each store
// speaking the Redis Cluster protocol on a port of its own.
package neokv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// Version is the version of NeoKV, as INFO and results name it.
const Version = "0.1.0"

// Config says what to boot. The zero value is a valid one: three stores on disk, in a temporary folder, on free ports.
type Config struct {
	// Stores, Replicas and Regions shape the cluster; 0 takes what Dir records, else what Settings says. A value set here that
	// differs from the recorded one is an error.
	Stores, Replicas, Regions int
	// Dir holds the data; it is made if missing. Empty: a temporary folder that Close removes.
	Dir string
	// InMemory keeps the data in memory: what Close leaves is nothing.
	InMemory bool
	// Discard empties a folder that was not closed cleanly under engine.wal_sync none; such a folder is refused otherwise.
	Discard bool
	// NoSockets leaves the listeners in memory alone, reached by Dial.
	NoSockets bool
	// Bind is the IP address listened on, 127.0.0.1 if empty. One beyond loopback needs redis.requirepass, and an unspecified
	// one redis.advertise_ip too.
	Bind string
	// Port is store 1's port, the other stores follow upwards, and ProxyPort the proxy's; 0 picks free ones.
	Port, ProxyPort int
	// Settings are the knobs; nil takes settings.Default.
	Settings *settings.Settings
	// Seed feeds every random choice that is ours; 0 picks one.
	Seed uint64
	// Progress, if not nil, is told what the boot waits for when that takes longer than a second.
	Progress func(string)

	// Hooks are for the tests of this module; nil otherwise.
	Hooks *seam.Hooks
}

// Cluster is a running cluster.
type Cluster struct {
	config    Config
	settings  settings.Settings
	hooks     seam.Hooks
	folder    *folder // nil in memory
	network   *transport.Network
	nodes     []*node
	journal   *disk.Journal // nil where each store syncs for itself
	journalFS *disk.FS      // what it is on in memory
	proxy     *server.Server
	proxyAddr string
	proxyPipe *server.Pipe
	proxied   atomic.Pointer[proxied]
	clients   *server.Memory // bounds what the clients of all stores and of the proxy hold
	boot      time.Duration
	failed    chan error
	anyFailed atomic.Bool // since Start: what the disks hold may lag what was acknowledged
	wg        sync.WaitGroup
	close     sync.Once
	closeErr  error

	randMu sync.Mutex
	rand   *rand.Rand
}

// Start boots a cluster and returns when every slot is served and, where there are enough regions, every store leads one.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	begin := time.Now()
	c, err := open(config)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.boot = time.Since(begin)
	return c, nil
}

// Addrs returns the stores' addresses, host:port, by store number.
func (c *Cluster) Addrs() []string {
	out := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.addr
	}
	return out
}

// ProxyAddr returns the address of the proxy port.
func (c *Cluster) ProxyAddr() string { return c.proxyAddr }

// Dial returns a connection through memory to one of the addresses. Its form fits go-redis's Dialer as
// func(ctx, network, addr) { return c.Dial(ctx, addr) }.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == c.proxyAddr {
		return c.proxyPipe.Dial(ctx)
	}
	for _, n := range c.nodes {
		if n.addr == addr {
			return n.dial(ctx)
		}
	}
	return nil, fmt.Errorf("dial %s: no listener of this cluster, want one of %s or %s", addr, strings.Join(c.Addrs(), ", "), c.proxyAddr)
}

// Dir is the folder that holds the data, empty in memory; temporary reports whether Close removes it.
func (c *Cluster) Dir() (dir string, temporary bool) {
	if c.folder == nil {
		return "", false
	}
	return c.folder.dir, c.folder.temporary
}

// Settings returns the settings in effect; their shape is the folder's.
func (c *Cluster) Settings() settings.Settings { return c.settings }

// Shape returns how many stores, replicas and regions the cluster has.
func (c *Cluster) Shape() settings.Cluster { return c.settings.Cluster }

// Seed returns the seed of every random choice that is the cluster's.
func (c *Cluster) Seed() uint64 { return c.config.Seed }

// BootTime is how long Start took.
func (c *Cluster) BootTime() time.Duration { return c.boot }

// Syncs is how many syncs the disks of the stores that run have made, and whether somebody waits for one now. It costs next to nothing to ask.
func (c *Cluster) Syncs() (made int64, waiting bool) {
	for _, node := range c.nodes {
		node.mu.Lock()
		if node.fs != nil {
			s := node.fs.Stats()
			made, waiting = made+s.Syncs, waiting || s.Syncing > 0
		}
		node.mu.Unlock()
	}
	return made, waiting
}

// Failed delivers the error of each store that stops because of its disk.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Close stops the cluster and returns when everything of it has ended. It may be called again.
func (c *Cluster) Close() error {
	c.close.Do(func() { c.closeErr = c.shutdown() })
	return c.closeErr
}
