package neokvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/neokvtest"
)

// In a test t is its argument.
var t *testing.T

func ExampleStart() {
	cluster := neokvtest.Start(t)
	client := cluster.Client() // of go-redis

	if err := client.Set(t.Context(), "user:1", "alice", 0).Err(); err != nil {
		t.Fatal(err)
	}
	cluster.CheckGet("user:1", "alice")
}

// Five stores on real ports, for clients that are not in Go.
func ExampleStart_sockets() {
	cluster := neokvtest.Start(t, neokvtest.Sockets, func(c *neokv.Config) { c.Stores, c.Regions = 5, 10 })
	t.Log(cluster.Addrs(), cluster.ProxyAddr())
}

// One setting differs from those for tests.
func ExampleWith() {
	neokvtest.Start(t, neokvtest.With("engine.bloom_bits", "5"))
}

// Every test begins with the same data, and pays for a boot alone.
func ExampleFrom() {
	loaded := neokvtest.Start(t)
	// ... load it ...
	image := loaded.Snapshot()
	for _, name := range []string{"read", "write"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := neokvtest.Start(t, neokvtest.From(image))
			cluster.WaitHealthy()
		})
	}
}

// What an application does while the leader of its key dies.
func ExampleTestCluster_Fault() {
	cluster := neokvtest.Start(t)
	client := cluster.Client()
	cluster.Fault("kill 2")
	if err := client.Incr(t.Context(), "visits").Err(); err != nil {
		t.Error(err)
	}
	cluster.Fault("heal")
	cluster.WaitHealthy()
}

// One GET in ten is answered with an error.
func ExampleTestCluster_Fail() {
	cluster := neokvtest.Start(t)
	cluster.Fail("GET", "LOADING Redis is loading the dataset in memory", 0.1)
	// ... the application tries again ...
	cluster.Fail("GET", "", 0)
}

// A session ends after its day.
func ExampleTestCluster_Advance() {
	cluster := neokvtest.Start(t)
	var client redis.UniversalClient = cluster.Client()
	if err := client.Set(context.Background(), "session", "token", 24*time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	cluster.Advance(24 * time.Hour)
	cluster.CheckGone("session")
}
