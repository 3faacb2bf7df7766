//go:build redisserver

package redis

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis/redistest"
)

// TestRepliesInScriptsAreRedis makes the calls of TestRepliesAreRedis from scripts.
func TestRepliesInScriptsAreRedis(t *testing.T) {
	calls := *compareCalls / 20
	if testing.Short() {
		calls /= 200
	}
	addr := redistest.RedisServer(t, "--databases", "1")
	seed := *compareSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-compare.seed=%d", seed)
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("resp%d", proto), func(t *testing.T) {
			{
				d := newRegion(t)
				d.now, d.long = realTime, 50*(proto-2)
				through := func(call [][]byte) [][]byte {
					how, n := "call", crc32.ChecksumIEEE(bytes.Join(call, nil)) // the same for both servers
					if n%3 == 0 {
						how = "pcall"
					}
					resp := 2 + n%uint32(proto-1)
					if strings.HasPrefix(strings.ToLower(string(call[0])), "sort") { // a null ends a table in RESP3
						resp = 2
					}
					text := fmt.Sprintf("redis.setresp(%d)\n\nreturn redis.%s(unpack(ARGV))", resp, how)
					return append([][]byte{[]byte("eval"), []byte(text), []byte(strconv.Itoa(0))}, call...)
				}
				r, err := redistest.Run(redistest.Options{Want: dialer(addr), Got: d.dial, Proto: proto, Seed: seed,
					Calls: calls, DataOnly: true, Through: through})
				if r != nil {
					for _, diff := range r.Differences {
						t.Error(diff)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d calls, %d of them answered with the same error, excepted %v", r.Calls, r.Errors, r.Excepted)
			}
		})
	}
}

// TestScriptsAreRedis runs scripts that are written here on both, and compares what they reply and leave.
func TestScriptsAreRedis(t *testing.T) {
	defer BindAll(nil)
	rows := slices.Clone(data.Rows())
	for _, name := range []string{"multi", "eval", "config", "client"} { // of the server's
		rows = append(rows, &Command{Name: name, Arity: -1, Flags: FlagNoScript, How: HowOwn})
	}
	BindAll(NewTable(rows...))
	addr := redistest.RedisServer(t, "--databases", "1")
	for proto := 2; proto <= 3; proto++ {
		for _, long := range []int{0, 50} {
			d := newRegion(t)
			d.now, d.long = realTime, long
			ours, theirs := &talker{t, must(d.dial())}, &talker{t, must(dialer(addr)())}
			for _, x := range []*talker{ours, theirs} {
				x.do("hello", strconv.Itoa(proto))
				x.do("flushall")
			}
			for _, name := range []string{"eval", "eval_ro"} {
				for i, s := range comparedScripts {
					call := append([]string{name, s.text, strconv.Itoa(len(s.keys))}, append(s.keys, s.args...)...)
					want, got := theirs.do(call...), ours.do(call...)
					if !want.Equal(got) {
						t.Errorf("RESP%d, %s of script %d: %s\n\twant %c %v\n\tgot  %c %v", proto, name, i, s.text, want.Kind,
							want, got.Kind, got)
					}
					for _, look := range []string{"get s", "lrange l 0 -1", "get n", "zrange z 0 -1 withscores", "smembers m",
						"hmget h f g", "get p"} {
						args := strings.Fields(look)
						if want, got := theirs.do(args...), ours.do(args...); !want.Equal(got) {
							t.Errorf("RESP%d, %s of script %d: %s\n\tleaves %s = %v\n\twant %v", proto, name, i, s.text, look, got,
								want)
						}
					}
				}
			}
		}
	}
}

func must(c net.Conn, err error) net.Conn {
	if err != nil {
		panic(err)
	}
	return c
}

// talker sends one call after the other.
type talker struct {
	t *testing.T
	net.Conn
}

func (x *talker) do(args ...string) redistest.ReplyValue {
	x.t.Helper()
	var call [][]byte
	for _, a := range args {
		call = append(call, []byte(a))
	}
	if _, err := x.Write(redistest.AppendCall(nil, call...)); err != nil {
		x.t.Fatalf("%.200q: %v", args, err)
	}
	v, err := redistest.Read(bufio.NewReader(x.Conn))
	if err != nil {
		x.t.Fatalf("%.200q: %v", args, err)
	}
	return v
}

var comparedScripts = []struct {
	text       string
	keys, args []string
}{
	{"return 1", nil, nil},
	{"return redis.call('set', KEYS[1], ARGV[1])", []string{"s"}, []string{"v\x00\xff\r\n"}},
	// An error in the middle: what was written stays.
	{"redis.call('set', 's', 'first') redis.call('incr', 's') redis.call('set', 's', 'never')", []string{"s"}, nil},
	{"redis.call('rpush', 'l', 1, 2.5, -0.0, 1e15, 1e100, 0.1, 3.0)\nerror('my own')", []string{"l"}, nil},
	{"redis.call('rpush', 'l', 'x')\n\nerror({err = 'MY own'})", []string{"l"}, nil},
	{"redis.call('rpush', 'l', 'y') return {err = 'CODE text'}", []string{"l"}, nil},
	{"redis.call('rpush', 'l', 'z') local x = nil; return x.y", []string{"l"}, nil},
	{"local e = redis.pcall('incr', 's') redis.call('set', 'p', e.err) return e", []string{"s", "p"}, nil},
	{"local e = redis.pcall('incr', 's') return {type(e), e.err, e.ok, tostring(e['err'])}", []string{"s"}, nil},
	{"local ok, e = pcall(redis.call, 'lpush', 's', 1) return {tostring(ok), type(e), tostring(e)}", []string{"s"}, nil},
	{"local ok, e = pcall(function() redis.call('set', 'p', 'in') error('out') end) return e", []string{"p"}, nil},
	{"return redis.pcall('nosuch', 'x')", nil, nil},
	{"return redis.call('nosuch', 'x')", nil, nil},
	{"return redis.call('get')", nil, nil},
	{"return redis.call('get', 's', 's')", []string{"s"}, nil},
	{"return redis.call()", nil, nil},
	{"return redis.call(1, 2)", nil, nil},
	{"return redis.call('')", nil, nil},
	{"return redis.call('set', 's', {})", []string{"s"}, nil},
	{"return redis.call('set', 's', true)", []string{"s"}, nil},
	{"return redis.call('set', 's', nil)", []string{"s"}, nil},
	{"return redis.call('object', 'nosuch', 's')", []string{"s"}, nil},
	{"return redis.call('object')", []string{"s"}, nil},
	{"return redis.call('OBJECT', 'Encoding', 'l')", []string{"l"}, nil},
	{"return redis.call('ping')", nil, nil},
	{"return redis.call('PING', 'x')", nil, nil},
	{"return redis.call('ping', 'x', 'y')", nil, nil},
	{"return redis.call('echo', 'a\\0b')", nil, nil},
	{"return redis.call('echo')", nil, nil},
	{"return redis.call('select', 0)", nil, nil},
	{"return #redis.call('time')", nil, nil},
	{"return redis.call('dbsize')", nil, nil},
	{"return redis.call('set', 'n', 10) and redis.call('incrby', 'n', 3)", []string{"n"}, nil},
	{"return redis.call('incrbyfloat', 'n', 0.1)", []string{"n"}, nil},
	{"return tonumber(redis.call('get', 'n')) * 3", []string{"n"}, nil},
	{"return {redis.call('get', 'absent'), 1}", []string{"absent"}, nil},
	{"return redis.call('get', 'absent') == false", []string{"absent"}, nil},
	{"redis.call('del', 'z', 'm', 'h') return redis.call('zadd', 'z', 1.5, 'a', '-inf', 'b', 3, 'c')", []string{"z"}, nil},
	{"return redis.call('zrange', 'z', 0, -1, 'withscores')", []string{"z"}, nil},
	{"redis.setresp(3) return redis.call('zrange', 'z', 0, -1, 'withscores')", []string{"z"}, nil},
	{"redis.setresp(3) return redis.call('zscore', 'z', 'a')", []string{"z"}, nil},
	{"redis.setresp(3) local r = redis.call('zscore', 'z', 'a') return type(r) .. tostring(r.double)", []string{"z"}, nil},
	{"return redis.call('zscore', 'z', 'a') + 1", []string{"z"}, nil},
	{"redis.call('hset', 'h', 'f', 1, 'g', 2.50) redis.setresp(3) local m = redis.call('hgetall', 'h').map return m.f .. m.g",
		[]string{"h"}, nil},
	{"redis.setresp(3) return redis.call('hgetall', 'h')", []string{"h"}, nil},
	{"redis.setresp(3) return redis.call('get', 'absent')", []string{"absent"}, nil},
	{"redis.setresp(3) return {redis.call('get', 'absent'), true, false}", []string{"absent"}, nil},
	{"redis.call('sadd', 'm', 'only') redis.setresp(3) return redis.call('smembers', 'm')", []string{"m"}, nil},
	{"redis.call('sadd', 'm', 'only') return redis.call('smembers', 'm')", []string{"m"}, nil},
	{"return {1, 2, {3, 'four', {5.9}}, nil, 6}", nil, nil},
	{"return {ok = 'fine'}", nil, nil},
	{"return redis.status_reply('S')", nil, nil},
	{"return redis.error_reply('E text')", nil, nil},
	{"return redis.error_reply('-E text')", nil, nil},
	{"return {-0.0, 3.99, -3.99, 2^53, 1e300, 0/0}", nil, nil},
	{"return tostring(0.1 + 0.2) .. ' ' .. 1e15 .. ' ' .. 1e14 .. ' ' .. 2^63 .. ' ' .. 1/3", nil, nil},
	{"return #KEYS .. #ARGV .. KEYS[1] .. ARGV[2]", []string{"s"}, []string{"", "\xff"}},
	{"redis.call('flushall') return redis.call('exists', 's')", []string{"s"}, nil},
	{"for i = 1, 300 do redis.call('rpush', 'l', i) end return redis.call('llen', 'l')", []string{"l"}, nil},
	{"return redis.call('rpush', 'l', unpack(ARGV))", []string{"l"}, strings.Fields(strings.Repeat("x ", 100))},
	{"return redis.call('sort', 'l', 'alpha', 'limit', 0, 3)", []string{"l"}, nil},
	{"return redis.call('sort', 'l', 'alpha', 'store', 'l')", []string{"l"}, nil},
	{"return redis.call('getex', 's')", []string{"s"}, nil},
	{"#!lua\nreturn redis.call('set', 's', 'shebang')", []string{"s"}, nil},
	{"#!lua flags=no-writes\nreturn redis.call('set', 's', 'no')", []string{"s"}, nil},
	{"#!lua flags=no-writes\nreturn redis.call('get', 's')", []string{"s"}, nil},
	{"#!lua flags=no-writes\nreturn redis.pcall('del', 's').err", []string{"s"}, nil},
	{"return redis.call('multi')", nil, nil},
	{"return redis.call('eval', 'return 1', 0)", nil, nil},
	{"return redis.call('config', 'get', 'maxmemory')", nil, nil},
	{"return redis.call('client', 'id')", nil, nil},
}
