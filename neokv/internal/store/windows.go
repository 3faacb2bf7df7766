package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/meta"
)

// windows has meta's leader change the windows of the cluster map: migrations that clients are shown, see route.Window.
// Each store's slot table has them. Whoever opens a window ends it; if From loses the lead first, meta's leader takes
// the window off the map. close is of the goroutine that reports; the other methods may run concurrently.
type windows struct {
	*core
	meta    *metaMember
	cluster *clusterMap
	closing atomic.Bool // a call takes windows off the map
}

// change is Store.ChangeWindow.
func (x *windows) change(ctx context.Context, c meta.WindowChange) (id uint64, err error) {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return 0, errClosing
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 2*stepTime)
	defer cancel()
	var got meta.WindowChanged
	if !retry(ctx, 10*changePause, func() bool {
		got = meta.WindowChanged{}
		if at := x.meta.target(); at == x.o.ID {
			got, err = x.changeHere(ctx, c)
		} else {
			err = x.ask(ctx, at, message{Window: &c}, &got)
		}
		return err == nil && (got.ID > 0 || got.Refused != "")
	}) {
		return 0, fmt.Errorf("no answer of the leader of meta: %w", errors.Join(err, ctx.Err()))
	}
	if got.Refused != "" {
		return 0, errors.New(got.Refused)
	}
	return got.ID, nil
}

// changeHere is change at meta's leader.
func (x *windows) changeHere(ctx context.Context, c meta.WindowChange) (got meta.WindowChanged, err error) {
	group := x.meta.group.Load()
	if group == nil || !x.meta.leading() {
		return got, errNotLeading
	}
	return group.ChangeWindow(ctx, c)
}

// close takes windows off the map that are in force nowhere any more. A window whose time is over is left to the one
// who moves its regions one after the other, until all have moved. It runs on the store that leads meta.
func (x *windows) close(group *meta.Group) {
	t, now := x.cluster.Table(), time.Now()
	if t == nil {
		return
	}
	var over []uint64
	for _, w := range group.Map().Windows {
		n := t.Over(&w)
		if n == len(w.Regions) || n > 0 && (w.BeginMS == 0 || now.Before(w.End())) {
			over = append(over, w.ID)
		}
	}
	if len(over) == 0 || !x.closing.CompareAndSwap(false, true) {
		return
	}
	x.wg.Go(func() {
		defer x.closing.Store(false)
		for _, id := range over {
			group.ChangeWindow(x.ctx, meta.WindowChange{Close: id}) // the next heartbeat tries again what fails
		}
	})
}
