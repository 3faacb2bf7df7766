package store

import (
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// Records returns the region states of the replicas of which the store has records, for tests to inspect.
func (s *Store) Records() (map[topology.RegionID]keys.RegionState, error) {
	all, err := s.records.owned()
	if err != nil {
		return nil, err
	}
	states := make(map[topology.RegionID]keys.RegionState, len(all))
	for i := range all {
		states[all[i].id] = all[i].state
	}
	return states, nil
}
