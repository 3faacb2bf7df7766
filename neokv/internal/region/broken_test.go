package region

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
)

// longCall makes a call that looks at many elements.
func longCall(random *rand.Rand) [][]byte {
	a, b, to := random.IntN(4), random.IntN(4), random.IntN(4)
	switch random.IntN(9) {
	case 0:
		return words(fmt.Sprintf("sunionstore {foo}m%d {foo}m%d {foo}m%d", to, a, b))
	case 1:
		return words(fmt.Sprintf("sdiffstore {foo}m%d {foo}m%d {foo}m%d", to, a, b))
	case 2:
		return words(fmt.Sprintf("zinterstore {foo}z%d 2 {foo}m%d {foo}z%d", to, a, b))
	case 3:
		return words(fmt.Sprintf("zunionstore {foo}z%d 2 {foo}m%d {foo}z%d", to, a, b))
	case 4:
		return words(fmt.Sprintf("sort {foo}m%d alpha store {foo}l%d", a, to))
	case 5:
		return words(fmt.Sprintf("sort {foo}l%d by {foo}c* limit 0 1000 get # get {foo}s* store {foo}l%d", a, to))
	case 6:
		return words(fmt.Sprintf("rename {foo}m%d {foo}m%d", a, to))
	case 7:
		return words(fmt.Sprintf("lrem {foo}l%d 0 %d", a, random.IntN(1000)))
	}
	return words(fmt.Sprintf("zrangestore {foo}z%d {foo}z%d 0 -1", to, a))
}

// TestBrokenOff applies one random log of long calls. The model is never stopped. The other replica is stopped again
// and again while it applies: it breaks off in the middle of a call, has nothing of its stage committed, and goes on
// from there when it starts again. Both hold the same in the end.
func TestBrokenOff(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	every := engine.LookEvery
	defer func() { engine.LookEvery = every }()
	engine.LookEvery = 300
	var log []multiraft.Entry
	for len(log) < 60 {
		var calls [][][]byte
		for range 1 + random.IntN(20) {
			if random.IntN(2) == 0 {
				calls = append(calls, longCall(random))
			} else {
				calls = append(calls, stagedCall(random))
			}
		}
		log = append(log, entryOf(uint64(len(log)+1), calls...))
	}
	model := openStill(t, disk.Mem())
	defer model.close(t)
	model.apply(t, random, log)
	want := model.content(t)

	broken, inside := 0, 0
	for replicas := 0; broken < 50; replicas++ {
		if replicas == 100 {
			t.Fatalf("seed %d: broken off %d times", seed, broken)
		}
		fs := disk.Mem()
		for range 12 {
			r := openStill(t, fs)
			r.machine.stageBytes = 50 + random.IntN(5000)
			left, look := random.IntN(200), r.machine.work.Look
			r.machine.work.Look = func() error {
				if left--; left < 0 {
					r.halted.Store(true)
				}
				return look()
			}
			for !r.machine.broken && int(r.machine.state.ApplyIndex) < len(log) {
				from := int(r.machine.state.ApplyIndex)
				n := min(len(log)-from, 1+random.IntN(8))
				before := r.applied.Load()
				if _, err := r.machine.Update(slices.Clone(log[from : from+n])); err != nil || r.fs.Failed() != nil {
					t.Fatal(err, r.fs.Failed())
				}
				if r.machine.broken && r.applied.Load() != before {
					t.Fatalf("broken off: the apply index goes from %d to %d", before, r.applied.Load())
				}
			}
			if r.machine.broken {
				broken++
				if _, err := r.machine.Update(slices.Clone(log[len(log)-1:])); err != nil || r.fs.Failed() != nil {
					t.Fatal(err, r.fs.Failed())
				}
				prepared, err := r.machine.PrepareSnapshot()
				if err == nil {
					err = r.machine.SaveSnapshot(prepared, nil, nil)
				}
				if err != multiraft.ErrSnapshotAborted {
					t.Fatalf("a replica that broke off sends a snapshot: %v", err)
				}
				if err := r.machine.RecoverFromSnapshot(nil, nil); err != multiraft.ErrSnapshotStopped {
					t.Fatalf("a replica that broke off takes a snapshot: %v", err)
				}
				if index, err := ApplyIndex(r.o.Engine, r.o.Region.ID); err != nil || index >= uint64(len(log)) {
					t.Fatalf("apply index %d, %v", index, err)
				}
			}
			r.close(t)
			r = openStill(t, fs)
			if r.machine.insideEntry() {
				inside++
			}
			r.close(t)
		}
		r := openStill(t, fs)
		r.apply(t, random, log)
		if got := r.content(t); !maps.Equal(got, want) {
			t.Fatalf("seed %d: %d records, want %d, or they differ", seed, len(got), len(want))
		}
		r.close(t)
	}
	if inside == 0 {
		t.Error("no start inside an entry")
	}
	t.Logf("broken off %d times, %d starts inside an entry", broken, inside)
}

// TestBrokenOffInCommit: a replica that stops while it sorts the batch of a large call has nothing of it, and its next
// start applies the call.
func TestBrokenOffInCommit(t *testing.T) {
	call := [][]byte{[]byte("sadd"), []byte("{foo}s")}
	for i := range 100_000 {
		call = append(call, fmt.Append(nil, i))
	}
	entry := entryOf(1, call)
	fs := disk.Mem()
	r := openStill(t, fs)
	look := r.machine.work.Look
	r.machine.work.Look = func() error {
		if r.counters.Stages.Load() > 0 { // the commit has begun
			r.halted.Store(true)
		}
		return look()
	}
	if _, err := r.machine.Update([]multiraft.Entry{entry}); err != nil || r.fs.Failed() != nil {
		t.Fatal(err, r.fs.Failed())
	}
	if !r.machine.broken {
		t.Fatal("the commit was not broken off")
	}
	if index, err := ApplyIndex(r.o.Engine, r.o.Region.ID); err != nil || index != 0 || r.applied.Load() != 0 {
		t.Fatalf("apply index %d, %v; %d for readers", index, err, r.applied.Load())
	}
	r.close(t)
	r = openStill(t, fs)
	if got := len(r.content(t)); got > 1 {
		t.Fatalf("%d records of a call that was broken off", got)
	}
	random := rand.New(rand.NewPCG(1, 1))
	r.apply(t, random, []multiraft.Entry{entry})
	if got := len(r.content(t)); got < 100_000 {
		t.Fatalf("%d records", got)
	}
	r.close(t)
}
