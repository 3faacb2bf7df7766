package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// Place is a store's place in the cluster. It outlives the store, which may stop and start again.
type Place struct {
	*placeParts
	id     topology.StoreID
	dir    string
	walDir string  // folder of the write-ahead log; empty: beside the data
	doors  []*door // its own address and, if there are any, the second one

	store atomic.Pointer[store.Store]

	countMu sync.Mutex // held to read the counters of store, and to take store away
	past    []int64    // what earlier stores of this place have counted, in the order of counters.All

	mu      sync.Mutex
	fs      *disk.FS
	server  *server.Server
	standIn *server.Server // while the store is down: see standin.go
	down    bool           // the store takes no clients: it has not started, has stopped, or is about to
	leaving bool           // the cluster closes: nothing may keep the store from closing
	failure error          // why the store has failed, nil while it has not
	stopped *storeStop     // nil until somebody stops the store
	faults  storeFaults
	wiped   disk.Wiped // of the store's folder, as of its last start

	hasEntered, hasTold func()      // of the boot: see boots
	entered             atomic.Bool // the store takes part in this boot, and enough others know
}

// placeParts is what all places know of the cluster. newServer and newStandIn make the server of a store that has
// opened, and of one that is down.
type placeParts struct {
	*core
	notices *notices
	shared  *shared
	boots   *boots
	journal *journal
	pins    *pins
	places  *placeSet

	newServer  func(*Place, *store.Store) *server.Server
	newStandIn func(*Place) *server.Server
}

// door is an address of a place. Beyond the fields addr and replica, which stay, mu of the place guards it.
type door struct {
	addr    string
	replica bool              // it is the second address: see route.Port
	pipe    *memconn.Listener // nil while the address refuses clients
	ln      net.Listener      // the socket beside pipe; nil without sockets
}

// makePlaces makes a place for each store.
func makePlaces(x *placeParts) {
	var disks []*disk.FS
	if x.config.From != nil {
		disks = disk.Freeze(x.config.From.disks)
	}
	var all Places
	for i, id := range x.roster.all(x.settings.Cluster.Stores) {
		n := x.newPlace(id)
		if disks != nil {
			n.dir, n.fs = x.config.From.dirs[i], disks[i]
		}
		all = append(all, n)
	}
	x.places.set(all)
	x.places.last = topology.StoreID(x.row())
}

// newPlace makes the place of a store, which has no addresses yet.
func (x *placeParts) newPlace(id topology.StoreID) *Place {
	n := &Place{placeParts: x, id: id, down: true, doors: []*door{{}}}
	if x.seconds() {
		n.doors = append(n.doors, &door{replica: true})
	}
	if x.folder != nil {
		n.dir, n.walDir, n.fs = x.folder.store(id), x.folder.wal(id), disk.OS()
	} else {
		n.dir, n.fs = "/"+id.RaftAddress(), disk.Mem()
	}
	return n
}

// At is where the store's files are.
func (n *Place) At() disk.Places { return store.Places(n.dir, n.walDir) }

// Addr is the store's own address.
func (n *Place) Addr() string { return n.doors[0].addr }

// ReplicaAddr is the store's second address, empty if there is none.
func (n *Place) ReplicaAddr() string {
	if len(n.doors) < 2 {
		return ""
	}
	return n.doors[1].addr
}

// start opens the store and serves its clients: those that Dial through memory, and those of sockets, if there are any.
// booting says that the whole cluster starts.
func (n *Place) start(booting bool) error {
	s, err := n.open(booting)
	if err != nil {
		return err
	}
	n.serve(s)
	return nil
}

// absent notes that the store could not start with the cluster. A stand-in takes its clients, if there are stand-ins.
func (n *Place) absent(err error) {
	n.mu.Lock()
	n.failure = err
	if n.hasStandIns() {
		n.standIn = n.newStandIn(n)
		n.openDoors()
	} else {
		n.closeDoors()
	}
	n.mu.Unlock()
	n.tellFailed(n.id, err)
}

// restart is start for a store of a cluster that runs.
func (n *Place) restart() error {
	opened, err := n.listen()
	if err != nil {
		return err
	}
	if f := n.hooks.Starting; f != nil {
		f(n.id)
	}
	if err = n.renew(); err == nil {
		if err = n.whole(); err != nil {
			err = n.lost(err)
		} else {
			err = n.start(false)
		}
	}
	if err != nil && opened {
		n.mu.Lock()
		n.closeDoors()
		n.mu.Unlock()
	}
	return err
}

// listen opens the sockets of the doors, unless the doors are open already, because of a stand-in. It opens all or
// none.
func (n *Place) listen() (opened bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.doors[0].pipe != nil || n.config.NoSockets {
		return false, nil
	}
	for _, d := range n.doors {
		if d.ln != nil {
			continue
		}
		if d.ln, err = net.Listen("tcp", d.addr); err != nil {
			d.ln = nil
			n.closeDoors()
			return false, err
		}
	}
	return true, nil
}

// open opens the store. The place stays down meanwhile, so fail tells nobody of a store that fails: serve does.
func (n *Place) open(booting bool) (*store.Store, error) {
	if j := n.journal.now.Load(); j != nil {
		if err := n.fs.Share(j, uint16(n.id), n.At().Logs); err != nil {
			return nil, err
		}
	}
	host := ""
	ports := make([]int, 2) // the second one is 0 if there is no second address
	for i, d := range n.doors {
		h, port, err := net.SplitHostPort(d.addr)
		if err == nil {
			ports[i], err = strconv.Atoi(port)
		}
		if err != nil {
			return nil, err
		}
		host = h
	}
	n.randMu.Lock()
	random := rand.New(rand.NewPCG(n.rand.Uint64(), uint64(n.id)))
	n.randMu.Unlock()
	fs := n.fs
	fs.WaitInLog(n.hooks.VirtualTime)
	n.mu.Lock()
	n.driveChanged()
	n.mu.Unlock()
	return store.Open(store.Options{
		ID: n.id, FS: fs, Dir: n.dir, WALDir: n.walDir, Network: n.network, Settings: n.settings, Host: host,
		Port: ports[0], ReplicaPort: ports[1], Cluster: n.identity, Founders: n.founders(), Initial: n.initial,
		Booting: booting, Rand: random,
		Seed:  n.config.Seed,
		Known: n.boots.last(n.id) > 0 && !n.wiped.Empty, Wiped: n.wiped,
		Admit: func() error { return n.enter(booting) }, Absent: n.places.all().absent,
		ClockAhead: n.clockAhead, Mistakes: n.hooks.Mistakes.Store, Hooks: n.hooks.Region, Pinned: n.pins.has,
		Listener:    &n.shared.hub,
		OnFail:      func(err error) { n.fail(fs, err) },
		OnChange:    func(text string) { n.event(eventRegion, "%s", text) },
		OnScriptLog: n.logScript,
		OnMessage: func(shard bool, channel, payload []byte) {
			if srv := n.serves(); srv != nil {
				srv.Deliver(shard, channel, payload)
			}
		},
		OnServe: func(r topology.RegionID, term uint64) {
			n.event(eventLeader, "region %d: store %d leads, term %d", r, n.id, term)
		},
	})
}

// logScript logs a line of a script that a client of the store runs.
func (n *Place) logScript(level int, text string) {
	n.notices.logScript(fmt.Sprintf("store %d", n.id), level, text)
}

// serves returns the server of the store, nil while it takes no clients.
func (n *Place) serves() *server.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server
}

// clockAhead returns how far the store's clock is ahead of the machine's.
func (n *Place) clockAhead() time.Duration {
	return time.Duration(n.faults.ahead.Load() + n.advanced.Load())
}

// serve puts an open store into its place and serves its clients.
func (n *Place) serve(s *store.Store) {
	if standIn := n.install(s); standIn != nil {
		standIn.Close()
	}
	if err := s.Failed(); err != nil { // maybe since before install
		n.fail(n.fs, fmt.Errorf("store %d: %w", n.id, err))
	}
}

// install puts an open store into its place, and makes it take clients. It returns the stand-in that took them until
// now, nil if none did.
func (n *Place) install(s *store.Store) (standIn *server.Server) {
	srv := n.newServer(n, s)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store.Store(s) // under mu: from here on fail may stop the store
	standIn = n.standIn
	n.server, n.standIn, n.down, n.failure, n.stopped, n.faults.process = srv, nil, false, nil, nil, ""
	srv.SetClientFault(n.faults.client)
	srv.SetRefusals(n.faults.refused)
	n.openDoors()
	return standIn
}

// fail notes that the store has failed, and sends the error to Failed. It runs on the goroutine of the call that
// failed, so it leaves stopping the store, which cuts its clients off, to another goroutine.
func (n *Place) fail(fs *disk.FS, err error) {
	n.anyFailed.Store(true) // also for a store that starts or stops, of which nobody needs to be told
	n.mu.Lock()
	news := n.fs == fs && !n.down && n.failure == nil
	if news {
		n.failure = err
		if x, first := n.beginStop(); first { // now, so that the next store of this place waits for the end of this one
			n.wg.Go(func() { n.endStore(x) })
		}
	}
	n.mu.Unlock()
	if news {
		n.tellFailed(n.id, err)
	}
}

// openDoors accepts clients, through memory and from sockets, if the doors are not open already. The caller holds mu.
func (n *Place) openDoors() {
	for _, d := range n.doors {
		if d.pipe != nil {
			continue
		}
		pipe, ln := memconn.Listen(memoryAddr(d.addr)), d.ln
		take := func(nc net.Conn) { n.take(d, nc) }
		d.pipe = pipe
		n.wg.Go(func() { server.Accept(pipe, nil, take) })
		if ln != nil {
			n.wg.Go(func() { server.Accept(ln, nil, take) })
		}
	}
}

// closeDoors makes the addresses refuse clients. The caller holds mu.
func (n *Place) closeDoors() {
	for _, d := range n.doors {
		if d.pipe != nil {
			d.pipe.Close()
		}
		if d.ln != nil {
			d.ln.Close()
		}
		d.pipe, d.ln = nil, nil
	}
}

// take hands a client to the store's server or, while the store is down, to the stand-in.
func (n *Place) take(d *door, nc net.Conn) {
	n.mu.Lock()
	srv := n.server
	if n.down {
		srv = n.standIn
	}
	n.mu.Unlock()
	switch {
	case srv == nil:
		nc.Close()
	case d.replica:
		srv.TakeReplica(nc)
	default:
		srv.Take(nc)
	}
}

// dial connects through memory.
func (n *Place) dial(ctx context.Context, d *door) (net.Conn, error) {
	n.mu.Lock()
	pipe := d.pipe
	n.mu.Unlock()
	if pipe == nil {
		return nil, refused(d.addr)
	}
	return pipe.Dial(ctx)
}

// turnAway makes the store take no more clients: from now on a stand-in does, or the doors refuse them. It waits for
// nothing. The caller holds mu.
func (n *Place) turnAway() {
	n.down = true
	switch {
	case n.doors[0].pipe == nil:
	case n.hasStandIns() && !n.leaving:
		if n.standIn == nil {
			n.standIn = n.newStandIn(n)
		}
	default:
		n.closeDoors()
	}
}

// hangUp closes the connections of the store's clients.
func (n *Place) hangUp() {
	n.mu.Lock()
	srv := n.server
	n.server = nil
	n.turnAway()
	n.mu.Unlock()
	if srv != nil {
		srv.Close()
	}
}

// leave closes the address and the connections of all clients, for ever.
func (n *Place) leave() {
	n.mu.Lock()
	n.leaving = true
	standIn := n.standIn
	n.standIn = nil
	n.mu.Unlock()
	n.hangUp()
	if standIn != nil {
		standIn.Close()
	}
}

// storeStop is the end of one store of a place.
type storeStop struct {
	ended chan struct{} // closed when the store has ended
	err   error         // of closing the store; set before ended is closed
}

// stop closes the store if it runs. It returns when the store has ended, also if another caller stops it already.
func (n *Place) stop() error {
	n.resume()
	n.mu.Lock()
	x, first := n.beginStop()
	n.mu.Unlock()
	if first {
		n.endStore(x)
	}
	<-x.ended
	return x.err
}

// beginStop returns the stop of the store. If the caller is the first to stop it, it must call endStore. The caller
// holds mu.
func (n *Place) beginStop() (x *storeStop, first bool) {
	if first = n.stopped == nil; first {
		n.stopped = &storeStop{ended: make(chan struct{})}
	}
	return n.stopped, first
}

// endStore cuts off the store's clients and closes the store.
func (n *Place) endStore(x *storeStop) {
	n.hangUp()
	if s := n.retire(); s != nil {
		x.err = s.Close()
	}
	close(x.ended)
}

// The states of a store, which package neokv describes.
const (
	stateOK      = "ok"
	stateFull    = "full"
	statePaused  = "paused"
	stateStopped = "stopped"
	stateKilled  = "killed"
	stateFailed  = "failed"
)

// State returns the state of the store, and the reason if it has failed.
func (n *Place) State() (state, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failure != nil:
		return stateFailed, n.failure.Error()
	case n.faults.process == fault.Kill:
		return stateKilled, ""
	case n.down:
		return stateStopped, ""
	case n.faults.process == fault.Pause:
		return statePaused, ""
	}
	if s := n.store.Load(); s != nil {
		if why := s.Full(); why != "" {
			return stateFull, why
		}
	}
	return stateOK, ""
}

// CommandRate returns how many commands clients call per second at the store's port.
func (n *Place) CommandRate() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server == nil {
		return 0
	}
	return n.server.CommandRate()
}
