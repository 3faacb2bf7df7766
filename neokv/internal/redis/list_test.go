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
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// list returns a list's record and elements from the engine. It checks that the elements are those that the record
// counts, and no others.
func (d *region) list(key string) (m keys.Metadata, elements []string) {
	d.t.Helper()
	found := map[uint64]string{}
	for k, v := range d.stored() {
		parsed, err := keys.ParseRedis([]byte(k))
		if err != nil || string(parsed.User) != key {
			continue
		}
		if k[0] == byte(keys.RedisMetadata) {
			if m, err = keys.ParseMetadata([]byte(v)); err != nil {
				d.t.Fatal(err)
			}
			continue
		}
		_, sub, _ := parsed.Subkey()
		var index uint64
		for _, b := range sub {
			index = index<<8 | uint64(b)
		}
		found[index] = v
	}
	if m.Size != uint64(len(found)) || m.Tail-m.Head != m.Size {
		d.t.Fatalf("list %q: record %+v, %d elements are stored", key, m, len(found))
	}
	for i := m.Head; i < m.Tail; i++ {
		v, ok := found[i]
		if !ok {
			d.t.Fatalf("list %q: record %+v, no element at %d", key, m, i)
		}
		elements = append(elements, v)
	}
	return m, elements
}

// TestListModel applies calls, several in a batch, to a list and to a slice, and compares the two.
func TestListModel(t *testing.T) {
	oneGoroutine(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			d := newRegion(t)
			var model []string
			letter := func() string { return string(rune('a' + random.IntN(4))) }
			remove := func(from, to int) { model = slices.Delete(model, from, to) }
			step := func() (args []string, want string) {
				switch random.IntN(9) {
				case 0, 1: // grow
					n := 1 + random.IntN([]int{3, 30, 3000}[random.IntN(3)])
					left := random.IntN(2) == 0
					args = []string{"rpush", "l"}
					if left {
						args[0] = "lpush"
					}
					for range n {
						v := letter()
						args = append(args, v)
						if !left {
							model = append(model, v)
						}
					}
					if left {
						pushed := slices.Clone(args[2:])
						slices.Reverse(pushed)
						model = append(pushed, model...)
					}
					return args, fmt.Sprintf("%d", len(model))
				case 2:
					n := min(1+random.IntN([]int{2, 20, 2000}[random.IntN(3)]), len(model))
					args, want := []string{"rpop", "l", strconv.Itoa(n)}, []string{}
					for range n {
						want = append(want, strconv.Quote(model[len(model)-1]))
						remove(len(model)-1, len(model))
					}
					if len(want) == 0 {
						return []string{"llen", "l"}, strconv.Itoa(len(model))
					}
					return args, "[" + strings.Join(want, " ") + "]"
				case 3, 4:
					pivot, after, v := letter(), random.IntN(2), letter()
					at := slices.Index(model, pivot)
					if at >= 0 {
						model = slices.Insert(model, at+after, v)
						want = strconv.Itoa(len(model))
					} else if want = "-1"; len(model) == 0 {
						want = "0"
					}
					return []string{"linsert", "l", []string{"before", "after"}[after], pivot, v}, want
				case 5, 6:
					v, n := letter(), random.IntN(9)-4
					removed := 0
					if n < 0 {
						for i := len(model) - 1; i >= 0 && removed < -n; i-- {
							if model[i] == v {
								remove(i, i+1)
								removed++
							}
						}
					} else {
						for i := 0; i < len(model) && (n == 0 || removed < n); i++ {
							if model[i] == v {
								remove(i, i+1)
								removed++
								i--
							}
						}
					}
					return []string{"lrem", "l", strconv.Itoa(n), v}, strconv.Itoa(removed)
				case 7:
					from, last := random.IntN(len(model)+1), random.IntN(len(model)+1)
					if random.IntN(4) != 0 { // keep most of it
						from, last = random.IntN(3), len(model)-random.IntN(4)
					}
					to := min(last+1, len(model))
					if from >= to || last < 0 {
						from, to, last = 0, 0, -len(model)-1
					}
					model = slices.Clone(model[from:to])
					return []string{"ltrim", "l", strconv.Itoa(from), strconv.Itoa(last)}, "OK"
				default:
					if len(model) == 0 {
						return []string{"lset", "l", "0", "x"}, "ERR no such key"
					}
					i, v := random.IntN(len(model)), letter()
					model[i] = v
					return []string{"lset", "l", strconv.Itoa(i - len(model)*random.IntN(2)), v}, "OK"
				}
			}
			for range 100 {
				var calls []string
				err := d.write(func(w *Writer) error {
					for range 1 + random.IntN(4) {
						args, want := step()
						row := Lookup([]byte(args[0]))
						b := make([][]byte, len(args))
						for i, a := range args {
							b[i] = []byte(a)
						}
						calls = append(calls, fmt.Sprintf("%.60q", args))
						if row.Write == nil {
							continue
						}
						out := Reply{}
						if err := w.Run(row, b, &out); err != nil {
							return err
						}
						got, err := redistest.Parse(out.Buf)
						if err != nil || got.String() != want {
							t.Fatalf("%s: got %.200s, %v; want %.200s", calls, got, err, want)
						}
					}
					return nil
				})
				if err != nil {
					t.Fatalf("%s: %v", calls, err)
				}
				if _, got := d.list("l"); !slices.Equal(got, model) {
					t.Fatalf("%s:\n got %.300q\nwant %.300q", calls, got, model)
				}
			}
			for range 200 {
				if len(model) == 0 {
					break
				}
				i := random.IntN(len(model))
				if got := string(d.must(2, "lindex", "l", strconv.Itoa(i)).Text); got != model[i] {
					t.Fatalf("lindex %d: %q, want %q", i, got, model[i])
				}
			}
		})
	}
}

// TestListMovesTheFewer: to insert or remove elements between others, a command moves the shorter side, or leaves the
// longest run where it is.
func TestListMovesTheFewer(t *testing.T) {
	d := newRegion(t)
	args := []string{"rpush", "l"}
	for i := range 100 {
		args = append(args, strconv.Itoa(i))
	}
	d.must(2, args...)
	first, size := keys.ListStart, uint64(100)
	for _, c := range []struct {
		call       string
		head, tail int64 // how they move
	}{
		{"linsert l before 10 x", -1, 0},
		{"linsert l after 10 x", -1, 0},
		{"linsert l before 90 y", 0, 1},
		{"linsert l after 99 y", 0, 1},
		{"linsert l before 0 x", -1, 0},
		{"lrem l 0 x", 3, 0},
		{"lrem l 0 y", 0, -2},
		{"lrem l 1 20", 1, 0},
		{"lrem l 1 80", 0, -1},
		{"lset l 5 z", 0, 0},
		{"lset l 91 z", 0, 0},
		{"lrem l -2 z", 1, -1},
		{"lpop l 3", 3, 0},
		{"ltrim l 2 -4", 2, -3},
		{"lmove l l left right", 1, 1},
	} {
		before, _ := d.list("l")
		args, err := redistest.ParseCall(c.call)
		if err != nil {
			t.Fatal(err)
		}
		d.must(2, args...)
		after, _ := d.list("l")
		if head, tail := int64(after.Head-before.Head), int64(after.Tail-before.Tail); head != c.head ||
			tail != c.tail {
			t.Errorf("%s: head moves by %d, tail by %d; want %d, %d", c.call, head, tail, c.head, c.tail)
		}
		first, size = first+uint64(c.head), size+uint64(c.tail-c.head)
		if after.Head != first || after.Size != size || after.Version != before.Version {
			t.Errorf("%s: record %+v, want head %d, size %d, version %d", c.call, after, first, size, before.Version)
		}
	}
}

// TestListRewritten: where many elements would have to move, the list gets a new version and the old one is left to the
// reclaimer.
func TestListRewritten(t *testing.T) {
	d := newRegion(t)
	const rewriteFrom = 1000 // so many of the first elements may be moved
	const n = 2*rewriteFrom + 10
	args, model := []string{"rpush", "l"}, []string{}
	for i := range n {
		model = append(model, strconv.Itoa(i))
	}
	limit(t, rewriteFrom*(keys.UserKeyOffset+len("l")+keys.VersionLen+8)+len(strings.Join(model[:rewriteFrom], "")))
	d.must(2, append(args, model...)...)
	d.must(2, "pexpireat", "l", strconv.Itoa(start+50))
	rewritten := func(want string, version, orphans uint64, call ...string) {
		t.Helper()
		if got := d.must(2, call...).String(); got != want {
			t.Errorf("%s: got %s, want %s", call, got, want)
		}
		var got []string
		v := d.must(2, "lrange", "l", "0", "-1")
		for _, item := range v.Items {
			got = append(got, string(item.Text))
		}
		if !slices.Equal(got, model) {
			t.Errorf("%s: %d elements, want %d, or others", call, len(got), len(model))
		}
		value, _ := d.has(metadataOf([]byte("l")))
		m, err := keys.ParseMetadata([]byte(value))
		if err != nil || m.Version != version || m.ExpireMS != start+50 || m.Size != uint64(len(model)) ||
			m.Tail-m.Head != m.Size {
			t.Errorf("%s: record %+v, %v; want version %d, size %d", call, m, err, version, len(model))
		}
		if d.w.Orphans.Collections != orphans {
			t.Errorf("%s: %d orphans, want %d", call, d.w.Orphans.Collections, orphans)
		}
	}
	model = slices.Insert(model, rewriteFrom, "x")
	rewritten(strconv.Itoa(n+1), 1, 0, "linsert", "l", "before", strconv.Itoa(rewriteFrom), "x")
	model = slices.Insert(model, rewriteFrom+2, "x")
	rewritten(strconv.Itoa(n+2), 2, 1, "linsert", "l", "after", strconv.Itoa(rewriteFrom), "x")
	for i := range len(model) { // keeps all runs short
		if i%100 == 50 {
			model[i] = "x"
			d.must(2, "lset", "l", strconv.Itoa(i), "x")
		}
	}
	gone := 0
	model = slices.DeleteFunc(model, func(s string) bool {
		if s == "x" {
			gone++
		}
		return s == "x"
	})
	rewritten(strconv.Itoa(gone), 3, 2, "lrem", "l", "0", "x")
}

// TestListGap: a list whose record counts an element that is not there is an error, no reply.
func TestListGap(t *testing.T) {
	for _, size := range []int{3, 50} {
		d := newRegion(t)
		args := []string{"rpush", "l"}
		for i := range size {
			args = append(args, strconv.Itoa(i))
		}
		d.must(2, args...)
		m, _ := d.list("l")
		sub := subkey(m.Head + 1)
		gone := append(keys.AppendCollection(nil, keys.Data, topology.SlotOf([]byte("l")), []byte("l"), m.Version), sub[:]...)
		if err := d.write(func(w *Writer) error { return w.Batch.Delete(gone) }); err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"lindex l 1", "lrange l 0 -1", "lpop l 2", "rpop l 100", "lrem l 0 x",
			"lpos l x"} {
			out := Reply{}
			if err := d.call(bytes.Fields([]byte(call)), &out); err == nil ||
				!strings.Contains(err.Error(), "no element at index") {
				t.Errorf("%d elements: %s: %q, error %v", size, call, out.Buf, err)
			}
		}
	}
}

// BenchmarkList counts commands, 64 of them in an entry or a read, on a list of 100,000 elements; LPOP and RPUSH take
// turns.
func BenchmarkList(b *testing.B) {
	for _, lines := range []string{"lpush l 12345", "lpop l\nrpush l 12345", "lindex l 50000", "lset l 50000 12345",
		"lrange l 50000 50099"} {
		b.Run(strings.ReplaceAll(strings.ReplaceAll(lines, " l", ""), "\n", " "), func(b *testing.B) {
			d := newRegion(b)
			args := []string{"rpush", "l"}
			for range 1000 {
				args = append(args, "x")
			}
			for range 100 {
				d.must(2, args...)
			}
			var calls []Call
			for line := range strings.Lines(lines) {
				args := bytes.Fields([]byte(line))
				calls = append(calls, Call{Lookup(args[0]), args})
			}
			const size = 64
			run := Run{}
			b.ReportAllocs()
			for b.Loop() {
				run.Reset()
				for i := range size {
					run.Calls = append(run.Calls, calls[i%len(calls)])
				}
				var err error
				if calls[0].Command.Read != nil {
					err = d.read(func(r *Reader) error { return r.Execute(&run) })
				} else {
					err = d.write(func(w *Writer) error {
						for _, c := range run.Calls {
							if err := w.Run(c.Command, c.Args, &run.Out); err != nil {
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
