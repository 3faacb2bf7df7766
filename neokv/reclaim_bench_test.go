package neokv

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	reclaimLarge = flag.Int("reclaim.large", 5, "hashes of 100,000 fields in BenchmarkReclaim")
	reclaimSmall = flag.Int("reclaim.small", 50_000, "hashes of 10 fields in BenchmarkReclaim")
)

// BenchmarkReclaim fills hashes on disk, deletes them all at once while clients read and write other keys on a schedule, and measures what
// the deletion costs, how long it takes until their elements are deleted on all stores and until 95 % of the space is back, and what that does to
// the clients' response times:
//
//	go test ./neokv -run '^$' -bench Reclaim -benchtime 1x
func BenchmarkReclaim(b *testing.B) {
	const calm, patience, fields, value = 10 * time.Second, 2 * time.Minute, 100_000, 100
	for b.Loop() {
		dir := b.TempDir()
		c, err := Start(b.Context(), Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		empty := folderMB(b, dir)
		var keys []string
		for i := range *reclaimLarge {
			keys = append(keys, "large"+strconv.Itoa(i))
		}
		fillHashes(b, c, keys, fields, value)
		large := len(keys)
		for i := range *reclaimSmall {
			keys = append(keys, "small"+strconv.Itoa(i))
		}
		fillHashes(b, c, keys[large:], 10, value)
		orphans := func() (n int64) {
			for _, node := range c.nodes {
				for _, r := range node.store.Load().Counters().Regions {
					n += r.Orphans.Elements.Load()
				}
			}
			return n
		}
		tables := func() (mb float64) {
			for _, node := range c.nodes {
				mb += float64(node.store.Load().Engine().Metrics().TableBytes) / 1e6
			}
			return mb
		}
		var mu sync.Mutex
		var times [2][]time.Duration
		now := 0
		stop := clients(b, c, func(took time.Duration) {
			mu.Lock()
			times[now] = append(times[now], took)
			mu.Unlock()
		})
		time.Sleep(calm)
		full := folderMB(b, dir)
		fullTables := tables()
		mu.Lock()
		now = 1
		mu.Unlock()

		nc, err := c.Dial(b.Context(), c.ProxyAddr())
		if err != nil {
			b.Fatal(err)
		}
		w := newWire(nc)
		call := func(args ...string) time.Duration {
			begin := time.Now()
			if _, err := w.call(args...); err != nil {
				b.Fatal(err)
			}
			return time.Since(begin)
		}
		var ofStrings, ofHashes []time.Duration
		for _, key := range keys[:large] {
			for i := range 20 {
				call("SET", "string"+strconv.Itoa(i), "v")
				ofStrings = append(ofStrings, call("DEL", "string"+strconv.Itoa(i)))
			}
			ofHashes = append(ofHashes, call("DEL", key))
		}
		for rest := keys[large:]; len(rest) > 0; {
			n := min(500, len(rest))
			call(append([]string{"DEL"}, rest[:n]...)...)
			rest = rest[n:]
		}
		nc.Close()

		deleted := time.Now()
		var reclaimed, back time.Duration
		share := 0.0
		for time.Since(deleted) < patience && (reclaimed == 0 || back == 0) {
			if reclaimed == 0 && orphans() == 0 {
				reclaimed = time.Since(deleted)
			}
			if share = (full - folderMB(b, dir)) / (full - empty); share >= 0.95 {
				back = time.Since(deleted)
			}
			time.Sleep(250 * time.Millisecond)
		}
		stop()
		us := func(x []time.Duration, p float64) float64 { return float64(percentile(x, p).Microseconds()) }
		b.ReportMetric(us(ofHashes, 50)/max(1, us(ofStrings, 50)), "del-ratio")
		b.ReportMetric(reclaimed.Seconds(), "s-to-reclaim")
		b.ReportMetric(back.Seconds(), "s-to-95%-back")
		b.ReportMetric(us(times[0], 99), "p99-before-us")
		b.ReportMetric(us(times[1], 99), "p99-after-us")
		b.Logf("folder: %.0f MB empty, %.0f MB full, %.1f %% of that is back; tables %.0f MB, now %.0f MB", empty, full, 100*share, fullTables, tables())
		b.Logf("DEL of a string %s, of a hash of %d fields %s, medians", percentile(ofStrings, 50), fields, percentile(ofHashes, 50))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fillHashes makes hashes of so many fields with values of so many bytes.
func fillHashes(b *testing.B, c *Cluster, keys []string, fields, bytes int) {
	const loaders, most = 8, 500
	value := strings.Repeat("v", bytes)
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			nc, err := c.Dial(b.Context(), c.ProxyAddr())
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			w := newWire(nc)
			for k := i; k < len(keys); k += loaders {
				for f := 0; f < fields; {
					args := []string{"HSET", keys[k]}
					for ; f < fields && len(args) < 2+2*most; f++ {
						args = append(args, fmt.Sprintf("field%06d", f), value)
					}
					if _, err := w.call(args...); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
