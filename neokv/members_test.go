package neokv

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
)

// write sets a key to its name, read returns what it has.
func write(t *testing.T, c *Cluster, key string) {
	t.Helper()
	if _, err := c.Do(t.Context(), "SET", key, key); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func read(t *testing.T, c *Cluster, key string) string {
	t.Helper()
	got, err := c.Do(t.Context(), "GET", key)
	if err != nil {
		t.Fatalf("GET %s: %v", key, err)
	}
	return fmt.Sprintf("%s", got)
}

// hasStores fails the test unless all of the cluster's stores have these numbers, and are full members.
func hasStores(t *testing.T, c *Cluster, want ...int) {
	t.Helper()
	await(t, "stores that come", func() bool {
		return !slices.ContainsFunc(c.Status().Stores, func(s StoreStatus) bool { return s.Member == MemberJoining })
	})
	var have []int
	for _, s := range c.Status().Stores {
		have = append(have, s.Store)
		if s.State != StateOK || s.Member != "" {
			t.Errorf("store %d: %s, %q; want ok", s.Store, s.State, s.Member)
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("stores %v, want %v", have, want)
	}
	if got := c.Shape().Stores; got != len(want) {
		t.Errorf("a shape of %d stores, want %d", got, len(want))
	}
}

// sayTo sends a command to a store's port and returns the reply as text.
func sayTo(t *testing.T, c *Cluster, store int, args ...any) string {
	t.Helper()
	r := redis.NewClient(&redis.Options{Addr: c.Addrs()[store-1],
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }})
	defer r.Close()
	got, err := r.Do(t.Context(), args...).Result()
	if err != nil {
		t.Fatalf("store %d: %v: %v", store, args, err)
	}
	return fmt.Sprint(got)
}

// TestAddStore: a store comes to a cluster that runs, gets replicas, and is there at the next start. Its number, port
// and folder are those that a start with one store more would have given it.
func TestAddStore(t *testing.T) {
	dir := t.TempDir()
	s := small()
	s.Engine.WALSync = "always"
	c := start(t, Config{Dir: dir, Stores: 3, Replicas: 3, Regions: 4, Settings: s})
	write(t, c, "before")
	if got, err := c.AddStore(t.Context()); got != 4 || err != nil {
		t.Fatalf("store %d, %v; want store 4", got, err)
	}
	hasStores(t, c, 1, 2, 3, 4)
	if got := c.Status().Stores[3]; got.Replicas != 0 || got.Leads != 0 {
		t.Errorf("a store that has just come: %+v", got)
	}
	for store := range 4 {
		if n := strings.Count(sayTo(t, c, store+1, "CLUSTER", "NODES"), "\n"); n != 4 {
			t.Errorf("CLUSTER NODES of store %d has %d lines", store+1, n)
		}
	}
	for _, x := range []string{"move-replica 1 3 4", "move-replica 2 2 4", "transfer 1 4"} {
		if _, err := c.Inject(t.Context(), fault.MustParse(x)); err != nil {
			t.Fatalf("%s: %v", x, err)
		}
	}
	write(t, c, "after")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir, Stores: 3, Settings: s}, "has 4 stores, asked for 3: neokv ctl drain")

	c = start(t, Config{Dir: dir, Stores: 6, Settings: s})
	hasStores(t, c, 1, 2, 3, 4, 5, 6)
	for _, key := range []string{"before", "after"} {
		if got := read(t, c, key); got != key {
			t.Errorf("%s: %q", key, got)
		}
	}
	if got := c.Status().Stores[3].Replicas; got != 2 {
		t.Errorf("store 4 has %d replicas, want 2", got)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "store-6", "store.json")); err != nil {
		t.Error(err)
	}
	c = start(t, Config{Dir: dir, Settings: s})
	hasStores(t, c, 1, 2, 3, 4, 5, 6)
}

// TestAddStoreToOne: meta stays on the store with which the cluster began.
func TestAddStoreToOne(t *testing.T) {
	dir := t.TempDir()
	s := small()
	s.Engine.WALSync = "always"
	c := start(t, Config{Dir: dir, Stores: 1, Replicas: 1, Regions: 2, Settings: s})
	for range 2 {
		if _, err := c.AddStore(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []string{"add-replica 1 2", "add-replica 1 3", "move-replica 2 1 3"} {
		if _, err := c.Inject(t.Context(), fault.MustParse(x)); err != nil {
			t.Fatalf("%s: %v", x, err)
		}
	}
	write(t, c, "a")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = start(t, Config{Dir: dir, Settings: s})
	hasStores(t, c, 1, 2, 3)
	if got := read(t, c, "a"); got != "a" {
		t.Errorf("a: %q", got)
	}
}

// TestAddStoreRefused: what is refused leaves no store behind.
func TestAddStoreRefused(t *testing.T) {
	c := start(t, Config{InMemory: true, Stores: 9})
	if _, err := c.AddStore(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster.stores: 10: want 1 to 9") {
		t.Errorf("a tenth store: %v", err)
	}
	hasStores(t, c, 1, 2, 3, 4, 5, 6, 7, 8, 9)

	s := small()
	s.Redis.ClusterAnnounce = "10.0.0.1:7001,10.0.0.1:7002,10.0.0.1:7003"
	c = start(t, Config{InMemory: true, Settings: s})
	if _, err := c.AddStore(t.Context()); err == nil || !strings.Contains(err.Error(), "say nothing of store 4") {
		t.Errorf("a store that no list has: %v", err)
	}
	hasStores(t, c, 1, 2, 3)
	if _, err := c.Inject(t.Context(), fault.MustParse("kill all")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddStore(t.Context()); err == nil || !strings.Contains(err.Error(), "no store runs") {
		t.Errorf("a store beside dead ones: %v", err)
	}
}

// TestDrainAndRemove: a store that drains gives its leaders and replicas to others, gets none, and goes on at the next
// start; one that has none is removed with its folder, and its number is not given again.
func TestDrainAndRemove(t *testing.T) {
	dir := t.TempDir()
	s := small()
	s.Engine.WALSync = "always"
	c := start(t, Config{Dir: dir, Stores: 5, Replicas: 3, Regions: 5, Settings: s})
	write(t, c, "before")
	for text, want := range map[string]string{
		"drain 1":  "store 1 has a replica of the cluster map, which does not move yet",
		"remove 2": "store 2 has a replica of the cluster map, which does not move yet",
		"remove 5": "store 5 has 3 replicas: neokv ctl drain 5 first",
		"drain 6":  "there is no store 6; want 1 to 5",
	} {
		if _, err := c.Inject(t.Context(), fault.MustParse(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	hasStores(t, c, 1, 2, 3, 4, 5)
	if err := c.DrainStore(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if got := c.Status().Stores[4]; got.Replicas != 0 || got.Leads != 0 || got.Member != MemberDraining {
		t.Errorf("a store that is drained: %+v", got)
	}
	if _, err := c.Inject(t.Context(), fault.MustParse("add-replica 1 5")); err == nil ||
		!strings.Contains(err.Error(), "store 5 drains") {
		t.Errorf("a replica for a store that drains: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = start(t, Config{Dir: dir, Settings: s})
	if got := c.Status().Stores[4].Member; got != MemberDraining {
		t.Errorf("after a start store 5 is %q", got)
	}
	if err := c.KeepStore(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	hasStores(t, c, 1, 2, 3, 4, 5)
	if _, err := c.Inject(t.Context(), fault.MustParse("move-replica 1 3 5")); err != nil {
		t.Error(err)
	}
	if err := c.DrainStore(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveStore(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	hasStores(t, c, 1, 2, 3, 4)
	if _, err := os.Stat(filepath.Join(dir, "store-5")); !os.IsNotExist(err) {
		t.Errorf("the folder of store 5: %v", err)
	}
	if n := strings.Count(sayTo(t, c, 1, "CLUSTER", "NODES"), "\n"); n != 4 {
		t.Errorf("CLUSTER NODES has %d lines", n)
	}
	if got, err := c.AddStore(t.Context()); got != 6 || err != nil {
		t.Fatalf("store %d, %v; want store 6", got, err)
	}
	hasStores(t, c, 1, 2, 3, 4, 6)
	if _, err := c.Inject(t.Context(), fault.MustParse("kill 5")); err == nil ||
		!strings.Contains(err.Error(), "there is no store 5; want 1, 2, 3, 4, 6") {
		t.Errorf("a fault of a store that was removed: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = start(t, Config{Dir: dir, Settings: s})
	hasStores(t, c, 1, 2, 3, 4, 6)
	if got := read(t, c, "before"); got != "before" {
		t.Errorf("before: %q", got)
	}
}
