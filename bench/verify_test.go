package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// sourceOf returns what a ledger knows of a workload's records.
func sourceOf(t *testing.T, workload string) *workloads.Source {
	t.Helper()
	w, err := workloads.Find(workload)
	if err != nil {
		t.Fatal(err)
	}
	src, err := workloads.NewSource(w, workloads.SourceOptions{Records: 100, Elements: 10, ValueSize: 16, Clients: 1,
		Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// step returns a command that changes record 0 of the first kind.
func step(does workloads.OpKind, value workloads.ValueID, done time.Duration) *sentStep {
	return &sentStep{Effect: workloads.Effect{Does: does, Value: value, Added: 1}, done: done}
}

// Which values a record may hold, by the writes to it. A write is value@sent-done; done is ? for an unknown outcome.
func TestHistory(t *testing.T) {
	src := sourceOf(t, "set")
	const set, del, fading, fade = workloads.Write, workloads.Delete, workloads.WriteFading, workloads.Fade
	type w1 struct {
		does       workloads.OpKind
		value      workloads.ValueID
		sent, done time.Duration
		failure    string
	}
	for name, c := range map[string]struct {
		writes  []w1
		may     []workloads.ValueID // of 1 to 4
		absent  bool
		ignored bool // nothing is acknowledged
	}{
		"one after the other": {writes: []w1{{set, 1, 0, 10, ""}, {set, 2, 20, 30, ""}}, may: []workloads.ValueID{2}},
		"at the same time": {writes: []w1{{set, 1, 0, 10, ""}, {set, 2, 5, 30, ""}},
			may: []workloads.ValueID{1, 2}},
		"noted in the other order": {writes: []w1{{set, 2, 20, 30, ""}, {set, 1, 0, 10, ""}},
			may: []workloads.ValueID{2}},
		"unknown stays": {writes: []w1{{set, 1, 0, 10, kindTimeout}, {set, 2, 20, 30, ""}},
			may: []workloads.ValueID{1, 2}},
		"unknown rules nothing out": {writes: []w1{{set, 1, 0, 10, ""}, {set, 2, 20, 30, kindConnection},
			{set, 3, 20, 30, kindUnknown}}, may: []workloads.ValueID{1, 2, 3}},
		"refused": {writes: []w1{{set, 1, 0, 10, ""}, {set, 2, 20, 30, "TRYAGAIN"},
			{set, 3, 20, 30, kindConnect}, {set, 4, 20, 30, kindRedirects}}, may: []workloads.ValueID{1}},
		"removed": {writes: []w1{{set, 1, 0, 10, ""}, {del, 0, 20, 30, ""}}, absent: true},
		"perhaps removed": {writes: []w1{{set, 1, 0, 10, ""}, {del, 0, 20, 30, kindTimeout}},
			may: []workloads.ValueID{1}, absent: true},
		"with a time to live": {writes: []w1{{set, 1, 0, 10, ""}, {fading, 2, 20, 30, ""}},
			may: []workloads.ValueID{2}, absent: true},
		"given a time to live": {writes: []w1{{set, 1, 0, 10, ""}, {fade, 0, 20, 30, ""}},
			may: []workloads.ValueID{1}, absent: true},
		"given one before": {writes: []w1{{set, 1, 0, 10, ""}, {fade, 0, 20, 30, ""}, {set, 2, 40, 50, ""}},
			may: []workloads.ValueID{2}},
		"given one at the same time": {writes: []w1{{set, 1, 0, 10, ""}, {fade, 0, 20, 50, ""}, {set, 2, 40, 60, ""}},
			may: []workloads.ValueID{2}, absent: true},
		"perhaps given one, too late": {writes: []w1{{set, 1, 0, 10, ""}, {fade, 0, 20, 30, kindTimeout},
			{set, 2, 40, 50, ""}}, may: []workloads.ValueID{2}, absent: true},
		"nothing acknowledged": {writes: []w1{{set, 1, 0, 10, kindTimeout}}, ignored: true},
		"three, the middle one rules": {writes: []w1{{set, 1, 0, 10, ""}, {set, 3, 12, 40, ""}, {set, 2, 11, 13, ""}},
			may: []workloads.ValueID{2, 3}},
	} {
		l := newHistories(src)
		for _, x := range c.writes {
			l.note(&sentOp{sent: x.sent}, step(x.does, x.value, x.done), x.failure)
		}
		entries, unjudged := l.entries()
		if unjudged != 0 || (len(entries) == 0) != c.ignored {
			t.Errorf("%s: %d entries, %d unjudged", name, len(entries), unjudged)
		}
		if len(entries) == 0 {
			continue
		}
		may := map[workloads.ValueID]bool{}
		for _, v := range c.may {
			may[v] = true
		}
		for v := workloads.ValueID(1); v <= 4; v++ {
			if wrong := entries[0].history.check([][]byte{src.Value(0, v)}, src, cell{}); (wrong == "") != may[v] {
				t.Errorf("%s: value %d: %q; want allowed: %v", name, v, wrong, may[v])
			}
		}
		if wrong := entries[0].history.check([][]byte{nil}, src, cell{}); (wrong == "") != c.absent {
			t.Errorf("%s: absent: %q; want allowed: %v", name, wrong, c.absent)
		}
		if wrong := entries[0].history.check([][]byte{{}}, src, cell{}); wrong == "" {
			t.Errorf("%s: an empty value is allowed", name)
		}
	}
	l := newHistories(src)
	l.note(&sentOp{}, step(set, 1, 1), "")
	for i := range 2 * maxInQuestion {
		l.note(&sentOp{sent: 2}, step(set, workloads.ValueID(i), 0), kindTimeout)
	}
	if entries, unjudged := l.entries(); len(entries) != 0 || unjudged != 1 {
		t.Errorf("%d entries and %d unjudged after many unknown outcomes; want 0 and 1", len(entries), unjudged)
	}
	l.followed.Store(maxFollowed)
	other := step(set, 1, 1)
	other.Record = 1
	l.note(&sentOp{}, other, "")
	if entries, _ := l.entries(); len(entries) != 0 || l.ignored.Load() != 1 {
		t.Errorf("a record too many is followed")
	}
}

// A collection that expires takes along what is written to it later.
func TestFadingCollection(t *testing.T) {
	src := sourceOf(t, "hash")
	l := newHistories(src)
	l.note(&sentOp{}, step(workloads.Fade, 0, 1), "")
	l.note(&sentOp{sent: 2}, step(workloads.Write, 1, 3), "")
	if wrong := first(l.entries())[0].history.check([][]byte{nil}, src, cell{}); wrong != "" {
		t.Errorf("an element that was written after an EXPIRE of its hash: %s", wrong)
	}
}

// Several keys of a record: all hold one write, or all are absent.
func TestJointHistory(t *testing.T) {
	src := sourceOf(t, "chat") // record 0 of its first kind: a user and the name
	value := func(v workloads.ValueID) [][]byte { return [][]byte{src.Value(0, v), []byte("u_0")} }
	l := newHistories(src)
	l.note(&sentOp{}, step(workloads.Write, 1, 1), "")
	at := slices.IndexFunc(first(l.entries()), func(e toRead) bool { return e.cell == cell{} })
	h := first(l.entries())[at].history
	for name, c := range map[string]struct {
		texts [][]byte
		want  string
	}{
		"as written":        {value(1), ""},
		"another write":     {value(2), "none of the 1 writes"},
		"both absent":       {[][]byte{nil, nil}, "absent"},
		"no name":           {[][]byte{value(1)[0], nil}, "1 of its 2 keys"},
		"a name alone":      {[][]byte{nil, []byte("u_0")}, "1 of its 2 keys"},
		"another's name":    {[][]byte{value(1)[0], []byte("u_1")}, "none of the 1 writes"},
		"an empty one, too": {[][]byte{{}, []byte("u_0")}, "none of the 1 writes"},
	} {
		if wrong := h.check(c.texts, src, cell{}); (wrong == "") != (c.want == "") || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q, want %q", name, wrong, c.want)
		}
	}
	// Records that nobody has followed are looked at, too.
	b := &readBack{entries: []toRead{{}}}
	b.judge(src, &sentOp{texts: value(7)}, &sentStep{})
	b.judge(src, &sentOp{texts: [][]byte{nil, nil}}, &sentStep{})
	if b.lost != 0 {
		t.Errorf("lost %d: %q", b.lost, b.examples)
	}
	b.judge(src, &sentOp{texts: [][]byte{nil, []byte("u_0")}}, &sentStep{})
	if b.lost != 1 || !strings.HasPrefix(b.examples[0], "{t0}:user:u_0 and 1 more: 1 of its 2 keys are there; ") {
		t.Errorf("lost %d: %q", b.lost, b.examples)
	}
}

func first[T, U any](x T, _ U) T { return x }

// How many elements a record may have.
func TestSizeHistory(t *testing.T) {
	src := sourceOf(t, "queue")
	type change struct {
		does    workloads.OpKind
		failure string
		miss    bool
	}
	const fill, push, pop, del = workloads.Fill, workloads.Push, workloads.Pop, workloads.Delete
	for name, c := range map[string]struct {
		changes   []change
		low, high int64 // what it may have
	}{
		"loaded":           {[]change{{fill, "", false}}, 10, 10},
		"pushed":           {[]change{{fill, "", false}, {push, "", false}}, 11, 11},
		"perhaps pushed":   {[]change{{fill, "", false}, {push, kindTimeout, false}}, 10, 11},
		"popped":           {[]change{{fill, "", false}, {pop, "", false}}, 9, 9},
		"perhaps popped":   {[]change{{fill, "", false}, {pop, kindUnknown, false}}, 9, 10},
		"it was empty":     {[]change{{fill, "", false}, {pop, "", true}}, 10, 10},
		"refused":          {[]change{{fill, "", false}, {push, "TRYAGAIN", false}}, 10, 10},
		"removed":          {[]change{{fill, "", false}, {del, "", false}, {push, "", false}}, 1, 1},
		"perhaps removed":  {[]change{{fill, "", false}, {push, "", false}, {del, kindTimeout, false}}, 0, 11},
		"perhaps, later":   {[]change{{fill, "", false}, {del, kindTimeout, false}, {push, "", false}}, 0, 11},
		"removed and back": {[]change{{del, "", false}, {fill, "", false}}, 10, 10},
	} {
		l := newHistories(src)
		for _, x := range c.changes {
			s := step(x.does, 0, 1)
			s.miss = x.miss
			l.note(&sentOp{}, s, x.failure)
		}
		entries, _ := l.entries()
		for n := range int64(20) {
			if wrong := entries[0].size.check(n); (wrong == "") != (n >= c.low && n <= c.high) {
				t.Errorf("%s: %d elements: %q; want %d to %d", name, n, wrong, c.low, c.high)
			}
		}
	}
}

func TestCounterHistory(t *testing.T) {
	src := sourceOf(t, "incr")
	for name, c := range map[string]struct {
		answers []int64 // 0 is an unknown outcome
		may     string  // of 0 to 9
	}{
		"in order":         {[]int64{1, 2, 3}, "3"},
		"mixed up":         {[]int64{3, 1, 2}, "3"},
		"one unknown":      {[]int64{1, 0, 2}, "23"},
		"there before":     {[]int64{6, 5, 0, 0}, "678"},
		"an answer twice":  {[]int64{1, 2, 2, 3}, ""},
		"twice or unknown": {[]int64{1, 2, 2, 0}, "3"},
	} {
		l := newHistories(src)
		for _, n := range c.answers {
			failure := ""
			if n == 0 {
				failure = kindTimeout
			}
			s := step(workloads.Increment, 0, 1)
			s.number = n
			l.note(&sentOp{}, s, failure)
		}
		entries, _ := l.entries()
		for n := range 10 {
			if wrong := entries[0].counter.check(fmt.Append(nil, n)); (wrong == "") != strings.Contains(c.may,
				fmt.Sprint(n)) {
				t.Errorf("%s: %d: %q; want one of %q", name, n, wrong, c.may)
			}
		}
		if entries[0].counter.check(nil) == "" || entries[0].counter.check([]byte("x")) == "" {
			t.Errorf("%s: absent or no number is allowed", name)
		}
	}
}

// What a target keeps is found to be there in spite of connections that break, and what it forgets is found to be
// missing.
func TestVerify(t *testing.T) {
	names := []string{"ycsb-a", "transaction", "ycsb-e", "incr", "hset", "queue", "ycsb-d", "ycsb-f", "set", "mixed",
		"rpush", "hash", "members", "leaderboard"}
	if testing.Short() {
		names = names[:3]
	}
	for _, name := range names {
		for _, loses := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " loses ", loses), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMemory(nil)
					n := 0
					m.delay = func(time.Duration) time.Duration {
						m.mu.Lock()
						defer m.mu.Unlock()
						if n++; n%97 == 0 {
							return -1
						}
						return time.Millisecond
					}
					// Once, near the end, every third key loses its last write: what it held before is there again. Of
					// sizes all keys do: where an outcome is unknown one more or less may be right.
					every, unjudged := 3, int64(0)
					if sourceOf(t, name).Counts(0) {
						every, unjudged = 1, 20 // that were loaded again
					}
					o := Options{
						Groups:   []GroupOptions{{Workload: name, Clients: 4, Pipeline: 3, Records: 100, Elements: 2}},
						Duration: 3 * time.Second, Verify: true, DeadAfter: time.Minute,
					}
					if name == "transaction" {
						o.Groups[0].Clients, o.Groups[0].Records = 8, 20 // so that many EXECs have rivals
						unjudged = 20                                    // counters that were loaded again
					}
					o.Progress = func(tick Tick) {
						if loses && tick.Phase == results.PhaseRun && tick.Elapsed >= 3*time.Second {
							m.loseWrites(every)
						}
					}
					s, rec, err := inBubble(t, m, context.Background(), o)
					v := s.Groups[0].Verified
					if v == nil || !v.Complete || v.Checked < 50 || v.Unjudged > unjudged || v.Ignored > 0 ||
						rec.Summary.Groups[0].Verified.Checked != v.Checked {
						t.Fatalf("verified %+v, error %v", v, err)
					}
					if !loses && (err != nil || v.Lost > 0) {
						t.Errorf("nothing is lost: %v, %+v", err, v)
					}
					if loses && (err == nil || !strings.HasPrefix(err.Error(), "verify: ") || v.Lost < v.Checked/10 ||
						len(v.Examples) != maxExamples || s.Failure == "") {
						t.Errorf("a third is lost: %v, %+v", err, v)
					}
					for _, op := range s.Groups[0].Ops {
						if op.Name == "compare-and-set" && op.Misses == 0 {
							t.Error("no EXEC had a rival")
						}
						if op.Misses > 0 && name != "mixed" && unjudged == 0 && op.Name != "compare-and-set" {
							// What was not pushed is popped all the same.
							t.Errorf("%s: %d answered null: what is not acknowledged was read", op.Name, op.Misses)
						}
					}
				})
			})
		}
	}
}
