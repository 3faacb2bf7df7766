//go:build redisserver

package children

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/bench"
)

func refuses(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func TestRedis(t *testing.T) {
	for _, durability := range Durabilities {
		dir := t.TempDir()
		r := begin(t, dir, Redis{Durability: durability})
		if r.Proxy() != r.Addrs()[0] {
			t.Errorf("addresses %v, %s", r.Addrs(), r.Proxy())
		}
		ask(t, r, r.Proxy(), "SET", "key", "value")
		got := fmt.Sprint(ask(t, r, r.Proxy(), "CONFIG", "GET", "append[of]*[ny]*"))
		want := map[Durability]string{None: "appendonly no", EverySec: "everysec", Always: "always"}[durability]
		if !strings.Contains(got, want) || durability != None && !strings.Contains(got, "appendonly yes") {
			t.Errorf("%s: settings %s, want %s", durability, got, want)
		}
		if err := r.Stop(); err != nil || !isEmpty(t, dir) {
			t.Errorf("%s: stopped with %v", durability, err)
		}
	}
}

func TestRedisCluster(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, dir, Redis{Cluster: true, Durability: None})
	if len(r.Addrs()) != 6 || r.Proxy() != "" {
		t.Errorf("addresses %v, %q", r.Addrs(), r.Proxy())
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.Addrs()[:1]})
	defer c.Close()
	for i := range 100 {
		if err := c.Set(t.Context(), fmt.Sprint("key", i), "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for i, addr := range r.Addrs() {
		role := ask(t, r, addr, "ROLE").([]any)[0]
		if want := []any{"master", "slave"}[i/3]; role != want {
			t.Errorf("%s is a %s, want %s", addr, role, want)
		}
		if i < 3 {
			total += ask(t, r, addr, "DBSIZE").(int64)
		}
	}
	if total != 100 {
		t.Errorf("masters have %d keys, want 100", total)
	}
	existing := begin(t, dir, Existing{Addrs: r.Addrs()})
	if err := existing.Stop(); err != nil {
		t.Error(err)
	}
	if use, err := r.Use(); err != nil || use.Memory < 6<<20 {
		t.Errorf("uses %+v, %v", use, err)
	}
	if err := r.Kill(); err != nil || r.Err() != nil || !isEmpty(t, dir) || !refuses(r.Addrs()[5]) {
		t.Errorf("killed with %v, %v", err, r.Err())
	}
}

// Further settings reach a redis-server.
func TestRedisSettings(t *testing.T) {
	r := begin(t, t.TempDir(), Redis{Durability: None, Args: []string{"--maxclients", "77"}})
	if got := fmt.Sprint(ask(t, r, r.Proxy(), "CONFIG", "GET", "maxclients")); !strings.Contains(got, "77") {
		t.Errorf("maxclients: %s, want 77", got)
	}
}

// Another process may take a port between the moment that it was free and the start of the server.
func TestPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, taken, _ := net.SplitHostPort(ln.Addr().String())
	once := filepath.Join(t.TempDir(), "once")
	r := begin(t, t.TempDir(), Redis{Durability: None, Program: script(t, "if mkdir "+once+"; then\n"+
		"exec redis-server --bind 127.0.0.1 --port "+taken+"\nfi\nexec redis-server \"$@\"\n")})
	if got := ask(t, r, r.Proxy(), "PING"); got != "PONG" || len(r.Addrs()) != 1 || len(r.children) != 1 {
		t.Errorf("PING = %v, addresses %v", got, r.Addrs())
	}
	_, err = Start(t.Context(), t.TempDir(), Redis{Durability: None, Program: script(t,
		"exec redis-server --bind 127.0.0.1 --port "+taken+"\n")})
	if err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Errorf("all ports are taken: %v", err)
	}
}

// TestDeadNode kills a node of a Redis Cluster and a store of a NeoKV. CLUSTER NODES has the same of both, but for the
// flag of the stand-in's own store: a dead node of Redis says nothing. So has CLUSTER SHARDS.
func TestDeadNode(t *testing.T) {
	varies := regexp.MustCompile(`^[0-9a-f]{40} \S+:\d+@\d+(,\S*)? (\S+) - \d+ \d+ \d+ (\S+)$`)
	// dead waits until a node says of another, or of its own store, that it has failed and is disconnected, and returns
	// the flags. A redis-server says connected for a moment whenever it dials again.
	dead := func(r *Running, asked, of string) string {
		t.Helper()
		_, port, _ := net.SplitHostPort(of)
		said := ""
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			said = ask(t, r, asked, "CLUSTER", "NODES").(string)
			for line := range strings.Lines(said) {
				found := varies.FindStringSubmatch(strings.TrimSpace(line))
				if found == nil || found[3] != "disconnected" || !strings.Contains(line, ":"+port+"@") ||
					!slices.Contains(strings.Split(found[2], ","), "fail") {
					continue
				}
				shards := fmt.Sprint(ask(t, r, asked, "CLUSTER", "SHARDS"))
				if !regexp.MustCompile(`port ` + port + ` [^\]]* health fail`).MatchString(shards) {
					t.Errorf("%s, CLUSTER SHARDS of %s: %s", asked, of, shards)
				}
				return found[2]
			}
		}
		t.Errorf("%s, CLUSTER NODES of %s: %s", asked, of, said)
		return ""
	}
	theirs := begin(t, t.TempDir(), Redis{Cluster: true, Durability: None,
		Args: []string{"--cluster-node-timeout", "1000"}})
	theirs.children[0].kill()
	want := dead(theirs, theirs.Addrs()[1], theirs.Addrs()[0])

	ours := begin(t, t.TempDir(), NeoKV{Program: neokv(t), Profile: "small", InMemory: true})
	line, err := ours.children[0].line(readyWord)
	if err != nil {
		t.Fatal(err)
	}
	_, control, _ := strings.Cut(line, "control=")
	if out, err := exec.Command(neokv(t), "ctl", "--control", control, "kill", "2").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for i, prefix := range []string{"", "myself,", ""} {
		if got := dead(ours, ours.Addrs()[i], ours.Addrs()[1]); got != prefix+want {
			t.Errorf("store %d says %q of the dead one, redis-server %q", i+1, got, want)
		}
	}
	// The stand-in redirects a key of its own store.
	for key := range 100 {
		_, err := bench.Ask(t.Context(), ours.Addrs()[1], "", "GET", fmt.Sprint(key))
		if err == nil || !strings.Contains(err.Error(), ": MOVED ") {
			t.Fatalf("GET %d at the stand-in: %v", key, err)
		}
	}
}
