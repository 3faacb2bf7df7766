package engine

import "github.com/cockroachdb/pebble/v2"

// Iter is an iterator of a view or a batch. Close gives it back to the view or batch for the next use, since setting
// new bounds costs a fraction of opening an iterator.
type Iter struct {
	*pebble.Iterator
	home *iters
	age  int // home's age when the iterator was opened
}

// iters has the idle iterators of one view or batch.
type iters struct {
	idle []*Iter
	age  int // rises when iterators opened before show another state than one opened now would
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

// drop closes the idle iterators. Those in use are closed for good when their users close them.
func (x *iters) drop() {
	x.age++
	for i, it := range x.idle {
		_ = it.Iterator.Close() // without an error: see Close
		x.idle[i] = nil
	}
	x.idle = x.idle[:0]
}

// Close ends the iteration and returns its error. The caller must not use the iterator afterwards.
func (it *Iter) Close() error {
	if it.age != it.home.age || it.Error() != nil {
		return it.Iterator.Close()
	}
	it.home.idle = append(it.home.idle, it)
	return nil
}
