package sim

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestScenariosPrintBack: the text of each plan is what its scenario prints, and reads the same in one line.
func TestScenariosPrintBack(t *testing.T) {
	for _, p := range plans {
		text := p.scenario.String()
		written := "\n" + p.floors + ":\n\t" + strings.ReplaceAll(text, "\n", "\n\t") + "\n"
		if !strings.Contains(plansText, written) {
			t.Errorf("plan %s prints as\n%s", p.name, text)
		}
		phrases, events := text, ""
		if at := regexp.MustCompile(`\n(at|every) `).FindStringIndex(text); at != nil {
			phrases, events = text[:at[0]], text[at[0]:]
		}
		again, err := parseScenario(strings.ReplaceAll(phrases, "\n", ", ") + events)
		if err != nil || again.String() != text {
			t.Errorf("plan %s: read again: %v\n%s", p.name, err, again)
		}
	}
}

// TestRefusedScenarios: a word that is no phrase is refused, and the error names it.
func TestRefusedScenarios(t *testing.T) {
	for text, want := range map[string]string{
		"3 clients, reed 3":           `"reed 3" is neither`,
		"reads":                       `"reads" is no phrase`,
		"reads many":                  `"reads many" is neither`,
		"reads 0":                     `"reads 0" is neither`,
		"kill store":                  `"kill store" is neither`,
		"draws kil every 1s":          `no fault "kil" is drawn; want some of [stop kill`,
		"draws kill every":            "draws kill every: time:",
		"draws every 1s":              `time: invalid duration ""`,
		"draws transfer every 0s":     "want a time of 1ms at least",
		"every 0s: kill all":          "want a time of 1ms at least",
		"every 1s: kil all":           "did you mean kill?",
		"raft.max_inflght 3":          "raft.max_inflight?",
		"raft.max_inflight x":         "raft.max_inflight",
		"an operation every 10":       "missing unit",
		"many clients":                `"many"`,
		"6 clients, reads 1, x, y, z": `"x" is no phrase`,
	} {
		if s, err := parseScenario(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseScenario(%q) = %s, %v; want %s", text, s, err, want)
		}
	}
}

// TestMistakesAreSought: some plan looks for each mistake, and each fault and operation occurs in one.
func TestMistakesAreSought(t *testing.T) {
	for _, m := range mistakes {
		if !slices.ContainsFunc(plans, func(p plan) bool { return p.mistake.name == m.name }) {
			t.Errorf("no plan finds %s", m.name)
		}
	}
	for _, f := range faults {
		if f.phrase == stallPhrase { // in drawn scenarios
			continue
		}
		if !slices.ContainsFunc(plans, func(p plan) bool {
			return slices.ContainsFunc(p.faults, func(x happening) bool { return x.phrase == f.phrase })
		}) {
			t.Errorf("in no plan: %s", f.phrase)
		}
	}
	for _, o := range operations {
		if !slices.ContainsFunc(plans, func(p plan) bool {
			return slices.ContainsFunc(p.mix, func(x weighted) bool { return x.name == o.name })
		}) {
			t.Errorf("in no plan: %s", o.name)
		}
	}
}

// FuzzScenario reads texts of scenarios: what can be read prints as text that reads back as the same.
func FuzzScenario(f *testing.F) {
	for _, p := range plans {
		f.Add(p.scenario.String())
	}
	f.Add("1 clients, an operation every 1ms, reads 1\nat 1.2s for 300ms: link 1 2,3 loss=10%")
	f.Add(drawnPhrase + "kill disk")
	f.Add("1 clients, draws kill disk every 1s\nevery 2s for 1ms: kill all")
	f.Fuzz(func(t *testing.T, text string) {
		x, err := parseScenario(text)
		if err != nil {
			return
		}
		if again, err := parseScenario(x.String()); err != nil || again.String() != x.String() {
			t.Errorf("%q is\n%s\nwhich reads back as\n%s\n%v", text, x, again, err)
		}
	})
}
