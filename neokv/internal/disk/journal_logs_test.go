package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
)

// A store is killed while the others go on, each on a disk of its own, and starts again on what is left.
func TestJournalOutlivesAStore(t *testing.T) {
	random := randomSource(t)
	seed := random.Uint64()
	lives := 30
	if testing.Short() {
		lives /= 3
	}
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := &journalled{t: t, random: random}
		for i := range 3 {
			c.writers = append(c.writers, &writer{id: uint16(i + 1), random: rand.New(rand.NewPCG(seed, uint64(i+1))),
				over: &c.over, logs: map[string]*written{}})
		}
		var err error
		c.journal, err = OpenJournal(c.options(newMemory()))
		must(t, err)
		var running sync.WaitGroup
		for _, w := range c.writers {
			w.fs = Mem()
			must(t, w.fs.MkdirAll(w.dir(), 0o755))
			syncDir(t, w.fs, filepath.Dir(w.dir()))
			running.Go(func() {
				for life := range lives {
					must(t, w.fs.Share(c.journal, w.id, w.dir()))
					left := make(chan *FS, 1)
					at := w.fs.begun.Load() + 1 + w.random.Int64N(300)
					w.fs.Hook(BeforeSync, func(n int64) {
						if n == at {
							left <- w.fs.Crash([]int{0, 50, 100}[life%3], w.random)
						}
					})
					w.run(t, 10_000)
					must(t, w.file.Close())
					w.fs = <-left
					if err := w.check(w.fs); err != nil {
						t.Errorf("store %d, life %d: %v", w.id, life, err)
						return
					}
				}
			})
		}
		running.Wait()
		must(t, c.journal.err)
		must(t, c.journal.Close())
	})
}

// Bytes that a killed store had handed over and not synced may be synced later by another store. They must not come
// back in the killed store's next life.
func TestJournalForgetsAFormerLife(t *testing.T) {
	o := JournalOptions{FS: newMemory(), Dir: "/", Bytes: 64 << 10, Logs: map[uint16]string{1: "/", 2: "/"}}
	j, err := OpenJournal(o)
	must(t, err)
	killed, other := Mem(), Mem()
	must(t, killed.Share(j, 1, "/"))
	must(t, other.Share(j, 2, "/"))
	log := put(t, killed, "/1.log", "synced")
	_, err = log.WriteAt([]byte("too"), 10)
	must(t, err)
	must(t, log.Sync())
	_, err = log.WriteAt([]byte("lost"), 13)
	must(t, err)
	const want = "synced\x00\x00\x00\x00too"
	for life := range 2 {
		killed = killed.Crash(0, nil)
		if got := read(t, killed, "/1.log"); got != want {
			t.Errorf("life %d: %q; want %q", life, got, want)
		}
		must(t, killed.Share(j, 1, "/"))
		must(t, put(t, other, fmt.Sprintf("/%d.log", life), "x").Sync())
	}
	must(t, j.Close())
}

// Only the journal has made durable what a store wrote before it ended. If the store cannot sync its logs when it
// starts again, the journal keeps these bytes: the process may be killed before that disk is good again.
func TestJournalKeepsAFormerLife(t *testing.T) {
	random := randomSource(t)
	journal, failing, other := Mem(), Mem(), Mem()
	o := JournalOptions{FS: journal, Dir: "/", Bytes: 64 << 10, Logs: map[uint16]string{1: "/", 2: "/"}}
	j, err := OpenJournal(o)
	must(t, err)
	must(t, failing.Share(j, 1, "/"))
	must(t, other.Share(j, 2, "/"))
	log := put(t, failing, "/1.log", "synced")
	must(t, log.Sync())
	must(t, log.Close())
	failing.SetDrive(fault.Drive{SyncErrors: true}, random)
	if err := failing.Share(j, 1, "/"); err == nil {
		t.Error("the store has shared the journal again, though its log could not be synced")
	}
	must(t, put(t, other, "/2.log", "x").Sync())
	journalLeft, left := CrashTogether(0, random, journal, failing, other)
	if err := j.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the journal closes with %v; want %v, of the log that could not be synced", err, syscall.EIO)
	}
	o.FS, o.Disks = journalLeft, map[uint16]vfs.FS{1: left[0], 2: left[1]}
	j, err = OpenJournal(o)
	must(t, err)
	must(t, j.Close())
	if got := read(t, left[0], "/1.log"); got != "synced" {
		t.Errorf("after a kill of the process the log has %q; want synced", got)
	}
}

// A store is killed on the machine's disk again and again. The journal neither keeps the logs of its former lives open
// nor knows their file systems.
func TestJournalLeavesFormerLives(t *testing.T) {
	dir := t.TempDir()
	j, err := OpenJournal(JournalOptions{Dir: dir, Logs: map[uint16]string{1: dir}})
	must(t, err)
	fs := OS()
	for life := range 5 {
		must(t, fs.Share(j, 1, dir))
		j.mu.Lock()
		for _, w := range j.logs() {
			if w.fs != fs {
				t.Errorf("life %d: the journal has %s of a former life", life, w.name)
			}
		}
		j.mu.Unlock()
		log := put(t, fs, fmt.Sprintf("%s/%d.log", dir, life), "synced")
		must(t, log.Sync())
		w := log.(*file).log
		left := fs.Crash(0, nil)
		must(t, log.Close())
		if w.base == nil {
			t.Fatalf("life %d: the log was closed before the journal could sync it", life)
		}
		fs = left
		defer func() {
			if w.base != nil {
				t.Errorf("life %d: the log stays open", life)
			}
		}()
	}
	must(t, fs.Share(j, 1, dir))
	must(t, j.Close())
}

// synced records, in order, which syncs a test of the settler has seen.
type synced struct {
	mu    sync.Mutex
	names []string
}

func (s *synced) hook(op FileOp, name string) (bool, error) {
	if strings.Contains(name, ".log") && op != OpWrite {
		s.mu.Lock()
		s.names = append(s.names, name)
		s.mu.Unlock()
	}
	return false, nil
}

func (s *synced) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names
	s.names = nil
	return names
}

// The logs of a segment that was left are not synced before the other is three quarters full, and then only those that
// are still there. When the journal rests, they are at once.
func TestJournalSettlesLate(t *testing.T) {
	const bytes, part = 256 << 10, 16 << 10
	synctest.Test(t, func(t *testing.T) {
		var seen synced
		d := &hooked{memoryFS: newMemory(), hook: seen.hook}
		j, err := OpenJournal(JournalOptions{FS: d, Dir: "/", Bytes: bytes, Logs: map[uint16]string{1: "/"}})
		must(t, err)
		fs := newFS(d, d.memoryFS)
		must(t, fs.Share(j, 1, "/"))
		seen.take()
		number := 0
		var file vfs.File
		write := func(size int) {
			_, err := file.Write(make([]byte, size))
			must(t, err)
			must(t, file.SyncData())
			synctest.Wait()
		}
		next := func() (name string) {
			if file != nil {
				must(t, file.Close())
			}
			number++
			name = fmt.Sprintf("/%06d.log", number)
			file, err = fs.Create(name, category)
			must(t, err)
			return name
		}
		leave := func() { // fills the segment in use
			for from := j.current; j.current == from; {
				write(part)
			}
		}
		// fill writes as long as the segment in use stays less than three quarters full.
		fill := func() {
			for s := &j.segments[j.current]; s.end+2*pages(part+groupHeader+100) < bytes/4*3; {
				write(part)
			}
		}

		removed, kept := next(), ""
		write(part)
		kept = next()
		leave()
		next()
		fill()
		must(t, fs.Remove(removed))
		if got := seen.take(); len(got) > 0 {
			t.Errorf("synced before the segment is three quarters full: %v", got)
		}
		for range 4 {
			write(part)
		}
		if got := seen.take(); !slices.Equal(got, []string{kept}) || !j.segments[1-j.current].free {
			t.Errorf("synced then: %v, free: %v; want %s", got, j.segments[1-j.current].free, kept)
		}

		leave()
		if got := seen.take(); len(got) > 0 || j.segments[1-j.current].free {
			t.Errorf("left: synced %v, free: %v", got, j.segments[1-j.current].free)
		}
		j.rest(j.total)
		synctest.Wait()
		if got := seen.take(); len(got) == 0 || !j.segments[1-j.current].free {
			t.Errorf("at rest: synced %v, free: %v", got, j.segments[1-j.current].free)
		}
		must(t, file.Close())
		must(t, j.Close())
	})
}

// A log is synced in parts, and no further when it is removed. A part that the disk cannot write fences the store,
// since the sync after it would not report the error.
func TestJournalSyncsInParts(t *testing.T) {
	const size = 3*partBytes + 100
	parts := []string{"/1.log to 1048576", "/1.log to 2097152", "/1.log to 3145728", "/1.log"}
	for _, c := range []struct {
		name string
		at   func(fs *FS) error // the second part
		want []string
	}{
		{"there", func(*FS) error { return nil }, parts},
		{"removed", func(fs *FS) error { return fs.Remove("/1.log") }, parts[:2]},
		{"damaged", func(*FS) error { return syscall.EIO }, parts[:2]},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen synced
			var fs *FS
			d := &hooked{memoryFS: newMemory()}
			d.hook = func(op FileOp, name string) (bool, error) {
				seen.hook(op, name)
				if name == parts[1] {
					return false, c.at(fs)
				}
				return false, nil
			}
			j, err := OpenJournal(JournalOptions{FS: d, Dir: "/", Logs: map[uint16]string{1: "/"}})
			must(t, err)
			fs = newFS(d, d.memoryFS)
			must(t, fs.Share(j, 1, "/"))
			f := put(t, fs, "/1.log", strings.Repeat("x", size))
			must(t, f.Close())
			err = j.Close()
			if got := seen.take(); !slices.Equal(got, c.want) {
				t.Errorf("the disk was told %v; want %v", got, c.want)
			}
			if fails := c.name == "damaged"; errors.Is(err, syscall.EIO) != fails ||
				errors.Is(fs.Failed(), syscall.EIO) != fails {
				t.Errorf("the journal closes with %v, the store has failed with %v", err, fs.Failed())
			}
		})
	}
}
