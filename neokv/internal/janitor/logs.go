package janitor

import (
	"fmt"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

const (
	// trimPause is how often logs are looked at. A region where nothing has been applied meanwhile is at rest.
	trimPause = 10 * time.Second
	// trimBytes is how many bytes of a log are worth a cut.
	trimBytes = 64 << 10
)

// trimLogs cuts the logs of regions at rest that take more than twice the space of the region's data. A snapshot brings
// a replica that has missed these entries up to date at less cost than such a log does.
func (x *reclaimer) trimLogs() {
	for id, r := range x.o.Replicas() {
		s := x.progress(id, r)
		if applied := r.Applied(); applied != s.applied {
			s.applied, s.trimmed = applied, false
			continue
		}
		// A region on its way into another keeps its log, from which replicas that lag take the last entries.
		bounds := r.Bounds()
		if s.trimmed || !r.Running() || bounds.Phase != keys.Serving {
			continue
		}
		worth := false
		r.Inspect(func(*engine.View) (err error) {
			if worth, err = x.logOutweighs(r, bounds.Slots); err != nil {
				return fmt.Errorf("size of its log: %w", err)
			}
			return nil
		})
		s.trimmed = worth && r.CutLog(1) // the last entry stays, for its term
	}
}

// logOutweighs reports whether the region's log takes at least trimBytes, and more than twice as much as the region's
// data. It counts tables, and not memtables.
func (x *reclaimer) logOutweighs(r *region.Replica, slots topology.SlotRange) (bool, error) {
	desc, _ := r.Region()
	lower, upper := keys.RaftBounds(desc.ID)
	log, err := x.o.Engine.TableBytes(engine.Span{Lower: lower, Upper: upper})
	if err != nil || log < trimBytes {
		return false, err
	}
	data := uint64(0)
	for _, ks := range keys.RegionKeyspaces {
		lower, upper := keys.SlotBounds(ks, slots)
		n, err := x.o.Engine.TableBytes(engine.Span{Lower: lower, Upper: upper})
		if err != nil {
			return false, err
		}
		data += n
	}
	return log > 2*data, nil
}
