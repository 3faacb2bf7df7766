package report

import (
	_ "embed"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/results/history"
)

// maxCharts bounds how many charts a page of a history has. Figures beyond them are in its tables.
const maxCharts = 200

var (
	//go:embed history.html
	historyHTML string
	//go:embed history.js
	historyJS string

	historyTemplate = newTemplate(historyHTML)
)

// historyPage is what the template shows.
type historyPage struct {
	frame
	Trends []shownTrend
	Method string
	Left   int // figures without a chart
}

// Conclusion says how many of several setups have changed.
func (p historyPage) Conclusion() string {
	changed := 0
	for _, t := range p.Trends {
		if t.Changes != nil {
			changed++
		}
	}
	return fmt.Sprintf("changes in %d of %d setups", changed, len(p.Trends))
}

// shownTrend is a setup on the page.
type shownTrend struct {
	*history.Trend
	Index   int
	Figures [][]string
	Changes []shownChange
}

// shownChange is a run at which figures change.
type shownChange struct {
	Where   string
	Rows    [][]string
	Differ  []results.Fact
	Confirm string
}

// drawnTrend is what the script of the page draws of a setup, as JSON.
type drawnTrend struct {
	Runs   []string      `json:"runs"` // what a tip says of each
	Days   []string      `json:"days"`
	Series []drawnSeries `json:"series"`
}

type drawnSeries struct {
	Name   string       `json:"name"`
	Unit   string       `json:"unit"`
	Runs   []int        `json:"runs"`
	Values []float64    `json:"values"`
	Levels []drawnLevel `json:"levels"`
}

type drawnLevel struct {
	From    int             `json:"from"` // of the values
	Median  float64         `json:"median"`
	Change  string          `json:"change,omitempty"` // against the level before
	Verdict compare.Verdict `json:"verdict,omitempty"`
}

// HistoryHTML writes the trends of a history as a page.
func HistoryHTML(w io.Writer, path string, trends []*history.Trend) error {
	p := historyPage{Method: history.Method}
	drawn := []drawnTrend{}
	charts := 0
	for i, t := range trends {
		s := shownTrend{Trend: t, Index: i}
		d := drawnTrend{Series: []drawnSeries{}}
		for _, r := range t.Runs {
			text := r.At.UTC().Format("2006-01-02 15:04 UTC")
			if r.Commit != "" {
				text += ", commit " + r.Commit
			}
			if r.Result != "" {
				text += ", " + r.Result
			}
			d.Runs, d.Days = append(d.Runs, text), append(d.Days, r.At.UTC().Format("2006-01-02"))
		}
		for k := range t.Series {
			series := &t.Series[k]
			s.Figures = append(s.Figures, series.Cells())
			if charts == maxCharts {
				p.Left++
				continue
			}
			charts++
			d.Series = append(d.Series, newDrawnSeries(series))
		}
		for k := range t.Changes {
			c := &t.Changes[k]
			shown := shownChange{Where: t.Where(c), Differ: c.Differ, Confirm: c.ToConfirm()}
			for _, l := range c.Levels {
				shown.Rows = append(shown.Rows, append([]string{t.Series[l.Series].Name}, t.Level(l).Cells()...))
			}
			s.Changes = append(s.Changes, shown)
		}
		p.Trends, drawn = append(p.Trends, s), append(drawn, d)
	}
	var err error
	title := fmt.Sprintf("History of %s", strings.TrimSuffix(filepath.Base(path), ".jsonl"))
	if p.frame, err = newFrame(title, "history", historyJS, drawn); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return writePage(w, historyTemplate, p)
}

func newDrawnSeries(s *history.Series) drawnSeries {
	d := drawnSeries{Name: s.Name, Unit: s.Unit, Runs: s.Runs, Values: s.Values}
	for _, l := range s.Levels {
		level := drawnLevel{From: l.From, Median: l.Median}
		if l.Change != nil {
			cells := l.Cells()
			level.Change, level.Verdict = cells[3], l.Change.Verdict
		}
		d.Levels = append(d.Levels, level)
	}
	return d
}
