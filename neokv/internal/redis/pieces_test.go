package redis

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

var (
	pieceCalls = flag.Int("pieces.calls", 30_000, "random calls of TestPiecesAreStrings")
	pieceSeed  = flag.Uint64("pieces.seed", 0, "seed of its random choices; 0 for any")
)

// shortPieces has pieces of so many bytes until the test ends, so that short strings are long ones.
func shortPieces(t testing.TB, n int) {
	before := pieceBytes
	pieceBytes = n
	t.Cleanup(func() { pieceBytes = before })
}

// TestLongStringsCostTheirPieces: how much a call writes does not depend on the length of the string that it changes.
func TestLongStringsCostTheirPieces(t *testing.T) {
	const most = 200 << 10
	for _, size := range []int{8 << 20, maxStringBytes} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			d := newRegion(t)
			for _, call := range [][]string{
				{"setrange", "k", fmt.Sprint(size - 2), "x"},
				{"append", "k", "y"},
				{"setrange", "k", "0", "z"},
				{"setrange", "k", fmt.Sprint(size / 2), "z"},
				{"expire", "k", "1000"},
				{"persist", "k"},
				{"getex", "k", "ex", "100"},
				{"copy", "k", "l"},
				{"rename", "k", "m"},
			} {
				out := Reply{More: func(int) int { return 0 }} // no room for what GETEX replies
				if err := d.call(toArgs(call...), &out); err != nil {
					t.Fatalf("%v: %v", call, err)
				}
				if d.wrote > most || d.wrote == 0 {
					t.Errorf("%v: a batch of %d bytes; want %d at most", call, d.wrote, most)
				}
			}
		})
	}
}

func toArgs(words ...string) [][]byte {
	args := make([][]byte, len(words))
	for i, word := range words {
		args[i] = []byte(word)
	}
	return args
}

// TestPiecesAreStrings runs random calls on two regions: one has its strings in short pieces, the other all of them in
// records. They reply the same:
//
//	go test ./neokv/internal/redis -run TestPiecesAreStrings -pieces.calls=1000000 -pieces.seed=7
func TestPiecesAreStrings(t *testing.T) {
	oneGoroutine(t)
	seed := *pieceSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-pieces.seed=%d", seed)
	g := &pieceCaller{rand.New(rand.NewPCG(seed, 0))}
	shortPieces(t, 21+g.IntN(60)) // numbers are in records, as those of up to 5 KiB always are
	short := pieceBytes
	pieces, records := newRegion(t), newRegion(t)
	now := uint64(start)
	pieces.now, records.now = func() uint64 { return now }, func() uint64 { return now }
	most := *pieceCalls
	long, longest := 0, 0
	for n := range most {
		now += g.Uint64N(50)
		args := g.call()
		proto := 2 + g.IntN(2)
		var out [2]Reply
		for i, d := range []*region{pieces, records} {
			out[i].Proto = proto
			if d == records {
				pieceBytes = math.MaxInt
			}
			err := d.call(args, &out[i])
			if pieceBytes = short; err != nil {
				t.Fatalf("%q: %v", args, err)
			}
		}
		if !bytes.Equal(out[0].Buf, out[1].Buf) {
			t.Fatalf("%q: %q with pieces, %q without", args, out[0].Buf, out[1].Buf)
		}
		if string(args[0]) == "get" && len(out[0].Buf) > pieceBytes+10 {
			long, longest = long+1, max(longest, len(out[0].Buf))
		}
		if n%2000 == 1999 || n == most-1 {
			if err := sound(pieces.stored()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if long < most/200 || longest < 4*pieceBytes {
		t.Errorf("GET has replied %d long strings, the longest with %d bytes", long, longest)
	}
}

// pieceCaller makes calls with strings of some pieces.
type pieceCaller struct{ *rand.Rand }

func (g *pieceCaller) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g *pieceCaller) key() string { return g.pick("{t}a", "{t}b", "{t}c", "{t}d") }

// length is often one that is near a whole number of pieces.
func (g *pieceCaller) length() int {
	if g.IntN(3) == 0 {
		return g.IntN(5 * pieceBytes)
	}
	return max(0, g.IntN(5)*pieceBytes+g.IntN(5)-2)
}

func (g *pieceCaller) value() string {
	if g.IntN(6) == 0 {
		return g.pick("", "1", "17", "x")
	}
	b := make([]byte, g.length())
	for i := range b {
		b[i] = byte('a' + g.IntN(4))
	}
	return string(b)
}

func (g *pieceCaller) index() string {
	n := g.length()
	if g.IntN(2) == 0 {
		n = -n
	}
	return strconv.Itoa(n)
}

func (g *pieceCaller) call() [][]byte {
	key := g.key()
	switch g.IntN(30) {
	case 0, 1, 2:
		args := toArgs("set", key, g.value())
		for _, option := range []string{g.pick("", "", "nx", "xx"), g.pick("", "", "get"),
			g.pick("", "", "keepttl", "px 1000", "px 100000")} {
			args = append(args, bytes.Fields([]byte(option))...)
		}
		return args
	case 3, 4, 5:
		return toArgs("append", key, g.value())
	case 6, 7, 8:
		return toArgs("setrange", key, strconv.Itoa(g.length()), g.value())
	case 9, 10, 11:
		return toArgs(g.pick("getrange", "substr"), key, g.index(), g.index())
	case 12:
		return toArgs("mget", key, g.key(), g.key())
	case 13:
		return toArgs("mset", key, g.value(), g.key(), g.value())
	case 14:
		return toArgs("msetnx", key, g.value(), "{t}n", g.value())
	case 15:
		return toArgs(g.pick("getset", "setnx"), key, g.value())
	case 16:
		return toArgs(g.pick("del", "getdel", "unlink"), key)
	case 17:
		return toArgs("getex", key, g.pick("px", "ex"), strconv.Itoa(1+g.IntN(1000)))
	case 18:
		return toArgs(g.pick("pexpire", "expire"), key, strconv.Itoa(g.IntN(2000)))
	case 19:
		return toArgs(g.pick("persist", "pttl", "type", "exists", "strlen"), key)
	case 20:
		return toArgs(g.pick("rename", "renamenx"), key, g.key())
	case 21:
		if g.IntN(2) == 0 {
			return toArgs("copy", key, g.key())
		}
		return toArgs("copy", key, g.key(), "replace")
	case 22:
		return toArgs("lcs", key, g.key())
	case 23:
		return toArgs(g.pick("incr", "decr"), key)
	case 24:
		return toArgs(g.pick("sadd", "rpush"), g.pick(key, "{t}s"), g.pick("a", "b", "c", "d", "e"))
	case 25:
		return toArgs("sort", "{t}s", "by", g.pick("{t}*", "nosort"), "alpha", "get", g.pick("{t}*", "#"),
			g.pick("asc", "desc"))
	case 26:
		return toArgs("sort", "{t}s", "by", g.pick("{t}*", "nosort"), g.pick("alpha", "asc"), "get", "{t}*", "store",
			g.pick("{t}l", key))
	case 27:
		return toArgs(g.pick("lrange"), "{t}l", "0", "-1")
	case 28:
		return toArgs(g.pick("object"), "encoding", key)
	}
	if g.IntN(20) == 0 {
		return toArgs("flushall")
	}
	return toArgs("get", key)
}

// TestHoles: what has not been written of a string reads as zero bytes, wherever it ends within a piece, and nothing is
// stored for it.
func TestHoles(t *testing.T) {
	shortPieces(t, 8)
	d := newRegion(t)
	d.scenario(`
		setrange k 100 x => 101
		getrange k 95 100 => "\x00\x00\x00\x00\x00x"
		append k yz => 103
		setrange k 42 m => 103
		getrange k 38 50 => "\x00\x00\x00\x00m\x00\x00\x00\x00\x00\x00\x00\x00"
		getrange k 101 200 => "yz"
		strlen k => 103
		copy k l => 1
		getrange l 41 44 => "\x00m\x00\x00"`)
	if got, want := string(d.must(2, "get", "l").Text), strings.Repeat("\x00", 42)+"m"+strings.Repeat("\x00", 57)+
		"xyz"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
	pieces := 0
	for k, v := range d.stored() {
		if keys.Keyspace(k[0]) == keys.Data {
			pieces++
			if len(v) > 8 {
				t.Errorf("a piece of %d bytes", len(v))
			}
		}
	}
	if pieces != 4 {
		t.Errorf("%d pieces of two strings; want 2 of each", pieces)
	}
}

// TestLegacyBecomesPieces: a long legacy string is read where it is. The first write that keeps it cuts it into pieces.
func TestLegacyBecomesPieces(t *testing.T) {
	shortPieces(t, 8)
	value := strings.Repeat("0123456789", 5)
	for _, c := range []struct {
		call   string
		pieces int // of k
		want   string
	}{
		{"get k", 0, value}, {"strlen k", 0, value}, {"del x", 0, value}, {"set k short", 0, "short"},
		{"getrange k 1 2", 0, value}, {"expire k 100", 7, value}, {"append k ab", 7, value + "ab"},
		{"setrange k 3 ABC", 7, "012ABC" + value[6:]}, {"getex k ex 10", 7, value}, {"persist k", 0, value},
		{"copy k l", 0, value}, {"rename l k", 0, value}, {"rename k l", 0, ""},
	} {
		d := newRegion(t)
		d.plantLegacy("k", value, 0)
		d.must(2, strings.Fields(c.call)...)
		if got := string(d.must(2, "get", "k").Text); got != c.want {
			t.Errorf("%s: k holds %q; want %q", c.call, got, c.want)
		}
		pieces := 0
		all := d.stored()
		for key := range all {
			if k, err := keys.ParseRedis([]byte(key)); err == nil && k.Keyspace == keys.Data && !k.Legacy() && string(k.User) == "k" {
				pieces++
			}
		}
		if pieces != c.pieces {
			t.Errorf("%s: %d pieces of k; want %d", c.call, pieces, c.pieces)
		}
		if err := sound(all); err != nil {
			t.Errorf("%s: %v", c.call, err)
		}
		if l := d.must(2, "getdel", "l"); string(l.Text) != "" && string(l.Text) != value {
			t.Errorf("%s: l holds %q; want %q or nothing", c.call, l.Text, value)
		}
	}
}

// TestLongStringsAreNotOverwrittenBlindly: a SET that replaces a long string leaves its orphan record, also where it
// would be blind without.
func TestLongStringsAreNotOverwrittenBlindly(t *testing.T) {
	shortPieces(t, 8)
	for _, c := range []struct {
		calls   string
		orphans int
		blind   bool // behind it
	}{
		{"set k short", 0, true},
		{"set k long-enough-for-pieces", 0, false},
		{"set k long-enough-for-pieces; set k short", 1, false},
		{"set k long-enough-for-pieces; set k as-long-as-the-one-before", 1, false},
		{"set k short; append k and-so-on; mset k 1 j 2", 1, false},
		{"setrange k 100 x; getset k y", 1, false},
		{"setrange k 100 x; getdel k", 1, false},
		{"setrange k 100 x; psetex k 1000 y", 1, false},
		{"setrange k 100 x; expire k -1", 1, false},
		{"setrange k 100 x; rename k l", 1, false},
		{"set l x; setrange k 100 x; rename l k", 1, false},
		{"setrange k 100 x; flushall", 0, true},
	} {
		d := newRegion(t)
		for call := range strings.SplitSeq(c.calls, "; ") {
			d.must(2, strings.Fields(call)...)
		}
		if got := d.orphans("k"); got != c.orphans {
			t.Errorf("%s: %d orphan records; want %d", c.calls, got, c.orphans)
		}
		if blind := d.state.CollectedIn == 0; blind != c.blind {
			t.Errorf("%s: collections in slots %#x", c.calls, d.state.CollectedIn)
		}
		if err := sound(d.stored()); err != nil {
			t.Errorf("%s: %v", c.calls, err)
		}
	}
}

// TestNoRoomForALongString: nothing is read of a string for which the reply has no room.
func TestNoRoomForALongString(t *testing.T) {
	d := newRegion(t)
	d.must(2, "setrange", "k", strconv.Itoa(maxStringBytes-1), "x")
	for _, call := range []string{"get k", "mget k k k", "getrange k 0 -1", "set k x get"} {
		asked := 0
		out := Reply{More: func(n int) int { asked = max(asked, n); return 0 }}
		if err := d.call(toArgs(strings.Fields(call)...), &out); err != nil {
			t.Fatalf("%s: %v", call, err)
		}
		if !out.Full || asked < maxStringBytes || cap(out.Buf) > 1<<10 {
			t.Errorf("%s: full %v, %d bytes asked for, %d taken", call, out.Full, asked, cap(out.Buf))
		}
	}
}

// TestLongStringsAreReadWhole reads a string while others take its place and their pieces are reclaimed at once: a
// reader has the bytes of one of them, all as long as its record says, also where it has found the record among rows.
func TestLongStringsAreReadWhole(t *testing.T) {
	shortPieces(t, 64)
	d := newRegion(t)
	rows := d.e.NewRows()
	rows.Open()
	write := func(f func(w *Writer) error) {
		b := d.e.NewBatch()
		b.Keep(rows)
		d.state.ApplyIndex++
		d.w.Batch, d.w.State, d.w.Index = b, &d.state, d.state.ApplyIndex
		if err := errors.Join(f(&d.w), d.w.Finish(), b.Commit(false)); err != nil {
			t.Error(err)
		}
	}
	store := func(n int) uint64 {
		value := bytes.Repeat([]byte{byte('a' + n%26)}, 65+n%500)
		write(func(w *Writer) error {
			return w.Run(data.Lookup([]byte("set")), [][]byte{nil, []byte("k"), value}, new(Reply))
		})
		return d.state.LastVersion
	}
	last := store(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	reads := make([]int, 2)
	for i := range reads {
		wg.Go(func() {
			for call := 0; ; call++ {
				select {
				case <-done:
					return
				default:
				}
				r := Reader{View: d.e.NewLazyView(rows), InstantMS: start, RegionTimeMS: start}
				args := toArgs([]string{"get", "getrange"}[call%2], "k", "0", "-1")
				run := Run{Calls: []Call{{data.Lookup(args[0]), args}}}
				err := r.Execute(&run)
				r.View.Close()
				v, parsed := redistest.Parse(run.Out.Buf)
				if err = errors.Join(err, parsed); err != nil || len(v.Text) < 65 ||
					bytes.Count(v.Text, v.Text[:1]) != len(v.Text) || v.Text[0] == 0 {
					t.Errorf("%q, %v", run.Out.Buf, err)
					return
				}
				reads[i]++
			}
		})
	}
	most := 5000
	if testing.Short() {
		most = 500
	}
	for n := 1; n < most && !t.Failed(); n++ {
		version := store(n)
		write(func(w *Writer) error { // as the reclaimer does
			for index := range uint64(10) {
				sub := subkey(index)
				front := keys.AppendCollection(nil, keys.Data, topology.SlotOf([]byte("k")), []byte("k"), last)
				if err := w.Batch.Delete(append(front, sub[:]...)); err != nil {
					return err
				}
			}
			return nil
		})
		last = version
	}
	close(done)
	wg.Wait()
	if reads[0]+reads[1] < 100 {
		t.Errorf("%d and %d reads: too few to mean much", reads[0], reads[1])
	}
}

// TestSweepsMeetLongStrings: a region that holds one is not swept, so SETs go on looking at what they replace there.
func TestSweepsMeetLongStrings(t *testing.T) {
	shortPieces(t, 8)
	for _, c := range []struct {
		calls string
		want  int
	}{{"set a v", 0}, {"set a v; set b 123456789", 1}, {"setrange a 20 x; append b 123456789; sadd s m; set d v", 3},
		{"setrange a 20 x; set a v", 0}} {
		d := newRegion(t)
		for call := range strings.SplitSeq(c.calls, "; ") {
			d.must(2, strings.Fields(call)...)
		}
		x := ExpirySearch{Slots: allSlots, Limit: 100, Most: 100}
		v := d.e.NewView()
		if err := x.Step(v, nil, start); err != nil || x.Collections != c.want {
			t.Errorf("%s: %d collections, %v; want %d", c.calls, x.Collections, err, c.want)
		}
		v.Close()
	}
}

// TestLongStringsExpire: the cleaner hears of every expire time that a long string is written with.
func TestLongStringsExpire(t *testing.T) {
	shortPieces(t, 8)
	for _, call := range []string{
		"set k 123456789 px 100", "psetex k 100 123456789", "pexpire k 100", "getex k px 100", "copy old k replace",
		"rename old k", "set old 1234567890 keepttl", "append short 123456789", "setrange short 20 x",
	} {
		d := newRegion(t)
		d.scenario("set k abcdefghij => OK\nset old abcdefghij px 100 => OK\nset short v px 100 => OK")
		d.w.SoonestMS = NoExpiry
		if v := d.must(2, strings.Fields(call)...); v.Kind == '-' {
			t.Fatalf("%s: %v", call, v)
		}
		if d.w.SoonestMS != start+100 {
			t.Errorf("%s: soonest %d; want %d", call, d.w.SoonestMS, start+100)
		}
	}
}
