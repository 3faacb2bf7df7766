package engine

import "github.com/cockroachdb/pebble/v2"

// Iter is an iterator of a view or a batch. Close gives it back to the view or batch for the next use, since setting
// new bounds costs a fraction of opening an iterator. It counts its moves as work: when the work is over, it stands on
// nothing.
type Iter struct {
	*pebble.Iterator
	home *iters
	age  int // home's age when the iterator was opened
}

// iters has the idle iterators of one view or batch.
type iters struct {
	idle []*Iter
	age  int // rises when iterators opened before show another state than one opened now would
	work *Work
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

// seek counts a seek, and reports whether the iterator may move.
func (it *Iter) seek() bool { return it.home.work.Spend(seekUnits) }

// step counts a step, and reports whether the iterator may move.
func (it *Iter) step() bool { return it.home.work.Spend(stepUnits) }

// These methods move the iterator as those of pebble.Iterator do.

func (it *Iter) First() bool            { return it.seek() && it.Iterator.First() }
func (it *Iter) Last() bool             { return it.seek() && it.Iterator.Last() }
func (it *Iter) SeekGE(key []byte) bool { return it.seek() && it.Iterator.SeekGE(key) }
func (it *Iter) SeekLT(key []byte) bool { return it.seek() && it.Iterator.SeekLT(key) }
func (it *Iter) Next() bool             { return it.step() && it.Iterator.Next() }
func (it *Iter) Prev() bool             { return it.step() && it.Iterator.Prev() }
func (it *Iter) NextPrefix() bool       { return it.seek() && it.Iterator.NextPrefix() }

// Valid reports whether the iterator stands on a key.
func (it *Iter) Valid() bool { return it.home.work.Ended() == nil && it.Iterator.Valid() }

// ValueAndErr returns the value of the key that the iterator stands on. It is valid until the iterator moves.
func (it *Iter) ValueAndErr() ([]byte, error) {
	value, err := it.Iterator.ValueAndErr()
	if len(value) >= unitBytes && !it.home.work.Spend(len(value)/unitBytes) && err == nil {
		err = it.home.work.Ended()
	}
	return value, err
}

// Error returns why the iterator could not move on, nil if it has come to its end.
func (it *Iter) Error() error {
	if err := it.Iterator.Error(); err != nil {
		return err
	}
	return it.home.work.Ended()
}

// Close ends the iteration and returns its error. The caller must not use the iterator afterwards.
func (it *Iter) Close() error {
	if it.age != it.home.age || it.Iterator.Error() != nil {
		if err := it.Iterator.Close(); err != nil {
			return err
		}
		return it.home.work.Ended()
	}
	it.home.idle = append(it.home.idle, it)
	return it.home.work.Ended()
}
