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
		return "changed " + string(e.Key) + ": " + e.Event.String()
	case Expired:
		return "expired " + string(e.Key) + ": " + e.Event.String()
	case Told:
		return "told " + string(e.Key) + ": " + e.Event.String()
	}
	return fmt.Sprintf("flushed %d-%d", e.Slots.First, e.Slots.Last)
}

// TestEffects has the effects of calls that redis-server does not have; TestEffectsAreRedis has the others.
func TestEffects(t *testing.T) {
	d := newRegion(t)
	d.w.Effects = &Effects{Looks: true}
	now := uint64(start)
	d.now = func() uint64 { return now }
	for _, x := range []struct{ call, want string }{
		{"neokv batch set a 1 set b 2 del c persist a", "told a: new, changed a: set, told b: new, changed b: set"},
		{"neokv batch pexpire a 1000 del b", "changed a: expire, changed b: del"},
		{"neokv batch set a 1 psetex b 0 x", ""}, // refused before it changes anything
		{"neokv legacyset l old", "changed l: , told l: set"},
		{"get l", ""},
		{"append l er", "changed l: append"},
		{"neokv legacyset l old", "changed l: , changed l: , told l: set"},
		{"del l", "changed l: del"},
		{"rpush list x", "told list: new, changed list: rpush"},
		{"pexpire list 1000", "changed list: expire"},
		{"psetex s 1000 x", "told s: new, changed s: set, told s: expire"},
		{"psetex t 1000 x", "told t: new, changed t: set, told t: expire"},
		{"psetex u 1000 x", "told u: new, changed u: set, told u: expire"},
		{"psetex v 1000 x", "told v: new, changed v: set, told v: expire"},
		{"psetex w 1000 x", "told w: new, changed w: set, told w: expire"},
		{"later", ""},
		{"del list", "expired list: expired"},
		{"remove-expired t nobody", "expired t: expired"},
		{"incr s", "told s: expired, told s: new, changed s: incrby"},
		{"rename s u", "told u: expired, changed u: , changed s: , told u: new, told s: rename_from, told u: rename_to"},
		{"set v x", "told v: expired, told v: new, changed v: set"},
		{"rpush w x", "told w: expired, told w: new, changed w: rpush"},
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
