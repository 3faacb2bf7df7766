package neokv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// keysOf returns a key of each region, by its number.
func keysOf(regions int) map[int]string {
	keys := make(map[int]string)
	for i, slots := range topology.SplitEvenly(regions) {
		for n := 0; keys[i+1] == ""; n++ {
			if key := fmt.Sprint(n); slots.Contains(topology.SlotOf([]byte(key))) {
				keys[i+1] = key
			}
		}
	}
	return keys
}

// BenchmarkFailover kills the store that leads a third of the regions, and measures for each of these how long it takes
// from the kill to the answer to a write that was sent right after it, at the default settings. Then it starts the store
// again and gives it its regions back. -benchtime=100x is a hundred kills.
func BenchmarkFailover(b *testing.B) {
	s := settings.Default()
	s.Raft.LeaderReturn = 0 // leaders return when the benchmark says so
	c, err := Start(b.Context(), Config{Stores: 3, InMemory: true, Settings: &s})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	client := redis.NewClient(&redis.Options{Addr: c.ProxyAddr(), ReadTimeout: 30 * time.Second, MaxRetries: -1})
	defer client.Close()
	keys := keysOf(c.Shape().Regions)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		store := 1 + i%3
		var lost []int
		for _, r := range c.Status().Regions {
			if r.Leader == store {
				lost = append(lost, r.Region)
			}
		}
		if err := doText(b.Context(), c, fmt.Sprint("kill ", store)); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, r := range lost {
			wg.Go(func() {
				if err := client.Set(context.Background(), keys[r], i, 0).Err(); err != nil {
					b.Errorf("kill %d of store %d: region %d: %v", i, store, r, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(begin))
			})
		}
		wg.Wait()
		if err := doText(b.Context(), c, fmt.Sprint("restart ", store)); err != nil {
			b.Fatal(err)
		}
		for _, r := range lost {
			for {
				err := doText(b.Context(), c, fmt.Sprintf("transfer %d %d", r, store))
				if err == nil {
					break
				}
				b.Log(err)
			}
		}
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() }
	b.ReportMetric(at(0.5), "p50-s")
	b.ReportMetric(at(0.95), "p95-s")
	b.ReportMetric(at(1), "max-s")
	b.ReportMetric(float64(len(took)), "regions")
}

// BenchmarkLeadersReturn kills one of three stores that have 267 regions, on disk and at the default settings, and
// starts it again. Writers write to all regions, one write after the other. It measures how long the longest write took
// while the leaders returned, and in the seconds before, and how long the return took.
//
//	go test ./neokv -run '^$' -bench LeadersReturn -benchtime 10x
func BenchmarkLeadersReturn(b *testing.B) {
	const regions, writers = 267, 8
	keys := keysOf(regions)
	var before, during, whole []time.Duration
	for i := 0; b.Loop(); i++ {
		c, err := Start(b.Context(), Config{Stores: 3, Regions: regions, Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{
			Addr: c.ProxyAddr(), ReadTimeout: 30 * time.Second, MaxRetries: -1,
		})
		store := 1 + i%3
		leads := func() int { return c.Status().Stores[store-1].Leads }
		all := regions / 3 // have their home there
		do := func(text string) {
			if err := doText(b.Context(), c, text); err != nil {
				b.Fatal(err)
			}
		}
		do(fmt.Sprint("kill ", store))
		for !served(c) {
			time.Sleep(10 * time.Millisecond)
		}
		do(fmt.Sprint("restart ", store))
		time.Sleep(time.Second)
		var longest atomic.Int64
		over := make(chan struct{})
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for n := w; ; n++ {
					select {
					case <-over:
						return
					default:
					}
					began := time.Now()
					if err := client.Set(b.Context(), keys[1+rand.IntN(regions)], n, 0).Err(); err != nil {
						b.Error(err)
					}
					for d := int64(time.Since(began)); d > longest.Load(); {
						longest.CompareAndSwap(longest.Load(), d)
					}
				}
			})
		}
		for leads() == 0 {
			time.Sleep(time.Millisecond)
		}
		began := time.Now()
		before = append(before, time.Duration(longest.Swap(0)))
		for leads() < all {
			time.Sleep(10 * time.Millisecond)
		}
		whole = append(whole, time.Since(began))
		close(over)
		wg.Wait()
		during = append(during, time.Duration(longest.Load()))
		client.Close()
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for _, x := range []struct {
		name string
		took []time.Duration
	}{{"before", before}, {"return", during}, {"all", whole}} {
		slices.Sort(x.took)
		b.ReportMetric(x.took[len(x.took)/2].Seconds(), x.name+"-p50-s")
		b.ReportMetric(x.took[len(x.took)-1].Seconds(), x.name+"-max-s")
	}
	b.ReportMetric(0, "ns/op") // it has the boots and ends in it
}
