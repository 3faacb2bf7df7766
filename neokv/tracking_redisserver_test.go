//go:build redisserver

package neokv

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/settings"
)

// talk is connections to one server, by name.
type talk struct {
	testing.TB
	dial  func() (net.Conn, error)
	conns map[string]*talker
}

type talker struct {
	net.Conn
	*bufio.Reader
	number string // its id
}

func newTalk(t testing.TB, dial func() (net.Conn, error)) *talk {
	return &talk{TB: t, dial: dial, conns: map[string]*talker{}}
}

func (x *talk) close() {
	for _, c := range x.conns {
		c.Close()
	}
}

// say sends commands of one pipeline on a connection.
func (x *talk) say(name string, commands ...string) {
	c := x.conns[name]
	if c == nil {
		conn, err := x.dial()
		if err != nil {
			x.Fatal(err)
		}
		c = &talker{Conn: conn, Reader: bufio.NewReader(conn)}
		x.conns[name] = c
		c.number = c.id(x)
	}
	var b []byte
	for _, text := range commands {
		for from, id := range x.conns { // $a is the id of connection a
			if strings.Contains(text, "$"+from) {
				text = strings.ReplaceAll(text, "$"+from, id.number)
			}
		}
		words, err := redistest.ParseCall(text)
		if err != nil {
			x.Fatal(err)
		}
		var args [][]byte
		for _, w := range words {
			args = append(args, []byte(w))
		}
		b = redistest.AppendCall(b, args...)
	}
	if _, err := c.Write(b); err != nil {
		x.Fatal(err)
	}
}

// id asks for the connection's id.
func (c *talker) id(x *talk) string {
	if _, err := c.Write([]byte("CLIENT ID\r\n")); err != nil {
		x.Fatal(err)
	}
	return string(c.read(x).Text)
}

func (c *talker) read(x *talk) redistest.ReplyValue {
	x.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	v, err := redistest.Read(c.Reader)
	if err != nil {
		x.Fatal(err)
	}
	return v
}

// anID finds a connection's id in a reply, which differs between servers.
var anID = regexp.MustCompile(`("id" |"redirect" |"tracking-redir-broken" )[1-9]\d*`)

// patience is how long hear waits for values that do not come.
const patience = 2 * time.Second

// hear returns what a connection gets until nothing more comes: count values at least, if count is not negative.
func (x *talk) hear(name string, count int) (all []string) {
	x.Helper()
	c := x.conns[name]
	again := false
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			x.Fatal(err)
		}
		for {
			v := c.read(x)
			pong := string(v.Text) == "PONG" || len(v.Items) == 2 && string(v.Items[0].Text) == "pong"
			if pong {
				break
			}
			text := anID.ReplaceAllString(fmt.Sprintf("%c%v", v.Kind, v), "${1}ID")
			all = append(all, text)
		}
		// Redis tells of a broadcast when it has served all that it has read, so maybe behind the first PONG.
		if again && len(all) >= count || time.Now().After(end) {
			return all
		}
		again = true
	}
}

// TestTrackingIsRedis has conversations of several connections with a redis-server and with a cluster: what each is
// told, and the order of it and the replies on each connection. A line of the file names a connection and its commands,
// which are one pipeline if several are separated by semicolons; or it says that the connection is killed.
func TestTrackingIsRedis(t *testing.T) {
	skipInRaceBuild(t)
	want := redisServer(t, false)
	one := settings.Default()
	one.Cluster.Regions = 1
	one.Raft.LeaderReturn, one.Raft.RTT = 0, 80*time.Millisecond
	c := start(t, Config{InMemory: true, Settings: &one})
	got := func() (net.Conn, error) { return net.Dial("tcp", c.ProxyAddr()) }
	text, err := os.ReadFile("testdata/tracking.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, scene := range strings.Split(string(text), "\n\n") {
		name, body, _ := strings.Cut(strings.TrimSpace(scene), "\n")
		t.Run(strings.TrimPrefix(name, "# "), func(t *testing.T) {
			a, b := newTalk(t, want), newTalk(t, got)
			defer a.close()
			defer b.close()
			for _, x := range []*talk{a, b} {
				x.say("0", "flushall")
				x.hear("0", 1)
				x.conns["0"].Close()
				delete(x.conns, "0")
			}
			for _, line := range strings.Split(body, "\n") {
				who, commands, ok := strings.Cut(line, ": ")
				if !ok {
					t.Fatalf("line %q", line)
				}
				if commands == "is killed" {
					for _, x := range []*talk{a, b} {
						x.say("0", "client kill id $"+who)
						x.hear("0", 1)
						x.conns[who].Close()
						delete(x.conns, who)
					}
					continue
				}
				a.say(who, strings.Split(commands, "; ")...)
				b.say(who, strings.Split(commands, "; ")...)
				said := map[string][]string{who: a.hear(who, 0)}
				for other := range a.conns {
					if other != who {
						said[other] = a.hear(other, 0)
					}
				}
				answer := b.hear(who, len(said[who])) // before the others: they have been told when it comes
				for other, want := range said {
					got := answer
					if other != who {
						got = b.hear(other, len(want))
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s\n%s gets %q, want %q", line, other, got, want)
					}
				}
			}
		})
	}
}
