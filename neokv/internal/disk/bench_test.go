package disk

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkPebbleSync runs Pebble under eight writers that sync every write, on disk.FS and on the file system that it
// wraps.
func BenchmarkPebbleSync(b *testing.B) {
	for _, c := range []struct {
		name string
		fs   func() vfs.FS
	}{
		{"disk/plain", func() vfs.FS { return vfs.Default }},
		{"disk/wrapped", func() vfs.FS { return OS() }},
		{"memory/plain", func() vfs.FS { return vfs.NewMem() }},
		{"memory/crashable", func() vfs.FS { return vfs.NewCrashableMem() }},
		{"memory/wrapped", func() vfs.FS { return Mem() }},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkSync(b, c.fs()) })
	}
}

func benchmarkSync(b *testing.B, fs vfs.FS) {
	db, err := pebble.Open(b.TempDir(), &pebble.Options{FS: fs, MemTableSize: 16 << 20, Logger: quietLogger{}})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	value := make([]byte, 100)
	var next atomic.Int64
	var writers sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 8 {
		writers.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := db.Set(fmt.Appendf(nil, "key-%09d", i), value, pebble.Sync); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	b.StopTimer()
}

// quietLogger drops what Pebble has to say and fails on what it considers fatal.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any)  {}
func (quietLogger) Errorf(string, ...any) {}
func (quietLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
