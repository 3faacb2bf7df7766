// Package server speaks RESP to clients: connections, limits, pipelines, redirections, and the commands that are about
// the connection, the server or the cluster rather than about data.
//
// A connection is one goroutine. It takes whole pipelines from its reader (reader.go) and cuts them into batches of
// writes and of reads (pipeline.go). Its executor hands a batch to the regions side by side (executor.go, round.go),
// and appends the replies in request order. Commands that concern several regions fan out (fanout.go). Replies, and
// what others have to tell the client, leave through the outbox (outbox.go). The command table is in commands.go, the
// server's own commands are in the files cmd_*.go.
package server

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/tracking"
	"neokv.dev/neokv/settings"
)

// Section is one part of INFO: a title, lines `name:value`, and counts that INFO shows since CONFIG RESETSTAT.
type Section struct {
	Name   string
	Lines  []string
	Counts []Count
}

// Count is a count of something since the start.
type Count struct {
	Name  string
	Value int64
}

// Node is the part of the cluster that a server serves: one store, or on the proxy port the whole cluster. All methods
// may run concurrently. Those that a GET or a SET calls (Table, Changed, Replica, Failed) return at once.
type Node interface {
	// Table returns the present slot table, or nil before there is one.
	Table() *route.Table
	// Changed returns a channel that is closed when Table begins to return another table. A Node that cannot tell
	// returns nil. The server then calls Table every few milliseconds while a command waits for a leader.
	Changed() <-chan struct{}
	// Replica returns the replica of a region on a store of this process, or nil if there is none.
	Replica(topology.StoreID, topology.RegionID) *region.Replica
	// Outdated reports whether the node knows that an entry of a table it has returned is about to change for a slot,
	// so that no client is to be redirected by it.
	Outdated(topology.Slot, *route.LedRegion) bool
	// Failed returns why the node has failed, or nil while it has not. The server of a failed node closes connections
	// without a reply.
	Failed() error
	// Info returns sections that the node adds to INFO. If the server has a section of that name, the lines are
	// appended to it.
	Info() []Section
	// Replicated returns how many other stores have applied the entry at index of region r. It counts those that answer
	// before ctx ends.
	Replicated(ctx context.Context, r topology.RegionID, index uint64) int
	// Compare compares the checksums of a region's replicas, all as of one apply index. It returns region.ErrNone if
	// the node knows no such region.
	Compare(ctx context.Context, r topology.RegionID) (region.Comparison, error)
	// Settle waits until the replicas have applied what the leaders have, has stores write their memtables and compact
	// L0, and waits until no compaction is due.
	Settle(ctx context.Context) error
	// TakeOver makes the node's store lead the regions that it follows, and returns when it does.
	TakeOver(ctx context.Context) error
	// Save begins a backup of the cluster in its data folder. wait returns when it is whole, or has failed. The error
	// is ErrSaving while another backup is made.
	Save() (wait func(context.Context) error, err error)
	// SaveState says which backups there were.
	SaveState() SaveState
	// Scripts are the scripts that were loaded here.
	Scripts() *lua.Scripts
	// LoadScript loads a script. It stays, or is there as long as there is room.
	LoadScript(x *lua.Script, stay bool)
	// FindScript looks elsewhere for a script by its SHA1 in lower case, and keeps it. It returns nil if it finds none,
	// after half a second at most.
	FindScript(sha string) *lua.Script
	// FlushScripts forgets all scripts.
	FlushScripts()
	// LogScript logs a line of a script that has run on the server itself, at a level from debug, 0, to warning, 3.
	LogScript(level int, text string)
	// Publish sends a message to the clients of all other ports of the cluster, by Deliver of their servers; from is
	// the server at which it was published. shard says that it is one of SPUBLISH. It does not wait: what a port does
	// not get in time is lost. Of the messages of one connection each port gets those that it gets in order, and none
	// twice.
	Publish(from *Server, shard bool, channel, message []byte)
	// SetActiveExpire switches the background deletion of expired keys on or off.
	SetActiveExpire(on bool)
}

// Options are the options of a server. Each store has a server, and the proxy port has one.
type Options struct {
	Node Node
	// Self is the store that the Node is. It is 0 on the proxy port, which takes any key and passes commands on.
	Self     topology.StoreID
	Settings settings.Settings
	// Exposed says that clients beyond loopback can reach the server. CONFIG SET then cannot remove the password.
	Exposed bool
	// StandIn says that the server only stands in for Self, which is down. Its Node has no replicas, so that it
	// redirects commands with keys. It refuses commands that cover the slots of Self, instead of finding none. CLUSTER
	// says that Self has failed.
	StandIn bool
	// ClientMemory bounds the memory that the server holds for clients. Servers may share one. If it is nil, the server
	// makes its own from the settings.
	ClientMemory *ClientMemory
	Sockets      *Sockets        // bounds the connections of several servers together; nil: nothing does
	Scans        *Scans          // remembers scans for several servers; nil: the server has its own
	Announce     *announce.Rules // what clients are told of the stores; nil: where these listen
	Version      string
	// OnUnknown, if not nil, is called with the name of each command that a client calls and no table has, in upper
	// case.
	OnUnknown func(name string)
	// OnKept, if not nil, is called with the name of each parameter that a client has set and that has no effect.
	OnKept func(name string)
	// OnUndecided, if not nil, is called when the server closes a connection because the outcome of a command is unknown.
	// n is how many it has closed for that.
	OnUndecided func(why string, n uint64)

	Hub      *Hub   // tells what happens to keys; nil: nobody does
	Seed     uint64 // of the server's random choices; 0 for any
	Mistakes Mistakes
}

// Mistakes are errors in the logic of the server that a test plants, to see that a checker finds them. None by default.
type Mistakes struct {
	RetryUnknown  bool // tries a write of unknown outcome again
	RetryBackward bool // tries writes again in reverse order
	LateInterest  bool // a connection is entered for the keys that it tracks when it has read them
	EarlyTelling  bool // what a connection is told of the keys that it tracks comes before the replies
	NewSince      bool // a blocking pop that is tried anew has just arrived
	// FewPlaces is no mistake: it gives places in SCAN's cursors 4 bits, as if many keys had the same hash.
	FewPlaces bool
	// ForgetScans is no mistake: SCAN finds no place in Scans, as if these had been forgotten.
	ForgetScans bool
}

// Server serves the clients of one or several listeners.
type Server struct {
	backend
	o       Options
	runID   string
	limits  limits
	stats   stats
	calls   callCounts
	slow    slowLog
	kept    keptValues
	pause   atomic.Pointer[pause]
	trouble atomic.Pointer[trouble] // nil while nothing is wrong
	refused struct {                // for refusals, see draw
		mu     sync.Mutex
		random *rand.Rand
	}

	monitors monitors
	senders  senders
	channels channels
	tracked  tracking.Table
	blocked  atomic.Int64  // clients that wait
	events   atomic.Uint32 // notify-keyspace-events, a redis.EventClass

	wg sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	clients   map[uint64]*conn
	trusted   map[uint64]*conn // see TakeTrusted
	lastID    uint64
}

// New returns a server without listeners: see Serve.
func New(o Options) *Server {
	s := &Server{
		o: o, runID: newRunID(), clients: map[uint64]*conn{}, trusted: map[uint64]*conn{}, calls: newCallCounts(),
	}
	heapAtStart()
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	s.keyMaps.random = rand.New(rand.NewPCG(o.Seed, 0))
	s.refused.random = rand.New(rand.NewPCG(o.Seed, 1))
	s.slow.limit.Store(slowMicros)
	s.slow.length.Store(slowCalls)
	s.limits.set(&s.o.Settings.Redis)
	if o.ClientMemory == nil {
		s.o.ClientMemory = NewClientMemory(o.Settings.Redis.ClientMemory, o.Settings.Cluster.Stores)
	}
	s.o.ClientMemory.join(s)
	s.tracked.Held, s.tracked.Full = s.o.ClientMemory.holdTracked, s.o.ClientMemory.tracksMuch
	s.tracked.SetMost(s.o.Settings.Redis.TrackingTableMaxKeys)
	if o.Scans == nil {
		s.o.Scans = new(Scans)
	}
	if o.Announce == nil {
		s.o.Announce = new(announce.Rules)
	}
	if o.Hub == nil {
		s.o.Hub = new(Hub)
	}
	s.node, s.started, s.closing = nodeOf{s.o.Node}, time.Now(), make(chan struct{})
	s.standIn, s.knobs, s.mistakes = s.o.StandIn, &s.o.Settings.Redis, s.o.Mistakes
	s.turns, s.places, s.scans = s.o.ClientMemory.turns, s.o.ClientMemory.scripts, s.o.Scans
	if s.knobs.ClusterEnabled {
		s.self = s.o.Self
	}
	classes, _ := redis.ParseEventClass(s.knobs.NotifyKeyspaceEvents) // validated
	s.events.Store(uint32(classes))
	s.o.Hub.change(func(all []*Server) []*Server { return append(all, s) })
	s.wg.Go(s.endHungReads)
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
	Accept(ln, s.closing, s.Take)
	return nil
}

// Accept calls take for each connection that a listener accepts. It returns when the listener is closed, or when it
// cannot accept and closing is closed.
func Accept(ln net.Listener, closing <-chan struct{}, take func(net.Conn)) {
	for pause := time.Duration(0); ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			take(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // mostly there are no file descriptors left: connections that end give some back
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-closing:
				t.Stop()
				return
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

// connKind says who has connected to what.
type connKind byte

const (
	plainConn   connKind = iota // of a client
	replicaConn                 // of a client, to the store's second address
	insideConn                  // of the process itself
)

// Take serves a connection on a goroutine of its own, or turns it away.
func (s *Server) Take(nc net.Conn) { s.take(nc, plainConn) }

// TakeReplica is like Take, for the second address of a store (route.Port).
func (s *Server) TakeReplica(nc net.Conn) { s.take(nc, replicaConn) }

// TakeTrusted is like Take, for a connection of the process itself. It needs no password and may be idle. It is none of
// the clients, whom CLIENT LIST shows, CLIENT KILL closes, ClientMemory counts and redis.max_clients bounds.
func (s *Server) TakeTrusted(nc net.Conn) { s.take(nc, insideConn) }

func (s *Server) take(nc net.Conn, kind connKind) {
	trusted := kind == insideConn
	tcp, socket := nc.(*net.TCPConn)
	s.mu.Lock()
	all := s.clients
	if trusted {
		all = s.trusted
	}
	if s.closed || !trusted && int64(len(all)) >= s.limits.clients.Load() || socket && !s.o.Sockets.take() {
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
	if socket {
		s.keepAlive(tcp)
	}
	client := s.newClientConn(nc)
	if client.turnedAway() {
		s.mu.Unlock()
		s.o.Sockets.give(socket)
		return
	}
	nc = client
	c := newConn(s, nc, s.lastID, kind)
	all[c.id] = c
	s.wg.Add(1)
	s.mu.Unlock()
	s.stats.connections.Add(1)
	go s.serve(c, all)
}

// serve serves a connection, which is one of all, from its beginning or from where it waits for a blocking pop. Each
// time that it begins to wait another goroutine goes on: the stack of this one has grown to 8 KiB or more, and only the
// collector would cut it, when it runs some day. So 10,000 blocked clients take 2 to 4 KiB of stack each.
func (s *Server) serve(c *conn, all map[uint64]*conn) {
	if c.exec.pop != nil {
		c.await()
	}
	if !c.serve() {
		go s.serve(c, all)
		return
	}
	c.killed.Store(true)
	c.block(false)
	c.hangUp()
	c.out.drop()
	c.release()
	s.mu.Lock()
	delete(all, c.id)
	s.mu.Unlock()
	_, socket := c.nc.(*clientConn).Conn.(*net.TCPConn)
	s.o.Sockets.give(socket)
	c.nc.Close() // last: CLIENT LIST does not show a connection that its client has seen end, and its place is free
	s.wg.Done()
}

// connections yields the clients' connections and those of the process itself. The caller holds mu.
func (s *Server) connections() iter.Seq[*conn] {
	return func(yield func(*conn) bool) {
		for _, all := range []map[uint64]*conn{s.clients, s.trusted} {
			for _, c := range all {
				if !yield(c) {
					return
				}
			}
		}
	}
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
		for c := range s.connections() {
			c.kill()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.o.ClientMemory.leave(s)
	s.o.Hub.change(func(all []*Server) []*Server { return slices.DeleteFunc(all, func(x *Server) bool { return x == s }) })
	return nil
}
