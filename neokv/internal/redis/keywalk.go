package redis

import (
	"bytes"
	"cmp"
	"errors"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

const (
	// MaxWalk bounds the records that one step of a walk looks at, so that it does not stay in the replica's gate for
	// long.
	MaxWalk = 1000
	// WholeSlotKeys is how many records a slot may have for a walk by whole slots to take them in one step.
	WholeSlotKeys = 1024
)

// KeyWalk goes over the keys of some slots of a region in bounded steps, in the order slot, key length, key. DBSIZE,
// KEYS, SCAN, CLUSTER COUNTKEYSINSLOT and CLUSTER GETKEYSINSLOT use it. Each step sees the state at its own instant.
// The walk meets a key exactly once if the key exists from its beginning to its end.
//
//	w := KeyWalk{Slots: slots}
//	for more := true; more; more = w.Advance() {
//		... run w.Call() as a read, then use w.Keys ...
//	}
type KeyWalk struct {
	// Slots is what is left to walk, within the region's bounds. Advance moves First.
	Slots topology.SlotRange
	// After is the key of slot Slots.First after which the walk goes on. It need not exist. If it is nil, the walk
	// begins with the slot's first key.
	After []byte
	// Limit is how many records a step looks at, expired ones included: 1 to MaxWalk. 0 also means MaxWalk.
	Limit int
	// WholeSlots makes a step that has reached Limit go on to the end of the slot. It ends within a slot only after
	// WholeSlotKeys records of that slot. So a step always takes the whole of a slot with up to WholeSlotKeys records.
	WholeSlots bool
	// CountOnly makes steps count keys without listing them in Keys.
	CountOnly bool
	// ToLast makes a step set Last to the last key of slot Slots.First, nil if there is none.
	ToLast bool
	// Known is an earlier count of the same slots, or nil. If it still holds, a step sets Unchanged, meets no keys, and
	// ends the walk.
	Known *KeyCount

	// What the last step met. It is valid until the next step, also after the Reader is gone.
	Keys      []WalkedKey
	Count     int
	Last      []byte
	Unchanged bool

	met KeyCount // the last step's count, for KeyCount.Add

	done     bool
	nextSlot topology.Slot
	inside   bool // the walk goes on within nextSlot, behind next
	next     []byte
	bytes    []byte // holds the keys
}

// KeyCount is how many keys there are, and how many of them expire.
type KeyCount struct {
	Keys, Expires int
	// ExpireMS is the sum of their expire times, in Unix ms.
	ExpireMS float64

	slots     topology.SlotRange
	region    topology.RegionID // whose apply index it is: the slots may belong to another region by now
	index     uint64            // the apply index as of which this is the count; 0 if there is no such index
	soonestMS uint64            // when the first of them expires
	begun     bool
}

// Add adds the keys that the last step of a walk has met. The sum over a whole walk may be the Known of a later walk.
func (c *KeyCount) Add(w *KeyWalk) {
	m := &w.met
	if !c.begun {
		*c = KeyCount{slots: m.slots, region: m.region, index: m.index, soonestMS: NoExpiry, begun: true}
	}
	c.Keys, c.Expires, c.ExpireMS = c.Keys+w.Count, c.Expires+m.Expires, c.ExpireMS+m.ExpireMS
	c.soonestMS = min(c.soonestMS, m.soonestMS)
	if c.index != m.index || c.region != m.region {
		c.index = 0
	}
}

// holds reports whether the count is still right for a Reader of these slots.
func (c *KeyCount) holds(slots topology.SlotRange, r *Reader) bool {
	return c != nil && c.index != 0 && c.index == r.Index && c.region == r.Region && c.slots == slots &&
		r.InstantMS < c.soonestMS
}

// WalkedKey is a key that a walk has met.
type WalkedKey struct {
	Slot topology.Slot
	Key  []byte
	Type keys.Type
}

// Call returns the walk's next step as a read of the region. It appends no reply. Like any read, it may run more than
// once; only the last run counts.
func (w *KeyWalk) Call() Call {
	step := func(r *Reader, _ [][]byte, _ *Reply) error { return r.Step(w) }
	return Call{
		Command: &Command{Name: "walk", Arity: 1, Flags: FlagReadonly, Read: step},
		Args:    [][]byte{[]byte("walk")},
	}
}

// Advance moves the walk on after the keys that the last step met, and reports whether any slots are left.
func (w *KeyWalk) Advance() bool {
	if w.done {
		return false
	}
	w.Slots.First, w.After = w.nextSlot, nil
	if w.inside {
		w.After = append([]byte{}, w.next...) // never nil: the empty key is a key
	}
	return true
}

// Within returns the slot within which the last step ended, if it did: there is more in the slot.
func (w *KeyWalk) Within() (slot topology.Slot, ok bool) { return w.nextSlot, w.inside && !w.done }

// Done reports whether the last step was the walk's last.
func (w *KeyWalk) Done() bool { return w.done }

// Step runs the walk's next step.
func (r *Reader) Step(w *KeyWalk) (err error) {
	w.Keys, w.bytes, w.Count = w.Keys[:0], w.bytes[:0], 0
	w.done, w.inside = false, false
	w.met = KeyCount{slots: w.Slots, region: r.Region, index: r.Index, soonestMS: NoExpiry}
	if w.Unchanged = w.Known.holds(w.Slots, r); w.Unchanged {
		w.done = true
		return nil
	}
	limit := w.Limit
	if limit <= 0 || limit > MaxWalk {
		limit = MaxWalk
	}
	if w.ToLast {
		if w.Last, err = r.lastKey(w.Slots.First); err != nil {
			return err
		}
	}
	c, err := r.openRecords(w)
	if err != nil {
		return err
	}
	defer func() {
		if e := c.close(); err == nil {
			err = e
		}
	}()
	looked, inSlot, slot := 0, 0, w.Slots.First
	full := false
	for {
		user, rec, ok, err := c.next()
		switch {
		case err != nil:
			return err
		case !ok:
			w.done = true
			return nil
		case c.slot != slot && looked >= limit:
			w.nextSlot = c.slot
			return nil
		case c.slot != slot:
			slot, inSlot = c.slot, 0
		case full:
			w.nextSlot, w.inside = slot, true
			return nil
		}
		looked++
		inSlot++
		if rec = r.judge(rec); rec.live {
			w.Count++
			if rec.ExpireMS != 0 {
				w.met.Expires++
				w.met.ExpireMS += float64(rec.ExpireMS)
				w.met.soonestMS = min(w.met.soonestMS, rec.ExpireMS)
			}
			if !w.CountOnly {
				w.add(slot, user, rec.Type)
			}
		}
		if full = looked >= limit && (!w.WholeSlots || inSlot >= WholeSlotKeys); full {
			w.next = append(w.next[:0], user...)
		}
	}
}

// CompareKeys compares two keys of a slot in the order of walks.
func CompareKeys(a, b []byte) int { return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b)) }

// lastKey returns the last key of a slot, nil if there is none. It may have expired.
func (r *Reader) lastKey(slot topology.Slot) (last []byte, err error) {
	for _, ks := range []keys.Keyspace{keys.RedisMetadata, keys.Data} {
		if ks == keys.Data && !r.Legacy {
			continue
		}
		it, err := r.source().Iter(keys.SlotBounds(ks, topology.SlotRange{First: slot, Last: slot}))
		if err != nil {
			return nil, err
		}
		if it.Last() {
			var k keys.RedisKey
			if k, err = keys.ParseRedis(it.Key()[:keys.UserKeyEnd(it.Key())]); err == nil && CompareKeys(k.User, last) >= 0 {
				last = append([]byte{}, k.User...) // never nil: the empty key is a key
			}
		}
		if err := errors.Join(err, it.Error(), it.Close()); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// add notes a key. When w.bytes grows, earlier keys stay in its old array.
func (w *KeyWalk) add(slot topology.Slot, user []byte, t keys.Type) {
	at := len(w.bytes)
	if w.bytes == nil {
		w.bytes = []byte{} // the empty key is not nil
	}
	w.bytes = append(w.bytes, user...)
	w.Keys = append(w.Keys, WalkedKey{Slot: slot, Key: w.bytes[at:len(w.bytes):len(w.bytes)], Type: t})
}

// recordIter goes over the keys of redis_metadata. If the region may hold legacy strings, it merges in the keys of the
// data keyspace, by user key. A deleted collection may have left subkeys there of a key that has no record. The
// iterator returns such a key, too, with a record that is not stored.
type recordIter struct {
	r              *Reader
	slot           topology.Slot // of the record that next returned
	metadata, data side
}

// side is one keyspace of a recordIter.
type side struct {
	iter *engine.Iter // nil: the keyspace is not looked at
	// key is a copy of the storage key that iter stands on, up to and including the user key. It is empty at the end.
	key   []byte
	taken bool   // next has returned key
	seek  []byte // scratch
}

func (r *Reader) openRecords(w *KeyWalk) (*recordIter, error) {
	c := &recordIter{r: r}
	err := c.metadata.open(r, keys.RedisMetadata, w)
	if err == nil && r.Legacy {
		err = c.data.open(r, keys.Data, w)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *recordIter) close() (err error) {
	for _, s := range [...]*side{&c.metadata, &c.data} {
		if s.iter != nil {
			if e := s.iter.Close(); err == nil {
				err = e
			}
		}
	}
	return err
}

func (s *side) open(r *Reader, ks keys.Keyspace, w *KeyWalk) (err error) {
	lower, upper := keys.SlotBounds(ks, w.Slots)
	if w.After != nil { // after everything that begins with the key
		lower = keys.Successor(keys.AppendUserKey(nil, ks, w.Slots.First, w.After))
	}
	if s.iter, err = r.source().Iter(lower, upper); err != nil {
		return err
	}
	return s.place(s.iter.First())
}

// place notes where the iterator stands. valid is what its move returned.
func (s *side) place(valid bool) error {
	s.key, s.taken = s.key[:0], false
	if !valid {
		return s.iter.Error()
	}
	k := s.iter.Key()
	s.key = append(s.key, k[:keys.UserKeyEnd(k)]...)
	return nil
}

// next returns the next user key, which is valid until the following call, and its record.
func (c *recordIter) next() (user []byte, rec record, ok bool, err error) {
	m, d := &c.metadata, &c.data
	if m.taken {
		err = m.place(m.iter.Next())
	}
	if err == nil && d.taken { // past the subkeys of this user key
		d.seek = keys.Successor(append(d.seek[:0], d.key...))
		err = d.place(d.iter.SeekGE(d.seek))
	}
	if err != nil || len(m.key)+len(d.key) == 0 {
		return nil, rec, false, err
	}
	order := -1
	switch {
	case len(m.key) == 0:
		order = +1
	case len(d.key) != 0:
		order = bytes.Compare(m.key[keys.PrefixLen:], d.key[keys.PrefixLen:])
	}
	m.taken, d.taken = order <= 0, order >= 0
	from := m
	if order > 0 {
		from = d
	}
	k, err := keys.ParseRedis(from.key)
	if err != nil {
		return nil, rec, false, err
	}
	c.slot = k.Slot
	if from == d {
		d.seek = keys.AppendMetadata(d.seek[:0], k.Slot, k.User)
		rec, err = legacyRecord(d.seek, c.r.source().Get)
		return k.User, rec, err == nil, err
	}
	value, err := m.iter.ValueAndErr()
	if err == nil {
		rec.Metadata, err = keys.ParseMetadata(value)
	}
	rec.stored = true
	return k.User, rec, err == nil, err
}
