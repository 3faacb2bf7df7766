package transport_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

const ms = time.Millisecond

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// linkStep happens some ms after the begin of a case: a fault is set, if any, and a batch is sent, if any.
type linkStep struct {
	ms    int
	fault *fault.Net
	send  []uint64 // commit indexes of messages, each with 1000 bytes
}

// loaded is a batch of messages with a command each.
func loaded(command int, commits ...uint64) (b pb.MessageBatch) {
	for _, n := range commits {
		b.Requests = append(b.Requests, pb.Message{Type: pb.Replicate, Commit: n,
			Entries: []pb.Entry{{Cmd: make([]byte, command)}}})
	}
	return b
}

// kilobyte is the length of a command that makes a message of 1000 bytes.
func kilobyte() int {
	n := 0
	for ; ; n++ {
		if b := loaded(n, 1); b.Requests[0].Size() == 1000 {
			return n
		}
	}
}

// TestLinkFaults: when messages arrive that do not depend on chance.
func TestLinkFaults(t *testing.T) {
	command := kilobyte()
	delayed := func(d time.Duration) *fault.Net { return &fault.Net{Delay: d} }
	limited := func(perSecond int64) *fault.Net { return &fault.Net{Bandwidth: settings.Bytes(perSecond * 1000)} }
	for _, c := range []struct {
		name  string
		steps []linkStep
		want  string // commit index @ ms
	}{
		{"good", []linkStep{{0, nil, []uint64{1, 2}}}, "1@0 2@0"},
		{"cut", []linkStep{
			{0, &fault.Net{Cut: true}, []uint64{1}}, {5, &fault.Net{}, []uint64{2}},
		}, "2@5"},
		{"a delay is exact", []linkStep{
			{0, delayed(73 * ms), []uint64{1}}, {1, nil, []uint64{2}}, {50, nil, []uint64{3}},
		}, "1@73 2@74 3@123"},
		{"a longer delay applies to later messages", []linkStep{
			{0, delayed(10 * ms), []uint64{1}}, {5, delayed(50 * ms), []uint64{2}},
		}, "1@10 2@55"},
		{"a shorter one, too, and keeps the order", []linkStep{
			{0, delayed(50 * ms), []uint64{1}}, {10, delayed(20 * ms), []uint64{2}}, {40, nil, []uint64{3}},
		}, "1@50 2@50 3@60"},
		{"a cut takes what is under way", []linkStep{
			{0, delayed(50 * ms), []uint64{1}}, {10, &fault.Net{Cut: true}, nil},
		}, ""},
		{"a limit takes bytes by rate", []linkStep{ // 10 messages per second
			{0, limited(10), []uint64{1}}, {0, nil, []uint64{2, 3}}, {50, nil, []uint64{4}}, {1000, nil, []uint64{5}},
		}, "1@100 2@300 3@300 4@400 5@1100"},
		{"a limit and a delay", []linkStep{
			{0, &fault.Net{Delay: 30 * ms, Bandwidth: 10_000}, []uint64{1}}, {0, nil, []uint64{2}},
		}, "1@130 2@230"},
		{"a new limit applies to what waits", []linkStep{
			{0, limited(1), []uint64{1}}, {0, nil, []uint64{2}}, {495, limited(10), nil},
		}, "1@550 2@650"},
		{"a link without a limit carries at once what waits", []linkStep{
			{0, limited(1), []uint64{1}}, {0, nil, []uint64{2}}, {495, &fault.Net{}, []uint64{3}},
		}, "1@500 2@500 3@500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, newNet func() *transport.Network) {
				net := newNet()
				defer net.Close()
				one, two := newEnd(t, net, 1), newEnd(t, net, 2)
				conn := one.connect(t, 2)
				if err := conn.SendMessageBatch(batch(0)); err != nil { // over TCP it connects
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				two.mu.Lock()
				two.got, two.begin = nil, time.Now()
				two.mu.Unlock()
				for _, s := range c.steps {
					time.Sleep(time.Until(two.begin.Add(time.Duration(s.ms) * ms)))
					if s.fault != nil {
						net.SetLink(1, 2, *s.fault, nil)
						if got := net.Link(1, 2); got != *s.fault {
							t.Errorf("link is %+v, want %+v", got, *s.fault)
						}
					}
					if s.send != nil {
						b := loaded(command, s.send...)
						if err := conn.SendMessageBatch(b); err != nil {
							t.Fatal(err)
						}
						clear(b.Requests) // as dragonboat does
					}
				}
				if got := net.Link(2, 1); got != (fault.Net{}) {
					t.Errorf("the other direction is %+v, want a good link", got)
				}
				time.Sleep(10 * time.Second)
				two.mu.Lock()
				defer two.mu.Unlock()
				if got := strings.Join(two.got, " "); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			})
		})
	}
}

// arrivals sends messages 1 to n over a faulty link, one per ms, and returns when each copy has arrived, in this order.
func arrivals(t *testing.T, net *transport.Network, f fault.Net, n int) (commits []int, after []int) {
	one, two := newEnd(t, net, 1), newEnd(t, net, 2)
	conn := one.connect(t, 2)
	net.SetLink(1, 2, f, seeded())
	two.begin = time.Now()
	for i := range n {
		if err := conn.SendMessageBatch(batch(uint64(i + 1))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ms)
	}
	time.Sleep(10 * time.Second)
	two.mu.Lock()
	defer two.mu.Unlock()
	for _, g := range two.got {
		var commit, at int
		fmt.Sscanf(g, "%d@%d", &commit, &at)
		commits, after = append(commits, commit), append(after, at-(commit-1))
	}
	return commits, after
}

func TestJitterKeepsOrder(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		net.SetDistance(1, 2, 10*ms)
		commits, after := arrivals(t, net, fault.Net{Delay: 20 * ms, Jitter: 20 * ms}, 1000)
		if len(commits) != 1000 || !slices.IsSorted(commits) {
			t.Errorf("%d messages arrived, in order %v; want 1000, in order", len(commits), slices.IsSorted(commits))
		}
		least, most := slices.Min(after), slices.Max(after)
		if least < 30 || least > 40 || most > 50 || most < 49 {
			t.Errorf("messages took %d to %d ms, want 30 to 50, of which the distance is 10", least, most)
		}
	})
}

// TestShares counts what becomes of many messages.
func TestShares(t *testing.T) {
	for _, f := range []fault.Net{
		{Loss: 0.1}, {Duplicate: 0.1}, {Reorder: 0.1}, {Loss: 0.05, Duplicate: 0.2, Reorder: 0.1}, {Loss: 1},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			onEach(t, func(t *testing.T, newNet func() *transport.Network) {
				const n = 10000
				net := newNet()
				defer net.Close()
				commits, after := arrivals(t, net, f, n)
				copies := make([]int, n+1)
				late, overtaken, newest := 0, 0, 0
				for i, commit := range commits {
					copies[commit]++
					if after[i] > 0 && copies[commit] == 1 {
						late++
					}
					if commit < newest && copies[commit] == 1 {
						overtaken++
					}
					newest = max(newest, commit)
					if after[i] > 20 {
						t.Fatalf("message %d arrived after %d ms, want at most 20", commit, after[i])
					}
				}
				lost, twice := 0, 0
				for _, c := range copies[1:] {
					switch c {
					case 0:
						lost++
					case 1:
					case 2:
						twice++
					default:
						t.Fatalf("a message arrived %d times", c)
					}
				}
				about := func(what string, got int, share float64) {
					t.Helper()
					if want := share * n; float64(got) < 0.9*want || float64(got) > 1.1*want {
						t.Errorf("%d of %d messages %s, want about %g", got, n, what, want)
					}
				}
				about("are lost", lost, float64(f.Loss))
				about("arrive twice", twice, float64(f.Duplicate))
				about("are late", late, float64(f.Reorder))
				if overtaken < late*8/10 || overtaken > late {
					t.Errorf("%d messages are overtaken, want most of the %d late ones", overtaken, late)
				}
			})
		})
	}
}

// TestBoundedLink: messages that find 32 MiB waiting on a link are lost, the others arrive. Small messages count as
// what they take in memory.
func TestBoundedLink(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		for _, c := range []struct {
			name          string
			command       int
			sent          int
			least, most   int64 // lost
			slow, restore func(*transport.Network)
		}{
			{"large, over a slow link", 1 << 20, 100, 68, 68,
				func(n *transport.Network) { n.SetLink(1, 2, fault.Net{Bandwidth: 1}, nil) },
				func(n *transport.Network) { n.SetLink(1, 2, fault.Net{}, nil) }},
			{"small, over a long link", 0, 200_000, 80_000, 110_000,
				func(n *transport.Network) { n.SetLink(1, 2, fault.Net{Delay: time.Hour}, nil) },
				func(*transport.Network) {}},
			{"large, to a paused store", 1 << 20, 100, 68, 68,
				func(n *transport.Network) { n.Pause(2) }, func(n *transport.Network) { n.Resume(2) }},
			{"large, of a paused store", 1 << 20, 100, 68, 68,
				func(n *transport.Network) { n.Pause(1) }, func(n *transport.Network) { n.Resume(1) }},
		} {
			net := newNet()
			one, two := newEnd(t, net, 1), newEnd(t, net, 2)
			conn := one.connect(t, 2)
			c.slow(net)
			b := loaded(c.command, 1)
			begin := time.Now()
			for range c.sent {
				if err := conn.SendMessageBatch(b); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(begin); took != 0 {
				t.Errorf("%s: the sender waited %s", c.name, took)
			}
			lost := one.Stats().Lost
			if lost < c.least || lost > c.most {
				t.Errorf("%s: %d of %d are lost, want %d to %d", c.name, lost, c.sent, c.least, c.most)
			}
			time.Sleep(time.Second)
			if n := two.received(); n > 0 {
				t.Errorf("%s: %d arrived", c.name, n)
			}
			c.restore(net)
			time.Sleep(2 * time.Hour)
			if got := int64(two.received()) + lost; got != int64(c.sent) {
				t.Errorf("%s: %d arrived or were lost, want %d", c.name, got, c.sent)
			}
			// The room is there again.
			if err := conn.SendMessageBatch(b); err != nil {
				t.Fatal(err)
			}
			if got := one.Stats().Lost; got != lost {
				t.Errorf("%s: %d lost after all have arrived, want still %d", c.name, got, lost)
			}
			net.Close()
		}
	})
}

// TestCallsOverFaultyLinks: how long calls and chunks of snapshots take.
func TestCallsOverFaultyLinks(t *testing.T) {
	for _, c := range []struct {
		name        string
		there, back fault.Net
		call, chunk time.Duration // of 100 kB each, the answer of 100 kB, too
		failure     string        // of the call, within an hour; the chunk then waits for ever
	}{
		{name: "good"},
		{name: "delays", there: fault.Net{Delay: 30 * ms}, back: fault.Net{Delay: 20 * ms},
			call: 50 * ms, chunk: 30 * ms},
		{name: "limits", there: fault.Net{Bandwidth: 100_000}, back: fault.Net{Bandwidth: 200_000},
			call: 1500 * ms, chunk: time.Second},
		{name: "all", there: fault.Net{Delay: 30 * ms, Bandwidth: 1_000_000},
			call: 130 * ms, chunk: 130 * ms},
		{name: "most is lost", there: fault.Net{Loss: 0.95}, call: 600 * ms, chunk: 163 * time.Second},
		{name: "all is repeated or overtaken", there: fault.Net{Duplicate: 0.5, Reorder: 0.5}},
		{name: "all is lost", there: fault.Net{Loss: 1}, call: time.Hour,
			failure: "store-2: no answer: context deadline exceeded"},
		{name: "all answers are lost", back: fault.Net{Loss: 1}, call: time.Hour,
			failure: "store-2: no answer: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, newNet func() *transport.Network) {
				net := newNet()
				defer net.Close()
				calls := 0
				one := newEnd(t, net, 1)
				two := newEnd(t, net, 2)
				two.handle = func(_ context.Context, _ topology.StoreID, request []byte) ([]byte, error) {
					calls++
					return request, nil
				}
				net.SetLink(1, 2, c.there, seeded())
				net.SetLink(2, 1, c.back, seeded())
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begin := time.Now()
				_, err := one.Call(ctx, 2, make([]byte, 100_000))
				if took := time.Since(begin); took != c.call || err != nil && err.Error() != c.failure ||
					err == nil && (c.failure != "" || calls != 1) {
					t.Errorf("call: %v after %s, handled %d times; want %q after %s", err, took, calls, c.failure, c.call)
				}
				if c.there.Loss == 1 {
					return
				}
				conn, err := one.raft.GetSnapshotConnection(context.Background(), "store-2")
				if err != nil {
					t.Fatal(err)
				}
				begin = time.Now()
				err = conn.SendChunk(pb.Chunk{Data: make([]byte, 100_000)})
				if took := time.Since(begin); err != nil || took != c.chunk || two.chunks != 1 {
					t.Errorf("chunk: %v after %s, taken %d times; want it taken after %s", err, took, two.chunks, c.chunk)
				}
			})
		})
	}
}

// TestCommitIsSaved: no message says that an entry is committed which the sender has not saved.
func TestCommitIsSaved(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one := newEndOf(t, net, transport.Options{Store: 1, Saved: func(topology.RegionID) uint64 { return 7 }})
		two := newEnd(t, net, 2)
		if err := one.connect(t, 2).SendMessageBatch(loaded(10, 5, 7, 9)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * ms)
		two.mu.Lock()
		defer two.mu.Unlock()
		if want := []string{"5@0", "7@0", "7@0"}; !slices.Equal(two.got, want) {
			t.Errorf("commit indexes %v; want %v", two.got, want)
		}
	})
}

// TestSnapshotRate: a store holds back snapshots to two stores to its rate, and nothing else.
func TestSnapshotRate(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one := newEndOf(t, net, transport.Options{Store: 1, SnapshotRate: 2 << 20})
		begin := time.Now()
		var sent sync.WaitGroup
		for to := range topology.StoreID(2) {
			two := newEnd(t, net, 2+to)
			two.handle = func(context.Context, topology.StoreID, []byte) ([]byte, error) { return nil, nil }
			conn, err := one.raft.GetSnapshotConnection(context.Background(), (2 + to).RaftAddress())
			if err != nil {
				t.Fatal(err)
			}
			sent.Go(func() {
				for range 3 {
					if err := conn.SendChunk(pb.Chunk{Data: make([]byte, 2<<20)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(100 * ms)
		if _, err := one.Call(t.Context(), 2, make([]byte, 8<<20)); err != nil || time.Since(begin) > 150*ms {
			t.Errorf("a call beside snapshots: %v after %s; want it answered at once", err, time.Since(begin))
		}
		sent.Wait()
		if took := time.Since(begin).Round(ms); took != 4*time.Second {
			t.Errorf("12 MiB took %s; want 4s, as 4 MiB go at once", took)
		}
	})
}

// TestSharedBandwidth: a snapshot, a stream of messages and a call share a link evenly, and a heartbeat does not wait
// for the whole of a chunk.
func TestSharedBandwidth(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one, two := newEnd(t, net, 1), newEnd(t, net, 2)
		two.handle = func(context.Context, topology.StoreID, []byte) ([]byte, error) { return nil, nil }
		net.SetLink(1, 2, fault.Net{Bandwidth: 1_000_000}, nil)
		chunked := make(chan time.Duration, 1)
		conn, err := one.raft.GetSnapshotConnection(context.Background(), "store-2")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		go func() {
			if err := conn.SendChunk(pb.Chunk{Data: make([]byte, 2_000_000)}); err != nil {
				t.Error(err)
			}
			chunked <- time.Since(begin)
		}()
		time.Sleep(515 * ms)
		two.begin = time.Now()
		if err := one.connect(t, 2).SendMessageBatch(batch(100)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * ms)
		two.mu.Lock()
		if want := []string{"100@5"}; !slices.Equal(two.got, want) { // the piece under way takes 5 ms more
			t.Errorf("heartbeat beside a chunk: got %v, want %v", two.got, want)
		}
		two.mu.Unlock()
		asked := time.Now()
		if _, err := one.Call(t.Context(), 2, make([]byte, 500_000)); err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took < 990*ms || took > 1020*ms {
			t.Errorf("500 kB beside a chunk took %s, want a second", took)
		}
		if took := <-chunked; took < 2500*ms || took > 2510*ms {
			t.Errorf("2 MB beside a call of 500 kB took %s, want 2.5 s", took)
		}
	})
}

func TestPause(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		ends := map[topology.StoreID]*end{}
		for id := topology.StoreID(1); id <= 3; id++ {
			ends[id] = newEnd(t, net, id)
			ends[id].handle = func(_ context.Context, _ topology.StoreID, request []byte) ([]byte, error) {
				return request, nil
			}
		}
		send := func(from, to topology.StoreID, commits ...uint64) {
			t.Helper()
			b := batch(commits...)
			if err := ends[from].connect(t, to).SendMessageBatch(b); err != nil {
				t.Fatal(err)
			}
			clear(b.Requests)
		}
		want := func(what string, at topology.StoreID, got ...string) {
			t.Helper()
			synctest.Wait()
			e := ends[at]
			e.mu.Lock()
			defer e.mu.Unlock()
			if !slices.Equal(e.got, got) {
				t.Errorf("%s, store %d: got %v, want %v", what, at, e.got, got)
			}
			e.got, e.begin = nil, time.Now()
		}
		call := func(from, to topology.StoreID, limit time.Duration) chan string {
			done := make(chan string, 1)
			begin := time.Now()
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				answer, err := ends[from].Call(ctx, to, []byte("hello"))
				done <- fmt.Sprint(string(answer), " ", err, " ", time.Since(begin))
			}()
			return done
		}
		outcome := func(what string, done chan string, want string) {
			t.Helper()
			if got := <-done; got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}

		// All that the paused store and the others send waits, and arrives in order. What has left goes on. The link between
		// the others works.
		net.SetLink(2, 1, fault.Net{Delay: 20 * ms}, nil)
		send(2, 1, 1)
		net.Pause(2)
		send(1, 2, 2)
		send(2, 1, 3)
		send(1, 3, 4)
		there, back := call(1, 2, time.Minute), call(2, 1, time.Minute)
		early := call(1, 2, 50*ms)
		chunk := make(chan error, 1)
		go func() {
			conn, err := ends[3].raft.GetSnapshotConnection(context.Background(), "store-2")
			if err == nil {
				err = conn.SendChunk(pb.Chunk{})
			}
			chunk <- err
		}()
		time.Sleep(60 * ms)
		net.Pause(2) // once more changes nothing
		send(1, 2, 5, 6)
		send(2, 1, 7)
		outcome("a call that ends", early, " store-2: no answer: context deadline exceeded 50ms")
		time.Sleep(40 * ms)
		want("paused", 2)
		want("paused", 1, "1@20")
		want("paused", 3, "4@0")
		if len(chunk) > 0 {
			t.Errorf("a chunk was taken by a paused store: %v", <-chunk)
		}
		net.Resume(2)
		net.Resume(2)
		want("resumed", 2, "2@0", "5@0", "6@0")
		send(2, 1, 8)
		send(1, 2, 9)
		time.Sleep(20 * ms)
		want("resumed", 1, "3@20", "7@20", "8@20")
		want("resumed", 2, "9@0")
		outcome("a call to the paused store", there, "hello <nil> 120ms")
		outcome("a call of the paused store", back, "hello <nil> 120ms")
		if err := <-chunk; err != nil {
			t.Errorf("chunk after the pause: %v", err)
		}

		// An answer waits, too, be it the answer of a paused store or to one.
		for _, paused := range []topology.StoreID{1, 2} {
			net.SetLink(2, 1, fault.Net{}, nil)
			net.SetLink(1, 2, fault.Net{Delay: 20 * ms}, nil)
			ends[2].handle = func(context.Context, topology.StoreID, []byte) ([]byte, error) {
				net.Pause(paused)
				return nil, nil
			}
			answer := call(1, 2, time.Minute)
			time.Sleep(time.Second)
			net.Resume(paused)
			outcome("an answer", answer, " <nil> 1s")
		}

		// A store that is killed while it is paused has not sent what it has not sent. Its next run is not paused.
		net.SetLink(1, 2, fault.Net{}, nil)
		net.Pause(2)
		send(2, 1, 10)
		send(1, 2, 11)
		waits := call(1, 2, time.Minute)
		time.Sleep(100 * ms)
		ends[2].Close()
		synctest.Wait()
		outcome("a call to a store that is killed", waits, " store-2: not running 100ms")
		net.Resume(2)
		net.Pause(2) // it does not run
		time.Sleep(time.Second)
		ends[2] = newEnd(t, net, 2)
		send(2, 1, 12)
		send(1, 2, 13)
		time.Sleep(time.Second)
		synctest.Wait()
		for at, commit := range map[topology.StoreID]string{1: "12@", 2: "13@"} {
			e := ends[at]
			e.mu.Lock()
			if len(e.got) != 1 || !strings.HasPrefix(e.got[0], commit) {
				t.Errorf("after a restart, store %d: got %v, want %s alone", at, e.got, commit)
			}
			e.mu.Unlock()
		}
	})
}

// TestResumeKeepsOrder sends on while what has waited for a paused store arrives.
func TestResumeKeepsOrder(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		for _, paused := range []topology.StoreID{1, 2} {
			net := newNet()
			one, two := newEnd(t, net, 1), newEnd(t, net, 2)
			conn := one.connect(t, 2)
			net.Pause(paused)
			var want []string
			for i := range uint64(10_000) {
				if i == 9_000 {
					net.Resume(paused)
				}
				if err := conn.SendMessageBatch(batch(i)); err != nil {
					t.Fatal(err)
				}
				want = append(want, fmt.Sprint(i, "@0"))
			}
			synctest.Wait()
			two.mu.Lock()
			if !slices.Equal(two.got, want) {
				t.Errorf("store %d paused: %d messages arrived, in order %v; want %d in order", paused, len(two.got),
					slices.Equal(two.got, want[:min(len(want), len(two.got))]), len(want))
			}
			two.mu.Unlock()
			net.Close()
		}
	})
}

// TestPausedMessagesAreJudgedLate: the filter judges what a paused store sends when it leaves, after the pause. So the
// promise of a confirmation counts from then, and binds the store though the vote was sent a whole lease later.
func TestPausedMessagesAreJudgedLate(t *testing.T) {
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one := newEnd(t, net, 1)
		two := net.NewEndpoint(transport.Options{Store: 2, Lease: lease})
		two.Fresh(1)
		raft := two.Factory().Create(config.NodeHostConfig{RaftAddress: "store-2"}, func(pb.MessageBatch) {}, nil)
		if err := raft.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := raft.GetConnection(t.Context(), "store-1")
		if err != nil {
			t.Fatal(err)
		}
		send := func(kind pb.MessageType, term uint64) {
			t.Helper()
			if err := conn.SendMessageBatch(pb.MessageBatch{Requests: []pb.Message{
				{Type: kind, ShardID: 1, From: 2, To: 1, Term: term, Hint: 7, Commit: term}}}); err != nil {
				t.Fatal(err)
			}
		}
		net.Pause(2)
		send(pb.HeartbeatResp, 3)
		time.Sleep(lease)
		send(pb.RequestVoteResp, 4) // withheld
		net.Resume(2)
		time.Sleep(lease - 1)
		send(pb.RequestVoteResp, 5) // withheld
		time.Sleep(time.Nanosecond)
		send(pb.RequestVoteResp, 6)
		synctest.Wait()
		one.mu.Lock()
		defer one.mu.Unlock()
		want := []string{fmt.Sprint("3@", lease.Milliseconds()), fmt.Sprint("6@", 2*lease.Milliseconds())}
		if !slices.Equal(one.got, want) || two.Stats().Withheld != 2 {
			t.Errorf("got %v, %d withheld; want %v and two withheld", one.got, two.Stats().Withheld, want)
		}
	})
}

// TestCloseEndsWaiting: an endpoint closes at once though messages, a call and a chunk wait. When it is isolated, the
// chunk ends and the call still has no answer.
func TestCloseEndsWaiting(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*transport.Network)
	}{
		{"long delay", func(n *transport.Network) { n.SetLink(1, 2, fault.Net{Delay: time.Hour}, nil) }},
		{"slow link", func(n *transport.Network) { n.SetLink(1, 2, fault.Net{Bandwidth: 1}, nil) }},
		{"lossy link", func(n *transport.Network) { n.SetLink(1, 2, fault.Net{Loss: 1}, seeded()) }},
		{"paused", func(n *transport.Network) { n.Pause(1) }},
		{"the other paused", func(n *transport.Network) { n.Pause(2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, newNet func() *transport.Network) {
				for _, isolate := range []bool{false, true} {
					net := newNet()
					one, two := newEnd(t, net, 1), newEnd(t, net, 2)
					c.set(net)
					called, chunked := make(chan error, 1), make(chan error, 1)
					go func() {
						_, err := one.Call(context.Background(), 2, make([]byte, 1000))
						called <- err
					}()
					go func() {
						conn, err := one.raft.GetSnapshotConnection(context.Background(), "store-2")
						if err == nil {
							err = conn.SendChunk(pb.Chunk{Data: make([]byte, 1000)})
						}
						chunked <- err
					}()
					b := loaded(1000, 1)
					if err := one.connect(t, 2).SendMessageBatch(b); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
					begin := time.Now()
					wantChunk := "store-1: endpoint closed"
					if isolate {
						one.Isolate()
						wantChunk = "store-1 to store-2: link is cut"
					} else {
						one.Close()
					}
					if err := <-chunked; fmt.Sprint(err) != wantChunk {
						t.Errorf("chunk: %v, want %s", err, wantChunk)
					}
					one.Close()
					if err := <-called; fmt.Sprint(err) != "store-1: endpoint closed" {
						t.Errorf("call: %v, want that the endpoint is closed", err)
					}
					if took := time.Since(begin); took != 0 {
						t.Errorf("isolate %v: closing took %s", isolate, took)
					}
					net.Close()
					if len(two.got) > 0 || two.chunks > 0 {
						t.Errorf("isolate %v: %v and %d chunks arrived", isolate, two.got, two.chunks)
					}
				}
			})
		})
	}
	// A NodeHost that closes ends the chunk that it is sending.
	onEach(t, func(t *testing.T, newNet func() *transport.Network) {
		net := newNet()
		defer net.Close()
		one := newEnd(t, net, 1)
		newEnd(t, net, 2)
		net.Pause(2)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn, err := one.raft.GetSnapshotConnection(ctx, "store-2")
		if err == nil {
			err = conn.SendChunk(pb.Chunk{})
		}
		if want := "store-1 to store-2: context deadline exceeded"; fmt.Sprint(err) != want {
			t.Errorf("chunk: %v, want %s", err, want)
		}
	})
}
