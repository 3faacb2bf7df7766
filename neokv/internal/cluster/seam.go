package cluster

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// inside is the cluster as package seam shows it to tests. Place is a seam.StorePlace.
type inside struct{ c *Cluster }

func (i inside) Nodes() []seam.StorePlace {
	var out []seam.StorePlace
	for _, n := range i.c.places.all() {
		out = append(out, n)
	}
	return out
}

func (i inside) Network() *transport.Network { return i.c.network }

func (i inside) Lacks() string { return i.c.boot.lacks() }

func (i inside) Proxy() *server.Server { return i.c.servers.proxy.Load() }

func (i inside) HeldForClients() int64 { return i.c.shared.memory.Used() }

func (i inside) Backup(ctx context.Context, to vfs.FS, dir string) (time.Time, error) {
	b, err := i.c.backups.backupTo(ctx, to, dir)
	return b.Time, err
}

func (n *Place) ID() topology.StoreID { return n.id }

func (n *Place) Store() *store.Store { return n.store.Load() }

func (n *Place) Failure() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

func (n *Place) FS() *disk.FS {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fs
}

func (n *Place) Dir() string { return n.dir }

func (n *Place) Move(fs *disk.FS, dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fs, n.dir = fs, dir
}
