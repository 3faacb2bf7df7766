package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
)

// endedBy reports whether the server has ended a connection.
func endedBy(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil
}

func TestRefusedAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := start(t, Options{Self: 1})
		ping := func(c net.Conn) {
			t.Helper()
			if got := ask(t, c, "ping"); got != "+PONG\r\n" {
				t.Errorf("ping: %q", got)
			}
		}
		first := dial()
		ping(first)
		s.SetClientFault(fault.Client{Refuse: true})
		if !endedBy(dial()) {
			t.Error("a new connection was not refused")
		}
		ping(first)
		s.SetClientFault(fault.Client{Reset: true})
		if !endedBy(first) {
			t.Error("an open connection was not reset")
		}
		if !endedBy(dial()) {
			t.Error("a new connection was not reset")
		}
		s.SetClientFault(fault.Client{})
		ping(dial())
	})
}

// TestResetOfTCP looks at what a client of a socket sees.
func TestResetOfTCP(t *testing.T) {
	s, _ := start(t, Options{Self: 1})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	open, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if got := ask(t, open, "ping"); got != "+PONG\r\n" {
		t.Fatalf("ping: %q", got)
	}
	s.SetClientFault(fault.Client{Reset: true})
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection ended with %v; want a reset", err)
	}
	fresh, err := net.Dial("tcp", ln.Addr().String()) // the reset may come while it still dials
	if err == nil {
		defer fresh.Close()
		_, err = fresh.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the new connection ended with %v; want a reset", err)
	}
	s.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestSlowClients lets replies go out at a rate. A client that leaves, and the end of the fault, take effect meanwhile.
func TestSlowClients(t *testing.T) {
	const size = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		s, dial := start(t, Options{Self: 1})
		echo := func(c net.Conn) (took time.Duration) {
			begin := time.Now()
			go fmt.Fprintf(c, "*2\r\n$4\r\necho\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size))
			if _, err := io.ReadFull(c, make([]byte, len(fmt.Sprintf("$%d\r\n\r\n", size))+size)); err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		c := dial()
		if took := echo(c); took != 0 {
			t.Errorf("%s without a fault", took)
		}
		s.SetClientFault(fault.Client{Bandwidth: size / 4})
		if took := echo(c); took < 3900*time.Millisecond || took > 4100*time.Millisecond {
			t.Errorf("a reply of 1 MiB at 256 KiB/s took %s; want 4 s", took)
		}
		time.AfterFunc(time.Second, func() { s.SetClientFault(fault.Client{}) })
		if took := echo(c); took != time.Second {
			t.Errorf("with a fault that ends after 1 s it took %s", took)
		}
		// A client whose connection ends does not keep its goroutine.
		s.SetClientFault(fault.Client{Bandwidth: 1})
		slow := dial()
		go fmt.Fprintf(slow, "*2\r\n$4\r\necho\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size))
		time.Sleep(time.Minute)
		begin := time.Now()
		s.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %s beside a slow client", took)
		}
	})
}

// TestPausedServer pauses a server: what a client sends is answered after the pause, and Close does not wait for its
// end.
func TestPausedServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := start(t, Options{Self: 1})
		c := dial()
		s.Pause()
		s.SetClientFault(fault.Client{Bandwidth: 1 << 20}) // another fault does not end the pause
		time.AfterFunc(time.Hour, s.Resume)
		begin := time.Now()
		if got := ask(t, c, "ping"); got != "+PONG\r\n" || time.Since(begin) != time.Hour {
			t.Errorf("ping: %q after %s; want an answer after an hour", got, time.Since(begin))
		}
		late := dial()
		s.Pause()
		fmt.Fprint(late, "ping\r\n")
		late.SetReadDeadline(time.Now().Add(time.Minute))
		if line, err := bufio.NewReader(late).ReadString('\n'); err == nil {
			t.Errorf("a paused server answered %q", line)
		}
		begin = time.Now()
		s.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close of a paused server took %s", took)
		}
	})
}

// TestRefusals: commands are answered with the error in place of running, in a transaction too, and others run.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := start(t, Options{Self: 1})
		c := dial()
		one := func(command string) []fault.Refusal {
			return []fault.Refusal{{Command: command, Share: 1, Error: "BUSY no"}}
		}
		const no, aborted = "-BUSY no\r\n", "-EXECABORT Transaction discarded because of "
		for _, x := range []struct {
			refused []fault.Refusal
			asks    [][2]string
		}{
			{one("ECHO"), [][2]string{{"echo x", no}, {"ping", "+PONG\r\n"},
				{"echo", "-ERR wrong number of arguments for 'echo' command\r\n"}}},
			{one("ECHO"), [][2]string{{"multi", "+OK\r\n"}, {"echo x", no}, {"ping", "+QUEUED\r\n"},
				{"exec", aborted + "previous errors.\r\n"}, {"ping", "+PONG\r\n"}}},
			{one("EXEC"), [][2]string{{"multi", "+OK\r\n"}, {"ping", "+QUEUED\r\n"},
				{"exec", aborted[:len(aborted)-1] + ": BUSY no\r\n"}, {"ping", "+PONG\r\n"}, {"exec", no}}},
			{one("CLIENT|ID"), [][2]string{{"client id", no}, {"client getname", "$-1\r\n"}}},
			{one("CLIENT"), [][2]string{{"client id", no}, {"client getname", no}}},
			{one(""), [][2]string{{"ping", no}, {"nosuch", "-ERR unknown command 'nosuch', with args beginning with: \r\n"}}},
			{nil, [][2]string{{"ping", "+PONG\r\n"}, {"echo x", "$1\r\nx\r\n"}}},
		} {
			s.SetRefusals(x.refused)
			for _, call := range x.asks {
				if got := ask(t, c, call[0]); got != call[1] {
					t.Errorf("%v: %s: %q; want %q", x.refused, call[0], got, call[1])
				}
			}
		}
	})
	for name, want := range map[string]bool{"": true, "GET": true, "get": true, "client|list": true, "CLIENT": true,
		"GTE": false, "CLIENT|X": false} {
		if got := HasCommand(name); got != want {
			t.Errorf("HasCommand(%q) = %v", name, got)
		}
	}
}
