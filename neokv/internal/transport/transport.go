// Package transport carries Raft messages, and the stores' own calls, between stores. Every Raft message passes one
// filter on its way out and in: it holds the voters' lease promises, drops forwarded proposals and knows the state of
// the links.
//
// A message goes from dragonboat's send queue through these stages:
//
//	held back -> link up? -> filter, commits -> delayed -> link up? -> lost, repeated -> wire
//	-> the receiver's filter takes note -> the receiver's NodeHost
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
// reference, on the sender's goroutine unless the link delays them. All methods may run concurrently.
type Network struct {
	tcp    *TCP // nil in memory
	secret []byte

	mu     sync.Mutex
	places map[topology.StoreID]*location
	links  map[[2]topology.StoreID]*link
}

// location is where the endpoint of a store is looked up; it outlives the endpoints.
type location struct{ now atomic.Pointer[Endpoint] }

// link is the state of one direction between two stores.
type link struct {
	to    *location
	cut   atomic.Bool
	delay atomic.Int64 // ns
	hold  atomic.Pointer[hold]
	fate  atomic.Pointer[func(*pb.Message) Fate]
}

// Fate is what a network does to a Raft message besides delivering it once, in order.
type Fate struct {
	Lost  bool          // it does not arrive
	Again time.Duration // unless 0, it arrives that much later, whatever has overtaken it; once more, if it is not lost
}

type hold struct {
	d     time.Duration
	match func(*pb.Message) bool
}

// NewNetwork returns a network in memory, without stores and with all links up.
func NewNetwork() *Network {
	return &Network{places: make(map[topology.StoreID]*location), links: make(map[[2]topology.StoreID]*link)}
}

// Cut drops everything from one store to another, silently, until Heal. One direction only.
func (n *Network) Cut(from, to topology.StoreID) { n.link(from, to).cut.Store(true) }

// Heal lets messages from one store to another pass again.
func (n *Network) Heal(from, to topology.StoreID) { n.link(from, to).cut.Store(false) }

// Delay makes messages from one store to another arrive d later, in order; 0 turns it off. Calls, their answers and
// chunks of snapshots take d longer, too.
func (n *Network) Delay(from, to topology.StoreID, d time.Duration) {
	n.link(from, to).delay.Store(int64(d))
}

// Hold keeps the Raft messages that match in the sender's hands for d, in order, before they pass the filter and leave,
// while others overtake them: what a slow send queue does. d = 0 turns it off for messages to come. match runs on the
// senders' goroutines.
func (n *Network) Hold(from, to topology.StoreID, d time.Duration, match func(*pb.Message) bool) {
	if d == 0 {
		n.link(from, to).hold.Store(nil)
		return
	}
	n.link(from, to).hold.Store(&hold{d, match})
}

// Disturb has fate say what becomes of each Raft message from one store to another that has left its sender; nil turns
// it off. fate runs on the senders' goroutines.
func (n *Network) Disturb(from, to topology.StoreID, fate func(*pb.Message) Fate) {
	if fate == nil {
		n.link(from, to).fate.Store(nil)
		return
	}
	n.link(from, to).fate.Store(&fate)
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

// address is where the endpoint that a store has now listens, empty if it has none or cannot be reached.
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

func (n *Network) link(from, to topology.StoreID) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]topology.StoreID{from, to}
	l := n.links[key]
	if l == nil {
		l = &link{to: n.placeLocked(to)}
		n.links[key] = l
	}
	return l
}

// Options of an endpoint.
type Options struct {
	Store topology.StoreID
	// Lease is the voters' promise, 0 for none.
	Lease time.Duration
	// CommitInterval is how often a leader tells a follower what is committed, at most, 0 for each time; heartbeats say
	// it besides.
	CommitInterval time.Duration
	// Booting says that all stores of the cluster start at this moment, so that no lease of an earlier run can be left
	// anywhere: what Campaign starts need not wait for it.
	Booting bool
	// Revoke ends the leader lease of a region for all terms up to term. It is called before the message that makes it
	// unsafe leaves: TimeoutNow, a vote granted to another replica, and a request for votes. It must not wait for
	// anything, nor use the endpoint.
	Revoke func(region topology.RegionID, term uint64)
	// Forwarded is told of proposals that dragonboat wanted to pass on to another store; they are dropped and will
	// never be applied. Changes of membership are proposals, too: they have to be asked for at the leader's store.
	Forwarded func(region topology.RegionID, entries []pb.Entry)
	// Handle answers calls of other stores, on the caller's goroutine. ctx ends with the call, and when either endpoint
	// closes. Nobody changes request or the answer after handing it over.
	Handle func(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error)
	// Faults plants mistakes for tests that must catch them.
	Faults Faults
}

// Faults are planted mistakes; the zero value plants none.
type Faults struct {
	NoPromise bool // votes are granted in spite of a promised lease
}

// Stats counts since the endpoint was made.
type Stats struct {
	Batches   int64 // batches of Raft messages sent
	Messages  int64 // Raft messages sent
	Withheld  int64 // votes, requests for votes and late confirmations dropped for the sake of a lease
	Returned  int64 // entries of forwarded proposals dropped
	Lost      int64 // Raft messages that found no connection, or a full queue; over TCP
	Delivered int64 // Raft messages received
	Campaigns int64 // terms in which a replica here has stood for election by asking for votes
}
