package redis

import (
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

func (e Effect) String() string {
	switch e.What {
	case Changed:
		return "changed " + string(e.Key)
	case Expired:
		return "expired " + string(e.Key)
	}
	return fmt.Sprintf("flushed %d-%d", e.Slots.First, e.Slots.Last)
}

// TestEffects has the effects of calls that redis-server does not have; TestEffectsAreRedis has the others.
func TestEffects(t *testing.T) {
	d := newRegion(t)
	d.w.Effects = new(Effects)
	now := uint64(start)
	d.now = func() uint64 { return now }
	for _, x := range []struct{ call, want string }{
		{"neokv batch set a 1 set b 2 del c persist a", "changed a, changed b"},
		{"neokv batch pexpire a 1000 del b", "changed a, changed b"},
		{"neokv batch set a 1 psetex b 0 x", ""}, // refused before it changes anything
		{"neokv legacyset l old", "changed l"},
		{"get l", ""},
		{"append l er", "changed l"},
		{"neokv legacyset l old", "changed l"},
		{"del l", "changed l"},
		{"rpush list x", "changed list"},
		{"pexpire list 1000", "changed list"},
		{"psetex s 1000 x", "changed s"},
		{"psetex t 1000 x", "changed t"},
		{"psetex u 1000 x", "changed u"},
		{"later", ""},
		{"del list", "expired list"},
		{"remove-expired t nobody", "expired t"},
		{"incr s", "changed s"},
		{"rename s u", "changed u, changed s"},
		{"flush-slots 7 9 flushall", "flushed 7-9"},
		{"flushall", "flushed 0-16383"},
		{"del u", ""},
	} {
		d.w.Effects.Reset()
		args, err := redistest.ParseCall(x.call)
		if err != nil {
			t.Fatal(err)
		}
		var call [][]byte
		for _, a := range args {
			call = append(call, []byte(a))
		}
		var out Reply
		if row := LookupInternal(call); row != nil && len(row.Sub) == 0 && row.parent == nil {
			err = d.write(func(w *Writer) error { return w.Run(row, call, &out) })
		} else if x.call == "later" {
			now += 2000
		} else {
			err = d.call(call, &out)
		}
		if err != nil {
			t.Fatalf("%s: %v", x.call, err)
		}
		var all []string
		for _, e := range d.w.Effects.All {
			if e.What != Flushed && e.Slots.First != topology.SlotOf(e.Key) {
				t.Errorf("%s: %v is not in slot %d", x.call, e, e.Slots.First)
			}
			all = append(all, e.String())
		}
		if got := strings.Join(all, ", "); got != x.want {
			t.Errorf("%s: effects %q, want %q; it replied %q", x.call, got, x.want, out.Buf)
		}
	}
}
