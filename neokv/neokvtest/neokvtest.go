// Package neokvtest gives a test a Redis Cluster of its own: three stores in memory, with Raft between them, Pebble
// below and leaders that move, in some tens of milliseconds.
//
//	func TestSignUp(t *testing.T) {
//		cluster := neokvtest.Start(t)
//		users := NewUsers(cluster.Client()) // a go-redis client
//		...
//		cluster.Fault("kill 2")
//		...
//	}
//
// The cluster ends with the test. It prints nothing, unless the test fails: then the test's log tells what happened to
// the cluster. Tests that run in parallel have clusters that share nothing.
//
// In a bubble of package testing/synctest the cluster and its clients run in virtual time: time-outs, times to live and
// fail-overs take no real time. docs/testing.md of this module compares it all with miniredis and testcontainers.
package neokvtest

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
)

// SeedVariable is an environment variable with the seed for the clusters of all tests of a process. Without it each
// cluster has a seed that follows from the name of its test.
const SeedVariable = "NEOKVTEST_SEED"

// patience bounds what a TestCluster waits for: a boot, health, a fault. A cluster that works needs a small part of it.
const patience = time.Minute

// TestCluster is a cluster of one test. Methods without an error end the test where they fail.
type TestCluster struct {
	*neokv.Cluster
	t testing.TB
}

// Start boots a cluster and returns when it accepts writes on every slot. It closes the cluster at the end of t.
//
// The cluster has three stores and three regions, little memory and no ports. A change, such as Sockets, changes that:
//
//	neokvtest.Start(t, func(c *neokv.Config) { c.Stores, c.Regions = 5, 10 })
func Start(t testing.TB, changes ...func(*neokv.Config)) *TestCluster {
	t.Helper()
	log := &eventLog{}
	config := neokv.Config{InMemory: true, NoSockets: true}
	for _, change := range changes {
		if err := apply(&config, change); err != nil {
			t.Fatalf("neokvtest: %v", err)
		}
	}
	if config.From == nil {
		fill(&config)
	}
	if config.Seed == 0 {
		config.Seed = seedOf(t)
	}
	told := config.OnEvent
	config.OnEvent = func(e neokv.ClusterEvent) {
		log.add(e.String())
		if told != nil {
			told(e)
		}
	}
	neokv.LogRaft(raftErrors)
	c := &TestCluster{t: t}
	t.Cleanup(func() {
		status := ""
		if c.Cluster != nil {
			status = describe(c.Status())
			if err := c.Close(); err != nil {
				log.add("close: " + err.Error())
			}
		}
		if t.Failed() {
			t.Logf("neokvtest: seed %d; again with: %s=%d go test -run '%s'\nWhat happened to the cluster:\n%s%s%s",
				config.Seed, SeedVariable, config.Seed, runPattern(t.Name()), log.text(), status, raftErrors.text())
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cluster, err := neokv.Start(ctx, config)
	if err != nil {
		t.Fatalf("neokvtest: %v", err)
	}
	c.Cluster = cluster
	return c
}

// With returns a change for Start: one setting of the cluster, by its name, gets the value of a text as --set takes it.
//
//	neokvtest.Start(t, neokvtest.With("engine.bloom_bits", "5"))
//
// All other settings stay as they are, those for tests too. Start ends the test if there is no such setting or value.
func With(setting, value string) func(*neokv.Config) {
	return func(c *neokv.Config) {
		s := testSettings()
		switch {
		case c.Settings != nil:
			s = *c.Settings
		case c.From != nil:
			s = c.From.Settings()
		}
		if strings.HasPrefix(setting, "cluster.") {
			panic(badChange{fmt.Errorf("With(%q): Stores, Replicas and Regions of the Config say that", setting)})
		}
		f, err := settings.Find(settings.Fields(&s), setting)
		if err == nil {
			err = f.Set(value)
		}
		if err != nil {
			panic(badChange{fmt.Errorf("With(%q, %q): %w", setting, value, err)})
		}
		c.Settings = &s
	}
}

// badChange is what a change panics with that cannot be made.
type badChange struct{ error }

// apply makes a change, or returns why it cannot be made.
func apply(config *neokv.Config, change func(*neokv.Config)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(badChange)
			if !ok {
				panic(r)
			}
			err = bad.error
		}
	}()
	change(config)
	return nil
}

// fill sets what nobody has chosen for a cluster without data.
func fill(config *neokv.Config) {
	if config.Stores == 0 {
		config.Stores = 3
	}
	if config.Regions == 0 {
		config.Regions = config.Stores
	}
	if config.Settings == nil {
		s := testSettings()
		config.Settings = &s
	}
}

// testSettings returns the settings of a cluster that a test starts often and fills little.
func testSettings() settings.Settings {
	s := settings.Default()
	s.Engine.MemtableSize, s.Engine.BlockCache, s.Engine.RowCache = 12<<20, 12<<20, 4<<20
	// A cluster that starts from an image reads its logs, so they are kept short.
	s.Raft.SnapshotBytes, s.Raft.CompactionOverhead = 1<<20, 100
	// An engine whose small memtables have left many sublevels in L0 would open only after their compaction.
	s.Engine.L0Compaction, s.Engine.L0Stop = 64, 128
	return s
}

// Sockets is a change for Start: the cluster also listens on free ports of the loopback address, those of Addrs and
// ProxyAddr. It must not be used in a bubble of testing/synctest.
func Sockets(c *neokv.Config) { c.NoSockets = false }

// From returns a change for Start: the cluster begins with the data of an image.
func From(image *neokv.Image) func(*neokv.Config) {
	return func(c *neokv.Config) { c.From = image }
}

// seedOf returns the seed of SeedVariable, or one that follows from the test's name.
func seedOf(t testing.TB) uint64 {
	if text := os.Getenv(SeedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil || seed == 0 {
			t.Fatalf("neokvtest: %s=%s: want a number from 1 to 2^64-1", SeedVariable, text)
		}
		return seed
	}
	h := fnv.New64a()
	h.Write([]byte(t.Name()))
	return max(h.Sum64(), 1)
}

// runPattern returns the value of go test's -run for one test.
func runPattern(name string) string {
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}

// Client returns a go-redis client that is connected to the cluster through memory. It is closed at the end of the test
// that has started the cluster.
func (c *TestCluster) Client() *redis.ClusterClient {
	// For a minute after its end a client is held by a timer of its own. It must not hold the cluster as well.
	var cluster atomic.Pointer[neokv.Cluster]
	cluster.Store(c.Cluster)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Password: c.Settings().Redis.RequirePass,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if c := cluster.Load(); c != nil {
				return c.Dial(ctx, addr)
			}
			return nil, redis.ErrClosed
		},
	})
	c.t.Cleanup(func() {
		client.Close()
		cluster.Store(nil)
		if virtual() {
			// go-redis leaves a goroutine behind that waits for 200 ms before it reads the slots again. A bubble must
			// not end before its goroutines.
			time.Sleep(time.Second)
		}
	})
	return client
}

// virtual reports whether the caller is in a bubble of testing/synctest, whose clocks begin in the year 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// Fault carries out a fault that is given by its text, such as "kill 2", "partition 1 2,3", "link 1 2 delay=20ms" or
// "heal". It returns when that has happened. Package neokv/fault describes the texts; Inject does the same with values.
func (c *TestCluster) Fault(text string) {
	c.t.Helper()
	f, err := fault.Parse(text)
	if err == nil {
		err = c.within(func(ctx context.Context) error {
			_, err := c.Inject(ctx, f)
			return err
		})
	}
	if err != nil {
		c.t.Fatalf("neokvtest: %v", err)
	}
}

// Fail lets a share of the calls of a command, such as GET or CLIENT|LIST, be answered with an error such as "LOADING
// Redis is loading the dataset in memory" in place of running: 0.1 is one in ten, 0 ends it. "" is every command. Calls
// of Do, and so the checks, are spared. It is the fault "fail all GET 10% LOADING ..." by its parts; "heal" ends it,
// too.
func (c *TestCluster) Fail(command, text string, share fault.Portion) {
	c.t.Helper()
	f := fault.Fault{Verb: fault.Fail,
		Refuse: fault.Refusal{Command: strings.ToUpper(command), Share: share, Error: text}}
	c.must(c.within(func(ctx context.Context) error {
		_, err := c.Inject(ctx, f)
		return err
	}))
}

// WaitHealthy returns when every store runs, every region is served, and all replicas have applied what their leaders
// had then.
func (c *TestCluster) WaitHealthy() {
	c.t.Helper()
	c.must(c.within(c.Cluster.WaitHealthy))
}

// Flush removes all keys.
func (c *TestCluster) Flush() {
	c.t.Helper()
	c.must(c.within(func(ctx context.Context) error {
		_, err := c.Do(ctx, "FLUSHALL")
		return err
	}))
}

// Advance lets keys expire as if the time d had passed.
func (c *TestCluster) Advance(d time.Duration) {
	c.t.Helper()
	c.must(c.Cluster.Advance(d))
}

// Snapshot takes an image of all stores at this instant, for any number of Starts with From.
func (c *TestCluster) Snapshot() (image *neokv.Image) {
	c.t.Helper()
	c.must(c.within(func(ctx context.Context) (err error) {
		image, err = c.Cluster.Snapshot(ctx)
		return err
	}))
	return image
}

// Fork boots another cluster with the data that this one has now, for the test t.
func (c *TestCluster) Fork(t testing.TB, changes ...func(*neokv.Config)) *TestCluster {
	t.Helper()
	return Start(t, append([]func(*neokv.Config){From(c.Snapshot())}, changes...)...)
}

// within calls fn with a context that ends after patience.
func (c *TestCluster) within(fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return fn(ctx)
}

func (c *TestCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("neokvtest: %v", err)
	}
}

// describe says what is wrong with a cluster.
func describe(s neokv.ClusterStatus) string {
	var b strings.Builder
	for _, store := range s.Stores {
		if store.State != neokv.StateOK {
			fmt.Fprintf(&b, "in the end store %d is %s %s\n", store.Store, store.State, store.Reason)
		}
	}
	for _, r := range s.Regions {
		if r.Leader == 0 {
			fmt.Fprintf(&b, "in the end no store serves region %d, slots %s\n", r.Region, r.Slots)
		}
	}
	for _, f := range s.Faults {
		fmt.Fprintf(&b, "in the end this is in force: %s\n", f)
	}
	return b.String()
}
