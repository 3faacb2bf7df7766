package neokvtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/bench/children"
	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/neokvtest"
)

// testServer is a way for a test to get a Redis of its own.
type testServer struct {
	name string
	keys []string // what is written to it: keys of all parts of a cluster, one key of a single node
	size int      // how many keys of loadedCluster it has from the start
	// prepare does what comes before a boot and does not count.
	prepare func(t testing.TB) bootFunc
}

// bootFunc boots a server, which ends with t, and returns a client of it.
type bootFunc func(t testing.TB) redis.UniversalClient

// testServers are what a test can choose from. The clusters that fork hold a number of keys.
func testServers(keys int) []testServer {
	fresh := func(changes ...func(*neokv.Config)) func(testing.TB) bootFunc {
		return func(testing.TB) bootFunc {
			return func(t testing.TB) redis.UniversalClient { return neokvtest.Start(t, changes...).Client() }
		}
	}
	shape := func(stores, regions int) func(*neokv.Config) {
		return func(c *neokv.Config) { c.Stores, c.Regions = stores, regions }
	}
	var image *neokv.Image
	probes := probeKeys()
	return []testServer{
		{name: "neokvtest", keys: probes, prepare: fresh()},
		{name: "neokvtest-sockets", keys: probes, prepare: func(testing.TB) bootFunc {
			return func(t testing.TB) redis.UniversalClient {
				c := neokvtest.Start(t, neokvtest.Sockets)
				client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
				t.Cleanup(func() { client.Close() })
				return client
			}
		}},
		{name: "neokvtest-1-store", keys: probes, prepare: fresh(shape(1, 8))},
		{name: "neokvtest-9-stores", keys: probes, prepare: fresh(shape(9, 32))},
		// Each boot has a cluster of its own to fork, since a second Snapshot finds nothing that it must still write to
		// tables.
		{name: "neokvtest-fork", keys: probes, size: keys, prepare: func(t testing.TB) bootFunc {
			loaded := loadedCluster(t, keys)
			return func(t testing.TB) redis.UniversalClient { return loaded.Fork(t).Client() }
		}},
		{name: "neokvtest-image", keys: probes, size: keys, prepare: func(t testing.TB) bootFunc {
			if image == nil {
				image = loadedCluster(t, keys).Snapshot()
			}
			return func(t testing.TB) redis.UniversalClient {
				return neokvtest.Start(t, neokvtest.From(image)).Client()
			}
		}},
		{name: "redis-server", keys: probes[:1], prepare: func(t testing.TB) bootFunc {
			if _, err := children.Find("redis-server", "valkey-server"); err != nil {
				t.Skip(err)
			}
			return func(t testing.TB) redis.UniversalClient {
				r, err := children.Start(t.Context(), t.TempDir(), children.Redis{Durability: children.None})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := r.Kill(); err != nil {
						t.Error(err)
					}
				})
				client := redis.NewClient(&redis.Options{Addr: r.Addrs()[0]})
				t.Cleanup(func() { client.Close() })
				return client
			}
		}},
	}
}

// probeKeys returns a key of every 128th slot.
func probeKeys() []string {
	keys := make([]string, topology.SlotCount/128)
	for i, found := 0, 0; found < len(keys); i++ {
		key := fmt.Sprint("probe:", i)
		if slot := topology.SlotOf([]byte(key)); slot%128 == 0 && keys[slot/128] == "" {
			keys[slot/128] = key
			found++
		}
	}
	return keys
}

// loadedKey is a key of the clusters that fork. Its value has loadedBytes.
func loadedKey(i int) string { return fmt.Sprintf("key:%012d", i) }

const loadedBytes = 100

// loadedCluster returns a cluster with that many keys.
func loadedCluster(t testing.TB, keys int) *neokvtest.TestCluster {
	c := neokvtest.Start(t)
	client, value := c.Client(), strings.Repeat("x", loadedBytes)
	const perPipeline = 1000
	for first := 0; first < keys; first += perPipeline {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := first; i < min(first+perPipeline, keys); i++ {
				p.Set(t.Context(), loadedKey(i), value, 0)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// testPart is a part of a test, with an end of its own: what is started for it ends when it ends, not with the test.
type testPart struct {
	testing.TB
	ends []func()
}

func (p *testPart) Cleanup(end func()) { p.ends = append(p.ends, end) }

func (p *testPart) end() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// use boots a server, writes to it and ends it. It returns how long it took until the writes were accepted, and then
// until the server had ended.
func (s testServer) use(t testing.TB) (boot, end time.Duration) {
	before, server := &testPart{TB: t}, &testPart{TB: t}
	defer before.end()
	start := s.prepare(before)

	defer func() {
		begin := time.Now()
		server.end()
		end = time.Since(begin)
	}()
	begin := time.Now()
	client := start(server)
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, key := range s.keys {
			p.Set(t.Context(), key, "", 0)
		}
		return nil
	})
	boot = time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < s.size; i += 500 { // DBSIZE may be an estimate
		if n, err := client.StrLen(t.Context(), loadedKey(i)).Result(); err != nil || n != loadedBytes {
			t.Fatalf("%s has %d bytes, %v; want %d", loadedKey(i), n, err, loadedBytes)
		}
	}
	return boot, end
}

// BenchmarkBoot boots what a test can use as its Redis. It measures from the start of the server until a go-redis
// client has written: to a cluster a key of every 128th slot, to a single node one key. The end of the server is a
// figure of its own:
//
//	go test ./neokv/neokvtest -run '^$' -bench Boot -benchtime 20x -count 3
func BenchmarkBoot(b *testing.B) {
	for _, s := range testServers(100_000) {
		b.Run(s.name, func(b *testing.B) {
			var boots, ends []time.Duration
			for b.Loop() {
				boot, end := s.use(b)
				boots, ends = append(boots, boot), append(ends, end)
			}
			slices.Sort(boots)
			slices.Sort(ends)
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
			b.ReportMetric(ms(boots[len(boots)/2]), "ms-p50")
			b.ReportMetric(ms(boots[len(boots)-1]), "ms-max")
			b.ReportMetric(ms(ends[len(ends)/2]), "ms-end-p50")
			b.ReportMetric(0, "ns/op") // it has the preparations in it
		})
	}
}

// TestBoot: what BenchmarkBoot measures works.
func TestBoot(t *testing.T) {
	for _, s := range testServers(1000) {
		t.Run(s.name, func(t *testing.T) { s.use(t) })
	}
}
