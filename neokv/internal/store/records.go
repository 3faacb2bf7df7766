package store

import (
	"encoding/json"
	"errors"
	"fmt"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// records is the store's database as far as it tells of the store itself: its identity, the records of its replicas,
// the map that it adopted last, and which slots have data. It has no state of its own; whoever changes the slots of
// replicas holds slots.mu.
type records struct{ *core }

// identify checks that the folder belongs to this store and cluster and has the present format. known is false for a
// new folder, which has no records of replicas yet.
func (x *records) identify() (known bool, err error) {
	value, err := x.get(keys.AppendStoreIdentity(nil))
	if err != nil || value == nil {
		return false, err
	}
	have, err := keys.ParseStoreIdentity(value)
	if err != nil {
		return false, fmt.Errorf("folder %s: %w", x.o.Dir, err)
	}
	if want := x.identity(); have.Cluster != want.Cluster || have.Store != want.Store {
		return false, fmt.Errorf("folder %s belongs to store %d of cluster %x, not to store %d of cluster %x",
			x.o.Dir, have.Store, have.Cluster, want.Store, want.Cluster)
	}
	return true, nil
}

func (x *records) identity() *keys.StoreIdentity {
	return &keys.StoreIdentity{Cluster: x.o.Cluster, Store: x.o.ID}
}

// found makes the first records of a new store: its identity, and its replicas of the cluster's first regions. One
// synced batch has all of it, so that the next start finds all or nothing. The cluster has never served: see
// Options.Known. A store that was wiped begins with its identity alone.
func (x *records) found() error {
	b := x.engine.NewBatch()
	err := b.Set(keys.AppendStoreIdentity(nil), x.identity().Append(nil))
	if m := x.o.Initial; m != nil && x.o.Wiped.Nth == 0 {
		for i := range m.Regions {
			r := &m.Regions[i]
			if peer, held := r.PeerOn(x.o.ID); held {
				state := keys.RegionState{KeysExact: true, Slots: r.Slots, Version: r.Version}
				err = errors.Join(err, setReplica(b, r.ID, &state, &keys.ReplicaRecord{ID: peer.Replica, Born: 1,
					PeerSet: keys.FirstPeers(r.Peers)}))
			}
		}
	}
	if err != nil {
		b.Close()
		return err
	}
	return b.Commit(true)
}

func (x *records) get(key []byte) ([]byte, error) {
	view := x.engine.NewView()
	defer view.Close()
	value, ok, err := view.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	return append([]byte(nil), value...), nil
}

// applied returns the apply index of a replica that the engine has, 0 if there is no replica.
func (x *records) applied(id topology.RegionID) (uint64, error) {
	if id == topology.MetaRegion {
		return meta.ApplyIndex(x.engine)
	}
	return region.ApplyIndex(x.engine, id)
}

// owned returns the replicas of which the store has records, as of one moment, by region id.
func (x *records) owned() (all []ownedRegion, err error) {
	view := x.engine.NewView()
	defer view.Close()
	it, err := view.Iter(keys.CategoryBounds(keys.CategoryReplica))
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var o ownedRegion
		var value []byte
		if o.id, err = keys.ParseReplicaKey(it.Key()); err == nil {
			value, err = it.ValueAndErr()
		}
		if err == nil {
			o.record, err = keys.ParseReplica(value)
		}
		all = append(all, o)
	}
	if err = errors.Join(err, it.Error(), it.Close()); err != nil {
		return nil, fmt.Errorf("records of replicas: %w", err)
	}
	for i := range all {
		o := &all[i]
		value, ok, err := view.Get(keys.AppendRegionState(nil, o.id))
		if err == nil && !ok {
			err = errors.New("there is a record of the replica, and no region state")
		}
		if err == nil {
			o.state, err = keys.ParseRegionState(value)
		}
		if err != nil {
			return nil, fmt.Errorf("region %d: %w", o.id, err)
		}
	}
	return all, nil
}

// ended returns the largest id of the store's replicas of a region that have left it, 0 for none.
func (x *records) ended(id topology.RegionID) (topology.ReplicaID, error) {
	value, err := x.get(keys.AppendEnded(nil, id))
	if err != nil || value == nil {
		return 0, err
	}
	return keys.ParseEnded(value)
}

// keptMap returns the map that the store adopted last, nil if it has adopted none.
func (x *records) keptMap() (*meta.Map, error) {
	value, err := x.get(keys.AppendClusterMap(nil))
	if err != nil || value == nil {
		return nil, err
	}
	if value[0] != mapFormat {
		return nil, fmt.Errorf("decode cluster map: format %d, want %d", value[0], mapFormat)
	}
	m := new(meta.Map)
	if err = json.Unmarshal(value[1:], m); err == nil {
		err = m.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("decode cluster map: %w", err)
	}
	return m, nil
}

func (x *records) empty(r topology.SlotRange) (bool, error) {
	view := x.engine.NewView()
	defer view.Close()
	for _, ks := range keys.RegionKeyspaces {
		it, err := view.Iter(keys.SlotBounds(ks, r))
		if err != nil {
			return false, err
		}
		found := it.First()
		if err := errors.Join(it.Error(), it.Close()); err != nil || found {
			return false, err
		}
	}
	return true, nil
}

// sizeOf estimates the bytes that slots take in the tables of the store.
func (x *records) sizeOf(slots topology.SlotRange) (sum uint64, err error) {
	for _, ks := range keys.RegionKeyspaces {
		lower, upper := keys.SlotBounds(ks, slots)
		n, err := x.engine.TableBytes(engine.Span{Lower: lower, Upper: upper})
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// bisect locates the bytes that slots take.
func (x *records) bisect(slots topology.SlotRange) []schedule.Weight {
	return schedule.BisectSize(slots, func(part topology.SlotRange) uint64 {
		n, _ := x.sizeOf(part) // an error is one of the store, which then fails
		return n
	}, sizeSteps)
}

// ownedRegion is a replica of which the store has a record, with its region state.
type ownedRegion struct {
	id     topology.RegionID
	record keys.ReplicaRecord
	state  keys.RegionState
}

func (o *ownedRegion) region() topology.Region {
	return topology.Region{
		ID: o.id, Slots: o.state.Slots, Peers: o.record.Peers, Version: o.state.Version,
		ConfVersion: o.record.Conf,
	}
}

// setReplica adds to a batch the records with which a replica begins.
func setReplica(b *engine.Batch, id topology.RegionID, state *keys.RegionState, record *keys.ReplicaRecord) error {
	return errors.Join(b.Set(keys.AppendRegionState(nil, id), state.Append(nil)),
		b.Set(keys.AppendReplica(nil, id), record.Append(nil)))
}

// keepMap saves the map that the store adopts, for the next start.
func (x *records) keepMap(m *meta.Map) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode cluster map: %w", err)
	}
	b := x.engine.NewBatch()
	if err = b.Set(keys.AppendClusterMap(nil), append([]byte{mapFormat}, text...)); err != nil {
		b.Close()
	} else {
		err = b.Commit(false)
	}
	if err != nil {
		return fmt.Errorf("keep cluster map: %w", err)
	}
	return nil
}

// mapFormat is the first byte of the kept map: [format u8][map as JSON].
const mapFormat = 1
