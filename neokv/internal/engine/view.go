package engine

import (
	"bytes"
	"io"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// View reads the engine as of the call that made it. It is not safe for concurrent use.
type View struct {
	engine *Engine
	// iter pins the state from NewView on. Point reads seek on it: that costs no allocation, and, unlike Pebble's Get, it
	// asks the filters of the last level too, where most data is.
	iter *pebble.Iterator
	err  error  // of opening iter
	seen uint64 // see parking
	asOf uint64 // see Rows.keep

	rows  *Rows // see NewLazyView; nil for none
	looks int64 // into Pebble

	value io.Closer // what Latest has returned, to be closed; nil for nothing

	steps  int    // of iter, when a key was last found missing
	absent []byte // a key that is known to be missing, since that was hard to find out; empty for none

	iters iters
}

// pointOptions are those of the iterator of every view. Pebble copies them.
var pointOptions = pebble.IterOptions{UseL6Filters: true}

// NewView pins the present state of the engine. Tables and memtables of that state stay alive until Close, and a little longer, see
// parking: hold a view for a request or a bounded step, not longer.
func (e *Engine) NewView() *View {
	if v := e.parking.take(); v != nil {
		return v
	}
	v := e.views.Get().(*View)
	v.pin()
	return v
}

// NewLazyView is NewView that pins the state only with the first call of Get or Iter. Latest and Either look among the region's rows first; rows
// may be nil.
func (e *Engine) NewLazyView(rows *Rows) *View {
	v := e.views.Get().(*View)
	v.rows = rows
	return v
}

// pin opens the view's iterator, if it is not open yet, or takes that of a parked one.
func (v *View) pin() {
	if v.iter != nil || v.err != nil {
		return
	}
	v.asOf = v.rows.asOf()
	if p := v.engine.parking.take(); p != nil {
		v.iter, v.seen, v.steps = p.iter, p.seen, p.steps
		v.absent, p.absent = p.absent, v.absent[:0]
		p.iter = nil
		p.release()
		return
	}
	v.seen = v.engine.parking.ended.Load() // before the iterator is opened
	v.iter, v.err = v.engine.db.NewIter(&pointOptions)
}

// deep is how many sublevels of L0 make it cheaper to look for a key in one after the other until it is found, as Latest does, than to seek in
// all of them, as an iterator does (BenchmarkLatest).
const deep = 3

// missMemory is after how many reads of Latest that have found their keys it forgets one that has not.
const missMemory = 64

// Latest is Get of the present state, which is that of the view or newer: for who reads one key, of redis_metadata if there are rows. A key that is not there costs it a look into a
// table of the last level, whose filters it does not ask; so who reads such keys is served by Get.
func (v *View) Latest(key []byte) (value []byte, ok bool, err error) {
	e := v.engine
	if value, ok = v.rows.get(key); ok && (v.iter == nil || v.rows.unchanged(v.asOf)) { // else it may be newer than what the view has shown
		return value, true, nil
	}
	if v.iter != nil || e.depth.Load() < deep || e.missed.Load() > 0 {
		if value, ok, err = v.Get(key); ok {
			v.rows.keep(v.asOf, key, value)
		}
		switch {
		case !ok:
			e.missed.Store(missMemory)
		case e.missed.Load() > 0:
			e.missed.Add(-1)
		}
		return value, ok, err
	}
	v.drop()
	v.looks++
	asOf := v.rows.asOf()
	value, v.value, err = e.db.Get(key)
	if err == pebble.ErrNotFound {
		e.missed.Store(missMemory)
		return nil, false, nil
	}
	if err == nil {
		v.rows.keep(asOf, key, value)
	}
	return value, err == nil, err
}

// Either is Get of the view's state or the present one, for who reads what nobody writes meanwhile: of a record, of redis_metadata if there are rows.
func (v *View) Either(key []byte) (value []byte, ok bool, err error) {
	if value, ok = v.rows.get(key); ok {
		return value, true, nil
	}
	return v.Get(key)
}

// drop gives back what Latest has returned.
func (v *View) drop() {
	if v.value != nil {
		_ = v.value.Close()
		v.value = nil
	}
}

// Get reads one key through the bloom filters of all levels. The value is valid until the next call on the view. Keys in
// ascending order are cheapest.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	v.drop()
	v.pin()
	if v.err != nil {
		return nil, false, v.err
	}
	if len(v.absent) > 0 && bytes.Equal(v.absent, key) {
		return nil, false, nil
	}
	v.looks++
	if !v.iter.SeekPrefixGE(key) {
		v.missed(key)
		return nil, false, v.iter.Error()
	}
	if !bytes.Equal(v.iter.Key(), key) { // in keyspaces whose prefix is not the whole key
		v.missed(key)
		return nil, false, nil
	}
	value, err = v.iter.ValueAndErr()
	return value, err == nil, err
}

// manySteps is how many records a Get may step over without result. Pebble steps over all earlier versions of a deleted key that are still in
// the memtable, of which there are as many as there were writes: the record of a collection is written with each of its changes.
const manySteps = 1000

// missed looks at how hard it was to find that a key is not there. If it was, it is remembered, and the memtable is written out, which
// leaves one record of each key.
func (v *View) missed(key []byte) {
	stats := v.iter.Stats()
	before := v.steps
	v.steps = stats.ForwardStepCount[pebble.InternalIterCall]
	if v.steps-before < manySteps || v.iter.Error() != nil {
		return
	}
	v.absent = append(v.absent[:0], key...)
	v.engine.settle()
}

// Iter walks [lower, upper) of the view's state. The iterator must be closed before the view; other calls on the view leave it
// alone. nil means no bound.
func (v *View) Iter(lower, upper []byte) (*Iter, error) {
	v.pin()
	if v.err != nil {
		return nil, v.err
	}
	v.looks++
	if it := v.iters.take(); it != nil {
		it.SetBounds(lower, upper)
		return it, nil
	}
	return v.iters.opened(v.iter.Clone(pebble.CloneOptions{
		IterOptions: &pebble.IterOptions{LowerBound: lower, UpperBound: upper, UseL6Filters: true},
	}))
}

// Close gives the view back.
func (v *View) Close() {
	v.rows = nil
	if v.looks > 0 {
		v.engine.looks.Add(v.looks)
		v.looks = 0
	}
	v.iters.drop()
	v.drop()
	if v.iter == nil || v.iter.Error() != nil || !v.engine.parking.park(v) {
		v.release()
	}
}

func (v *View) release() {
	if v.iter != nil {
		_ = v.iter.Close() // an error of reading; Get has returned it
	}
	v.iter, v.err, v.steps, v.absent = nil, nil, 0, v.absent[:0]
	v.engine.views.Put(v)
}

// parking keeps closed views, with their iterators open, for the reads to come: to open an iterator and to close it costs more than a
// seek. Nobody waits for it.
//
// A view that is taken again shows what one that is opened at that moment would show. Every change of the engine is counted as begun
// before anybody can see it, and as ended before its call returns. A view notes how many had ended before its iterator was opened, and is
// as good as new while no more than those have begun: then none was under way when it was opened, so it shows all of them, and there has
// been none since. It would not do to note how many had begun: of one that was under way the view may show nothing, though by now another
// read has seen it.
//
// A parked view keeps memtables, tables and the blocks that it stands on alive. So there are few, one that is out of date goes with the
// next read that meets it, and all go with the next call of Rest, which also puts those in use out of date.
type parking struct {
	changes
	views [8]atomic.Pointer[View] // about as many as there are reads at the same moment
}

// changes counts the changes of a state.
type changes struct{ begun, ended atomic.Uint64 }

// change runs one.
func (c *changes) change(f func() error) error {
	c.begun.Add(1)
	defer c.ended.Add(1)
	return f()
}

// take returns a view that is as good as new, nil if there is none.
func (p *parking) take() *View {
	for i := range p.views {
		if v := p.views[i].Load(); v != nil && p.views[i].CompareAndSwap(v, nil) {
			if v.seen == p.begun.Load() {
				return v
			}
			v.release()
		}
	}
	return nil
}

// park keeps the view if it is as good as new and there is room.
func (p *parking) park(v *View) bool {
	if v.seen != p.begun.Load() {
		return false
	}
	for i := range p.views {
		if p.views[i].Load() == nil && p.views[i].CompareAndSwap(nil, v) {
			return true
		}
	}
	return false
}

// clear closes the parked views and puts those in use out of date.
func (p *parking) clear() {
	p.begun.Add(1)
	for i := range p.views {
		if v := p.views[i].Swap(nil); v != nil {
			v.release()
		}
	}
	p.ended.Add(1)
}
