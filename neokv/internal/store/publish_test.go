package store

import (
	"testing"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/settings"
)

// TestReadersMissNoTable publishes tables beside readers that take no lock. Each table is published when all readers
// have seen the one before and wait, or are about to wait, for the next. So a reader that misses one waits for good.
func TestReadersMissNoTable(t *testing.T) {
	s := newStore(Options{ID: 1})
	s.cluster.current = meta.Initial("cluster", settings.Default().Cluster)
	s.cluster.current.Version = 1
	const tables, readers = 5000, 4
	seen := make(chan uint64, readers)
	for range readers {
		go func() {
			for last := uint64(0); last < tables; {
				changed := s.Changed()
				if table := s.Table(); table != nil && table.Epoch != last {
					last = table.Epoch
					seen <- last
				} else {
					select {
					case <-changed:
					case <-t.Context().Done():
						return
					}
				}
			}
		}()
	}
	for n := range uint64(tables) {
		s.cluster.setAlone(n%2 == 0)
		for range readers {
			select {
			case epoch := <-seen:
				if epoch != n+1 {
					t.Fatalf("a reader sees table %d, want %d", epoch, n+1)
				}
			case <-time.After(time.Minute):
				t.Fatalf("a reader waits for good with an older table than %d", n+1)
			}
		}
	}
}
