package redis

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// texts are the texts of a reply's elements.
func texts(v redistest.ReplyValue) (all []string) {
	for _, item := range v.Items {
		all = append(all, string(item.Text))
	}
	return all
}

// fill makes a hash of n fields f0, f1, ... with their numbers as values.
func (d *region) fill(key string, n int) {
	for i := 0; i < n; {
		args := []string{"hset", key}
		for ; i < n && len(args) < 2000; i++ {
			args = append(args, fmt.Sprint("f", i), strconv.Itoa(i))
		}
		d.must(2, args...)
	}
}

// stored is all that the engine holds of the region, but for its state.
func (d *region) stored() map[string]string {
	d.t.Helper()
	v := d.e.NewView()
	defer v.Close()
	it, err := v.Iter(nil, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer it.Close()
	all := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	return all
}

// TestStoredHash checks the bytes of a hash, versions, and what is left of it.
func TestStoredHash(t *testing.T) {
	d := newRegion(t)
	d.state.KeysExact = true
	key, slot := []byte("h"), topology.SlotOf([]byte("h"))
	check := func(when string, records map[string]string) {
		t.Helper()
		if got := d.stored(); !maps.Equal(got, records) {
			t.Errorf("%s:\n got %q\nwant %q", when, got, records)
		}
	}
	record := func(version, size, expireMS uint64) string {
		return string((&keys.Metadata{Type: keys.Hash, Version: version, Size: size, ExpireMS: expireMS}).Append(nil))
	}
	meta := string(keys.AppendMetadata(nil, slot, key))
	field := func(version uint64, name string) string {
		return string(subkeyOf(slot, key, version, []byte(name)))
	}
	orphan := func(version, size uint64) (string, string) {
		o := keys.Orphan{Slot: slot, User: key, Version: version, Type: keys.Hash, Size: size}
		return string(o.AppendKey(nil)), string(o.Append(nil))
	}
	state := func(when string, lastVersion, count uint64) {
		t.Helper()
		if d.state.LastVersion != lastVersion || d.state.KeyCount != count || d.state.CollectedAt == 0 ||
			!d.state.KeysExact {
			t.Errorf("%s: state %+v, want last version %d, %d keys", when, d.state, lastVersion, count)
		}
	}

	d.w.VersionBase = 1000
	d.scenario(`hset h b 1 a "" => 2`)
	check("made", map[string]string{meta: record(1001, 2, 0), field(1001, "a"): "", field(1001, "b"): "1"})
	state("made", 1001, 1)
	d.scenario("pexpireat h " + fmt.Sprint(start+50) + " => 1\nhset h a x => 0\nhincrby h c 7 => 7")
	check("changed, and its expiry is kept", map[string]string{
		meta: record(1001, 3, start+50), field(1001, "a"): "x", field(1001, "b"): "1", field(1001, "c"): "7"})
	d.scenario("hdel h a b c => 3\nhset other f v => 1\ndel other => 1")
	for _, k := range []string{meta, field(1001, "a"), field(1001, "b"), field(1001, "c")} {
		if _, ok := d.has([]byte(k)); ok {
			t.Errorf("emptied: record %x is there", k)
		}
	}
	if at, _ := orphan(1001, 3); has(d, at) {
		t.Error("emptied: it has left an orphan record")
	}
	state("emptied", 1002, 0)

	d.scenario("flushall => OK")
	d.w.VersionBase = 7 // a proposer whose clock is behind
	d.scenario("hset h a 1 => 1\npexpireat h " + fmt.Sprint(start+50) + " => 1")
	check("made again", map[string]string{meta: record(1003, 1, start+50), field(1003, "a"): "1"})
	d.now = func() uint64 { return start + 50 }
	d.scenario("hget h a => (nil)\nhset h b 2 => 1") // it has expired
	o, v := orphan(1003, 1)
	check("made over an expired one", map[string]string{
		meta: record(1004, 1, 0), field(1004, "b"): "2", field(1003, "a"): "1", o: v})
	state("made over an expired one", 1004, 1)
	d.scenario("set h v => OK")
	o2, v2 := orphan(1004, 1)
	check("a string over it", map[string]string{
		meta: string(keys.AppendString(nil, 0, []byte("v"))), field(1004, "b"): "2", field(1003, "a"): "1", o: v,
		o2: v2})
}

func has(d *region, key string) bool { _, ok := d.has([]byte(key)); return ok }

// TestNothingChanges: calls that add and remove nothing write nothing.
func TestNothingChanges(t *testing.T) {
	d := newRegion(t)
	d.scenario("hset h f v => 1\nset s v => OK")
	before, state := d.stored(), d.state
	d.scenario(`
		hdel h no => 0
		hdel no f => 0
		hsetnx h f w => 0
		hincrby h f 1 => ERR hash value is not an integer
		hincrbyfloat no f inf => ERR value is NaN or Infinity
		hset s f v => WRONGTYPE Operation against a key holding the wrong kind of value
		rename h h => OK`)
	if state.ApplyIndex = d.state.ApplyIndex; !maps.Equal(d.stored(), before) || d.state != state {
		t.Errorf("state %+v, want %+v, or records differ", d.state, state)
	}
}

func TestObjectOfHash(t *testing.T) {
	d := newRegion(t)
	d.fill("small", 512)
	d.fill("large", 513)
	d.must(2, "hset", "long", "f", strings.Repeat("x", 65))
	d.scenario(`
		object encoding small => "listpack"
		object encoding large => "hashtable"
		object encoding long => "hashtable"
		object refcount small => 1`)
	all, _ := d.must(2, "memory", "usage", "large", "samples", "0").Int()
	some, _ := d.must(2, "memory", "usage", "large").Int()
	want := int64(0)
	for k, v := range d.stored() {
		if parsed, err := keys.ParseRedis([]byte(k)); err == nil && string(parsed.User) == "large" {
			want += int64(len(k) + len(v))
		}
	}
	if all != want || some < all*9/10 || some > all*11/10 {
		t.Errorf("%d bytes, by a sample %d; want %d", all, some, want)
	}
}

// TestDuplicate: RENAME and COPY of a hash whose elements do not fit into a batch, in one batch with what else refers
// to them.
func TestDuplicate(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	const n = 3000
	value := strings.Repeat("v", 1000)
	for i := 0; i < n; {
		args := []string{"hset", "h"}
		for range 100 {
			args = append(args, fmt.Sprint("f", i), value+fmt.Sprint(i))
			i++
		}
		d.must(2, args...)
	}
	d.scenario("pexpireat h " + fmt.Sprint(start+1000) + " => 1")
	calls := []string{"hset h f7 seven", "copy h g", "hset h f8 eight", "hset g f9 nine", "rename g k", "hget k f2999",
		"hdel k f0", "hlen k"}
	run := func(flush bool) {
		t.Helper()
		err := d.write(func(w *Writer) error {
			if flush { // behind a range deletion of its own batch, too
				var out Reply
				if err := w.Run(data.Lookup([]byte("flushall")), [][]byte{[]byte("flushall")}, &out); err != nil {
					return err
				}
				args := [][]byte{[]byte("hset"), []byte("h")}
				for i := range n {
					args = append(args, fmt.Append(nil, "f", i), fmt.Append(nil, value, i))
				}
				if err := w.Run(data.Lookup(args[0]), args, &out); err != nil {
					return err
				}
			}
			for _, call := range calls {
				row := data.Lookup([]byte(strings.Fields(call)[0]))
				if row.Write == nil {
					continue
				}
				var out Reply
				if err := w.Run(row, bytes.Fields([]byte(call)), &out); err != nil || out.Buf[0] == '-' {
					return fmt.Errorf("%s: %q, %w", call, out.Buf, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		d.scenario(`
			hlen h => 3000
			hlen k => 2999
			exists g => 0
			hget h f7 => "seven"
			hget k f7 => "seven"
			hget h f8 => "eight"
			hget k f9 => "nine"
			hstrlen k f8 => 1001
			hstrlen k f2999 => 1004
			hstrlen h f9 => 1001`)
		if got := d.must(2, "hgetall", "k"); len(got.Items) != 2*2999 {
			t.Errorf("hgetall k has %d items", len(got.Items))
		}
	}
	run(false)
	d.scenario("pexpiretime k => " + fmt.Sprint(start+1000))
	run(true)
	d.scenario("pexpiretime k => -1")
}

// TestRandomFields: every field is met, the more so the longer one asks, and different ones are different.
func TestRandomFields(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	seed := rand.Uint64()
	d.r.chance = rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct {
		name string
		n    int
		sub  func(i int) string
		most float64 // of how often a field is met, times the mean
	}{
		{"few", 50, strconv.Itoa, 3},
		{"numbers", 1000, func(i int) string { return fmt.Sprintf("key:%012d", i) }, 3},
		{"hex", 1024, func(i int) string { return fmt.Sprintf("%08x", uint32(i)*2654435761) }, 6},
		{"prefixes", 200, func(i int) string { return strings.Repeat("a", i) }, 200},
		{"with the empty one", 65, func(i int) string { return strings.Repeat("\xff", i) }, 65},
	} {
		args := []string{"hset", c.name}
		want := map[string]bool{}
		for i := range c.n {
			args = append(args, c.sub(i), "v")
			want[c.sub(i)] = true
		}
		d.must(2, args...)
		times := map[string]int{}
		const rounds = 40
		for range rounds * c.n / 100 {
			for _, f := range texts(d.must(2, "hrandfield", c.name, "-100")) {
				times[f]++
			}
		}
		for f, n := range times {
			if !want[f] || float64(n) > c.most*rounds {
				t.Errorf("seed %d: %s: %q is met %d times, of the fields %v; want about %d", seed, c.name, f, n,
					want[f], rounds)
			}
		}
		if c.most < 10 && len(times) != c.n {
			t.Errorf("seed %d: %s: %d of %d fields are met", seed, c.name, len(times), c.n)
		}
		for _, n := range []int{1, 2, c.n / 4, c.n / 2, c.n - 1, c.n, c.n + 1} {
			got := texts(d.must(2, "hrandfield", c.name, strconv.Itoa(n)))
			different := map[string]bool{}
			for _, f := range got {
				different[f] = want[f]
			}
			if len(got) != min(n, c.n) || len(different) != len(got) {
				t.Errorf("seed %d: %s: %d fields of %d asked for, %d of them different", seed, c.name, len(got), n,
					len(different))
			}
		}
	}
	// Few of many are picked one by one.
	d.fill("many", 5000)
	got := map[string]bool{}
	for _, f := range texts(d.must(2, "hrandfield", "many", "500")) {
		got[f] = true
	}
	if len(got) != 500 {
		t.Errorf("seed %d: %d different fields, want 500", seed, len(got))
	}
}

// TestHashScan: a hash of up to 128 fields is one part. Of a larger one a part has as many fields as COUNT says, and
// what is there throughout is returned once, whatever else comes and goes: also the field that was returned last.
func TestHashScan(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	d.fill("small", scanWhole)
	if v := d.must(2, "hscan", "small", "7", "count", "1"); len(v.Items[1].Items) != 2*scanWhole ||
		string(v.Items[0].Text) != "0" {
		t.Errorf("a small hash: cursor %s, %d items", v.Items[0], len(v.Items[1].Items))
	}
	const n = 3000
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	d.fill("h", n)
	stay := map[string]bool{}
	for i := range n {
		if i%2 == 0 {
			stay[fmt.Sprint("f", i)] = true
		}
	}
	met := map[string]int{}
	cursor, calls := "0", 0
	for {
		v := d.must(2, "hscan", "h", cursor, "count", "100")
		fields := texts(v.Items[1])
		for i := 0; i < len(fields); i += 2 {
			met[fields[i]]++
		}
		calls++
		if cursor = string(v.Items[0].Text); cursor == "0" {
			break
		}
		if after, err := strconv.ParseUint(cursor, 10, 64); err != nil || after >= 1<<53 {
			t.Errorf("cursor %s", cursor)
		}
		if len(fields) != 200 {
			t.Errorf("%d fields with their values, want 100", len(fields)/2)
		}
		if last := fields[len(fields)-2]; calls%5 == 0 && !stay[last] {
			d.must(2, "hdel", "h", last)
		}
		d.must(2, "hdel", "h", fmt.Sprint("f", random.IntN(n)|1))
		d.must(2, "hset", "h", fmt.Sprint("f", random.IntN(n)|1), "new")
		if calls > 500 {
			t.Fatalf("seed %d: no end", seed)
		}
	}
	for f := range stay {
		if met[f] != 1 {
			t.Errorf("seed %d: field %s, which was there throughout, is met %d times", seed, f, met[f])
		}
	}
	// No cursor of anybody's, and one of a program with larger cursors.
	for _, cursor := range []string{"12345", "18446744069414584321"} {
		v := d.must(2, "hscan", "h", cursor, "match", "f1*", "count", "1000")
		if len(v.Items[1].Items) == 0 {
			t.Errorf("cursor %s finds nothing", cursor)
		}
	}
}

// TestScanWhileDeleting: a client that deletes all that a part of a listing returned, before it asks for the next part,
// is returned every element.
func TestScanWhileDeleting(t *testing.T) {
	oneGoroutine(t)
	for _, c := range []struct {
		scan, remove string
		values       int
	}{{"sscan s", "srem s", 1}, {"hscan h", "hdel h", 2}, {"zscan z", "zrem z", 2}} {
		d := newRegion(t)
		d.makeOf(samples()[1].names)
		left := len(samples()[1].names)
		for cursor, calls := "0", 0; calls == 0 || cursor != "0"; calls++ {
			v := d.must(2, append(strings.Fields(c.scan), cursor, "count", "30")...)
			cursor = string(v.Items[0].Text)
			items := texts(v.Items[1])
			for i := 0; i < len(items); i += c.values {
				left--
				d.must(2, append(strings.Fields(c.remove), items[i])...)
			}
			if calls > 100 {
				t.Fatalf("%s: no end", c.scan)
			}
		}
		if left != 0 {
			t.Errorf("%s: %d elements are left", c.scan, left)
		}
	}
}

// BenchmarkHash counts commands, 64 of them in an entry or a read, on a hash of 100,000 fields; half of the fields
// asked for are there.
func BenchmarkHash(b *testing.B) {
	for _, name := range []string{"hset", "hincrby", "hget"} {
		b.Run(name, func(b *testing.B) {
			d := newRegion(b)
			const n, size = 100_000, 64
			d.fill("h", n)
			random := rand.New(rand.NewPCG(1, 2))
			calls := make([][][]byte, 4096)
			for i := range calls {
				calls[i] = [][]byte{[]byte(name), []byte("h"), fmt.Append(nil, "f", random.IntN(2*n))}
				if name != "hget" {
					calls[i] = append(calls[i], []byte("12345"))
				}
			}
			row := Lookup([]byte(name))
			run := Run{}
			b.ReportAllocs()
			for i := 0; b.Loop(); i += size {
				calls := calls[i%len(calls):][:size]
				run.Reset()
				var err error
				if row.Read != nil {
					for _, args := range calls {
						run.Calls = append(run.Calls, Call{row, args})
					}
					err = d.read(func(r *Reader) error { return r.Execute(&run) })
				} else {
					err = d.write(func(w *Writer) error {
						for _, args := range calls {
							if err := w.Run(row, args, &run.Out); err != nil {
								return err
							}
						}
						return nil
					})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/command")
		})
	}
}
