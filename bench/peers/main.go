// Command peers measures NeoKV beside other stores on the same machine, in interleaved rounds, and prints Markdown
// tables. Run it by hand, on Linux: cd bench/peers && go run . --help. docs/benchmarks.md says how to read the tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"neokv.dev/bench/children"
)

// The parts of the load that are the same for every target.
const (
	clientThreads = 3 // what redis-benchmark --cluster takes for three nodes
	valueBytes    = 64
	keysPerTag    = 100_000
)

const dirUsage = "`folder` for data, on the disk to measure (default the system's one for temporary files)"

// measurePlan is what the command line asks for.
type measurePlan struct {
	targets, tests []string
	regions        []int
	rounds         int
	length, idle   float64 // seconds
	dir, out       string
	neokv, before  string
	set            []string
}

func main() {
	redis.SetLogger(redisLogger{}) // silent: a server that does not listen yet is no news
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

type redisLogger struct{}

func (redisLogger) Printf(context.Context, string, ...any) {}

func command() *cobra.Command {
	var p measurePlan
	c := &cobra.Command{
		Use:               "peers",
		Short:             "Measure NeoKV beside other stores on this machine, interleaved, and print ratios",
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Example: `  go run .
  go run . --targets neokv,redis-cluster --tests set-50-16,set-50-1
  go run . --targets neokv,before --before /tmp/neokv-of-last-week --tests set-50-16
  go run . --targets neokv,redis-cluster --tests all-set-50-16,all-get-50-16 --regions 8,1,32,128
  go run . --targets neokv,redis --tests set-50-16,types
  go run . --out results/2026-11-23.jsonl
  go run . report results/2026-11-23.jsonl > results/2026-11-23.md`,
		Long: "Measure NeoKV beside other stores on this machine, interleaved, and print Markdown tables.\n\n" +
			cheaper +
			"\n\nTargets:\n" + list(targets, peerTarget.about) +
			"\nTests (--tests all for all of them, types for those of hashes, sets, lists, sorted sets, INCR and " +
			"MSET):\n" + list(tests, test.about),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return p.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&p.targets, "targets", names(targets[:len(targets)-1]), "what to measure")
	f.StringSliceVar(&p.tests, "tests", requiredTests(), "tests to run, or all")
	f.IntSliceVar(&p.regions, "regions", []int{8},
		"regions of NeoKV; it is started once with each, and the first counts in ratios")
	f.IntVar(&p.rounds, "rounds", enoughRounds,
		"how often to go through all targets, each time beginning with another one")
	f.Float64Var(&p.length, "seconds", 4, "how long a run of load takes, about")
	f.Float64Var(&p.idle, "idle", 10, "`seconds` of the idle test")
	f.StringVar(&p.dir, "dir", "", dirUsage)
	f.StringVar(&p.out, "out", "", "`file` for raw figures, JSON Lines (default peers-<UTC time>.jsonl)")
	f.StringVar(&p.neokv, "neokv", "", "`program` to measure as neokv, instead of building one from this tree")
	f.StringVar(&p.before, "before", "", "`program` for the target before: another neokv, to compare with")
	f.StringArrayVar(&p.set, "set", nil, "`setting=value` for neokv serve (not for before); may be repeated")
	c.AddCommand(curvesCommand(), reportCommand(), bareCommand())
	return c
}

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report FILE",
		Short: "Print the tables of a file of raw figures that was written before, and measure nothing",
		Args:  cobra.ExactArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return report(args[0], os.Stdout) },
	}
}

// check finds all that is wrong with the command line.
func (p *measurePlan) check() error {
	var wrong []error
	if slices.Equal(p.tests, []string{"all"}) {
		p.tests = names(tests)
	}
	if i := slices.Index(p.tests, "types"); i >= 0 {
		p.tests = slices.Replace(p.tests, i, i+1, typeNames()...)
	}
	allowed := func(flag string, given, all []string) {
		for _, name := range given {
			if !slices.Contains(all, name) {
				wrong = append(wrong, fmt.Errorf("--%s %q: want some of %s", flag, name, strings.Join(all, ", ")))
			}
		}
	}
	positive := func(flag string, ok bool, got any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf("--%s %v: want more than 0", flag, got))
		}
	}
	allowed("targets", p.targets, names(targets))
	allowed("tests", p.tests, names(tests))
	positive("rounds", p.rounds > 0, p.rounds)
	if p.length < 1 {
		wrong = append(wrong, fmt.Errorf("--seconds %g: want at least 1", p.length)) // see bench.send
	}
	positive("idle", p.idle > 0, p.idle)
	positive("regions", len(p.regions) > 0 && slices.Min(p.regions) > 0, p.regions)
	if slices.Contains(p.targets, "before") != (p.before != "") {
		wrong = append(wrong, errors.New("--before names the program of the target before: want both or neither"))
	}
	for _, tool := range []string{"redis-server", "redis-benchmark"} {
		if _, err := children.Find(tool); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// run measures and prints the tables. If it is interrupted, or a test fails, it prints what it has.
func (p *measurePlan) run(ctx context.Context) error {
	return p.bench(ctx, kindPeers, func(x *bench, h header) (err error) {
		if x.out, err = createRecord(x.measurePlan.out, h); err != nil {
			return err
		}
		err = x.rounds(ctx)
		return errors.Join(err, x.out.close(), x.out.print(os.Stdout))
	})
}

// bench builds the programs, makes a folder for data, looks at the machine, measures, and removes the folder.
func (p *measurePlan) bench(ctx context.Context, kind string, measure func(*bench, header) error) (err error) {
	dir, err := os.MkdirTemp(p.dir, kind+"-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	x := &bench{measurePlan: *p, dir: dir, rates: map[string]float64{}}
	if err := x.build(ctx); err != nil {
		return err
	}
	h, err := newHeader(ctx, kind, dir, p.rounds)
	if err != nil {
		return err
	}
	if x.measurePlan.out == "" {
		x.measurePlan.out = kind + "-" + h.Started.Format("20060102T150405Z") + ".jsonl"
	}
	return measure(x, h)
}

// bench is a measurement under way.
type bench struct {
	measurePlan
	dir   string
	etcd  string             // the program
	rates map[string]float64 // operations per second of the last run, by target and test
	out   *resultFile
}

// build builds the programs that the command line does not name.
func (x *bench) build(ctx context.Context) error {
	goBuild := func(dir, name, pkg string) (string, error) {
		path := filepath.Join(x.dir, name)
		c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
		c.Dir, c.Stderr = dir, os.Stderr
		if err := c.Run(); err != nil {
			return "", fmt.Errorf("build %s (peers runs in its own folder, bench/peers): %w", pkg, err)
		}
		return path, nil
	}
	var err error
	if x.neokv == "" {
		if x.neokv, err = goBuild("../..", "neokv", "./cmd/neokv"); err != nil {
			return err
		}
	}
	if slices.Contains(x.targets, "etcd") {
		x.etcd, err = goBuild(".", "etcd", "go.etcd.io/etcd/server/v3")
	}
	return err
}

// commit returns the commit of the tree that is measured, if git knows it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// rounds goes through the targets in each round, and each time begins with another one.
func (x *bench) rounds(ctx context.Context) error {
	var all []peerTarget
	for _, t := range targets {
		switch {
		case !slices.Contains(x.targets, t.name):
		case t.name == "neokv-apart":
			t.regions = x.regions[0]
			all = append(all, t)
		case t.name != "neokv":
			all = append(all, t)
		default:
			for i, n := range x.regions {
				t := t
				t.regions = n
				if i > 0 {
					t.name = fmt.Sprintf("neokv/%d", n)
				}
				all = append(all, t)
			}
		}
	}
	for round := range x.measurePlan.rounds {
		for i := range all {
			if err := x.measure(ctx, round, all[(round+i)%len(all)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure runs all tests of one target, in the order of the list of tests. A test may start the target itself, or have
// an instance of its own, as those of neokv bench have. The others share an instance, whose keys are loaded after the
// tests that need none. A test that fails is recorded as such.
func (x *bench) measure(ctx context.Context, round int, t peerTarget) error {
	var in *instance
	own := false // the instance was for one test alone
	defer func() { in.stop() }()
	for _, test := range tests { // in their own order, which puts those without load first
		if !slices.Contains(x.tests, test.name) || !test.fits(t) {
			continue
		}
		r := measurement{Round: round, Target: t.name, Test: test.name, Load: loadAverage()}
		var err error
		if own = own || test.workload != ""; own { // else compactions of what other tests have loaded would run meanwhile
			in.stop()
			in, own = nil, test.workload != ""
		}
		if in == nil && !test.ownStart {
			in, err = x.start(ctx, t, start{})
		}
		if err == nil && test.keys && !in.loaded {
			err = in.load(ctx)
			in.loaded = err == nil
		}
		if err == nil {
			err = test.run(ctx, x, t, in, &r)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Failure = err.Error() // such as an error reply, at which redis-benchmark ends
		}
		if err := x.out.add(r); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, r)
	}
	return nil
}

// named is something that a flag chooses by name.
type named interface{ key() string }

func names[T named](all []T) (out []string) {
	for _, x := range all {
		out = append(out, x.key())
	}
	return out
}

func list[T named](all []T, about func(T) string) string {
	var b strings.Builder
	for _, x := range all {
		fmt.Fprintf(&b, "  %-15s  %s\n", x.key(), about(x))
	}
	return b.String()
}
