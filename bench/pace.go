package bench

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Pace is the plan of an open loop: at which rate the operations of a group of clients start, from the beginning of a
// phase on, and whether they start evenly or at random. The rate is that of all clients together. The zero Pace is a
// closed loop. Nothing changes a Pace.
//
// The plan is a function over time, the number of operations that are due by then. An operation starts where this
// function reaches its number. Random starts put the sums of exponential gaps in the place of numbers: that is a
// Poisson process of the same rate, also of a rate that changes (Devroye, "Non-Uniform Random Variate Generation",
// chapter VI, theorem 1.4). Each client has gaps of its own, as many times longer as there are clients, since the sum
// of Poisson processes is one of the sum of their rates.
type Pace struct {
	text    string
	poisson bool
	parts   []pacePart // in the order of time; the last has no end
}

// pacePart is a part of a plan in which the rate is constant or changes evenly.
type pacePart struct {
	from   float64 // when it begins, in seconds
	before float64 // operations due before it
	rate   float64 // operations per second at its beginning
	growth float64 // how much the rate grows in a second
}

// PaceForms says which texts ParsePace takes.
const PaceForms = "N per second, ramp A..B TIME, or steps A..B by N every TIME, with poisson in front for random " +
	"starts; 0 for a closed loop"

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
// 1000 every 10s`. When a ramp or the steps are over their last rate stays. With `poisson` in front the starts are
// random. The plan prints as it was typed.
func ParsePace(text string) (Pace, error) {
	words := strings.Fields(text)
	p := Pace{text: strings.Join(words, " ")}
	if len(words) > 0 && words[0] == "poisson" {
		p.poisson, words = true, words[1:]
	}
	var err error
	switch {
	case len(words) == 1:
		var rate float64
		if rate, err = parseRate(words[0]); rate > 0 {
			p.parts = []pacePart{{rate: rate}}
		} else if p.poisson && err == nil {
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
	return Pace{text: p.text, poisson: p.poisson, parts: []pacePart{{rate: p.parts[0].rate}}}
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

// timetable is a plan for the clients of a group over a phase, whatever the target does. Of evenly spaced starts,
// client c of k has those of the operations c, c+k, c+2k and so on. A client skips no operation. If it falls behind it
// sends late; response time shows that, as it counts from the intended start.
type timetable struct {
	Pace
	length  time.Duration // nothing starts then or later
	clients int
	seed    uint64 // of random starts
}

// clientStarts are the intended starts of one client, in order.
type clientStarts struct {
	table *timetable
	rng   *rand.Rand // nil if starts are even
	due   float64    // how many operations of all clients are due at the next start
	at    time.Duration
}

// client returns the starts of one client.
func (t *timetable) client(i int) clientStarts {
	s := clientStarts{table: t, due: float64(i)}
	if t.poisson { // the generators of requests have the numbers upwards from 0
		s.rng = rand.New(rand.NewPCG(t.seed, ^uint64(i)))
		s.due = s.gap()
	}
	s.at = t.at(s.due)
	return s
}

// next returns the next start, since the beginning of the phase, and whether there is one.
func (s *clientStarts) next() (time.Duration, bool) { return s.at, s.at < s.table.length }

func (s *clientStarts) advance() {
	s.due += s.gap()
	s.at = s.table.at(s.due)
}

// gap returns the next gap, in operations of all clients.
func (s *clientStarts) gap() float64 {
	if s.rng == nil {
		return float64(s.table.clients)
	}
	return s.rng.ExpFloat64() * float64(s.table.clients)
}

// dueCounter counts the starts of all clients together as time goes on.
type dueCounter struct {
	table *timetable
	n     int64
	heap  startHeap // of random starts, the next one first
}

func newDueCounter(t *timetable) *dueCounter {
	d := &dueCounter{table: t}
	if t.poisson {
		for i := range t.clients {
			d.heap = append(d.heap, t.client(i))
		}
		heap.Init(&d.heap)
	}
	return d
}

// upTo returns how many operations have a start at or before an instant. The instants of calls must not go back.
func (d *dueCounter) upTo(at time.Duration) int64 {
	at = min(at, d.table.length-1)
	if at < 0 {
		return 0
	}
	if d.heap != nil {
		for ; d.heap[0].at <= at; d.n++ {
			d.heap[0].advance()
			heap.Fix(&d.heap, 0)
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
	if d.heap != nil {
		return d.heap[0].at
	}
	return d.table.at(float64(d.n))
}

// startHeap implements heap.Interface.
type startHeap []clientStarts

func (h startHeap) Len() int           { return len(h) }
func (h startHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h startHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *startHeap) Push(any)          { panic("a heap of all clients does not grow") }
func (h *startHeap) Pop() any          { panic("a heap of all clients does not shrink") }
