// Package bench sends workloads to a target and records what comes back. The target is any Redis or Redis Cluster,
// which bench reaches over connections of its own. Bench does not know which program answers, so figures of different
// programs can be compared.
//
// Groups of clients send at the same time, each its own workload. In a closed loop each client sends its next batch
// when the last one is answered: that measures peak throughput. In an open loop operations have intended starts by a
// plan, and response time counts from there. So a target that stalls does not stop the clock that measures it (no
// coordinated omission). Service time, from the actual send, is recorded beside it.
//
// Every operation ends in one place of its group's ledger: answered, failed, of unknown outcome, dropped before it was
// sent, or still in flight when the run ended. Each is counted where it happens, so that a ledger which adds up says
// something.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/results"
	"neokv.dev/workloads"
)

// Options says what to send where. The defaults of a load are those of the profile `default`. A caller gives everything
// here, except where a comment says what a zero value stands for.
type Options struct {
	// Targets are addresses, host:port or unix:///path: some nodes of one Redis Cluster, or plain servers, over which
	// the clients are spread. Bench asks them which of the two they are.
	Targets []string
	// Groups are the groups of clients that send at the same time, at least one.
	Groups []GroupOptions
	// Duration is that of the measured part; 0 is until the work is done: a recording, or a number of operations.
	Duration time.Duration
	Warmup   time.Duration // before the measured part, not in the summary; 0 is none
	// WarmupAuto says that the run is to find the end of the warm-up from the data. Warmup is then the longest that it
	// may take; 0 is a minute.
	WarmupAuto bool
	// Events are what the run does in its measured part, beside the load.
	Events []ScheduledEvent
	// Inject carries out the faults among the events, unless ctx ends, and says what has come of them; nil if the
	// target takes none. Stores is how many stores the target has, 0 if that is not known.
	Inject func(ctx context.Context, f fault.Fault) (outcome string, err error)
	Stores int
	// Search says to try several rates of the first group; nil is a run at the rate of the group.
	Search *RateSearch
	// SLO is what each group must hold in the measured part, without Search; the zero SLO is nothing.
	SLO SLO
	// Interval is how long the intervals of the record are; 0 is a second, or longer in a long run.
	Interval time.Duration
	Seed     uint64
	// Timeout is the longest time for making a connection, and for the answer to a batch; 0 is 10 s.
	Timeout time.Duration
	// DeadAfter is how long a target may give nothing but errors before it counts as dead; 0 is 10 s.
	DeadAfter time.Duration
	Load      LoadPhase
	// Verify says to follow which values records may hold, and to read them back at the end. Run fails if a record
	// holds another value.
	Verify bool

	// Login is how every connection begins.
	Login Login
	// Dial makes a connection; nil dials TCP, or the Unix socket that an address names.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// LeaveCore, unless it is nil, is called before closed loops go to one server at a loopback address, and what it
	// returns when they have ended. It is to leave a core of this machine to that server, which may have one thread.
	LeaveCore func() (back func())
	// Progress is called once a second and at the end of a phase, unless it is nil. It must not block.
	Progress func(Tick)
	// Header is what the caller knows of the run, made with results.NewHeader. Run fills in Load and Target.
	Header results.Header
}

// LoadPhase says what a run does about the records that a workload has loaded.
type LoadPhase int

const (
	LoadFirst    LoadPhase = iota // it loads them, and then sends
	LoadAlone                     // it loads them and ends
	LoadedBefore                  // it only sends: a run with the same groups has loaded them
)

// maxClients is how many clients a group has at most.
const maxClients = 10_000

// GroupOptions says what the clients of a group send.
type GroupOptions struct {
	Name     string // its name in results; empty for that of the workload, or for replay
	Workload string // a name that workloads.Find knows
	// Commands are sent in place of a workload, see workloads.Commands; nil for none.
	Commands []string
	Clients  int
	Pipeline int // operations that a client sends at once
	// Operations is how many operations all clients of a closed loop send together, in whole pipelines however large
	// they are, and without a warm-up; 0 is as many as the time allows.
	Operations int
	Slots      PipelineSlots
	Rate       Pace // of all clients of the group together; the zero Pace is a closed loop
	// Replay is a recording to send instead of a workload, at its own pace. Its group is the only one.
	Replay   *Replay
	Records  uint64
	Elements int // elements of a record, if records are collections
	// ValueSize is the bytes of a value. In a hash or a list each element has a value.
	ValueSize int

	// Set by complete.
	workload *workloads.Workload
	src      *workloads.Source
}

// Tick says how far a run is, for people who watch it.
type Tick struct {
	Phase          string
	Elapsed, Total time.Duration // of the phase; Total is 0 where the end is not a matter of time
	// In a phase that writes or reads back all records, Items says how many there are and Reached how many are done.
	Items, Reached uint64
	PerSecond      float64 // of all groups of clients
	// Latencies are those of each group since the last tick: response times in an open loop, else service times.
	// Operations that wait at the end of it count with their wait.
	Latencies []results.Latency
	Errors    int64 // of all groups since the last tick, those without an answer included
	Behind    int64 // of all groups in an open loop: operations due and not sent
	// Interval is what there is of the time since the last tick, and Nodes what bench knows of each node. Nobody
	// changes them afterwards.
	Interval results.Interval
	Nodes    []NodeTick

	answers int64 // without errors
}

// NodeTick is what bench knows of a node of the target.
type NodeTick struct {
	Addr  string
	Slots int // that it serves by the last slot table; 0 of a plain server
	// Work is what its store did since the last tick. It is nil if the node did not tell.
	Work results.Work
}

// String returns a tick as one line of text.
func (t Tick) String() string {
	var b strings.Builder
	if t.Total == 0 {
		fmt.Fprintf(&b, "%s %s of %s records, %s/s", t.Phase, results.Count(int64(t.Reached)),
			results.Count(int64(t.Items)),
			results.Count(int64(t.PerSecond)))
	} else {
		fmt.Fprintf(&b, "%s %.0f of %.0f s, %s ops/s, p50 %s, p99 %s", t.Phase, min(t.Elapsed, t.Total).Seconds(),
			t.Total.Seconds(), results.Count(int64(t.PerSecond)), t.Latencies[0].P50, t.Latencies[0].P99)
	}
	if t.Errors > 0 {
		fmt.Fprintf(&b, ", %s errors", results.Count(t.Errors))
	}
	if t.Behind > 0 {
		fmt.Fprintf(&b, ", %s behind", results.Count(t.Behind))
	}
	return b.String()
}

// usualTimeout is what a zero Timeout and DeadAfter stand for.
const usualTimeout = 10 * time.Second

// Check says what is wrong with the load, whatever the targets.
func (o Options) Check() error {
	o.Targets = []string{"any:1"}
	_, err := o.complete()
	return err
}

// complete fills in zero values and reports everything that is wrong.
func (o Options) complete() (Options, error) {
	o.Timeout, o.DeadAfter = cmp.Or(o.Timeout, usualTimeout), cmp.Or(o.DeadAfter, usualTimeout)
	o.Dial = dialer(o.Dial, o.Login)
	if o.WarmupAuto {
		o.Warmup = cmp.Or(o.Warmup, autoWarmup)
	}
	var wrong problems
	wrong.check(len(o.Targets) > 0, "targets: none given")
	for _, addr := range o.Targets {
		wrong.add(CheckTarget(addr))
	}
	o.Groups = slices.Clone(o.Groups)
	wrong.check(len(o.Groups) > 0, "groups: none given")
	wrong.check(len(o.Groups) <= maxGroups, "groups: %d, want at most %d", len(o.Groups), maxGroups)
	named := map[string]bool{}
	for i := range o.Groups {
		g := &o.Groups[i]
		if g.Replay != nil || g.Operations > 0 {
			o.Warmup, o.WarmupAuto = 0, false
		}
		if g.Replay != nil {
			g.Name = cmp.Or(g.Name, "replay")
			wrong.check(len(o.Groups) == 1, "replay: want one group, without others beside it")
			wrong.check(o.Search == nil, "replay: a recording has its own pace, so no rate can be searched")
		}
		if g.Commands != nil {
			g.Name, g.Workload = cmp.Or(g.Name, "commands"), workloads.CommandsName(g.Commands)
		}
		g.Name = cmp.Or(g.Name, g.Workload)
		prefix := ""
		if len(o.Groups) > 1 {
			prefix = fmt.Sprintf("group %s: ", g.Name)
		}
		wrong.check(!named[g.Name], "%sanother group has that name, too", prefix)
		named[g.Name] = true
		for _, err := range g.prepare(o.Verify, o.Seed+salt(i)) {
			wrong.add(fmt.Errorf("%s%w", prefix, err))
		}
	}
	if counted(o.Groups) {
		wrong.check(o.Search == nil, "operations: a search sends for a time")
		none := slices.ContainsFunc(o.Groups, func(g GroupOptions) bool { return g.Operations == 0 })
		wrong.check(o.Duration > 0 || !none, "operations: one group has a number of operations and another has none; "+
			"want a duration, or a number for each")
	}
	ends := o.Load == LoadAlone || counted(o.Groups) || len(o.Groups) > 0 && o.Groups[0].Replay != nil
	wrong.check((o.Duration > 0 || o.Duration == 0 && ends) && o.Duration <= maxDuration,
		"duration: %s, want more than 0 and at most %.0fh", o.Duration, maxDuration.Hours())
	wrong.check(o.Warmup >= 0 && o.Warmup <= maxWarmup, "warmup: %s, want 0 to %.0fh", o.Warmup, maxWarmup.Hours())
	wrong.check(o.Timeout > 0, "timeout: %s, want more than 0", o.Timeout)
	wrong.check(o.Interval == 0 || o.Interval >= leastInterval && o.Interval <= time.Hour,
		"interval: %s, want %s to 1h", o.Interval, leastInterval)
	wrong.check(o.Interval < time.Second || o.Interval%time.Second == 0,
		"interval: %s, want whole seconds, or less than one", o.Interval)
	wrong.check(o.Interval == 0 || o.Duration/max(1, o.Interval) <= mostIntervals,
		"interval: %s makes more than %d in %s; want %s or more", o.Interval, mostIntervals, o.Duration,
		(o.Duration / mostIntervals).Round(time.Millisecond))
	wrong.check(o.DeadAfter > 0, "dead after: %s, want more than 0", o.DeadAfter)
	if o.Search != nil {
		search := *o.Search
		o.Search = &search
		search.Step, search.MaxStep = cmp.Or(search.Step, usualStep), cmp.Or(search.MaxStep, usualMaxStep)
		wrong.check(search.Step >= 100*time.Millisecond && search.Step <= time.Hour, "step: %s, want 100ms to 1h",
			search.Step)
		wrong.check(search.MaxStep >= search.Step && search.MaxStep <= maxDuration,
			"max step: %s, want %s, the step, to %.0fh", search.MaxStep, search.Step, maxDuration.Hours())
		wrong.check(search.Curve || len(search.SLO.terms) > 0, "slo: none given, want %s", SLOForms)
		if len(o.Groups) > 0 && search.Clients != nil {
			first := o.Groups[0]
			wrong.check(search.Curve, "clients: only a curve tries several numbers of them")
			wrong.check(!first.Rate.Open(), "rate %q: a curve of clients is a closed loop", first.Rate.String())
			wrong.check(len(search.Clients) <= maxClientSteps && slices.Min(search.Clients) >= 1 &&
				slices.Max(search.Clients) <= first.Clients,
				"clients: %v, want at most %d numbers from 1 to %d, those of the first group", search.Clients,
				maxClientSteps, first.Clients)
		} else if len(o.Groups) > 0 {
			rate := o.Groups[0].Rate
			wrong.check(!rate.ramps() && (search.Curve || len(rate.parts) <= 1),
				"rate %q: a search takes N, where it begins; a curve takes steps", rate.String())
			if rates := search.rates(rate); len(rates) > 0 {
				text := search.tooLong(slices.Min(rates))
				wrong.check(text == "", "slo: %s: give it a higher rate to begin with, or a longer max step", text)
			}
		}
	}
	o.Events = slices.Clone(o.Events)
	slices.SortStableFunc(o.Events, func(a, b ScheduledEvent) int { return cmp.Compare(a.At, b.At) })
	wrong = append(wrong, o.checkEvents()...)
	wrong.check(!o.Verify || o.Load == LoadFirst,
		"verify: a run that does not load and send does not know what to find")
	if o.Verify && len(o.Groups) > 1 {
		wrong.add(o.ownKeys())
	}
	return o, errors.Join(wrong...)
}

// isClosed reports whether all groups send in closed loops.
func (o *Options) isClosed() bool {
	return o.Search == nil && !slices.ContainsFunc(o.Groups, func(g GroupOptions) bool {
		return g.Replay != nil || g.Rate.Open()
	})
}

// isLoopback reports whether an address is one of this machine alone.
func isLoopback(addr string) bool {
	if isUnix(addr) {
		return true
	}
	host, _, _ := net.SplitHostPort(addr)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// counted reports whether a group sends a number of operations.
func counted(groups []GroupOptions) bool {
	return slices.ContainsFunc(groups, func(g GroupOptions) bool { return g.Operations > 0 })
}

const (
	maxGroups = 100
	maxWarmup = 24 * time.Hour
)

// prepare reads the workload of a group and prepares its records, or says what is wrong with the group.
func (g *GroupOptions) prepare(verify bool, seed uint64) []error {
	var wrong problems
	wrong.check(g.Clients >= 1 && g.Clients <= maxClients, "clients: %d, want 1 to %d", g.Clients, maxClients)
	wrong.check(g.Pipeline >= 1 && g.Pipeline <= 10_000, "pipeline: %d, want 1 to 10000", g.Pipeline)
	wrong.check(g.Operations >= 0, "operations: %d, want 1 or more", g.Operations)
	wrong.check(g.Operations == 0 || g.Replay == nil && !g.Rate.Open(),
		"operations: %d are for a closed loop of a workload; with a rate give the duration", g.Operations)
	if g.Replay != nil {
		wrong.check(!verify, "verify: reading back does not know what the commands of a recording leave behind")
		wrong.check(!g.Rate.Open(), "rate %s: a recording has its own pace", g.Rate.String())
		wrong.check(g.Slots == SpreadSlots, "pipeline slots: a recording has its own order")
		g.workload = workloads.Replay(g.Replay.Path)
	} else {
		g.find(&wrong, verify)
	}
	if wrong == nil {
		var err error
		o := workloads.SourceOptions{
			Records: g.Records, Elements: g.Elements, ValueSize: g.ValueSize, Clients: g.Clients, Seed: seed,
		}
		if g.Slots == OneSlot {
			o.SlotOf = slotOf
		}
		g.src, err = workloads.NewSource(g.workload, o)
		wrong.add(err)
	}
	return wrong
}

// find reads the workload.
func (g *GroupOptions) find(wrong *problems, verify bool) {
	wrong.check(g.Records >= 1 && g.Records <= 1e12, "records: %d, want 1 to 1e12", g.Records)
	wrong.check(g.Elements >= 1 && g.Elements <= 10_000, "elements: %d, want 1 to 10000", g.Elements)
	wrong.check(g.ValueSize >= 1 && g.ValueSize <= 64<<20, "value size: %d, want 1 byte to 64 MiB", g.ValueSize)
	if g.Commands != nil {
		wrong.check(!verify, "verify: reading back does not know what commands leave behind; want a workload file")
		var err error
		g.workload, err = workloads.Commands(g.Commands)
		wrong.add(err)
		return
	}
	var err error
	g.workload, err = workloads.Find(g.Workload)
	wrong.add(err)
	if err == nil && verify {
		wrong.add(g.workload.Verifiable())
	}
}

// ownKeys refuses groups that may write the same keys, since what one reads back another may have overwritten, and each
// knows its own values alone. It does not look at groups that have problems of their own.
func (o *Options) ownKeys() error {
	var wrong problems
	for i, g := range o.Groups {
		for _, other := range o.Groups[:i] {
			if g.src == nil || other.src == nil {
				continue
			}
			if a, b, both := other.workload.BothWrite(g.workload); both {
				wrong.add(fmt.Errorf("verify: groups %s and %s may write the same keys, %s and %s: reading back "+
					"cannot tell whose value is right", other.Name, g.Name, a, b))
			}
		}
	}
	return errors.Join(wrong...)
}

// problems are all that is wrong with something.
type problems []error

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// OptionsError is the error of Run for options that are wrong, also for a target that is not a Redis. Run finds that
// out before it sends any load.
type OptionsError struct{ err error }

func (e *OptionsError) Error() string { return e.err.Error() }
func (e *OptionsError) Unwrap() error { return e.err }

// run is one benchmark under way.
type run struct {
	o      Options
	groups []*loadGroup
	target *target
	out    *results.RecordWriter
	epoch  time.Time

	ctx     context.Context // of the run
	dialing context.Context // of connections that are being made; it ends with the run, or when it aborts
	hangUp  context.CancelFunc
	stop    chan struct{} // closed when no new operation is to begin
	halted  time.Duration // when that was
	// stopping is set a little before stop is closed. An operation that a worker takes while it is not set has its
	// intended start before halted.
	stopping atomic.Bool
	ending   atomic.Bool // closed loops are to begin no new operation; open loops catch up with their plan
	aborted  atomic.Bool // the connections are closed, whatever the workers do
	current  atomic.Pointer[phaseSegment]
	reached  uint64 // how many items of the phase are done

	// sockets is set if replies come from the network. A caller may also give connections in memory, in virtual time.
	sockets bool
	helpers sync.WaitGroup // goroutines beside the workers; they end with ctx

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	firsts map[string]string // first error of each kind

	following sync.WaitGroup  // the schedule of events
	happened  []results.Event // under mu
	reported  int             // how many of these are in intervals

	sampler *sampler

	verdicts map[float64]rateVerdict // of a search
	// What the generator's clocks said when the last second ended, and when the present interval and segment began.
	clock, spanClock, began generatorClock
	span, measured          observed // in the present interval, and in the measured part

	silence    silence       // of all nodes together, in the measured part
	silences   []*silence    // by nodeID, under mu
	heardSince time.Duration // under mu

	answered time.Duration // when the collector last found an answer
	failing  bool          // errors since then
}

// Run sends the load and writes the record to out. It returns a summary also when ctx ends early, marked interrupted
// and without an error, and when the target dies, with the error. When Run returns, all its goroutines have ended.
func Run(ctx context.Context, o Options, out *results.RecordWriter) (results.Summary, error) {
	sockets := o.Dial == nil
	o, err := o.complete()
	if err != nil {
		return results.Summary{}, &OptionsError{err}
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	t, facts, err := discover(ctx, o.Dial, o.Targets)
	if err == nil {
		err = t.knows(ctx, o.Events)
	}
	if err != nil {
		return results.Summary{}, err
	}
	r := &run{
		o: o, sockets: sockets, target: t, out: out, epoch: time.Now(), ctx: runCtx, conns: map[net.Conn]struct{}{},
		firsts: map[string]string{}, verdicts: map[float64]rateVerdict{},
	}
	r.sampler = newSampler(r)
	h := o.Header
	h.Groups, h.Duration, h.Warmup, h.Seed, h.Verify = nil, o.Duration, o.Warmup, o.Seed, o.Verify
	h.Schedule, h.Search, h.LoadedBefore = o.schedule(), o.Search.String(), o.Load == LoadedBefore
	h.Target = facts
	if h.Started.IsZero() {
		h.Started = r.epoch.UTC()
	}
	for _, g := range o.Groups {
		h.Groups = append(h.Groups, r.addGroup(g))
	}
	if err := out.Begin(h); err != nil {
		return results.Summary{}, err
	}

	if t.table.Load() != nil {
		r.helpers.Go(func() { t.keep(runCtx) })
	}
	if o.LeaveCore != nil && t.table.Load() == nil && isLoopback(o.Targets[0]) && o.isClosed() {
		defer o.LeaveCore()()
	}
	r.clock = r.readGenerator()
	r.sampler.sample(runCtx, patientTimeout) // from here on they count
	s, err := r.phases(ctx)
	r.sampler.close()
	cancel()
	r.helpers.Wait()
	for _, g := range r.groups {
		for _, w := range g.workers {
			w.drop()
		}
	}
	return s, errors.Join(err, out.End(s))
}

// Measure is Run for a caller who wants the figures alone: a run that is cut short is an error, ErrInterrupted.
func Measure(ctx context.Context, o Options) (results.Header, results.Summary, error) {
	o.Header = results.NewHeader()
	out := results.NewWriter(io.Discard)
	s, err := Run(ctx, o, out)
	if err == nil && s.Interrupted {
		err = ErrInterrupted
	}
	return out.Header(), s, err
}

// ErrInterrupted is the error of Measure when its context ends.
var ErrInterrupted = errors.New("interrupted")

// phases runs the load phases of the groups, the timed part, and reading back.
func (r *run) phases(ctx context.Context) (s results.Summary, err error) {
	s.Groups = make([]results.GroupSummary, len(r.groups))
	for i, g := range r.groups {
		s.Groups[i].Name = g.o.Name
	}
	defer func() {
		s.FirstErrors = r.firsts
		s.Interrupted = err == nil && ctx.Err() != nil
		if err != nil {
			s.Failure = err.Error()
		}
	}()
	for i, g := range r.groups {
		if g.src.Loaded() == 0 || r.o.Load == LoadedBefore {
			continue
		}
		if s.Groups[i].Inserted, err = g.load(ctx); err != nil || ctx.Err() != nil {
			return s, err
		}
	}
	if r.o.Load == LoadAlone {
		return s, nil
	}
	if r.o.Search == nil {
		err = r.measure(ctx, &s, r.o.Duration, r.withEvents)
	} else {
		s.Curve = &results.Curve{SLO: r.o.Search.SLO.String()}
		before, rate := r.readGenerator(), 0.0
		rate, err = r.search(ctx, s.Curve)
		s.Generator = r.clock.since(before)
		s.Warnings = r.saturation(s.Generator)
		if err == nil && rate > 0 && ctx.Err() == nil {
			err = r.confirm(ctx, &s)
		}
	}
	if err != nil {
		return s, err
	}
	for i, g := range r.groups {
		if g.histories == nil || ctx.Err() != nil {
			continue
		}
		v, failed := g.verify(ctx)
		s.Groups[i].Verified, err = v, errors.Join(err, failed)
		if failed != nil && !v.Complete { // the target has died
			break
		}
	}
	return s, err
}

// warmup returns the segment before the measured part.
func (r *run) warmup(pace func(*loadGroup) Pace) *phaseSegment {
	seg := r.timed(results.PhaseWarmup, r.o.Warmup, func(g *loadGroup) Pace { return pace(g).first() })
	if r.o.WarmupAuto {
		seg.steady = newWarmupEnd(r.clients())
	}
	return seg
}

// measure runs the warm-up and the measured part of some length, and adds the figures to the summary.
func (r *run) measure(ctx context.Context, s *results.Summary, length time.Duration, pace func(*loadGroup) Pace) error {
	measured := r.timed(results.PhaseRun, length, pace)
	feed := r.groups[0].feed
	if feed != nil {
		measured.items = uint64(feed.facts.Commands)
	}
	segments := []*phaseSegment{measured}
	if r.o.Warmup > 0 {
		segments = slices.Insert(segments, 0, r.warmup(pace))
	}
	r.measured = observed{}
	defer func() {
		for _, g := range r.groups {
			if g.subscribers != nil {
				g.subscribers.close()
				g.subscribers = nil
			}
		}
	}()
	for _, g := range r.groups {
		if err := g.subscribe(ctx); err != nil {
			return err
		}
	}
	took, err := r.phase(ctx, (*worker).send, segments...)
	r.following.Wait()
	s.Seconds, s.Work, s.Events = took.Seconds(), r.measured.work, r.events(0)
	var late results.Distribution
	for i, g := range r.groups {
		s.Groups[i].GroupStats = g.stats(measured, s.Seconds)
		late.Merge(g.total.late)
	}
	if took == 0 {
		return err
	}
	s.NoAnswer = r.silence.end(measured.start + took).Microseconds()
	s.Nodes = r.nodeStats(measured, took)
	s.Generator = r.clock.since(r.began)
	s.Generator.Late = latencyOf(late)
	s.Warnings = r.warnings(s, measured)
	if r.o.Search == nil && len(r.o.SLO.terms) > 0 {
		s.SLO = r.held()
		s.Warnings = append(s.Warnings, r.scarce()...)
	}
	if feed != nil {
		if text := feed.warning(); text != "" {
			s.Warnings = append(s.Warnings, text)
		}
		select {
		case failed := <-feed.failed:
			err = errors.Join(err, failed)
		default:
		}
	}
	if w := segments[0]; w.steady != nil {
		s.Warmup = (measured.start - w.start).Seconds()
		if !w.steady.found {
			s.Warnings = append(s.Warnings, fmt.Sprintf("the warm-up took all of %s, and service times still changed",
				r.o.Warmup))
		}
	}
	return err
}
