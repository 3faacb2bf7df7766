package neokv

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
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// storePlace is a store's place in the cluster. It outlives the store, which may stop and start again.
type storePlace struct {
	c       *Cluster
	id      topology.StoreID
	dir     string
	walDir  string // folder of the write-ahead log; empty: beside the data
	addr    string
	cluster [16]byte
	initial *meta.Map

	store atomic.Pointer[store.Store]

	countMu sync.Mutex // held to read the counters of store, and to take store away
	past    []int64    // what earlier stores of this place have counted, in the order of counters.All

	mu      sync.Mutex
	fs      *disk.FS
	server  *server.Server
	standIn *server.Server    // while the store is down: see standin.go
	pipe    *memconn.Listener // nil while the address refuses clients
	ln      net.Listener      // the socket beside pipe; nil without sockets
	down    bool              // the store takes no clients: it has stopped, or is about to
	leaving bool              // the cluster closes: nothing may keep the store from closing
	failure error             // why the store has failed, nil while it has not
	stopped chan struct{}     // nil until somebody stops the store, closed when it has ended
	stopErr error
	why     fault.Verb // what ended the store, stop or kill; "" while it runs

	// What somebody does to the store on purpose. It outlives the store, but for paused.
	drive  fault.Drive
	client fault.Client
	paused bool
	ahead  atomic.Int64 // ns by which the store's clock is ahead
}

// start opens the store and serves its clients: those that Dial through memory, and those of ln unless it is nil. Where
// the address is open already, because of a stand-in, ln is nil. booting says that the whole cluster starts.
func (n *storePlace) start(ln net.Listener, booting bool) error {
	if n.fs == nil {
		n.fs = disk.OS()
	}
	if j := n.c.journal; j != nil {
		if err := n.fs.Share(j, uint16(n.id), store.LogDir(n.dir, n.walDir)); err != nil {
			if ln != nil {
				ln.Close()
			}
			return err
		}
	}
	host, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	c := n.c
	if ip := c.settings.Redis.AdvertiseIP; ip != "" {
		host = ip
	}
	if first := c.settings.Redis.AdvertisePort; first != 0 {
		number = first + int(n.id) - 1
	}
	c.randMu.Lock()
	random := rand.New(rand.NewPCG(c.rand.Uint64(), uint64(n.id)))
	c.randMu.Unlock()
	fs := n.fs
	n.mu.Lock()
	n.paused = false
	n.driveChanged()
	n.mu.Unlock()
	faults := c.hooks.Store
	skew := faults.Region.Skew
	faults.Region.Skew = func(id topology.StoreID) time.Duration {
		ahead := time.Duration(n.ahead.Load() + c.advanced.Load())
		if skew != nil {
			ahead += skew(id)
		}
		return ahead
	}
	s, err := store.Open(store.Options{
		ID: n.id, FS: fs, Dir: n.dir, WALDir: n.walDir, Network: c.network, Settings: c.settings, Host: host,
		Port: number, Cluster: n.cluster, Initial: n.initial, Booting: booting, Rand: random, Faults: faults,
		Pinned: c.pinned, OnFail: func(err error) { n.fail(fs, err) },
		OnChange: func(text string) { c.event("%s", text) },
		OnServe:  func(r topology.RegionID, term uint64) { c.event("region %d: store %d leads, term %d", r, n.id, term) },
	})
	if err != nil {
		if ln != nil {
			ln.Close()
		}
		return err
	}
	srv := server.New(server.Options{
		Node: &storePort{s, n}, Self: n.id, Settings: c.settings, ClientMemory: c.clients, Exposed: c.exposed(),
		Version: Version, Faults: c.hooks.Server,
	})
	n.mu.Lock()
	standIn := n.standIn
	n.server, n.standIn, n.down, n.failure, n.stopped, n.why = srv, nil, false, nil, nil, ""
	srv.SetClientFault(n.client)
	n.openPorts(ln)
	n.mu.Unlock()
	n.store.Store(s)
	if standIn != nil {
		standIn.Close()
	}
	if err := s.Failed(); err != nil { // the store may have failed before fail could see the server
		n.fail(fs, fmt.Errorf("store %d: %w", n.id, err))
	}
	return nil
}

// fail notes that the store has failed, and sends the error to Failed. It runs on the goroutine of the call that
// failed, so it leaves stopping the store, which cuts its clients off, to another goroutine.
func (n *storePlace) fail(fs *disk.FS, err error) {
	n.mu.Lock()
	news := n.fs == fs && !n.down && n.failure == nil
	if news {
		n.failure = err
	}
	n.mu.Unlock()
	if !news {
		return
	}
	n.c.event("store %d has failed: %v", n.id, err)
	n.c.anyFailed.Store(true)
	select {
	case n.c.failed <- err:
	default:
	}
	n.c.wg.Go(func() { n.stop() })
}

// openPorts accepts clients, through memory and from ln unless it is nil, if the address does not do so already. The
// caller holds mu.
func (n *storePlace) openPorts(ln net.Listener) {
	if n.pipe != nil {
		return
	}
	pipe := memconn.Listen(memoryAddr(n.addr))
	n.pipe, n.ln = pipe, ln
	n.c.wg.Go(func() { server.Accept(pipe, nil, n.take) })
	if ln != nil {
		n.c.wg.Go(func() { server.Accept(ln, nil, n.take) })
	}
}

// take hands a client to the store's server or, while the store is down, to the stand-in.
func (n *storePlace) take(nc net.Conn) {
	n.mu.Lock()
	srv := n.server
	if n.down {
		srv = n.standIn
	}
	n.mu.Unlock()
	if srv == nil {
		nc.Close()
		return
	}
	srv.Take(nc)
}

// dial connects to the address through memory.
func (n *storePlace) dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	pipe := n.pipe
	n.mu.Unlock()
	if pipe == nil {
		return nil, refused(n.addr)
	}
	return pipe.Dial(ctx)
}

// turnAway makes the store take no more clients: from now on a stand-in does, or the address refuses them. It waits for
// nothing. The caller holds mu.
func (n *storePlace) turnAway() {
	n.down = true
	switch {
	case n.pipe == nil:
	case n.c.hasStandIns() && !n.leaving:
		if n.standIn == nil {
			n.standIn = n.c.newStandIn(n.id)
		}
	default:
		n.pipe.Close()
		if n.ln != nil {
			n.ln.Close()
		}
		n.pipe, n.ln = nil, nil
	}
}

// hangUp closes the connections of the store's clients.
func (n *storePlace) hangUp() {
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
func (n *storePlace) leave() {
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

// stop closes the store if it runs. It returns when the store has ended, also if another caller stops it already.
func (n *storePlace) stop() error {
	n.mu.Lock()
	ended := n.stopped
	first := ended == nil
	if first {
		ended = make(chan struct{})
		n.stopped = ended
	}
	n.mu.Unlock()
	if !first {
		<-ended
		return n.stopErr
	}
	n.hangUp()
	n.stopErr = nil
	if s := n.retire(); s != nil {
		n.stopErr = s.Close()
	}
	close(ended)
	return n.stopErr
}
