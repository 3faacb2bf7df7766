// Package report draws results: as one HTML file with charts, which opens without a network, and as a summary in
// Markdown for a pull request.
package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"

	"neokv.dev/results"
)

// MaxResults is how many results a report shows at most: one for each colour that a colour-blind reader can tell from
// the others.
const MaxResults = 8

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.js
	pageJS string

	pageTemplate = newTemplate(pageHTML)
)

// page is what the template shows.
type page struct {
	frame
	Conclusion string
	Conditions []results.NamedValue
	Subjects   []shownSubject
	Several    bool
	Groups     []shownGroup
	Nodes      []shownTable   // of those that were clusters
	Facts      []results.Fact // all of them
	Differ     []results.Fact // those in which the results differ
	Drawing    *drawing
	Events     []shownEvent
	Steps      []shownStep
}

// shownSubject is the paragraph about a result.
type shownSubject struct {
	Index    int
	Letter   string
	Name     string
	Problems []string // failure, interruption, what is missing, not durable, warnings
	Notes    []string
}

// shownGroup has the tables of a group of clients.
type shownGroup struct {
	Name    string
	Tables  []shownTable
	Compare *sideBySide
}

// shownTable is the table of one result.
type shownTable struct {
	Index   int
	Letter  string
	Title   string
	Heading []string
	Rows    [][]string
	Names   int // so many cells at the front of a row are names
	Notes   []string
}

// shownEvent is a row of the table of events. The charts have its mark.
type shownEvent struct{ Mark, At, Do, Outcome string }

type shownStep struct {
	Letter, Group, Rate, Reached, P50, P99, P999, Max, Why string
	Held                                                   bool
}

// HTML writes the page. It wants 1 to MaxResults subjects, whose names differ.
func HTML(w io.Writer, subjects []results.ResultFile) error {
	d := newDrawing(subjects)
	f, err := newFrame(title(subjects), "report", pageJS, d)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	p := page{
		frame: f, Conclusion: Headline(subjects), Conditions: conditions(subjects), Several: len(subjects) > 1,
		Drawing: d, Facts: results.Facts(subjects), Groups: groupTables(subjects),
		Nodes: nodeTables(subjects), Events: shownEvents(subjects), Steps: shownSteps(d),
	}
	for _, f := range p.Facts {
		if f.Differ {
			p.Differ = append(p.Differ, f)
		}
	}
	for i, s := range subjects {
		shown := shownSubject{
			Index: i, Letter: letter(i), Name: s.Name, Problems: problems(s.Result),
		}
		if s.Result.Summary != nil {
			shown.Notes = s.Result.Summary.Notes(&s.Result.Header)
		}
		p.Subjects = append(p.Subjects, shown)
	}
	return writePage(w, pageTemplate, p)
}

// letter names a result on the page.
func letter(i int) string { return string(rune('A' + i)) }

func title(subjects []results.ResultFile) string {
	if len(subjects) == 1 {
		return subjects[0].Name
	}
	return fmt.Sprintf("%d results compared", len(subjects))
}

// problems returns what a reader must know before believing a figure.
func problems(r *results.Result) []string {
	out := slices.Clone(r.Warnings)
	if s := r.Summary; s != nil {
		if s.Failure != "" {
			out = append(out, "failed: "+s.Failure)
		}
		if s.Interrupted {
			out = append(out, "interrupted: the figures cover the part that ran")
		}
		if s.SLO != nil && s.SLO.Broken != "" {
			out = append(out, s.SLO.String())
		}
	}
	if why := r.Header.NotDurable(); why != "" {
		out = append(out, "not durable: "+why+", so a power failure takes acknowledged writes away")
	}
	if s := r.Summary; s != nil {
		out = append(out, s.Warnings...)
	}
	return out
}

// groupTables returns the tables of all groups.
func groupTables(subjects []results.ResultFile) []shownGroup {
	var out []shownGroup
	for _, m := range matchGroups(subjects) {
		g := shownGroup{Name: m.name, Compare: beside(subjects, m)}
		for i, s := range subjects {
			load, figures := m.of(i, s.Result)
			if figures == nil {
				continue
			}
			rows := figures.Rows(load.OpenLoop())
			t := shownTable{Index: i, Letter: letter(i), Title: load.Describe(), Heading: rows[0], Rows: rows[1:],
				Notes: figures.Notes(load.OpenLoop()), Names: 1}
			if load.OpenLoop() {
				t.Names = 2
			}
			g.Tables = append(g.Tables, t)
		}
		out = append(out, g)
	}
	return out
}

// nodeTables returns a table with a row per node of each result of a cluster.
func nodeTables(subjects []results.ResultFile) (out []shownTable) {
	for i, s := range subjects {
		if sum := s.Result.Summary; sum != nil && len(sum.Nodes) > 0 {
			rows := sum.NodeRows()
			out = append(out, shownTable{Index: i, Letter: letter(i), Title: s.Name, Heading: rows[0], Rows: rows[1:],
				Names: 1})
		}
	}
	return out
}

func shownEvents(subjects []results.ResultFile) []shownEvent {
	var out []shownEvent
	for i, s := range subjects {
		for k, e := range events(s.Result) {
			mark := strconv.Itoa(k + 1)
			if len(subjects) > 1 {
				mark = letter(i) + " " + mark
			}
			outcome := e.Outcome
			if e.Error != "" {
				outcome = "failed: " + e.Error
			}
			out = append(out, shownEvent{mark, fmt.Sprintf("%.1f s", e.At), e.Do, outcome})
		}
	}
	return out
}

func shownSteps(d *drawing) []shownStep {
	var out []shownStep
	us := func(v int64) string { return results.Quantile{US: max(v, -v), AtLeast: v < 0}.String() }
	for _, c := range d.Curves {
		for _, s := range c.Steps {
			tried := results.Count(int64(s.Rate + 0.5))
			if s.Clients > 0 {
				tried = results.Plural(int64(s.Clients), "client")
			}
			out = append(out, shownStep{
				letter(c.Run), c.Group, tried, results.Count(int64(s.Reached + 0.5)),
				us(s.P50), us(s.P99), us(s.P999), us(s.Max), s.Why, s.Why == "",
			})
		}
	}
	return out
}
