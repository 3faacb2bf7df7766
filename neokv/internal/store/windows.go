package store

import (
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/meta"
)

// windows takes windows off the cluster map: migrations that clients are shown, see route.Window. Each store's slot
// table has them. Whoever opens a window ends it; if From loses the lead first, meta's leader takes the window off the
// map. close is of the goroutine that reports.
type windows struct {
	*core
	cluster *clusterMap
	closing atomic.Bool // a call takes windows off the map
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
			group.Change(x.ctx, meta.MapChange{Window: &meta.WindowChange{Close: id}}) // the next heartbeat tries again what fails
		}
	})
}
