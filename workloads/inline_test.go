package workloads

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Commands are split as redis-cli does; braces without quotes hold a word together.
func TestCommandWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"  GET\ta  ", `"GET" "a"`},
		{`SET "a b" 'it\'s "x"'`, `"SET" "a b" "it's \"x\""`},
		{`SET k "\x00\n\"" ''`, `"SET" "k" "\x00\n\"" ""`},
		{`SET k pre"fix ed"`, `"SET" "k" "prefix ed"`},
		{"GET {key uniform 5}", `"GET" "{key uniform 5}" braces spaces`},
		{"GET {key uniform 5 {tag}:}", `"GET" "{key uniform 5 {tag}:}" braces spaces`},
		{"GET {tag}:a b{tag} {tag}", `"GET" "{tag}:a" "b{tag}" "{tag}" braces`},
		{"GET {a}{b c} }", `"GET" "{a}{b c}" spaces "}"`},
		{`GET "{key uniform 5}" '{' {member}`, `"GET" "{key uniform 5}" "{" "{member}" braces`},
		{`SET k {"a":1}`, `"SET" "k" "{\"a\":1}" braces`},
		{`SET "a"b`, "unbalanced quotes"},
		{`SET "a`, "unbalanced quotes"},
		{`SET 'a\'`, "unbalanced quotes"},
		{"GET {key uniform", "{key uniform: no } behind {; want braces that are no placeholder in quotes"},
	} {
		words, err := splitQuoted(c.text)
		var got []string
		for _, w := range words {
			got = append(got, fmt.Sprintf("%q", w.text))
			if w.braces {
				got = append(got, "braces")
			}
			if w.spaces {
				got = append(got, "spaces")
			}
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

// commandsOf prepares commands that are right, with 10 elements of a record and values of 20 bytes.
func commandsOf(t *testing.T, texts ...string) (*Workload, *Source) {
	t.Helper()
	w, err := Commands(texts)
	if err != nil {
		t.Fatal(err)
	}
	return w, source(t, w, 1, 2)
}

// latin returns a character for each byte, so that an expression counts bytes.
func latin(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

// What commands send, and the key that routes each call.
func TestCommandsSend(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"PING", `PING`},
		{"SET {key uniform 3} {value 4}", `SET key:[0-2] .{4} @1`},
		{"get {key sequential 1 a{b}:<n:3>:c}", `get a\{b\}:000:c @1`},
		{"GET {key hotspot 0.1 0.9 every 5 3 x}", `GET x[0-2] @1`},
		{"GET {key zipfian 2 3}", `GET key:[0-2] @1`},
		{"GET {tag}:x", `GET \{tag\}:x @1`},
		{`SET "{key uniform 3}" {value uniform 5-6}`, `SET \{key uniform 3\} .{5,6} @1`},
		{"MGET a {key uniform 3} {key uniform 3 b}", `MGET a key:[0-2] b[0-2] @1`},
		{"EXPIRE {key uniform 3} {int uniform 7-9}", `EXPIRE key:[0-2] [7-9] @1`},
		{"HSET {key uniform 3 h:} {member} {value 1} {new} {value 2}",
			`HSET h:[0-2] element:\d{12} . element:[0-9a-f]{16} .{2} @1`},
		{"ZADD z {score} {token}", `ZADD z \d+ element:[0-9a-f]{16} @1`},
		{"EVAL 'return 1' 1 k {value 3}", `EVAL return 1 1 k .{3} @3`},
		{"PUBLISH c {value 0}", `PUBLISH c  @0`},
	} {
		_, s := commandsOf(t, c.text)
		g := s.Generator(0)
		var r Request
		want := regexp.MustCompile(`(?s)^` + strings.TrimSuffix(c.want, " @0") + `$`)
		for range 50 {
			g.Next(&r)
			x := r.Steps[0]
			args := make([]string, len(x.Args))
			for i, a := range x.Args {
				args[i] = latin(a)
			}
			got := strings.Join(args, " ")
			if i := slices.Index(args, latin(x.Key)); x.Key != nil {
				got += fmt.Sprint(" @", i)
			}
			if !want.MatchString(got) {
				t.Fatalf("%s sends %q, want %s", c.text, got, c.want)
			}
		}
		if n := s.RequestBytes(); n < 64 || n > 4096 {
			t.Errorf("%s: requests of %d bytes", c.text, n)
		}
	}
}

// Keys of one command are drawn one by one, shares hold, and operations of one command have names of their own.
func TestCommandsDraw(t *testing.T) {
	w, s := commandsOf(t, "MGET {key uniform 100} {key uniform 100}", "3: SET {key uniform 100} {value 64}", "SET a 1")
	if w.Name != "MGET {key uniform 100} {key uniform 100} | 3: SET {key uniform 100} {value 64} | SET a 1" ||
		w.Ops[0].Name != "mget" || w.Ops[1].Name != "set" || w.Ops[2].Name != "set-2" || !w.Ops[0].Reads || w.Ops[1].Reads {
		t.Errorf("%q, operations %v", w.Name, w.Ops)
	}
	if s.Kinds() != "key:<n>: 100, uniform" || s.ValueSizes() != "64" || s.Loaded() != 100 {
		t.Errorf("kinds %q, values %q, %d loaded", s.Kinds(), s.ValueSizes(), s.Loaded())
	}
	g := s.Generator(0)
	var r Request
	const draws = 10_000
	same, ops := 0, [3]int{}
	for range draws {
		g.Next(&r)
		ops[r.Op]++
		if a := r.Steps[0].Args; r.Op == 0 && string(a[1]) == string(a[2]) {
			same++
		}
	}
	within(t, "MGET", ops[0], 0.2, draws, 0)
	within(t, "SET", ops[1], 0.6, draws, 0)
	within(t, "pairs of one key", same, 0.01, ops[0], 0)
}

// Records are loaded if a command needs what it finds: as many as any command names, with values as the commands have.
func TestCommandsLoad(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string // how many, and the last command that loads the first record
	}{
		{[]string{"SET {key uniform 5} {value 3}", "DEL {key uniform 5}"}, "0"},
		{[]string{"INCR {key uniform 5}"}, "0"},
		{[]string{"OBJECT ENCODING {key uniform 5}", "XLEN {key uniform 5 x}"}, "0"},
		{[]string{"GET {key uniform 5}"}, `5 SET key:0 .{20}`},
		{[]string{"GET {key zipfian 5}", "SET {key uniform 9} {value 3}"}, `9 SET key:0 .{3}`},
		{[]string{"INCR {key uniform 5}", "GET {key uniform 5}"}, `5 SET key:0 0`},
		{[]string{"LPOP {key uniform 5}", "RPUSH {key uniform 5} {value 3}"}, `5 RPUSH key:0 .{3} .{3}( .{3})*`},
		{[]string{"HGET {key uniform 5} {member}"}, `5 HSET key:0( element:\d{12} .{20})*`},
		{[]string{"SPOP {key uniform 5}", "GET {key uniform 7 b}"}, `12 SADD key:0( element:\d{12})*`},
		{[]string{"ZRANK {key uniform 5} {member}"}, `5 ZADD key:0( \d+ element:\d{12})*`},
	} {
		_, s := commandsOf(t, c.texts...)
		got := fmt.Sprint(s.Loaded())
		if s.Loaded() > 0 {
			var r Request
			s.Generator(0).Load(&r, 0)
			for _, a := range r.Steps[len(r.Steps)-1].Args {
				got += " " + latin(a)
			}
		}
		if !regexp.MustCompile(`(?s)^` + c.want + `$`).MatchString(got) {
			t.Errorf("%q: load %q, want %s", c.texts, got, c.want)
		}
	}
}

// Everything that is wrong with commands is said at once, with what is allowed.
func TestCommandsRefused(t *testing.T) {
	const key = "want {key DISTRIBUTION COUNT [KEY]}: `uniform`, `sequential`, `zipfian [THETA] [ordered]`, " +
		"`latest [THETA]` or `hotspot PART SHARE [every N]`; COUNT 1 to 1e+12; KEY a word that is no number"
	const spaces = "and other braces with spaces in quotes"
	for _, c := range []struct{ text, want string }{
		{"", "want [SHARE:] COMMAND WORDS"},
		{"5:", "want [SHARE:] COMMAND WORDS"},
		{"0: GET a", `share "0", want a number from 1e-09 to 1e+09 before the colon`},
		{"GTE a", "command GTE: unknown"},
		{"GET", "0 words behind the command, want 1"},
		{"SET a", "1 words behind the command, want at least 2"},
		{"MULTI", "MULTI: it is about the connection, the server or a transaction; want a workload file for transactions"},
		{"AUTH x", "AUTH: it is about the connection, the server or a transaction; want a workload file for transactions"},
		{"GET 'a", "unbalanced quotes"},
		{"GET {key}", "{key}: " + key},
		{"GET {key uniform}", "{key uniform}: " + key},
		{"GET {key zipf 5}", "{key zipf 5}: " + key},
		{"GET {key uniform 0}", "{key uniform 0}: " + key},
		{"GET {key uniform 5 a b}", "{key uniform 5 a b}: " + key},
		{"GET {key zipfian 1 500}", "{key zipfian 1 500}: " + key},
		{"GET {key uniform 5 a<m>}",
			`{key uniform 5 a<m>}: template "a<m>": expression "m": name "m": unknown, want one of n, records`},
		{"GET {kye uniform 5}", "{kye uniform 5}: want " + Placeholders + ", " + spaces},
		{"GET a{key uniform 5}", "a{key uniform 5}: want a placeholder as a word of its own, " + spaces},
		{"SET a {value}", `{value}: "": ` + sizesForms},
		{"SET a {value big}", `{value big}: "big": ` + sizesForms},
		{"EXPIRE a {int uniform 9-1}",
			`{int uniform 9-1}: "uniform 9-1": range 9-1, want A-B with 0 <= A <= B <= 1099511627776`},
		{"HGET a {member}", "{member}: want a {key ...} whose element it is"},
		{"HGET {key uniform 5} {member 3}", `{member 3}: unexpected "3"`},
	} {
		_, err := Commands([]string{c.text})
		if want := fmt.Sprintf("command %q: %s", c.text, c.want); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	_, err := Commands([]string{"GTE {key zipf 5}", "GET {key uniform 5}", "LLEN {key zipfian 5}",
		"SET a {value x} {int y}"})
	want := `command "GTE {key zipf 5}": {key zipf 5}: ` + key + `
command "GTE {key zipf 5}": command GTE: unknown
command "SET a {value x} {int y}": {value x}: "x": ` + sizesForms + `
command "SET a {value x} {int y}": {int y}: "y": ` + sizesForms + `
keys key:<n>: commands of the types list and string have them; want a KEY of its own for each type, as in ` +
		"{key uniform 1000 queue:}"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	if _, err := Commands([]string{"SET a " + strings.Repeat("x", maxInline)}); err == nil || len(err.Error()) > 100 {
		t.Errorf("a command too long: %.200v", err)
	}
	if _, err := Commands(make([]string, maxOps+1)); err == nil || err.Error() != "201 commands, want 1 to 200" {
		t.Errorf("too many commands: %v", err)
	}
}

// FuzzCommands reads commands that nobody has thought of, and draws from those that are valid.
func FuzzCommands(f *testing.F) {
	f.Add("SET {key zipfian 100} {value 64}", `3: HGET {key uniform 5 h:} "{member}" {member}`)
	f.Add("EVAL 'return 1' 1 {key uniform 5}", "MGET a {key latest 3} {tag}x")
	f.Fuzz(func(t *testing.T, a, b string) {
		w, err := Commands([]string{a, b})
		if err != nil || strings.Contains(a+b, "MiB") {
			return
		}
		s, err := NewSource(w, SourceOptions{Records: 1, Elements: 3, ValueSize: 10, Clients: 2, Seed: 1})
		if err != nil || s.RequestBytes() > 1<<20 || s.LoadBytes() > 1<<20 {
			return
		}
		g := s.Generator(1)
		var r Request
		for i := range min(3, s.Loaded()) {
			g.Load(&r, i)
		}
		for range 10 {
			g.Next(&r)
		}
	})
}
