package neokv_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
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

// A message of a chat and its place in the timeline are there together or not at all. The newest message comes first,
// since the timeline counts down.
func ExampleCluster_NewWriteBatch() {
	ctx := context.Background()
	cluster, err := neokv.Start(ctx, neokv.Config{Stores: 3, InMemory: true, NoSockets: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()

	for i, text := range []string{"hello", "is anybody there?"} {
		b := cluster.NewWriteBatch()
		b.Put(fmt.Sprintf("{room}:msg:%d", i), []byte(text), 0)
		b.Put(fmt.Sprintf("{room}:time:%d", 9999-i), fmt.Append(nil, i), 0)
		b.Delete("{room}:draft")
		if err := b.Commit(ctx); err != nil {
			log.Fatal(err) // errors.Is(err, neokv.ErrUnknownOutcome): it may have happened
		}
	}
	timeline, err := cluster.ScanPrefix(ctx, "room", "{room}:time:", 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range timeline {
		text, err := cluster.Do(ctx, "GET", "{room}:msg:"+string(entry.Value))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(text)
	}
	// Output:
	// is anybody there?
	// hello
}

// A store is killed. The others serve its regions, one of which is split, and the store comes back.
func ExampleCluster_Inject() {
	ctx := context.Background()
	cluster, err := neokv.Start(ctx, neokv.Config{Stores: 3, InMemory: true, NoSockets: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()

	for _, text := range []string{"kill 2", "split 1 1000", "heal"} {
		outcome, err := cluster.Inject(ctx, fault.MustParse(text))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v %q\n", cluster.Faults(), outcome)
	}
	// Output:
	// [kill 2] ""
	// [kill 2] "region 1 is split at slot 1000: region 9 has slots 1000-2047"
	// [] ""
}
