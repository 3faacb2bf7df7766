package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/route"
)

// inject is Cluster.Inject.
func (x *faults) inject(ctx context.Context, f fault.Fault) (outcome string, err error) {
	var stores []int
	for _, n := range x.places.all() {
		stores = append(stores, int(n.id))
	}
	if err := f.CheckAmong(stores); err != nil {
		return "", &notThere{err}
	}
	x.event(eventFault, "%s: begins", f)
	if outcome, err = x.verbs()[f.Verb].do(ctx, f); err != nil {
		err = fmt.Errorf("%s: %w", f, err)
		x.event(eventFault, "%v", err)
		return "", err
	}
	x.event(eventFault, "%s: done", f) // what has come of it the stores tell
	return outcome, nil
}

// ErrNoStore is in the error of a fault that names a store which the cluster does not have.
var ErrNoStore = errors.New("there is no such store")

// notThere is an ErrNoStore with a text that says which stores there are.
type notThere struct{ error }

func (e *notThere) Is(target error) bool { return target == ErrNoStore }

// faults carries out faults, and knows those in force.
type faults struct {
	*core
	pins       *pins
	places     *placeSet
	leaders    *leaders
	changes    *changes
	power      *power
	migrations *migrations
	wipes      *wipes
	links      *links
	refusals   *refusals
	members    *members
}

// verb is what the cluster knows of a verb; package fault knows the rest of it.
type verb struct {
	do  func(context.Context, fault.Fault) (outcome string, err error)
	now func() []fault.Fault // returns what is in force of it, ended ones too; nil where nothing lasts
}

// verbs returns the row of each verb.
func (x *faults) verbs() map[fault.Verb]verb {
	return map[fault.Verb]verb{
		fault.Stop:          {x.inTurn(x.power.stopStores), x.processes(fault.Stop)},
		fault.Kill:          {x.inTurn(x.power.killStores), x.processes(fault.Kill)},
		fault.Restart:       {x.inTurn(x.power.startStores), nil},
		fault.Pause:         {x.inTurn(x.power.pauseStores), x.processes(fault.Pause)},
		fault.Resume:        {x.onEach(func(n *Place, _ fault.Fault) { n.resume() }), nil},
		fault.Transfer:      {x.leaders.transfer, nil},
		fault.StepDown:      {x.leaders.transfer, nil},
		fault.Partition:     {x.links.set, func() []fault.Fault { return x.links.bad(fault.Partition) }},
		fault.Mend:          {x.links.set, nil},
		fault.Link:          {x.links.set, func() []fault.Fault { return x.links.bad(fault.Link) }},
		fault.Network:       {x.links.setMatrix, x.links.badMatrix},
		fault.Disk:          {x.onEach((*Place).setDrive), x.ofEach((*Place).badDrive)},
		fault.Clock:         {x.onEach((*Place).setClock), x.ofEach((*Place).badClock)},
		fault.Clients:       {x.onEach((*Place).setClient), x.ofEach((*Place).badClient)},
		fault.Split:         {x.changes.split, nil},
		fault.Merge:         {x.changes.merge, nil},
		fault.MoveReplica:   {x.changes.moveReplica, nil},
		fault.AddReplica:    {x.changes.moveReplica, nil},
		fault.RemoveReplica: {x.changes.moveReplica, nil},
		fault.AddStore:      {x.members.inject, nil},
		fault.Drain:         {x.members.drain, nil},
		fault.RemoveStore:   {x.members.remove, nil},
		fault.Wipe:          {x.wipes.wipe, nil},
		fault.Fail:          {x.refusals.refuse, x.refusals.now},
		fault.Migrate:       {x.migrations.migrate, nil},
		fault.Heal:          {x.heal, nil},
	}
}

// inTurn returns what carries out a fault that starts or ends stores, or during which no other caller may do so.
func (x *faults) inTurn(
	do func(context.Context, Places, fault.Fault) error,
) func(context.Context, fault.Fault) (string, error) {
	return func(ctx context.Context, f fault.Fault) (string, error) {
		return "", x.power.change(ctx, func() error { return do(ctx, x.places.all().of(f.Stores), f) })
	}
}

// onEach returns what does to each store of a fault what the fault says.
func (x *faults) onEach(do func(*Place, fault.Fault)) func(context.Context, fault.Fault) (string, error) {
	return func(_ context.Context, f fault.Fault) (string, error) {
		for _, n := range x.places.all().of(f.Stores) {
			do(n, f)
		}
		return "", nil
	}
}

// ofEach returns what lists the faults of each store. get returns that of one, without its number; the caller holds mu.
func (x *faults) ofEach(get func(*Place) fault.Fault) func() []fault.Fault {
	return func() (all []fault.Fault) {
		for _, n := range x.places.all() {
			n.mu.Lock()
			f := get(n)
			n.mu.Unlock()
			f.Stores = []int{int(n.id)}
			all = append(all, f)
		}
		return all
	}
}

// processes returns what lists the stores that a verb has stopped. Those that have failed since are none of them.
func (x *faults) processes(v fault.Verb) func() []fault.Fault {
	return x.ofEach(func(n *Place) fault.Fault {
		if n.faults.process != v || n.failure != nil && v != fault.Pause {
			return fault.Fault{}
		}
		return fault.Fault{Verb: v}
	})
}

// storeFaults are the faults in force on a store. They outlive the store, but for a pause. mu of the place guards them.
type storeFaults struct {
	process fault.Verb // stop, kill or pause; "" while the store runs
	drive   fault.Drive
	client  fault.Client
	refused []fault.Refusal
	ahead   atomic.Int64 // ns by which the store's clock is ahead; not guarded
}

// all is Cluster.Faults.
func (x *faults) all() (all []fault.Fault) {
	rows := x.verbs()
	for _, v := range fault.Verbs() {
		if now := rows[v].now; now != nil {
			all = append(all, now()...)
		}
	}
	return slices.DeleteFunc(all, fault.Fault.Ended)
}

// heal ends all faults, calls migrations off, lets leaders return to where they were at first, and starts the stores
// that do not run.
func (x *faults) heal(ctx context.Context, f fault.Fault) (string, error) {
	x.pins.regions.Clear()
	for _, bad := range x.all() {
		if bad.Verb == fault.Stop || bad.Verb == fault.Kill {
			continue // below, together with those that have failed
		}
		if _, err := x.verbs()[bad.End().Verb].do(ctx, bad.End()); err != nil {
			return "", err
		}
	}
	if err := x.power.change(ctx, func() error {
		return x.power.startStores(ctx, slices.DeleteFunc(x.places.all().of(nil), (*Place).running), f)
	}); err != nil {
		return "", err
	}
	_, err := x.migrations.callOff(ctx, func(*route.Window) bool { return true })
	return "", err
}

// setDrive makes the store's disk bad, or good.
func (n *Place) setDrive(f fault.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.drive = f.Disk
	n.driveChanged()
}

// badDrive returns what is wrong with the store's disk.
func (n *Place) badDrive() fault.Fault {
	return fault.Fault{Verb: fault.Disk, Disk: n.faults.drive}
}

// driveChanged tells the disk what is wrong with it. The caller holds mu.
func (n *Place) driveChanged() {
	d := n.faults.drive
	d.Hang = d.Hang || n.faults.process == fault.Pause
	if n.leaving {
		d = fault.Drive{}
	}
	n.fs.SetDrive(d, n.newRand())
}

// setClock sets the store's clock ahead, or right.
func (n *Place) setClock(f fault.Fault) { n.faults.ahead.Store(int64(f.Ahead)) }

// badClock returns how wrong the store's clock is.
func (n *Place) badClock() fault.Fault {
	return fault.Fault{Verb: fault.Clock, Ahead: time.Duration(n.faults.ahead.Load())}
}

// setClient disturbs the store's clients, or no longer.
func (n *Place) setClient(f fault.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.client = f.Client
	if n.server != nil {
		n.server.SetClientFault(f.Client)
	}
}

// badClient returns how the store's clients are disturbed.
func (n *Place) badClient() fault.Fault {
	return fault.Fault{Verb: fault.Clients, Client: n.faults.client}
}

// resume lets a paused store go on.
func (n *Place) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults.process != fault.Pause {
		return
	}
	n.faults.process = ""
	n.driveChanged()
	n.network.Resume(n.id)
	if n.server != nil {
		n.server.Resume()
	}
}

// release ends for good what would keep the store from closing: a pause, and a disk that hangs or is slow.
func (n *Place) release() {
	n.resume()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaving = true
	n.driveChanged()
}
