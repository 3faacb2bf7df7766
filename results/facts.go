package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Fact is a line about the conditions of the results: a setting, the load, the build, the machine.
type Fact struct {
	Section string
	Name    string
	Values  []string // of each result; "" where it does not have the fact
	Differ  bool     // in a way that a comparison must know
}

// OfLoad reports whether the fact is about what was sent. Results that differ in such a fact are of different loads.
// How long a run took, and with which seed, is not among these facts.
func (f *Fact) OfLoad() bool {
	return f.Section == loadFacts && !slices.Contains([]string{"duration", "warm-up", "seed", "command"}, f.Name)
}

// OfSetting reports whether the fact is about a setting of NeoKV, the profile among them.
func (f *Fact) OfSetting() bool { return f.Section == settingFacts }

// PerRun reports whether the fact differs from run to run, whatever else stays the same.
func (f *Fact) PerRun() bool {
	return slices.Contains([]string{"command", "seed", "fdatasync p50 of the data", "fdatasync p50 of the logs"},
		f.Name)
}

// sections in the order in which they are shown.
const (
	loadFacts    = "load"
	settingFacts = "setting"
	buildFacts   = "build"
	machineFacts = "machine"
	targetFacts  = "target"
)

// Facts returns the conditions of all subjects, by section.
func Facts(subjects []ResultFile) []Fact {
	var out []Fact
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
				out = append(out, Fact{Section: section, Name: name, Values: make([]string, len(subjects))})
			}
			out[at].Values[i] = value
		}
		factsOf(&s.Result.Header, add)
	}
	order := []string{loadFacts, settingFacts, buildFacts, machineFacts, targetFacts}
	slices.SortStableFunc(out, func(a, b Fact) int {
		return cmp.Compare(slices.Index(order, a.Section), slices.Index(order, b.Section))
	})
	for i := range out {
		f := &out[i]
		f.Differ = slices.ContainsFunc(f.Values, func(v string) bool { return v != f.Values[0] })
	}
	return out
}

func factsOf(h *Header, add func(section, name, value string)) {
	for _, g := range h.Groups {
		name := func(s string) string {
			if len(h.Groups) > 1 {
				return g.Name + ": " + s
			}
			return s
		}
		rate := cmp.Or(g.Rate, "closed loop")
		if n, err := strconv.ParseInt(g.Rate, 10, 64); err == nil {
			rate = Count(n) + " operations per second"
		}
		add(loadFacts, name("workload"), g.Workload)
		add(loadFacts, name("contents"), g.Content.String())
		add(loadFacts, name("rate"), rate)
		add(loadFacts, name("clients"), number(g.Clients))
		add(loadFacts, name("operations"), number(g.Operations))
		add(loadFacts, name("pipeline"), number(g.Pipeline))
		add(loadFacts, name("a pipeline goes to"), g.placement())
		add(loadFacts, name("records"), number(int(g.Records)))
		add(loadFacts, name("elements of a record"), number(g.Elements))
		add(loadFacts, name("keys"), g.Keys)
		add(loadFacts, name("value size (B)"), g.ValueBytes)
	}
	add(loadFacts, "duration", h.Duration.String())
	add(loadFacts, "warm-up", h.Warmup.String())
	add(loadFacts, "seed", strconv.FormatUint(h.Seed, 10))
	add(loadFacts, "schedule", h.Schedule.String())
	add(loadFacts, "search", h.Search)
	add(loadFacts, "reads back", yes(h.Verify))
	add(loadFacts, "records loaded", map[bool]string{true: "before", false: "by the run"}[h.LoadedBefore])
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
	if !c.InProcess {
		add(targetFacts, "what", h.Target.product())
	}
	add(targetFacts, "version", h.Target.Version)
	add(targetFacts, "Redis Cluster", yes(h.Target.Cluster))
	add(targetFacts, "in memory", yes(c.InMemory))
	add(targetFacts, "stores", number(c.Stores))
	add(targetFacts, "replicas", number(c.Replicas))
	add(targetFacts, "regions", number(c.Regions))
	for _, f := range []struct {
		of     string
		folder DataFolder
	}{{"data", c.Data}, {"logs", c.Logs}} {
		add(targetFacts, "file system of the "+f.of, f.folder.FileSystem)
		if f.folder.SyncP50 > 0 {
			add(targetFacts, "fdatasync p50 of the "+f.of, Micros(f.folder.SyncP50.Microseconds()))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.Target.Info)) {
		add(targetFacts, name, h.Target.Info[name])
	}
}

// placement says where the operations of a pipeline go.
func (g *ClientGroup) placement() string {
	switch {
	case g.OneNode:
		return "one node"
	case g.OneSlot:
		return "one slot"
	}
	return "wherever its keys are"
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return Count(int64(n))
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
