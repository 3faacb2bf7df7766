package sim

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plan is a scenario with a name, and perhaps a mistake that it finds.
type plan struct {
	name string
	scenario
	floors string // the plan in least whose floors hold; it has the same scenario
	finds
}

// finds says what a plan finds. Its zero value is of a plan that runs without a mistake alone.
type finds struct {
	mistake mistake
	shows   []evidence // only these count
	bound   int        // within so many seeds
}

// isShown reports whether the mistake shows by evidence of this kind.
func (f *finds) isShown(k evidence) bool { return slices.Contains(f.shows, k) }

// general is the plan in which everything happens.
const general = "chaos"

// special reports whether the scenario is made for the plan's mistake.
func (p *plan) special() bool { return p.name == p.mistake.name }

//go:embed plans.txt
var plansText string

// plans are the plans of plans.txt. Behind each come those that are the same with a mistake to find, which have its
// name too: chaos, then chaos-log-unsynced. A special plan stands there once.
var plans = func() []plan {
	all, err := parsePlans(plansText)
	if err != nil {
		panic(err)
	}
	return all
}()

var findsLine = regexp.MustCompile(`^finds (\S+) by (.+) within (\d+) seeds$`)

// parsePlans reads plans: a line with the name and a colon, and indented lines with the scenario and with what the
// plan finds.
func parsePlans(text string) (all []plan, err error) {
	for _, section := range strings.Split(text, "\n\n") {
		name, lines := "", []string(nil)
		var sought []finds
		for line := range strings.Lines(section) {
			line = strings.TrimRight(line, "\n")
			text, indented := strings.CutPrefix(line, "\t")
			m := findsLine.FindStringSubmatch(text)
			switch {
			case line == "" || line[0] == '#':
			case !indented:
				name = strings.TrimSuffix(line, ":")
			case m != nil:
				f, err := parseFinds(m)
				if err != nil {
					return nil, fmt.Errorf("plan %s: %w", name, err)
				}
				sought = append(sought, f)
			default:
				lines = append(lines, text)
			}
		}
		if name == "" {
			continue // comments alone
		}
		p := plan{name: name, floors: name}
		if p.scenario, err = parseScenario(strings.Join(lines, "\n")); err != nil {
			return nil, fmt.Errorf("plan %s: %w", name, err)
		}
		if len(sought) != 1 || sought[0].mistake.name != name {
			all = append(all, p)
		}
		for _, f := range sought {
			p.finds = f
			if p.name = name; f.mistake.name != name {
				p.name += "-" + f.mistake.name
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// parseFinds takes the words of a line that findsLine matches.
func parseFinds(words []string) (f finds, err error) {
	if f.mistake, err = mistakeOf(words[1]); err != nil {
		return f, err
	}
	for kind := range strings.SplitSeq(words[2], ", ") {
		if !slices.Contains(evidences, evidence(kind)) {
			return f, fmt.Errorf("there is no evidence %q", kind)
		}
		f.shows = append(f.shows, evidence(kind))
	}
	f.bound, err = strconv.Atoi(words[3])
	return f, err
}

// planOf returns the plan of a name, or one without a name of a scenario's text.
func planOf(text string) (plan, error) {
	if i := slices.IndexFunc(plans, func(p plan) bool { return p.name == text }); i >= 0 {
		return plans[i], nil
	}
	s, err := parseScenario(text)
	if err != nil {
		return plan{}, fmt.Errorf("%q is no plan, and no scenario: %w", text, err)
	}
	return plan{scenario: s}, nil
}
