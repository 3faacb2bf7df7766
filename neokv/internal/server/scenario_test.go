package server

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var update = flag.Bool("update", false, "write the expected output of the scenarios")

// TestScenarios runs the scenarios of testdata/executor.txt, which says how to read them.
func TestScenarios(t *testing.T) { runScenarios(t, "executor.txt", runScenario) }

// runScenarios runs the scenarios of a file in testdata, each in virtual time, and compares what run returns with what
// stands below the line ----.
func runScenarios(t *testing.T, file string, run func(t *testing.T, lines []string) string) {
	path := filepath.Join("testdata", file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for i, block := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		in, want, ok := strings.Cut(block, "\n----")
		if !ok {
			out.WriteString(block + "\n") // a comment
			continue
		}
		name, _, _ := strings.Cut(in, "\n")
		got := ""
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { got = run(t, strings.Split(in, "\n")) })
			if want = strings.TrimPrefix(want+"\n", "\n"); got != want && !*update {
				t.Errorf("\n%s\ngot:\n%swant:\n%s", in, got, want)
			}
		})
		out.WriteString(in + "\n----\n" + got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// scenario is a cluster without connections, stores and logs: a node whose regions answer as the text says, and the
// caller of the executor.
type scenario struct {
	e     executor
	reply redis.Reply
	reads bool     // the client allows reads of replicas that do not lead
	asks  bool     // the client has sent ASKING before
	keys  []string // that exist where a migration is shown
	bytes int      // that the client's commands hold
	over  bool     // the executor has ended the caller

	begin time.Time // of the pipeline
	gone  chan struct{}

	mu       sync.Mutex
	out      strings.Builder
	table    *route.Table
	changed  chan struct{}
	outdated bool
	down     []topology.StoreID
	absent   []fakeReplica
	answers  map[topology.RegionID][]answer
	waiting  map[*region.Pending]chan struct{}
	indexes  map[topology.RegionID]uint64

	scripts, elsewhere lua.Scripts // loaded here, and at other stores
}

// answer is what a region does with the next run that it is handed.
type answer struct {
	after time.Duration
	calls int // it executes so many, -1 for all
	err   error
	late  bool // it answers at the run's deadline
	lost  bool
}

var answerErrors = map[string]error{
	"not-leader": region.ErrNotLeader, "stopped": region.ErrStopped, "bounds": region.ErrBounds,
	"deadline": region.ErrDeadline, "too-large": region.ErrTooLarge, "no-space": region.ErrNoSpace,
	"at-leader": region.ErrAtLeader, "gone": errGone, "damaged": fmt.Errorf("damaged"),
	"unknown": &region.UnknownOutcome{Reason: "leader lost"},
}

func parseAnswer(text string) (a answer, err error) {
	a.calls = -1
	words := strings.Fields(text)
	if len(words) > 1 && words[0] == "after" {
		if a.after, err = time.ParseDuration(words[1]); err != nil {
			return a, err
		}
		words = words[2:]
	}
	if len(words) > 1 && words[1] == "then" {
		if a.calls, err = strconv.Atoi(words[0]); err != nil {
			return a, err
		}
		words = words[2:]
	}
	switch what := strings.Join(words, " "); what {
	case "ok":
	case "hang": // in no entry
		a.late, a.err = true, region.ErrDeadline
	case "hang in log":
		a.late, a.err = true, &region.UnknownOutcome{Reason: "no answer from a quorum in time"}
	case "hang in apply":
		a.late, a.lost, a.err = true, true, &region.UnknownOutcome{Reason: "not applied in time"}
	default:
		if a.err = answerErrors[what]; a.err == nil {
			return a, fmt.Errorf("unknown answer %q", what)
		}
	}
	if a.err != nil && a.calls < 0 {
		a.calls = 0
	}
	return a, nil
}

func runScenario(t *testing.T, lines []string) string {
	k := settings.Default()
	k.Redis.LeaderlessWait = 3 * time.Second
	memory := NewClientMemory(0, 3)
	b := &backend{
		knobs: &k.Redis, turns: memory.turns, places: memory.scripts, started: time.Now(), closing: make(chan struct{}),
	}
	x := &scenario{
		begin: time.Now(), gone: make(chan struct{}), changed: make(chan struct{}),
		answers: map[topology.RegionID][]answer{}, waiting: map[*region.Pending]chan struct{}{},
		indexes: map[topology.RegionID]uint64{},
	}
	b.node = x
	x.reply.More, x.reply.Room = func(n int) int { return n }, freeRoom
	x.e.init(b, x, x.gone, &x.reply)
	defer x.e.close()
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if err := x.do(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	out := x.out.String()
	time.Sleep(time.Minute) // for what still sleeps
	for _, turns := range b.turns {
		if n := len(turns.taken); n > 0 {
			t.Errorf("%d turns are not given back", n)
		}
	}
	if n := b.waitingBytes.Load(); n != 0 {
		t.Errorf("%d bytes wait for a leader at the end", n)
	}
	return out
}

// do runs a line of a scenario.
func (x *scenario) do(line string) (err error) {
	verb, rest, _ := strings.Cut(line, " ")
	b := x.e.backend
	switch verb {
	case "port":
		n, err := strconv.Atoi(rest)
		b.self = topology.StoreID(n)
		x.e.port.Store = b.self
		return err
	case "stand-in":
		b.standIn = true
	case "closes":
		x.e.breaks = true
	case "readonly":
		x.reads, b.knobs.FollowerRead = true, true
	case "asking":
		x.asks = true
	case "keys":
		x.keys = strings.Fields(rest)
	case "window":
		return x.window(rest)
	case "holds":
		size, err := settings.ParseBytes(rest)
		x.bytes = int(size)
		return err
	case "down":
		n, err := strconv.Atoi(rest)
		x.down = append(x.down, topology.StoreID(n))
		return err
	case "absent": // store/region
		r := fakeReplica{x: x}
		_, err = fmt.Sscanf(rest, "%d/%d", &r.store, &r.id)
		x.absent = append(x.absent, r)
		return err
	case "outdated":
		x.set(func() { x.outdated = true })
	case "table":
		t, err := x.parseTable(rest)
		x.set(func() { x.table, x.outdated = t, false })
		return err
	case "region":
		id, answers, _ := strings.Cut(rest, ": ")
		n, err := strconv.Atoi(id)
		for text := range strings.SplitSeq(answers, ", ") {
			a, err := parseAnswer(text)
			if err != nil {
				return err
			}
			x.answers[topology.RegionID(n)] = append(x.answers[topology.RegionID(n)], a)
		}
		return err
	case "turns": // all turns of a store are taken for a while
		store, taken, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(store)
		d, err := time.ParseDuration(taken)
		for all := b.turns[n]; len(all.taken) < cap(all.taken); {
			all.taken <- struct{}{}
			time.AfterFunc(d, func() { all.ended.Add(1); <-all.taken })
		}
		return err
	case "scripts": // all places for scripts of a store are taken for a while
		store, taken, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(store)
		d, err := time.ParseDuration(taken)
		for all := b.places[n]; len(all) < cap(all); {
			all <- struct{}{}
			time.AfterFunc(d, func() { <-all })
		}
		return err
	case "leave":
		close(x.gone)
	case "close":
		close(b.closing)
	case "at":
		at, then, _ := strings.Cut(rest, " ")
		d, err := time.ParseDuration(at)
		time.AfterFunc(d, func() {
			if err := x.do(then); err != nil {
				x.say("%v", err)
			}
		})
		return err
	case "elsewhere": // a script that another store has
		s, err := lua.Compile(rest)
		if err == nil {
			x.elsewhere.Add(s, true)
		}
		return err
	case "run":
		return x.run(rest)
	default:
		return fmt.Errorf("unknown line")
	}
	return nil
}

// window shows a migration of slots, such as 0-16383 1 2 50%: so much of its time is over.
func (x *scenario) window(text string) error {
	w := route.Window{Seed: 1, LengthMS: 100_000}
	var percent int64
	_, err := fmt.Sscanf(text, "%d-%d %d %d %d%%", &w.Slots.First, &w.Slots.Last, &w.From, &w.To, &percent)
	w.BeginMS = time.Now().UnixMilli() - percent*1000
	x.set(func() {
		for _, r := range x.table.Regions {
			if r.Slots.Overlaps(w.Slots) {
				w.Regions = append(w.Regions, route.WindowRegion{ID: r.ID, Slots: r.Slots, Version: r.Version})
			}
		}
		x.table.Windows = append(x.table.Windows, w)
	})
	return errors.Join(err, w.Check())
}

// set changes what the node knows.
func (x *scenario) set(how func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	how()
	close(x.changed)
	x.changed = make(chan struct{})
}

// parseTable reads regions such as 1:0-8191@2; no leader is @-. The version of a region's bounds is its first slot and
// last slot in one number.
func (x *scenario) parseTable(text string) (*route.Table, error) {
	var peers []topology.Peer
	var stores []route.PublicStore
	for s := topology.StoreID(1); s <= 3; s++ {
		peers = append(peers, topology.Peer{Store: s, Replica: topology.ReplicaID(s)})
		stores = append(stores, route.PublicStore{ID: s, Host: "h", Port: int(s), Alive: !slices.Contains(x.down, s)})
	}
	var regions []route.LedRegion
	for word := range strings.FieldsSeq(text) {
		r := route.LedRegion{Region: topology.Region{Peers: peers}}
		bounds, leader, _ := strings.Cut(word, "@")
		if leader != "-" {
			n, err := strconv.Atoi(leader)
			if err != nil {
				return nil, err
			}
			r.Leader = topology.StoreID(n)
		}
		if _, err := fmt.Sscanf(bounds, "%d:%d-%d", &r.ID, &r.Slots.First, &r.Slots.Last); err != nil {
			return nil, err
		}
		r.Version = uint64(r.Slots.First)<<14 + uint64(r.Slots.Last)
		regions = append(regions, r)
	}
	return route.NewTable(1, stores, regions), nil
}

// run runs the commands of a pipeline as a connection does.
func (x *scenario) run(pipeline string) error {
	e := &x.e
	var cmds []command
	for call := range strings.SplitSeq(pipeline, " | ") {
		words := wordsOf(call)
		row := commands.Lookup([]byte(words[0]))
		if row == nil {
			return fmt.Errorf("no command %s", words[0])
		}
		cmd := *commandOf(words...)
		cmd.cut = row.Split != redis.NoSplit && e.proxy()
		cmds = append(cmds, cmd)
	}
	x.begin = time.Now()
	e.arrived = x.begin
	for i := 0; i < len(cmds) && !x.over; {
		if len(x.reply.Buf) >= flushBytes {
			x.reply.Buf = x.reply.Buf[:0]
		}
		n, start := 1, len(x.reply.Buf)
		if cmds[i].how == redis.HowScript {
			if is := e.ready(&cmds[i], false); is != isReady {
				x.answered(&cmds[i], start, is == hasRun)
				i++
				continue
			}
		}
		if how := cmds[i].how; cmds[i].joins(how) {
			n = e.runTogether(cmds[i:i+e.together(cmds[i:])], how)
		} else {
			e.work.Begin()
			e.runWide(&cmds[i])
			x.answered(&cmds[i], start, true)
		}
		e.endTurn()
		i += n
	}
	return nil
}

// oneLiner is the reverse of what wordsOf does with line ends.
var oneLiner = strings.NewReplacer("\n", `\n`)

// wordsOf splits a call at its spaces, but for those between single quotes. sha(TEXT) is the SHA1 of a text.
func wordsOf(call string) (words []string) {
	for i, part := range strings.Split(call, "'") {
		part = strings.ReplaceAll(part, `\n`, "\n")
		if i%2 == 0 {
			words = append(words, strings.Fields(part)...)
		} else if n := len(words) - 1; n >= 0 && words[n] == "sha" {
			words[n] = lua.SHA1(part)
		} else {
			words = append(words, part)
		}
	}
	return words
}

// say writes a line of the output, with the time since the pipeline has arrived.
func (x *scenario) say(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(&x.out, "%v %s\n", time.Since(x.begin), fmt.Sprintf(format, args...))
}

func (x *scenario) answered(cmd *command, start int, made bool) {
	if start == len(x.reply.Buf) {
		return
	}
	reply := strings.TrimSpace(strings.ReplaceAll(string(x.reply.Buf[start:]), "\r\n", " "))
	if len(reply) > 100 {
		reply = fmt.Sprintf("%d bytes", len(x.reply.Buf)-start)
	}
	if !made {
		reply += " (did not run, or nobody knows)"
	}
	x.say("%s => %s", oneLiner.Replace(joinArgs(cmd.args)), reply)
}

func (x *scenario) wrote(r topology.RegionID, w lastWrite) {
	x.say("last write in region %d: %d", r, w.index)
}

func (x *scenario) readOnly() bool { return x.reads }
func (x *scenario) asking() bool   { return x.asks }
func (x *scenario) told(s *route.PublicStore) announce.Addr {
	return announce.Addr{Endpoint: s.Host, Port: s.Port}
}
func (x *scenario) received() int           { return x.bytes }
func (x *scenario) lost(now time.Time) bool { return false }
func (x *scenario) wake()                   {}

func (x *scenario) undecided(why string) {
	x.over = true
	x.say("the connection ends: %s", why)
}

func (x *scenario) stop() {
	x.over = true
	x.say("the connection ends")
}

func (x *scenario) Table() *route.Table {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.table
}

func (x *scenario) Changed() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

func (x *scenario) Outdated(topology.Slot, *route.LedRegion) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outdated
}

func (x *scenario) Scripts() *lua.Scripts               { return &x.scripts }
func (x *scenario) LoadScript(s *lua.Script, stay bool) { x.scripts.Add(s, stay) }

func (x *scenario) LogScript(level int, text string) { x.say("log %d: %s", level, text) }

func (x *scenario) FindScript(sha string) *lua.Script {
	x.say("other stores are asked for the script %.8s", sha)
	s := x.elsewhere.Get(sha)
	if s != nil {
		x.scripts.Add(s, false)
	}
	return s
}

func (x *scenario) Replica(s topology.StoreID, r topology.RegionID) replica {
	here := fakeReplica{x, s, r}
	if slices.Contains(x.absent, here) || x.e.self != 0 && s != x.e.self && !x.asks {
		return nil
	}
	return here
}

// fakeReplica answers the runs that it is handed as the scenario says, and executes each call once.
type fakeReplica struct {
	x     *scenario
	store topology.StoreID
	id    topology.RegionID
}

func (r fakeReplica) Prepare()                       { r.x.say("region %d is about to be read", r.id) }
func (r fakeReplica) Sampler() *schedule.SlotSampler { return nil }
func (r fakeReplica) KeyChanges() uint64             { return 0 }
func (r fakeReplica) OldestRead() time.Duration      { return 0 }

func (r fakeReplica) Watch([][]byte, uint64, time.Time) (*region.Watch, error) {
	panic("no scenario watches keys")
}

// take notes what a run has, and returns how the region answers it.
func (r fakeReplica) take(how string, run *redis.Run) answer {
	calls := make([]string, len(run.Calls))
	for i, c := range run.Calls {
		calls[i] = joinArgs(c.Args)
	}
	r.x.say("region %d at store %d %s: %s", r.id, r.store, how, oneLiner.Replace(strings.Join(calls, " | ")))
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	if t := r.x.table.ByID(r.id); t == nil || t.Version != run.Version {
		return answer{err: region.ErrBounds}
	}
	if next := r.x.answers[r.id]; len(next) > 0 {
		r.x.answers[r.id] = next[1:]
		return next[0]
	}
	return answer{calls: -1}
}

// execute appends the replies of the calls that a run still has, as far as the answer lets it.
func (x *scenario) execute(a *answer, run *redis.Run) {
	for i := len(run.Ends); i < len(run.Calls) && a.calls != 0; i++ {
		if run.Limit > 0 && len(run.Out.Buf) >= run.Limit {
			return
		}
		a.calls--
		row, args := run.Calls[i].Command, run.Calls[i].Args
		switch {
		case row == redis.Held && slices.Contains(x.keys, string(args[1])):
			run.Out.Int(1)
		case row == redis.Held:
			run.Out.Int(0)
		case row.Split == redis.SplitArray:
			run.Out.Array(len(args) - 1)
			for _, key := range args[1:] {
				run.Out.Bulk(key)
			}
		case row.Split == redis.SplitSum:
			run.Out.Int(int64(len(args) - 1))
		case row.Name == "get" && args[1][0] == 'L': // a large value
			run.Out.Bulk(make([]byte, 100<<10))
		case row.Name == "get":
			run.Out.Bulk(args[1])
		default:
			run.Out.OK()
		}
		run.Ends = append(run.Ends, len(run.Out.Buf))
	}
}

func (r fakeReplica) Propose(p *region.Pending) {
	a := r.take("writes", p.Run)
	p.Err, p.Index, p.Lost = nil, 0, false
	done := make(chan struct{})
	r.x.mu.Lock()
	r.x.waiting[p] = done
	r.x.mu.Unlock()
	go func() {
		defer close(done)
		time.Sleep(a.after)
		before := len(p.Run.Ends)
		r.x.execute(&a, p.Run)
		if len(p.Run.Ends) > before {
			r.x.mu.Lock()
			r.x.indexes[r.id]++
			p.Index = r.x.indexes[r.id]
			r.x.mu.Unlock()
		}
		if a.late {
			time.Sleep(time.Until(p.Deadline))
		}
		p.Err, p.Lost = a.err, a.lost
		if a.lost { // apply goes on
			run := p.Run
			go func() {
				time.Sleep(100 * time.Millisecond)
				a.calls = -1
				r.x.execute(&a, run)
			}()
		}
	}()
}

func (r fakeReplica) Block(p *region.Pending)  { r.Propose(p) }
func (r fakeReplica) Cancel(p *region.Pending) {}
func (r fakeReplica) ID() topology.RegionID    { return r.id }

func (r fakeReplica) Await(p *region.Pending, gone <-chan struct{}) bool {
	r.x.mu.Lock()
	done := r.x.waiting[p]
	r.x.mu.Unlock()
	select {
	case <-done:
		return true
	case <-gone:
		return false
	}
}

func (r fakeReplica) Read(run *redis.Run, deadline time.Time) error {
	return r.read("reads", run, deadline)
}

func (r fakeReplica) ReadFollowing(run *redis.Run, deadline time.Time) error {
	return r.read("reads as a follower", run, deadline)
}

func (r fakeReplica) read(how string, run *redis.Run, deadline time.Time) error {
	a := r.take(how, run)
	time.Sleep(a.after)
	if a.late {
		time.Sleep(time.Until(deadline))
	}
	r.x.execute(&a, run)
	return a.err
}
