// Package transport carries Raft messages, and the stores' own calls, between stores. Every Raft message passes one filter on
// its way out and in: it holds the voters' lease promises, drops forwarded proposals and knows the state of the links.
package transport

import (
	"context"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// Network connects the stores of one process through memory.
type Network struct{}

// NewNetwork returns a network without stores and with all links up.
func NewNetwork() *Network { panic("skeleton") }

// Cut drops everything from one store to another, silently, until Heal. One direction only.
func (n *Network) Cut(from, to topology.StoreID) { panic("skeleton") }

// Heal lets messages from one store to another pass again.
func (n *Network) Heal(from, to topology.StoreID) { panic("skeleton") }

// Delay makes messages from one store to another arrive d later, in order; 0 turns it off.
func (n *Network) Delay(from, to topology.StoreID, d time.Duration) { panic("skeleton") }

// Endpoint is a store's place in the network, one per incarnation of the store: NewEndpoint at each start, Close at its end.
type Endpoint struct{}

// Options of an endpoint.
type Options struct {
	Store topology.StoreID
	// Lease is the voters' promise, 0 for none.
	Lease time.Duration
	// Revoke ends the leader lease of a region for all terms up to term. It is called before the message that makes it
	// unsafe leaves: TimeoutNow, and a vote granted to another replica.
	Revoke func(region topology.RegionID, term uint64)
	// Forwarded is told of proposals that dragonboat wanted to pass on to another store; they are dropped and will never be applied.
	Forwarded func(region topology.RegionID, entries []pb.Entry)
	// Handle answers calls of other stores.
	Handle func(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error)
	// Faults plants mistakes for tests that must catch them.
	Faults Faults
}

// Faults are planted mistakes; the zero value plants none.
type Faults struct {
	NoPromise bool // votes are granted in spite of a promised lease
}

// NewEndpoint registers a store. Until Fresh says otherwise it withholds votes for one lease, since a store that starts has lost its promises.
func (n *Network) NewEndpoint(o Options) *Endpoint { panic("skeleton") }

// Fresh tells that no replica of the region has ever run on this store, so that its first vote need not be withheld.
func (e *Endpoint) Fresh(region topology.RegionID) { panic("skeleton") }

// Factory is what dragonboat is configured with (Expert.TransportFactory).
func (e *Endpoint) Factory() config.TransportFactory { panic("skeleton") }

// Call sends a request to another store (or to this one) and waits for the answer. A cut link means no answer until ctx ends.
func (e *Endpoint) Call(ctx context.Context, to topology.StoreID, request []byte) ([]byte, error) {
	panic("skeleton")
}

// Campaign makes this store's replica stand for election at once, without a pre-vote and without regard to leases: only for a
// region of which no replica can hold one, at the boot of a whole cluster.
func (e *Endpoint) Campaign(region topology.RegionID, replica topology.ReplicaID) { panic("skeleton") }

// Isolate drops everything to and from the endpoint for good: the store has failed or was killed.
func (e *Endpoint) Isolate() { panic("skeleton") }

// Close removes the endpoint and waits for deliveries to it to end.
func (e *Endpoint) Close() { panic("skeleton") }
