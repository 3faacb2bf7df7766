package server

import (
	"fmt"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/settings"
)

// This file has the limits on one client, and closes connections that exceed them. client_memory.go bounds the memory
// of all clients together.

// limits are the settings that CONFIG SET can change. Connections read them without a lock.
type limits struct {
	clients     atomic.Int64
	timeout     atomic.Int64                // seconds that a connection may be idle, 0 for ever
	keepalive   atomic.Int64                // seconds, 0 for never
	bulk        atomic.Int64                // bytes of an argument
	query       atomic.Int64                // bytes of a command
	trackedKeys atomic.Int64                // that clients cache, 0 for any number
	output      atomic.Pointer[outputLimit] // of clients that subscribe to nothing
	pubsub      atomic.Pointer[outputLimit] // of those that do
	password    atomic.Pointer[string]      // empty for none
}

// outputLimit bounds the replies and messages that a client has not taken; 0 is no limit.
type outputLimit struct {
	hard, soft int64
	softTime   time.Duration
}

func (l *limits) set(k *settings.RedisKnobs) {
	l.clients.Store(int64(k.MaxClients))
	l.timeout.Store(int64(k.Timeout / time.Second))
	l.keepalive.Store(int64(k.TCPKeepalive / time.Second))
	l.bulk.Store(int64(k.MaxBulkLen))
	l.query.Store(int64(k.QueryBufferLimit))
	l.output.Store(&outputLimit{int64(k.OutputBufferLimit), int64(k.OutputBufferSoftLimit), k.OutputBufferSoftTime})
	l.pubsub.Store(&outputLimit{
		int64(k.PubsubBufferLimit), int64(k.PubsubBufferSoftLimit), k.PubsubBufferSoftTime,
	})
	l.password.Store(&k.RequirePass)
	l.trackedKeys.Store(int64(k.TrackingTableMaxKeys))
}

// tell is the reverse of set: it copies the limits in force into k.
func (l *limits) tell(k *settings.RedisKnobs) {
	k.MaxClients = int(l.clients.Load())
	k.Timeout = time.Duration(l.timeout.Load()) * time.Second
	k.TCPKeepalive = time.Duration(l.keepalive.Load()) * time.Second
	k.MaxBulkLen = settings.Bytes(l.bulk.Load())
	k.QueryBufferLimit = settings.Bytes(l.query.Load())
	out := l.output.Load()
	k.OutputBufferLimit, k.OutputBufferSoftLimit = settings.Bytes(out.hard), settings.Bytes(out.soft)
	k.OutputBufferSoftTime = out.softTime
	out = l.pubsub.Load()
	k.PubsubBufferLimit, k.PubsubBufferSoftLimit = settings.Bytes(out.hard), settings.Bytes(out.soft)
	k.PubsubBufferSoftTime = out.softTime
	k.RequirePass = *l.password.Load()
	k.TrackingTableMaxKeys = int(l.trackedKeys.Load())
}

// Sockets bounds how many connections with a file descriptor servers have together, since the process needs others for
// its files. Connections through memory have none. All methods may run concurrently, also those of nil.
type Sockets struct{ most, open atomic.Int64 }

// Bound sets the bound, 0 for none.
func (s *Sockets) Bound(most int) { s.most.Store(int64(most)) }

// take reports whether there may be one more connection, and counts it if so.
func (s *Sockets) take() bool {
	if s == nil {
		return true
	}
	if n, most := s.open.Add(1), s.most.Load(); most == 0 || n <= most {
		return true
	}
	s.open.Add(-1)
	return false
}

// give gives back what take has taken for a connection with a file descriptor.
func (s *Sockets) give(socket bool) {
	if s != nil && socket {
		s.open.Add(-1)
	}
}

// refuses returns why there can't be so many clients, "" if there can, in Redis's words.
func (s *Sockets) refuses(clients int64) string {
	if s == nil {
		return ""
	}
	if most := s.most.Load(); most > 0 && clients > most {
		return fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d",
			most)
	}
	return ""
}

// kill closes the connection from outside, or because of a limit. It returns false if somebody has done that already.
func (c *conn) kill() bool {
	if c.killed.Swap(true) {
		return false
	}
	c.end()
	return true
}

// end closes the connection. Only the caller that has set killed calls it.
func (c *conn) end() {
	c.hangUp()
	c.nc.Close()
	c.out.drop()
}

// patience is how long a connection waits at least before it takes the disk of a store for hung.
func (b *backend) patience() time.Duration {
	return max(b.knobs.LeaderlessWait, leastPatience)
}

// leastPatience is the least that patience returns.
const leastPatience = 5 * time.Second

// endHungReads closes connections that wait for a disk that hangs, until the server closes. Such a connection has read
// for longer than patience, and so has some read of its store's disk. A read of many records may take as long on a
// disk that answers; it goes on.
func (s *Server) endHungReads() {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-s.closing:
			return
		}
		patience := s.patience()
		late := int64(time.Since(s.started) - patience)
		s.mu.Lock()
		for c := range s.connections() {
			r := c.exec.readsFrom()
			if r != nil && c.exec.began.Load() < late && r.OldestRead() > patience && c.kill() {
				s.stats.hungClosed.Add(1)
			}
		}
		s.mu.Unlock()
	}
}

// cut closes a connection whose client leaves more unread than it may.
func (c *conn) cut() {
	if c.kill() {
		c.s.stats.outputClosed.Add(1)
	}
}

// overflow is cut, for the connection's own goroutine.
func (c *conn) overflow() {
	c.cut()
	c.closing = true
}
