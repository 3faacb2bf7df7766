package report

import (
	_ "embed"
	"io"
	"math"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

var (
	//go:embed comparison.html
	comparisonHTML string
	//go:embed comparison.js
	comparisonJS string

	comparisonTemplate = newTemplate(comparisonHTML)
)

// comparisonPage is what the template shows.
type comparisonPage struct {
	frame
	*compare.Delta
	Table []comparisonRow
	Chart bool // some row has a ratio
}

// comparisonRow is a row of the table.
type comparisonRow struct {
	Cells   []string // without the verdict
	Verdict compare.Verdict
}

// drawnComparison is what the script of the page draws, as JSON.
type drawnComparison struct {
	Rows []drawnRatio `json:"rows"`
}

// drawnRatio is a row that has a ratio.
type drawnRatio struct {
	Name     string          `json:"name"`
	A        string          `json:"a"`
	B        string          `json:"b"`
	Verdict  compare.Verdict `json:"verdict"`
	Center   float64         `json:"center"`
	Interval []float64       `json:"interval,omitempty"`
	Rounds   []float64       `json:"rounds,omitempty"`
}

// ComparisonHTML writes a comparison as a page: its table, and a chart with the ratio of each figure.
func ComparisonHTML(w io.Writer, c *compare.Delta) error {
	drawn := drawnComparison{Rows: []drawnRatio{}}
	p := comparisonPage{Delta: c}
	for i := range c.Rows {
		r := &c.Rows[i]
		cells := c.Cells(r)
		last := len(cells) - 1
		p.Table = append(p.Table, comparisonRow{cells[:last], r.Verdict})
		if r.Ratio == nil || r.Ratio.Center <= 0 || math.IsInf(r.Ratio.Center, 0) {
			continue
		}
		drawn.Rows = append(drawn.Rows, drawnRatio{Name: r.Name, A: results.FigureText(r.A.Center, r.Unit),
			B: results.FigureText(r.B.Center, r.Unit), Verdict: r.Verdict, Center: r.Ratio.Center,
			Interval: r.Ratio.Interval, Rounds: r.Ratios})
	}
	p.Chart = len(drawn.Rows) > 0
	var err error
	if p.frame, err = newFrame("B against A", "compare", comparisonJS, drawn); err != nil {
		return err
	}
	return writePage(w, comparisonTemplate, p)
}

// Names returns the names of the columns without that of the verdict.
func (p comparisonPage) Names() []string {
	h := p.Heading()
	return h[:len(h)-1]
}

// Remarks returns the lines below the table. The warnings stand above it.
func (p comparisonPage) Remarks() []string {
	plain := *p.Delta
	plain.Warnings = nil
	return plain.Notes()
}

// Class returns the class of a verdict in the style.
func (r comparisonRow) Class() string {
	switch r.Verdict {
	case compare.Better:
		return "better"
	case compare.Worse, compare.Contaminated:
		return "worse"
	}
	return "even"
}
