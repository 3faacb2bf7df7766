package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// RedisServer starts a real redis-server without files on a free port of loopback, and returns its address. It runs
// until the test ends. args are passed on to it. If it is not installed or does not start, the test fails.
func RedisServer(t testing.TB, args ...string) (addr string) {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("tests with the tag redisserver compare with redis-server 7.0: %v", err)
	}
	const tries = 10 // another process may take a free port before redis-server does
	for try := range tries {
		port := strconv.Itoa(freePort(t))
		addr = net.JoinHostPort("127.0.0.1", port)
		all := append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)
		var log bytes.Buffer
		cmd := exec.Command(bin, all...)
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // killed, or it could not start: its log says why
		}()
		stop := func() {
			_ = cmd.Process.Kill()
			<-ended
		}
		if answers(addr, ended) {
			t.Cleanup(stop)
			return addr
		}
		stop()
		if try == tries-1 {
			t.Fatalf("redis-server %q does not answer:\n%s", all, &log)
		}
	}
	return addr
}

// answers waits until a redis-server answers a ping; it reports false when the process ends first or a minute has
// passed.
func answers(addr string, ended <-chan struct{}) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if pong(addr) {
			select {
			case <-ended: // another server answered
				return false
			default:
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false
}

func pong(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}

// freePort returns a port that nobody listens on at this moment, with room for the port of the cluster's bus 10,000
// above.
func freePort(t testing.TB) int {
	for {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		if port := ln.Addr().(*net.TCPAddr).Port; port < 1<<16-10000 {
			return port
		}
	}
}
