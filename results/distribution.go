package results

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Distribution is what is known of the latencies of operations, in microseconds. Of an operation without a good answer
// only a bound is known: it takes longer than it had waited when its time was over, or when it was answered with an
// error. Statistics calls such an observation censored.
type Distribution struct {
	Answered *hdrhistogram.Histogram // nil if there are none
	Censored *hdrhistogram.Histogram // how long the operations had waited; nil if there are none
}

// Answer takes in an operation that was answered after a time.
func (d *Distribution) Answer(took time.Duration) { record(&d.Answered, took, 1) }

// Censor takes in an operation that had no good answer after a time.
func (d *Distribution) Censor(waited time.Duration) { record(&d.Censored, waited, 1) }

// CensorAll takes in several of them.
func (d *Distribution) CensorAll(waited time.Duration, n int64) { record(&d.Censored, waited, n) }

// Merge takes in another distribution.
func (d *Distribution) Merge(from Distribution) {
	mergeHistogram(&d.Answered, from.Answered)
	mergeHistogram(&d.Censored, from.Censored)
}

// Reset empties the distribution and keeps its memory.
func (d *Distribution) Reset() {
	for _, h := range []*hdrhistogram.Histogram{d.Answered, d.Censored} {
		if count(h) > 0 {
			h.Reset()
		}
	}
}

// Count returns how many operations were answered, and of how many only a bound is known.
func (d Distribution) Count() (answered, censored int64) { return count(d.Answered), count(d.Censored) }

// Waited returns the distribution as if each operation had ended when its wait did, a lower bound of the true one; nil
// if there are no operations.
func (d Distribution) Waited() (h *hdrhistogram.Histogram) {
	if count(d.Censored) == 0 && count(d.Answered) > 0 {
		return d.Answered
	}
	mergeHistogram(&h, d.Answered)
	mergeHistogram(&h, d.Censored)
	return h
}

// Quantile is a percentile of latencies in microseconds, or their maximum.
type Quantile struct {
	US int64 `json:"us"`
	// AtLeast says that the true value is not known, and no less: it depends on operations without a good answer.
	AtLeast bool `json:"at_least,omitempty"`
}

// String prints the value, behind `>=` if it is a lower bound; `-` where there is none.
func (q Quantile) String() string {
	switch {
	case q.US == 0:
		return "-"
	case q.AtLeast:
		return ">= " + Micros(q.US)
	}
	return Micros(q.US)
}

// Quantiles returns percentiles; 100 is the maximum. Each is computed twice: as if censored operations had been
// answered when their wait ended, and as if they were never answered. If both print alike, that is the value.
func (d Distribution) Quantiles(percentiles ...float64) []Quantile {
	return d.quantiles(d.Waited(), percentiles...)
}

func (d Distribution) quantiles(waited *hdrhistogram.Histogram, percentiles ...float64) []Quantile {
	out := make([]Quantile, len(percentiles))
	if waited == nil {
		return out
	}
	for i, us := range waited.ValueAtPercentilesSlice(percentiles) {
		out[i].US = us
		if d.Censored != nil {
			out[i].AtLeast = Micros(us) != Micros(d.AtMost(percentiles[i]).Microseconds())
		}
	}
	return out
}

// AtMost returns a bound that a percentile does not pass, whenever censored operations would have been answered: what
// it is if they never were.
func (d Distribution) AtMost(percentile float64) time.Duration {
	answered, censored := d.Count()
	rank := max(1, math.Floor(percentile/100*float64(answered+censored)+0.5)) // as the library rounds it
	if rank > float64(answered) {
		return math.MaxInt64
	}
	return time.Duration(d.Answered.ValueAtPercentile(100*rank/float64(answered))) * time.Microsecond
}

// Latency returns the figures, on request with the histograms.
func (d Distribution) Latency(encode bool) Latency {
	waited := d.Waited()
	q := d.quantiles(waited, 50, 95, 99, 99.9, 100)
	l := Latency{P50: q[0], P95: q[1], P99: q[2], P999: q[3], Max: q[4], Censored: count(d.Censored)}
	if waited != nil {
		l.Mean = waited.Mean()
	}
	if encode {
		l.HDR, l.CensoredHDR = encodeHistogram(d.Answered), encodeHistogram(d.Censored)
	}
	return l
}

// Distribution decodes the histograms of a latency.
func (l *Latency) Distribution() (d Distribution, err error) {
	if l.HDR == "" && l.CensoredHDR == "" {
		return d, errors.New("no histogram recorded")
	}
	for _, x := range []struct {
		into **hdrhistogram.Histogram
		text string
	}{{&d.Answered, l.HDR}, {&d.Censored, l.CensoredHDR}} {
		if x.text == "" {
			continue
		}
		if *x.into, err = hdrhistogram.Decode([]byte(x.text)); err != nil {
			return d, err
		}
	}
	return d, nil
}

// quantiles returns the figures in the order in which tables have them, without the mean.
func (l *Latency) quantiles() []Quantile { return []Quantile{l.P50, l.P95, l.P99, l.P999, l.Max} }

// Known reports whether there was anything to measure.
func (l *Latency) Known() bool { return l != nil && l.Max.US > 0 }

// Bounds of histograms in microseconds, and their precision. A histogram that meets a value beyond its range gets a
// larger one.
const (
	lowestUS = 1
	usualUS  = 60_000_000
	forever  = 1 << 40 // longer than any run
	digits   = 3
)

// record adds a duration to a histogram, which it makes at the first, a number of times. It rounds up to a microsecond,
// so that nothing looks faster than it was.
func record(h **hdrhistogram.Histogram, d time.Duration, n int64) {
	us := min(max(int64((d+time.Microsecond-1)/time.Microsecond), lowestUS), forever)
	if *h == nil || us > (*h).HighestTrackableValue() {
		reach(h, min(2*us, forever)) // not a little more each time
	}
	if err := (*h).RecordValues(us, n); err != nil {
		panic(fmt.Sprintf("histogram refuses %d us: %v", us, err))
	}
}

// reach makes a histogram, or makes it larger, so that it has room for a value.
func reach(h **hdrhistogram.Histogram, us int64) {
	if *h != nil && us <= (*h).HighestTrackableValue() {
		return
	}
	larger := hdrhistogram.New(lowestUS, max(us, usualUS), digits)
	if *h != nil {
		larger.Merge(*h)
	}
	*h = larger
}

func mergeHistogram(into **hdrhistogram.Histogram, from *hdrhistogram.Histogram) {
	if count(from) == 0 {
		return
	}
	reach(into, min(from.HighestTrackableValue(), forever))
	(*into).Merge(from)
}

func count(h *hdrhistogram.Histogram) int64 {
	if h == nil {
		return 0
	}
	return h.TotalCount()
}

// encodeHistogram returns a histogram as it stands in a file, V2 compressed and base64; "" without values.
func encodeHistogram(h *hdrhistogram.Histogram) string {
	if count(h) == 0 {
		return ""
	}
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(fmt.Sprintf("encode histogram: %v", err)) // it writes to memory
	}
	return string(b)
}
