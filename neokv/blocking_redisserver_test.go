//go:build redisserver

package neokv

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// blockingScript plays a script of testdata/blocking.txt against a server and returns what the clients got.
type blockingScript struct {
	t       *testing.T
	dial    func() (net.Conn, error)
	clients map[string]*blockingClient
	blocked int
	out     strings.Builder
}

type blockingClient struct {
	nc   net.Conn
	r    *bufio.Reader
	read bytes.Buffer
	id   string
}

func (x *blockingScript) client(name string) *blockingClient {
	c := x.clients[name]
	if c == nil {
		nc, err := x.dial()
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(func() { nc.Close() })
		nc.SetDeadline(time.Now().Add(time.Minute))
		c = &blockingClient{nc: nc}
		c.r = bufio.NewReader(io.TeeReader(nc, &c.read))
		x.clients[name] = c
	}
	return c
}

// reply reads one reply, as it comes.
func (c *blockingClient) reply(t *testing.T) string {
	c.read.Reset()
	buffered, _ := c.r.Peek(c.r.Buffered())
	c.read.Write(buffered)
	if _, err := redistest.Read(c.r); err != nil {
		return err.Error()
	}
	return c.read.String()[:c.read.Len()-c.r.Buffered()]
}

// awaitBlocked waits until so many clients are blocked.
func (x *blockingScript) awaitBlocked() {
	boss := x.client("the boss")
	want := fmt.Sprintf("blocked_clients:%d\r\n", x.blocked)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		fmt.Fprint(boss.nc, "info clients\r\n")
		got := boss.reply(x.t)
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("INFO says %q; want %q\n%s", got, want, x.out.String())
		}
	}
}

// sees reads what a monitor gets until a line has a word, and notes the lines about pops and pushes.
func (x *blockingScript) sees(c *blockingClient, line, word string) {
	for seen := ""; !strings.Contains(seen, word); {
		if seen = c.reply(x.t); !strings.Contains(seen, `"info"`) { // of awaitBlocked
			_, seen, _ = strings.Cut(seen, "] ")
			fmt.Fprintf(&x.out, "%s: %q\n", line, seen)
		}
	}
}

var idOf = regexp.MustCompile(`id-of-(\w+)`)

func (x *blockingScript) play(script string) string {
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		name, commands, _ := strings.Cut(line, " ")
		c := x.client(name)
		commands, blocks := strings.CutSuffix(commands, " ~")
		all := strings.Split(commands, " | ")
		switch {
		case commands == "ends":
			c.nc.Close()
			delete(x.clients, name)
			x.blocked--
			x.awaitBlocked()
			continue
		case commands == "gets":
			all = all[:0]
			x.blocked--
		case strings.HasPrefix(commands, "sees "):
			x.sees(c, line, strings.TrimPrefix(commands, "sees "))
			continue
		default:
			commands = idOf.ReplaceAllStringFunc(commands, func(s string) string {
				of := x.client(idOf.FindStringSubmatch(s)[1])
				return of.id
			})
			fmt.Fprint(c.nc, strings.ReplaceAll(commands, " | ", "\r\n")+"\r\n")
		}
		if blocks {
			x.blocked++
			x.awaitBlocked()
			all = all[1:]
		}
		if commands == "gets" {
			all = []string{""}
		}
		if blocks {
			continue
		}
		for range all {
			reply := c.reply(x.t)
			if commands == "client id" {
				c.id, reply = strings.Trim(reply, ":\r\n"), "id"
			}
			if commands == "hello 3" { // it names the client's id
				reply = reply[:1]
			}
			fmt.Fprintf(&x.out, "%s: %q\n", line, reply)
		}
	}
	x.awaitBlocked()
	return x.out.String()
}

// TestBlockingPopsAsRedis compares what interleaved clients get from NeoKV and from a redis-server, where some of them
// wait for others.
func TestBlockingPopsAsRedis(t *testing.T) {
	skipInRaceBuild(t)
	script, err := os.ReadFile("testdata/blocking.txt")
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, Config{InMemory: true, Settings: small()})
	play := func(dial func() (net.Conn, error)) string {
		x := &blockingScript{t: t, dial: dial, clients: map[string]*blockingClient{}}
		return x.play(string(script))
	}
	want := play(redisServer(t, false))
	got := play(func() (net.Conn, error) { return net.Dial("tcp", c.ProxyAddr()) })
	if got != want {
		g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Errorf("%s\nwant %s", g[i], w[i])
			}
		}
	}
}
