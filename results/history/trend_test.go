package history

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/changepoint"
	"neokv.dev/results/compare"
	"neokv.dev/workloads"
)

var update = flag.Bool("update", false, "write the golden files anew")

// eventful is a history in which throughput falls by 12 % and CPU grows by 5 % with run 30, when a setting changes, and
// throughput comes back with run 45. A second setup has three runs.
func eventful() *Contents {
	random := rand.New(rand.NewPCG(1, 1))
	noise := func(share float64) float64 { return math.Exp(share * random.NormFloat64()) }
	c := &Contents{}
	for day := range 60 {
		rate, cost := 12_000*noise(.02), 40*noise(.005)
		if day >= 30 {
			cost *= 1.05
		}
		if day >= 30 && day < 45 {
			rate *= 0.88
		}
		e := runOf(day, throughput(rate), cpu(cost), results.Figure{Name: "errors", Unit: "/op"})
		if day >= 30 {
			e.Header.Settings = map[string]string{"engine.memtable_size": "4MiB"}
		}
		if day%20 == 3 {
			e.Warnings = []string{"the machine was busy"}
		}
		c.Entries = append(c.Entries, e)
	}
	for day := range 3 {
		e := runOf(day, throughput(100))
		e.Header.Groups[0].Rate, e.Header.Build.Modified = "500", true
		c.Entries = append(c.Entries, e)
	}
	// A history need not be in the order of time.
	random.Shuffle(len(c.Entries), func(i, j int) { c.Entries[i], c.Entries[j] = c.Entries[j], c.Entries[i] })
	return c
}

// found returns the trend with the most runs.
func found(trends []*Trend) *Trend {
	return slices.MaxFunc(trends, func(a, b *Trend) int { return len(a.Runs) - len(b.Runs) })
}

func TestTrends(t *testing.T) {
	trends := eventful().Trends(Options{})
	if len(trends) != 2 {
		t.Fatalf("%d setups, want 2", len(trends))
	}
	trend := found(trends)
	if len(trend.Runs) != 60 || len(trend.Series) != 2 {
		t.Fatalf("%d runs, %d series, want 60 and 2: errors were 0 all the time", len(trend.Runs), len(trend.Series))
	}
	got := ""
	for _, c := range trend.Changes {
		got += fmt.Sprintf("run %d: ", c.Run)
		for _, l := range c.Levels {
			row := trend.Level(l).Change
			got += fmt.Sprintf("%s %s, ", trend.Series[l.Series].Name, row.Verdict)
			shares := map[string]float64{"throughput worse": .88, "throughput better": 1 / .88, "CPU worse": 1.05}
			truth := shares[row.Name+" "+string(row.Verdict)]
			if row.Ratio.Interval == nil || truth < row.Ratio.Interval[0] || truth > row.Ratio.Interval[1] {
				t.Errorf("%s at run %d: %+v, want an interval around %g", row.Name, c.Run, row.Ratio, truth)
			}
		}
		for _, f := range c.Differ {
			got += fmt.Sprintf("%s %s; ", f.Name, strings.Join(f.Values, " "))
		}
	}
	want := "run 30: throughput worse, CPU worse, engine.memtable_size 64MiB 4MiB; run 45: throughput better, "
	if got != want {
		t.Errorf("changes: %s\nwant %s", got, want)
	}
}

// Values that are lower bounds are shown as such.
func TestBounds(t *testing.T) {
	p99 := results.Figure{Name: "p99", Unit: "us", Better: results.Lower, Value: 1000}
	bound := p99
	bound.AtLeast = true
	c := &Contents{Entries: []Entry{runOf(0, p99), runOf(1, p99), runOf(2, bound)}}
	want := "p99, 1.00 ms, >= 1.00 ms, >= 1.00 ms, 0.00"
	if got := strings.Join(c.Trends(Options{})[0].Series[0].Cells(), ", "); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestChangedSettings: what changed with a figure stands with it, and nowhere else. A note has what changed by itself.
func TestChangedSettings(t *testing.T) {
	trend := found(eventful().Trends(Options{}))
	if notes := strings.Join(trend.Notes(), "; "); strings.Contains(notes, "settings") {
		t.Errorf("a setting that stands with a change is in the notes: %q", notes)
	}
	c := eventful()
	for i := range c.Entries {
		e := &c.Entries[i]
		if !e.Header.Started.Before(runOf(50).Header.Started) {
			e.Header.Settings = map[string]string{"engine.memtable_size": "4MiB", "engine.row_cache": "1MiB"}
		}
	}
	want := "settings that changed where no figure did: engine.row_cache"
	if notes := found(c.Trends(Options{})).Notes(); notes[len(notes)-1] != want {
		t.Errorf("notes %q, want %q", notes, want)
	}
}

// TestOptions: only the asked-for figures and workloads are shown.
func TestOptions(t *testing.T) {
	c := eventful()
	e := runOf(100, throughput(5), cpu(1))
	e.Case = "counts"
	c.Entries = append(c.Entries, e)
	if got := c.FigureNames(); len(got) != 3 || !slices.Contains(got, "errors") {
		t.Errorf("figures %q", got)
	}
	if got := c.Workloads(); !slices.Contains(got, "get") || !slices.Contains(got, "counts") || len(got) != 2 {
		t.Errorf("workloads %q", got)
	}
	for _, x := range []struct {
		o            Options
		trends, runs int
		series       string
	}{
		{Options{Figures: []string{"CPU"}}, 2, 60, "CPU"},
		{Options{Figures: []string{"errors"}}, 1, 60, "errors"},
		{Options{Workloads: []string{"counts"}}, 1, 1, "throughput"},
		{Options{Workloads: []string{"counts"}, Figures: []string{"errors"}}, 0, 0, ""},
	} {
		trends := c.Trends(x.o)
		if len(trends) != x.trends {
			t.Errorf("%+v: %d setups, want %d", x.o, len(trends), x.trends)
			continue
		}
		if len(trends) > 0 && (len(found(trends).Runs) != x.runs || found(trends).Series[0].Name != x.series) {
			t.Errorf("%+v: %d runs, first %s; want %d, %s", x.o, len(found(trends).Runs), found(trends).Series[0].Name,
				x.runs, x.series)
		}
	}
}

// TestLongSeries: the latest runs count. A figure that only some runs have keeps their places.
func TestLongSeries(t *testing.T) {
	c := &Contents{}
	for day := range changepoint.MaxValues + 10 {
		e := runOf(day, throughput(100+float64(day%3)))
		if day >= changepoint.MaxValues {
			e.Figures = append(e.Figures, cpu(float64(day)))
		}
		c.Entries = append(c.Entries, e)
	}
	trend := c.Trends(Options{})[0]
	if len(trend.Runs) != changepoint.MaxValues || trend.Older != 10 || trend.Runs[0].Commit != "00000abc000a" ||
		!trend.Runs[0].At.Equal(runOf(10).Header.Started) {
		t.Errorf("%d runs from %s on, %d older ones", len(trend.Runs), trend.Runs[0].At, trend.Older)
	}
	if s := trend.Series[1]; len(s.Values) != 10 || s.Runs[0] != changepoint.MaxValues-10 || s.Values[0] != 1000 {
		t.Errorf("CPU: runs %v, values %v", s.Runs, s.Values)
	}
	if notes := strings.Join(trend.Notes(), "; "); notes != "10 older runs are left out" {
		t.Errorf("notes %q", notes)
	}
}

// TestSetup: only what runs must share to be compared is in a setup.
func TestSetup(t *testing.T) {
	base := runOf(0)
	for name, c := range map[string]struct {
		change func(*Entry)
		same   bool
	}{
		"setting":  {func(e *Entry) { e.Header.Settings["x"] = "y" }, true},
		"kernel":   {func(e *Entry) { e.Header.Machine.Kernel = "7" }, true},
		"commit":   {func(e *Entry) { e.Header.Build.Commit = "x" }, true},
		"sync":     {func(e *Entry) { e.Header.Cluster.Data.SyncP50 = 7 }, true},
		"workload": {func(e *Entry) { e.Header.Groups[0].Workload = "set" }, false},
		"keys":     {func(e *Entry) { e.Header.Groups[0].Keys = "uniform" }, false},
		"clients":  {func(e *Entry) { e.Header.Groups[0].Clients = 5 }, false},
		"pipeline": {func(e *Entry) { e.Header.Groups[0].Pipeline = 16 }, false},
		"one slot": {func(e *Entry) { e.Header.Groups[0].OneSlot = true }, false},
		"records":  {func(e *Entry) { e.Header.Groups[0].Records = 11 }, false},
		"sizes":    {func(e *Entry) { e.Header.Groups[0].ValueBytes = "64" }, false},
		"rate":     {func(e *Entry) { e.Header.Groups[0].Rate = "100" }, false},
		"contents": {func(e *Entry) { e.Header.Groups[0].Content = results.ContentOf([]byte("b")) }, false},
		"schedule": {func(e *Entry) { e.Header.Schedule = results.NewSchedule([]string{"1s kill 2"}, 1) }, false},
		"verify":   {func(e *Entry) { e.Header.Verify = true }, false},
		"search":   {func(e *Entry) { e.Header.Search = "many rates" }, false},
		"group":    {func(e *Entry) { e.Header.Groups = append(e.Header.Groups, e.Header.Groups[0]) }, false},
		"case":     {func(e *Entry) { e.Case = "x" }, false},
		"profile":  {func(e *Entry) { e.Header.Profile = "durable" }, false},
		"disk":     {func(e *Entry) { e.Header.Cluster.InMemory = false }, false},
		"stores":   {func(e *Entry) { e.Header.Cluster.Stores = 1 }, false},
		"CPU":      {func(e *Entry) { e.Header.Machine.CPU = "x" }, false},
		"cores":    {func(e *Entry) { e.Header.Machine.Cores = 4 }, false},
	} {
		e := runOf(0)
		c.change(&e)
		if (e.Setup() == base.Setup()) != c.same {
			t.Errorf("%s: %+v and %+v, want the same: %v", name, e.Setup(), base.Setup(), c.same)
		}
	}
	// A target of another process has other ports each time.
	e := runOf(0)
	e.Header.Cluster = results.ClusterShape{}
	e.Header.Target = results.Target{Addrs: []string{"10.0.0.1:7001", "10.0.0.1:7002", "10.0.0.2:7001"}, Cluster: true,
		Nodes: []string{"a", "b", "c"}}
	if got := e.Setup().Target; got != "profile default, Redis Cluster of 3 nodes at 10.0.0.1, 10.0.0.2" {
		t.Errorf("target %q", got)
	}
	// A NeoKV is called so. Its regions split and merge while it runs.
	e.Header.Target.Info = map[string]string{"neokv_version": "v2", "stores": "3", "replicas": "3", "regions": "9",
		"in_memory": "1", "raft_transport": "memory"}
	if got, want := e.Setup().Target, "profile default, NeoKV with 3 stores and 3 replicas, memory transport at "+
		"10.0.0.1, 10.0.0.2, not durable (in memory)"; got != want {
		t.Errorf("target %q, want %q", got, want)
	}
}

func TestPrint(t *testing.T) {
	trends := eventful().Trends(Options{})
	slices.SortFunc(trends, func(a, b *Trend) int { return len(b.Runs) - len(a.Runs) })
	var got bytes.Buffer
	if err := PrintTable(&got, trends); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs; -update writes it anew:\n%s", path, got.Bytes())
	}

	got.Reset()
	if err := PrintJSON(&got, trends); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Method string
		Trends []Trend
	}
	if err := json.Unmarshal(got.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	l := back.Trends[0].Series[0].Levels
	if len(l) != 3 || l[1].Change.Verdict != compare.Worse || l[1].Factor <= 0 ||
		back.Method != Method {
		t.Errorf("levels %+v, method %q", l, back.Method)
	}
}

// TestMovedMedian: a median that moves by three times the spread of a series is better or worse, also if few runs show
// it.
func TestMovedMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	c := &Contents{}
	for day := range 50 {
		v := 100 + random.NormFloat64()
		if day >= 41 {
			v -= 3.5
		}
		c.Entries = append(c.Entries, runOf(day, throughput(v), cpu(1)))
	}
	trend := c.Trends(Options{})[0]
	if len(trend.Changes) != 1 || trend.Level(trend.Changes[0].Levels[0]).Cells()[5] != "worse" {
		t.Errorf("%+v", trend.Changes)
	}
}

// TestGroups: figures that change together are one change, which lies in the runs that all of them leave possible.
func TestGroups(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	c := &Contents{}
	for day := range 100 {
		rate, cost := 100+random.NormFloat64(), 100+random.NormFloat64()
		if day >= 50 {
			rate, cost = rate-2, cost+8
		}
		if day >= 80 {
			cost += 12
		}
		c.Entries = append(c.Entries, runOf(day, throughput(rate), cpu(cost)))
	}
	trend := c.Trends(Options{})[0]
	if len(trend.Changes) != 2 {
		t.Fatalf("%d changes, want 2: %+v", len(trend.Changes), trend.Changes)
	}
	both, one := trend.Changes[0], trend.Changes[1]
	if len(both.Levels) != 2 || both.After != 49 || both.By != 50 || both.Found < 54 || len(one.Levels) != 1 ||
		one.Run != 80 || both.Number != 1 || one.Number != 2 {
		t.Errorf("changes %+v and %+v", both, one)
	}
	if wide := trend.Series[0].Levels[1].point; wide.Last == wide.First {
		t.Errorf("throughput alone is as sure of its place as CPU: %+v", wide)
	}
	where := trend.Where(&both)
	if !strings.HasSuffix(where, ", between commits 00000abc0031 and 00000abc0032") {
		t.Errorf("where: %s", where)
	}
}

// TestConfirm: the command measures both sides, or a reason says why there is none.
func TestConfirm(t *testing.T) {
	const other = "which is of several groups, of a file, of one node or slot, or of a workload that is another one now"
	for _, c := range []struct {
		change func(a, b *results.Header)
		want   string
	}{
		{func(a, b *results.Header) {}, "to confirm: neokv ab --a revision=00000abc0001 --b revision=00000abc0002 " +
			"--profile default --mem --workload get --clients 4 --pipeline 1 --records 10"},
		{func(a, b *results.Header) {
			b.Settings = map[string]string{"engine.memtable_size": "4MiB"}
			b.Build.Commit = a.Build.Commit
			a.Groups, b.Groups = nil, nil
		}, "to confirm: neokv ab --a 'revision=00000abc0001 engine.memtable_size=64MiB' " +
			"--b 'revision=00000abc0001 engine.memtable_size=4MiB' --profile default --mem"},
		{func(a, b *results.Header) { a.Build.Modified = true },
			"cannot be confirmed by ab: a build had uncommitted changes"},
		{func(a, b *results.Header) { b.Build.Commit = "" }, "cannot be confirmed by ab: the commit of a build is unknown"},
		{func(a, b *results.Header) { b.Build.Commit = a.Build.Commit },
			"cannot be confirmed by ab: commit and settings are the same: something else has changed"},
		{func(a, b *results.Header) { b.Cluster.InProcess = false },
			"cannot be confirmed by ab: the target was not a cluster of bench's own"},
		{func(a, b *results.Header) { b.Groups = append(b.Groups, b.Groups[0]) },
			"cannot be confirmed by ab: ab cannot send this load, " + other},
		{func(a, b *results.Header) { b.Groups[0].OneSlot = true },
			"cannot be confirmed by ab: ab cannot send this load, " + other},
		{func(a, b *results.Header) { b.Groups[0].Content = results.ContentOf([]byte("mix: []")) },
			"cannot be confirmed by ab: ab cannot send this load, " + other},
		{func(a, b *results.Header) { // as bench writes it
			w, err := workloads.Find("get")
			if err != nil {
				t.Fatal(err)
			}
			b.Groups[0].Content, b.Groups[0].ValueBytes = results.ContentOf(w.Text), "100"
		}, "to confirm: neokv ab --a revision=00000abc0001 --b revision=00000abc0002 " +
			"--profile default --mem --workload get --clients 4 --pipeline 1 --records 10 --value-size 100B"},
		{func(a, b *results.Header) { b.Settings = map[string]string{"engine.memtable_size": ""} },
			"cannot be confirmed by ab: a setting differs whose value ab cannot take"},
	} {
		a, b := runOf(1).Header, runOf(2).Header
		c.change(&a, &b)
		p := ChangePoint{Differ: differ(&a, &b)}
		p.confirm(&TrendRun{Commit: commit(a.Build), header: &a}, &TrendRun{Commit: commit(b.Build), header: &b})
		if got := p.ToConfirm(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
	if got := CommandLine([]string{"a b", "c'd", "", "e=f"}); got != `neokv 'a b' 'c'\''d' '' e=f` {
		t.Errorf("command line %s", got)
	}
}
