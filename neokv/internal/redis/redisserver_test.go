//go:build redisserver

package redis

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
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
	compareTime  = flag.Duration("compare.time", 10*time.Second,
		"how long TestExploreReplies makes calls of fresh seeds")
	compareSeed = flag.Uint64("compare.seed", 0, "seed of TestExploreReplies, 0 for a fresh one")
)

func dialer(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}

func TestRepliesAreRedis(t *testing.T) {
	calls, seeds := *compareCalls, uint64(2)
	if testing.Short() {
		calls, seeds = calls/150, 1
	}
	addr := redistest.RedisServer(t, "--databases", "1")
	for _, proto := range []int{2, 3} {
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

// TestExploreReplies makes calls of seeds that nobody has chosen, and prints these.
//
//	go test -tags redisserver ./neokv/internal/redis -run TestExploreReplies -compare.time=1h -timeout=2h -v
func TestExploreReplies(t *testing.T) {
	addr := redistest.RedisServer(t, "--databases", "1")
	if testing.Short() {
		t.Skip("TestRepliesAreRedis makes such calls in a short run")
	}
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
					data.WriteInfo(&out, [][]byte{[]byte(c.Name)})
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
					data.WriteInfo(&out, [][]byte{[]byte(c.FullName())})
					same("command info " + c.FullName())
				}

				data.WriteDocs(&out, [][]byte{[]byte(c.FullName())})
				ours, theirs := docs(t, out.Buf), docs(t, ask("command docs "+c.FullName()))
				out.Buf = out.Buf[:0]
				for _, fact := range []string{"since", "group", "doc_flags", "deprecated_since", "replaced_by"} {
					if ours[fact] != theirs[fact] {
						t.Errorf("%s: %s %q, want %q", c.FullName(), fact, ours[fact], theirs[fact])
					}
				}
				for _, args := range []string{"a", "a b", "a b c", "a b c d", "a b c d e"} {
					call := strings.Replace(c.FullName(), "|", " ", 1) + " " + args
					if len(c.Sub) > 0 {
						call = c.Name + " nosuch " + args
					}
					data.WriteGetKeys(&out, bytes.Fields([]byte(call)))
					same("command getkeys " + call)
					data.WriteGetKeysAndFlags(&out, bytes.Fields([]byte(call)))
					same("command getkeysandflags " + call)
				}
			}
		}
		data.WriteInfo(&out, [][]byte{[]byte("GET"), []byte("nosuch"), []byte("get|x")})
		same("command info GET nosuch get|x")
		for _, call := range []string{"set a b get", "set a b ex 1 GET", "set a b nx", "sort a store b",
			"sort a by x get y store b store c", "zunionstore d 2 a b", "lmpop 2 a b left"} {
			data.WriteGetKeysAndFlags(&out, bytes.Fields([]byte(call)))
			same("command getkeysandflags " + call)
		}
		data.WriteGetKeys(&out, [][]byte{[]byte("nosuch"), []byte("x")})
		same("command getkeys nosuch x")
		for _, n := range []string{"01", "+1", "1x", "1.5", "2", "3", "-1", "x", "", "4294967297",
			"99999999999999999999", "-4294967295"} {
			data.WriteGetKeys(&out, bytes.Fields([]byte("sintercard "+n+" a b")))
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

// docs returns the strings of a COMMAND DOCS reply about one command.
func docs(t *testing.T, reply []byte) map[string]string {
	t.Helper()
	v, err := redistest.Parse(reply)
	if err != nil || len(v.Items) != 2 {
		t.Fatalf("docs %q: %v", reply, err)
	}
	m := make(map[string]string)
	for items := v.Items[1].Items; len(items) >= 2; items = items[2:] {
		m[string(items[0].Text)] = items[1].String()
	}
	return m
}
