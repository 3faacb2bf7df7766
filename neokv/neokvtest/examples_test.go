package neokvtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// work takes jobs from a queue into a list of the worker's own, does each and acknowledges it. What its predecessor has
// left in the list comes first.
func work(ctx context.Context, client redis.UniversalClient, queue, own string, do func(job string) error) error {
	for {
		job, err := client.LIndex(ctx, own, -1).Result()
		if err == redis.Nil {
			job, err = client.BLMove(ctx, queue, own, "RIGHT", "LEFT", time.Minute).Result()
		}
		if err == redis.Nil {
			continue // no job in a minute
		}
		if err == nil {
			err = do(job)
		}
		if err == nil {
			err = client.LRem(ctx, own, 1, job).Err()
		}
		if err != nil {
			return err
		}
	}
}

func TestWorkerCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := neokvtest.Start(t)
		client := cluster.Client()
		ctx := t.Context()
		crash := errors.New("crash")
		ended := make(chan error)
		var done []string
		start := func(crashAt string) {
			ended <- work(ctx, client, "{jobs}", "{jobs}:worker-1", func(job string) error {
				if job == crashAt {
					return crash
				}
				done = append(done, job)
				return nil
			})
		}
		go start("b")
		synctest.Wait() // until the worker waits for its first job
		client.LPush(ctx, "{jobs}", "a", "b")
		if err := <-ended; err != crash {
			t.Fatal(err)
		}
		if own := client.LRange(ctx, "{jobs}:worker-1", 0, -1).Val(); !slices.Equal(own, []string{"b"}) {
			t.Errorf("behind the crash the worker's list has %q", own)
		}
		cluster.Fault(fmt.Sprint("kill ", cluster.Leader("{jobs}")))
		client.LPush(ctx, "{jobs}", "c", "d")
		go start("d")
		if err := <-ended; err != crash || !slices.Equal(done, []string{"a", "b", "c"}) {
			t.Errorf("the worker and its successor have done %q, %v", done, err)
		}
	})
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
