package neokv

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// BenchmarkFailover kills the store that leads a third of the regions, and measures for each of these how long it takes
// from the kill to the answer to a write that was sent right after it, at the default settings. Then it starts the store
// again and gives it its regions back. -benchtime=100x is a hundred kills.
func BenchmarkFailover(b *testing.B) {
	s := settings.Default()
	c, err := Start(b.Context(), Config{Stores: 3, InMemory: true, Settings: &s})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	client := redis.NewClient(&redis.Options{Addr: c.ProxyAddr(), ReadTimeout: 30 * time.Second, MaxRetries: -1})
	defer client.Close()
	keys := make(map[int]string) // by region
	for i, slots := range topology.SplitEvenly(c.Shape().Regions) {
		for n := 0; keys[i+1] == ""; n++ {
			if key := fmt.Sprint(n); slots.Contains(topology.SlotOf([]byte(key))) {
				keys[i+1] = key
			}
		}
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		store := 1 + i%3
		var lost []int
		for _, r := range c.Status().Regions {
			if r.Leader == store {
				lost = append(lost, r.Region)
			}
		}
		if err := c.Store(store).Kill(); err != nil {
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
		if err := c.Store(store).Restart(); err != nil {
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
