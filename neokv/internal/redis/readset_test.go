package redis

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
)

// These tests are about what a read set holds and who heeds it. Logs with read sets are in replicas_test.go.

// TestReadSetIsHeeded applies calls with the read set of a region that holds something else than the one they are
// applied to: what they reply follows from the read set, so they have not looked for themselves.
func TestReadSetIsHeeded(t *testing.T) {
	other, here := newRegion(t), newRegion(t)
	run := func(d *region, line string) string {
		var out Reply
		args := bytes.Fields([]byte(line))
		if err := d.call(args, &out); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return string(out.Buf)
	}
	for _, line := range []string{
		"set n 41", "set s abc", "hset h f 1 g 2", "sadd t a b", "zadd z 1.5 a 2 b", "rpush l x y",
	} {
		run(other, line)
		run(here, line)
	}
	for _, line := range []string{ // the same records, elements and all; then what differs
		"set n 1", "set s a", "hdel h f", "srem t a", "zrem z a", "zadd z 7 b", "hset h g 5",
	} {
		run(here, line)
	}
	for _, c := range []struct{ line, want string }{
		{"incr n", ":42\r\n"}, {"incrby n 2", ":43\r\n"}, {"decr n", ":40\r\n"}, {"append s d", ":4\r\n"},
		{"getset s x", "$3\r\nabc\r\n"}, {"setnx n 1", ":0\r\n"}, {"setnx nn 1", ":1\r\n"}, {"del n nn s", ":2\r\n"},
		{"getdel s", "$3\r\nabc\r\n"}, {"expire nn 9", ":0\r\n"}, {"set h 1", "+OK\r\n"}, {"mset n 1 t 2", "+OK\r\n"},
		{"incrbyfloat n 0.5", "$4\r\n41.5\r\n"}, {"setrange s 1 x", ":3\r\n"},
		{"hset h f 9 x 1", ":1\r\n"}, {"hsetnx h f 9", ":0\r\n"}, {"hdel h f x", ":1\r\n"}, {"hincrby h f 1", ":2\r\n"},
		{"hincrby h g 1", ":3\r\n"}, {"sadd t a c", ":1\r\n"}, {"srem t a c", ":1\r\n"},
		{"zadd z xx ch 3 a 4 x", ":1\r\n"}, {"zincrby z 1 a", "$3\r\n2.5\r\n"}, {"zincrby z 1 b", "$1\r\n3\r\n"},
	} {
		args := bytes.Fields([]byte(c.line))
		call := Call{data.Lookup(args[0]), args}
		v := other.e.NewView()
		var set ReadSet
		set.Begin(v, keys.AllSlots)
		if err := set.Add(&call); err != nil {
			t.Fatal(err)
		}
		v.Close()
		b := here.e.NewBatch()
		w := Writer{Batch: b, State: &keys.RegionState{Slots: allSlots}}
		*w.State = here.state
		rest, err := w.Expect(args, set.Bytes)
		var out Reply
		if err := errors.Join(err, w.Run(call.Command, args, &out)); err != nil || len(rest) > 0 {
			t.Fatalf("%s: %v, %d bytes of the read set left", c.line, err, len(rest))
		}
		if string(out.Buf) != c.want {
			t.Errorf("%s: %q; want %q, as the read set says", c.line, out.Buf, c.want)
		}
		b.Close()
	}
}

// TestReadsOfEveryRow runs calls of every command that writes, and counts how often each looks into the engine: alone,
// with its read set, and when it is told everything that its arguments name. So it sees what a command looks up that a
// read set can have, and compares that with what the command's row says.
func TestReadsOfEveryRow(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	// lookups says what the calls of a row have shown.
	type lookups struct {
		records, elements, values bool // some call looks these up
		blind                     bool // some call looks records up, but none in a slot without collections
		saved                     bool // a read set has saved some call a look for each of its reads, of every kind
	}
	seen := map[*Command]*lookups{}
	// count runs a call in a batch that is thrown away, and returns the number of its looks.
	count := func(c *Call, unblind uint64, tell func(*Writer) error) int64 {
		state := d.state
		state.CollectedIn = unblind
		w := Writer{Batch: d.e.NewBatch(), State: &state, Index: state.ApplyIndex + 1}
		before := d.e.Lookups()
		err := errors.Join(tell(&w), w.Run(c.Command, c.Args, new(Reply)), w.Finish())
		w.Batch.Close() // the batch's looks count now
		if err != nil {
			t.Fatalf("%q: %v", c.Args, err)
		}
		return d.e.Lookups() - before
	}
	told := func(known ...engine.Known) func(*Writer) error {
		return func(w *Writer) error { w.Batch.Expect(known); return nil }
	}
	sample := func(c *Call) {
		row := seen[c.Command]
		if row == nil {
			row = new(lookups)
			seen[c.Command] = row
		}
		records, values := d.named(c)
		presences := slices.Clone(values)
		for i := range presences {
			presences[i].Value, presences[i].Cut = nil, true
		}
		var ofRecords [2]int64
		for i, unblind := range []uint64{0, keys.AllSlots} {
			var set ReadSet
			v := d.e.NewView()
			set.Begin(v, unblind)
			err := set.Add(c)
			v.Close()
			if err != nil {
				t.Fatalf("%q: %v", c.Args, err)
			}
			alone := count(c, unblind, told())
			withRecords := count(c, unblind, told(records...))
			withPresences := count(c, unblind, told(slices.Concat(records, presences)...))
			withAll := count(c, unblind, told(slices.Concat(records, values)...))
			withSet := count(c, unblind, func(w *Writer) error {
				_, err := w.Expect(c.Args, set.Bytes)
				return err
			})
			ofRecords[i] = alone - withRecords
			row.records = row.records || withRecords < alone
			row.elements = row.elements || withAll < withRecords
			row.values = row.values || withAll < withPresences
			row.saved = row.saved || set.Reads > 0 && alone-withSet >= int64(set.Reads) &&
				(c.Command.Reads.Elements == nil || withAll < withRecords)
			if withSet > withAll && !looksForItself(c, unblind) {
				t.Errorf("%.100q makes %d looks with its read set; want %d, as when it is told all that it names",
					c.Args, withSet, withAll)
			}
		}
		row.blind = row.blind || ofRecords[0] == 0 && ofRecords[1] > 0
	}
	lines := slices.Clone(sure)
	for _, c := range redistest.Cases() {
		if len(c.Calls) < 32<<10 { // what larger cases add is no other command
			calls := strings.ReplaceAll(strings.TrimSpace(c.Calls), "\n", "; ")
			lines = append(lines, "flushall; "+strings.ReplaceAll(calls, "{t}", "{1}"))
		}
	}
	for _, line := range lines {
		for call := range strings.SplitSeq(line, "; ") {
			words, err := redistest.ParseCall(call)
			if err != nil {
				t.Fatal(err)
			}
			if len(words) == 0 {
				continue
			}
			c := Call{Args: make([][]byte, len(words))}
			for i, word := range words {
				c.Args[i] = []byte(word)
			}
			c.Command = withOwn.Find(c.Args, new(Reply))
			if c.Command != nil && c.Command.CheckArity(len(words)) && c.Command.Write != nil &&
				(c.Command.ReadBy == nil || c.Command.ReadBy(c.Args) == nil) && len(words) <= maxReads {
				sample(&c)
			}
			if err := d.call(c.Args, new(Reply)); err != nil {
				t.Fatalf("%q: %v", c.Args, err)
			}
		}
	}
	for _, row := range withOwn.Rows() {
		for _, c := range append([]*Command{row}, row.Sub...) {
			if c.Write == nil {
				continue
			}
			found := seen[c]
			if found == nil {
				t.Errorf("%s: no call of it is here; want one at least", c.FullName())
				continue
			}
			keyed := len(c.Keys) > 0
			blind := c.Reads.Blind || c.Reads.BlindAt != nil
			if says := (lookups{keyed, c.Reads.Elements != nil, c.Reads.Values, blind, keyed}); *found != says {
				t.Errorf("%s: calls show %+v; its row says %+v", c.FullName(), *found, says)
			}
		}
	}
}

// looksForItself reports whether Reads.Blind lets a call look for what its read set does not have: where the slot has
// no collection, for an option or to store a long string; elsewhere for the string that SET with GET returns.
func looksForItself(c *Call, unblind uint64) bool {
	withGet := slices.ContainsFunc(c.Args[1:], func(arg []byte) bool { return strings.EqualFold(string(arg), "get") })
	return c.Command.Reads.Blind && (unblind == 0 || withGet)
}

// named is what the region holds under the names among a call's arguments: the records of its keys, and what its first
// key has under each other argument if that is an element. What is too long for a read set is left out.
func (d *region) named(c *Call) (records, elements []engine.Known) {
	v := d.e.NewView()
	defer v.Close()
	look := func(key []byte) engine.Known {
		value, there, err := v.Get(key)
		if err != nil {
			d.t.Fatal(err)
		}
		return engine.Known{Key: key, Value: bytes.Clone(value), There: there}
	}
	places := c.Command.AppendKeys(nil, c.Args)
	for i, place := range places {
		user := c.Args[place]
		k := look(metadataOf(user))
		if len(k.Value) > maxFound {
			continue
		}
		records = append(records, k)
		if i > 0 || !k.There {
			continue
		}
		m, err := keys.ParseMetadata(k.Value)
		if err != nil {
			d.t.Fatal(err)
		}
		if !m.Apart() || m.Type == keys.String {
			continue
		}
		for _, sub := range c.Args[place+1:] {
			e := look(subkeyOf(slotOf(string(user)), user, m.Version, sub))
			if len(e.Value) <= maxFound {
				elements = append(elements, e)
			}
		}
	}
	return records, elements
}

// TestReadSetIsBounded has a read set leave out what is long, and stop where it is long itself.
func TestReadSetIsBounded(t *testing.T) {
	d := newRegion(t)
	add := func(set *ReadSet, words ...string) {
		c := Call{Command: data.Lookup([]byte(words[0]))}
		for _, word := range words {
			c.Args = append(c.Args, []byte(word))
		}
		v := d.e.NewView()
		defer v.Close()
		set.view = v
		if err := set.Add(&c); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("v", maxFound)
	var out Reply
	for _, args := range [][]string{{"set", "long", long}, {"set", "short", long[:100]},
		{"hset", "h", "long", long + "v", "short", "v"}} {
		var raw [][]byte
		for _, a := range args {
			raw = append(raw, []byte(a))
		}
		if err := d.call(raw, &out); err != nil {
			t.Fatal(err)
		}
	}
	var set ReadSet
	set.Begin(nil, 0)
	add(&set, "append", "long", "x")
	add(&set, "hincrby", "h", "long", "1")
	add(&set, "hset", "h", "long", "1") // the record is there already, and of the field only whether it is there
	if add(&set, "append", "short", "x"); set.Reads != 3 || len(set.Bytes) > 200 {
		t.Errorf("%d reads in %d bytes; want those of what is short", set.Reads, len(set.Bytes))
	}
	many := []string{"del"}
	for i := range 2 * maxReads {
		many = append(many, fmt.Sprint("k", i))
	}
	set.Begin(nil, 0)
	if add(&set, many...); set.Reads != maxReads {
		t.Errorf("%d reads of one call; want %d", set.Reads, maxReads)
	}
	for range 3 * maxReadSet / 100 {
		add(&set, "append", "short", "x")
	}
	if n := len(set.Bytes); n < maxReadSet || n > maxReadSet*11/10 {
		t.Errorf("read set of %d bytes; want about %d", n, maxReadSet)
	}
}

// FuzzReadSet gives a writer any bytes for a read set: it takes them or says what is wrong.
func FuzzReadSet(f *testing.F) {
	for _, set := range []string{"", "\x00", "\x01\x04\x03ab", "\x02\x04\x00\x09\x00\x00\x00\x00\x00\x00\x00\x07\x02x",
		"\x01\x03\x00\x00\x00\x00\x00\x00\x00\x07\x01\x00", "\x01\x0a\x00\x00\x00\x00\x00\x00\x00\x07\x01\x00"} {
		f.Add([]byte(set))
	}
	d := newRegion(f)
	f.Fuzz(func(t *testing.T, set []byte) {
		args := [][]byte{[]byte("hset"), []byte("h"), []byte("f"), []byte("v")}
		args = args[:1+len(set)%4]
		b := d.e.NewBatch()
		defer b.Close()
		w := Writer{Batch: b, State: &keys.RegionState{Slots: allSlots}}
		for err := error(nil); err == nil && len(set) > 0; {
			before := len(set)
			if set, err = w.Expect(args, set); err == nil && len(set) >= before {
				t.Fatalf("no progress at %d bytes", before)
			}
		}
	})
}
