//go:build redisserver

package redis

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	compareCalls = flag.Int("compare.calls", 60_000, "random calls of each comparison with redis-server")
	compareTime  = flag.Duration("compare.time", 0,
		"how long TestExploreReplies makes calls of fresh seeds; 0: it does not run")
	compareSeed = flag.Uint64("compare.seed", 0, "seed of TestExploreReplies, 0 for a fresh one")
)

func dialer(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}

func TestRepliesAreRedis(t *testing.T) {
	calls, seeds, protos := *compareCalls, uint64(2), []int{2, 3}
	if testing.Short() {
		calls, seeds, protos = calls/600, 1, protos[1:]
	}
	addr := redistest.RedisServer(t, "--databases", "1")
	for _, proto := range protos {
		for seed := range seeds {
			t.Run(fmt.Sprintf("resp%d/seed%d", proto, seed), func(t *testing.T) {
				d := newRegion(t)
				d.now = realTime
				r, err := redistest.Run(redistest.Options{Want: dialer(addr), Got: d.dial, Proto: proto, Seed: seed,
					Calls: calls, DataOnly: true})
				if r != nil {
					for _, diff := range r.Differences {
						t.Error(diff)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d calls, %d of them answered with the same error, excepted %v", r.Calls, r.Errors, r.Excepted)
			})
		}
	}
}

// TestRepliesInUnitsAreRedis is TestRepliesAreRedis with all reads inside units of writes.
func TestRepliesInUnitsAreRedis(t *testing.T) {
	calls := *compareCalls / 3
	if testing.Short() {
		calls /= 200
	}
	addr := redistest.RedisServer(t, "--databases", "1")
	for i, long := range []int{1, 5, 100} {
		t.Run(fmt.Sprintf("%d calls", long), func(t *testing.T) {
			d := newRegion(t)
			d.now, d.long = realTime, long
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r, err := redistest.Run(redistest.Options{Want: dialer(addr), Got: d.dial, Proto: 2 + i%2, Seed: seed,
				Calls: calls, DataOnly: true})
			if r != nil {
				for _, diff := range r.Differences {
					t.Error(diff)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls, %d of them answered with the same error, excepted %v", r.Calls, r.Errors, r.Excepted)
		})
	}
}

// TestExploreReplies makes calls of seeds that nobody has chosen, and prints these.
//
//	go test -tags redisserver ./neokv/internal/redis -run TestExploreReplies -compare.time=1h -timeout=2h -v
func TestExploreReplies(t *testing.T) {
	if *compareTime == 0 && *compareSeed == 0 {
		t.Skip("-compare.time says for how long; TestRepliesAreRedis makes such calls of seeds that are kept")
	}
	addr := redistest.RedisServer(t, "--databases", "1")
	end := time.Now().Add(*compareTime)
	for proto := 2; ; proto = 5 - proto { // 2, 3, 2, ...
		seed := cmp.Or(*compareSeed, 1+uint64(rand.Uint32()))
		d := newRegion(t)
		d.now = realTime
		r, err := redistest.Run(redistest.Options{Want: dialer(addr), Got: d.dial, Proto: proto, Seed: seed,
			Calls: 5000, DataOnly: true})
		if r != nil {
			for _, diff := range r.Differences {
				t.Error(diff)
			}
			t.Logf("seed %d, RESP%d: %d calls", seed, proto, r.Calls)
		}
		if err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Fatalf("again: go test -tags redisserver ./neokv/internal/redis -run TestExploreReplies -compare.seed=%d",
				seed)
		}
		if proto == 3 && time.Now().After(end) {
			return
		}
	}
}

// TestNegativeZeros compares random histories of a few sorted sets, most of whose scores are 0 or -0, and which come
// and go around the sizes at which Redis makes a skiplist of a listpack.
func TestNegativeZeros(t *testing.T) {
	oneGoroutine(t)
	addr := redistest.RedisServer(t, "--databases", "1")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	limit(t, 4<<10) // a range of many members is removed by a new version without them
	steps := *compareCalls / 12
	if testing.Short() {
		steps /= 4
	}
	for _, proto := range []int{2, 3} {
		d := newRegion(t)
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		redis := func(args ...string) redistest.ReplyValue {
			t.Helper()
			var call [][]byte
			for _, arg := range args {
				call = append(call, []byte(arg))
			}
			if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(redistest.AppendCall(nil, call...)); err != nil {
				t.Fatal(err)
			}
			v, err := redistest.Read(in)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		redis("hello", fmt.Sprint(proto))
		redis("flushall")
		z := zeros{Rand: rand.New(rand.NewPCG(seed, uint64(proto)))}
		// Commands whose replies have not shown a score of -0 yet. The calls go on until there are none.
		silent := map[string]bool{}
		for _, name := range []string{"zscore", "zmscore", "zincrby", "zadd", "zrange", "zrevrange", "zrangebyscore",
			"zrevrangebyscore", "zpopmin", "zpopmax", "zmpop", "zscan", "zunion", "zinter", "zdiff"} {
			silent[name] = true
		}
		for n := 0; n < steps || len(silent) > 0 && n < 50*steps; n++ {
			for i, call := range z.calls() {
				want, got := redis(call...), d.must(proto, call...)
				if call[0] == "zscan" && len(want.Items) == 2 && len(got.Items) == 2 {
					inPairs(&want.Items[1])
					inPairs(&got.Items[1])
				}
				if !got.Equal(want) {
					t.Fatalf("RESP%d, step %d, call %d: %.2000q\n got %.4000v\nwant %.4000v", proto, n, i, call, got, want)
				}
				if negativeZero(want) {
					delete(silent, call[0])
				}
			}
		}
		if len(silent) > 0 {
			t.Errorf("RESP%d: no reply has shown -0 to %v", proto, slices.Sorted(maps.Keys(silent)))
		}
	}
}

// negativeZero reports whether a reply has a score of -0.
func negativeZero(v redistest.ReplyValue) bool {
	return string(v.Text) == "-0" || slices.ContainsFunc(v.Items, negativeZero)
}

// inPairs sorts an array of members and scores in turn.
func inPairs(v *redistest.ReplyValue) {
	pairs := slices.Collect(slices.Chunk(v.Items, 2))
	slices.SortFunc(pairs, func(a, b []redistest.ReplyValue) int { return bytes.Compare(a[0].Text, b[0].Text) })
	v.Items = slices.Concat(pairs...)
}

// zeros makes the calls of TestNegativeZeros.
type zeros struct{ *rand.Rand }

func (z zeros) pick(from ...string) string { return from[z.IntN(len(from))] }

func (z zeros) key() string { return z.pick("{t}a", "{t}b", "{t}c", "{t}d") }

func (z zeros) score() string {
	return z.pick("-0", "-0", "-0", "-0", "-0", "-0.0", "0", "0", "0", "1", "-1", "2e18")
}

// member draws one of some 150, two of which are as long as the members of a listpack may be, and two longer.
func (z zeros) member() string {
	if n := z.IntN(600); n < 4 {
		return strings.Repeat(string(rune('A'+n)), 64+n/2)
	}
	return fmt.Sprint("m", z.IntN(150))
}

// bounds draws a range of ZRANGE and its kin, and what makes it one.
func (z zeros) bounds() []string {
	from, to := z.pick("-inf", "-0", "0", "(-0", "(-1"), z.pick("inf", "0", "-0", "(0", "(1")
	switch z.IntN(5) {
	case 0:
		return []string{from, to, "byscore"}
	case 1:
		return []string{to, from, "byscore", "rev"}
	case 2:
		return []string{from, to, "byscore", "limit", fmt.Sprint(z.IntN(5)), fmt.Sprint(z.IntN(200) - 1)}
	case 3:
		return []string{fmt.Sprint(z.IntN(10)), fmt.Sprint(z.IntN(200) - 60), "rev"}
	}
	return []string{fmt.Sprint(z.IntN(10)), fmt.Sprint(z.IntN(200) - 60)}
}

// combined draws the inputs and options of ZUNION and its kin.
func (z zeros) combined(weighs bool) (args []string) {
	n := 1 + z.IntN(3)
	args = append(args, fmt.Sprint(n))
	for range n {
		args = append(args, z.pick(z.key(), z.key(), z.key(), "{t}set", "{t}none"))
	}
	if weighs && z.IntN(2) == 0 {
		args = append(args, "weights")
		for range n {
			args = append(args, z.pick("1", "-1", "0", "-0", "2"))
		}
	}
	if weighs && z.IntN(2) == 0 {
		args = append(args, "aggregate", z.pick("sum", "min", "max"))
	}
	return args
}

// calls makes a call, and some that show what it has done.
func (z zeros) calls() [][]string {
	key := z.key()
	call := []string{"zadd", key}
	switch z.IntN(24) {
	default:
		for z.IntN(2) == 0 {
			call = append(call, z.pick("nx", "xx", "gt", "lt", "ch"))
		}
		for range 1 + z.IntN(z.IntN(200)+1) {
			call = append(call, z.score(), z.member())
		}
	case 0, 1:
		call = append(call, z.pick("incr", "ch"), z.score(), z.member())
	case 2, 3, 4:
		call = []string{"zincrby", key, z.score(), z.member()}
	case 5, 6:
		call = []string{"zrem", key}
		for range 1 + z.IntN(10) {
			call = append(call, z.member())
		}
	case 7:
		call = append([]string{z.pick("zunionstore", "zinterstore"), key}, z.combined(true)...)
	case 8:
		call = append([]string{"zdiffstore", key}, z.combined(false)...)
	case 9, 10:
		call = append([]string{"zrangestore", key, z.key()}, z.bounds()...)
	case 11:
		call = []string{"zrangestore", key, z.key(), "-", "+", "bylex"}
	case 12:
		call = []string{z.pick("zpopmin", "zpopmax"), key, fmt.Sprint(z.IntN(20))}
	case 13:
		call = []string{"zmpop", "2", key, z.key(), z.pick("min", "max"), "count", fmt.Sprint(1 + z.IntN(20))}
	case 14:
		call = []string{z.pick("copy", "copy", "rename"), key, z.key()}
		if call[0] == "copy" && z.IntN(4) > 0 {
			call = append(call, "replace")
		}
	case 15:
		first := z.IntN(50)
		call = []string{"zremrangebyrank", key, fmt.Sprint(first), fmt.Sprint(first + z.IntN(60))}
	case 16:
		call = []string{"zremrangebyscore", key, z.pick("-1", "-0", "0"), z.pick("(0", "(-0", "(0", "(-0", "0", "2")}
	case 17:
		call = []string{z.pick("del", "sadd"), key}
		if call[0] == "sadd" {
			call = []string{"sadd", "{t}set", z.member()}
		}
	}
	calls := [][]string{call}
	switch z.IntN(6) {
	case 0:
		return append(calls, []string{"zrange", key, "0", "-1", "withscores"})
	case 1:
	default: // several commands change a sorted set before one shows it
		return calls
	}
	member := z.member()
	calls = append(calls,
		[]string{"zscore", key, member}, []string{"zmscore", key, member, z.member(), z.member()},
		[]string{"zrank", key, member}, []string{"object", "encoding", key}, []string{"zcount", key, "-0", "(1"})
	switch z.IntN(7) {
	case 0:
		calls = append(calls, []string{z.pick("zrange", "zrevrange"), key, "0", "-1", "withscores"})
	case 1:
		calls = append(calls, append(append([]string{"zrange", key}, z.bounds()...), "withscores"))
	case 2:
		calls = append(calls, []string{"zrangebyscore", key, z.pick("-0", "0", "(-1"), z.pick("-0", "0", "(1"),
			"withscores"})
	case 3:
		calls = append(calls, []string{"zrevrangebyscore", key, z.pick("-0", "0", "(1"), z.pick("-0", "0", "(-1"),
			"withscores"})
	case 4:
		calls = append(calls, append(append([]string{z.pick("zunion", "zinter")}, z.combined(true)...), "withscores"))
	case 5:
		calls = append(calls, append(append([]string{"zdiff"}, z.combined(false)...), "withscores"))
	case 6:
		calls = append(calls, []string{"zscan", key, "0", "count", "1000"})
	}
	return calls
}

// TestRowsAreRedis compares what COMMAND says about every row.
func TestRowsAreRedis(t *testing.T) {
	addr := redistest.RedisServer(t, "--databases", "1")
	for _, proto := range []int{2, 3} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ask := raw(t, conn)
		ask(fmt.Sprintf("hello %d", proto))
		out := Reply{Proto: proto}
		same := func(call string) {
			t.Helper()
			want := ask(call)
			if !bytes.Equal(out.Buf, want) {
				t.Errorf("RESP%d %s:\n got %q\nwant %q", proto, call, out.Buf, want)
			}
			out.Buf = out.Buf[:0]
		}
		for _, row := range Rows() {
			for _, c := range append([]*Command{row}, row.Sub...) {
				if len(c.Sub) > 0 { // those of a container have no order
					data.WriteInfo(&out, [][]byte{[]byte(c.Name)}, nil)
					got, err := redistest.Parse(out.Buf)
					if err != nil {
						t.Fatal(err)
					}
					want, err := redistest.Parse(ask("command info " + c.Name))
					if err != nil {
						t.Fatal(err)
					}
					for _, v := range []redistest.ReplyValue{got, want} {
						slices.SortFunc(v.Items[0].Items[9].Items, func(a, b redistest.ReplyValue) int {
							return bytes.Compare(a.Items[0].Text, b.Items[0].Text)
						})
					}
					if !got.Equal(want) {
						t.Errorf("RESP%d %s:\n got %v\nwant %v", proto, c.Name, got, want)
					}
					out.Buf = out.Buf[:0]
				} else {
					data.WriteInfo(&out, [][]byte{[]byte(c.FullName())}, nil)
					same("command info " + c.FullName())
				}

				for _, args := range []string{"a", "a b", "a b c", "a b c d", "a b c d e"} {
					call := strings.Replace(c.FullName(), "|", " ", 1) + " " + args
					if len(c.Sub) > 0 {
						call = c.Name + " nosuch " + args
					}
					data.WriteGetKeys(&out, bytes.Fields([]byte(call)), nil)
					same("command getkeys " + call)
					data.WriteGetKeysAndFlags(&out, bytes.Fields([]byte(call)), nil)
					same("command getkeysandflags " + call)
				}
			}
		}
		data.WriteInfo(&out, [][]byte{[]byte("GET"), []byte("nosuch"), []byte("get|x")}, nil)
		same("command info GET nosuch get|x")
		for _, call := range []string{"set a b get", "set a b ex 1 GET", "set a b nx", "sort a store b",
			"sort a by x get y store b store c", "zunionstore d 2 a b", "lmpop 2 a b left"} {
			data.WriteGetKeysAndFlags(&out, bytes.Fields([]byte(call)), nil)
			same("command getkeysandflags " + call)
		}
		data.WriteGetKeys(&out, [][]byte{[]byte("nosuch"), []byte("x")}, nil)
		same("command getkeys nosuch x")
		for _, n := range []string{"01", "+1", "1x", "1.5", "2", "3", "-1", "x", "", "4294967297",
			"99999999999999999999", "-4294967295"} {
			data.WriteGetKeys(&out, bytes.Fields([]byte("sintercard "+n+" a b")), nil)
			same("command getkeys sintercard " + n + " a b")
		}
	}
}

// raw returns a function that sends an inline call and returns the reply's bytes.
func raw(t *testing.T, conn net.Conn) func(call string) []byte {
	return func(call string) []byte {
		t.Helper()
		if _, err := fmt.Fprintf(conn, "%s\r\n", call); err != nil {
			t.Fatal(err)
		}
		var reply []byte
		buf := make([]byte, 1<<16)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			if err := conn.SetReadDeadline(end); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			reply = append(reply, buf[:n]...)
			if _, err := redistest.Parse(reply); err == nil {
				return reply
			}
		}
		t.Fatalf("%s: no whole reply in %q", call, reply)
		return nil
	}
}

// TestMatchIsRedis compares which keys random patterns match. Most patterns have classes, with ranges, escapes and
// bytes of all kinds.
func TestMatchIsRedis(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	conn, err := net.Dial("tcp", redistest.RedisServer(t, "--databases", "1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	redis := func(args ...[]byte) redistest.ReplyValue {
		if _, err := conn.Write(redistest.AppendCall(nil, args...)); err != nil {
			t.Fatal(err)
		}
		v, err := redistest.Read(in)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	bytesOf := func(most int) (b []byte) {
		const often = "ab-]^\\[*?\x00\x7f\x80\xff"
		for range r.IntN(most + 1) {
			if r.IntN(4) > 0 {
				b = append(b, often[r.IntN(len(often))])
			} else {
				b = append(b, byte(r.Uint32()))
			}
		}
		return b
	}
	keys := map[string]bool{}
	for range 500 {
		key := bytesOf(3)
		keys[string(key)] = true
		redis([]byte("set"), key, nil)
	}
	for c := range 256 { // each byte alone
		keys[string([]byte{byte(c)})] = true
		redis([]byte("set"), []byte{byte(c)}, nil)
	}
	for range 5000 {
		var pattern []byte
		for range 1 + r.IntN(3) {
			switch r.IntN(4) {
			case 0:
				pattern = append(pattern, bytesOf(2)...)
			default:
				pattern = append(append(append(pattern, '['), bytesOf(100)...), ']')
			}
		}
		want := map[string]bool{}
		for _, v := range redis([]byte("keys"), pattern).Items {
			want[string(v.Text)] = true
		}
		for key := range keys {
			if match(pattern, []byte(key)) != want[key] {
				t.Fatalf("Match(%q, %q) = %v, redis-server says %v", pattern, key, !want[key], want[key])
			}
		}
	}
}
