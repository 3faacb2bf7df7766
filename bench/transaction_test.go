package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/redcon"

	"neokv.dev/results"
)

// TestReadTransaction: each command of a transaction gets what EXEC answers for it, and the first error says why there
// was no EXEC.
func TestReadTransaction(t *testing.T) {
	const queued = "+OK\r\n+QUEUED\r\n+QUEUED\r\n"
	for replies, want := range map[string]string{
		queued + "*2\r\n+OK\r\n:7\r\n":                       "* null false; 0 false false, 7 false false",
		queued + "*2\r\n$-1\r\n*0\r\n":                       "* null true; 0 true false, 0 true false",
		queued + "*-1\r\n":                                   "* null true; 0 false true, 0 false true",
		queued + "*2\r\n-WRONGTYPE no\r\n:1\r\n":             "* null false, failed WRONGTYPE no; 0 false true, 1 false false",
		queued + "-ERR write outcome unknown: x\r\n":         "- ERR write outcome unknown: x",
		"+OK\r\n-MOVED 1 a:1\r\n+QUEUED\r\n-EXECABORT x\r\n": "- MOVED 1 a:1",
		"-ERR no MULTI\r\n+OK\r\n-ERR b\r\n-ERR no EXEC\r\n": "- ERR no MULTI",
		queued + "*1\r\n+OK\r\n":                             "protocol error: EXEC answers 1 of 2 commands",
		queued + "+OK\r\n":                                   `protocol error: reply "+OK" to EXEC`,
	} {
		client, server := net.Pipe()
		c := &loadConn{timeout: time.Minute, epoch: time.Now()}
		c.attach(client)
		go func() { server.Write([]byte(replies + "+next\r\n")) }()
		steps := make([]sentStep, 2)
		rep, failed, err := c.readTransaction(steps)
		var got string
		switch {
		case err != nil:
			got = err.Error()
		case rep.kind == '-':
			got = fmt.Sprintf("- %s", rep.text)
		default:
			got = fmt.Sprintf("* null %v", rep.null)
			if failed != nil {
				got += fmt.Sprintf(", failed %s", failed)
			}
			for i, x := range steps {
				got += fmt.Sprintf("%s %d %v %v", []string{";", ","}[i], x.number, x.miss, x.void)
			}
		}
		if got != want {
			t.Errorf("%q: %s; want %s", replies, got, want)
		}
		if line, next := c.line(); err == nil && (next != nil || string(line) != "+next") {
			t.Errorf("%q: %q is left, %v", replies, line, next)
		}
		client.Close()
		server.Close()
	}
}

// TestWatchFollowsSlots: a transaction goes to the node that watches its keys. If the slot has moved before EXEC, the
// operation begins anew at the other node; what was watched at the first one would say nothing there.
func TestWatchFollowsSlots(t *testing.T) {
	var mu sync.Mutex
	var log []string
	var addrs [2]string
	nodes := [2]net.Listener{}
	moved := false
	serve := func(node int, c redcon.Conn, cmd redcon.Command) {
		mu.Lock()
		defer mu.Unlock()
		name := strings.ToUpper(string(cmd.Args[0]))
		switch name {
		case "INFO":
			c.WriteBulkString("redis_version:7.0.98\r\ncluster_enabled:1\r\n")
			return
		case "CLUSTER":
			host, port, _ := net.SplitHostPort(addrs[0])
			if moved {
				host, port, _ = net.SplitHostPort(addrs[1])
			}
			c.WriteRaw(fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx\r\n", len(host),
				host, port))
			return
		}
		log = append(log, fmt.Sprintf("%d %s", node, name))
		switch {
		case name == "SET" && node == 0:
			moved = true
			c.WriteError("MOVED 0 " + addrs[1])
		case name == "EXEC" && node == 0:
			c.WriteError("EXECABORT Transaction discarded because of previous errors.")
		case name == "EXEC":
			c.WriteRaw([]byte("*1\r\n+OK\r\n"))
		case name == "SET":
			c.WriteString("QUEUED")
		case name == "GET":
			c.WriteNull()
		default:
			c.WriteString("OK")
		}
	}
	for i := range nodes {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		addrs[i] = ln.Addr().String()
		go redcon.Serve(ln, func(c redcon.Conn, cmd redcon.Command) { serve(i, c, cmd) }, nil, nil)
	}
	path := filepath.Join(t.TempDir(), "watch.yaml")
	text := "records: [{key: k<n>, load: false}]\nmix: [{do: [WATCH <key>, GET <key>, multi: [SET <key> <value>]]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Run(context.Background(), usual(Options{Targets: addrs[:1], Duration: time.Minute,
		Groups: []GroupOptions{{Workload: path, Clients: 1, Records: 1, Operations: 2, Pipeline: 2}}}),
		results.NewWriter(&bytes.Buffer{}))
	if err != nil || s.Groups[0].Total.Count != 2 {
		t.Errorf("%v, %+v", err, s.Groups[0])
	}
	once := func(node int) (out []string) {
		for _, name := range []string{"WATCH", "GET", "MULTI", "SET", "EXEC"} {
			out = append(out, fmt.Sprintf("%d %s", node, name))
		}
		return out
	}
	// Both operations of the pipeline, one after the other. The second one may come before the next look at the slots.
	want := slices.Concat(once(0), once(1), once(1))
	if late := slices.Concat(once(0), once(1), once(0), once(1)); !slices.Equal(log, want) && !slices.Equal(log, late) {
		t.Errorf("the nodes got %q,\nwant %q", log, want)
	}
}

// TestScripts: a script is named by its SHA1, and brought once if the server does not know it.
func TestScripts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		s, _, err := inBubble(t, m, context.Background(), Options{Duration: time.Second,
			Groups: []GroupOptions{{Workload: "lock", Clients: 3, Pipeline: 4, Records: 100}}})
		if g := s.Groups[0]; err != nil || g.Total.Errors > 0 || g.Total.Count < 1000 || g.Retried < 3 {
			t.Fatalf("%v, %+v", err, g)
		}
		brought, tokens := 0, map[string]int{}
		for _, c := range m.calls {
			if c[0] == "EVAL" {
				brought++
			}
			if len(c) > 4 && strings.HasPrefix(c[3].(string), "lock:") {
				tokens[c[4].(string)]++
			}
			if c[2] != "1" || !strings.HasPrefix(c[3].(string), "l") {
				t.Errorf("%q", c)
			}
		}
		if len(m.scripts) != 3 || brought < 3 || brought > 3*3*4 {
			t.Errorf("%d scripts were brought %d times: %q", len(m.scripts), brought, m.scripts)
		}
		for token, n := range tokens {
			if n > 2 { // extended and released
				t.Errorf("%d calls have the token %s", n, token)
			}
		}
	})
}
