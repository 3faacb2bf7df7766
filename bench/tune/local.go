package tune

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// Local runs trials on this machine: each in a process of its own, on a copy of loaded data.
type Local struct {
	Plan tuning.StudyPlan
	// Dir is the folder for loaded data and the copies.
	Dir string

	loaded []loadedData // the one used last comes last
}

// loadedData is the folder of a stopped cluster that has loaded the records.
type loadedData struct {
	name string // of the load, and of the settings that shape data
	dir  string
}

// mostLoaded bounds how many folders with loaded data a Local keeps. The one that was used least recently goes first.
const mostLoaded = 16

// Run makes a trial and fills in what it measured.
func (m *Local) Run(ctx context.Context, v Variant, set []string, seed uint64, t *tuning.StudyTrial) (err error) {
	options, err := m.options(v.Load, seed)
	if err != nil {
		return err
	}
	base, err := m.data(ctx, v.Load, set)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(m.Dir, "trial-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data := filepath.Join(dir, "data")
	if err := cloneTree(base, data); err != nil {
		return err
	}
	if m.Plan.Cold {
		if err := dropPages(data); err != nil {
			return err
		}
	}
	target, err := children.Start(ctx, dir, m.cluster(v.Load, set, data))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Kill()) }()
	before, err := target.Use()
	if err != nil {
		return err
	}
	options.Targets, options.Load = target.Addrs(), bench.LoadedBefore
	header, s, err := bench.Measure(ctx, options)
	if err != nil {
		return errors.Join(err, target.Err())
	}
	after, err := target.Use()
	if err != nil {
		return err
	}
	t.DiskBytes = after.DiskReads - before.DiskReads
	t.MissedBlocks = s.Work["block_cache_misses"]
	if hits := s.Work["row_cache_hits"]; hits > 0 {
		t.RowCache = float64(hits) / float64(hits+s.Work["row_cache_misses"])
	}
	left, err := drain(ctx, target)
	if err != nil {
		return errors.Join(err, target.Err())
	}
	t.Figures = figures(&s, &header, left, after.Memory)
	return nil
}

// cluster returns what to start.
func (m *Local) cluster(load tuning.Load, set []string, data string) children.NeoKV {
	all := slices.Concat([]string{"load.workload=" + load.Workload}, m.Plan.Set, set) // settings follow from the workload
	return children.NeoKV{Profile: m.Plan.Profile, Set: all, Data: data}
}

// options returns what to send.
func (m *Local) options(l tuning.Load, seed uint64) (o bench.Options, err error) {
	g := bench.GroupOptions{Workload: l.Workload, Clients: l.Clients, Pipeline: l.Pipeline, Records: l.Records,
		Elements: l.Elements, ValueSize: l.ValueSize}
	if l.Rate != "" {
		if g.Rate, err = bench.ParsePace(l.Rate); err != nil {
			return o, err
		}
	}
	return bench.Options{Groups: []bench.GroupOptions{g}, Duration: m.Plan.Block, Warmup: m.Plan.Warmup, Seed: seed}, nil
}

// data returns a folder with the loaded data of a configuration. Configurations share it unless they differ in settings
// that shape data.
func (m *Local) data(ctx context.Context, load tuning.Load, set []string) (dir string, err error) {
	var shaping []string
	for _, k := range m.Plan.Knobs {
		for _, x := range set {
			if k.Shapes && strings.HasPrefix(x, k.Setting+"=") {
				shaping = append(shaping, x)
			}
		}
	}
	name := fmt.Sprintf("%s %d %d %d %q", load.Workload, load.Records, load.Elements, load.ValueSize, shaping)
	i := slices.IndexFunc(m.loaded, func(d loadedData) bool { return d.name == name })
	if i >= 0 {
		d := m.loaded[i]
		m.loaded = append(slices.Delete(m.loaded, i, i+1), d)
		return d.dir, nil
	}
	for len(m.loaded) >= mostLoaded {
		if err := os.RemoveAll(filepath.Dir(m.loaded[0].dir)); err != nil {
			return "", err
		}
		m.loaded = m.loaded[1:]
	}
	if dir, err = os.MkdirTemp(m.Dir, "loaded-"); err != nil {
		return "", err
	}
	if err := m.load(ctx, load, shaping, filepath.Join(dir, "data")); err != nil {
		return "", errors.Join(fmt.Errorf("load the records: %w", err), os.RemoveAll(dir))
	}
	m.loaded = append(m.loaded, loadedData{name, filepath.Join(dir, "data")})
	return filepath.Join(dir, "data"), nil
}

// load fills a new folder with the records, and stops its cluster when nothing is left to do in the background.
func (m *Local) load(ctx context.Context, load tuning.Load, set []string, data string) (err error) {
	// The same seed for all: values are the same, whatever the settings.
	options, err := m.options(load, m.Plan.Seed)
	if err != nil {
		return err
	}
	target, err := children.Start(ctx, m.Dir, m.cluster(load, set, data))
	if err != nil {
		return err
	}
	options.Targets, options.Load = target.Addrs(), bench.LoadAlone
	options.Groups[0].Pipeline, options.Groups[0].Rate = max(16, load.Pipeline), bench.Pace{}
	if _, _, err = bench.Measure(ctx, options); err == nil {
		err = bench.Settle(ctx, target.Proxy(), target.Password())
	}
	if err != nil {
		return errors.Join(err, target.Err(), target.Kill())
	}
	return target.Stop()
}

// drained is what a cluster did after a load, because of it.
type drained struct {
	took time.Duration
	cpu  int64 // microseconds
	// Since the cluster started.
	written int64 // bytes of write-ahead logs, flushes and compactions
	entries int64 // bytes of Raft entries
}

// drain lets a cluster do what the load has left undone, and counts it.
func drain(ctx context.Context, target *children.Running) (d drained, err error) {
	before, err := bench.Counts(ctx, target.Proxy(), target.Password())
	if err != nil {
		return d, err
	}
	begin := time.Now()
	if err = bench.Settle(ctx, target.Proxy(), target.Password()); err != nil {
		return d, err
	}
	d.took = time.Since(begin)
	after, err := bench.Counts(ctx, target.Proxy(), target.Password())
	if err != nil {
		return d, err
	}
	d.cpu = after["process_cpu_us"] - before["process_cpu_us"]
	d.written = after["wal_bytes"] + after["memtable_flush_bytes"] + after["compaction_bytes"]
	d.entries = after["raft_entry_bytes"]
	return d, nil
}

// fewestEntryBytes is how much must have been written for a write amplification.
const fewestEntryBytes = 64 << 10

// figures returns the figures of a trial. The time and the CPU time in which the cluster did what the load had left
// undone count as part of it: with a large memtable a short load would else cost little, since nothing is flushed
// before its end.
func figures(s *results.Summary, h *results.Header, d drained, memory int64) []results.Figure {
	ops := int64(0)
	for _, g := range s.Groups {
		ops += g.Total.Count
	}
	out := s.Figures(h)
	for i := range out {
		switch f := &out[i]; {
		case f.Name == "throughput":
			f.Value *= s.Seconds / (s.Seconds + d.took.Seconds())
		case f.Name == "CPU" && ops > 0:
			f.Value += float64(d.cpu) / float64(ops)
		}
	}
	add := func(name, unit string, value float64) {
		out = append(out, results.Figure{Name: name, Unit: unit, Kind: results.Timed, Better: results.Lower, Value: value})
	}
	if d.entries >= fewestEntryBytes {
		add(tuning.WriteAmplification, "", float64(d.written)/float64(d.entries))
	}
	add(tuning.Memory, "B", float64(memory))
	add(tuning.Drain, "us", float64(d.took.Microseconds()))
	return out
}
