package region

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// still is a replica that no Raft drives: its machine is called by tests.
type still struct {
	*Replica
	fs *disk.FS
}

var snapshotRegion = topology.Region{ID: 3, Slots: topology.SlotRange{First: 4096, Last: 12287}, Version: 1}

// testSpace is where the region's data is.

func openStill(t testing.TB, fs *disk.FS) still { return openStillOf(t, fs, snapshotRegion) }

func openStillOf(t testing.TB, fs *disk.FS, region topology.Region) still {
	t.Helper()
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 4<<20, 1<<20
	e, err := engine.Open(engine.Options{Dir: "/store", FS: fs, Knobs: k, Stores: 1, Fatal: fs.Fence})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{
		Region: region, Store: 1, Engine: e, Failed: fs.Failed, Fence: fs.Fence,
		Knobs: settings.RaftKnobs{RaftConstants: settings.RaftConstants{SnapshotBytes: 1 << 30}},
	})
	if _, err := r.machine.Open(nil); err != nil {
		t.Fatal(err)
	}
	return still{r, fs}
}

// fill writes records of all sorts as of an apply index, inside the region, beside it and of another one.
func (r still) fill(t testing.TB, random *rand.Rand, index uint64, n int) {
	t.Helper()
	b := r.o.Engine.NewBatch()
	set := func(key []byte) {
		value := make([]byte, 10+random.IntN(200))
		for i := range value {
			value[i] = byte(random.Uint32())
		}
		if err := b.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		user := fmt.Appendf(nil, "%d", random.IntN(3*n))
		slot := topology.SlotOf(user)
		space := byte(random.IntN(3)) // 1 is the region's
		set(elsewhere(space, keys.AppendMetadata(nil, slot, user)))
		switch random.IntN(4) {
		case 0:
			set(elsewhere(space, keys.AppendLegacy(nil, slot, user)))
		case 1:
			set(elsewhere(space, subkeyOf(slot, user, 5, []byte("field"))))
		case 2:
			key := keys.AppendCollection(nil, keys.ZSetScore, slot, user, 5)
			set(elsewhere(space, keys.AppendPlace(key, 0.5, []byte("member"))))
		case 3:
			orphan := keys.Orphan{Slot: slot, User: user, Version: random.Uint64()}
			set(elsewhere(space, orphan.AppendKey(nil)))
		}
	}
	r.machine.state = keys.RegionState{
		ApplyIndex: index, TimeMS: 1000 * index, LastVersion: random.Uint64(), TermTag: 3, KeyCount: uint64(n),
		Legacy: true, CollectedAt: 1, CollectedIn: random.Uint64(), Slots: r.o.Region.Slots, Version: 1,
	}
	r.machine.writer.Batch = b
	if err := r.machine.commit(); err != nil {
		t.Fatal(err)
	}
	r.machine.publish()
}

func (r still) content(t testing.TB) map[string]string {
	t.Helper()
	v := r.o.Engine.NewView()
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

// snapshot returns a replica's snapshot as a stream.
func (r still) snapshot(t testing.TB) []byte {
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

func (r still) close(t testing.TB) {
	t.Helper()
	if err := r.o.Engine.Close(); err != nil {
		t.Error(err)
	}
}

// inRegion reports whether a snapshot of the region replaces a key.
func inRegion(m *machine, key string) bool {
	for _, s := range m.spans(m.o.Region.Slots) {
		if string(s.Lower) <= key && key < string(s.Upper) {
			return true
		}
	}
	return key == string(keys.AppendRegionState(nil, m.o.Region.ID))
}

// merged is what a replica holds after it has been given the region of another.
func merged(m *machine, to, from map[string]string) map[string]string {
	out := maps.Clone(to)
	maps.DeleteFunc(out, func(k, _ string) bool { return inRegion(m, k) })
	for k, v := range from {
		if inRegion(m, k) {
			out[k] = v
		}
	}
	return out
}

func TestSnapshot(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	from, to := openStill(t, disk.Mem()), openStill(t, disk.Mem())
	defer from.close(t)
	defer to.close(t)
	from.fill(t, random, 70, 3000)
	to.fill(t, random, 7, 3000)
	want := merged(to.machine, to.content(t), from.content(t))
	stream := from.snapshot(t)

	b := newProposal()
	to.proposer.register(b)
	if err := to.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil); err != nil || to.fs.Failed() != nil {
		t.Fatal(err, to.fs.Failed())
	}
	if got := to.content(t); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d, or they differ", len(got), len(want))
	}
	if to.machine.state != from.machine.state || to.TimeMS() != 70000 || !to.legacy.Load() {
		t.Errorf("state %+v; want %+v", to.machine.state, from.machine.state)
	}
	if to.epoch.Load() == 0 {
		t.Error("the epoch did not rise")
	}
	unknown := new(UnknownOutcome)
	if len(b.finished) != 1 || len(b.returned) != 1 || !errors.As(b.err, &unknown) {
		t.Errorf("a batch that the snapshot may hold: finished %d, %v; want an unknown outcome", len(b.finished), b.err)
	}
	sent, got := from.Counters(), to.Counters()
	if sent.SnapshotsSent.Load() != 1 || got.SnapshotsReceived.Load() != 1 ||
		got.SnapshotBytes.Load() != sent.SnapshotBytes.Load() ||
		got.SnapshotBytes.Load() == 0 {
		t.Errorf("counted %d sent, %d received, %d and %d bytes", sent.SnapshotsSent.Load(),
			got.SnapshotsReceived.Load(),
			sent.SnapshotBytes.Load(), got.SnapshotBytes.Load())
	}
	// The region goes on from there.
	if index, err := to.machine.Open(nil); err != nil || index != 70 {
		t.Errorf("Open = %d, %v; want 70", index, err)
	}
}

// TestSnapshotRefused damages a stream in every way; nothing of it gets in, and the store fails.
func TestSnapshotRefused(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	from := openStill(t, disk.Mem())
	defer from.close(t)
	from.fill(t, random, 70, 300)
	stream := from.snapshot(t)
	other := bytes.Clone(stream)
	other[8]++ // of another region
	refuse := func(name string, damaged []byte, want string) {
		t.Helper()
		to := openStill(t, disk.Mem())
		defer to.close(t)
		to.fill(t, rand.New(rand.NewPCG(seed, 1)), 7, 30)
		before := to.content(t)
		err := to.machine.RecoverFromSnapshot(bytes.NewReader(damaged), nil)
		if failed := to.fs.Failed(); err != nil || failed == nil || !strings.Contains(failed.Error(), want) {
			t.Fatalf("seed %d: %s: %v, failed with %v; want %q", seed, name, err, failed, want)
		}
		if !maps.Equal(to.content(t), before) || to.machine.state.ApplyIndex != 7 {
			t.Fatalf("seed %d: %s: it got in, apply index %d", seed, name, to.machine.state.ApplyIndex)
		}
	}
	refuse("empty", nil, "unexpected EOF")
	refuse("format", append([]byte{9}, stream[1:]...), "format 9, want 4")
	refuse("an older format", append([]byte{2}, stream[1:]...), "format 2, want 4")
	refuse("header", other, "header: checksum")
	refuse("a byte more", append(bytes.Clone(stream), 0), "behind the end")
	for range 40 {
		n := random.IntN(len(stream))
		refuse(fmt.Sprintf("cut to %d of %d", n, len(stream)), stream[:n], "unexpected EOF")
		at := random.IntN(len(stream))
		damaged := bytes.Clone(stream)
		damaged[at] ^= 1 << random.IntN(8)
		refuse(fmt.Sprintf("byte %d", at), damaged, "install a snapshot")
	}
	// Of another region altogether, or older than what is there.
	another := snapshotRegion
	another.ID++
	to := openStillOf(t, disk.Mem(), another)
	defer to.close(t)
	refuseBy := func(to still, want string) {
		t.Helper()
		if err := to.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil); err != nil ||
			!strings.Contains(fmt.Sprint(to.fs.Failed()), want) {
			t.Errorf("%v, failed with %v; want %q", err, to.fs.Failed(), want)
		}
	}
	refuseBy(to, "it is of region 3; want region 4")
	newer := openStill(t, disk.Mem())
	defer newer.close(t)
	newer.fill(t, random, 70, 1)
	refuseBy(newer, "apply index 70, the region is at 70")
}

// TestSnapshotStops has both sides told to stop.
func TestSnapshotStops(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	r := openStill(t, disk.Mem())
	defer r.close(t)
	r.fill(t, random, 70, 300)
	stream := r.snapshot(t)
	stop := make(chan struct{})
	close(stop)
	save := func(w io.Writer, stop chan struct{}) error {
		prepared, err := r.machine.PrepareSnapshot()
		if err != nil {
			t.Fatal(err)
		}
		return r.machine.SaveSnapshot(prepared, w, stop)
	}
	if err := save(io.Discard, stop); err != multiraft.ErrSnapshotStopped {
		t.Errorf("SaveSnapshot = %v; want %v", err, multiraft.ErrSnapshotStopped)
	}
	for n := range 20 { // the receiver is gone after n bytes or so
		if err := save(&dead{n * len(stream) / 20}, nil); err != multiraft.ErrSnapshotStreaming {
			t.Errorf("SaveSnapshot to a receiver that is gone = %v; want %v", err, multiraft.ErrSnapshotStreaming)
		}
	}
	to := openStill(t, disk.Mem())
	defer to.close(t)
	if err := to.machine.RecoverFromSnapshot(bytes.NewReader(stream), stop); err != multiraft.ErrSnapshotStopped ||
		len(to.content(t)) > 0 {
		t.Errorf("RecoverFromSnapshot = %v; want %v, and nothing in it", err, multiraft.ErrSnapshotStopped)
	}
	if r.fs.Failed() != nil || to.fs.Failed() != nil {
		t.Errorf("a store failed: %v, %v", r.fs.Failed(), to.fs.Failed())
	}
	// A store that has failed answers as if nothing were the matter: nothing leaves it.
	to.fs.Fence(errors.New("broken"))
	if err := to.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil); err != nil {
		t.Errorf("RecoverFromSnapshot on a failed store = %v", err)
	}
	prepared, err := to.machine.PrepareSnapshot()
	if err == nil {
		err = to.machine.SaveSnapshot(prepared, io.Discard, nil)
	}
	if err != multiraft.ErrSnapshotAborted {
		t.Errorf("SaveSnapshot on a failed store = %v; want %v", err, multiraft.ErrSnapshotAborted)
	}
}

// While a store is told that its disk has failed, other calls still reach the disk. What dragonboat does once Sync has
// returned does not: it takes the data from the file of a snapshot, which the machine has not installed.
func TestNoSyncReturnsWhileFencing(t *testing.T) {
	from := openStill(t, disk.Mem())
	defer from.close(t)
	from.fill(t, rand.New(rand.NewPCG(1, 1)), 70, 300)
	stream := from.snapshot(t)
	to := openStill(t, disk.Mem())
	defer to.close(t)
	done := make(chan struct{})
	to.fs.OnFence(func(error) {
		go func() {
			defer close(done)
			if err := errors.Join(to.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil), to.machine.Sync(),
				to.fs.MkdirAll("/store/empty", 0o755)); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // they wait for the fence, as they should
		}
	})
	left := to.fs.Crash(100, nil)
	<-done
	if _, err := left.Stat("/store/empty"); err == nil {
		t.Error("the file of a snapshot is made empty, and its data is not in the engine")
	}
}

type dead struct{ after int }

func (d *dead) Write(p []byte) (int, error) {
	if d.after -= len(p); d.after < 0 {
		return 0, multiraft.ErrSnapshotStreaming
	}
	return len(p), nil
}

// TestSnapshotPowerCut cuts the power at every sync of an installation, and behind it. The region is what it was or
// what it should become, all of it, and the latter once RecoverFromSnapshot has returned.
func TestSnapshotPowerCut(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, 0))
	from := openStill(t, disk.Mem())
	defer from.close(t)
	from.fill(t, random, 70, 2000)
	stream := from.snapshot(t)
	olds, news := 0, 0
	for k := int64(1); ; k++ {
		for _, percent := range []int{0, 50} {
			fs := disk.Mem()
			to := openStill(t, fs)
			to.fill(t, rand.New(rand.NewPCG(seed, 1)), 7, 500)
			if err := to.machine.Sync(); err != nil {
				t.Fatal(err)
			}
			before := to.content(t)
			want := merged(to.machine, before, from.content(t))
			var mu sync.Mutex // the engine syncs in the background, too
			var left *disk.FS
			n := int64(0)
			fs.Hook(disk.BeforeSync, func(int64) {
				mu.Lock()
				defer mu.Unlock()
				if n++; n == k && left == nil {
					left = fs.Crash(percent, random)
				}
			})
			if err := to.machine.RecoverFromSnapshot(bytes.NewReader(stream), nil); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			done := left == nil
			if done {
				left = fs.Crash(percent, random)
			}
			mu.Unlock()
			to.close(t)
			again := openStill(t, left)
			switch got := again.content(t); {
			case maps.Equal(got, want):
				news++
			case maps.Equal(got, before) && !done:
				olds++
			default:
				t.Fatalf("seed %d: cut at sync %d of the installation, %d%% of the unsynced stays: %d keys, apply "+
					"index %d; before %d, after %d",
					seed, k, percent, len(got), again.machine.state.ApplyIndex, len(before), len(want))
			}
			again.close(t)
			if done && percent == 50 {
				if olds < 10 || news < 2 {
					t.Errorf("%d cuts before and %d behind the commit: too few to mean much", olds, news)
				}
				t.Logf("%d syncs; %d cuts left the old region, %d the new one", k-1, olds, news)
				return
			}
		}
	}
}

// TestCutBySize: each time that SnapshotBytes have been applied, apply asks for a snapshot record, once, and counts the
// entries that it took.
func TestCutBySize(t *testing.T) {
	r := openStill(t, disk.Mem())
	defer r.close(t)
	r.o.Knobs.SnapshotBytes, r.o.Knobs.SnapshotEntries = 1000, 10
	asked := func() (n uint64) {
		select {
		case n = <-r.cut:
		default:
		}
		return n
	}
	next := uint64(1)
	apply := func(n, bytes int) {
		t.Helper()
		for _, e := range entries(next, slices.Repeat([][]string{{"set", "k", strings.Repeat("v", bytes)}}, n)...) {
			if _, err := r.machine.Update([]multiraft.Entry{e}); err != nil || r.fs.Failed() != nil {
				t.Fatal(err, r.fs.Failed())
			}
			next++
		}
	}
	for _, x := range []struct {
		entries, bytes int
		asked          uint64
	}{{3, 200, 0}, {1, 200, 4}, {3, 200, 0}, {1, 5000, 4}, {1, 900, 0}, {1, 1, 2}, {12, 50, 10}, {8, 1, 10}} {
		apply(x.entries, x.bytes)
		if n := asked(); n != x.asked {
			t.Errorf("%d entries of %d bytes more: asked for a record behind %d entries; want %d", x.entries, x.bytes,
				n, x.asked)
		}
	}
	// While one is being asked for, no other is; what is applied meanwhile counts.
	apply(2, 1000)
	if n := asked(); n == 0 {
		t.Error("not asked")
	}
	apply(1, 1)
	if n := asked(); n != 2 {
		t.Errorf("asked for a record behind %d entries; want 2", n)
	}
}

// FuzzSnapshot has damaged streams refused, with nothing half applied: neither then nor behind a power cut.
func FuzzSnapshot(f *testing.F) {
	from := openStill(f, disk.Mem())
	from.fill(f, rand.New(rand.NewPCG(1, 1)), 70, 50)
	stream := from.snapshot(f)
	defer from.close(f)
	f.Add(stream)
	f.Add(stream[:len(stream)/2])
	f.Add(stream[:snapshotHeaderBytes+4])
	f.Add(append(bytes.Clone(stream), stream...))
	for _, at := range []int{1, snapshotHeaderBytes, snapshotHeaderBytes + 5, len(stream) / 2, len(stream) - 5} {
		damaged := bytes.Clone(stream)
		damaged[at] ^= 1
		f.Add(damaged)
		f.Add(slices.Delete(bytes.Clone(stream), at, at+1))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		to := openStill(t, disk.Mem())
		to.fill(t, rand.New(rand.NewPCG(2, 2)), 7, 5)
		if err := to.machine.Sync(); err != nil {
			t.Fatal(err)
		}
		want, state := to.content(t), to.machine.state
		if bytes.Equal(b, stream) {
			want, state = merged(to.machine, want, from.content(t)), from.machine.state
		}
		if err := to.machine.RecoverFromSnapshot(bytes.NewReader(b), nil); err != nil {
			t.Fatal(err)
		}
		if failed := to.fs.Failed(); failed == nil != bytes.Equal(b, stream) {
			t.Errorf("failed with %v", failed)
		}
		holds := func(r still, when string) {
			if got := r.content(t); !maps.Equal(got, want) || r.machine.state != state {
				t.Errorf("%s: %d keys, %+v; want %d, %+v", when, len(got), r.machine.state, len(want), state)
			}
		}
		holds(to, "afterwards")
		left := to.fs.Crash(0, nil)
		to.close(t)
		again := openStill(t, left)
		defer again.close(t)
		holds(again, "behind a power cut")
	})
}

// elsewhere moves a key of Redis data, or of an orphan record, to another space.
func elsewhere(space byte, key []byte) []byte {
	at := keys.PrefixLen - 9
	if key[0] == byte(keys.MetaInfo) {
		at++
	}
	key[at] = space
	return key
}

// subkeyOf returns the key of a field of a hash, or of a member of a set or a sorted set.
func subkeyOf(slot topology.Slot, user []byte, version uint64, sub []byte) []byte {
	return append(keys.AppendCollection(nil, keys.Data, slot, user, version), sub...)
}

// scoreKeyOf returns the key of an entry of a sorted set in the score index.
func scoreKeyOf(slot topology.Slot, user []byte, version uint64, score float64, member []byte) []byte {
	return keys.AppendPlace(keys.AppendCollection(nil, keys.ZSetScore, slot, user, version), score, member)
}
