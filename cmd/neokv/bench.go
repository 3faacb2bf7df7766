package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/bench"
	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/workloads"
)

// benchFlags are the flags of bench, apart from settings.
type benchFlags struct {
	clusterFlags
	outFlags
	targetFlags
	target shownTargets
	verify bool
	plain  bool // lines of progress, also on a terminal
	json   bool // the result as JSON, in place of the table
	groups []string
	// commands are sent in place of the workload; nil for none.
	commands []string

	replay string
	speed  float64

	pipelineSlots string

	at       []string
	schedule string
	// inject carries out the faults of the schedule; it is set before the load begins.
	inject func(context.Context, fault.Fault) (outcome string, err error)

	findMax, curve bool
	curveClients   string
	slo            string
	step, maxStep  time.Duration

	runs, operations int
	loadOnly, noLoad bool
	interval         time.Duration
}

func benchCommand(p process) *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Load a cluster and print throughput and latency percentiles",
		Long: `Load a cluster over real sockets, print throughput and latency percentiles, and leave a result file behind.

Without --target bench boots the cluster of the profile in this process, on free ports, and stops it at the end. With
--target the load goes to any Redis or Redis Cluster; bench asks it which of the two it is. Without --rate each client
sends its next operation when the last one is answered, which measures peak throughput. With --rate operations start by
schedule, and response time counts from there: --rate 20000, --rate 'poisson 20000', --rate 'ramp 1000..20000 60s',
--rate 'steps 1000..20000 by 1000 every 10s'. A rate is that of all clients together. Each --group adds clients with a
load of their own. --find-max searches the highest rate that holds an --slo and measures at it, --curve prints latencies
at many rates. --replay sends recorded traffic. Standard output holds the result alone; its last line is the name of
the result file. Progress goes to standard error: on a terminal as a live view, else in lines. Ctrl-C ends the run and
keeps what was measured.

` + targetHelp + `

Each --command is an operation, in place of a workload; a number before it says how often it comes beside the others. A
word in braces stands for what is drawn for each call:
` + workloads.Placeholders + `

A workload is one of these, which neokv workloads describes, or a YAML file of your own:

` + workloadList(),
		Example: `  neokv bench
  neokv bench --workload get --clients 200 --pipeline 16 --duration 10s
  neokv bench --command 'SET {key zipfian 100000} {value 64}' --command '3: GET {key zipfian 100000}'
  neokv bench --rate 20000 --set engine.memtable_size=256MiB
  neokv bench --rate 10000 --group 'name=slow workload=ycsb-e clients=1 rate=poisson 5'
  neokv bench --rate 5000 --at '10s rate 20000' --at '20s FLUSHALL'
  neokv bench --rate 5000 --slo 'p99<5ms,errors<0.1%' --runs 5
  neokv bench --find-max --slo 'p99<5ms,errors<0.1%'
  neokv bench --curve
  neokv bench --curve-clients 1,2,4,8,16,32,64,128
  neokv bench --workload ycsb-d --verify
  neokv bench --replay monitor.txt --speed 2
  neokv bench --target 127.0.0.1:7001,127.0.0.1:7002 --out target.jsonl
  neokv bench --target rediss://app@redis.example:6380 --cacert ca.pem --set-from password.txt`,
		Args: noArgs,
	}
	flags := c.Flags()
	flags.Var(&f.target, "target", "`target,...` to load, instead of booting a cluster")
	f.targetFlags.register(flags, "--")
	f.outFlags.register(flags, "result `file` (default neokv-<workload>-<UTC time>.jsonl in the current folder)")
	flags.BoolVar(&f.verify, "verify", false,
		"read back what was acknowledged when the load has ended; fail if something is lost")
	flags.BoolVar(&f.plain, "plain", false, "show progress in lines, also on a terminal")
	flags.BoolVar(&f.json, "json", false,
		"print the result as JSON in place of the table; with --runs one after the other")
	commandFlag(flags, &f.commands)
	flags.StringArrayVar(&f.groups, "group", nil, "more clients, `\"name=... rate=...\"`: "+groupForm+
		"; what it leaves out is as the other flags say; may be repeated")
	flags.StringVar(&f.pipelineSlots, "pipeline-slots", "spread",
		"where the operations of a pipeline go, `spread|node|slot`: to wherever their keys are, to one node of a "+
			"cluster, or to keys of one slot")
	flags.StringVar(&f.replay, "replay", "",
		"send what MONITOR of a redis-server printed into this `file`, instead of a workload, until its end")
	flags.Float64Var(&f.speed, "speed", 1,
		"how many times (`x`) faster than recorded --replay sends; 0 is as fast as possible")
	flags.StringArrayVar(&f.at, "at", nil, "do something in the measured part, `\"TIME WHAT\"`; WHAT is "+
		bench.EventForms+"; may be repeated")
	flags.StringVar(&f.schedule, "schedule", "", "YAML `file` with a list of such events, each with at and do")
	flags.BoolVar(&f.findMax, "find-max", false,
		"find the highest rate that holds --slo, and measure at it; --rate says where to begin")
	flags.BoolVar(&f.curve, "curve", false,
		"latencies at twelve rates up to 1.2 times what a closed loop gives, or at those of --rate 'steps ...'")
	flags.StringVar(&f.curveClients, "curve-clients", "",
		"latencies and throughput of a closed loop with each of these `numbers` of clients: "+bench.ClientsForms)
	flags.StringVar(&f.slo, "slo", "",
		"`conditions` that a rate must hold with --find-max and --curve, and the run without them, else the exit "+
			"status is 3: "+bench.SLOForms)
	flags.DurationVar(&f.step, "step", 0,
		"how long --find-max and --curve try a rate at least (default 3s); a step goes on until ten operations lie "+
			"beyond the highest percentile of --slo")
	flags.DurationVar(&f.maxStep, "max-step", 0, "how long a step may last at most (default 1m0s)")
	flags.IntVar(&f.runs, "runs", 1,
		"repeat all of it, each time with a seed of its own, and print how far the figures spread")
	flags.IntVar(&f.operations, "operations", 0,
		"send so many operations in a closed loop, all clients of a group together, without a warm-up, and for "+
			"--duration at most if that is given")
	flags.BoolVar(&f.loadOnly, "load-only", false, "insert the records and send nothing else")
	flags.BoolVar(&f.noLoad, "no-load", false, "insert no records: an earlier run of the same load has")
	flags.DurationVar(&f.interval, "interval", 0,
		"how long the intervals of the result file are, from 10ms (default 1s, or longer in runs of more than an hour)")
	for _, name := range []string{"workload", "clients", "pipeline", "rate", "duration", "warmup", "records",
		"elements",
		"value-size", "seed"} {
		settingFlag(flags, name, "load."+strings.ReplaceAll(name, "-", "_"))
	}
	f.clusterFlags.register(c, 0, 0)
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c, p) }
	return c
}

// commandFlag registers --command.
func commandFlag(flags *pflag.FlagSet, commands *[]string) {
	flags.StringArrayVar(commands, "command", nil, "send this in place of a workload, `\"[SHARE:] COMMAND WORDS\"`, with "+
		"quotes as in redis-cli; a word may be one of "+workloads.Placeholders+"; may be repeated")
}

// run boots a cluster, unless --target names a running one, sends the load, and prints the result.
func (f *benchFlags) run(c *cobra.Command, p process) (err error) {
	r, config, o, err := f.parse(c, p)
	if err != nil {
		return err
	}
	workload := cmp.Or(f.replay, r.Load.Workload)
	if f.commands != nil {
		workload = "commands"
	}
	path := cmp.Or(f.out, results.DefaultPath(workload, time.Now()))
	if f.runs > 1 {
		return f.repeat(c, p, r, config, o, path)
	}
	if err := f.spare(path); err != nil {
		return err
	}
	h, s, err := f.once(c, p, r, config, o, path)
	switch {
	case h.Format == 0: // nothing was recorded
	case f.json:
		err = errors.Join(results.PrintJSON(p.stdout, jsonRun{path, h, s}), err)
	default:
		err = errors.Join(results.PrintTable(p.stdout, h, s), err)
		fmt.Fprintln(p.stdout, path)
	}
	if err == nil {
		err = verdict(s)
	}
	return err
}

// jsonRun is what --json prints of a run.
type jsonRun struct {
	File    string          `json:"file"`
	Header  results.Header  `json:"header"`
	Summary results.Summary `json:"summary"`
}

// once boots a cluster, unless --target names a running one, and sends the load once. The header has no format if
// nothing was recorded.
func (f *benchFlags) once(c *cobra.Command, p process, r *profiles.Resolved, config neokv.Config, o bench.Options,
	path string) (h results.Header, s results.Summary, err error) {
	out, err := results.Create(path)
	if err != nil {
		return h, s, err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if out.Header().Format == 0 { // nothing was recorded
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if o.Targets == nil {
		o.Login.Password = cmp.Or(r.Load.Password, r.Redis.RequirePass)
	}
	var cluster *neokv.Cluster // nil if the target runs already
	if o.Targets == nil {
		config.Seed = o.Seed
		defer limitHeap(os.Getenv, config)()
		if cluster, err = boot(c.Context(), config); err != nil {
			return h, s, err
		}
		f.inject = cluster.Inject
		stop := watch(cluster, p)
		defer func() { err = errors.Join(err, stop()) }()
		o.Targets = cluster.Addrs()
		shape := cluster.Shape()
		fmt.Fprintf(p.stderr, "neokv: booted %d stores with %d regions in %.2f s\n",
			shape.Stores, shape.Regions, cluster.BootTime().Seconds())
	}
	if cluster == nil {
		if f.inject, err = faultsByControl(c.Context(), p, o); err != nil {
			return h, s, err
		}
		defer tuneGenerator(os.Getenv)()
	}
	if o.Header, err = header(c, cluster, r); err != nil {
		return h, s, err
	}
	s, err = load(c.Context(), p, f.plain, o, out)
	return out.Header(), s, err
}

// parse turns the flags into what to boot and what to send. Its error names everything that is wrong with them.
func (f *benchFlags) parse(c *cobra.Command, p process) (r *profiles.Resolved, config neokv.Config, o bench.Options,
	err error) {
	var wrong [4]error
	if r, wrong[0] = f.resolve(c, p.env); wrong[0] == nil {
		config, wrong[1] = f.config(c, r, func(step string) { fmt.Fprintln(p.stderr, "neokv:", step) })
	} else {
		wrong[1] = f.check(settings.Settings{Cluster: settings.ClusterKnobs{Stores: 1}})
	}
	password := ""
	if r != nil {
		password = cmp.Or(r.Load.Password, r.Redis.RequirePass)
	}
	targets, login, err := f.targets(c, password)
	if wrong[2] = err; f.runs < 1 || f.runs > maxRuns {
		wrong[2] = errors.Join(err, &usageError{fmt.Sprintf("--runs %d: want 1 to %d", f.runs, maxRuns)})
	}
	if r != nil {
		if o, wrong[3] = f.options(c, r.Load); wrong[3] == nil {
			if targets == nil {
				o.Stores = r.Cluster.Stores
			}
			if err := o.Check(); err != nil {
				wrong[3] = &usageError{err.Error()}
			}
		}
		o.Targets, o.Login = targets, login
	} else {
		_, wrong[3] = f.options(c, profiles.LoadKnobs{})
	}
	return r, config, o, errors.Join(wrong[:]...)
}

// maxRuns bounds --runs.
const maxRuns = 1000

// workloadList lists the workloads for the help.
func workloadList() string {
	lines := []string{" "}
	for _, name := range workloads.Names() {
		last := &lines[len(lines)-1]
		if len(*last)+len(name) > 100 {
			lines = append(lines, " ")
			last = &lines[len(lines)-1]
		}
		*last += " " + name
	}
	return strings.Join(lines, "\n")
}

// load sends the load. The summary is also that of a run that failed or was interrupted.
func load(ctx context.Context, p process, plain bool, o bench.Options, out *results.RecordWriter) (results.Summary,
	error) {
	show := newDisplay(ctx, p, plain)
	o.Progress = func(t bench.Tick) { show.tick(out.Header(), t) }
	s, err := func() (results.Summary, error) {
		defer show.end() // also if the run panics
		return bench.Run(ctx, o, out)
	}()
	switch {
	case errors.As(err, new(*bench.OptionsError)):
		return s, &usageError{err.Error()}
	case err == nil && s.Interrupted:
		return s, errors.New("interrupted")
	}
	switch {
	case err == nil && !s.Succeeded():
		err = errors.New("no operation succeeded")
	case err == nil && o.Search != nil && !o.Search.Curve && s.Curve != nil && !s.Curve.Confirmed:
		err = fmt.Errorf("no rate that holds %s was confirmed", o.Search.SLO)
	}
	for _, e := range s.Events {
		if e.Error != "" {
			err = errors.Join(err, fmt.Errorf("at %.1f s %s: %s", e.At, e.Do, e.Error))
		}
	}
	return s, err
}

// verdict returns the error of a run that went well and did not hold its SLO.
func verdict(s results.Summary) error {
	if s.SLO == nil || s.SLO.Broken == "" {
		return nil
	}
	return &statusError{statusBroken, s.SLO.String()}
}

// repeat sends the load several times, each to a file of its own, and prints how far the figures spread.
func (f *benchFlags) repeat(c *cobra.Command, p process, r *profiles.Resolved, config neokv.Config, o bench.Options,
	path string) error {
	var paths []string
	var wrong []error
	ext := filepath.Ext(path)
	for i := range f.runs {
		paths = append(paths, fmt.Sprintf("%s-%0*d%s", strings.TrimSuffix(path, ext), len(strconv.Itoa(f.runs)), i+1,
			ext))
		wrong = append(wrong, f.spare(paths[i]))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	var done []results.ResultFile
	var failed error
	for i, path := range paths {
		fmt.Fprintf(p.stderr, "neokv: run %d of %d\n", i+1, f.runs)
		o := o
		o.Seed += uint64(i)
		h, s, err := f.once(c, p, r, config, o, path)
		if h.Format != 0 {
			if f.json {
				err = errors.Join(err, results.PrintJSON(p.stdout, jsonRun{path, h, s}))
			}
			done = append(done, results.ResultFile{Name: path, Result: &results.Result{Header: h, Summary: &s}})
		}
		if failed = err; failed != nil {
			break
		}
	}
	if len(done) > 0 && !f.json {
		failed = errors.Join(failed, compare.PrintSpread(p.stdout, done))
	}
	broken := 0
	for _, f := range done {
		if verdict(*f.Result.Summary) != nil {
			broken++
		}
	}
	if failed != nil || broken == 0 {
		return failed
	}
	return &statusError{statusBroken, fmt.Sprintf("SLO %s: does not hold in %d of %s", o.SLO, broken,
		results.Plural(int64(len(done)), "run"))}
}

// targets returns the addresses of --target and how connections to them begin, nil without it. It refuses flags about a
// cluster to boot beside --target, and flags about a target without it.
func (f *benchFlags) targets(c *cobra.Command, password string) ([]string, bench.Login, error) {
	var wrong mistakes
	if !c.Flags().Changed("target") {
		for _, name := range append(tlsFlags, "user", "tls") {
			wrong.check(!c.Flags().Changed(name), "--%s is for --target", name)
		}
		return nil, bench.Login{}, errors.Join(wrong...)
	}
	for _, name := range []string{"stores", "replicas", "regions", "bind", "port", "proxy-port", "dir", "mem",
		"discard"} {
		if c.Flags().Changed(name) {
			wrong = append(wrong, &usageError{fmt.Sprintf(
				"--target takes a cluster that runs; --%s is for one that is booted",
				name)})
		}
	}
	for _, set := range f.set {
		name, _, _ := strings.Cut(set, "=")
		if name = strings.TrimSpace(name); !strings.HasPrefix(name, "load.") && name != "redis.requirepass" {
			wrong = append(wrong, &usageError{fmt.Sprintf(
				"--target takes a cluster that runs; --set %s is for one that is booted", name)})
		}
	}
	texts := strings.Split(string(f.target), ",")
	for i := range texts {
		texts[i] = strings.TrimSpace(texts[i])
	}
	addrs, logins, err := f.read(texts, password)
	wrong.add(err)
	for _, l := range logins[1:] {
		wrong.check(l == logins[0], "--target: want one user, one password and TLS for all or none")
	}
	return addrs, logins[0], errors.Join(wrong...)
}

// header returns the header of the result file, with what is in force when the load begins. For a booted cluster that
// includes its profile, settings, shape and folder. cluster is nil for a target that runs already.
func header(c *cobra.Command, cluster *neokv.Cluster, r *profiles.Resolved) (results.Header, error) {
	h := results.NewHeader()
	h.Command = commandLine(c)
	if cluster == nil {
		return h, nil
	}
	r.Settings = cluster.Settings() // the data folder may have another shape and folder of logs
	describe(&h, r)
	dir, _ := cluster.Dir()
	if dir == "" {
		h.Cluster.InMemory = true
		return h, nil
	}
	var err error
	if h.Cluster.Data, err = results.ProbeFolder(dir); err != nil {
		return h, err
	}
	if r.Engine.WALDir != "" {
		h.Cluster.Logs, err = results.ProbeFolder(r.Engine.WALDir)
	}
	return h, err
}

// describe fills in the profile, settings and shape of a cluster that was booted with these values.
func describe(h *results.Header, r *profiles.Resolved) {
	h.Profile, h.Settings = r.Name, map[string]string{}
	for _, v := range r.Values() {
		if !strings.HasPrefix(v.Name, "load.") { // the header has the load in fields of its own
			h.Settings[v.Name] = v.Value
		}
	}
	h.Cluster = results.ClusterShape{
		InProcess: true, Stores: r.Cluster.Stores, Replicas: r.Cluster.Replicas, Regions: r.Cluster.Regions,
		Sync: r.Engine.WALSync, Transport: r.Raft.Transport,
	}
}

// watch prints the errors of stores that fail. stop closes the cluster and returns when everything has ended.
func watch(cluster *neokv.Cluster, p process) (stop func() error) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case err := <-cluster.Failed():
				fmt.Fprintln(p.stderr, "neokv:", err)
			case <-done:
				return
			}
		}
	})
	return func() error {
		close(done)
		wg.Wait()
		return cluster.Close()
	}
}
