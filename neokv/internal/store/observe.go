package store

import (
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// Records returns the region states of the replicas of which a store's engine has records, for tests to inspect.
func Records(e *engine.Engine) (map[topology.RegionID]keys.RegionState, error) {
	all, err := (&records{&core{engine: e}}).owned()
	if err != nil {
		return nil, err
	}
	states := make(map[topology.RegionID]keys.RegionState, len(all))
	for i := range all {
		states[all[i].id] = all[i].state
	}
	return states, nil
}
