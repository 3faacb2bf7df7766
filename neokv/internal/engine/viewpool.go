package engine

import "sync/atomic"

// Reads are cheap since views stay open for the next read (viewPool), and copies of records stay in memory (rowCache).
// This is all that a read may see through them:
//
//   - View.Get and View.Iter see one state: that of the moment in which the view was made or, if it is lazy, pinned.
//   - View.GetNow sees the state of that moment or a newer one, never one older than any read has shown before.
//   - View.GetAny is for a caller who knows that nobody writes the key meanwhile: any of these states will do.
//
// Both caches keep this by counting changes. A change is counted as begun before anybody can see it, and as ended
// before the call that makes it returns. What a reader found is as good as new as long as no more changes have begun
// than had ended before it looked: then none was under way when it looked, so it saw all of them, and there has been
// none since. The number that had begun would not do: the reader may have missed a change that was under way, while by
// now another read has shown it.

// changes counts the changes of a state.
type changes struct{ begun, ended atomic.Uint64 }

// change makes one: it runs f.
func (c *changes) change(f func() error) error {
	c.begun.Add(1)
	defer c.ended.Add(1)
	return f()
}

// viewPool keeps closed views with their iterators open, since to open and to close an iterator costs more than a seek.
// Its methods never wait.
//
// A view in the pool keeps memtables, tables and their blocks alive. So there are few, a view that is out of date goes
// with the next read that meets it, and all go with the next IdleUpkeep, which also puts the views in use out of date.
type viewPool struct {
	changes
	views [8]atomic.Pointer[View] // about as many as there are reads at the same moment
}

// take returns a view that is as good as new, nil if there is none.
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

// put keeps the view if it is as good as new and there is room.
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

// clear closes the views in the pool and puts those in use out of date.
func (p *viewPool) clear() {
	p.begun.Add(1)
	for i := range p.views {
		if v := p.views[i].Swap(nil); v != nil {
			v.release()
		}
	}
	p.ended.Add(1)
}
