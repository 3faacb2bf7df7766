package neokv

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestHomeThatIsBehind: a cluster that starts does not wait for time-outs where the store that shall lead a region, or
// meta, has an older log than the others.
func TestHomeThatIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Seed: 1, Settings: small()})
		do(t, c, "partition 1 2,3")
		for i := range 100 {
			await(t, "write", func() bool {
				_, err := c.Do(t.Context(), "set", fmt.Sprint("key", i), i)
				return err == nil
			})
		}
		image, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		next := start(t, Config{From: image, InMemory: true, NoSockets: true, Seed: 2})
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the start took %s", took)
		}
		for i := range 100 {
			if got, err := next.Do(t.Context(), "get", fmt.Sprint("key", i)); err != nil || fmt.Sprint(got) != fmt.Sprint(i) {
				t.Errorf("GET key%d = %v, %v", i, got, err)
			}
		}
	})
}
