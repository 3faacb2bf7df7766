package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// TestUnknownCloses: with redis.unknown_outcome=close a client whose write has an unknown outcome gets the replies to
// the commands before, and then the end of its connection. No later command is answered. Calls of Go get an error.
func TestUnknownCloses(t *testing.T) {
	k := simSettings()
	k.Redis.UnknownOutcome = settings.CloseUnknown
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		home := s.nodes[0]
		stuck, fine := "r{"+regionTags[0]+"}", "r{"+regionTags[1]+"}"
		hold := func() { // messages of region 1 come too late, all others in time
			for r := range simRegions {
				s.move(topology.RegionID(r+1), home)
			}
			time.Sleep(time.Second)
			s.hold(10*time.Second, func(m *multiraft.Message) bool { return m.ShardID == 1 })
		}
		mend := func() {
			s.hold(0, nil)
			time.Sleep(5 * time.Second)
		}
		set := func(key string) []string { return []string{"SET", key, "v"} }
		multi, exec := []string{"MULTI"}, []string{"EXEC"}
		for _, x := range []struct {
			name, addr string
			commands   [][]string
			want       []string
		}{
			{"a write between two others", home.Addr(), [][]string{{"GET", fine}, set(fine), set(stuck), set(fine)},
				[]string{"", "OK", "EOF", "EOF"}},
			{"a transaction", home.Addr(), [][]string{multi, set(stuck), exec, {"GET", fine}},
				[]string{"OK", "QUEUED", "EOF", "EOF"}},
			{"several transactions", home.Addr(),
				[][]string{multi, set(fine), exec, multi, set(stuck), exec, multi, set(fine), exec},
				[]string{"OK", "QUEUED", "OK", "OK", "QUEUED", "EOF", "EOF", "EOF", "EOF"}},
			{"a script", home.Addr(),
				[][]string{{"EVAL", "return redis.call('SET', KEYS[1], 'v')", "1", stuck}, {"PING"}}, []string{"EOF", "EOF"}},
			{"a command that is cut", s.c.ProxyAddr(), [][]string{{"PING"}, {"MSET", fine, "v", stuck, "v"}, {"PING"}},
				[]string{"PONG", "EOF", "EOF"}},
			{"FLUSHALL in a transaction", s.c.ProxyAddr(), [][]string{multi, {"GET", fine}, {"FLUSHALL"}, exec, {"PING"}},
				[]string{"OK", "QUEUED", "QUEUED", "EOF", "EOF"}},
		} {
			hold()
			nc, err := s.c.Dial(t.Context(), x.addr)
			if err != nil {
				t.Fatal(err)
			}
			if got := pipeline(t, nc, x.commands...); !slices.Equal(got, x.want) {
				t.Errorf("%s: %q; want %q", x.name, got, x.want)
			}
			nc.Close()
			mend()
		}
		hold()
		reply := neokv.ReplyError("")
		_, err := s.c.Do(t.Context(), "SET", stuck, "v")
		if !errors.Is(err, neokv.ErrUnknownOutcome) || !errors.As(err, &reply) {
			t.Errorf("a call of Go: %v", err)
		}
		mend()
		if got := s.ask(t, home, "INFO", "stats"); !strings.Contains(got, "client_unknown_outcome_disconnections:4\r\n") {
			t.Errorf("of 4 connections that were closed at a store INFO has: %s", got)
		}
	})
}
