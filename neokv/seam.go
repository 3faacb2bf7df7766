package neokv

import (
	"net"

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

func (i inside) HeldForClients() int64 { return i.c.clients.Used() }

func (i inside) Journal() (fs *disk.FS, open bool) { return i.c.journalFS, i.c.journal != nil }

func (i inside) EndJournal(left *disk.FS) (err error) {
	if i.c.journal != nil {
		err = i.c.journal.Close()
	}
	i.c.journal, i.c.journalFS = nil, left
	return err
}

func (i inside) OpenJournal(bytes int64, shared bool) error {
	i.c.hooks.JournalBytes, i.c.settings.Engine.SharedSync = bytes, shared
	return i.c.openJournal()
}

func (n *storePlace) ID() topology.StoreID { return n.id }

func (n *storePlace) Addr() string { return n.addr }

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

func (n *storePlace) Condemn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turnAway()
}

func (n *storePlace) Start() error {
	var ln net.Listener
	n.mu.Lock()
	open := n.pipe != nil
	n.mu.Unlock()
	if !open && !n.c.config.NoSockets {
		var err error
		if ln, err = net.Listen("tcp", n.addr); err != nil {
			return err
		}
	}
	return n.start(ln, false)
}
