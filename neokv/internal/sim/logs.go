package sim

import (
	"hash/maphash"
	"slices"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// appliedEntry is what a replica made of one entry of the log.
type appliedEntry struct {
	tag     uint64
	payload uint64 // hash of the payload
	refusal string // why it took no effect; empty if it did
}

// payloads hashes payloads.
var payloads = maphash.MakeSeed()

// observe hears of every entry that reaches apply. All replicas must make the same of an entry, and a replica that
// applies it again after a restart, too.
func (s *sim) observe(st topology.StoreID, r topology.RegionID, index, tag uint64, payload []byte, refusal error) {
	s.slowDown(st, r, payload)
	s.sawBehind(st, r, payload)
	s.hangUnsynced(st, r, payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[r] == nil {
		s.entries[r] = make(map[uint64]appliedEntry)
	}
	e := appliedEntry{tag, maphash.Bytes(payloads, payload), ""}
	if refusal != nil {
		e.refusal = refusal.Error()
	}
	if s.bounds.tags == nil {
		s.bounds.tags = make(map[topology.RegionID]uint64)
	}
	s.bounds.tags[r] = tag
	if other, ok := s.entries[r][index]; ok && other != e {
		s.keepLocked(found(logsDiffer, "region %d: index %d: store %d has %+v, another replica had %+v",
			r, index, st, e, other))
	}
	s.entries[r][index] = e
	switch refusal {
	case nil, region.ErrBase:
	case region.ErrBounds:
		s.reachLocked(refusedBounds, 1)
	default:
		s.reachLocked(entryRefused, 1)
	}
}

// checkEntries checks that behind the first entry of a term no entry with the tag of an earlier one took effect, on any
// replica.
func (s *sim) checkEntries() error {
	for r, entries := range s.entries {
		indexes := make([]uint64, 0, len(entries))
		for i := range entries {
			indexes = append(indexes, i)
		}
		slices.Sort(indexes)
		largest := uint64(0)
		for _, i := range indexes {
			e := entries[i]
			if (e.refusal == region.ErrBounds.Error() || e.refusal == region.ErrBase.Error()) && e.tag >= largest {
				continue // its tag does not count
			}
			if (e.refusal == "") != (e.tag >= largest) {
				return found(logsDiffer, "region %d: index %d: tag %d, refused: %q, after tag %d", r, i, e.tag,
					e.refusal, largest)
			}
			largest = max(largest, e.tag)
		}
	}
	return nil
}
