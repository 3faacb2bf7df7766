// Package bench sends a workload to a target and records what comes back. The target is any Redis or Redis Cluster,
// which bench reaches over connections of its own. Bench does not know which program answers, so figures of different
// programs can be compared.
//
// In a closed loop each client sends its next batch when the last one is answered: that measures peak throughput. In an
// open loop operations have intended starts at a fixed rate, and response time counts from there. So a target that
// stalls does not stop the clock that measures it (no coordinated omission). Service time, from the actual send, is
// recorded beside it.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// Options says what to send where. The defaults of a load are those of the profile `default`. A caller gives everything
// here, except where a comment says what a zero value stands for.
type Options struct {
	// Targets are addresses, host:port: some nodes of one Redis Cluster, or plain servers, over which the clients are
	// spread. Bench asks them which of the two they are.
	Targets  []string
	Workload string // a name that workloads.Find knows
	Clients  int
	Pipeline int           // operations that a client sends at once
	Rate     float64       // operations per second of all clients together; 0 is a closed loop
	Duration time.Duration // of the measured part
	Warmup   time.Duration // before the measured part, not in the summary; 0 is none
	Records  uint64
	Elements int // elements of a record, if records are collections
	// ValueSize is the bytes of a value. In a hash or a list each element has a value.
	ValueSize int
	Seed      uint64
	// Timeout is the longest time for making a connection, and for the answer to a batch; 0 is 10 s.
	Timeout time.Duration
	// DeadAfter is how long a target may give nothing but errors before it counts as dead; 0 is 10 s.
	DeadAfter time.Duration
	// Verify says to follow which values records may hold, and to read them back at the end. Run fails if a record
	// holds another value.
	Verify bool

	// Password is sent first on every connection; empty for none.
	Password string
	// Dial makes a connection; nil dials TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Progress is called once a second and at the end of a phase, unless it is nil. It must not block.
	Progress func(Tick)
	// Header is what the caller knows of the run, made with results.NewHeader. Run fills in Load and Target.
	Header results.Header
}

// Tick says how far a run is, for people who watch it.
type Tick struct {
	Phase          string
	Elapsed, Total time.Duration // of the phase; Total is 0 where the end is not a matter of time
	// In a phase that writes or reads back all records, Items says how many there are and Reached how many are done.
	Items, Reached uint64
	PerSecond      float64
	P50, P99       time.Duration // response time in an open loop, else service time
	Errors         int64         // since the last tick
	Behind         int64         // of an open loop: operations due and not sent
	// Interval is what the result file has of the time since the last tick, and Nodes what bench knows of each node.
	// Nobody changes them afterwards.
	Interval results.Interval
	Nodes    []NodeTick
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
			t.Total.Seconds(),
			results.Count(int64(t.PerSecond)), results.Micros(t.P50.Microseconds()),
			results.Micros(t.P99.Microseconds()))
	}
	if t.Errors > 0 {
		fmt.Fprintf(&b, ", %s errors", results.Count(t.Errors))
	}
	if t.Behind > 0 {
		fmt.Fprintf(&b, ", %s behind", results.Count(t.Behind))
	}
	return b.String()
}

// CheckTarget says what is wrong with the address of a target, nil if nothing is.
func CheckTarget(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("target %q: want host:port", addr)
	}
	return nil
}

// usualTimeout is what a zero Timeout and DeadAfter stand for.
const usualTimeout = 10 * time.Second

// complete fills in zero values, finds the workload, and reports everything that is wrong.
func (o Options) complete() (Options, *workloads.Workload, error) {
	o.Timeout, o.DeadAfter = cmp.Or(o.Timeout, usualTimeout), cmp.Or(o.DeadAfter, usualTimeout)
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Password != "" {
		dial := o.Dial
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return authenticated(ctx, dial, addr, o.Password)
		}
	}
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	w, err := workloads.Find(o.Workload)
	if err != nil {
		wrong = append(wrong, err)
	} else if o.Verify {
		if err := w.Verifiable(); err != nil {
			wrong = append(wrong, err)
		}
	}
	check(len(o.Targets) > 0, "targets: none given")
	for _, addr := range o.Targets {
		if err := CheckTarget(addr); err != nil {
			wrong = append(wrong, err)
		}
	}
	check(o.Clients >= 1 && o.Clients <= 10_000, "clients: %d, want 1 to 10000", o.Clients)
	check(o.Pipeline >= 1 && o.Pipeline <= 10_000, "pipeline: %d, want 1 to 10000", o.Pipeline)
	check(o.Rate >= 0 && o.Rate <= 1e8 && !math.IsNaN(o.Rate), "rate: %g, want 0 (closed loop) to 1e8 per second",
		o.Rate)
	check(o.Duration > 0 && o.Duration <= 7*24*time.Hour, "duration: %s, want more than 0 and at most 168h", o.Duration)
	check(o.Warmup >= 0 && o.Warmup <= 24*time.Hour, "warmup: %s, want 0 to 24h", o.Warmup)
	check(o.Records >= 1 && o.Records <= 1e12, "records: %d, want 1 to 1e12", o.Records)
	check(o.Elements >= 1 && o.Elements <= 10_000, "elements: %d, want 1 to 10000", o.Elements)
	check(o.ValueSize >= 1 && o.ValueSize <= 64<<20, "value size: %d, want 1 byte to 64 MiB", o.ValueSize)
	check(o.Timeout > 0, "timeout: %s, want more than 0", o.Timeout)
	check(o.DeadAfter > 0, "dead after: %s, want more than 0", o.DeadAfter)
	return o, w, errors.Join(wrong...)
}

// OptionsError is the error of Run for options that are wrong. Run finds that out before it sends anything.
type OptionsError struct{ err error }

func (e *OptionsError) Error() string { return e.err.Error() }
func (e *OptionsError) Unwrap() error { return e.err }

// run is one benchmark under way.
type run struct {
	o        Options
	workload *workloads.Workload
	src      *workloads.Source
	ledger   *ledger // nil without Verify
	target   *target
	out      *results.RecordWriter
	epoch    time.Time
	workers  []*worker
	spare    *tally // empty, to be exchanged for that of a worker

	ctx      context.Context // of the connections: it ends with the run
	cancel   context.CancelFunc
	stop     chan struct{} // closed when no new operation is to begin
	stopping atomic.Bool
	aborted  atomic.Bool   // the connections are closed, whatever the workers do
	handed   atomic.Uint64 // records of the load phase given to workers
	reached  uint64        // how many items of the phase are done

	// sockets is set if replies come from the network. A caller may also give connections in memory, in virtual time.
	sockets bool
	helpers sync.WaitGroup // goroutines beside the workers; they end with ctx

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	firsts map[string]string // first error of each kind

	sampler *sampler
	work    results.Work // of the measured part, nil if the target does not tell

	answered time.Duration // when the collector last found an answer
	failing  bool          // errors since then
}

// Run sends the load and writes the record to out, which may be nil. It returns a summary also when ctx ends early,
// marked interrupted and without an error, and when the target dies, with the error. When Run returns, all its
// goroutines have ended.
func Run(ctx context.Context, o Options, out *results.RecordWriter) (results.Summary, error) {
	sockets := o.Dial == nil
	o, w, err := o.complete()
	if err != nil {
		return results.Summary{}, &OptionsError{err}
	}
	if out == nil {
		out = results.NewWriter(io.Discard)
	}
	connCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	t, facts, err := discover(ctx, o.Dial, o.Targets)
	if err != nil {
		return results.Summary{}, err
	}
	src, err := workloads.NewSource(w, workloads.SourceOptions{
		Records: o.Records, Elements: o.Elements, ValueSize: o.ValueSize, Clients: o.Clients, Seed: o.Seed,
	})
	if err != nil {
		return results.Summary{}, &OptionsError{err}
	}
	r := &run{
		o: o, sockets: sockets, workload: w, target: t, out: out, epoch: time.Now(), ctx: connCtx, cancel: cancel,
		stop:  make(chan struct{}),
		conns: map[net.Conn]struct{}{}, firsts: map[string]string{}, spare: newTally(len(w.Ops)),
	}
	r.sampler = newSampler(r)
	r.src = src
	if o.Verify {
		r.ledger = newLedger(src)
	}
	for i := range o.Clients {
		wk := &worker{
			run: r, gen: r.src.Generator(i),
			home: nodeID(i % max(1, len(t.addrs))), timer: time.NewTimer(0), kinds: map[string]string{},
		}
		wk.rec.current.Store(newTally(len(w.Ops)))
		r.workers = append(r.workers, wk)
	}
	h := o.Header
	g := results.ClientGroup{
		Name: w.Name, Workload: w.Name, Keys: r.src.Kinds(), Clients: o.Clients, Pipeline: o.Pipeline,
		Records: o.Records, Elements: r.src.Elements(), ValueBytes: r.src.ValueSizes(),
	}
	if o.Rate > 0 {
		g.Rate = strconv.FormatFloat(o.Rate, 'f', -1, 64)
	}
	h.Groups, h.Duration, h.Warmup, h.Seed, h.Verify = []results.ClientGroup{g}, o.Duration, o.Warmup, o.Seed, o.Verify
	h.Target = facts
	if h.Started.IsZero() {
		h.Started = r.epoch.UTC()
	}
	if err := out.Begin(h); err != nil {
		return results.Summary{}, err
	}

	if t.table.Load() != nil {
		r.helpers.Go(func() { t.keep(connCtx) })
	}
	r.sampler.sample(connCtx) // from here on they count
	s, err := r.phases(ctx)
	r.sampler.close()
	cancel()
	r.helpers.Wait()
	for _, wk := range r.workers {
		wk.close()
	}
	return s, errors.Join(err, out.End(s))
}

// phases runs the load phase and the timed part.
func (r *run) phases(ctx context.Context) (s results.Summary, err error) {
	defer func() {
		s.FirstErrors = r.firsts
		if err != nil {
			s.Failure = err.Error()
		}
	}()
	if n := r.src.Loaded(); n > 0 {
		loading := phaseSegment{name: results.PhaseLoad, ops: []workloads.Op{{Name: "insert"}}, items: n}
		total, took, err := r.phase(ctx, (*worker).load, loading)
		loaded := total.stats(loading.ops, took.Seconds())
		s.Groups = []results.GroupSummary{{GroupStats: results.GroupStats{Name: r.workload.Name}}}
		s.Groups[0].Inserted = &results.Inserted{Seconds: took.Seconds(), Incidents: loaded.Incidents,
			Insert: loaded.Ops[0]}
		if err != nil || r.stopped() {
			s.Interrupted = err == nil
			return s, err
		}
	}
	measured := phaseSegment{name: results.PhaseRun, length: r.o.Duration, ops: r.workload.Ops}
	segments := []phaseSegment{measured}
	if r.o.Warmup > 0 {
		segments = []phaseSegment{{name: results.PhaseWarmup, length: r.o.Warmup, ops: r.workload.Ops}, measured}
	}
	work := (*worker).closed
	if r.o.Rate > 0 {
		work = (*worker).opened
	}
	total, took, err := r.phase(ctx, work, segments...)
	s.Seconds, s.Work = took.Seconds(), r.work
	if len(s.Groups) == 0 {
		s.Groups = make([]results.GroupSummary, 1)
	}
	g := &s.Groups[0]
	g.GroupStats = total.stats(measured.ops, s.Seconds)
	g.Name = r.workload.Name
	s.Interrupted = err == nil && ctx.Err() != nil
	if r.o.Rate > 0 {
		g.Ledger.Dropped = max(0, r.due(r.now())-r.sent())
		g.Ledger.Offered += g.Ledger.Dropped
	}
	if r.ledger != nil && err == nil && !s.Interrupted {
		g.Verified, err = r.verify(ctx)
		s.Interrupted = err == nil && ctx.Err() != nil
	}
	return s, err
}
