package disk

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const category = vfs.WriteCategoryUnspecified

var seedFlag = flag.Uint64("seed", 0, "run the random tests with this seed; 0 takes a new one")

// randomSource returns a source with a printed seed.
func randomSource(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: go test -run '^%s$' -seed %d", t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// put writes a file and leaves it unsynced.
func put(t *testing.T, fs vfs.FS, name, data string) vfs.File {
	t.Helper()
	f, err := fs.Create(name, category)
	must(t, err)
	_, err = f.Write([]byte(data))
	must(t, err)
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// syncDir makes a folder's names durable.
func syncDir(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	d, err := fs.OpenDir(dir)
	must(t, err)
	must(t, d.Sync())
	must(t, d.Close())
}

// read returns a file's bytes, or "-" if there is none.
func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return "-"
	}
	must(t, err)
	data, err := io.ReadAll(f)
	must(t, err)
	must(t, f.Close())
	return string(data)
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	fs := Mem()
	must(t, fs.MkdirAll("/top/dir", 0o755))
	syncDir(t, fs, "/top")

	synced := put(t, fs, "/top/dir/synced", "0123456789")
	must(t, synced.Sync())
	_, err := synced.Write([]byte("lost"))
	must(t, err)
	over := put(t, fs, "/top/dir/overwritten", "0123456789")
	must(t, over.Sync())
	for _, w := range []string{"abc", "xy"} { // the second hides a part of the first
		_, err = over.WriteAt([]byte(w), 4)
		must(t, err)
	}
	_, err = over.WriteAt([]byte("tail"), 8)
	must(t, err)
	put(t, fs, "/top/dir/unsynced", "data")
	must(t, put(t, fs, "/top/dir/renamed", "r").Sync())
	must(t, put(t, fs, "/top/dir/removed", "r").Sync())
	must(t, fs.Link("/top/dir/synced", "/top/dir/link"))
	syncDir(t, fs, "/top/dir")
	must(t, fs.Rename("/top/dir/renamed", "/top/dir/new name"))
	must(t, fs.Remove("/top/dir/removed"))
	must(t, put(t, fs, "/top/dir/no name", "x").Sync())
	must(t, fs.MkdirAll("/top/no name", 0o755))

	files := []string{"synced", "link", "overwritten", "unsynced", "renamed", "new name", "removed", "no name"}
	for _, c := range []struct {
		percent int
		want    []string
	}{
		{0, []string{"0123456789", "0123456789", "0123456789", "", "r", "-", "r", "-"}},
		{100, []string{"0123456789lost", "0123456789lost", "0123xyc7tail", "data", "-", "r", "-", "x"}},
	} {
		left := fs.Crash(c.percent, nil)
		for i, name := range files {
			if got := read(t, left, "/top/dir/"+name); got != c.want[i] {
				t.Errorf("crash with %d %%: %s = %q; want %q", c.percent, name, got, c.want[i])
			}
		}
		// What is left has been synced: a second crash takes nothing away.
		again := left.Crash(0, nil)
		for i, name := range files {
			if got := read(t, again, "/top/dir/"+name); got != c.want[i] {
				t.Errorf("second crash after one with %d %%: %s = %q; want %q", c.percent, name, got, c.want[i])
			}
		}
	}
	if err := fs.Failed(); !errors.Is(err, ErrKilled) {
		t.Errorf("after a crash: %v; want %v", err, ErrKilled)
	}
}

// Crashes with a percentage between lose whole blocks of what was not synced, depend on the seed alone, and touch
// nothing synced.
func TestCrashLosesBlocksBySeed(t *testing.T) {
	fs := Mem()
	const blocks, syncedBlocks = 64, 16
	f := put(t, fs, "f", string(bytes.Repeat([]byte{1}, syncedBlocks*sectorBytes)))
	must(t, f.Sync())
	_, err := f.Write(bytes.Repeat([]byte{2}, (blocks-syncedBlocks)*sectorBytes))
	must(t, err)
	crash := func(seed uint64) string { return read(t, fs.Crash(50, rand.New(rand.NewPCG(seed, 0))), "f") }
	seed := randomSource(t).Uint64()
	left := crash(seed)
	if crash(seed) != left {
		t.Error("two crashes with one seed differ")
	}
	kept := 0
	for at := 0; at < len(left); at += sectorBytes {
		switch block := left[at : at+sectorBytes]; {
		case at < syncedBlocks*sectorBytes:
			if block != string(bytes.Repeat([]byte{1}, sectorBytes)) {
				t.Fatalf("synced block at %d was touched", at)
			}
		case block == string(bytes.Repeat([]byte{2}, sectorBytes)):
			kept++
		case block != string(make([]byte, sectorBytes)):
			t.Fatalf("block at %d is torn", at)
		}
	}
	if kept == 0 || kept == blocks-syncedBlocks {
		t.Errorf("kept %d of %d unsynced blocks", kept, blocks-syncedBlocks)
	}
}

// pair runs the same random operations on two file systems and compares what they answer.
type pair struct {
	t     *testing.T
	rng   *rand.Rand
	a, b  vfs.FS
	roots [2]string
	open  [2]map[string]vfs.File // files open for writing
	skip  string                 // an operation to leave out
}

func newPair(t *testing.T, rng *rand.Rand, a vfs.FS, rootA string, b vfs.FS, rootB string) *pair {
	must(t, a.MkdirAll(rootA, 0o755))
	must(t, b.MkdirAll(rootB, 0o755))
	return &pair{t, rng, a, b, [2]string{rootA, rootB}, [2]map[string]vfs.File{{}, {}}, ""}
}

// step runs one operation on both.
func (p *pair) step() {
	folders := []string{"", "x", "y", "x/z"}
	path := func() string {
		return filepath.Join(folders[p.rng.IntN(len(folders))], string(rune('a'+p.rng.IntN(4))))
	}
	name, other := path(), path()
	data := bytes.Repeat([]byte{byte('A' + p.rng.IntN(26))}, 1+p.rng.IntN(9000))
	off := int64(p.rng.IntN(9000))
	op := []string{"create", "create", "write", "write", "writeAt", "close", "openReadWrite", "reuse", "rename",
		"renameDir", "remove",
		"removeAll", "link", "mkdir", "mkdir"}[p.rng.IntN(15)]
	from, to := folders[1+p.rng.IntN(3)], folders[1+p.rng.IntN(3)]
	if op == p.skip {
		return
	}
	do := func(fs vfs.FS, root string, open map[string]vfs.File) error {
		at := func(name string) string { return filepath.Join(root, name) }
		keep := func(f vfs.File, err error) error {
			if err == nil {
				open[name] = f
			}
			return err
		}
		if f := open[name]; f != nil {
			switch op {
			case "write":
				_, err := f.Write(data)
				return err
			case "writeAt":
				_, err := f.WriteAt(data, off)
				return err
			case "close":
				delete(open, name)
				return f.Close()
			}
			return nil // neither library touches the name of a file that it writes
		}
		if open[other] != nil && (op == "rename" || op == "link" || op == "reuse") {
			return nil
		}
		switch op {
		case "create":
			if _, err := fs.Stat(at(filepath.Dir(name))); err != nil {
				return nil // the fence takes this for a failure of the disk, not for an answer
			}
			return keep(fs.Create(at(name), category))
		case "openReadWrite":
			if _, err := fs.Stat(at(filepath.Dir(name))); err != nil {
				return nil
			}
			return keep(fs.OpenReadWrite(at(name), category))
		case "reuse":
			if _, err := fs.Stat(at(other)); err != nil {
				return nil
			}
			if _, err := fs.Stat(at(filepath.Dir(name))); err != nil {
				return nil
			}
			if _, err := fs.Stat(at(name)); err == nil {
				return nil // to rename one name of a file to another changes nothing, and leaves both
			}
			f, err := fs.ReuseForWrite(at(other), at(name), category)
			if err != nil {
				return err
			}
			// The disk keeps the old bytes and memory does not; both are allowed.
			return errors.Join(f.Close(), fs.Remove(at(name)))
		case "rename":
			if _, err := fs.Stat(at(name)); err == nil && p.skip == "openReadWrite" {
				return nil // where there are links: the overlay does not know two names of one file in the base
			}
			return fs.Rename(at(other), at(name))
		case "renameDir":
			for name := range open {
				if _, ok := beneath(name, from); ok {
					return nil
				}
			}
			if _, err := fs.Stat(at(to)); err == nil || to == "x/z" || from == to {
				return nil
			}
			return fs.Rename(at(from), at(to))
		case "remove":
			return fs.Remove(at(name))
		case "removeAll":
			return fs.RemoveAll(at(name))
		case "link":
			return fs.Link(at(other), at(name))
		case "mkdir":
			return fs.MkdirAll(at(from), 0o755)
		}
		return nil
	}
	errA := do(p.a, p.roots[0], p.open[0])
	errB := do(p.b, p.roots[1], p.open[1])
	if (errA == nil) != (errB == nil) || errors.Is(errA, os.ErrNotExist) != errors.Is(errB, os.ErrNotExist) {
		p.t.Fatalf("%s %s %s (folders %s %s): %v and %v", op, name, other, from, to, errA, errB)
	}
}

// tree lists a folder: one line per file with its bytes, per folder with a slash.
func tree(t *testing.T, fs vfs.FS, root string) []string {
	t.Helper()
	var lines []string
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fs.List(filepath.Join(root, dir))
		must(t, err)
		slices.Sort(names)
		for _, name := range names {
			at := filepath.Join(dir, name)
			info, err := fs.Stat(filepath.Join(root, at))
			must(t, err)
			if info.Name() != name {
				t.Fatalf("%s is called %s", at, info.Name())
			}
			if info.IsDir() {
				lines = append(lines, at+"/")
				walk(at)
				continue
			}
			data := read(t, fs, filepath.Join(root, at))
			if int64(len(data)) != info.Size() {
				t.Fatalf("%s has %d bytes, its size is %d", at, len(data), info.Size())
			}
			lines = append(lines, at+" "+data)
		}
	}
	walk("")
	return lines
}

func (p *pair) compare(when string) {
	p.t.Helper()
	a, b := tree(p.t, p.a, p.roots[0]), tree(p.t, p.b, p.roots[1])
	if !slices.Equal(a, b) {
		p.t.Fatalf("%s: the trees differ:\n%s\n%s", when, outline(a), outline(b))
	}
}

func outline(lines []string) string {
	var s []byte
	for _, line := range lines {
		s = fmt.Appendf(s, "  %.12s (%d)", line, len(line))
	}
	return string(s)
}

func (p *pair) close() {
	for i := range p.open {
		for _, f := range p.open[i] {
			must(p.t, f.Close())
		}
	}
}

// The file system in memory answers as the machine's does.
func TestMemoryIsLikeTheDisk(t *testing.T) {
	rng := randomSource(t)
	for round := range 20 {
		p := newPair(t, rng, vfs.Default, t.TempDir(), newMemory(), "/root")
		for i := range 150 {
			p.step()
			if i%25 == 24 {
				p.compare(fmt.Sprintf("round %d, step %d", round, i))
			}
		}
		p.close()
	}
}

// Behind the fence everything looks as if it had gone on, and the base stays as it was.
func TestFenceGoesOnInMemory(t *testing.T) {
	rng := randomSource(t)
	for round := range 40 {
		fs, dir := OS(), t.TempDir()
		if round%2 == 0 {
			fs, dir = Mem(), "/root"
		}
		p := newPair(t, rng, fs, dir, newMemory(), "/root")
		// Operations that the overlay does not support are left out.
		p.skip = []string{"link", "openReadWrite"}[round/2%2]
		for range 60 {
			p.step()
		}
		must(t, fs.Failed())
		before := tree(t, fs.base, dir)
		fs.Fence(errors.New("test"))
		for i := range 100 {
			p.step()
			if i%20 == 19 {
				p.compare(fmt.Sprintf("round %d, step %d behind the fence", round, i))
			}
		}
		p.close()
		p.compare(fmt.Sprintf("round %d, closed", round))
		if after := tree(t, fs.base, dir); !slices.Equal(before, after) {
			t.Fatalf("round %d: the base has changed behind the fence:\n%s\n%s", round, outline(before), outline(after))
		}
	}
}

// TestCrashTogether kills stores and their journal at one instant, each on a disk of its own: what was synced is in the
// journal alone, until it is opened on what is left.
func TestCrashTogether(t *testing.T) {
	journal, stores := Mem(), []*FS{Mem(), Mem()}
	options := func() JournalOptions {
		return JournalOptions{
			FS: journal, Dir: "/", Bytes: 64 << 10,
			Logs:  map[uint16]string{1: "/", 2: "/"},
			Disks: map[uint16]vfs.FS{1: stores[0], 2: stores[1]},
		}
	}
	j, err := OpenJournal(options())
	must(t, err)
	var logs []vfs.File
	for i, fs := range stores {
		must(t, fs.Share(j, uint16(i+1), "/"))
		logs = append(logs, put(t, fs, "/1.log", fmt.Sprint("synced by ", i)))
		must(t, logs[i].Sync())
	}
	for _, log := range logs { // a sync of the one would be a sync of the other
		_, err := log.WriteAt([]byte("lost"), 20)
		must(t, err)
	}
	former := append([]*FS{journal}, stores...)
	journal, stores = CrashTogether(0, nil, journal, stores...)
	for _, fs := range former {
		if err := fs.Failed(); !errors.Is(err, ErrKilled) {
			t.Errorf("crashed: %v", err)
		}
	}
	must(t, j.Close())
	for i, fs := range stores {
		if got := read(t, fs, "/1.log"); got != "" {
			t.Errorf("store %d: %q before the journal is opened", i, got)
		}
	}
	j, err = OpenJournal(options())
	must(t, err)
	journal, stores = CrashTogether(0, nil, journal, stores...)
	must(t, j.Close())
	for i, fs := range stores {
		if got, want := read(t, fs, "/1.log"), fmt.Sprint("synced by ", i); got != want {
			t.Errorf("store %d: %q behind the journal's opening; want %q", i, got, want)
		}
	}
}

// TestFreeze: copies have what the original had at that instant, and nothing that either side writes later reaches the
// others.
func TestFreeze(t *testing.T) {
	f := Mem()
	must(t, f.MkdirAll("/d", 0o755))
	open := put(t, f, "/d/a", "0123456789")
	must(t, f.Link("/d/a", "/d/link"))
	copies := append(Freeze([]*FS{Mem(), f})[1:], Freeze([]*FS{f})...)
	again := Freeze(copies[:1])[0]
	for _, x := range []struct {
		off  int64
		data string
	}{{10, "abc"}, {2, "--"}, {4, "!"}} {
		_, err := open.WriteAt([]byte(x.data), x.off)
		must(t, err)
	}
	must(t, open.Close())
	own, err := copies[0].OpenReadWrite("/d/link", category)
	must(t, err)
	_, err = own.WriteAt([]byte("++"), 9)
	must(t, err)
	must(t, own.Close())
	must(t, copies[1].Remove("/d/a"))
	for _, x := range []struct {
		name    string
		fs      *FS
		a, link string
	}{
		{"the original", f, "01--!56789abc", "01--!56789abc"},
		{"the first copy", copies[0], "012345678++", "012345678++"},
		{"the second copy", copies[1], "-", "0123456789"},
		{"a copy of a copy", again, "0123456789", "0123456789"},
		{"what a crash leaves of it", again.Crash(0, randomSource(t)), "0123456789", "0123456789"},
	} {
		if a, link := read(t, x.fs, "/d/a"), read(t, x.fs, "/d/link"); a != x.a || link != x.link {
			t.Errorf("%s: %q and %q; want %q and %q", x.name, a, link, x.a, x.link)
		}
	}
}
