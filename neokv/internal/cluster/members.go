package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has stores that come to a running cluster, drain, and go.
//
// The folder's record comes first: once it has the store's number, each start of the process opens the store, and makes
// what is missing of it. Without it there is nothing of the store. A store that runs and is not on the cluster map gets
// there by its heartbeats. So wherever the process ends, the store is there or not, and nothing has to be finished.
//
// That a store drains or has gone is an entry of the cluster map. A goroutine goes by the map: it moves the leaders of
// draining stores, and ends stores that have gone. The store that leads meta has the replicas of draining stores moved.
// So what the end of the process has cut short goes on at the next start.

// members adds stores, drains them and removes them.
type members struct {
	*core
	shared  *shared
	boots   *boots
	journal *journal
	places  *placeSet
	regions *regions
	leaders *leaders
	power   *power
	servers *servers
	links   *links

	wake chan struct{} // has the goroutine look now
}

// comingWait bounds how long add waits until the other stores know of a store that has come.
const comingWait = 10 * time.Second

// inject carries out the fault "add".
func (x *members) inject(ctx context.Context, _ fault.Fault) (outcome string, err error) {
	n, err := x.add(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("store %d runs at %s, without replicas: neokv ctl move-replica REGION FROM %d moves one there",
		n.id, n.Addr(), n.id), nil
}

// add adds a store, which has no replicas. It returns when all other stores that run know of it.
func (x *members) add(ctx context.Context) (*Place, error) {
	var n *Place
	err := x.power.change(ctx, func() (err error) {
		n, err = x.open()
		return err
	})
	if err != nil {
		return nil, err
	}
	x.event(eventCluster, "store %d has come, at %s", n.id, n.Addr())
	ctx, cancel := context.WithTimeout(ctx, comingWait)
	defer cancel()
	for !x.known(n.id) {
		if err := x.moment(ctx); err != nil {
			return nil, fmt.Errorf("store %d runs, but not all other stores know of it yet: %w; they learn of it when the "+
				"cluster map has a leader", n.id, err)
		}
	}
	return n, nil
}

// known reports whether all stores that run know of a store.
func (x *members) known(id topology.StoreID) bool {
	return x.agree(func(t *route.Table) bool {
		st := t.Store(id)
		return st != nil && st.Alive
	})
}

// open makes the place of one store more, and opens the store. The caller has the turn of power. An error is of a store
// that does not come, unless it says that the store has come and does not run.
func (x *members) open() (*Place, error) {
	all := x.places.all()
	if err := x.mayAdd(all); err != nil {
		return nil, err
	}
	n := all[0].newPlace(x.places.last + 1)
	if err := x.listen(n, all); err != nil {
		return nil, err
	}
	err := x.announce.Grows(int(n.id), n.port(), x.seconds())
	if err == nil && x.folder != nil {
		_, err = x.folder.grow()
	}
	if err != nil {
		n.mu.Lock()
		n.closeDoors()
		n.mu.Unlock()
		return nil, err
	}
	x.places.last = n.id
	x.places.set(append(slices.Clone(all), n))
	x.links.extend(n)
	if err := (Places{n}).open(); err != nil {
		return nil, fmt.Errorf("store %d has come and does not run: %w; neokv ctl restart %d tries again", n.id, err, n.id)
	}
	return n, nil
}

// mayAdd returns an error if the cluster cannot have one store more.
func (x *members) mayAdd(all Places) error {
	next := x.settings
	next.Cluster.Stores = len(all) + 1
	if err := next.Validate(); err != nil {
		return err
	}
	if x.journal.dead || !slices.ContainsFunc(all, (*Place).running) {
		return errors.New("no store runs")
	}
	if x.folder != nil {
		for s := range all.Running() { // they mostly share the disk
			if why := s.Full(); why != "" {
				return fmt.Errorf("store %d is full: %s", s.ID(), why)
			}
		}
	}
	return x.shared.moreDescriptors(x.core, len(all)+1)
}

// portTries bounds how many ports of the row listen tries.
const portTries = 100

// listen gives a new place its addresses: those that a start would give it or, where they are taken, the next free ones.
// It opens the sockets.
func (x *members) listen(n *Place, all Places) error {
	taken := map[string]bool{x.servers.proxyAddr: true}
	for _, other := range all {
		for _, d := range other.doors {
			taken[d.addr] = true
		}
	}
	at := int(n.id) - 1
	for _, d := range n.doors {
		var err error
		for tries := 0; ; at, tries = at+1, tries+1 {
			d.addr = x.address(x.config.Port, at)
			free := x.config.Port == 0 && !x.config.NoSockets
			if _, port, _ := net.SplitHostPort(d.addr); !free && !isPort(port) {
				err = errors.New("there is no free port behind those of the other stores")
				break
			}
			if !free && taken[d.addr] {
				continue
			}
			if x.config.NoSockets {
				break
			}
			if d.ln, err = net.Listen("tcp", d.addr); err == nil {
				d.addr = d.ln.Addr().String()
				break
			}
			d.ln = nil
			if !errors.Is(err, syscall.EADDRINUSE) || tries == portTries {
				break
			}
		}
		if err != nil {
			n.mu.Lock()
			n.closeDoors()
			n.mu.Unlock()
			return err
		}
		taken[d.addr] = true
		at++
	}
	return nil
}

func isPort(text string) bool {
	port, err := strconv.Atoi(text)
	return err == nil && port >= 1 && port <= 65535
}

// port is the port of the store's own address.
func (n *Place) port() int {
	_, text, _ := net.SplitHostPort(n.Addr())
	port, _ := strconv.Atoi(text)
	return port
}

// membersLook is how often the goroutine looks at the map.
const membersLook = time.Second

// run does what the cluster map says of stores that drain or have gone, until the cluster closes.
func (x *members) run() {
	tick := time.NewTicker(membersLook)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.wg.Go(func() {
		<-x.closing
		cancel()
	})
	for {
		select {
		case <-x.closing:
			return
		case <-tick.C:
		case <-x.wake:
		}
		for x.step(ctx) {
		}
	}
}

// step does one thing that the map asks for. It returns false if there is nothing to do now.
func (x *members) step(ctx context.Context) bool {
	for _, n := range x.places.all() {
		t := x.table()
		if t == nil {
			return false
		}
		if slices.Contains(t.Gone, n.id) {
			if err := x.end(ctx, n); err != nil {
				x.event(eventCluster, "store %d goes: %v", n.id, err)
				return false
			}
			return true
		}
		if st := t.Store(n.id); st != nil && st.Draining && x.relieve(ctx, t, n) {
			return true
		}
	}
	return false
}

// table returns the newest slot table of a store that runs, nil if there is none.
func (x *members) table() (newest *route.Table) {
	for s := range x.places.all().Running() {
		if t := s.Table(); t != nil && !t.Alone && (newest == nil || t.Version > newest.Version) {
			newest = t
		}
	}
	return newest
}

// relieve takes a leadership from a draining store, whose replicas the plan of meta's leader moves. It returns false if
// there is none, or if that has failed.
func (x *members) relieve(ctx context.Context, t *route.Table, n *Place) bool {
	for _, r := range t.Regions {
		if leader := x.places.all().LeaderOf(r.ID); leader == nil || leader != n {
			continue
		}
		for _, p := range r.Peers {
			if st := t.Store(p.Store); p.Store == n.id || p.Role != topology.Voter || st == nil || !st.Alive || st.Draining {
				continue
			}
			if _, err := x.leaders.lead(ctx, r.ID, p.Store); err == nil {
				return true
			}
		}
	}
	return false
}

// has returns how many replicas and leaders a store has, by a table and by what it runs itself.
func (x *members) has(t *route.Table, n *Place) (replicas, leads int) {
	here := make(map[topology.RegionID]bool)
	for i := range t.Regions {
		r := &t.Regions[i]
		if _, there := r.PeerOn(n.id); there {
			here[r.ID] = true
		}
		if x.places.all().LeaderOf(r.ID) == n {
			leads++
		}
	}
	if s := n.store.Load(); s != nil {
		for id := range s.Replicas() {
			here[id] = true
		}
	}
	return len(here), leads
}

// drain has a store lose all of its replicas, and returns when it has none; or has it keep what it has. If ctx ends, it
// goes on draining.
func (x *members) drain(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.StoreID(f.To)
	if f.Cancel {
		if err := x.setState(ctx, id, meta.Up); err != nil {
			return "", err
		}
		return fmt.Sprintf("store %d does not drain", id), nil
	}
	t := x.table()
	if t == nil {
		return "", errors.New("no store knows the cluster map")
	}
	if err := x.mayDrain(t, id); err != nil {
		return "", err
	}
	if err := x.setState(ctx, id, meta.Draining); err != nil {
		return "", err
	}
	for {
		n, t := x.places.all().At(id), x.table()
		if n == nil {
			return "", fmt.Errorf("store %d has been removed", id)
		}
		if t != nil {
			st := t.Store(id)
			if st != nil && !st.Draining {
				return "", fmt.Errorf("store %d does not drain any more", id)
			}
			if replicas, _ := x.has(t, n); replicas == 0 {
				return fmt.Sprintf("store %d has no replicas; neokv ctl remove %d takes it away, neokv ctl drain %d cancel "+
					"uses it again", id, id, id), nil
			}
		}
		if err := x.moment(ctx); err != nil {
			return "", err
		}
	}
}

// mayDrain returns an error if a store cannot lose all of its replicas.
func (x *members) mayDrain(t *route.Table, id topology.StoreID) error {
	if meta.IsMember(x.founders(), id) {
		return fmt.Errorf("store %d has a replica of the cluster map, which does not move yet", id)
	}
	stay := 0
	for i := range t.Stores {
		if st := &t.Stores[i]; st.ID != id && !st.Draining {
			stay++
		}
	}
	for i := range t.Regions {
		r := &t.Regions[i]
		if _, there := r.PeerOn(id); there && len(r.Peers) > stay {
			return fmt.Errorf("region %d has %d replicas, and without store %d there are %d stores that do not drain", r.ID,
				len(r.Peers), id, stay)
		}
	}
	return nil
}

// setState changes what a store is to the cluster, and returns when all stores that run know.
func (x *members) setState(ctx context.Context, id topology.StoreID, to meta.StoreState) error {
	change := meta.MapChange{Store: &meta.StoreChange{ID: id, State: to}}
	if _, err := x.places.all().changeMap(ctx, change); err != nil {
		return err
	}
	ok := func(t *route.Table) bool {
		st := t.Store(id)
		if to == meta.Gone {
			return st == nil
		}
		return st != nil && st.Draining == (to == meta.Draining)
	}
	wait, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	for !x.agree(ok) && x.moment(wait) == nil {
	}
	// The store itself has to know: from then on it takes no replica. Of the others some may be cut off.
	if n := x.places.all().At(id); n != nil && n.running() {
		if s := n.store.Load(); s != nil && (s.Table() == nil || !ok(s.Table())) {
			return fmt.Errorf("store %d does not know of it yet", id)
		}
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
	return ctx.Err()
}

// stateWait bounds how long setState waits for the stores.
const stateWait = 5 * time.Second

// agree reports whether all stores that run have tables that fulfil a condition.
func (x *members) agree(ok func(*route.Table) bool) bool {
	for s := range x.places.all().Running() {
		if t := s.Table(); t == nil || !ok(t) {
			return false
		}
	}
	return true
}

// remove removes a store that has no replicas, for good.
func (x *members) remove(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.StoreID(f.To)
	n := x.places.all().At(id)
	wait, cancel := context.WithTimeout(ctx, stateWait)
	defer cancel()
	t := x.table() // a store that has just started does not know all others yet
	for (t == nil || t.Store(id) == nil && !slices.Contains(t.Gone, id)) && x.moment(wait) == nil {
		t = x.table()
	}
	switch {
	case n == nil:
		return "", fmt.Errorf("there is no store %d", id)
	case t == nil:
		return "", errors.New("no store knows the cluster map")
	case meta.IsMember(x.founders(), id):
		return "", fmt.Errorf("store %d has a replica of the cluster map, which does not move yet", id)
	}
	st := t.Store(id)
	if st == nil && !slices.Contains(t.Gone, id) {
		return "", fmt.Errorf("store %d is not on the cluster map yet", id)
	}
	drains := st != nil && st.Draining
	if st != nil && !drains { // so that none comes meanwhile
		if err := x.setState(ctx, id, meta.Draining); err != nil {
			return "", err
		}
	}
	if err := x.mayRemove(n); err != nil {
		if !drains {
			err = errors.Join(err, x.setState(ctx, id, meta.Up))
		}
		return "", err
	}
	if err := x.setState(ctx, id, meta.Gone); err != nil {
		return "", err
	}
	if err := x.end(ctx, n); err != nil {
		return "", err
	}
	return fmt.Sprintf("store %d is removed, with its folder; its number is not given again", id), nil
}

// mayRemove returns an error if a store has replicas, by the map, by what runs there, and by what the leaders of regions
// have applied, which may not be on the map yet.
func (x *members) mayRemove(n *Place) error {
	t := x.table()
	if t == nil {
		return errors.New("no store knows the cluster map")
	}
	if replicas, _ := x.has(t, n); replicas > 0 {
		return fmt.Errorf("store %d has %d replicas: neokv ctl drain %d first", n.id, replicas, n.id)
	}
	for _, r := range x.regions.all() {
		leader := x.places.all().LeaderOf(r.ID)
		if leader == nil {
			return fmt.Errorf("region %d has no leader that could tell where its replicas are", r.ID)
		}
		if replica := x.places.all().Replica(leader.id, r.ID); replica != nil {
			if desc, _ := replica.Region(); hasPeer(&desc, n.id) {
				return fmt.Errorf("region %d has a replica on store %d: neokv ctl drain %d first", r.ID, n.id, n.id)
			}
		}
	}
	return nil
}

func hasPeer(r *topology.Region, id topology.StoreID) bool {
	_, there := r.PeerOn(id)
	return there
}

// end stops a store that the map says has gone, and removes its folder. It may be called again.
func (x *members) end(ctx context.Context, n *Place) error {
	return x.power.change(ctx, func() error {
		all := x.places.all()
		if all.At(n.id) == nil {
			return nil
		}
		if err := (Places{n}).noneHangs(); err != nil {
			return err
		}
		n.resume()
		n.leave()
		if err := n.stop(); err != nil {
			x.event(eventCluster, "store %d, which is removed: %v", n.id, err)
		}
		x.journal.gone = true
		x.places.set(slices.DeleteFunc(slices.Clone(all), func(o *Place) bool { return o == n }))
		x.event(eventCluster, "store %d is removed", n.id)
		if x.folder != nil {
			return x.folder.drop(n.id)
		}
		return nil
	})
}
