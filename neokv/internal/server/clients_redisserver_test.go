//go:build redisserver

package server

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// TestMemoryStatsAreRedis: MEMORY STATS has figures of redis-server's names and kinds, but those that nobody knows here.
func TestMemoryStatsAreRedis(t *testing.T) {
	addr := redistest.RedisServer(t)
	_, dial := start(t, Options{})
	kinds := func(c net.Conn) (all []string) {
		items := reply(t, c, 3, "MEMORY STATS").Items
		for i := 0; i < len(items); i += 2 {
			all = append(all, fmt.Sprintf("%s %c", items[i].Text, items[i+1].Kind))
		}
		return all
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	// Where it holds less than at its start, redis-server says that -nan percent of that are data.
	ask(t, c, "SETRANGE key 4000000 x")
	want := slices.DeleteFunc(kinds(c), func(s string) bool {
		name, _, _ := strings.Cut(s, " ")
		return slices.Contains(strings.Fields(`overhead.total keys.count keys.bytes-per-key dataset.bytes
			dataset.percentage db.0`), name)
	})
	if got := kinds(dial()); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestClientBuffers compares what CLIENT LIST says of a client's buffers with redis-server's figures: of the client that
// asks, of one that has sent a part of a command, and of one that queues commands.
func TestClientBuffers(t *testing.T) {
	addr := redistest.RedisServer(t)
	theirs := func() net.Conn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, ours := start(t, Options{})
	field := func(line, name string) string {
		return regexp.MustCompile(`\b` + name + `=(\d+)`).FindStringSubmatch(line)[1]
	}
	lineOf := func(list, name string) string {
		for line := range strings.Lines(list) {
			if strings.Contains(line, " name="+name+" ") {
				return line
			}
		}
		return ""
	}
	show := func(dial func() net.Conn) string {
		asks, half, queues := dial(), dial(), dial()
		defer asks.Close()
		defer half.Close()
		defer queues.Close()
		ask(t, asks, "CLIENT SETNAME asks")
		ask(t, half, "CLIENT SETNAME half")
		ask(t, queues, "CLIENT SETNAME queues")
		ask(t, queues, "MULTI")
		ask(t, queues, "SET {t}key value")
		fmt.Fprint(half, "PIN")
		for end := time.Now().Add(time.Minute); ; {
			list := ask(t, asks, "CLIENT LIST")
			own, x, q := lineOf(list, "asks"), lineOf(list, "half"), lineOf(list, "queues")
			if field(x, "qbuf") == "3" {
				multi := field(q, "multi-mem") != "0"
				free := field(x, "qbuf-free") != "0" && field(own, "qbuf-free") != "0"
				return fmt.Sprint("own: ", field(own, "qbuf"), " ", field(own, "argv-mem"), "; half: ", field(x, "argv-mem"), " ",
					field(x, "obl"), " ", field(x, "oll"), " ", field(x, "omem"), "; queues: ", multi, " ", field(q, "qbuf"),
					" ", field(q, "argv-mem"), "; free: ", free)
			}
			if time.Now().After(end) {
				t.Fatalf("a client has sent 3 bytes: %s", x)
			}
		}
	}
	if got, want := show(ours), show(theirs); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
