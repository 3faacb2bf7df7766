package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// operation is something that clients do again and again; a scenario names it.
type operation struct {
	name string
	run  func(*user) error
}

// user is a client about to do its next operation, on keys of one region.
type user struct {
	*sim
	c      *caller
	region int
	n      int // of the operation
}

// operations is the vocabulary of scenarios. Which keys there are, names.go says.
var operations = []operation{
	// A register, and a counter.
	{"reads", func(u *user) error { return u.do(get, 'r', "") }},
	{"writes", func(u *user) error { return u.do(set, 'r', u.value()) }},
	{"increments", func(u *user) error { return u.do(incr, 'c', "") }},
	{"counter reads", func(u *user) error { return u.do(get, 'c', "") }},

	// Transactions: on the counter, and between three numbers of a slot. The latter by scripts, too.
	{"watched increments", func(u *user) error { return u.do(watchedIncr, 'c', "") }},
	{"transfers of amounts", func(u *user) error {
		return u.do(move, 'm', fmt.Sprint(u.cells(2, false), " ", 1+u.c.random.IntN(9)))
	}},
	{"scripted transfers", func(u *user) error {
		return u.do(moveScript, 'm', fmt.Sprint(u.cells(2, false), " ", 1+u.c.random.IntN(9), " ", u.c.random.IntN(100)))
	}},
	{"reads of amounts", func(u *user) error { return u.do(mget, 'm', "") }},

	// Many counters, each of one client.
	{"lone increments", func(u *user) error {
		_, err := u.c.do(incr, fmt.Sprintf("x%d-%d{%s}", u.c.id, u.n/8, regionTags[u.c.id%simRegions]), "")
		return err
	}},

	// A lock, that one client at a time holds.
	{"locks", func(u *user) error { return u.do(setNX, 'n', u.value()) }},
	{"unlocks", func(u *user) error { return u.do(del, 'n', "") }},
	{"lock reads", func(u *user) error { return u.do(get, 'n', "") }},

	// A string that expires.
	{"expiring writes", func(u *user) error { return u.doFor(set, 'e', u.value(), randomTTL(u.c.random)) }},
	{"expiring reads", func(u *user) error { return u.do(get, 'e', "") }},
	{"expiring deletes", func(u *user) error { return u.do(del, 'e', "") }},
	{"expiring persists", func(u *user) error { return u.do(keep, 'e', "") }},

	// A field of a hash.
	{"field increments", func(u *user) error { return u.do(hincr, 'h', "1") }},
	{"field reads", func(u *user) error { return u.do(hget, 'h', "") }},
	{"field deletes", func(u *user) error { return u.do(hdel, 'h', "") }},
	{"hash deletes", func(u *user) error { return u.do(del, 'h', "") }},

	// Two hashes of many fields, which make work for the reclaimer. Their histories are not checked.
	{"fills", func(u *user) error { return u.do(hfill, 'o', fmt.Sprint(1+u.c.random.IntN(40))) }},
	{"copies", func(u *user) error { return u.do(copyTo, 'o', u.key('p', u.region)) }},
	{"filled deletes", func(u *user) error { return u.do(del, u.one("op"), "") }},
	{"filled expiries", func(u *user) error { return u.do(fade, u.one("op"), fmt.Sprint(u.c.random.IntN(300))) }},
	{"filled overwrites", func(u *user) error { return u.do(set, u.one("op"), u.value()) }},

	// A list, a set and a sorted set. Members of the last two come again now and then.
	{"left pushes", func(u *user) error { return u.do(lpush, 'l', u.value()) }},
	{"right pushes", func(u *user) error { return u.do(rpush, 'l', u.value()) }},
	{"left pops", func(u *user) error { return u.do(lpop, 'l', "") }},
	{"right pops", func(u *user) error { return u.do(rpop, 'l', "") }},
	{"list reads", func(u *user) error { return u.do(lrange, 'l', "") }},
	{"set adds", func(u *user) error { return u.do(sadd, 's', u.member()) }},
	{"set pops", func(u *user) error { return u.do(spop, 's', "") }},
	{"set reads", func(u *user) error { return u.do(smembers, 's', "") }},
	{"zset adds", func(u *user) error { return u.do(zadd, 'z', fmt.Sprint(u.c.random.IntN(10), " ", u.member())) }},
	{"zset pops", func(u *user) error { return u.do(zpopmin, 'z', "") }},
	{"zset reads", func(u *user) error { return u.do(zrange, 'z', "") }},

	// One of these three as a whole.
	{"collection deletes", func(u *user) error { return u.do(del, u.one("lsz"), "") }},
	{"collection expiries", func(u *user) error {
		return u.doFor(fade, u.one("lsz"), "", max(time.Millisecond, randomTTL(u.c.random)))
	}},
	{"collection persists", func(u *user) error { return u.do(keep, u.one("lsz"), "") }},
	{"collection overwrites", func(u *user) error { return u.do(set, u.one("lsz"), overwritten) }},

	// Three sets of a slot, between which members move.
	{"member moves", func(u *user) error { return u.request(u.onSets(u.region)) }},

	// Several strings of a slot, several fields of a hash, and several commands at once.
	{"several strings", func(u *user) error { return u.request(u.onStrings(u.region)) }},
	{"several fields", func(u *user) error { return u.request(u.onFields(u.region)) }},
	{"pipelines", (*user).pipeline},
}

// do runs one command on the key of a sort.
func (u *user) do(k opName, sort byte, value string) error { return u.doFor(k, sort, value, 0) }

// doFor is do with a time to live, 0 for none.
func (u *user) doFor(k opName, sort byte, value string, ttl time.Duration) error {
	_, err := u.c.doFor(k, u.key(sort, u.region), value, ttl)
	return err
}

func (u *user) request(r request) error {
	_, err := u.c.do(r.kind, r.key, r.value)
	return err
}

// value is one that no other operation writes.
func (u *user) value() string { return fmt.Sprintf("%d-%d", u.c.id, u.n) }

// member is a member that twenty operations of this client share.
func (u *user) member() string { return fmt.Sprintf("%d-%d", u.c.id, u.n/20) }

// one chooses one of several sorts of keys.
func (u *user) one(sorts string) byte { return sorts[u.c.random.IntN(len(sorts))] }

// randomTTL is mostly short, and none at all in one of eight.
func randomTTL(random *rand.Rand) time.Duration {
	if random.IntN(8) == 0 {
		return 0
	}
	return time.Duration(1+math.Exp(random.Float64()*math.Log(8000))) * time.Millisecond
}

// cells names some cells in any order, each followed by a value if values is set.
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

// onStrings chooses a command on one or several strings of a slot.
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

// onFields chooses a command on several fields of a hash.
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
