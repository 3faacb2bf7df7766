//go:build redisserver

package lua

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	libraryUpdate = flag.Bool("libraries.update", false, "write the replies of redis-server into "+casesFile)
	librarySeed   = flag.Uint64("libraries.seed", 0, "seed of TestRandomCallsOfLibraries, 0 for a fresh one")
	libraryCalls  = flag.Int("libraries.calls", 1000, "calls of each kind of TestRandomCallsOfLibraries")
)

// libraryServer sends scripts to a redis-server.
type libraryServer struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func newLibraryServer(t *testing.T) *libraryServer {
	conn, err := net.Dial("tcp", redistest.RedisServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &libraryServer{t, conn, bufio.NewReader(conn)}
}

// run returns the replies of a script to lists of arguments. They are sent together; redis-server keeps what it cannot
// send yet.
func (s *libraryServer) run(script string, argvs ...[]string) (replies []string) {
	s.t.Helper()
	var out []byte
	for _, argv := range argvs {
		call := [][]byte{[]byte("EVAL"), []byte(script), []byte("0")}
		for _, a := range argv {
			call = append(call, []byte(a))
		}
		out = redistest.AppendCall(out, call...)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := s.conn.Write(out)
		sent <- err
	}()
	for range argvs {
		v, err := redistest.Read(s.r)
		if err != nil {
			s.t.Fatal(err)
		}
		if v.Kind != '$' {
			s.t.Fatalf("%s: %v", script, v)
		}
		replies = append(replies, string(v.Text))
	}
	if err := <-sent; err != nil {
		s.t.Fatal(err)
	}
	return replies
}

// TestLibrariesAreRedis compares the written cases with a redis-server, and with this package.
func TestLibrariesAreRedis(t *testing.T) {
	s := newLibraryServer(t)
	cases := libraryCases(t)
	for i, c := range cases {
		reply := s.run(caseScript(c.body), nil)[0]
		if !*libraryUpdate && reply != c.want {
			t.Errorf("%s: redis-server replied %q; the file has %q", c.body, reply, c.want)
		}
		cases[i].want = reply
	}
	if !*libraryUpdate {
		return
	}
	text, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "= ") {
			continue
		}
		out.WriteString(line)
		if strings.TrimSpace(line) != "" && line[0] != '#' {
			fmt.Fprintf(&out, "= %s\n", strconv.QuoteToASCII(cases[0].want))
			cases = cases[1:]
		}
	}
	if err := os.WriteFile(casesFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// build is a function of Lua that makes a value of the bytes of a string.
const build = `
local function build(s)
	local at = 1
	local function byte()
		if at > #s then return 0 end
		at = at + 1
		return (struct.unpack('B', s, at - 1))
	end
	local function value(depth)
		local b = byte()
		local kind = b % 16
		if kind < 3 then return byte() - 100 end
		if kind == 3 then
			if at + 8 > #s then return 1.5 end
			at = at + 8
			return (struct.unpack('d', s, at - 8))
		end
		if kind == 4 then return (byte() + 256 * byte()) / (1 + byte()) end
		if kind == 5 then return 2 ^ (byte() % 70) * (byte() % 2 * 2 - 1) - byte() end
		if kind < 8 then
			local n = byte() % 40
			local t = struct.unpack('c' .. (n + 1), s .. rep(' ', 300), at)
			at = at + n
			return t
		end
		if kind == 8 then return b > 127 end
		if kind == 9 then return b > 127 and cjson.null or nil end
		if kind == 10 and b > 200 then return pairs end
		if depth > 18 then return kind end
		local t = {}
		local n = byte() % 20
		if kind < 13 then
			for i = 1, n do t[i] = value(depth + 1) end
		elseif kind == 13 then
			for i = 1, n do t[byte() % 25] = value(depth + 1) end
		else
			-- Redis orders other keys by their addresses.
			for i = 1, n do
				local k = value(depth + 1)
				if k == k and atom(k) then t[k] = value(depth + 1) end
			end
		end
		return t
	end
	return value(0)
end
`

// kinds are bodies of cases with the arguments for them. The first argument of args tells options.
var kinds = []struct {
	name, body string
	args       func(r *rand.Rand) []string
}{
	{"decode", `local o, text = ...
		cjson.decode_invalid_numbers(o ~= 'strict') cjson.decode_max_depth(o == 'flat' and 3 or 1000)
		local v = cjson.decode(text)
		return v, pcall(cjson.encode, v)`,
		func(r *rand.Rand) []string {
			return []string{[]string{"", "strict", "flat"}[r.IntN(3)], mutate(r, randomJSON(r, 0))}
		}},
	{"number", `local precision, text = ...
		local v = cjson.decode(text)
		cjson.encode_number_precision(precision) cjson.encode_invalid_numbers(precision % 2 == 1 and 'null' or true)
		return v, cjson.encode(v), v == v and cmsgpack.pack(v) -- nan(123) has bits of its own in C`,
		func(r *rand.Rand) []string { return []string{strconv.Itoa(1 + r.IntN(14)), mutate(r, randomNumber(r))} }},
	{"encode", build + `local o, s = ...
		local v = build(s)
		if o == 'sparse' then cjson.encode_sparse_array(true, 3, 5) end
		if o == 'dense' then cjson.encode_sparse_array(false, 0) end
		cjson.encode_invalid_numbers(o == 'sparse') cjson.encode_max_depth(o == 'flat' and 3 or 1000)
		return pcall(cjson.encode, v)`,
		func(r *rand.Rand) []string {
			return []string{[]string{"", "sparse", "dense", "flat"}[r.IntN(4)], randomBytes(r, r.IntN(300))}
		}},
	{"pack", build + `local s = ...
		local a, b = build(s), build(s .. '12')
		local p = cmsgpack.pack(a, b)
		return p, cmsgpack.unpack(p)`,
		func(r *rand.Rand) []string { return []string{randomBytes(r, r.IntN(300))} }},
	{"unpack", `local data, limit, offset = ...
		local function one(...) return ... end
		if limit == 'all' then return cmsgpack.unpack(data) end
		if limit == 'one' then return cmsgpack.unpack_one(data, offset) end
		return cmsgpack.unpack_limit(data, limit, offset)`,
		func(r *rand.Rand) []string {
			return []string{randomMessage(r), []string{"all", "all", "one", "0", "3", "-1"}[r.IntN(6)],
				strconv.Itoa(max(0, r.IntN(40)-30))}
		}},
	{"struct.pack", `local format, numbers, s = ...
		local a, b, c, d = struct.unpack('dddd', numbers)
		return pcall(struct.size, format), struct.pack(format, a, s, b, c, s, d, 12)`,
		func(r *rand.Rand) []string {
			numbers := ""
			for range 4 {
				numbers += string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(randomFloat(r))))
			}
			return []string{randomFormat(r), numbers, []string{"7", "12.5", "-3", "abc", ""}[r.IntN(5)]}
		}},
	{"struct.numbers", `local format, numbers = ...
		local a, b, c, d = struct.unpack('dddd', numbers)
		local p = struct.pack(format, a, b, c, d, a, b, c, d, a, b, c, d)
		return p, struct.unpack(format, p)`,
		func(r *rand.Rand) []string {
			numbers, format := "", ""
			for range 4 {
				numbers += string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(randomFloat(r))))
			}
			for range 1 + r.IntN(10) {
				format += []string{"b", "B", "h", "H", "i", "I", "l", "L", "T", "f", "d", "i3", "I7", "i16",
					"!", "<", ">", "x", "!4", "i8", "I5", "i9", "i31"}[r.IntN(23)]
			}
			return []string{format, numbers}
		}},
	{"struct.unpack", `local format, data, pos = ... return struct.unpack(format, data, pos)`,
		func(r *rand.Rand) []string {
			return []string{randomFormat(r), randomBytes(r, r.IntN(60)), strconv.Itoa(1 + max(-2, r.IntN(20)-15))}
		}},
	{"bit", `local f, n = ...
		local a, b, c = struct.unpack('ddd', n)
		return pcall(bit[f], a, b, c)`,
		func(r *rand.Rand) []string {
			numbers := ""
			for range 3 {
				numbers += string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(randomFloat(r))))
			}
			return []string{[]string{"tobit", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol",
				"ror", "bswap", "tohex"}[r.IntN(12)], numbers}
		}},
}

func TestRandomCallsOfLibraries(t *testing.T) {
	seed := *librarySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	again := fmt.Sprintf("go test -tags redisserver ./neokv/internal/lua -run TestRandomCallsOfLibraries "+
		"-libraries.seed %d -libraries.calls %d", seed, *libraryCalls)
	t.Log(again)
	s := newLibraryServer(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			script := caseScript(k.body)
			const together = 100
			different := 0
			for done := 0; done < *libraryCalls; done += together {
				var argvs [][]string
				for range together {
					argvs = append(argvs, k.args(r))
				}
				state := NewState()
				for i, want := range s.run(script, argvs...) {
					got, err := runScript(state, noLimits, script, argvs[i]...)
					if err == nil && got == want {
						continue
					}
					t.Errorf("%q:\nneokv        %q, %v\nredis-server %q\nagain: %s", argvs[i], got, err, want, again)
					if different++; different == 5 {
						return
					}
				}
			}
		})
	}
}

func randomBytes(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// mutate leaves most texts as they are; others lose, get or change some bytes.
func mutate(r *rand.Rand, s string) string {
	for r.IntN(3) == 0 && s != "" {
		at := r.IntN(len(s))
		switch r.IntN(4) {
		case 0:
			s = s[:at]
		case 1:
			s = s[:at] + s[at+1:]
		case 2:
			s = s[:at] + string(`"\u{}[],:0123456789eE+-.xXnNaAfFiItTpP()_ /`[r.IntN(43)]) + s[at:]
		case 3:
			s = s[:at] + string([]byte{byte(r.Uint32())}) + s[at+1:]
		}
	}
	return s
}

func randomFloat(r *rand.Rand) float64 {
	switch r.IntN(9) {
	case 0:
		return math.Float64frombits(r.Uint64())
	case 1:
		return math.Ldexp(r.Float64()-0.5, r.IntN(70))
	case 2:
		return float64(int64(r.Uint64() >> r.IntN(64)))
	case 3:
		return math.Ldexp(1, r.IntN(66)) - float64(r.IntN(3)-1)
	case 4:
		return -math.Ldexp(1, r.IntN(66)) - float64(r.IntN(3)-1)
	case 5:
		return []float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1), 0.5, 1.5, -0.5, 2.5}[r.IntN(8)]
	case 6:
		return float64(math.Float32frombits(r.Uint32()))
	}
	return float64(r.IntN(300) - 150)
}

func randomNumber(r *rand.Rand) string {
	f := randomFloat(r)
	switch r.IntN(9) {
	case 0:
		return strconv.FormatFloat(f, 'x', r.IntN(16)-1, 64)
	case 1:
		return strconv.FormatFloat(f, 'e', r.IntN(30), 64)
	case 2:
		return fmt.Sprintf("%x.%xp%d", r.Uint64(), r.Uint64(), r.IntN(2200)-1100)
	case 3:
		return fmt.Sprintf("0x%x.%xp%d", r.Uint64(), r.Uint64(), r.IntN(2200)-1100)
	case 4:
		return []string{"nan", "-nan", "NaN(123)", "-Infinity", "inf", "+1", "0x", "0x.8", "-.5", "1.", "01", "1e",
			"1e+", "-", "+", "infinit", "nan(", "nan()", "0x1p", "0x.p1", "1e99999999999", "0x1p-99999999999", "-0",
			"00x1"}[r.IntN(24)]
	case 5:
		return fmt.Sprintf("%d%d%d.%de%d", r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64(), r.IntN(700)-400)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func randomJSON(r *rand.Rand, depth int) string {
	space := []string{"", "", "", " ", "\n\t"}[r.IntN(5)]
	kind := r.IntN(9)
	if depth > 4 {
		kind = r.IntN(6)
	}
	switch kind {
	case 0:
		return space + []string{"true", "false", "null"}[r.IntN(3)]
	case 1, 2:
		return space + randomNumber(r)
	case 3, 4, 5:
		return space + randomJSONString(r)
	case 6:
		var items []string
		for range r.IntN(6) {
			items = append(items, randomJSON(r, depth+1))
		}
		return space + "[" + strings.Join(items, space+",") + space + "]"
	}
	var items []string
	for range r.IntN(6) {
		items = append(items, space+randomJSONString(r)+space+":"+randomJSON(r, depth+1))
	}
	return space + "{" + strings.Join(items, ",") + space + "}"
}

func randomJSONString(r *rand.Rand) string {
	s := `"`
	for range r.IntN(8) {
		switch r.IntN(6) {
		case 0:
			s += []string{`\"`, `\\`, `\/`, `\b`, `\t`, `\n`, `\f`, `\r`, `\x`, `\'`}[r.IntN(10)]
		case 1:
			s += fmt.Sprintf(`\u%04x`, r.IntN(0x10000))
		case 2:
			s += fmt.Sprintf(`\u%04X\u%04x`, 0xd800+r.IntN(0x400), 0xdc00+r.IntN(0x400))
		case 3:
			s += string(rune(r.IntN(0x11000)))
		default:
			s += string([]byte{"abcdefghijklmnop\xff\x80/"[r.IntN(19)]})
		}
	}
	return s + `"`
}

// randomMessage makes bytes of MessagePack that mostly fit together.
func randomMessage(r *rand.Rand) string {
	var value func(depth int) string
	value = func(depth int) string {
		n := r.IntN(4)
		if depth > 3 {
			n = 0
		}
		items := func(each int) (s string) {
			for range n * each {
				s += value(depth + 1)
			}
			return s
		}
		switch r.IntN(14) {
		case 0:
			return string([]byte{byte(0x90 + n)}) + items(1)
		case 1:
			return string([]byte{byte(0x80 + n)}) + items(2)
		case 2:
			return "\xdc\x00" + string([]byte{byte(n)}) + items(1)
		case 3:
			return "\xdd\x00\x00\x00" + string([]byte{byte(n)}) + items(1)
		case 4:
			return "\xde\x00" + string([]byte{byte(n)}) + items(2)
		case 5:
			return "\xdf\x00\x00\x00" + string([]byte{byte(n)}) + items(2)
		case 6:
			s := randomBytes(r, r.IntN(5))
			n := string([]byte{byte(len(s))})
			fixed := string([]byte{byte(0xa0 + len(s))})
			return []string{fixed, "\xd9" + n, "\xda\x00" + n, "\xdb\x00\x00\x00" + n}[r.IntN(4)] + s
		case 7:
			return string([]byte{byte(0xca + r.IntN(10))}) + randomBytes(r, 8)
		case 8:
			return string([]byte{byte(r.Uint32())})
		case 9:
			return string([]byte{byte(0xc0 + r.IntN(4))})
		}
		return string([]byte{byte(r.IntN(128))})
	}
	s := ""
	for range r.IntN(4) {
		s += value(0)
	}
	return mutate(r, s)
}

func randomFormat(r *rand.Rand) (format string) {
	for range r.IntN(8) {
		format += []string{"b", "B", "h", "H", "i", "I", "l", "L", "T", "f", "d", "x", "c", "s", " ", "<", ">", "!",
			"z", "$", "c0", "c3", "i3", "i16", "I32", "!4", "!1", "!3", "Bc0", "i9", "I17", "c4294967296", "i33",
			"\xff", "i0", "!0"}[r.IntN(36)]
	}
	return format
}
