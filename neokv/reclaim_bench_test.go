package neokv

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
)

var (
	reclaimLarge  = flag.Int("reclaim.large", 5, "large hashes in BenchmarkReclaim")
	reclaimFields = flag.Int("reclaim.fields", 100_000, "fields of each of them")
	reclaimValue  = flag.Int("reclaim.value", 400, "bytes of a field's value there")
	reclaimSmall  = flag.Int("reclaim.small", 50_000, "hashes of 10 fields in BenchmarkReclaim")
)

// BenchmarkReclaim fills hashes on disk and deletes them all at once, while clients read and write other keys on a
// schedule. It measures what the deletion costs, how long the stores take to delete the elements, how long it takes
// until 95 % of their space in tables is free (Raft's log keeps its own part until it is cut), and how the response
// times of the clients change. Then the clients end, and it measures how long it takes, a minute at most, until 95 %
// of the whole folder is free, logs and journal included:
//
//	go test ./neokv -run '^$' -bench Reclaim -benchtime 1x
func BenchmarkReclaim(b *testing.B) {
	const calm, patience = 10 * time.Second, time.Minute
	for b.Loop() {
		dir := b.TempDir()
		c, err := Start(b.Context(), Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		var names []string
		for i := range *reclaimLarge {
			names = append(names, "large"+strconv.Itoa(i))
		}
		fillHashes(b, c, names, *reclaimFields, *reclaimValue)
		large := len(names)
		for i := range *reclaimSmall {
			names = append(names, "small"+strconv.Itoa(i))
		}
		fillHashes(b, c, names[large:], 10, *reclaimValue)
		orphans := func() (n int64) {
			for _, node := range c.in.Places() {
				for _, r := range node.Store().Counters().Regions {
					n += r.Orphans.Elements.Load()
				}
			}
			return n
		}
		tables := func(ks keys.Keyspace) (mb float64) {
			lower, upper := ks.Bounds()
			for _, node := range c.in.Places() {
				n, err := node.Store().Engine().TableBytes(engine.Span{Lower: lower, Upper: upper})
				if err != nil {
					b.Error(err)
				}
				mb += float64(n) / 1e6
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
		for _, node := range c.in.Places() {
			if err := node.Store().Engine().Flush(); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(calm)
		disk := func() string {
			return fmt.Sprintf("%.0f MB of elements in tables, %.0f MB of Raft's log there, %.0f MB of tables, "+
				"%.0f MB of WALs, %.0f MB in all",
				tables(keys.Data), tables(keys.RaftLog), filesMB(b, dir, ".sst"), filesMB(b, dir, ".log"),
				folderMB(b, dir))
		}
		before, full, whole := disk(), tables(keys.Data), folderMB(b, dir)
		mu.Lock()
		now = 1
		mu.Unlock()

		nc, err := c.Dial(b.Context(), c.ProxyAddr())
		if err != nil {
			b.Fatal(err)
		}
		send := commands(nc)
		call := func(args ...string) time.Duration {
			begin := time.Now()
			if _, err := send(args...); err != nil {
				b.Fatal(err)
			}
			return time.Since(begin)
		}
		var ofStrings, ofHashes []time.Duration
		for _, key := range names[:large] {
			for i := range 20 {
				call("SET", "string"+strconv.Itoa(i), "v")
				ofStrings = append(ofStrings, call("DEL", "string"+strconv.Itoa(i)))
			}
			ofHashes = append(ofHashes, call("DEL", key))
		}
		for rest := names[large:]; len(rest) > 0; {
			n := min(500, len(rest))
			call(append([]string{"DEL"}, rest[:n]...)...)
			rest = rest[n:]
		}
		nc.Close()

		deleted := time.Now()
		var reclaimed, back time.Duration
		share := 0.0
		for time.Since(deleted) < patience {
			if reclaimed == 0 && orphans() == 0 {
				reclaimed = time.Since(deleted)
			}
			if share = (full - tables(keys.Data)) / full; share >= 0.95 && back == 0 {
				back = time.Since(deleted)
			}
			time.Sleep(250 * time.Millisecond)
		}
		behind := disk()
		stop()
		stopped := time.Now()
		for folderMB(b, dir) > whole/20 && time.Since(stopped) < patience {
			time.Sleep(250 * time.Millisecond)
		}
		folder := time.Since(stopped)
		us := func(x []time.Duration, p float64) float64 { return float64(percentile(x, p).Microseconds()) }
		b.ReportMetric(us(ofHashes, 50)/max(1, us(ofStrings, 50)), "del-ratio")
		b.ReportMetric(reclaimed.Seconds(), "s-to-reclaim")
		b.ReportMetric(back.Seconds(), "s-to-95%-back")
		b.ReportMetric(folder.Seconds(), "s-at-rest")
		b.ReportMetric(100*(1-folderMB(b, dir)/whole), "%-of-folder-back")
		b.ReportMetric(us(times[0], 99), "p99-before-us")
		b.ReportMetric(us(times[1], 99), "p99-after-us")
		b.Logf("before: %s", before)
		b.Logf("%s behind the last deletion: %s", stopped.Sub(deleted).Round(time.Second), behind)
		b.Logf("%s at rest: %s", folder.Round(time.Second), disk())
		b.Logf("DEL of a string %s, of a hash of %d fields %s, medians",
			percentile(ofStrings, 50), *reclaimFields, percentile(ofHashes, 50))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// fillHashes makes hashes of so many fields with values of so many bytes.
func fillHashes(b *testing.B, c *Cluster, keys []string, fields, bytes int) {
	const loaders, most = 8, 500
	noise := make([]byte, 1<<20) // random bytes do not compress
	for i, random := 0, rand.New(rand.NewPCG(1, 1)); i < len(noise); i++ {
		noise[i] = byte(random.Uint32())
	}
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			nc, err := c.Dial(b.Context(), c.ProxyAddr())
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			send := commands(nc)
			for k := i; k < len(keys); k += loaders {
				for f := 0; f < fields; {
					args := []string{"HSET", keys[k]}
					for ; f < fields && len(args) < 2+2*most; f++ {
						at := (k*fields + f) * 127 % (len(noise) - bytes)
						args = append(args, fmt.Sprintf("field%06d", f), string(noise[at:at+bytes]))
					}
					if _, err := send(args...); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
