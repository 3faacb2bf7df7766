// Package redisbenchmark runs the installed redis-benchmark against NeoKV and against a redis-server or a Redis
// Cluster, in turn, and compares their rates round by round. It counts what redis-benchmark hides, and sends the same
// load with NeoKV's own generator over keys of all slots.
package redisbenchmark

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results"
)

// Options say what to run.
type Options struct {
	Load       SentLoad
	Rounds     int
	Cluster    bool // compare NeoKV with a Redis Cluster, too
	Durability children.Durability
	NeoKV      children.NeoKV // without the settings of Durability
	Dir        string         // for data; empty for the system's folder for temporary files
	// Spread is how long NeoKV's own generator sends each test. 0 leaves it out.
	Spread time.Duration
	// Progress is called with a line about each step, unless it is nil.
	Progress func(string)
}

// The names of what is compared with NeoKV.
const (
	neokvAlone   = "neokv"
	neokvCluster = "neokv-cluster"
	redisServer  = "redis-server"
	redisCluster = "redis-cluster"
)

// Counterpart returns NeoKV's setting that comes nearest to a durability of redis-server, and what it means. It is
// never weaker.
func Counterpart(d children.Durability) (setting, means string) {
	switch d {
	case children.None:
		return "engine.wal_sync=none", "it writes a log and does not wait for the disk"
	case children.EverySec:
		return "engine.wal_sync=always", "it has nothing between, so every write waits for the disk, which is stricter"
	default:
		return "engine.wal_sync=always", "every write waits for the disk"
	}
}

// comparing is a comparison under way.
type comparing struct {
	Options
	tool  string // the path of redis-benchmark
	found *Findings
}

// comparedSide is what is started, and where its figures go.
type comparedSide struct {
	name    string
	what    children.Startable
	cluster bool // redis-benchmark gets --cluster
	facts   *SideFacts
	of      func(*TestFigures) *SideFigures
	pair    *Pair
}

// Run measures and compares. It returns the findings of all complete rounds also beside an error.
func Run(ctx context.Context, o Options) (*Findings, error) {
	tool, err := children.Find("redis-benchmark", "valkey-benchmark")
	_, missing := children.Find("redis-server", "valkey-server")
	if err = errors.Join(err, missing); err != nil {
		return nil, err
	}
	h := results.NewHeader()
	f := &Findings{Started: time.Now().UTC(), Build: h.Build, Machine: h.Machine, Load: o.Load,
		Durability: string(o.Durability)}
	version, err := exec.CommandContext(ctx, tool, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", tool, err)
	}
	f.Tool, _, _ = strings.Cut(strings.TrimSpace(string(version)), "\n")
	c := &comparing{o, tool, f}
	sides := c.sides()
	for round := range o.Rounds {
		for _, s := range sides {
			c.say("round %d of %d: %s", round+1, o.Rounds, s.name)
			if err = c.measure(ctx, s); err != nil {
				err = fmt.Errorf("round %d: %s: %w", round+1, s.name, err)
				break
			}
		}
		if err != nil {
			c.dropRound(round)
			break
		}
		f.Rounds++
		slices.Reverse(sides)
	}
	f.finish()
	return f, err
}

func (c *comparing) say(format string, values ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, values...))
	}
}

// sides returns what is measured, in the order of the first round, and notes it in the findings.
func (c *comparing) sides() (sides []comparedSide) {
	setting, means := Counterpart(c.Durability)
	n := c.NeoKV
	n.Set = append(slices.Clone(n.Set), setting)
	add := func(ourName, ours, peer, theirs string, cluster bool) {
		p := &Pair{Threads: c.Load.Threads}
		if cluster && p.Threads == 0 {
			p.Threads = children.Masters // what redis-benchmark does, for as many nodes
		}
		if c.Spread > 0 && c.Load.Command == nil {
			p.Generator = c.spreads(p.Threads)
		}
		redis := children.Redis{Cluster: cluster, Durability: c.Durability}
		p.NeoKV = SideFacts{Name: ourName, Started: fmt.Sprintf("%s, by %s: %s", n, ours, means)}
		p.Peer = SideFacts{Name: peer, Started: theirs + strings.Join(c.Durability.Settings(), " ")}
		for _, name := range c.testNames() {
			p.Tests = append(p.Tests, &TestFigures{Test: name})
			if p.Generator != "" {
				p.Spread = append(p.Spread, &TestFigures{Test: name})
			}
		}
		c.found.Pairs = append(c.found.Pairs, p)
		sides = append(sides,
			comparedSide{ourName, n, cluster, &p.NeoKV, func(t *TestFigures) *SideFigures { return &t.NeoKV }, p},
			comparedSide{peer, redis, cluster, &p.Peer, func(t *TestFigures) *SideFigures { return &t.Peer }, p})
	}
	add(neokvAlone, "its proxy port", redisServer, "", false)
	if c.Cluster {
		add(neokvCluster, "the ports of its stores", redisCluster,
			"3 masters, each with a replica that gets a write after the answer, ", true)
	}
	return sides
}

func (c *comparing) testNames() []string {
	if c.Load.Command != nil {
		return []string{strings.Join(c.Load.Command, " ")}
	}
	return c.Load.Tests
}

// dropRound forgets the figures of a round that is not complete.
func (c *comparing) dropRound(round int) {
	for _, p := range c.found.Pairs {
		for _, t := range slices.Concat(p.Tests, p.Spread) {
			for _, a := range []*SideFigures{&t.NeoKV, &t.Peer} {
				for _, list := range []*[]float64{&a.PerSecond, &a.P50, &a.P99, &a.CPU} {
					*list = (*list)[:min(round, len(*list))]
				}
			}
		}
	}
}

// measure runs all tests of one side once. Each generator has an instance of its own: else compactions of what the
// other one has written would run meanwhile.
func (c *comparing) measure(ctx context.Context, s comparedSide) error {
	err := c.with(ctx, s, func(ctx context.Context, r *children.Running) error {
		for _, t := range s.pair.Tests {
			if err := c.send(ctx, r, s, t); err != nil {
				return fmt.Errorf("%s: %w", t.Test, err)
			}
		}
		return nil
	})
	if err != nil || s.pair.Spread == nil {
		return err
	}
	return c.with(ctx, s, func(ctx context.Context, r *children.Running) error {
		for _, t := range s.pair.Spread {
			if err := c.spread(ctx, r, s, t); err != nil {
				return fmt.Errorf("%s over all slots: %w", t.Test, err)
			}
		}
		return nil
	})
}

// with starts a side, does something with it, and stops it. The context of do ends when a process of the side ends.
func (c *comparing) with(ctx context.Context, s comparedSide, do func(context.Context, *children.Running) error) error {
	r, err := children.Start(ctx, c.Dir, s.what)
	if err != nil {
		return err
	}
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.Alive(), func() { cancel(r.Err()) })()
	info, err := bench.Fields(alive, r.Addrs()[0], r.Password(), "INFO")
	if err == nil {
		s.facts.Version = cmp.Or(info["neokv_version"], info["valkey_version"], info["redis_version"])
		err = do(alive, r)
	}
	if err != nil && context.Cause(alive) != nil {
		err = context.Cause(alive)
	}
	if err != nil {
		return errors.Join(err, r.Kill())
	}
	return r.Stop()
}

// replyCounts are what servers count, the sum of all of them.
type replyCounts struct {
	errors       map[string]int64 // by first word
	reads, found int64
}

// counts asks the servers that redis-benchmark talks to.
func counts(ctx context.Context, r *children.Running, addrs []string) (sum replyCounts, err error) {
	sum.errors = map[string]int64{}
	for _, addr := range addrs {
		info, err := bench.Fields(ctx, addr, r.Password(), "INFO", "everything")
		if err != nil {
			return sum, err
		}
		number := func(name string) int64 {
			n, wrong := strconv.ParseInt(info[name], 10, 64)
			if wrong != nil && err == nil {
				err = fmt.Errorf("INFO of %s: %s: %w", addr, name, wrong)
			}
			return n
		}
		total := number("total_error_replies")
		for name, value := range info {
			word, ok := strings.CutPrefix(name, "errorstat_")
			if !ok {
				continue
			}
			n, wrong := strconv.ParseInt(strings.TrimPrefix(value, "count="), 10, 64)
			if wrong != nil {
				return sum, fmt.Errorf("INFO of %s: %s: %w", addr, name, wrong)
			}
			sum.errors[word] += n
			total -= n
		}
		if total > 0 { // of words that the server does not count apart
			sum.errors["other"] += total
		}
		hits, misses := number("keyspace_hits"), number("keyspace_misses")
		sum.reads += hits + misses
		sum.found += hits
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// send runs redis-benchmark for one test.
func (c *comparing) send(ctx context.Context, r *children.Running, s comparedSide, t *TestFigures) error {
	addrs := []string{r.Proxy()}
	if s.cluster {
		addrs = r.Addrs()
	}
	host, port, _ := strings.Cut(addrs[0], ":")
	args := append([]string{"-h", host, "-p", port, "--csv"}, c.Load.Flags...)
	if s.cluster {
		args = append(args, "--cluster", "--threads", strconv.Itoa(s.pair.Threads)) // a NeoKV may have more nodes
	}
	title := t.Test
	rows := 1
	if c.Load.Command != nil {
		args = append(args, c.Load.Command...)
	} else {
		own := findTest(t.Test)
		args = append(args, "-t", own.name)
		if title = own.title; own.fills {
			rows = 2
		}
	}
	before, err := counts(ctx, r, addrs)
	if err != nil {
		return err
	}
	usedBefore, useErr := r.Use()
	out, err := c.run(ctx, args)
	if err != nil {
		return err
	}
	usedAfter, err := r.Use()
	useErr = errors.Join(useErr, err)
	after, err := counts(ctx, r, addrs)
	if err != nil {
		return err
	}
	printed, err := ParseCSV(out)
	if err != nil {
		return err
	}
	if len(printed) != rows || printed[rows-1].Test != title {
		return fmt.Errorf("redis-benchmark printed %d rows, the first of them %+v: want %d, the last of them %s",
			len(printed), printed[:min(1, len(printed))], rows, title)
	}
	row, figures := printed[rows-1], s.of(t)
	figures.add(row.PerSecond, row.P50, row.P99)
	if useErr == nil && rows == 1 { // else the CPU time is that of filling the list, too
		figures.CPU = append(figures.CPU, micros(usedAfter.CPU-usedBefore.CPU)/float64(c.Load.Requests))
	}
	for word, n := range after.errors {
		if n -= before.errors[word]; n > 0 {
			if figures.Errors == nil {
				figures.Errors = map[string]int64{}
			}
			figures.Errors[word] += n
		}
	}
	figures.Reads += after.reads - before.reads
	figures.Misses += after.reads - after.found - (before.reads - before.found)
	return nil
}

func (a *SideFigures) add(perSecond, p50, p99 float64) {
	a.PerSecond, a.P50, a.P99 = append(a.PerSecond, perSecond), append(a.P50, p50), append(a.P99, p99)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Bounds of a run of redis-benchmark: a client that waits for a lost answer must end.
const (
	slowestRate = 1000 // commands per second; a server below it counts as dead
	mostOutput  = 1 << 20
)

// run runs redis-benchmark and returns what it prints.
func (c *comparing) run(ctx context.Context, args []string) (string, error) {
	patience := time.Minute + time.Duration(c.Load.Requests/slowestRate)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("redis-benchmark had not ended after %v", patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.tool, args...)
	cmd.WaitDelay = time.Second
	var out, errs limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	said := strings.TrimSpace(errs.String())
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("redis-benchmark %s: %w: %s", strings.Join(args, " "), err, said)
	case said != "" && !strings.HasPrefix(said, "WARNING"):
		return "", fmt.Errorf("redis-benchmark %s: %s", strings.Join(args, " "), said)
	}
	return out.String(), nil
}

// limitedBuffer keeps the first part of what a process prints.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), mostOutput-b.Len())])
	return len(p), nil
}
