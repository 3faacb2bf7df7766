package neokv

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// BenchmarkSplit splits a region and merges it again, while one unpipelined writer on each side writes over and over.
// It reports the longest gap between two replies of a writer around each change, as quantiles over the changes. The
// region has 100,000 keys of 1 kB, or as many as NEOKV_SPLIT_KEYS says.
func BenchmarkSplit(b *testing.B) {
	k := settings.Default()
	k.Cluster.Regions = 1
	c, err := Start(b.Context(), Config{Dir: b.TempDir(), Settings: &k})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	fillStrings(b, c, splitKeys(), 1000)
	var longest [2]atomic.Int64
	stop := make(chan struct{})
	done := make(chan struct{})
	for side := range 2 {
		key := keyIn(topology.Slot(side*topology.SlotCount/2 + 100))
		go func() {
			defer func() { done <- struct{}{} }()
			last := time.Now()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := c.Do(b.Context(), "SET", key, "v"); err != nil {
					b.Error(err)
					return
				}
				now := time.Now()
				if gap := now.Sub(last).Nanoseconds(); gap > longest[side].Load() {
					longest[side].Store(gap)
				}
				last = now
			}
		}()
	}
	gaps := map[string][]float64{}
	change := func(name, text string) {
		f, err := fault.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		longest[0].Store(0)
		longest[1].Store(0)
		begin := time.Now()
		if _, err := c.Inject(b.Context(), f); err != nil {
			b.Fatalf("%s: %v", text, err)
		}
		gaps[name+"-took"] = append(gaps[name+"-took"], time.Since(begin).Seconds()*1000)
		time.Sleep(100 * time.Millisecond)
		gaps[name+"-left"] = append(gaps[name+"-left"], float64(longest[0].Load())/1e6)
		gaps[name+"-right"] = append(gaps[name+"-right"], float64(longest[1].Load())/1e6)
	}
	for b.Loop() {
		change("split", "split 1 8192")
		change("merge", "merge 1")
	}
	close(stop)
	<-done
	<-done
	for name, all := range gaps {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-p50-ms")
		b.ReportMetric(all[(len(all)-1)*99/100], name+"-p99-ms")
		b.ReportMetric(all[len(all)-1], name+"-max-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// fillStrings writes n keys of some bytes.
func fillStrings(tb testing.TB, c *Cluster, n, bytes int) {
	tb.Helper()
	value := make([]byte, bytes)
	for i := 0; i < n; i += 100 {
		args := []any{"MSET"}
		for j := range 100 {
			args = append(args, fmt.Sprint("load", i+j), value)
		}
		if _, err := c.Do(tb.Context(), args...); err != nil {
			tb.Fatal(err)
		}
	}
}

// keyIn returns a key of a slot.
func keyIn(slot topology.Slot) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("w", i); topology.SlotOf([]byte(key)) == slot {
			return key
		}
	}
}

func splitKeys() int {
	if n, err := strconv.Atoi(os.Getenv("NEOKV_SPLIT_KEYS")); err == nil {
		return n
	}
	return 100_000
}

// BenchmarkSplitBytes reports how many bytes the stores write for a split of a region at rest, all together, and how
// many they write in as much time without one.
func BenchmarkSplitBytes(b *testing.B) {
	k := settings.Default()
	k.Cluster.Regions = 1
	c, err := Start(b.Context(), Config{Dir: b.TempDir(), Settings: &k})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	fillStrings(b, c, splitKeys(), 1000)
	if _, err := c.Do(b.Context(), "NEOKV", "SETTLE"); err != nil {
		b.Fatal(err)
	}
	written := func() (sum uint64) {
		time.Sleep(time.Second)
		for _, n := range c.in.Places() {
			sum += uint64(n.Store().Counters().Disk.BytesWritten)
		}
		return sum
	}
	rest, split := 0.0, 0.0
	for b.Loop() {
		was := written()
		before := written()
		if _, err := c.Inject(b.Context(), fault.Fault{Verb: fault.Split, Region: 1, Slot: 8192}); err != nil {
			b.Fatal(err)
		}
		after := written()
		if _, err := c.Inject(b.Context(), fault.Fault{Verb: fault.Merge, Region: 1}); err != nil {
			b.Fatal(err)
		}
		rest, split = rest+float64(before-was), split+float64(after-before)
	}
	b.ReportMetric(rest/float64(b.N), "rest-B")
	b.ReportMetric(split/float64(b.N), "split-B")
	b.ReportMetric(0, "ns/op")
}
