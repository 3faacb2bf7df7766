package server

import (
	"bytes"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// This file counts: commands and their errors, for LATENCY and for INFO's sections commandstats, errorstats and
// latencystats; connections, bytes and rates, for INFO's section stats.
//
// Commands of a pipeline run together. Each of them counts with the time that all took together: from the moment that
// the first could run to the last reply, waits for Raft included. So usec divided by calls is the mean of the times
// whose percentiles latencystats shows.

// callCounts counts the commands of one server.
type callCounts struct {
	all []*callCount // in the order of the table
	of  map[*redis.Command]*callCount
}

// callCount counts the calls of one command.
type callCount struct {
	row      *redis.Command
	made     atomic.Uint64
	micros   atomic.Uint64             // the sum of the times that they took
	rejected atomic.Uint64             // calls that did not run, or may not have run
	failed   atomic.Uint64             // calls that ran and were answered with an error
	times    atomic.Pointer[histogram] // nil until there is one
}

func newCallCounts() (c callCounts) {
	c.of = map[*redis.Command]*callCount{}
	add := func(row *redis.Command) {
		c.of[row] = &callCount{row: row}
		c.all = append(c.all, c.of[row])
	}
	for _, r := range commands.Rows() {
		add(r)
		for _, s := range r.Sub {
			add(s)
		}
	}
	return c
}

func (c *callCounts) reset() {
	for _, x := range c.all {
		for _, n := range []*atomic.Uint64{&x.made, &x.micros, &x.rejected, &x.failed} {
			n.Store(0)
		}
		x.times.Store(nil)
	}
}

// add counts n calls that took the same time.
func (c *callCount) add(n int, took time.Duration) {
	c.made.Add(uint64(n))
	c.micros.Add(uint64(n) * uint64(took.Microseconds()))
	h := c.times.Load()
	for h == nil {
		c.times.CompareAndSwap(nil, new(histogram))
		h = c.times.Load()
	}
	h[bucketOf(took)].Add(uint64(n))
}

// answered counts the reply that begins at start if it is an error. made says whether the command ran. If so, what its
// script has published goes out now: what the script wrote is committed. It goes out here alone, and once.
func (c *conn) answered(cmd *command, start int, made bool) {
	if cmd.isScript() && made {
		for _, p := range c.inside.takePublished(cmd) {
			kind := namedChannel
			if p.Shard {
				kind = shardChannel
			}
			size := len(c.out.Buf)
			c.publish(kind, p.Channel, p.Payload, start, nil)
			start += len(c.out.Buf) - size
		}
	}
	if start >= len(c.out.Buf) || c.out.Buf[start] != '-' {
		return
	}
	if !c.inside.counted(cmd.script, c.out.Buf[start:]) {
		c.s.stats.errors.add(c.out.Buf[start+1:])
	}
	cmd.rejected = !made
	if row := c.s.calls.of[cmd.row]; row != nil {
		if made {
			row.failed.Add(1)
		} else {
			row.rejected.Add(1)
		}
	}
}

// ran counts commands that ran together. Their time begins when the last ones before them were done. It also tells the
// slow log and the monitors.
func (c *conn) ran(cmds []command) {
	now := time.Now()
	took := now.Sub(c.since)
	c.since = now
	made, scripts := 0, false
	for i, n := 0, 0; i < len(cmds); i += n {
		n = 1
		row := cmds[i].row
		scripts = scripts || cmds[i].isScript()
		if cmds[i].rejected || row == nil {
			continue
		}
		for i+n < len(cmds) && cmds[i+n].row == row && !cmds[i+n].rejected {
			n++
		}
		c.s.calls.of[row].add(n, took)
		made += n
	}
	c.s.stats.commands.Add(uint64(made))
	if limit := c.s.slow.limit.Load(); limit >= 0 && took.Microseconds() >= limit {
		c.s.slow.add(c, cmds, now, took)
	}
	if all := c.s.monitors.all.Load(); all != nil && len(cmds) > 0 && !cmds[0].shown {
		c.show(*all, cmds, now)
	}
	if scripts {
		c.inside.reset()
	}
}

// countInner counts a call that a script makes. It returns true if the call failed.
func (s *Server) countInner(x *redis.InnerCall) (failed bool) {
	failed = len(x.Reply) > 0 && x.Reply[0] == '-'
	if failed {
		s.stats.errors.add(x.Reply[1:])
	}
	n := s.calls.of[x.Row]
	if n == nil && x.Row != nil { // a row of its own stands for the server's in scripts: PING
		n = s.calls.of[commands.Lookup([]byte(x.Row.Name))]
	}
	switch {
	case n == nil:
	case !x.Ran:
		n.rejected.Add(1)
	default:
		n.add(1, x.Took)
		if failed {
			n.failed.Add(1)
		}
	}
	return failed
}

// stats are the lines of INFO commandstats.
func (c *callCounts) stats() (out []string) {
	for _, x := range c.all {
		made, micros, rejected, failed := x.made.Load(), x.micros.Load(), x.rejected.Load(), x.failed.Load()
		if made+rejected+failed > 0 {
			perCall := float64(micros) / float64(max(1, made))
			out = append(out, fmt.Sprintf(
				"cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
				x.row.FullName(), made, micros, perCall, rejected, failed))
		}
	}
	return out
}

// latencies are the lines of INFO latencystats, with the percentiles that latency-tracking-info-percentiles has.
func (c *callCounts) latencies() (out []string) {
	for _, x := range c.all {
		h := x.times.Load()
		if h == nil {
			continue
		}
		all := h.load()
		micros := func(permille uint64) float64 { return float64(all.percentile(permille)) / 1000 }
		out = append(out, fmt.Sprintf("latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f",
			x.row.FullName(), micros(500), micros(990), micros(999)))
	}
	return out
}

// errorCounts counts error replies by their first word. There are few, since all are words of this program.
type errorCounts struct {
	mu     sync.Mutex // held to change words
	byWord atomic.Pointer[map[string]*atomic.Uint64]
}

// add counts an error reply. line is the reply without its '-'.
func (e *errorCounts) add(line []byte) {
	if end := bytes.IndexAny(line, " \r"); end >= 0 {
		line = line[:end]
	}
	if words := e.byWord.Load(); words != nil {
		if n := (*words)[string(line)]; n != nil {
			n.Add(1)
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	next := map[string]*atomic.Uint64{}
	if words := e.byWord.Load(); words != nil {
		maps.Copy(next, *words)
	}
	if next[string(line)] == nil {
		next[string(line)] = new(atomic.Uint64)
	}
	next[string(line)].Add(1)
	e.byWord.Store(&next)
}

func (e *errorCounts) total() (n uint64) {
	if words := e.byWord.Load(); words != nil {
		for _, x := range *words {
			n += x.Load()
		}
	}
	return n
}

// stats are the lines of INFO errorstats.
func (e *errorCounts) stats() (out []string) {
	if words := e.byWord.Load(); words != nil {
		for _, word := range slices.Sorted(maps.Keys(*words)) {
			out = append(out, fmt.Sprintf("errorstat_%s:count=%d", word, (*words)[word].Load()))
		}
	}
	return out
}

// A histogram counts durations in buckets. Each power of two nanoseconds has bucketsOfTwo buckets of the same width. So
// the end of a bucket is at most 1/bucketsOfTwo above any duration in it. The last bucket has all that took longer.
type histogram [buckets]atomic.Uint64

const (
	bucketBits   = 5
	bucketsOfTwo = 1 << bucketBits
	longestBits  = 36 // some 69 seconds
	buckets      = (longestBits - bucketBits + 1) * bucketsOfTwo
)

func bucketOf(d time.Duration) int {
	n := uint64(max(0, d))
	if n < bucketsOfTwo {
		return int(n)
	}
	shift := bits.Len64(n) - bucketBits - 1
	return min(shift*bucketsOfTwo+int(n>>shift), buckets-1)
}

// bucketEnd is the longest duration of a bucket, in nanoseconds.
func bucketEnd(bucket int) uint64 {
	if bucket < 2*bucketsOfTwo {
		return uint64(bucket)
	}
	shift := bucket/bucketsOfTwo - 1
	return uint64(bucket-shift*bucketsOfTwo+1)<<shift - 1
}

// histogramNow is a copy of a histogram in which others go on counting.
type histogramNow struct {
	counts [buckets]uint64
	total  uint64
}

func (h *histogram) load() *histogramNow {
	now := &histogramNow{}
	for i := range h {
		now.counts[i] = h[i].Load()
		now.total += now.counts[i]
	}
	return now
}

// percentile is the time in nanoseconds within which so many of a thousand calls were done: 999 for the percentile
// 99.9. In floating point 99.9 % of 10,000 are a little more than 9990.
func (h *histogramNow) percentile(permille uint64) uint64 {
	seen, rank := uint64(0), (permille*h.total+999)/1000
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			return bucketEnd(i)
		}
	}
	return 0
}

// stats are the counters of INFO's section stats.
type stats struct {
	connections, rejected, commands    atomic.Uint64
	bytesIn, bytesOut                  atomic.Uint64
	reads, writes                      atomic.Uint64 // of connections, that have brought bytes or taken some
	evicted, queryClosed, outputClosed atomic.Uint64 // clients closed for what they held
	hungClosed                         atomic.Uint64 // clients closed because a read of the disk did not return
	unknownClosed                      atomic.Uint64 // clients closed because the outcome of a command is unknown
	errors                             errorCounts
	rates                              rates
	base                               atomic.Pointer[map[string]int64] // counts of the node at the last reset
}

// reset lets all counts begin anew, those of the node's sections, too, which go on in the node itself.
func (s *stats) reset(node []Section) {
	base := map[string]int64{}
	for _, x := range node {
		for _, count := range x.Counts {
			base[count.Name] = count.Value
		}
	}
	s.base.Store(&base)
	for _, n := range []*atomic.Uint64{&s.connections, &s.rejected, &s.commands, &s.bytesIn, &s.bytesOut, &s.reads,
		&s.writes, &s.evicted,
		&s.queryClosed, &s.outputClosed, &s.hungClosed, &s.unknownClosed} {
		n.Store(0)
	}
	s.errors.byWord.Store(nil)
}

// since returns lines with what has been counted since the last reset. A count below that is of a store that started
// anew.
func (s *stats) since(counts []Count) (out []string) {
	base := s.base.Load()
	for _, count := range counts {
		if base != nil && count.Value >= (*base)[count.Name] {
			count.Value -= (*base)[count.Name]
		}
		out = append(out, fmt.Sprintf("%s:%d", count.Name, count.Value))
	}
	return out
}

// received counts bytes that came with so many reads, sent those of a write.
func (s *stats) received(bytes, reads int) {
	s.bytesIn.Add(uint64(bytes))
	s.reads.Add(uint64(reads))
}

func (s *stats) sent(bytes int) {
	if bytes > 0 {
		s.bytesOut.Add(uint64(bytes))
		s.writes.Add(1)
	}
}

// INFO shows rates over the last rateSamples*sampleEvery, or since the last pipeline before that.
const (
	rateSamples = 16
	sampleEvery = 100 * time.Millisecond
)

// rates remembers earlier values of the counters. Pipelines take the samples when they arrive, so that no timer runs.
type rates struct {
	next atomic.Int64 // Unix ns from which on a sample is due

	mu      sync.Mutex
	samples [rateSamples]rateSample // the oldest at first
}

type rateSample struct {
	at                time.Time
	commands, in, out float64
}

func (s *stats) sample(at time.Time) rateSample {
	return rateSample{at, float64(s.commands.Load()), float64(s.bytesIn.Load()), float64(s.bytesOut.Load())}
}

// note takes a sample if one is due. nowNS is now in Unix nanoseconds.
func (r *rates) note(s *stats, now time.Time, nowNS int64) {
	next := r.next.Load()
	if nowNS < next || !r.next.CompareAndSwap(next, nowNS+int64(sampleEvery)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(r.samples[:], r.samples[1:])
	r.samples[rateSamples-1] = s.sample(now)
}

// CommandRate returns how many commands clients call per second, over the last moments.
func (s *Server) CommandRate() float64 { return s.stats.rates.since(&s.stats, time.Now()).commands }

// since returns the rates per second now.
func (r *rates) since(s *stats, now time.Time) rateSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.samples[rateSamples-1]
	for _, x := range r.samples {
		if now.Sub(x.at) <= rateSamples*sampleEvery {
			from = x
			break
		}
	}
	to, seconds := s.sample(now), now.Sub(from.at).Seconds()
	if from.at.IsZero() || seconds <= 0 || to.commands < from.commands {
		return rateSample{} // there is no sample yet, or CONFIG RESETSTAT has run meanwhile
	}
	return rateSample{now, (to.commands - from.commands) / seconds, (to.in - from.in) / seconds,
		(to.out - from.out) / seconds}
}
