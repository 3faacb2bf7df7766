package engine

import "github.com/cockroachdb/pebble/v2"

// Iter is an iterator of a view or a batch. Close gives it back to that, for the next walk: to set its bounds anew
// costs a fraction of opening one.
type Iter struct {
	*pebble.Iterator
	home *iters
	age  int // of home, when it was opened
}

// iters are the iterators of one view or batch that nobody uses.
type iters struct {
	idle []*Iter
	age  int // rises when what was opened before shows another state than what would be opened now
}

// opened returns a new iterator that belongs to x.
func (x *iters) opened(it *pebble.Iterator, err error) (*Iter, error) {
	if err != nil {
		return nil, err
	}
	return &Iter{it, x, x.age}, nil
}

// take returns an idle iterator, nil if there is none. Its bounds are still those of its last use.
func (x *iters) take() *Iter {
	n := len(x.idle) - 1
	if n < 0 {
		return nil
	}
	it := x.idle[n]
	x.idle = x.idle[:n]
	it.ResetStats()
	return it
}

// drop closes the idle iterators. Those that are in use will be, when they are closed.
func (x *iters) drop() {
	x.age++
	for i, it := range x.idle {
		_ = it.Iterator.Close() // without an error: see Close
		x.idle[i] = nil
	}
	x.idle = x.idle[:0]
}

// Close ends a walk and returns its error. The iterator may not be used afterwards.
func (it *Iter) Close() error {
	if it.age != it.home.age || it.Error() != nil {
		return it.Iterator.Close()
	}
	it.home.idle = append(it.home.idle, it)
	return nil
}
