package neokv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
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
	c.event("%s: begins", f)
	switch f.Verb {
	case fault.Split:
		outcome, err = c.split(ctx, topology.RegionID(f.Region), topology.Slot(f.Slot))
	case fault.Merge:
		outcome, err = c.merge(ctx, topology.RegionID(f.Region))
	case fault.Transfer, fault.StepDown:
		outcome, err = c.transfer(ctx, topology.RegionID(f.Region), topology.StoreID(f.To))
	default:
		err = c.inject(ctx, f)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err)
		c.event("%v", err)
		return "", err
	}
	c.event("%s: done", f) // what has come of it the stores tell
	return outcome, nil
}

// inject carries out a fault that has no outcome.
func (c *Cluster) inject(ctx context.Context, f fault.Fault) error {
	places := c.places(f.Stores)
	switch f.Verb {
	case fault.Stop:
		return c.change(ctx, func() error { return c.stopStores(places) })
	case fault.Kill:
		return c.change(ctx, func() error { return c.killStores(ctx, places, f.Kill) })
	case fault.Restart:
		return c.change(ctx, func() error { return c.startStores(places) })
	case fault.Pause:
		return c.change(ctx, func() error { return c.pauseStores(places) })
	case fault.Partition:
		return c.setLinks(f, fault.Net{Cut: true})
	case fault.Mend:
		return c.setLinks(f, fault.Net{})
	case fault.Link:
		return c.setLinks(f, f.Link)
	case fault.Network:
		return c.setMatrix(f.Matrix)
	case fault.Heal:
		return c.heal(ctx)
	}
	for _, n := range places {
		switch f.Verb {
		case fault.Resume:
			n.resume()
		case fault.Disk:
			n.setDrive(f.Disk)
		case fault.Clock:
			n.ahead.Store(int64(f.Ahead))
		case fault.Clients:
			n.setClient(f.Client)
		default:
			return fmt.Errorf("unknown verb %q", f.Verb)
		}
	}
	return nil
}

// places returns the places of some stores, nil for all of them.
func (c *Cluster) places(stores []int) (out []*storePlace) {
	for _, n := range c.nodes {
		if stores == nil || slices.Contains(stores, int(n.id)) {
			out = append(out, n)
		}
	}
	return out
}

// heal ends all faults, lets leaders return to where they were at first, and starts the stores that do not run.
func (c *Cluster) heal(ctx context.Context) error {
	c.pinMu.Lock()
	clear(c.pins)
	c.pinMu.Unlock()
	for _, f := range c.Faults() {
		if f.Verb == fault.Stop || f.Verb == fault.Kill {
			continue // below, together with those that have failed
		}
		if err := c.inject(ctx, f.End()); err != nil {
			return err
		}
	}
	return c.change(ctx, func() error {
		down := slices.DeleteFunc(c.places(nil), (*storePlace).running)
		return c.startStores(down)
	})
}

// Faults returns the faults that are in force. Each ends with its End, all with Heal. A store that has failed is none:
// Status says why it has.
func (c *Cluster) Faults() (all []fault.Fault) {
	if m := c.matrixName(); m != "" {
		all = append(all, fault.Fault{Verb: fault.Network, Matrix: m})
	}
	all = append(all, c.badLinks()...)
	for _, n := range c.nodes {
		id := []int{int(n.id)}
		n.mu.Lock()
		drive, client, paused, down, why := n.drive, n.client, n.paused, n.down && n.failure == nil, n.why
		n.mu.Unlock()
		switch {
		case down && why != "":
			all = append(all, fault.Fault{Verb: why, Stores: id})
		case paused:
			all = append(all, fault.Fault{Verb: fault.Pause, Stores: id})
		}
		if drive != (fault.Drive{}) {
			all = append(all, fault.Fault{Verb: fault.Disk, Stores: id, Disk: drive})
		}
		if ahead := n.ahead.Load(); ahead != 0 {
			all = append(all, fault.Fault{Verb: fault.Clock, Stores: id, Ahead: time.Duration(ahead)})
		}
		if client != (fault.Client{}) {
			all = append(all, fault.Fault{Verb: fault.Clients, Stores: id, Client: client})
		}
	}
	return all
}

// links are the faults between stores.
type links struct {
	bad    map[[2]topology.StoreID]fault.Net // from, to
	matrix string
}

// setLinks gives the links of a fault a state.
func (c *Cluster) setLinks(f fault.Fault, state fault.Net) error {
	if len(c.nodes) < 2 {
		return errors.New("the cluster has one store, so no links")
	}
	c.linkMu.Lock()
	defer c.linkMu.Unlock()
	for _, a := range c.places(f.Stores) {
		for _, b := range c.places(f.Others) {
			if a == b || f.Others == nil && f.Stores != nil && slices.Contains(f.Stores, int(b.id)) {
				continue
			}
			c.setLink(a.id, b.id, state)
			if !f.OneWay {
				c.setLink(b.id, a.id, state)
			}
		}
	}
	return nil
}

// setLink gives one link a state. The caller holds linkMu.
func (c *Cluster) setLink(from, to topology.StoreID, state fault.Net) {
	key := [2]topology.StoreID{from, to}
	if state == (fault.Net{}) {
		delete(c.links.bad, key)
	} else {
		c.links.bad[key] = state
	}
	delay, _ := fault.MatrixDelay(c.links.matrix, int(from), int(to))
	state.Delay += delay
	c.network.SetLink(from, to, state, c.newRand())
}

// setMatrix gives all links the delays of a matrix, beside what else is wrong with them.
func (c *Cluster) setMatrix(name string) error {
	c.linkMu.Lock()
	defer c.linkMu.Unlock()
	c.links.matrix = name
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			if a != b {
				c.setLink(a.id, b.id, c.links.bad[[2]topology.StoreID{a.id, b.id}])
			}
		}
	}
	return nil
}

func (c *Cluster) matrixName() string {
	c.linkMu.Lock()
	defer c.linkMu.Unlock()
	return c.links.matrix
}

// badLinks returns the faults of links, those of both directions in one.
func (c *Cluster) badLinks() (all []fault.Fault) {
	c.linkMu.Lock()
	defer c.linkMu.Unlock()
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			there, back := c.links.bad[[2]topology.StoreID{a.id, b.id}], c.links.bad[[2]topology.StoreID{b.id, a.id}]
			if there == (fault.Net{}) || there == back && a.id > b.id {
				continue
			}
			f := fault.Fault{Verb: fault.Link, Stores: []int{int(a.id)}, Others: []int{int(b.id)}, Link: there,
				OneWay: there != back}
			if there == back && there == (fault.Net{Cut: true}) {
				f = fault.Fault{Verb: fault.Partition, Stores: f.Stores, Others: f.Others}
			}
			all = append(all, f)
		}
	}
	return all
}

// newRand returns a random source of its own, drawn from the cluster's.
func (c *Cluster) newRand() *rand.Rand {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	return rand.New(rand.NewPCG(c.rand.Uint64(), c.rand.Uint64()))
}

// transferWait is how long a transfer may take before it is called off.
const transferWait = 5 * time.Second

// transferAgain is how long a leader has for one attempt.
const transferAgain = 100 * time.Millisecond

// pin makes a region stay with the leader that it has, until heal.
func (c *Cluster) pin(id topology.RegionID) {
	c.pinMu.Lock()
	defer c.pinMu.Unlock()
	c.pins[id] = true
}

// pinned reports whether a region is pinned.
func (c *Cluster) pinned(id topology.RegionID) bool {
	c.pinMu.Lock()
	defer c.pinMu.Unlock()
	return c.pins[id]
}

// transfer moves the leadership of a region to a store, or to any other one if that is 0, and pins the region there.
// Raft may ignore a request or, while a sync lasts, not take it, and the leader may change. So transfer asks again.
func (c *Cluster) transfer(ctx context.Context, id topology.RegionID, to topology.StoreID) (outcome string, err error) {
	if err := c.checkRegion(id); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, transferWait,
		fmt.Errorf("the leader has not moved in %s", transferWait))
	defer cancel()
	var first *storePlace
	var refusal error // why Raft has not taken the last request, nil if it has
	for {
		from := c.leaderOf(id)
		if first == nil {
			first = from
		}
		if from != nil {
			if from.id == to || to == 0 && from != first {
				c.pin(id) // nobody has moved it on: a leader hands over only after raft.leader_return
				return fmt.Sprintf("store %d leads region %d", from.id, id), nil
			}
			next, err := c.successor(id, from, to)
			if err != nil {
				return "", err
			}
			if s := from.store.Load(); s != nil {
				refusal = s.Transfer(id, next)
			}
		}
		for end := time.Now().Add(transferAgain); time.Now().Before(end) && c.leaderOf(id) == from; {
			select {
			case <-ctx.Done():
				if refusal != nil {
					return "", fmt.Errorf("%w: %w", context.Cause(ctx), refusal)
				}
				return "", context.Cause(ctx)
			case <-c.closing:
				return "", ErrClosed
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// successor returns the store that a region's leader should hand over to: to or, if that is 0, the one whose replica
// has applied most. The error says what the cluster lacks for that.
func (c *Cluster) successor(id topology.RegionID, from *storePlace, to topology.StoreID) (topology.StoreID, error) {
	if to == 0 {
		if to = c.heir(id, from); to == 0 {
			return 0, errors.New("no other store that runs has a replica of the region")
		}
		return to, nil
	}
	if !c.nodes[to-1].running() {
		return 0, fmt.Errorf("store %d does not run", to)
	}
	if r := c.replica(from.id, id); r != nil { // nil if the leader has just stopped
		desc, _ := r.Region()
		if _, ok := desc.PeerOn(to); !ok {
			return 0, fmt.Errorf("region %d has no replica on store %d", id, to)
		}
	}
	return to, nil
}

// leaderOf returns the place of the store that serves a region in the latest term, nil if none does.
func (c *Cluster) leaderOf(id topology.RegionID) (leader *storePlace) {
	latest := uint64(0)
	for _, n := range c.nodes {
		s := n.store.Load()
		if s == nil || s.Failed() != nil {
			continue
		}
		if r := s.Replica(id); r != nil {
			if _, term, serving := r.Leading(); serving && term >= latest && r.Bounds().Phase != keys.Absorbed {
				leader, latest = n, term
			}
		}
	}
	return leader
}

// heir returns the store beside from whose replica of a region has applied most, 0 if there is none.
func (c *Cluster) heir(id topology.RegionID, from *storePlace) (best topology.StoreID) {
	most := uint64(0)
	for _, n := range c.nodes {
		if n == from || !n.running() {
			continue
		}
		if r := c.replica(n.id, id); r != nil && (best == 0 || r.Applied() > most) {
			best, most = n.id, r.Applied()
		}
	}
	return best
}

// setDrive makes the store's disk bad, or good.
func (n *storePlace) setDrive(d fault.Drive) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drive = d
	n.driveChanged()
}

// driveChanged tells the disk what is wrong with it. The caller holds mu.
func (n *storePlace) driveChanged() {
	d := n.drive
	d.Hang = d.Hang || n.paused
	if n.leaving {
		d = fault.Drive{}
	}
	n.fs.SetDrive(d, n.c.newRand())
}

// setClient disturbs the store's clients, or no longer.
func (n *storePlace) setClient(f fault.Client) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.client = f
	if n.server != nil {
		n.server.SetClientFault(f)
	}
}

// pauseStores holds all that leaves stores or reaches them: messages, commands, replies, syncs. Their timers go on.
func (c *Cluster) pauseStores(places []*storePlace) error {
	if err := allRun(places); err != nil {
		return err
	}
	for _, n := range places {
		n.mu.Lock()
		if !n.paused && !n.leaving && n.server != nil { // a store that fails at this moment has none
			n.paused = true
			c.network.Pause(n.id)
			n.server.Pause()
			n.driveChanged()
		}
		n.mu.Unlock()
	}
	return nil
}

// resume lets a paused store go on.
func (n *storePlace) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.paused {
		return
	}
	n.paused = false
	n.driveChanged()
	n.c.network.Resume(n.id)
	if n.server != nil {
		n.server.Resume()
	}
}

// release ends for good what would keep the store from closing: a pause, and a disk that hangs or is slow.
func (n *storePlace) release() {
	n.resume()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leaving, n.drive = true, fault.Drive{}
	if n.fs != nil {
		n.driveChanged()
	}
}
