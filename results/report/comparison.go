package report

import (
	_ "embed"
	"io"
	"math"
	"slices"
	"strings"

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
	Tables []comparisonTable
	Chart  bool // some row has a ratio
}

// comparisonTable has the primary figures, or the others.
type comparisonTable struct {
	About string
	Rows  []comparisonRow
}

// comparisonRow is a row of a table.
type comparisonRow struct {
	Cells   []string
	Verdict compare.Verdict
	primary bool
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
	// The same as text.
	Change  string `json:"change"`
	Span    string `json:"span,omitempty"`
	Changes string `json:"changes,omitempty"` // of the first rounds
}

// maxChanges is of how many rounds a tip has the changes.
const maxChanges = 40

// ComparisonHTML writes a comparison as a page: its table, and a chart with the ratio of each figure. maker is the verb
// that does so.
func ComparisonHTML(w io.Writer, maker string, c *compare.Delta) error {
	drawn := drawnComparison{Rows: []drawnRatio{}}
	p := comparisonPage{Delta: c}
	for i := range c.Rows {
		r := &c.Rows[i]
		if n := len(p.Tables); n == 0 || !r.Primary && p.Tables[n-1].Rows[0].primary {
			p.Tables = append(p.Tables, comparisonTable{})
			if !r.Primary {
				p.Tables[n].About = compare.Exploratory
			}
		}
		t := &p.Tables[len(p.Tables)-1]
		t.Rows = append(t.Rows, comparisonRow{inSight(c.Cells(r)), r.Verdict, r.Primary})
		if r.Ratio == nil || r.Ratio.Center <= 0 || math.IsInf(r.Ratio.Center, 0) {
			continue
		}
		cells := c.Cells(r)
		d := drawnRatio{Name: r.Name, A: cells[1], B: cells[2], Verdict: r.Verdict, Center: r.Ratio.Center,
			Interval: r.Ratio.Interval, Rounds: r.Ratios, Change: cells[3]}
		if r.Ratio.Interval != nil {
			d.Span = cells[4]
		}
		var changes []string
		for _, ratio := range r.Ratios[:min(len(r.Ratios), maxChanges)] {
			changes = append(changes, compare.Percent(ratio))
		}
		d.Changes = strings.Join(changes, ", ")
		drawn.Rows = append(drawn.Rows, d)
	}
	p.Chart = len(drawn.Rows) > 0
	var err error
	if p.frame, err = newFrame("B against A", maker, comparisonJS, drawn); err != nil {
		return err
	}
	return writePage(w, comparisonTemplate, p)
}

// inSight puts the change and the verdict of a row, or their names, behind the figure: a phone shows these three.
func inSight(cells []string) []string {
	last := len(cells) - 1
	return slices.Concat([]string{cells[0], cells[3], cells[last]}, cells[1:3], cells[4:last])
}

// Names returns the names of the columns.
func (p comparisonPage) Names() []string {
	h := p.Heading()
	h[len(h)-1] = "verdict"
	return inSight(h)
}

// Remarks returns the lines below the tables. The warnings stand above them.
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
