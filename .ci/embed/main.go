// Embed is a program outside of the module that boots a cluster in memory and talks to it with go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	neokv.LogRaft(os.Stderr)
	cluster, err := neokv.Start(ctx, neokv.Config{Stores: 3, InMemory: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:  cluster.Addrs(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return cluster.Dial(ctx, addr) },
	})
	defer client.Close()
	for i := range 100 {
		key := fmt.Sprint("key", i)
		if err := client.Set(ctx, key, i, 0).Err(); err != nil {
			return err
		}
		if got, err := client.Get(ctx, key).Int(); err != nil || got != i {
			return fmt.Errorf("GET %s = %d, %v; want %d", key, got, err, i)
		}
	}
	fmt.Println("a cluster of", len(cluster.Addrs()), "stores kept 100 keys")
	return nil
}
