package tune

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"neokv.dev/results/tuning"
)

// estimator is a Tree-structured Parzen Estimator over the values of some knobs (Bergstra et al., NIPS 2011, section
// 4). It takes the best trials for one sample of configurations and the others for a second one. For each knob it draws
// values as the best ones had them, and keeps the value that they had most often compared with the others.
type estimator struct {
	knobs  []tuning.Knob
	random *rand.Rand
	told   []told // the best first
}

// told is a configuration with what it was worth.
type told struct {
	values []int // places of the values, in the order of the knobs
	worth  float64
}

// With more values drawn, and less left open, the estimator repeats what it knows.
const (
	// bestShare is one over the share of trials that count as the best.
	bestShare = 4
	// drawn is how many values of a knob are drawn, of which the most promising one is kept.
	drawn = 2
	// open is how many trials all values of a knob share, so that none is ruled out.
	open = 3
)

// ask returns the configuration that promises most.
func (e *estimator) ask() (set []string) {
	best := (len(e.told) + bestShare - 1) / bestShare
	for i, k := range e.knobs {
		good, bad := e.density(i, e.told[:best]), e.density(i, e.told[best:])
		value := e.draw(good)
		for range drawn - 1 {
			if v := e.draw(good); good[v]*bad[value] > good[value]*bad[v] {
				value = v
			}
		}
		if x := k.Values[value]; x != k.Default {
			set = append(set, k.Setting+"="+x)
		}
	}
	return set
}

// density returns how often trials had each value of a knob. Where values have an order a trial also speaks for the
// neighbours of its own.
func (e *estimator) density(knob int, trials []told) []float64 {
	k := e.knobs[knob]
	out := make([]float64, len(k.Values))
	for v := range out {
		out[v] = open / float64(len(out))
	}
	for _, t := range trials {
		v := t.values[knob]
		if !k.Ordered {
			out[v]++
			continue
		}
		out[v] += 0.5
		out[max(v-1, 0)] += 0.25
		out[min(v+1, len(out)-1)] += 0.25
	}
	return out
}

// draw draws a place with chances that are in proportion to weights.
func (e *estimator) draw(weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	at := e.random.Float64() * sum
	for v, w := range weights {
		if at -= w; at < 0 {
			return v
		}
	}
	return len(weights) - 1
}

// tell says what a configuration was worth. It must change none but the knobs of the estimator.
func (e *estimator) tell(set []string, worth float64) {
	t := told{worth: worth}
	for _, k := range e.knobs {
		t.values = append(t.values, slices.Index(k.Values, valueIn(set, k)))
	}
	e.told = append(e.told, t)
	slices.SortStableFunc(e.told, func(a, b told) int { return cmp.Compare(b.worth, a.worth) })
}

// knows reports whether a configuration changes none but the knobs of the estimator.
func (e *estimator) knows(set []string) bool {
	changed := 0
	for _, k := range e.knobs {
		if valueIn(set, k) != k.Default {
			changed++
		}
	}
	return changed == len(set)
}

// valueIn returns the value of a knob in a configuration.
func valueIn(set []string, k tuning.Knob) string {
	for _, x := range set {
		if name, value, _ := strings.Cut(x, "="); name == k.Setting {
			return value
		}
	}
	return k.Default
}
