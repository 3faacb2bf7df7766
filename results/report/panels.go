package report

import (
	"maps"
	"math"
	"slices"

	"neokv.dev/results"
)

// chartPlan says how a panel is made of the columns of a run.
type chartPlan struct {
	title, about, unit string
	traces             []tracePlan
}

// tracePlan is a line of a panel. value returns the value of a column of a run, NaN if the column does not tell.
type tracePlan struct {
	name  string
	value func(run int, c *timeColumn) float64
}

// panelsOf draws the panels. It leaves out lines that have no value in any run, and those that are 0 all the time. It
// returns the names of the latter.
func panelsOf(plans []chartPlan, subjects []results.ResultFile,
	columns [][]timeColumn) (panels []panel, quiet []string) {
	panels = []panel{}
	for _, plan := range plans {
		p := panel{Title: plan.title, About: plan.about, Unit: plan.unit}
		for _, t := range plan.traces {
			var lines []trace
			known, moved := false, false
			for run := range subjects {
				line := trace{Run: run, Name: t.name}
				told := false
				for i := range columns[run] {
					v := t.value(run, &columns[run][i])
					line.Values = append(line.Values, figure(v))
					told = told || !math.IsNaN(v)
					moved = moved || !math.IsNaN(v) && v != 0
				}
				if told {
					lines = append(lines, line)
				}
				known = known || told
			}
			switch {
			case moved:
				p.Traces = append(p.Traces, lines...)
			case known:
				quiet = append(quiet, t.name)
			}
		}
		if len(p.Traces) > 0 {
			panels = append(panels, p)
		}
	}
	return panels, quiet
}

// groupPanels plans what happened to the operations of a group.
func groupPanels(subjects []results.ResultFile, m matched) []chartPlan {
	of := func(run int, c *timeColumn, of func(*results.GroupStats) int64) float64 {
		if at := m.at[run]; at >= 0 && at < len(c.groups) {
			return float64(of(&c.groups[at]))
		}
		return math.NaN()
	}
	// A stock counts what there is at the end of a column, a flow what came in it, per second. That nothing is left
	// when a phase has ended says nothing of the target.
	stock := func(name string, what func(*results.GroupStats) int64) tracePlan {
		return tracePlan{name, func(run int, c *timeColumn) float64 {
			if v := of(run, c, what); v != 0 || !c.last {
				return v
			}
			return math.NaN()
		}}
	}
	flow := func(name string, what func(*results.GroupStats) int64) tracePlan {
		return tracePlan{name, func(run int, c *timeColumn) float64 { return of(run, c, what) / positive(c.seconds) }}
	}
	kinds := map[string]bool{}
	for i, s := range subjects {
		for _, iv := range s.Result.Intervals {
			if at := m.at[i]; at >= 0 && at < len(iv.Groups) {
				for kind := range iv.Groups[at].Kinds {
					kinds[kind] = true
				}
			}
		}
	}
	failures := []tracePlan{}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		failures = append(failures, flow(kind, func(g *results.GroupStats) int64 { return g.Kinds[kind] }))
	}
	failures = append(failures,
		flow("of unknown outcome", func(g *results.GroupStats) int64 { return g.Ledger.Unknown }),
		flow("dropped: due, but not sent before the end",
			func(g *results.GroupStats) int64 { return g.Ledger.Dropped }))
	return []chartPlan{
		{"Throughput", "Operations that were due, or begun in a closed loop, and operations answered without error.",
			"operations per second", []tracePlan{
				flow("offered", func(g *results.GroupStats) int64 { return g.Ledger.Offered }),
				flow("reached", func(g *results.GroupStats) int64 { return g.Ledger.OK }),
			}},
		{"Errors", "Failed operations by kind, those of which nobody knows whether they took effect, and those that " +
			"were never sent.", "operations per second", failures},
		{"In flight", "Operations that were offered and had not ended; behind are those that were due and not sent.",
			"operations", []tracePlan{
				stock("in flight", func(g *results.GroupStats) int64 { return g.Ledger.InFlight }),
				stock("behind", func(g *results.GroupStats) int64 { return g.Ledger.Behind }),
			}},
		{"Redirections", "Redirections that clients followed, and operations that they sent again.",
			"per second", []tracePlan{
				flow("moved", func(g *results.GroupStats) int64 { return g.Moved }),
				flow("asked", func(g *results.GroupStats) int64 { return g.Asked }),
				flow("sent again", func(g *results.GroupStats) int64 { return g.Retried }),
			}},
	}
}

// targetPanels plans what the target and the generator did. The names are those of package counters.
func targetPanels(subjects []results.ResultFile) []chartPlan {
	value := func(of func(results.Work) float64) func(int, *timeColumn) float64 {
		return func(_ int, c *timeColumn) float64 { return of(c.work) }
	}
	scaled := func(name, counter string, scale float64) tracePlan {
		return tracePlan{name, func(_ int, c *timeColumn) float64 {
			if n, known := c.work[counter]; known {
				return float64(n) * scale / positive(c.seconds)
			}
			return math.NaN()
		}}
	}
	flow := func(name, counter string) tracePlan { return scaled(name, counter, 1) }
	ratio := func(name string, scale float64, part string, whole ...string) tracePlan {
		return tracePlan{name, value(func(w results.Work) float64 {
			var sum int64
			for _, counter := range whole {
				sum += w[counter]
			}
			if sum == 0 {
				return math.NaN()
			}
			return scale * float64(w[part]) / float64(sum)
		})}
	}
	const mebibyte = 1 << 20
	return []chartPlan{
		{"Bytes written", "What the target wrote to write-ahead logs, and to tables by flushes and compactions, over " +
			"all its replicas.", "MiB per second", []tracePlan{
			scaled("write-ahead log", "wal_bytes", 1./mebibyte), scaled("flushes", "memtable_flush_bytes", 1./mebibyte),
			scaled("compactions", "compaction_bytes", 1./mebibyte),
		}},
		{"Flushes and compactions", "How many ended.", "per second",
			[]tracePlan{flow("flushes", "memtable_flushes"), flow("compactions", "compactions")}},
		{"Write stalls", "Time that writes waited for flushes or compactions, over all stores.",
			"ms per second", []tracePlan{scaled("writes waited", "write_stall_us", 1e-3)}},
		{"Leaders and stalls", "Elections, terms in which a replica began to lead, write stalls, snapshots sent, and " +
			"splits and merges of regions.",
			"per second", []tracePlan{
				flow("elections", "elections"), flow("leader changes", "leader_changes"),
				flow("write stalls", "write_stalls"), flow("snapshots", "snapshots_sent"),
				flow("splits", "splits"), flow("merges", "merges"),
			}},
		{"Batches", "Commands that share a Raft entry.", "commands per entry",
			[]tracePlan{ratio("commands per entry", 1, "raft_commands", "raft_entries")}},
		{"Entries and syncs", "Raft entries proposed, and syncs of files.", "per second",
			[]tracePlan{flow("entries", "raft_entries"), flow("syncs", "sync_calls")}},
		{"Caches and filters", "Record look-ups that the row cache answered, blocks that the block cache had, and " +
			"look-ups to which a bloom filter said no.", "%", []tracePlan{
			ratio("row cache", 100, "row_cache_hits", "row_cache_hits", "row_cache_misses"),
			ratio("block cache", 100, "block_cache_hits", "block_cache_hits", "block_cache_misses"),
			ratio("bloom filters", 100, "bloom_hits", "bloom_probes"),
		}},
		{"CPU", "Cores in use. The generator has the cluster's share, too, where both are one process.", "cores",
			[]tracePlan{
				{"machine", func(run int, c *timeColumn) float64 {
					return generator(c, func(g results.GeneratorLoad) float64 {
						if g.Busy == 0 {
							return math.NaN()
						}
						return g.Busy * float64(subjects[run].Result.Header.Machine.Cores)
					})
				}},
				scaled("target", "process_cpu_us", 1e-6),
				{"generator", func(_ int, c *timeColumn) float64 {
					return generator(c, func(g results.GeneratorLoad) float64 { return g.Cores })
				}},
			}},
		{"Lateness of the generator", "How much later than intended operations left whose client waited for nothing " +
			"else.", "ms", []tracePlan{
			{"p99", func(_ int, c *timeColumn) float64 {
				return late(c, func(l *results.Latency) int64 { return l.P99.US })
			}},
			{"max", func(_ int, c *timeColumn) float64 {
				return late(c, func(l *results.Latency) int64 { return l.Max.US })
			}},
		}},
		{"Memory", "Resident memory of the target.", "MiB", []tracePlan{{"resident",
			value(func(w results.Work) float64 {
				if n, known := w["process_rss_bytes"]; known {
					return float64(n) / mebibyte
				}
				return math.NaN()
			})}}},
	}
}

// generator returns the mean of a figure of the generator over a column.
func generator(c *timeColumn, of func(results.GeneratorLoad) float64) float64 {
	var sum, seconds float64
	for _, iv := range c.intervals {
		if v := of(iv.Generator); iv.Generator != (results.GeneratorLoad{}) && !math.IsNaN(v) {
			sum, seconds = sum+v*iv.Seconds, seconds+iv.Seconds
		}
	}
	return sum / positive(seconds)
}

// late returns the highest of a percentile of the lateness in a column, in milliseconds.
func late(c *timeColumn, of func(*results.Latency) int64) float64 {
	worst := int64(-1)
	for _, iv := range c.intervals {
		if l := iv.Generator.Late; l != nil {
			worst = max(worst, of(l))
		}
	}
	if worst < 0 {
		return math.NaN()
	}
	return float64(worst) / 1e3
}

// positive returns NaN for a time of nothing, in which nothing has a rate.
func positive(seconds float64) float64 {
	if seconds <= 0 {
		return math.NaN()
	}
	return seconds
}
