package sim

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// RepeatOptions say what TortureRepeat runs.
type RepeatOptions struct {
	TortureOptions     // Seeds, Real, Shrink and findings have no meaning here
	Times          int // how often the seed runs
	// Ran is called when so many runs have ended, one at a time; it may be nil.
	Ran func(runs int)
}

// Repeat says how much runs of one seed resemble each other. The trace of a run has, in order and with their virtual
// times, the calls of all clients with their replies, and all faults.
type Repeat struct {
	Runs, Failed int
	Traces       int // different ones
	Equal        int // runs behind the first one that have its trace
	// Apart is where each of the others leaves the first run, in order of time; Earliest is the first of these.
	Apart    []time.Duration
	Earliest *TraceDifference // nil if all traces are equal
}

// TraceDifference is the first line in which two traces differ. A line is "" behind the end of its trace.
type TraceDifference struct {
	At           time.Duration // since the run began, of the first run's line or the last one before it
	Line         int           // from 1
	First, Other string
}

// TortureRepeat runs a seed several times in virtual time, each in a process of its own, and compares the traces.
func TortureRepeat(ctx context.Context, o RepeatOptions) (*Repeat, error) {
	o.Seeds, o.Tries = 1, 0
	err := o.Validate()
	if o.Real {
		err = errors.Join(err, errors.New("traces are of virtual time"))
	}
	if o.Times < 2 || o.Times > 1000 {
		err = errors.Join(err, fmt.Errorf("%d times: want 2 to 1000", o.Times))
	}
	if err != nil {
		return nil, err
	}
	j, err := o.job()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(o.Dir, "neokv-traces-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	j.Count, j.Keep = 1, true
	first := filepath.Join(dir, "0")
	out, hashes := &Repeat{}, map[[sha256.Size]byte]bool{}
	var mu sync.Mutex
	one := func(n int) error {
		j := j
		j.Dir = filepath.Join(dir, fmt.Sprint(n))
		failed, hash, err := j.trace(ctx)
		if err != nil {
			return err
		}
		var d *TraceDifference
		if n > 0 {
			if d, err = differenceOf(first, j.Dir); err != nil {
				return err
			}
			if err := os.RemoveAll(j.Dir); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		hashes[hash] = true
		out.Runs, out.Traces = out.Runs+1, len(hashes)
		if failed {
			out.Failed++
		}
		switch {
		case n == 0:
		case d == nil:
			out.Equal++
		default:
			if out.Apart = append(out.Apart, d.At); out.Earliest == nil || d.At < out.Earliest.At {
				out.Earliest = d
			}
		}
		if o.Ran != nil {
			o.Ran(out.Runs)
		}
		return nil
	}
	if err := one(0); err != nil {
		return nil, err
	}
	numbers := make(chan int)
	errs := make([]error, runtime.NumCPU())
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for n := range numbers {
				if errs[i] == nil {
					errs[i] = one(n)
				}
			}
		})
	}
	for n := 1; n < o.Times; n++ {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
	slices.Sort(out.Apart)
	return out, errors.Join(errs...)
}

// trace runs the job's seed, and leaves the trace in the job's folder.
func (j *job) trace(ctx context.Context) (failed bool, hash [sha256.Size]byte, err error) {
	if err := os.Mkdir(j.Dir, 0o777); err != nil {
		return false, hash, err
	}
	b, err := newBatch(*j)
	if err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return false, hash, err
	}
	file, err := openTrace(j.Dir)
	if err != nil {
		return false, hash, err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return false, hash, err
	}
	return len(b.failed) > 0, [sha256.Size]byte(sum.Sum(nil)), nil
}

// openTrace opens the history of the one run that has a folder to itself.
func openTrace(dir string) (*os.File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.history"))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("%s: the histories %q, %v; want one", dir, names, err)
	}
	return os.Open(names[0])
}

// differenceOf compares the traces in two folders. It returns nil if they are equal.
func differenceOf(a, b string) (*TraceDifference, error) {
	first, err := openTrace(a)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	other, err := openTrace(b)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	return traceDifference(first, other)
}

// traceDifference returns where one trace leaves another one, nil if they are equal.
func traceDifference(first, other io.Reader) (*TraceDifference, error) {
	one, two := bufio.NewReader(first), bufio.NewReader(other)
	d := TraceDifference{}
	for d.Line = 1; ; d.Line++ {
		x, err := one.ReadString('\n')
		y, other := two.ReadString('\n')
		for _, err := range []error{err, other} {
			if err != nil && err != io.EOF {
				return nil, err
			}
		}
		if fields := strings.Fields(x); len(fields) > 0 {
			if at, err := time.ParseDuration(fields[0]); err == nil {
				d.At = at
			}
		}
		if x != y {
			d.First, d.Other = strings.TrimSpace(x), strings.TrimSpace(y)
			return &d, nil
		}
		if x == "" {
			return nil, nil
		}
	}
}
