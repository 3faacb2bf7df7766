package sim

import (
	"bytes"
	"errors"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// regionContent returns the region state of a replica and, behind it, its keys and values by turns.
func regionContent(st *store.Store, r topology.RegionID) ([][]byte, error) {
	if st.Replica(r) == nil {
		return nil, &lagging{errors.New("no replica yet")}
	}
	v := st.Engine().NewView()
	defer v.Close()
	state, ok, err := v.Get(keys.AppendRegionState(nil, r))
	if err != nil {
		return nil, err
	}
	if !ok { // the replica has lost what it had not synced
		return nil, &lagging{errors.New("no region state")}
	}
	out := [][]byte{bytes.Clone(state)}
	bounds, err := keys.ParseRegionState(state)
	if err != nil {
		return nil, err
	}
	for _, ks := range keys.RegionKeyspaces {
		it, err := v.Iter(keys.SlotBounds(ks, bounds.Slots))
		if err != nil {
			return nil, err
		}
		for ok := it.First(); ok; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return nil, errors.Join(err, it.Close())
			}
			out = append(out, bytes.Clone(it.Key()), bytes.Clone(value))
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return nil, err
		}
	}
	return out, unreachable(v, bounds.Slots, out)
}

// unreachable returns an element that no command can read. There is none once the reclaimer has done its work.
func unreachable(v *engine.View, slots topology.SlotRange, content [][]byte) error {
	it, err := v.Iter(keys.OrphanBounds(slots))
	if err != nil {
		return err
	}
	waits := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if waits {
		return &lagging{errors.New("orphans wait to be reclaimed")}
	}
	versions := map[string]uint64{}
	for i := 1; i < len(content); i += 2 {
		if k, err := keys.ParseRedis(content[i]); err == nil && k.Keyspace == keys.RedisMetadata {
			if m, err := keys.ParseMetadata(content[i+1]); err == nil {
				versions[string(k.User)] = m.Version
			}
		}
	}
	for i := 1; i < len(content); i += 2 {
		k, err := keys.ParseRedis(content[i])
		if err != nil {
			return err
		}
		if version, _, ok := k.Subkey(); ok && version != versions[string(k.User)] {
			return found(unreadable, "key %q: an element of version %d is left, the key is at %d",
				k.User, version, versions[string(k.User)])
		}
	}
	return nil
}
