package chat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// mapDatabase is a Database in a map. Its hooks plant defects.
type mapDatabase struct {
	mu    sync.Mutex
	data  map[string]mapValue
	calls int // of Commit

	// commit returns what is really written, and what the caller is told; nil for no defect.
	commit func(n int, writes []Write) ([]Write, error)
	// scanned changes what a scan returns.
	scanned func([]Stored) []Stored
	// got changes what a get returns.
	got func(key, value string, found bool) (string, bool)
	// immortal values have no end.
	immortal bool
}

type mapValue struct {
	text string
	ends time.Time // zero for never
}

func newMapDatabase() *mapDatabase { return &mapDatabase{data: make(map[string]mapValue)} }

func (d *mapDatabase) live(v mapValue) bool {
	return v.ends.IsZero() || d.immortal || time.Now().Before(v.ends)
}

func (d *mapDatabase) Get(ctx context.Context, key string) (value string, found bool, err error) {
	time.Sleep(100 * time.Microsecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	v, found := d.data[key]
	if found = found && d.live(v); found {
		value = v.text
	}
	if d.got != nil {
		value, found = d.got(key, value, found)
	}
	return value, found, nil
}

func (d *mapDatabase) Scan(ctx context.Context, tag, prefix string, limit int) (all []Stored, err error) {
	if !strings.HasPrefix(prefix, "{"+tag+"}:") {
		return nil, fmt.Errorf("scan of %s with the tag %s", prefix, tag)
	}
	time.Sleep(100 * time.Microsecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, v := range d.data {
		if strings.HasPrefix(key, prefix) && d.live(v) {
			all = append(all, Stored{key, v.text})
		}
	}
	slices.SortFunc(all, func(a, b Stored) int { return strings.Compare(a.Key, b.Key) })
	all = all[:min(len(all), limit)]
	if d.scanned != nil {
		all = d.scanned(all)
	}
	return all, nil
}

func (d *mapDatabase) Commit(ctx context.Context, writes []Write) (err error) {
	time.Sleep(100 * time.Microsecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range writes {
		if tag, _, _ := strings.Cut(writes[0].Key, ":"); !strings.HasPrefix(w.Key, tag+":") {
			return fmt.Errorf("%s and %s are in different slots", writes[0].Key, w.Key)
		}
	}
	d.calls++
	if d.commit != nil {
		writes, err = d.commit(d.calls, writes)
	}
	d.apply(writes)
	return err
}

func (d *mapDatabase) apply(writes []Write) {
	for _, w := range writes {
		switch {
		case w.Delete:
			delete(d.data, w.Key)
		case w.TTL > 0:
			d.data[w.Key] = mapValue{w.Value, time.Now().Add(w.TTL)}
		default:
			d.data[w.Key] = mapValue{text: w.Value}
		}
	}
}

// errUnknown is of commits that may have happened.
var errUnknown = errors.New("who knows")

func testChat(seed uint64) *Chat {
	return New(Options{Seed: seed, Clients: 5, Tenants: []int{0, 7}, Think: 20 * time.Millisecond, Timeout: time.Second,
		Unknown: func(err error) bool { return errors.Is(err, errUnknown) }})
}

// runChat has a chat at work for some seconds, and checks it. The error is of both.
func runChat(c *Chat, db Database, seconds int) (ran, checked error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	ran = c.Run(ctx, db)
	time.Sleep(3 * time.Second)
	return ran, c.Check(context.Background(), db)
}

// TestCorrectDatabase: nothing is wrong with a database that does what it should, even if it does not say so.
func TestCorrectDatabase(t *testing.T) {
	done, unknown := map[string]int{}, 0
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			db := newMapDatabase()
			random := rand.New(rand.NewPCG(seed, 100))
			if seed > 0 {
				db.commit = func(n int, writes []Write) ([]Write, error) {
					switch random.IntN(20) {
					case 0:
						return writes, errUnknown
					case 1:
						return nil, errUnknown
					case 2: // it happens later
						time.AfterFunc(time.Duration(random.IntN(1000))*time.Millisecond, func() {
							db.mu.Lock()
							defer db.mu.Unlock()
							db.apply(writes)
						})
						return nil, errUnknown
					case 3:
						return nil, errors.New("not now")
					}
					return writes, nil
				}
			}
			c := testChat(seed)
			if ran, checked := runChat(c, db, 20); ran != nil || checked != nil {
				t.Fatalf("seed %d: %v\nin the end: %v", seed, ran, checked)
			}
			s := c.Stats()
			for _, kind := range []string{"user", "login", "logout", "message", "delivery", "friendship", "end of friendship",
				"joining", "leaving"} {
				if done[kind] += s.Done[kind]; s.Done[kind] == 0 {
					t.Errorf("seed %d: no %s", seed, kind)
				}
			}
			unknown += s.Unknown
			if seed == 0 && s.Unknown+s.Refused > 0 || seed > 0 && min(s.Unknown, s.Refused) < 20 {
				t.Errorf("seed %d: %d commits of unknown outcome, %d refused", seed, s.Unknown, s.Refused)
			}
		})
	}
	t.Logf("acknowledged: %v; of unknown outcome: %d", done, unknown)
}

// without returns writes without those to keys of a kind.
func without(writes []Write, kind string) []Write {
	return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return parts(w.Key)[0] == kind })
}

// has reports whether there is a write to a key of a kind.
func has(writes []Write, kind string) bool { return len(without(writes, kind)) < len(writes) }

// tear returns a defect: one commit in ten misses its writes to keys of a kind, and is acknowledged.
func tear(kind string) func(int, []Write) ([]Write, error) {
	torn := 0
	return func(n int, writes []Write) ([]Write, error) {
		if has(writes, kind) {
			if torn++; torn%10 == 0 {
				return without(writes, kind), nil
			}
		}
		return writes, nil
	}
}

// TestDefects: each of the invariants is seen to fail, on a database that has one defect.
func TestDefects(t *testing.T) {
	type defect struct {
		name  string
		plant func(*mapDatabase)
		want  []string // what the errors of Run and of Check say, with * for any text
	}
	on := func(commit func(n int, writes []Write) ([]Write, error)) func(*mapDatabase) {
		return func(d *mapDatabase) { d.commit = commit }
	}
	// spoil writes something else to keys of a kind.
	spoil := func(kind string, spoil func(n int, w *Write)) func(*mapDatabase) {
		return on(func(n int, writes []Write) ([]Write, error) {
			writes = slices.Clone(writes)
			for i := range writes {
				if w := &writes[i]; parts(w.Key)[0] == kind && !w.Delete && n%10 == 0 {
					spoil(n, w)
				}
			}
			return writes, nil
		})
	}
	for _, x := range []defect{
		{"the last write of a commit is dropped", on(func(n int, writes []Write) ([]Write, error) {
			return writes[:len(writes)-1], nil
		}), []string{"}:offline:*is not there; want*after message m_*(acknowledged)", "}:username:*is not there; want"}},
		{"a commit of unknown outcome is torn", on(func(n int, writes []Write) ([]Write, error) {
			if n%10 == 0 && len(writes) > 2 {
				return writes[:len(writes)/2], errUnknown
			}
			return writes, nil
		}), []string{"}:offline:*is not there; want*after message m_*(seen at {t"}},
		{"a delivery of unknown outcome is torn", on(func(n int, writes []Write) ([]Write, error) {
			if has(writes, "offline") && writes[0].Delete && len(writes) > 1 && n%2 == 0 {
				return writes[:1], errUnknown
			}
			return writes, nil
		}), []string{"}:offline:*is \"\"; want nothing after delivery of * messages to u_*(seen at {t"}},
		{"an acknowledged commit is lost", on(func(n int, writes []Write) ([]Write, error) {
			if n%10 == 0 {
				return nil, nil
			}
			return writes, nil
		}), []string{"}:msg:m_*is not there; want \"c_*after message m_*(acknowledged)", "(acknowledged)"}},
		{"a refused commit happens", on(func(n int, writes []Write) ([]Write, error) {
			if n%10 == 0 {
				return writes, errors.New("no")
			}
			return writes, nil
		}), []string{"}:msg:m_*is \"c_*want nothing"}},
		{"a delete is forgotten", on(func(n int, writes []Write) ([]Write, error) {
			return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return w.Delete && n%5 == 0 }), nil
		}), []string{"}:offline:*is \"\"; want nothing after delivery", "}:friend:*want nothing after end of friendship",
			"}:group_member:*want nothing after leaving", "}:user_groups:*want nothing after leaving"}},
		{"writes of a commit come in reverse order", on(func(n int, writes []Write) ([]Write, error) {
			writes = slices.Clone(writes)
			slices.Reverse(writes)
			return writes, nil
		}), []string{"}:session:u_*is not there; want*after login of u_*(acknowledged)"}},
		{"scans are out of order", func(d *mapDatabase) {
			d.scanned = func(all []Stored) []Stored {
				slices.Reverse(all)
				return all
			}
		}, []string{"scan of {t0}:: {t0}:username*comes before {t", "scan of {t*}:chat:c_*comes before",
			"}:chat:c_*comes before {t*which is newer"}},
		{"scans leave keys out", func(d *mapDatabase) {
			d.scanned = func(all []Stored) []Stored {
				return slices.DeleteFunc(all, func(e Stored) bool { return parts(e.Key)[0] == "msg" && numberIn(e.Key)%5 == 0 })
			}
		}, []string{"}:msg:m_*is not there; want \"c_", "}:chat:*is there, and {t*}:msg:m_*is not"}},
		{"scans have keys of others", func(d *mapDatabase) {
			d.scanned = func(all []Stored) []Stored { return append(all, Stored{"{t1}:user:u_50", "x"}) }
		}, []string{"scan of {t0}:: {t1}:user:u_50 is none of its keys"}},
		{"gets have an old value", func(d *mapDatabase) {
			old := map[string]string{}
			d.got = func(key, value string, found bool) (string, bool) {
				if before, ok := old[key]; found && ok {
					return before, true
				}
				if found {
					old[key] = value
				}
				return value, found
			}
		}, []string{"}:group:g_*want \"*members,", "a scan has found something else: {t"}},
		{"keys do not expire", func(d *mapDatabase) { d.immortal = true },
			[]string{"}:session:u_*; want nothing after login of u_*(acknowledged, for *before)"}},
		{"keys expire at once", on(func(n int, writes []Write) ([]Write, error) {
			return slices.DeleteFunc(slices.Clone(writes), func(w Write) bool { return w.TTL > 0 }), nil
		}), []string{"}:session:u_*is not there; want"}},
		{"a key that nobody wrote", spoil("msg", func(n int, w *Write) { w.Key += "x" }),
			[]string{"}:msg:m_*x is \"c_*; nobody wrote it"}},

		{"a user without a name", on(tear("username")), []string{"}:user:u_*is there, and {t*}:username:name*is not"}},
		{"a name without a user", on(tear("user")), []string{"}:username:name*is there, and {t*}:user:u_*is not"}},
		{"a name of another user", spoil("username", func(n int, w *Write) { w.Value = "u_0" }),
			[]string{"}:user:u_*has the name of {t*}:username:name*which is that of \"u_0\""}},
		{"a user of another name", spoil("user", func(n int, w *Write) { w.Value = nameOf(n) }),
			[]string{"}:username:name*names {t*}:user:u_*whose name is \"name"}},
		{"a friendship in one direction", on(func(n int, writes []Write) ([]Write, error) {
			if has(writes, "friend") && n%3 == 0 {
				return writes[:1], nil
			}
			return writes, nil
		}), []string{"}:friend:*is there, and {t*}:friend:*is not"}},
		{"a message without an entry", on(tear("chat")), []string{"}:msg:m_*has 0 entries in timelines, want one: []"}},
		{"an entry without a message", on(tear("msg")), []string{"}:chat:c_*is there, and {t*}:msg:m_*is not",
			"}:offline:u_*is there, and {t*}:msg:m_*is not"}},
		{"a message with two entries", on(func(n int, writes []Write) ([]Write, error) {
			if has(writes, "msg") && n%5 == 0 {
				again := writes[1]
				again.Key = strings.Replace(again.Key, ":99", ":98", 1)
				return append(slices.Clone(writes), again), nil
			}
			return writes, nil
		}), []string{"}:msg:m_*has 2 entries in timelines", "}:chat:c_*is not the place of {t*}:msg:m_*which is"}},
		{"a message in the queue of another user", spoil("offline", func(n int, w *Write) {
			w.Key = strings.Replace(w.Key, ":u_", ":u_1", 1)
		}), []string{"}:offline:u_1*is in the queue of u_1*, and {t*}:msg:m_*is to u_"}},
		{"a conversation that one user has", on(func(n int, writes []Write) ([]Write, error) {
			if has(writes, "conv") {
				return without(writes, "offline")[:3], nil
			}
			return writes, nil
		}), []string{"}:conv:u_*is there, and {t*}:conv:u_*is not"}},
		{"a conversation with two ends", spoil("conv", func(n int, w *Write) {
			w.Value = convOf(1000000)
		}), []string{"}:conv:u_*is \"m_1000000 is the last message\"; want",
			"}:conv:u_*is there, and {t*}:msg:m_1000000 is not"}},
		{"two users see different ends", spoil("conv", func(n int, w *Write) {
			if numberIn(w.Key) == numberIn(keyOf(0, "%s", parts(w.Key)[1])) {
				w.Value = convOf(0)
			}
		}), []string{"}:conv:u_*is \"m_*, and {t*}:conv:u_*is \"m_*; want the same",
			"}:conv:u_*names {t*}:msg:m_0, which is of c_"}},
		{"a group that counts wrong", spoil("group", func(n int, w *Write) { w.Value = groupOf(99, "?") }),
			[]string{"}:group:g_*is \"99 members, ?\"*, and there are * member records"}},
		{"members without a group", on(func(n int, writes []Write) ([]Write, error) { return without(writes, "group"), nil }),
			[]string{"}:group_member:*is there, and {t*}:group:g_*is not"}},
		{"a member who is not in the index", on(tear("user_groups")),
			[]string{"}:group_member:g_*is there, and {t*}:user_groups:u_*is not"}},
		{"an index without a member", on(tear("group_member")),
			[]string{"}:user_groups:u_*is there, and {t*}:group_member:g_*is not"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			all := ""
			missing := func() (missing []string) {
				for _, want := range x.want {
					if !slices.ContainsFunc(strings.Split(all, "\n"), func(line string) bool { return matches(line, want) }) {
						missing = append(missing, want)
					}
				}
				return missing
			}
			for seed := uint64(1); seed <= 8 && (all == "" || missing() != nil); seed++ {
				synctest.Test(t, func(t *testing.T) {
					db := newMapDatabase()
					x.plant(db)
					ran, checked := runChat(testChat(seed), db, 10)
					all += fmt.Sprintf("%v\n%v\n", ran, checked)
				})
			}
			if m := missing(); m != nil {
				t.Errorf("no error is like %q:\n%.4000s", m, all)
			}
		})
	}
}

// matches reports whether a line has the pieces between the stars of a pattern, in order.
func matches(line, pattern string) bool {
	for piece := range strings.SplitSeq(pattern, "*") {
		i := strings.Index(line, piece)
		if i < 0 {
			return false
		}
		line = line[i+len(piece):]
	}
	return true
}
