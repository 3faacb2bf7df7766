package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// rueidisCache is rueidis with its client-side cache: no value stays in it that another client has changed.
func rueidisCache(ctx context.Context, addrs []string) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs})
	if err != nil {
		return err
	}
	defer client.Close()
	writer, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		return err
	}
	defer writer.Close()

	hits := 0
	for n := range int64(200) {
		key := fmt.Sprint("cached", n%20)
		if err := writer.Do(ctx, writer.B().Set().Key(key).Value(fmt.Sprint(n)).Build()).Error(); err != nil {
			return err
		}
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			got, err := client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Hour).AsInt64()
			if err != nil {
				return err
			}
			if got == n {
				break
			}
			if time.Since(begin) > 20*time.Second {
				return fmt.Errorf("%s is %d, 20 s after %d was written", key, got, n)
			}
		}
		if client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Hour).IsCacheHit() {
			hits++
		}
	}
	if hits == 0 {
		return errors.New("nothing was cached")
	}
	return nil
}
