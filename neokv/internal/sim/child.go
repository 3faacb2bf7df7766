package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
)

// job is what a child process does: it runs seeds of a plan, one after the other.
type job struct {
	Plan    string        // planOf reads it
	Mistake string        // its name if one is planted
	First   uint64        // seed
	Count   int           // of seeds
	Same    bool          // run the first seed so many times
	Length  time.Duration // of a run
	Earlier int           // runs of the whole job, before those of this part
	Branch  time.Duration // when runs leave the one that the seed makes, each for another future; 0 for never
	Real    bool          // in real time
	Keep    bool          // keep the history of runs in which nothing was found, too
	Dir     string        // for histories; "" for the system's folder of temporary files
}

// seed returns the i-th seed.
func (j *job) seed(i int) uint64 {
	if j.Same {
		return j.First
	}
	return j.First + uint64(i)
}

// parse returns the job's plan, with the mistake to plant.
func (j *job) parse() (plan, error) {
	p, err := planOf(j.Plan)
	if err != nil || j.Mistake == "" || j.Mistake == p.mistake.name {
		return p, err
	}
	p.mistake, err = mistakeOf(j.Mistake)
	return p, err
}

// simulate runs a seed, and returns what it has to report.
func (j *job) simulate(t *testing.T, p plan, run int) simReport {
	r, start := simReport{Run: run, Seed: j.seed(run), Ended: true}, time.Now()
	s := &sim{seed: j.seed(run), keep: j.Keep, dir: j.Dir, real: j.Real}
	if j.Branch > 0 {
		s.branch = branch{j.Branch, j.Earlier + run + 1}
	}
	inside := func(run func()) { synctest.Test(t, func(*testing.T) { run() }) }
	var err error
	if s.config.InMemory, s.config.NoSockets = !j.Real, !j.Real; j.Real {
		inside = func(run func()) { run() }
		s.config.Dir, err = os.MkdirTemp(j.Dir, "neokv-torture-")
		defer os.RemoveAll(s.config.Dir)
	}
	if err == nil {
		err = s.record(p, j.Mistake != "", j.Length, inside)
	}
	if err != nil {
		r.Problem = err.Error()
	}
	r.simStats, r.Kinds, r.Classes, r.Seconds = s.stats, s.kinds, s.classes, time.Since(start).Seconds()
	return r
}

// childVariable in the environment makes a program that calls Child a child process. It reads a job from its standard
// input, and reports on each seed with lines of JSON: one when the seed begins, and one with Ended set.
const childVariable = "NEOKV_SIM_CHILD"

// simReport is such a line. If the last one is not Ended, its seed has ended the process.
type simReport struct {
	Run     int // of the job, from 0
	Seed    uint64
	Ended   bool
	Problem string
	Kinds   []evidence // of all problems
	Classes []string   // of all problems; see classOf
	Seconds float64
	simStats
}

const simReportMark = "SIM "

func (r *simReport) print() {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s%s\n", simReportMark, text)
}

// Child returns at once, unless a batch has started this process as its child. Then it does the child's work and ends
// the process. A program that runs batches calls it before anything else.
func Child() {
	if os.Getenv(childVariable) == "" {
		return
	}
	os.Unsetenv(childVariable)
	os.Args = os.Args[:1]
	var j job
	err := json.NewDecoder(os.Stdin).Decode(&j)
	p, parsed := j.parse()
	if err = errors.Join(err, parsed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	neokv.LogRaft(io.Discard)
	debug.SetGCPercent(400)     // a seventh less CPU; the heap of a run is small
	run := func(t *testing.T) { // a bubble of virtual time needs a test
		for i := range j.Count {
			r := simReport{Run: i, Seed: j.seed(i)}
			r.print()
			r = j.simulate(t, p, i)
			r.print()
		}
	}
	testing.Main(func(string, string) (bool, error) { return true, nil },
		[]testing.InternalTest{{Name: "seeds", F: run}}, nil, nil)
}
