//go:build redisserver

package redis

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

// TestCopyToDatabase compares what COPY says of databases with a Redis Cluster's answers.
func TestCopyToDatabase(t *testing.T) {
	c := newClient(t, redistest.RedisServer(t, "--cluster-enabled", "yes"))
	d := newRegion(t)
	do := func(call string) string {
		c.send(bytes.Fields([]byte(call))...)
		return c.reply().String()
	}
	do("cluster addslotsrange 0 16383")
	for end := time.Now().Add(time.Minute); do("set {t}a 1") != "OK"; {
		if time.Now().After(end) {
			t.Fatal("redis-server's cluster is not ready")
		}
	}
	d.must(2, "set", "{t}a", "1")
	for _, from := range []string{"{t}a", "{t}no"} {
		for _, to := range []string{"{t}a", "{t}b"} {
			for _, db := range []string{"0", "1", "15", "16", "-1", "01", "x", "2147483648", "9223372036854775808"} {
				for _, more := range []string{"", " replace", " db 0", " db 2", " nope", " db"} {
					call := "copy " + from + " " + to + " db " + db + more
					if got, want := d.must(2, strings.Fields(call)...).String(), do(call); got != want {
						t.Errorf("%s: %s, want %s", call, got, want)
					}
				}
			}
		}
	}
}
