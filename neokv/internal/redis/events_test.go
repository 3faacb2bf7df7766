package redis

import "testing"

// TestEventClass has what CONFIG SET and CONFIG GET of redis-server 7.0.15 do with notify-keyspace-events.
func TestEventClass(t *testing.T) {
	for _, x := range []struct{ in, out string }{
		{"", ""}, {"A", "A"}, {"n", "n"}, {"m", "m"}, {"KEA", "AKE"}, {"KEAmn", "AKEm"}, {"xg", "gx"}, {"AKEm", "AKEm"},
		{"KEg$lshzxetdmn", "AKEm"}, {"mEKnztd", "ztdnKEm"},
	} {
		class, ok := ParseEventClass(x.in)
		if got := class.String(); !ok || got != x.out {
			t.Errorf("%q is shown as %q, %v; want %q", x.in, got, ok, x.out)
		}
	}
	if _, ok := ParseEventClass("q"); ok {
		t.Error("q is taken for a class")
	}
	for e := EventDel; int(e) < len(events); e++ {
		if e.String() == "" || e.Class() == 0 {
			t.Errorf("event %d has no name or no class", e)
		}
	}
	for name, event := range eventOf {
		if row := data.Named([]byte(name)); row == nil || row.event != event {
			t.Errorf("%s does not tell %v", name, event)
		}
	}
}
