package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// newNetwork returns the network between the stores. Over TCP each store listens on one more port, always on loopback,
// whose address only the stores learn. Without sockets the connections are in memory.
func (c *core) newNetwork() *transport.Network {
	if c.settings.Raft.Transport == "memory" {
		return transport.NewNetwork()
	}
	t := transport.TCP{
		Cluster: c.identity,
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

// PortsTaken says on which addresses, host:port, Start cannot listen because others do.
type PortsTaken struct {
	Addrs []string
	wants []string // who wants each
}

func (e *PortsTaken) Error() string {
	return "address already in use: " + strings.Join(e.wants, ", ")
}

// portToOpen is a port with the name of who wants it, and where its address and its listener go.
type portToOpen struct {
	who  string
	addr *string
	ln   *net.Listener
}

// listenAll opens the ports of the stores and the proxy's, and sets the address of each. Without sockets the listeners
// are nil, and an address is only a name for Dial, so that no client writes to a server that has nothing to do with
// this cluster. The error is a PortsTaken where ports are taken.
func (v *servers) listenAll() (proxy net.Listener, err error) {
	var all []portToOpen
	for _, n := range v.places.all() {
		for _, d := range n.doors {
			who := fmt.Sprint("store ", n.id)
			if d.replica {
				who = fmt.Sprintf("store %d as a replica", n.id)
			}
			d.addr = v.address(v.config.Port, v.placeOf(n.id, d.replica))
			all = append(all, portToOpen{who, &d.addr, &d.ln})
		}
	}
	v.proxyAddr = v.address(v.config.ProxyPort, 0)
	if v.config.NoSockets && v.config.ProxyPort == 0 {
		v.proxyAddr = v.address(0, 99)
	}
	if v.config.NoSockets {
		return nil, nil
	}
	all = append(all, portToOpen{"the proxy", &v.proxyAddr, &proxy})
	_, err = insist(func() (struct{}, error) { return struct{}{}, listenOn(all) },
		func(err error) bool { return errors.As(err, new(*PortsTaken)) })
	if err == nil {
		err = v.announced()
	}
	if err != nil {
		closeAll(all)
		return nil, err
	}
	return proxy, nil
}

// placeOf returns how far the port of a store's address lies behind that of store 1.
func (v *servers) placeOf(id topology.StoreID, replica bool) int {
	if replica {
		return v.row() + int(id) - 1
	}
	return int(id) - 1
}

// announced tells what clients are told of the stores. The error is that one cannot be told.
func (v *servers) announced() error {
	ports := make([]int, v.addresses())
	for _, n := range v.places.all() {
		for _, d := range n.doors {
			ports[v.placeOf(n.id, d.replica)] = d.ln.Addr().(*net.TCPAddr).Port
		}
	}
	lines, err := v.announce.Lines(ports)
	if err != nil {
		return settings.Invalid{{Name: "redis.cluster_announce", Text: err.Error()}}
	}
	if f := v.config.Progress; f != nil {
		for _, line := range lines {
			f(line)
		}
	}
	return nil
}

// noSocket is the host of addresses without sockets: no system connects to it.
const noSocket = "255.255.255.255"

// address returns the address of the i-th port from port on; 0 stands for free ones.
//
// Without sockets the host is an IP address, and no name that nobody can resolve: go-redis looks names up although it
// has a dialer, and the first look-up of a process in a bubble of testing/synctest ends the process at the next one
// elsewhere.
func (c *core) address(port, i int) string {
	host := c.config.Bind
	if c.config.NoSockets {
		host = noSocket
		if port == 0 {
			port = 1
		}
	}
	if port > 0 {
		port += i
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// listenOn opens ports, all or none, and sets the address of each.
func listenOn(all []portToOpen) (err error) {
	var taken PortsTaken
	for _, x := range all {
		ln, failed := net.Listen("tcp", *x.addr)
		switch {
		case failed == nil:
			*x.ln = ln
		case errors.Is(failed, syscall.EADDRINUSE):
			taken.Addrs, taken.wants = append(taken.Addrs, *x.addr), append(taken.wants, *x.addr+" of "+x.who)
		default:
			err = errors.Join(err, failed)
		}
	}
	if taken.Addrs != nil {
		err = errors.Join(err, &taken)
	}
	if err != nil {
		closeAll(all)
		return err
	}
	for _, x := range all {
		*x.addr = (*x.ln).Addr().String()
	}
	return nil
}

// closeAll closes what is open of some ports.
func closeAll(all []portToOpen) {
	for _, x := range all {
		if *x.ln != nil {
			(*x.ln).Close()
			*x.ln = nil
		}
	}
}

// serve lets a server accept clients from a pipe and, unless it is nil, from a listener.
func (v *servers) serve(s *server.Server, pipe *memconn.Listener, ln net.Listener) {
	v.wg.Go(func() { s.Serve(pipe) })
	if ln != nil {
		v.wg.Go(func() { s.Serve(ln) })
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
