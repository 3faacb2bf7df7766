package server

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// ClientMemory bounds what the clients of several servers hold together. When it is exceeded, the clients that hold most are closed, as
// Redis does under maxmemory-clients; those that asked for CLIENT NO-EVICT are spared.
type ClientMemory struct {
	limit   atomic.Int64 // bytes, 0 for none
	percent atomic.Int64 // of the machine's memory, where the limit was given so; else 0
	used    atomic.Int64
	turns   []chan struct{} // by store, counted from 1: holds one for each connection that has a turn
	moves   chan struct{}   // holds one for each connection that moves what it has read into a larger buffer

	mu      sync.Mutex
	servers []*Server
}

// NewClientMemory returns a bound for the servers that are given it, which read from so many stores. 0 is no limit.
func NewClientMemory(limit settings.Bytes, stores int) *ClientMemory {
	m := &ClientMemory{turns: make([]chan struct{}, stores+1), moves: make(chan struct{}, max(1, runtime.NumCPU()/2))}
	for i := range m.turns {
		m.turns[i] = make(chan struct{}, max(1, runtime.NumCPU()/(2*stores)))
	}
	m.limit.Store(int64(limit))
	return m
}

// set changes the limit to so many bytes, or, where percent is not 0, to that part of the machine's memory: there is no
// maxmemory that it could be a part of.
func (m *ClientMemory) set(bytes, percent int64) {
	if percent > 0 {
		bytes = max(1, systemMemory()/100*percent)
	}
	m.percent.Store(percent)
	m.limit.Store(bytes)
}

// text is the limit as it was given.
func (m *ClientMemory) text() string {
	if percent := m.percent.Load(); percent > 0 {
		return strconv.FormatInt(percent, 10) + "%"
	}
	return strconv.FormatInt(m.limit.Load(), 10)
}

// tell makes a setting of the limit.
func (m *ClientMemory) tell(k *settings.Redis) { k.ClientMemory = settings.Bytes(m.limit.Load()) }

// Used is how many bytes clients hold.
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

// lacks reports whether n bytes more are too many.
func (m *ClientMemory) lacks(n int64) bool {
	limit := m.limit.Load()
	return limit > 0 && m.used.Load()+n > limit
}

// tight reports whether clients hold more than half of what they may: connections then keep no buffers that they do not need.
func (m *ClientMemory) tight() bool {
	limit := m.limit.Load()
	return limit > 0 && m.used.Load() > limit/2
}

// evict closes clients until one of them may hold n bytes more, or nobody is left to close.
func (m *ClientMemory) evict(asks *conn, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.lacks(n) && !asks.killed.Load() {
		var largest *conn
		most := int64(0)
		for _, s := range m.servers {
			s.mu.Lock()
			for _, c := range s.clients {
				size := c.held.Load()
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
			largest.s.stats.evicted.Add(1) // before anybody can see that it is closed
			largest.end()
		}
		largest.release()
	}
}

// hold counts n bytes more, or fewer, for the connection; false when that has closed it. A run that the connection has given up may come
// here after its end.
func (c *conn) hold(n int64) bool {
	if c.killed.Load() {
		return false
	}
	m := c.s.o.ClientMemory
	if n > 0 && m.lacks(n) {
		if m.evict(c, n); c.killed.Load() {
			return false
		}
	}
	c.held.Add(n)
	m.used.Add(n)
	if c.killed.Load() { // and perhaps released before n was counted
		c.release()
		return false
	}
	return true
}

// release takes what the connection holds off the count.
func (c *conn) release() { c.s.o.ClientMemory.used.Add(-c.held.Swap(0)) }

// What a connection keeps for an argument, beside its bytes, and for a command.
const (
	argBytes = int64(unsafe.Sizeof([]byte(nil)))
	cmdBytes = int64(unsafe.Sizeof(command{}))
)

// account counts what the connection's buffers hold now; false when that has closed it.
func (c *conn) account() bool {
	n := int64(0)
	if c.monitor != nil {
		n = 2 * monitorBytes
	}
	n += int64(cap(c.rd.buf)+cap(c.out.Buf)+c.batch.bytes()) + argBytes*int64(cap(c.argv)) + cmdBytes*int64(cap(c.cmds))
	if n == c.held.Load() {
		return true
	}
	return c.hold(n - c.held.Load())
}

const (
	freeRoom = 64 << 10  // for replies, that nobody is asked for
	moreStep = 256 << 10 // that are asked for at once
)

// more is a Reply's: it counts bytes before they are held. The connection's goroutine calls it, or, while that waits, the one that
// applies its writes.
func (c *conn) more(n int) int {
	n = max(n, moreStep)
	if !c.hold(int64(n)) {
		return 0
	}
	return n
}

// enlarge gives the reader a buffer of so many bytes; false when that is more than clients may hold. Large buffers are filled a few at a time,
// so that hundreds of clients that send much leave the processors to the others.
func (c *conn) enlarge(r *reader, size int) bool {
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

// moreOfReads is more for a batch of reads. Without a turn there is nothing more: the batch then waits for one, and runs again.
func (c *conn) moreOfReads(n int) int {
	if c.turn == nil {
		select {
		case c.turns <- struct{}{}:
			c.turn = c.turns
		default:
			c.wantsTurn = true
			return 0
		}
	}
	return c.more(n)
}

// awaitTurn waits for a turn; false when the connection ends before.
func (c *conn) awaitTurn() bool {
	c.wantsTurn = false
	select {
	case c.turns <- struct{}{}:
		c.turn = c.turns
	case <-c.ctx.Done():
	case <-c.s.closing:
	}
	return c.turn != nil
}

// endTurn gives the connection's turn back, if it has one.
func (c *conn) endTurn() {
	if c.turn != nil {
		<-c.turn
		c.turn = nil
	}
}

// collected is a Reply to collect keys in, before it is known how many there are.
func (c *conn) collected() redis.Reply { return redis.Reply{More: c.more} }

// append adds what has been collected to the replies.
func (c *conn) append(r *redis.Reply) {
	c.out.Buf, c.out.Full = append(c.out.Buf, r.Buf...), c.out.Full || r.Full
}
