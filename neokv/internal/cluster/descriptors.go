package cluster

import (
	"fmt"
	"os"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/settings"
)

// This file divides the file descriptors of the process between stores and clients. A store without descriptors cannot
// go on, so its files come first. A client without one is turned away.

const (
	// fewestClients is how many clients' connections must fit beside the stores.
	fewestClients = 16
	// ownFiles is what the process needs besides: the journal's segments, the control port with its connections, the
	// poller, files that are open for a moment.
	ownFiles = 24
	// hostFiles is what a store's Raft library has open at most: each of its workers for snapshots a snapshot, and a
	// table that is made of one.
	hostFiles = 32
	// peerFiles is what a store has open for each other store over TCP, at both ends, which are in this process: a
	// connection for messages, two for snapshots, four for calls.
	peerFiles = 14
)

// descriptors is how the file descriptors of the process are divided.
type descriptors struct {
	limit   int // of the process, 0 if there is none that is known
	tables  int // engine.open_files
	clients int // connections of clients together
}

// divide divides what the process may still open. Clients get what stores leave. Where that is not enough for both,
// stores keep half as many tables open as there are descriptors to spare, but never less than the engine needs.
func divide(limit, used int, s settings.Settings, onDisk, sockets bool) (descriptors, error) {
	d := descriptors{limit: limit, tables: s.Engine.OpenFiles, clients: s.Redis.MaxClients * (s.Cluster.Stores + 1)}
	if limit == 0 {
		return d, nil
	}
	stores := s.Cluster.Stores
	base, wanted := used+ownFiles, 0
	if sockets {
		base += 2 * (s.Addresses() + 1) // listeners, each with a connection that it turns away
		if s.Raft.Transport == "tcp" {
			base += stores * (1 + (stores-1)*peerFiles)
		}
	}
	if onDisk {
		share, err := engine.ShareOf(s.Engine, stores)
		if err != nil {
			return d, err
		}
		// Pebble counts a few other files among the tables. Each flush and compaction writes one table. A log is open
		// until its memtable is flushed, and one more until its segment of the journal is free.
		base += stores * (engine.FewestFiles + s.Engine.MemtableCount + 2 + share.Compactions + 1 + hostFiles)
		wanted = stores * (share.OpenFiles - engine.FewestFiles)
	}
	spare := limit - base
	if spare < fewestClients && sockets || spare < 0 {
		return d, fmt.Errorf("the limit of %d file descriptors is not enough for %d stores and %d clients, which need "+
			"%d; raise it (ulimit -n), best to %d, which all of redis.max_clients and engine.open_files need",
			limit, stores, fewestClients, base+fewestClients, base+wanted+d.clients)
	}
	if !sockets {
		d.clients = 0
	}
	if spare < wanted+d.clients {
		tables := min(wanted, max((spare-fewestClients)/2, spare-d.clients, 0))
		if tables < wanted {
			d.tables = stores * (engine.FewestFiles + tables/stores)
		}
		d.clients = min(d.clients, spare-tables)
	}
	return d, nil
}

// takeDescriptors sets the limits that follow from the file descriptors of the process, and says so where they are
// lower than the settings want.
func (x *shared) takeDescriptors(c *core) error {
	s := &c.settings
	x.used = usedDescriptors()
	d, err := divide(fileLimit(), x.used, *s, c.folder != nil, !c.config.NoSockets)
	if err != nil {
		return err
	}
	x.sockets.Bound(d.clients)
	less := ""
	if d.tables < s.Engine.OpenFiles {
		less = fmt.Sprintf("engine.open_files has been reduced to %d, ", d.tables)
		s.Engine.OpenFiles = d.tables
	}
	if !c.config.NoSockets && d.clients < s.Redis.MaxClients {
		less += fmt.Sprintf("redis.max_clients has been reduced to %d, for all ports together, ", d.clients)
		s.Redis.MaxClients = d.clients
	}
	if less != "" {
		c.tell(less + fmt.Sprintf("because of the limit of %d file descriptors (ulimit -n)", d.limit))
	}
	return nil
}

// moreDescriptors bounds the clients anew for a cluster of so many stores, or returns an error if there are too few file
// descriptors.
func (x *shared) moreDescriptors(c *core, stores int) error {
	s := c.settings
	s.Engine.OpenFiles = s.Engine.OpenFiles / s.Cluster.Stores * stores // each store has the share that it began with
	s.Cluster.Stores = stores
	d, err := divide(fileLimit(), x.used, s, c.folder != nil, !c.config.NoSockets)
	if err == nil {
		x.sockets.Bound(d.clients)
	}
	return err
}

// usedDescriptors returns how many files the process has open, or a guess where the system does not tell.
func usedDescriptors() int {
	if names, err := os.ReadDir("/dev/fd"); err == nil {
		return len(names)
	}
	return 16
}
