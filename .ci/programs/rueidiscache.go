package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// rueidisCache is rueidis with its client-side cache: no value stays in it that another client has changed.
func rueidisCache(ctx context.Context, s site) (string, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.addrs})
	if err != nil {
		return "", err
	}
	defer client.Close()
	writer, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.addrs, DisableCache: true})
	if err != nil {
		return "", err
	}
	defer writer.Close()

	writes, hits := 0, 0
	for begin := time.Now(); time.Since(begin) < s.time; {
		key := fmt.Sprint("cached", writes%20)
		if err := writer.Do(ctx, writer.B().Set().Key(key).Value(fmt.Sprint(writes)).Build()).Error(); err != nil {
			if !s.hurt {
				return "", err
			}
			continue // of unknown fate
		}
		cached := func() rueidis.RedisResult {
			return client.DoCache(ctx, client.B().Get().Key(key).Cache(), time.Hour)
		}
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			got, err := cached().ToString()
			want, other := writer.Do(ctx, writer.B().Get().Key(key).Build()).ToString()
			err = errors.Join(err, other)
			if err == nil && got == want {
				break
			}
			if err != nil && !s.hurt || time.Since(begin) > 20*time.Second {
				return "", fmt.Errorf("%s is %q, %s behind the write of %q: %w", key, got, time.Since(begin), want, err)
			}
		}
		if cached().IsCacheHit() {
			hits++
		}
		writes++
	}
	if hits == 0 {
		return "", errors.New("nothing was cached")
	}
	return fmt.Sprintf("%d writes came to be seen, %d hits of the cache", writes, hits), nil
}
