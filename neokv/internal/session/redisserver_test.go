//go:build redisserver

package session

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// A redis-server answers the commands of all scenarios as they say: with the same errors, and with QUEUED where the
// command is queued.
func TestStepsOfRedis(t *testing.T) {
	open := redistest.RedisServer(t)
	for _, x := range scenarios(t) {
		addr := open
		if x.password != "" {
			addr = redistest.RedisServer(t)
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second))
		in := bufio.NewReader(conn)
		if x.password != "" {
			fmt.Fprintf(conn, "CONFIG SET requirepass %s\r\nRESET\r\n", x.password)
			for range 2 {
				if _, err := redistest.Read(in); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, sent := range x.sent {
			if _, err := conn.Write([]byte(sent + "\r\n")); err != nil {
				t.Fatal(err)
			}
			reply, err := redistest.Read(in)
			if err != nil {
				t.Fatalf("steps.txt:%d: %s: %v", x.line, sent, err)
			}
			line := string(reply.Kind) + string(reply.Text)
			if reply.Kind == '*' {
				line = fmt.Sprint("*", len(reply.Items))
			}
			want := x.want[i]
			switch {
			case want == "queue":
				want = "+QUEUED"
			case want == "exec none":
				want = "-EXECABORT Transaction discarded because of previous errors."
			case strings.HasPrefix(want, "exec "):
				want = "*" + strings.TrimPrefix(want, "exec ")
			case want != "run":
				want = "-" + want
			case line != "+QUEUED" && (line[0] != '*' || !strings.HasPrefix(sent, "EXEC")):
				want = line // it ran, or its own error is the answer
			}
			if line != want {
				t.Errorf("steps.txt:%d: %s: redis-server answers %q, want %q", x.line, sent, line, want)
			}
		}
		conn.Close()
	}
}
