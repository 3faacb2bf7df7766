package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// CountedLoad is a fixed number of operations of one client, for counting what they cost. The same seed gives the same
// operations in the same order, so the same program does nearly the same work.
type CountedLoad struct {
	Workload   string
	Pipeline   int
	Operations int
	Records    uint64
	Elements   int
	ValueSize  int
	Seed       uint64
}

// countedIdle is how long the target is watched before and after, while it has nothing to do. It is well below the half
// second after which a store at rest flushes.
const countedIdle = 200 * time.Millisecond

// CountWork loads the records, sends the operations to one address that takes any key, and returns the work per
// operation. It takes off what the target does in the background by itself, at the rate at which it does that while
// idle. An error reply is an error.
func CountWork(ctx context.Context, addr, password string, l CountedLoad) ([]results.Figure, error) {
	w, err := workloads.Find(l.Workload)
	if err != nil {
		return nil, err
	}
	src, err := workloads.NewSource(w, workloads.SourceOptions{
		Records: l.Records, Elements: l.Elements, ValueSize: l.ValueSize, Clients: 1, Seed: l.Seed,
	})
	if err != nil {
		return nil, err
	}
	nc, err := dialer(nil, password)(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	c := &countingClient{loadConn: loadConn{epoch: time.Now(), timeout: usualTimeout}, src: src}
	c.attach(nc)
	g := src.Generator(0)
	for item := uint64(0); item < src.Loaded(); item += loadBatch {
		err = c.batch(int(min(loadBatch, src.Loaded()-item)), func(i int) { g.Load(&c.request, item+uint64(i)) })
		if err != nil {
			return nil, err
		}
	}
	work, err := c.work(g, l.Operations, l.Pipeline)
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return work.Figures(int64(l.Operations)), nil
}

// loadBatch is how many records are loaded at once.
const loadBatch = 16

// countingClient is the client of a CountedLoad.
type countingClient struct {
	loadConn
	src     *workloads.Source
	request workloads.Request
	steps   []workloads.RequestStep
}

// work sends the operations and returns what the target did for them. It looks at the idle target before and after, and
// takes the lesser rate of each counter: what happens once, such as the end of a boot, is no rate.
func (c *countingClient) work(g *workloads.Generator, operations, pipeline int) (results.Work, error) {
	var looks [4]map[string]int64
	var at [4]time.Time
	for i := range looks {
		var err error
		switch i {
		case 1, 3:
			time.Sleep(countedIdle)
		case 2:
			for done := 0; done < operations && err == nil; done += pipeline {
				err = c.batch(min(pipeline, operations-done), func(int) { g.Next(&c.request) })
			}
		}
		if err != nil {
			return nil, err
		}
		if at[i], looks[i], err = c.look(); err != nil {
			return nil, err
		}
	}
	work := results.Work{}
	for name, n := range looks[2] {
		grew := func(i int) float64 { return float64(looks[i][name] - looks[i-1][name]) }
		took := func(i int) float64 { return at[i].Sub(at[i-1]).Seconds() }
		work[name] = n - looks[1][name] - int64(min(grew(1)/took(1), grew(3)/took(3))*took(2))
	}
	return work, nil
}

// look reads the counters.
func (c *countingClient) look() (at time.Time, counts map[string]int64, err error) {
	v, err := c.call("INFO", "neokv")
	if text, ok := v.(string); ok {
		counts = readCounts(text)
	}
	if err == nil && len(counts) == 0 {
		err = errors.New("the target has no INFO neokv")
	}
	return time.Now(), counts, err
}

// batch sends n requests at once and reads their replies.
func (c *countingClient) batch(n int, next func(i int)) error {
	c.out, c.steps = c.out[:0], c.steps[:0]
	for i := range n {
		next(i)
		for _, step := range c.request.Steps {
			c.out = appendRequest(c.out, step.Args...)
			step.Args, step.Key = nil, nil
			c.steps = append(c.steps, step)
		}
	}
	if err := c.flush(c.now()); err != nil {
		return err
	}
	for _, step := range c.steps {
		reply, err := c.read(maxDepth, keepNone)
		if err != nil {
			return err
		}
		if reply.kind == '-' {
			return fmt.Errorf("the target answers %q", reply.text)
		}
		if step.Insert {
			c.src.Inserted(step.Kind, step.Record, true)
		}
	}
	return nil
}
