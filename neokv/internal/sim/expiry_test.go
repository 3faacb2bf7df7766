package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// expiry is an operation's part in the check of keys that expire. Its instants are of the true time, since the history's start, which no
// store knows: clocks are off by up to history.skew.
type expiry struct {
	ttl          time.Duration // of a SET, 0 for none
	began, ended time.Duration // ended is forever while the outcome is unknown
	// What a SET stores is gone before mayGo for nobody, and from mustGo on for everybody.
	mayGo, mustGo time.Duration
}

const forever = time.Duration(math.MaxInt64)

func begun(at time.Duration) expiry { return expiry{began: at, ended: forever, mustGo: forever} }

// done enters when the reply came. The region time of every entry lies within skew of the true time between the operation's begin and
// end, and so does, of its own time, the leader's time by which anybody judges; two ms are lost in rounding.
func (x *expiry) done(at, skew time.Duration) {
	x.ended = at
	x.mustGo = at + x.ttl + 2*skew + 2*time.Millisecond
}

// lives enters a SET's time to live.
func (x *expiry) lives(ttl, skew time.Duration) {
	x.ttl, x.mayGo = ttl, x.began+ttl-2*skew-2*time.Millisecond
}

// modelOf is the model of a key's history.
func modelOf(ops []*op) porcupine.Model {
	m := model
	if slices.ContainsFunc(ops, func(o *op) bool { return o.ttl > 0 || o.kind == keep || o.kind == spop && o.end == 0 }) {
		m = expiring
	}
	if slices.ContainsFunc(ops, func(o *op) bool { return o.line != 0 }) {
		m = ordered(m)
	}
	return m
}

// held is a key that may expire.
type held struct {
	value string // see effect
	by    *op    // whose time to live runs, nil for none
}

// expiring is the model of a key that has a time to live: it may go by itself once, at any moment between its writer's mayGo and
// mustGo, and does not come back. An SPOP without an output may have taken any member.
var expiring = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{held{}} },
	Step: func(state, input, output any) (next []any) {
		h, o, got := state.(held), input.(*op), output.(*string)
		try := func(before held, popped string) {
			after := before
			var want string
			after.value, want = o.effect(before.value, popped)
			switch {
			case o.kind == keep:
				want = "0"
				if before.by != nil {
					after.by, want = nil, "1"
				}
			case after.value == "" || o.kind == set:
				after.by = nil
			}
			if o.ttl > 0 && after.value != "" {
				after.by = o
			}
			if o.changesNothing {
				after = before
			}
			if got == nil || *got == want {
				next = append(next, after)
			}
		}
		each := func(before held) {
			switch members := strings.Fields(before.value); {
			case got != nil:
				try(before, *got)
			case o.kind == spop && len(members) > 0:
				for _, member := range members {
					try(before, member)
				}
			default:
				try(before, "")
			}
		}
		if h.by == nil || o.began < h.by.mustGo {
			each(h)
		}
		if h.by != nil && o.ended >= h.by.mayGo {
			each(held{})
		}
		return next
	},
}).ToModel()

// TestExpiryIsChecked gives the checker histories of keys that expire, of which the verdict is plain. An operation takes a second, and
// clocks are up to a second off.
func TestExpiryIsChecked(t *testing.T) {
	const second = time.Second
	write := func(value string, at, ttl time.Duration, known bool) *op {
		o := &op{kind: set, key: "k", value: value, call: int64(at), expiry: begun(at)}
		o.lives(ttl, second)
		if known {
			o.end, o.reply = int64(at+second), "OK"
			o.done(at+second, second)
		}
		return o
	}
	ask := func(k kind, at time.Duration, reply string) *op {
		o := &op{kind: k, key: "k", call: int64(at), end: int64(at + second), reply: reply, expiry: begun(at)}
		o.done(at+second, second)
		return o
	}
	push := func(value string, at time.Duration) *op {
		o := ask(rpush, at, "1")
		o.value = value
		return o
	}
	fades := func(at, ttl time.Duration) *op {
		o := ask(fade, at, "1")
		o.lives(ttl, second)
		o.done(at+second, second)
		return o
	}
	for _, x := range []struct {
		name string
		ops  []*op
		ok   bool
	}{
		{"read before it may go", []*op{write("a", 0, 10*second, true), ask(get, 6*second, "a")}, true},
		{"gone too early", []*op{write("a", 0, 10*second, true), ask(get, 6*second, "")}, false},
		{"gone when it may", []*op{write("a", 0, 10*second, true), ask(get, 7*second, "")}, true},
		{"there as long as it may", []*op{write("a", 0, 10*second, true), ask(get, 13*second, "a")}, true},
		{"there too long", []*op{write("a", 0, 10*second, true), ask(get, 14*second, "a")}, false},
		{"it comes back", []*op{write("a", 0, 10*second, true), ask(get, 8*second, ""), ask(get, 10*second, "a")}, false},
		{"a write of unknown outcome stays", []*op{write("a", 0, 10*second, false), ask(get, 50*second, "a")}, true},
		{"a write of unknown outcome goes early", []*op{write("a", 0, 10*second, false), ask(get, second, "a"), ask(get, 6*second, "")}, false},
		{"an unread write of unknown outcome takes another away", []*op{write("a", 0, 100*second, true), write("b", second, 10*second, false), ask(get, 12*second, "")}, true},
		{"deleted early", []*op{write("a", 0, 10*second, true), ask(del, 6*second, "0")}, false},
		{"persisted and gone", []*op{write("a", 0, 10*second, true), ask(keep, 3*second, "1"), ask(get, 30*second, "")}, false},
		{"persisted", []*op{write("a", 0, 10*second, true), ask(keep, 3*second, "1"), ask(get, 30*second, "a")}, true},
		{"a list is gone too early", []*op{push("a", 0), fades(second, 10*second), ask(lrange, 6*second, "a"), ask(lpop, 6*second, "")}, false},
		{"a list is gone when it may", []*op{push("a", 0), fades(second, 10*second), ask(lrange, 6*second, "a"), ask(lpop, 9*second, ""), push("1", 14*second), ask(lrange, 30*second, "1")}, true},
		{"a time to live goes with the last element", []*op{push("a", 0), fades(second, 10*second), ask(lpop, 3*second, "a"), push("b", 4*second), ask(lrange, 30*second, "")}, false},
		{"a list that was emptied stays", []*op{push("a", 0), fades(second, 10*second), ask(lpop, 3*second, "a"), push("b", 4*second), ask(lrange, 30*second, "b")}, true},
		{"nothing to persist", []*op{write("a", 0, 10*second, true), ask(keep, 8*second, "0"), ask(get, 10*second, "a")}, false},
	} {
		h := &history{ops: x.ops, skew: second}
		if err := h.check(); (err == nil) != x.ok {
			t.Errorf("%s: check = %v; want right %v", x.name, err, x.ok)
		}
	}
}

// Plans.

// skewClocks has stores' clocks disagree, by how much the seed says, and by nothing in one seed of four.
func (s *sim) skewClocks(f *store.Faults) {
	random := s.random(2)
	s.h.skew = []time.Duration{0, 50 * time.Millisecond, time.Second, 5 * time.Second}[random.IntN(4)]
	for i := range s.skews {
		s.skew(i, random)
	}
	f.Region.Skew = func(id topology.StoreID) time.Duration { return time.Duration(s.skews[id-1].Load()) }
}

// skew sets a store's clock.
func (s *sim) skew(store int, random *rand.Rand) {
	d := time.Duration((2*random.Float64() - 1) * float64(s.h.skew)).Truncate(time.Millisecond)
	s.h.note("clock of %d is %s ahead", store+1, d)
	s.skews[store].Store(int64(d))
}

// setting sets clocks, forward and back.
func setting(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(200+random.IntN(4000)) * time.Millisecond) {
		s.skew(random.IntN(len(s.nodes)), random)
	}
}

// expiries is everything that happens, to keys that expire, while clocks are set.
var expiries = plan{
	name: "expiries", seams: (*sim).everyNature,
	lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing, setting}, clients: 6, mix: "XXXEEEEEZPR", also: everyday, general: true,
}

// wandering moves the leaders about among stores whose clocks disagree, and sets the clocks.
func wandering(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(400)) * time.Millisecond) {
		s.transfer(topology.RegionID(1+random.IntN(simRegions)), s.nodes[random.IntN(len(s.nodes))])
		if random.IntN(4) == 0 {
			s.skew(random.IntN(len(s.nodes)), random)
		}
	}
}

// randomTTL is mostly short, and none at all in one of eight.
func randomTTL(random *rand.Rand) time.Duration {
	if random.IntN(8) == 0 {
		return 0
	}
	return time.Duration(1+math.Exp(random.Float64()*math.Log(8000))) * time.Millisecond
}

// TestExpiriesVirtual runs seeds of the plan.
func TestExpiriesVirtual(t *testing.T) {
	b := newBatch(t, expiries, false, 15*time.Second)
	b.run(1, 40, false)
	for _, r := range b.failed {
		t.Errorf("seed %d: %s\nagain: %s", r.Seed, r.Problem, b.again(r.Seed))
	}
	t.Logf("%s", b)
}

// TestExpiredKeysVanish: what has expired leaves the disks of all stores soon, with nobody asking for it, and nothing else does. Then the
// cleaner has nothing to do, and does nothing.
func TestExpiredKeysVanish(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		const expiring, staying = 400, 100
		at := s.session(t, s.leads(t))
		for i := range expiring {
			at.w.call("SET", s.nearby(i), "v", "PX", strconv.Itoa(500+10*i))
		}
		for i := range staying {
			at.w.call("SET", s.nearby(expiring+i), "v")
		}
		at.w.call("SET", s.nearby(expiring+staying), "v", "EX", "100000")
		if got := at.ask("DBSIZE"); got != strconv.Itoa(expiring+staying+1) {
			t.Fatalf("DBSIZE = %s before anything expires", got)
		}
		s.records(t, 70*time.Second, staying+1) // samples may miss the last few; the next round does not
		if got := at.ask("DBSIZE"); got != strconv.Itoa(staying+1) {
			t.Errorf("DBSIZE = %s, want %d", got, staying+1)
		}
		if got := s.expired(); got != expiring {
			t.Errorf("%d keys counted as expired, want %d", got, expiring)
		}
		entries := s.appliedEntries()
		time.Sleep(2 * time.Minute)
		if got := s.appliedEntries() - entries; got != 0 {
			t.Errorf("%d entries in two minutes in which nothing expired", got)
		}
	})
}

// TestCleanerRounds: without samples a round deletes what has expired among expire_keys keys of a region, the next round goes on from
// there, and the records behind are as safe as they were.
func TestCleanerRounds(t *testing.T) {
	k := simSettings()
	k.Redis.ExpireSample, k.Redis.ExpireKeys, k.Redis.ExpireInterval = 0, 100, 5*time.Second
	inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		const n = 350
		at := s.session(t, s.leads(t))
		for i := range n {
			at.w.call("SET", s.nearby(i), "v", "PX", "1000")
		}
		before, left := time.Now(), n
		for left > 0 {
			s.records(t, 10*time.Second, max(0, left-100))
			left -= 100
		}
		if took := time.Since(before); took < 15*time.Second || took > 21*time.Second {
			t.Errorf("%d keys vanished in %s at 100 every 5s", n, took)
		}
	})
}

// TestManyExpiredKeysGiveSpaceBack: where many keys have vanished every store flushes its memtable, though nothing is written any more,
// and does so once.
func TestManyExpiredKeysGiveSpaceBack(t *testing.T) {
	k := simSettings()
	k.Engine.MemtableSize, k.Raft.SnapshotEntries = 96<<20, 1_000_000 // nothing is flushed for want of room, or because the log is cut
	inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		const n = 12_000
		at := s.session(t, s.leads(t))
		flushes := func() (all []int64) {
			for _, node := range s.nodes {
				all = append(all, node.Store().Counters().Engine.Flushes)
			}
			return all
		}
		for i := range n {
			at.w.call("SET", s.nearby(i), "v", "EX", "30")
		}
		if n, _ := strconv.Atoi(at.ask("DBSIZE")); n == 0 {
			t.Fatal("the keys are gone before they have been counted")
		}
		before := flushes()
		for deadline := time.Now().Add(2 * time.Minute); s.expired() < n && time.Now().Before(deadline); {
			time.Sleep(time.Second)
		}
		s.records(t, 0, 0)
		time.Sleep(2 * time.Minute)
		once := flushes()
		for i := range once {
			if once[i] == before[i] {
				t.Errorf("flushes %d, and %d when %d keys had been deleted for two minutes", before, once, n)
			}
		}
		time.Sleep(5 * time.Minute)
		if got := flushes(); !slices.Equal(got, once) {
			t.Errorf("flushes %d, and %d five minutes later", once, got)
		}
	})
}

// TestExpirySwitchedOff: nothing is deleted while the switch is off, or by settings that say so; nobody sees an expired key all the same.
func TestExpirySwitchedOff(t *testing.T) {
	never := simSettings()
	never.Redis.ExpireSample, never.Redis.ExpireInterval = 0, 0
	for name, k := range map[string]*settings.Settings{"settings": never, "switch": simSettings()} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
				at := s.session(t, s.leads(t))
				set := func(on string) {
					if got := at.ask("DEBUG", "SET-ACTIVE-EXPIRE", on); got != "OK" {
						t.Errorf("DEBUG SET-ACTIVE-EXPIRE = %s", got)
					}
				}
				if k != never {
					set("0")
				}
				at.w.call("SET", s.nearby(0), "v", "PX", "100")
				time.Sleep(70 * time.Second)
				if got := at.ask("EXISTS", s.nearby(0)); got != "0" {
					t.Errorf("EXISTS = %s of an expired key", got)
				}
				s.records(t, 0, 1)
				if k != never {
					set("1")
					s.records(t, time.Second, 0)
					if got := at.ask("INFO", "stats"); !strings.Contains(got, "\r\nexpired_keys:1\r\n") {
						t.Errorf("INFO stats = %s, want expired_keys:1", got)
					}
				}
			})
		})
	}
}

// leads is the store that leads the region of the keys of nearby.
func (s *sim) leads(t *testing.T) seam.Node {
	n, _ := s.leader(1)
	if n == nil {
		t.Fatal("region 1 has no leader")
	}
	return n
}

// nearby names keys of region 1, in slots of their own.
func (s *sim) nearby(i int) string {
	slots := topology.SplitEvenly(simRegions)[0]
	for n := i; ; n += 100_000 {
		if key := strconv.Itoa(n); slots.Contains(topology.SlotOf([]byte(key))) {
			return key
		}
	}
}

// records waits until every store's engine holds so many records of keys of region 1.
func (s *sim) records(t *testing.T, patience time.Duration, want int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		have := make([]int, 0, len(s.nodes))
		good := true
		for _, n := range s.nodes {
			content, err := regionContent(n.Store(), 1)
			if late := (*lagging)(nil); err != nil && !errors.As(err, &late) { // a follower hears later what it may apply
				t.Fatal(err)
			}
			have = append(have, len(content)/2)
			good = good && len(content)/2 == want
		}
		if good {
			return
		}
		if !time.Now().Before(deadline) {
			t.Fatalf("the stores hold %d records after %s, want %d", have, patience, want)
		}
	}
}

// expired sums the stores' counters.
func (s *sim) expired() (n uint64) {
	for _, node := range s.nodes {
		for _, c := range node.Store().Counters().Regions {
			n += c.ExpiredKeys.Load()
		}
	}
	return n
}

func (s *sim) appliedEntries() (n uint64) {
	for _, node := range s.nodes {
		for _, c := range node.Store().Counters().Regions {
			n += c.AppliedEntries.Load()
		}
	}
	return n
}
