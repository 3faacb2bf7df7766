package neokvtest_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/chat"
	"neokv.dev/neokv/internal/chat/direct"
	"neokv.dev/neokv/neokvtest"
)

// respChat is a chat.Database on a cluster to which go-redis is connected.
type respChat struct{ client *redis.ClusterClient }

// once is a write that go-redis does not send again. If it did, an error would say nothing of the tries before the last
// one.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// routed returns a command that goes to the store that leads the slot of the argument at some position.
func routed(ctx context.Context, position int8, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(position)
	return cmd
}

func (x respChat) Get(ctx context.Context, key string) (string, bool, error) {
	value, err := x.client.Get(ctx, key).Result()
	if err == redis.Nil {
		return "", false, nil
	}
	return value, err == nil, err
}

func (x respChat) Scan(ctx context.Context, tag, prefix string, limit int) (all []chat.Stored, err error) {
	var after []any
	for len(all) < limit {
		args := []any{"NEOKV", "SCANPREFIX", tag, prefix, min(limit-len(all), 1000)}
		cmd := routed(ctx, 2, append(args, after...)...)
		if err := x.client.Process(ctx, cmd); err != nil {
			return nil, err
		}
		reply := cmd.Val().([]any)
		pairs := reply[1].([]any)
		for i := 0; i < len(pairs); i += 2 {
			value, _ := pairs[i+1].(string)
			all = append(all, chat.Stored{Key: pairs[i].(string), Value: value})
		}
		next, more := reply[0].(string)
		if !more {
			break
		}
		after = []any{"AFTER", next}
	}
	return all, nil
}

func (x respChat) Commit(ctx context.Context, writes []chat.Write) error {
	_, err := x.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, w := range writes {
			args := []any{"SET", w.Key, w.Value}
			switch {
			case w.Delete:
				args = []any{"DEL", w.Key}
			case w.TTL > 0:
				args = []any{"PSETEX", w.Key, w.TTL.Milliseconds(), w.Value}
			}
			if err := p.Process(ctx, once{redis.NewCmd(ctx, args...)}); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// respUnknown is chat.Options.Unknown for errors of go-redis. Those that are no replies may have come after the command
// was sent.
func respUnknown(err error) bool {
	reply := redis.Error(nil)
	return !errors.As(err, &reply) || errors.Is(neokv.ReplyError(err.Error()), neokv.ErrUnknownOutcome)
}

// chatWays are how a chat reaches a cluster.
var chatWays = []struct {
	name    string
	unknown func(error) bool
	open    func(t *testing.T, c *neokvtest.TestCluster) chat.Database
}{
	{"direct", direct.Unknown, func(t *testing.T, c *neokvtest.TestCluster) chat.Database {
		return direct.ChatCalls{Cluster: c.Cluster}
	}},
	{"go-redis", respUnknown, func(t *testing.T, c *neokvtest.TestCluster) chat.Database {
		return respChat{c.Client()}
	}},
}

// TestChatQuiet: a chat finds all as it should be, and each of its commits is acknowledged.
func TestChatQuiet(t *testing.T) { testChat(t, nil) }

// TestChatUnderFaults: stores are killed and stopped and start again, links are cut or bad, and leaders move, while a
// chat is at work.
func TestChatUnderFaults(t *testing.T) {
	testChat(t, []fault.Verb{fault.Kill, fault.Stop, fault.Partition, fault.Link, fault.Transfer, fault.StepDown})
}

// testChat runs a chat in each way, under faults that are drawn from the cluster's seed.
func testChat(t *testing.T, verbs []fault.Verb) {
	for _, way := range chatWays {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const length = 20 * time.Second
				c := neokvtest.Start(t)
				x := chat.New(chat.Options{Seed: c.Seed(), Clients: 6, Tenants: []int{0, 1, 2, 3}, Timeout: 4 * time.Second,
					Think: 60 * time.Millisecond, Unknown: way.unknown})
				db := way.open(t, c)
				ctx, cancel := context.WithTimeout(t.Context(), length)
				defer cancel()
				schedule := fault.Draw(rand.New(rand.NewPCG(c.Seed(), 1)), fault.DrawOptions{
					Stores: 3, Regions: 3, Length: length, Verbs: verbs, Gap: 3 * time.Second,
				})
				ended := carryOut(c, schedule)
				if err := x.Run(ctx, db); err != nil {
					t.Errorf("while faults last: %v", err)
				}
				ended()
				c.Fault("heal")
				c.WaitHealthy()
				// A command that waits for a leader, or for its quorum, gets its answer within redis.leaderless_wait.
				time.Sleep(2 * c.Settings().Redis.LeaderlessWait)
				// A client of its own: go-redis does not see that idle connections in memory are broken, and those may
				// be more than its tries.
				if err := x.Check(t.Context(), way.open(t, c)); err != nil {
					t.Errorf("in the end: %v", err)
				}
				s := x.Stats()
				t.Logf("%d events; %+v", len(schedule), s)
				acknowledged := s.Reads
				for _, n := range s.Done {
					acknowledged += n
				}
				if acknowledged < 1000 || len(s.Done) < 9 || verbs == nil && s.Unknown+s.Refused > 0 {
					t.Errorf("%d calls acknowledged, %d of unknown outcome, %d refused: %v", acknowledged, s.Unknown,
						s.Refused, s.Done)
				}
			})
		})
	}
}

// carryOut carries out a schedule. The function that it returns waits until all events have ended. An event that cannot
// be, such as the kill of a store that is dead, is left out.
func carryOut(c *neokvtest.TestCluster, schedule fault.Schedule) (ended func()) {
	var events sync.WaitGroup
	for _, e := range schedule {
		events.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			time.Sleep(e.At)
			if _, err := c.Inject(ctx, e.Fault); err == nil && e.For > 0 {
				time.Sleep(e.For)
				c.Inject(ctx, e.Fault.End())
			}
		})
	}
	return events.Wait
}
