package report

import (
	_ "embed"
	"io"
	"math"
	"strings"

	"neokv.dev/results/compare"
	"neokv.dev/results/tuning"
)

var (
	//go:embed tuning.html
	tuningHTML string
	//go:embed tuning.js
	tuningJS string

	tuningTemplate = newTemplate(tuningHTML)
)

// tuningPage is what the template shows.
type tuningPage struct {
	frame
	*tuning.StudyOutcome
	Effects []shownEffect
	Tables  []shownRows // behind the curves
	Command string
}

// shownEffect is a knob on the page.
type shownEffect struct {
	Index    int
	Sentence string
	Rows     [][]string
}

// shownRows is a table whose first columns are names.
type shownRows struct {
	Title   string
	Names   int
	Heading []string
	Rows    [][]string
}

// drawnTuning is what the script of the page draws, as JSON.
type drawnTuning struct {
	Objective string           `json:"objective"`
	Knobs     []drawnKnob      `json:"knobs"`
	Front     []drawnContender `json:"front"`
}

// drawnKnob is the curve of a knob: the objective against that of the default at each value, as ratios. NaN is no
// value.
type drawnKnob struct {
	Name    string   `json:"name"`
	Values  []string `json:"values"`
	Default int      `json:"default"`
	Ratios  []figure `json:"ratios"`
	Low     []figure `json:"low"`
	High    []figure `json:"high"`
	Texts   []string `json:"texts"`   // what a tip says of each value
	Ordered bool     `json:"ordered"` // a line joins the values
}

type drawnContender struct {
	Name       string `json:"name"`
	Text       string `json:"text"` // what a tip says
	Throughput figure `json:"throughput"`
	P99        figure `json:"p99"`
	Default    bool   `json:"default"`
	Chosen     bool   `json:"chosen"`
}

// TuningHTML writes what a search for settings found as a page: a curve for each knob, the configurations that no other
// one beats, and the tables.
func TuningHTML(w io.Writer, o *tuning.StudyOutcome) error {
	p := tuningPage{StudyOutcome: o, Command: strings.Join(o.Plan.Command, " ")}
	drawn := drawnTuning{Objective: o.Plan.Objective.Figure, Knobs: []drawnKnob{}, Front: []drawnContender{}}
	for i := range o.Effects {
		e := &o.Effects[i]
		rows := o.EffectRows(e)
		p.Effects = append(p.Effects, shownEffect{i, e.Sentence(o.Plan.Objective.Figure), rows})
		drawn.Knobs = append(drawn.Knobs, newDrawnKnob(e, o.EffectHeading(), rows))
	}
	rows := o.ContenderRows(o.Front)
	for i := range o.Front {
		c := &o.Front[i]
		throughput, ok := c.Median("throughput")
		p99, has := c.Median("p99")
		if ok && has {
			drawn.Front = append(drawn.Front, drawnContender{Name: tuning.Name(c.Set),
				Text: described(o.ContenderHeading(), rows[i]), Throughput: figure(throughput.Value),
				P99: figure(p99.Value), Default: len(c.Set) == 0,
				Chosen: o.Winner != nil && tuning.Name(c.Set) == tuning.Name(o.Winner)})
		}
	}
	table := func(title string, names int, heading []string, rows [][]string) {
		if len(rows) > 0 {
			p.Tables = append(p.Tables, shownRows{title, names, heading, rows})
		}
	}
	table("Each knob on its own, the others at their defaults", 2, o.EffectHeading(), p.levels())
	table("The best of the search; what their trials showed is partly luck", 1, o.ContenderHeading(),
		o.ContenderRows(o.Best))
	table("No other configuration is better in all of throughput, p99, write amplification and memory", 1,
		o.ContenderHeading(), rows)
	d := o.Confirmation
	if o.Confirmed {
		d = o.Gain
	}
	if d != nil {
		var cells [][]string
		for i := range d.Rows {
			cells = append(cells, d.Cells(&d.Rows[i]))
		}
		table("Chosen settings (B) against the default (A), on fresh seeds", 1, d.Heading(), cells)
	}
	table("Does it hold elsewhere", 2, o.CircumstanceHeading(), o.CircumstanceRows(o.Holds))
	table("On loads near this one", 2, o.CircumstanceHeading(), o.CircumstanceRows(o.Around))
	var err error
	if p.frame, err = newFrame("Tuned for "+o.Title(), "tune", tuningJS, drawn); err != nil {
		return err
	}
	return writePage(w, tuningTemplate, p)
}

// levels returns the rows of all knobs.
func (p *tuningPage) levels() (rows [][]string) {
	for _, e := range p.Effects {
		rows = append(rows, e.Rows...)
	}
	return rows
}

func newDrawnKnob(e *tuning.Effect, heading []string, rows [][]string) drawnKnob {
	d := drawnKnob{Name: e.Knob.Setting, Ordered: e.Knob.Ordered}
	for i := range e.Levels {
		l := &e.Levels[i]
		if l.Default {
			d.Default = i
		}
		ratio, low, high := math.NaN(), math.NaN(), math.NaN()
		if l.Ratio != nil {
			ratio = l.Ratio.Center
			if l.Ratio.Interval != nil {
				low, high = l.Ratio.Interval[0], l.Ratio.Interval[1]
			}
		}
		d.Values, d.Ratios = append(d.Values, l.Value), append(d.Ratios, figure(ratio))
		d.Low, d.High = append(d.Low, figure(low)), append(d.High, figure(high))
		d.Texts = append(d.Texts, described(heading[1:], rows[i][1:]))
	}
	return d
}

// described joins the cells of a row with their names. Cells without content are left out.
func described(heading, row []string) string {
	var out []string
	for i, cell := range row {
		if cell != "" && cell != "-" {
			out = append(out, strings.TrimSpace(heading[i]+" "+cell))
		}
	}
	return strings.Join(out, ", ")
}

// Worst says on which load near that of the plan the chosen settings do worst, "" if none was tried.
func (p tuningPage) Worst() string {
	c := p.StudyOutcome.Worst()
	if c == nil {
		return ""
	}
	row := c.Delta.Row(p.Plan.Objective.Figure)
	return "Worst case nearby: " + compare.Percent(row.Ratio.Center) + " with " + c.Load + "."
}
