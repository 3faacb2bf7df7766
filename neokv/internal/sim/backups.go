package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

const backupDir = "/copies/copy"

// backups backs the cluster up now and then, and starts another cluster from each backup.
func backups(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(200+random.IntN(800)) * time.Millisecond) {
		s.fail(s.backUp(random))
	}
}

// backUp makes a backup, and looks at what it is. Its disk may be slow, may become full, or may lose its power at a
// sync of the backup. Then there is no backup, or a whole one, and the next try succeeds.
func (s *sim) backUp(random *rand.Rand) error {
	to := disk.Mem()
	var slow time.Duration
	var full bool
	var left *disk.FS // by the power cut
	switch random.IntN(4) {
	case 0:
		slow = time.Duration(1+random.IntN(15)) * time.Millisecond
	case 1:
		full = true
		to.SetDrive(fault.Drive{Free: settings.Bytes(1 + random.IntN(400_000))}, random)
	case 2:
		at := int64(1 + random.IntN(60))
		to.Hook(disk.BeforeSync, func(n int64) {
			if n == at {
				left = to.Crash(random.IntN(101), random)
			}
		})
	}
	var from time.Duration
	try := func(to vfs.FS) (err error) {
		from = time.Since(s.h.start)
		instant, err := s.inside.Backup(context.Background(), to, backupDir)
		if s.h.note("backup: %v", err); !s.real { // in real time the clock goes on behind the instant
			from = instant.Sub(s.h.start)
		}
		return err
	}
	err := try(slowFS{to, slow})
	if full && err != nil {
		if names, listed := to.List(to.PathDir(backupDir)); len(names) > 0 || listed != nil {
			return fmt.Errorf("backup to a full disk: %q is left, %v", names, errors.Join(listed, err))
		}
		to.SetDrive(fault.Drive{}, random)
		err = try(to)
	}
	if left != nil && err == nil { // all that it did behind the cut has gone nowhere
		to = left
		_, err = s.openImage(to, backupDir)
		if errors.Is(err, fs.ErrNotExist) || err != nil &&
			(strings.HasSuffix(err.Error(), "has no cluster.json") || strings.Contains(err.Error(), "did not end")) {
			err = try(to)
		}
	}
	if err != nil && strings.HasSuffix(err.Error(), "none has started since") { // a dead process makes no backups
		return nil
	}
	if err != nil {
		return err
	}
	image, err := s.openImage(to, backupDir)
	if err != nil {
		return err
	}
	return s.startCopy(image.(*neokv.Image), s.h.asOf(from, time.Since(s.h.start)))
}

// startCopy starts a cluster from a backup, reads all keys of it, and compares its replicas.
func (s *sim) startCopy(image *neokv.Image, h *history) error {
	hooks := &seam.Hooks{VirtualTime: s.config.NoSockets}
	x := &sim{seed: s.seed, real: s.real, h: h, bounds: newBoundsSeen(), holds: newHeldTimes(),
		config: neokv.Config{From: image, NoSockets: s.config.NoSockets, Seed: s.seed, Settings: s.config.Settings}}
	s.mu.Lock()
	x.epoch, x.epochs = s.epoch, append(x.epochs, s.epochs...)
	s.copies = append(s.copies, h)
	s.stats.Backups++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := neokv.Start(seam.With(ctx, hooks), x.config)
	if err != nil {
		return fmt.Errorf("the copy as of %s: boot: %w", h.backup.from, err)
	}
	x.attach(c, hooks)
	x.fail(x.serves())
	x.fail(x.atRest())
	x.finalReads()
	x.compareReplicas()
	x.fail(c.Close())
	if x.problem != nil {
		return fmt.Errorf("the copy as of %s: %w", h.backup.from, x.problem)
	}
	return nil
}

// slowFS takes time to make a file. The caller holds no lock then.
type slowFS struct {
	vfs.FS
	pause time.Duration
}

func (f slowFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	time.Sleep(f.pause)
	return f.FS.Create(name, category)
}

// backup is what the history of a copy knows of the backup that it is.
type backup struct {
	from  time.Duration // the earliest instant that it can be as of
	clock int64         // of the history, when it was made: what comes behind is of the copy alone
	acked int64         // the last reply that a client had surely got
}

// asOf returns the begin of the history of a copy, which is as of an instant between two: all operations that may be in
// it.
func (h *history) asOf(from, until time.Duration) *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := &history{start: h.start, skew: h.skew, out: io.Discard, clock: h.clock, lines: h.lines,
		backup: backup{from: from, clock: h.clock}}
	for _, o := range h.ops {
		if o.began > until {
			continue
		}
		o := *o
		x.ops = append(x.ops, &o)
		if o.end != 0 && o.ended < from {
			x.backup.acked = max(x.backup.acked, o.end)
		}
	}
	return x
}

// checkBackup checks the history of a copy as one of a cluster that has lost its power at the backup's instant. What
// was acknowledged by then is there, and what was under way may be. With a write that is there, so is all that was
// acknowledged before it was sent, in whichever regions.
func (h *history) checkBackup() error {
	b := h.backup
	values := map[string]bool{} // that registers hold
	for _, o := range h.ops {
		if o.call > b.clock && o.kind == get && o.key[0] == 'r' {
			values[o.reply] = true
		}
	}
	for _, o := range h.ops {
		if o.kind == set && o.key[0] == 'r' && values[o.value] {
			b.acked = max(b.acked, o.call)
		}
	}
	for _, o := range h.ops {
		if o.call <= b.clock && o.end > b.acked {
			o.end, o.reply, o.ended, o.mustGo = 0, "", forever, forever
		}
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("the copy as of %s: acknowledged up to %d: %w", b.from, b.acked, err)
	}
	return nil
}
