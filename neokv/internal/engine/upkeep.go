package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// UpkeepPause is how long the caller of IdleUpkeep waits between two calls.
	UpkeepPause = 500 * time.Millisecond
	// idleWrites is how many bytes of batches an engine may get between two calls and still count as idle.
	idleWrites = 16 << 10
	// idleLog is how large a write-ahead log may stay in an idle engine.
	idleLog = 1 << 20
	// idleLooks is how many reads make it worth while to compact L0 of an idle engine: the compaction takes about as
	// long as it saves for so many reads. With fewer reads, the idleCalls-th idle call compacts L0.
	idleLooks = 20_000
	idleCalls = 10
)

// IdleUpkeep empties the pool of views, and flushes the memtable if a view has asked for that. If hardly anything was
// written since the last call, it also takes one step of the work that Pebble only does when there are writes. One
// goroutine calls it every UpkeepPause. It waits while the disk hangs.
//
//   - It flushes the memtable of a large write-ahead log. The log's space is free then, and reads find what was loaded
//     in tables, at half the cost of a large memtable.
//   - It compacts L0, sooner where there are reads: each sublevel costs every read a look, and a deletion that waits
//     there gives no space back. engine.l0_compaction is for engines that are written to.
//   - It rewrites tables that keep a large file for a small part of it.
func (e *Engine) IdleUpkeep() {
	e.viewPool.clear()
	m := e.db.Metrics()
	written := m.WAL.BytesIn - e.walBytes
	e.walBytes = m.WAL.BytesIn
	e.depth.Store(m.Levels[0].Sublevels)
	switch {
	case e.flushSoon.Swap(false):
		e.flushNext(m)
	case written >= idleWrites:
	case m.WAL.Size > idleLog:
		e.flushNext(m)
	case m.Levels[0].TablesCount > 0 && m.Compact.NumInProgress == 0:
		if e.quiet++; e.quiet >= idleCalls || e.looks.Load()-e.looked >= idleLooks {
			e.quiet, e.looked = 0, e.looks.Load()
			select {
			case e.settling <- struct{}{}:
				e.flatten(context.Background())
				<-e.settling
			default: // Settle does it
			}
		}
	default:
		e.rewrite(m)
	}
}

// flatten begins to compact L0 into the level below. Pebble would then compact that level into the next one, and so on;
// flatten stops that by cancelling the context before the first compaction has ended. The caller holds e.settling.
func (e *Engine) flatten(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.events.flattening.Store(&cancel)
	// The error is that of ctx, or one of the disk, which Pebble's own compactions meet, too.
	_ = e.db.Compact(ctx, []byte{0}, []byte{0xff}, false)
	e.events.flattening.Store(nil)
}

// flushNext calls Flush, unless a flush is under way: with one more memtable for each call the queue would become so
// long that writes stall. The error is one of the disk, which the next commit meets, too.
func (e *Engine) flushNext(m *pebble.Metrics) {
	if m.Flush.NumInProgress == 0 {
		_ = e.Flush()
	}
}

// idleWaste is how many unused bytes in the files of its tables an idle engine accepts.
const idleWaste = 4 << 20

// rewrite compacts tables that use a part of a file, if most of the bytes of such files are unused. A range deletion
// that cuts a table leaves such parts, and the file stays as long as one of them does.
func (e *Engine) rewrite(m *pebble.Metrics) {
	backing := m.Table.BackingTableSize
	if backing == e.backing || backing < idleWaste || backing-idleWaste < 2*m.VirtualSize() {
		return
	}
	levels, err := e.db.SSTables()
	if err != nil {
		return
	}
	for _, tables := range levels {
		for _, t := range tables {
			if end := append(slices.Clip(t.Largest.UserKey), 0); t.Virtual {
				_ = e.db.Compact(context.Background(), t.Smallest.UserKey, end, false)
			}
		}
	}
	e.backing = e.db.Metrics().Table.BackingTableSize
}

// settlePause is how long Settle waits between two looks at what the engine does.
const settlePause = 5 * time.Millisecond

// Settle does what the engine puts off until there is more of it, or until nobody writes: it writes the memtables to
// tables, compacts L0, and waits until no compaction is under way or due. While others write it may wait for long:
// until ctx ends. One call at a time works, the others wait for it.
func (e *Engine) Settle(ctx context.Context) error {
	select {
	case e.settling <- struct{}{}:
		defer func() { <-e.settling }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := e.FlushAll(ctx); err != nil {
		return err
	}
	if err := e.awaitCompactions(ctx); err != nil || e.db.Metrics().Levels[0].TablesCount == 0 {
		return err
	}
	e.flatten(ctx)
	return e.awaitCompactions(ctx)
}

// FlushAll writes the memtables to tables, and waits until they are written.
func (e *Engine) FlushAll(ctx context.Context) error {
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return fmt.Errorf("engine: flush: %w", err)
	}
	if flushed == nil { // there is nothing to flush
		return nil
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitCompactions waits until no flush and no compaction is under way or due.
func (e *Engine) awaitCompactions(ctx context.Context) error {
	tick := time.NewTicker(settlePause)
	defer tick.Stop()
	for quiet := 0; quiet < 2; { // Pebble picks the next compaction a moment after the end of the last
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if m := e.db.Metrics(); m.Flush.NumInProgress+m.Compact.NumInProgress > 0 {
			quiet = 0
		} else {
			quiet++
		}
	}
	return nil
}
