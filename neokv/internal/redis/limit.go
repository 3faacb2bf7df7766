package redis

import (
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file bounds what one write does. A write runs at apply, on every replica, and its region waits for it. No clock
// may end it, since all replicas must do the same. So it counts what it goes through: elements of collections that it
// reads, copies or looks for, whatever a replica has in memory or on disk. Arguments are bounded by the size of an
// entry, and what a write looks up for each of them is not counted.
//
// A write that exceeds the bound is refused, and changes nothing. So it counts before it changes what readers can see:
// before its first write, or while it writes a new version of a collection, which no record names yet.

// MaxWork is how many elements one call may go through at apply, and about how many the reads of a unit together, and
// its writes. Of an element, each elementUnit bytes count as another. It takes 5 to 20 s. Errors name it.
const MaxWork = 1 << 24

// writeLimit is MaxWork. It is a variable for tests alone.
var writeLimit = MaxWork

const (
	elementUnit = 256
	// openUnits is what it counts to open one of many collections for another part of the result.
	openUnits = 16
)

const (
	// MaxWrittenBytes bounds how much one unit may write into a replica's engine batch at once.
	MaxWrittenBytes = 256 << 20
	// MaxNameBytes bounds a key, and a field or member of a collection. A flush or a compaction of Pebble holds about
	// nine copies of a storage key in memory, and every store of the process may run one of each at the same time.
	MaxNameBytes = 8 << 20
)

// cost is how much of writeLimit an element of so many bytes takes.
func cost(bytes int) int { return 1 + bytes/elementUnit }

// spend counts n of writeLimit. Its error is a Refusal, which the caller returns.
func (w *Writer) spend(n int) error {
	if w.spent += n; w.spent > writeLimit {
		return errWriteLimit
	}
	return nil
}

// spend counts what a read goes through in a unit as what a write does. Elsewhere it counts nothing: views count what
// reads do.
func (r *Reader) spend(n int) error {
	if r.unit != nil {
		return r.unit.spend(n)
	}
	return nil
}

// unborn is a version of a collection that the present call has begun, and that no record names yet.
type unborn struct {
	user          []byte
	slot          topology.Slot
	of            keys.Type
	version, size uint64
}

// giveUp leaves what a refused call has written to the reclaimer.
func (w *Writer) giveUp() error {
	u := &w.unborn
	if u.version == 0 {
		return nil
	}
	return w.disown(u)
}

// disown writes the orphan record of a version that no record names.
func (w *Writer) disown(u *unborn) error {
	size := elementsOf(&keys.Metadata{Type: u.of, Size: u.size})
	o := keys.Orphan{Slot: u.slot, User: u.user, Version: u.version, Type: u.of, Size: size}
	w.key = o.AppendKey(w.key[:0])
	w.Orphans.Collections++
	w.Orphans.Elements += o.Size
	return w.Batch.Set(w.key, o.Append(nil))
}
