package neokv

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// inside is the cluster as package seam shows it to tests. storePlace is a seam.StorePlace.
type inside struct{ c *Cluster }

func (i inside) Nodes() []seam.StorePlace {
	out := make([]seam.StorePlace, len(i.c.nodes))
	for n, node := range i.c.nodes {
		out[n] = node
	}
	return out
}

func (i inside) Network() *transport.Network { return i.c.network }

func (i inside) HeldForClients() int64 { return i.c.shared.memory.Used() }

func (i inside) Backup(ctx context.Context, to vfs.FS, dir string) (time.Time, error) {
	b, err := i.c.backups.backupTo(ctx, to, dir)
	return b.Time, err
}

func (i inside) OpenImage(fsys vfs.FS, dir string) (any, error) { return openImage(fsys, dir) }

func (n *storePlace) ID() topology.StoreID { return n.id }

func (n *storePlace) Addr() string { return n.addr() }

func (n *storePlace) ReplicaAddr() string { return n.replicaAddr() }

func (n *storePlace) Store() *store.Store { return n.store.Load() }

func (n *storePlace) Failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

func (n *storePlace) FS() *disk.FS {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fs
}

func (n *storePlace) Dir() string { return n.dir }

func (n *storePlace) Move(fs *disk.FS, dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fs, n.dir = fs, dir
}
