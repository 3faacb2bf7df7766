package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"neokv.dev/results"
)

// fact is a line about the conditions of the results: a setting, the load, the build, the machine.
type fact struct {
	Section string
	Name    string
	Values  []string // of each result; "" where it does not have the fact
	Differ  bool     // in a way that a comparison must know
}

// sections in the order in which they are shown.
const (
	loadFacts    = "load"
	settingFacts = "setting"
	buildFacts   = "build"
	machineFacts = "machine"
	targetFacts  = "target"
)

// facts returns the conditions of all results.
func facts(subjects []results.ResultFile) []fact {
	var out []fact
	places := map[[2]string]int{}
	for i, s := range subjects {
		add := func(section, name, value string) {
			if value == "" {
				return
			}
			at, known := places[[2]string{section, name}]
			if !known {
				at = len(out)
				places[[2]string{section, name}] = at
				out = append(out, fact{Section: section, Name: name, Values: make([]string, len(subjects))})
			}
			out[at].Values[i] = value
		}
		factsOf(&s.Result.Header, add)
	}
	order := []string{loadFacts, settingFacts, buildFacts, machineFacts, targetFacts}
	slices.SortStableFunc(out, func(a, b fact) int {
		return cmp.Compare(slices.Index(order, a.Section), slices.Index(order, b.Section))
	})
	for i := range out {
		f := &out[i]
		f.Differ = slices.ContainsFunc(f.Values, func(v string) bool { return v != f.Values[0] })
	}
	return out
}

func factsOf(h *results.Header, add func(section, name, value string)) {
	for _, g := range h.Groups {
		name := func(s string) string {
			if len(h.Groups) > 1 {
				return g.Name + ": " + s
			}
			return s
		}
		rate := cmp.Or(g.Rate, "closed loop")
		if n, err := strconv.ParseInt(g.Rate, 10, 64); err == nil {
			rate = results.Count(n) + " operations per second"
		}
		add(loadFacts, name("workload"), g.Workload)
		add(loadFacts, name("rate"), rate)
		add(loadFacts, name("clients"), number(g.Clients))
		add(loadFacts, name("pipeline"), number(g.Pipeline))
		add(loadFacts, name("records"), number(int(g.Records)))
		add(loadFacts, name("elements of a record"), number(g.Elements))
		add(loadFacts, name("keys"), g.Keys)
		add(loadFacts, name("value size (B)"), g.ValueBytes)
	}
	add(loadFacts, "duration", h.Duration.String())
	add(loadFacts, "warm-up", h.Warmup.String())
	add(loadFacts, "seed", strconv.FormatUint(h.Seed, 10))
	add(loadFacts, "reads back", yes(h.Verify))
	add(loadFacts, "command", strings.Join(h.Command, " "))

	add(settingFacts, "profile", h.Profile)
	for _, name := range slices.Sorted(maps.Keys(h.Settings)) {
		add(settingFacts, name, cmp.Or(h.Settings[name], `""`))
	}

	commit := h.Build.Commit
	if h.Build.Modified {
		commit += " with uncommitted changes"
	}
	add(buildFacts, "version", h.Build.Version)
	add(buildFacts, "commit", commit)
	add(buildFacts, "Go", h.Build.Go)
	for _, name := range slices.Sorted(maps.Keys(h.Build.Modules)) {
		add(buildFacts, name, h.Build.Modules[name])
	}

	m := h.Machine
	add(machineFacts, "CPU", m.CPU)
	add(machineFacts, "cores", number(m.Cores))
	add(machineFacts, "GOMAXPROCS", number(m.GOMAXPROCS))
	add(machineFacts, "GOGC", number(m.GCPercent))
	if m.MemoryBytes > 0 {
		add(machineFacts, "memory", fmt.Sprintf("%.1f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	add(machineFacts, "system", strings.TrimSpace(m.OS+" "+m.Arch))
	add(machineFacts, "kernel", m.Kernel)

	c := h.Cluster
	if c.InProcess {
		add(targetFacts, "where", "in the process of the generator")
	} else {
		add(targetFacts, "where", strings.Join(h.Target.Addrs, ", "))
	}
	add(targetFacts, "version", h.Target.Version)
	add(targetFacts, "Redis Cluster", yes(h.Target.Cluster))
	add(targetFacts, "in memory", yes(c.InMemory))
	add(targetFacts, "stores", number(c.Stores))
	add(targetFacts, "replicas", number(c.Replicas))
	add(targetFacts, "regions", number(c.Regions))
	for _, f := range []struct {
		of     string
		folder results.DataFolder
	}{{"data", c.Data}, {"logs", c.Logs}} {
		add(targetFacts, "file system of the "+f.of, f.folder.FileSystem)
		if f.folder.SyncP50 > 0 {
			add(targetFacts, "fdatasync p50 of the "+f.of, results.Micros(f.folder.SyncP50.Microseconds()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.Target.Info)) {
		add(targetFacts, name, h.Target.Info[name])
	}
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return results.Count(int64(n))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// sideBySide compares the figures of a group in several results. It has those that at least two of them have.
type sideBySide struct {
	Letters []string
	Rows    []comparedRow
}

type comparedRow struct {
	Op, What string   // Op is empty where it is that of the row above
	Values   []string // with the change against the first of them
}

// compare returns the figures of a group side by side, nil for less than two results.
func compare(subjects []results.ResultFile, m matched) *sideBySide {
	var in []*results.GroupSummary
	out := &sideBySide{}
	var ops []string
	for i, s := range subjects {
		_, g := m.of(i, s.Result)
		if g == nil {
			continue
		}
		in = append(in, g)
		out.Letters = append(out.Letters, letter(i))
		for _, op := range g.Ops {
			if !slices.Contains(ops, op.Name) {
				ops = append(ops, op.Name)
			}
		}
	}
	if len(in) < 2 {
		return nil
	}
	row := func(op, what string, of func(*results.OpStats) (v float64, known bool), print func(float64) string) {
		r := comparedRow{Op: op, What: what}
		first, told, nonzero := 0., 0, false
		for _, g := range in {
			s := &g.Total
			if op != allOperations {
				s = operation([]results.GroupStats{g.GroupStats}, 0, op)
			}
			v, known := 0., false
			if s != nil {
				v, known = of(s)
			}
			text := "-"
			if known {
				text = print(v)
				told++
			}
			if known && first != 0 {
				text += fmt.Sprintf(" (%+.1f %%)", 100*(v/first-1))
			} else if known {
				first = v
			}
			nonzero = nonzero || v != 0
			r.Values = append(r.Values, text)
		}
		if told > 1 && nonzero {
			out.Rows = append(out.Rows, r)
		}
	}
	if len(ops) > 1 {
		ops = append(ops, allOperations)
	}
	for _, op := range ops {
		begin := len(out.Rows)
		count := func(v float64) string { return results.Count(int64(v + 0.5)) }
		micros := func(v float64) string { return results.Micros(int64(v)) }
		row(op, "ops/s", func(s *results.OpStats) (float64, bool) { return s.PerSecond, true }, count)
		row(op, "errors", func(s *results.OpStats) (float64, bool) { return float64(s.Errors), true }, count)
		for _, kind := range []string{responseTime, serviceTime} {
			for _, p := range []struct {
				name string
				of   func(*results.Latency) int64
			}{
				{"p50", func(l *results.Latency) int64 { return l.P50 }},
				{"p99", func(l *results.Latency) int64 { return l.P99 }},
				{"p99.9", func(l *results.Latency) int64 { return l.P999 }},
				{"max", func(l *results.Latency) int64 { return l.Max }},
			} {
				row(op, kind+" "+p.name, func(s *results.OpStats) (float64, bool) {
					l := latency(s, kind)
					if l == nil || l.Max == 0 {
						return 0, false
					}
					return float64(p.of(l)), true
				}, micros)
			}
		}
		for i := begin + 1; i < len(out.Rows); i++ { // only the first row of an operation names it
			out.Rows[i].Op = ""
		}
	}
	return out
}
