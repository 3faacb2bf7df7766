package transport_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// networks are the kinds of network that every test runs on. In virtual time connections are in memory, too.
var networks = []struct {
	name string
	make func() *transport.Network
}{
	{"memory", transport.NewNetwork},
	{"tcp", func() *transport.Network { return transport.NewTCP(pipes()) }},
}

// onEach runs a test in virtual time on each kind of network.
func onEach(t *testing.T, test func(t *testing.T, newNet func() *transport.Network)) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, n.make) })
		})
	}
}

type fakeAddr string

func (fakeAddr) Network() string  { return "pipe" }
func (a fakeAddr) String() string { return string(a) }

// pipes connects endpoints through memory.
func pipes() transport.TCP {
	var mu sync.Mutex
	all := map[string]*memconn.Listener{}
	return transport.TCP{
		Listen: func() (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			p := memconn.Listen(fakeAddr(fmt.Sprint(len(all))))
			all[p.Addr().String()] = p
			return p, nil
		},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			mu.Lock()
			p := all[address]
			mu.Unlock()
			return p.Dial(ctx)
		},
	}
}

// loopback connects endpoints through sockets.
func loopback() transport.TCP {
	return transport.TCP{
		Listen: func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	}
}

// end is an endpoint with a receiver in place of a NodeHost.
type end struct {
	*transport.Endpoint
	raft   raftio.ITransport
	mu     sync.Mutex // of got and begin: deliveries come from several goroutines
	got    []string   // commit index @ ms since begin
	begin  time.Time
	chunks int
	refuse bool
	handle func(context.Context, topology.StoreID, []byte) ([]byte, error)
}

func newEnd(t testing.TB, network *transport.Network, id topology.StoreID) *end {
	return newEndOf(t, network, transport.Options{Store: id})
}

// newEndOf starts an end with options.
func newEndOf(t testing.TB, network *transport.Network, o transport.Options) *end {
	e := &end{begin: time.Now()}
	o.Handle = func(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error) {
		return e.handle(ctx, from, request)
	}
	e.Endpoint = network.NewEndpoint(o)
	e.raft = e.Factory().Create(config.NodeHostConfig{RaftAddress: o.Store.RaftAddress()}, func(b pb.MessageBatch) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, m := range b.Requests {
			e.got = append(e.got, fmt.Sprintf("%d@%d", m.Commit, time.Since(e.begin).Milliseconds()))
		}
	}, func(pb.Chunk) bool { e.chunks++; return !e.refuse })
	if err := e.raft.Start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// received is how many messages have arrived.
func (e *end) received() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got)
}

func (e *end) connect(t testing.TB, to topology.StoreID) raftio.IConnection {
	c, err := e.raft.GetConnection(context.Background(), to.RaftAddress())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func batch(commits ...uint64) pb.MessageBatch {
	var b pb.MessageBatch
	for _, n := range commits {
		kind := pb.Replicate
		if n >= 100 {
			kind = pb.Heartbeat
		}
		b.Requests = append(b.Requests, pb.Message{Type: kind, Commit: n})
	}
	return b
}

func TestLinks(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one, two := newEnd(t, net, 1), newEnd(t, net, 2)
		conn := one.connect(t, 2)
		send := func(c raftio.IConnection, commits ...uint64) {
			b := batch(commits...)
			if err := c.SendMessageBatch(b); err != nil {
				t.Errorf("send %v: %v", commits, err)
			}
			clear(b.Requests) // as dragonboat does
		}
		want := func(what string, e *end, got ...string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			if !slices.Equal(e.got, got) {
				t.Errorf("%s: got %v, want %v", what, e.got, got)
			}
			e.got, e.begin = nil, time.Now()
		}
		send(conn, 1, 2)
		want("up", two, "1@0", "2@0")
		net.SetLink(1, 2, fault.Net{Cut: true}, nil)
		send(conn, 3)
		want("cut", two)
		send(two.connect(t, 1), 4)
		synctest.Wait()
		one.mu.Lock()
		if len(one.got) != 1 {
			t.Errorf("the other direction: got %v, want one message", one.got)
		}
		one.mu.Unlock()
		net.SetLink(1, 2, fault.Net{}, nil)
		net.SetLink(1, 2, fault.Net{Delay: 50 * time.Millisecond}, nil)
		send(conn, 5)
		time.Sleep(10 * time.Millisecond)
		net.SetLink(1, 2, fault.Net{}, nil)
		send(conn, 6) // behind 5
		want("delayed", two, "5@50", "6@50")
		send(conn, 7)
		want("no longer delayed", two, "7@0")
		net.SetLink(1, 2, fault.Net{Delay: 50 * time.Millisecond}, nil)
		send(conn, 8)
		net.SetLink(1, 2, fault.Net{Cut: true}, nil)
		want("cut under way", two)
		net.SetLink(1, 2, fault.Net{}, nil)
		net.Hold(1, 2, 30*time.Millisecond, func(m *pb.Message) bool { return m.Type == pb.Heartbeat })
		send(conn, 9, 100, 10, 101)
		want("held", two, "9@0", "10@0", "100@30", "101@30")
		net.Hold(1, 2, 0, nil)
		net.SetLink(1, 2, fault.Net{Duplicate: 1}, seeded())
		send(conn, 21)
		synctest.Wait()
		net.SetLink(1, 2, fault.Net{Cut: true}, nil)
		want("cut before it arrives again", two, "21@0")
		net.SetLink(1, 2, fault.Net{}, nil)
		send(conn, 20)
		want("no longer repeated", two, "20@0")

		// A message from an earlier run of a store never arrives, and a message to an earlier run does not reach the
		// next one.
		net.SetLink(1, 2, fault.Net{Delay: 50 * time.Millisecond}, nil)
		send(conn, 11)
		again := newEnd(t, net, 1)
		send(conn, 12)
		send(again.connect(t, 2), 13)
		want("after a restart", two, "13@50")
		send(two.connect(t, 1), 14)
		want("to the restarted", again, "14@1000")
		want("to its predecessor", one, "4@2000")
		one.Close()
		if _, err := two.raft.GetConnection(context.Background(), "somewhere:1"); err == nil {
			t.Error("an address that names no store was taken")
		}
		if err := two.raft.Close(); err != nil {
			t.Error(err)
		}
		send(again.connect(t, 2), 15)
		want("without a NodeHost", two)
	})
}

func TestSnapshotChunks(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one, two := newEnd(t, net, 1), newEnd(t, net, 2)
		conn, err := one.raft.GetSnapshotConnection(context.Background(), "store-2")
		if err != nil {
			t.Fatal(err)
		}
		want := func(what, failure string) {
			t.Helper()
			if err := conn.SendChunk(pb.Chunk{ChunkId: 3}); fmt.Sprint(err) != failure {
				t.Errorf("%s: %v, want %v", what, err, failure)
			}
		}
		want("up", "<nil>")
		two.refuse = true
		want("refused", "store-2: chunk 3 of a snapshot refused")
		net.SetLink(1, 2, fault.Net{Cut: true}, nil)
		want("cut", "store-1 to store-2: link is cut")
		net.SetLink(1, 2, fault.Net{}, nil)
		two.Close()
		want("absent", "store-2: not running")
		one.Close()
		want("closed", "store-1: endpoint closed")
		if two.chunks != 2 {
			t.Errorf("%d chunks delivered, want 2", two.chunks)
		}
	})
}

// BenchmarkSend is a batch of 8 messages from one store to another.
func BenchmarkSend(b *testing.B) {
	net := transport.NewNetwork()
	defer net.Close()
	one := newEnd(b, net, 1)
	two := net.NewEndpoint(transport.Options{Store: 2})
	raft := two.Factory().Create(config.NodeHostConfig{RaftAddress: "store-2"}, func(pb.MessageBatch) {}, nil)
	if err := raft.Start(); err != nil {
		b.Fatal(err)
	}
	conn, msgs := one.connect(b, 2), batch(1, 2, 3, 4, 5, 6, 7, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.SendMessageBatch(msgs); err != nil {
			b.Fatal(err)
		}
	}
}
