package history

import (
	"cmp"
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
	// Changes are where series change, in their order.
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
	// Correlation is that of each value with the one before, both without their levels.
	Correlation float64 `json:"correlation"`
}

// Level is a part of a series without a change.
type Level struct {
	From   int     `json:"from"` // of the values
	To     int     `json:"to"`   // the one behind the last value
	Median float64 `json:"median"`
	// Change is how the level differs from the one before, nil of the first level. Its interval takes the place of the
	// change for granted.
	Change *compare.Row `json:"change,omitempty"`
	// Factor is the natural logarithm of the Bayes factor with which the change was found.
	Factor float64 `json:"factor,omitempty"`
	point  changepoint.Change
}

// ChangePoint is a change of one or more series that lie in the same runs.
type ChangePoint struct {
	// Number counts the changes of all trends, from 1.
	Number int `json:"number"`
	Run    int `json:"run"` // the likeliest one with which the new levels begin
	// After and By bound Run: the change lies after the run After, and at the latest in the run By.
	After int `json:"after"`
	By    int `json:"by"`
	// Found is the run that brought the change to light.
	Found  int            `json:"found"`
	Levels []ChangedLevel `json:"levels"`
	// Differ is in what else the run By differs from the run After.
	Differ []results.Fact `json:"differ,omitempty"`
	// Confirm are the arguments with which neokv measures both sides in turn. If there are none Unconfirmed says why.
	Confirm     []string `json:"confirm,omitempty"`
	Unconfirmed string   `json:"unconfirmed,omitempty"`
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
	out = slices.DeleteFunc(out, func(t *Trend) bool { return t.Series == nil })
	number := 0
	for _, t := range out {
		for i := range t.Changes {
			number++
			t.Changes[i].Number = number
		}
	}
	return out
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
	for i := range t.Series {
		all.Go(t.Series[i].split)
	}
	all.Wait()
	t.group()
}

// group puts changes of series together whose ranges of runs overlap. Their common runs are the range of all: figures
// that change together change with one commit.
func (t *Trend) group() {
	var each []ChangePoint
	for i := range t.Series {
		s := &t.Series[i]
		for k, l := range s.Levels[1:] {
			p := l.point
			each = append(each, ChangePoint{Run: s.Runs[p.At], After: s.Runs[p.First-1], By: s.Runs[p.Last],
				Found: s.Runs[p.Found-1], Levels: []ChangedLevel{{i, k + 1}}})
		}
	}
	slices.SortStableFunc(each, func(a, b ChangePoint) int {
		return cmp.Or(a.By-a.After-(b.By-b.After), a.Run-b.Run) // the surest ones first
	})
	for _, c := range each {
		level := c.Levels[0]
		i := slices.IndexFunc(t.Changes, func(g ChangePoint) bool {
			return max(g.After, c.After) < min(g.By, c.By) &&
				!slices.ContainsFunc(g.Levels, func(l ChangedLevel) bool { return l.Series == level.Series })
		})
		if i < 0 {
			t.Changes = append(t.Changes, c)
			continue
		}
		g := &t.Changes[i]
		g.After, g.By, g.Found = max(g.After, c.After), min(g.By, c.By), min(g.Found, c.Found)
		g.Run = min(max(g.Run, g.After+1), g.By)
		g.Levels = append(g.Levels, level)
	}
	for i := range t.Changes {
		c := &t.Changes[i]
		slices.SortFunc(c.Levels, func(a, b ChangedLevel) int { return a.Series - b.Series })
		c.Differ = differ(t.Runs[c.After].header, t.Runs[c.By].header)
		c.confirm(&t.Runs[c.After], &t.Runs[c.By])
	}
	slices.SortFunc(t.Changes, func(a, b ChangePoint) int { return cmp.Or(a.Run-b.Run, a.By-b.By) })
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
func (s *Series) split() {
	points := changepoint.Find(s.Values)
	s.Correlation = changepoint.Correlation(s.Values, points)
	from := 0
	for i := range len(points) + 1 {
		to := len(s.Values)
		if i < len(points) {
			to = points[i].At
		}
		l := Level{From: from, To: to, Median: compare.NewEstimate(s.Values[from:to]).Center}
		if i > 0 {
			before := s.Levels[i-1]
			row := compare.Sides(s.figures(before.From, before.To), s.figures(from, to), nil).Rows[0]
			row.Verdict = compare.Direction(s.Better, l.Median-before.Median)
			l.Change, l.point, l.Factor = &row, points[i-1], points[i-1].Factor
		}
		s.Levels, from = append(s.Levels, l), to
	}
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
const Method = changepoint.Method + "; intervals of 95 % take their places for granted, and runs as independent"
