package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// A topic is a way to publish, and to get what is published.
type topic struct {
	name    string
	publish func(message string) error
	// receive hands over what comes until the context ends.
	receive func(ctx context.Context, got func(message string)) error
}

// A receipt is what a subscriber has got, and what was wrong with it.
type receipt struct {
	ordered bool

	mu         sync.Mutex
	begun, end bool
	next, got  int
	seen       map[int]bool
	err        error
}

// take takes a message: begin, a number, or end.
func (r *receipt) take(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch message {
	case "begin":
		r.begun = true
		return
	case "end":
		r.end = true
		return
	}
	n, err := strconv.Atoi(message)
	if r.err == nil && (err != nil || r.seen[n] || r.ordered && n < r.next) {
		r.err = fmt.Errorf("got message %s behind %d others, the last one %d", message, r.got, r.next-1)
	}
	r.seen[n] = true
	r.next = n + 1
	r.got++
}

// is looks at a receipt.
func (r *receipt) is(f func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f()
}

// listen publishes numbers for a while, and checks what subscribers get: nothing twice, the numbers in order, and all
// of them unless the cluster is hurt: what comes while a connection is broken is lost, as with Redis. When the cluster
// is well again each of them still listens.
func listen(ctx context.Context, s site, topics []topic, subscribers int) (string, error) {
	published, failed, got := 0, 0, 0
	for _, t := range topics {
		// Clients of a cluster publish at any node, so messages come in order on shard channels only, also with Redis.
		ordered := len(s.addrs) == 1 || t.name[:2] == "SS"
		until, stop := context.WithCancel(ctx)
		defer stop()
		all := make([]*receipt, subscribers)
		ended := make(chan error, subscribers)
		for i := range all {
			r := &receipt{ordered: ordered, seen: map[int]bool{}}
			all[i] = r
			go func() { ended <- t.receive(until, r.take) }()
		}

		// repeat publishes a message until all subscribers have it.
		repeat := func(message string, has func(r *receipt) bool) error {
			begin, err := time.Now(), error(nil)
			for {
				missing := 0
				for _, r := range all {
					if !r.is(func() bool { return has(r) }) {
						missing++
					}
				}
				if missing == 0 {
					return nil
				}
				if err == nil && time.Since(begin) > 30*time.Second || ctx.Err() != nil {
					return fmt.Errorf("%s: %d of %d do not hear %q, %v", t.name, missing, subscribers, message, err)
				}
				err = t.publish(message)
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err := repeat("begin", func(r *receipt) bool { return r.begun }); err != nil {
			return "", err
		}
		n := 0
		for begin := time.Now(); time.Since(begin) < s.time/time.Duration(len(topics)); n++ {
			if err := t.publish(fmt.Sprint(n)); err != nil {
				if !s.hurt {
					return "", fmt.Errorf("%s: %w", t.name, err)
				}
				failed++
			}
		}
		if err := repeat("end", func(r *receipt) bool { return r.end && (s.hurt || r.got >= n) }); err != nil {
			return "", err
		}
		stop()
		for _, r := range all {
			if err := <-ended; err != nil {
				return "", fmt.Errorf("%s: %w", t.name, err)
			}
			if err := r.err; err != nil {
				return "", fmt.Errorf("%s: %w", t.name, err)
			}
			got += r.got
		}
		published += n
	}
	return fmt.Sprintf("%d messages for %d subscribers each, none twice; %d of unknown fate, %d not heard where a "+
		"connection was broken", published, subscribers, failed, published*subscribers-got), nil
}

// goRedisPubSub is the example of go-redis's documentation about publish and subscribe: a channel that several listen
// to, a pattern, and a shard channel.
func goRedisPubSub(ctx context.Context, s site) (string, error) {
	rdb := dial(s.addrs)
	defer rdb.Close()
	// This one publishes nothing twice, as a client does by default where its connection breaks.
	publisher := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.addrs, MaxRetries: -1, MaxRedirects: -1})
	defer publisher.Close()
	of := func(name string, subscribe func(context.Context) *redis.PubSub, publish func(string) *redis.IntCmd) topic {
		return topic{name, func(m string) error { return publish(m).Err() },
			func(ctx context.Context, got func(string)) error { return goRedisReceive(ctx, rdb, subscribe, got) }}
	}
	return listen(ctx, s, []topic{
		of("Subscribe", func(ctx context.Context) *redis.PubSub { return rdb.Subscribe(ctx, "news") },
			func(m string) *redis.IntCmd { return publisher.Publish(ctx, "news", m) }),
		of("PSubscribe", func(ctx context.Context) *redis.PubSub { return rdb.PSubscribe(ctx, "new?") },
			func(m string) *redis.IntCmd { return publisher.Publish(ctx, "news", m) }),
		of("SSubscribe", func(ctx context.Context) *redis.PubSub { return rdb.SSubscribe(ctx, "news") },
			func(m string) *redis.IntCmd { return publisher.SPublish(ctx, "news", m) }),
	}, 6)
}

// goRedisReceive subscribes anew where a shard channel has moved. A PubSub does so itself where its connection breaks.
func goRedisReceive(ctx context.Context, rdb redis.UniversalClient, subscribe func(context.Context) *redis.PubSub,
	got func(string)) error {
	for ctx.Err() == nil {
		pubSub := subscribe(ctx)
		context.AfterFunc(ctx, func() { pubSub.Close() })
		for moved := false; !moved && ctx.Err() == nil; {
			switch m, err := pubSub.Receive(ctx); m := m.(type) {
			case *redis.Message:
				got(m.Payload)
			case *redis.Subscription:
				moved = m.Kind == "sunsubscribe"
			default:
				_, moved = redis.IsMovedError(err)
				if !moved {
					time.Sleep(10 * time.Millisecond)
				}
			}
		}
		pubSub.Close()
		if cluster, ok := rdb.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx)
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

// rueidisReceive is the example of rueidis's documentation: Receive with SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE.
func rueidisReceive(ctx context.Context, s site) (string, error) {
	var clients []rueidis.Client
	const subscribers = 3
	for range subscribers {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: s.addrs, DisableCache: true})
		if err != nil {
			return "", err
		}
		defer client.Close()
		clients = append(clients, client)
	}
	publisher := clients[0] // has connections that subscribe and such that do not
	of := func(name string, subscribe func(b rueidis.Builder) rueidis.Completed,
		publish func(b rueidis.Builder, m string) rueidis.Completed) topic {
		free := make(chan rueidis.Client, subscribers)
		for _, client := range clients {
			free <- client
		}
		return topic{name, func(m string) error { return publisher.Do(ctx, publish(publisher.B(), m)).Error() },
			func(ctx context.Context, got func(string)) error {
				client := <-free
				for ctx.Err() == nil { // Receive ends where a shard channel has moved
					err := client.Receive(ctx, subscribe(client.B()), func(m rueidis.PubSubMessage) { got(m.Message) })
					if err != nil && !s.hurt && !errors.Is(err, context.Canceled) {
						return err
					}
				}
				return nil
			}}
	}
	return listen(ctx, s, []topic{
		of("SUBSCRIBE",
			func(b rueidis.Builder) rueidis.Completed { return b.Subscribe().Channel("ch1", "ch2").Build() },
			func(b rueidis.Builder, m string) rueidis.Completed {
				return b.Publish().Channel("ch1").Message(m).Build()
			}),
		of("PSUBSCRIBE",
			func(b rueidis.Builder) rueidis.Completed { return b.Psubscribe().Pattern("c*2").Build() },
			func(b rueidis.Builder, m string) rueidis.Completed {
				return b.Publish().Channel("ch2").Message(m).Build()
			}),
		of("SSUBSCRIBE",
			func(b rueidis.Builder) rueidis.Completed { return b.Ssubscribe().Channel("ch1").Build() },
			func(b rueidis.Builder, m string) rueidis.Completed {
				return b.Spublish().Channel("ch1").Message(m).Build()
			}),
	}, subscribers)
}
