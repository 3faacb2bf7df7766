package redis

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

func TestReplyForms(t *testing.T) {
	for _, c := range []struct {
		name         string
		write        func(*Reply)
		resp2, resp3 string
	}{
		{"status", func(r *Reply) { r.Status("PONG") }, "+PONG\r\n", "+PONG\r\n"},
		{"error", func(r *Reply) { r.Error(ErrSyntax) }, "-ERR syntax error\r\n", "-ERR syntax error\r\n"},
		{"int", func(r *Reply) { r.Int(math.MinInt64) }, ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"},
		{"bulk", func(r *Reply) { r.Bulk([]byte("a\r\n")) }, "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"},
		{"empty bulk", func(r *Reply) { r.BulkString("") }, "$0\r\n\r\n", "$0\r\n\r\n"},
		{"null", (*Reply).Null, "$-1\r\n", "_\r\n"},
		{"null array", (*Reply).NullArray, "*-1\r\n", "_\r\n"},
		{"array", func(r *Reply) { r.Array(0) }, "*0\r\n", "*0\r\n"},
		{"map", func(r *Reply) { r.Map(1); r.Int(1); r.Int(2) }, "*2\r\n:1\r\n:2\r\n", "%1\r\n:1\r\n:2\r\n"},
		{"map of", func(r *Reply) { r.MapOf("a", "b", "c", 1, "d", func() { r.Null() }) },
			"*6\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n:1\r\n$1\r\nd\r\n$-1\r\n",
			"%3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n:1\r\n$1\r\nd\r\n_\r\n"},
		{"set", func(r *Reply) { r.Set(1); r.Int(1) }, "*1\r\n:1\r\n", "~1\r\n:1\r\n"},
		{"double", func(r *Reply) { r.Double(0.1) }, "$19\r\n0.10000000000000001\r\n", ",0.10000000000000001\r\n"},
		{"whole double", func(r *Reply) { r.Double(3) }, "$1\r\n3\r\n", ",3\r\n"},
		{"large double", func(r *Reply) { r.Double(1e20) }, "$5\r\n1e+20\r\n", ",1e+20\r\n"},
		{"infinite", func(r *Reply) { r.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"verbatim", func(r *Reply) { r.Verbatim("txt", "a: 1") }, "$4\r\na: 1\r\n", "=8\r\ntxt:a: 1\r\n"},
	} {
		for proto, want := range map[int]string{0: c.resp2, 2: c.resp2, 3: c.resp3} {
			out := Reply{Proto: proto}
			if c.write(&out); string(out.Buf) != want {
				t.Errorf("%s in protocol %d: %q, want %q", c.name, proto, out.Buf, want)
			}
			if _, err := redistest.Parse(out.Buf); err != nil {
				t.Errorf("%s in protocol %d: %v", c.name, proto, err)
			}
		}
	}
}

func TestRepliesDoNotAllocate(t *testing.T) {
	out := Reply{Buf: make([]byte, 0, 4096)}
	value := []byte("value")
	if n := testing.AllocsPerRun(100, func() {
		out.Buf = out.Buf[:0]
		out.OK()
		out.Error(ErrWrongType)
		out.Int(-42)
		out.Bulk(value)
		out.Double(1.5)
		out.Null()
		out.Map(2)
		out.WrongArity(data.rows[0])
		out.Verbatim("txt", "x")
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestParseInt(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "-1": -1, "10": 10, "9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		if n, ok := ParseInt([]byte(s)); !ok || n != want {
			t.Errorf("%q: %d, %v; want %d", s, n, ok, want)
		}
	}
	for _, s := range []string{
		"", "-", "+1", "-0", "00", "01", " 1", "1 ", "1a", "a", "9223372036854775808", "-9223372036854775809",
		"18446744073709551615", "18446744073709551616", "18446744073709551626", "99999999999999999999", "1\x00",
	} {
		if n, ok := ParseInt([]byte(s)); ok {
			t.Errorf("%q: %d, want none", s, n)
		}
	}
}

func TestLookup(t *testing.T) {
	if c := Lookup([]byte("GeT")); c == nil || c.Name != "get" {
		t.Errorf("GeT: %v", c)
	}
	for _, name := range []string{"", "ge", "gett", "get\x00", strings.Repeat("g", 500)} {
		if c := Lookup([]byte(name)); c != nil {
			t.Errorf("%q: %s, want none", name, c.Name)
		}
	}
	name := []byte("EXPIRE")
	if n := testing.AllocsPerRun(100, func() { Lookup(name) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestRowsAreWhole(t *testing.T) {
	var all []*Command
	for _, c := range Rows() {
		all = append(append(all, c), c.Sub...)
	}
	for _, c := range all {
		if c.Read != nil && c.Write != nil || c.Write != nil != (c.Flags&FlagWrite != 0) {
			t.Errorf("%s: want one function at most, Write where the flag says so", c.Name)
		}
		if (c.Read != nil || c.Write != nil) && len(c.Keys) == 0 && c.How != HowEverywhere {
			t.Errorf("%s: has no keys and does not run everywhere", c.Name)
		}
		if len(c.Keys) > 1 && c.Split != NoSplit || c.Doc.Summary == "" || c.Doc.Since == "" || c.Doc.Group == "" ||
			c.Doc.Complexity == "" {
			t.Errorf("%s: documentation or split", c.Name)
		}
	}
}

// TestContainers makes a table as the server does, with a command that has subcommands.
func TestContainers(t *testing.T) {
	container := &Command{
		Name: "client", Arity: -2, Doc: Doc{"About connections.", "2.4.0", "connection", "O(1)"},
		Sub: []*Command{{Name: "setname", Arity: 3, How: HowSession, Flags: FlagNoScript | FlagLoading | FlagStale,
			Doc: Doc{"Names it.", "2.6.9", "connection", "O(1)"}},
			{Name: "own", Arity: 2, How: HowOwn, Doc: Doc{"Is ours.", "0.1.0", "connection", "O(1)"}}},
	}
	table := NewTable(append([]*Command{container}, Rows()...)...)
	reply := func(f func(out *Reply)) string {
		t.Helper()
		var out Reply
		f(&out)
		v, err := redistest.Parse(out.Buf)
		if err != nil {
			t.Fatalf("%q: %v", out.Buf, err)
		}
		return v.String()
	}
	words := func(s string) [][]byte { return bytes.Fields([]byte(s)) }
	find := func(call, want string) {
		t.Helper()
		got := ""
		var out Reply
		if c := table.Find(words(call), &out); c != nil {
			got = c.FullName()
		} else {
			got = strings.TrimSpace(string(out.Buf))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", call, got, want)
		}
	}
	find("CLIENT SetName x", "client|setname")
	find("client", "client")
	find("Client nosuch x", "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP.")
	find("client|setname x", "-ERR unknown command 'client|setname', with args beginning with: 'x'")
	find("get a", "get")

	sub := table.Named([]byte("CLIENT|SETNAME"))
	if sub == nil || table.Named([]byte("client|x")) != nil || table.Named([]byte("x|setname")) != nil {
		t.Fatal("names of subcommands are not found, or too many are")
	}
	for _, c := range []struct {
		name  string
		write func(*Reply)
		want  string
	}{
		{"arity", func(o *Reply) { o.WrongArity(sub) }, "ERR wrong number of arguments for 'client|setname' command"},
		{"info", func(o *Reply) { table.WriteInfo(o, words("client"), nil) },
			`[["client" -2 [] 0 0 0 [@slow] [] [] [["client|setname" 3 [noscript loading stale] 0 0 0 [@slow @connection] [] [] []]` +
				` ["client|own" 2 [] 0 0 0 [@slow @connection] [] [] []]]]]`},
		{"docs", func(o *Reply) { table.WriteDocs(o, words("client|setname nosuch"), nil) },
			`["client|setname" ["summary" "Set the current connection name" "since" "2.6.9" "group" "connection" ` +
				`"complexity" "O(1)" "arguments" [["name" "connection-name" "type" "string"]]]]`},
		{"docs of our own", func(o *Reply) { table.WriteDocs(o, words("client|own"), nil) },
			`["client|own" ["summary" "Is ours." "since" "0.1.0" "group" "connection" "complexity" "O(1)"]]`},
		{"keys of none", func(o *Reply) { table.WriteGetKeys(o, words("client setname x"), nil) },
			"ERR The command has no key arguments"},
		{"keys", func(o *Reply) { table.WriteGetKeys(o, words("mset a 1 b 2"), nil) }, `["a" "b"]`},
	} {
		if got := reply(c.write); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if got := reply(func(o *Reply) { table.WriteDocs(o, words("client"), nil) }); !strings.Contains(got,
		`"subcommands" ["client|setname" [`) {
		t.Errorf("docs of a container: %s", got)
	}
	for _, write := range []func(*Reply){func(o *Reply) { table.WriteInfo(o, nil, nil) },
		func(o *Reply) { table.WriteDocs(o, nil, nil) }} {
		if got := reply(write); !strings.Contains(got, `"flushall"`) {
			t.Errorf("all rows: %s", got)
		}
	}
}

func TestTableRefusesNames(t *testing.T) {
	a := Command{Name: "a", How: HowOwn}
	for _, rows := range [][]*Command{{&a, {Name: "a", How: HowOwn}}, {{Name: "Get", How: HowOwn}},
		{{Name: strings.Repeat("x", 33), How: HowOwn}}, {{Name: "b"}}, {{Name: "c", Sub: []*Command{{Name: "d"}}}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken", rows[0].Name)
				}
			}()
			NewTable(rows...)
		}()
	}
}

func TestExpiry(t *testing.T) {
	d := newRegion(t)
	now := uint64(start)
	d.now = func() uint64 { return now }
	d.scenario(`
		set k v px 1500 => OK
		ttl k => 2
		pttl k => 1500
		set n 5 ex 1 => OK
		incr n => 6
		append n 0 => 2
		pttl n => 1000
		set n 1 keepttl => OK
		pttl n => 1000
		set other v => OK
		dbsize => 3`)
	now += 999
	d.scenario(`
		pttl n => 1
		ttl n => 0
		get n => "1"`)
	now++
	d.scenario(`
		get n => (nil)
		set other w => OK
		get n => (nil)
		strlen n => 0
		exists n k => 1
		type n => none
		ttl n => -2
		mget n k => [(nil) "v"]
		persist n => 0
		expire n 100 => 0
		keys n => []
		dbsize => 2
		set n x xx => (nil)
		set n x keepttl => OK
		ttl n => -1
		expire k 100 nx => 0
		expire k 100 xx => 1
		pttl k => 100000
		pexpire k 100000 gt => 0
		pexpire k 100001 gt => 1
		pexpire k 100001 lt => 0
		pexpire k 100000 lt => 1
		persist k => 1
		ttl k => -1`)
	d.scenario(`
		set a 10 px 10 => OK
		set b 10 px 10 => OK
		set c 10 px 10 => OK
		set e 10 px 10 => OK`)
	now += 10
	d.scenario(`
		incr a => 1
		ttl a => -1
		append b 1 => 1
		ttl b => -1
		setnx c 1 => 1
		ttl c => -1
		del e => 0
		set e 1 nx get => (nil)
		get e => "1"`)
}

// TestExpireTimes: which commands keep an expire time, which drop it, and which return it.
func TestExpireTimes(t *testing.T) {
	d := newRegion(t)
	now := uint64(start)
	d.now = func() uint64 { return now }
	d.scenario(`
		psetex k 1500 v => OK
		pexpiretime k => 1700000001500
		expiretime k => 1700000002
		setrange k 3 x => 4
		getex k => "v\x00\x00x"
		rename k l => OK
		copy l m => 1
		pttl l => 1500
		pttl m => 1500
		set other w => OK
		copy other m replace => 1
		ttl m => -1
		getex m px 700 => "w"
		pttl m => 700
		getex m persist => "w"
		ttl m => -1
		set n 1 px 1500 => OK
		incrbyfloat n 0.25 => "1.25"
		pttl n => 1500
		getset n 3 => "1.25"
		ttl n => -1
		pexpireat n 1700000001500 => 1
		pexpireat n 1700000001500 gt => 0`)
	now += 1500
	d.scenario(`
		renamenx other n => 1
		ttl n => -1
		rename l x => ERR no such key
		copy l x => 0
		getdel l => (nil)
		getex l ex 10 => (nil)
		lcs l l => ""
		expiretime l => -2
		object encoding l => (nil)
		msetnx l 1 => 1
		ttl l => -1`)
}

// TestAhead: a read that meets a record between the region time and its own instant says so, and no other does.
func TestAhead(t *testing.T) {
	d := newRegion(t)
	now := uint64(start)
	d.now = func() uint64 { return now }
	d.scenario("mset k v other v => OK\npexpire k 100 => 1")
	for _, call := range []string{"get k", "strlen k", "mget other k", "exists k", "type k", "ttl k", "pttl k",
		"keys *", "dbsize",
		"expiretime k", "pexpiretime k", "touch k", "getrange k 0 1", "substr k 0 1", "lcs other k",
		"object encoding k", "memory usage k"} {
		args := strings.Fields(call)
		now = start + 99
		if d.mustRead(args...) {
			t.Errorf("%s: ahead before the key expires", call)
		}
		now = start + 100
		if !d.mustRead(args...) {
			t.Errorf("%s: not ahead when the key has expired by the clock alone", call)
		}
	}
	if d.mustRead("get", "other") {
		t.Error("ahead by a key that was not asked for")
	}
	d.scenario("set other v => OK") // moves the region time
	if v := d.must(2, "get", "k"); !v.Null || d.ahead {
		t.Errorf("%v, ahead %v; want none, expired by the region time", v, d.ahead)
	}
}

func planted(ty keys.Type, expireMS, version, size uint64) keys.Metadata {
	m := keys.Metadata{Type: ty, ExpireMS: expireMS, Version: version, Size: size}
	if ty == keys.List {
		m.Head, m.Tail = keys.ListStart, keys.ListStart+size
	}
	return m
}

func TestWrongType(t *testing.T) {
	d := newRegion(t)
	for ty, name := range map[keys.Type]string{keys.Hash: "hash", keys.List: "list", keys.Set: "set",
		keys.ZSet: "zset"} {
		d.plant("k", planted(ty, 0, 5, 3))
		wrong := "WRONGTYPE Operation against a key holding the wrong kind of value"
		for _, call := range []string{"get k", "strlen k", "incr k", "incrby k 1", "decr k", "decrby k 1", "append k v",
			"set k v get", "set k v nx get", "set k v xx get",
			"getset k v", "getdel k", "getex k", "getex k ex 0", "getrange k 0 1", "setrange k 0 v",
			"setrange k 0 \"\"", "incrbyfloat k x"} {
			d.scenario(call + " => " + wrong)
		}
		d.scenario(`
			type k => ` + name + `
			mget k => [(nil)]
			exists k => 1
			setnx k v => 0
			set k v nx => (nil)
			incrby k x => ERR value is not an integer or out of range
			set k v get ex 0 => ERR invalid expire time in 'set' command
			expire k 100 => 1
			ttl k => 100
			expire k 100 nx => 0
			persist k => 1
			ttl k => -1
			msetnx new 1 k v => 0
			exists new => 0
			lcs k new => ERR The specified keys must contain string values
			touch k new => 1
			object refcount k => 1
			keys * => ["k"]
			dbsize => 1`)
		if got, _ := d.has(metadataOf(
			[]byte("k"))); got != string(ptr(planted(ty, 0, 5, 3)).Append(nil)) {
			t.Errorf("%s: the record has changed: %q", name, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestOrphans: whatever replaces or removes a collection's record, expired or not, leaves the record of its orphans;
// what changes the expire time alone does not.
func TestOrphans(t *testing.T) {
	for _, c := range []struct {
		call     string
		expireMS uint64
		orphan   bool
	}{
		{"set k v", 0, true}, {"set k v ex 100", 0, true}, {"mset other 1 k v", 0, true}, {"set k v xx", 0, true},
		{"del k", 0, true}, {"unlink k k", 0, true}, {"expire k 0", 0, true}, {"set k v keepttl", 0, true},
		{"set k v", start, true}, {"set k v nx", start, true}, {"setnx k v", start, true}, {"incr k", start, true},
		{"append k v", start, true}, {"set k v get", start, true}, {"del k", start, true},
		{"setex k 10 v", 0, true}, {"psetex k 10 v", start, true}, {"msetnx k v", start, true},
		{"getset k v", start, true}, {"getdel k", start, true}, {"setrange k 1 v", start, true},
		{"incrbyfloat k 1", start, true}, {"rename from k", 0, true}, {"renamenx from k", start, true},
		{"copy from k replace", 0, true}, {"copy from k", start, true}, {"pexpireat k 1", 0, true},
		{"rename k to", 0, true}, {"copy from k", 0, false}, {"copy k to", 0, false}, {"getex k", 0, false},
		{"expireat k 99999999999", 0, false}, {"expire k 100", 0, false}, {"persist k", start + 100, false},
		{"set k v nx", 0, false}, {"get k", 0, false}, {"incr k", 0, false},
	} {
		d := newRegion(t)
		d.scenario("set from v => OK")
		d.plant("k", planted(keys.Hash, c.expireMS, 77, 3))
		d.must(2, strings.Fields(c.call)...)
		o := keys.Orphan{Slot: topology.SlotOf([]byte("k")), User: []byte("k"), Version: 77,
			Type: keys.Hash, Size: 3}
		got, ok := d.has(o.AppendKey(nil))
		if ok != c.orphan || ok && got != string(o.Append(nil)) {
			t.Errorf("%s, expire %d: orphan record %q, %v; want %v", c.call, c.expireMS, got, ok, c.orphan)
		}
		d.scenario("flushall => OK")
		if _, ok := d.has(o.AppendKey(nil)); ok {
			t.Errorf("%s: the orphan record outlives FLUSHALL", c.call)
		}
	}
}

func TestEmptyCollectionIsAbsent(t *testing.T) {
	d := newRegion(t)
	d.plant("k", planted(keys.Set, 0, 5, 0))
	d.scenario(`
		exists k => 0
		type k => none
		dbsize => 0
		keys * => []
		get k => (nil)
		del k => 0
		incr k => 1`)
}

// TestLegacyStrings: reads find a legacy string, and the first write of any kind replaces it.
func TestLegacyStrings(t *testing.T) {
	const wrong = ErrWrongType
	for _, c := range []struct {
		call, reply, left string
		stays             bool
	}{
		{"get k", `"5"`, `"5"`, true}, {"set k v", "OK", `"v"`, false}, {"set k v get", `"5"`, `"v"`, false},
		{"mset k v", "OK", `"v"`, false}, {"incr k", "6", `"6"`, false}, {"append k 1", "2", `"51"`, false},
		{"setnx k v", "0", `"5"`, true}, {"del k", "1", "(nil)", false}, {"expire k 0", "1", "(nil)", false},
		{"expire k 100", "1", `"5"`, false}, {"set k v xx", "OK", `"v"`, false}, {"flushdb", "OK", "(nil)", false},
		{"strlen k", "1", `"5"`, true}, {"type k", "string", `"5"`, true}, {"exists k", "1", `"5"`, true},
		{"keys *", `["k"]`, `"5"`, true}, {"dbsize", "1", `"5"`, true}, {"setex k 10 v", "OK", `"v"`, false},
		{"msetnx k v", "0", `"5"`, true}, {"getset k v", `"5"`, `"v"`, false}, {"getdel k", `"5"`, "(nil)", false},
		{"getex k px 100", `"5"`, `"5"`, false}, {"getex k pxat 1", `"5"`, "(nil)", false},
		{"getex k persist", `"5"`, `"5"`, true}, {"getrange k 0 -1", `"5"`, `"5"`, true},
		{"setrange k 1 v", "2", `"5v"`, false}, {"incrbyfloat k 0.5", `"5.5"`, `"5.5"`, false},
		{"rename k to", "OK", "(nil)", false}, {"copy k to", "1", `"5"`, true}, {"hset k f v", wrong, `"5"`, true},
		{"rpush k v", wrong, `"5"`, true}, {"zadd k 1 m", wrong, `"5"`, true}, {"smembers k", wrong, `"5"`, true},
		{"sunionstore k s", "2", wrong, false}, {"zrangestore k none 0 -1", "0", "(nil)", false},
		{"copy s k replace", "1", wrong, false}, {"rename s k", "OK", wrong, false}, {"lcs k k", `"5"`, `"5"`, true},
		{"object encoding k", `"int"`, `"5"`, true},
	} {
		d := newRegion(t)
		d.plantLegacy("k", "5", 0)
		if strings.Contains(c.call, " s") {
			d.must(2, "sadd", "s", "1", "2")
		}
		d.scenario(c.call + " => " + c.reply)
		d.scenario("get k => " + c.left)
		if _, ok := d.has(legacyKey("k")); ok != c.stays {
			t.Errorf("%s: the legacy record is there: %v, want %v", c.call, ok, c.stays)
		}
	}
	d := newRegion(t)
	d.plantLegacy("old", "v", start)
	d.plantLegacy("new", "v", start+5000)
	d.scenario(`
		get old => (nil)
		ttl new => 5
		dbsize => 1
		persist new => 1
		ttl new => -1
		set old w keepttl => OK
		ttl old => -1
		keys * => ["old" "new"]`)
}

// TestBlindSet: a plain SET reads nothing if there can be nothing to find. A record that cannot be decoded shows which
// calls read.
func TestBlindSet(t *testing.T) {
	oneGoroutine(t)
	for _, c := range []struct {
		call  string
		blind bool
	}{
		{"setex k 10 v", true}, {"psetex k 10 v", true}, {"msetnx k v", false}, {"getset k v", false},
		{"set k v", true}, {"set k v ex 10", true}, {"set k v pxat 99999999999999", true}, {"mset k v", true},
		{"set k v nx", false}, {"set k v xx", false}, {"set k v get", false}, {"set k v keepttl", false},
		{"setnx k v", false}, {"incr k", false}, {"append k v", false}, {"del k", false},
	} {
		for _, x := range []struct {
			beside string
			plant  func(d *region)
			look   bool
		}{
			{"nothing", func(*region) {}, false},
			{"collections in all other slots",
				func(d *region) { d.state.CollectedAt, d.state.CollectedIn = 1, ^keys.SlotBit(slotOf("k")) }, false},
			{"one that may be in the slot",
				func(d *region) { d.state.CollectedAt, d.state.CollectedIn = 1, keys.SlotBit(slotOf("k")+64) }, true},
			{"a legacy string that may be in the slot", func(d *region) { d.must(2, "neokv", "legacyset", "{k}", "v") }, true},
			{"a legacy string in another slot", func(d *region) { d.must(2, "neokv", "legacyset", "j", "v") }, false},
		} {
			d := newRegion(t)
			d.put(metadataOf([]byte("k")), []byte("garbage"))
			x.plant(d)
			err := d.call(bytes.Fields([]byte(c.call)), &Reply{})
			if want := c.blind && !x.look; (err == nil) != want {
				t.Errorf("%s beside %s: %v; want blind %v", c.call, x.beside, err, want)
			}
		}
	}
}

func slotOf(key string) topology.Slot { return topology.SlotOf([]byte(key)) }

// TestCollectedIn: after a command has made a collection in a slot, SETs look there and in slots with the same
// remainder by 64. A SET over a collection leaves its orphan record.
func TestCollectedIn(t *testing.T) {
	same := func(n int) string { // another key in whose slot there may be a collection if there is one under "k"
		for i := 0; ; i++ {
			if key := fmt.Sprint("same", n, ":", i); slotOf(key) != slotOf("k") && (slotOf(key)-slotOf("k"))%64 == 0 {
				return key
			}
		}
	}
	for _, calls := range []string{
		"hset k f v => 1", "rpush k v => 1", "sadd k m => 1", "zadd k 1 m => 1", "sadd o m => 1\nrename o k => OK",
		"sadd o m => 1\ncopy o k => 1", "sadd o m => 1\nsunionstore k o => 1", "rpush o 1 => 1\nsort o store k => 1",
		"zadd o 1 m => 1\nzrangestore k o 0 -1 => 1",
	} {
		d := newRegion(t)
		d.scenario(calls)
		want := keys.SlotBit(slotOf("k"))
		if strings.Contains(calls, " o ") {
			want |= keys.SlotBit(slotOf("o"))
		}
		if d.state.CollectedIn != want {
			t.Errorf("%s: collections in %#x; want %#x", calls, d.state.CollectedIn, want)
		}
		a, b := same(1), same(2)
		d.scenario("hset " + a + " f v => 1\nset " + a + " v => OK\nmset " + b + " v k v => OK")
		if d.state.CollectedIn != want {
			t.Errorf("%s: then in %#x; want %#x", calls, d.state.CollectedIn, want)
		}
		for key, want := range map[string]int{a: 1, b: 0, "k": 1} {
			if got := d.orphans(key); got != want {
				t.Errorf("%s: %d orphan records of %s; want %d", calls, got, key, want)
			}
		}
		if err := sound(d.stored()); err != nil {
			t.Errorf("%s: %v", calls, err)
		}
		d.scenario("flushdb => OK")
		if d.state.CollectedIn != 0 {
			t.Errorf("%s: in %#x behind FLUSHDB; want nowhere", calls, d.state.CollectedIn)
		}
	}
}

// orphans is how many orphan records there are of a key.
func (d *region) orphans(key string) (n int) {
	for k, value := range d.stored() {
		if keys.Keyspace(k[0]) != keys.MetaInfo || keys.Category(k[1]) != keys.CategoryOrphan {
			continue
		}
		o, err := keys.ParseOrphan([]byte(k), []byte(value))
		if err != nil {
			d.t.Error(err)
		}
		if string(o.User) == key {
			n++
		}
	}
	return n
}

func TestKeyCount(t *testing.T) {
	d := newRegion(t)
	d.scenario("flushall => OK")
	check := func(n uint64, exact bool) {
		t.Helper()
		if d.state.KeysExact != exact || exact && d.state.KeyCount != n {
			t.Errorf("%d keys, exact %v; want %d, %v", d.state.KeyCount, d.state.KeysExact, n, exact)
		}
	}
	check(0, true)
	d.scenario("setnx a 1 => 1\nincr b => 1\nset c v nx => OK\nset c v get => \"v\"\nappend a 1 => 2\n" +
		"expire a 100 => 1\ndel b b x => 1")
	check(2, true)
	d.scenario("expire c -1 => 1")
	check(1, true)
	d.scenario("set c v => OK") // blind: nobody knows whether c is new
	check(0, false)
	d.scenario("del c => 1")
	check(0, false)
	d.scenario("flushdb => OK")
	check(0, true)
}

// TestFlushClears: nothing of the region stays, and a region beside it keeps everything.
func TestFlushClears(t *testing.T) {
	d := newRegion(t)
	mine := [][]byte{
		subkeyOf(5, []byte("h"), 9, []byte("field")),
		scoreKeyOf(16383, []byte("z"), 9, 1.5, []byte("m")), legacyKey("old"),
		keys.AppendMetadata(nil, 0, []byte("a")), keys.AppendMetadata(nil, 16383, []byte("\xff\xff")),
	}
	others := [][]byte{keys.AppendMetadata(nil, 0, nil), keys.AppendCollection(nil, keys.Data, 0, nil, 0),
		{byte(keys.MetaInfo), byte(keys.CategoryOrphan) + 1}}
	others[0][8], others[1][8] = 2, 2 // of another space
	for _, k := range append(mine, others...) {
		d.put(k, []byte("x"))
	}
	d.state.Legacy, d.state.CollectedAt, d.state.CollectedIn = true, 2, 3
	d.scenario("flushdb async => OK\ndbsize => 0")
	for _, k := range mine {
		if _, ok := d.has(k); ok {
			t.Errorf("%q is still there", k)
		}
	}
	for _, k := range others {
		if _, ok := d.has(k); !ok {
			t.Errorf("%q of another region is gone", k)
		}
	}
	if d.state.Legacy || d.state.CollectedAt != 0 || d.state.CollectedIn != 0 {
		t.Errorf("flags of an empty region: %+v", d.state)
	}
}

// TestAppendLimit: memory that is not written costs nothing, so the value that is too long may have its real size.
func TestAppendLimit(t *testing.T) {
	d := newRegion(t)
	d.scenario("set k v => OK")
	var out Reply
	if err := d.call([][]byte{[]byte("append"), []byte("k"), make([]byte, maxStringBytes)}, &out); err != nil ||
		string(out.Buf) != "-"+ErrTooLong+"\r\n" {
		t.Errorf("%q, %v; want %s", out.Buf, err, ErrTooLong)
	}
	d.scenario("get k => \"v\"")
}

// TestScratchIsBounded: what one huge call needs is not kept for good.
func TestScratchIsBounded(t *testing.T) {
	oneGoroutine(t)
	d := newRegion(t)
	d.must(2, "append", "k", strings.Repeat("v", 2*maxScratchBytes))
	d.must(2, "sadd", "s", strings.Repeat("m", 100_000), "a", "b")
	for range 2 {
		union := []string{"sunionstore", "to"}
		for i := range 10_000 {
			union = append(union, fmt.Sprintf("set %d %s", i, strings.Repeat("k", 200)))
		}
		union[4] = "s"
		d.must(2, union...)
		d.must(2, append([]string{"sunion"}, union[2:]...)...)
		d.must(2, "get", strings.Repeat("k", 2*maxScratchBytes))
		d.must(2, "set", strings.Repeat("k", 2*maxScratchBytes), "v")
	}
	for name, s := range map[string]*scratch{"a read's": &d.r.opened, "a write's": &d.w.opened} {
		n := 0
		for _, b := range s.bufs {
			n += cap(b)
		}
		if len(s.bufs) > keptBuffers || n > keptBuffers*keptBufferBytes || n == 0 {
			t.Errorf("%s collections leave %d buffers of %d bytes, want some, at most %d", name, len(s.bufs), n,
				keptBuffers)
		}
	}
	if n := max(cap(d.w.value), cap(d.w.key), cap(d.r.key)); n > maxScratchBytes {
		t.Errorf("scratch of %d bytes, want at most %d", n, maxScratchBytes)
	}
}

// TestRunReset: a run that is used again keeps its memory and protocol and nothing else.
func TestRunReset(t *testing.T) {
	d := newRegion(t)
	d.scenario("set k v => OK")
	run := Run{Out: Reply{Proto: 3}}
	for range 2 {
		for _, key := range []string{"k", "no"} {
			run.Calls = append(run.Calls, Call{Lookup([]byte("get")), [][]byte{[]byte("get"), []byte(key)}})
		}
		if err := d.read(func(r *Reader) error { return r.Execute(&run) }); err != nil {
			t.Fatal(err)
		}
		if string(run.Out.Buf) != "$1\r\nv\r\n_\r\n" || len(run.Ends) != 2 || run.Ends[0] != 7 || run.Ends[1] != 10 {
			t.Errorf("%q, ends %v", run.Out.Buf, run.Ends)
		}
		run.Reset()
	}
}

// TestBatchReadsItself: calls of one entry see what earlier ones have written.
func TestBatchReadsItself(t *testing.T) {
	d := newRegion(t)
	var out Reply
	err := d.write(func(w *Writer) error {
		for _, call := range []string{"set n 10", "incr n", "append n 0", "del n", "incr n", "expire n 100", "flushall",
			"setnx n 1", "set n 2 xx", "incr n"} {
			args := bytes.Fields([]byte(call))
			if err := Lookup(args[0]).Write(w, args, &out); err != nil {
				return err
			}
		}
		return nil
	})
	if want := "+OK\r\n:11\r\n:3\r\n:1\r\n:1\r\n:1\r\n+OK\r\n:1\r\n+OK\r\n:3\r\n"; err != nil ||
		string(out.Buf) != want {
		t.Errorf("%q, %v; want %q", out.Buf, err, want)
	}
	d.scenario("get n => \"3\"\nttl n => -1")
}

// TestAppendKeys also covers arguments that end in the middle of a step.
func TestAppendKeys(t *testing.T) {
	for call, want := range map[string]string{
		"get a": "[1]", "mget a b c": "[1 2 3]", "mset a 1 b 2": "[1 3]", "mset a 1 b": "[1 3]", "set a v ex 10": "[1]",
		"dbsize": "[]", "sunionstore d a b": "[1 2 3]", "sintercard 2 a b limit 1": "[2 3]", "sintercard 3 a b": "[]",
		"sintercard 0 a": "[]", "sintercard x a": "[]", "sort a": "[1]", "sort a by store get store store b": "[1 7]",
		"sort a store b limit 1 store store c": "[1 8]", "sort a store": "[1]", "sort_ro a store b": "[1]",
	} {
		args := bytes.Fields([]byte(call))
		if got := fmt.Sprint(Lookup(args[0]).AppendKeys(nil, args)); got != want {
			t.Errorf("%s: keys at %s, want %s", call, got, want)
		}
	}
}

// BenchmarkSetApply sets strings in a region that holds nothing else, where SET reads nothing, beside one hash, where
// it looks at what it replaces in one slot of 64, and among hashes in slots of all sorts, where it always looks: at
// strings that are there, or nothing.
func BenchmarkSetApply(b *testing.B) {
	for _, c := range []struct {
		name   string
		hashes int
		keys   int // 0: no two are the same
	}{
		{"strings", 0, 200_000}, {"hash", 1, 200_000}, {"hashes", 1000, 200_000},
		{"strings,new", 0, 0}, {"hash,new", 1, 0}, {"hashes,new", 1000, 0},
	} {
		for _, perBatch := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/batch=%d", c.name, perBatch), func(b *testing.B) {
				d := newRegion(b)
				for i := range c.hashes {
					d.must(2, "hset", fmt.Sprint("h", i), "f", "v")
				}
				args := [][]byte{[]byte("SET"), []byte("key:0000000000"), bytes.Repeat([]byte("v"), 64)}
				var out Reply
				b.ReportAllocs()
				for i := 0; b.Loop(); i += perBatch {
					if err := d.write(func(w *Writer) error {
						for k := range perBatch {
							out.Buf = out.Buf[:0]
							n := uint32(i + k)
							if c.keys > 0 {
								n %= uint32(c.keys)
							}
							binary.BigEndian.PutUint32(args[1][4:], n*2654435761)
							if err := set(w, args, &out); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perBatch), "ns/set")
			})
		}
	}
}

// BenchmarkDeletion deletes strings, and hashes of a million fields that are made by their records alone: a deletion
// does not look at fields.
func BenchmarkDeletion(b *testing.B) {
	for _, m := range []keys.Metadata{{Type: keys.String, Value: []byte("v")},
		{Type: keys.Hash, Version: 1, Size: 1_000_000}} {
		b.Run(m.Type.String(), func(b *testing.B) {
			d := newRegion(b)
			d.plant("other", planted(keys.Hash, 0, 1, 1))
			args := [][]byte{[]byte("DEL"), []byte("key:0000000000")}
			value := m.Append(nil)
			var out Reply
			var of time.Duration
			for b.Loop() {
				for k := range 64 {
					binary.BigEndian.PutUint32(args[1][4:], uint32(k))
					d.put(metadataOf(args[1]), value)
				}
				before := time.Now()
				if err := d.write(func(w *Writer) error {
					for k := range 64 {
						out.Buf = out.Buf[:0]
						binary.BigEndian.PutUint32(args[1][4:], uint32(k))
						if err := del(w, args, &out); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
				of += time.Since(before)
			}
			b.ReportMetric(float64(of.Nanoseconds())/float64(b.N*64), "ns/del")
		})
	}
}

func BenchmarkIncrApply(b *testing.B) {
	d := newRegion(b)
	args := [][]byte{[]byte("INCR"), []byte("key:0000000000")}
	var out Reply
	b.ReportAllocs()
	for i := 0; b.Loop(); i += 64 {
		if err := d.write(func(w *Writer) error {
			for k := range 64 {
				out.Buf = out.Buf[:0]
				binary.BigEndian.PutUint32(args[1][4:], uint32(i+k)%10_000*2654435761)
				if err := w.add(args, 1, &out); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/incr")
}

func BenchmarkGet(b *testing.B) {
	d := newRegion(b)
	const n = 100_000
	args := [][]byte{[]byte("GET"), []byte("key:0000000000"), bytes.Repeat([]byte("v"), 64)}
	key := func(i int) { binary.BigEndian.PutUint32(args[1][4:], uint32(i%n)*2654435761) }
	if err := d.write(func(w *Writer) error {
		for i := range n {
			if key(i); w.store(args[1], 0, args[2]) != nil {
				b.Fatal("set")
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	var out Reply
	for _, perView := range []int{1, 16} {
		b.Run(fmt.Sprintf("view=%d", perView), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i += perView {
				out.Buf = out.Buf[:0]
				if err := d.read(func(r *Reader) error {
					for k := range perView {
						key((i + k) * 7919)
						if err := get(r, args[:2], &out); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perView), "ns/get")
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	name := []byte("INCRBY")
	for b.Loop() {
		Lookup(name)
	}
}
