package bench

import (
	"context"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/counters"
	"neokv.dev/results"
)

// sampler reads the counters of the target over connections of its own, once per interval and never between. One
// goroutine uses it.
type sampler struct {
	r     *run
	nodes []*sampledNode
	// processes has the last values of the counters that several nodes of one process share, by process.
	processes map[string]map[string]int64
}

// sampledNode is one address that the sampler asks.
type sampledNode struct {
	addr    string
	c       *loadConn
	process string   // host and process id of the program that answers
	section []string // the INFO section to ask for; nil if the node has none that we know
	sampled bool     // at least once
	anew    bool     // connected since the last sample
	last    map[string]int64
	work    results.Work // of its store since the sample before; nil if it did not answer
}

const (
	// sampleTimeout bounds how long the end of an interval waits for the counters. A node that answers later is counted
	// in the next interval.
	sampleTimeout = 500 * time.Millisecond
	// patientTimeout is for the first sample and for the last one of a run: no load waits for these.
	patientTimeout = 2 * time.Second
	sampleRetry    = 2 * time.Second // after a failure
)

var (
	askNeoKV = []string{"INFO", "neokv"}
	askCPU   = []string{"INFO", "cpu"}
)

func newSampler(r *run) *sampler { return &sampler{r: r, processes: map[string]map[string]int64{}} }

// sample returns the target's work since the last sample. The first sample is empty. If no node tells within a time,
// sample returns nil.
func (s *sampler) sample(ctx context.Context, timeout time.Duration) results.Work {
	for _, addr := range s.r.target.members() {
		if !slices.ContainsFunc(s.nodes, func(n *sampledNode) bool { return n.addr == addr }) {
			s.nodes = append(s.nodes, &sampledNode{addr: addr, section: askNeoKV, last: map[string]int64{}})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var asked []*sampledNode
	for _, n := range s.nodes {
		n.work = nil
		if n.c == nil {
			n.c = &loadConn{epoch: s.r.epoch}
		}
		if n.c.timeout = timeout; n.c.nc != nil {
			n.c.renew(n.c.now())
		}
		if n.section != nil && s.connect(ctx, n) && s.try(n, n.c.ask(n.section...)) {
			asked = append(asked, n)
		}
	}
	work := results.Work{}
	counted := map[string]bool{} // processes
	for _, n := range asked {
		v, err := n.c.value(maxDepth)
		if _, refused := err.(serverError); !refused && !s.try(n, err) {
			continue
		}
		text, _ := v.(string)
		now := readCounts(text)
		if len(now) == 0 && n.section[1] == askNeoKV[1] { // not a NeoKV
			n.section = askCPU
			if v, err = n.c.call(askCPU...); s.try(n, err) {
				text, _ = v.(string)
				now = readCounts(text)
			}
		}
		if len(now) == 0 {
			n.section = nil
			s.drop(n)
			continue
		}
		s.take(work, n, now, !counted[n.process])
		counted[n.process] = true
	}
	if len(work) == 0 {
		return nil
	}
	return work
}

// take adds to work what a node has done since its last sample. The first sample of a counter adds nothing.
func (s *sampler) take(work results.Work, n *sampledNode, now map[string]int64, ofProcess bool) {
	shared := s.processes[n.process]
	if shared == nil {
		shared = map[string]int64{}
		s.processes[n.process] = shared
	}
	n.work = results.Work{}
	for name, value := range now {
		last := n.last
		line, _ := counters.Find(name)
		if line.Scope == counters.Process {
			if !ofProcess {
				continue
			}
			last = shared
		}
		before, known := last[name]
		last[name] = value
		did := int64(0)
		switch {
		case line.Kind == counters.Gauge, !known && n.sampled: // or the process restarted
			did = value
		case known:
			did = increase(before, value, n.anew)
		}
		work[name] += did
		if line.Scope == counters.Store {
			n.work[name] = did
		}
	}
	n.sampled, n.anew = true, false
}

// increase returns how much a counter grew. A counter that is smaller than before began anew. If the connection was
// lost in between, the node restarted and has counted from zero. Else the counter is a sum, and one part of it
// restarted: how much the other parts grew is unknown.
func increase(before, now int64, anew bool) int64 {
	switch {
	case now >= before:
		return now - before
	case anew:
		return now
	}
	return 0
}

// readCounts returns the counters and gauges in an answer to INFO. A Redis has its CPU time there, in seconds.
func readCounts(info string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(info) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ":")
		described, known := counters.Find(name)
		switch {
		case known && described.Kind != counters.Fact:
			if v, err := strconv.ParseInt(text, 10, 64); err == nil {
				out[name] = v
			}
		case name == "used_cpu_user" || name == "used_cpu_sys":
			if v, err := strconv.ParseFloat(text, 64); err == nil {
				out["process_cpu_us"] += int64(math.Round(v * 1e6))
			}
		}
	}
	return out
}

// connect makes sure that the node has a connection, and finds out which process answers on it.
func (s *sampler) connect(ctx context.Context, n *sampledNode) bool {
	if n.c.nc != nil {
		return true
	}
	if ctx.Err() != nil || s.r.now() < n.c.retryAt {
		return false
	}
	nc, err := s.r.target.dial(ctx, n.addr)
	if !s.try(n, err) {
		return false
	}
	n.c.attach(nc)
	v, err := n.c.call("INFO", "server")
	if !s.try(n, err) {
		return false
	}
	text, _ := v.(string)
	n.process, _, _ = net.SplitHostPort(n.addr)
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			n.process += " " + id
		}
	}
	n.anew = true
	return true
}

// try closes the connection of a node if there is an error, and keeps it closed for a while.
func (s *sampler) try(n *sampledNode, err error) bool {
	if err != nil {
		s.drop(n)
		n.c.retryAt = s.r.now() + sampleRetry
	}
	return err == nil
}

func (s *sampler) drop(n *sampledNode) {
	if n.c.nc != nil {
		n.c.nc.Close()
		n.c.nc = nil
	}
}

func (s *sampler) close() {
	for _, n := range s.nodes {
		if n.c != nil {
			s.drop(n)
		}
	}
}
