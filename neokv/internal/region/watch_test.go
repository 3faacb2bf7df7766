package region

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// rivals is a replica whose log a test plays, and clients that all change the same two counters, {foo}a and {foo}b:
// some by a transaction that watches them, others by one that does not. Both counters are always equal, unless they
// have expired: a transaction changes both. One that watches replies what its client has read, plus 1.
type rivals struct {
	still
	random  *rand.Rand
	term    uint64
	flying  []*proposal // sealed, and in no log yet
	clients []*rival
	changes int  // what may have made a watch dirty
	lasting bool // nothing expires
	cacher  cacher

	done, dropped, again, unknown int
	problem                       error
}

// rival is a client. It watches, reads, and then proposes; the player decides when.
type rival struct {
	watch   *Watch
	seen    int // what it has read, 0 for an absent counter
	changes int // of the player, when it has read
	state   rivalState
	p       *Pending
	err     error
}

// cacher caches the counter {foo}a as long as it has not been told of a change. It listens only meanwhile.
type cacher struct {
	x                         *rivals
	listens                   atomic.Bool
	reading, has              bool
	value, heard, lost, reads int
}

func (c *cacher) Wants() Wants {
	if c.listens.Load() {
		return WantsChanges
	}
	return 0
}

func (c *cacher) Happened(_ topology.StoreID, effects []redis.Effect) {
	for _, e := range effects {
		if e.What == redis.Flushed || string(e.Key) == "{foo}a" {
			c.has = false
			c.listens.Store(false)
			c.heard++
		}
	}
}

func (c *cacher) Lost(topology.StoreID, topology.SlotRange) {
	c.has = false
	c.listens.Store(false)
	c.lost++
}

// read reads the counter and keeps it, unless a change of it was told meanwhile.
func (c *cacher) read() {
	synctest.Wait()
	if c.reading || c.has {
		return
	}
	c.reading, c.has = true, true
	c.listens.Store(true)
	go func() {
		defer func() { c.reading = false }()
		run := redis.Run{Calls: pair("get")[:1], By: c}
		if c.x.Read(&run, time.Now().Add(time.Hour)) != nil {
			c.has = false
			c.listens.Store(false)
			return
		}
		c.reads++
		c.value = counterOf(run.Out.Buf)
	}()
	synctest.Wait()
}

// counterOf returns the counter that GET has replied, 0 for null.
func counterOf(reply []byte) int {
	n := 0
	if words := bytes.Split(reply, []byte("\r\n")); len(words) > 2 {
		n, _ = strconv.Atoi(string(words[1]))
	}
	return n
}

type rivalState byte

const (
	idle rivalState = iota
	looking
	ready
	proposed
)

func openRivals(t *testing.T, random *rand.Rand, mistakes Mistakes) *rivals {
	x := &rivals{still: openStillOf(t, disk.Mem(), snapshotRegion), random: random, term: 5}
	mistakes.TrustLease = true
	x.o.Mistakes = mistakes
	x.cacher.x, x.o.Listener = x, &x.cacher
	x.o.Knobs = settings.RaftKnobs{RaftConstants: settings.RaftConstants{SnapshotBytes: 1 << 30},
		BatchMaxOps: 1 + random.IntN(8), BatchMaxBytes: 1 << 20, ReadSets: random.IntN(2) == 0}
	x.o.Hooks.BeforePropose = func(topology.RegionID, uint64) {
		if len(x.flying) > 0 && random.IntN(3) == 0 {
			x.deliver() // of an earlier proposal, which nobody waits for
		}
	}
	x.o.Hooks.BeforeApply = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
		if random.IntN(3) == 0 {
			x.look()
		}
		if random.IntN(3) == 0 {
			x.cacher.read()
		}
	}
	x.lasting = random.IntN(2) == 0
	x.lead()
	for range 3 {
		x.clients = append(x.clients, new(rival))
	}
	return x
}

func (x *rivals) lead() {
	x.rows.Open()
	x.servingTerm.Store(x.term)
	x.reader.lease.Store(&lease{term: x.term, until: 1 << 62})
}

func pair(name string, args ...string) (calls []redis.Call) {
	for _, key := range []string{"{foo}a", "{foo}b"} {
		c := call(append([]string{name, key}, args...)...)
		c.Command = redis.Lookup(c.Args[0])
		calls = append(calls, c)
	}
	return calls
}

// look has a client watch and read.
func (x *rivals) look() {
	synctest.Wait() // clients that have been woken use what is theirs
	i := slices.IndexFunc(x.clients, func(c *rival) bool { return c.state == idle })
	if i < 0 {
		return
	}
	c := x.clients[i]
	c.state = looking
	deadline := time.Now().Add(time.Hour)
	go func() {
		both := [][]byte{[]byte("{foo}a"), []byte("{foo}b")}
		if c.watch, c.err = x.Watch(both, 0, deadline); c.err == nil {
			run := redis.Run{Calls: pair("get")}
			c.err = x.Read(&run, deadline)
			c.seen = 0
			if c.err == nil {
				c.seen = counterOf(run.Out.Buf)
			}
		}
		c.changes = x.changes
		if c.state = ready; c.err != nil {
			c.state = idle
		}
	}()
	synctest.Wait()
}

// propose hands the transaction of a client to the proposer.
func (x *rivals) propose() {
	i := slices.IndexFunc(x.clients, func(c *rival) bool { return c.state == ready })
	if i < 0 {
		return
	}
	c := x.clients[i]
	c.state = proposed
	c.p = x.pending(pair("incr"), redis.GroupExec)
	c.p.Watches = []*Watch{c.watch}
	x.Propose(c.p)
}

func (x *rivals) pending(calls []redis.Call, kind redis.GroupKind) *Pending {
	run := &redis.Run{Calls: calls}
	if kind != 0 {
		run.Groups = []redis.Group{{To: len(calls), Kind: kind}}
	}
	return &Pending{Run: run, Deadline: time.Now().Add(time.Hour)}
}

// form seals the next proposal.
func (x *rivals) form() {
	x.proposer.mu.Lock()
	b := x.proposer.form()
	x.proposer.mu.Unlock()
	if b == nil {
		return
	}
	if x.servingTerm.Load() == 0 {
		x.proposer.finish(x.proposer.claim(b.sequence), ErrNotLeader)
		return
	}
	x.proposer.seal(b, x.term)
	x.flying = append(x.flying, b)
}

// deliver has the oldest proposal that is under way applied.
func (x *rivals) deliver() {
	if len(x.flying) > 0 {
		b := x.flying[0]
		x.flying = x.flying[1:]
		x.update(b.buf)
	}
}

func (x *rivals) update(cmd []byte) {
	entry := multiraft.Entry{Index: x.machine.state.ApplyIndex + 1, Cmd: cmd}
	refused := x.counters.RefusedEntries.Load()
	_, err := x.machine.Update([]multiraft.Entry{entry})
	synctest.Wait() // a client may have waited for the end of the update
	if err != nil || x.fs.Failed() != nil {
		x.fail("%v, %v", err, x.fs.Failed())
	}
	if refused = x.counters.RefusedEntries.Load() - refused; refused == 0 && len(cmd) > entryHeaderBytes {
		x.changes++
	}
	x.again += int(refused)
	x.check()
}

func (x *rivals) fail(format string, args ...any) {
	if x.problem == nil {
		x.problem = fmt.Errorf(format, args...)
	}
}

// check looks at both counters.
func (x *rivals) check() {
	run := redis.Run{Calls: pair("get")}
	r := redis.Reader{View: x.o.Engine.NewView()}
	defer r.View.Close()
	if err := r.Execute(&run); err != nil {
		x.fail("%v", err)
		return
	}
	if a, b := run.Out.Buf[:run.Ends[0]], run.Out.Buf[run.Ends[0]:run.Ends[1]]; !bytes.Equal(a, b) {
		x.fail("the counters are %q and %q", a, b)
	} else if c := &x.cacher; x.lasting && c.has && !c.reading && c.value != counterOf(a) {
		x.fail("a client caches %d, and has not been told that the counter is %q", c.value, a)
	}
}

// end ends the transactions whose outcome is known.
func (x *rivals) end() {
	for _, c := range x.clients {
		if c.state != proposed {
			continue
		}
		select {
		case <-c.p.done:
		default:
			continue
		}
		switch _, unknown := c.p.Err.(*UnknownOutcome); {
		case unknown:
			x.unknown++
		case c.p.Err != nil:
		case len(c.p.Run.Dropped) > 0:
			x.dropped++
			if x.lasting && c.changes == x.changes {
				x.fail("a transaction has no effect, and nobody has changed its keys")
			}
			if len(c.p.Run.Out.Buf) > 0 {
				x.fail("a transaction without effect replies %q", c.p.Run.Out.Buf)
			}
		default:
			x.done++
			if want := fmt.Sprintf(":%d\r\n:%[1]d\r\n", c.seen+1); string(c.p.Run.Out.Buf) != want {
				x.fail("a client has read %d, and its transaction replies %q", c.seen, c.p.Run.Out.Buf)
			}
		}
		c.watch.Close()
		*c = rival{}
	}
}

// play plays so many steps, and then ends all that is under way.
func (x *rivals) play(steps int) {
	for n := 0; n < steps && x.problem == nil; n++ {
		if x.random.IntN(4) == 0 {
			x.cacher.read()
		}
		switch x.random.IntN(14) {
		case 0, 1:
			x.look()
		case 2, 3, 4:
			x.propose()
		case 5, 6, 7:
			x.form()
		case 8, 9, 10:
			x.deliver()
		case 11:
			time.Sleep(time.Duration(x.random.IntN(30)) * time.Millisecond)
			switch x.random.IntN(3) {
			case 0:
				if !x.lasting {
					x.Propose(x.pending(pair("set", "10", "px", fmt.Sprint(1+x.random.IntN(60))), redis.GroupExec))
				}
			case 1:
				x.Propose(x.pending(pair("incr"), redis.GroupExec))
			}
		case 12: // a proposal that is given up, and applied later
			if len(x.flying) > 0 && x.random.IntN(4) == 0 {
				if b := x.proposer.claim(x.flying[0].sequence); b != nil {
					x.proposer.finish(b, &UnknownOutcome{"of a test"})
				}
			}
		case 13: // another replica leads for a while
			if x.random.IntN(4) == 0 {
				x.depose()
			}
		}
		synctest.Wait()
		x.end()
	}
	for range 100 {
		x.form()
		x.deliver()
		synctest.Wait()
		x.end()
	}
}

// depose has another replica lead, which increments the counters: of the entries under way, the first ones are applied.
func (x *rivals) depose() {
	x.stepDown()
	synctest.Wait()
	x.changes++
	for x.random.IntN(2) == 0 {
		x.deliver()
	}
	for _, b := range x.flying {
		if b := x.proposer.claim(b.sequence); b != nil {
			x.proposer.finish(b, ErrNotLeader)
		}
	}
	x.flying = nil
	x.term++
	entry := make([]byte, entryHeaderBytes)
	h := entryHeader{term: x.term, timeMS: x.LeaderTimeMS(time.Now()), version: x.term << 20, store: 9, bounds: 1}
	h.put(entry)
	if x.random.IntN(2) == 0 {
		entry = new(scripts).appendGroup(entry, redis.GroupExec, 0, pair("incr"))
	}
	x.update(entry)
	x.term++
	x.lead()
}

// TestWatch plays many games of rivals: none of them loses an increment, and a transaction without a rival has its
// effect. A client that caches a counter is told of each change. Each mistake is found.
func TestWatch(t *testing.T) {
	seed := rand.Uint64()
	var done, dropped, again, unknown, heard, lost int
	play := func(seed uint64, mistakes Mistakes) (problem error) {
		synctest.Test(t, func(t *testing.T) {
			x := openRivals(t, rand.New(rand.NewPCG(seed, 1)), mistakes)
			x.play(150)
			done, dropped, again, unknown = done+x.done, dropped+x.dropped, again+x.again, unknown+x.unknown
			heard, lost = heard+x.cacher.heard, lost+x.cacher.lost
			problem = x.problem
			x.proposer.rejectQueue(ErrStopped)
			x.close(t)
		})
		return problem
	}
	for n := range uint64(100) {
		if err := play(seed+n, Mistakes{}); err != nil {
			t.Fatalf("seed %d: %v", seed+n, err)
		}
	}
	t.Logf("seed %d: %d transactions took effect, %d had none, %d outcomes are unknown, %d entries were refused", seed,
		done, dropped, unknown, again)
	if done < 100 || dropped < 100 || again == 0 || heard < 100 || lost == 0 {
		t.Errorf("seed %d: that is too few", seed)
	}
	for name, mistakes := range map[string]Mistakes{
		"SplitGroups": {SplitGroups: true}, "DeadMarks": {DeadMarks: true}, "AnyExact": {AnyExact: true},
		"LateBase": {LateBase: true}, "KeptWatches": {KeptWatches: true}, "DeafWatch": {DeafWatch: true},
		"DeafTracking": {DeafTracking: true}, "KeptTracking": {KeptTracking: true},
	} {
		found := error(nil)
		n := seed
		for ; found == nil && n < seed+1000; n++ {
			found = play(n, mistakes)
		}
		t.Logf("%s: after %d games: %v", name, n-seed, found)
		if found == nil {
			t.Errorf("seed %d: %s is not found", seed, name)
		}
	}
}

// TestMarks: what makes a mark of an entry fail, in one entry with a unit before the group: as signalModifiedKey in
// Redis says. Behind an index that is not its base the entry has no effect.
func TestMarks(t *testing.T) {
	r := openStill(t, disk.Mem())
	defer r.close(t)
	index := uint64(0)
	apply := func(units, marks []byte, base uint64) {
		t.Helper()
		index++
		entry := entryOf(index)
		entry.Cmd = append(append(entry.Cmd, units...), marks...)
		if len(marks) > 0 {
			entry.Cmd = appendTrailer(entry.Cmd, 0, len(marks), false, nil, base)
		}
		if _, err := r.machine.Update([]multiraft.Entry{entry}); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
	}
	done := func() bool {
		v := r.o.Engine.NewView()
		defer v.Close()
		_, ok, err := v.Get(keys.AppendMetadata(nil, topology.SlotOf([]byte("{foo}done")), []byte("{foo}done")))
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	group := new(scripts).appendGroup(nil, redis.GroupExec, 1, []redis.Call{{Args: words("set {foo}done 1")}})
	for _, x := range []struct {
		before, unit string
		live, dirty  bool
		late, want   bool
	}{
		{"set {foo}k 1", "get-nothing", true, false, false, true},
		{"set {foo}k 1", "set {foo}k 1", true, false, false, false},
		{"set {foo}k 1", "set {foo}other 1", true, false, false, true},
		{"set {foo}k 1", "expire {foo}k 1000", true, false, false, false},
		{"set {foo}k 1", "persist {foo}k", true, false, false, true},
		{"set {foo}k 1", "del {foo}k", true, false, false, false},
		{"del {foo}k", "del {foo}k", false, false, false, true},
		{"del {foo}k", "set {foo}k 1", false, false, false, false},
		{"hset {foo}k f v", "hset {foo}k f v", true, false, false, false},
		{"zadd {foo}k 1 m", "zadd {foo}k 1 m", true, false, false, true},
		{"set {foo}k 1", "flushall", true, false, false, false},
		{"del {foo}k", "flushall", false, false, false, true},
		{"set {foo}k 1 px 1", "get-nothing", true, false, false, false}, // the next entry is 1 ms later
		{"set {foo}k 1 px 1", "get-nothing", false, false, false, true},
		{"set {foo}k 1 px 1", "set {foo}k 2", false, false, false, false},
		{"set {foo}k 1", "get-nothing", true, true, false, false},
		{"set {foo}k 1", "get-nothing", true, false, true, false},
	} {
		apply(appendCall(appendCall(nil, &redis.Call{Args: words("flushall")}), &redis.Call{Args: words(x.before)}), nil, 0)
		var units []byte
		if x.unit != "get-nothing" {
			units = appendCall(units, &redis.Call{Args: words(x.unit)})
		}
		base := index
		if x.late {
			base--
		}
		refused := r.counters.RefusedEntries.Load()
		expires := uint64(0)
		if strings.HasSuffix(x.before, " px 1") { // as of the entry before
			expires = 1000 + index + 1
		}
		m := mark{key: []byte("{foo}k"), live: x.live, dirty: x.dirty, expires: expires}
		apply(append(units, group...), m.append(nil), base)
		if got := done(); got != x.want || (r.counters.RefusedEntries.Load() > refused) != x.late {
			t.Errorf("%q, then %q: live %v, dirty %v, late %v: the group had an effect: %v", x.before, x.unit, x.live,
				x.dirty, x.late, got)
		}
	}
}

// TestFormPacksUnits: a group is never cut, and what is too large as a whole is refused as a whole.
func TestFormPacksUnits(t *testing.T) {
	r := queued(settings.RaftKnobs{BatchMaxOps: 10, BatchMaxBytes: 1 << 20})
	r.servingTerm.Store(1)
	p := pending(30, 1)
	p.Run.Groups = []redis.Group{{From: 4, To: 12, Kind: redis.GroupExec}, {From: 12, To: 27, Kind: redis.GroupExec}}
	r.proposer.queue = []*Pending{p}
	for i, want := range []int{4, 8, 15, 3} {
		b := r.proposer.form()
		if b == nil || b.commands != want {
			t.Fatalf("proposal %d: %+v; want %d commands", i, b, want)
		}
		r.proposer.finish(b, nil)
	}
	large := pending(3, maxEntryBytes/2)
	large.Run.Calls[0] = call("SET", "k", "v")
	large.Run.Groups = []redis.Group{{From: 1, To: 3, Kind: redis.GroupExec}}
	r.proposer.queue = []*Pending{large}
	r.proposer.finish(r.proposer.form(), nil)
	b := r.proposer.form()
	if !errors.Is(b.tooLarge, ErrTooLarge) || b.commands != 2 || len(b.buf) > entryHeaderBytes {
		t.Errorf("two calls of 32 MiB in a group: %v, %d commands, %d bytes", b.tooLarge, b.commands, len(b.buf))
	}
	many := &redis.Run{Groups: []redis.Group{{To: 40, Kind: redis.GroupExec}}}
	for range 40 {
		many.Calls = append(many.Calls, *writesMuch())
	}
	b2 := &Pending{Run: many}
	if calls, _, _, bytes := b2.unit(); !errors.Is(tooLarge(calls, bytes), ErrTooLarge) ||
		tooLarge(calls[:1], callBytes(&calls[0])) != nil {
		t.Errorf("40 calls that write 10 MiB each: %v, one of them: %v", tooLarge(calls, bytes), tooLarge(calls[:1], bytes))
	}
}

// writesMuch is a call of 100 KB that may write 10 MiB: many elements under a long key.
func writesMuch() *redis.Call {
	args := [][]byte{[]byte("rpush"), make([]byte, 100<<10)}
	for range 50 {
		args = append(args, []byte("e"))
	}
	return &redis.Call{Command: redis.Lookup(args[0]), Args: args}
}

// TestExactIsAlone: with several places, a transaction that watches waits until no other proposal is open, and no other
// is formed while it is. A watch of another replica, of an earlier term or one that is closed answers it at once. An
// entry that came too late brings its runs back, in order.
func TestExactIsAlone(t *testing.T) {
	r := queued(settings.RaftKnobs{MaxInflight: 0, BatchMaxOps: 2, BatchMaxBytes: 1 << 20})
	r.servingTerm.Store(5)
	x := &r.proposer
	watch := func(table *watches, term uint64) *Watch {
		w := &Watch{table: table, term: term, keys: []string{"k"}, seen: []seen{{live: true}}, markBytes: 17,
			places: make([]int, 1)}
		if err := table.add(w, time.Now().Add(time.Hour), nil, false); err != nil {
			t.Fatal(err)
		}
		return w
	}
	transaction := func(w *Watch) *Pending {
		p := pending(1, 1)
		p.Run.Groups, p.Watches = []redis.Group{{To: 1, Kind: redis.GroupExec}}, []*Watch{w}
		return p
	}
	plain, exact, behind := pending(2, 1), transaction(watch(&r.watches, 5)), pending(1, 1)
	x.queue = []*Pending{plain, exact, behind}
	first := x.form()
	if first == nil || first.commands != 2 || x.form() != nil {
		t.Fatalf("the first proposal is %+v, or another is formed beside it", first)
	}
	x.finish(first, nil)
	second := x.form()
	if second == nil || len(second.watches) != 1 || len(second.parts) != 2 {
		t.Fatalf("the exact proposal is %+v", second)
	}
	later := pending(1, 1)
	if x.queue = append(x.queue, later); x.form() != nil {
		t.Error("a proposal is formed beside an exact one")
	}
	x.finish(second, ErrBase)
	if !slices.Equal(x.queue, []*Pending{exact, behind, later}) || exact.next+behind.next != 0 {
		t.Errorf("%d runs wait behind an entry that came too late", len(x.queue))
	}
	x.queue = nil
	closed := watch(&r.watches, 5)
	closed.Close()
	closed.Close()
	other := queued(settings.RaftKnobs{})
	for name, w := range map[string]*Watch{
		"closed": closed, "of an earlier term": watch(&r.watches, 4), "another's": watch(&other.watches, 5),
	} {
		p := transaction(w)
		x.queue = []*Pending{p}
		if b := x.form(); b != nil || len(p.done) != 1 || p.Err != nil || len(p.Run.Dropped) != 1 ||
			len(p.Run.Ends) != 1 {
			t.Errorf("a watch %s: %+v, %+v", name, b, p)
		}
	}
	if r.watches.drop(); len(r.watches.of) != 0 || r.watches.open.Load() != 0 || !exact.Watches[0].Dirty() {
		t.Error("watches are left")
	}
	exact.Watches[0].Close()
	if r.watches.open.Load() != 0 {
		t.Error("a watch that was dropped counts when it is closed")
	}
}

// TestUnitsAreBounded: a transaction of short calls that write a string of 60 KB again and again is taken back as a
// whole where it has written too much, and says so. The units around it have their effect. So it is where it is not
// counted on the way, on a replica on which nobody waits.
func TestUnitsAreBounded(t *testing.T) {
	run := &redis.Run{Calls: []redis.Call{call("set", "{foo}a", "1"), call("set", "{foo}s", strings.Repeat("v", 60_000))}}
	for range 100 {
		run.Calls = append(run.Calls, call("append", "{foo}s", "x"))
	}
	run.Calls = append(run.Calls, call("incr", "{foo}a"))
	run.Groups = []redis.Group{{From: 2, To: 102, Kind: redis.GroupExec}}
	for i := range run.Calls {
		run.Calls[i].Command = redis.Lookup(run.Calls[i].Args[0])
	}
	var contents []map[string]string
	for _, waits := range []bool{true, false} {
		r := openStill(t, disk.Mem())
		r.servingTerm.Store(5)
		r.o.Knobs.BatchMaxOps, r.o.Knobs.BatchMaxBytes = 1000, 1<<20
		r.machine.unitBytes = 2 << 20
		p := &Pending{Run: run, Deadline: time.Now().Add(time.Hour)}
		r.Propose(p)
		b := r.proposer.form()
		r.proposer.seal(b, 5)
		if waits {
			run.Out.Buf, run.Ends = nil, nil
		} else {
			r.proposer.finish(r.proposer.claim(b.sequence), &UnknownOutcome{})
		}
		h, _, err := parseEntry(b.buf)
		if err != nil {
			t.Fatal(err)
		}
		h.timeMS = 1000
		h.put(b.buf)
		if _, err := r.machine.Update([]multiraft.Entry{{Index: 1, Cmd: b.buf}}); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
		if waits {
			p.Wait()
			want := redis.Drop{Error: "ERR command too large for a raft entry: it writes more than 2097152 bytes at once"}
			if p.Err != nil || !slices.Equal(run.Dropped, []redis.Drop{want}) || len(run.Ends) != 103 ||
				string(run.Out.Buf) != "+OK\r\n+OK\r\n:2\r\n" || run.Ends[1] != 10 || run.Ends[101] != 10 {
				t.Errorf("%v, %q, %+v, %d replies", p.Err, run.Out.Buf, run.Dropped, len(run.Ends))
			}
		}
		content := r.content(t)
		if record := content[string(keys.AppendMetadata(nil, topology.SlotOf([]byte("{foo}s")), []byte("{foo}s")))]; len(
			record) != keys.StringLen(60_000) {
			t.Errorf("the string's record has %d bytes", len(record))
		}
		contents = append(contents, content)
		r.close(t)
	}
	if len(contents[0]) != 3 {
		t.Errorf("%d records, want two strings and the region state", len(contents[0]))
	}
}

// TestWorkOfUnitsIsBounded: once the reads of a transaction have gone through too much together, further reads are
// refused, and all else has its effect. A transaction whose writes go through too much is taken back as a whole. A
// replica may go through less of a read, where its reply has no room: so a refused read must not change what writes
// choose.
func TestWorkOfUnitsIsBounded(t *testing.T) {
	long, set := call("rpush", "{foo}l"), call("sadd", "{foo}s")
	for i := range 600 {
		long.Args = append(long.Args, fmt.Appendf(nil, "element %d", i))
		set.Args = append(set.Args, fmt.Append(nil, i))
	}
	run := &redis.Run{Calls: []redis.Call{long, set}}
	add := func(args ...string) { run.Calls = append(run.Calls, call(args...)) }
	for range 4 { // the third and the fourth are refused
		add("lrange", "{foo}l", "0", "-1")
	}
	add("srandmember", "{foo}s", "5")
	add("spop", "{foo}s", "3")
	add("sunionstore", "{foo}d", "{foo}s")
	add("get", "{foo}a")
	add("incr", "{foo}a")
	reads := len(run.Calls)
	for range 20 {
		add("sunionstore", "{foo}e", "{foo}s")
	}
	writes := len(run.Calls)
	add("incr", "{foo}a")
	run.Groups = []redis.Group{{From: 2, To: reads, Kind: redis.GroupExec},
		{From: reads, To: writes, Kind: redis.GroupExec}}
	for i := range run.Calls {
		run.Calls[i].Command = redis.Lookup(run.Calls[i].Args[0])
	}
	var contents []map[string]string
	for _, how := range []string{"room", "no room", "nobody waits"} {
		r := openStill(t, disk.Mem())
		r.servingTerm.Store(5)
		r.o.Knobs.BatchMaxOps, r.o.Knobs.BatchMaxBytes = 1000, 1<<20
		r.machine.unitWork = 1000
		*run = redis.Run{Calls: run.Calls, Groups: run.Groups}
		p := &Pending{Run: run, Deadline: time.Now().Add(time.Hour)}
		r.Propose(p)
		b := r.proposer.form()
		r.proposer.seal(b, 5)
		switch how {
		case "no room":
			run.Out.More, run.Out.Room = func(int) int { return 0 }, 100
		case "nobody waits":
			r.proposer.finish(r.proposer.claim(b.sequence), &UnknownOutcome{})
		}
		h, _, err := parseEntry(b.buf)
		if err != nil {
			t.Fatal(err)
		}
		h.timeMS, h.version = 1000, 1
		h.put(b.buf)
		if _, err := r.machine.Update([]multiraft.Entry{{Index: 1, Cmd: b.buf}}); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
		if how != "nobody waits" {
			p.Wait()
			var got []string
			from := 0
			for _, end := range run.Ends {
				got = append(got, string(run.Out.Buf[from:end]))
				from = end
			}
			if p.Err != nil || len(got) != len(run.Calls) {
				t.Fatalf("%s: %v, %d replies", how, p.Err, len(got))
			}
			for i, x := range got[:reads] {
				want := how == "room" && run.Calls[i].Command.Write == nil && i > 3
				if (x == "-"+redis.ErrUnitReads+"\r\n") != want {
					t.Errorf("%s: %s: %.200q, refused %t", how, run.Calls[i].Args[0], x, want)
				}
			}
			want := redis.Drop{Group: 1, Error: redis.ErrUnitWrites}
			if !slices.Equal(run.Dropped, []redis.Drop{want}) || got[reads] != "" {
				t.Errorf("%s: dropped %+v; SUNIONSTORE: %q", how, run.Dropped, got[reads])
			}
			if one, two := got[reads-1], got[writes]; how == "room" && (one != ":1\r\n" || two != ":2\r\n") {
				t.Errorf("%s: INCR behind reads that are refused: %q, and behind writes: %q", how, one, two)
			}
		}
		contents = append(contents, r.content(t))
		r.close(t)
	}
	for i, c := range contents[1:] {
		if !maps.Equal(c, contents[0]) {
			t.Errorf("replica %d of 3 has another content", i+2)
		}
	}
}

// TestHearBesideDrop: a read of somebody who tracks waits for an Update that tells nobody, while all watches are
// dropped. The watches that come later count all the same.
func TestHearBesideDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := queued(settings.RaftKnobs{})
		x := &r.watches
		x.begin(true, nil)
		w := &Watch{table: x, term: 5, keys: []string{"k"}, places: make([]int, 1), seen: make([]seen, 1)}
		if err := x.add(w, time.Now(), nil, true); err != nil {
			t.Fatal(err)
		}
		heard := false
		go func() {
			if err := x.hear(time.Now().Add(time.Hour), nil); err != nil {
				t.Error(err)
			}
			heard = true
		}()
		synctest.Wait()
		if heard {
			t.Fatal("the read does not wait")
		}
		x.drop() // as in the middle of an Update
		synctest.Wait()
		if heard {
			t.Fatal("the read does not wait for the rest of the Update")
		}
		x.end()
		synctest.Wait()
		if !heard {
			t.Fatal("the read waits on")
		}
		w.Close()
		w = &Watch{table: x, term: 5, keys: []string{"k"}, places: make([]int, 1), seen: make([]seen, 1)}
		if err := x.add(w, time.Now(), nil, true); err != nil {
			t.Fatal(err)
		}
		if collects, _ := x.begin(true, nil); !collects {
			t.Error("an Update collects nothing, and somebody watches")
		}
	})
}
