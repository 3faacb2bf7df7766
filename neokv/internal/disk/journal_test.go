package disk

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
)

// hooked is a file system in memory whose syncs and writes a test can suppress or make fail.
type hooked struct {
	*memoryFS
	hook func(op FileOp, name string) (skip bool, err error)
}

type hookedFile struct {
	vfs.File
	fs   *hooked
	name string
}

func (h *hooked) opened(f vfs.File, name string, err error) (vfs.File, error) {
	return hookedFile{f, h, name}, err
}

func (h *hooked) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.memoryFS.Create(name, c)
	return h.opened(f, name, err)
}

func (h *hooked) OpenReadWrite(name string, c vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	f, err := h.memoryFS.OpenReadWrite(name, c)
	return h.opened(f, name, err)
}

func (h *hooked) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := h.memoryFS.ReuseForWrite(old, name, c)
	return h.opened(f, name, err)
}

func (f hookedFile) SyncData() error {
	if skip, err := f.fs.hook(OpSync, f.name); skip || err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f hookedFile) SyncTo(length int64) (bool, error) {
	skip, err := f.fs.hook("part", fmt.Sprintf("%s to %d", f.name, length))
	return skip, err
}

func (f hookedFile) WriteAt(p []byte, off int64) (int, error) {
	if skip, err := f.fs.hook(OpWrite, f.name); skip || err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// writer stands for a store: it writes logs as Pebble does, and remembers which bytes were acknowledged.
type writer struct {
	id     uint16
	fs     *FS
	random *rand.Rand
	over   *atomic.Bool // what is synced from now on is not acknowledged
	number int
	name   string
	file   vfs.File
	logs   map[string]*written // those that are there
}

type written struct {
	data  []byte
	acked int
}

func (w *writer) dir() string { return fmt.Sprintf("/store-%d/engine", w.id) }

// rotate closes the log and begins another, in the place of the oldest or not.
func (w *writer) rotate(t *testing.T) {
	if w.file != nil {
		w.sync(t)
		must(t, w.file.Close())
	}
	w.number++
	w.name = fmt.Sprintf("%s/%06d.log", w.dir(), w.number)
	old := ""
	if names := slices.Sorted(maps.Keys(w.logs)); len(names) > 3 {
		old = names[0]
		delete(w.logs, old)
	}
	var err error
	if old != "" && w.random.IntN(2) == 0 {
		w.file, err = w.fs.ReuseForWrite(old, w.name, category)
	} else {
		if old != "" {
			must(t, w.fs.Remove(old))
		}
		w.file, err = w.fs.Create(w.name, category)
	}
	must(t, err)
	syncDir(t, w.fs, w.dir())
	if !w.over.Load() {
		w.logs[w.name] = new(written)
	}
}

func (w *writer) sync(t *testing.T) {
	log := w.logs[w.name]
	must(t, w.file.SyncData())
	if log != nil && !w.over.Load() && w.fs.Failed() == nil {
		log.acked = len(log.data)
	}
}

// run writes until it is over.
func (w *writer) run(t *testing.T, steps int) {
	w.file = nil
	w.rotate(t)
	for i := 0; i < steps && !w.over.Load() && w.fs.Failed() == nil; i++ {
		p := make([]byte, 1+w.random.IntN(3000))
		for i := range p {
			p[i] = byte(w.random.Uint32())
		}
		log := w.logs[w.name]
		if log == nil {
			break
		}
		log.data = append(log.data, p...)
		_, err := w.file.Write(p)
		must(t, err)
		if w.random.IntN(3) > 0 {
			w.sync(t)
		}
		if w.random.IntN(12) == 0 {
			w.rotate(t)
		}
	}
}

// check compares what is there with what was acknowledged, and goes on from what is there.
func (w *writer) check(fs vfs.FS) error {
	for _, name := range slices.Sorted(maps.Keys(w.logs)) {
		log := w.logs[name]
		f, err := fs.Open(name)
		if err != nil {
			if log.acked > 0 {
				return fmt.Errorf("%s: %d bytes acknowledged: %w", name, log.acked, err)
			}
			delete(w.logs, name)
			continue
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		data := make([]byte, info.Size())
		f.ReadAt(data, 0)
		f.Close()
		if len(data) < log.acked || !bytes.Equal(data[:log.acked], log.data[:log.acked]) {
			return fmt.Errorf("%s: of %d bytes acknowledged the first %d are there", name, log.acked,
				equal(data, log.data))
		}
		log.data = slices.Clone(data)
	}
	return nil
}

func equal(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// journalled is a group of stores that share a journal, all on one memoryFS.
type journalled struct {
	t       *testing.T
	random  *rand.Rand
	disk    *hooked
	journal *Journal
	over    atomic.Bool
	writers []*writer
}

func newJournalled(t *testing.T, random *rand.Rand, stores int) *journalled {
	c := &journalled{t: t, random: random}
	for i := range stores {
		c.writers = append(c.writers, &writer{id: uint16(i + 1), random: rand.New(rand.NewPCG(random.Uint64(), 0)),
			over: &c.over, logs: map[string]*written{}})
	}
	m := newMemory()
	for _, w := range c.writers {
		must(t, m.MkdirAll(w.dir(), 0o755))
		syncDir(t, m, filepath.Dir(w.dir()))
	}
	c.boot(m)
	return c
}

func (c *journalled) options(fs vfs.FS) JournalOptions {
	o := JournalOptions{FS: fs, Dir: "/", Bytes: 64 << 10 << c.random.IntN(2), Logs: map[uint16]string{}}
	for _, w := range c.writers {
		o.Logs[w.id] = w.dir()
	}
	return o
}

// boot opens journal and stores on a disk. While they write, the journal checks again and again whether there are
// hardly any writes.
func (c *journalled) boot(m *memoryFS) {
	var open atomic.Pointer[Journal]
	var syncs atomic.Int64
	c.disk = &hooked{memoryFS: m, hook: func(op FileOp, name string) (bool, error) {
		if j := open.Load(); j != nil && op == OpSync && strings.Contains(name, "journal-") && syncs.Add(1)%10 == 0 {
			j.rest(0)
			for range 50 { // let the settler run in between
				runtime.Gosched()
			}
		}
		return false, nil
	}}
	var err error
	c.journal, err = OpenJournal(c.options(c.disk))
	must(c.t, err)
	open.Store(c.journal)
	c.over.Store(false)
	for _, w := range c.writers {
		w.fs = newFS(c.disk, m)
		must(c.t, w.fs.Share(c.journal, w.id, w.dir()))
	}
}

// run makes all stores write side by side until there were so many syncs or steps. It returns what a power cut then
// leaves.
func (c *journalled) run(syncs int64, percent int) *memoryFS {
	var left *memoryFS
	var once sync.Once
	var count atomic.Int64
	crash := func() {
		once.Do(func() {
			c.over.Store(true) // first: what is acknowledged is there
			left = c.disk.memoryFS.crash(percent, c.random)
		})
	}
	var running sync.WaitGroup
	for _, w := range c.writers {
		w.fs.Hook(BeforeSync, func(int64) {
			if count.Add(1) == syncs {
				crash()
			}
		})
		running.Go(func() { w.run(c.t, 2000) })
	}
	running.Wait()
	crash()
	for _, w := range c.writers {
		must(c.t, w.file.Close())
	}
	return left
}

// end closes the journal of a disk that is of no interest any more.
func (c *journalled) end() { _ = c.journal.Close() }

func (c *journalled) check(fs vfs.FS) (err error) {
	for _, w := range c.writers {
		err = errors.Join(err, w.check(fs))
	}
	return err
}

// recovered opens the journal of a disk and closes or drops it. It returns what a power cut leaves, which may come in
// the middle.
func (c *journalled) recovered(m *memoryFS) (left *memoryFS) {
	left = m
	at, percent := c.random.IntN(40), c.random.IntN(101)
	o := c.options(&hooked{memoryFS: m, hook: func(FileOp, string) (bool, error) {
		if at--; at == 0 {
			left = m.crash(percent, c.random)
		}
		return false, nil
	}})
	if c.random.IntN(2) == 0 {
		must(c.t, DropJournal(o))
		return left
	}
	j, err := OpenJournal(o)
	must(c.t, err)
	must(c.t, j.Close())
	return left
}

// Power cuts hit stores and journal at one instant, again and again, some while OpenJournal completes the logs. In
// between, the journal is sometimes closed cleanly.
func TestJournalKeepsWhatWasSynced(t *testing.T) {
	random := randomSource(t)
	c := newJournalled(t, random, 3)
	var turns uint64
	rounds := 40
	if testing.Short() {
		rounds /= 4
	}
	for round := range rounds {
		left := c.run(1+random.Int64N(1500), []int{0, 50, 100, random.IntN(101)}[round%4])
		if round%5 == 4 {
			left = c.disk.memoryFS
			must(t, c.journal.Close())
		} else {
			turns += c.journal.segments[c.journal.current].epoch
			c.end()
		}
		for range random.IntN(3) {
			left = c.recovered(left)
		}
		c.boot(left)
		if err := c.check(left); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for i := range c.journal.segments { // it begins empty
			s := segment{file: c.journal.segments[i].file}
			if must(t, s.measure()); s.end != pageBytes {
				t.Fatalf("round %d: segment %d has %d bytes", round, i, s.end)
			}
		}
	}
	c.end()
	must(t, DropJournal(c.options(c.disk)))
	if names, err := c.disk.List("/"); err != nil ||
		slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "journal") }) {
		t.Errorf("%v, %v; want no journal", names, err)
	}
	t.Logf("%d segments used", turns)
}

// A segment that is not synced, or is used again although a log was not, is found by the same test.
func TestJournalMistakesAreFound(t *testing.T) {
	for _, suffix := range []string{"journal-0", ".log"} {
		random := randomSource(t)
		found := 0
		for round := 0; round < 10 && (found == 0 || !testing.Short()); round++ {
			c := newJournalled(t, random, 3)
			c.disk.hook = func(op FileOp, name string) (bool, error) {
				return op == OpSync && strings.HasSuffix(name, suffix), nil
			}
			left := c.run(800+random.Int64N(800), 0)
			c.end()
			c.boot(left)
			if c.check(left) != nil {
				found++
			}
			c.end()
		}
		if found == 0 {
			t.Errorf("syncs of *%s left out: nothing was lost", suffix)
		}
	}
}

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

// When the journal's disk fails, each store syncs for itself, and nothing is lost.
func TestJournalFails(t *testing.T) {
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for _, op := range []FileOp{OpWrite, OpSync} {
		random := randomSource(t)
		for round := range rounds {
			c := newJournalled(t, random, 3)
			var count atomic.Int64
			at := 1 + random.Int64N(300) // there are more, also where syncs share most
			c.disk.hook = func(o FileOp, name string) (bool, error) {
				if o == op && strings.HasPrefix(filepath.Base(name), "journal") && count.Add(1) >= at {
					return false, syscall.EIO
				}
				return false, nil
			}
			left := c.run(1500, []int{0, 50, 100}[round%3])
			if !errors.Is(c.journal.err, syscall.EIO) {
				t.Fatalf("the journal has failed with %v; want %v", c.journal.err, syscall.EIO)
			}
			for _, w := range c.writers {
				if err := w.fs.Failed(); err != nil {
					t.Errorf("store %d: fenced: %v", w.id, err)
				}
			}
			c.end()
			c.boot(left)
			if err := c.check(left); err != nil {
				t.Fatalf("%s %d of the journal fails: %v", op, at, err)
			}
			c.end()
		}
	}
}

// A log that cannot be synced when its segment is left fences its store alone; what was acknowledged stays in the
// journal, and the others sync for themselves.
func TestJournalFencesOneStore(t *testing.T) {
	random := randomSource(t)
	var others [4]atomic.Int64 // syncs of their logs since then
	rounds := 10
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		c := newJournalled(t, random, 3)
		var failed atomic.Bool
		c.disk.hook = func(op FileOp, name string) (bool, error) {
			var store int
			if _, err := fmt.Sscanf(name, "/store-%d/", &store); err != nil || op != OpSync {
				return false, nil
			}
			if store == 2 {
				failed.Store(true)
				return false, syscall.EIO
			}
			if failed.Load() {
				others[store].Add(1)
			}
			return false, nil
		}
		left := c.run(1500, []int{0, 50, 100}[round%3])
		for _, w := range c.writers {
			if err := w.fs.Failed(); errors.Is(err, syscall.EIO) != (w.id == 2) {
				t.Errorf("store %d: failed: %v", w.id, err)
			}
		}
		if err := c.journal.Close(); !errors.Is(err, syscall.EIO) {
			t.Errorf("the journal closes with %v; want %v", err, syscall.EIO)
		}
		for _, m := range []*memoryFS{c.disk.memoryFS.crash(0, random), left} {
			c.boot(m)
			if err := c.check(m); err != nil {
				t.Fatal(err)
			}
			c.end()
		}
	}
	if a, b := others[1].Load(), others[3].Load(); a < 100 || b < 100 {
		t.Errorf("stores 1 and 3 have synced %d and %d times since; want them to go on", a, b)
	}
}

// On the machine's disk, OpenJournal completes logs that have lost unsynced bytes, and refuses a damaged journal.
func TestJournalOnDisk(t *testing.T) {
	dir := t.TempDir()
	o := JournalOptions{Dir: dir, Logs: map[uint16]string{1: dir + "/a", 2: dir + "/b"}, Bytes: 1 << 20}
	j, err := OpenJournal(o)
	must(t, err)
	var stores []*FS
	names := []string{dir + "/a/000001.log", dir + "/b/000001.log", dir + "/b/other.sst"}
	for i := range 2 {
		fs := OS()
		must(t, fs.MkdirAll(filepath.Dir(names[i]), 0o755))
		must(t, fs.Share(j, uint16(i+1), filepath.Dir(names[i])))
		stores = append(stores, fs)
	}
	former := put(t, stores[0], names[0], strings.Repeat("former life ", 10))
	must(t, former.Sync())
	must(t, former.Close())
	must(t, stores[0].Remove(names[0]))
	var files []vfs.File
	for i, name := range names {
		f := put(t, stores[min(i, 1)], name, name)
		must(t, f.Sync())
		files = append(files, f)
	}
	if a, b := stores[0].Stats().Syncs, stores[1].Stats().Syncs; a != 2 || b != 2 {
		t.Errorf("%d and %d syncs counted; want 2, and 1 for the log with 1 for the other file", a, b)
	}
	for _, f := range files {
		must(t, f.Close())
	}
	must(t, os.Truncate(names[0], 5)) // as a power cut may do
	must(t, os.WriteFile(names[1], bytes.Repeat([]byte{7}, len(names[1])), 0o644))
	moved := t.TempDir()
	must(t, os.CopyFS(moved, os.DirFS(dir)))
	must(t, j.Close())

	o.Dir, o.Logs = moved, map[uint16]string{1: moved + "/a", 2: moved + "/b"}
	j, err = OpenJournal(o)
	must(t, err)
	must(t, j.Close())
	for _, name := range names {
		if got := read(t, vfs.Default, moved+strings.TrimPrefix(name, dir)); got != name {
			t.Errorf("%s = %q", name, got)
		}
	}

	f, err := os.OpenFile(moved+"/journal-1", os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("x"), 10)
	must(t, err)
	must(t, f.Close())
	if _, err := OpenJournal(o); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("damaged journal opened: %v", err)
	}
}

// A group that was synced and is damaged is not taken for the torn end of its segment as long as another stands behind
// it.
func TestJournalDamagedInTheMiddle(t *testing.T) {
	random := randomSource(t)
	const groups = 5
	for round := range 40 {
		m := newMemory()
		o := JournalOptions{FS: m, Dir: "/", Bytes: 256 << 10, Logs: map[uint16]string{1: "/"}}
		j, err := OpenJournal(o)
		must(t, err)
		fs := newFS(m, m)
		must(t, fs.Share(j, 1, "/"))
		f := put(t, fs, "/1.log", "x")
		s := &j.segments[j.current]
		var begins []int64
		for range groups {
			begins = append(begins, s.end)
			_, err := f.Write(make([]byte, 1+random.IntN(10_000)))
			must(t, err)
			must(t, f.Sync())
		}
		at := random.IntN(groups)
		file, err := m.OpenReadWrite(o.segment(j.current), category)
		must(t, err)
		b := make([]byte, 1)
		off := begins[at] + random.Int64N(groupHeader+recordHeader)
		_, err = file.ReadAt(b, off)
		must(t, err)
		b[0] ^= 1 << random.IntN(8)
		_, err = file.WriteAt(b, off)
		must(t, err)
		_, err = OpenJournal(o)
		if at == groups-1 { // as if it had never been acknowledged
			must(t, err)
		} else if want := fmt.Sprintf("damaged at %d: group", begins[at]); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Fatalf("round %d: group %d damaged at %d: %v; want %s", round, at, off, err, want)
		}
	}
}

// The segments grow with what is written, are as large as they were while writing goes on, and small again when it
// rests; so is a log whose space was asked for beforehand.
func TestJournalGivesSpaceBack(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of few goroutines")
	}
	dir := t.TempDir()
	o := JournalOptions{FS: vfs.Default, Dir: dir, Logs: map[uint16]string{1: dir, 2: dir}, Bytes: 8 << 20}
	j, err := OpenJournal(o)
	must(t, err)
	sizes := func() (sum int64) {
		for i := range 2 {
			info, err := os.Stat(o.segment(i))
			must(t, err)
			sum += info.Size()
		}
		return sum
	}
	if got := sizes(); got > 3*extendBytes {
		t.Errorf("the segments begin with %d bytes", got)
	}
	fs, alone := OS(), OS()
	must(t, fs.Share(j, 1, dir))
	for i, of := range []*FS{fs, alone} {
		name := fmt.Sprintf("%s/small%d.log", dir, i)
		f, err := of.Create(name, category)
		must(t, err)
		must(t, f.Preallocate(0, 64<<20))
		_, err = f.Write([]byte("x"))
		must(t, err)
		info, err := os.Stat(name)
		must(t, err)
		if want := []int64{1, extendBytes}[i]; info.Size() != want {
			t.Errorf("%s has %d bytes; want %d", name, info.Size(), want)
		}
		must(t, f.Close())
	}
	f, err := fs.Create(dir+"/000001.log", category)
	must(t, err)
	for range 30 {
		_, err := f.Write(make([]byte, 1<<20))
		must(t, err)
		must(t, f.Sync())
	}
	full := sizes()
	if full < 2*(o.Bytes-extendBytes) {
		t.Errorf("the segments have %d bytes under load", full)
	}
	settled := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		for !j.segments[1-j.current].free {
			j.changed.Wait()
		}
	}
	total := j.rest(0)
	for range 3 {
		j.rest(total)
		settled()
	}
	if got := sizes(); got > 3*extendBytes {
		t.Errorf("the segments have %d bytes at rest, %d under load", got, full)
	}
	must(t, f.Close())
	must(t, j.Close())
	if got := sizes(); got > 2*pageBytes {
		t.Errorf("the segments have %d bytes when closed", got)
	}
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

// A group that does not fit into the last quarter of a segment, or into more, waits for the other segment, which was
// not due before. It waits for no timer.
func TestJournalLargeGroup(t *testing.T) {
	const bytes = 64 << 10
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		m := newMemory()
		j, err := OpenJournal(JournalOptions{FS: m, Dir: "/", Bytes: bytes, Logs: map[uint16]string{1: "/"}})
		must(t, err)
		fs := newFS(m, m)
		must(t, fs.Share(j, 1, "/"))
		f := put(t, fs, "/1.log", "x")
		for left := false; !left || j.segments[j.current].end < bytes/2; {
			from := j.current
			_, err := f.Write([]byte("x"))
			must(t, err)
			must(t, f.SyncData())
			synctest.Wait()
			left = left || j.current != from
		}
		if j.segments[1-j.current].free {
			t.Error("the other segment is free at half of this one")
		}
		j.group = bytes // as when many callers write before the leading one has its turn
		_, err = f.Write(make([]byte, bytes*5/8))
		must(t, err)
		must(t, f.SyncData())
		if took := time.Since(begin); took > 0 {
			t.Errorf("the group was written after %v", took)
		}
		must(t, f.Close())
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

// The journal's disk fails for a moment again and again. The journal breaks, is whole again, and nothing is lost at a
// power cut, whenever that comes.
func TestJournalMends(t *testing.T) {
	random := randomSource(t)
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	var broken, mended atomic.Int64
	for round := range rounds {
		c := newJournalled(t, random, 3)
		c.journal.mu.Lock()
		c.journal.patience = time.Microsecond
		c.journal.onChange = func(err error) {
			if err != nil {
				broken.Add(1)
			} else {
				mended.Add(1)
			}
		}
		c.journal.mu.Unlock()
		rest := c.disk.hook
		var count atomic.Int64
		at := 5 + random.Int64N(50)
		c.disk.hook = func(op FileOp, name string) (bool, error) {
			if op != "part" && strings.HasPrefix(filepath.Base(name), "journal") && count.Add(1)%at == 0 {
				return false, syscall.EIO
			}
			return rest(op, name)
		}
		left := c.run(1+random.Int64N(3000), []int{0, 50, 100, random.IntN(101)}[round%4])
		for _, w := range c.writers {
			if err := w.fs.Failed(); err != nil {
				t.Errorf("store %d: fenced: %v", w.id, err)
			}
		}
		c.end()
		c.boot(left)
		if err := c.check(left); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		c.end()
	}
	if mended.Load() == 0 || broken.Load() == mended.Load() && broken.Load() < int64(rounds) {
		t.Errorf("the journal has broken %d times, and was mended %d times", broken.Load(), mended.Load())
	}
	t.Logf("broken %d times, mended %d times", broken.Load(), mended.Load())
}

// Once the journal is mended it syncs for the stores again, each from its next sync on. The first try comes after a
// second, the second one two seconds later.
func TestJournalIsWholeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad bool
		logs := 0
		d := &hooked{memoryFS: newMemory(), hook: func(op FileOp, name string) (bool, error) {
			switch {
			case bad && strings.HasPrefix(name, "/journal"):
				return false, syscall.EFBIG
			case op == OpSync && strings.HasSuffix(name, ".log"):
				logs++
			}
			return false, nil
		}}
		begin := time.Now()
		var told []string
		j, err := OpenJournal(JournalOptions{FS: d, Dir: "/", Logs: map[uint16]string{1: "/"}, OnChange: func(err error) {
			told = append(told, fmt.Sprint(time.Since(begin), " ", err))
		}})
		must(t, err)
		fs := newFS(d, d.memoryFS)
		must(t, fs.Share(j, 1, "/"))
		f := put(t, fs, "/1.log", "a")
		must(t, f.Sync())
		bad = true
		write := func(want int64) {
			t.Helper()
			_, err := f.Write([]byte("b"))
			must(t, errors.Join(err, f.Sync()))
			synctest.Wait()
			if got := fs.Stats().AloneSyncs; got != want {
				t.Errorf("the store has synced its log alone %d times; want %d", got, want)
			}
		}
		write(1)
		if err := j.Broken(); !errors.Is(err, syscall.EFBIG) {
			t.Errorf("broken: %v; want %v", err, syscall.EFBIG)
		}
		write(2)
		time.Sleep(1500 * time.Millisecond) // the first try has failed
		bad = false
		write(3)
		time.Sleep(2 * time.Second)
		if err := j.Broken(); err != nil {
			t.Errorf("still broken: %v", err)
		}
		before := logs
		write(3)
		if logs != before {
			t.Error("the log was synced, and not the journal")
		}
		if want := []string{"0s journal: " + syscall.EFBIG.Error(), "3s <nil>"}; !slices.Equal(told, want) {
			t.Errorf("told %q; want %q", told, want)
		}
		must(t, f.Close())
		must(t, j.Close())
	})
}

// The system reports once that it could not write a log's bytes, and then forgets them. While the store is told, no
// other sync of the log is answered. When the store starts again, the log has the bytes that the journal has of it, and
// the journal is mended.
func TestJournalRewritesALog(t *testing.T) {
	m := newMemory()
	reported := false
	d := &hooked{memoryFS: m, hook: func(op FileOp, name string) (bool, error) {
		if op != OpSync || name != "/1.log" || reported {
			return false, nil
		}
		reported = true
		file, err := m.OpenReadWrite(name, category)
		must(t, err)
		_, err = file.WriteAt(make([]byte, len("synced")), 0)
		must(t, errors.Join(err, file.Close()))
		return false, syscall.EIO
	}}
	o := JournalOptions{FS: d, Dir: "/", Logs: map[uint16]string{1: "/", 2: "/"}}
	j, err := OpenJournal(o)
	must(t, err)
	fs := newFS(d, m)
	must(t, fs.Share(j, 1, "/"))
	f := put(t, fs, "/1.log", "synced")
	must(t, f.Sync())
	_, err = f.Write([]byte(" not synced"))
	must(t, err)

	j.mu.Lock()
	j.fail(syscall.EIO) // from now on the store syncs its own log
	j.mu.Unlock()
	var answered atomic.Bool
	done := make(chan struct{})
	fs.OnFence(func(error) {
		go func() {
			defer close(done)
			must(t, f.Sync())
			answered.Store(true)
		}()
		for range 10_000 {
			runtime.Gosched()
		}
		if answered.Load() {
			t.Error("a sync was answered before the store was told that the log has lost bytes")
		}
	})
	j.mu.Lock()
	if err := j.syncLogs(j.logs()); !errors.Is(err, syscall.EIO) {
		t.Errorf("the log was synced: %v", err)
	}
	if err := j.renew(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the journal was mended without the log: %v", err)
	}
	j.mu.Unlock()
	<-done
	must(t, f.Close())

	again := newFS(d, m)
	must(t, again.Share(j, 1, "/"))
	if got := read(t, again, "/1.log"); !strings.HasPrefix(got, "synced") {
		t.Errorf("the log has %q; want synced first", got)
	}
	j.mu.Lock()
	must(t, j.renew())
	j.mu.Unlock()
	must(t, j.Close())
}
