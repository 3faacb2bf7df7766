package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// echo answers calls with the request.
func echo(_ context.Context, _ topology.StoreID, request []byte) ([]byte, error) {
	if string(request) == "fail" {
		return nil, errors.New("as you wish")
	}
	return request, nil
}

// TestStrangers connects to a store without knowing the secret. The store answers nothing but the introduction, and
// goes on working.
func TestStrangers(t *testing.T) {
	wire := loopback()
	var address string
	listen := wire.Listen
	wire.Listen = func() (net.Listener, error) {
		ln, err := listen()
		if err == nil && address == "" {
			address = ln.Addr().String()
		}
		return ln, err
	}
	network := transport.NewTCP(wire)
	defer network.Close()
	one := network.NewEndpoint(transport.Options{Store: 1, Handle: echo})
	ask := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if answer, err := one.Call(ctx, 1, []byte("still there")); err != nil || string(answer) != "still there" {
			t.Errorf("call: %q, %v", answer, err)
		}
	}
	for _, bytes := range []string{
		"*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 64), strings.Repeat("\xff", 1<<20),
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		c.Write([]byte(bytes)) // fails where it is hung up in the middle
		got, err := io.ReadAll(c)
		if len(got) > 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%.20q is answered with %d bytes, %v", bytes, len(got), err)
		}
		c.Close()
		ask()
	}

	// Strangers that say nothing, more than may be connected at once, keep no store out: two's first call needs a
	// connection.
	var silent []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	late := network.NewEndpoint(transport.Options{Store: 2})
	soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if answer, err := late.Call(soon, 1, []byte("hello")); err != nil || string(answer) != "hello" {
		t.Errorf("a call while 200 strangers are silent: %q, %v", answer, err)
	}
	ended := 0
	for _, c := range silent { // none of them holds a place for long
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			ended++
		}
		c.Close()
	}
	if ended != len(silent) {
		t.Errorf("%d of %d silent connections were closed", ended, len(silent))
	}

	// A store of another network, which knows the address: its secret is another one.
	other := loopback()
	other.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return wire.Dial(ctx, address) }
	foreign := transport.NewTCP(other)
	defer foreign.Close()
	foreign.NewEndpoint(transport.Options{Store: 1, Handle: echo})
	two := foreign.NewEndpoint(transport.Options{Store: 2})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if answer, err := two.Call(ctx, 1,
		[]byte("hello")); fmt.Sprint(err) != "store-1: introduction: who listens does not belong to the network" {
		t.Errorf("a call into another network: %q, %v", answer, err)
	}
	ask()
}

// TestCallsOverTCP makes many calls at once. Some handlers return errors, some answers are large or too large.
func TestCallsOverTCP(t *testing.T) {
	network := transport.NewTCP(loopback())
	defer network.Close()
	one := network.NewEndpoint(transport.Options{Store: 1, Handle: echo})
	network.NewEndpoint(transport.Options{Store: 2, Handle: echo})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for n := range 20 {
				text := fmt.Sprint(i, n)
				if answer, err := one.Call(ctx, 2, []byte(text)); err != nil || string(answer) != text {
					t.Errorf("call %s: %q, %v", text, answer, err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := one.Call(ctx, 2, []byte("fail")); fmt.Sprint(err) != "as you wish" {
		t.Errorf("a handler's error: %v", err)
	}
	if answer, err := one.Call(ctx, 2, make([]byte, 8<<20)); err != nil || len(answer) != 8<<20 {
		t.Errorf("8 MiB: %d bytes, %v", len(answer), err)
	}
	if _, err := one.Call(ctx, 2,
		make([]byte, 257<<20)); fmt.Sprint(err) != "call of store-2: frame of 269484032 bytes, want at most 268435456" {
		t.Errorf("257 MiB: %v", err)
	}
	// A store that starts again is found, though connections to its predecessor are kept.
	network.NewEndpoint(transport.Options{Store: 2,
		Handle: func(context.Context, topology.StoreID, []byte) ([]byte, error) {
			return []byte("new"), nil
		}})
	if answer, err := one.Call(ctx, 2, []byte("old")); err != nil || string(answer) != "new" {
		t.Errorf("after a restart: %q, %v", answer, err)
	}
}

// TestListenFails has an endpoint whose port does not open: its NodeHost says so.
func TestListenFails(t *testing.T) {
	network := transport.NewTCP(transport.TCP{Listen: func() (net.Listener, error) {
		return nil, errors.New("no port left")
	}})
	defer network.Close()
	e := network.NewEndpoint(transport.Options{Store: 3})
	raft := e.Factory().Create(config.NodeHostConfig{RaftAddress: "store-3"}, nil, nil)
	if err := raft.Start(); fmt.Sprint(err) != "store-3: no port left" {
		t.Errorf("start: %v", err)
	}
}

// TestDeadPeers sends to a store that does not run, and to one that reads nothing. No sender waits, messages that do
// not fit are lost, and when the store is there messages arrive again.
func TestDeadPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := transport.NewTCP(pipes())
		defer network.Close()
		one := newEnd(t, network, 1)
		conn := one.connect(t, 2)
		big := pb.MessageBatch{Requests: []pb.Message{{Type: pb.Replicate,
			Entries: []pb.Entry{{Cmd: make([]byte, 1<<20)}}}}}
		begin := time.Now()
		send := func(n int) {
			for range n {
				if err := conn.SendMessageBatch(big); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); took > 0 {
				t.Errorf("%d batches took %v", n, took)
			}
		}
		send(100)
		time.Sleep(time.Second)
		if lost := one.Stats().Lost; lost == 0 {
			t.Error("nothing is lost on the way to a store that does not run")
		}

		two := newEnd(t, network, 2)
		begin = time.Now()
		send(1)
		time.Sleep(time.Second)
		begin = time.Now()
		send(1)
		time.Sleep(time.Second)
		if n := two.received(); n == 0 {
			t.Error("nothing arrives once the store runs")
		}

		// The receiver holds its reader up: the pipe fills, then the queue.
		two.mu.Lock()
		lost := one.Stats().Lost
		begin = time.Now()
		send(200)
		two.mu.Unlock()
		if n := one.Stats().Lost - lost; n < 100 { // the writer may have taken as much again out of the queue
			t.Errorf("%d of 200 MiB are lost on the way to a store that reads nothing, want what does not fit into "+
				"32 MiB", n)
		}
		before := two.received()
		time.Sleep(10 * time.Second)
		begin = time.Now()
		send(1)
		time.Sleep(time.Second)
		if two.received() == before {
			t.Error("nothing arrives once the store reads again")
		}
	})
}

// BenchmarkPropose proposes at the leader of one region of three stores: how much the wire costs.
func BenchmarkPropose(b *testing.B) {
	for _, kind := range []struct {
		name string
		make func() *transport.Network
	}{{"memory", transport.NewNetwork}, {"tcp", func() *transport.Network { return transport.NewTCP(loopback()) }}} {
		for _, parallel := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, parallel), func(b *testing.B) {
				c := newCluster(b, kind.make(), 1, transport.Mistakes{})
				defer c.close()
				leader := c.leader(1, 0)
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for range parallel {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							if _, err := c.propose(leader, 1); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
			})
		}
	}
}
