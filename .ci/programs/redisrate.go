package main

import (
	"context"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
)

// redisRate is the example of redis_rate's README, up to the first request that is not allowed.
func redisRate(ctx context.Context, addrs []string) error {
	rdb := dial(addrs)
	defer rdb.Close()
	limiter := redis_rate.NewLimiter(rdb)
	for i := range 11 {
		res, err := limiter.Allow(ctx, "project:123", redis_rate.PerHour(10))
		if err != nil {
			return fmt.Errorf("Allow: %v", err)
		}
		if allowed := min(1, 10-i); res.Allowed != allowed || res.Remaining != max(0, 9-i) {
			return fmt.Errorf("request %d: allowed %d, remaining %d", i, res.Allowed, res.Remaining)
		}
	}
	if res, err := limiter.AllowAtMost(ctx, "project:456", redis_rate.PerHour(10), 15); err != nil || res.Allowed != 10 {
		return fmt.Errorf("AllowAtMost: %v, %v", res, err)
	}
	return limiter.Reset(ctx, "project:123")
}
