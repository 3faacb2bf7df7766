package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/route"
)

// This file has the windows of the map: migrations of slots that clients are shown. See route.Window.

// maxWindows bounds how many windows are open at a time.
const maxWindows = 64

// WindowChange is a change of a window. Exactly one field is set.
type WindowChange struct {
	Open  *route.Window `json:"open,omitempty"` // without an id; one that the map has, by its slots and seed, stays
	Begin *WindowBegin  `json:"begin,omitempty"`
	Close uint64        `json:"close,omitempty"` // the id; no window has it: no effect
}

// WindowBegin has the share of a window grow from a time on, in Unix ms.
type WindowBegin struct {
	ID uint64 `json:"id"`
	MS int64  `json:"ms"`
}

// MapChange is a change of the map that a store asks meta's leader for. Exactly one field is set.
type MapChange struct {
	Window *WindowChange `json:"window,omitempty"`
	Store  *StoreChange  `json:"store,omitempty"`
	Wipe   *WipeChange   `json:"wipe,omitempty"`
}

// Changed is what has come of a change: the id of the window or of the store, which wipe of the
// store it is, or why it is refused.
type Changed struct {
	ID      uint64 `json:"id,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Change changes the map. This store must lead meta. It may be called again where the outcome is not known.
func (g *Group) Change(ctx context.Context, c MapChange) (got Changed, err error) {
	data, err := g.propose(ctx, &change{Window: c.Window, Store: c.Store, Wipe: c.Wipe})
	if err == nil && data == nil {
		err = errors.New("refused") // see change.apply
	}
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		return Changed{}, fmt.Errorf("meta: change the map: %w", err)
	}
	return got, nil
}

// apply returns the windows of a map after the change, and what has come of it. changed says that they are others now.
func (c *WindowChange) apply(m *Map) (after []route.Window, changed bool, got Changed) {
	all := m.Windows
	byID := func(id uint64) int {
		return slices.IndexFunc(all, func(w route.Window) bool { return w.ID == id })
	}
	switch {
	case c.Open != nil:
		w := *c.Open
		for i := range all {
			switch old := &all[i]; {
			case !old.Slots.Overlaps(w.Slots):
			case old.Slots == w.Slots && old.Seed == w.Seed && old.From == w.From && old.To == w.To:
				return all, false, Changed{ID: old.ID}
			default:
				return all, false, Changed{Refused: fmt.Sprintf(
					"store %d migrates the slots %s to store %d; want slots that do not migrate", old.From, old.Slots, old.To)}
			}
		}
		w.ID, w.BeginMS = m.Version+1, 0 // a map's version grows with each window, so no two have the same id
		switch err := w.Check(); {
		case err != nil:
			return all, false, Changed{Refused: err.Error()}
		case !m.has(w.From) || !m.has(w.To):
			return all, false, Changed{Refused: fmt.Sprintf("there is no store %d or no store %d", w.From, w.To)}
		case len(all) >= maxWindows:
			return all, false, Changed{Refused: fmt.Sprintf("%d migrations are open; want at most %d", len(all),
				maxWindows)}
		}
		return append(slices.Clone(all), w), true, Changed{ID: w.ID}
	case c.Begin != nil:
		i := byID(c.Begin.ID)
		if i < 0 {
			return all, false, Changed{Refused: "the migration has been called off"}
		}
		if all[i].BeginMS != 0 || c.Begin.MS <= 0 {
			return all, false, Changed{ID: c.Begin.ID}
		}
		all = slices.Clone(all)
		all[i].BeginMS = c.Begin.MS
		return all, true, Changed{ID: c.Begin.ID}
	}
	i := byID(c.Close)
	if i < 0 {
		return all, false, Changed{ID: c.Close}
	}
	return slices.Delete(slices.Clone(all), i, i+1), true, Changed{ID: c.Close}
}

// checkWindows is Check of the windows.
func (m *Map) checkWindows() error {
	for i := range m.Windows {
		w := &m.Windows[i]
		if err := w.Check(); err != nil {
			return err
		}
		for j := range i {
			if m.Windows[j].Slots.Overlaps(w.Slots) || m.Windows[j].ID == w.ID {
				return fmt.Errorf("windows %d of slots %s and %d of slots %s", m.Windows[j].ID, m.Windows[j].Slots, w.ID, w.Slots)
			}
		}
	}
	return nil
}
