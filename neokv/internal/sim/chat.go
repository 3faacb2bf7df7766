package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/internal/chat"
	"neokv.dev/neokv/internal/chat/direct"
)

// chatThink is the mean time between two operations of a client of a chat, each of which makes several calls.
const chatThink = 200 * time.Millisecond

// newChat returns a chat of some clients, with a tenant in each of the first regions. Package chat has a ledger of its
// own: its records have several keys, and the history is of single ones.
func (s *sim) newChat(clients int) *chat.Chat {
	o := chat.Options{Seed: s.random(13).Uint64(), Clients: clients, Think: chatThink, Timeout: opTime,
		Unknown: direct.Unknown, Skew: s.h.skew}
	for i := range simRegions {
		tag := sortTags[i][i%4]
		tenant, err := strconv.Atoi(strings.TrimPrefix(tag, "t"))
		if err != nil {
			panic(fmt.Sprintf("tag %s of a region is not that of a tenant: %v", tag, err))
		}
		o.Tenants = append(o.Tenants, tenant)
	}
	return chat.New(o)
}

// runChat has the clients of a chat at work until the schedule is over.
func (s *sim) runChat(c *chat.Chat) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-s.over
		cancel()
	}()
	if err := c.Run(ctx, direct.ChatCalls{Cluster: s.c}); err != nil {
		s.fail(found(wrongChat, "chat: %w", err))
	}
	n := c.Stats()
	s.h.note("chat: %+v", n)
	s.reachTimes(chatUnknown, n.Unknown)
}

// checkChat checks a chat, after all faults have ended, when no command waits for a leader any more.
func (s *sim) checkChat(c *chat.Chat) {
	time.Sleep(s.config.Settings.Redis.LeaderlessWait)
	switch err := c.Check(context.Background(), patientReads{direct.ChatCalls{Cluster: s.c}}); {
	case errors.Is(err, chat.ErrNoAnswer):
		s.fail(found(noAnswer, "chat: in %s after everything was healed: %w", hangTime, err))
	case err != nil:
		s.fail(found(wrongChat, "chat, in the end: %w", err))
	}
}

// patientReads is a database whose reads try again for hangTime.
type patientReads struct{ chat.Database }

func (x patientReads) Get(ctx context.Context, key string) (value string, found bool, err error) {
	err = patiently(ctx, func() error {
		value, found, err = x.Database.Get(ctx, key)
		return err
	})
	return value, found, err
}

func (x patientReads) Scan(ctx context.Context, tag, prefix string, limit int) (all []chat.Stored, err error) {
	err = patiently(ctx, func() error {
		all, err = x.Database.Scan(ctx, tag, prefix, limit)
		return err
	})
	return all, err
}

// patiently tries until there is no error, or hangTime is over.
func patiently(ctx context.Context, try func() error) error {
	for end := time.Now().Add(hangTime); ; time.Sleep(10 * time.Millisecond) {
		if err := try(); err == nil || ctx.Err() != nil || time.Now().After(end) {
			return err
		}
	}
}
