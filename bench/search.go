package bench

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/results"
)

// RateSearch makes a run try several rates of its first group of clients, each in a short step; the other groups send
// as they always do. Without Curve it looks for the highest rate that holds: at which the group keeps up with its
// schedule and the SLO is not broken. It then measures at that rate, to confirm it.
type RateSearch struct {
	SLO   SLO
	Curve bool // try rates over the whole range instead, and measure nothing else
	// Clients are numbers of clients that a curve tries in a closed loop, in place of rates. The first group has at
	// least as many clients; those beyond the number wait.
	Clients []int
	// Step is how long a rate is tried at least; 0 is three seconds. A step lasts until ten operations lie beyond the
	// highest percentile of the SLO, but not longer than MaxStep; 0 is a minute.
	Step, MaxStep time.Duration
}

// String says what the search looks for; "" for none.
func (s *RateSearch) String() string {
	if s == nil {
		return ""
	}
	text := "the highest rate"
	switch {
	case s.Clients != nil:
		text = results.Plural(int64(len(s.Clients)), "number") + " of clients"
	case s.Curve:
		text = "many rates"
	}
	text += fmt.Sprintf(", each for %s to %s", s.Step, s.MaxStep)
	if slo := s.SLO.String(); slo != "" {
		text += ", SLO " + slo
	}
	return text
}

const (
	usualStep    = 3 * time.Second
	usualMaxStep = time.Minute
	// beyond is how many operations lie beyond a percentile that is judged.
	beyond = 10
	// firstRate is where a search begins if the group has no rate.
	firstRate = 1000.0
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

// ClientsForms says which texts ParseClients takes.
const ClientsForms = "N,N,... or steps A..B by N"

// maxClientSteps is how many numbers of clients a curve has at most.
const maxClientSteps = 1000

// ParseClients reads numbers of clients to try: `1,2,4,8,16`, or `steps 10..100 by 10`. Each is 1 to 10,000.
func ParseClients(text string) (numbers []int, err error) {
	words := strings.Fields(text)
	var texts []string
	from, to, isRange := "", "", false
	if len(words) == 4 && words[0] == "steps" && words[2] == "by" {
		from, to, isRange = strings.Cut(words[1], "..")
		texts = []string{from, to, words[3]}
	} else {
		texts = strings.Split(strings.Join(words, ""), ",")
	}
	for _, t := range texts {
		n, err := strconv.Atoi(t)
		if err != nil || n < 1 || n > maxClients {
			return nil, fmt.Errorf("%q: want %s, each 1 to %d", text, ClientsForms, maxClients)
		}
		numbers = append(numbers, n)
	}
	if isRange {
		first, last, by := numbers[0], numbers[1], numbers[2]
		if last < first {
			by = -by
		}
		numbers = nil
		for n := first; n >= min(first, last) && n <= max(first, last); n += by {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) > maxClientSteps {
		return nil, fmt.Errorf("%q: %d numbers, want at most %d", text, len(numbers), maxClientSteps)
	}
	return numbers, nil
}

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

// rates returns the rates that are known beforehand, by the plan of the first group: where a search begins, or all of a
// curve.
func (s *RateSearch) rates(plan Pace) (rates []float64) {
	for _, part := range plan.parts {
		rates = append(rates, part.rate)
	}
	if rates == nil && !s.Curve {
		rates = []float64{firstRate}
	}
	return rates
}

// needs returns the highest percentile of the SLO, "" if that has none, and how many operations it needs.
func (s SLO) needs() (name string, operations int) {
	for _, t := range s.terms {
		if t.percentile <= 0 || t.percentile >= 100 {
			continue
		}
		if n := int(math.Ceil(beyond/(1-t.percentile/100) - 1e-6)); n > operations {
			name, _, _ = strings.Cut(t.text, "<")
			operations = n
		}
	}
	return name, operations
}

// tooLong says what is wrong with a rate that would have to be tried for longer than a step may last, "" if nothing is.
func (s *RateSearch) tooLong(rate float64) string {
	name, operations := s.SLO.needs()
	if seconds := float64(operations) / rate; seconds > s.MaxStep.Seconds() {
		length := time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond)
		return fmt.Sprintf("for %d operations beyond %s a step at %s/s would have to last %s, and it lasts %s at most",
			beyond, name, results.Count(int64(rate+0.5)), length, s.MaxStep)
	}
	return ""
}

// stepLength returns how long a plan of the first group must be followed to be judged.
func (r *run) stepLength(p Pace) time.Duration {
	_, operations := r.o.Search.SLO.needs()
	if !p.Open() || operations == 0 || r.o.Search.tooLong(p.parts[0].rate) != "" {
		return r.o.Search.Step
	}
	x := (&timetable{Pace: p, seed: r.o.Seed + salt(0)}).starts()
	for range operations - 1 {
		x.advance()
	}
	return max(r.o.Search.Step, x.at+1)
}

// try sends at a rate for a step, 0 in a closed loop, from so many clients, 0 from all, and adds what came of it to the
// curve. A little of the same load goes before, the first time all of the warm-up.
func (r *run) try(ctx context.Context, c *results.Curve, rate float64, clients int) (*results.Step, error) {
	g := r.groups[0]
	pace := g.o.Rate.atRate(rate)
	length := r.stepLength(pace)
	step := r.timed(results.PhaseStep, length, r.paces(pace))
	warmup := r.timed(results.PhaseWarmup, r.o.Search.Step/5, r.paces(pace.first()))
	if len(c.Rows) == 0 && r.o.Warmup > 0 {
		warmup = r.warmup(r.paces(pace.first()))
	}
	warmup.loads[0].clients, step.loads[0].clients = clients, clients
	took, err := r.phase(ctx, (*worker).send, warmup, step)
	c.Rows = append(c.Rows, results.Step{Rate: rate, Clients: clients, Seconds: took.Seconds(),
		GroupStats: g.stats(step, took.Seconds())})
	row := &c.Rows[len(c.Rows)-1]
	if rate == 0 {
		row.Rate, row.Why = row.Total.PerSecond, r.o.Search.SLO.broken(g.total.all())
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
	why := r.o.Search.SLO.broken(g.total.all())
	behind := float64(g.backlog) / float64(max(1, g.sum.Offered))
	v := rateVerdict{lags: behind > lagging, breaks: why != "", saturates: behind > saturated}
	r.verdicts[rate] = v
	var whys []string
	add := func(is bool, format string, args ...any) {
		if is {
			whys = append(whys, fmt.Sprintf(format, args...))
		}
	}
	add(v.breaks, "%s", why)
	add(v.lags, "%.0f %% not sent in time", 100*behind)
	if whys == nil {
		return ""
	}
	waited, _ := g.total.waited.Count()
	share := float64(waited) / float64(max(1, g.sum.Offered))
	add(share >= manyWaited, "%.0f %% waited for a free client", 100*share)
	late := g.total.late.AtMost(99)
	add(late >= lateGenerator, "the generator was late by p99 %s", results.Micros(late.Microseconds()))
	return strings.Join(whys, "; ")
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
	rate := r.o.Search.rates(r.groups[0].o.Rate)[0]
	for b := (bracket{}); rate > 0; rate = b.next() {
		if why := r.o.Search.tooLong(rate); why != "" {
			c.Stopped = why
			return nil
		}
		step, err := r.try(ctx, c, rate, 0)
		if err == nil && step.Why != "" && ctx.Err() == nil {
			step, err = r.try(ctx, c, rate, 0)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		b.add(rate, step.Why == "")
		c.Best = b.low
		if step.Why != "" {
			c.Above, c.Stopped = rate, step.Why
		}
	}
	if c.Above == 0 {
		c.Stopped = fmt.Sprintf("bench sends at most %s/s", results.Count(maxRate))
	}
	return nil
}

// curve tries numbers of clients, if there are any, else rates over the whole range: those of a plan of steps, or
// twelve up to 1.2 times what a closed loop gives.
func (r *run) curve(ctx context.Context, c *results.Curve) error {
	if numbers := r.o.Search.Clients; numbers != nil {
		for _, n := range numbers {
			if _, err := r.try(ctx, c, 0, n); err != nil || ctx.Err() != nil {
				return err
			}
		}
		return nil
	}
	rates := r.o.Search.rates(r.groups[0].o.Rate)
	if rates == nil {
		closed, err := r.try(ctx, c, 0, 0)
		if err != nil || ctx.Err() != nil {
			return err
		}
		closed.Why = "closed loop"
		for i := 1; i <= 12 && closed.Rate > 0; i++ {
			rates = append(rates, threeDigits(closed.Rate*float64(i)/10))
		}
	}
	for _, rate := range rates {
		if _, err := r.try(ctx, c, rate, 0); err != nil || ctx.Err() != nil {
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
		pace := r.groups[0].o.Rate.atRate(rate)
		length := max(r.o.Duration, r.stepLength(pace))
		if err := r.measure(ctx, s, length, r.paces(pace)); err != nil || ctx.Err() != nil {
			return err
		}
		why := r.judge(rate)
		if why == "" {
			s.Curve.Best, s.Curve.Confirmed = rate, true
			return nil
		}
		s.Curve.Above, s.Curve.Stopped = rate, why
		s.Curve.Rows = append(s.Curve.Rows, results.Step{Rate: rate, Seconds: s.Seconds,
			GroupStats: s.Groups[0].GroupStats, Why: why})
	}
	s.Warnings = append(s.Warnings, "no rate was confirmed: what held in a short step did not hold in a run")
	return nil
}
