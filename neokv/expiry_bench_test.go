package neokv

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

var expiryKeys = flag.Int("expiry.keys", 1_000_000, "how many keys expire in BenchmarkExpiry")

// BenchmarkExpiry has a million keys expire at one instant, on disk, while clients read and write others on a schedule, and measures how
// long the keys take to vanish from all disks and what that does to the clients' response times:
//
//	go test ./neokv -run '^$' -bench Expiry -benchtime 1x
func BenchmarkExpiry(b *testing.B) {
	const clients, pause, calm = 32, 32 * time.Millisecond, 10 * time.Second // 1,000 operations a second
	for b.Loop() {
		c, err := Start(b.Context(), Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		at := time.Now().Add(time.Duration(*expiryKeys)*40*time.Microsecond + calm)
		load(b, c, at)
		b.Logf("loaded, %s left", time.Until(at))
		if late := calm - time.Until(at); late > 0 {
			b.Logf("the load took %s longer than planned: keys have expired, or will, during the baseline", late)
		}

		var mu sync.Mutex
		var before, during []time.Duration
		over := make(chan struct{})
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				nc, err := c.Dial(b.Context(), c.ProxyAddr())
				if err != nil {
					b.Error(err)
					return
				}
				defer nc.Close()
				w, random := newWire(nc), rand.New(rand.NewPCG(1, uint64(i)))
				for next := time.Now().Add(pause * time.Duration(i) / clients); ; next = next.Add(pause) {
					select {
					case <-over:
						return
					case <-time.After(time.Until(next)):
					}
					args := []string{"GET", "f" + strconv.Itoa(random.IntN(10_000))}
					if random.IntN(2) == 0 {
						args = []string{"SET", args[1], "some value"}
					}
					if _, err := w.call(args...); err != nil {
						b.Error(err)
						return
					}
					took := time.Since(next)
					mu.Lock()
					if next.Before(at) {
						before = append(before, took)
					} else {
						during = append(during, took)
					}
					mu.Unlock()
				}
			})
		}
		expired := func() (n int) {
			for _, node := range c.nodes {
				for _, r := range node.store.Load().Counters().Regions {
					n += int(r.ExpiredKeys.Load())
				}
			}
			return n
		}
		for expired() < *expiryKeys && time.Since(at) < 5*time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		vanished := time.Since(at)
		close(over)
		wg.Wait()
		if got := expired(); got != *expiryKeys {
			b.Errorf("%d of %d keys deleted after %s", got, *expiryKeys, vanished)
		}
		quiet, loud := percentile(before, 99), percentile(during, 99)
		b.ReportMetric(vanished.Seconds(), "s-to-vanish")
		b.ReportMetric(float64(quiet.Microseconds()), "p99-before-us")
		b.ReportMetric(float64(loud.Microseconds()), "p99-during-us")
		b.ReportMetric(float64(loud)/float64(max(1, quiet)), "p99-ratio")
		b.Logf("%d operations before, %d during; p50 %s and %s", len(before), len(during), percentile(before, 50), percentile(during, 50))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func percentile(x []time.Duration, p int) time.Duration {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[min(len(x)-1, len(x)*p/100)]
}

// load writes the keys that expire at an instant, in pipelines.
func load(b *testing.B, c *Cluster, at time.Time) {
	const loaders, pipeline = 8, 500
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			nc, err := c.Dial(b.Context(), c.ProxyAddr())
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			pxat := strconv.FormatInt(at.UnixMilli(), 10)
			ok := bytes.Repeat([]byte("+OK\r\n"), pipeline)
			reply := make([]byte, len(ok))
			var out []byte
			for k := i; k < *expiryKeys; {
				n := 0
				for out = out[:0]; n < pipeline && k < *expiryKeys; n, k = n+1, k+loaders {
					key := "x" + strconv.Itoa(k)
					out = fmt.Appendf(out, "*5\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$5\r\nvalue\r\n$4\r\nPXAT\r\n$%d\r\n%s\r\n", len(key), key, len(pxat), pxat)
				}
				if _, err := nc.Write(out); err != nil {
					b.Error(err)
					return
				}
				want := ok[:n*len("+OK\r\n")]
				if _, err := io.ReadFull(nc, reply[:len(want)]); err != nil || !bytes.Equal(reply[:len(want)], want) {
					b.Errorf("load: %q, %v", reply[:min(80, len(want))], err)
					return
				}
			}
		})
	}
	wg.Wait()
}
