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
	First   int // the number of the first round; its order and its operations follow from that and the seed
	// Handicap is for which share of the time B is stopped in odd rounds, 0 for none: a difference that is known.
	Handicap float64
	// Together measures the arms of a round at the same time. What else the machine does then hits all of them. It is
	// for loads that leave the machine room, and for figures that do not depend on who gets a core first.
	Together bool
	// Load is what each block sends. Its Targets are those of the block.
	Load     bench.Options
	InMemory bool   // NeoKV keeps its data in memory
	Dir      string // where the data is; empty for the system's folder for temporary files
	// Until, unless it is zero, is when no new round begins.
	Until time.Time
	// Effect is the smallest change, as a share, that the run is to claim, and SLO the time that response times must
	// hold. A round in which the lateness of the generator comes near to either is void; 0 is no such bound.
	Effect float64
	SLO    time.Duration
	// Progress is called before each block, and Void, unless it is nil, when a void round is to be measured again.
	Progress func(round int, arm compare.Side)
	Void     func(round int, why string)
}

// order draws the order of the arms in a round. The test of compare rests on that: if the arms do not differ, each
// block of a round is as likely to be B's as the others, whatever the machine does.
func (p *Plan) order(round int) []compare.Side {
	sides := []compare.Side{compare.SideA, compare.SideB}
	if p.Control {
		sides = append(sides, compare.SideAgain)
	}
	random := rand.New(rand.NewPCG(p.Load.Seed, uint64(round)))
	random.Shuffle(len(sides), func(i, k int) { sides[i], sides[k] = sides[k], sides[i] })
	return sides
}

// Run measures, and hands the blocks of every complete round to keep. It returns an error if a round could not be
// measured, or ctx has ended.
func (p *Plan) Run(ctx context.Context, keep func(compare.Block) error) error {
	for round := p.First; round < p.First+p.Rounds; round++ {
		if !p.Until.IsZero() && time.Now().After(p.Until) {
			return nil
		}
		blocks, err := p.measured(round, func() ([]compare.Block, error) { return p.round(ctx, round) })
		if err != nil {
			return fmt.Errorf("round %d, %w", round+1, err)
		}
		for _, b := range blocks {
			if err := keep(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// round measures a block of each arm.
func (p *Plan) round(ctx context.Context, round int) (out []compare.Block, err error) {
	sides := p.order(round)
	for len(sides) > 0 {
		n := 1
		if p.Together {
			n = len(sides)
		}
		blocks, err := p.blocks(ctx, round, sides[:n])
		if err != nil {
			return nil, err
		}
		out, sides = append(out, blocks...), sides[n:]
	}
	return out, nil
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
		if targets[i], err = children.Start(ctx, p.Dir, p.arm(side).Startable(p.InMemory)); err != nil {
			return nil, failed(side, err)
		}
	}
	blocks, wrong := make([]compare.Block, len(sides)), make([]error, len(sides))
	var all sync.WaitGroup
	for i, side := range sides {
		all.Go(func() {
			var err error
			if blocks[i], err = p.send(ctx, round, side, targets[i]); err != nil {
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
func (p *Plan) send(ctx context.Context, round int, side compare.Side, target *children.Running) (compare.Block,
	error) {
	o := p.Load
	o.Targets, o.Login.Password = target.Addrs(), target.Password()
	o.Seed += uint64(round)
	release := func() (float64, error) { return 0, nil }
	if p.Handicap > 0 && side == compare.SideB && round%2 == 1 {
		var err error
		if release, err = target.Hold(p.Handicap); err != nil {
			return compare.Block{}, err
		}
	}
	h, s, err := bench.Measure(ctx, o)
	held, failed := release()
	return compare.Block{Round: round, Side: side, Started: h.Started, Handicap: held, Header: h, Summary: s},
		errors.Join(err, failed)
}
