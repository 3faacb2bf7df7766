package engine

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestWorkEnds: each way to read and to write ends soon after the work is over, and says why; after Resume it goes on.
func TestWorkEnds(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer e.Close()
	b := e.NewBatch()
	for i := range 3 {
		must(t, b.Set(metadataKey(i), make([]byte, 100<<10)))
	}
	must(t, b.Commit(false))
	over := errors.New("over")
	iterate := func(it *Iter, err error, move func(*Iter) bool) error {
		if err != nil {
			return err
		}
		for move(it) {
			if _, err := it.ValueAndErr(); err != nil {
				return errors.Join(err, it.Close())
			}
		}
		if it.Valid() && it.Error() != nil {
			t.Error("it stands on a key, and has failed")
		}
		if err, closed := it.Error(), it.Close(); err != closed {
			t.Errorf("error %v, closed with %v", err, closed)
		} else {
			return err
		}
		return nil
	}
	get := func(_ []byte, _ bool, err error) error { return err }
	first := metadataKey(0)
	for name, read := range map[string]func(v *View, b *Batch) error{
		"First": func(v *View, b *Batch) error {
			it, err := v.Iter(nil, nil)
			return iterate(it, err, (*Iter).First)
		},
		"Last": func(v *View, b *Batch) error {
			it, err := b.Iter(nil, nil)
			return iterate(it, err, (*Iter).Last)
		},
		"Next and Prev": func(v *View, b *Batch) error {
			it, err := v.Iter(nil, nil)
			if err == nil {
				it.First()
			}
			return iterate(it, err, func(it *Iter) bool { return it.Next() && it.Prev() })
		},
		"SeekGE and SeekLT": func(v *View, b *Batch) error {
			it, err := b.Iter(nil, nil)
			return iterate(it, err, func(it *Iter) bool { return it.SeekGE(first) && (it.SeekLT(first) || it.Error() == nil) })
		},
		"View.Get":    func(v *View, b *Batch) error { return get(v.Get(first)) },
		"View.GetNow": func(v *View, b *Batch) error { return get(v.GetNow(first)) },
		"Batch.Get":   func(v *View, b *Batch) error { return get(b.Get(first)) },
		"Batch.Has": func(v *View, b *Batch) error {
			_, err := b.Has(first)
			return err
		},
		"Batch.Get of its own write": func(v *View, b *Batch) error {
			if b.Empty() {
				must(t, b.Set(first, nil))
			}
			return get(b.Get(first))
		},
		"Batch.Set":      func(v *View, b *Batch) error { return b.Set(first, nil) },
		"Batch.SetAhead": func(v *View, b *Batch) error { return b.SetAhead(first, make([]byte, 10<<10)) },
		"Batch.Delete":   func(v *View, b *Batch) error { return b.Delete(first) },
	} {
		looks := 0
		w := Work{Look: func() error {
			if looks++; looks > 3 {
				return over
			}
			return nil
		}}
		v, b := e.NewLazyView(nil), e.NewBatch()
		v.Watch(&w)
		b.Watch(&w)
		var err error
		for n := 0; err == nil && n < 10*LookEvery; n++ {
			err = read(v, b)
		}
		if !errors.Is(err, over) || w.Ended() != over || looks != 4 {
			t.Errorf("%s: %v after %d looks", name, err, looks)
		}
		if err := read(v, b); !errors.Is(err, over) {
			t.Errorf("%s: the next read: %v", name, err)
		}
		looks = -100
		w.Resume()
		if err := get(v.Get(first)); err != nil {
			t.Errorf("%s: after Resume: %v", name, err)
		}
		v.Close()
		b.Close()
	}
}
