package ab

import (
	"fmt"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// In an open loop the generator may send operations late, since it has no core when they are due. Response times have
// that in them, and no figure has it subtracted. A round in which it could pass for a difference of the arms is void,
// as a whole: to leave out one block, or to correct it, would favour an arm.

const (
	// repeats is how often a void round is measured again.
	repeats = 3
	// sloPart is the part of the SLO that the lateness may take.
	sloPart = 10
)

// measured measures a round until it is not void.
func (p *Plan) measured(round int, measure func() ([]compare.Block, error)) ([]compare.Block, error) {
	for try := 0; ; try++ {
		blocks, err := measure()
		if err != nil {
			return nil, err
		}
		switch why := p.void(blocks); {
		case why == "":
			return blocks, nil
		case try == repeats:
			return nil, fmt.Errorf("this could not be measured: the round was void %d times, at last because %s; give "+
				"a lower rate, or a larger effect, or the machine less to do", 1+repeats, why)
		case p.Void != nil:
			p.Void(round, why)
		}
	}
}

// void says why a round says nothing about its arms, "" if it does.
func (p *Plan) void(blocks []compare.Block) string {
	for _, at := range []struct {
		name string
		of   func(*results.Latency) results.Quantile
	}{
		{"p50", func(l *results.Latency) results.Quantile { return l.P50 }},
		{"p99", func(l *results.Latency) results.Quantile { return l.P99 }},
	} {
		var first, last *compare.Block // the one that was late least, and most
		fastest := int64(0)            // response time of all arms
		late := func(b *compare.Block) int64 { return at.of(b.Summary.Generator.Late).US }
		for i := range blocks {
			b := &blocks[i]
			response := b.Summary.Groups[0].Total.Response
			if b.Summary.Generator.Late == nil || response == nil {
				return "" // a closed loop
			}
			if first == nil || late(b) < late(first) {
				first = b
			}
			if last == nil || late(b) > late(last) {
				last = b
			}
			if us := at.of(response).US; i == 0 || us < fastest {
				fastest = us
			}
		}
		if slo := p.SLO.Microseconds(); at.name == "p99" && slo > 0 && late(last) > slo/sloPart {
			return fmt.Sprintf("operations of arm %s left late by %s %s, more than a tenth of %s", last.Side, at.name,
				results.Micros(late(last)), p.SLO)
		}
		if d := late(last) - late(first); p.Effect > 0 && float64(d) > p.Effect*float64(fastest) {
			return fmt.Sprintf("operations left late by %s %s in arm %s and by %s in arm %s, which differs by more "+
				"than %.3g %% of their response time of %s", at.name, results.Micros(late(last)), last.Side,
				results.Micros(late(first)), first.Side, 100*p.Effect, results.Micros(fastest))
		}
	}
	return ""
}
