package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Pace is the plan of an open loop: at which rate the operations of a group of clients start, from the beginning of a
// phase on, and whether they start evenly or at random. The rate is that of all clients together. The zero Pace is a
// closed loop. Nothing changes a Pace.
//
// The plan is a function over time, the number of operations that are due by then. An operation starts where this
// function reaches its number. With jitter a random part of 1 is added to each number, so an operation starts anywhere
// between its even start and the next one. Random starts put the sums of exponential gaps in the place of numbers: that
// is a Poisson process of the same rate, also of a rate that changes (Devroye, "Non-Uniform Random Variate Generation",
// chapter VI, theorem 1.4).
type Pace struct {
	text   string
	spread spread
	parts  []pacePart // in the order of time; the last has no end
}

// spread says how starts lie about the rate of a plan. It is the word that stands in front of the plan.
type spread string

const (
	even    spread = ""
	jitter  spread = "jitter"
	poisson spread = "poisson"
)

// pacePart is a part of a plan in which the rate is constant or changes evenly.
type pacePart struct {
	from   float64 // when it begins, in seconds
	before float64 // operations due before it
	rate   float64 // operations per second at its beginning
	growth float64 // how much the rate grows in a second
}

// PaceForms says which texts ParsePace takes.
const PaceForms = "N per second, ramp A..B TIME, or steps A..B by N every TIME, with poisson in front for random " +
	"starts, jitter for starts that are even but for a random part of their gap; 0 for a closed loop"

const wantPace = "want " + PaceForms

const (
	maxRate  = 1e8
	maxSteps = 10_000
	// maxDuration is the longest that a run may last.
	maxDuration = 7 * 24 * time.Hour
)

// Steady returns a plan of evenly spaced starts, a closed loop for 0.
func Steady(rate float64) Pace {
	p := Pace{text: strconv.FormatFloat(rate, 'f', -1, 64)}
	if rate > 0 {
		p.parts = []pacePart{{rate: rate}}
	}
	return p
}

// ParsePace reads a plan: a rate such as 20000, 0 for a closed loop, `ramp 1000..20000 60s`, or `steps 1000..20000 by
// 1000 every 10s`. When a ramp or the steps are over their last rate stays. With `poisson` or `jitter` in front the
// starts are random. The plan prints as it was typed.
func ParsePace(text string) (Pace, error) {
	words := strings.Fields(text)
	p := Pace{text: strings.Join(words, " ")}
	if len(words) > 0 && (words[0] == string(poisson) || words[0] == string(jitter)) {
		p.spread, words = spread(words[0]), words[1:]
	}
	var err error
	switch {
	case len(words) == 1:
		var rate float64
		if rate, err = parseRate(words[0]); rate > 0 {
			p.parts = []pacePart{{rate: rate}}
		} else if p.spread != even && err == nil {
			err = errors.New("a closed loop has no arrivals")
		}
	case len(words) == 3 && words[0] == "ramp":
		err = p.ramp(words[1], words[2])
	case len(words) == 6 && words[0] == "steps" && words[2] == "by" && words[4] == "every":
		err = p.steps(words[1], words[3], words[5])
	default:
		err = errors.New(wantPace)
	}
	if err != nil {
		return Pace{}, fmt.Errorf("rate %q: %w", text, err)
	}
	return p, nil
}

func parseRate(text string) (float64, error) {
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number; %s", text, wantPace)
	}
	if !(rate >= 0 && rate <= maxRate) {
		return 0, fmt.Errorf("%s, want 0 to %g operations per second", text, maxRate)
	}
	return rate, nil
}

// parseRates reads the two rates of A..B.
func parseRates(text string) (a, b float64, err error) {
	from, to, ok := strings.Cut(text, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%q, want two rates A..B", text)
	}
	a, errA := parseRate(from)
	b, errB := parseRate(to)
	if err = cmp.Or(errA, errB); err == nil && a == b {
		err = fmt.Errorf("%q, want two different rates", text)
	}
	return a, b, err
}

func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > maxDuration {
		return 0, fmt.Errorf("time %q, want a duration from 1ms to %.0fh", text, maxDuration.Hours())
	}
	return d, nil
}

func (p *Pace) ramp(rates, length string) error {
	a, b, errRates := parseRates(rates)
	d, errTime := parseTime(length)
	if err := errors.Join(errRates, errTime); err != nil {
		return err
	}
	p.parts = []pacePart{{rate: a, growth: (b - a) / d.Seconds()}}
	p.follow(d.Seconds(), b)
	return nil
}

func (p *Pace) steps(rates, by, every string) error {
	a, b, errRates := parseRates(rates)
	step, errStep := parseRate(by)
	d, errTime := parseTime(every)
	if err := errors.Join(errRates, errStep, errTime); err != nil {
		return err
	}
	if n := math.Abs(b-a) / step; a == 0 || !(n <= maxSteps) {
		return fmt.Errorf("%s by %s, want at most %d steps, the first of more than 0", rates, by, maxSteps)
	}
	p.parts = []pacePart{{rate: a}}
	for i := 1; float64(i)*step <= math.Abs(b-a); i++ {
		p.follow(float64(i)*d.Seconds(), a+math.Copysign(float64(i)*step, b-a))
	}
	return nil
}

// follow lets another rate begin.
func (p *Pace) follow(from, rate float64) {
	p.parts = append(p.parts, pacePart{from: from, before: p.dueBy(from), rate: rate})
}

// Open reports whether the plan is one of an open loop.
func (p Pace) Open() bool { return len(p.parts) > 0 }

// ramps reports whether the rate changes evenly anywhere.
func (p Pace) ramps() bool {
	return slices.ContainsFunc(p.parts, func(x pacePart) bool { return x.growth != 0 })
}

// String returns the text from which the plan was read.
func (p Pace) String() string { return cmp.Or(p.text, "0") }

// first returns the plan that keeps the rate with which p begins.
func (p Pace) first() Pace {
	if !p.Open() {
		return p
	}
	return Pace{text: p.text, spread: p.spread, parts: []pacePart{{rate: p.parts[0].rate}}}
}

// atRate returns the plan of a constant rate, with starts spread as those of p are.
func (p Pace) atRate(rate float64) Pace {
	q := Steady(rate)
	if q.spread = p.spread; q.spread != even && q.Open() {
		q.text = string(q.spread) + " " + q.text
	}
	return q
}

// then returns the plan that is p up to an instant, and q from there on. Starts are random if they are in p.
func (p Pace) then(at time.Duration, q Pace) Pace {
	seconds := at.Seconds()
	n := sort.Search(len(p.parts), func(i int) bool { return p.parts[i].from >= seconds })
	before := p.dueBy(seconds)
	p.parts = slices.Clone(p.parts[:n])
	for _, part := range q.parts {
		part.from += seconds
		part.before += before
		p.parts = append(p.parts, part)
	}
	return p
}

// dueBy returns how many operations the plan has up to an instant, as a fraction.
func (p *Pace) dueBy(seconds float64) float64 {
	n := sort.Search(len(p.parts), func(i int) bool { return p.parts[i].from > seconds })
	if n == 0 {
		return 0
	}
	x := &p.parts[n-1]
	t := seconds - x.from
	return x.before + t*(x.rate+x.growth*t/2)
}

// at returns the instant at which so many operations are due.
func (p *Pace) at(due float64) time.Duration {
	x := &p.parts[0]
	if len(p.parts) > 1 {
		x = &p.parts[max(1, sort.Search(len(p.parts), func(i int) bool { return p.parts[i].before > due }))-1]
	}
	var t float64 // since the part's beginning
	switch left := due - x.before; {
	case x.growth != 0:
		// The solution of rate*t + growth/2*t*t = left, in the form that does not cancel digits.
		t = 2 * left / (x.rate + math.Sqrt(max(0, x.rate*x.rate+2*x.growth*left)))
		if left == 0 {
			t = 0 // not 0/0, of a ramp from 0
		}
	case x.rate > 0:
		t = left / x.rate
	case left > 0:
		return never
	}
	if t = (x.from + t) * float64(time.Second); t < float64(never) {
		return time.Duration(t)
	}
	return never
}

// timetable is a plan for the clients of a group over a phase, whatever the target does. No start is left out. If no
// client is free an operation leaves late; response time shows that, as it counts from the intended start.
type timetable struct {
	Pace
	length time.Duration // nothing starts then or later
	seed   uint64        // of random starts
}

// starts goes through the intended starts of a timetable, in order.
type starts struct {
	table *timetable
	rng   *rand.Rand // nil if starts are even
	n     float64    // operations before this one; of random starts the sum of the gaps so far
	at    time.Duration
}

func (t *timetable) starts() starts {
	s := starts{table: t}
	if t.spread != even { // the generators of requests have the numbers upwards from 0
		s.rng = rand.New(rand.NewPCG(t.seed, math.MaxUint64))
	}
	if t.spread == poisson {
		s.n = s.rng.ExpFloat64()
	}
	s.place()
	return s
}

func (s *starts) advance() {
	if s.table.spread == poisson {
		s.n += s.rng.ExpFloat64()
	} else {
		s.n++
	}
	s.place()
}

// place sets when the present operation starts.
func (s *starts) place() {
	due := s.n
	if s.table.spread == jitter {
		due += s.rng.Float64()
	}
	s.at = s.table.at(due)
}

// startsAhead is how many starts clients find computed. It bounds how long they wait for the one that computes more.
const startsAhead = 128

// sharedStarts hands each start of a timetable to one client, in order: to the first that asks. Clients share no lock,
// but each time that startsAhead have been taken: they take places in a chunk by its counter.
type sharedStarts struct {
	chunk atomic.Pointer[startChunk]
	mu    sync.Mutex // over rest
	rest  starts     // behind the chunk
}

type startChunk struct {
	taken atomic.Int64 // may be more than there are
	at    [startsAhead]time.Duration
}

func newSharedStarts(t *timetable) *sharedStarts {
	s := &sharedStarts{rest: t.starts()}
	s.more(nil)
	return s
}

// more puts the next chunk in the place of one that has been taken.
func (s *sharedStarts) more(taken *startChunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chunk.Load() != taken {
		return
	}
	c := new(startChunk)
	for i := range c.at {
		c.at[i] = s.rest.at
		s.rest.advance()
	}
	s.chunk.Store(c)
}

// take takes the next start.
func (s *sharedStarts) take() time.Duration {
	for {
		c := s.chunk.Load()
		if i := c.taken.Add(1) - 1; i < startsAhead {
			return c.at[i]
		}
		s.more(c)
	}
}

// takeDue takes the next start if it is not after an instant.
func (s *sharedStarts) takeDue(by time.Duration) (at time.Duration, ok bool) {
	for {
		c := s.chunk.Load()
		switch i := c.taken.Load(); {
		case i >= startsAhead:
			s.more(c)
		case c.at[i] > by:
			return 0, false
		case c.taken.CompareAndSwap(i, i+1):
			return c.at[i], true
		}
	}
}

// dueCounter counts starts as time goes on.
type dueCounter struct {
	table *timetable
	n     int64
	ahead starts // of random starts, the first that is not counted
}

func newDueCounter(t *timetable) *dueCounter { return &dueCounter{table: t, ahead: t.starts()} }

// upTo returns how many operations have a start at or before an instant. The instants of calls must not go back.
func (d *dueCounter) upTo(at time.Duration) int64 {
	at = min(at, d.table.length-1)
	if at < 0 {
		return 0
	}
	if d.table.spread != even {
		for ; d.ahead.at <= at; d.ahead.advance() {
			d.n++
		}
		return d.n
	}
	d.n = int64(d.table.dueBy(at.Seconds())) + 1
	// This count and what at returns are each rounded, so they may disagree by one.
	for d.n > 0 && d.table.at(float64(d.n-1)) > at {
		d.n--
	}
	for d.table.at(float64(d.n)) <= at {
		d.n++
	}
	return d.n
}

// next returns the first start behind those that upTo has counted.
func (d *dueCounter) next() time.Duration {
	if d.table.spread != even {
		return d.ahead.at
	}
	return d.table.at(float64(d.n))
}
