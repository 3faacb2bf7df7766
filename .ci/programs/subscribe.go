package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

const manyMessages = 1000

// inOrder says whether messages come in the order in which they were published. Clients of a cluster publish at any
// node, so only those of shard channels do, also with a Redis Cluster.
func inOrder(addrs []string, name string) bool { return len(addrs) == 1 || name[:2] == "SS" }

// receipt checks what a subscriber gets.
type receipt struct {
	ordered bool
	got     map[string]bool
}

func newReceipt(ordered bool) *receipt { return &receipt{ordered, map[string]bool{}} }

// take returns an error if the message is not the next one, or has come before. all says that there is no further one.
func (r *receipt) take(message string) (all bool, err error) {
	n, err := strconv.Atoi(message)
	if err != nil || n >= manyMessages || r.got[message] || r.ordered && n != len(r.got) {
		return false, fmt.Errorf("message %s behind %d others", message, len(r.got))
	}
	r.got[message] = true
	return len(r.got) == manyMessages, nil
}

// goRedisPubSub is the example of go-redis's documentation about publish and subscribe: a channel that several listen
// to, a pattern, and a shard channel. Each gets all messages.
func goRedisPubSub(ctx context.Context, addrs []string) error {
	rdb := dial(addrs)
	defer rdb.Close()
	for _, x := range []struct {
		name      string
		subscribe func() *redis.PubSub
		publish   func(message string) *redis.IntCmd
	}{
		{"Subscribe", func() *redis.PubSub { return rdb.Subscribe(ctx, "news") },
			func(m string) *redis.IntCmd { return rdb.Publish(ctx, "news", m) }},
		{"PSubscribe", func() *redis.PubSub { return rdb.PSubscribe(ctx, "new?") },
			func(m string) *redis.IntCmd { return rdb.Publish(ctx, "news", m) }},
		{"SSubscribe", func() *redis.PubSub { return rdb.SSubscribe(ctx, "news") },
			func(m string) *redis.IntCmd { return rdb.SPublish(ctx, "news", m) }},
	} {
		var all []*redis.PubSub
		for range 6 {
			s := x.subscribe()
			defer s.Close()
			if _, err := s.Receive(ctx); err != nil { // the confirmation
				return fmt.Errorf("%s: %v", x.name, err)
			}
			all = append(all, s)
		}
		failed := make(chan error, len(all))
		for _, s := range all {
			go func() {
				r := newReceipt(inOrder(addrs, x.name))
				for {
					select {
					case m := <-s.Channel():
						if all, err := r.take(m.Payload); all || err != nil {
							failed <- err
							return
						}
					case <-ctx.Done():
						failed <- fmt.Errorf("%d messages came", len(r.got))
						return
					}
				}
			}()
		}
		for i := range manyMessages {
			if err := x.publish(fmt.Sprint(i)).Err(); err != nil {
				return fmt.Errorf("%s: %v", x.name, err)
			}
		}
		for range all {
			if err := <-failed; err != nil {
				return fmt.Errorf("%s: %v", x.name, err)
			}
		}
	}
	return nil
}

// rueidisPubSub is the example of rueidis's documentation: Receive with SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE.
func rueidisPubSub(ctx context.Context, addrs []string) error {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: addrs, DisableCache: true})
	if err != nil {
		return err
	}
	defer client.Close()
	for _, x := range []struct {
		name      string
		subscribe rueidis.Completed
		publish   func(message string) rueidis.Completed
	}{
		{"SUBSCRIBE", client.B().Subscribe().Channel("ch1", "ch2").Build(), func(m string) rueidis.Completed {
			return client.B().Publish().Channel("ch1").Message(m).Build()
		}},
		{"PSUBSCRIBE", client.B().Psubscribe().Pattern("c*2").Build(), func(m string) rueidis.Completed {
			return client.B().Publish().Channel("ch2").Message(m).Build()
		}},
		{"SSUBSCRIBE", client.B().Ssubscribe().Channel("ch1").Build(), func(m string) rueidis.Completed {
			return client.B().Spublish().Channel("ch1").Message(m).Build()
		}},
	} {
		all := errors.New("got all")
		until, end := context.WithCancelCause(ctx)
		ended := make(chan error, 1)
		begun, r := false, newReceipt(inOrder(addrs, x.name))
		started := make(chan struct{})
		go func() {
			ended <- client.Receive(until, x.subscribe, func(m rueidis.PubSubMessage) {
				switch {
				case m.Message == "begin":
					if !begun {
						close(started)
					}
					begun = true
				default:
					if last, err := r.take(m.Message); err != nil {
						end(err)
					} else if last {
						end(all)
					}
				}
			})
		}()
		for waiting := true; waiting; { // Receive does not tell when it has subscribed
			if err := client.Do(ctx, x.publish("begin")).Error(); err != nil {
				return fmt.Errorf("%s: %v", x.name, err)
			}
			select {
			case <-started:
				waiting = false
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%s: no message", x.name)
			}
		}
		for i := range manyMessages {
			if err := client.Do(ctx, x.publish(fmt.Sprint(i))).Error(); err != nil {
				return fmt.Errorf("%s: %v", x.name, err)
			}
		}
		<-ended
		if err := context.Cause(until); err != all {
			return fmt.Errorf("%s: %d messages, %v", x.name, len(r.got), err)
		}
	}
	return nil
}
