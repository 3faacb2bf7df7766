package server

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/settings"
)

// TestOwnCommandsLook: the server's own commands look whether they may go on, however many arguments they have. Each
// call here takes ten milliseconds at least, and may take one.
func TestOwnCommandsLook(t *testing.T) {
	s := settings.Default()
	s.Redis.CommandTime = time.Millisecond
	_, dial := start(t, Options{Self: 1, Settings: s})
	for _, c := range []struct {
		begin, again string
		times        int
	}{
		{"command info", "get", 50_000},
		{"command docs", "get", 50_000},
		{"command getkeys mset", "k v", 150_000},
		{"command getkeysandflags mset", "k v", 50_000},
		{"command getkeysandflags neokv batch", "set k v", 50_000},
		{"config get", "x*y", 20_000},
		{"latency histogram", "config|get", 50_000},
		{"client list id", "1", 150_000},
		{"client kill", "addr nobody:1", 150_000},
		{"info", "x", 150_000},
		{"hello 3", "setname x", 150_000},
	} {
		conn := dial()
		replies := bufio.NewReader(conn)
		args := strings.Fields(c.begin)
		for range c.times {
			args = append(args, strings.Fields(c.again)...)
		}
		go func() {
			var b strings.Builder
			fmt.Fprintf(&b, "*%d\r\n", len(args))
			for _, a := range args {
				fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
			}
			conn.Write([]byte(b.String()))
		}()
		line, err := replies.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "-ERR the command takes longer than redis.command_time") {
			t.Errorf("%s: reply %.100q, %v", c.begin, line, err)
		} else if got := ask(t, conn, "PING"); got != "+PONG\r\n" {
			t.Errorf("%s: then %.100q", c.begin, got)
		}
		conn.Close()
	}
}
