package neokv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/topology"
)

// BenchmarkBoot boots clusters in memory until every slot accepts writes.
func BenchmarkBoot(b *testing.B) {
	for _, x := range []struct{ stores, regions int }{{1, 8}, {2, 8}, {3, 8}, {9, 32}} {
		b.Run(fmt.Sprintf("stores=%d/regions=%d", x.stores, x.regions), func(b *testing.B) {
			for b.Loop() {
				c, err := Start(b.Context(),
					Config{Stores: x.stores, Regions: x.regions, InMemory: true, Settings: small()})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if testing.Verbose() {
					b.Log(c.BootTime())
				}
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkFailOver kills one of three stores, with default settings and on disk, and measures how long a client
// waits until every slot that the store led accepts a write again:
//
//	go test ./neokv -run '^$' -bench FailOver -benchtime 30x
func BenchmarkFailOver(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		c, err := Start(b.Context(), Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		victim := c.nodes[len(took)%len(c.nodes)]
		tags := c.nodes[0].store.Load().Table()
		var clients sync.WaitGroup
		begun, killed := time.Now(), make(chan struct{})
		slowest := new(atomic.Int64)
		for _, lead := range victim.store.Load().Leads() {
			slot := tags.ByID(lead.Region).Slots.First
			key := ""
			for n := 0; topology.SlotOf([]byte(key)) != slot; n++ {
				key = strconv.Itoa(n)
			}
			clients.Go(func() {
				r := redis.NewClient(&redis.Options{
					Addr: c.ProxyAddr(),
					Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
						return c.Dial(ctx, addr)
					},
					MaxRetries: -1, ContextTimeoutEnabled: true,
				})
				defer r.Close()
				<-killed
				for r.Set(b.Context(), key, 1, 0).Err() != nil {
				}
				for d := int64(time.Since(begun)); d > slowest.Load(); {
					slowest.CompareAndSwap(slowest.Load(), d)
				}
			})
		}
		begun = time.Now()
		victim.fs.Fence(errors.New("killed by the benchmark"))
		close(killed)
		clients.Wait()
		took = append(took, time.Duration(slowest.Load()))
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "s-p50")
	b.ReportMetric(took[len(took)*99/100].Seconds(), "s-p99")
	b.ReportMetric(took[len(took)-1].Seconds(), "s-max")
	b.ReportMetric(0, "ns/op") // it has the boots and ends in it
}
