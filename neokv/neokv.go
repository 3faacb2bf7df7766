// Package neokv boots a cluster of logical store nodes in this process: full Multi-Raft, one Pebble per store, each store
// speaking the Redis Cluster protocol on a port of its own.
package neokv

import (
	"context"
	"net"
	"time"

	"neokv.dev/neokv/settings"
)

// Config says what to boot. The zero value is a valid one: three stores on disk, in a temporary folder, on free ports.
type Config struct {
	// Stores, Replicas and Regions shape the cluster; 0 takes what Settings says, or what Dir records. Set here, a value that
	// differs from the recorded one is an error.
	Stores, Replicas, Regions int
	// Dir holds the data; it is made if missing. Empty: a temporary folder that Close removes.
	Dir string
	// InMemory keeps the data in memory: what Close leaves is nothing.
	InMemory bool
	// NoSockets leaves the listeners in memory alone, reached by Dial.
	NoSockets bool
	// Bind is the IP address listened on, 127.0.0.1 if empty. Only loopback is allowed.
	Bind string
	// Port is store 1's port, the other stores follow upwards, and ProxyPort the proxy's; 0 picks free ones.
	Port, ProxyPort int
	// Settings are the knobs; nil takes settings.Default.
	Settings *settings.Settings
	// Seed feeds every random choice that is ours; 0 picks one.
	Seed uint64
	// Progress, if not nil, is told what the boot waits for when that takes longer than a second.
	Progress func(string)
}

// Cluster is a running cluster.
type Cluster struct{}

// Start boots a cluster and returns when every slot is served and, where there are enough regions, every store leads one.
func Start(ctx context.Context, c Config) (*Cluster, error) { panic("skeleton") }

// Addrs returns the stores' addresses, host:port, by store number.
func (c *Cluster) Addrs() []string { panic("skeleton") }

// ProxyAddr returns the address of the proxy port.
func (c *Cluster) ProxyAddr() string { panic("skeleton") }

// Dial returns a connection through memory to one of the addresses. Its form fits go-redis's Dialer as
// func(ctx, network, addr) { return c.Dial(ctx, addr) }.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) { panic("skeleton") }

// Dir is the folder that holds the data, empty in memory; Temporary reports whether Close removes it.
func (c *Cluster) Dir() (dir string, temporary bool) { panic("skeleton") }

// Shape returns how many stores, replicas and regions the cluster has.
func (c *Cluster) Shape() settings.Cluster { panic("skeleton") }

// BootTime is how long Start took.
func (c *Cluster) BootTime() time.Duration { panic("skeleton") }

// Failed delivers the error of each store that stops because of its disk.
func (c *Cluster) Failed() <-chan error { panic("skeleton") }

// Close stops the cluster and returns when everything of it has ended.
func (c *Cluster) Close() error { panic("skeleton") }
