package tune

import (
	"errors"
	"slices"
	"strings"

	"github.com/c-bata/goptuna"
	"github.com/c-bata/goptuna/tpe"

	"neokv.dev/results/tuning"
)

// estimator is a Tree-structured Parzen Estimator over the values of some knobs. The library draws some of its choices
// from a source that nobody can seed. So two studies with one seed search differently; a file has what was chosen.
type estimator struct {
	study *goptuna.Study
	knobs []tuning.Knob
}

func newEstimator(knobs []tuning.Knob, seed uint64) (*estimator, error) {
	study, err := goptuna.CreateStudy("tune", goptuna.StudyOptionLogger(nil), goptuna.StudyOptionIgnoreError(true),
		goptuna.StudyOptionDirection(goptuna.StudyDirectionMaximize),
		goptuna.StudyOptionSampler(tpe.NewSampler(tpe.SamplerOptionSeed(int64(seed>>1)),
			tpe.SamplerOptionNumberOfStartupTrials(0))))
	return &estimator{study, knobs}, err
}

// errAsked ends a trial of the library without a value, so that it does not count.
var errAsked = errors.New("asked")

// ask returns the configuration that promises most.
func (e *estimator) ask() (set []string, err error) {
	var failed error
	err = e.study.Optimize(func(trial goptuna.Trial) (float64, error) {
		set, failed = e.values(trial)
		return 0, errAsked
	}, 1)
	return set, errors.Join(failed, err)
}

// tell says what a configuration was worth. It must change none but the knobs of the estimator.
func (e *estimator) tell(set []string, worth float64) error {
	params := map[string]float64{}
	for _, k := range e.knobs {
		params[k.Setting] = float64(slices.Index(k.Values, valueIn(set, k)))
	}
	if err := e.study.EnqueueTrial(params); err != nil {
		return err
	}
	var failed error
	err := e.study.Optimize(func(trial goptuna.Trial) (float64, error) {
		_, failed = e.values(trial)
		return worth, failed
	}, 1)
	return errors.Join(failed, err)
}

// values returns the configuration of a trial of the library. Values without an order are categories.
func (e *estimator) values(trial goptuna.Trial) (set []string, err error) {
	for _, k := range e.knobs {
		value := ""
		if k.Ordered {
			var i int
			i, err = trial.SuggestInt(k.Setting, 0, len(k.Values)-1)
			value = k.Values[min(max(i, 0), len(k.Values)-1)]
		} else {
			value, err = trial.SuggestCategorical(k.Setting, k.Values)
		}
		if err != nil {
			return nil, err
		}
		if value != k.Default {
			set = append(set, k.Setting+"="+value)
		}
	}
	return set, nil
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
