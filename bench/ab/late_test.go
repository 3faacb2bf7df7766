package ab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// lateBlock is a block with response times, and a generator that was late, in microseconds.
func lateBlock(side compare.Side, p50, p99, late50, late99 int64) compare.Block {
	latency := func(p50, p99 int64) *results.Latency {
		return &results.Latency{P50: results.Quantile{US: p50}, P99: results.Quantile{US: p99}}
	}
	b := compare.Block{Side: side}
	b.Summary.Groups = []results.GroupSummary{{}}
	b.Summary.Groups[0].Total.Response = latency(p50, p99)
	b.Summary.Generator.Late = latency(late50, late99)
	return b
}

// When the lateness of the generator could pass for a difference of the arms.
func TestVoid(t *testing.T) {
	a, again := lateBlock(compare.SideA, 400, 2000, 50, 150), lateBlock(compare.SideAgain, 410, 2100, 55, 160)
	closed := compare.Block{Side: compare.SideB}
	closed.Summary.Groups = []results.GroupSummary{{}}
	for _, c := range []struct {
		name   string
		b      compare.Block
		effect float64
		slo    time.Duration
		want   string
	}{
		{"as late as the others", lateBlock(compare.SideB, 300, 1500, 56, 170), 0.05, 0, ""},
		{"p50", lateBlock(compare.SideB, 440, 2000, 71, 150), 0.05, 0,
			"operations left late by p50 71 us in arm B and by 50 us in arm A, which differs by more than 5 % of " +
				"their response time of 400 us"},
		{"p99", lateBlock(compare.SideB, 400, 2000, 50, 251), 0.05, 0,
			"late by p99 251 us in arm B and by 150 us in arm A"},
		{"a smaller effect", lateBlock(compare.SideB, 400, 2000, 50, 172), 0.01, 0, "more than 1 % of"},
		{"no effect is claimed", lateBlock(compare.SideB, 400, 2000, 900, 1900), 0, 0, ""},
		{"all are late alike, but for the SLO", lateBlock(compare.SideB, 400, 2000, 50, 161), 0.05,
			1600 * time.Microsecond, "operations of arm B left late by p99 161 us, more than a tenth of 1.6ms"},
		{"within the SLO", lateBlock(compare.SideB, 400, 2000, 50, 160), 0.05, 1600 * time.Microsecond, ""},
		{"closed loop", closed, 0.05, time.Millisecond, ""},
	} {
		p := Plan{Effect: c.effect, SLO: c.slo}
		got := p.void([]compare.Block{a, c.b, again})
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A void round is measured again as a whole, three times at most.
func TestVoidRoundsAreRepeated(t *testing.T) {
	good := []compare.Block{lateBlock(compare.SideA, 400, 2000, 50, 150), lateBlock(compare.SideB, 400, 2000, 50, 151)}
	bad := []compare.Block{good[0], lateBlock(compare.SideB, 400, 2000, 50, 1500)}
	for void, want := range map[int]string{0: "", 3: "", 4: "this could not be measured: the round was void 4 times"} {
		told, calls := 0, 0
		p := Plan{Effect: 0.05, Void: func(round int, why string) {
			if told++; round != 7 || !strings.Contains(why, "1.50 ms in arm B") {
				t.Errorf("round %d is void: %s", round, why)
			}
		}}
		blocks, err := p.measured(7, func() ([]compare.Block, error) {
			if calls++; calls <= void {
				return bad, nil
			}
			return good, nil
		})
		switch {
		case want == "" && (err != nil || calls != void+1 || told != void ||
			blocks[1].Summary.Generator.Late.P99.US != 151):
			t.Errorf("%d void: %d tries, %d told, %v", void, calls, told, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || calls != 4 || told != 3):
			t.Errorf("%d void: %v after %d tries, want %q", void, err, calls, want)
		}
	}
	failed := errors.New("no server")
	if _, err := (&Plan{}).measured(0, func() ([]compare.Block, error) { return nil, failed }); err != failed {
		t.Errorf("%v, want the error of the round", err)
	}
}
