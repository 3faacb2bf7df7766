package neokv

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var catchUpMB = flag.Int("catchup.mb", 100, "how large the region is in BenchmarkCatchUp")

// replicaOn returns the replica of a region on a store, nil while there is none.
func replicaOn(n *cluster.Place, id topology.RegionID) *region.Replica {
	if s := n.Store(); s != nil {
		return s.Replica(id)
	}
	return nil
}

// BenchmarkCatchUp measures how long a store that was away takes to catch up with a region by a snapshot, on disk,
// while clients read and write, and the most memory that the process has in objects meanwhile:
//
//	go test ./neokv -run '^$' -bench CatchUp -benchtime 1x
//
// The memory is that of three stores and their clients. The transfer adds a bounded amount, whatever the size of the
// region: on each side a few blocks of 2 MiB, and the index and the filter of a table of 32 MiB, with the garbage
// that the runtime allows.
func BenchmarkCatchUp(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		k := settings.Default()
		k.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1}
		k.Raft.SnapshotBytes = 8 << 20 // by default the logs would keep about as much as is written here
		c, err := Start(b.Context(), Config{Dir: b.TempDir(), Settings: &k})
		if err != nil {
			b.Fatal(err)
		}
		away := c.in.Places()[2]
		if err := doText(b.Context(), c, "stop 3"); err != nil {
			b.Fatal(err)
		}
		fill(b, c, *catchUpMB<<20)
		stop := clients(b, c, func(time.Duration) {})
		runtime.GC()
		before := heap()
		peak, sampled := watchHeap()
		leader := replicaOn(c.in.Places()[0], 1)
		goal := leader.Applied()
		b.StartTimer()
		begin := time.Now()
		if err := doText(b.Context(), c, "restart 3"); err != nil {
			b.Fatal(err)
		}
		waitFor(b, time.Minute, "the store to catch up", func() bool {
			r := replicaOn(away, 1)
			return r != nil && r.Applied() >= goal && r.Counters().SnapshotsReceived.Load() > 0
		})
		took := time.Since(begin)
		b.StopTimer()
		most := peak()
		bytes := replicaOn(away, 1).Counters().SnapshotBytes.Load()
		stop()
		got, err := c.in.Places()[0].Store().Compare(b.Context(), 1)
		if err != nil || got.Verdict() != "equal" {
			b.Errorf("%+v, %v", got, err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(took.Seconds(), "s/catch-up")
		b.ReportMetric(float64(bytes)/1e6/took.Seconds(), "MB/s")
		b.ReportMetric(float64(bytes)/1e6, "snapshot-MB")
		b.ReportMetric(float64(most), "peak-heap-B")
		b.ReportMetric(float64(before), "heap-before-B")
		b.Logf("%d samples of the heap", *sampled)
		b.StartTimer()
	}
}

// fill writes random values of 1 KiB.
func fill(b *testing.B, c *Cluster, total int) {
	const size, loaders = 1 << 10, 4
	var random [loaders]*rand.ChaCha8
	var value [loaders][size]byte
	for i := range random {
		random[i] = rand.NewChaCha8([32]byte{byte(i)})
	}
	load(b, c, total/size, loaders, 64, func(out []byte, loader, k int) []byte {
		random[loader].Read(value[loader][:])
		key := fmt.Sprintf("big-%d", k)
		return fmt.Appendf(out, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, size, value[loader][:])
	})
}

// heap is how many bytes the process has in objects, garbage included.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// watchHeap samples heap until peak is called, which returns the largest sample.
func watchHeap() (peak func() uint64, samples *int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	samples = new(int)
	var most uint64
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			most = max(most, heap())
			*samples++
		}
	}()
	return func() uint64 {
		cancel()
		<-done
		return most
	}, samples
}
