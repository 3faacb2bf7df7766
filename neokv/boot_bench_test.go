package neokv

import (
	"fmt"
	"testing"
)

// BenchmarkBoot boots clusters in memory until every slot accepts writes.
func BenchmarkBoot(b *testing.B) {
	for _, x := range []struct{ stores, regions int }{{1, 8}, {2, 8}, {3, 8}, {9, 32}} {
		b.Run(fmt.Sprintf("stores=%d/regions=%d", x.stores, x.regions), func(b *testing.B) {
			for b.Loop() {
				c, err := Start(b.Context(), Config{Stores: x.stores, Regions: x.regions, InMemory: true, Settings: small()})
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
