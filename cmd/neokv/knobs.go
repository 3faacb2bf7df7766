package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// This file reads what tune is told in words: knobs, the objective and subjects. It also writes a profile of what was
// chosen.

// parseKnobs reads the knobs. The settings in r are the defaults. resolve checks a value together with other settings.
func (f *tuneFlags) parseKnobs(r *profiles.Resolved, resolve func(set []string) error) (knobs []tuning.Knob,
	err error) {
	if len(f.knobs) == 0 {
		return nil, &usageError{"--knob: none given, want a setting and values, such as engine.memtable_size=4MiB..128MiB"}
	}
	var wrong []error
	complain := func(text string, err error) {
		wrong = append(wrong, &usageError{fmt.Sprintf("--knob %s: %v", profiles.Shown(text), err)})
	}
	for _, text := range f.knobs {
		k, err := parseKnob(text, r)
		if err != nil {
			complain(text, err)
			continue
		}
		if slices.ContainsFunc(knobs, func(other tuning.Knob) bool { return other.Setting == k.Setting }) {
			complain(text, fmt.Errorf("%s is there twice", k.Setting))
			continue
		}
		for _, value := range k.Values {
			if err := resolve(append(slices.Clone(f.set), k.Setting+"="+value)); err != nil {
				complain(text, fmt.Errorf("%s: %w", value, err))
			}
		}
		knobs = append(knobs, k)
	}
	return knobs, errors.Join(wrong...)
}

// parseKnob reads setting=value,value,... or setting=from..to. The default becomes one of the values.
func parseKnob(text string, r *profiles.Resolved) (k tuning.Knob, err error) {
	name, list, ok := strings.Cut(text, "=")
	if name = strings.TrimSpace(name); !ok || name == "" || strings.TrimSpace(list) == "" {
		return k, errors.New("want name=value,value,... or name=from..to")
	}
	field, err := settings.Find(r.Fields(), name)
	switch {
	case err != nil:
		return k, err
	case strings.HasPrefix(name, "load."):
		return k, errors.New("it is about the load, want a setting of cluster, engine, raft or redis")
	case field.Secret || field.Kind == settings.KindText && field.Range == string(settings.KindText):
		return k, errors.New("it makes nothing faster or slower")
	}
	k = tuning.Knob{Setting: name, Default: field.Get(), Shapes: field.Shapes}
	k.Ordered = field.Kind != settings.KindText && field.Kind != settings.KindBool
	if from, to, ok := strings.Cut(list, ".."); ok {
		if k.Values, err = field.Levels(strings.TrimSpace(from), strings.TrimSpace(to)); err != nil {
			return k, err
		}
	} else {
		for value := range strings.SplitSeq(list, ",") {
			normal, err := field.Normal(strings.TrimSpace(value))
			if err != nil {
				return k, err
			}
			if !slices.Contains(k.Values, normal) {
				k.Values = append(k.Values, normal)
			}
		}
	}
	if !slices.Contains(k.Values, k.Default) {
		k.Values = append(k.Values, k.Default)
	}
	if len(k.Values) < 2 {
		return k, fmt.Errorf("%s is the default, want another value, too", k.Default)
	}
	if k.Ordered {
		slices.SortFunc(k.Values, func(a, b string) int { return field.Compare(a, b) })
	}
	return k, nil
}

// tuneFigure is a figure that an objective or a subject may name.
type tuneFigure struct {
	figure string
	better results.Direction
	form   string // of a limit
	limit  func(text string) (float64, error)
}

var tuneFigureOf = map[string]tuneFigure{
	"throughput":              {"throughput", results.Higher, "a number of operations per second", plainNumber},
	"p50":                     {"p50", results.Lower, "a time such as 5ms", microseconds},
	"p95":                     {"p95", results.Lower, "a time such as 5ms", microseconds},
	"p99":                     {"p99", results.Lower, "a time such as 5ms", microseconds},
	"p99.9":                   {"p99.9", results.Lower, "a time such as 5ms", microseconds},
	"cpu":                     {"CPU", results.Lower, "a time such as 50us", microseconds},
	"errors":                  {"errors", results.Lower, "a share such as 0.1%", shareOf},
	tuning.Memory:             {tuning.Memory, results.Lower, "a size such as 1GiB", sizeOf},
	tuning.WriteAmplification: {tuning.WriteAmplification, results.Lower, "a number", plainNumber},
}

// tuneFigures lists the figures that can be made less.
func tuneFigures() []string {
	return []string{"p50", "p95", "p99", "p99.9", "cpu", "memory", "write-amplification"}
}

func plainNumber(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

func microseconds(text string) (float64, error) {
	d, err := time.ParseDuration(text)
	return float64(d) / float64(time.Microsecond), err
}

func shareOf(text string) (float64, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0, errors.New("no %")
	}
	x, err := strconv.ParseFloat(percent, 64)
	return x / 100, err
}

func sizeOf(text string) (float64, error) {
	n, err := settings.ParseBytes(text)
	return float64(n), err
}

// parseObjective reads `max throughput` or `min FIGURE`.
func parseObjective(text string) (o tuning.Objective, err error) {
	way, name, _ := strings.Cut(strings.TrimSpace(text), " ")
	f, ok := tuneFigureOf[strings.TrimSpace(name)]
	if !ok || f.figure == "errors" || (way == "max") != (f.better == results.Higher) || way != "max" && way != "min" {
		return o, &usageError{fmt.Sprintf("--objective %q: want max throughput, or min with one of %s%s", text,
			strings.Join(tuneFigures(), ", "), settings.DidYouMean(strings.TrimSpace(name), tuneFigures()))}
	}
	return tuning.Objective{Figure: f.figure, Better: f.better}, nil
}

// parseSubjects reads subjects such as `p99<10ms,throughput>20000`.
func parseSubjects(text string) (out []tuning.Subject, err error) {
	var wrong []error
	for part := range strings.SplitSeq(text, ",") {
		part = strings.ReplaceAll(strings.TrimSpace(part), " ", "")
		at := strings.IndexAny(part, "<>")
		if at < 0 {
			wrong = append(wrong, &usageError{fmt.Sprintf("--subject %q: want FIGURE<LIMIT or FIGURE>LIMIT", part)})
			continue
		}
		f, ok := tuneFigureOf[part[:at]]
		if !ok {
			names := append([]string{"throughput", "errors"}, tuneFigures()...)
			wrong = append(wrong, &usageError{fmt.Sprintf("--subject %q: %q is unknown, want one of %s%s", part, part[:at],
				strings.Join(names, ", "), settings.DidYouMean(part[:at], names))})
			continue
		}
		limit, err := f.limit(part[at+1:])
		if err != nil || !(limit >= 0) {
			wrong = append(wrong, &usageError{fmt.Sprintf("--subject %q: limit %q: want %s", part, part[at+1:], f.form)})
			continue
		}
		out = append(out, tuning.Subject{Text: part, Figure: f.figure, Below: part[at] == '<', Limit: limit})
	}
	return out, errors.Join(wrong...)
}

// chosenProfile returns a profile in YAML: the settings in which a plan with a winner differs from the profile default.
// A winner of nil is the plan's own default.
func chosenProfile(plan *tuning.StudyPlan, winner []string) (string, error) {
	base, err := profiles.Resolve(profiles.ValueSources{})
	if err != nil {
		return "", err
	}
	chosen, err := profiles.Resolve(profiles.ValueSources{Profile: plan.Profile, Set: slices.Concat(plan.Set, winner)})
	if err != nil {
		return "", err
	}
	out := &yaml.Node{Kind: yaml.MappingNode}
	add := func(to *yaml.Node, key string, value *yaml.Node) {
		to.Content = append(to.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	about := fmt.Sprintf("Take it for loads like %s; tuned on %s for %s.", plan.Load.Workload,
		plan.Started.UTC().Format(time.DateOnly), plan.Objective)
	if winner == nil {
		about += " The default won."
	}
	add(out, "about", &yaml.Node{Kind: yaml.ScalarNode, Value: about})
	sections := map[string]*yaml.Node{}
	before := base.Values()
	for i, v := range chosen.Values() {
		section, key, _ := strings.Cut(v.Name, ".")
		if section == "load" || v.Value == before[i].Value {
			continue
		}
		if sections[section] == nil {
			sections[section] = &yaml.Node{Kind: yaml.MappingNode}
			add(out, section, sections[section])
		}
		add(sections[section], key, &yaml.Node{Kind: yaml.ScalarNode, Value: v.Value})
	}
	text, err := yaml.Marshal(out)
	return string(text), err
}
