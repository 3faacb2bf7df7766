package region

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// crowd is a replica whose log a test plays, and clients that wait for elements, each of which is pushed once.
type crowd struct {
	still
	random *rand.Rand
	term   uint64
	flying []*proposal // sealed, and in no log yet
	all    []*waiter
	pushes []*Pending

	next    int            // the number of the next element
	sure    map[string]int // how many of the pushes of an element are applied for certain
	popped  map[string]int // how often a client got it
	lost    int            // how many elements may have gone to clients whose outcome is unknown, at most
	outcome map[string]int
	log     []string
	problem error
}

// waiter is a client.
type waiter struct {
	p     *Pending // nil while it wants nothing
	since time.Time
	args  []string
	waits bool // it has been told that it waits
}

func openCrowd(t *testing.T, random *rand.Rand, mistakes Mistakes) *crowd {
	x := &crowd{still: openStillOf(t, disk.Mem(), snapshotRegion), random: random, term: 5, sure: map[string]int{},
		popped: map[string]int{}, outcome: map[string]int{}}
	mistakes.TrustLease = true
	x.o.Mistakes = mistakes
	x.o.Knobs = settings.RaftKnobs{RaftConstants: settings.RaftConstants{SnapshotBytes: 1 << 30},
		BatchMaxOps: 1 + random.IntN(8), BatchMaxBytes: 1 << 20, ReadSets: random.IntN(2) == 0}
	x.machine.stageBytes = 1 << random.IntN(12)
	x.o.Hooks.BeforePropose = func(topology.RegionID, uint64) {
		if len(x.flying) > 0 && random.IntN(3) == 0 {
			x.deliver()
		}
	}
	x.lead()
	for range 12 {
		x.all = append(x.all, new(waiter))
	}
	return x
}

func (x *crowd) lead() {
	x.rows.Open()
	x.servingTerm.Store(x.term)
	x.reader.lease.Store(&lease{term: x.term, until: 1 << 62})
}

func (x *crowd) fail(format string, args ...any) {
	if x.problem == nil {
		x.problem = fmt.Errorf(format, args...)
	}
}

func (x *crowd) note(format string, args ...any) { x.log = append(x.log, fmt.Sprintf(format, args...)) }

func (x *crowd) pick(of ...string) []string { return strings.Fields(of[x.random.IntN(len(of))]) }

// wait has a client begin to wait.
func (x *crowd) wait() {
	i := slices.IndexFunc(x.all, func(w *waiter) bool { return w.p == nil })
	if i < 0 {
		return
	}
	w := x.all[i]
	w.since = time.Now()
	w.args = x.pick("blpop {foo}a 0", "blpop {foo}b {foo}a 0", "brpop {foo}a {foo}b {foo}a 0",
		"blmove {foo}a {foo}b left right 0", "brpoplpush {foo}b {foo}a 0", "blmove {foo}a {foo}a right left 0",
		"blmove {foo}a {foo}s left left 0", "blmpop 0 2 {foo}a {foo}b right count 2", "bzpopmin {foo}z {foo}a 0",
		"bzpopmax {foo}z 0", "bzmpop 0 2 {foo}a {foo}z max count 2", "blpop {foo}z {foo}b 0")
	x.block(w)
}

func (x *crowd) block(w *waiter) {
	c := call(w.args...)
	c.Command = redis.Lookup(c.Args[0])
	run := &redis.Run{Version: 1, Calls: []redis.Call{c}}
	w.p = &Pending{Run: run, Deadline: time.Now().Add(time.Hour), Since: w.since}
	w.waits = false
	x.Block(w.p)
}

func (x *crowd) element() string {
	x.next++
	return fmt.Sprintf("e%d", x.next)
}

// push proposes a write that adds elements, or takes some.
func (x *crowd) push() {
	var lines []string
	for range 1 + x.random.IntN(2)*x.random.IntN(3) {
		e := x.element()
		switch x.random.IntN(10) {
		case 0, 1, 2:
			lines = append(lines, "lpush {foo}a "+e)
		case 3, 4:
			lines = append(lines, "rpush {foo}b "+e+" "+x.element())
		case 5, 6:
			lines = append(lines, "zadd {foo}z 1 "+e)
		case 7:
			lines = append(lines, "rpush {foo}t "+e+" "+x.element()+" "+x.element(), "renamenx {foo}t {foo}a")
		case 8:
			lines = append(lines, "lmove {foo}b {foo}a left left")
		case 9:
			if len(lines) == 0 {
				lines = []string{strings.Join(x.pick("lpop {foo}a", "zpopmin {foo}z", "lpop {foo}b 2"), " ")}
			}
		}
		if len(lines) > 0 && strings.Contains(lines[0], "pop") {
			break
		}
	}
	if len(lines) == 0 {
		return
	}
	p := &Pending{Run: &redis.Run{Version: 1}, Deadline: time.Now().Add(time.Hour)}
	for _, line := range lines {
		c := redis.Call{Args: words(line)}
		c.Command = redis.Lookup(c.Args[0])
		p.Run.Calls = append(p.Run.Calls, c)
	}
	if len(lines) > 1 {
		p.Run.Groups = []redis.Group{{To: len(lines), Kind: redis.GroupExec}}
	}
	x.pushes = append(x.pushes, p)
	x.Propose(p)
}

func (x *crowd) form() {
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

func (x *crowd) deliver() {
	if len(x.flying) > 0 {
		b := x.flying[0]
		x.flying = x.flying[1:]
		x.update(b.buf)
	}
}

func (x *crowd) update(cmd []byte) {
	entry := multiraft.Entry{Index: x.machine.state.ApplyIndex + 1, Cmd: cmd}
	x.note("apply %d: %q", entry.Index, cmd[entryHeaderBytes:])
	if _, err := x.machine.Update([]multiraft.Entry{entry}); err != nil || x.fs.Failed() != nil {
		x.fail("%v, %v", err, x.fs.Failed())
	}
}

var element = regexp.MustCompile(`e\d+`)

// collect takes what is known of writes and of clients.
func (x *crowd) collect() {
	x.pushes = slices.DeleteFunc(x.pushes, func(p *Pending) bool {
		select {
		case <-p.done:
		default:
			return false
		}
		for _, c := range p.Run.Calls {
			if name := string(c.Args[0]); p.Err == nil && (name == "lpush" || name == "rpush" || name == "zadd") {
				for _, e := range element.FindAllString(fmt.Sprintf("%s", c.Args), -1) {
					x.sure[e]++
				}
			} else if name == "lpop" || name == "zpopmin" {
				if unknown(p.Err) {
					x.lost += 2
				}
				for _, e := range element.FindAllString(string(p.Run.Out.Buf), -1) {
					x.popped[e]++
				}
			}
		}
		return true
	})
	for _, w := range x.all {
		for told := true; w.p != nil && told; {
			select {
			case <-w.p.done:
				x.told(w)
			default:
				told = false
			}
		}
	}
}

// told is called when the region tells a client something.
func (x *crowd) told(w *waiter) {
	p := w.p
	x.note("%q since %v: parked %v, %v, %q", w.args, w.since.UnixMilli(), p.Parked, p.Err, p.Run.Out.Buf)
	if p.Parked && !w.waits {
		w.waits = true
		x.outcome["parked"]++
		return
	}
	switch {
	case unknown(p.Err):
		x.outcome["unknown"]++
		x.lost += 2
	case errors.Is(p.Err, ErrNotLeader), errors.Is(p.Err, ErrBounds):
		x.outcome["again"]++
		if x.servingTerm.Load() != 0 {
			x.block(w)
			return
		}
		x.lead()
		x.block(w)
		return
	case errors.Is(p.Err, ErrCanceled):
		x.outcome["canceled"]++
	case p.Err != nil:
		x.fail("%q: %v", w.args, p.Err)
	case len(p.Run.Out.Buf) == 0 || p.Run.Out.Buf[0] == '*' && p.Run.Out.Buf[1] == '-':
		x.fail("%q is answered with %q", w.args, p.Run.Out.Buf)
	case !strings.Contains(w.args[0], "move") && !strings.Contains(w.args[0], "push"):
		x.outcome["popped"]++
		for _, e := range element.FindAllString(string(p.Run.Out.Buf), -1) {
			if x.popped[e]++; x.popped[e] > 1 {
				x.fail("%s is popped twice: %q gets %q", e, w.args, p.Run.Out.Buf)
			}
		}
	default:
		x.outcome["moved"]++
	}
	w.p = nil
}

// play plays so many steps, and then ends all that is under way.
func (x *crowd) play(steps int) {
	x.other("set {foo}s text")
	for n := 0; n < steps && x.problem == nil; n++ {
		switch x.random.IntN(14) {
		case 0, 1, 2:
			x.wait()
		case 3, 4, 5:
			x.push()
		case 6, 7, 8:
			x.form()
		case 9, 10:
			x.deliver()
		case 11:
			time.Sleep(time.Millisecond)
			if w := x.all[x.random.IntN(len(x.all))]; w.p != nil && x.random.IntN(2) == 0 {
				x.Cancel(w.p)
			}
		case 12: // a proposal that is given up, and applied later
			if len(x.flying) > 0 && x.random.IntN(4) == 0 {
				x.note("the next entry is given up")
				if b := x.proposer.claim(x.flying[0].sequence); b != nil {
					x.proposer.finish(b, &UnknownOutcome{"of a test"})
				}
			}
		case 13:
			switch x.random.IntN(12) {
			case 0, 1:
				x.depose()
			case 2:
				x.rebound()
			}
		}
		synctest.Wait()
		x.collect()
	}
	for range 200 {
		x.form()
		x.deliver()
		synctest.Wait()
		x.collect()
	}
	x.check()
}

// depose has another replica lead, which pushes an element: of the entries under way, the first ones are applied.
func (x *crowd) depose() {
	x.stepDown()
	synctest.Wait()
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
	line := ""
	if x.random.IntN(2) == 0 {
		e := x.element()
		x.sure[e]++
		line = strings.Join(x.pick("rpush {foo}a "+e, "rpush {foo}b "+e, "zadd {foo}z 1 "+e), " ")
	}
	x.other(line)
	x.term++
	x.lead()
}

// other applies an entry of another replica.
func (x *crowd) other(line string) {
	entry := make([]byte, entryHeaderBytes)
	h := entryHeader{term: x.term, timeMS: x.LeaderTimeMS(time.Now()), version: x.term << 20, store: 9, bounds: 1}
	h.put(entry)
	if line != "" {
		entry = appendCall(entry, &redis.Call{Args: words(line)})
	}
	x.update(entry)
}

// rebound has a change of the bounds begin and end, which leaves them as they are.
func (x *crowd) rebound() {
	x.other("bounds begin 1 9 0")
	x.other(fmt.Sprintf("bounds abort %d", x.machine.state.ApplyIndex))
}

// check looks for elements that are lost or there twice, and for clients that wait beside an element.
func (x *crowd) check() {
	run := redis.Run{}
	for _, line := range []string{"lrange {foo}a", "lrange {foo}b", "lrange {foo}t", "zrange {foo}z"} {
		c := redis.Call{Args: words(line + " 0 -1")}
		c.Command = redis.Lookup(c.Args[0])
		run.Calls = append(run.Calls, c)
	}
	r := redis.Reader{View: x.o.Engine.NewView()}
	defer r.View.Close()
	if err := r.Execute(&run); err != nil {
		x.fail("%v", err)
		return
	}
	there := maps.Clone(x.popped)
	for _, e := range element.FindAllString(string(run.Out.Buf), -1) {
		there[e]++
	}
	missing, example := 0, ""
	for e, n := range there {
		if n > 1 {
			x.fail("%s is there %d times", e, n)
		}
	}
	for e := range x.sure {
		if there[e] == 0 {
			missing++
			example = e
		}
	}
	if missing > x.lost {
		x.fail("%d elements are lost, such as %s; %d can be with clients whose outcome is unknown", missing, example, x.lost)
	}
	filled := func(call int) bool {
		from := 0
		if call > 0 {
			from = run.Ends[call-1]
		}
		return !strings.HasPrefix(string(run.Out.Buf[from:]), "*0")
	}
	for _, w := range x.all {
		switch {
		case w.p == nil:
		case !w.waits:
			x.fail("%q has neither an outcome nor been told that it waits", w.args)
		default:
			lists := !strings.HasPrefix(w.args[0], "bz")
			for i, key := range []string{"{foo}a", "{foo}b", "", "{foo}z"} {
				waits := slices.Contains(w.args, key)
				if strings.Contains(w.args[0], "move") || strings.Contains(w.args[0], "push") {
					waits = w.args[1] == key
				}
				if waits && lists == (i < 3) && filled(i) {
					x.fail("%q waits, and there is %q", w.args, run.Out.Buf)
				}
			}
		}
	}
}

// TestWaiters plays many games of crowds: each element goes to one client, and nobody waits beside an element. Each
// mistake is found.
func TestWaiters(t *testing.T) {
	seed := rand.Uint64()
	outcomes, games := map[string]int{}, uint64(100)
	play := func(seed uint64, mistakes Mistakes) (problem error) {
		synctest.Test(t, func(t *testing.T) {
			x := openCrowd(t, rand.New(rand.NewPCG(seed, 1)), mistakes)
			x.play(200)
			for k, n := range x.outcome {
				outcomes[k] += n
			}
			if problem = x.problem; problem != nil && mistakes == (Mistakes{}) {
				t.Logf("%s", strings.Join(x.log[max(0, len(x.log)-60):], "\n"))
			}
			x.proposer.rejectQueue(ErrStopped)
			x.close(t)
		})
		return problem
	}
	for n := range games {
		if err := play(seed+n, Mistakes{}); err != nil {
			t.Fatalf("seed %d: %v", seed+n, err)
		}
	}
	t.Logf("seed %d: %v", seed, outcomes)
	for _, k := range []string{"parked", "popped", "moved", "again", "canceled", "unknown"} {
		if outcomes[k] < 20 {
			t.Errorf("seed %d: %d are %s; that is too few", seed, outcomes[k], k)
		}
	}
	found, n := error(nil), seed
	for ; found == nil && n < seed+1000; n++ {
		found = play(n, Mistakes{AnyExact: true})
	}
	t.Logf("AnyExact: after %d games: %.200v", n-seed, found)
	if found == nil {
		t.Errorf("seed %d: AnyExact is not found", seed)
	}
}

// TestMoreWaitersThanMarks: a transaction fills a key for which more clients wait than its entry has marks, and than
// the next entry has tries. All of them are served in their order, before the next unit of the same entry and before a
// client that comes meanwhile. The element that is left goes to that unit.
func TestMoreWaitersThanMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openCrowd(t, rand.New(rand.NewPCG(1, 1)), Mistakes{})
		defer x.close(t)
		defer x.proposer.rejectQueue(ErrStopped)
		x.o.Hooks.BeforePropose, x.o.Knobs.BatchMaxOps = nil, 1000
		const clients = 3*maxMarks + 40
		x.all = nil
		push := "rpush {foo}t"
		for i := range clients {
			w := &waiter{since: time.Now().Add(time.Duration(i*7%clients) * time.Second), args: strings.Fields("blpop {foo}a 0")}
			x.all = append(x.all, w)
			x.block(w)
			if <-w.p.done; !w.p.Parked {
				t.Fatalf("client %d does not wait: %v", i, w.p.Err)
			}
			push += fmt.Sprintf(" e%d", i)
		}
		write := func(lines ...string) *Pending {
			p := &Pending{Run: &redis.Run{Version: 1}, Deadline: time.Now().Add(time.Hour)}
			for _, line := range lines {
				c := redis.Call{Args: words(line)}
				c.Command = redis.Lookup(c.Args[0])
				p.Run.Calls = append(p.Run.Calls, c)
			}
			if len(lines) > 1 {
				p.Run.Groups = []redis.Group{{To: len(lines), Kind: redis.GroupExec}}
			}
			x.Propose(p)
			return p
		}
		write(push+" left", "rename {foo}t {foo}a")
		next := write("lpop {foo}a")
		late := &waiter{since: time.Now().Add(time.Hour), args: strings.Fields("blpop {foo}a 0")}
		x.block(late) // while the others are served
		for range 10 {
			x.form()
			x.deliver()
		}
		slices.SortFunc(x.all, func(a, b *waiter) int { return a.since.Compare(b.since) })
		for i, w := range x.all {
			want := fmt.Sprintf("\r\ne%d\r\n", i)
			if got := string(w.p.Run.Out.Buf); !strings.HasSuffix(got, want) {
				t.Fatalf("client %d in the order of arrival gets %q; want %q at the end", i, got, want)
			}
		}
		if got := string(next.Run.Out.Buf); got != "$4\r\nleft\r\n" {
			t.Errorf("the next unit pops %q; want the element that is left", got)
		}
		if !late.p.Parked || len(late.p.Run.Out.Buf) > 0 {
			t.Errorf("a client that came meanwhile gets %q; want that it waits", late.p.Run.Out.Buf)
		}
	})
}

// TestScriptFillsOneOfManyKeys: an entry of a script has no marks of most keys for which clients wait. Those of the key
// that it has filled are served all the same, before the next unit.
func TestScriptFillsOneOfManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openCrowd(t, rand.New(rand.NewPCG(1, 1)), Mistakes{})
		defer x.close(t)
		defer x.proposer.rejectQueue(ErrStopped)
		x.o.Hooks.BeforePropose, x.o.Knobs.BatchMaxOps = nil, 1000
		const clients = 3 * maxServed
		x.all = nil
		for i := range clients {
			w := &waiter{since: time.Now().Add(time.Duration(i)), args: strings.Fields(fmt.Sprintf("blpop {foo}%d 0", i%(clients/2)))}
			x.all = append(x.all, w)
			x.block(w)
			if <-w.p.done; !w.p.Parked {
				t.Fatalf("client %d does not wait: %v", i, w.p.Err)
			}
		}
		for _, n := range []int{0, clients/2 - 1, 700} {
			script := scriptCall("return redis.call('rpush', KEYS[1], 'e1', 'e2', 'e3')", "1", fmt.Sprintf("{foo}%d", n))
			script.Command = redis.Script
			push := &Pending{Run: &redis.Run{Version: 1, Calls: []redis.Call{script}, ScriptLimits: stagedLimits},
				Deadline: time.Now().Add(time.Hour)}
			x.Propose(push)
			next := &Pending{Run: &redis.Run{Version: 1, Calls: []redis.Call{call("lpop", fmt.Sprintf("{foo}%d", n))}},
				Deadline: time.Now().Add(time.Hour)}
			next.Run.Calls[0].Command = redis.Lookup([]byte("lpop"))
			x.Propose(next)
			for range 10 {
				x.form()
				x.deliver()
			}
			if <-push.done; push.Err != nil || string(push.Run.Out.Buf) != ":3\r\n" {
				t.Fatalf("the script: %v, %q", push.Err, push.Run.Out.Buf)
			}
			for i, w := range []*waiter{x.all[n], x.all[n+clients/2]} {
				if got, want := string(w.p.Run.Out.Buf), fmt.Sprintf("e%d\r\n", i+1); !strings.HasSuffix(got, want) {
					t.Errorf("client %d of key %d gets %q; want %q at the end", i, n, got, want)
				}
			}
			if got := string(next.Run.Out.Buf); got != "$2\r\ne3\r\n" {
				t.Errorf("the next unit pops %q", got)
			}
		}
		if n, marks := x.proposer.waiters.count, clients-6; n != marks {
			t.Errorf("%d wait on; want %d", n, marks)
		}
	})
}

// TestWaiterOfSeveralKeys: a client that waits for two keys, of which a transaction does not fill the first, comes
// behind a client that has waited longer for the second.
func TestWaiterOfSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openCrowd(t, rand.New(rand.NewPCG(1, 1)), Mistakes{})
		defer x.close(t)
		defer x.proposer.rejectQueue(ErrStopped)
		x.o.Hooks.BeforePropose, x.o.Knobs.BatchMaxOps = nil, 1000
		first := &waiter{since: time.Now(), args: strings.Fields("blpop {foo}b 0")}
		second := &waiter{since: time.Now().Add(time.Second), args: strings.Fields("blpop {foo}a {foo}b 0")}
		for _, w := range []*waiter{second, first} {
			x.block(w)
			<-w.p.done
		}
		p := &Pending{Run: &redis.Run{Version: 1, Groups: []redis.Group{{To: 3, Kind: redis.GroupExec}}},
			Deadline: time.Now().Add(time.Hour)}
		for _, line := range []string{"set {foo}a text", "lpush {foo}a e0", "lpush {foo}b e1"} {
			c := redis.Call{Args: words(line)}
			c.Command = redis.Lookup(c.Args[0])
			p.Run.Calls = append(p.Run.Calls, c)
		}
		x.Propose(p)
		x.form()
		x.deliver()
		if got := string(first.p.Run.Out.Buf); !strings.HasSuffix(got, "e1\r\n") {
			t.Errorf("who came first gets %q, who came second %q", got, second.p.Run.Out.Buf)
		}
	})
}

// TestKeyOfManyChanges: a unit that changes a key thousands of times has the clients that wait for it looked at once, not
// at each change.
func TestKeyOfManyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := openCrowd(t, rand.New(rand.NewPCG(1, 1)), Mistakes{})
		defer x.close(t)
		defer x.proposer.rejectQueue(ErrStopped)
		x.o.Hooks.BeforePropose, x.o.Knobs.BatchMaxOps = nil, 1000
		const clients, pushes = 1000, 5_000
		x.all = nil
		for i := range clients {
			w := &waiter{since: time.Now().Add(time.Duration(i)), args: strings.Fields("blpop {foo}a 0")}
			x.all = append(x.all, w)
			x.block(w)
			<-w.p.done
		}
		p := &Pending{Run: &redis.Run{Version: 1, Groups: []redis.Group{{To: 2 * pushes, Kind: redis.GroupExec}}},
			Deadline: time.Now().Add(time.Hour)}
		for range pushes {
			for _, line := range []string{"lpush {foo}a e1", "lpop {foo}a"} {
				c := redis.Call{Args: words(line)}
				c.Command = redis.Lookup(c.Args[0])
				p.Run.Calls = append(p.Run.Calls, c)
			}
		}
		x.Propose(p)
		x.form()
		work := &x.machine.work
		before := work.Spent()
		x.deliver()
		if n := work.Spent() - before; n > clients*pushes {
			t.Errorf("%d units of work for %d pushes and %d clients", n, pushes, clients)
		}
		if <-p.done; p.Err != nil || len(p.Run.Dropped) > 0 {
			t.Fatalf("%v, %+v", p.Err, p.Run.Dropped)
		}
		if n := x.proposer.waiters.count; n != clients {
			t.Errorf("%d of %d wait on", n, clients)
		}
	})
}

// BenchmarkLines has clients wait for a key each, all of one slot, and leave in the order in which they came.
func BenchmarkLines(b *testing.B) {
	for _, clients := range []int{1000, 100_000} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			all := make([]*Pending, clients)
			for i := range all {
				c := call("blpop", fmt.Sprintf("{foo}%d", i), "0")
				c.Command = redis.Lookup(c.Args[0])
				all[i] = &Pending{Run: &redis.Run{Calls: []redis.Call{c}}, Since: time.Unix(0, int64(i))}
			}
			var x waiters
			for n := 0; n < b.N; n += clients {
				for _, p := range all {
					x.add(p)
				}
				for _, p := range all {
					x.remove(p)
				}
			}
		})
	}
}
