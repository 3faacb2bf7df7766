//go:build redisserver

package redisbenchmark

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
)

// oneSide returns a comparison of a redis-server or a Redis Cluster with itself, and the side that has its figures.
func oneSide(t *testing.T, cluster bool, args ...string) (*comparing, comparedSide) {
	t.Helper()
	l, err := ParseFlags(args)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := children.Find("redis-benchmark")
	if err != nil {
		t.Fatal(err)
	}
	c := &comparing{Options{Load: l, Durability: children.None, Dir: t.TempDir()}, tool, &Findings{}}
	p := &Pair{Threads: children.Masters}
	for _, name := range c.testNames() {
		p.Tests = append(p.Tests, &TestFigures{Test: name})
	}
	return c, comparedSide{redisCluster, children.Redis{Cluster: cluster, Durability: children.None}, cluster, &p.Peer,
		func(t *TestFigures) *SideFigures { return &t.Peer }, p}
}

// redis-benchmark --cluster counts error replies as answers. The servers tell of them.
func TestHiddenErrors(t *testing.T) {
	c, s := oneSide(t, true, "-n", "10000", "-c", "3", "set", "key:{tag}", "value", "NONSENSE")
	if err := c.measure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.pair.Tests[0].Peer; got.Errors["ERR"] != 10_000 || len(got.PerSecond) != 1 {
		t.Errorf("figures %+v, want 10,000 errors", got)
	}
}

// 10,000 requests take longer than the millisecond under which redis-benchmark prints "inf" for the rate.
func TestMisses(t *testing.T) {
	c, s := oneSide(t, false, "-n", "10000", "-c", "3", "-t", "get,set,ping_mbulk")
	if err := c.measure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tests := s.pair.Tests // in the order of redis-benchmark
	if got := tests[2].Peer; tests[2].Test != "get" || got.Reads != 10_000 || got.Misses != 0 || got.Errors != nil {
		t.Errorf("get: %+v, want 10,000 reads that found the key", got)
	}
	c, s = oneSide(t, false, "-n", "10000", "-c", "3", "-t", "get")
	if err := c.measure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.pair.Tests[0].Peer; got.Misses != 10_000 {
		t.Errorf("get alone: %+v, want 10,000 misses", got)
	}
}

// An error that redis-benchmark does not hide ends the comparison, and so does a server that dies.
func TestFailures(t *testing.T) {
	c, s := oneSide(t, false, "-n", "10", "nosuch")
	if err := c.measure(t.Context(), s); err == nil || !strings.Contains(err.Error(), "ERR unknown command") {
		t.Errorf("error %v, want that of the server", err)
	}
	err := c.with(t.Context(), s, func(ctx context.Context, r *children.Running) error {
		info, err := bench.Fields(ctx, r.Proxy(), "", "INFO", "server")
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(info["process_id"])
		if err != nil {
			return err
		}
		server, err := os.FindProcess(pid)
		if err == nil {
			err = server.Kill()
		}
		if err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("error %v, want that the server was killed", err)
	}
}
