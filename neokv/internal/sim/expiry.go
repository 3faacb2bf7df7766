package sim

import (
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// expiry is what the model of keys that expire needs to know of an operation. Its instants are of the true time since
// the start of the history. No store knows it: clocks are off by up to history.skew.
type expiry struct {
	ttl          time.Duration // the time to live that the operation gives the key; 0 for none
	began, ended time.Duration // ended is forever while the outcome is unknown
	// The key still holds its value for all readers before mayGo, and for none from mustGo on.
	mayGo, mustGo time.Duration
}

const forever = time.Duration(math.MaxInt64)

// begun is the expiry of an operation that begins.
func begun(at time.Duration) expiry { return expiry{began: at, ended: forever, mustGo: forever} }

// done enters when the reply came. The region time of the operation's entry is within skew of the true time at some
// instant between begin and end. The leader's time, by which readers judge what has expired, is within skew of the
// true time, too. Two ms are for rounding.
func (x *expiry) done(at, skew time.Duration) {
	x.ended = at
	x.mustGo = at + x.ttl + 2*skew + 2*time.Millisecond
}

// lives enters the time to live.
func (x *expiry) lives(ttl, skew time.Duration) {
	x.ttl, x.mayGo = ttl, x.began+ttl-2*skew-2*time.Millisecond
}

// held is the state of a key that may expire.
type held struct {
	value string // as effect has it
	by    *op    // the operation that gave the time to live, nil for none
}

// expiring is the model of a key with a time to live. The key expires at one moment between mayGo and mustGo of the
// operation that gave it, and does not come back. An SPOP without an output may have taken any member.
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
