package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"neokv.dev/results"
)

// RateSearch makes a run try several rates of its first group of clients, each in a short step; the other groups send
// as they always do. Without Curve it looks for the highest rate that holds: at which the group keeps up with its
// schedule and the SLO is not broken. It then measures at that rate, to confirm it.
type RateSearch struct {
	SLO   SLO
	Curve bool          // try rates over the whole range instead, and measure nothing else
	Step  time.Duration // how long a rate is tried; 0 is three seconds
}

// String says what the search looks for; "" for none.
func (s *RateSearch) String() string {
	if s == nil {
		return ""
	}
	text := "the highest rate"
	if s.Curve {
		text = "many rates"
	}
	text += ", each for " + s.Step.String()
	if slo := s.SLO.String(); slo != "" {
		text += ", SLO " + slo
	}
	return text
}

const (
	usualStep = 3 * time.Second
	// firstRate is where a search begins if the group has no rate.
	firstRate = 1000
	// closeEnough is the ratio of the lowest rate that does not hold to the highest that does at which a search ends.
	closeEnough = 1.05
	// lowerRate is what a rate is multiplied with if a run does not confirm it. After a number of runs the search gives
	// up.
	lowerRate     = 0.9
	confirmations = 3
	// lagging and saturated are shares of the offered operations that had not begun when the schedule ended.
	lagging   = 0.01
	saturated = 0.05
)

// bracket holds what a search knows of the highest rate that holds.
type bracket struct {
	low, high float64 // the highest rate that held, and the lowest above it that did not; 0 if there is none yet
}

// add takes in how a rate did.
func (b *bracket) add(rate float64, held bool) {
	if held {
		b.low = rate
	} else {
		b.high = rate
	}
}

// next returns the rate to try next, 0 if the search is over. It doubles or halves the rate until it has both bounds,
// then tries the middle.
func (b *bracket) next() float64 {
	switch {
	case b.low >= maxRate, b.low == 0 && b.high <= 1:
		return 0
	case b.high == 0:
		return min(2*b.low, maxRate)
	case b.low == 0:
		return max(1, b.high/2)
	case b.high/b.low <= closeEnough:
		return 0
	}
	if middle := threeDigits((b.low + b.high) / 2); middle > b.low && middle < b.high {
		return middle
	}
	return 0
}

// threeDigits rounds to three digits, so that rates are easy to read.
func threeDigits(rate float64) float64 {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(rate, 'g', 3, 64), 64)
	if err != nil {
		panic(err) // it has just been printed
	}
	return rounded
}

// paces returns the plans of all groups if the first has this one.
func (r *run) paces(first Pace) func(*loadGroup) Pace {
	return func(g *loadGroup) Pace {
		if g.number == 0 {
			return first
		}
		return g.o.Rate
	}
}

// try sends at a rate for a step, 0 in a closed loop, and adds what came of it to the curve. A little of the same load
// goes before, the first time all of the warm-up.
func (r *run) try(ctx context.Context, c *results.Curve, rate float64) (*results.Step, error) {
	g, length := r.groups[0], r.o.Search.Step
	pace := g.o.Rate.atRate(rate)
	step := r.timed(results.PhaseStep, length, r.paces(pace))
	warmup := r.timed(results.PhaseWarmup, length/5, r.paces(pace.first()))
	if len(c.Rows) == 0 && r.o.Warmup > 0 {
		warmup = r.warmup(r.paces(pace.first()))
	}
	took, err := r.phase(ctx, (*worker).send, warmup, step)
	c.Rows = append(c.Rows, results.Step{Rate: rate, Seconds: took.Seconds(), GroupStats: g.stats(step, took.Seconds())})
	row := &c.Rows[len(c.Rows)-1]
	if rate == 0 {
		row.Rate = row.Total.PerSecond
		return row, err
	}
	row.Why = r.judge(rate)
	return row, err
}

// rateVerdict says how a rate did when it was last tried.
type rateVerdict struct{ lags, breaks, saturates bool }

// judge says why a rate did not hold in the segment that has just ended, "" if it did.
func (r *run) judge(rate float64) string {
	g := r.groups[0]
	why := r.o.Search.SLO.broken(g.total.all(), g.sum)
	behind := float64(g.backlog) / float64(max(1, g.sum.Offered))
	v := rateVerdict{lags: behind > lagging, breaks: why != "", saturates: behind > saturated}
	if r.verdicts[rate] = v; v.lags {
		if why != "" {
			why += "; "
		}
		why += fmt.Sprintf("%.0f %% not sent in time", 100*behind)
	}
	return why
}

// mark sets the rates of the curve from which on it lags, breaks the SLO, and saturates. If a higher rate did not, a
// rate did so by chance.
func (r *run) mark(c *results.Curve) {
	c.Lags, c.Breaks, c.Saturates = 0, 0, 0
	for _, rate := range slices.Sorted(maps.Keys(r.verdicts)) {
		v := r.verdicts[rate]
		for _, m := range []struct {
			from *float64
			is   bool
		}{{&c.Lags, v.lags}, {&c.Breaks, v.breaks}, {&c.Saturates, v.saturates}} {
			switch {
			case !m.is:
				*m.from = 0
			case *m.from == 0:
				*m.from = rate
			}
		}
	}
}

// findMax looks for the highest rate that holds. A rate that does not hold has a second try, since a short step can
// fall into a pause of the machine.
func (r *run) findMax(ctx context.Context, c *results.Curve) error {
	rate := float64(firstRate)
	if p := r.groups[0].o.Rate; p.Open() {
		rate = p.parts[0].rate
	}
	for b := (bracket{}); rate > 0; rate = b.next() {
		step, err := r.try(ctx, c, rate)
		if err == nil && step.Why != "" && ctx.Err() == nil {
			step, err = r.try(ctx, c, rate)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		b.add(rate, step.Why == "")
		c.Best = b.low
	}
	return nil
}

// curve tries rates over the whole range: those of a plan of steps, else twelve up to 1.2 times what a closed loop
// gives.
func (r *run) curve(ctx context.Context, c *results.Curve) error {
	var rates []float64
	for _, part := range r.groups[0].o.Rate.parts {
		rates = append(rates, part.rate)
	}
	if rates == nil {
		closed, err := r.try(ctx, c, 0)
		if err != nil || ctx.Err() != nil {
			return err
		}
		closed.Why = "closed loop"
		for i := 1; i <= 12 && closed.Rate > 0; i++ {
			rates = append(rates, threeDigits(closed.Rate*float64(i)/10))
		}
	}
	for _, rate := range rates {
		if _, err := r.try(ctx, c, rate); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// search tries rates. It returns the rate at which to measure, 0 for none.
func (r *run) search(ctx context.Context, c *results.Curve) (float64, error) {
	defer r.mark(c)
	if r.o.Search.Curve {
		return 0, r.curve(ctx, c)
	}
	err := r.findMax(ctx, c)
	return c.Best, err
}

// confirm measures at the best rate that a search has found, or at a lower one if that does not hold. It leaves the
// figures of the last run.
func (r *run) confirm(ctx context.Context, s *results.Summary) error {
	defer r.mark(s.Curve)
	for rate, try := s.Curve.Best, 0; try < confirmations; rate, try = threeDigits(rate*lowerRate), try+1 {
		s.Curve.Measured = rate
		if err := r.measure(ctx, s, r.paces(r.groups[0].o.Rate.atRate(rate))); err != nil || ctx.Err() != nil {
			return err
		}
		why := r.judge(rate)
		if why == "" {
			s.Curve.Best, s.Curve.Confirmed = rate, true
			return nil
		}
		s.Curve.Rows = append(s.Curve.Rows, results.Step{Rate: rate, Seconds: s.Seconds,
			GroupStats: s.Groups[0].GroupStats, Why: why})
	}
	s.Warnings = append(s.Warnings, "no rate was confirmed: what held in a short step did not hold in a run")
	return nil
}
