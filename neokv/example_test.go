package neokv_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
)

// A cluster in memory, and a client of it that needs no sockets. README.md shows this example.
func Example() {
	ctx := context.Background()
	cluster, err := neokv.Start(ctx, neokv.Config{Stores: 3, InMemory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()

	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return cluster.Dial(ctx, addr)
		},
	})
	defer client.Close()

	if err := client.Set(ctx, "user:1000", "alice", 0).Err(); err != nil {
		log.Fatal(err)
	}
	name, err := client.Get(ctx, "user:1000").Result()
	if err != nil {
		log.Fatal(err)
	}
	visits, err := client.Incr(ctx, "visits").Result()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(name, visits)
	// Output: alice 1
}
