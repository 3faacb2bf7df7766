//go:build !race

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestScriptsAfterAKill: a process that was killed has forgotten the scripts that were loaded, as redis-server has, and
// not what they wrote. go-redis' Script goes on by itself.
func TestScriptsAfterAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	l := startLimited(t, "--profile", "small")
	count := redis.NewScript("return redis.call('INCR', KEYS[1])")
	for i := range 3 {
		r := redis.NewClient(&redis.Options{Addr: l.proxy})
		defer r.Close()
		key := []string{"n"}
		if err := count.EvalSha(t.Context(), r, key).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT ") {
			t.Errorf("EVALSHA after start %d: %v, want NOSCRIPT", i, err)
		}
		for j := range 5 {
			if got, err := count.Run(t.Context(), r, key).Int(); err != nil || got != 5*i+j+1 {
				t.Errorf("call %d after start %d: %d, %v", j, i, got, err)
			}
		}
		if err := count.EvalSha(t.Context(), r, key).Err(); err != nil {
			t.Errorf("EVALSHA of a script that has run: %v", err)
		}
		if err := r.Decr(t.Context(), key[0]).Err(); err != nil {
			t.Fatal(err)
		}
		l.end(syscall.SIGKILL)
		l.start()
	}
}
