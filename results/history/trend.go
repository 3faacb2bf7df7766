package history

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/changepoint"
	"neokv.dev/results/compare"
)

// Trend has the runs of one setup, in the order in which they began.
type Trend struct {
	Setup
	Runs   []TrendRun `json:"runs"`
	Series []Series   `json:"series"`
	// Changes are the runs at which some series changes, in their order.
	Changes []ChangePoint `json:"changes"`
	// Older is how many runs were left out because a series has at most changepoint.MaxValues.
	Older int `json:"older,omitempty"`
}

// TrendRun is a run of a trend.
type TrendRun struct {
	At       time.Time `json:"at"`
	Commit   string    `json:"commit"` // with a + if there were uncommitted changes; "" if unknown
	Result   string    `json:"result,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	header   *results.Header
}

// Series is a figure of a trend.
type Series struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Kind   results.FigureKind `json:"kind"`
	Better results.Direction  `json:"better,omitempty"`
	Runs   []int              `json:"of"` // the runs that have the figure
	Values []float64          `json:"values"`
	// AtLeast says which of the values are lower bounds of what nobody knows.
	AtLeast []bool  `json:"at_least"`
	Levels  []Level `json:"levels"`
}

// Level is a part of a series without a change.
type Level struct {
	From   int     `json:"from"` // of the values
	To     int     `json:"to"`   // the one behind the last value
	Median float64 `json:"median"`
	// Change is how the level differs from the one before, nil of the first level. Its interval takes the place of the
	// change for granted.
	Change *compare.Row `json:"change,omitempty"`
	P      float64      `json:"p,omitempty"` // of the permutation test
}

// ChangePoint is a run with which the levels of some series begin.
type ChangePoint struct {
	Run    int            `json:"run"`
	Levels []ChangedLevel `json:"levels"`
	// Differ is in what else the run differs from the one before it.
	Differ []results.Fact `json:"differ,omitempty"`
}

// ChangedLevel is a level by its place.
type ChangedLevel struct {
	Series int `json:"series"`
	Level  int `json:"level"`
}

// Options of Trends.
type Options struct {
	Figures   []string // the names of the figures to look at; all if there is none
	Workloads []string // setups must have one of them; any if there is none
	Points    changepoint.Options
}

// Trends returns the runs by setup, in the order in which the setups came up.
func (c *Contents) Trends(o Options) (out []*Trend) {
	trends := map[Setup]*Trend{}
	of := map[*Trend][]*Entry{}
	for i := range c.Entries {
		e := &c.Entries[i]
		if len(o.Workloads) > 0 && !slices.ContainsFunc(e.Workloads(), func(w string) bool {
			return slices.Contains(o.Workloads, w)
		}) {
			continue
		}
		s := e.Setup()
		t := trends[s]
		if t == nil {
			t = &Trend{Setup: s}
			trends[s] = t
			out = append(out, t)
		}
		of[t] = append(of[t], e)
	}
	for _, t := range out {
		t.fill(of[t], o)
	}
	return slices.DeleteFunc(out, func(t *Trend) bool { return t.Series == nil })
}

func (t *Trend) fill(entries []*Entry, o Options) {
	slices.SortStableFunc(entries, func(a, b *Entry) int { return a.Header.Started.Compare(b.Header.Started) })
	t.Older = max(0, len(entries)-changepoint.MaxValues)
	places := map[string]int{}
	for i, e := range entries[t.Older:] {
		t.Runs = append(t.Runs, TrendRun{At: e.Header.Started, Commit: commit(e.Header.Build), Result: e.Result,
			Warnings: e.Warnings, header: &e.Header})
		for _, f := range e.Figures {
			if len(o.Figures) > 0 && !slices.Contains(o.Figures, f.Name) {
				continue
			}
			at, known := places[f.Name]
			if !known {
				at = len(t.Series)
				places[f.Name] = at
				t.Series = append(t.Series, Series{Name: f.Name, Unit: f.Unit, Kind: f.Kind, Better: f.Better})
			}
			s := &t.Series[at]
			s.Runs, s.Values = append(s.Runs, i), append(s.Values, f.Value)
			s.AtLeast = append(s.AtLeast, f.AtLeast)
		}
	}
	t.Series = slices.DeleteFunc(t.Series, func(s Series) bool { // figures that are 0 all the time say nothing
		return len(o.Figures) == 0 && slices.Max(s.Values) == 0
	})
	var all sync.WaitGroup
	for i := range t.Series { // each has a generator of its own, so their order does not matter
		all.Go(func() { t.Series[i].split(o.Points) })
	}
	all.Wait()
	for i := range t.Series {
		for k, l := range t.Series[i].Levels {
			if l.Change != nil {
				t.changed(t.Series[i].Runs[l.From], ChangedLevel{i, k})
			}
		}
	}
	slices.SortFunc(t.Changes, func(a, b ChangePoint) int { return a.Run - b.Run })
}

// changed notes that a level begins with a run.
func (t *Trend) changed(run int, level ChangedLevel) {
	i := slices.IndexFunc(t.Changes, func(c ChangePoint) bool { return c.Run == run })
	if i < 0 {
		i = len(t.Changes)
		t.Changes = append(t.Changes, ChangePoint{Run: run, Differ: differ(t.Runs[run-1].header, t.Runs[run].header)})
	}
	t.Changes[i].Levels = append(t.Changes[i].Levels, level)
}

// expected are the facts that differ from build to build, and from one start of a target to the next.
var expected = []string{"build version", "build commit", "target where"}

// differ returns in what two runs of a setup differ that may change their figures. The commit stands with the run.
func differ(a, b *results.Header) (out []results.Fact) {
	for _, f := range results.Facts([]results.ResultFile{{Result: &results.Result{Header: *a}},
		{Result: &results.Result{Header: *b}}}) {
		if f.Differ && !f.PerRun() && !slices.Contains(expected, f.Section+" "+f.Name) {
			out = append(out, f)
		}
	}
	return out
}

// commit returns what stands for a build.
func commit(b results.Build) string {
	c := b.Commit[:min(len(b.Commit), 12)]
	if c != "" && b.Modified {
		c += "+"
	}
	return c
}

// split finds the levels of a series.
func (s *Series) split(o changepoint.Options) {
	from := 0
	begin := func(p float64, to int) {
		l := Level{From: from, To: to, Median: compare.NewEstimate(s.Values[from:to]).Center, P: p}
		if k := len(s.Levels); k > 0 {
			before := s.Levels[k-1]
			rows := compare.Sides(s.figures(before.From, before.To), s.figures(from, to), nil).Rows
			if len(rows) > 0 {
				l.Change = &rows[0]
			}
		}
		s.Levels, from = append(s.Levels, l), to
	}
	p := 0.
	for _, c := range changepoint.Find(s.Values, o) {
		begin(p, c.At)
		p = c.P
	}
	begin(p, len(s.Values))
}

// figures returns values in the form in which runs are compared.
func (s *Series) figures(from, to int) (out [][]results.Figure) {
	for _, v := range s.Values[from:to] {
		out = append(out, []results.Figure{{Name: s.Name, Unit: s.Unit, Kind: s.Kind, Better: s.Better, Value: v}})
	}
	return out
}

// FigureNames returns the names of all figures, and Workloads those of all workloads, in the order in which they came
// up.
func (c *Contents) FigureNames() (out []string) {
	for i := range c.Entries {
		for _, f := range c.Entries[i].Figures {
			if !slices.Contains(out, f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// Workloads returns the names of all workloads and cases, in the order in which they came up.
func (c *Contents) Workloads() (out []string) {
	for i := range c.Entries {
		for _, w := range c.Entries[i].Workloads() {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// Method says how changes were found.
func (o Options) Method() string {
	p := o.Points.Filled()
	return fmt.Sprintf("E-divisive (Matteson and James 2014), level %g for each figure, %d permutations, "+
		"seed %d, at least %d runs between two; intervals of 95 %% take their places for granted", p.Level,
		p.Permutations, p.Seed, p.Least)
}
