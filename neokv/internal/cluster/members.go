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
	"neokv.dev/neokv/internal/topology"
)

// This file has stores that come to a running cluster.
//
// The folder's record comes first: once it has the store's number, each start of the process opens the store, and makes
// what is missing of it. Without it there is nothing of the store. A store that runs and is not on the cluster map gets
// there by its heartbeats. So wherever the process ends, the store is there or not, and nothing has to be finished.

// members adds stores.
type members struct {
	*core
	shared  *shared
	boots   *boots
	journal *journal
	places  *placeSet
	power   *power
	servers *servers
	links   *links
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
	for s := range x.places.all().Running() {
		t := s.Table()
		if t == nil {
			return false
		}
		if st := t.Store(id); st == nil || !st.Alive {
			return false
		}
	}
	return true
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
