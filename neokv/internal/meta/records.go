package meta

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// The state machine's records. A change writes the first one and those of the regions that it changes, in one batch.
//
//	name "map"                 [format u8 = 2][apply index u64][map as JSON, without its regions]
//	name "region/" [id u64]    [format u8 = 1][region as JSON]
//
// A snapshot has the state as in the first record, but with the regions.
const (
	stateFormat  = 2
	regionFormat = 1
)

func stateKey() []byte { return keys.AppendMetaState(nil, "map") }

const regionName = "region/"

func regionKey(id topology.RegionID) []byte {
	return binary.BigEndian.AppendUint64(keys.AppendMetaState(nil, regionName), uint64(id))
}

// regionBounds is the range of all records of regions.
func regionBounds() (lower, upper []byte) {
	lower = keys.AppendMetaState(nil, regionName)
	upper = slices.Clone(lower)
	upper[len(upper)-1]++
	return lower, upper
}

// savedState is what the records hold; m is nil if there are none.
type savedState struct {
	m     *Map
	index uint64 // apply index
}

// readState reads the records.
func readState(e *engine.Engine) (s savedState, err error) {
	view := e.NewView()
	defer view.Close()
	value, ok, err := view.Get(stateKey())
	if err != nil || !ok {
		return savedState{}, err
	}
	if s, err = parseState(value); err == nil {
		err = readRegions(view, s.m)
	}
	if err != nil {
		return savedState{}, fmt.Errorf("meta: %w", err)
	}
	return s, nil
}

// readRegions reads the records of regions into m.
func readRegions(view *engine.View, m *Map) (err error) {
	lower, upper := regionBounds()
	it, err := view.Iter(lower, upper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.First(); it.Valid(); it.Next() {
		var r topology.Region
		value := it.Value()
		if len(value) == 0 || value[0] != regionFormat {
			return fmt.Errorf("record %x: %d bytes, want format %d", it.Key(), len(value), regionFormat)
		}
		if err := json.Unmarshal(value[1:], &r); err != nil {
			return fmt.Errorf("record %x: %w", it.Key(), err)
		}
		if string(it.Key()) != string(regionKey(r.ID)) {
			return fmt.Errorf("record %x: has region %d", it.Key(), r.ID)
		}
		m.Regions = append(m.Regions, r)
	}
	slices.SortFunc(m.Regions, func(a, b topology.Region) int { return int(a.Slots.First) - int(b.Slots.First) })
	return m.Check()
}

// parseState decodes the record of the map, or a snapshot.
func parseState(value []byte) (s savedState, err error) {
	if len(value) > 0 && value[0] != stateFormat {
		return savedState{}, fmt.Errorf("decode state: format %d, want %d", value[0], stateFormat)
	}
	if len(value) < 9 {
		return savedState{}, fmt.Errorf("decode state: %d bytes, want at least 9", len(value))
	}
	s = savedState{m: new(Map), index: binary.BigEndian.Uint64(value[1:])}
	err = json.Unmarshal(value[9:], s.m)
	if err == nil {
		err = s.m.Check()
	}
	if err != nil {
		return savedState{}, fmt.Errorf("decode state: %w", err)
	}
	return s, nil
}

// encodeState is the inverse of parseState.
func encodeState(index uint64, m *Map) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return append(binary.BigEndian.AppendUint64([]byte{stateFormat}, index), text...), nil
}

// writeState writes next and its apply index into b, where the engine has old.
func writeState(b *engine.Batch, old, next *Map, index uint64) error {
	first := *next
	first.Regions = nil
	value, err := encodeState(index, &first)
	if err == nil {
		err = b.Set(stateKey(), value)
	}
	if err != nil || next == old {
		return err
	}
	had := make(map[topology.RegionID]*topology.Region, len(old.Regions))
	for i := range old.Regions {
		had[old.Regions[i].ID] = &old.Regions[i]
	}
	for i := range next.Regions {
		r := &next.Regions[i]
		was := had[r.ID]
		delete(had, r.ID)
		if was != nil && same(was, r) {
			continue
		}
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode region %d: %w", r.ID, err)
		}
		if err := b.Set(regionKey(r.ID), append([]byte{regionFormat}, text...)); err != nil {
			return err
		}
	}
	for id := range had {
		if err := b.Delete(regionKey(id)); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two descriptors say the same.
func same(a, b *topology.Region) bool {
	return a.ID == b.ID && a.Slots == b.Slots && a.Version == b.Version &&
		a.ConfVersion == b.ConfVersion && slices.Equal(a.Peers, b.Peers)
}
