package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/bench"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
	"neokv.dev/workloads"
)

// options turns the settings and flags of the load into options. If no seed is given it picks one, which the booted
// cluster uses, too. Its error names everything that is wrong.
func (f *benchFlags) options(c *cobra.Command, l profiles.LoadKnobs) (bench.Options, error) {
	var wrong mistakes
	complain := func(err error) { wrong.check(err == nil, "%v", err) }
	for l.Seed == 0 {
		l.Seed = rand.Uint64() >> 11 // exact also where JSON's numbers are doubles
	}
	o := bench.Options{Duration: l.Duration, Seed: l.Seed, Verify: f.verify, LeaveCore: leaveCore,
		Inject: func(ctx context.Context, x fault.Fault) (string, error) { return f.inject(ctx, x) }}
	o.Warmup, o.WarmupAuto, _ = profiles.ParseWarmup(l.Warmup) // the settings have been checked
	o.Interval = f.interval
	first := bench.GroupOptions{
		Workload: l.Workload, Clients: l.Clients, Pipeline: l.Pipeline, Records: uint64(l.Records),
		Elements: l.Elements, ValueSize: int(l.ValueSize), Operations: f.operations,
	}
	if f.commands != nil {
		first.Commands, first.Workload = f.commands, workloads.CommandsName(f.commands)
		for _, name := range []string{"workload", "records", "replay"} {
			wrong.check(!c.Flags().Changed(name), "--command says what is sent and to how many keys; --%s is for a load "+
				"without it", name)
		}
	}
	first.Rate, _ = bench.ParsePace(l.Rate)
	err := parseSlots(&first, f.pipelineSlots)
	wrong.check(err == nil, "--pipeline-slots %s: %v", f.pipelineSlots, err)
	if f.replay != "" {
		recording, err := bench.ReadReplay(f.replay, f.speed)
		complain(err)
		if first.Replay = recording; recording != nil && !c.Flags().Changed("clients") {
			first.Clients = min(recording.Clients(), 10_000)
		}
		if !c.Flags().Changed("duration") {
			o.Duration = 0
		}
		wrong.check(!c.Flags().Changed("workload"), "--replay sends a recording; --workload is for a load without one")
	} else {
		wrong.check(!c.Flags().Changed("speed"), "--speed is for --replay")
	}
	if f.curveClients != "" {
		numbers, err := bench.ParseClients(f.curveClients)
		wrong.check(err == nil, "--curve-clients %v", err)
		for _, name := range []string{"curve", "find-max", "clients", "rate", "operations", "replay"} {
			wrong.check(!c.Flags().Changed(name), "--curve-clients tries numbers of clients in a closed loop; --%s is "+
				"for a load without it", name)
		}
		o.Search = &bench.RateSearch{Curve: true, Step: f.step, MaxStep: f.maxStep, Clients: numbers}
		if numbers != nil {
			first.Clients, first.Rate = slices.Max(numbers), bench.Pace{}
		}
	}
	o.Groups = append(o.Groups, first)
	for _, text := range f.groups {
		g, err := parseGroup(text, first)
		complain(err)
		o.Groups = append(o.Groups, g)
	}
	for _, text := range f.at {
		e, err := bench.ParseEvent(text)
		complain(err)
		o.Events = append(o.Events, e)
	}
	if f.schedule != "" {
		events, err := readSchedule(f.schedule)
		complain(err)
		o.Events = append(o.Events, events...)
	}
	if f.findMax || f.curve {
		o.Search = &bench.RateSearch{Curve: f.curve, Step: f.step, MaxStep: f.maxStep}
	}
	if f.slo != "" {
		s, err := bench.ParseSLO(f.slo)
		complain(err)
		if o.SLO = s; o.Search != nil {
			o.Search.SLO = s
		}
	}
	if changed := c.Flags().Changed; changed("operations") {
		wrong.check(f.operations > 0, "--operations %d: want 1 or more", f.operations)
		wrong.check(!changed("warmup"), "--operations sends them from the beginning; --warmup is for runs of some time")
		if !changed("duration") {
			o.Duration = 0
		}
	}
	switch {
	case f.loadOnly && f.noLoad:
		wrong.check(false, "--load-only and --no-load exclude each other")
	case f.loadOnly:
		for _, name := range []string{"find-max", "curve", "curve-clients", "verify", "replay", "slo", "operations", "rate",
			"duration", "warmup", "at", "schedule"} {
			wrong.check(!c.Flags().Changed(name),
				"--load-only sends nothing but the records; --%s is for what follows", name)
		}
		o.Load, o.Warmup, o.WarmupAuto = bench.LoadAlone, 0, false
	case f.noLoad:
		wrong.check(f.target != "" || c.Flags().Changed("dir"),
			"--no-load: a cluster that is booted for this run has no records; want --target or --dir")
		o.Load = bench.LoadedBefore
	}
	wrong.check(!f.findMax || !f.curve, "--find-max and --curve exclude each other")
	wrong.check(o.Search != nil || f.step == 0 && f.maxStep == 0,
		"--step and --max-step are for --find-max, --curve and --curve-clients")
	wrong.check(!f.findMax || f.slo != "", "--find-max: want --slo, %s", bench.SLOForms)
	return o, errors.Join(wrong...)
}

// maxSchedule bounds the size of a file of events.
const maxSchedule = 1 << 20

func readSchedule(path string) ([]bench.ScheduledEvent, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSchedule+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxSchedule:
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxSchedule)
	}
	return bench.ReadSchedule(path, text)
}

// groupWords set the fields of a group, by the words of --group.
var groupWords = map[string]func(g *bench.GroupOptions, value string) error{
	"name": func(g *bench.GroupOptions, value string) error {
		g.Name = value
		return nil
	},
	"workload": func(g *bench.GroupOptions, value string) error {
		g.Workload, g.Commands = value, nil
		return nil
	},
	"clients":  func(g *bench.GroupOptions, value string) error { return parseWhole(&g.Clients, value) },
	"pipeline": func(g *bench.GroupOptions, value string) error { return parseWhole(&g.Pipeline, value) },
	"elements": func(g *bench.GroupOptions, value string) error { return parseWhole(&g.Elements, value) },
	"records": func(g *bench.GroupOptions, value string) error {
		var n int
		err := parseWhole(&n, value)
		g.Records = uint64(max(0, n))
		return err
	},
	"pipeline-slots": parseSlots,
	"rate": func(g *bench.GroupOptions, value string) (err error) {
		g.Rate, err = bench.ParsePace(value)
		return err
	},
	"value-size": func(g *bench.GroupOptions, value string) error {
		n, err := settings.ParseBytes(value)
		if err != nil {
			return fmt.Errorf("want %s", settings.KindBytes)
		}
		g.ValueSize = int(n)
		return nil
	},
}

func parseSlots(g *bench.GroupOptions, value string) (err error) {
	g.Slots, err = bench.ParsePipelineSlots(value)
	return err
}

func parseWhole(into *int, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil {
		return errors.New("want a whole number")
	}
	*into = n
	return nil
}

var groupForm = "any of " + strings.Join(slices.Sorted(maps.Keys(groupWords)), ", ")

// parseGroup reads a --group, `name=value name=value ...`. A value may have several words. What the text leaves out is
// as in first, the rate too; only the name is that of the workload.
func parseGroup(text string, first bench.GroupOptions) (bench.GroupOptions, error) {
	g := first
	g.Name = ""
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("--group %q: %s", text, fmt.Sprintf(format, args...)))
	}
	var names []string
	values := map[string]string{}
	for _, word := range strings.Fields(text) {
		name, value, ok := strings.Cut(word, "=")
		switch {
		case !ok && len(names) == 0:
			complain("%s: want name=value, %s", word, groupForm)
		case !ok:
			values[names[len(names)-1]] += " " + word
		case slices.Contains(names, name):
			complain("%s is there twice", name)
		default:
			names = append(names, name)
			values[name] = value
		}
	}
	if len(names) == 0 && len(wrong) == 0 {
		complain("empty, want %s", groupForm)
	}
	for _, name := range names {
		set, known := groupWords[name]
		if !known {
			complain("%s: unknown, want %s%s", name, groupForm,
				settings.DidYouMean(name, slices.Sorted(maps.Keys(groupWords))))
		} else if err := set(&g, values[name]); err != nil {
			complain("%s=%s: %s", name, values[name], err)
		}
	}
	return g, errors.Join(wrong...)
}
