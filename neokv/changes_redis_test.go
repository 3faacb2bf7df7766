//go:build redisserver

package neokv

import (
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestRedisToolsThroughSplitsAndMerges splits and merges regions 50 times while redis-benchmark --cluster runs, which
// fails at the first error, or when a store that had no slots at its start gets some. Soon after each change redis-cli
// --cluster check finds nothing wrong. (In the moments of a change it may: it asks one store after the other for the
// slots that this store has, and a store may apply the change a little after the others.)
func TestRedisToolsThroughSplitsAndMerges(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	c := start(t, Config{InMemory: true, Regions: 4})
	check := func(when string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			command := exec.CommandContext(t.Context(), "redis-cli", "--cluster", "check", c.Addrs()[0])
			out, err := command.CombinedOutput()
			text := string(out)
			if err == nil && strings.Contains(text, "[OK] All nodes agree about slots configuration.") &&
				strings.Contains(text, "[OK] All 16384 slots covered.") && !strings.Contains(text, "[WARNING]") &&
				!strings.Contains(text, "[ERR]") {
				return
			}
			if time.Now().After(end) {
				t.Errorf("redis-cli --cluster check, 10s after %s: %v\n%s", when, err, out)
				return
			}
		}
	}
	_, port, _ := strings.Cut(c.Addrs()[0], ":")
	x := &chores{stop: make(chan struct{})}
	x.start(t, "redis-benchmark --cluster", func(int) error {
		for _, args := range []string{"-t set,get,incr,lpush,hset -P 16", "-t set,get,sadd,zadd,rpop"} {
			words := append([]string{"--cluster", "-p", port, "-n", "4000", "-c", "20", "-r", "10000", "-q"},
				strings.Fields(args)...)
			out, err := exec.CommandContext(t.Context(), "redis-benchmark", words...).CombinedOutput()
			if err != nil || strings.Contains(string(out), "rror") {
				t.Errorf("redis-benchmark: %v\n%s", err, out)
				return err
			}
		}
		return nil
	})
	check("the start")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	changeRegions(t, c, 50, rand.New(rand.NewPCG(seed, 0)), true, check)
	x.end(t)
}
