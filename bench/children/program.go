package children

import (
	"context"
	"errors"
	"strings"
)

// Program is a server of any kind: some processes of one program.
type Program struct {
	Path  string
	Args  [][]string                      // the arguments of each process
	Addrs []string                        // where they serve, at ports of FreePorts
	Ready func(ctx context.Context) error // returns nil when they serve; Start asks until then
}

func (p Program) String() string { return p.Path }

func (p Program) start(ctx context.Context, r *Running) error {
	path, err := locate(p.Path)
	if err != nil {
		return err
	}
	if len(p.Args) == 0 {
		return errors.New("no process")
	}
	for _, args := range p.Args {
		if err := r.spawn(ctx, &child{program: path, args: args}); err != nil {
			return err
		}
	}
	r.addrs = p.Addrs
	return r.await(ctx, strings.Join(p.Addrs, ","), func() error { return p.Ready(ctx) })
}
