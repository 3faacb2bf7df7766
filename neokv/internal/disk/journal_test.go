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
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
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
