package sim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// hang makes goroutines that pass it wait while it is shut.
type hang struct {
	open atomic.Pointer[chan struct{}]
	held atomic.Int64 // goroutines that have waited
}

func (h *hang) pass(int64) {
	if gate := h.open.Load(); gate != nil {
		h.held.Add(1)
		<-*gate
	}
}

func (h *hang) shut() {
	gate := make(chan struct{})
	h.open.Store(&gate)
}

func (h *hang) release() {
	if gate := h.open.Swap(nil); gate != nil {
		close(*gate)
	}
}

// hungLater is how long after redis.leaderless_wait a pipeline may be answered.
const hungLater = 500 * time.Millisecond

// TestHung makes something hang below the commands of one store: the syncs of the disk, the calls that propose to
// Raft, or apply. Each command is answered within one deadline even so, alone or in a pipeline. A write whose entry
// may be in the log has an unknown outcome. When nothing hangs any more, the connections read and write as before,
// and the server holds nothing for clients.
func TestHung(t *testing.T) {
	for _, x := range []struct {
		name string
		set  string // the reply to a SET
		hold func(hooks *seam.Hooks, stuck *atomic.Uint32, h *hang)
	}{
		{"sync", "write outcome unknown: ...", nil},
		{"propose", "write outcome unknown: ...", func(hooks *seam.Hooks, _ *atomic.Uint32, h *hang) {
			hooks.Region.BeforePropose = func(topology.RegionID, uint64) { h.pass(0) }
		}},
		{"apply", "write outcome unknown: ...", func(hooks *seam.Hooks, stuck *atomic.Uint32, h *hang) {
			hooks.Region.BeforeApply = func(at topology.StoreID, _ topology.RegionID, _, _ uint64, _ []byte, _ error) {
				if uint32(at) == stuck.Load() {
					h.pass(0)
				}
			}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			var h hang
			var stuck atomic.Uint32
			var hooks seam.Hooks
			if x.hold != nil {
				x.hold(&hooks, &stuck, &h)
			}
			// A snapshot would wait for apply in a mutex of the Raft library, and with it the time of the bubble.
			k := simSettings()
			k.Raft.SnapshotEntries = 1_000_000
			inBubbleWith(t, k, hooks, func(t *testing.T, s *sim, c *caller) {
				defer h.release()
				home := s.nodes[0]
				for r := range simRegions {
					s.move(topology.RegionID(r+1), home)
				}
				stuck.Store(uint32(home.ID()))
				time.Sleep(time.Second)
				if x.hold == nil {
					home.FS().Hook(disk.BeforeSync, h.pass)
				}
				testHung(t, s, &h, home, x.set)
			})
		})
	}
}

// testHung tests one place that hangs.
func testHung(t *testing.T, s *sim, h *hang, home seam.StorePlace, unknown string) {
	key := func(i int) string { return fmt.Sprintf("k%d{%s}", i, regionTags[i%simRegions]) }
	var many, large [][]string
	for i := range 512 {
		many = append(many, []string{"SET", key(i), "v"}, []string{"GET", key(i)})
		large = append(large, []string{"SET", key(i), strings.Repeat("v", 400)})
	}
	var pairs []string
	for i := range 3 * simRegions {
		pairs = append(pairs, key(i), "v")
	}
	if got := s.ask(t, home, "SET", key(0), "v"); got != "OK" {
		t.Fatalf("before: %s", got)
	}
	most := s.c.Settings().Redis.LeaderlessWait + hungLater
	var wg sync.WaitGroup
	var conns []net.Conn
	users := []struct {
		addr     string
		commands [][]string
	}{
		{home.Addr(), [][]string{{"SET", key(0), "v"}}},
		{home.Addr(), [][]string{{"SET", key(0), "v"}, {"GET", key(0)}, {"INCR", key(1)}, {"GET", key(1)}, {"PING"}}},
		{home.Addr(), many},
		{home.Addr(), large},
		{home.Addr(), [][]string{{"GET", key(0)}, {"GET", key(1)}}},
		{home.Addr(), [][]string{{"FLUSHALL"}, {"DBSIZE"}, {"SCAN", "0"}, {"RANDOMKEY"}, {"KEYS", "*"}, {"INFO"}}},
		{s.c.ProxyAddr(), [][]string{
			append([]string{"MSET"}, pairs...), {"MGET", key(0), key(1), key(2)}, {"DEL", key(0), key(1), key(2)},
		}},
		{s.c.ProxyAddr(), [][]string{{"FLUSHALL"}, {"DBSIZE"}, {"SCAN", "0"}}},
	}
	for _, x := range users {
		nc, err := s.c.Dial(t.Context(), x.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		conns = append(conns, nc)
		for n := 0; n < 3 && len(x.commands) > 100; n++ { // so that the server reads it all at once later
			pipeline(t, nc, x.commands...)
		}
	}
	h.shut()
	for i, x := range users {
		wg.Go(func() {
			begin := time.Now()
			conns[i].SetDeadline(begin.Add(time.Minute))
			replies := pipeline(t, conns[i], x.commands...)
			if took := time.Since(begin); took > most {
				t.Errorf("%.60q...: %d replies after %v, want within %v: %.200q",
					fmt.Sprint(x.commands), len(replies), took, most, replies)
			}
			if i == 0 && !like(replies[0], unknown) {
				t.Errorf("SET: %q, want %q", replies[0], unknown)
			}
		})
		time.Sleep(10 * time.Millisecond) // so that the first SET has an entry of its own
	}
	wg.Wait()
	if h.held.Load() == 0 {
		t.Error("nothing has hung")
	}
	h.release()
	time.Sleep(10 * time.Second)
	for i, nc := range conns {
		nc.SetDeadline(time.Now().Add(time.Minute))
		value := fmt.Sprint("after-", i)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got := pipeline(t, nc, []string{"SET", key(i), value}, []string{"GET", key(i)})
			if got[0] == "OK" && got[1] == value || strings.HasPrefix(got[0], "MOVED") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("connection %d, after: %q", i, got)
			}
		}
		nc.Close()
	}
	for end := time.Now().Add(10 * time.Second); s.inside.HeldForClients() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held for clients that have gone", s.inside.HeldForClients())
		}
	}
	if err := s.checksumsDiffer(); err != nil {
		t.Error(err)
	}
}

// TestHungLeaderOfMeta hangs the disk of the store that leads meta, and all regions that have their home there. It does
// not come to know that it is deposed. The others elect leaders. Then each store, also that one, sends clients to them
// at once.
func TestHungLeaderOfMeta(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		s.do("disk 1 hang") // it leads meta at the boot
		s.untilElected(t, s.nodes[0])
		time.Sleep(5 * time.Second) // after three without heartbeats a store counts as dead
		until(t, "the hung store to know the leaders", func() bool {
			regions := s.nodes[0].Store().Table().Regions
			return !slices.ContainsFunc(regions, func(r route.LedRegion) bool { return r.Leader <= 1 })
		})
		stop := s.steadyWriters(t, 25*time.Millisecond)
		time.Sleep(20 * time.Second)
		if longest := stop(); longest >= s.electionTime() {
			t.Errorf("a write took %s; want less than an election, %s", longest, s.electionTime())
		}
	})
}

// TestSlowPipeline makes apply slow, so that a pipeline takes several times redis.leaderless_wait. It makes progress
// all the time, so every command is served.
func TestSlowPipeline(t *testing.T) {
	var slow atomic.Bool
	var hooks seam.Hooks
	hooks.Region.BeforeApply = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
		if slow.Load() {
			time.Sleep(700 * time.Millisecond)
		}
	}
	inBubble(t, hooks, func(t *testing.T, s *sim, c *caller) {
		key := "k{" + regionTags[0] + "}"
		if _, err := c.do(set, key, "v"); err != nil { // the region has a leader now
			t.Fatal(err)
		}
		nc, err := s.c.Dial(t.Context(), s.c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		var commands [][]string
		for i := range 12 {
			commands = append(commands, []string{"SET", key, fmt.Sprint(i)}, []string{"GET", key})
		}
		begin := time.Now()
		slow.Store(true)
		nc.SetDeadline(begin.Add(time.Minute))
		replies := pipeline(t, nc, commands...)
		slow.Store(false)
		for i := range 12 {
			if replies[2*i] != "OK" || replies[2*i+1] != fmt.Sprint(i) {
				t.Errorf("pair %d: %q; want OK and %d", i, replies[2*i:2*i+2], i)
			}
		}
		if took, wait := time.Since(begin), s.c.Settings().Redis.LeaderlessWait; took < 2*wait {
			t.Errorf("the pipeline took %v, want more than twice %v", took, wait)
		}
	})
}

// TestHungRead makes the reads of one store's disk hang. A connection that waits for one is closed after five seconds,
// others work. When nothing hangs any more, clients that connect again read what they wrote.
func TestHungRead(t *testing.T) {
	const patience, values = 5 * time.Second, 300
	k := simSettings()
	k.Engine.RowCache = 0
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		var h hang
		defer h.release()
		home := s.nodes[0]
		for r := range simRegions {
			s.move(topology.RegionID(r+1), home)
		}
		key := func(i int) string { return fmt.Sprintf("k%d{%s}", i, regionTags[i%simRegions]) }
		value := func(i int) string { return strings.Repeat(fmt.Sprintf("%08d", i), 1<<10) }
		for i := range values {
			s.session(t, home).want("OK", "SET", key(i), value(i))
		}
		if err := home.Store().Engine().Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		home.FS().Hook(disk.BeforeRead, h.pass)
		h.shut()
		var gets [][]string
		for i := range values {
			gets = append(gets, []string{"GET", key(i)})
		}
		all := []string{"MGET"}
		for i := range values {
			all = append(all, key(i))
		}
		var wg sync.WaitGroup
		for _, x := range []struct {
			addr     string
			commands [][]string
			ends     bool
		}{
			{home.Addr(), [][]string{{"GET", key(0)}}, true},
			{home.Addr(), gets, true},
			{s.c.ProxyAddr(), [][]string{all}, true},
			{s.c.ProxyAddr(), [][]string{{"PING"}, {"KEYS", "*"}}, true},
			{home.Addr(), [][]string{{"PING"}, {"CLUSTER", "SLOTS"}, {"INFO", "neokv"}, {"CLIENT", "LIST"}}, false},
			{home.Addr(), [][]string{{"SET", "new{" + regionTags[0] + "}", "v"}}, false},
		} {
			wg.Go(func() {
				begin, w := time.Now(), s.session(t, s.nodes[0]).w
				if x.addr != home.Addr() {
					nc, err := s.c.Dial(t.Context(), x.addr)
					if err != nil {
						t.Error(err)
						return
					}
					defer nc.Close()
					w = newWire(nc)
				}
				var ended error
				for _, command := range x.commands {
					if _, err := w.call(command...); errors.Is(err, io.EOF) {
						ended = err
						break
					}
				}
				if took := time.Since(begin); (ended != nil) != x.ends || took > patience+2*time.Second {
					t.Errorf("%.60q...: ended with %v after %v, want an end: %v, and within %v", fmt.Sprint(x.commands),
						ended, took, x.ends, patience+2*time.Second)
				}
			})
		}
		wg.Wait()
		if h.held.Load() == 0 {
			t.Error("nothing has hung")
		}
		h.release()
		time.Sleep(10 * time.Second)
		for i := range values {
			s.session(t, home).want(value(i), "GET", key(i))
		}
		if err := s.checksumsDiffer(); err != nil {
			t.Error(err)
		}

		// Each read of the disk is slow now, but returns.
		home.FS().Hook(disk.BeforeRead, func(int64) { time.Sleep(250 * time.Millisecond) })
		begin, w := time.Now(), s.session(t, home)
		for i := range values {
			w.want(value(i), "GET", key(i))
		}
		var of0 []string
		for i := 0; i < values; i += simRegions {
			of0 = append(of0, key(i))
		}
		one := time.Now()
		if got := w.ask(append([]string{"MGET"}, of0...)...); len(got) < 8<<10*len(of0) {
			t.Errorf("MGET of %d values: %.100q", len(of0), got)
		}
		if took := time.Since(one); took < patience {
			t.Errorf("a read on the slow disk took %v, want more than %v; all of them took %v", took, patience,
				time.Since(begin))
		}
		home.FS().Hook(disk.BeforeRead, nil)
	})
}
