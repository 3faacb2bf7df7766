package server

import (
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// caller is the connection that an executor runs commands for. The executor calls it on the connection's goroutine.
type caller interface {
	// answered tells that the reply to a command begins at start of out. If made is not set, the reply is an error
	// instead of running the command, or nobody knows whether it ran.
	answered(cmd *command, start int, made bool)
	// wrote tells of a write that is applied. w.index may be smaller than that of an earlier one.
	wrote(r topology.RegionID, w lastWrite)
	// readOnly reports whether replicas that do not lead may read for the caller.
	readOnly() bool
	// asking reports whether ASKING came before the command that runs, or before its transaction.
	asking() bool
	// told returns what the caller is told of a store's address.
	told(*route.PublicStore) announce.Addr
	// received is how many bytes are held for the commands that run now.
	received() int
	// lost reports whether the client is gone. It may take a millisecond.
	lost(now time.Time) bool
	// wake tells the caller, which waits for the executor's pop, that the region is done with it.
	wake()
	// undecided is stop where the reason is that the outcome of a command is unknown. why is the text of the
	// region.UnknownOutcome.
	undecided(why string)
	// stop ends the caller after the replies so far.
	stop()
}

// readOnly is part of caller. What a client tracks only the leader may read, since no other replica tells of changes.
func (c *conn) readOnly() bool { return c.session.ReadOnly && (c.track == nil || c.track.idle()) }

func (c *conn) asking() bool { return c.session.Asks() }

// told finds out what the connection is told when it has to know: most connections of the proxy port never do.
func (c *conn) told(s *route.PublicStore) announce.Addr {
	return c.announced().Store(int(s.ID), s.Host, s.Port)
}

// toldReplica is told for a store's second address. Those are behind the first ones of all stores, as their ports are.
func (c *conn) toldReplica(s *route.PublicStore) announce.Addr {
	return c.announced().Store(c.s.o.Settings.Cluster.Stores+int(s.ID), s.Host, s.ReplicaPort)
}

func (c *conn) announced() *announce.Told {
	if c.tells == nil {
		t := c.s.o.Announce.To(c.nc.LocalAddr(), c.nc.RemoteAddr())
		c.tells = &t
	}
	return c.tells
}

func (c *conn) received() int { return len(c.rd.buf) }
func (c *conn) stop()         { c.closing = true }

func (c *conn) undecided(why string) {
	c.closing = true
	n := c.s.stats.unknownClosed.Add(1)
	if f := c.s.o.OnUndecided; f != nil {
		f(why, n)
	}
}
