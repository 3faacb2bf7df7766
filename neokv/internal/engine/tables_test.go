package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// buffers takes tables in memory.
type buffers struct{ tables []*buffer }

type buffer struct {
	bytes.Buffer
	closed bool
}

func (b *buffer) Close() error {
	b.closed = true
	return nil
}

func (b *buffers) next() (io.WriteCloser, error) {
	b.tables = append(b.tables, &buffer{})
	return b.tables[len(b.tables)-1], nil
}

func content(t testing.TB, e *Engine) map[string]string {
	t.Helper()
	v := e.NewView()
	defer v.Close()
	it, err := v.Iter(nil, nil)
	must(t, err)
	defer it.Close()
	out := map[string]string{}
	for ok := it.First(); ok; ok = it.Next() {
		out[string(it.Key())] = string(it.Value())
	}
	must(t, it.Error())
	return out
}

func goOn() error { return nil }

// TestTables carries two ranges from one engine into another, which has other keys there. The old keys of the ranges
// are gone, keys beside the ranges stay, and all of it happens in one step.
func TestTables(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	from, to := open(t, testOptions(t, vfs.NewMem())), open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, from.Close()); must(t, to.Close()) }()
	slots := topology.SlotRange{First: 4000, Last: 9000}
	var spans []Span
	for _, ks := range []keys.Keyspace{keys.Data, keys.RedisMetadata, keys.ZSetScore} {
		lower, upper := keys.SlotBounds(ks, slots)
		spans = append(spans, Span{lower, upper})
	}
	inside := func(key string) bool {
		return slices.ContainsFunc(spans, func(s Span) bool { return string(s.Lower) <= key && key < string(s.Upper) })
	}
	fill := func(e *Engine, who string, n int) {
		b := e.NewBatch()
		for i := range n {
			user := fmt.Appendf(nil, "%d", random.IntN(4*n))
			value := fmt.Appendf(nil, "%s %d %x", who, i, random.Uint64())
			must(t, b.Set(metadataOf(user), value))
			if who == "new" { // redis_zset_score stays empty: its table is a range deletion alone
				must(t, b.Set(subkeyOf(topology.SlotOf(user), user, 7, []byte("field")), value))
			} else {
				must(t, b.Set(scoreKeyOf(topology.SlotOf(user), user, 7, 1.5, []byte("member")), value))
			}
		}
		must(t, b.Commit(false))
	}
	fill(from, "new", 3000)
	fill(to, "old", 3000)
	want := content(t, to)
	maps.DeleteFunc(want, func(k, _ string) bool { return inside(k) })
	for k, v := range content(t, from) {
		if inside(k) {
			want[k] = v
		}
	}

	s := from.NewSnapshot()
	fill(from, "later", 500) // is not part of it
	var out buffers
	for _, span := range spans {
		must(t, s.WriteTables(span, 16<<10, out.next, goOn))
	}
	must(t, s.Close())
	if len(out.tables) < 6 {
		t.Fatalf("%d tables; the ranges should have been cut", len(out.tables))
	}
	before := content(t, to)
	g, err := to.NewIngestion("test")
	must(t, err)
	for i, table := range out.tables {
		if !table.closed {
			t.Errorf("table %d was not closed", i)
		}
		f, err := g.Create()
		must(t, err)
		_, err = f.Write(table.Bytes())
		must(t, errors.Join(err, f.Close()))
	}
	if !maps.Equal(content(t, to), before) {
		t.Error("changed before the commit")
	}
	old := to.NewView()
	must(t, g.Commit(nil))
	if got := content(t, to); !maps.Equal(got, want) {
		t.Errorf("%d keys behind the commit, want %d, or they differ", len(got), len(want))
	}
	if _, ok, err := old.Get([]byte(firstKey(before, inside))); !ok || err != nil {
		t.Errorf("a view of before: %v, %v", ok, err)
	}
	old.Close()
	// What follows lands on top, and lasts.
	b := to.NewBatch()
	must(t, b.Set([]byte(firstKey(want, inside)), []byte("newer")))
	must(t, b.Commit(true))
	want[firstKey(want, inside)] = "newer"
	if got := content(t, to); !maps.Equal(got, want) {
		t.Error("a write behind the commit is not what is read")
	}
}

func firstKey(m map[string]string, ok func(string) bool) string {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if ok(k) {
			return k
		}
	}
	return ""
}

// TestTablesRefused ingests a damaged table among good ones: no table gets in, and no file stays.
func TestTablesRefused(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, testOptions(t, fs))
	defer func() { must(t, e.Close()) }()
	b := e.NewBatch()
	for i := range 1000 {
		must(t, b.Set(metadataKey(i), []byte("v")))
	}
	must(t, b.Commit(true))
	want := content(t, e)
	var out buffers
	s := e.NewSnapshot()
	lower, upper := keys.SlotBounds(keys.RedisMetadata, topology.SlotRange{First: 0, Last: topology.SlotCount - 1})
	must(t, s.WriteTables(Span{lower, upper}, 1<<20, out.next, goOn))
	stop := errors.New("stop")
	if err := s.WriteTables(Span{lower, upper}, 1<<20, out.next, func() error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	must(t, s.Close())
	g, err := e.NewIngestion("test")
	must(t, err)
	for i := range 2 {
		f, err := g.Create()
		must(t, err)
		table := bytes.Clone(out.tables[0].Bytes())
		if i == 1 {
			table = table[:len(table)-9]
		}
		_, err = f.Write(table)
		must(t, errors.Join(err, f.Close()))
	}
	if err := g.Commit(nil); err == nil {
		t.Error("a table that is cut short was taken")
	}
	g.Abort()
	if got := content(t, e); !maps.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	if left, err := fs.List(fs.PathJoin("store/engine", incoming)); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}
