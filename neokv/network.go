package neokv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/transport"
)

// newNetwork returns the network between the stores. Over TCP each store listens on one more port, always on loopback,
// whose address only the stores learn. Without sockets the connections are in memory.
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
		pipes := make(map[string]*memconn.Listener)
		t.Listen = func() (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			addr := fmt.Sprintf("raft-%d", len(pipes))
			pipes[addr] = memconn.Listen(memoryAddr(addr))
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

// listenAll opens the ports of the stores and then the proxy's, and sets the address of each. Without sockets the
// listeners are nil.
func (c *Cluster) listenAll() (all []net.Listener, err error) {
	for i := range len(c.nodes) + 1 {
		who, addr, port := "proxy", &c.proxyAddr, c.config.ProxyPort
		if i < len(c.nodes) {
			who, addr, port = fmt.Sprint("store ", i+1), &c.nodes[i].addr, c.config.Port
			if port > 0 {
				port += i
			}
		}
		var ln net.Listener
		if ln, *addr, err = c.listen(port, i); err != nil {
			for _, ln := range all {
				if ln != nil {
					ln.Close()
				}
			}
			return nil, fmt.Errorf("%s: %w", who, err)
		}
		all = append(all, ln)
	}
	return all, nil
}

// listen opens the i-th port. Without sockets it opens none, and the address is only a name for Dial.
func (c *Cluster) listen(port, i int) (net.Listener, string, error) {
	if c.config.NoSockets {
		if port == 0 {
			port = 7001 + i
		}
		return nil, net.JoinHostPort(c.config.Bind, strconv.Itoa(port)), nil
	}
	ln, err := insist(
		func() (net.Listener, error) {
			return net.Listen("tcp", net.JoinHostPort(c.config.Bind, strconv.Itoa(port)))
		},
		func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) },
	)
	if err != nil {
		return nil, "", err
	}
	return ln, ln.Addr().String(), nil
}

// serve lets a server accept clients from a pipe and, unless it is nil, from a listener.
func (c *Cluster) serve(s *server.Server, pipe *memconn.Listener, ln net.Listener) {
	c.wg.Go(func() { s.Serve(pipe) })
	if ln != nil {
		c.wg.Go(func() { s.Serve(ln) })
	}
}

// memoryAddr is the address of a listener in memory: host:port of the socket beside it, whether there is one or not.
type memoryAddr string

func (memoryAddr) Network() string { return "tcp" }

func (a memoryAddr) String() string { return string(a) }

// refused is the error of dialling a closed port. Clients decide by its type whether to try elsewhere.
func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: memoryAddr(addr), Err: syscall.ECONNREFUSED}
}
