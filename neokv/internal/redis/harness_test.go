package redis

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var (
	allSlots = topology.SlotRange{Last: topology.SlotCount - 1}
)

// withOwn is the table of the data commands with those that Redis does not have, under NEOKV as in the server's table.
var withOwn = NewTable(append(slices.Clone(data.Rows()), &Command{Name: "neokv", Arity: -2, Sub: Own})...)

// region is one region on one store, without Raft: calls are executed at once.
type region struct {
	t     testing.TB
	e     *engine.Engine
	mu    sync.Mutex // one call at a time
	state keys.RegionState

	now   func() uint64 // Unix ms
	w     Writer
	r     Reader
	ahead bool // the last read was ahead of the region time
	wrote int  // bytes of the last write's batch

	limits ScriptLimits // of scripts

	// long, if it is not 0, is how many calls a batch has, reads and writes: then all reads are inside units.
	long  int
	batch *engine.Batch // the present one
	calls int           // in it
}

// limit sets touchedBytes until the end of the test. If it is small, combinations also go through few collections at a
// time.
func limit(t testing.TB, bytes int) {
	touched, window, side := touchedBytes, windowBytes, maxSideBySide
	t.Cleanup(func() { touchedBytes, windowBytes, maxSideBySide = touched, window, side })
	touchedBytes = bytes
	windowBytes.first, windowBytes.most = min(bytes, 16<<10), min(2*bytes, 1<<20)
	if maxSideBySide = 64; bytes < 1<<20 {
		maxSideBySide = 2
	}
}

// start is the time of regions with a clock that stands still.
const start = 1_700_000_000_000

// oneGoroutine skips a long test under -short, which is for the race detector: nothing runs beside the calls.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
}

func newRegion(t testing.TB) *region { return newRegionOf(t, 8<<20) }

// newRegionOf is like newRegion, with a block cache of so many bytes.
func newRegionOf(t testing.TB, blockCache settings.Bytes) *region {
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 16<<20, blockCache
	e, err := engine.Open(engine.Options{Dir: "engine", FS: vfs.NewMem(), Knobs: k, Stores: 1, Fatal: func(err error) {
		t.Errorf("fatal: %v", err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	d := &region{t: t, e: e, now: func() uint64 { return start }, limits: DefaultScriptLimits,
		state: keys.RegionState{TimeMS: start, Slots: allSlots, Version: 1}}
	t.Cleanup(func() {
		if err := errors.Join(d.endUnits(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// script makes the script's call of EVAL or EVAL_RO, as a server that knows no slots does. ok is false if the reply is
// an error, or there already.
func (d *region) script(args [][]byte, out *Reply) (c Call, isScript, ok bool) {
	flags := ScriptCrossSlots
	if len(args) < 3 {
		return c, false, false
	}
	switch strings.ToLower(string(args[0])) {
	case "eval_ro":
		flags |= ScriptReadOnly
	case "eval":
	default:
		return c, false, false
	}
	n, err := strconv.Atoi(string(args[2]))
	script, err2 := lua.Compile(string(args[1]))
	if err = errors.Join(err, err2); err != nil || n < 0 || n > len(args)-3 {
		out.Error(fmt.Sprint("ERR ", err))
		return c, true, false
	}
	if script.Flags&lua.NoWrites != 0 {
		flags |= ScriptReadOnly
	} else if flags&ScriptReadOnly != 0 && script.Flags&lua.Shebang != 0 {
		out.Error("ERR Can not execute a script with write flag using *_ro command.")
		return c, true, false
	}
	var touched []byte
	if n == 0 {
		if touched, ok = FirstKey(script, flags, args[2:], d.limits, d.now(), nil, nil, nil, out); !ok {
			return c, true, false
		}
	}
	return NewScriptCall(flags, args[1], touched, args[2:]), true, true
}

// call runs one call as a server with this region alone does, its reply appended to out.
func (d *region) call(args [][]byte, out *Reply) error {
	if script, isScript, ok := d.script(args, out); isScript {
		if !ok {
			return nil
		}
		if script.Command == ScriptRead && d.long == 0 {
			run := Run{Calls: []Call{script}, Out: *out, ScriptLimits: d.limits}
			err := d.read(func(r *Reader) error { return r.Execute(&run) })
			*out = run.Out
			return err
		}
		d.w.ScriptLimits = d.limits
		if d.long > 0 {
			return d.inUnit(Script, script.Args, out)
		}
		d.state.TimeMS = max(d.state.TimeMS, d.now())
		return d.write(func(w *Writer) error { return w.Run(Script, script.Args, out) })
	}
	c := withOwn.Find(args, out)
	switch {
	case c == nil:
		return nil
	case !c.CheckArity(len(args)):
		out.WrongArity(c)
		return nil
	case c.ReadBy != nil && c.ReadBy(args) != nil:
		c = c.ReadBy(args)
	}
	switch {
	case d.long > 0:
		if c = LookupInUnit(args); c == nil {
			out.Error("ERR " + string(args[0]) + " is the server's")
			return nil
		}
		return d.inUnit(c, args, out)
	case c.Write != nil:
		d.state.TimeMS = max(d.state.TimeMS, d.now())
		return d.write(func(w *Writer) error { return w.Run(c, args, out) })
	case c.Read != nil:
		run := Run{Calls: []Call{{c, args}}, Out: *out}
		err := d.read(func(r *Reader) error { return r.Execute(&run) })
		*out = run.Out
		return err
	case c.Name == "dbsize":
		n := 0
		err := d.walk(KeyWalk{Slots: allSlots, CountOnly: true}, func(w *KeyWalk) { n += w.Count })
		out.Int(int64(n))
		return err
	case c.Name == "keys":
		var found [][]byte
		err := d.walk(KeyWalk{Slots: allSlots, Limit: 7}, func(w *KeyWalk) {
			for _, k := range w.Keys {
				if match(args[1], k.Key) {
					found = append(found, append([]byte{}, k.Key...))
				}
			}
		})
		out.Array(len(found))
		for _, k := range found {
			out.Bulk(k)
		}
		return err
	}
	out.Error("ERR " + c.Name + " is the server's")
	return nil
}

// inUnit runs a call in the present batch, which it commits at times.
func (d *region) inUnit(c *Command, args [][]byte, out *Reply) error {
	if d.batch == nil {
		d.batch = d.e.NewBatch()
		d.state.ApplyIndex++
		d.w.Batch, d.w.State, d.w.Index = d.batch, &d.state, d.state.ApplyIndex
	}
	d.state.TimeMS = max(d.state.TimeMS, d.now())
	if err := d.w.Run(c, args, out); err != nil {
		return err
	}
	if d.calls++; d.calls < d.long {
		return nil
	}
	return d.endUnits()
}

// endUnits commits the present batch.
func (d *region) endUnits() error {
	if d.batch == nil {
		return nil
	}
	err := errors.Join(d.w.Finish(), d.batch.Commit(false))
	d.batch, d.calls = nil, 0
	return err
}

func (d *region) write(f func(*Writer) error) error {
	b := d.e.NewBatch()
	d.state.ApplyIndex++
	d.w.Batch, d.w.State, d.w.Index = b, &d.state, d.state.ApplyIndex
	err := f(&d.w)
	if err == nil {
		err = d.w.Finish()
	}
	if err != nil {
		b.Close()
		return err
	}
	d.wrote = b.Len()
	return b.Commit(false)
}

func (d *region) read(f func(*Reader) error) error {
	d.r.InstantMS, d.r.RegionTimeMS = max(d.now(), d.state.TimeMS), d.state.TimeMS
	d.r.Slots, d.r.Legacy, d.r.Ahead = d.state.Slots, d.state.Legacy, false
	d.r.View, d.r.Effects = d.e.NewView(), d.w.Effects
	defer d.r.View.Close()
	err := f(&d.r)
	d.ahead = d.r.Ahead
	return err
}

func (d *region) walk(w KeyWalk, each func(*KeyWalk)) error {
	for more := true; more; more = w.Advance() {
		run := Run{Calls: []Call{w.Call()}}
		if err := d.read(func(r *Reader) error { return r.Execute(&run) }); err != nil {
			return err
		}
		each(&w)
	}
	return nil
}

// must runs a call and returns its reply, which has to be one value.
func (d *region) must(proto int, args ...string) redistest.ReplyValue {
	d.t.Helper()
	b := make([][]byte, len(args))
	for i, a := range args {
		b[i] = []byte(a)
	}
	out := Reply{Proto: proto}
	if err := d.call(b, &out); err != nil {
		d.t.Fatalf("%q: %v", args, err)
	}
	v, err := redistest.Parse(out.Buf)
	if err != nil {
		d.t.Fatalf("%q: %v", args, err)
	}
	return v
}

// scenario runs lines of the form `call => reply`, where reply is as redistest.ReplyValue prints it.
func (d *region) scenario(lines string) {
	d.t.Helper()
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		call, want, ok := strings.Cut(line, " => ")
		if line == "" {
			continue
		}
		args, err := redistest.ParseCall(strings.TrimSpace(call))
		if !ok || err != nil {
			d.t.Fatalf("scenario line %q: want `call => reply`: %v", line, err)
		}
		if got := d.must(2, args...).String(); got != want {
			d.t.Errorf("%s\n\tgot  %s\n\twant %s", call, got, want)
		}
	}
}

// plant stores a record without going through a command.
func (d *region) plant(key string, m keys.Metadata) {
	d.t.Helper()
	d.put(metadataOf([]byte(key)), m.Append(nil))
	if m.Apart() {
		d.state.CollectedAt = d.state.ApplyIndex
		d.state.CollectedIn |= keys.SlotBit(topology.SlotOf([]byte(key)))
	}
}

// plantLegacy stores a legacy string.
func (d *region) plantLegacy(key, value string, expireMS uint64) {
	d.t.Helper()
	d.put(legacyKey(key), keys.AppendLegacyString(nil, expireMS, []byte(value)))
	d.state.Legacy, d.state.CollectedAt = true, d.state.ApplyIndex
	d.state.CollectedIn |= keys.SlotBit(slotOf(key))
}

func legacyKey(key string) []byte {
	return keys.AppendLegacy(nil, topology.SlotOf([]byte(key)), []byte(key))
}

func (d *region) put(key, value []byte) {
	d.t.Helper()
	if err := d.write(func(w *Writer) error { return w.Batch.Set(key, value) }); err != nil {
		d.t.Fatal(err)
	}
}

// has reports whether a storage key is there, and its value.
func (d *region) has(key []byte) (string, bool) {
	d.t.Helper()
	v := d.e.NewView()
	defer v.Close()
	b, ok, err := v.Get(key)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(b), ok
}

// serve answers calls that arrive on the connection until it is closed. Only HELLO is known besides the table's
// commands.
func (d *region) serve(conn net.Conn) error {
	in := bufio.NewReader(conn)
	out := Reply{}
	for {
		v, err := redistest.Read(in)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
			return nil
		}
		if err != nil {
			return err
		}
		args := make([][]byte, len(v.Items))
		for i, item := range v.Items {
			args[i] = item.Text
		}
		if strings.EqualFold(string(args[0]), "hello") {
			out.Proto = int(args[1][0] - '0')
			out.OK()
		} else {
			d.mu.Lock()
			err = d.call(args, &out)
			d.mu.Unlock()
			if err != nil {
				return err
			}
		}
		if in.Buffered() == 0 {
			if _, err := conn.Write(out.Buf); err != nil {
				return nil
			}
			out.Buf = out.Buf[:0]
		}
	}
}

// dial connects to a server of the region that lives as long as the test.
func (d *region) dial() (net.Conn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	done := make(chan error)
	go func() {
		defer close(done)
		if err := d.serve(server); err != nil {
			done <- err
		}
	}()
	d.t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	return client, nil
}

func realTime() uint64 { return uint64(time.Now().UnixMilli()) }

// mustRead runs a read and returns whether it was ahead of the region time.
func (d *region) mustRead(args ...string) bool {
	d.t.Helper()
	d.must(2, args...)
	return d.ahead
}

// metadataOf returns the key of the record of a user key.
func metadataOf(user []byte) []byte { return keys.AppendMetadata(nil, topology.SlotOf(user), user) }

// parseScoreKey decodes what follows the user key in a key of redis_zset_score.
func parseScoreKey(k keys.RedisKey) (version uint64, score float64, member []byte) {
	version, place, _ := k.Subkey()
	return version, keys.Score(place), place[8:]
}

// subkeyOf returns the key of a field of a hash, or of a member of a set or a sorted set.
func subkeyOf(slot topology.Slot, user []byte, version uint64, name []byte) []byte {
	return keys.AppendElement(keys.AppendCollection(nil, keys.Data, slot, user, version), name)
}

// scoreKeyOf returns the key of an entry of a sorted set in the score index.
func scoreKeyOf(slot topology.Slot, user []byte, version uint64, score float64, member []byte) []byte {
	return keys.AppendPlace(keys.AppendCollection(nil, keys.ZSetScore, slot, user, version), score, member)
}
