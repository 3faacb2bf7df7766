package engine

import (
	"bytes"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// View reads one state of the engine, that of the call that made it. It is not safe for concurrent use.
type View struct {
	engine *Engine
	// iter pins the state. Point reads seek on it, which allocates nothing and, unlike Pebble's Get, also asks the
	// filters of the last level, where most data is.
	iter *pebble.Iterator
	err  error  // the error of opening iter
	seen uint64 // how many changes had ended before iter was opened
	asOf uint64 // how many changes of rows had ended before the view was pinned

	rows  *Rows // see NewLazyView; nil for none
	work  *Work // see Watch; nil for none
	looks int64 // how many look-ups in Pebble it has made

	value io.Closer // frees the value that GetNow has returned; may be nil

	steps  int    // steps that iter had made when a key was last found missing
	absent []byte // a missing key whose search took many steps, empty for none

	iters iters
}

// pointOptions are the options of every view's iterator. Pebble copies them.
var pointOptions = pebble.IterOptions{UseL6Filters: true}

// NewView pins the present state of the engine. Tables and memtables of that state stay alive until Close, and a little
// longer (see viewPool). So a caller holds a view for a request or a bounded step, not longer.
func (e *Engine) NewView() *View {
	if v := e.viewPool.take(); v != nil {
		return v
	}
	v := e.views.Get().(*View)
	v.pin()
	return v
}

// NewLazyView is like NewView, but only the first call of Get or Iter pins the state. GetNow and GetAny look among the
// region's rows first. rows may be nil.
func (e *Engine) NewLazyView(rows *Rows) *View {
	v := e.views.Get().(*View)
	v.rows = rows
	return v
}

// Watch makes the view and its iterators count what they do as work, until Close.
func (v *View) Watch(w *Work) { v.work, v.iters.work = w, w }

// pin pins the state, if that has not happened yet: it takes the iterator of a view in the pool, or opens one.
func (v *View) pin() {
	if v.iter != nil || v.err != nil {
		return
	}
	v.asOf = v.rows.asOf()
	if p := v.engine.viewPool.take(); p != nil {
		v.iter, v.seen, v.steps = p.iter, p.seen, p.steps
		v.absent, p.absent = p.absent, v.absent[:0]
		p.iter = nil
		p.release()
		return
	}
	v.seen = v.engine.viewPool.ended.Load() // before the iterator is opened
	v.iter, v.err = v.engine.db.NewIter(&pointOptions)
}

// deep is the number of L0 sublevels from which on GetNow searches them one by one until it finds the key. With fewer
// sublevels it is cheaper to seek in all of them at once, as an iterator does (BenchmarkGetNow).
const deep = 3

// missMemory is how many keys GetNow must find, after one that it did not find, before it searches sublevels one by one
// again.
const missMemory = 64

// GetNow reads one key as of now, perhaps newer than the view. If the view has rows, the key must be in redis_metadata.
// Searching the sublevels one by one does not ask the filters of the last level, so a missing key costs a look into a
// table there. After a missing key GetNow therefore does the same as Get for a while.
func (v *View) GetNow(key []byte) (value []byte, ok bool, err error) {
	e := v.engine
	value, ok = v.rows.get(key)
	if ok && (v.iter == nil || v.rows.unchanged(v.asOf)) { // else the row may be newer than the view
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
	if !v.work.Spend(seekUnits) {
		return nil, false, v.work.Ended()
	}
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

// GetAny reads one key, either as of now or as of the view. It is for a caller that knows that nobody writes the key
// meanwhile. If the view has rows, the key must be in redis_metadata.
func (v *View) GetAny(key []byte) (value []byte, ok bool, err error) {
	if value, ok = v.rows.get(key); ok {
		return value, true, nil
	}
	return v.Get(key)
}

// drop frees the value that GetNow has returned.
func (v *View) drop() {
	if v.value != nil {
		_ = v.value.Close()
		v.value = nil
	}
}

// Get reads one key through the bloom filters of all levels. The value is valid until the next call on the view. Keys
// in ascending order are cheapest.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	v.drop()
	v.pin()
	if v.err != nil {
		return nil, false, v.err
	}
	if !v.work.Spend(seekUnits) {
		return nil, false, v.work.Ended()
	}
	if len(v.absent) > 0 && bytes.Equal(v.absent, key) {
		return nil, false, nil
	}
	v.looks++
	if !v.iter.SeekPrefixGE(key) {
		v.missed(key)
		return nil, false, v.iter.Error()
	}
	if !bytes.Equal(v.iter.Key(), key) { // may differ in keyspaces whose prefix is not the whole key
		v.missed(key)
		return nil, false, nil
	}
	value, err = v.iter.ValueAndErr()
	return value, err == nil, err
}

// manySteps is how many steps of a Get that finds nothing are too many. Pebble steps over all earlier versions of a
// deleted key in the memtable, and each change of a collection writes one more version of its record.
const manySteps = 1000

// missed is called when a key was not found. If that took many steps, the view remembers the key, and the next
// IdleUpkeep flushes the memtable, which leaves only the last version of each key.
func (v *View) missed(key []byte) {
	stats := v.iter.Stats()
	before := v.steps
	v.steps = stats.ForwardStepCount[pebble.InternalIterCall]
	if v.steps-before < manySteps || v.iter.Error() != nil {
		return
	}
	v.absent = append(v.absent[:0], key...)
	v.engine.flushSoon.Store(true)
}

// Iter returns an iterator over [lower, upper) of the view's state; a nil bound is none. The caller must close it
// before the view. Other calls on the view do not move it.
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

// Close ends the use of the view, which may go into the pool.
func (v *View) Close() {
	v.rows = nil
	v.Watch(nil)
	if v.looks > 0 {
		v.engine.looks.Add(v.looks)
		v.looks = 0
	}
	v.iters.drop()
	v.drop()
	if v.iter == nil || v.iter.Error() != nil || !v.engine.viewPool.put(v) {
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
