//go:build redisserver

package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/settings"
)

// likeRedis sends the lines of a transcript to a redis-server, and wants each client to receive what it says.
func likeRedis(t *testing.T, addr, transcript string) (failed bool) {
	x := &talk{dial: func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}}
	defer x.close()
	for step := range strings.SplitSeq("\n"+transcript, "\n> ") {
		line, want, _ := strings.Cut(step, "\n")
		if line == "" {
			continue
		}
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		x.send(line)
		got := ""
		for end := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Microsecond) {
			if got = x.received(); got == want && want != "" || time.Now().After(end) {
				break
			}
			if want == "" && time.Now().After(end.Add(-2990*time.Millisecond)) {
				break
			}
		}
		if got != want {
			t.Errorf("%s: redis-server\n%sours\n%s", line, got, want)
			return true
		}
		x.forget()
	}
	return false
}

// TestPubsubOfRedis: a redis-server's clients receive the same.
func TestPubsubOfRedis(t *testing.T) {
	b, err := os.ReadFile("testdata/pubsub.txt")
	if err != nil {
		t.Fatal(err)
	}
	addr := redistest.RedisServer(t)
	for block := range strings.SplitSeq(strings.TrimSuffix(string(b), "\n"), "\n\n") {
		in, want, ok := strings.Cut(block, "\n----\n")
		name, _, _ := strings.Cut(in, "\n")
		if !ok {
			continue
		}
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) { likeRedis(t, addr, want) })
	}
}

// TestPubsubLikeRedis: what clients in RESP2 and RESP3 receive in random sequences of calls.
func TestPubsubLikeRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	sequences, steps := 60, 40
	for seed := range uint64(sequences) {
		r := rand.New(rand.NewPCG(seed, 0))
		pick := func(from ...string) string { return from[r.IntN(len(from))] }
		transcript := ""
		synctest.Test(t, func(t *testing.T) {
			_, dial, stop := serve(t, Options{Settings: settings.Default()})
			defer stop()
			x := &talk{dial: dial}
			defer x.close()
			inside := map[string]bool{}
			for n := range steps {
				who := pick("a", "b", "c")
				names := func() string {
					return strings.TrimSpace(strings.Repeat(" "+pick("x", "y", "xy"), 1+r.IntN(2)) + " " + pick("", "x", "y", "z"))
				}
				call := ""
				switch r.IntN(14) {
				case 0, 1:
					call = "SUBSCRIBE " + names()
				case 2:
					call = "PSUBSCRIBE " + pick("*", "x*", "?", "x* y")
				case 3:
					call = "SSUBSCRIBE " + pick("x", "{x}y")
				case 4:
					call = "UNSUBSCRIBE " + names()
				case 5:
					call = "PUNSUBSCRIBE " + pick("*", "x*", "?", "x* y")
				case 6:
					call = "SUNSUBSCRIBE " + pick("x", "{x}y")
				case 7, 8:
					call = fmt.Sprint("PUBLISH ", pick("x", "y", "xy"), " ", n)
				case 9:
					call = fmt.Sprint("SPUBLISH ", pick("x", "{x}y"), " ", n)
				case 10:
					call = pick("PING", "PING hello", "ECHO a", "GET", "NOPE", "PUBSUB NUMPAT", "PUBSUB NUMSUB x y",
						"PUBSUB SHARDNUMSUB x {x}y")
				case 11:
					call = pick("MULTI", "EXEC", "EXEC", "DISCARD")
				case 12:
					call = pick("HELLO 3", "HELLO 3", "HELLO 2", "RESET")
				case 13:
					call = pick("CLIENT REPLY OFF", "CLIENT REPLY ON", "CLIENT REPLY ON",
						fmt.Sprint("CLIENT REPLY SKIP|PUBLISH x ", n), fmt.Sprint("PUBLISH x ", n, "|PUBLISH y ", n, "|PING"))
				}
				switch {
				case strings.HasPrefix(call, "HELLO") && inside[who]: // it changes how EXEC's reply begins
					call = "PING"
				case call == "MULTI":
					inside[who] = true
				case call == "EXEC", call == "DISCARD", call == "RESET":
					inside[who] = false
				}
				line := who + " " + call
				x.send(line)
				synctest.Wait()
				transcript += "> " + line + "\n" + x.received()
				x.forget()
			}
		})
		if likeRedis(t, addr, strings.TrimSuffix(transcript, "\n")) {
			t.Fatalf("seed %d:\n%s", seed, transcript)
		}
	}
}
