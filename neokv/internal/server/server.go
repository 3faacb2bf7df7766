// Package server speaks RESP to clients: connections, limits, pipelines, redirections, and the commands that are about the
// connection, the server or the cluster rather than about data.
package server

import (
	"context"
	"net"

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

// Options of a server: one per store, and one for the proxy port.
type Options struct {
	// Self is the store that this server belongs to, 0 for the proxy port, which takes any key and passes commands on.
	Self     topology.StoreID
	Settings settings.Settings
	// Table returns the present slot table, nil before there is one.
	Table func() *route.Table
	// Replica returns the replica of a region on a store of this process, nil if there is none.
	Replica func(topology.StoreID, topology.RegionID) *region.Replica
	// Info adds sections to INFO; it may be nil.
	Info func() []Section
	// Failed returns why the store has failed, nil while it has not. Connections are then closed without a reply.
	Failed  func() error
	Version string
}

// Server serves one or several listeners.
type Server struct{}

// New returns a server that serves nothing yet.
func New(o Options) *Server { panic("skeleton") }

// Serve accepts connections until the listener is closed or Close is called.
func (s *Server) Serve(ln net.Listener) error { panic("skeleton") }

// Close closes all connections and returns when their goroutines have ended.
func (s *Server) Close() error { panic("skeleton") }

// Pipe is a listener in memory: Dial makes a pair of connected, buffered net.Conns and hands one to Accept.
type Pipe struct{}

// NewPipe returns a listener that answers to the given address.
func NewPipe(addr net.Addr) *Pipe { panic("skeleton") }

func (p *Pipe) Accept() (net.Conn, error)                  { panic("skeleton") }
func (p *Pipe) Addr() net.Addr                             { panic("skeleton") }
func (p *Pipe) Close() error                               { panic("skeleton") }
func (p *Pipe) Dial(ctx context.Context) (net.Conn, error) { panic("skeleton") }
