package neokv

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	expiryKeys  = flag.Int("expiry.keys", 1_000_000, "how many keys expire in BenchmarkExpiry")
	expiryPause = flag.Duration("expiry.pause", 0,
		"how long BenchmarkExpiry lets the cleaner work and then rest, by turns; 0 for no rest")
	expirySettle = flag.Duration("expiry.settle", 0, "how long BenchmarkExpiry watches the folder when all is over")
)

// BenchmarkExpiry lets a million keys expire at one instant, on disk, while clients read and write others on a
// schedule. It measures how long the keys take to vanish from all disks, how the response times of the clients
// change, and the size of the folder:
//
//	go test ./neokv -run '^$' -bench Expiry -benchtime 1x
//
// The ratio compares response times while the cleaner deletes keys with those before and after. With -expiry.pause
// the cleaner rests in between, and the ratio compares with those times, too: so a disturbed machine disturbs both
// alike.
func BenchmarkExpiry(b *testing.B) {
	const calm = 15 * time.Second
	// As in the program: a sync must not stall the other stores.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(8, runtime.GOMAXPROCS(0))))
	for b.Loop() {
		dir := b.TempDir()
		c, err := Start(b.Context(), Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		disk := []float64{folderMB(b, dir)}
		at := time.Now().Add(time.Duration(*expiryKeys)*20*time.Microsecond + calm)
		pxat := strconv.FormatInt(at.UnixMilli(), 10)
		load(b, c, *expiryKeys, 8, 500, func(out []byte, _, k int) []byte {
			key := "x" + strconv.Itoa(k)
			return fmt.Appendf(out, "*5\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$5\r\nvalue\r\n$4\r\nPXAT\r\n$%d\r\n%s\r\n",
				len(key), key, len(pxat), pxat)
		})
		disk = append(disk, folderMB(b, dir))
		if late := calm - time.Until(at); late > 0 {
			b.Logf("the load took %s longer than planned: keys have expired, or will, before the clients have begun",
				late)
		}
		time.Sleep(time.Until(at) - calm)

		active := func(on bool) {
			for _, node := range c.in.Places() {
				node.Store().SetActiveExpire(on)
			}
		}
		expired := func() (n int) {
			for _, node := range c.in.Places() {
				for _, r := range node.Store().Counters().Regions {
					n += int(r.ExpiredKeys.Load())
				}
			}
			return n
		}
		var times [4][]time.Duration
		const before, during, paused, after = 0, 1, 2, 3
		var now atomic.Int32
		stop := clients(b, c, func(took time.Duration) { times[now.Load()] = append(times[now.Load()], took) })
		time.Sleep(time.Until(at))
		var busy time.Duration
		for expired() < *expiryKeys && busy < 10*time.Minute {
			now.Store(during)
			from := time.Now()
			for expired() < *expiryKeys && time.Since(from) < 10*time.Minute &&
				(*expiryPause == 0 || time.Since(from) < *expiryPause) {
				time.Sleep(100 * time.Millisecond)
			}
			busy += time.Since(from)
			if *expiryPause > 0 {
				active(false)
				time.Sleep(100 * time.Millisecond) // until the step under way has ended
				now.Store(paused)
				time.Sleep(*expiryPause)
				active(true)
			}
		}
		disk = append(disk, folderMB(b, dir))
		now.Store(after)
		time.Sleep(calm)
		stop()
		if got := expired(); got != *expiryKeys {
			b.Errorf("%d of %d keys deleted after %s", got, *expiryKeys, busy)
		}
		for range *expirySettle / calm {
			disk = append(disk, folderMB(b, dir))
			time.Sleep(calm)
		}
		disk = append(disk, folderMB(b, dir))

		quiet := slices.Concat(times[before], times[paused], times[after])
		us := func(x []time.Duration) float64 { return float64(percentile(x, 99).Microseconds()) }
		b.ReportMetric(busy.Seconds(), "s-to-vanish")
		b.ReportMetric(us(times[before]), "p99-before-us")
		b.ReportMetric(us(times[during]), "p99-during-us")
		b.ReportMetric(us(times[after]), "p99-after-us")
		b.ReportMetric(us(times[during])/max(1, us(quiet)), "p99-ratio")
		b.ReportMetric(slices.Max(disk), "MB-peak")
		b.ReportMetric(disk[len(disk)-1], "MB-end")
		b.Logf("folder, MB: %.0f", disk)
		for i, name := range []string{"before", "during", "paused", "after"} {
			x := times[i]
			b.Logf("%s: %d operations, p50 %s, p90 %s, p99 %s, p99.9 %s", name, len(x),
				percentile(x, 50), percentile(x, 90), percentile(x, 99), percentile(x, 99.9))
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// clients sends 1,000 operations a second, on a schedule, until the caller calls stop. It tells how long each
// operation took from its intended start, one call at a time.
func clients(b *testing.B, c *Cluster, tell func(time.Duration)) (stop func()) {
	const clients, pause = 32, 32 * time.Millisecond
	over := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	refused := 0
	for i := range clients {
		wg.Go(func() {
			nc, err := c.Dial(b.Context(), c.ProxyAddr())
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			call, random := commands(nc), rand.New(rand.NewPCG(1, uint64(i)))
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
				_, err := call(args...)
				mu.Lock()
				if err != nil {
					refused++
				}
				tell(time.Since(next))
				mu.Unlock()
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
		if refused > 0 {
			b.Logf("%d operations were refused", refused)
		}
	}
}

// commands returns a function that runs one command after the other on a connection. An error reply is an error.
func commands(nc net.Conn) func(args ...string) (redistest.ReplyValue, error) {
	in := bufio.NewReader(nc)
	return func(args ...string) (redistest.ReplyValue, error) {
		raw := make([][]byte, len(args))
		for i, a := range args {
			raw[i] = []byte(a)
		}
		if _, err := nc.Write(redistest.AppendCall(nil, raw...)); err != nil {
			return redistest.ReplyValue{}, err
		}
		v, err := redistest.Read(in)
		if err == nil && v.Kind == '-' {
			err = errors.New(string(v.Text))
		}
		return v, err
	}
}

// folderMB is the size of the files in a folder.
func folderMB(b *testing.B, dir string) float64 { return filesMB(b, dir, "") }

// filesMB returns the size of the files whose names have this ending.
func filesMB(b *testing.B, dir, ending string) float64 {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(d.Name(), ending) {
			if info, err := d.Info(); err == nil { // the file may have gone
				sum += info.Size()
			}
		}
		return nil
	})
	if err != nil {
		b.Error(err)
	}
	return float64(sum) / 1e6
}

func percentile(x []time.Duration, p float64) time.Duration {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return x[min(len(x)-1, int(float64(len(x))*p/100))]
}

// load writes n keys in pipelines. appendSet appends the SET of the k-th key, for one of the loaders.
func load(b *testing.B, c *Cluster, n, loaders, pipeline int, appendSet func(out []byte, loader, k int) []byte) {
	var wg sync.WaitGroup
	for i := range loaders {
		wg.Go(func() {
			nc, err := c.Dial(b.Context(), c.ProxyAddr())
			if err != nil {
				b.Error(err)
				return
			}
			defer nc.Close()
			ok := bytes.Repeat([]byte("+OK\r\n"), pipeline)
			reply := make([]byte, len(ok))
			var out []byte
			for k := i; k < n; {
				sets := 0
				for out = out[:0]; sets < pipeline && k < n; sets, k = sets+1, k+loaders {
					out = appendSet(out, i, k)
				}
				if _, err := nc.Write(out); err != nil {
					b.Error(err)
					return
				}
				want := ok[:sets*len("+OK\r\n")]
				if _, err := io.ReadFull(nc, reply[:len(want)]); err != nil || !bytes.Equal(reply[:len(want)], want) {
					b.Errorf("load: %q, %v", reply[:min(80, len(want))], err)
					return
				}
			}
		})
	}
	wg.Wait()
}
