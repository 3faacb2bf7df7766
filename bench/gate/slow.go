package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/ab"
	"neokv.dev/bench/children"
	"neokv.dev/neokv/fault"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// slowName is the case of the figures of the slow lane.
const slowName = "slow lane"

// The figures of the slow lane.
const (
	bootFigure     = "boot time"
	memoryFigure   = "memory at rest"
	diskFigure     = "size on disk"
	failOverFigure = "fail-over time"
)

// mostSlow is the growth of memory and of the size on disk that must not pass. Times have the bound of service times.
const mostSlow = 0.10

const (
	slowRecords = 50_000          // of 100 bytes
	slowRest    = 3 * time.Second // until memory and disk are looked at
	slowKill    = time.Second     // a store is killed so long after the load began
	slowLoad    = 6 * time.Second // of which
	slowArm     = 12 * time.Second
)

// SlowLane returns what judges boot time, memory at rest, size on disk and fail-over time as t judges CPU time.
func (t *Timed) SlowLane() *Timed {
	slow := *t
	slow.Cases, slow.slow, slow.Joined = []TimedCase{{Name: slowName, OnDisk: true}}, true, nil
	slow.Rounds, slow.Impaired, slow.Budget = nil, nil, max(t.Budget, slow.Needs())
	return &slow
}

// slowRound measures the arms one after the other, in an order that is drawn at random.
func (t *Timed) slowRound(ctx context.Context, seed uint64) (r compare.Round, err error) {
	into := [arms]*[]results.Figure{&r.B, &r.A, &r.Control}
	for _, i := range t.random.Perm(arms) {
		arm := t.A
		if i == 0 {
			arm = t.B
		}
		if *into[i], err = slowFigures(ctx, arm, seed); err != nil {
			return r, err
		}
	}
	return r, nil
}

// slowFigures boots an arm on disk, loads it, lets it rest, and kills one of its stores under load.
func slowFigures(ctx context.Context, arm ab.Arm, seed uint64) (out []results.Figure, err error) {
	add := func(name, unit string, value float64) {
		out = append(out, results.Figure{Name: slowName + ": " + name, Unit: unit, Kind: results.Timed,
			Better: results.Lower, Value: value})
	}
	began := time.Now()
	target, err := children.Start(ctx, "", arm.Startable(false))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.Err(), target.Kill()) }()
	add(bootFigure, "us", float64(time.Since(began).Microseconds()))
	o := bench.Options{Targets: target.Addrs(), Seed: seed, Load: bench.LoadAlone, Groups: []bench.GroupOptions{{
		Workload: "ycsb-a", Clients: 4, Pipeline: 16, Records: slowRecords, Elements: 10, ValueSize: 100}}}
	if _, _, err := bench.Measure(ctx, o); err != nil {
		return nil, err
	}
	select {
	case <-time.After(slowRest):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	use, err := target.Use()
	if err != nil {
		return nil, err
	}
	add(memoryFigure, "B", float64(use.Memory))
	size, err := sizeOf(target.Dir())
	if err != nil {
		return nil, err
	}
	add(diskFigure, "B", float64(size))
	kill, err := bench.ParseEvent(slowKill.String() + " kill 1")
	if err != nil {
		return nil, err
	}
	o.Load, o.Duration, o.Events = bench.LoadedBefore, slowLoad, []bench.ScheduledEvent{kill}
	o.Groups[0].Pipeline = 1
	o.Inject = func(ctx context.Context, f fault.Fault) (string, error) { return inject(ctx, arm, target, f) }
	_, s, err := bench.Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	for _, e := range s.Events {
		if e.Error != "" {
			return nil, fmt.Errorf("%s: %s", e.Do, e.Error)
		}
	}
	add(failOverFigure, "us", float64(s.NoAnswer))
	return out, nil
}

// inject has a fault carried out by the arm's own program.
func inject(ctx context.Context, arm ab.Arm, target *children.Running, f fault.Fault) (string, error) {
	program := arm.Program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		program = self
	}
	args := append([]string{"ctl", "--control", target.Control()}, strings.Fields(f.String())...)
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("neokv %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// sizeOf returns the bytes of the files of a folder. Files may go meanwhile.
func sizeOf(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return bytes, err
}
