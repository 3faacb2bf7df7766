package main

import (
	"context"
	"fmt"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/redis"
)

// ululeLimiter is the example of limiter's README, up to the first request that is not allowed. Its store loads its
// scripts once, by SCRIPT LOAD.
func ululeLimiter(ctx context.Context, addrs []string) error {
	client := dial(addrs)
	defer client.Close()
	store, err := redis.NewStore(client)
	if err != nil {
		return fmt.Errorf("NewStore: %v", err)
	}
	rate, err := limiter.NewRateFromFormatted("3-H")
	if err != nil {
		return err
	}
	requests := limiter.New(store, rate)
	for i := range 4 {
		c, err := requests.Get(ctx, "127.0.0.1")
		if err != nil || c.Reached != (i == 3) {
			return fmt.Errorf("request %d: %+v, %v", i, c, err)
		}
	}
	if c, err := requests.Peek(ctx, "127.0.0.1"); err != nil || !c.Reached {
		return fmt.Errorf("Peek: %+v, %v", c, err)
	}
	return nil
}
