package server

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/settings"
)

// TestPubsub runs the scenarios of testdata/pubsub.txt, which says how to read them.
func TestPubsub(t *testing.T) { runScenarios(t, "pubsub.txt", runPubsub) }

// talk is several clients of a server.
type talk struct {
	dial    func() net.Conn
	clients []*talker
}

// talker is one of them. Its goroutine reads into got.
type talker struct {
	net.Conn
	name string
	read chan []byte
	got  []byte
}

func (x *talk) client(name string) *talker {
	at := slices.IndexFunc(x.clients, func(c *talker) bool { return c.name == name })
	if at < 0 {
		c := &talker{Conn: x.dial(), name: name, read: make(chan []byte, 1000)}
		go func() {
			defer close(c.read)
			for {
				b := make([]byte, 4096)
				n, err := c.Read(b)
				if err != nil {
					return
				}
				c.read <- b[:n]
			}
		}()
		x.clients = append(x.clients, c)
		slices.SortFunc(x.clients, func(a, b *talker) int { return strings.Compare(a.name, b.name) })
		return c
	}
	return x.clients[at]
}

// take adds what has arrived to got.
func (c *talker) take() {
	for {
		select {
		case b, ok := <-c.read:
			if !ok {
				if c.read = nil; !strings.HasSuffix(string(c.got), "closed\r\n") {
					c.got = append(c.got, "closed\r\n"...)
				}
				return
			}
			c.got = append(c.got, b...)
		default:
			return
		}
	}
}

// send sends a line of a scenario.
func (x *talk) send(line string) {
	name, what, _ := strings.Cut(line, " ")
	x.client(name).Write([]byte(strings.ReplaceAll(what, "|", "\r\n") + "\r\n"))
}

// received returns what all clients have received since the last call, a line for each.
func (x *talk) received() string {
	var out strings.Builder
	for _, c := range x.clients {
		if c.take(); len(c.got) > 0 {
			fmt.Fprintf(&out, "%s: %s\n", c.name, inOneLine(c.got))
		}
	}
	return out.String()
}

func (x *talk) forget() {
	for _, c := range x.clients {
		c.got = nil
	}
}

func (x *talk) close() {
	for _, c := range x.clients {
		c.Close()
	}
}

// varies is what no two servers say alike: times and addresses of MONITOR, and who answers HELLO.
var varies = regexp.MustCompile(`\+\d+\.\d{6} \[0 [^\]]*\]|[*%]\d+\r\n\$6\r\nserver\r\n(.|\r\n)*?modules\r\n\*0\r\n`)

// inOneLine shows what was received in one line. Messages of one publication that patterns match come in any order.
func inOneLine(got []byte) string {
	text := varies.ReplaceAll(got, []byte("#"))
	var all []string
	for len(text) > 0 {
		n := strings.Index(string(text), "\r\n") + 2
		if strings.ContainsRune("*>$%=~", rune(text[0])) && complete(text) {
			n = replyLen(text)
		}
		if n < 2 || n > len(text) {
			n = len(text)
		}
		all = append(all, string(text[:n]))
		text = text[n:]
	}
	pattern := func(s string) bool { return strings.Contains(s, "\r\npmessage\r\n") }
	for from := 0; from < len(all); from++ {
		to := from
		for to < len(all) && pattern(all[to]) {
			to++
		}
		if to > from {
			slices.Sort(all[from:to])
			from = to
		}
	}
	return strings.TrimSpace(strings.NewReplacer("\r\n", " ", "\x00", `\0`, "\xff", `\xff`).Replace(strings.Join(all, "")))
}

// complete reports whether text begins with a whole reply.
func complete(text []byte) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	return replyLen(text) <= len(text)
}

func runPubsub(t *testing.T, lines []string) string {
	_, dial, stop := serve(t, Options{Settings: settings.Default()})
	defer stop()
	x := &talk{dial: dial}
	defer x.close()
	var out strings.Builder
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		x.send(line)
		synctest.Wait()
		out.WriteString("> " + line + "\n" + x.received())
		x.forget()
	}
	x.close()
	time.Sleep(time.Second)
	return out.String()
}
