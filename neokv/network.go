package neokv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/transport"
)

// newNetwork returns what the stores reach each other by. Over TCP every store has a port on loopback, wherever clients connect to,
// that nobody is told of; without sockets the connections are in memory.
func (c *Cluster) newNetwork(identity [16]byte) *transport.Network {
	if c.settings.Raft.Transport == "memory" {
		return transport.NewNetwork()
	}
	t := transport.TCP{
		Cluster: identity,
		Listen:  func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	}
	if c.config.NoSockets {
		var mu sync.Mutex
		pipes := make(map[string]*server.Pipe)
		t.Listen = func() (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			addr := fmt.Sprintf("raft-%d", len(pipes))
			pipes[addr] = server.NewPipe(memoryAddr(addr))
			return pipes[addr], nil
		}
		t.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			p := pipes[addr]
			mu.Unlock()
			return p.Dial(ctx)
		}
	}
	return transport.NewTCP(t)
}

// listen opens a port, unless the cluster has no sockets: then the address is only a name.
func (c *Cluster) listen(port, i int) (net.Listener, string, error) {
	if c.config.NoSockets {
		if port == 0 {
			port = 7001 + i
		}
		return nil, net.JoinHostPort(c.config.Bind, strconv.Itoa(port)), nil
	}
	ln, err := insist(func() (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(c.config.Bind, strconv.Itoa(port)))
	},
		func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) })
	if err != nil {
		return nil, "", err
	}
	return ln, ln.Addr().String(), nil
}

// serve hands the listeners to the server; a nil one is left out.
func (c *Cluster) serve(s *server.Server, pipe *server.Pipe, ln net.Listener) {
	c.wg.Go(func() { s.Serve(pipe) })
	if ln != nil {
		c.wg.Go(func() { s.Serve(ln) })
	}
}

// memoryAddr is the address of a listener in memory: host:port of the socket that stands, or would stand, beside it.
type memoryAddr string

func (memoryAddr) Network() string { return "tcp" }

func (a memoryAddr) String() string { return string(a) }

// refused is what dialling a closed port answers; clients decide by its type whether to try elsewhere.
func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: memoryAddr(addr), Err: syscall.ECONNREFUSED}
}
