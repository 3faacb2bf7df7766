package workloads

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// This file has what reading back needs to know of records.

// BothWrite returns keys of two workloads that may be the same, where both workloads load or write such a key. Keys
// differ if what stands before the first number in them differs.
func (w *Workload) BothWrite(other *Workload) (key, otherKey string, both bool) {
	for _, k := range w.kinds {
		for _, o := range other.kinds {
			if !w.writes(k) || !other.writes(o) {
				continue
			}
			for _, a := range k.keys {
				for _, b := range o.keys {
					x, y := a.name.start(), b.name.start()
					if strings.HasPrefix(x, y) || strings.HasPrefix(y, x) {
						return x + "...", y + "...", true
					}
				}
			}
		}
	}
	return "", "", false
}

// writes reports whether records of a kind are loaded or written.
func (w *Workload) writes(kind *recordKind) bool {
	return kind.load || slices.ContainsFunc(w.Ops, func(op Op) bool {
		return slices.ContainsFunc(op.steps, func(c *commandSpec) bool {
			return c.kind >= 0 && w.kinds[c.kind] == kind && c.does != Read
		})
	})
}

// Counts reports whether reading back compares the number of elements of the records of a kind, since elements come and
// go or hold nothing.
func (s *Source) Counts(kind int) bool { return s.kinds[kind].counts() }

// Counter reports whether the records of a kind are numbers.
func (s *Source) Counter(kind int) bool { return s.kinds[kind].counter }

// Collection reports whether the records of a kind are collections.
func (s *Source) Collection(kind int) bool { return s.kinds[kind].of != nil }

// ElementsOf returns how many elements a record is loaded with.
func (s *Source) ElementsOf(kind int, record uint64) int { return s.kinds[kind].elementsOf(record) }

// Joint returns how many records of a kind there may be whose keys are all there or all absent, 0 for a kind with one
// key.
func (s *Source) Joint(kind int) uint64 {
	k := s.kinds[kind]
	if len(k.keys) < 2 {
		return 0
	}
	return max(k.records, k.inserts.Numbered())
}

// Follows reports whether reading back can tell what the records of a kind must hold.
func (s *Source) Follows(kind int) bool { return s.kinds[kind].followed() }

// KindCount returns how many kinds of records there are.
func (s *Source) KindCount() int { return len(s.kinds) }

// Is reports whether what a command of Look answered is what a write of a value leaves behind. Each of texts is one
// string, nil for an absent one.
func (s *Source) Is(kind int, record uint64, texts [][]byte, id ValueID) bool {
	k := s.kinds[kind]
	if k.of == sortedSet {
		var score [textBytes]byte
		return texts[0] != nil && bytes.Equal(texts[0], appendScore(score[:0], id))
	}
	if k.of != nil {
		return texts[0] != nil && bytes.Equal(texts[0], k.value(id, 0))
	}
	values := s.values
	for key := range k.keys {
		if texts[key] == nil || !bytes.Equal(texts[key], k.held(nil, &values, key, record, id)) {
			return false
		}
	}
	return true
}

// Value returns the bytes of a value for the first key of a kind. The caller must not change them.
func (s *Source) Value(kind int, id ValueID) []byte {
	return s.kinds[kind].value(ElementValue(id, 0), 0)
}

// Place returns a name for messages of what Look reads.
func (s *Source) Place(kind int, record uint64, element int) string {
	k := s.kinds[kind]
	values := s.values
	name := string(k.appendKey(nil, &values, 0, record))
	switch {
	case len(k.keys) > 1:
		return fmt.Sprintf("%s and %d more", name, len(k.keys)-1)
	case k.of != nil && !k.counts():
		return name + " " + string(appendMember(nil, element))
	}
	return name
}
