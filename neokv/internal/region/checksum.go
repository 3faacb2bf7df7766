package region

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// A replica's checksum sums up what the region holds as of an apply index. An entry of the log asks for it, so all
// replicas sum up the same state. Apply only pins the engine's state; a goroutine of the replica then reads it, step by
// step.
//
// The sum is the first 16 bytes of a SHA-256 over the following, with the length of each key and value (uvarint) before
// it:
//
//	region state, and behind it the peers
//	redis_metadata, all of the region
//	data: legacy strings, and the subkeys of the versions that metadata names
//	redis_zset_score: the entries of the versions that metadata names
//
// Orphans and orphan records are left out, since replicas reclaim them at their own pace.

// Checksum is what a replica knows of its checksum at one apply index.
type Checksum struct {
	Sum string `json:"sum,omitempty"` // in hex; empty while it is not known
	// Missing says why there will be no sum. It is empty if there may be one.
	Missing string `json:"missing,omitempty"`
	// Progress grows as long as the replica works on the sum.
	Progress uint64 `json:"progress,omitempty"`
}

// Comparison has the checksums of all replicas of a region, as of one apply index.
type Comparison struct {
	Region   topology.RegionID
	Index    uint64
	Slots    topology.SlotRange // the region's as of that index
	Replicas []ReplicaSum
}

// ReplicaSum is the checksum of the replica on one store, or the reason why it is not known.
type ReplicaSum struct {
	Store        topology.StoreID
	Sum, Missing string
}

// Verdict returns "different" if any two known checksums differ, else "incomplete" if one is not known, else "equal".
func (c *Comparison) Verdict() string {
	verdict, first := "equal", ""
	for _, r := range c.Replicas {
		switch {
		case r.Sum == "":
			verdict = "incomplete"
		case first == "":
			first = r.Sum
		case r.Sum != first:
			return "different"
		}
	}
	return verdict
}

const (
	// keptSums is how many checksums a replica remembers.
	keptSums = 8
	// maxWaitingSums is how many checksums may wait to be made. Each pins a state of the engine.
	maxWaitingSums = 4
	// A step of summing up reads at most so much, or a single larger record. After each step the goroutine pauses for
	// as long as the step took.
	sumStepBytes   = 1 << 20
	sumStepRecords = 4096

	sumBytes = 16 // of the hash
)

// sums has the checksums that a replica has made or is still to make, by apply index.
type sums struct {
	*core
	mu      sync.Mutex
	kept    []*sum
	running bool // a goroutine runs sumUp
}

type sum struct {
	index    uint64
	state    []byte // the region state and the peers
	slots    topology.SlotRange
	pinned   *engine.Snapshot // the state to sum up; nil when that is done or given up
	progress uint64
	result   string
	missing  string
}

// sumCommand is the internal command that asks for a checksum. Its reply is the apply index. It writes nothing.
const sumCommand = "checksum"

// own returns the command of this name that the machine itself runs, or nil if there is none.
func (m *machine) own(name []byte) *redis.Command {
	switch string(name) {
	case sumCommand:
	case changeCommand:
		return &redis.Command{Name: changeCommand, Write: m.change}
	default:
		return nil
	}
	return &redis.Command{Name: sumCommand, Write: func(w *redis.Writer, _ [][]byte, out *redis.Reply) error {
		m.summing = true
		out.Int(int64(w.Index))
		return nil
	}}
}

// pin begins the checksum at the present apply index. It runs when the engine holds the effects of all entries up to
// there and of none after it.
func (m *machine) pin() {
	x := m.sums
	s := &sum{index: m.state.ApplyIndex, state: m.record.PeerSet.Append(m.state.Append(nil)), slots: m.state.Slots}
	x.mu.Lock()
	defer x.mu.Unlock()
	waiting := 0
	for _, other := range x.kept {
		if other.pinned != nil {
			waiting++
		}
	}
	if waiting < maxWaitingSums {
		s.pinned = m.o.Engine.NewSnapshot()
	} else {
		s.missing = "too many checksums at once"
	}
	if len(x.kept) == keptSums {
		oldest := slices.IndexFunc(x.kept, func(s *sum) bool { return s.pinned == nil })
		x.kept = slices.Delete(x.kept, oldest, oldest+1)
	}
	x.kept = append(x.kept, s)
	if !x.running && s.pinned != nil {
		x.running = true
		x.wg.Go(x.sumUp)
	}
}

// sumUp makes checksums until none is left to make. When the replica is stopped it gives them up.
func (x *sums) sumUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		var s *sum
		for _, other := range x.kept {
			if other.pinned != nil {
				s = other
				break
			}
		}
		if s == nil {
			x.running = false
			return
		}
		x.mu.Unlock()
		result, err := x.sumOf(s)
		err = errors.Join(err, s.pinned.Close())
		if err != nil && !errors.Is(err, ErrStopped) {
			x.o.Fence(fmt.Errorf("region %d: checksum at apply index %d: %w", x.o.Region.ID, s.index, err))
		}
		x.mu.Lock()
		s.pinned, s.state, s.result = nil, nil, result
		if err != nil {
			s.missing = "store stopped"
		}
	}
}

// sumOf makes one checksum.
func (x *sums) sumOf(s *sum) (string, error) {
	d := &digest{pinned: s.pinned, hash: sha256.New()}
	d.add(keys.AppendRegionState(nil, x.o.Region.ID), s.state)
	for _, ks := range []keys.Keyspace{keys.RedisMetadata, keys.Data, keys.ZSetScore} {
		lower, upper := keys.SlotBounds(ks, s.slots)
		for lower != nil {
			begin := time.Now()
			next, err := d.step(lower, upper)
			if err != nil {
				return "", err
			}
			lower = next
			x.mu.Lock()
			s.progress++
			x.mu.Unlock()
			if x.o.Failed() != nil {
				return "", ErrStopped
			}
			rest := time.NewTimer(time.Since(begin))
			select {
			case <-x.stop:
				rest.Stop()
				return "", ErrStopped
			case <-rest.C:
			}
		}
	}
	return hex.EncodeToString(d.hash.Sum(nil)[:sumBytes]), nil
}

// digest hashes the records of a region that count: see counts.
type digest struct {
	pinned *engine.Snapshot
	hash   hash.Hash
	bytes  int // hashed since the step began
	length [2 * binary.MaxVarintLen64]byte

	// The collection whose subkeys or score keys the digest met last.
	user    []byte // the front that its key has in redis_metadata
	version uint64 // the version that its record names, 0 if there is no such record
	kind    keys.Type
}

func (d *digest) add(key, value []byte) {
	for _, b := range [][]byte{key, value} {
		d.hash.Write(binary.AppendUvarint(d.length[:0], uint64(len(b))))
		d.hash.Write(b)
	}
	d.bytes += len(key) + len(value)
}

// step adds one step's worth of records from lower on. It returns the key at which the next step begins, or nil at the
// end. It opens its own iterators, so that none keeps memtables and tables for long.
func (d *digest) step(lower, upper []byte) (next []byte, err error) {
	it, err := d.pinned.Iter(lower, upper)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	metadata, err := d.pinned.Iter(nil, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, metadata.Close()) }()
	d.bytes, d.user = 0, d.user[:0]
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n > sumStepRecords || d.bytes >= sumStepBytes {
			return append([]byte(nil), it.Key()...), nil
		}
		counts, err := d.counts(it.Key(), metadata)
		if err != nil {
			return nil, err
		}
		if !counts {
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		d.add(it.Key(), value)
	}
	return nil, it.Error()
}

// counts reports whether a key counts: subkeys and score keys count only if metadata names their version, all others
// do.
func (d *digest) counts(key []byte, metadata *pebble.Iterator) (bool, error) {
	k, err := keys.ParseRedis(key)
	if err != nil {
		return false, err
	}
	if k.Keyspace == keys.RedisMetadata || k.Legacy() {
		return true, nil
	}
	version, _, ok := k.Subkey()
	if !ok {
		return false, fmt.Errorf("redis key: %d bytes behind the user key in %v", len(k.Rest), k.Keyspace)
	}
	front := keys.UserKeyEnd(key)
	if len(d.user) != front || string(d.user[1:]) != string(key[1:front]) {
		d.user = append(d.user[:0], key[:front]...)
		d.user[0] = byte(keys.RedisMetadata)
		if d.version, d.kind, err = named(metadata, d.user); err != nil {
			return false, err
		}
	}
	return d.version != 0 && d.version == version && (k.Keyspace == keys.Data || d.kind == keys.ZSet), nil
}

// named returns the version and type that a record in redis_metadata names, or 0 if there is no record of a collection.
func named(metadata *pebble.Iterator, key []byte) (uint64, keys.Type, error) {
	if !metadata.SeekGE(key) || string(metadata.Key()) != string(key) {
		return 0, 0, metadata.Error()
	}
	value, err := metadata.ValueAndErr()
	if err != nil {
		return 0, 0, err
	}
	m, err := keys.ParseMetadata(value)
	return m.Version, m.Type, err
}

// Checksum returns what this replica knows of its checksum at an apply index. If it has not applied that entry yet, or
// is still summing up, there is neither a sum nor a reason why it is missing. Checksum takes no lock that apply holds
// for long.
func (r *Replica) Checksum(index uint64) Checksum {
	if r.o.Failed() != nil {
		return Checksum{Missing: "store stopped"}
	}
	applied := r.applied.Load() // loaded before sums: apply has pinned the state of what it has applied
	x := &r.sums
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.kept {
		if s.index == index {
			return Checksum{Sum: s.result, Missing: s.missing, Progress: index + s.progress}
		}
	}
	if applied >= index {
		return Checksum{Missing: "it has not applied this entry since it runs, or forgotten the sum"}
	}
	return Checksum{Progress: applied}
}

// BeginChecksum proposes an entry that makes every replica sum up what it holds. It returns the entry's index, and the
// region's slots as of that index. This replica must lead. The entry changes nothing that clients see, so a caller may
// try again after any error.
func (r *Replica) BeginChecksum(ctx context.Context, deadline time.Time) (index uint64, slots topology.SlotRange,
	err error) {
	bounds := r.Bounds() // apply refuses the entry if the region has others by then
	run := &redis.Run{Version: bounds.Version, Calls: []redis.Call{{Args: [][]byte{[]byte(sumCommand)}}}}
	p := &Pending{Run: run, Deadline: deadline}
	r.Propose(p)
	if !p.WaitUnless(ctx.Done()) {
		return 0, bounds.Slots, ctx.Err()
	}
	return p.Index, bounds.Slots, p.Err
}
