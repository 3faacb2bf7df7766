package sim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
)

// simBatch runs seeds of a plan in child processes: a panic of any goroutine ends a process. The program calls Child.
type simBatch struct {
	job     // all seeds; children get parts of it
	plan    plan
	workers int // processes at once
	// stop reports whether no more seeds are to be begun, after a report; nil for never. It runs for one report at a
	// time.
	stop func(simReport) bool
	each func(*simBatch) // nil, or called after each report, one at a time

	mu      sync.Mutex
	next    int // of the job's runs
	stopped bool
	shown   *simReport // of the lowest seed that shows the planted mistake
	seeds   int
	seconds float64
	stats   simStats
	failed  []simReport
	broken  error // what kept children from their work
}

func newBatch(j job) (*simBatch, error) {
	p, err := j.parse()
	return &simBatch{job: j, plan: p, workers: runtime.NumCPU()}, err
}

// share scales a floor for 100 s of virtual time to so many runs of the batch.
func (b *simBatch) share(n, runs int) int {
	return int(int64(n) * b.Length.Milliseconds() * int64(runs) / 100_000)
}

// run runs the seeds of the job. An error says what kept it from that; what the seeds have shown is in b.
func (b *simBatch) run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range min(b.Count, b.workers) {
		wg.Go(func() {
			for {
				part := b.take()
				if part.Count == 0 || ctx.Err() != nil {
					return
				}
				if err := b.child(ctx, part); err != nil && ctx.Err() == nil {
					b.giveUp(err)
				}
			}
		})
	}
	wg.Wait()
	slices.SortFunc(b.failed, func(x, y simReport) int { return int(x.Seed) - int(y.Seed) })
	if b.broken != nil {
		return b.broken
	}
	return ctx.Err()
}

// take hands out the next few seeds, so that a process that dies takes few with it.
func (b *simBatch) take() (part job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 3
	if b.stop != nil && b.workers > 1 { // the others' seeds shall be near, since they are run to their end
		most = 1
	}
	part = b.job
	part.First, part.Count, part.Earlier = b.seed(b.next), min(most, b.Count-b.next), b.next
	if b.stopped {
		part.Count = 0
	}
	b.next += part.Count
	return part
}

func (b *simBatch) giveUp(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.broken == nil {
		b.broken = err
	}
}

// over reports whether no more seeds are to be begun.
func (b *simBatch) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// child runs a part of the job in a child process. If a seed ends the process, another one goes on with the next seed.
func (b *simBatch) child(ctx context.Context, part job) error {
	for part.Count > 0 && !b.over() {
		last, out, err := b.process(ctx, part)
		if last != nil && last.Ended && (last.Run == part.Count-1 && err == nil || b.over()) {
			return nil
		}
		if ctx.Err() != nil { // which has killed the process
			return ctx.Err()
		}
		if last == nil || last.Ended {
			return fmt.Errorf("child process for seeds from %d on: %w\n%s", part.First, err, tail(out))
		}
		last.Ended, last.Problem = true, fmt.Sprintf("process ended: %v\n%s", err, tail(out))
		last.Classes = []string{classOfEnd(err, out)}
		last.Kinds = evidenceOfEnd(out)
		b.add(*last)
		part.First, part.Count = part.seed(last.Run+1), part.Count-last.Run-1
		part.Earlier += last.Run + 1
	}
	return nil
}

// process is one child process. It adds up the reports, and returns the last one and what else the child printed. It
// ends the child between two seeds if no more are to be begun.
func (b *simBatch) process(ctx context.Context, part job) (last *simReport, out []byte, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	input, err := json.Marshal(part)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"=1", "GOMAXPROCS=1")
	var errors bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &errors
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		text, ok := bytes.CutPrefix(lines.Bytes(), []byte(simReportMark))
		if !ok {
			out = append(append(out, lines.Bytes()...), '\n')
			continue
		}
		last = new(simReport)
		if err := json.Unmarshal(text, last); err != nil {
			out = fmt.Appendf(out, "report %q: %v\n", text, err)
			last = nil
			cmd.Process.Kill()
			break
		}
		if last.Ended {
			b.add(*last)
			if b.over() && last.Run < part.Count-1 {
				cmd.Process.Kill()
				break
			}
		}
	}
	err = cmd.Wait()
	return last, append(out, errors.Bytes()...), err
}

func tail(out []byte) string {
	const most = 20000
	if len(out) > most {
		// A panic comes first, and then a long dump.
		if i := bytes.Index(out, []byte("panic")); i >= 0 {
			out = out[i:]
		}
		out = out[:min(most, len(out))]
	}
	return string(out)
}

// add adds up a report of a seed that has ended.
func (b *simBatch) add(r simReport) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seeds++
	b.seconds += r.Seconds
	for _, c := range counted {
		*c.in(&b.stats) += *c.in(&r.simStats)
	}
	b.stats.Served = max(b.stats.Served, r.Served)
	for x, n := range r.States {
		if b.stats.States == nil {
			b.stats.States = make(map[state]int)
		}
		b.stats.States[x] += n
	}
	want := least[b.plan.floors]
	if want := b.share(want.Acknowledged/4, 1); b.Mistake == "" && r.Problem == "" && r.Acknowledged < want {
		r.Problem = fmt.Sprintf("%d operations acknowledged; want at least %d", r.Acknowledged, want)
	}
	if r.Problem != "" {
		b.failed = append(b.failed, r)
	}
	if b.shows(r) && (b.shown == nil || b.shown.Seed > r.Seed) {
		b.shown = &r
	}
	b.stopped = b.stopped || b.stop != nil && b.stop(r)
	if b.each != nil {
		b.each(b)
	}
}

// shows reports whether a seed has found the plan's mistake, by the kind of evidence that it should give.
func (b *simBatch) shows(r simReport) bool {
	return slices.ContainsFunc(r.Kinds, b.plan.isShown)
}
