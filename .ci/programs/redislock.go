package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
)

// locker is the example of redislock's README: obtain, refuse another one, refresh, release.
func locker(ctx context.Context, addrs []string) error {
	client := dial(addrs)
	defer client.Close()
	locks := redislock.New(client)

	lock, err := locks.Obtain(ctx, "my-key", time.Minute, nil)
	if err != nil {
		return fmt.Errorf("Obtain: %v", err)
	}
	if _, err := locks.Obtain(ctx, "my-key", time.Minute, nil); !errors.Is(err, redislock.ErrNotObtained) {
		return fmt.Errorf("Obtain again: %v", err)
	}
	if ttl, err := lock.TTL(ctx); err != nil || ttl <= 0 {
		return fmt.Errorf("TTL: %v, %v", ttl, err)
	}
	if err := lock.Refresh(ctx, 2*time.Minute, nil); err != nil {
		return fmt.Errorf("Refresh: %v", err)
	}
	if ttl, err := lock.TTL(ctx); err != nil || ttl <= time.Minute {
		return fmt.Errorf("TTL after Refresh: %v, %v", ttl, err)
	}
	if err := lock.Release(ctx); err != nil {
		return fmt.Errorf("Release: %v", err)
	}
	if err := lock.Release(ctx); !errors.Is(err, redislock.ErrLockNotHeld) {
		return fmt.Errorf("Release again: %v", err)
	}
	return nil
}
