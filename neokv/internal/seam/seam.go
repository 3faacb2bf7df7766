// Package seam is where the tests of this module take hold of a cluster from outside of package neokv.
//
// A test puts Hooks into neokv.Config. They say which mistakes the cluster makes, which functions of the test it calls
// and where, and how far its clocks disagree. Start sets Cluster: with it the test cuts links, kills stores and starts
// them again. A program that uses package neokv cannot name these types, so its clusters run without them. For the
// command line, package torture alone plants mistakes.
package seam

import (
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// Hooks belong to one cluster. Their zero value changes nothing.
type Hooks struct {
	Mistakes Mistakes
	Store    store.Hooks // of every store
	// ClockAhead returns how far the clock of a store is ahead, beside what faults do to it. nil: not at all.
	ClockAhead func(topology.StoreID) time.Duration
	// JournalBytes is the length of a segment of the journal that the stores of a cluster in memory share; 0 for no
	// journal.
	JournalBytes int64

	// Cluster is set by Start before it opens the first store.
	Cluster Inside
}

// Mistakes are those that a test plants in a cluster. None by default.
type Mistakes struct {
	Store   store.Mistakes  // in every store
	Server  server.Mistakes // in the servers of all stores and of the proxy
	Journal disk.Mistakes
}

// Inside is the inside of a running cluster. Inside and StorePlace are interfaces because package neokv, which has the
// types, stands above this one. A caller kills all stores before it ends the journal or opens it.
type Inside interface {
	// Nodes returns the places of the stores, by store number. They are the same as long as the cluster exists.
	Nodes() []StorePlace
	// Network carries the messages between stores; links are cut, delayed and disturbed there.
	Network() *transport.Network
	// HeldForClients returns how many bytes the stores and the proxy hold for their clients.
	HeldForClients() int64

	// Journal returns the disk of the journal in memory, nil if there has been none, and whether the journal is open.
	Journal() (fs *disk.FS, open bool)
	// EndJournal closes the journal, if it is open. From then on left is the journal's disk.
	EndJournal(left *disk.FS) error
	// OpenJournal replays the journal into the stores' logs, as the start of a process does. Then it begins a new
	// journal with segments of so many bytes, or none if shared is false.
	OpenJournal(bytes int64, shared bool) error
}

// StorePlace is a store's place in a cluster. It outlives the store, which may be killed and started again.
type StorePlace interface {
	ID() topology.StoreID
	// Addr is where clients reach the store.
	Addr() string
	// Store is nil while no store runs here.
	Store() *store.Store
	// Failure says why the store has failed, nil if it has not.
	Failure() error

	// FS is the store's disk and Dir its folder there.
	FS() *disk.FS
	Dir() string
	// Move gives the place another disk and folder, for the next start.
	Move(fs *disk.FS, dir string)

	// Condemn begins a kill: the store refuses clients, and nobody is told when it fails. It may run in the middle of
	// a sync.
	Condemn()
	// Stop ends the store, if it runs, and waits for its end.
	Stop() error
	// Start opens the store again, on the address that it had.
	Start() error
}
