package cluster

import (
	"fmt"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
)

// journal is the file that makes the logs of all stores durable with one sync: see disk.Journal.
type journal struct {
	*core
	boots *boots

	now  atomic.Pointer[disk.Journal] // nil where each store syncs its own log
	fs   *disk.FS                     // its disk for a cluster in memory; else nil
	dead bool                         // it was killed, with all stores; only a change uses it
	gone bool                         // a store was removed, of which it may have bytes; likewise
}

// open copies into the stores' logs the writes that only the journal holds. Then it opens a new journal, unless
// each store syncs its own log.
func (j *journal) open(nodes Places) (err error) {
	o := disk.JournalOptions{
		Logs: make(map[uint16]string), Boot: j.boots.began, OnChange: j.changed, Mistakes: j.hooks.Mistakes.Journal,
	}
	for _, n := range nodes {
		if n.failure == nil {
			o.Logs[uint16(n.id)] = n.At().Logs
		}
	}
	shared := j.settings.Engine.SharedSync && j.settings.Engine.WALSync == "always" && len(nodes) > 1
	switch {
	case j.folder == nil && j.hooks.JournalBytes == nil:
		return nil
	case j.folder == nil:
		if j.fs == nil {
			j.fs = disk.Mem()
		}
		if j.gone {
			o.Lost = func(id uint16) { j.boots.note(id, j.boots.now) }
		}
		o.FS, o.Bytes, o.Disks = j.fs, j.hooks.JournalBytes(), make(map[uint16]vfs.FS)
		shared = shared && o.Bytes > 0
		for _, n := range nodes {
			n.fs.SetDrive(fault.Drive{}, nil) // it goes bad again when its store starts, after the journal's bytes are there
			o.Disks[uint16(n.id)] = n.fs
		}
	default:
		// A segment holds twice as much as the memtables. So when it is nearly full, the stores have flushed and
		// removed the logs that the other segment covers. The lower bound, 64 MiB, holds a few large groups of writes;
		// the upper one, 1 GiB, is what a start reads in a few seconds.
		o.Dir, o.Bytes = j.folder.journal(), max(64<<20, min(2*int64(j.settings.Engine.MemtableSize), 1<<30))
		o.Needed = j.folder.journaled
		// A store that takes no part loses what only the journal has. So its folder will not do any more.
		o.Lost = func(id uint16) { j.boots.note(id, j.boots.current()) }
		o.Emptied = func() error {
			j.folder.journaled = 0
			return j.folder.write()
		}
	}
	if !shared {
		return disk.DropJournal(o)
	}
	now, err := disk.OpenJournal(o)
	if err == nil {
		j.now.Store(now)
	}
	return err
}

// state is the line journal of INFO.
func (j *journal) state() string {
	now := j.now.Load()
	if now == nil {
		return "none"
	}
	if err := now.Broken(); err != nil {
		return "broken: " + oneLine(err)
	}
	return "shared"
}

// changed tells that the journal is broken, and why, or that it is mended.
func (j *journal) changed(err error) {
	if err != nil {
		j.event(eventImpaired, "%s", aloneText(err))
		return
	}
	j.event(eventImpaired, "the journal is mended: the stores share their syncs again")
}

func aloneText(err error) string {
	return fmt.Sprintf("the journal that the stores share is broken, so each store syncs its own log: %s", oneLine(err))
}

// close closes the journal: the logs of all stores have all that it has.
func (j *journal) close() error {
	now := j.now.Load()
	if now == nil {
		return nil
	}
	err := now.Close()
	if err == nil && j.folder != nil {
		j.folder.journaled = 0
		err = j.folder.write()
	}
	return err
}

// die closes the journal of a process that is killed, which leaves this disk.
func (j *journal) die(left *disk.FS) (err error) {
	if now := j.now.Swap(nil); now != nil {
		err = now.Close()
	}
	j.fs, j.dead = left, true
	return err
}

// revive opens the journal again if it was killed.
func (j *journal) revive(nodes Places) error {
	if j.dead {
		if err := j.open(nodes); err != nil {
			return fmt.Errorf("the process starts again: %w", err)
		}
		j.dead = false
	}
	return nil
}
