// Package server speaks RESP to clients: connections, limits, pipelines, redirections, and the commands that are about
// the connection, the server or the cluster rather than about data.
//
// A connection is one goroutine. It takes whole pipelines from its reader (reader.go) and cuts them into batches of
// writes and of reads (pipeline.go). A batch goes to its regions side by side (batch.go, round.go), and the connection
// answers in request order. Commands that concern several regions fan out (fanout.go). The command table is in
// commands.go, the server's own commands are in the files cmd_*.go.
package server

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Section is one part of INFO: a title and lines `name:value`.
type Section struct {
	Name  string
	Lines []string
}

// Node is what a server stands for: a store, or the whole cluster behind the proxy port. All methods may run
// concurrently. Those that a GET or a SET calls (Table, Changed, Replica, Failed) return at once.
type Node interface {
	// Table returns the present slot table, or nil before there is one.
	Table() *route.Table
	// Changed returns a channel that is closed when Table next returns another table. It returns nil where nobody can
	// tell: the server then looks at tables every few milliseconds while a command waits for a leader.
	Changed() <-chan struct{}
	// Replica returns the replica of a region on a store of this process, or nil if there is none.
	Replica(topology.StoreID, topology.RegionID) *region.Replica
	// Failed returns why the node has failed, or nil while it has not. The server of a failed node closes connections
	// without a reply.
	Failed() error
	// Info returns what the node adds to INFO. A section named as one of the server's own is appended to it.
	Info() []Section
	// Replicated counts the other stores that have applied an entry of a region, as far as they answer before ctx ends.
	Replicated(ctx context.Context, r topology.RegionID, index uint64) int
	// Compare compares the replicas of a region by their checksums at one apply index.
	Compare(ctx context.Context, r topology.RegionID) (region.Comparison, error)
	// SetActiveExpire switches the background deletion of expired keys on or off.
	SetActiveExpire(on bool)
}

// Options of a server: one per store, and one for the proxy port.
type Options struct {
	Node Node
	// Self is the store that Node is. It is 0 for the proxy port, which takes any key and passes commands on.
	Self     topology.StoreID
	Settings settings.Settings
	// Exposed is set where clients can reach the server from beyond loopback. CONFIG SET then cannot take the password
	// away.
	Exposed bool
	// ClientMemory bounds what clients hold in buffers. Servers may share one; for nil the server makes one of the
	// settings.
	ClientMemory *ClientMemory
	Version      string
	Faults       Faults
}

// Faults are planted mistakes that tests must find. The zero value plants none.
type Faults struct {
	RetryUnknown  bool // a write of unknown outcome is tried again
	RetryBackward bool // what is tried again goes in the reverse order
}

// Server serves one or several listeners.
type Server struct {
	o         Options
	started   time.Time
	runID     string
	limits    limits
	stats     stats
	scans     redis.Cursors
	keyCounts keyCounts
	calls     callCounts
	slow      slowLog
	pause     atomic.Pointer[pause]

	monitors monitors

	waitingBytes atomic.Int64  // bytes of commands that wait for a leader
	unserved     atomic.Uint64 // counts answers to commands that nobody served
	closing      chan struct{}
	wg           sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	clients   map[uint64]*conn
	lastID    uint64
}

// New returns a server that serves nothing yet.
func New(o Options) *Server {
	s := &Server{
		o: o, started: time.Now(), runID: newRunID(), closing: make(chan struct{}), clients: map[uint64]*conn{},
		calls: newCallCounts(),
	}
	s.slow.limit.Store(slowMicros)
	s.slow.length.Store(slowCalls)
	s.limits.set(&s.o.Settings.Redis)
	if o.ClientMemory == nil {
		s.o.ClientMemory = NewClientMemory(o.Settings.Redis.ClientMemory, o.Settings.Cluster.Stores)
	}
	s.o.ClientMemory.join(s)
	return s
}

// Serve accepts connections until the listener is closed or Close is called, and then returns nil. It closes the
// listener.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ln.Close()
	}
	s.listeners = append(s.listeners, ln)
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer s.forget(ln)
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.take(nc)
		case errors.Is(err, net.ErrClosed):
			return nil
		default: // out of descriptors, mostly: connections that end give some back
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-s.closing:
				t.Stop()
				return nil
			}
		}
	}
}

func (s *Server) forget(ln net.Listener) {
	ln.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = slices.DeleteFunc(s.listeners, func(x net.Listener) bool { return x == ln })
}

// take starts a connection's goroutine, or turns the connection away.
func (s *Server) take(nc net.Conn) {
	s.mu.Lock()
	if s.closed || int64(len(s.clients)) >= s.limits.clients.Load() {
		closed := s.closed
		s.mu.Unlock()
		if !closed {
			s.stats.rejected.Add(1)
			nc.SetWriteDeadline(time.Now().Add(time.Second))
			nc.Write([]byte("-ERR max number of clients reached\r\n"))
		}
		nc.Close()
		return
	}
	s.lastID++
	if tcp, ok := nc.(*net.TCPConn); ok {
		s.keepAlive(tcp)
	}
	c := newConn(s, nc, s.lastID)
	s.clients[c.id] = c
	s.wg.Add(1)
	s.mu.Unlock()
	s.stats.connections.Add(1)
	go func() {
		defer s.wg.Done()
		c.serve()
		nc.Close()
		c.killed.Store(true)
		c.hangUp()
		c.release()
		s.mu.Lock()
		delete(s.clients, c.id)
		s.mu.Unlock()
	}()
}

// keepAlive probes a silent client as Redis does: at the interval, then three times within another.
func (s *Server) keepAlive(tcp *net.TCPConn) {
	every := time.Duration(s.limits.keepalive.Load()) * time.Second
	tcp.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: every > 0, Idle: every, Interval: max(every/3, time.Second), Count: 3,
	})
}

// Close closes listeners and connections and returns when their goroutines have ended.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
		for _, ln := range s.listeners {
			ln.Close()
		}
		for _, c := range s.clients {
			c.kill()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.o.ClientMemory.leave(s)
	return nil
}
