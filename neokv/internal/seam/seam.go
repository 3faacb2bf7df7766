// Package seam is where the tests of this module take hold of a cluster from outside of package neokv.
//
// A test puts Hooks into the context of neokv.Start. Their first half says which mistakes the cluster makes and which
// functions it calls at which points. Start fills in the second half: with it the test looks into the stores.
// A program that uses package neokv cannot name these types, so its clusters run without them.
package seam

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// Hooks belong to one cluster. Their zero value changes nothing.
type Hooks struct {
	Mistakes Mistakes
	Region   region.Hooks // of every replica
	// JournalBytes is called at each start of the process: at the boot, and when the first store starts after all were
	// killed. It returns the length of a segment of the journal that the stores of a cluster in memory share, or 0 for
	// none until the next start. It is nil for a cluster that never has one.
	JournalBytes func() int64
	// VirtualTime makes a disk that is slow or hangs wait only where the log is saved, while no lock is held. Virtual
	// time stands still while a goroutine waits for a lock.
	VirtualTime bool
	// Killed is called at the instant at which stores lose their power, and told whether that is in the middle of a
	// sync. It must not wait.
	Killed func(stores []topology.StoreID, inSync bool)
	// Starting is called before a store starts again.
	Starting func(topology.StoreID)

	// Cluster is set by Start before it opens the first store.
	Cluster Inside
	// OpenImage is set by Start, too. It is that of package neokv, for a folder on another file system, and returns a
	// *neokv.Image.
	OpenImage func(fsys vfs.FS, dir string) (any, error)
}

type hooksKey struct{}

// With returns a context with which neokv.Start gives the cluster these hooks.
func With(ctx context.Context, h *Hooks) context.Context {
	return context.WithValue(ctx, hooksKey{}, h)
}

// Of returns the hooks of a context, those that change nothing if it has none.
func Of(ctx context.Context) *Hooks {
	if h, ok := ctx.Value(hooksKey{}).(*Hooks); ok {
		return h
	}
	return new(Hooks)
}

// Mistakes are those that a test plants in a cluster. None by default.
type Mistakes struct {
	Store   store.Mistakes  // in every store
	Server  server.Mistakes // in the servers of all stores and of the proxy
	Journal disk.Mistakes
	// BackupApart has a backup catch one store after the other, some time apart.
	BackupApart bool
}

// Inside is the inside of a running cluster. Inside and StorePlace are interfaces because package cluster, which has
// the types, stands above this one.
type Inside interface {
	// Nodes returns the places of the stores, by store number, as of now.
	Nodes() []StorePlace
	// Network carries the messages between stores; a test holds some of them there.
	Network() *transport.Network
	// HeldForClients returns how many bytes the stores and the proxy hold for their clients.
	HeldForClients() int64
	// Backup is Cluster.Backup onto another file system. It returns the instant as of which the backup is.
	Backup(ctx context.Context, to vfs.FS, dir string) (time.Time, error)
	// Lacks says what the stores that run lack to serve every slot, "" for nothing.
	Lacks() string
	// Proxy is the server of the proxy port.
	Proxy() *server.Server
}

// StorePlace is a store's place in a cluster. It outlives the store, which may be killed and started again.
type StorePlace interface {
	ID() topology.StoreID
	// Addr is where clients reach the store.
	Addr() string
	// ReplicaAddr is the store's second address, empty if it has none.
	ReplicaAddr() string
	// Store is nil while no store runs here.
	Store() *store.Store
	// Failure says why the store has failed, nil if it has not.
	Failure() error

	// FS is the store's disk and Dir its folder there.
	FS() *disk.FS
	Dir() string
	// Move gives the place another disk and folder, for the next start.
	Move(fs *disk.FS, dir string)
}
