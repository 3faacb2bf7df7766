package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/results"
)

// This file is the command curves: NeoKV alone, its throughput, latency and work as one thing changes.

// curve is a table with a row for each point. The points differ in one thing.
type curve struct {
	name, doc string
	optional  bool // not in the default list
	blocks    bool // has columns of the blocks that reads need
	points    []point
}

func (c curve) key() string { return c.name }

func (c curve) about() string { return c.doc }

// point is a NeoKV, started for this point, and the load on it: GETs of everything that was loaded, then SETs.
type point struct {
	label string
	serve []string // settings beside those of the target neokv
	benchLoad
}

// usual is the load of a point, unless the point says otherwise.
var usual = benchLoad{clients: 50, pipeline: 16, records: keysPerTag, valueBytes: valueBytes}

// curves are in the order of the tables.
var curves = []curve{
	{name: "stores", doc: "stores; three replicas, one where there is one store",
		points: points([]int{1, 3, 5, 9}, func(n int, p *point) {
			p.serve = []string{fmt.Sprint("cluster.stores=", n), fmt.Sprint("cluster.replicas=", min(n, 3))}
		}, 1, 16)},
	{name: "regions", doc: "regions", points: points([]int{1, 8, 32, 128}, func(n int, p *point) {
		p.serve = []string{fmt.Sprint("cluster.regions=", n)}
	}, 1, 16)},
	{name: "clients", doc: "clients",
		points: points([]int{1, 10, 50, 200, 500}, func(n int, p *point) { p.clients = n },
			1)},
	{name: "commands", doc: "commands in a pipeline",
		points: points([]int{1, 4, 16, 64}, func(n int, p *point) { p.pipeline = n }, 0)},
	{name: "value", doc: "bytes of a value; neokv bench cuts a pipeline so that it has no more than 256 KiB",
		points: points([]int{16, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}, func(n int, p *point) {
			p.valueBytes, p.records = n, min(keysPerTag, 256<<20/n)
		}, 16)},
	{name: "inflight", doc: "raft.max_inflight, entries of a region under way",
		points: settingPoints("raft.max_inflight", []string{"1", "2", "4", "8", "32"}, 1, 16)},
	{name: "ops", doc: "raft.batch_max_ops, commands in an entry",
		points: settingPoints("raft.batch_max_ops", []string{"1", "16", "128", "512", "4096"}, 16)},
	{name: "bytes", doc: "raft.batch_max_bytes, bytes in an entry",
		points: settingPoints("raft.batch_max_bytes", []string{"1KiB", "16KiB", "256KiB", "4MiB"}, 16)},
	{name: "sync", doc: "engine.wal_sync; with none acknowledged writes can be lost",
		points: settingPoints("engine.wal_sync", []string{"always", "none"}, 1, 16)},
	{name: "shared", doc: "engine.shared_sync, one sync for the logs of all stores of the process",
		points: settingPoints("engine.shared_sync", []string{"true", "false"}, 1, 16)},
	{name: "transport", doc: "raft.transport",
		points: settingPoints("raft.transport", []string{"memory", "tcp"}, 1, 16)},
	{name: "rows", doc: "engine.row_cache, records in memory for GETs",
		points: settingPoints("engine.row_cache", []string{"0", "4MiB", "64MiB"}, 1, 16)},
	{name: "data", doc: "keys, with a block cache of 16 MiB for all stores and no row cache", blocks: true,
		points: dataPoints(keysPerTag, 1_000_000)},
	{name: "data-10m", doc: "the same with 10,000,000 keys; takes some minutes", blocks: true, optional: true,
		points: dataPoints(10_000_000)},
}

// points makes a point of each number with each of the pipelines. Where a pipeline is 0, set chooses one.
func points(numbers []int, set func(n int, p *point), pipelines ...int) (all []point) {
	for _, n := range numbers {
		for _, pipeline := range pipelines {
			p := point{label: results.Count(int64(n)), benchLoad: usual}
			if pipeline > 0 {
				p.pipeline = pipeline
			}
			set(n, &p)
			all = append(all, p)
		}
	}
	return all
}

// settingPoints makes a point of each value of a setting, with each of the pipelines.
func settingPoints(name string, values []string, pipelines ...int) (all []point) {
	for _, v := range values {
		for _, pipeline := range pipelines {
			p := point{label: v, serve: []string{name + "=" + v}, benchLoad: usual}
			p.pipeline = pipeline
			all = append(all, p)
		}
	}
	return all
}

func dataPoints(records ...int) []point {
	return points(records, func(n int, p *point) {
		p.records, p.serve = n, []string{"engine.block_cache=16MiB", "engine.row_cache=0"}
	}, 16)
}

func usualCurves() (out []string) {
	for _, c := range curves {
		if !c.optional {
			out = append(out, c.name)
		}
	}
	return out
}

func curvesCommand() *cobra.Command {
	var p measurePlan
	var chosen []string
	c := &cobra.Command{
		Use:   "curves",
		Short: "Measure NeoKV alone against one thing at a time, and print Markdown tables",
		Long: "Measure NeoKV alone against one thing at a time, and print Markdown tables.\n\nEach point is a NeoKV " +
			"of its own, as the target neokv but for what the row names.\nneokv bench sends it keys of all slots.\n\n" +
			"Curves:\n" +
			list(curves, curve.about),
		Args: cobra.NoArgs,
		Example: `  go run . curves
  go run . curves --curves regions,transport
  go run . report curves.jsonl`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkCurves(chosen, p); err != nil {
				return err
			}
			return p.bench(c.Context(), kindCurves, func(x *bench, h header) (err error) {
				s := &samples{header: h}
				if s.file, err = os.Create(x.measurePlan.out); err != nil {
					return err
				}
				err = x.curves(c.Context(), chosen, s)
				return errors.Join(err, s.file.Close(), s.print(os.Stdout))
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&chosen, "curves", usualCurves(), "which curves")
	f.IntVar(&p.rounds, "rounds", enoughRounds, "how often to go through all points, every other time backwards")
	f.Float64Var(&p.length, "seconds", 3, "how long a run of load takes, after a second that does not count")
	f.StringVar(&p.dir, "dir", "", dirUsage)
	f.StringVar(&p.out, "out", "", "`file` for raw figures, JSON Lines (default curves-<UTC time>.jsonl)")
	f.StringVar(&p.neokv, "neokv", "", "`program` to measure, instead of building one from this tree")
	f.StringArrayVar(&p.set, "set", nil,
		"`setting=value` for neokv serve, where the point has no other; may be repeated")
	return c
}

// checkCurves finds all that is wrong with the command line.
func checkCurves(chosen []string, p measurePlan) error {
	var wrong []error
	for _, name := range chosen {
		if !slices.Contains(names(curves), name) {
			wrong = append(wrong, fmt.Errorf("--curves %q: want some of %s", name, strings.Join(names(curves), ", ")))
		}
	}
	if p.rounds < 1 {
		wrong = append(wrong, fmt.Errorf("--rounds %d: want more than 0", p.rounds))
	}
	if p.length < 0.1 {
		wrong = append(wrong, fmt.Errorf("--seconds %g: want at least 0.1", p.length))
	}
	return errors.Join(wrong...)
}

// sample is one run of neokv bench: a line of the file behind the header.
type sample struct {
	Curve       string       `json:"curve"`
	Point       int          `json:"point"` // its place in the curve
	measurement              // Test is the command; CPU and Work are the servers' own counts
	Work        results.Work `json:"work,omitempty"`
	Ops         int64        `json:"ops"`
	// DiskBytes is how much the operating system fetched from disks for the servers meanwhile. They read the rest from
	// the page cache.
	DiskBytes int64 `json:"disk_bytes"`
}

func (s sample) String() string {
	text := fmt.Sprintf("%-5s %8.4g k/s  p50 %.3g p99 %.3g ms  CPU %.3g us  load %.1f", s.Test, s.Value, s.P50, s.P99,
		s.CPU, s.Load)
	if !s.valid() {
		text += fmt.Sprintf("  INVALID: %d misses, %d errors %s", s.Misses, s.Errors, s.Failure)
	}
	return text
}

// curves measures all points of the chosen curves.
func (x *bench) curves(ctx context.Context, chosen []string, s *samples) error {
	to := json.NewEncoder(s.file)
	if err := to.Encode(s.header); err != nil {
		return err
	}
	type regionPlace struct {
		curve
		point int
	}
	var all []regionPlace
	for _, c := range curves {
		for i := range c.points {
			if slices.Contains(chosen, c.name) {
				all = append(all, regionPlace{c, i})
			}
		}
	}
	for round := range x.measurePlan.rounds {
		for i, at := range all {
			p := at.points[at.point]
			for _, r := range x.point(ctx, p) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.Round, r.Curve, r.Point = round, at.name, at.point
				s.all = append(s.all, r)
				if err := to.Encode(r); err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%d/%d %-9s %8s  pipeline %-3d %v\n", round*len(all)+i+1,
					x.measurePlan.rounds*len(all), at.name,
					p.label, p.pipeline, r)
			}
		}
		slices.Reverse(all)
	}
	return nil
}

// point measures a point once. It returns a sample of GET and one of SET, or one that says why there is none.
func (x *bench) point(ctx context.Context, p point) (out []sample) {
	t := targets[0]
	t.serve = p.serve
	r := sample{measurement: measurement{Target: t.name, Test: "start", Load: loadAverage()}}
	in, err := x.start(ctx, t, start{})
	defer func() { in.stop() }()
	for _, command := range []string{"get", "set"} {
		if err == nil {
			r = sample{measurement: measurement{Target: t.name, Test: command, Load: loadAverage()}}
			p.workload = command
			err = x.sample(ctx, in, p.benchLoad, &r)
		}
		if err != nil {
			r.Failure = err.Error()
			return append(out, r)
		}
		out = append(out, r)
	}
	return out
}

// sample sends a load when the target has nothing else to do. Before a load that reads, it writes the records. The work
// that this causes, such as compactions, gets some time before the run counts.
func (x *bench) sample(ctx context.Context, in *instance, l benchLoad, r *sample) error {
	if err := in.settle(ctx); err != nil {
		return err
	}
	before, err := in.Use()
	if err != nil {
		return err
	}
	l.warmup = time.Second
	if l.workload == "get" {
		l.warmup += time.Duration(l.records*(l.valueBytes+valueBytes)/32) * time.Microsecond // 32 MB a second
	}
	s, err := x.neokvBench(ctx, in, l)
	if err != nil {
		return err
	}
	after, err := in.Use()
	if err != nil {
		return err
	}
	r.measured(s)
	r.Work, r.Ops, r.DiskBytes = s.Work, s.Groups[0].Total.Count, after.DiskReads-before.DiskReads
	return nil
}

// per divides a counter by the operations.
func (s sample) per(counter string) float64 { return float64(s.Work[counter]) / float64(s.Ops) }

// samples are the results of a run of curves.
type samples struct {
	header
	all  []sample
	file *os.File
}

// readSamples reads what follows the header.
func readSamples(h header, d *json.Decoder) (*samples, error) {
	rec := &samples{header: h}
	for {
		var s sample
		err := d.Decode(&s)
		if err == io.EOF {
			return rec, nil
		}
		if err == nil {
			i := slices.Index(names(curves), s.Curve)
			if i < 0 || s.Point < 0 || s.Point >= len(curves[i].points) {
				err = fmt.Errorf("point %d of curve %q: not one of this program's", s.Point, s.Curve)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", len(rec.all)+1, err)
		}
		rec.all = append(rec.all, s)
	}
}

// column is a column of a curve's table, to the right of those of the point.
type column struct {
	title  string
	test   string // of which command
	figure func(sample) float64
	blocks bool // only in curves with blocks
}

var columnsOfCurves = []column{
	{title: "SET, k/s", test: "set", figure: func(s sample) float64 { return s.Value }},
	{title: "p50, ms", test: "set", figure: func(s sample) float64 { return s.P50 }},
	{title: "p99, ms", test: "set", figure: func(s sample) float64 { return s.P99 }},
	{title: "CPU, us", test: "set", figure: func(s sample) float64 { return s.CPU }},
	{title: "commands per entry", test: "set", figure: func(s sample) float64 {
		return float64(s.Work["raft_commands"]) / float64(s.Work["raft_entries"])
	}},
	{title: "syncs per 1,000", test: "set", figure: func(s sample) float64 { return 1000 * s.per("sync_calls") }},
	{title: "written, B", test: "set", figure: func(s sample) float64 {
		return s.per("wal_bytes") + s.per("memtable_flush_bytes") + s.per("compaction_bytes")
	}},
	{title: "GET, k/s", test: "get", figure: func(s sample) float64 { return s.Value }},
	{title: "p50, ms", test: "get", figure: func(s sample) float64 { return s.P50 }},
	{title: "p99, ms", test: "get", figure: func(s sample) float64 { return s.P99 }},
	{title: "CPU, us", test: "get", figure: func(s sample) float64 { return s.CPU }},
	{title: "blocks read", test: "get", blocks: true,
		figure: func(s sample) float64 { return s.per("block_cache_misses") }},
	{title: "from disk, B", test: "get", blocks: true,
		figure: func(s sample) float64 { return float64(s.DiskBytes) / float64(s.Ops) }},
}

// print writes a table per curve, as Markdown: medians of the rounds, with their range.
func (rec *samples) print(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%v.\n%s\nFigures are medians of the rounds, with their range.\n", rec.header, rec.warning())
	for _, c := range curves {
		if !slices.ContainsFunc(rec.all, func(s sample) bool { return s.Curve == c.name }) {
			continue
		}
		fmt.Fprintf(w, "\n**%s**: %s\n\n", c.name, c.doc)
		rows := [][]string{{c.name, "pipeline"}}
		for _, column := range columnsOfCurves {
			if c.blocks || !column.blocks {
				rows[0] = append(rows[0], column.title)
			}
		}
		for i, p := range c.points {
			row := []string{p.label, fmt.Sprint(p.pipeline)}
			for _, column := range columnsOfCurves {
				if c.blocks || !column.blocks {
					row = append(row, rec.figures(c.name, i, column).String())
				}
			}
			rows = append(rows, row)
		}
		markdown(w, rows)
	}
	for _, s := range rec.all {
		if !s.valid() {
			fmt.Fprintf(w, "\nLeft out: %s, point %d: %v\n", s.Curve, s.Point, s)
		}
	}
	return w.Flush()
}

// figures returns the figures of the valid runs at a point, sorted.
func (rec *samples) figures(curve string, point int, c column) (s spread) {
	for _, r := range rec.all {
		if r.Curve == curve && r.Point == point && r.Test == c.test && r.valid() {
			s = append(s, c.figure(r))
		}
	}
	slices.Sort(s)
	return s
}
