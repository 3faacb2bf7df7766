package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/profiles"
)

// patience bounds every wait of these tests.
const patience = time.Minute

var readyForm = regexp.MustCompile(
	`^NEOKV_READY port=(\d+) ports=(\d+(?:,\d+)*)(?: replicas=\d+(?:,\d+)*)? proxy=(\d+) stores=(\d+) regions=(\d+) in=\d+\.\d\ds ` +
		`control=(\d+)\n$`)

// serving is a `neokv serve` that runs in this process.
type serving struct {
	ready          []string // the ready line's fields: port, ports, proxy, stores, regions, control
	stdout, stderr *output
	interrupt      func()
	status         chan int
}

// TestServeReplicas: with redis.follower_read the ready line and ctl status have the ports of the second addresses.
func TestServeReplicas(t *testing.T) {
	runtime := t.TempDir()
	s := startServeIn(t, []string{"XDG_RUNTIME_DIR=" + runtime}, "--mem", "--port", "0", "--set", "redis.follower_read=true")
	ports := regexp.MustCompile(` replicas=(\d+),(\d+),(\d+) `).FindStringSubmatch(s.stdout.String())
	if ports == nil {
		t.Fatalf("ready line %q; want the ports of three replicas in it", s.stdout)
	}
	status, table, _ := ctl(runtime, "status")
	_, text, _ := ctl(runtime, "status", "--json")
	for i, port := range ports[1:] {
		addr := fmt.Sprintf("127.0.0.1:%s, replica %s", strings.Split(s.ready[1], ",")[i], port)
		if status != 0 || !strings.Contains(table, addr) {
			t.Errorf("ctl status: %d, %q; want %q in it", status, table, addr)
		}
		if want := `"replica_addr": "127.0.0.1:` + port; !strings.Contains(text, want) {
			t.Errorf("ctl status --json: %q; want %q in it", text, want)
		}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
		defer client.Close()
		if got := client.Info(t.Context(), "replication").Val(); !strings.Contains(got, "role:slave") {
			t.Errorf("INFO replication at port %s: %q", port, got)
		}
	}
	s.stop(t)
}

// startServe runs serve with the flags given until its ready line. The test ends it with stop.
func startServe(t *testing.T, args ...string) *serving {
	t.Helper()
	return startServeIn(t, nil, args...)
}

// startServeIn is startServe with an environment.
func startServeIn(t *testing.T, env []string, args ...string) *serving {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.Background())
	t.Cleanup(interrupt)
	s := &serving{stdout: newOutput(), stderr: newOutput(), interrupt: interrupt, status: make(chan int, 1)}
	go func() {
		s.status <- run(ctx, process{env, strings.NewReader(""), s.stdout, s.stderr},
			append([]string{"serve", "--profile", "small"}, args...))
	}()
	bound, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !s.stdout.waitFor(bound, "\n") {
		t.Fatalf("serve %v: not ready; stderr %q", args, s.stderr)
	}
	if s.ready = readyForm.FindStringSubmatch(s.stdout.String()); s.ready == nil {
		t.Fatalf("serve %v: ready line %q, want the form %s", args, s.stdout, readyForm)
	}
	s.ready = s.ready[1:]
	return s
}

// stop interrupts as a signal does and checks that serve ended well and printed nothing more.
func (s *serving) stop(t *testing.T) {
	t.Helper()
	s.interrupt()
	select {
	case status := <-s.status:
		if status != statusDone || strings.Count(s.stdout.String(), "\n") != 1 {
			t.Errorf("serve ended with %d, stdout %q, stderr %q; want 0 and the ready line alone", status, s.stdout,
				s.stderr)
		}
	case <-time.After(patience):
		t.Fatal("serve did not end")
	}
}

func (s *serving) clusterClient(t *testing.T) *redis.ClusterClient {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + s.ready[0]}})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestServe(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0", "--regions", "5")
	if ports := strings.Split(s.ready[1], ","); len(ports) != 3 || ports[0] != s.ready[0] || s.ready[3] != "3" ||
		s.ready[4] != "5" {
		t.Errorf("ready line %q: want 3 stores, their ports, 5 regions", s.stdout)
	}
	if !strings.Contains(s.stderr.String(), "neokv: data in memory, gone at exit\n") {
		t.Errorf("stderr %q: want to be told that the data is in memory", s.stderr)
	}
	ctx := t.Context()
	c := s.clusterClient(t)
	proxy := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.ready[2]})
	defer proxy.Close()
	for i := range 50 {
		key := fmt.Sprint("key", i)
		if err := c.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := proxy.Get(ctx, key).Int(); err != nil || got != i {
			t.Fatalf("GET %s on the proxy port = %d, %v; want %d", key, got, err, i)
		}
	}
	s.stop(t)
}

func TestServeRemovesTheTemporaryFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := startServe(t, "--port", "0")
	said := regexp.MustCompile(`neokv: data in (\S+), removed at exit; --dir keeps it\n`).FindStringSubmatch(
		s.stderr.String())
	if said == nil {
		t.Fatalf("stderr %q: want to be told where the data is", s.stderr)
	}
	if _, err := os.Stat(said[1]); err != nil {
		t.Error(err)
	}
	s.stop(t)
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind in %s: %v, %v", os.TempDir(), left, err)
	}
}

func TestServeKeepsTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	ctx := t.Context()
	s := startServe(t, "--dir", dir, "--port", "0", "--regions", "3")
	// serve says how to connect, and in a boot that takes longer than a second what it waits for.
	expected := regexp.MustCompile(`neokv: (waiting for .* \(\d+s\)|try redis-cli .*)\n`)
	if said := expected.ReplaceAllString(s.stderr.String(), ""); said != "" {
		t.Errorf("stderr %q: want nothing to say", said)
	}
	if err := s.clusterClient(t).Set(ctx, "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	second := neokvRun(t, nil, "serve", "--profile", "small", "--dir", dir, "--port", "0")
	wantOneLine(t, "a second process on the folder", second, statusFailed, dir)
	s.stop(t)

	differs := neokvRun(t, nil, "serve", "--profile", "small", "--dir", dir, "--port", "0", "--regions", "6")
	wantOneLine(t, "another shape", differs, differs.status, "3", "6")
	if differs.status == statusDone {
		t.Error("another shape than recorded was taken")
	}

	s = startServe(t, "--dir", dir, "--port", "0") // the recorded shape, though the profile says 4 regions
	if s.ready[4] != "3" {
		t.Errorf("reopened with %s regions, want the 3 recorded", s.ready[4])
	}
	if got, err := s.clusterClient(t).Get(ctx, "kept").Result(); err != nil || got != "yes" {
		t.Errorf("GET after a restart = %q, %v; want yes", got, err)
	}
	s.stop(t)
}

func TestServeRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, err := net.SplitHostPort(busy.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		args   []string
		status int
		says   string
	}{
		{"a taken port", []string{"--mem", "--stores", "1", "--port", port, "--proxy-port", "0"}, statusFailed, port},
		{"a taken proxy port", []string{"--mem", "--port", "0", "--proxy-port", port}, statusFailed, port},
		{"a folder that is a file", []string{"--dir", filepath.Join(file, "data"), "--port", "0"}, statusFailed, file},
		{"an address wider than loopback", []string{"--mem", "--port", "0", "--bind", "0.0.0.0"}, statusInvalid,
			"0.0.0.0"},
		{"no address", []string{"--mem", "--port", "0", "--bind", "here"}, statusInvalid, "here"},
	} {
		wantOneLine(t, c.what, neokvRun(t, nil, append([]string{"serve", "--profile", "small"}, c.args...)...),
			c.status, c.says)
	}
}

// wantOneLine checks that a verb gave up with one line of ours that has all the parts.
func wantOneLine(t *testing.T, what string, r result, status int, parts ...string) {
	t.Helper()
	if r.status != status || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 ||
		!strings.HasPrefix(r.stderr, "neokv: ") {
		t.Errorf("%s: status %d, stdout %q, stderr %q; want %d and one line", what, r.status, r.stdout, r.stderr,
			status)
	}
	for _, part := range parts {
		if !strings.Contains(r.stderr, part) {
			t.Errorf("%s: stderr %q does not name %q", what, r.stderr, part)
		}
	}
}

func TestServeStoppedWhileItBoots(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var stdout, stderr bytes.Buffer
	if status := run(ctx, process{nil, nil, &stdout, &stderr},
		[]string{"serve", "--mem", "--port", "0"}); status != statusDone || stdout.Len() > 0 || stderr.Len() > 0 {
		t.Errorf("status %d, stdout %q, stderr %q; want 0 and silence", status, stdout.String(), stderr.String())
	}
}

// Every embedded profile boots, serves, and finds its data again.
func TestServeEveryProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	for _, name := range profiles.Names() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for range 2 {
				s := startServe(t, "--profile", name, "--dir", dir, "--port", "0")
				if n, err := s.clusterClient(t).Append(t.Context(), "key", "x").Result(); err != nil || n == 0 {
					t.Errorf("APPEND = %d, %v", n, err)
				}
				s.stop(t)
			}
			s := startServe(t, "--profile", name, "--dir", dir, "--port", "0")
			if got, err := s.clusterClient(t).Get(t.Context(), "key").Result(); err != nil || got != "xx" {
				t.Errorf("GET after two restarts = %q, %v; want xx", got, err)
			}
			s.stop(t)
		})
	}
}

// TestServeWithoutAStore: serve starts without a store whose folder is gone, says so, and refuses to with two gone.
func TestServeWithoutAStore(t *testing.T) {
	dir := t.TempDir()
	s := startServe(t, "--dir", dir, "--port", "0")
	if err := s.clusterClient(t).Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	gone := filepath.Join(dir, "store-2")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	s = startServe(t, "--dir", dir, "--port", "0")
	bound, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	says := "neokv: store 2 takes no part: its folder " + gone + " is missing; put it back"
	if !s.stderr.waitFor(bound, says) || strings.Count(s.stderr.String(), says) != 1 {
		t.Errorf("stderr %q; want %q once", s.stderr, says)
	}
	if got, err := s.clusterClient(t).Get(t.Context(), "kept").Result(); err != nil || got != "yes" {
		t.Errorf("GET = %q, %v; want yes", got, err)
	}
	proxy := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.ready[2]})
	defer proxy.Close()
	info, err := proxy.Info(t.Context(), "neokv").Result()
	if want := "store_2_state:failed: store 2 takes no part: its folder " + gone; !strings.Contains(info, want) {
		t.Errorf("INFO neokv on the proxy port: %v; want a line with %q in %s", err, want, info)
	}
	s.stop(t)
	if err := os.RemoveAll(filepath.Join(dir, "store-3")); err != nil {
		t.Fatal(err)
	}
	r := neokvRun(t, nil, "serve", "--profile", "small", "--dir", dir, "--port", "0")
	for _, want := range []string{"1 of the 3 stores", gone + " is missing", "store-3 is missing"} {
		if r.status != statusFailed || !strings.Contains(r.stderr, want) {
			t.Errorf("with two stores gone: status %d, stderr %q; want %d and %q", r.status, r.stderr, statusFailed,
				want)
		}
	}
}

// TestWhereRedisCliConnects has addresses listened on, and what reaches them from this machine: all addresses are those
// of IPv4, too, also where a listener names them as IPv6 does.
func TestWhereRedisCliConnects(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7001": "-p 7001", "0.0.0.0:7001": "-p 7001", "[::]:7001": "-p 7001",
		"[::1]:7001": "-h ::1 -p 7001", "10.1.2.3:7001": "-h 10.1.2.3 -p 7001",
	} {
		if got := cliFlags(addr); got != want {
			t.Errorf("redis-cli to %s: %s; want %s", addr, got, want)
		}
	}
}
