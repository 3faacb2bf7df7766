package sim

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/topology"
)

// scanner is a client that sees replies of any kind. It makes a new connection for each call.
type scanner struct {
	t    *testing.T
	dial func() (net.Conn, error)
}

// call runs a command and returns its reply. ok is false if there was none, or if the command has to be sent again.
func (x *scanner) call(args ...string) (v redistest.ReplyValue, ok bool) {
	x.t.Helper()
	nc, err := x.dial()
	if err != nil {
		return v, false
	}
	defer nc.Close()
	raw := make([][]byte, len(args))
	for i, a := range args {
		raw[i] = []byte(a)
	}
	if _, err := nc.Write(redistest.AppendCall(nil, raw...)); err != nil {
		return v, false
	}
	if v, err = redistest.Read(bufio.NewReader(nc)); err != nil {
		return v, false
	}
	if v.Kind != '-' {
		return v, true
	}
	again := []string{"CLUSTERDOWN ", "ERR write outcome unknown", "ERR partly applied"}
	if e := string(v.Text); !slices.ContainsFunc(again, func(p string) bool { return strings.HasPrefix(e, p) }) {
		x.t.Errorf("%.40q: %s", args, e)
	}
	return v, false
}

// must sends a command again until there is a reply.
func (x *scanner) must(args ...string) redistest.ReplyValue {
	x.t.Helper()
	for range 100 {
		if v, ok := x.call(args...); ok {
			return v
		}
		time.Sleep(20 * time.Millisecond)
	}
	x.t.Fatalf("%.40q: no answer", args)
	return redistest.ReplyValue{}
}

// store writes keys.
func (x *scanner) store(keys []string) {
	x.t.Helper()
	for part := range slices.Chunk(keys, 200) {
		args := []string{"MSET"}
		for _, k := range part {
			args = append(args, k, "v")
		}
		x.must(args...)
	}
}

// scan is one call of SCAN.
func (x *scanner) scan(cursor string, options ...string) (next string, keys []string) {
	x.t.Helper()
	v := x.must(append([]string{"SCAN", cursor}, options...)...)
	for _, k := range v.Items[1].Items {
		keys = append(keys, string(k.Text))
	}
	return string(v.Items[0].Text), keys
}

// all scans from a cursor to the end, with a pause between two calls, and adds the keys to found.
func (x *scanner) all(cursor string, random *rand.Rand, pause func(), found map[string]bool) (calls int) {
	x.t.Helper()
	for calls = 1; calls < 20_000; calls++ {
		var keys []string
		cursor, keys = x.scan(cursor, "COUNT", strconv.Itoa(1+random.IntN(60)))
		for _, k := range keys {
			found[k] = true
		}
		if cursor == "0" {
			return calls
		}
		pause()
	}
	x.t.Fatalf("SCAN does not end: cursor %s", cursor)
	return 0
}

// expect reports wanted keys that were not found.
func (x *scanner) expect(found map[string]bool, want []string) {
	x.t.Helper()
	var missing []string
	for _, k := range want {
		if !found[k] {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		x.t.Errorf("SCAN left out %d of %d keys that were there all the time, among them %.200q",
			len(missing), len(want), missing[:min(5, len(missing))])
	}
}

// scanKeys names keys in all slots, and many in three slots: one call of SCAN returns the smallest of these whole,
// but not the other two.
func scanKeys() (stable []string) {
	for i := range 600 {
		stable = append(stable, fmt.Sprintf("stable:%d", i))
	}
	for tag, n := range map[string]int{regionTags[0]: 1000, regionTags[1]: 2600, regionTags[3]: 1300} {
		for i := range n {
			stable = append(stable, fmt.Sprintf("stable{%s}%d", tag, i))
		}
	}
	return stable
}

// churn writes and deletes other keys in the three large slots until stop is closed.
func (x *scanner) churn(random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(4 * time.Millisecond):
		}
		key := fmt.Sprintf("churn{%s}%d", regionTags[random.IntN(simRegions)], random.IntN(300))
		if random.IntN(3) == 0 {
			x.call("DEL", key)
		} else {
			x.call("SET", key, "v")
		}
	}
}

// TestScanWhileLeadersMove: SCAN on the proxy port returns every key that is there all the time, and SCAN on a
// store's port every such key of a region that the store leads all the time. Meanwhile leaders move, a store dies,
// and other keys of the same slots come and go.
func TestScanWhileLeadersMove(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
				const pinned = topology.RegionID(2) // its leader does not move; it has one of the large slots
				home, _ := s.leader(pinned)
				proxy := &scanner{t, func() (net.Conn, error) { return s.c.Dial(t.Context(), s.c.ProxyAddr()) }}
				own := &scanner{t, func() (net.Conn, error) { return s.c.Dial(t.Context(), home.Addr()) }}
				stable := scanKeys()
				proxy.store(stable)
				var led []string
				for _, k := range stable {
					if topology.SplitEvenly(simRegions)[pinned-1].Contains(topology.SlotOf([]byte(k))) {
						led = append(led, k)
					}
				}

				stop, lanes := make(chan struct{}), new(sync.WaitGroup)
				random, movers := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 3))
				lanes.Go(func() { proxy.churn(rand.New(rand.NewPCG(seed, 2)), stop) })
				lanes.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(time.Duration(20+movers.IntN(150)) * time.Millisecond):
						}
						if r := topology.RegionID(1 + movers.IntN(simRegions)); r != pinned {
							s.transfer(r, s.nodes[movers.IntN(len(s.nodes))])
						}
					}
				})
				pause := func() { time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond) }
				found, calls := make(map[string]bool), 0
				for calls < 300 { // several rounds, each with other leaders
					clear(found)
					calls += proxy.all("0", random, pause, found)
					proxy.expect(found, stable)
				}
				clear(found)
				own.all("0", random, pause, found)
				own.expect(found, led)
				if leader, _ := s.leader(pinned); leader != home {
					t.Fatalf("region %d has moved", pinned)
				}

				// A store dies in the middle of a scan.
				victim := s.others(home)[0]
				clear(found)
				cursor, keys := proxy.scan("0", "COUNT", "10")
				for _, k := range keys {
					found[k] = true
				}
				synctest.Wait()
				s.do("kill %d", victim.ID())
				proxy.all(cursor, random, pause, found)
				proxy.expect(found, stable)
				close(stop)
				lanes.Wait()
				s.do("restart %d", victim.ID())
				if s.stats.Transfers == 0 {
					t.Error("no leader moved")
				}
				t.Logf("seed %d: %d calls of SCAN, %d transfers", seed, calls, s.stats.Transfers)
			})
		})
	}
}

// TestScanGoesOnAfterRestart: a cursor from the middle of a large slot is good after a restart of the cluster. The slot
// begins anew then, in the order of the hash. A cursor of that order goes on after a restart, also if all keys that
// were returned before are gone.
func TestScanGoesOnAfterRestart(t *testing.T) {
	notShort(t)
	dir, random := t.TempDir(), rand.New(rand.NewPCG(1, 1))
	open := func() (*neokv.Cluster, *scanner) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c, err := neokv.Start(ctx, neokv.Config{Dir: dir, NoSockets: true, Settings: simSettings()})
		if err != nil {
			t.Fatal(err)
		}
		return c, &scanner{t, func() (net.Conn, error) { return c.Dial(t.Context(), c.ProxyAddr()) }}
	}
	c, x := open()
	stable := scanKeys()
	x.store(stable)
	tag := "{" + regionTags[1] + "}"
	found, seen, cursor, restarted := make(map[string]bool), 0, "0", false
	for seen < 1000 { // of the 2600 in the slot
		var keys []string
		cursor, keys = x.scan(cursor)
		for _, k := range keys {
			found[k] = true
			if strings.Contains(k, tag) {
				seen++
			}
		}
		if seen > 100 && !restarted {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c, x = open()
			seen, restarted = 0, true
			maps.DeleteFunc(found, func(k string, _ bool) bool { return strings.Contains(k, tag) })
		}
	}
	if n, err := strconv.ParseUint(cursor, 10, 64); err != nil || n < topology.SlotCount {
		t.Fatalf("cursor %s is no place within a slot", cursor)
	}
	middle, before := cursor, found
	for _, gone := range []bool{false, true} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		c, x = open()
		if gone { // all keys of the slot that were seen, and so the key behind which SCAN goes on
			for k := range before {
				if strings.Contains(k, tag) {
					x.must("DEL", k)
				}
			}
			stable = slices.DeleteFunc(stable, func(k string) bool { return before[k] && strings.Contains(k, tag) })
		}
		after := make(map[string]bool)
		x.all(middle, random, func() {}, after)
		for k := range after {
			if before[k] && strings.Contains(k, tag) {
				t.Fatalf("%s came again, gone %v", k, gone)
			}
		}
		for k := range before {
			after[k] = true
		}
		x.expect(after, stable)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestScanPlaces: SCAN goes through a large slot and leaves out no key, with every call to another server, whether the
// client deletes what it is returned or not, and while others write more than it reads. Cursors are below 2^53. All
// keys come once, but for those of the first call if the server forgets its cursor. SCAN also ends if places are so
// short that a 16th of the slot's keys have the same one.
func TestScanPlaces(t *testing.T) {
	for _, planted := range []server.Mistakes{{}, {ForgetScans: true}, {ForgetScans: true, FewPlaces: true}} {
		t.Run(fmt.Sprintf("forgets-%v-few-%v", planted.ForgetScans, planted.FewPlaces), func(t *testing.T) {
			inBubble(t, seam.Hooks{Mistakes: seam.Mistakes{Server: planted}}, func(t *testing.T, s *sim, _ *caller) {
				const r, keys = topology.RegionID(2), 20_000
				count, mostCalls, most := 100, keys/100, 100
				if planted.ForgetScans {
					count, mostCalls, most = 10, 25, keys/6
				}
				leader, _ := s.leader(r)
				var servers []*scanner
				for _, addr := range []string{s.c.ProxyAddr(), leader.Addr()} {
					servers = append(servers, &scanner{t, func() (net.Conn, error) { return s.c.Dial(t.Context(), addr) }})
				}
				tag := "{" + regionTags[r-1] + "}"
				slot := topology.SlotOf([]byte(tag))
				var all []string
				for i := range keys {
					all = append(all, fmt.Sprintf("k%s%d", tag, i))
				}
				for _, c := range []struct {
					match             string
					growing, deleting bool
				}{{match: "k*"}, {match: "k*7"}, {match: "k*", deleting: true}, {match: "k*", growing: true}} {
					servers[0].store(all)
					found, times, calls, largest := make(map[string]bool), 0, 0, 0
					for cursor := strconv.Itoa(int(slot)); ; calls++ {
						next, got := servers[calls%2].scan(cursor, "COUNT", strconv.Itoa(count), "MATCH", c.match)
						n, err := strconv.ParseUint(next, 10, 64)
						if err != nil || n >= 1<<53 {
							t.Fatalf("cursor %s", next)
						}
						for _, k := range got {
							found[k] = true
						}
						times, largest = times+len(got), max(largest, len(got))
						if c.deleting {
							for part := range slices.Chunk(got, 500) {
								servers[0].must(append([]string{"DEL"}, part...)...)
							}
						}
						if c.growing { // behind all keys that there are
							var more []string
							for i := range 2 * count {
								more = append(more, fmt.Sprintf("more%s%09d", tag, calls*2*count+i))
							}
							servers[0].store(more)
						}
						if cursor = next; topology.Slot(n%topology.SlotCount) != slot || calls > 1000 {
							break
						}
					}
					want := slices.DeleteFunc(slices.Clone(all), func(k string) bool {
						return !c.deleting && strings.HasSuffix(c.match, "7") && !strings.HasSuffix(k, "7")
					})
					servers[0].expect(found, want)
					t.Logf("%+v: %d calls, %d keys at most", c, calls+1, largest)
					again := 0
					if planted.ForgetScans && !c.deleting {
						again = count
					}
					if times < len(want) || times > len(want)+again || calls > mostCalls || largest > most {
						t.Errorf("%+v: %d calls returned %d keys, %d at once; want %d, each once", c, calls+1, times, largest,
							len(want))
					}
				}
			})
		})
	}
}

// TestRandomKeysAreFair: RANDOMKEY returns no key more than five times as often as the mean, however the keys are
// spread over slots and regions, after deletions, splits and merges, on the proxy port and on a store's.
func TestRandomKeysAreFair(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		at := func(addr string) *scanner {
			return &scanner{t, func() (net.Conn, error) { return s.c.Dial(t.Context(), addr) }}
		}
		x := at(s.c.ProxyAddr())
		fair := func(what string, x *scanner, want []string) {
			t.Helper()
			const each = 20
			times, draws := make(map[string]int), each*len(want)
			nc, err := x.dial()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			replies := bufio.NewReader(nc)
			for range draws / 10 {
				if _, err := nc.Write([]byte(strings.Repeat("RANDOMKEY\r\n", 10))); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					v, err := redistest.Read(replies)
					if err != nil {
						t.Fatal(err)
					}
					times[string(v.Text)]++
				}
			}
			most, drawn := 0, 0
			for _, k := range want {
				most, drawn = max(most, times[k]), drawn+times[k]
			}
			t.Logf("%s: %d keys, the most frequent one %.2f times the mean, %d not drawn", what, len(want),
				float64(most)/each, len(want)-len(times))
			if most > 5*each || drawn != draws/10*10 {
				t.Errorf("%s: %d keys: one is drawn %d times, the mean is %d; %d draws of other keys", what, len(want), most,
					each, draws/10*10-drawn)
			}
		}
		named := func(n int, format string, of ...any) (keys []string) {
			for i := range n {
				keys = append(keys, fmt.Sprintf(format, append(of, i)...))
			}
			return keys
		}
		drop := func(keys []string) {
			for part := range slices.Chunk(keys, 500) {
				x.must(append([]string{"DEL"}, part...)...)
			}
		}
		if v := x.must("RANDOMKEY"); !v.Null {
			t.Errorf("RANDOMKEY without keys: %s", v)
		}
		heap, others := named(1500, "k{%s}%d", regionTags[1]), named(40, "other:%d")
		x.store(heap)
		x.store(others)
		fair("most in one slot", x, append(slices.Clone(heap), others...))
		drop(heap[50:])
		fair("after deletions", x, append(slices.Clone(heap[:50]), others...))
		more := named(1250, "k{%s}%d", regionTags[2])
		x.store(more)
		fair("many more in another region", x, slices.Concat(heap[:50], others, more))
		drop(more)
		x.store(heap)
		s.do("split 2")
		fair("after a split", x, append(slices.Clone(heap), others...))
		s.do("merge 2")
		fair("after a merge", x, append(slices.Clone(heap), others...))
		leader, _ := s.leader(2)
		var led []string
		table := leader.Store().Table()
		for _, k := range append(slices.Clone(heap), others...) {
			if r, _ := table.Region(topology.SlotOf([]byte(k))); r.Leader == leader.ID() {
				led = append(led, k)
			}
		}
		fair("on a store's port", at(leader.Addr()), led)
		x.must("FLUSHALL")
		few := named(30, "few:%d")
		x.store(few)
		fair("a few after FLUSHALL", x, few)
		x.must("FLUSHALL")
		if v := x.must("RANDOMKEY"); !v.Null {
			t.Errorf("RANDOMKEY after FLUSHALL: %s", v)
		}
	})
}

// TestKeysAreCountedOnce: DBSIZE and INFO are exact, about keys that expire, too, and walk only regions that have
// been written to since the last count.
func TestKeysAreCountedOnce(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		x := &scanner{t, func() (net.Conn, error) { return s.c.Dial(t.Context(), s.c.ProxyAddr()) }}
		reads := func() (n uint64) {
			for _, node := range s.nodes {
				for r := topology.RegionID(1); r <= simRegions; r++ {
					k := node.Store().Replica(r).Counters()
					n += k.LeaseReads.Load() + k.IndexReads.Load()
				}
			}
			return n
		}
		steps := func(want int) (took int) {
			t.Helper()
			before := reads()
			if got, _ := x.must("DBSIZE").Int(); got != int64(want) {
				t.Errorf("DBSIZE = %d; want %d", got, want)
			}
			return int(reads() - before)
		}
		stable := scanKeys()
		x.store(stable)
		n := len(stable)
		if took := steps(n); took < n/1000 {
			t.Errorf("%d reads for %d keys", took, n)
		}
		if took := steps(n); took != simRegions {
			t.Errorf("%d reads when nothing was written, want one per region", took)
		}
		x.must("SET", "{"+regionTags[1]+"}new", "v", "PX", "5000")
		if took := steps(n + 1); took < simRegions+2 || took > simRegions+4 {
			t.Errorf("%d reads when one region of %d keys was written to", took, 2600)
		}
		keyspace := func(want string) {
			t.Helper()
			if info := string(x.must("INFO", "keyspace").Text); !strings.Contains(info, want) {
				t.Errorf("INFO keyspace: %q, want %q in it", info, want)
			}
		}
		keyspace(fmt.Sprintf("db0:keys=%d,expires=1,avg_ttl=", n+1))
		time.Sleep(6 * time.Second) // no client writes: the key expires by itself
		steps(n)
		keyspace(fmt.Sprintf("db0:keys=%d,expires=0,avg_ttl=0\r\n", n))
		x.must("FLUSHALL")
		steps(0)
	})
}

// TestKeysAreEstimated: if there is no time to walk a region, its first slots stand for all of them, and INFO says so.
func TestKeysAreEstimated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hurried := simSettings()
		hurried.Redis.CountTime = 0
		c := start(t, neokv.Config{InMemory: true, NoSockets: true, Seed: 1, Settings: hurried})
		x := &scanner{t, func() (net.Conn, error) { return c.Dial(t.Context(), c.ProxyAddr()) }}
		var all []string
		for i := range 8000 {
			all = append(all, fmt.Sprint("k", i))
		}
		x.store(all)
		if got, _ := x.must("DBSIZE").Int(); got < 7200 || got > 8800 {
			t.Errorf("DBSIZE = %d; want about %d", got, len(all))
		}
		for range 40 { // in the first calls most keys are not counted yet
			if k := string(x.must("RANDOMKEY").Text); !slices.Contains(all, k) {
				t.Errorf("RANDOMKEY: %q", k)
			}
		}
		if info := string(x.must("INFO", "keyspace").Text); !strings.Contains(info,
			",expires=0,avg_ttl=0,estimated=1\r\n") {
			t.Errorf("INFO keyspace: %q, want estimated=1 in it", info)
		}
		x.must(append([]string{"DEL"}, all[3000:]...)...)
		if got, _ := x.must("DBSIZE").Int(); got != 3000 { // one step counts all of a region
			t.Errorf("DBSIZE = %d; want 3000", got)
		}
		if info := string(x.must("INFO", "keyspace").Text); strings.Contains(info, "estimated") {
			t.Errorf("INFO keyspace: %q, which is exact", info)
		}
	})
}
