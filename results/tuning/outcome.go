package tuning

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// StudyOutcome is what a study says so far.
type StudyOutcome struct {
	Plan    StudyPlan     `json:"plan"`
	Trials  int           `json:"trials"`
	Failed  int           `json:"failed,omitempty"` // trials
	Took    time.Duration `json:"took_ns"`
	Effects []Effect      `json:"effects"`
	// Best are the best configurations of the search, and Front those that no other one beats in everything.
	Best  []Contender `json:"best,omitempty"`
	Front []Contender `json:"front,omitempty"`
	Done  bool        `json:"done"` // the study has ended
	// Winner was compared with the default; nil if the study has not come to that, or nothing looked better than the
	// default.
	Winner    []string `json:"winner,omitempty"`
	Confirmed bool     `json:"confirmed"`
	// Confirmation says whether the winner is better. Winners that are confirmed have had luck in it, as a rule, so
	// only Gain says by how much: it compares the same in later rounds. It is nil before there are any.
	Confirmation *compare.Delta `json:"confirmation,omitempty"`
	Gain         *compare.Delta `json:"gain,omitempty"`
	Breaks       []string       `json:"breaks,omitempty"`  // subjects that the winner broke when it was confirmed
	Failure      string         `json:"failure,omitempty"` // of the winner, in Confirmation or Gain
	// Holds compare the winner with the default under other circumstances, Around on loads near that of the plan.
	Holds  []Circumstance `json:"holds,omitempty"`
	Around []Circumstance `json:"around,omitempty"`
	Notes  []string       `json:"notes,omitempty"`
	// Settings is a profile with the chosen settings, in YAML.
	Settings string `json:"settings,omitempty"`
}

// Circumstance is a load other than that of the plan.
type Circumstance struct {
	Load   string         `json:"load"`
	Delta  *compare.Delta `json:"delta,omitempty"`
	Failed string         `json:"failed,omitempty"` // why there is nothing to compare
}

// mostBest is how many configurations of the search are shown.
const mostBest = 5

// Outcome works out what the study says.
func (s *Study) Outcome() *StudyOutcome {
	o := &StudyOutcome{Plan: s.Plan, Trials: len(s.Trials), Effects: s.Effects(), Front: s.Front(), Winner: s.Winner(),
		Done: s.Done, Notes: s.Notes()}
	for _, t := range s.Trials {
		o.Took += t.Took
		if t.Failure != "" {
			o.Failed++
		}
	}
	ranking := s.Ranking(Curves, Search, Race)
	o.Best = ranking[:min(len(ranking), mostBest)]
	if o.Winner == nil {
		return o
	}
	for _, t := range s.of(o.Winner, Confirm, Gain) {
		if t.Failure != "" {
			o.Failure = t.Failure
		}
	}
	o.Confirmation, o.Breaks = s.Compare(Confirm, ""), s.confirmedBreaks()
	if d := s.Compare(Gain, ""); d.Rounds > 0 {
		o.Gain, o.Confirmed = d, s.confirmedBy(o.Confirmation) && o.Failure == ""
	}
	o.Holds, o.Around = s.circumstances(Hold), s.circumstances(Around)
	return o
}

func (s *Study) circumstances(phase Phase) (out []Circumstance) {
	for _, load := range s.Loads(phase) {
		c := Circumstance{Load: load, Delta: s.Compare(phase, load)}
		for _, t := range s.Trials {
			if t.Phase == phase && t.Load == load && t.Failure != "" {
				c.Failed = t.Failure
			}
		}
		out = append(out, c)
	}
	return out
}

// Conclusion says in a sentence or two what came out.
func (o *StudyOutcome) Conclusion() []string {
	none := "the default wins: nothing that was tried beats it by more than noise"
	switch {
	case !o.Done && !o.Confirmed:
		return []string{"not finished: nothing has been confirmed"}
	case o.Winner == nil:
		return []string{none}
	case o.Failure != "":
		return []string{fmt.Sprintf("not confirmed: %s failed: %s", Name(o.Winner), firstLine(o.Failure))}
	}
	objective := o.Plan.Objective.Figure
	change := func(row *compare.Row) string {
		return fmt.Sprintf("%s: %s %s (%s) on fresh seeds, in %s", Name(o.Winner), objective,
			compare.Percent(row.Ratio.Center), row.Ratio.Span(), results.Plural(int64(row.Ratio.N), "round"))
	}
	row := o.Confirmation.Row(objective)
	switch {
	case row == nil || row.Ratio == nil:
		return []string{"the default has no " + objective + ", so nothing can be compared with it"}
	case o.Confirmed:
		return []string{"confirmed: " + change(o.Gain.Row(objective)), fmt.Sprintf(
			"%s before these showed that it is better (p %.2g); such rounds are lucky, as a rule, so the later ones count",
			results.Plural(int64(row.Ratio.N), "round"), row.Adjusted)}
	case len(o.Breaks) > 0:
		return []string{"not confirmed: " + change(row) + ", but it does not hold " + strings.Join(o.Breaks, ", ")}
	case row.Verdict == compare.Same:
		return []string{none + "; the best of the search, " + change(row)}
	}
	return []string{fmt.Sprintf("not confirmed (%s): %s", row.Verdict, change(row))}
}

// Worst returns the load near that of the plan on which the winner does worst, nil if none was tried.
func (o *StudyOutcome) Worst() *Circumstance {
	var worst *Circumstance
	least := math.Inf(1)
	for i := range o.Around {
		row := o.Around[i].Delta.Row(o.Plan.Objective.Figure)
		if row == nil || row.Ratio == nil {
			continue
		}
		if gain := o.Plan.Objective.Gain(math.Log(row.Ratio.Center)); gain < least {
			worst, least = &o.Around[i], gain
		}
	}
	return worst
}

// Sentence says what a knob does to the objective, and what would have been found.
func (e *Effect) Sentence(objective string) string {
	name := e.Knob.Setting
	visible := ""
	if e.Visible > 0 {
		visible = "; " + compare.Power([]compare.Row{{Name: objective, Visible: e.Visible}})
	}
	tried := 0
	var low, high *KnobValue
	for i := range e.Levels {
		l := &e.Levels[i]
		if l.Ratio == nil {
			continue
		}
		tried++
		if low == nil || l.Ratio.Center < low.Ratio.Center {
			low = l
		}
		if high == nil || l.Ratio.Center > high.Ratio.Center {
			high = l
		}
	}
	switch {
	case tried < 2:
		return name + ": too few trials"
	case e.Visible == 0 || !e.Measurable && e.Visible > 1:
		return name + ": too few trials to tell an effect from the noise of this machine"
	case !e.Measurable:
		return name + ": no measurable effect" + visible
	}
	// Intervals and not their centers: those of the lowest and the highest lie too far out, as a rule.
	var ends []string
	for _, l := range []*KnobValue{low, high} {
		if !l.Default {
			ends = append(ends, fmt.Sprintf("%s at %s", l.Ratio.Span(), l.Value))
		}
	}
	out := name + ": " + strings.Join(ends, ", ")
	if e.Cliff != nil {
		out += fmt.Sprintf("; the cliff is between %s and %s", e.Cliff.From, e.Cliff.To)
	}
	return out + visible
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// Title says what the study is about.
func (o *StudyOutcome) Title() string {
	text := fmt.Sprintf("%s, workload %s, profile %s", o.Plan.Objective, o.Plan.Load.Workload, o.Plan.Profile)
	for i, c := range o.Plan.Subjects {
		text += []string{", subject to ", " and "}[min(i, 1)] + c.Text
	}
	return text
}

// Conditions returns what a reader must know of a study before its figures mean anything.
func (o *StudyOutcome) Conditions() []results.NamedValue {
	p := &o.Plan
	load := results.ClientGroup{Workload: p.Load.Workload, Clients: p.Load.Clients, Pipeline: p.Load.Pipeline,
		Rate: p.Load.Rate, Records: p.Load.Records}
	trials := fmt.Sprintf("%s of %s after %s of warm-up", results.Plural(int64(o.Trials), "trial"), p.Block, p.Warmup)
	if o.Failed > 0 {
		trials += fmt.Sprintf(" (%d failed)", o.Failed)
	}
	target := "profile " + p.Profile
	if len(p.Set) > 0 {
		target += ", " + strings.Join(p.Set, ", ")
	}
	return []results.NamedValue{
		{Name: "load", Value: load.Describe()},
		{Name: "target", Value: target},
		{Name: "measured", Value: trials + ", in " + o.Took.Round(time.Second).String()},
		{Name: "machine", Value: p.Machine.String()},
		{Name: "date", Value: p.Started.UTC().Format("2006-01-02 15:04 UTC")},
		{Name: "seed", Value: fmt.Sprint(p.Seed)},
	}
}

// columns are the columns of a table beside the objective's ratio.
func (o *StudyOutcome) columns() (names []string) {
	names = slices.Concat(Shown, slices.Sorted(maps.Keys(lost)))
	if !slices.Contains(names, o.Plan.Objective.Figure) {
		names = append([]string{o.Plan.Objective.Figure}, names...)
	}
	return slices.DeleteFunc(names, func(name string) bool { // a rate has no throughput to find out
		return !slices.ContainsFunc(o.Effects, func(e Effect) bool {
			return slices.ContainsFunc(e.Levels, func(l KnobValue) bool {
				return slices.ContainsFunc(l.Medians, func(m Median) bool {
					sound, is := lost[name]
					return m.Figure == name && !(is && m.Value == sound && name != o.Plan.Objective.Figure)
				})
			})
		})
	})
}

func medianText(medians []Median, name string) string {
	for _, m := range medians {
		if m.Figure != name {
			continue
		}
		if text := results.FigureText(m.Value, m.Unit); m.AtLeast {
			return ">= " + text
		} else {
			return text
		}
	}
	return "-"
}

// EffectHeading returns the names of the columns of EffectRows.
func (o *StudyOutcome) EffectHeading() []string {
	return append(append([]string{"setting", "value"}, o.columns()...), o.Plan.Objective.Figure+" against default",
		percent(Level)+" interval", "trials", "")
}

// EffectRows returns the rows of a knob's table.
func (o *StudyOutcome) EffectRows(e *Effect) (rows [][]string) {
	for i := range e.Levels {
		l := &e.Levels[i]
		row := []string{e.Knob.Setting, l.Value}
		for _, name := range o.columns() {
			row = append(row, medianText(l.Medians, name))
		}
		remark := ""
		switch {
		case l.Default:
			row = append(row, "", "", "")
			remark = "default"
		case l.Ratio == nil:
			row = append(row, "-", "-", "-")
		default:
			row = append(row, compare.Percent(l.Ratio.Center), l.Ratio.Span(), fmt.Sprint(l.Ratio.N))
			if l.Ratio.Interval != nil && !l.Ratio.ExcludesOne() {
				remark = "~"
			}
		}
		switch {
		case l.Failure != "":
			remark = "failed: " + firstLine(l.Failure)
		case len(l.Breaks) > 0:
			remark = strings.TrimSpace(remark + " breaks " + strings.Join(l.Breaks, ", "))
		}
		rows = append(rows, append(row, remark))
	}
	return rows
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	const most = 80
	if len(line) > most {
		line = line[:most] + "..."
	}
	return line
}

// ContenderHeading returns the names of the columns of ContenderRows.
func (o *StudyOutcome) ContenderHeading() []string {
	return append(append([]string{"settings"}, o.columns()...), "trials", "")
}

// ContenderRows returns a row for each configuration.
func (o *StudyOutcome) ContenderRows(all []Contender) (rows [][]string) {
	for i := range all {
		c := &all[i]
		row := []string{Name(c.Set)}
		for _, name := range o.columns() {
			row = append(row, medianText(c.Medians, name))
		}
		remark := ""
		if len(c.Breaks) > 0 {
			remark = "breaks " + strings.Join(c.Breaks, ", ")
		}
		rows = append(rows, append(row, fmt.Sprint(c.Trials), remark))
	}
	return rows
}

// circumstanceFigures are shown of another load, beside the objective.
var circumstanceFigures = []string{"p99", "CPU"}

// CircumstanceHeading returns the names of the columns of CircumstanceRows.
func (o *StudyOutcome) CircumstanceHeading() []string {
	return []string{"load", "figure", "default", "chosen", "change", "95 % interval", ""}
}

// CircumstanceRows returns what the winner does on other loads: the objective, p99 and CPU time.
func (o *StudyOutcome) CircumstanceRows(all []Circumstance) (rows [][]string) {
	for _, c := range all {
		if c.Failed != "" {
			rows = append(rows, []string{c.Load, "-", "-", "-", "-", "-", "failed: " + firstLine(c.Failed)})
		}
		names := circumstanceFigures
		if !slices.Contains(names, o.Plan.Objective.Figure) {
			names = append([]string{o.Plan.Objective.Figure}, names...)
		}
		for _, name := range names {
			row := c.Delta.Row(name)
			if row == nil {
				continue
			}
			change := "-"
			if row.Ratio != nil {
				change = compare.Percent(row.Ratio.Center)
			}
			rows = append(rows, []string{c.Load, name, results.FigureText(row.A.Center, row.Unit),
				results.FigureText(row.B.Center, row.Unit), change, row.Ratio.Span(), string(row.Verdict)})
		}
	}
	return rows
}

// PrintTable prints an outcome for people.
func (o *StudyOutcome) PrintTable(w io.Writer) error {
	var b strings.Builder
	section := func(title string, rows [][]string, names int) {
		if len(rows) < 2 {
			return
		}
		fmt.Fprintf(&b, "\n%s\n\n", title)
		for _, line := range results.Align(rows, names) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	b.WriteString(strings.Join(o.Conclusion(), "\n") + "\n\n")
	for _, c := range o.Conditions() {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Value)
	}
	rows := [][]string{o.EffectHeading()}
	for i := range o.Effects {
		rows = append(rows, o.EffectRows(&o.Effects[i])...)
	}
	section("each knob on its own, the others at their defaults; the intervals hold for all values together", rows, 2)
	b.WriteByte('\n')
	for i := range o.Effects {
		b.WriteString(o.Effects[i].Sentence(o.Plan.Objective.Figure) + "\n")
	}
	section("the best of the search; what their trials showed is partly luck",
		append([][]string{o.ContenderHeading()}, o.ContenderRows(o.Best)...), 1)
	section("no other configuration is better in all of throughput, p99, write amplification and memory",
		append([][]string{o.ContenderHeading()}, o.ContenderRows(o.Front)...), 1)
	if d := o.Gain; o.Confirmed {
		rows := [][]string{d.Heading()}
		for i := range d.Rows {
			rows = append(rows, d.Cells(&d.Rows[i]))
		}
		section("chosen settings (B) against the default (A), in rounds behind those that confirmed them", rows, 1)
	} else if d := o.Confirmation; d != nil && len(d.Rows) > 0 {
		b.WriteString("\nchosen settings (B) against the default (A), on fresh seeds\n\n")
		if err := d.PrintTable(&b); err != nil {
			return err
		}
	}
	heading := [][]string{o.CircumstanceHeading()}
	section("does it hold elsewhere", append(heading, o.CircumstanceRows(o.Holds)...), 2)
	section("on loads near this one", append(heading, o.CircumstanceRows(o.Around)...), 2)
	if worst := o.Worst(); worst != nil {
		row := worst.Delta.Row(o.Plan.Objective.Figure)
		fmt.Fprintf(&b, "\nworst case nearby: %s with %s\n", compare.Percent(row.Ratio.Center), worst.Load)
	}
	b.WriteByte('\n')
	for _, note := range o.Notes {
		b.WriteString("note: " + note + "\n")
	}
	if o.Settings != "" {
		b.WriteString("\n" + o.Settings)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
