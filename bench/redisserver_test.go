//go:build redisserver

package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

// startRedis runs a real redis-server on a free port until the test ends.
func startRedis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "redis-server at "+addr, func() error { _, err := call(addr, "PING"); return err })
	return addr
}

// call asks a server one thing.
func call(addr string, args ...string) (any, error) {
	return (&target{dial: tcp}).ask(context.Background(), addr, args...)
}

// eventually waits for a condition, for ten seconds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err = f(); err == nil {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

// startRedisCluster runs a Redis Cluster of three masters.
func startRedisCluster(t *testing.T) (addrs []string) {
	t.Helper()
	for i := range 3 {
		// The default bus port, port + 10000, can be beyond the range.
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, bus, _ := net.SplitHostPort(ln.Addr().String())
		ln.Close()
		addr := startRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-require-full-coverage", "no")
		addrs = append(addrs, addr)
		first, last := i*slots/3, (i+1)*slots/3-1
		if _, err := call(addr, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last)); err != nil {
			t.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(addr)
		for _, to := range addrs[:i] {
			if _, err := call(to, "CLUSTER", "MEET", host, port, bus); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, addr := range addrs {
		eventually(t, "cluster at "+addr, func() error {
			v, err := call(addr, "CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if s := v.(string); !strings.Contains(s, "cluster_state:ok") || !strings.Contains(s, "cluster_slots_ok:16384") {
				return fmt.Errorf("%s", s)
			}
			return nil
		})
	}
	return addrs
}

func runFor(t *testing.T, o Options) (results.Summary, *results.Result) {
	t.Helper()
	var buf bytes.Buffer
	w := results.NewWriter(&buf)
	s, err := Run(context.Background(), o, w)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := results.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := results.PrintTable(&table, w.Header(), s); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	return s, rec
}

func TestRealRedis(t *testing.T) {
	addr := startRedis(t)
	for _, o := range []Options{
		{Workload: "ycsb-a"},
		{Workload: "ycsb-a", Rate: 5000},
		{Workload: "set", Pipeline: 16},
		{Workload: "get", Pipeline: 16},
	} {
		o.Targets, o.Duration, o.Warmup, o.Records, o.ValueSize, o.Seed = []string{addr}, 300*time.Millisecond, 100*time.Millisecond, 10_000, 100, 1
		s, rec := runFor(t, o)
		if s.Total.Count == 0 || len(s.Errors) > 0 {
			t.Errorf("%s: %d operations, errors %v", o.Workload, s.Total.Count, s.Errors)
		}
		for _, op := range s.Ops {
			if op.Misses > 0 {
				t.Errorf("%s: %s missed %d times", o.Workload, op.Name, op.Misses)
			}
		}
		if v, err := call(addr, "DBSIZE"); o.Workload != "set" && (err != nil || v.(int64) < 10_000) {
			t.Errorf("%s: DBSIZE %v, %v", o.Workload, v, err)
		}
		if rec.Header.Target.Cluster || rec.Header.Target.Version == "" {
			t.Errorf("target is said to be %+v", rec.Header.Target)
		}
	}
}

func TestRealRedisCluster(t *testing.T) {
	addrs := startRedisCluster(t)
	o := Options{
		Targets: addrs[:1], Workload: "ycsb-a", Pipeline: 16, Duration: time.Second, Records: 10_000, ValueSize: 100, Seed: 1,
		Progress: func(tick Tick) { t.Log(tick) },
	}
	s, rec := runFor(t, o)
	if s.Total.Count == 0 || len(s.Errors) > 0 || s.Ops[0].Misses > 0 || s.Moved > 0 {
		t.Errorf("%d operations, errors %v, %d misses, %d moved", s.Total.Count, s.Errors, s.Ops[0].Misses, s.Moved)
	}
	if !rec.Header.Target.Cluster || len(rec.Header.Target.Nodes) != 3 {
		t.Errorf("target is said to be %+v", rec.Header.Target)
	}
	keys := int64(0)
	for _, addr := range addrs {
		v, err := call(addr, "DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		keys += v.(int64)
	}
	if keys != 10_000 {
		t.Errorf("%d keys in the cluster, want 10000", keys)
	}
}
