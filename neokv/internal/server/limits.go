package server

import (
	"sync/atomic"
	"time"

	"neokv.dev/neokv/settings"
)

// This file has the limits on one client, and closes connections that exceed them. client_memory.go bounds the memory
// of all clients together.

// limits are the settings that CONFIG SET can change. Connections read them without a lock.
type limits struct {
	clients   atomic.Int64
	timeout   atomic.Int64 // seconds that a connection may be idle, 0 for ever
	keepalive atomic.Int64 // seconds, 0 for never
	bulk      atomic.Int64 // bytes of an argument
	query     atomic.Int64 // bytes of a command
	output    atomic.Pointer[outputLimit]
	password  atomic.Pointer[string] // empty for none
}

// outputLimit bounds the replies that a client has not taken; 0 is no limit.
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
	l.password.Store(&k.RequirePass)
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
	k.RequirePass = *l.password.Load()
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
}

// overflow closes a connection whose replies are more than it may leave unread.
func (c *conn) overflow() {
	if c.kill() {
		c.s.stats.outputClosed.Add(1)
	}
	c.closing = true
}
