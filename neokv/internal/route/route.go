// Package route decides where a command is served. The slot table is immutable and swapped atomically; Decide is a pure function of it.
package route

import "neokv.dev/neokv/internal/topology"

// Store is one store as clients and other stores see it.
type Store struct {
	ID     topology.StoreID `json:"id"`
	NodeID string           `json:"node_id"` // 40 hex characters, survives restarts
	Host   string           `json:"host"`    // as advertised to clients
	Port   int              `json:"port"`
	Alive  bool             `json:"alive"`
}

// Region is a region with who leads it as far as is known.
type Region struct {
	topology.Region
	Leader topology.StoreID `json:"leader"` // 0 while none is known
	Term   uint64           `json:"term"`
}

// Table maps slots to regions, leaders and stores. It is never changed once published.
type Table struct {
	Epoch   uint64   // grows with every change of the map or of a leader
	Stores  []Store  // by id
	Regions []Region // by first slot
	slots   [topology.SlotCount]uint16
}
