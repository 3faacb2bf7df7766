package sim

import (
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
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
