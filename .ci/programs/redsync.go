package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// redSync is the example of redsync's README: two mutexes of one name.
func redSync(ctx context.Context, addrs []string) error {
	client := dial(addrs)
	defer client.Close()
	rs := redsync.New(goredis.NewPool(client))

	mutex, rival := rs.NewMutex("my-global-mutex"), rs.NewMutex("my-global-mutex", redsync.WithTries(1))
	if err := mutex.LockContext(ctx); err != nil {
		return fmt.Errorf("Lock: %v", err)
	}
	if taken := new(redsync.ErrTaken); !errors.As(rival.LockContext(ctx), &taken) {
		return errors.New("Lock: two hold the mutex")
	}
	if ok, err := mutex.ExtendContext(ctx); !ok || err != nil {
		return fmt.Errorf("Extend: %v, %v", ok, err)
	}
	if ok, err := mutex.UnlockContext(ctx); !ok || err != nil {
		return fmt.Errorf("Unlock: %v, %v", ok, err)
	}
	if err := rival.LockContext(ctx); err != nil {
		return fmt.Errorf("Lock after Unlock: %v", err)
	}
	_, err := rival.UnlockContext(ctx)
	return err
}
