package neokv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/server"
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
	if err := f.Check(len(c.nodes)); err != nil {
		return "", err
	}
	c.event(EventFault, "%s: begins", f)
	if outcome, err = c.verbs()[f.Verb].do(ctx, f); err != nil {
		err = fmt.Errorf("%s: %w", f, err)
		c.event(EventFault, "%v", err)
		return "", err
	}
	c.event(EventFault, "%s: done", f) // what has come of it the stores tell
	return outcome, nil
}

// verb is what the cluster knows of a verb; package fault knows the rest of it.
type verb struct {
	do  func(context.Context, fault.Fault) (outcome string, err error)
	now func() []fault.Fault // returns what is in force of it, ended ones too; nil where nothing lasts
}

// verbs returns the row of each verb.
func (c *Cluster) verbs() map[fault.Verb]verb {
	return map[fault.Verb]verb{
		fault.Stop:      {c.inTurn(c.power.stopStores), c.processes(fault.Stop)},
		fault.Kill:      {c.inTurn(c.power.killStores), c.processes(fault.Kill)},
		fault.Restart:   {c.inTurn(c.power.startStores), nil},
		fault.Pause:     {c.inTurn(c.power.pauseStores), c.processes(fault.Pause)},
		fault.Resume:    {c.onEach(func(n *storePlace, _ fault.Fault) { n.resume() }), nil},
		fault.Transfer:  {c.leaders.transfer, nil},
		fault.StepDown:  {c.leaders.transfer, nil},
		fault.Partition: {c.setLinks, func() []fault.Fault { return c.badLinks(fault.Partition) }},
		fault.Mend:      {c.setLinks, nil},
		fault.Link:      {c.setLinks, func() []fault.Fault { return c.badLinks(fault.Link) }},
		fault.Network:   {c.setMatrix, c.badMatrix},
		fault.Disk:      {c.onEach((*storePlace).setDrive), c.ofEach((*storePlace).badDrive)},
		fault.Clock:     {c.onEach((*storePlace).setClock), c.ofEach((*storePlace).badClock)},
		fault.Clients:   {c.onEach((*storePlace).setClient), c.ofEach((*storePlace).badClient)},
		fault.Split:     {c.changes.split, nil},
		fault.Merge:     {c.changes.merge, nil},
		fault.Fail:      {c.refuse, c.refusals},
		fault.Migrate:   {c.migrations.migrate, nil},
		fault.Heal:      {c.heal, nil},
	}
}

// inTurn returns what carries out a fault that starts or ends stores, or during which no other caller may do so.
func (c *Cluster) inTurn(
	do func(context.Context, places, fault.Fault) error,
) func(context.Context, fault.Fault) (string, error) {
	return func(ctx context.Context, f fault.Fault) (string, error) {
		return "", c.power.change(ctx, func() error { return do(ctx, c.nodes.of(f.Stores), f) })
	}
}

// onEach returns what does to each store of a fault what the fault says.
func (c *Cluster) onEach(do func(*storePlace, fault.Fault)) func(context.Context, fault.Fault) (string, error) {
	return func(_ context.Context, f fault.Fault) (string, error) {
		for _, n := range c.nodes.of(f.Stores) {
			do(n, f)
		}
		return "", nil
	}
}

// ofEach returns what lists the faults of each store. get returns that of one, without its number; the caller holds mu.
func (c *Cluster) ofEach(get func(*storePlace) fault.Fault) func() []fault.Fault {
	return func() (all []fault.Fault) {
		for _, n := range c.nodes {
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
func (c *Cluster) processes(v fault.Verb) func() []fault.Fault {
	return c.ofEach(func(n *storePlace) fault.Fault {
		if n.faults.process != v || n.failure != nil && v != fault.Pause {
			return fault.Fault{}
		}
		return fault.Fault{Verb: v}
	})
}

// clusterFaults are the faults in force on the cluster as a whole. Those of links the network knows.
type clusterFaults struct {
	mu      sync.Mutex
	refused []fault.Refusal // at the proxy port; mu guards it
	matrix  string          // whose delays the network has, "" for none; mu guards it
}

// storeFaults are the faults in force on a store. They outlive the store, but for a pause. mu of the place guards them.
type storeFaults struct {
	process fault.Verb // stop, kill or pause; "" while the store runs
	drive   fault.Drive
	client  fault.Client
	refused []fault.Refusal
	ahead   atomic.Int64 // ns by which the store's clock is ahead; not guarded
}

// Faults returns the faults that are in force, by verb. Each ends with its End, all with Heal. A store that has failed
// is none: Status says why it has.
func (c *Cluster) Faults() (all []fault.Fault) {
	rows := c.verbs()
	for _, v := range fault.Verbs() {
		if now := rows[v].now; now != nil {
			all = append(all, now()...)
		}
	}
	return slices.DeleteFunc(all, fault.Fault.Ended)
}

// heal ends all faults, calls migrations off, lets leaders return to where they were at first, and starts the stores
// that do not run.
func (c *Cluster) heal(ctx context.Context, f fault.Fault) (string, error) {
	c.pins.regions.Clear()
	for _, bad := range c.Faults() {
		if bad.Verb == fault.Stop || bad.Verb == fault.Kill {
			continue // below, together with those that have failed
		}
		if _, err := c.verbs()[bad.End().Verb].do(ctx, bad.End()); err != nil {
			return "", err
		}
	}
	if err := c.power.change(ctx, func() error {
		return c.power.startStores(ctx, slices.DeleteFunc(c.nodes.of(nil), (*storePlace).running), f)
	}); err != nil {
		return "", err
	}
	_, err := c.migrations.callOff(ctx, func(*route.Window) bool { return true })
	return "", err
}

// setLinks sets what is wrong with the links of a fault.
func (c *Cluster) setLinks(_ context.Context, f fault.Fault) (string, error) {
	if len(c.nodes) < 2 {
		return "", errors.New("the cluster has one store, so no links")
	}
	state := f.Link
	if f.Verb != fault.Link {
		state = fault.Net{Cut: f.Verb == fault.Partition}
	}
	for _, a := range c.nodes.of(f.Stores) {
		for _, b := range c.nodes.of(f.Others) {
			if a == b || f.Others == nil && f.Stores != nil && slices.Contains(f.Stores, int(b.id)) {
				continue
			}
			c.network.SetLink(a.id, b.id, state, c.newRand())
			if !f.OneWay {
				c.network.SetLink(b.id, a.id, state, c.newRand())
			}
		}
	}
	return "", nil
}

// badLinks returns the faults of links that are cut, or those of all others. Two directions that are alike are one
// fault.
func (c *Cluster) badLinks(v fault.Verb) (all []fault.Fault) {
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			there, back := c.network.Link(a.id, b.id), c.network.Link(b.id, a.id)
			f := fault.Fault{Verb: fault.Link, Stores: []int{int(a.id)}, Others: []int{int(b.id)}, Link: there,
				OneWay: there != back}
			if !f.OneWay && there == (fault.Net{Cut: true}) {
				f = fault.Fault{Verb: fault.Partition, Stores: f.Stores, Others: f.Others}
			}
			if f.Verb == v && (f.OneWay || a.id < b.id) {
				all = append(all, f)
			}
		}
	}
	return all
}

// setMatrix gives all links the delays of a matrix, beside what else is wrong with them.
func (c *Cluster) setMatrix(_ context.Context, f fault.Fault) (string, error) {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			delay, err := fault.MatrixDelay(f.Matrix, int(a.id), int(b.id))
			if err != nil {
				return "", err
			}
			c.network.SetDistance(a.id, b.id, delay)
		}
	}
	c.faults.matrix = f.Matrix
	return "", nil
}

// badMatrix returns the matrix whose delays the links have.
func (c *Cluster) badMatrix() []fault.Fault {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return []fault.Fault{{Verb: fault.Network, Matrix: c.faults.matrix}}
}

// setDrive makes the store's disk bad, or good.
func (n *storePlace) setDrive(f fault.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.drive = f.Disk
	n.driveChanged()
}

// badDrive returns what is wrong with the store's disk.
func (n *storePlace) badDrive() fault.Fault {
	return fault.Fault{Verb: fault.Disk, Disk: n.faults.drive}
}

// driveChanged tells the disk what is wrong with it. The caller holds mu.
func (n *storePlace) driveChanged() {
	d := n.faults.drive
	d.Hang = d.Hang || n.faults.process == fault.Pause
	if n.leaving {
		d = fault.Drive{}
	}
	n.fs.SetDrive(d, n.newRand())
}

// setClock sets the store's clock ahead, or right.
func (n *storePlace) setClock(f fault.Fault) { n.faults.ahead.Store(int64(f.Ahead)) }

// badClock returns how wrong the store's clock is.
func (n *storePlace) badClock() fault.Fault {
	return fault.Fault{Verb: fault.Clock, Ahead: time.Duration(n.faults.ahead.Load())}
}

// setClient disturbs the store's clients, or no longer.
func (n *storePlace) setClient(f fault.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults.client = f.Client
	if n.server != nil {
		n.server.SetClientFault(f.Client)
	}
}

// badClient returns how the store's clients are disturbed.
func (n *storePlace) badClient() fault.Fault {
	return fault.Fault{Verb: fault.Clients, Client: n.faults.client}
}

// refuse lets stores refuse a command, or no longer. The proxy port refuses what all stores do by one fault, until a
// store has another one of the command.
func (c *Cluster) refuse(_ context.Context, f fault.Fault) (string, error) {
	if !server.HasCommand(f.Refuse.Command) {
		return "", fmt.Errorf("there is no command %s", f.Refuse.Command)
	}
	for _, n := range c.nodes.of(f.Stores) {
		n.mu.Lock()
		n.faults.refused = withRefusal(n.faults.refused, f.Refuse)
		if n.server != nil {
			n.server.SetRefusals(n.faults.refused)
		}
		n.mu.Unlock()
	}
	everywhere := f.Refuse
	if f.Stores != nil {
		everywhere.Share = 0
	}
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.refused = withRefusal(c.faults.refused, everywhere)
	c.proxy.Load().SetRefusals(c.faults.refused)
	return "", nil
}

// withRefusal returns refusals with one that takes the place of that of the same command, in the order of commands.
func withRefusal(all []fault.Refusal, r fault.Refusal) []fault.Refusal {
	all = slices.DeleteFunc(slices.Clone(all), func(old fault.Refusal) bool { return old.Command == r.Command })
	if r.Share > 0 {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b fault.Refusal) int { return strings.Compare(a.Command, b.Command) })
	return all
}

// refusals returns the refusals of all stores and of the proxy port, then those of single stores.
func (c *Cluster) refusals() (all []fault.Fault) {
	c.faults.mu.Lock()
	everywhere := c.faults.refused
	c.faults.mu.Unlock()
	for _, r := range everywhere {
		all = append(all, fault.Fault{Verb: fault.Fail, Refuse: r})
	}
	for _, n := range c.nodes {
		n.mu.Lock()
		for _, r := range n.faults.refused {
			if !slices.Contains(everywhere, r) {
				all = append(all, fault.Fault{Verb: fault.Fail, Stores: []int{int(n.id)}, Refuse: r})
			}
		}
		n.mu.Unlock()
	}
	return all
}

// resume lets a paused store go on.
func (n *storePlace) resume() {
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
func (n *storePlace) release() {
	n.resume()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaving = true
	n.driveChanged()
}
