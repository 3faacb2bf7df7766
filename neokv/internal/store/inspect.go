package store

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Inspection is a store's database, opened to be looked at while no store runs on it.
type Inspection struct {
	core
	records records
	Regions []InspectedRegion
}

// InspectedRegion is a replica as a store has it.
type InspectedRegion struct {
	topology.Region
	Replica topology.ReplicaID
	Phase   keys.RegionPhase
	Applied uint64 // the apply index
	Logged  uint64 // where the log ends
}

// OpenInspection opens the database of a store, whose folder's file system takes no writes: see disk.ReadOnly. bad is
// called, from any goroutine, with what the engine finds damaged. wrong are the errors in what it holds.
func OpenInspection(o Options, bad func(error)) (x *Inspection, wrong []error, err error) {
	x = &Inspection{core: core{o: o}}
	x.records = records{&x.core}
	x.engine, err = engine.Open(engine.Options{
		Dir: Places(o.Dir, "").Engine, WALDir: o.WALDir, ReadOnly: true, FS: o.FS, Knobs: settings.Default().Engine,
		Stores: o.Settings.Cluster.Stores, Nth: (int(o.ID) - 1) % o.Settings.Cluster.Stores, Fatal: bad,
	})
	if err != nil {
		return nil, nil, err
	}
	known, err := x.records.identify()
	if err == nil && !known {
		err = errors.New("the database lacks the store's identity")
	}
	if err != nil {
		wrong = append(wrong, err)
	}
	all, err := x.records.owned()
	if err != nil {
		wrong = append(wrong, err)
	}
	x.raft = multiraft.New(multiraft.Options{
		FS: o.FS, Applied: x.records.applied, Failed: func() error { return nil }, Fence: bad,
	})
	x.raft.OpenLog(x.engine)
	for i := range all {
		r := &all[i]
		if err := x.raft.Check(r.id, r.record.ID); err != nil {
			wrong = append(wrong, err)
		}
		last, err := x.raft.LastLogged(r.id)
		if err != nil {
			wrong = append(wrong, err)
		}
		x.Regions = append(x.Regions, InspectedRegion{Region: r.region(), Replica: r.record.ID, Phase: r.state.Phase,
			Applied: r.state.ApplyIndex, Logged: last})
	}
	if meta.IsMember(o.Founders, o.ID) {
		if err := x.raft.Check(topology.MetaRegion, meta.ReplicaOn(o.ID, o.Wiped.Nth)); err != nil {
			wrong = append(wrong, err)
		}
	}
	return x, wrong, nil
}

// Close closes the database.
func (x *Inspection) Close() error { return x.engine.Close() }

// Tables returns the tables that the database uses.
func (x *Inspection) Tables() ([]engine.Table, error) { return x.engine.Tables() }

// KeyspaceSize says what a keyspace of a store holds.
type KeyspaceSize struct {
	Keyspace keys.Keyspace
	Keys     int64
	Bytes    int64 // of keys and values, before compression
	Tables   int64 // bytes in tables, an estimate; what is in logs alone is not there
}

// Content says what a store holds.
type Content struct {
	Keyspaces []KeyspaceSize
	Unnamed   int64 // bytes of elements that no record names, which wait to be reclaimed
	Types     map[string]int64
	Expiring  int64 // keys with an expiry
	Largest   []LargeKey
}

// LargeKey is a key of Redis data with the bytes that it takes: of its record and of all its elements, with their keys.
type LargeKey struct {
	Key      []byte
	Slot     topology.Slot
	Type     string
	Bytes    int64
	Elements uint64 // bytes of a string
}

// Read reads all that the store holds. Keys of the slots that count takes are counted by type; the largest of them,
// most at most, are in Content.Largest, the largest first. It needs no more memory for more keys.
func (x *Inspection) Read(ctx context.Context, count func(topology.Slot) bool, most int) (c Content, err error) {
	c.Types = make(map[string]int64)
	pinned := x.engine.NewSnapshot()
	defer func() { err = errors.Join(err, pinned.Close()) }()
	for _, ks := range []keys.Keyspace{keys.RaftLog, keys.MetaInfo} {
		w, err := newWalk(pinned, ks)
		for err == nil && w.valid {
			if err = context.Cause(ctx); err == nil {
				err = w.next()
			}
		}
		if err := errors.Join(err, w.close()); err != nil {
			return c, fmt.Errorf("%v: %w", ks, err)
		}
		c.Keyspaces = append(c.Keyspaces, w.size)
	}
	largest := &largeKeys{most: most}
	if err := x.readKeys(ctx, pinned, &c, largest, count); err != nil {
		return c, err
	}
	slices.SortFunc(largest.keys, func(a, b LargeKey) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), bytes.Compare(a.Key, b.Key))
	})
	c.Largest = largest.keys
	for i := range c.Keyspaces {
		n, err := x.engine.DiskUsage(c.Keyspaces[i].Keyspace)
		if err != nil {
			return c, err
		}
		c.Keyspaces[i].Tables = int64(n)
	}
	return c, nil
}

// readKeys walks over the keyspaces of Redis data side by side: all have the order of slots and keys.
func (x *Inspection) readKeys(ctx context.Context, pinned *engine.Snapshot, c *Content, largest *largeKeys,
	count func(topology.Slot) bool) (err error) {
	var walks []*walk
	defer func() {
		for _, w := range walks {
			err = errors.Join(err, w.close())
			c.Keyspaces = append(c.Keyspaces, w.size)
		}
	}()
	for _, ks := range keys.RegionKeyspaces {
		w, err := newWalk(pinned, ks)
		walks = append(walks, w)
		if err != nil {
			return fmt.Errorf("%v: %w", ks, err)
		}
	}
	records := walks[slices.Index(keys.RegionKeyspaces[:], keys.RedisMetadata)]
	var front []byte
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		found := false
		for _, w := range walks {
			if w.valid && (!found || bytes.Compare(w.front(), front) < 0) {
				front, found = append(front[:0], w.front()...), true
			}
		}
		if !found {
			return nil
		}
		key, err := keys.ParseRedis(append([]byte{byte(keys.RedisMetadata)}, front...))
		if err != nil {
			return err
		}
		large, version, is := LargeKey{Key: key.User, Slot: key.Slot}, uint64(0), false
		if records.valid && bytes.Equal(records.front(), front) {
			var m keys.Metadata
			value, err := records.it.ValueAndErr()
			if err == nil {
				m, err = keys.ParseMetadata(value)
			}
			if err != nil {
				return fmt.Errorf("key %q: %w", key.User, err)
			}
			is, version, large.Type, large.Elements = true, m.Version, m.Type.String(), m.Size
			if !m.Apart() {
				large.Elements = uint64(len(m.Value))
			}
			if m.ExpireMS != 0 && count(key.Slot) {
				c.Expiring++
			}
			large.Bytes += records.bytes()
			if err := records.next(); err != nil {
				return fmt.Errorf("%v: %w", records.size.Keyspace, err)
			}
		}
		for _, w := range walks {
			for w.valid && bytes.Equal(w.front(), front) {
				k, err := keys.ParseRedis(w.it.Key())
				if err != nil {
					return err
				}
				of, _, apart := k.Subkey()
				switch {
				case k.Legacy() && w.size.Keyspace == keys.Data:
					is, large.Type, large.Bytes = true, keys.String.String(), large.Bytes+w.bytes()
					large.Elements = uint64(len(w.it.Value()))
				case is && apart && version != 0 && of == version:
					large.Bytes += w.bytes()
				default:
					c.Unnamed += w.bytes()
				}
				if err := w.next(); err != nil {
					return fmt.Errorf("%v: %w", w.size.Keyspace, err)
				}
			}
		}
		if is && count(key.Slot) {
			c.Types[large.Type]++
			largest.add(large)
		}
	}
}

// walk goes through a keyspace, and adds up what it has.
type walk struct {
	it    *pebble.Iterator
	valid bool
	size  KeyspaceSize
}

func newWalk(pinned *engine.Snapshot, ks keys.Keyspace) (*walk, error) {
	w := &walk{size: KeyspaceSize{Keyspace: ks}}
	it, err := pinned.Iter(ks.Bounds())
	if err != nil {
		return w, err
	}
	w.it = it
	w.valid = it.First()
	w.add()
	return w, it.Error()
}

func (w *walk) next() error {
	w.valid = w.it.Next()
	w.add()
	return w.it.Error()
}

func (w *walk) add() {
	if w.valid {
		w.size.Keys++
		w.size.Bytes += w.bytes()
	}
}

// bytes is the size of the key and the value that the walk stands on.
func (w *walk) bytes() int64 { return int64(len(w.it.Key()) + len(w.it.Value())) }

// front is what the key has in common with all keys of the same Redis key in other keyspaces.
func (w *walk) front() []byte { return w.it.Key()[1:keys.UserKeyEnd(w.it.Key())] }

func (w *walk) close() error {
	if w.it == nil {
		return nil
	}
	return w.it.Close()
}

// largeKeys are the largest keys so far, as a heap with the smallest of them in front.
type largeKeys struct {
	most int
	keys []LargeKey
}

func (l *largeKeys) add(k LargeKey) {
	if l.most == 0 || len(l.keys) == l.most && k.Bytes <= l.keys[0].Bytes {
		return
	}
	k.Key = bytes.Clone(k.Key)
	if len(l.keys) == l.most {
		l.keys[0] = k
		heap.Fix(l, 0)
		return
	}
	heap.Push(l, k)
}

func (l *largeKeys) Len() int           { return len(l.keys) }
func (l *largeKeys) Less(i, j int) bool { return l.keys[i].Bytes < l.keys[j].Bytes }
func (l *largeKeys) Swap(i, j int)      { l.keys[i], l.keys[j] = l.keys[j], l.keys[i] }
func (l *largeKeys) Push(x any)         { l.keys = append(l.keys, x.(LargeKey)) }
func (l *largeKeys) Pop() any {
	last := l.keys[len(l.keys)-1]
	l.keys = l.keys[:len(l.keys)-1]
	return last
}
