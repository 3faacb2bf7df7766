package server

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// ClientMemory bounds the memory that the servers of a process hold for their clients. When clients hold more, it
// closes those that hold most, as Redis does under maxmemory-clients, except those that asked for CLIENT NO-EVICT.
//
// For a client that sends, a server holds one incomplete command, which redis.query_buffer_limit bounds, and a pipeline
// of maxPipeline bytes. For a client that does not read, it holds the replies of one batch, since it executes nothing
// more until these are sent. A batch of reads ends when its replies have wantReplies bytes; a single reply is as large
// as it is.
//
// Reads with large replies take turns. A connection that needs more than freeRoom for a reply must have one of the few
// turns of the store that it reads from. So hundreds of clients that ask for much at once leave the processors to the
// others, and only a few replies grow at a time. Each store has turns of its own, since a store whose disk hangs does
// not give them back. So it is with scripts that run on connections, since an interpreter may hold much: there are as
// many places for each store as processors.
type ClientMemory struct {
	limit   atomic.Int64 // bytes, 0 for none
	percent atomic.Int64 // of the machine's memory, if the limit was given in percent; else 0
	used    atomic.Int64
	tracked atomic.Int64    // bytes of used that are of tables of tracked keys
	shares  int64           // of the memory for tables of tracked keys: of each store, and the proxy's
	turns   []*turns        // by place: see placeOf
	scripts []chan struct{} // places for scripts that run on connections, likewise; 0: those that read nothing
	moves   chan struct{}   // holds one for each connection that moves what it has read into a larger buffer

	mu      sync.Mutex
	servers []*Server
}

// NewClientMemory returns a bound for servers that read from this number of stores. A limit of 0 is no limit.
func NewClientMemory(limit settings.Bytes, stores int) *ClientMemory {
	m := &ClientMemory{shares: int64(stores) + 1, turns: make([]*turns, storePlaces+1),
		moves: make(chan struct{}, max(1, runtime.NumCPU()/2))}
	m.scripts = make([]chan struct{}, storePlaces+1)
	for i := range m.scripts {
		m.scripts[i] = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	for i := range m.turns {
		m.turns[i] = &turns{taken: make(chan struct{}, max(1, runtime.NumCPU()/(2*stores)))}
	}
	m.limit.Store(int64(limit))
	return m
}

// storePlaces is how many stores have turns of their own. It is the largest number of stores of a cluster. Numbers of
// stores may be larger, since none is given twice: then two stores share turns at times.
const storePlaces = 9

// placeOf returns the place of a store in the slices of turns, 0 for no store.
func placeOf(id topology.StoreID) int {
	if id == 0 {
		return 0
	}
	return 1 + int(id-1)%storePlaces
}

// set changes the limit to a number of bytes or, if percent is not 0, to a share of the machine's memory. Redis takes
// percents of maxmemory, which does not exist here.
func (m *ClientMemory) set(bytes, percent int64) {
	if percent > 0 {
		bytes = max(1, systemMemory()/100*percent)
	}
	m.percent.Store(percent)
	m.limit.Store(bytes)
}

// text returns the limit in the form in which it was set.
func (m *ClientMemory) text() string {
	if percent := m.percent.Load(); percent > 0 {
		return strconv.FormatInt(percent, 10) + "%"
	}
	return strconv.FormatInt(m.limit.Load(), 10)
}

// tell copies the limit in force into k.
func (m *ClientMemory) tell(k *settings.RedisKnobs) { k.ClientMemory = settings.Bytes(m.limit.Load()) }

// Used returns how many bytes clients hold.
func (m *ClientMemory) Used() int64 { return m.used.Load() }

func (m *ClientMemory) join(s *Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = append(m.servers, s)
}

func (m *ClientMemory) leave(s *Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers = slices.DeleteFunc(m.servers, func(x *Server) bool { return x == s })
}

// lacks reports whether n more bytes would exceed the limit.
func (m *ClientMemory) lacks(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.used.Load()+n > limit
}

// holdTracked counts bytes more of a table of tracked keys, or fewer.
func (m *ClientMemory) holdTracked(n int64) {
	m.used.Add(n)
	m.tracked.Add(n)
}

// tracksMuch reports whether a table of tracked keys that holds some bytes has to give up keys: all tables hold more
// than half of what clients may hold, and this one more than its share. There is one for each store, and the proxy's.
func (m *ClientMemory) tracksMuch(held int64) bool {
	most := m.limit.Load() / 2
	return most > 0 && m.tracked.Load() > most && held > most/m.shares
}

// tight reports whether clients hold more than half of what they may. Connections then keep no buffer that they do not
// need.
func (m *ClientMemory) tight() bool {
	limit := m.limit.Load()
	return limit > 0 && m.used.Load() > limit/2
}

// evict closes clients until asks may hold n bytes more, or no client is left to close.
func (m *ClientMemory) evict(asks *conn, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.lacks(n) && !asks.killed.Load() {
		var largest *conn
		most := int64(0)
		for _, s := range m.servers {
			s.mu.Lock()
			for _, c := range s.clients {
				size := c.size()
				if c == asks {
					size += n
				}
				if !c.noEvict.Load() && size > most {
					largest, most = c, size
				}
			}
			s.mu.Unlock()
		}
		if largest == nil {
			return
		}
		if !largest.killed.Swap(true) {
			largest.s.stats.evicted.Add(1) // first: a client that sees the connection closed finds it counted
			largest.end()
		}
		largest.release()
	}
}

// hold counts n bytes more for the connection, or fewer. It returns false when the connection is closed, perhaps for
// these bytes. Apply may call it for a run that the connection has given up, even after the connection's end.
func (c *conn) hold(n int64) bool { return c.count(&c.held, n) }

// count is hold for the sum at. Anybody may call it who holds no lock.
func (c *conn) count(at *atomic.Int64, n int64) bool {
	switch {
	case c.killed.Load():
		return false
	case c.trusted: // no client
		return true
	}
	m := c.s.o.ClientMemory
	if n > 0 && m.lacks(n) {
		if m.evict(c, n); c.killed.Load() {
			return false
		}
	}
	at.Add(n)
	m.used.Add(n)
	if c.killed.Load() { // perhaps release ran before n was counted
		c.release()
		return false
	}
	return true
}

// release takes what the connection holds off the count.
func (c *conn) release() { c.s.o.ClientMemory.used.Add(-c.held.Swap(0) - c.out.held.Swap(0)) }

// size is how much memory the connection holds, with the messages that wait for it, which may wait for others, too.
func (c *conn) size() int64 { return c.held.Load() + c.out.held.Load() + c.out.queued.Load() }

// How much memory a connection keeps for an argument, besides its bytes, and for a command.
const (
	argBytes = int64(unsafe.Sizeof([]byte(nil)))
	cmdBytes = int64(unsafe.Sizeof(command{}))
)

// account counts what the connection's buffers hold now. It returns false when that has closed the connection.
func (c *conn) account() bool {
	n := int64(c.session.Queued().Bytes+c.watched.bytes) + c.waits.Load() + c.subs.bytes.Load()
	if c.track != nil {
		n += c.track.prefixes
	}
	n += int64(cap(c.rd.buf)+cap(c.out.Buf)+c.exec.bytes()) + argBytes*int64(cap(c.argv)) + cmdBytes*int64(cap(c.cmds))
	if n == c.held.Load() {
		return true
	}
	return c.hold(n - c.held.Load())
}

const (
	freeRoom = 64 << 10  // replies up to this size ask for neither memory nor a turn
	moreStep = 256 << 10 // a reply grows by at least this much
)

// more is the More function of the connection's replies: it counts bytes before the reply holds them. The connection's
// goroutine calls it. While that goroutine waits for writes, the goroutine that applies them calls it.
func (c *conn) more(n int) int {
	n = max(n, moreStep)
	if !c.hold(int64(n)) {
		return 0
	}
	return n
}

// enlarge gives the reader a buffer of so many bytes. It returns false when clients may not hold that much. Only a few
// connections at a time copy into large buffers. So hundreds of clients that send much at once leave the processors to
// the others.
func (c *conn) enlarge(r *requestReader, size int) bool {
	if !c.hold(int64(size - len(r.buf))) {
		return false
	}
	if size > freeRoom {
		moves := c.s.o.ClientMemory.moves
		moves <- struct{}{}
		defer func() { <-moves }()
	}
	return !c.killed.Load() && r.move(size)
}
