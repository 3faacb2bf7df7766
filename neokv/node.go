package neokv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

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
	pipe    *memconn.Listener
	down    bool          // the store refuses clients: it has stopped, or is about to
	failure error         // why the store has failed, nil while it has not
	stopped chan struct{} // nil until somebody stops the store, closed when it has ended
	stopErr error
}

// start opens the store and serves its clients: those that Dial through memory, and those of ln unless it is nil.
// booting says that the whole cluster starts.
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
	s, err := store.Open(store.Options{
		ID: n.id, FS: fs, Dir: n.dir, WALDir: n.walDir, Network: c.network, Settings: c.settings, Host: host,
		Port: number, Cluster: n.cluster, Initial: n.initial, Booting: booting, Rand: random, Faults: c.hooks.Store,
		OnFail: func(err error) { n.fail(fs, err) },
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
	pipe := memconn.Listen(memoryAddr(n.addr))
	n.mu.Lock()
	n.server, n.pipe, n.down, n.failure, n.stopped = srv, pipe, false, nil, nil
	n.mu.Unlock()
	n.store.Store(s)
	c.serve(srv, pipe, ln)
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
	n.c.anyFailed.Store(true)
	select {
	case n.c.failed <- err:
	default:
	}
	n.c.wg.Go(func() { n.stop() })
}

// dial connects to the store through memory.
func (n *storePlace) dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	pipe, down := n.pipe, n.down
	n.mu.Unlock()
	if pipe == nil || down {
		return nil, refused(n.addr)
	}
	return pipe.Dial(ctx)
}

// hangUp closes the store's listeners and the connections of its clients.
func (n *storePlace) hangUp() {
	n.mu.Lock()
	srv := n.server
	n.server, n.down = nil, true
	n.mu.Unlock()
	if srv != nil {
		srv.Close()
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
