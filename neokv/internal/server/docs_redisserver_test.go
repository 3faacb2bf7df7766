//go:build redisserver

package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"testing"

	"neokv.dev/neokv/internal/redis/redistest"
)

var updateDocs = flag.Bool("update-docs", false, "write what redis-server says about its commands to its file")

// reply sends a call to a server after HELLO, and returns the reply.
func reply(t *testing.T, c net.Conn, proto int, call string) redistest.ReplyValue {
	t.Helper()
	defer c.Close()
	if _, err := fmt.Fprintf(c, "HELLO %d\r\n%s\r\n", proto, call); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if _, err := redistest.Read(r); err != nil {
		t.Fatal(err)
	}
	v, err := redistest.Read(r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// docsOf returns what a reply of COMMAND DOCS says about each command and subcommand, by full name. What it says about a
// container lacks the subcommands.
func docsOf(docs redistest.ReplyValue) (of map[string]redistest.ReplyValue) {
	of = map[string]redistest.ReplyValue{}
	for items := docs.Items; len(items) > 1; items = items[2:] {
		facts := items[1]
		for i := 0; i < len(facts.Items); i += 2 {
			if string(facts.Items[i].Text) == "subcommands" {
				maps.Copy(of, docsOf(facts.Items[i+1]))
				facts.Items = slices.Delete(slices.Clone(facts.Items), i, i+2)
			}
		}
		of[string(items[0].Text)] = facts
	}
	return of
}

// appendJSON appends a reply as JSON; maps keep their order.
func appendJSON(b []byte, v redistest.ReplyValue) []byte {
	switch v.Kind {
	case ':':
		return append(b, v.Text...)
	case '%', '*', '~':
		ends := "[]"
		if v.Kind == '%' {
			ends = "{}"
		}
		b = append(b, ends[0])
		for i, x := range v.Items {
			if b = appendJSON(b, x); i == len(v.Items)-1 {
				break
			}
			separator := byte(',')
			if v.Kind == '%' && i%2 == 0 {
				separator = ':'
			}
			b = append(b, separator)
		}
		return append(b, ends[1])
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(v.Text)); err != nil {
		panic(err)
	}
	return append(b, bytes.TrimSpace(text.Bytes())...)
}

// TestCommandDocs compares what COMMAND DOCS says with redis-server's answer, about each command and subcommand that
// both have, and the file of these answers with what it is made of.
func TestCommandDocs(t *testing.T) {
	addr := redistest.RedisServer(t)
	ask := func(proto int) map[string]redistest.ReplyValue {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return docsOf(reply(t, c, proto, "COMMAND DOCS"))
	}
	const name = "../redis/command_docs.json"
	want, all := []byte("{\n"), ask(3)
	for i, command := range slices.Sorted(maps.Keys(all)) {
		if i > 0 {
			want = append(want, ",\n"...)
		}
		want = appendJSON(fmt.Appendf(want, "%q: ", command), all[command])
	}
	want = append(want, "\n}\n"...)
	if *updateDocs {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what redis-server says (%v): run go generate ./neokv/internal/redis", name, err)
	}
	_, dial := start(t, Options{})
	for proto := 2; proto <= 3; proto++ {
		if list := reply(t, dial(), proto, "COMMAND LIST"); list.Kind != '*' { // as redis-server's
			t.Errorf("RESP%d: COMMAND LIST is of the kind %c", proto, list.Kind)
		}
		theirs, compared := ask(proto), 0
		for command, ours := range docsOf(reply(t, dial(), proto, "COMMAND DOCS")) {
			if their, ok := theirs[command]; ok {
				compared++
				if !ours.Equal(their) {
					t.Errorf("RESP%d: %s:\n got %v\nwant %v", proto, command, ours, their)
				}
			}
		}
		if compared < 200 {
			t.Errorf("%d commands compared", compared)
		}
	}
}

// TestRowsAreRedis compares what the rows say of commands with what COMMAND DOCS does: NEOKV DOCS, docs/commands.md and
// ACL categories are made of the rows.
func TestRowsAreRedis(t *testing.T) {
	c, err := net.Dial("tcp", redistest.RedisServer(t))
	if err != nil {
		t.Fatal(err)
	}
	theirs := docsOf(reply(t, c, 3, "COMMAND DOCS"))
	for _, row := range commands.Rows() {
		for _, r := range append(slices.Clone(row.Sub), row) {
			facts := theirs[r.FullName()].Items
			for i := 0; i < len(facts); i += 2 {
				fact, want := string(facts[i].Text), string(facts[i+1].Text)
				got, ok := map[string]string{"since": r.Doc.Since, "group": r.Doc.Group}[fact]
				if ok && got != want {
					t.Errorf("%s: %s is %q, want %q", r.FullName(), fact, got, want)
				}
			}
		}
	}
}
