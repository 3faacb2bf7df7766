package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// startWithFiles starts the program with a limit of file descriptors that it may not raise.
func startWithFiles(t *testing.T, limit int, args ...string) *started {
	t.Helper()
	return startCommand(t, exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, limit),
		"sh", os.Args[0]}, args...)...), startPlain)
}

// startPlain starts a program without root's right to exceed hard limits.
func startPlain(c *exec.Cmd) error {
	errs := make(chan error)
	go func() {
		// The thread, which loses the right, ends with the goroutine. Who is not root has no such right.
		runtime.LockOSThread()
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_RESOURCE, 0, 0, 0)
		errs <- c.Start()
	}()
	return <-errs
}

// TestFewDescriptors starts clusters with limits of file descriptors, and lets more clients come than there are
// descriptors. Either the start is refused, with the number that is needed, or no store fails, clients that were there
// are served, and so are new ones once others have gone.
func TestFewDescriptors(t *testing.T) {
	needs := regexp.MustCompile(
		`the limit of \d+ file descriptors is not enough for 3 stores and 16 clients, which need (\d+);`)
	serve := func(limit int) *started {
		return startWithFiles(t, limit, "serve", "--port", "0", "--dir", t.TempDir())
	}
	least := 0
	for _, limit := range []int{64, 256} {
		p := serve(limit)
		status := p.status(t) // it has printed all when it has ended
		said := needs.FindStringSubmatch(p.stderr.String())
		if status != statusFailed || len(said) == 0 {
			t.Fatalf("limit %d: %q, status %d, %q; want it refused with the number needed", limit, p.line, status,
				p.stderr.String())
		}
		least, _ = strconv.Atoi(said[1])
	}
	p := serve(least - 1)
	if status := p.status(t); status != statusFailed {
		t.Errorf("limit %d, one less than needed: status %d", least-1, status)
	}
	for _, limit := range []int{least, 1024, 4096} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			p := serve(limit)
			p.fields(t)
			crowd(t, p, limit)
			p.Process.Signal(unix.SIGTERM)
			status := p.status(t) // it has printed all when it has ended
			if said := p.stderr.String(); status != statusDone ||
				!strings.Contains(said, "redis.max_clients has been reduced to ") ||
				!strings.Contains(said, fmt.Sprintf("because of the limit of %d file descriptors", limit)) {
				t.Errorf("status %d, %s; want it to say that clients are fewer", status, said)
			}
		})
	}
}

// crowd connects more clients than the program has descriptors, and writes meanwhile.
func crowd(t *testing.T, p *started, limit int) {
	t.Helper()
	ready := p.fields(t)
	first := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ready["proxy"], PoolSize: 1})
	defer first.Close()
	if err := first.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ports := append(strings.Split(ready["ports"], ","), ready["proxy"])
	var idle []net.Conn
	for i := range limit + 100 {
		nc, err := net.Dial("tcp", "127.0.0.1:"+ports[i%len(ports)])
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		idle = append(idle, nc)
	}
	last := idle[len(idle)-1]
	last.SetReadDeadline(time.Now().Add(patience))
	if said, err := io.ReadAll(last); string(said) != "-ERR max number of clients reached\r\n" {
		t.Errorf("the last connection was told %q, %v", said, err)
	}
	value := strings.Repeat("v", 100_000)
	for i := range 600 { // so that memtables are flushed, logs changed and tables merged
		if err := first.Set(t.Context(), fmt.Sprint("key", i%200), value, 0).Err(); err != nil {
			t.Fatalf("SET %d: %v", i, err)
		}
	}
	for i := range 200 {
		if got, err := first.Get(t.Context(), fmt.Sprint("key", i)).Result(); err != nil || got != value {
			t.Fatalf("GET %d: %d bytes, %v", i, len(got), err)
		}
	}
	info, err := first.Info(t.Context(), "neokv").Result()
	if err != nil || strings.Count(info, "_state:ok\r\n") != 3 {
		t.Errorf("%v, want three stores that are ok:\n%s", err, info)
	}
	for _, nc := range idle {
		nc.Close()
	}
	second := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ready["proxy"], PoolSize: 1, MaxRetries: 100})
	defer second.Close()
	if err := second.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Errorf("after the others have gone: %v", err)
	}
}
