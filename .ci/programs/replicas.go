package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// readBack writes keys all over the slots and reads each at once: reads at replicas are as fresh as any.
func readBack(set func(key, value string) error, get func(key string) (string, error)) error {
	for i := range 100 {
		key, value := fmt.Sprint("replica_", i%30), fmt.Sprint(i)
		if err := set(key, value); err != nil {
			return err
		}
		if got, err := get(key); err != nil || got != value {
			return fmt.Errorf("%s is %q, %v; want %q", key, got, err, value)
		}
	}
	return nil
}

// goRedisReplicas reads by each of go-redis's options for replicas.
func goRedisReplicas(ctx context.Context, addrs []string) error {
	for name, options := range map[string]redis.ClusterOptions{
		"ReadOnly":       {ReadOnly: true},
		"RouteByLatency": {RouteByLatency: true},
		"RouteRandomly":  {RouteRandomly: true},
	} {
		options.Addrs = addrs
		client := redis.NewClusterClient(&options)
		defer client.Close()
		err := readBack(func(key, value string) error { return client.Set(ctx, key, value, 0).Err() },
			func(key string) (string, error) { return client.Get(ctx, key).Result() })
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// rueidisReplicas is SendToReplicas as rueidis's documentation has it, with the cache on, as by default.
func rueidisReplicas(ctx context.Context, addrs []string) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:    addrs,
		SendToReplicas: func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() },
	})
	if err != nil {
		return err
	}
	defer client.Close()
	return readBack(
		func(key, value string) error {
			return client.Do(ctx, client.B().Set().Key(key).Value(value).Build()).Error()
		},
		func(key string) (string, error) { return client.Do(ctx, client.B().Get().Key(key).Build()).ToString() })
}
