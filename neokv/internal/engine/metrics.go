package engine

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Metrics are an engine's counters, since it was opened unless said otherwise.
type Metrics struct {
	WALBytesIn      int64 // bytes of batches
	WALBytesWritten int64 // with framing
	Flushes         int64
	FlushBytes      int64 // written by flushes
	Compactions     int64
	CompactionBytes int64 // written
	CompactionDebt  int64 // bytes, now, estimated
	WriteStalls     int64
	WriteStallTime  time.Duration // a stall that lasts counts up to now

	BlockCacheHits   int64
	BlockCacheMisses int64
	BlockCacheBytes  int64 // now
	RowCacheHits     int64
	RowCacheMisses   int64
	RowCacheBytes    int64 // now
	FilterHits       int64 // a filter said that the key is absent
	FilterMisses     int64 // a filter let the look-up pass

	DiskBytes     int64 // now: tables, logs, obsolete files not deleted yet
	TableBytes    int64 // now, live
	Tables        int64 // now, live
	L0Sublevels   int64 // now
	ReadAmp       int64 // now: levels and sublevels that a read may have to visit
	MemtableBytes int64 // now
	Memtables     int64 // now

	BackgroundErrors int64 // failed or cancelled flushes and compactions
}

// metricsWait is how long Metrics waits for Pebble. Pebble takes some microseconds, but it waits while it syncs its
// manifest, which may be for ever where the disk hangs.
const metricsWait = 400 * time.Millisecond

// reading has what Metrics has read.
type reading struct {
	busy  chan struct{} // holds a value while a goroutine reads
	begun atomic.Int64  // Unix ns at which the last such goroutine began
	last  atomic.Pointer[Metrics]
}

// Metrics reads the counters. It holds Pebble's locks for some microseconds, so call it about once a second at most.
// While the disk hangs it returns, after metricsWait at most, what the last call has read.
func (e *Engine) Metrics() Metrics {
	r := &e.reading
	if len(r.busy) > 0 && time.Since(time.Unix(0, r.begun.Load())) >= metricsWait {
		return *r.last.Load()
	}
	t := time.NewTimer(metricsWait)
	defer t.Stop()
	select {
	case r.busy <- struct{}{}:
	case <-t.C:
		return *r.last.Load()
	}
	r.begun.Store(time.Now().UnixNano())
	read := make(chan Metrics, 1)
	go func() {
		m := e.readMetrics()
		r.last.Store(&m)
		read <- m
		<-r.busy
	}()
	select {
	case m := <-read:
		return m
	case <-t.C:
		return *r.last.Load()
	}
}

func (e *Engine) readMetrics() Metrics {
	p := e.db.Metrics()
	total := p.Total()
	m := Metrics{
		WALBytesIn:      int64(p.WAL.BytesIn),
		WALBytesWritten: int64(p.WAL.BytesWritten),
		Flushes:         p.Flush.Count,
		FlushBytes:      int64(p.Levels[0].TableBytesFlushed), // the total has the WAL's too
		Compactions:     p.Compact.Count,
		CompactionBytes: int64(total.TableBytesCompacted),
		CompactionDebt:  int64(p.Compact.EstimatedDebt),
		WriteStalls:     e.events.stalls.Load(),
		WriteStallTime:  time.Duration(e.events.stallNanos.Load()),

		BlockCacheHits:   p.BlockCache.Hits,
		BlockCacheMisses: p.BlockCache.Misses,
		BlockCacheBytes:  p.BlockCache.Size,
		FilterHits:       p.Filter.Hits,
		FilterMisses:     p.Filter.Misses,

		DiskBytes:     int64(p.DiskSpaceUsage()),
		TableBytes:    total.TablesSize,
		Tables:        total.TablesCount,
		L0Sublevels:   int64(p.Levels[0].Sublevels),
		ReadAmp:       int64(p.ReadAmp()),
		MemtableBytes: int64(p.MemTable.Size),
		Memtables:     p.MemTable.Count,

		BackgroundErrors: e.events.background.Load(),
	}
	if c := e.rows; c != nil {
		m.RowCacheHits, m.RowCacheMisses, m.RowCacheBytes = int64(c.hits.Load()), int64(c.misses.Load()), c.bytes.Load()
	}
	if t := e.events.stalledAt.Load(); t != 0 {
		m.WriteStallTime += time.Duration(time.Now().UnixNano() - t)
	}
	return m
}

// Unflushed returns how many bytes of the log are of memtables that have not been flushed. It costs as much as Metrics,
// and waits while the disk hangs.
func (e *Engine) Unflushed() int64 { return int64(e.db.Metrics().WAL.Size) }

// TableBytes estimates how many bytes of the tables on disk a range of keys takes. Memtables do not count.
func (e *Engine) TableBytes(span Span) (uint64, error) {
	n, err := e.db.EstimateDiskUsage(span.Lower, span.Upper)
	if err != nil {
		return 0, fmt.Errorf("engine: size of a range: %w", err)
	}
	return n, nil
}
