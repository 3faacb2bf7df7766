package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/settings"
)

// Share is one store's share of the knobs that are for the whole process.
type Share struct {
	Memtable    int64 // bytes of one memtable
	Cache       int64 // bytes of the block cache, including those that Pebble charges to it for memtables
	Rows        int64 // bytes of the row cache
	Compactions int   // at once
	OpenFiles   int
}

const (
	minMemtable = 256 << 10
	maxMemtable = math.MaxUint32 - 1
	FewestFiles = 128 // of a store
)

// ShareOf divides the knobs between this number of stores. Its error names every knob of which a share is too small or
// too large.
func ShareOf(k settings.EngineKnobs, stores int) (Share, error) {
	if stores < 1 {
		return Share{}, fmt.Errorf("engine: stores (%d) must be >= 1", stores)
	}
	n := int64(stores)
	s := Share{
		Memtable:    int64(k.MemtableSize) / n,
		Rows:        int64(k.RowCache) / n,
		Compactions: max(1, k.CompactionConcurrency/stores),
		OpenFiles:   max(FewestFiles, k.OpenFiles/stores),
	}
	// Pebble charges memtables to the block cache: one that is written and one that is flushed.
	s.Cache = int64(k.BlockCache)/n + 2*s.Memtable

	var errs []error
	if s.Memtable < minMemtable || s.Memtable > maxMemtable {
		errs = append(errs, fmt.Errorf(
			"engine.memtable_size (%d bytes) is %d bytes for each of %d stores; allowed %d to %d",
			int64(k.MemtableSize), s.Memtable, stores, int64(minMemtable), int64(maxMemtable)))
	}
	if k.MemtableCount < 2 {
		errs = append(errs, fmt.Errorf("engine.memtable_count (%d) must be >= 2", k.MemtableCount))
	}
	if k.BlockCache < 1 {
		errs = append(errs, fmt.Errorf("engine.block_cache (%d bytes) must be >= 1", int64(k.BlockCache)))
	}
	if k.L0Stop <= k.L0Compaction {
		errs = append(errs, fmt.Errorf("engine.l0_stop (%d) must be > engine.l0_compaction (%d)", k.L0Stop,
			k.L0Compaction))
	}
	if _, ok := compressions[k.Compression]; !ok {
		errs = append(errs, fmt.Errorf("engine.compression (%q) must be none, snappy, minlz, zstd or tiered",
			k.Compression))
	}
	if _, ok := prefixes[k.BloomPrefix]; !ok {
		errs = append(errs, fmt.Errorf("engine.bloom_prefix (%q) must be region, collection or key", k.BloomPrefix))
	}
	return s, errors.Join(errs...)
}

// staggered returns the size of the nth store's memtables. Stores with replicas of the same regions write equally much.
// With memtables of the same size, all stores would flush and compact at the same time, and writes would wait for a
// processor meanwhile.
func staggered(memtable int64, nth, stores int) int64 {
	return max(minMemtable, memtable-memtable*3/8*int64(nth)/int64(stores))
}

// compressions has a function for each value of engine.compression: how to compress a level, from L0 to L6.
var compressions = map[string]func(level int) *sstable.CompressionProfile{
	"none":   func(int) *sstable.CompressionProfile { return sstable.NoCompression },
	"snappy": func(int) *sstable.CompressionProfile { return sstable.SnappyCompression },
	"minlz":  func(int) *sstable.CompressionProfile { return sstable.MinLZCompression },
	"zstd":   func(int) *sstable.CompressionProfile { return sstable.ZstdCompression },
	"tiered": func(level int) *sstable.CompressionProfile {
		switch {
		case level < 2:
			return sstable.NoCompression
		case level < 6:
			return sstable.MinLZCompression
		}
		return sstable.ZstdCompression
	},
}

// deleteRangeDelay is how long a range deletion may stay in a memtable. Then Pebble flushes the memtable, to free the
// space of the deleted keys.
const deleteRangeDelay = 2 * time.Second

func pebbleOptions(o Options, share Share, ev *events) *pebble.Options {
	k := o.Knobs
	opts := &pebble.Options{
		FS:                 o.FS,
		WALDir:             o.WALDir,
		ReadOnly:           o.ReadOnly,
		ErrorIfNotExists:   o.MustExist,
		Comparer:           comparer,
		FormatMajorVersion: pebble.FormatNewest, // the default is the oldest
		// Tables written under another value of the knob stay readable by their filters.
		Filters: filters(),

		MemTableSize:                uint64(staggered(share.Memtable, o.Nth, o.Stores)),
		MemTableStopWritesThreshold: k.MemtableCount,
		L0CompactionThreshold:       k.L0Compaction,
		L0StopWritesThreshold:       k.L0Stop,
		LBaseMaxBytes:               int64(k.LevelBase),
		MaxOpenFiles:                share.OpenFiles,
		CompactionConcurrencyRange:  func() (int, int) { return 1, share.Compactions },
		FlushDelayDeleteRange:       deleteRangeDelay,

		Cleaner:       remover{},
		Logger:        logger{o.Fatal},
		EventListener: ev.listener(o.Fatal),
	}
	opts.TargetFileSizes[0] = int64(k.TargetFileSize) // the other levels double it
	filter := policy(k.BloomPrefix, k.BloomBits)
	for level := range opts.Levels {
		compression := compressions[k.Compression](level)
		opts.Levels[level] = pebble.LevelOptions{
			BlockSize:      int(k.BlockSize),
			IndexBlockSize: indexBlockSize,
			Compression:    func() *sstable.CompressionProfile { return compression },
			FilterPolicy:   filter,
		}
	}
	opts.Experimental.EnableDeleteOnlyCompactionExcises = func() bool { return true }
	opts.Experimental.SpanPolicyFunc = spanPolicy
	return opts
}

// indexBlockSize is how large the index of a table gets before Pebble splits it in two levels, which costs every read
// of the table one more look-up.
const indexBlockSize = 256 << 10

// spanPolicy cuts tables where the keyspace changes, so that compactions of data do not rewrite the Raft log. It also
// keeps values beside their keys. By default Pebble would take the rest of a key after its prefix for a version number,
// and move the values of all but the newest version elsewhere.
func spanPolicy(start []byte) (pebble.SpanPolicy, []byte, error) {
	if len(start) == 0 {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	return pebble.SpanPolicy{
		PreferFastCompression:          keys.Keyspace(start[0]) == keys.RaftLog,
		DisableValueSeparationBySuffix: true,
	}, []byte{start[0] + 1}, nil
}

// remover makes Pebble remove write-ahead logs that it does not need any more. Otherwise Pebble keeps
// engine.memtable_count + 1 of them to write over, which is meant to make their syncs cheaper. With a journal these
// logs are not synced, and without one we measured no gain.
//
// Pebble keeps no logs if its cleaner needs their contents, as ArchiveCleaner does. So remover embeds both cleaners: it
// says that it needs the contents, and deletes as DeleteCleaner does.
type remover struct {
	pebble.DeleteCleaner
	archiver
}

type archiver struct{ pebble.ArchiveCleaner }

// logger keeps Pebble silent except for what is fatal to it. Pebble expects Fatalf not to return; here it does, see
// Options.Fatal.
type logger struct{ fatal func(error) }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

func (l logger) Fatalf(format string, args ...any) { l.fatal(fmt.Errorf(format, args...)) }

// events counts things that Pebble reports only as events.
type events struct {
	stalls     atomic.Int64
	stallNanos atomic.Int64
	stalledAt  atomic.Int64                       // Unix ns at which a stall began that still lasts, else 0
	background atomic.Int64                       // errors
	flattening atomic.Pointer[context.CancelFunc] // called when a compaction of L0 begins; may be nil
}

func (ev *events) listener(fatal func(error)) *pebble.EventListener {
	return &pebble.EventListener{
		// A full disk causes thousands of errors a second, so they are counted and not printed.
		BackgroundError: func(error) { ev.background.Add(1) },
		// Pebble tries a failed compaction again at once, for as long as it fails. A failed write has fenced the store
		// already; a table that cannot be read has to do so here.
		CompactionEnd: func(info pebble.CompactionInfo) {
			if info.Err != nil && !errors.Is(info.Err, pebble.ErrCancelledCompaction) && !errors.Is(info.Err, errClosing) {
				fatal(fmt.Errorf("compaction: %w", info.Err))
			}
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			fatal(fmt.Errorf("corrupted file %s: %w", info.Path, info.Details))
		},
		CompactionBegin: func(info pebble.CompactionInfo) {
			if info.Input[0].Level == 0 {
				if cancel := ev.flattening.Load(); cancel != nil {
					(*cancel)()
				}
			}
		},
		WriteStallBegin: func(pebble.WriteStallBeginInfo) {
			ev.stalls.Add(1)
			ev.stalledAt.Store(time.Now().UnixNano())
		},
		WriteStallEnd: func() {
			if t := ev.stalledAt.Swap(0); t != 0 {
				ev.stallNanos.Add(time.Now().UnixNano() - t)
			}
		},
	}
}
