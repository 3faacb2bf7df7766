package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// dial returns go-redis's client of one server, or its cluster client of several.
func dial(addrs []string) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs})
}

var incrBy = redis.NewScript(`
local key = KEYS[1]
local change = ARGV[1]

local value = redis.call("GET", key)
if not value then
  value = 0
end

value = value + change
redis.call("SET", key, value)

return value
`)

// goRedis is the examples of go-redis's documentation: TxPipelined, Watch, Script, BLPop.
func goRedis(ctx context.Context, addrs []string) error {
	rdb := dial(addrs)
	defer rdb.Close()

	var incr *redis.IntCmd
	_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		incr = pipe.Incr(ctx, "{tx_pipelined}counter")
		pipe.Expire(ctx, "{tx_pipelined}counter", time.Hour)
		pipe.Set(ctx, "{tx_pipelined}other", "of the same slot", 0)
		return nil
	})
	if err != nil || incr.Val() != 1 {
		return fmt.Errorf("TxPipelined: %d, %v", incr.Val(), err)
	}

	increment := func(key string) error {
		for {
			err := rdb.Watch(ctx, func(tx *redis.Tx) error {
				n, err := tx.Get(ctx, key).Int()
				if err != nil && err != redis.Nil {
					return err
				}
				_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
					pipe.Set(ctx, key, n+1, 0)
					return nil
				})
				return err
			}, key)
			if err != redis.TxFailedErr {
				return err
			}
		}
	}
	var group sync.WaitGroup
	failed := make([]error, 10)
	for i := range failed {
		group.Go(func() { failed[i] = increment("watched_counter") })
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("Watch: %v", err)
	}
	if n, err := rdb.Get(ctx, "watched_counter").Int(); err != nil || n != len(failed) {
		return fmt.Errorf("Watch: %d after %d increments, %v", n, len(failed), err)
	}

	for want := 2; want <= 6; want += 2 {
		if n, err := incrBy.Run(ctx, rdb, []string{"script_counter"}, 2).Int(); err != nil || n != want {
			return fmt.Errorf("Script: %d, not %d: %v", n, want, err)
		}
	}

	if err := rdb.BLPop(ctx, 100*time.Millisecond, "queue").Err(); err != redis.Nil {
		return fmt.Errorf("BLPop of nothing: %v", err)
	}
	popped := make(chan error)
	go func() {
		got, err := rdb.BLPop(ctx, 0, "queue").Result()
		if err == nil && !slices.Equal(got, []string{"queue", "message"}) {
			err = fmt.Errorf("%q", got)
		}
		popped <- err
	}()
	if err := rdb.RPush(ctx, "queue", "message").Err(); err != nil {
		return fmt.Errorf("RPush: %v", err)
	}
	if err := <-popped; err != nil {
		return fmt.Errorf("BLPop: %v", err)
	}
	return nil
}
