package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// client runs operations until the schedule is over. mix says which: one letter per operation, equally likely. R and W read and
// set registers, + and # count and read counters, N, D and L set locks, delete them and look at them. X sets keys that expire, E, Z and P
// read, delete and persist them. H, h, F and G count, read, delete and delete with its hash a field of a hash. O, C, U, V and S fill, copy, delete,
// let expire and set strings over hashes that nobody reads. l, r, p, q and i push, pop and read lists, s, m and d sets, z, x and y sorted sets; of
// these three, k deletes one, f lets it expire, a keeps it, and w sets a string over it.
func (s *sim) client(id int, p plan, think time.Duration) {
	c := s.newCaller(id)
	c.readOnly = id%3 == 1
	if p.general && id%3 == 2 || p.proxied {
		c.proxied, c.addrs = true, []string{s.c.ProxyAddr()}
	}
	mix, others := p.mix, weights(p.also)
	defer c.close()
	for n := 0; s.sleep(time.Duration(c.random.ExpFloat64() * float64(think))); n++ {
		region := c.random.IntN(simRegions)
		value := fmt.Sprintf("%d-%d", id, n)
		var err error
		choice := c.random.IntN(len(mix) + others)
		if choice >= len(mix) {
			s.fail(choose(p.also, choice-len(mix)).run(&user{s, c, region, n}))
			continue
		}
		switch mix[choice] {
		case 'R':
			_, err = c.do(get, s.key('r', region), "")
		case 'W':
			_, err = c.do(set, s.key('r', region), value)
		case '+':
			_, err = c.do(incr, s.key('c', region), "")
		case '#':
			_, err = c.do(get, s.key('c', region), "")
		case 'N':
			_, err = c.do(setNX, s.key('n', region), value)
		case 'D':
			_, err = c.do(del, s.key('n', region), "")
		case 'L':
			_, err = c.do(get, s.key('n', region), "")
		case 'X':
			_, err = c.doFor(set, s.key('e', region), value, randomTTL(c.random))
		case 'E':
			_, err = c.do(get, s.key('e', region), "")
		case 'Z':
			_, err = c.do(del, s.key('e', region), "")
		case 'P':
			_, err = c.do(keep, s.key('e', region), "")
		case 'H':
			_, err = c.do(hincr, s.key('h', region), "1")
		case 'h':
			_, err = c.do(hget, s.key('h', region), "")
		case 'F':
			_, err = c.do(hdel, s.key('h', region), "")
		case 'G':
			_, err = c.do(del, s.key('h', region), "")
		case 'O':
			_, err = c.do(hfill, s.key('o', region), fmt.Sprint(1+c.random.IntN(40)))
		case 'C':
			_, err = c.do(copyTo, s.key('o', region), s.key('p', region))
		case 'U':
			_, err = c.do(del, s.key("op"[c.random.IntN(2)], region), "")
		case 'S':
			_, err = c.do(set, s.key("op"[c.random.IntN(2)], region), value)
		case 'l':
			_, err = c.do(lpush, s.key('l', region), value)
		case 'r':
			_, err = c.do(rpush, s.key('l', region), value)
		case 'p':
			_, err = c.do(lpop, s.key('l', region), "")
		case 'q':
			_, err = c.do(rpop, s.key('l', region), "")
		case 'i':
			_, err = c.do(lrange, s.key('l', region), "")
		case 's':
			_, err = c.do(sadd, s.key('s', region), fmt.Sprintf("%d-%d", id, n/20)) // now and then one that is there
		case 'd':
			_, err = c.do(spop, s.key('s', region), "")
		case 'm':
			_, err = c.do(smembers, s.key('s', region), "")
		case 'z':
			_, err = c.do(zadd, s.key('z', region), fmt.Sprintf("%d %d-%d", c.random.IntN(10), id, n/20))
		case 'x':
			_, err = c.do(zpopmin, s.key('z', region), "")
		case 'y':
			_, err = c.do(zrange, s.key('z', region), "")
		case 'k':
			_, err = c.do(del, s.key("lsz"[c.random.IntN(3)], region), "")
		case 'f':
			_, err = c.doFor(fade, s.key("lsz"[c.random.IntN(3)], region), "", max(time.Millisecond, randomTTL(c.random)))
		case 'a':
			_, err = c.do(keep, s.key("lsz"[c.random.IntN(3)], region), "")
		case 'w':
			_, err = c.do(set, s.key("lsz"[c.random.IntN(3)], region), overwritten)
		case 'V':
			_, err = c.do(fade, s.key("op"[c.random.IntN(2)], region), fmt.Sprint(c.random.IntN(300)))
		}
		s.fail(err)
	}
}

// operation is one that clients choose, weight times as often as a letter of the plan's mix.
type operation struct {
	name   string
	weight int
	run    func(*user) error
}

// user is a client about to do its next operation.
type user struct {
	*sim
	c      *caller
	region int
	n      int // of the operation
}

// value is one that nobody else writes.
func (u *user) value() string { return fmt.Sprintf("%d-%d", u.c.id, u.n) }

// cells are some names of cells, in any order, each with a value if asked for.
func (u *user) cells(n int, values bool) string {
	var words []string
	for _, i := range u.c.random.Perm(len(cellNames))[:n] {
		words = append(words, cellNames[i:i+1])
		if values {
			words = append(words, fmt.Sprintf("%s.%d", u.value(), i))
		}
	}
	return strings.Join(words, " ")
}

// some is how many cells a command names.
func (u *user) some() int { return 1 + u.c.random.IntN(len(cellNames)) }

func (u *user) do(r request) error {
	_, err := u.c.doFor(r.kind, r.key, r.value, 0)
	return err
}

// Commands on several strings of a slot, and on several fields of a hash.

func (u *user) multiKey() error { return u.do(u.onStrings(u.region)) }

func (u *user) multiField() error { return u.do(u.onFields(u.region)) }

func (u *user) onStrings(region int) request {
	r := request{key: u.key('g', region)}
	switch u.c.random.IntN(12) {
	case 0, 1, 2:
		r.kind, r.value = mset, u.cells(u.some(), true)
	case 3:
		r.kind, r.value = msetNX, u.cells(u.some(), true)
	case 4:
		r.kind, r.value = set, u.cells(1, true)
	case 5:
		r.kind, r.value = get, u.cells(1, false)
	case 6:
		r.kind, r.value = rename, u.cells(2, false)
	case 7:
		r.kind, r.value = copyTo, u.cells(2, false)
	case 8:
		r.kind, r.value = del, u.cells(u.some(), false)
	default:
		r.kind = mget
	}
	return r
}

func (u *user) onFields(region int) request {
	r := request{key: u.key('j', region)}
	switch u.c.random.IntN(6) {
	case 0, 1:
		r.kind, r.value = hfill, u.cells(u.some(), true)
	case 2:
		r.kind, r.value = hdel, u.cells(u.some(), false)
	default:
		r.kind = hmget
	}
	return r
}

// pipeline sends several commands at once: through the proxy port to any region, to a store to one.
func (u *user) pipeline() error {
	requests := make([]request, 2+u.c.random.IntN(7))
	first := u.n
	for i := range requests {
		region := u.region
		if u.c.proxied {
			region = u.c.random.IntN(simRegions)
		}
		u.n = first*10 + i
		r := &requests[i]
		switch u.c.random.IntN(8) {
		case 0, 1:
			*r = request{kind: set, key: u.key('r', region), value: "p" + u.value()}
		case 2:
			*r = request{kind: get, key: u.key('r', region)}
		case 3, 4:
			*r = request{kind: incr, key: u.key('c', region)}
		case 5:
			*r = request{kind: get, key: u.key('c', region)}
		case 6:
			*r = u.onStrings(region)
		case 7:
			*r = u.onFields(region)
		}
	}
	u.n = first
	return u.c.pipe(requests)
}

// everyday is what the clients of every general plan do besides its mix.
var everyday = []operation{
	{"several strings", 3, (*user).multiKey},
	{"several fields", 2, (*user).multiField},
	{"pipeline", 2, (*user).pipeline},
}

// choose returns which of them a number below the sum of their weights stands for.
func choose(operations []operation, n int) operation {
	i := slices.IndexFunc(operations, func(o operation) bool {
		n -= o.weight
		return n < 0
	})
	return operations[i]
}

func weights(operations []operation) (sum int) {
	for _, o := range operations {
		sum += o.weight
	}
	return sum
}

// randomTTL is mostly short, and none at all in one of eight.
func randomTTL(random *rand.Rand) time.Duration {
	if random.IntN(8) == 0 {
		return 0
	}
	return time.Duration(1+math.Exp(random.Float64()*math.Log(8000))) * time.Millisecond
}

// finalReads reads every key: with them an acknowledged write that is lost shows up in the history, and a cluster that does not serve
// again is found.
func (s *sim) finalReads() {
	c := s.newCaller(99)
	defer c.close()
	for _, epoch := range s.epochs {
		for region := range simRegions {
			for i, k := range []kind{get, get, get, get, hget, lrange, smembers, zrange, mget, hmget} {
				key, ok := simKey("rcnehlszgj"[i], epoch, region), false
				for deadline := time.Now().Add(20 * time.Second); !ok && time.Now().Before(deadline); {
					var err error
					if ok, err = c.do(k, key, ""); err != nil {
						s.fail(err)
						return
					}
				}
				if !ok {
					s.fail(found(noAnswer, "key %s: no answer in 20s after everything was healed", key))
					return
				}
			}
		}
	}
}
