package sim

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTorture runs seeds that draw their scenarios, as neokv torture does.
func TestTorture(t *testing.T) { runBatch(t, torturePlan, 1, 12, 20*time.Second) }

// TestTorturePlanted: torture itself finds planted mistakes. The others take neokv torture --planted longer.
func TestTorturePlanted(t *testing.T) {
	notShort(t)
	for _, p := range plans {
		if p.drawn != nil && p.mistake.plant != nil && p.bound <= 100 {
			t.Run(p.mistake.name, func(t *testing.T) {
				t.Parallel()
				findPlanted(t, 1, p.name, 20*time.Second)
			})
		}
	}
}

// TestTortureShrinks: a planted mistake is found, and what is left of the scenario is small and still fails.
func TestTortureShrinks(t *testing.T) {
	notShort(t)
	small := ""
	sitting, failure, err := Torture(t.Context(), TortureOptions{
		Seed: 1, Seeds: 20, Length: 10 * time.Second, Planted: "log-unsynced", Dir: t.TempDir(),
		Shrink: 5 * time.Minute, // it ends when nothing more can be left out
		Scenario: `4 clients, an operation every 10ms, reads 1, writes 1, increments 1, counter reads 1
			at 500ms: transfer 1 2
			at 1s for 100ms: pause 1
			at 2s for 100ms: kill all
			at 3s: clock 2 1s
			at 4s for 100ms: kill all
			at 5s for 1s: link 1 2 delay=5ms
			at 7s for 100ms: kill all
			at 8s: transfer 2 3`,
		Shrinking: func(text string) { small = text },
	})
	if err != nil || failure == nil || sitting.Verdict != ProblemFound {
		t.Fatalf("%+v, %v, %v; want a seed that fails", sitting, failure, err)
	}
	if failure.Scenario != small || strings.Count(small, "\nat ") > 5 || !strings.Contains(small, "kill all") {
		t.Errorf("after %d runs\n%s\nis left; want a kill and little else, not\n%s", failure.Tries, failure.Scenario, small)
	}
}

// TestPicture: the picture of a key's history has its operations, and opens without the net.
func TestPicture(t *testing.T) {
	h := &history{ops: []*op{
		{kind: set, key: "k", value: "a", call: 1, end: 2, reply: "OK", expiry: expiry{ended: forever}},
		{kind: get, key: "k", call: 3, end: 4, reply: "b", expiry: expiry{ended: forever}},
		{kind: set, key: "elsewhere-9", value: "c", call: 5, end: 6, reply: "OK", expiry: expiry{ended: forever}},
	}}
	path := filepath.Join(t.TempDir(), "picture.html")
	if err := h.picture("k", path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	for part, want := range map[string]bool{"SET k a": true, "GET k = ": true, "elsewhere-9": false, "https://": false} {
		if strings.Contains(string(text), part) != want {
			t.Errorf("%q in the picture: %v (%v)", part, !want, err)
		}
	}
}

// TestTortureMisses: a sweep whose seeds cannot reach all states fails, and so does one that does not find a mistake.
func TestTortureMisses(t *testing.T) {
	b := simBatch{}
	b.seeds = enough
	b.add(simReport{simStats: simStats{States: map[state]int{compared: 2}}})
	var s TortureSitting
	b.sum(&s)
	if want := slices.DeleteFunc(slices.Clone(states), func(x state) bool { return x == compared }); !slices.Equal(
		s.Missing, want) || s.States[compared] != 2 {
		t.Errorf("missing %q, reached %v; want %q", s.Missing, s.States, want)
	}
	sitting, _, err := Torture(context.Background(), TortureOptions{Seed: 1, Seeds: 1, Length: time.Second,
		Scenario: "1 clients, reads 1", Planted: "log-unsynced", Dir: t.TempDir()})
	if err != nil || sitting.Verdict != MistakeLost {
		t.Errorf("%+v, %v; want %q", sitting, err, MistakeLost)
	}
}

// TestDrawnScenarios: the same seed draws the same scenario, whose text reads back, and whose faults are of the kinds
// that were asked for.
func TestDrawnScenarios(t *testing.T) {
	asked, err := parseScenario(drawnPhrase + "kill disk")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for seed := range uint64(50) {
		x := asked.draw(seed, 20*time.Second)
		if again := asked.draw(seed, 20*time.Second); again.String() != x.String() {
			t.Errorf("seed %d draws\n%s\nand\n%s", seed, x, again)
		}
		if back, err := parseScenario(x.String()); err != nil || back.String() != x.String() {
			t.Errorf("seed %d: read back: %v\n%s\nwant\n%s", seed, err, back, x)
		}
		for _, e := range x.schedule {
			drawn[string(e.Fault.Verb)] = true
		}
	}
	delete(drawn, "restart") // of stores whose disks have failed
	delete(drawn, "clock")   // clocks disagree in half of the seeds
	if len(drawn) != 2 || !drawn["kill"] || !drawn["disk"] {
		t.Errorf("the verbs %v were drawn; want kill and disk", drawn)
	}
	for text, want := range map[string]string{
		"drawn faults kil":             `unknown fault "kil"; did you mean kill?`,
		"drawn faults all, 3 clients":  "stands alone",
		"1 clients\nat 1s: pausse 2":   "did you mean pause?",
		"1 clients, at 1s: pause 2, x": "is neither",
	} {
		if _, err := parseScenario(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseScenario(%q): %v; want %s", text, err, want)
		}
	}
}
