package ab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Plan says what to measure.
type Plan struct {
	A, B Arm
	// Control adds a third arm to each round, a copy of A. Where it differs from A, something else has changed, too.
	Control bool
	Rounds  int
	// Load is what each block sends. Its Targets are those of the block.
	Load     bench.Options
	InMemory bool   // NeoKV keeps its data in memory
	Dir      string // where the data is; empty for the system's folder for temporary files
	// Until, unless it is zero, is when no new round begins.
	Until time.Time
	// Progress is called before each block, unless it is nil.
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
		for _, side := range orders[(first+round)%len(orders)] {
			if side == compare.SideAgain && !p.Control {
				continue
			}
			if p.Progress != nil {
				p.Progress(round, side)
			}
			b, err := p.block(ctx, round, side)
			if err != nil {
				return fmt.Errorf("round %d, arm %s (%s): %w", round+1, side, p.arm(side), err)
			}
			if err := keep(b); err != nil {
				return err
			}
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

// block starts an arm, loads it, measures it and stops it. The arms of a round get the same operations.
func (p *Plan) block(ctx context.Context, round int, side compare.Side) (b compare.Block, err error) {
	target, err := children.Start(ctx, p.Dir, p.arm(side).startable(p.InMemory))
	if err != nil {
		return b, err
	}
	defer func() {
		if failed := target.Err(); failed != nil && err != nil {
			err = errors.Join(failed, err)
		}
		err = errors.Join(err, target.Kill())
	}()
	o := p.Load
	o.Targets = target.Addrs()
	o.Seed += uint64(round)
	o.Header = results.NewHeader()
	var kept recorded
	out := results.NewWriter(&kept)
	s, err := bench.Run(ctx, o, out)
	switch {
	case err != nil:
		return b, err
	case s.Interrupted:
		return b, errInterrupted
	}
	return compare.Block{Round: round, Side: side, Started: out.Header().Started, Header: out.Header(), Summary: s}, nil
}

// recorded drops the lines of a block's record: its header and its summary are kept apart.
type recorded struct{}

func (recorded) Write(b []byte) (int, error) { return len(b), nil }

var errInterrupted = errors.New("interrupted")
