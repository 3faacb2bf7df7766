package sim

import (
	"fmt"
	"slices"
	"strings"
)

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

func (u *user) multiKey() error   { return u.do(u.onStrings(u.region)) }
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
