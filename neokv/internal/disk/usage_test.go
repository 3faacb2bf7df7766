package disk

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestUsageOfAHungDisk asks a disk for its space that does not answer. Callers soon get the last answer, and the disk
// gets one question, however often they ask, also after a crash. When it answers, it is asked again.
func TestUsageOfAHungDisk(t *testing.T) {
	dir := t.TempDir()
	letGo := make(chan struct{})
	var asked atomic.Int64
	hang := func(int64) {
		asked.Add(1)
		<-letGo
	}
	fs := OS()
	fs.Hook(BeforeUsage, hang)
	if _, err := fs.GetDiskUsage(dir); !errors.Is(err, vfs.ErrUnsupported) {
		t.Errorf("GetDiskUsage before the first answer: %v; want %v", err, vfs.ErrUnsupported)
	}
	close(letGo)
	free, total := int64(0), int64(0)
	awaitAnswer := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); {
			if time.Now().After(end) {
				t.Fatalf("no %s in 20s", what)
			}
		}
	}
	awaitAnswer("answer", func() (ok bool) {
		free, total, ok = fs.Free(dir)
		return ok
	})

	letGo = make(chan struct{})
	asked.Store(0)
	crashed := fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
	crashed.Hook(BeforeUsage, hang)
	for _, f := range []*FS{fs, crashed} {
		for range 100 {
			if a, b, ok := f.Free(dir); a != free || b != total || !ok {
				t.Fatalf("Free = %d, %d, %v while the disk hangs; want the last answer, %d and %d", a, b, ok, free, total)
			}
		}
	}
	if n := asked.Load(); n > 1 {
		t.Errorf("a disk that hangs was asked %d times; want once", n)
	}
	close(letGo)
	awaitAnswer("further question", func() bool {
		fs.Free(dir)
		return asked.Load() > 1
	})
}
