package lua

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/lua/vm"
	"neokv.dev/neokv/internal/redis/redistest"
)

// prelude stands before each case, and showAll around it: a case's result is a text that tells all that it returned,
// numbers exactly, tables in the order of pairs. The cases' cjson is a new one, so that no option of it is left behind
// in redis-server.
const prelude = `
local cjson = cjson.new()
local function atom(k) return type(k) ~= 'table' and type(k) ~= 'function' and k ~= nil end
local function show(v, depth)
	if type(v) == 'number' then
		local text = tostring(v)
		local rest = v - tonumber(text)
		if rest ~= 0 and rest == rest then text = text .. '+' .. tostring(rest) end
		return text
	end
	if type(v) == 'string' then return '"' .. v .. '"' end
	if v == cjson.null then return 'null' end
	if type(v) ~= 'table' then return type(v) == 'boolean' and tostring(v) or type(v) end
	if depth > 30 then return '...' end
	local text = '{'
	for k in pairs(v) do
		if not atom(k) then return 'a table whose order depends on addresses in Redis' end
	end
	for k, e in pairs(v) do text = text .. show(k, depth + 1) .. '=' .. show(e, depth + 1) .. ',' end
	return text .. '}'
end
local function showAll(...)
	local text = ''
	for i = 1, select('#', ...) do
		if i > 1 then text = text .. ' ' end
		text = text .. show((select(i, ...)), 0)
	end
	return text
end
local function rep(s, n)
	local t = ''
	while n > 0 do
		if n % 2 == 1 then t = t .. s end
		s, n = s .. s, (n - n % 2) / 2
	end
	return t
end
`

// caseScript is the script of a case whose body returns what is to be shown.
func caseScript(body string) string {
	return prelude + "return showAll(pcall(function(...) " + body + "\nend, unpack(ARGV)))"
}

var noLimits = Limits{Steps: 1 << 40, Bytes: 1 << 40}

// runScript runs a script that returns a string. An error of the script is the reply, too.
func runScript(s *State, limits Limits, text string, argv ...string) (reply string, err error) {
	script, err := Compile(text)
	if err != nil {
		return "", err
	}
	r := Run{Script: script, Limits: limits, Protocol: 2}
	for _, a := range argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	out, err := s.Run(nil, r)
	if err != nil {
		return "", err
	}
	v, err := redistest.Parse(out)
	return string(v.Text), err
}

// libraryCase is a line of testdata/libraries.txt and the line after it, which begins with "= ".
type libraryCase struct{ body, want string }

const casesFile = "testdata/libraries.txt"

func libraryCases(t testing.TB) (cases []libraryCase) {
	t.Helper()
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := s.Text()
		if want, ok := strings.CutPrefix(line, "= "); ok {
			if cases[len(cases)-1].want, err = strconv.Unquote(want); err != nil {
				t.Fatalf("%s: %s: %v", casesFile, line, err)
			}
		} else if line != "" && line[0] != '#' {
			cases = append(cases, libraryCase{body: line})
		}
	}
	return cases
}

// TestLibraries compares with what redis-server 7.0.15 replied; TestLibrariesAreRedis asks it again.
func TestLibraries(t *testing.T) {
	for _, c := range libraryCases(t) {
		got, err := runScript(NewState(), noLimits, caseScript(c.body))
		if err != nil || got != c.want {
			t.Errorf("%s = %q, %v; want %q", c.body, got, err, c.want)
		}
	}
}

// TestOptionsOfCjsonAreReset sees that no script finds the options of one before it.
func TestOptionsOfCjsonAreReset(t *testing.T) {
	s := NewState()
	const all = `return cjson.encode{{cjson.encode_sparse_array()}, cjson.encode_max_depth(), cjson.decode_max_depth(),
		cjson.encode_number_precision(), cjson.encode_keep_buffer(), cjson.encode_invalid_numbers(),
		cjson.decode_invalid_numbers()}`
	const defaults = `[[false,2,10],1000,1000,14,true,false,true]`
	if got, err := runScript(s, noLimits, all); got != defaults {
		t.Fatalf("options are %s, %v; want %s", got, err, defaults)
	}
	changed, err := runScript(s, noLimits, `cjson.encode_sparse_array(true, 3, 4)
		cjson.encode_max_depth(5) cjson.decode_max_depth(6)
		cjson.encode_number_precision(7) cjson.encode_keep_buffer(false) cjson.encode_invalid_numbers('null')
		cjson.decode_invalid_numbers(false) `+all)
	if want := `[[true,3,4],5,6,7,false,"null",false]`; changed != want {
		t.Fatalf("options are %s, %v; want %s", changed, err, want)
	}
	if got, err := runScript(s, noLimits, all); got != defaults {
		t.Errorf("options are %s, %v; want %s", got, err, defaults)
	}
}

// TestLibrariesStopAtLimits sees that a call ends before it does more than a run may.
func TestLibrariesStopAtLimits(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		script, argv string
		limits       vm.Limits
		want         string
	}{
		{"local t = {[2^31-1] = 1} cjson.encode_sparse_array(false, 0) return cjson.encode(t)", "",
			Limits{Steps: 1 << 40, Bytes: 16 << 20}, vm.LimitBytes},
		{"local t = {[2^31-1] = 1} cjson.encode_sparse_array(false, 0) return cjson.encode(t)", "",
			Limits{Steps: 1 << 20, Bytes: 1 << 40}, vm.LimitSteps},
		{"return cjson.encode(ARGV[1])", big, Limits{Steps: 1 << 30, Bytes: 1 << 19}, vm.LimitBytes},
		{"return cjson.encode(ARGV[1])", big, Limits{Steps: 1 << 10, Bytes: 1 << 30}, vm.LimitSteps},
		{"return cjson.decode(ARGV[1])", `"` + big + `"`, Limits{Steps: 1 << 30, Bytes: 1 << 19}, vm.LimitBytes},
		{"return cjson.decode(ARGV[1])", `"` + big + `"`, Limits{Steps: 1 << 10, Bytes: 1 << 30}, vm.LimitSteps},
		{"return cjson.decode(ARGV[1])", "[" + strings.Repeat("1,", 1<<18) + "1]",
			Limits{Steps: 1 << 30, Bytes: 1 << 20}, vm.LimitBytes},
		{"return cjson.decode(ARGV[1])", "[" + strings.Repeat("[],", 1<<18) + "1]",
			Limits{Steps: 1 << 19, Bytes: 1 << 30}, vm.LimitSteps},
		{"return cmsgpack.unpack(ARGV[1])", "\xdd\x00\x10\x00\x00" + strings.Repeat("\x01", 1<<20),
			Limits{Steps: 1 << 30, Bytes: 1 << 20}, vm.LimitBytes},
		{"return cmsgpack.unpack(ARGV[1])", "\xdd\x00\x10\x00\x00" + strings.Repeat("\xc0", 1<<20),
			Limits{Steps: 1 << 19, Bytes: 1 << 30}, vm.LimitSteps},
		{"local t = {ARGV[1]} for i = 1, 15 do t = {t, t} end return cmsgpack.pack(t)", "abc",
			Limits{Steps: 1 << 30, Bytes: 1 << 16}, vm.LimitBytes},
		{"local t = {ARGV[1]} for i = 1, 15 do t = {t, t} end return cmsgpack.pack(t)", "abc",
			Limits{Steps: 1 << 13, Bytes: 1 << 30}, vm.LimitSteps},
		{"return struct.pack('s', ARGV[1])", big, Limits{Steps: 1 << 30, Bytes: 1 << 19}, vm.LimitBytes},
		{"return struct.unpack('c0', 1)", "", Limits{Steps: 1 << 30, Bytes: 1 << 30}, ""},
		{"return struct.pack(ARGV[1])", big, Limits{Steps: 1 << 30, Bytes: 1 << 19}, vm.LimitBytes},
		{"return struct.size(ARGV[1])", big, Limits{Steps: 1 << 19, Bytes: 1 << 30}, vm.LimitSteps},
	} {
		_, err := runScript(NewState(), c.limits, c.script, c.argv)
		var limit *LimitError
		if errors.As(err, &limit); (limit == nil) != (c.want == "") || limit != nil && limit.What != c.want {
			t.Errorf("%s with %.20q, %v: %v; want the limit of %s", c.script, c.argv, c.limits, err, c.want)
		}
	}
}

// benchmarkScript runs a script over and over. It runs a function a hundred times.
func benchmarkScript(b *testing.B, text, argv string) {
	s := NewState()
	script, err := Compile(text)
	if err != nil {
		b.Fatal(err)
	}
	r := Run{Script: script, Limits: noLimits, Protocol: 2, Argv: [][]byte{[]byte(argv)}}
	b.SetBytes(100 * int64(len(argv)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(nil, r); err != nil {
			b.Fatal(err)
		}
	}
}

// A job of a queue, as such programs have them in JSON, and a list of a hundred numbers.
var benchmarkTexts = map[string]string{
	"job": `{"id":"8f14e45f-ceea-467f-a9a0-2b6d1c1f3f5a","name":"send \"welcome\" mail","attempts":3,"delay":1500.25,` +
		`"opts":{"removeOnComplete":true,"backoff":{"type":"exponential","delay":1000}},` +
		`"tags":["a","b","c"],"parent":null}`,
	"numbers": "[" + strings.Repeat("12345.678,", 99) + "1]",
}

func BenchmarkDecode(b *testing.B) {
	for name, text := range benchmarkTexts {
		b.Run(name, func(b *testing.B) {
			benchmarkScript(b, "for i = 1, 100 do cjson.decode(ARGV[1]) end", text)
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, text := range benchmarkTexts {
		b.Run(name, func(b *testing.B) {
			benchmarkScript(b, "local v = cjson.decode(ARGV[1]) for i = 1, 100 do cjson.encode(v) end", text)
		})
	}
}

// fuzz runs a script with arguments and limits: it must end, at a limit or before, and not panic.
func fuzz(t *testing.T, script string, argv ...string) {
	_, err := runScript(NewState(), Limits{Steps: 1 << 20, Bytes: 8 << 20}, script, argv...)
	var limit *LimitError
	if err != nil && !errors.As(err, &limit) {
		t.Fatal(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range benchmarkTexts {
		f.Add(text)
	}
	for _, text := range []string{"", "[[[[", `{"a":{"b":`, `"\ud83d\ude00\u00e9\n"`, "-0x1.8p-3", "nan(12)",
		"1e999", "\x00", "{}x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzz(t, `cjson.decode_max_depth(1000000) local v = cjson.decode(ARGV[1]) local ok, s = pcall(cjson.encode, v)
			return ok and type(cjson.decode(s))`, text)
		fuzz(t, "cjson.decode_invalid_numbers(false) return cjson.decode(ARGV[1])", text)
	})
}

func FuzzUnpackMessage(f *testing.F) {
	for _, data := range []string{"", "\x93\x01\xa1a\xc0", "\x81\xa1a\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
		"\xdd\xff\xff\xff\xff\x01", "\xdf\xff\xff\xff\xff\x01\x02", "\xdb\xff\xff\xff\xff", "\xc1", "\x91\x91\x91\x91",
		"\xd9\x02ab\xd3\x80\x00\x00\x00\x00\x00\x00\x00"} {
		f.Add(data, int64(0), int64(0))
	}
	f.Fuzz(func(t *testing.T, data string, limit, offset int64) {
		fuzz(t, "return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))", data)
		fuzz(t, "return cmsgpack.unpack_limit(ARGV[1], ARGV[2], ARGV[3])", data, fmt.Sprint(limit), fmt.Sprint(offset))
	})
}

func FuzzUnpackStruct(f *testing.F) {
	for _, format := range []string{"i4", ">!8bLs", "c0", "Bc0", "i9>I32", "!16fd x", "s", "c2147483647"} {
		f.Add(format, "\x03abc\x00\x01\x02\x03\x04\x05\x06\x07\x08", int64(1))
	}
	f.Fuzz(func(t *testing.T, format, data string, pos int64) {
		fuzz(t, "return struct.unpack(ARGV[1], ARGV[2], ARGV[3])", format, data, fmt.Sprint(pos))
		fuzz(t, "return struct.pack(ARGV[1], 1, ARGV[2], -1.5, ARGV[2], 2^63)", format, data)
		fuzz(t, "return struct.size(ARGV[1])", format)
	})
}
