package neokvtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/neokvtest"
)

// The tests of this file are those that docs/testing.md shows.

// login is what a user of this package has to test: a session that ends after a day.
func login(ctx context.Context, client redis.UniversalClient, user string) error {
	return client.Set(ctx, "session:"+user, "token", 24*time.Hour).Err()
}

func TestLogin(t *testing.T) {
	cluster := neokvtest.Start(t)
	if err := login(t.Context(), cluster.Client(), "alice"); err != nil {
		t.Fatal(err)
	}
	cluster.CheckGet("session:alice", "token")
	cluster.Advance(24 * time.Hour)
	cluster.CheckGone("session:alice")
}

func TestInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := neokvtest.Start(t).Client()
		ctx := t.Context()
		if err := client.Set(ctx, "lock", "mine", 10*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second) // takes no real time
		if got := client.Get(ctx, "lock").Val(); got != "mine" {
			t.Errorf("after 9 s the lock is %q", got)
		}
		time.Sleep(time.Second)
		if err := client.Get(ctx, "lock").Err(); err != redis.Nil {
			t.Errorf("after 10 s: %v", err)
		}
	})
}

func TestFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := neokvtest.Start(t)
		client := cluster.Client()
		ctx := t.Context()
		for i := range 100 {
			if i == 50 {
				cluster.Fault(fmt.Sprint("kill ", cluster.Leader("count")))
			}
			if n, err := client.Incr(ctx, "count").Result(); err != nil || n != int64(i+1) {
				t.Fatalf("count %d, %v; want %d", n, err, i+1)
			}
		}
		cluster.Fault("heal")
		cluster.WaitHealthy()
	})
}

func TestLostNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := neokvtest.Start(t)
		ctx := t.Context()
		cluster.Fault("link 1 2,3 loss=10% delay=5ms jitter=5ms")
		if _, err := cluster.Do(ctx, "SET", "k", "v"); err != nil {
			t.Error("messages are lost, but enough arrive:", err)
		}

		// Now no store hears of any other one. A write does not get its quorum.
		cluster.Fault("partition 1 2,3")
		cluster.Fault("partition 2 3")
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := cluster.Do(short, "SET", "k", "w")
		if !errors.Is(err, neokv.ErrUnknownOutcome) {
			t.Error(err)
		}
		cluster.Fault("heal")
		cluster.WaitHealthy()
		if got, err := cluster.Do(ctx, "GET", "k"); err != nil || got != "v" && got != "w" {
			t.Error(got, err)
		}
	})
}

func TestTriesAgain(t *testing.T) {
	cluster := neokvtest.Start(t)
	client := cluster.Client() // go-redis tries three times more when a node loads its data
	cluster.Fail("SET", "LOADING Redis is loading the dataset in memory", 0.3)
	for i := range 100 {
		if err := login(t.Context(), client, fmt.Sprint("user", i)); err != nil {
			t.Log("one in a hundred logins fails all the same:", err)
		}
	}
	cluster.Fail("SET", "", 0)
}

func TestFromTheSameData(t *testing.T) {
	full := neokvtest.Start(t)
	for i := range 1000 {
		if _, err := full.Do(t.Context(), "SET", fmt.Sprint("user:", i), i); err != nil {
			t.Fatal(err)
		}
	}
	image := full.Snapshot()
	for _, store := range []string{"1", "2", "3"} {
		t.Run("without store "+store, func(t *testing.T) {
			t.Parallel()
			cluster := neokvtest.Start(t, neokvtest.From(image))
			cluster.Fault("kill " + store)
			if got, err := cluster.Do(t.Context(), "DBSIZE"); err != nil || got != int64(1000) {
				t.Errorf("%v users, %v", got, err)
			}
		})
	}
}
