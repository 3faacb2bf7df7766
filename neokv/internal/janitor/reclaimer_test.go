package janitor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// reclaimed is a replica that no Raft drives, with a reclaimer that tests step.
type reclaimed struct {
	*region.Replica
	machine multiraft.Machine
	engine  *engine.Engine
	fs      *disk.FS
	x       *reclaimer
	s       *reclaiming
}

var testRegion = topology.Region{ID: 3, Slots: topology.SlotRange{First: 4096, Last: 12287}, Version: 1}

func openReclaimed(t testing.TB, fs *disk.FS) *reclaimed {
	t.Helper()
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 4<<20, 1<<20
	e, err := engine.Open(engine.Options{Dir: "/store", FS: fs, Knobs: k, Stores: 1, Fatal: fs.Fence})
	if err != nil {
		t.Fatal(err)
	}
	return reclaimedOver(t, e, fs)
}

// reclaimedOver returns a replica that begins with what an engine holds.
func reclaimedOver(t testing.TB, e *engine.Engine, fs *disk.FS) *reclaimed {
	t.Helper()
	r := region.New(region.Options{
		Region: testRegion, Store: 1, Engine: e, Failed: fs.Failed, Fence: fs.Fence,
		Knobs: settings.RaftKnobs{RaftConstants: settings.RaftConstants{SnapshotBytes: 1 << 30}},
	})
	if _, err := r.StateMachine().Open(nil); err != nil {
		t.Fatal(err)
	}
	k := settings.Default().Redis
	k.ReclaimKeys, k.ReclaimRange = 20, 15
	x := newReclaimer(Options{Knobs: k, Engine: e, Failed: fs.Failed, Fence: fs.Fence})
	return &reclaimed{r, r.StateMachine(), e, fs, x, &reclaiming{replica: r}}
}

// content returns all that the replica's engine holds.
func (r *reclaimed) content(t testing.TB) map[string]string {
	t.Helper()
	v := r.engine.NewView()
	defer v.Close()
	it, err := v.Iter(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	out := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		out[string(it.Key())] = string(it.Value())
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	return out
}

// snapshot returns the replica's snapshot as a stream.
func (r *reclaimed) snapshot(t testing.TB) []byte {
	t.Helper()
	prepared, err := r.machine.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.machine.SaveSnapshot(prepared, &out, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// install puts a snapshot of another replica in.
func (r *reclaimed) install(t testing.TB, stream []byte) {
	t.Helper()
	if err := r.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil); err != nil || r.fs.Failed() != nil {
		t.Fatal(err, r.fs.Failed())
	}
}

func (r *reclaimed) close(t testing.TB) {
	t.Helper()
	if err := r.engine.Close(); err != nil {
		t.Error(err)
	}
}

// run lets the reclaimer do all there is to do.
func (r *reclaimed) run(t testing.TB) {
	t.Helper()
	for n := 0; r.x.step(r.s); n++ {
		if n == 100_000 {
			t.Fatal("the reclaimer comes to no end")
		}
	}
	if err := r.fs.Failed(); err != nil {
		t.Fatal(err)
	}
}

// reachable returns the part of a store's content that readers can reach: all but orphan records and elements of
// versions that no record names.
func reachable(t testing.TB, all map[string]string) map[string]string {
	t.Helper()
	out := maps.Clone(all)
	for key, value := range all {
		switch ks := keys.Keyspace(key[0]); {
		case ks == keys.Data || ks == keys.ZSetScore || ks == keys.ZSetRank:
			k, err := keys.ParseRedis([]byte(key))
			if err != nil {
				t.Fatal(err)
			}
			version, _, ok := k.Subkey()
			m, err := keys.ParseMetadata([]byte(all[string(keys.AppendMetadata(nil, k.Slot, k.User))]))
			if !ok || err != nil || m.Version != version {
				delete(out, key)
			}
		case ks == keys.MetaInfo && keys.Category(key[1]) == keys.CategoryOrphan:
			if _, err := keys.ParseOrphan([]byte(key), []byte(value)); err != nil {
				t.Fatal(err)
			}
			delete(out, key)
		}
	}
	return out
}

// TestReclaimAgainstModel applies one random log to a replica that never reclaims, which is the model, and to two that
// do. Those two fall behind at times, lose what was not synced, and are replaced by snapshots of each other. They also
// delete orphans that they had looked at before all that. Readers can see the same everywhere, and when the reclaimers
// have come to an end nothing else is left.
func TestReclaimAgainstModel(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { reclaimAgainstModel(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func reclaimAgainstModel(t *testing.T, random *rand.Rand) {
	model := openReclaimed(t, disk.Mem())
	both := [2]*reclaimed{openReclaimed(t, disk.Mem()), openReclaimed(t, disk.Mem())}
	defer func() {
		model.close(t)
		both[0].close(t)
		both[1].close(t)
	}()
	var log []multiraft.Entry
	apply := func(r *reclaimed, to int) {
		t.Helper()
		from := int(r.Applied())
		if from >= to {
			return
		}
		if _, err := r.machine.Update(append([]multiraft.Entry{}, log[from:to]...)); err != nil || r.fs.Failed() != nil {
			t.Fatal(err, r.fs.Failed())
		}
	}
	garbage := 0
	same := func(when string) {
		t.Helper()
		apply(model, len(log))
		all := model.content(t)
		want := reachable(t, all)
		garbage = max(garbage, len(all)-len(want))
		for i, r := range both {
			apply(r, len(log))
			if got := reachable(t, r.content(t)); !maps.Equal(got, want) {
				t.Fatalf("%s: replica %d has %d records that can be read, want %d, or they differ",
					when, i, len(got), len(want))
			}
		}
	}
	var crashes, snapshots, late int
	now := uint64(1000)
	for range 300 {
		for range random.IntN(8) {
			now += random.Uint64N(20)
			version := random.Uint64N(1000)
			var calls []redis.Call
			for range 1 + random.IntN(3) {
				calls = append(calls, redis.Call{Args: orphaning(random, now)})
			}
			cmd := encodeEntry(now, version, calls)
			log = append(log, multiraft.Entry{Index: uint64(len(log) + 1), Cmd: cmd})
		}
		i := random.IntN(2)
		r, other := both[i], both[1-i]
		switch random.IntN(10) {
		case 0:
			apply(r, len(log))
		case 1, 2:
			from := int(r.Applied())
			apply(r, from+random.IntN(len(log)-from+1))
		case 3, 4:
			r.x.step(r.s)
		case 5, 9: // what it has looked at, it deletes later
			if !r.s.counted || r.s.place != nil {
				break
			}
			view := r.engine.NewView()
			apply(r, len(log))
			if stream := other.snapshotBehind(t, r); stream != nil {
				r.install(t, stream)
			}
			if err := r.x.reclaim(r.s, view); err != nil {
				t.Fatal(err)
			}
			view.Close()
			late++
		case 6:
			if stream := other.snapshotBehind(t, r); stream != nil {
				r.install(t, stream)
				snapshots++
			}
		case 7:
			if random.IntN(2) == 0 {
				if err := r.machine.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			left := r.fs.Crash(random.IntN(101), random)
			r.close(t)
			both[i] = openReclaimed(t, left)
			crashes++
		case 8:
			same("on the way")
		}
	}
	same("at the end")
	for i, r := range both {
		r.run(t)
		if got, want := r.content(t), reachable(t, model.content(t)); !maps.Equal(got, want) {
			t.Errorf("replica %d holds %d records, want %d and nothing else", i, len(got), len(want))
		}
		if c := &r.Counters().Orphans; c.Collections.Load() != 0 || c.Elements.Load() != 0 {
			t.Errorf("replica %d counts %d orphans with %d elements, want none",
				i, c.Collections.Load(), c.Elements.Load())
		}
	}
	if garbage < 300 || crashes < 5 || snapshots < 2 || late < 1 {
		t.Errorf("%d records of garbage at most, %d crashes, %d snapshots, %d late steps: too few to mean much",
			garbage, crashes, snapshots, late)
	}
}

// snapshotBehind returns a snapshot of the replica if it is ahead of another one, else nil.
func (r *reclaimed) snapshotBehind(t testing.TB, other *reclaimed) []byte {
	if r.Applied() <= other.Applied() {
		return nil
	}
	return r.snapshot(t)
}

// encodeEntry returns an entry of the region's log, as region/entry.go has it, of store 9 in term 3, for bounds that
// have never changed.
func encodeEntry(timeMS, version uint64, calls []redis.Call) []byte {
	entry := []byte{10}
	for _, n := range []uint64{3, timeMS, version} {
		entry = binary.BigEndian.AppendUint64(entry, n)
	}
	entry = binary.BigEndian.AppendUint32(entry, 9)
	entry = append(entry, make([]byte, 16)...) // no proposer waits for it
	entry = binary.BigEndian.AppendUint32(entry, 1)
	for _, c := range calls {
		entry = binary.AppendUvarint(entry, uint64(len(c.Args)))
		for _, a := range c.Args {
			entry = append(binary.AppendUvarint(entry, uint64(len(a))), a...)
		}
	}
	return entry
}

// orphaning makes a call that builds up collections and long strings, or leaves orphans, among a few keys.
func orphaning(random *rand.Rand, now uint64) (args [][]byte) {
	key := func() string { return fmt.Sprint("{foo}", random.IntN(8)) }
	line := ""
	switch random.IntN(18) {
	case 0, 1, 2, 3, 4:
		own := random.IntN(8) // mostly of the type that the key has been before
		line = fmt.Sprint([]string{"hset", "sadd", "zadd", "rpush"}[own%4], " {foo}", own)
		for range 1 + random.IntN(30) {
			switch own % 4 {
			case 0:
				line += fmt.Sprintf(" f%d %d", random.IntN(40), random.IntN(1000))
			case 2:
				line += fmt.Sprintf(" %d f%d", random.IntN(1000), random.IntN(40))
			default:
				line += fmt.Sprint(" f", random.IntN(40))
			}
		}
	case 5:
		own := random.IntN(8)
		line = fmt.Sprint([]string{"hdel", "srem", "zrem", "lpop"}[own%4], " {foo}", own)
		if own%4 == 3 {
			line += fmt.Sprint(" ", random.IntN(60))
			break
		}
		for range 1 + random.IntN(30) {
			line += fmt.Sprint(" f", random.IntN(40))
		}
	case 6:
		line = "del " + key() + " " + key()
	case 7:
		line = "set " + key() + " v"
	case 8:
		line = "rename " + key() + " " + key()
	case 9:
		line = "copy " + key() + " " + key() + " replace"
	case 10:
		line = fmt.Sprint("pexpireat ", key(), " ", now+random.Uint64N(100))
	case 11:
		line = "remove-expired " + key() + " " + key()
		if random.IntN(20) == 0 {
			line = "flushall"
		}
	case 12: // large sorted sets, which are counted
		line = "zadd {foo}z" + fmt.Sprint(random.IntN(2))
		n := 1 + random.IntN(20)
		if random.IntN(6) == 0 {
			n = 1100 + random.IntN(300)
		}
		for range n {
			line += fmt.Sprint(" ", random.IntN(50), " m", random.IntN(10_000))
		}
	case 13:
		pop := []string{"zpopmin", "zpopmax"}[random.IntN(2)]
		line = fmt.Sprint(pop, " {foo}z", random.IntN(2), " ", random.IntN(300))
		switch random.IntN(6) {
		case 0:
			line = "del {foo}z1"
		case 1:
			line = "copy {foo}z0 {foo}z1 replace"
		}
	case 14, 15:
		line = fmt.Sprint("setrange ", key(), " ", random.IntN(300_000), " x")
	case 16:
		line = "append " + key() + " " + strings.Repeat(fmt.Sprint(now), 1+random.IntN(10_000))
	case 17:
		line = "set " + key() + " " + strings.Repeat(fmt.Sprint(now), 1+random.IntN(50_000))
	}
	for _, word := range strings.Fields(line) {
		args = append(args, []byte(word))
	}
	return args
}

// TestReclaimForms reclaims orphans of every type: of few and of many elements, of small and of large ones, of none at
// all, and of more than their record says. Each goes as a whole, and the versions before and behind it stay. A replica
// counts the orphans that it begins with, also when a snapshot has brought them. All of that holds where the iterators
// of the engine take no notice of limits, too.
func TestReclaimForms(t *testing.T) {
	for _, m := range []Mistakes{{}, {NoLimits: true}} {
		t.Run(fmt.Sprintf("limits ignored %v", m.NoLimits), func(t *testing.T) { reclaimForms(t, m) })
	}
}

func reclaimForms(t *testing.T, m Mistakes) {
	from, to := openReclaimed(t, disk.Mem()), openReclaimed(t, disk.Mem())
	defer from.close(t)
	defer to.close(t)
	slot := testRegion.Slots.First
	b := from.engine.NewBatch()
	set := func(key []byte, bytes int) {
		t.Helper()
		if err := b.Set(key, make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	elements := int64(0)
	collection := func(user string, ty keys.Type, version uint64, n, bytes int) {
		for i := range n {
			sub := fmt.Appendf(nil, "%d", i)
			set(append(keys.AppendCollection(nil, keys.Data, slot, []byte(user), version), sub...), bytes)
			if ty == keys.ZSet {
				set(keys.AppendPlace(keys.AppendCollection(nil, keys.ZSetScore, slot, []byte(user), version), float64(i), sub), 0)
			}
		}
	}
	const live, size = 7, 14 // one by one; 15 and more by range
	forms := []struct {
		user              string
		ty                keys.Type
		n, counted, bytes int
	}{
		{"small", keys.Hash, size, size, 10}, {"large", keys.Set, 400, 400, 0}, {"heavy", keys.List, 5, 5, 600 << 10},
		{"scored", keys.ZSet, size, size, 8}, {"many scored", keys.ZSet, 100, 100, 8},
		{"miscounted", keys.Hash, 200, 3, 5}, {"none", keys.Hash, 0, 3, 0}, {"\xff", keys.Hash, 1, 1, 1},
		{"pieces", keys.String, 3, 4, 64 << 10}, {"holes", keys.String, 5, 400, 100},
		{"many pieces", keys.String, 40, 40, 64 << 10},
	}
	for _, c := range forms {
		// No orphan record names these versions, and no metadata: the reclaimer leaves them alone.
		for _, version := range []uint64{live - 1, live + 1} {
			collection(c.user, c.ty, version, 3, 1)
		}
		o := keys.Orphan{Slot: slot, User: []byte(c.user), Version: live, Type: c.ty, Size: uint64(c.counted)}
		elements += int64(c.counted)
		if err := b.Set(o.AppendKey(nil), o.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	state := keys.RegionState{ApplyIndex: 5, Slots: testRegion.Slots, Version: 1}
	if err := b.Set(keys.AppendRegionState(nil, testRegion.ID), state.Append(nil)); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	from = reclaimedOver(t, from.engine, from.fs)
	from.x.o.Mistakes, to.x.o.Mistakes = m, m
	want := from.content(t)
	for key := range want {
		if keys.Keyspace(key[0]) == keys.MetaInfo && keys.Category(key[1]) == keys.CategoryOrphan {
			delete(want, key)
		}
	}
	b = from.engine.NewBatch()
	for _, c := range forms {
		collection(c.user, c.ty, live, c.n, c.bytes)
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	to.run(t) // has nothing to do
	if err := to.machine.RecoverFromSnapshot(bytes.NewReader(from.snapshot(t)), nil); err != nil {
		t.Fatal(err)
	}
	for i, r := range []*reclaimed{from, to} {
		for !r.s.counted || r.s.epoch != r.Epoch() {
			if !r.x.step(r.s) {
				t.Fatalf("replica %d: nothing is counted", i)
			}
		}
		if c := &r.Counters().Orphans; c.Collections.Load() != int64(len(forms)) || c.Elements.Load() != elements {
			t.Errorf("replica %d counts %d orphans with %d elements, want %d with %d",
				i, c.Collections.Load(), c.Elements.Load(), len(forms), elements)
		}
		r.run(t)
		if got := r.content(t); !maps.Equal(got, want) {
			t.Errorf("replica %d holds %d records, want %d, or they differ", i, len(got), len(want))
		}
	}
}
