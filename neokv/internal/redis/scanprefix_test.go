package redis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
)

// TestScanPrefixModel compares random scans with a sorted list: keys of many lengths, strings short and long, legacy
// strings, collections, keys that are deleted or expired, and other slots beside the one that is scanned.
func TestScanPrefixModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	shortPieces(t, 5)
	for range 12 {
		scanRandom(t, random, random.IntN(2) == 0)
	}
}

// scanRandom compares scans of a random region with the model. legacy says whether the region holds legacy strings.
func scanRandom(t *testing.T, random *rand.Rand, legacy bool) {
	d := newRegion(t)
	name := func(most int) string {
		b := make([]byte, random.IntN(most+1))
		for i := range b {
			b[i] = "\x00ab\xff\xff"[random.IntN(5)]
		}
		return string(b)
	}
	tags := []string{"{x}", "{y}", "{z}"}
	const null = "(nil)"
	model := map[string]string{} // of {x}
	for range 50 + random.IntN(400) {
		tag := tags[random.IntN(3)]
		key, value := tag+name(1+random.IntN(12)), name(12)
		kind := random.IntN(10)
		switch {
		case kind == 0:
			d.must(2, "del", key)
		case kind == 1:
			d.must(2, "del", key)
			d.must(2, "hset", key, "f1", "v", "f2", "v")
		case kind == 2:
			d.must(2, "del", key) // a key has no legacy string beside its record
			d.plant(key, keys.Metadata{Type: keys.String, ExpireMS: start - 1, Value: []byte("gone")})
		case kind <= 5 && legacy:
			d.must(2, "neokv", "legacyset", key, value)
		default:
			d.must(2, "set", key, value)
		}
		if tag != "{x}" {
			continue
		}
		switch kind {
		case 0, 2:
			delete(model, key)
		case 1:
			model[key] = null
		default:
			model[key] = strconv.Quote(value)
		}
	}
	sorted := make([]string, 0, len(model))
	for key := range model {
		sorted = append(sorted, key)
	}
	slices.Sort(sorted)
	for range 60 {
		prefix := "{x}" + name(3)
		if random.IntN(10) == 0 {
			prefix = "{x}"[:random.IntN(4)]
		}
		var want []string
		for _, key := range sorted {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key, model[key])
			}
		}
		args := []string{"neokv", "scanprefix", tagOf(random), prefix, strconv.Itoa(1 + random.IntN(30))}
		if random.IntN(3) == 0 {
			after := "{x}" + name(6)
			if random.IntN(4) == 0 {
				after = name(2)
			}
			for len(want) > 0 && want[0] <= after {
				want = want[2:]
			}
			args = append(args, "AFTER", after)
		}
		if got := d.scanAll(args); !slices.Equal(got, want) {
			t.Fatalf("%q:\n\tgot  %q\n\twant %q", args, got, want)
		}
	}
}

// tagOf names the slot of {x}, with braces or without.
func tagOf(random *rand.Rand) string { return []string{"x", "{x}", "{x}abc"}[random.IntN(3)] }

// scanAll runs a scan to its end and returns keys and values in turn.
func (d *region) scanAll(args []string) (found []string) {
	d.t.Helper()
	count, _ := strconv.Atoi(args[4])
	for {
		v := d.must(2, args...)
		if len(v.Items) != 2 || len(v.Items[1].Items)%2 != 0 || len(v.Items[1].Items) > 2*count {
			d.t.Fatalf("%q: %v", args, v)
		}
		for i, item := range v.Items[1].Items {
			if i%2 == 0 {
				found = append(found, string(item.Text))
			} else {
				found = append(found, item.String())
			}
		}
		if v.Items[0].Text == nil {
			return found
		}
		args = append(slices.Clone(args[:5]), "after", string(v.Items[0].Text))
	}
}

// TestScanPrefix has the forms of the reply, and the errors.
func TestScanPrefix(t *testing.T) {
	d := newRegion(t)
	d.scenario(`
		neokv scanprefix {t} {t} 10 => [(nil) []]
		mset {t}b 1 {t}aa 2 {t}a 3 {t}c 4 {u}a 5 => OK
		hset {t}ab f v => 1
		neokv scanprefix {t} {t} 10 => [(nil) ["{t}a" "3" "{t}aa" "2" "{t}ab" (nil) "{t}b" "1" "{t}c" "4"]]
		NEOKV ScanPrefix t {t}a 2 => ["{t}aa" ["{t}a" "3" "{t}aa" "2"]]
		neokv scanprefix t {t}a 2 AFTER {t}aa => [(nil) ["{t}ab" (nil)]]
		neokv scanprefix t {t}a 3 => [(nil) ["{t}a" "3" "{t}aa" "2" "{t}ab" (nil)]]
		neokv scanprefix t {t}a 10 after {t}b => [(nil) []]
		neokv scanprefix t {t}a 10 after "" => [(nil) ["{t}a" "3" "{t}aa" "2" "{t}ab" (nil)]]
		neokv scanprefix t "" 1 => ["{t}a" ["{t}a" "3"]]
		neokv scanprefix t {t}d 1 => [(nil) []]
		neokv scanprefix t {t} 0 => ERR count must be between 1 and 1000
		neokv scanprefix t {t} 1001 => ERR count must be between 1 and 1000
		neokv scanprefix t {t} x => ERR value is not an integer or out of range
		neokv scanprefix t {t} 1 after => ERR syntax error
		neokv scanprefix t {t} 1 before {t} => ERR syntax error
		neokv scanprefix t {t} => ERR wrong number of arguments for 'neokv|scanprefix' command
	`)
	if got := string(d.must(3, "neokv", "scanprefix", "t", "{t}ab", "1").Items[1].Items[1].Text); got != "" {
		t.Errorf("the value of a hash is %q; want null", got)
	}
}

// TestScanPrefixExpiry: expired keys do not count. One that has expired by the reader's time alone makes the read wait
// for the region time.
func TestScanPrefixExpiry(t *testing.T) {
	d := newRegion(t)
	now := uint64(start)
	d.now = func() uint64 { return now }
	d.must(2, "set", "{t}a", "1", "px", "100")
	d.must(2, "set", "{t}b", "2")
	scan := []string{"neokv", "scanprefix", "t", "{t}", "1"}
	if got := d.scanAll(scan); len(got) != 4 || d.ahead {
		t.Errorf("%q, ahead %v", got, d.ahead)
	}
	now += 100
	if !d.mustRead(scan...) {
		t.Error("a key that has expired by the reader's time alone: the read is not ahead of the region time")
	}
	d.must(2, "set", "{t}c", "3")
	if got := d.scanAll(scan); strings.Join(got, " ") != `{t}b "2" {t}c "3"` || d.ahead {
		t.Errorf("%q, ahead %v", got, d.ahead)
	}
}

// TestScanPrefixIsBounded: a step ends after MaxWalk records also where all have expired, and where the reply is long,
// but never without a pair or progress. Too many lengths are an error.
func TestScanPrefixIsBounded(t *testing.T) {
	d := newRegion(t)
	shortPieces(t, 1000)
	limits := scanLimits
	t.Cleanup(func() { scanLimits = limits })
	for i := range MaxWalk + 10 {
		d.plant(fmt.Sprintf("{t}%05d", i), keys.Metadata{Type: keys.String, ExpireMS: 1, Value: []byte("v")})
	}
	d.must(2, "set", "{t}x", "1")
	v := d.must(2, "neokv", "scanprefix", "t", "{t}", "1000")
	if len(v.Items[1].Items) != 0 || string(v.Items[0].Text) != "{t}00999" {
		t.Errorf("%v behind %d expired keys; want no pair yet, and the last of them", v, MaxWalk)
	}
	if got := d.scanAll([]string{"neokv", "scanprefix", "t", "{t}", "1000"}); strings.Join(got, " ") != `{t}x "1"` {
		t.Errorf("%q", got)
	}

	long := strings.Repeat("v", 5000) // in pieces
	for _, key := range []string{"{u}a", "{u}b", "{u}c", "{u}d"} {
		d.must(2, "set", key, long)
	}
	scanLimits.replyBytes = 11_000
	for _, c := range []struct {
		limit, pairs int
		next         string
	}{{11_000, 2, "{u}b"}, {1, 1, "{u}a"}, {1 << 20, 4, ""}} {
		scanLimits.replyBytes = c.limit
		v := d.must(2, "neokv", "scanprefix", "u", "{u}", "10")
		if len(v.Items[1].Items) != 2*c.pairs || string(v.Items[0].Text) != c.next ||
			string(v.Items[1].Items[1].Text) != long {
			t.Errorf("at most %d bytes: %d pairs, then %q; want %d, %q", c.limit, len(v.Items[1].Items)/2,
				v.Items[0].Text, c.pairs, c.next)
		}
	}
	if got := d.scanAll([]string{"neokv", "scanprefix", "u", "{u}", "3"}); len(got) != 8 {
		t.Errorf("%d keys and values in steps; want 8", len(got))
	}

	for i := range 20 {
		d.must(2, "set", "{w}a"+strings.Repeat("k", i), "v")
		d.must(2, "set", "{w}b"+strings.Repeat("k", i), "v")
	}
	for _, c := range []struct {
		lengths, seeks, headBytes int
		prefix, want              string
	}{
		{20, 100, 1000, "{w}a", `["{w}a" ["{w}a" "v"]]`},
		{19, 100, 1000, "{w}a", errScanLengths},
		{19, 100, 1000, "{w}akk", `["{w}akk" ["{w}akk" "v"]]`},
		{20, 100, 20*4 + 19*20/2, "{w}a", `["{w}a" ["{w}a" "v"]]`},
		{20, 100, 20*4 + 19*20/2 - 1, "{w}a", errScanMemory},
		{20, 10, 1000, "{w}a", errScanSlot},
		{20, 10, 1000, "{w}c", errScanSlot},
	} {
		scanLimits.lengths, scanLimits.seeks, scanLimits.headBytes = c.lengths, c.seeks, c.headBytes
		if got := d.must(2, "neokv", "scanprefix", "w", c.prefix, "1").String(); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// TestScanPrefixWithoutRoom: a reply for which there is no room ends the scan.
func TestScanPrefixWithoutRoom(t *testing.T) {
	d := newRegion(t)
	for i := range 100 {
		d.must(2, "set", fmt.Sprintf("{t}%d", i), strings.Repeat("v", 1000))
	}
	asked := 0
	run := Run{Calls: []Call{{ScanPrefix, bytes.Fields([]byte("neokv scanprefix t {t} 100"))}}}
	run.Out.Room, run.Out.More = 10_000, func(int) int { asked++; return 0 }
	err := d.read(func(r *Reader) error { return r.Execute(&run) })
	if err != nil || !run.Out.Full || asked != 1 || len(run.Out.Buf) > 10_000 {
		t.Errorf("%d bytes, full %v, asked for more %d times: %v", len(run.Out.Buf), run.Out.Full, asked, err)
	}
}

func BenchmarkScanPrefix(b *testing.B) {
	for _, lengths := range []int{1, 20} {
		b.Run(fmt.Sprintf("lengths=%d", lengths), func(b *testing.B) {
			d := newRegion(b)
			for i := range 10_000 {
				d.must(2, "set", fmt.Sprintf("{t}%05d%s", i, strings.Repeat("k", i%lengths)), strings.Repeat("v", 100))
			}
			if err := d.e.Flush(); err != nil {
				b.Fatal(err)
			}
			args := bytes.Fields([]byte("neokv scanprefix t {t} 100 after {t}05000"))
			for b.Loop() {
				var out Reply
				if err := d.call(args, &out); err != nil || len(out.Buf) < 10_000 {
					b.Fatal(err, len(out.Buf))
				}
			}
		})
	}
}
