package region

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

func call(args ...string) redis.Call {
	c := redis.Call{}
	for _, a := range args {
		c.Args = append(c.Args, []byte(a))
	}
	return c
}

func TestEntryRoundTrip(t *testing.T) {
	h := entryHeader{term: 7, timeMS: 1700000000123, version: 3481600000000001234, store: 3, incarnation: 1 << 63,
		sequence: 42, bounds: 77}
	calls := []redis.Call{call("SET", "", "a\x00b"), call("incr", "k"),
		call("mset", "a", "1", "b", string(make([]byte, 300)))}
	b := make([]byte, entryHeaderBytes)
	want := entryHeaderBytes
	for i := range calls {
		want += callBytes(&calls[i])
		b = appendCall(b, &calls[i])
	}
	h.put(b)
	if len(b) > want {
		t.Errorf("entry of %d bytes; callBytes promised at most %d", len(b), want)
	}
	if set := "\x00\x01\x04\x00"; rand.IntN(2) == 0 {
		b = (&mark{key: []byte("k"), live: true, expires: 2}).append(b)
		b = appendTrailer(b, 0, 4, false, []byte(set), 1<<40)
		h.base, h.reads, h.marks = 1<<40, []byte(set), []byte("\x05\x02\x01k")
	}
	got, commands, err := parseEntry(b)
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Fatalf("parseEntry = %+v, %v; want %+v", got, err, h)
	}
	for i := range calls {
		var args [][]byte
		if args, commands, err = parseCall(commands, nil); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if !slices.EqualFunc(args, calls[i].Args, bytes.Equal) {
			t.Errorf("call %d = %q; want %q", i, args, calls[i].Args)
		}
	}
	if len(commands) != 0 {
		t.Errorf("%d bytes left over", len(commands))
	}
}

func TestEntryRefusesGarbage(t *testing.T) {
	for _, x := range []struct{ name, entry, want string }{
		{"short", "\x0aabc", "decode entry: 4 bytes, want at least 49"},
		{"format", string(append([]byte{17}, make([]byte, 60)...)),
			"decode entry: format 17, want one of [10 11 14 15 16]"},
		{"an older one", string(append([]byte{9}, make([]byte, 60)...)),
			"decode entry: format 9, want one of [10 11 14 15 16]"},
		{"an older one with marks", string(append([]byte{12}, make([]byte, 80)...)),
			"decode entry: format 12, want one of [10 11 14 15 16]"},
		{"empty", "", "decode entry: 0 bytes, want at least 49"},
		{"no bounds", string(append([]byte{10}, make([]byte, 46)...)), "decode entry: 47 bytes, want at least 49"},
		{"no trailer", string(append([]byte{11}, make([]byte, 54)...)),
			"decode entry: trailer: 6 bytes, want at least 12"},
		{"no trailer with marks", string(append([]byte{14}, make([]byte, 60)...)),
			"decode entry: trailer: 12 bytes, want at least 16"},
		{"short read set", string(append(append([]byte{11}, make([]byte, 64)...), 9)),
			"decode entry: trailer: 5 bytes of 9"},
		{"short marks", string(append(append([]byte{14}, make([]byte, 56)...), 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
			"decode entry: trailer: 5 bytes of 6"},
		{"no trailer with scripts", string(append([]byte{15}, make([]byte, 60)...)),
			"decode entry: trailer: 12 bytes, want at least 20"},
		{"short scripts", string(append(append([]byte{15}, make([]byte, 55)...), 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0,
			0, 0, 0, 0)), "decode entry: trailer: 4 bytes of 7"},
	} {
		if _, _, err := parseEntry([]byte(x.entry)); err == nil || err.Error() != x.want {
			t.Errorf("%s: parseEntry = %v; want %s", x.name, err, x.want)
		}
	}
	for _, b := range []string{"\x00", "\x05\x01a", "\xff\xff\xff\xff\x0f", "\x02\x01a\x09b"} {
		if args, _, err := parseCall([]byte(b), nil); err == nil {
			t.Errorf("parseCall(%q) = %q; want an error", b, args)
		}
	}
}

// encode returns an entry with a call.
func encode(c redis.Call) []byte {
	entry := make([]byte, entryHeaderBytes)
	(&entryHeader{term: 2, timeMS: 3, version: 4, store: 1, bounds: 1}).put(entry)
	return appendCall(entry, &c)
}

// TestWrites: entries that only change the bounds write nothing, so a full disk takes them.
func TestWrites(t *testing.T) {
	for _, x := range []struct {
		call   redis.Call
		writes bool
	}{{call("bounds", "end", "7"), false}, {call("SET", "k", "v"), true}} {
		if got := Writes(&multiraft.LogEntry{Cmd: encode(x.call)}); got != x.writes {
			t.Errorf("Writes(%q) = %v", x.call.Args, got)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	c := call("SET", "key", "value")
	f.Add(encode(c))
	f.Add(appendTrailer(encode(c), 0, 0, false, []byte("\x01\x04\x03ab"), 7))
	group := new(scripts).appendGroup(encode(c), redis.GroupExec, 1, []redis.Call{c, c})
	f.Add(appendTrailer((&mark{key: []byte("k"), live: true, dirty: true, expires: 2}).append(group), 0, 4, false, nil, 7))
	waiter := appendWaiter(encode(c), &redis.Call{Args: words("blpop a b 0")}, true)
	f.Add(appendTrailer(waiter, 0, len(waiter)-len(encode(c)), true, nil, 7))
	var s scripts
	s.limit(redis.DefaultScriptLimits)
	script := s.appendCall(make([]byte, entryHeaderBytes), new(redis.NewScriptCall(0, []byte("return 1"), nil, words("0"))))
	f.Add(appendTrailer(append(script, s.bytes...), len(s.bytes), 0, false, nil, 7))
	s = scripts{}
	s.limit(redis.DefaultScriptLimits)
	repeated := append(s.bytes, "\x00\x00\x01a"...) // no proposer writes a text twice
	f.Add(appendTrailer(append(encode(c), repeated...), len(repeated), 0, false, nil, 7))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := parseEntry(b)
		if err == nil && len(h.scripts) > 0 {
			texts, limits, err := parseScripts(h.scripts, nil)
			if err != nil {
				return
			}
			var s scripts
			s.limit(limits)
			var added []string // a text that comes again gets no place of its own
			for _, text := range texts {
				if !slices.Contains(added, string(text)) {
					added = append(added, string(text))
				}
				if n := s.add(text); n >= len(added) || added[n] != string(text) {
					t.Fatalf("%q is text %d of %q", text, n, added)
				}
			}
			if back, again, err := parseScripts(s.bytes, nil); err != nil || again != limits || len(s.bytes) > len(h.scripts) ||
				len(back) > len(texts) {
				t.Fatalf("%q, %v come back as %q, %v", texts, limits, back, again)
			}
		}
		for left := h.marks; err == nil && len(left) > 0; {
			var m mark
			before := len(left)
			if m, left, err = parseMark(left); err != nil {
				return
			}
			again := m.append(nil)
			if m.row != nil {
				again = appendWaiter(nil, &redis.Call{Args: m.args}, m.more)
			}
			if len(again) > before-len(left) {
				t.Fatalf("a mark of %d bytes, %+v, comes back as %q", before-len(left), m, again)
			}
		}
		if err == nil {
			fuzzUnits(t, rest, false)
		}
	})
}

// fuzzUnits: what is read from some units or from the calls of a group comes back when it is written again.
func fuzzUnits(t *testing.T, units []byte, grouped bool) {
	var args [][]byte
	for whole := len(units); len(units) > 0; {
		var u unit
		var err error
		before := len(units)
		if grouped {
			args, units, err = parseCall(units, args[:0])
		} else {
			u, args, units, err = parseUnit(units, args[:0])
		}
		if err != nil {
			return
		}
		if len(units) >= before || cap(args) > 2*whole+8 {
			t.Fatalf("%d of %d bytes left, room for %d arguments of %d bytes", len(units), before, cap(args), whole)
		}
		if u.kind != 0 {
			again := append(new(scripts).appendGroup(nil, u.kind, u.marks, nil), u.calls...)
			binary.BigEndian.PutUint32(again[len(again)-len(u.calls)-4:], uint32(len(u.calls)))
			if back, _, left, err := parseUnit(again, nil); err != nil || len(left) > 0 || !reflect.DeepEqual(back, u) {
				t.Fatalf("%+v comes back as %+v, %v", u, back, err)
			}
			fuzzUnits(t, u.calls, true)
			continue
		}
		again := appendCall(nil, &redis.Call{Args: args})
		if back, left, err := parseCall(again, nil); err != nil || len(left) > 0 ||
			!slices.EqualFunc(back, args, bytes.Equal) {
			t.Fatalf("%q comes back as %q, %v", args, back, err)
		}
	}
}

// TestGateShutWaits lets readers come and go while the gate is shut: none is inside afterwards.
func TestGateShutWaits(t *testing.T) {
	for range 200 {
		g := newGate()
		var inside atomic.Int64
		var shut atomic.Bool
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for g.enter() {
					inside.Add(1)
					if shut.Load() {
						t.Error("inside after shut has returned")
					}
					inside.Add(-1)
					g.leave()
				}
			})
		}
		g.shut()
		shut.Store(true)
		if n := inside.Load(); n != 0 {
			t.Errorf("%d readers inside after shut", n)
		}
		wg.Wait()
		if g.enter() {
			t.Error("a shut gate let a reader in")
		}
	}
}

// queued returns a replica whose proposer can be looked at without Raft.
func queued(knobs settings.RaftKnobs) *Replica {
	return New(Options{Knobs: knobs})
}

func pending(n int, size int) *Pending {
	p := &Pending{Run: new(redis.Run), Deadline: time.Now().Add(time.Hour), done: make(chan struct{}, 1)}
	for range n {
		p.Run.Calls = append(p.Run.Calls, call("SET", "k", string(make([]byte, size))))
	}
	return p
}

// TestOutrun: when the first entry of a term is applied, the proposals that were sent in earlier ones are answered. A
// leader that was replaced may have lost their entries. Such a run waited until its deadline, and had an unknown
// outcome.
func TestOutrun(t *testing.T) {
	r := openStill(t, disk.Mem())
	defer r.close(t)
	var all []*Pending
	for _, term := range []uint64{2, 3, 0, 2} { // 0: not sent yet
		p, b := pending(1, 1), newProposal()
		b.parts, b.term = []stretch{{p: p, to: 1}}, term
		p.next = 1
		r.proposer.mu.Lock()
		r.proposer.register(b)
		r.proposer.mu.Unlock()
		all = append(all, p)
	}
	apply := func(index uint64, want ...bool) {
		if _, err := r.machine.Update([]multiraft.Entry{entryOf(index)}); err != nil { // of term 3
			t.Fatal(err)
		}
		for i, p := range all {
			select {
			case <-p.done:
				if !want[i] || p.Err != ErrNotLeader {
					t.Errorf("entry %d: proposal %d is answered: %v", index, i, p.Err)
				}
			default:
				if want[i] {
					t.Errorf("entry %d: proposal %d is not answered", index, i)
				}
			}
		}
	}
	apply(1, true, false, false, true)
	apply(2, false, false, false, false)
}

func TestFormFillsProposals(t *testing.T) {
	for _, x := range []struct {
		name     string
		ops      int
		bytes    settings.Bytes
		runs     []int // calls of each waiting run
		value    int
		want     []int // commands of each proposal
		finished []int // runs done after each proposal
	}{
		{"runs share a proposal", 100, 1 << 20, []int{1, 1, 16}, 10, []int{18}, []int{3}},
		{"a run is cut at the limit of commands", 10, 1 << 20, []int{25}, 10, []int{10, 10, 5}, []int{0, 0, 1}},
		{"what does not fit waits for the next", 10, 1 << 20, []int{8, 8}, 10, []int{10, 6}, []int{1, 2}},
		{"bytes count", 100, 1024, []int{2, 2}, 400, []int{2, 2}, []int{1, 2}},
		{"a large command goes alone", 100, 1024, []int{1, 1}, 5000, []int{1, 1}, []int{1, 2}},
		{"an empty run is a proposal", 100, 1024, []int{0}, 0, []int{0}, []int{1}},
	} {
		r := queued(settings.RaftKnobs{BatchMaxOps: x.ops, BatchMaxBytes: x.bytes})
		r.servingTerm.Store(1)
		var runs []*Pending
		for _, n := range x.runs {
			runs = append(runs, pending(n, x.value))
		}
		r.proposer.queue = slices.Clone(runs)
		for i, want := range x.want {
			b := r.proposer.form()
			if b == nil || b.commands != want {
				t.Fatalf("%s: proposal %d = %+v; want %d commands", x.name, i, b, want)
			}
			r.proposer.finish(b, nil)
			<-b.finished
			done := 0
			for _, p := range runs {
				done += len(p.done)
			}
			if done != x.finished[i] {
				t.Errorf("%s: %d runs done after proposal %d; want %d", x.name, done, i, x.finished[i])
			}
			r.proposer.recycle(b)
		}
		if b := r.proposer.form(); b != nil {
			t.Errorf("%s: one proposal too many, of %d commands", x.name, b.commands)
		}
	}
}

// TestTooLarge: a command that no entry has room for is refused, alone, and without being copied.
func TestTooLarge(t *testing.T) {
	r := queued(settings.RaftKnobs{BatchMaxOps: 10, BatchMaxBytes: 1 << 20})
	r.servingTerm.Store(1)
	p := pending(3, 1)
	part := make([]byte, maxEntryBytes/4)
	p.Run.Calls[1].Args = [][]byte{[]byte("mset"), part, part, part, part}
	r.proposer.queue = []*Pending{p, pending(1, 1)}
	if b := r.proposer.form(); b == nil || b.commands != 1 || b.tooLarge != nil {
		t.Fatalf("first proposal %+v; want the command ahead of the large one", b)
	} else {
		r.proposer.finish(b, nil)
	}
	b := r.proposer.form()
	if b == nil || b.commands != 1 || len(b.buf) > 1<<10 {
		t.Fatalf("second proposal: want the large command alone, not copied")
	}
	_, err := r.proposer.send(b, 1, time.Second)
	if !errors.Is(err, ErrTooLarge) || !strings.HasSuffix(err.Error(), "bytes, at most 67108864") {
		t.Errorf("sending %v: %v", b.tooLarge, err)
	}
	r.proposer.finish(b, err)
	if len(p.done) != 1 || p.Err != err {
		t.Errorf("the run: done %d, %v; want %v", len(p.done), p.Err, err)
	}
	r.proposer.recycle(b)
	if b := r.proposer.form(); b == nil || b.commands != 1 || b.tooLarge != nil {
		t.Errorf("proposal behind it: %+v; want the other run's command", b)
	}
}

// TestManyCallsOfUnit: what a unit of many calls may write is bounded as closely as for one call. These are the calls
// by which rq puts 20,000 jobs into a queue.
func TestManyCallsOfUnit(t *testing.T) {
	var unit []redis.Call
	add := func(words ...string) {
		unit = append(unit, redis.Call{Command: redis.Lookup([]byte(words[0])), Args: call(words...).Args})
	}
	for i := range 20_000 {
		job := fmt.Sprintf("rq:job:j20000-%d", i)
		fields := []string{"hset", job, "data", strings.Repeat("x", 45)}
		for _, name := range []string{"created_at", "success_callback_name", "failure_callback_name", "started_at",
			"ended_at", "last_heartbeat", "worker_name", "origin", "description", "enqueued_at", "timeout", "status"} {
			fields = append(fields, name, "2026-11-26T15:52:44.256274Z")
		}
		add("hset", job, "status", "queued")
		add(fields...)
		add("persist", job)
		add("rpush", "rq:queue:big", fmt.Sprint("j20000-", i))
	}
	bytes := 0
	for i := range unit {
		bytes += callBytes(&unit[i])
	}
	if err := tooLarge(unit, bytes); err != nil {
		t.Errorf("%d calls of %d bytes: %v", len(unit), bytes, err)
	}
	for len(unit) < 1_000_000 {
		unit = append(unit, unit[:80_000]...)
	}
	if err := tooLarge(unit, maxEntryBytes/2); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d calls: %v", len(unit), err)
	}
}

// TestTooLargeIsAlone puts the empty run of readers that wait for the region time ahead of a command that no entry has
// room for: it is not refused with that.
func TestTooLargeIsAlone(t *testing.T) {
	for _, runs := range []int{1, 3} {
		r := queued(settings.RaftKnobs{BatchMaxOps: 10, BatchMaxBytes: 1 << 20})
		r.servingTerm.Store(1)
		large := pending(1, 1)
		part := make([]byte, maxEntryBytes/4)
		large.Run.Calls[0].Args = [][]byte{[]byte("mset"), part, part, part, part}
		for range runs {
			r.proposer.queue = append(r.proposer.queue, pending(0, 0))
		}
		r.proposer.queue = append(r.proposer.queue, large, pending(0, 0))
		for i, want := range []struct{ tooLarge bool }{{false}, {true}, {false}} {
			b := r.proposer.form()
			if b == nil || (b.tooLarge != nil) != want.tooLarge {
				t.Fatalf("proposal %d behind %d empty runs: %+v; want one too large: %v", i, runs, b, want.tooLarge)
			}
			for _, part := range b.parts {
				if (part.p == large) != want.tooLarge {
					t.Errorf("proposal %d has %d runs; want the large one alone", i, len(b.parts))
				}
			}
			r.proposer.finish(b, nil)
			<-b.finished
			r.proposer.recycle(b)
		}
	}
}

// TestAdvanceOutlivesItsReader has two readers wait for the region time, of which the one that proposes the entry has
// less time: the other goes on without it.
func TestAdvanceOutlivesItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queued(settings.RaftKnobs{}) // no place in flight: what is proposed waits
		r.servingTerm.Store(1)
		instant := uint64(time.Now().UnixMilli())
		begin := time.Now()
		var wg sync.WaitGroup
		for _, x := range []struct {
			wait, took time.Duration
			want       error
		}{{100 * time.Millisecond, 100 * time.Millisecond, ErrDeadline}, {time.Second, 500 * time.Millisecond, nil}} {
			wg.Go(func() {
				if err := r.reader.advanceTo(instant, begin.Add(x.wait)); err != x.want || time.Since(begin) != x.took {
					t.Errorf("a reader that waits %v: %v after %v; want %v after %v", x.wait, err, time.Since(begin),
						x.want, x.took)
				}
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		r.regionTime.Store(instant)
		r.proposer.rejectQueue(nil)
		wg.Wait()
	})
}

// TestTooLargeByItsKey: a short command that writes much is refused: many elements under a long key, or very many under
// any. So are long keys, fields and members.
func TestTooLargeByItsKey(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	elements := func(name string, key, n int) *redis.Call {
		args := [][]byte{[]byte(name), make([]byte, key)}
		for range n {
			args = append(args, []byte("e"))
		}
		return &redis.Call{Command: redis.Lookup(args[0]), Args: args}
	}
	with := func(args ...string) *redis.Call {
		c := new(redis.Call)
		for _, a := range args {
			c.Args = append(c.Args, []byte(a))
		}
		if c.Command = redis.Lookup(c.Args[0]); c.Command == nil {
			c.Command = redis.LookupInternal(c.Args)
		}
		return c
	}
	batch := func(n int, operation ...string) *redis.Call {
		return with(append([]string{"neokv", "batch"}, slices.Repeat(operation, n)...)...)
	}
	most := strings.Repeat("n", redis.MaxNameBytes)
	long := strings.Repeat("n", redis.MaxNameBytes+1)
	const million = 1_000_000
	for _, c := range []struct {
		call    *redis.Call
		refused bool
	}{
		{elements("rpush", 1<<20, 100), false},
		{elements("rpush", 1<<20, 1000), true},
		{elements("hset", 1<<20, 1000), true},
		{elements("sadd", 10, million), false},
		{elements("zadd", 10, 2*million), false},
		{elements("sadd", 10, 8*million), true},
		{elements("mset", 1<<20, 1001), false},
		{elements("set", redis.MaxNameBytes, 1), false},
		{elements("set", redis.MaxNameBytes+1, 1), true},
		{elements("del", 10, million), false},
		{with("sadd", "s", "e", long), true},
		{with("hset", "h", "f", long), false},
		{with("hset", "h", "f", "v", long, "v"), true},
		{with("hmset", "h", long, "v"), true},
		{with("hsetnx", "h", long, "v"), true},
		{with("hincrby", "h", long, "1"), true},
		{with("zadd", "z", "NX", "1", long), true},
		{with("zincrby", "z", "1", long), true},
		{with("rpush", "l", long), false},
		{with("rename", "k", long), true},
		{with("sunionstore", "d", "s", long), true},
		{batch(million, "set", "k", "v"), false},
		{batch(million, "del", "k"), false},
		{batch(4000, "pexpire", "k", "9"), false},
		{batch(4100, "persist", "k"), true},
		{batch(7, "set", most, "v"), false},
		{batch(7, "psetex", most, "9", "v"), false},
		{batch(8, "set", most, "v"), true},
		{batch(1, "set", "k", long), false},
		{batch(1, "set", long, "v"), true},
		{batch(1, "psetex", "k", "9", "v", "del", long), true},
	} {
		if err := tooLarge([]redis.Call{*c.call}, callBytes(c.call)); errors.Is(err, ErrTooLarge) != c.refused {
			t.Errorf("%s of %d arguments, key of %d bytes: %v; want refused %v",
				c.call.Command.Name, len(c.call.Args), len(c.call.Args[1]), err, c.refused)
		}
	}
}

func TestFinishOfACutRunWithoutLeader(t *testing.T) {
	r := queued(settings.RaftKnobs{BatchMaxOps: 10, BatchMaxBytes: 1 << 20})
	p := pending(25, 1)
	r.proposer.queue = []*Pending{p}
	b := r.proposer.form()
	r.proposer.finish(b, nil)
	if len(p.done) != 1 || p.Err != ErrNotLeader {
		t.Errorf("a run of which the rest cannot be proposed: done %d, %v; want %v", len(p.done), p.Err, ErrNotLeader)
	}
}

// TestStopWithoutAnAnswer stops a replica while the library owes it the answer to a proposal: nobody waits for that.
func TestStopWithoutAnAnswer(t *testing.T) {
	r := queued(settings.RaftKnobs{BatchMaxOps: 10, BatchMaxBytes: 1 << 20})
	p := pending(1, 1)
	r.proposer.queue = []*Pending{p}
	b, awaited := r.proposer.form(), make(chan struct{})
	go func() {
		r.proposer.await(b, multiraft.Request{}, nil)
		close(awaited)
	}()
	r.Stop()
	p.Wait()
	if want := (&UnknownOutcome{ErrStopped.Error()}); p.Err == nil || p.Err.Error() != want.Error() {
		t.Errorf("the run: %v; want %v", p.Err, want)
	}
	select {
	case <-awaited:
	case <-time.After(20 * time.Second):
		t.Fatal("the proposal is still waited for after 20 s")
	}
}

// TestLeaderTimeNeverGoesBack puts the region time ahead of a clock that stands behind.
func TestLeaderTimeNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queued(settings.RaftKnobs{})
		start := uint64(time.Now().UnixMilli())
		if got := r.LeaderTimeMS(time.Now()); got != start {
			t.Errorf("LeaderTimeMS = %d; want the clock's %d", got, start)
		}
		r.clock.Store(&clockBase{ms: start + 5000, at: time.Now()})
		random := rand.New(rand.NewPCG(1, 1))
		last := uint64(0)
		for range 100 {
			got := r.LeaderTimeMS(time.Now())
			if got < last {
				t.Fatalf("leaderTime went from %d to %d", last, got)
			}
			last = got
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		}
		if want := uint64(time.Now().UnixMilli()) + 5000; r.LeaderTimeMS(time.Now()) != want {
			t.Errorf("LeaderTimeMS = %d; want %d, 5 s ahead of the clock", r.LeaderTimeMS(time.Now()), want)
		}
	})
}

func TestRevokeIsForGood(t *testing.T) {
	r := queued(settings.RaftKnobs{})
	r.reader.lease.Store(&lease{term: 4, until: time.Hour})
	r.Revoke(3)
	if r.reader.validLease(time.Now()) == nil {
		t.Error("a lease of term 4 did not survive the revocation of term 3")
	}
	r.Revoke(4)
	if r.reader.validLease(time.Now()) != nil {
		t.Error("a lease of term 4 survived the revocation of term 4")
	}
	if r.reader.revoked != 4 {
		t.Errorf("revoked = %d; want 4", r.reader.revoked)
	}
}

// TestSuspendedLease has rounds of several terms end while a split is proposed: the replica may lose the leadership and
// get it back meanwhile.
func TestSuspendedLease(t *testing.T) {
	r := queued(settings.Default().Raft)
	now := func() time.Duration { return time.Since(r.reader.base) }
	r.reader.extend(4, now())
	if r.reader.validLease(time.Now()) == nil {
		t.Fatal("a round brings no lease")
	}
	r.reader.suspend()
	for term := uint64(4); term <= 6; term++ {
		if r.reader.extend(term, now()); r.reader.validLease(time.Now()) != nil {
			t.Errorf("a lease of term %d while leases are suspended", term)
		}
	}
	r.reader.resume()
	if r.reader.extend(6, now()); r.reader.validLease(time.Now()) == nil {
		t.Error("no lease after leases were suspended")
	}
}

// TestGatherings: with several entries under way, a gathering may begin before the waiter of another one has heard that
// it has ended.
func TestGatherings(t *testing.T) {
	r := queued(settings.RaftKnobs{MaxInflight: 3})
	r.servingTerm.Store(1)
	x := &r.proposer
	x.inflight = 3
	for range x.inflight {
		x.wanted = len(x.queue) + 1
		r.Propose(pending(1, 1)) // with its channel full it would never return
	}
	if got := len(x.gathered); got != 3 || x.wanted != 0 {
		t.Errorf("%d gatherings ended, %d runs still wanted", got, x.wanted)
	}
}
