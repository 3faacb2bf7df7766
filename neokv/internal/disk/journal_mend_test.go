package disk

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

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
		var bad atomic.Bool
		var logs atomic.Int64
		d := &hooked{memoryFS: newMemory(), hook: func(op FileOp, name string) (bool, error) {
			switch {
			case bad.Load() && strings.HasPrefix(name, "/journal"):
				return false, syscall.EFBIG
			case op == OpSync && strings.HasSuffix(name, ".log"):
				logs.Add(1)
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
		bad.Store(true)
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
		bad.Store(false)
		write(3)
		time.Sleep(2 * time.Second)
		if err := j.Broken(); err != nil {
			t.Errorf("still broken: %v", err)
		}
		before := logs.Load()
		write(3)
		if logs.Load() != before {
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
