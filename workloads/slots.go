package workloads

import (
	"fmt"
	"slices"
)

// A client may keep each of its pipelines to one slot. It then draws the first operation of a pipeline as the workload
// says. That operation's record says which slot it is. For the others the client draws a record as always, and takes
// one of the slot in its place: if the slot has five records, a record from the first fifth of all records stands for
// the first of the five. So slots are as popular as their records are together, and a choice that favours a range of
// numbers favours the same part of a slot. Within a slot a scrambled choice is close to uniform.

const (
	slotCount = 16384
	anySlot   = -1 // stands for all slots
	// maxIndexed bounds the records of a kind whose slots are looked up, at four bytes each.
	maxIndexed = 1 << 24
)

// slotIndex lists the records of a kind by the slot of one of their keys.
type slotIndex struct {
	from    []uint32 // where the records of a slot begin; one more than there are slots
	records []uint32 // slot by slot, in ascending order within a slot
}

// indexedKey names a key of the records of a kind. absent is set for the key beside it that nobody writes.
type indexedKey struct {
	kind, key int
	absent    bool
}

// index makes the indexes for all operations that choose a record.
func (s *Source) index() error {
	made := map[indexedKey]*slotIndex{}
	s.bySlot = make([][2]*slotIndex, len(s.workload.Ops))
	for i := range s.workload.Ops {
		op := &s.workload.Ops[i]
		key, keyed := -1, false
		if op.kind >= 0 {
			key, keyed = op.steps[0].routedBy()
		}
		if !keyed {
			continue
		}
		k := s.kinds[op.kind]
		if k.records > maxIndexed {
			return fmt.Errorf("workload %s: %d records of kind %s, want at most %d for pipelines of one slot",
				s.workload.Name, k.records, k.name, maxIndexed)
		}
		for at, absent := range []bool{false, true} {
			if absent && op.absent == 0 || !absent && op.absent == 1 || !k.load && k.inserted {
				continue
			}
			of := indexedKey{op.kind, key, absent}
			if made[of] == nil {
				made[of] = s.indexOf(of)
			}
			s.bySlot[i][at] = made[of]
		}
	}
	return nil
}

// routedBy returns which key of its record routes a command.
func (c *commandSpec) routedBy() (key int, ok bool) {
	for _, w := range c.words {
		switch w.kind {
		case wordKey, wordNext, wordBack:
			return w.key, true
		case wordKeys, wordKeysValues:
			return 0, true
		}
	}
	return 0, false
}

func (s *Source) indexOf(of indexedKey) *slotIndex {
	k := s.kinds[of.kind]
	x := &slotIndex{from: make([]uint32, slotCount+1), records: make([]uint32, k.records)}
	slots := make([]uint16, k.records)
	values := s.values
	var text []byte
	for n := range slots {
		text = k.appendKey(text[:0], &values, of.key, uint64(n))
		if of.absent {
			text = append(text, absentMark)
		}
		slots[n] = s.o.SlotOf(text)
		x.from[slots[n]+1]++
	}
	for i := range slotCount {
		x.from[i+1] += x.from[i]
	}
	next := slices.Clone(x.from)
	for n, slot := range slots {
		x.records[next[slot]] = uint32(n)
		next[slot]++
	}
	return x
}

// in returns a record of a slot in place of record n of so many. It is one whose number is that of the client modulo
// the number of clients. If the slot has no such record, in returns n itself.
func (x *slotIndex) in(slot int, n, of, client, clients uint64) uint64 {
	list := x.records[x.from[slot]:x.from[slot+1]]
	if len(list) == 0 {
		return n
	}
	first := int(min(n*uint64(len(list))/of, uint64(len(list)-1)))
	for i := range list {
		if r := uint64(list[(first+i)%len(list)]); r%clients == client {
			return r
		}
	}
	return n
}
