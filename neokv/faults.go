package neokv

import (
	"context"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/cluster"
)

// Inject carries out a fault: it kills a store, cuts a link, moves a leader. It returns when that has happened. A fault
// that lasts goes on until another one ends it, also while its store is down and after the store has started again; a
// pause ends with its store. The outcome says what has come of a fault that leaves something open: which region a split
// has made, which one a merge has taken over, which store leads. That of other faults is "". The error says what the
// cluster lacks for the fault, such as a store that runs.
//
//	cluster.Inject(ctx, fault.MustParse("kill 2"))
func (c *Cluster) Inject(ctx context.Context, f fault.Fault) (outcome string, err error) {
	if ctx == nil {
		return "", ErrNilContext
	}
	return c.in.Inject(ctx, f)
}

// Faults returns the faults that are in force, by verb. Each ends with its End, all with Heal. A store that has failed
// is none: Status says why it has.
func (c *Cluster) Faults() (all []fault.Fault) { return c.in.Faults() }

// AddStore adds a new store to the cluster: it has a port, a folder and a Pebble of its own, and no replicas until some
// are moved there. Its number, which AddStore returns, is never given again. AddStore returns when all other stores know
// of it. Inject of the fault "add" does the same.
func (c *Cluster) AddStore(ctx context.Context) (store int, err error) {
	if ctx == nil {
		return 0, ErrNilContext
	}
	id, err := c.in.AddStore(ctx)
	return int(id), err
}

// DrainStore moves all replicas of a store to others, one after the other, its leaders first, and returns when it has
// none. If ctx ends, the store goes on draining; it does so at the next start, too. No replica is moved to a store that
// drains. The error says that too few stores are left, or that the store has a replica of the cluster map, which does
// not move. Inject of the fault "drain" does the same.
func (c *Cluster) DrainStore(ctx context.Context, store int) error {
	_, err := c.Inject(ctx, fault.Fault{Verb: fault.Drain, To: store})
	return err
}

// KeepStore ends the draining of a store: what it still has it keeps, and replicas may be moved there again.
func (c *Cluster) KeepStore(ctx context.Context, store int) error {
	_, err := c.Inject(ctx, fault.Fault{Verb: fault.Drain, To: store, Cancel: true})
	return err
}

// RemoveStore takes a store that has no replicas out of the cluster, with its folder. Its number is never given again.
func (c *Cluster) RemoveStore(ctx context.Context, store int) error {
	_, err := c.Inject(ctx, fault.Fault{Verb: fault.RemoveStore, To: store})
	return err
}

// ErrNoStore is in the error of a fault that names a store which the cluster does not have.
var ErrNoStore error = cluster.ErrNoStore

// ErrNoRegion is in the error of a fault that names a region which the cluster does not have.
var ErrNoRegion error = cluster.ErrNoRegion
