package engine

import "sync/atomic"

// Reads are cheap because views stay open for the next read (viewPool) and copies of records stay in memory (rowCache).
// With both, a read sees no more than this:
//
//   - View.Get and View.Iter see one state: that of the moment in which the view was made or, if it is lazy, pinned.
//   - View.GetNow sees the state of that moment or a newer one, never one older than any read has shown before.
//   - View.GetAny is for a caller that knows that nobody writes the key meanwhile: any of these states will do.
//
// Both caches keep this promise by counting changes. A change counts as begun before anybody can see it, and as ended
// before the call that makes it returns. Suppose that as many changes have begun by now as had ended when a reader
// looked. Then no change was under way when it looked, and none has begun since, so what the reader found still holds.
// It would not do to compare with the number that had begun when the reader looked: the reader may have missed a change
// that was under way, which another read has shown since.

// changes counts the changes of a state.
type changes struct{ begun, ended atomic.Uint64 }

// change runs f, which makes a change, and counts it.
func (c *changes) change(f func() error) error {
	c.begun.Add(1)
	defer c.ended.Add(1)
	return f()
}

// viewPool keeps closed views with open iterators, since opening and closing an iterator costs more than a seek. Its
// methods never wait.
//
// A view in the pool keeps memtables, tables and their blocks alive. So there are few. A read that meets an outdated
// view closes it. The next IdleUpkeep closes all views in the pool and marks those in use as outdated.
type viewPool struct {
	changes
	views [8]atomic.Pointer[View] // about as many as there are reads at the same moment
}

// take returns a view that shows the present state, nil if there is none.
func (p *viewPool) take() *View {
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

// put keeps the view if it shows the present state and there is room.
func (p *viewPool) put(v *View) bool {
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

// clear closes the views in the pool and marks those in use as outdated.
func (p *viewPool) clear() {
	p.begun.Add(1)
	for i := range p.views {
		if v := p.views[i].Swap(nil); v != nil {
			v.release()
		}
	}
	p.ended.Add(1)
}
