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

// countedIdle is how long the target is watched while it has nothing to do.
const countedIdle = time.Second

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
	c := &counted{loadConn: loadConn{epoch: time.Now(), timeout: usualTimeout}, src: src}
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

// counted is the client of a CountedLoad.
type counted struct {
	loadConn
	src     *workloads.Source
	request workloads.Request
	steps   []workloads.RequestStep
}

// work sends the operations and returns what the target did for them.
func (c *counted) work(g *workloads.Generator, operations, pipeline int) (results.Work, error) {
	var looks [3]map[string]int64
	var at [3]time.Time
	look := func(i int) (err error) {
		at[i] = time.Now()
		v, err := c.call("INFO", "neokv")
		if text, ok := v.(string); ok {
			looks[i] = readCounts(text)
		}
		if err == nil && len(looks[i]) == 0 {
			err = errors.New("the target has no INFO neokv")
		}
		return err
	}
	err := look(0)
	if err == nil {
		time.Sleep(countedIdle)
		err = look(1)
	}
	for done := 0; done < operations && err == nil; done += pipeline {
		err = c.batch(min(pipeline, operations-done), func(int) { g.Next(&c.request) })
	}
	if err == nil {
		err = look(2)
	}
	if err != nil {
		return nil, err
	}
	work := results.Work{}
	busy := at[2].Sub(at[1]).Seconds() / at[1].Sub(at[0]).Seconds()
	for name, n := range looks[2] {
		idle := float64(looks[1][name]-looks[0][name]) * busy
		work[name] = n - looks[1][name] - int64(idle)
	}
	return work, nil
}

// batch sends n requests at once and reads their replies.
func (c *counted) batch(n int, next func(i int)) error {
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
