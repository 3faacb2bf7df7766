package janitor

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// deletion deletes the elements of orphans in one batch.
type deletion struct {
	x     *reclaimer
	view  *engine.View
	batch *engine.Batch
	slots topology.SlotRange
	iters [len(keys.RegionKeyspaces)]*engine.Iter // by place in keys.RegionKeyspaces, opened when needed
	left  int                                     // how many of ReclaimKeys are left
	bytes int                                     // bytes of the elements that it has passed over
}

func (d *deletion) close() (err error) {
	for _, it := range d.iters {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	return err
}

// orphan deletes all elements of an orphan.
func (d *deletion) orphan(o *keys.Orphan) error {
	for _, ks := range redis.Spaces(o.Type, o.Size) {
		x := d.x
		x.lower = keys.AppendCollection(x.lower[:0], ks, o.Slot, o.User, o.Version)
		if d.x.o.Mistakes.AnyVersion {
			x.lower = x.lower[:len(x.lower)-keys.VersionLen]
		}
		x.upper = keys.Successor(append(x.upper[:0], x.lower...))
		if o.Size < uint64(d.x.o.Knobs.ReclaimRange) {
			whole, err := d.oneByOne(ks)
			if err != nil {
				return err
			}
			if whole {
				continue
			}
		}
		d.left -= rangeCost
		if err := d.batch.DeleteRange(x.lower, x.upper); err != nil {
			return err
		}
	}
	return nil
}

// oneByOne deletes the keys from x.lower to x.upper, and reports whether it has deleted all of them. It leaves them to
// a range deletion if they are large, or if there are far more than the orphan record says.
func (d *deletion) oneByOne(ks keys.Keyspace) (whole bool, err error) {
	it, err := d.iter(ks)
	if err != nil {
		return false, err
	}
	limit := d.x.upper
	if d.x.o.Mistakes.NoLimits {
		limit = nil
	}
	n, passed := 0, 0
	state := it.SeekGEWithLimit(d.x.lower, limit)
	for ; state == pebble.IterValid; state = it.NextWithLimit(limit) {
		if bytes.Compare(it.Key(), d.x.upper) >= 0 { // Pebble may go past a limit, which only saves it steps
			break
		}
		if n++; n > d.x.o.Knobs.ReclaimRange || passed > reclaimBytes {
			return false, nil
		}
		value := it.LazyValue()
		size := len(it.Key()) + value.Len()
		passed += size
		d.bytes += size
		d.left--
		if err := d.batch.Delete(it.Key()); err != nil {
			return false, err
		}
	}
	return true, it.Error()
}

// iter returns the iterator of a keyspace, and opens it first if it has to.
func (d *deletion) iter(ks keys.Keyspace) (*engine.Iter, error) {
	for i, known := range keys.RegionKeyspaces {
		if known != ks {
			continue
		}
		if d.iters[i] == nil {
			lower, upper := keys.SlotBounds(ks, d.slots)
			it, err := d.view.Iter(lower, upper)
			if err != nil {
				return nil, err
			}
			d.iters[i] = it
		}
		return d.iters[i], nil
	}
	panic(fmt.Sprintf("no data of a region is in %v", ks))
}
