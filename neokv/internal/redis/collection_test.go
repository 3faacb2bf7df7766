package redis

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
)

// TestStoredBytes makes the collections of the golden vectors by commands, and compares what is stored with the
// vectors.
func TestStoredBytes(t *testing.T) {
	b, err := os.ReadFile("../keys/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	type storedElement struct {
		Type, Version, Size, Hex string
		ExpireMS                 string `json:"expire_ms"`
	}
	var vectors struct {
		MetadataValue []storedElement `json:"metadata_value"`
		Subkey        []struct {
			Type, Version, Hex, Value, Name string
			UserKey                         string `json:"user_key"`
			SubKey                          string `json:"sub_key"`
		}
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	text := func(hexed string) string {
		t.Helper()
		b, err := hex.DecodeString(hexed)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// adds add an element to a collection of a type.
	adds := map[string]func(d *region, key, sub, value string){
		"hash": func(d *region, key, sub, value string) { d.must(2, "hset", key, sub, value) },
		"set":  func(d *region, key, sub, _ string) { d.must(2, "sadd", key, sub) },
		"list": func(d *region, key, sub, value string) {
			if start := subkey(keys.ListStart); sub == string(start[:]) {
				d.must(2, "rpush", key, value)
			} else {
				d.must(2, "lpush", key, value)
			}
		},
		"zset": func(d *region, key, sub, value string) {
			score := 0.0
			if len(value) == scoreBytes {
				score = keys.Score([]byte(value))
			}
			d.must(2, "zadd", key, fmt.Sprint(score), sub)
		},
	}
	checked := 0
	for _, v := range vectors.Subkey {
		add := adds[v.Type]
		if add == nil {
			continue
		}
		i := slices.IndexFunc(vectors.MetadataValue, func(m storedElement) bool {
			return m.Type == v.Type && m.ExpireMS == "0" && m.Version == v.Version
		})
		if i < 0 {
			t.Fatalf("no metadata of a %s of version %s", v.Type, v.Version)
		}
		d := newRegion(t)
		version, err := strconv.ParseUint(v.Version, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		d.w.VersionBase = version - 1
		key := text(v.UserKey)
		name := text(v.Name)
		if v.Type == "list" {
			name = text(v.SubKey)
		}
		add(d, key, name, text(v.Value))
		for n := range vectors.MetadataValue[i].Size[0] - '1' {
			add(d, key, "other "+strconv.Itoa(int(n)), "x")
		}
		subkey := string(byte(keys.Data)) + text(v.Hex)
		if got, ok := d.has([]byte(subkey)); !ok || got != text(v.Value) {
			t.Errorf("%s: under %x there is %x, %v; want %s", v.Type, subkey, got, ok, v.Value)
		}
		if got, ok := d.has(metadataOf([]byte(key))); !ok ||
			got != text(vectors.MetadataValue[i].Hex) {
			t.Errorf("%s: the record is %x, %v; want %s", v.Type, got, ok, vectors.MetadataValue[i].Hex)
		}
		checked++
	}
	if checked != len(adds) {
		t.Errorf("%d types checked, want %d", checked, len(adds))
	}
}

// TestRenew: a collection takes the place of whatever the key holds, also of one that it is made from, and closed empty
// it removes the key.
func TestRenew(t *testing.T) {
	for _, c := range []struct {
		before string // calls
		fields int    // of what is made of the key's own fields and new ones
		orphan bool
	}{
		{"", 0, false}, {"", 2, false},
		{"set k v nx", 0, false}, {"set k v nx", 2, false},
		{"hset k a 1 b 2", 0, true}, {"hset k a 1 b 2", 3, true},
		{"hset k a 1 b 2;pexpireat k 1700000000100", 3, true}, // which goes
	} {
		d := newRegion(t)
		d.state.KeysExact = true
		for call := range strings.SplitSeq(c.before, ";") {
			if call != "" {
				d.must(2, strings.Fields(call)...)
			}
		}
		err := d.write(func(w *Writer) error {
			var own, c2 collection
			rec, err := w.load([]byte("k"))
			if err != nil {
				return err
			}
			if rec.Type == keys.Hash {
				if ok, err := w.open(&own, []byte("k"), keys.Hash, new(Reply)); !ok {
					return fmt.Errorf("not open: %w", err)
				}
			}
			if err := w.renew(&c2, []byte("k"), keys.Hash); err != nil {
				return err
			}
			if own.Size > 0 && c.fields > 0 {
				err := own.each([]byte("b"), func(sub, value []byte) bool {
					err = w.insert(&c2, sub, value)
					return err == nil
				})
				if err != nil {
					return err
				}
			}
			for i := c2.Size; i < uint64(c.fields); i++ {
				if err := w.insert(&c2, fmt.Append(nil, "new", i), []byte("x")); err != nil {
					return err
				}
			}
			return w.close(&c2)
		})
		if err != nil {
			t.Fatal(err)
		}
		orphans := 0
		for k := range d.stored() {
			if keys.Keyspace(k[0]) == keys.MetaInfo {
				orphans++
			}
		}
		d.scenario(fmt.Sprintf("exists k => %d\nhlen k => %d\nttl k => %d", min(c.fields, 1), c.fields,
			-2+min(c.fields, 1)))
		if orphans > 0 != c.orphan || d.state.KeyCount != uint64(min(c.fields, 1)) {
			t.Errorf("%q, %d fields: %d orphans, %d keys counted", c.before, c.fields, orphans, d.state.KeyCount)
		}
		if got := d.must(2, "hget", "k", "b").String(); c.fields == 3 && got != `"2"` {
			t.Errorf("%q: the key's own field b is %s", c.before, got)
		}
	}
}

// TestRunsOfCommands executes random calls in two regions, an entry each: in one of them a batch takes one entry, in
// the other several, up to the next read. Replies and what is stored are the same.
func TestRunsOfCommands(t *testing.T) {
	oneGoroutine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	g := redistest.CallGenerator{Rand: random}
	single, several := newRegion(t), newRegion(t)
	now := uint64(start)
	single.now = func() uint64 { return now }
	several.now = single.now
	var waiting []Call
	var want []string
	settle := func() {
		var got []string
		b := several.e.NewBatch()
		w := &several.w
		w.Batch, w.State = b, &several.state
		for _, c := range waiting {
			several.state.ApplyIndex++
			w.Index = several.state.ApplyIndex
			var out Reply
			if err := w.Run(c.Command, c.Args, &out); err != nil {
				t.Fatalf("seed %d: %q: %v", seed, c.Args, err)
			}
			got = append(got, string(out.Buf))
		}
		if err := errors.Join(w.Finish(), b.Commit(false)); err != nil {
			t.Fatal(err)
		}
		for i, got := range got {
			if got != want[i] {
				t.Fatalf("seed %d: %q, the %d. of a batch: got %q, want %q", seed, waiting[i].Args, i+1, got, want[i])
			}
		}
		waiting, want = nil, nil
	}
	for n := range 6000 {
		for _, words := range g.Calls(true) {
			var args [][]byte
			for _, w := range words {
				args = append(args, []byte(w))
			}
			var out, refused Reply
			if err := single.call(args, &out); err != nil {
				t.Fatalf("seed %d: %q: %v", seed, args, err)
			}
			c := data.Find(args, &refused)
			if c == nil || c.Write == nil || !c.CheckArity(len(args)) || c.ReadBy != nil && c.ReadBy(args) != nil {
				continue
			}
			several.state.TimeMS = single.state.TimeMS
			waiting, want = append(waiting, Call{c, args}), append(want, string(out.Buf))
			if random.IntN(15) == 0 {
				settle()
				now += random.Uint64N(1000)
			}
		}
		if n%500 == 499 {
			settle()
			if !maps.Equal(single.stored(), several.stored()) {
				t.Fatalf("seed %d: after %d calls the two differ", seed, n)
			}
		}
	}
}

// TestCallsAreBounded runs calls that touch 100 MB, or a smaller part with a lower limit: what they put into the batch
// stays small, and they do what a client expects.
func TestCallsAreBounded(t *testing.T) {
	oneGoroutine(t)
	const n = 1600
	for _, c := range []struct {
		add, key string
		calls    string // the same in redis-server
	}{
		{"rpush", "l", "linsert l before PIVOT x => 1601\nllen l => 1601\nlindex l 800 => \"x\"\nlrem l 0 x => 1\n" +
			"llen l => 1600\nltrim l 100 -101 => OK\nllen l => 1400"},
		{"sadd", "s", "sunionstore t s s => 1600\nscard t => 1600\nsinterstore t t s => 1600\n" +
			"sdiffstore t t nosuch => 1600\nscard t => 1600"},
		{"sadd", "s", "spop s 900 =>\nscard s => 700\nspop s 200 =>\nscard s => 500"},
		{"zadd", "z", "zunionstore t 2 z s => 1600\nzrangestore u t 0 -1 => 1600\n" +
			"zremrangebyrank u 100 -101 => 1400\nzcard u => 200\nzcount u -inf +inf => 200"},
		{"zadd", "z", "zpopmax z 900 =>\nzcard z => 700\nzpopmin z 600 =>\nzrange z 0 0 withscores =>\n" +
			"zcard z => 100\nzremrangebyscore z -inf +inf => 100\nexists z => 0"},
	} {
		t.Run(c.add+" "+c.calls[:5], func(t *testing.T) {
			length := 64 << 10
			if c.add != "rpush" {
				length = 8 << 10
				limit(t, 1<<20)
			}
			most := touchedBytes + 3<<20
			element := func(i int) string { return fmt.Sprintf("%04d%s", i, strings.Repeat("x", length-4)) }
			d := newRegion(t)
			for i := 0; i < n; i += 50 {
				args := []string{c.add, c.key}
				for k := range 50 {
					if c.add == "zadd" {
						args = append(args, strconv.Itoa(i+k))
					}
					args = append(args, element(i+k))
				}
				d.must(2, args...)
			}
			for line := range strings.SplitSeq(strings.ReplaceAll(c.calls, "PIVOT", element(800)), "\n") {
				call, want, _ := strings.Cut(line, " =>")
				args := bytes.Fields([]byte(call))
				row, out := Lookup(args[0]), Reply{More: func(int) int { return 0 }, Room: 1 << 10}
				if row.Write == nil {
					if got := d.must(2, strings.Fields(call)...).String(); want != "" && got != want[1:] {
						t.Errorf("%.100s: %.100s, want %s", call, got, want)
					}
					continue
				}
				err := d.write(func(w *Writer) error {
					err := w.Run(row, args, &out)
					if got := w.Batch.Len(); got > most {
						t.Errorf("%.100s: a batch of %d bytes, want at most %d", call, got, most)
					}
					return err
				})
				if err != nil {
					t.Fatalf("%.100s: %v", call, err)
				}
				if got, err := redistest.Parse(out.Buf); want != "" && (err != nil || got.String() != want[1:]) {
					t.Errorf("%.100s: %q, want %s", call, out.Buf, want)
				}
			}
		})
	}
}
