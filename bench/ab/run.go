package ab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results/compare"
)

// Plan says what to measure.
type Plan struct {
	A, B Arm
	// Control adds a third arm to each round, a copy of A. Where it differs from A, something else has changed, too.
	Control bool
	Rounds  int
	// Together measures the arms of a round at the same time. What else the machine does then hits all of them. It is
	// for loads that leave the machine room, and for figures that do not depend on who gets a core first.
	Together bool
	// Load is what each block sends. Its Targets are those of the block.
	Load     bench.Options
	InMemory bool   // NeoKV keeps its data in memory
	Dir      string // where the data is; empty for the system's folder for temporary files
	// Until, unless it is zero, is when no new round begins.
	Until time.Time
	// Progress is called before each block.
	Progress func(round int, arm compare.Side)
}

// orders are the orders of the arms in a round. Over all of them each arm comes as often at each place, and as often
// before each other one; a round and the next one are mirrored.
var orders = [][]compare.Side{
	{compare.SideA, compare.SideB, compare.SideAgain}, {compare.SideAgain, compare.SideB, compare.SideA},
	{compare.SideB, compare.SideA, compare.SideAgain}, {compare.SideAgain, compare.SideA, compare.SideB},
	{compare.SideA, compare.SideAgain, compare.SideB}, {compare.SideB, compare.SideAgain, compare.SideA},
}

// Run measures, and hands every block to keep. The rounds that are complete count; the last one may be cut short, when
// Run returns an error or ctx ends.
func (p *Plan) Run(ctx context.Context, keep func(compare.Block) error) error {
	first := rand.New(rand.NewPCG(p.Load.Seed, 0)).IntN(len(orders)/2) * 2
	for round := range p.Rounds {
		if !p.Until.IsZero() && time.Now().After(p.Until) {
			return nil
		}
		var sides []compare.Side
		for _, side := range orders[(first+round)%len(orders)] {
			if side != compare.SideAgain || p.Control {
				sides = append(sides, side)
			}
		}
		for len(sides) > 0 {
			n := 1
			if p.Together {
				n = len(sides)
			}
			blocks, err := p.blocks(ctx, round, sides[:n])
			if err != nil {
				return fmt.Errorf("round %d, %w", round+1, err)
			}
			for _, b := range blocks {
				if err := keep(b); err != nil {
					return err
				}
			}
			sides = sides[n:]
		}
	}
	return nil
}

func (p *Plan) arm(side compare.Side) Arm {
	if side == compare.SideB {
		return p.B
	}
	return p.A
}

// blocks runs blocks at the same time: it starts their arms one after the other, sends the load to all of them at once,
// and ends them. The arms of a round get the same operations.
func (p *Plan) blocks(ctx context.Context, round int, sides []compare.Side) (blocks []compare.Block, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := func(side compare.Side, err error) error {
		return fmt.Errorf("arm %s (%s): %w", side, p.arm(side), err)
	}
	targets := make([]*children.Running, len(sides))
	defer func() {
		for _, target := range targets {
			if target != nil {
				err = errors.Join(err, target.Kill())
			}
		}
	}()
	for i, side := range sides {
		p.Progress(round, side)
		if targets[i], err = children.Start(ctx, p.Dir, p.arm(side).startable(p.InMemory)); err != nil {
			return nil, failed(side, err)
		}
	}
	blocks, wrong := make([]compare.Block, len(sides)), make([]error, len(sides))
	var all sync.WaitGroup
	for i, side := range sides {
		all.Go(func() {
			var err error
			blocks[i], err = p.send(ctx, round, targets[i])
			if blocks[i].Side = side; err != nil {
				wrong[i] = failed(side, errors.Join(targets[i].Err(), err))
				cancel() // the others are worth nothing without it
			}
		})
	}
	all.Wait()
	for _, err := range wrong { // what others say of the end of ctx follows from that
		if err != nil && !errors.Is(err, bench.ErrInterrupted) {
			return nil, err
		}
	}
	return blocks, errors.Join(wrong...)
}

// send loads a target and measures it.
func (p *Plan) send(ctx context.Context, round int, target *children.Running) (b compare.Block, err error) {
	o := p.Load
	o.Targets, o.Password = target.Addrs(), target.Password()
	o.Seed += uint64(round)
	h, s, err := bench.Measure(ctx, o)
	return compare.Block{Round: round, Started: h.Started, Header: h, Summary: s}, err
}
