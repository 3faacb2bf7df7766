package neokv

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/counters"
	"neokv.dev/neokv/internal/topology"
)

// infoNeokv reads INFO's section neokv at an address of the cluster: the values by name, the names in their order.
func infoNeokv(t *testing.T, c *Cluster, addr string) (values map[string]string, names []string) {
	t.Helper()
	r := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer r.Close()
	text, err := r.Info(t.Context(), "neokv").Result()
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(text, "# Neokv\r\n")
	if !ok {
		t.Fatalf("INFO neokv at %s: %q; want the section Neokv alone", addr, text)
	}
	values = map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		values[name] = value
		names = append(names, name)
	}
	return values, names
}

// counts reads the counters of a scope, and checks that each counter and gauge of it is a number.
func counts(t *testing.T, c *Cluster, addr string, of counters.Scope) map[string]int64 {
	t.Helper()
	values, _ := infoNeokv(t, c, addr)
	out := map[string]int64{}
	for _, l := range counters.All {
		if l.Scope != of || l.Kind == counters.Fact {
			continue
		}
		n, err := strconv.ParseInt(values[l.Name], 10, 64)
		if err != nil || n < 0 {
			t.Errorf("%s: %s: %q; want a whole number", addr, l.Name, values[l.Name])
		}
		if l.Kind == counters.Counter {
			out[l.Name] = n
		}
	}
	return out
}

// Each port prints the lines that counters.All has for it, in that order, and no others.
func TestInfoIsAsDocumented(t *testing.T) {
	c := start(t, Config{Stores: 2, Regions: 2, InMemory: true, NoSockets: true})
	onStores := map[string]bool{"store": true, "store_state": true, "region_time_ahead_ms": true}
	var atStore, atProxy []string
	for _, l := range counters.All {
		switch {
		case l.Name == "store_N_state":
			atProxy = append(atProxy, "store_1_state", "store_2_state")
		case onStores[l.Name]:
			atStore = append(atStore, l.Name)
		default:
			atStore, atProxy = append(atStore, l.Name), append(atProxy, l.Name)
		}
		if l.Help == "" {
			t.Errorf("%s: no help", l.Name)
		}
	}
	for addr, want := range map[string][]string{c.Addrs()[1]: atStore, c.ProxyAddr(): atProxy} {
		if _, got := infoNeokv(t, c, addr); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("INFO neokv at %s has the lines\n%v\nwant\n%v", addr, got, want)
		}
	}
	if got, _ := infoNeokv(t, c, c.Addrs()[1]); got["store"] != "2" || got["store_state"] != "ok" ||
		got["stores"] != "2" || got["in_memory"] != "1" {
		t.Errorf("INFO neokv of store 2: %v", got)
	}
}

// Under load no counter falls. The proxy's counters lie between the sums over the stores before and after. The sum
// outlives a store.
func TestInfoCounts(t *testing.T) {
	s := small()
	s.Engine.MemtableSize = 1 << 20
	c := start(t, Config{Stores: 3, Regions: 4, InMemory: true, NoSockets: true, Settings: s})
	r := goRedis(t, c)
	sum := func() map[string]int64 {
		out := map[string]int64{}
		for _, addr := range c.Addrs() {
			for name, n := range counts(t, c, addr, counters.Store) {
				out[name] += n
			}
		}
		return out
	}
	notLess := func(what string, a, b map[string]int64) {
		t.Helper()
		for name, n := range a {
			if b[name] < n {
				t.Errorf("%s: %s: %d, then %d", what, name, n, b[name])
			}
		}
	}
	const rounds, writes = 20, 100
	process := counts(t, c, c.ProxyAddr(), counters.Process)
	before := sum()
	first := before
	for i := range rounds {
		for j := range writes {
			key := fmt.Sprint("k", i, "-", j)
			if err := r.Set(t.Context(), key, strings.Repeat("v", 1000), 0).Err(); err != nil {
				t.Fatal(err)
			}
			if err := r.Get(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		proxy := counts(t, c, c.ProxyAddr(), counters.Store)
		after := sum()
		notLess("stores, then proxy", before, proxy)
		notLess("proxy, then stores", proxy, after)
		before = after
	}
	notLess("process", process, counts(t, c, c.ProxyAddr(), counters.Process))
	if t.Failed() {
		return
	}
	// An entry is counted when it has been proposed, which may be after it was applied.
	waitFor(t, 10*time.Second, "all SETs to be counted", func() bool {
		before = sum()
		return before["raft_commands"]-first["raft_commands"] >= rounds*writes
	})
	got := map[string]int64{}
	for name, n := range before {
		got[name] = n - first[name]
	}
	// What Raft drops at a change of leaders is proposed again, and counts again.
	if n := got["raft_commands"]; n < rounds*writes || n > rounds*writes && got["leader_changes"] == 0 {
		t.Errorf("raft_commands: %d; want one per SET, %d", n, rounds*writes)
	}
	if n := got["lease_reads"] + got["index_reads"]; n != rounds*writes {
		t.Errorf("lease_reads and index_reads: %d; want one per GET, %d", n, rounds*writes)
	}
	if hits, misses := got["keyspace_hits"], got["keyspace_misses"]; hits != rounds*writes || misses != 0 {
		t.Errorf("keyspace_hits %d, keyspace_misses %d; want one hit per GET, %d", hits, misses, rounds*writes)
	}
	if n := before["leader_changes"]; n < 4 {
		t.Errorf("leader_changes: %d; want one per region at least", n)
	}
	if n := before["elections"]; n < 5 {
		t.Errorf("elections: %d; want one per region, and meta's, at least", n)
	}
	for _, name := range []string{"sync_calls", "raft_proposals", "raft_entries", "wal_bytes", "memtable_flushes",
		"memtable_flush_bytes",
		"read_index_rounds"} {
		if got[name] == 0 {
			t.Errorf("%s: nothing counted", name)
		}
	}
	if bytes := int64(rounds * writes * 1000); got["raft_entry_bytes"] < bytes || got["wal_bytes"] < 3*bytes {
		t.Errorf("raft_entry_bytes %d, wal_bytes %d; want at least the values' %d, and as much on each store",
			got["raft_entry_bytes"], got["wal_bytes"], bytes)
	}

	do(t, c, "stop 3")
	notLess("a store has stopped", before, counts(t, c, c.ProxyAddr(), counters.Store))
	if got, _ := infoNeokv(t, c, c.ProxyAddr()); got["store_3_state"] != "stopped" || got["store_1_state"] != "ok" {
		t.Errorf("states %s, %s; want ok, stopped", got["store_1_state"], got["store_3_state"])
	}
}

// After NEOKV SETTLE every replica has applied what was written before, the writes are in tables, and no compaction is
// under way.
func TestSettle(t *testing.T) {
	c := start(t, Config{})
	r := redis.NewClient(&redis.Options{
		Addr: c.ProxyAddr(), Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer r.Close()
	const keys = 300
	pipe := r.Pipeline()
	for i := range keys {
		pipe.Set(t.Context(), fmt.Sprint("key:", i), strings.Repeat("v", 1000), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	written := map[topology.RegionID]uint64{}
	for _, region := range c.in.Table().Regions {
		written[region.ID] = c.in.Places().Replica(region.Leader, region.ID).Applied()
	}
	for range 2 { // the second time there is nothing to do
		if reply, err := r.Do(t.Context(), "NEOKV", "SETTLE").Result(); err != nil || reply != "OK" {
			t.Fatalf("NEOKV SETTLE: %v, %v", reply, err)
		}
	}
	for _, n := range c.in.Places() {
		m := n.Store().Engine().Metrics()
		if m.Flushes == 0 || m.TableBytes == 0 {
			t.Errorf("store %d: %d flushes, %d bytes in tables; want some of both", n.ID(), m.Flushes, m.TableBytes)
		}
	}
	for _, region := range c.in.Table().Regions {
		for _, p := range region.Peers {
			if has := c.in.Places().Replica(p.Store, region.ID).Applied(); has < written[region.ID] {
				t.Errorf("region %d: store %d has applied %d, the leader %d before", region.ID, p.Store, has,
					written[region.ID])
			}
		}
	}
}
