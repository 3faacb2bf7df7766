// Package transport carries Raft messages, and the stores' own calls, between stores. Every Raft message passes its
// store's filter on the way out and in. The filter keeps the voters' promises to leaders with leases, and drops
// forwarded proposals. While the cluster runs, links between stores can be cut, made slow and made unreliable, and a
// store can be paused.
//
// A message goes from dragonboat's send queue through these stages:
//
//	sender paused? -> held back -> link up? -> filter, commits -> delayed -> carried -> receiver paused? -> link up?
//	-> lost, repeated -> wire -> the receiver's filter takes note -> the receiver's NodeHost
package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// Network connects the stores of one process, through memory or over TCP. In memory messages are handed over by
// reference, on the sender's goroutine unless they have to wait for the link or for a paused store. All methods may run
// concurrently.
type Network struct {
	tcp    *TCP // nil in memory
	secret []byte

	mu     sync.Mutex
	places map[topology.StoreID]*location
	links  map[[2]topology.StoreID]*link
}

// location holds the endpoint that a store has now. It outlives the endpoints.
type location struct {
	now  atomic.Pointer[Endpoint]
	made atomic.Uint64 // endpoints so far
}

// NewNetwork returns a network in memory, without stores and with good links.
func NewNetwork() *Network {
	return &Network{places: make(map[topology.StoreID]*location), links: make(map[[2]topology.StoreID]*link)}
}

// Close closes all endpoints.
func (n *Network) Close() {
	n.mu.Lock()
	var open []*Endpoint
	for _, p := range n.places {
		if e := p.now.Load(); e != nil {
			open = append(open, e)
		}
	}
	n.mu.Unlock()
	for _, e := range open {
		e.Close()
	}
}

func (n *Network) place(s topology.StoreID) *location {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.placeLocked(s)
}

// address returns the address of the endpoint that a store has now, empty if it has none or cannot be reached.
func (n *Network) address(s topology.StoreID) string {
	if e := n.place(s).now.Load(); e != nil {
		return e.address
	}
	return ""
}

func (n *Network) placeLocked(s topology.StoreID) *location {
	p := n.places[s]
	if p == nil {
		p = &location{}
		n.places[s] = p
	}
	return p
}

// Options are the options of an endpoint.
type Options struct {
	Store topology.StoreID
	// Lease is for how long a voter that confirms a leader promises to support no other, 0 for no promise.
	Lease time.Duration
	// CommitInterval is the shortest time between two messages in which a leader tells a follower what is committed. 0
	// is for no limit. Heartbeats tell it, too.
	CommitInterval time.Duration
	// Saved returns the index up to which the log of a region is saved here. A leader sends entries while it saves them,
	// and the only voter of a region takes an entry for committed at once. So no message says that an entry behind Saved
	// is: a replica that joins would apply what a power cut takes from the leader. nil for no bound.
	Saved func(region topology.RegionID) uint64
	// SnapshotRate bounds the bytes of snapshots that the endpoint sends per second, 0 for no bound.
	SnapshotRate int64
	// Tick is the time between two ticks of the replicas, and the others are those of their configuration, in ticks.
	// See quiet.go for what the endpoint does with them. Stalled reports whether Raft waits for the store's disk, and
	// since when.
	Tick                          time.Duration
	HeartbeatTicks, ElectionTicks int
	Stalled                       func() (since time.Time, ok bool)
	// Booting says that all stores of the cluster start now. Then no lease of an earlier run can be left, and an
	// election by Campaign need not wait for one to end.
	Booting bool
	// Revoke ends the leader lease of a region for all terms up to term. The endpoint calls it before a message leaves
	// that makes the lease unsafe: TimeoutNow, a vote granted to another replica, or a request for votes. Revoke must
	// not wait for anything, nor use the endpoint.
	Revoke func(region topology.RegionID, term uint64)
	// Forwarded is called with proposals that dragonboat wanted to forward to another store. The endpoint drops them,
	// so they will never be applied. Changes of membership are proposals, too: they must be requested at the leader's
	// store.
	Forwarded func(region topology.RegionID, entries []pb.Entry)
	// Drops reports whether a message of Raft that arrives is dropped; nil: none is. A chunk of a snapshot is asked for
	// as an InstallSnapshot. It must not block.
	Drops func(m *pb.Message) bool
	// Handle answers calls of other stores. In memory it runs on the caller's goroutine. ctx ends with the call, and
	// when either endpoint closes. Neither side may change request or the answer after handing it over.
	Handle   func(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error)
	Mistakes Mistakes
}

// Mistakes are errors in the logic of an endpoint that a test plants, to see that a checker finds them. None by
// default.
type Mistakes struct {
	NoPromise bool // votes are granted in spite of a promised lease
	AnyCommit bool // messages with changes of members lose their commit index as others do
}

// Stats are counters since the endpoint was made.
type Stats struct {
	Batches   int64 // batches of Raft messages sent
	Messages  int64 // Raft messages sent
	Withheld  int64 // votes, requests for votes and late confirmations dropped for the sake of a lease
	Returned  int64 // entries of forwarded proposals dropped
	Lost      int64 // Raft messages that found a full queue or, over TCP, no connection
	Delivered int64 // Raft messages received
	Rested    int64 // ticks that replicas at rest did not get
	Campaigns int64 // terms in which a replica here has stood for election by asking for votes
}
