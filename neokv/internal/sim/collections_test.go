package sim

import (
	"fmt"
	"testing"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
)

// TestSweeps: a region knows that it has held collections as long as it holds any, deleted or expiring ones included,
// and forgets it soon after the last one.
func TestSweeps(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		at := s.session(t, s.leads(t))
		const strings = 3000 // more than one step of a sweep looks at
		for i := range strings {
			at.w.call("SET", s.nearby(i), "v")
		}
		held := func(want bool, when string) {
			t.Helper()
			s.onAll(t, when, func(_ [][]byte, state keys.RegionState) string {
				if state.CollectedAt != 0 != want || state.CollectedIn != 0 != want {
					return fmt.Sprintf("last write of a collection at index %d, in %#x; want any %v",
						state.CollectedAt, state.CollectedIn, want)
				}
				return ""
			})
		}
		first, second := s.nearby(strings), s.nearby(strings+1)
		at.ask("HSET", first, "f", "v")
		at.ask("HSET", second, "f", "v")
		at.ask("PEXPIRE", second, "200000")
		time.Sleep(3 * time.Minute) // sweeps must change nothing
		held(true, "with two hashes")
		if got := at.ask("DEL", first); got != "1" {
			t.Errorf("DEL = %s", got)
		}
		time.Sleep(10 * time.Second) // as above
		held(true, "with one that expires soon")
		held(false, "with none")
		at.ask("SET", first, "v") // does not look for a collection
		at.ask("HSET", second, "f", "v")
		held(true, "with one again")
		if got := at.ask("HGET", second, "f"); got != "v" {
			t.Errorf("HGET = %s", got)
		}
	})
}

// onAll waits until wrong finds nothing wrong with region 1 on any store, for ten minutes at most.
func (s *sim) onAll(t *testing.T, when string, wrong func(content [][]byte, state keys.RegionState) string) {
	t.Helper()
	for _, n := range s.nodes {
		for end := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Second) {
			content, err := regionContent(n.Store(), 1)
			if err != nil {
				t.Fatal(err)
			}
			state, err := keys.ParseRegionState(content[0])
			if err != nil {
				t.Fatal(err)
			}
			what := wrong(content, state)
			if what == "" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("store %d, %s: %s", n.ID(), when, what)
			}
		}
	}
}

// TestLegacyStrings: legacy strings are read, migrated and cleared through the log, alike on all stores, and the
// region forgets them when none is left.
func TestLegacyStrings(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		at := s.session(t, s.leads(t))
		expect := func(want string, args ...string) {
			t.Helper()
			if got := at.ask(args...); got != want {
				t.Errorf("%q = %q; want %q", args, got, want)
			}
		}
		held := func(want int, any bool, when string) {
			t.Helper()
			s.onAll(t, when, func(content [][]byte, state keys.RegionState) string {
				have := 0
				for i := 1; i < len(content); i += 2 {
					if k, err := keys.ParseRedis(content[i]); err == nil && k.Legacy() {
						have++
					}
				}
				if have != want || state.Legacy != any {
					return fmt.Sprintf("%d legacy strings, the state says %v; want %d, and %v",
						have, state.Legacy, want, any)
				}
				return ""
			})
		}
		a, b, brief, h := s.nearby(0), s.nearby(1), s.nearby(2), s.nearby(3)
		expect("1", "HSET", h, "f", "v")
		expect("OK", "NeoKV", "LegacySet", a, "one")
		expect("OK", "NEOKV", "LEGACYSET", b, "2")
		expect("OK", "NEOKV", "LEGACYSET", brief, "gone soon", "px", "1000")
		expect("OK", "NEOKV", "LEGACYSET", h, "over a hash")
		expect("one", "GET", a)
		expect("over a hash", "GET", h)
		expect("gone soon", "GET", brief)
		until(t, "end of the string with a TTL", func() bool { return at.ask("GET", brief) == "" })
		expect("3", "DBSIZE")
		expect("WRONGTYPE", "SADD", a, "m")
		held(4, true, "before any is written")
		expect("3", "INCR", b)
		expect("OK", "SET", a, "new")
		held(2, true, "when two are migrated")
		expect("1", "DEL", h)
		expect("OK", "SET", b, "new")
		time.Sleep(5 * time.Minute) // sweeps must not overlook it
		held(1, true, "with one that has expired")
		expect("OK", "SET", brief, "new")
		held(0, false, "with none")
		expect("OK", "NEOKV", "LEGACYSET", b, "2")
		expect("OK", "FLUSHDB")
		expect("", "GET", b)
		held(0, false, "behind FLUSHDB")
	})
}
