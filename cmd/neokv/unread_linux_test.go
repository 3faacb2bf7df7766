//go:build !race

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/settings"
)

// TestClientsThatDoNotRead has 400 clients ask for much and read nothing, or send much and never finish. The process
// then holds no more memory than it did before, twice what clients may, and caches, which fill; no leader changes, and
// other clients are served. The test logs how fast.
func TestClientsThatDoNotRead(t *testing.T) {
	const clients, probes = 400, 300
	for _, mode := range []string{"--mem", "--port=0"} {
		t.Run(mode, func(t *testing.T) {
			l := startLimited(t, mode, "--set", "redis.leaderless_wait=60s")
			good := client(l.proxy)
			defer good.Close()
			ctx := t.Context()
			value := strings.Repeat("v", 100_000)
			many := "MGET"
			for i := range 50 {
				key := fmt.Sprintf("k%d", i)
				_, err := good.Pipelined(ctx, func(p redis.Pipeliner) error {
					p.Set(ctx, key, value, 0)
					p.Set(ctx, "{a}"+key, value, 0)
					p.RPush(ctx, "list", value)
					p.HSet(ctx, "hash", key, value)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				many += " {a}" + key
			}
			before, _ := memoryOf(l.cmd.Process.Pid, "VmRSS")
			changes := l.leaderChanges()
			k := settings.Default()
			most := before + int64(2*k.Redis.ClientMemory+k.Engine.BlockCache+k.Engine.RowCache)
			var gets strings.Builder
			for i := range 50 {
				fmt.Fprintf(&gets, "GET k%d\r\n", i)
			}
			for _, c := range []struct{ name, sent string }{
				{"nothing", ""},
				{"a pipeline of GET", gets.String()},
				{"MGET", many + "\r\n"},
				{"pipelines of MGET", strings.Repeat(many+"\r\n", 20)},
				{"LRANGE", strings.Repeat("LRANGE list 0 -1\r\n", 20)},
				{"HGETALL", strings.Repeat("HGETALL hash\r\n", 20)},
				{"SORT", strings.Repeat("SORT list ALPHA\r\n", 20)},
				{"half a command", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n" + strings.Repeat(value, 50)},
				{
					"a pipeline and half a command",
					strings.Repeat("*1\r\n$4\r\nPING\r\n", 1000) + "*2\r\n$4\r\nPING\r\n$2",
				},
			} {
				l.peakSince() // forgets what was
				var sending sync.WaitGroup
				var open []net.Conn
				for range clients {
					nc, err := net.Dial("tcp", l.proxy)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, nc)
					sending.Go(func() { io.WriteString(nc, c.sent) })
				}
				took := make([]time.Duration, probes)
				for i := range took {
					begin := time.Now()
					err := good.Set(ctx, "small", i, 0).Err()
					if err == nil && i%2 == 1 {
						err = good.Get(ctx, "small").Err()
					}
					if err != nil {
						t.Fatalf("%s: %v", c.name, err)
					}
					took[i] = time.Since(begin)
				}
				for _, nc := range open {
					nc.Close()
				}
				sending.Wait()
				slices.Sort(took)
				peak := l.peakSince()
				at := func(i int) time.Duration { return took[i].Round(10 * time.Microsecond) }
				t.Logf("%s: %d MiB, %d before; SET and GET of others p50 %s, p99 %s, max %s",
					c.name, peak>>20, before>>20, at(probes/2), at(probes*99/100), at(probes-1))
				if peak > most {
					t.Errorf("%s: the process held %d MiB, want at most %d", c.name, peak>>20, most>>20)
				}
			}
			if after := l.leaderChanges(); after != changes {
				t.Errorf("%d changes of leader", after-changes)
			}
			if !l.check() {
				t.FailNow()
			}
		})
	}
}

// client waits as long as a busy machine may take.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true, ReadTimeout: silence})
}

// peakSince is the most that the process has held since the last call.
func (l *limited) peakSince() int64 {
	l.Helper()
	most, _ := memoryOf(l.cmd.Process.Pid, "VmHWM")
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", l.cmd.Process.Pid), []byte("5"), 0); err != nil {
		l.Fatal(err)
	}
	return most
}

var leaderChangesForm = regexp.MustCompile(`\nleader_changes:(\d+)\r`)

// leaderChanges adds up what all stores have counted.
func (l *limited) leaderChanges() (n int) {
	l.Helper()
	for _, port := range l.ports {
		c := client("127.0.0.1:" + port)
		info, err := c.Info(l.Context(), "neokv").Result()
		c.Close()
		count := leaderChangesForm.FindStringSubmatch(info)
		if count == nil {
			l.Fatalf("INFO neokv: %v, %q", err, info)
		}
		more, _ := strconv.Atoi(count[1])
		n += more
	}
	return n
}
