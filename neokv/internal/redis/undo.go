package redis

import (
	"bytes"
	"math/rand/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
)

// This file has what takes back the calls of a unit that exceeds its limits. The batch is cut to what it held, and the
// Writer and the region state are what they were, but for two things:
//
//   - Versions that the calls have given to collections are not given again: some of their elements may be in the
//     engine, written ahead of the batch, and would appear in the collection that gets such a version next.
//   - For each version whose elements may be there, an orphan record is written, so that the reclaimer deletes them.
//     What a replica has written ahead depends on its batch; the orphan records do not.

// Point is a state to which Undo goes back.
type Point struct {
	batch   engine.Mark
	state   keys.RegionState
	soonest uint64
	orphans Orphans
	flushed bool
	effects int
	numbers rand.PCG
	seeded  uint64
	saved   bool // there was an earlier point
	begun   int  // how many versions had been begun since the first one
}

// Save notes the present state, between two calls. It holds until Undo goes back to an earlier point, or until Finish.
func (w *Writer) Save() (p Point, err error) {
	if err = w.settleAll(); err != nil {
		return p, err
	}
	if p.batch, err = w.Batch.Mark(); err != nil {
		return p, err
	}
	p.state, p.soonest, p.orphans, p.flushed = *w.State, w.SoonestMS, w.Orphans, w.Flushed
	p.numbers, p.seeded = w.numbers, w.seeded
	if w.Effects != nil {
		p.effects = len(w.Effects.All)
	}
	if p.saved = w.saved; !p.saved {
		w.saved, w.begun = true, w.begun[:0]
	}
	p.begun = len(w.begun)
	return p, nil
}

// Undo takes back all calls since Save. None of their replies may be used.
func (w *Writer) Undo(p Point) error {
	w.Forget()
	if err := w.Batch.Cut(p.batch); err != nil {
		return err
	}
	given := w.State.LastVersion
	*w.State = p.state
	if !w.ScriptMistakes.OldVersion {
		w.State.LastVersion = given
	}
	w.SoonestMS, w.Orphans, w.Flushed = p.soonest, p.orphans, p.flushed
	w.numbers, w.seeded = p.numbers, p.seeded
	if w.Effects != nil {
		w.Effects.cut(p.effects)
	}
	w.saved = p.saved
	for i := p.begun; i < len(w.begun); i++ { // they stay: a later Undo to an earlier point takes these records back, too
		if err := w.disown(&w.begun[i]); err != nil {
			return err
		}
	}
	return nil
}

// note notes a version for Undo, or how many elements it has by now.
func (w *Writer) note(u *unborn) {
	if n := len(w.begun); n == 0 || w.begun[n-1].version != u.version {
		w.begun = append(w.begun, *u)
		w.begun[n].user = bytes.Clone(u.user)
		return
	}
	w.begun[len(w.begun)-1].size = u.size
}
