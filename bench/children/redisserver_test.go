//go:build redisserver

package children

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
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
