package session

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis"
)

// rows are the commands of scenarios. The session goes by their names, arity and flags.
var rows = func() *redis.CommandTable {
	all := []*redis.Command{
		{Name: "multi", Arity: 1}, {Name: "exec", Arity: 1}, {Name: "discard", Arity: 1}, {Name: "unwatch", Arity: 1},
		{Name: "watch", Arity: -2}, {Name: "ping", Arity: -1}, {Name: "echo", Arity: 2}, {Name: "select", Arity: 2},
		{Name: "get", Arity: 2, Flags: redis.FlagReadonly}, {Name: "set", Arity: -3, Flags: redis.FlagWrite},
		{Name: "quit", Arity: -1, Flags: redis.FlagNoAuth}, {Name: "reset", Arity: 1, Flags: redis.FlagNoAuth},
		{Name: "hello", Arity: -1, Flags: redis.FlagNoAuth}, {Name: "auth", Arity: -2, Flags: redis.FlagNoAuth},
		{Name: "client", Arity: -2, Sub: []*redis.Command{{Name: "id", Arity: 2}, {Name: "reply", Arity: 3}}},
		{Name: "config", Arity: -2, Sub: []*redis.Command{{Name: "get", Arity: -3}}},
		{Name: "subscribe", Arity: -2}, {Name: "unsubscribe", Arity: -1}, {Name: "ssubscribe", Arity: -2},
		{Name: "publish", Arity: 3}, {Name: "pubsub", Arity: -2, Sub: []*redis.Command{{Name: "numpat", Arity: 2}}},
	}
	for _, row := range all {
		for _, sub := range row.Sub {
			sub.How, sub.Run = redis.HowOwn, true
		}
		if len(row.Sub) == 0 {
			row.How, row.Run = redis.HowOwn, true
		}
	}
	return redis.NewTable(all...)
}()

// scenario is a list of commands, and what is expected of each.
type scenario struct {
	line       int
	password   string
	sent, want []string
}

func scenarios(t *testing.T) (all []scenario) {
	t.Helper()
	text, err := os.ReadFile("testdata/steps.txt")
	if err != nil {
		t.Fatal(err)
	}
	line := 1
	for block := range strings.SplitSeq(string(text), "\n\n") {
		x := scenario{line: line}
		to := &x.sent
		for l := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
			switch {
			case strings.HasPrefix(l, "#"):
			case strings.HasPrefix(l, "password "):
				x.password = strings.TrimPrefix(l, "password ")
			case l == "----":
				to = &x.want
			default:
				*to = append(*to, l)
			}
		}
		line += strings.Count(block, "\n") + 2
		if len(x.sent) > 0 {
			all = append(all, x)
		}
	}
	return all
}

func TestSteps(t *testing.T) {
	for _, x := range scenarios(t) {
		s := New(x.password == "")
		for i, sent := range x.sent {
			if got := step(&s, x.password, sent); i >= len(x.want) || got != x.want[i] {
				t.Errorf("steps.txt:%d: %s: %s, want %s", x.line, sent, got, x.want[min(i, len(x.want)-1)])
			}
		}
	}
}

// step does what a connection does with a command, as far as the session is concerned.
func step(s *Session, password, sent string) string {
	args := bytes.Fields([]byte(sent))
	row := rows.Lookup(args[0])
	if row != nil && len(row.Sub) > 0 {
		if len(args) > 1 {
			row = row.Subcommand(args[1])
		}
	}
	c := Command{Row: row, Args: args, Valid: row != nil && row.CheckArity(len(args))}
	switch x := s.Step(&c, password != ""); x.Action {
	case Refuse:
		return x.Error
	case Enqueue:
		s.Queue(c)
		return "queue"
	case Exec:
		defer s.End()
		if s.Broken() {
			return "exec none"
		}
		n := len(s.Queued().Commands)
		return fmt.Sprint("exec ", n)
	}
	if !c.Valid && row != nil && row.Name == "exec" {
		s.End()
	}
	if c.Valid {
		switch row.FullName() {
		case "multi":
			s.Begin()
		case "discard":
			s.End()
		case "auth", "hello":
			if bytes.Contains([]byte(sent), []byte(password)) {
				s.Know()
			}
		case "reset":
			s.Reset(password == "")
		case "subscribe", "ssubscribe":
			s.Subscribe(true)
		case "unsubscribe": // no scenario has more than one channel
			s.Subscribe(false)
		}
		if row.Name == "hello" && len(args) > 1 {
			s.Proto = int(args[1][0] - '0')
		}
	}
	return "run"
}

// Queued arguments stay as they were when the connection's buffer is filled anew.
func TestQueueKeeps(t *testing.T) {
	s := New(true)
	s.Begin()
	buf := []byte("set key value")
	s.Queue(Command{Args: bytes.Fields(buf)})
	s.Keep()
	copy(buf, "xxxxxxxxxxxxx")
	s.Queue(Command{Args: [][]byte{[]byte("get"), []byte("k")}})
	s.Keep()
	got := ""
	for _, c := range s.Queued().Commands {
		got += string(bytes.Join(c.Args, []byte(" "))) + ";"
	}
	if got != "set key value;get k;" {
		t.Errorf("queued: %s", got)
	}
	if n := s.Queued().Bytes; n < len("setkeyvaluegetk") {
		t.Errorf("the queue counts %d bytes", n)
	}
	s.End()
	if q := s.Queued(); len(q.Commands) != 0 || q.Bytes != 0 {
		t.Errorf("left over: %+v", q)
	}
}

// CLIENT REPLY: which of the replies behind it are kept back.
func TestSilence(t *testing.T) {
	for _, x := range []struct {
		do   string // o on, f off, s skip, . any command
		want string // for each: - kept back, + sent
	}{
		{"...", "+++"},
		{"s..", "--+"},
		{"f...o.", "----++"},
		{"fs.o.", "---++"},
		{"ss..", "---+"},
		{"so.", "-++"},
	} {
		s := New(true)
		got := ""
		for _, c := range x.do {
			switch c {
			case 'o':
				s.ReplyOn()
			case 'f':
				s.ReplyOff()
			case 's':
				s.ReplySkip()
			}
			if s.Silent() {
				got += "-"
			} else {
				got += "+"
			}
			s.Ran()
		}
		if got != x.want {
			t.Errorf("%s: %s, want %s", x.do, got, x.want)
		}
		if s.Plain() != !s.Silent() && !strings.HasSuffix(x.do, "s") {
			t.Errorf("%s: plain %t, silent %t", x.do, s.Plain(), s.Silent())
		}
	}
}

// TestAsking: ASKING is for the next command, or for a transaction as a whole.
func TestAsking(t *testing.T) {
	s := New(true)
	ran := func(want bool) {
		t.Helper()
		if got := s.Asks(); got != want {
			t.Errorf("asks: %v; want %v", got, want)
		}
		s.Ran()
	}
	ran(false)
	s.Ask()
	if s.Plain() || s.Together() {
		t.Error("the command behind ASKING runs with others")
	}
	s.Ran() // of ASKING
	ran(true)
	ran(false)
	if !s.Plain() {
		t.Error("the session is not plain behind the command that was asked for")
	}
	s.Ask()
	s.Ran()
	s.Begin() // MULTI
	ran(true)
	ran(true) // a queued command
	s.End()   // EXEC
	ran(true)
	ran(false)
	s.Ask()
	s.Reset(true)
	ran(false)
}
