package region

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// entries makes log entries of one call each, the first of them at an index.
func entries(index uint64, calls ...[]string) (all []multiraft.Entry) {
	for i, words := range calls {
		cmd := make([]byte, entryHeaderBytes)
		h := entryHeader{term: 3, timeMS: 1000, store: 9, bounds: 1}
		h.put(cmd)
		var call redis.Call
		for _, w := range words {
			call.Args = append(call.Args, []byte(w))
		}
		all = append(all, multiraft.Entry{Index: index + uint64(i), Cmd: appendCall(cmd, &call)})
	}
	return all
}

// checksum waits for the checksum at an index.
func (r still) checksum(t testing.TB, index uint64) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		switch c := r.Checksum(index); {
		case c.Missing != "" || time.Now().After(end):
			t.Fatalf("index %d: %+v", index, c)
		case c.Sum != "":
			return c.Sum
		}
	}
}

// records writes records past the log and returns the checksum after that, at an index. Version 5 of each collection is
// alive.
func (r still) records(t testing.TB, index uint64, records map[string]string) string {
	t.Helper()
	b := r.o.Engine.NewBatch()
	for k, v := range records {
		if err := b.Set([]byte(k), []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	r.machine.state = keys.RegionState{ApplyIndex: index - 1, TermTag: 3, Slots: r.o.Region.Slots, Version: 1}
	if _, err := r.machine.Update(entries(index, []string{sumCommand})); err != nil {
		t.Fatal(err)
	}
	sum := r.checksum(t, index)
	r.wg.Wait()
	return sum
}

// TestChecksumCounts changes one record at a time: the checksum changes if a command could see that, and only then.
func TestChecksumCounts(t *testing.T) {
	slot := snapshotRegion.Slots.First
	meta := func(user string, kind keys.Type) (string, string) {
		m := keys.Metadata{Type: kind, Version: 5, Size: 1}
		return string(keys.AppendMetadata(nil, slot, []byte(user))), string(m.Append(nil))
	}
	base := map[string]string{}
	add := func(k, v string) { base[k] = v }
	add(meta("h", keys.Hash))
	add(meta("z", keys.ZSet))
	add(meta("l", keys.String))
	add(string(keys.AppendMetadata(nil, slot, []byte("s"))), string(keys.AppendString(nil, 0, []byte("v"))))
	for i := range 2 * sumStepRecords { // more than a step
		add(string(subkeyOf(slot, []byte("h"), 5, fmt.Appendf(nil, "f%d", i))), "v")
	}
	add(string(scoreKeyOf(slot, []byte("z"), 5, 1, []byte("m"))), "")
	add(string(subkeyOf(slot, []byte("z"), 5, []byte("m"))), "12345678")
	add(string(keys.AppendLegacy(nil, slot, []byte("old"))), "12345678v")
	piece := func(version, index uint64) string {
		return string(subkeyOf(slot, []byte("l"), version, binary.BigEndian.AppendUint64(nil, index)))
	}
	add(piece(5, 0), "v")

	sum := func(records map[string]string) string {
		r := openStill(t, disk.Mem())
		defer r.close(t)
		return r.records(t, 50, records)
	}
	want := sum(base)
	orphan := keys.Orphan{Slot: slot, User: []byte("h"), Version: 4}
	for _, x := range []struct {
		name, key, value string
		counts           bool
	}{
		{"a string's value", string(keys.AppendMetadata(nil, slot, []byte("s"))),
			string(keys.AppendString(nil, 0, []byte("w"))), true},
		{"a string's expiry", string(keys.AppendMetadata(nil, slot, []byte("s"))),
			string(keys.AppendString(nil, 1, []byte("v"))), true},
		{"one more string", string(keys.AppendMetadata(nil, slot, []byte("t"))), string(keys.AppendString(nil, 0, nil)),
			true},
		{"a field", string(subkeyOf(slot, []byte("h"), 5, []byte("f5000"))), "w", true},
		{"one more field", string(subkeyOf(slot, []byte("h"), 5, []byte("zz"))), "", true},
		{"a field of an old version", string(subkeyOf(slot, []byte("h"), 4, []byte("f"))), "v", false},
		{"a field of no hash", string(subkeyOf(slot, []byte("hh"), 5, []byte("f"))), "v", false},
		{"a field of a string", string(subkeyOf(slot, []byte("s"), 0, []byte("f"))), "v", false},
		{"a piece", piece(5, 0), "w", true},
		{"one more piece", piece(5, 1), "w", true},
		{"a piece of an old version", piece(4, 0), "w", false},
		{"a score", string(scoreKeyOf(slot, []byte("z"), 5, 2, []byte("m"))), "", true},
		{"a score of an old version", string(scoreKeyOf(slot, []byte("z"), 4, 1, []byte("m"))), "", false},
		{"a score of a hash", string(scoreKeyOf(slot, []byte("h"), 5, 1, []byte("m"))), "", false},
		{"a legacy string", string(keys.AppendLegacy(nil, slot, []byte("old"))), "12345678w", true},
		{"an orphan record", string(orphan.AppendKey(nil)), "", false},
		{"another region", string(elsewhere(2, keys.AppendMetadata(nil, slot, []byte("s")))), "", false},
		{"another slot", string(keys.AppendMetadata(nil, snapshotRegion.Slots.Last+1, []byte("s"))), "", false},
	} {
		changed := map[string]string{x.key: x.value}
		for k, v := range base {
			if k != x.key {
				changed[k] = v
			}
		}
		if got := sum(changed); (got != want) != x.counts {
			t.Errorf("%s: the checksum changed %v; want %v", x.name, got != want, x.counts)
		}
	}
	delete(base, string(subkeyOf(slot, []byte("h"), 5, []byte("f0"))))
	if sum(base) == want {
		t.Error("a field less: the checksum did not change")
	}
}

// TestChecksumAtItsIndex has entries before and behind that of the checksum applied in the same run, and the rest of
// the log later: replicas that took the log in other portions have the same sum, and others at other indexes.
func TestChecksumAtItsIndex(t *testing.T) {
	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	user := make([]string, 40)
	for i := range user {
		for n := 0; user[i] == ""; n++ {
			if k := fmt.Sprintf("k%d-%d", i, n); snapshotRegion.Slots.Contains(topology.SlotOf([]byte(k))) {
				user[i] = k
			}
		}
	}
	var log [][]string
	for i := range 200 {
		if i%50 == 25 {
			log = append(log, []string{sumCommand})
		} else {
			log = append(log, []string{"set", user[random.IntN(len(user))], fmt.Sprint(i)})
		}
	}
	sums := func(portion func() int) (all []string) {
		r := openStill(t, disk.Mem())
		defer r.close(t)
		for at := 0; at < len(log); {
			n := min(portion(), len(log)-at)
			if _, err := r.machine.Update(entries(uint64(1+at), log[at:at+n]...)); err != nil || r.fs.Failed() != nil {
				t.Fatal(err, r.fs.Failed())
			}
			at += n
		}
		for i := range log {
			if log[i][0] == sumCommand {
				all = append(all, r.checksum(t, uint64(1+i)))
			}
		}
		r.wg.Wait()
		return all
	}
	one := sums(func() int { return 1 })
	for range 5 {
		if got := sums(func() int { return 1 + random.IntN(100) }); fmt.Sprint(got) != fmt.Sprint(one) {
			t.Errorf("seed %d: checksums %v; want %v", seed, got, one)
		}
	}
	if one[0] == one[1] || len(one) != 4 {
		t.Errorf("checksums %v; want 4 that differ", one)
	}
}

// TestChecksumMissing asks for what a replica cannot have.
func TestChecksumMissing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	from, to := openStill(t, disk.Mem()), openStill(t, disk.Mem())
	defer from.close(t)
	defer to.close(t)
	from.fill(t, random, 70, 300)
	if c := to.Checksum(60); c != (Checksum{}) {
		t.Errorf("an index that is not applied yet: %+v; want nothing known", c)
	}
	if err := to.machine.RecoverFromSnapshot(strings.NewReader(string(from.snapshot(t))), nil); err != nil ||
		to.fs.Failed() != nil {
		t.Fatal(err, to.fs.Failed())
	}
	if c := to.Checksum(60); c.Missing == "" {
		t.Errorf("an index that a snapshot stands for: %+v; want a reason", c)
	}
	for i := range uint64(20) { // the oldest are forgotten, and no state of the engine stays pinned
		if _, err := from.machine.Update(entries(71+i, []string{sumCommand})); err != nil {
			t.Fatal(err)
		}
	}
	from.wg.Wait()
	if c := from.Checksum(71); c.Missing == "" {
		t.Errorf("a sum of long ago: %+v; want a reason", c)
	}
	if len(from.sums.kept) > keptSums {
		t.Errorf("%d sums are kept; want at most %d", len(from.sums.kept), keptSums)
	}
}
