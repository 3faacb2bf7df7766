package neokv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// lostCluster is a data folder whose parts a test takes away, or makes old, and what was acknowledged there.
type lostCluster struct {
	base   string // has data, and wal if the logs are apart
	config Config
	want   map[string]string
	n      int // counts writes
}

// newLostCluster makes a folder of three stores. Logs are cut early, so that stores that were away get snapshots.
func newLostCluster(t *testing.T, apart bool) *lostCluster {
	l := &lostCluster{base: filepath.Join(t.TempDir(), "here"), want: make(map[string]string)}
	s := small()
	s.Raft.SnapshotEntries, s.Raft.CompactionOverhead = 50, 5
	if apart {
		s.Engine.WALDir = filepath.Join(l.base, "wal")
	}
	l.config = Config{Stores: 3, Regions: 4, Dir: filepath.Join(l.base, "data"), NoSockets: true, Settings: s,
		Progress: func(step string) { t.Log(step) }}
	return l
}

// write sets keys, also ones that there are, and remembers what is acknowledged.
func (l *lostCluster) write(t *testing.T, c *Cluster, keys int) {
	t.Helper()
	l.n++
	args := []any{"MSET"}
	for i := range keys {
		k, v := fmt.Sprint("k", i*7%(40*l.n)), fmt.Sprint("v", l.n, "-", i)
		args = append(args, k, v)
		l.want[k] = v
	}
	if _, err := c.Do(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// use writes to a cluster that has tables, logs, and snapshots that store 3 has received.
func (l *lostCluster) use(t *testing.T, c *Cluster) {
	t.Helper()
	l.write(t, c, 60)
	do(t, c, "stop 3")
	for range 80 {
		l.write(t, c, 12)
	}
	do(t, c, "restart 3")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.WaitHealthy(ctx); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.nodes {
		if err := n.store.Load().Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	l.write(t, c, 60)
}

// missing counts the acknowledged writes that a cluster does not have. It is -1 if too few stores run to serve them.
func (l *lostCluster) missing(t *testing.T, c *Cluster) (n int) {
	t.Helper()
	args := []any{"MGET"}
	var want []string
	for k, v := range l.want {
		args, want = append(args, k), append(want, v)
	}
	var got any
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if got, err = c.Do(t.Context(), args...); err == nil {
			break
		}
		if c.lacks() != "" {
			return -1
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for i, v := range got.([]any) {
		if v != want[i] && fmt.Sprintf("%s", v) != want[i] {
			n++
		}
	}
	return n
}

// open starts the cluster. Its error is that of a start that was refused.
func (l *lostCluster) open(t *testing.T) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return Start(ctx, l.config)
}

// copyTree makes to a copy of from.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

// lostPart is a kind of files or folders, by what their paths have in common.
type lostPart struct {
	kind  string
	paths map[int][]string // by store, 0 for those of no store
}

var (
	storeInPath  = regexp.MustCompile(`(^|/)store-(\d)(/|$)`)
	numberInPath = regexp.MustCompile(`[0-9A-F]{6,}|[0-9a-f]{32}|\d+`)
)

// lostParts returns the kinds of parts beneath a folder.
func lostParts(t *testing.T, base string) (parts []lostPart) {
	t.Helper()
	err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(base, path)
		if err != nil || rel == "." || rel == "data" || rel == "wal" || rel == "data/LOCK" {
			return err
		}
		store := 0
		if m := storeInPath.FindStringSubmatch(rel); m != nil {
			store = int(m[2][0] - '0')
		}
		kind := numberInPath.ReplaceAllString(strings.TrimPrefix(rel, "data/"), "#")
		i := slices.IndexFunc(parts, func(p lostPart) bool { return p.kind == kind })
		if i < 0 {
			i = len(parts)
			parts = append(parts, lostPart{kind, make(map[int][]string)})
		}
		parts[i].paths[store] = append(parts[i].paths[store], rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// stores returns the sets of stores whose part is to be hurt.
func (p *lostPart) stores() [][]int {
	if p.paths[0] != nil {
		return [][]int{{0}}
	}
	return [][]int{{3}, {2, 3}, {1, 2, 3}}
}

// TestLostParts takes away each kind of part of a data folder, all of that kind or one alone. It also puts older ones
// in its place, as they were after an earlier clean stop, or those of another store. It does so in one, two and all
// stores, after a clean stop and after a power cut, with the logs apart and together. The cluster has all acknowledged
// writes, or it does not start.
func TestLostParts(t *testing.T) {
	if raceBuild {
		t.Skip("it starts a hundred clusters, one at a time: under the race detector that takes minutes and shows it nothing new")
	}
	for _, apart := range []bool{false, true} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("apart=%v,clean=%v", apart, clean), func(t *testing.T) {
				if testing.Short() && apart == clean {
					t.Skip("the other two have each of both")
				}
				lostPartsOf(t, apart, clean)
			})
		}
	}
}

// make makes a folder and returns copies of it: after a clean stop, and after one more start and a stop or a kill.
func (l *lostCluster) make(t *testing.T, clean bool) (older, newer string) {
	older, newer = l.base+"-older", l.base+"-newer"
	for _, to := range []string{older, newer} {
		c, err := l.open(t)
		if err != nil {
			t.Fatal(err)
		}
		l.use(t, c)
		if to == newer && !clean {
			do(t, c, "kill all")
			copyTree(t, l.base, to)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if to == older || clean {
			copyTree(t, l.base, to)
		}
	}
	return older, newer
}

func lostPartsOf(t *testing.T, apart, clean bool) {
	l := newLostCluster(t, apart)
	older, newer := l.make(t, clean)
	was := lostParts(t, older)
	var found outcomes
	for _, p := range lostParts(t, newer) {
		old := slices.IndexFunc(was, func(o lostPart) bool { return o.kind == p.kind })
		for _, stores := range p.stores() {
			for _, how := range []string{"gone", "one gone", "older", "of another store"} {
				one := stores
				if testing.Short() && len(stores) == 2 {
					continue
				}
				t.Run(fmt.Sprintf("%s,%v,%s", strings.ReplaceAll(p.kind, "/", "|"), stores, how), func(t *testing.T) {
					copyTree(t, newer, l.base)
					for _, s := range one {
						paths := p.paths[s]
						if how == "one gone" {
							if len(paths) < 2 {
								t.Skip("there is only one")
							}
							paths = paths[len(paths)-1:]
						}
						for _, path := range paths {
							if err := os.RemoveAll(filepath.Join(l.base, path)); err != nil {
								t.Fatal(err)
							}
						}
						switch {
						case how == "of another store":
							if len(stores) != 1 || s != 3 || p.paths[1] == nil {
								t.Skip("it is of the cluster, or all stores have their own")
							}
							for _, path := range p.paths[1] {
								to := strings.Replace(path, "store-1", "store-3", 1)
								putBack(t, filepath.Join(newer, path), filepath.Join(l.base, to))
							}
							continue
						case how != "older":
							continue
						case old < 0:
							t.Skip("there was none")
						}
						for _, path := range was[old].paths[s] {
							putBack(t, filepath.Join(older, path), filepath.Join(l.base, path))
						}
					}
					l.look(t, &found)
				})
			}
		}
	}
	found.check(t)
}

// outcomes counts what came of starts.
type outcomes struct{ refused, whole, failed int }

func (o *outcomes) check(t *testing.T) {
	t.Logf("%d starts were refused, %d whole, with %d failed stores", o.refused, o.whole, o.failed)
	if o.refused == 0 || o.failed == 0 {
		t.Error("want some of each")
	}
}

// look starts the cluster: that is refused, or all acknowledged writes are there. What is wrong is told by its name.
func (l *lostCluster) look(t *testing.T, found *outcomes) {
	c, err := l.open(t)
	if err != nil {
		found.refused++
		if !strings.Contains(err.Error(), l.base) {
			t.Errorf("refused, and names no part: %v", err)
		}
		return
	}
	defer func() {
		if err := c.Close(); err != nil && len(c.Failed()) == 0 {
			t.Error(err)
		}
	}()
	switch n := l.missing(t, c); {
	case n > 0:
		t.Errorf("%d of %d acknowledged writes are missing", n, len(l.want))
	case n < 0:
		found.refused++
	default:
		found.whole++
	}
	for _, s := range c.Status().Stores {
		if s.State == StateFailed {
			found.failed++
			if !strings.Contains(s.Reason, l.base) || strings.Contains(s.Reason, "carrier") {
				t.Errorf("store %d is failed, and names no part: %s", s.Store, s.Reason)
			}
		}
	}
}

// TestDamagedParts cuts each kind of file short, and flips bytes in it: in one store and in all, after a clean stop and
// after a power cut. That stays the store's, or the cluster does not start. Nothing ends the process.
func TestDamagedParts(t *testing.T) {
	if raceBuild {
		t.Skip("it starts a hundred clusters, one at a time: under the race detector that takes minutes and shows it nothing new")
	}
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			l := newLostCluster(t, false)
			_, newer := l.make(t, clean)
			var found outcomes
			for _, p := range lostParts(t, newer) {
				for _, stores := range p.stores() {
					if len(stores) == 2 {
						continue
					}
					for _, how := range []string{"cut to 0", "cut to 60", "cut to 200", "cut in half", "a flipped byte",
						"a flipped byte at its beginning", "500 random bytes"} {
						t.Run(fmt.Sprintf("%s,%v,%s", strings.ReplaceAll(p.kind, "/", "|"), stores, how), func(t *testing.T) {
							copyTree(t, newer, l.base)
							hurt := false
							for _, s := range stores {
								for _, path := range p.paths[s] {
									hurt = damage(t, filepath.Join(l.base, path), how) || hurt
								}
							}
							if !hurt {
								t.Skip("nothing to damage")
							}
							l.look(t, &found)
						})
					}
				}
			}
			found.check(t)
		})
	}
}

// damage damages a file, and reports whether it has.
func damage(t *testing.T, path, how string) bool {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() || info.Size() == 0 {
		return false
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(len(content)), uint64(len(how))))
	cut := map[string]int{"cut to 0": 0, "cut to 60": 60, "cut to 200": 200, "cut in half": len(content) / 2}
	if to, ok := cut[how]; ok {
		if to >= len(content) {
			return false
		}
		content = content[:to]
	}
	switch how {
	case "a flipped byte":
		content[rng.IntN(len(content))] ^= 0xff
	case "a flipped byte at its beginning":
		content[rng.IntN(min(40, len(content)))] ^= 0x10
	case "500 random bytes":
		at := rng.IntN(max(1, len(content)-500))
		for i := at; i < min(at+500, len(content)); i++ {
			content[i] = byte(rng.Uint32())
		}
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return true
}

// putBack copies a file or folder, also into folders that are gone.
func putBack(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from)))
	} else if err == nil {
		var content []byte
		if content, err = os.ReadFile(from); err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o644))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLostAtRunTime takes a store's folder away while the store is stopped, or makes it old: the store takes no part,
// until it has its folder again.
func TestLostAtRunTime(t *testing.T) {
	l := newLostCluster(t, false)
	c := start(t, l.config)
	l.use(t, c)
	dir := filepath.Join(l.config.Dir, "store-3")
	do(t, c, "stop 3")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l.write(t, c, 40)
		err := doText(t.Context(), c, "restart 3")
		if err == nil || !strings.Contains(err.Error(), "its folder "+dir+" is missing") {
			t.Errorf("restart of a store without its folder: %v", err)
		}
		s := c.Status().Stores[2]
		if s.State != StateFailed || !strings.Contains(s.Reason, "neokv ctl restart 3") {
			t.Errorf("store 3 is %s: %s; want failed, and what helps", s.State, s.Reason)
		}
		if n := l.missing(t, c); n > 0 {
			t.Errorf("%d acknowledged writes are missing", n)
		}
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	do(t, c, "restart 3")
	l.healthy(t, c)
	do(t, c, "kill 1")
	if n := l.missing(t, c); n > 0 {
		t.Errorf("with store 3 again: %d acknowledged writes are missing", n)
	}
}

func (l *lostCluster) healthy(t *testing.T, c *Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := c.WaitHealthy(ctx); err != nil {
		t.Error(err)
	}
}

// TestLostAndFound: a cluster starts without a store whose folder is away, and says so. The store is not missed for the
// starts in which it took no part: with its folder as it was it comes back, while the cluster runs or with it. With an
// older one it does not, whatever else knows of it: the folder's record, or the other stores.
func TestLostAndFound(t *testing.T) {
	l := newLostCluster(t, false)
	dir := filepath.Join(l.config.Dir, "store-2")
	run := func(use func(c *Cluster)) {
		t.Helper()
		c, err := l.open(t)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		use(c)
		if n := l.missing(t, c); n > 0 {
			t.Errorf("%d acknowledged writes are missing", n)
		}
	}
	state := func(c *Cluster) string { return c.Status().Stores[1].State }
	write := func(c *Cluster) { l.write(t, c, 40) }
	run(write)
	copyTree(t, dir, l.base+"-older")
	record, err := os.ReadFile(filepath.Join(l.config.Dir, recordName))
	if err != nil {
		t.Fatal(err)
	}
	run(write)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run(func(c *Cluster) {
			if got := state(c); got != StateFailed {
				t.Errorf("store 2 is %s without its folder", got)
			}
			if len(c.Failed()) != 1 {
				t.Errorf("%d failures were told; want that of store 2", len(c.Failed()))
			}
			write(c)
		})
	}
	copyTree(t, dir+".away", dir)
	run(func(c *Cluster) { // it joins with the cluster
		if got := state(c); got != StateOK {
			t.Errorf("store 2 is %s with its folder", got)
		}
		write(c)
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	run(func(c *Cluster) { // this folder is of the start before the last
		copyTree(t, dir+".away", dir)
		if err := doText(t.Context(), c, "restart 2"); err == nil || !strings.Contains(err.Error(), "is too old") {
			t.Errorf("restart of a store with an older folder: %v", err)
		}
	})
	for _, other := range []string{"the record", "the other stores"} {
		copyTree(t, l.base+"-older", dir)
		if other == "the other stores" {
			if err := os.WriteFile(filepath.Join(l.config.Dir, recordName), record, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(func(c *Cluster) {
			if got := state(c); got != StateFailed {
				t.Errorf("store 2 is %s with an older folder, as %s know", got, other)
			}
		})
	}
}

// TestFoundWhileItRuns: a store that could not start with the cluster starts later, once other stores have recorded it.
func TestFoundWhileItRuns(t *testing.T) {
	l := newLostCluster(t, false)
	dir := filepath.Join(l.config.Dir, "store-2")
	c, err := l.open(t)
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, c, 40)
	if err := errors.Join(c.Close(), os.Rename(dir, dir+".away")); err != nil {
		t.Fatal(err)
	}
	copyTree(t, dir+".away", l.base+"-older")
	if c, err = l.open(t); err != nil {
		t.Fatal(err)
	}
	l.write(t, c, 40)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	do(t, c, "disk 1,3 hang")
	for range 2 {
		err := doText(t.Context(), c, "restart 2")
		if err == nil || !strings.Contains(err.Error(), "1 of 3 stores could record") {
			t.Errorf("restart while nobody can record it: %v", err)
		}
	}
	do(t, c, "disk 1,3 ok", "restart 2")
	l.healthy(t, c)
	l.write(t, c, 40)
	do(t, c, "kill all") // no store writes its record once more
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	copyTree(t, l.base+"-older", dir)
	if c, err = l.open(t); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s := c.Status().Stores[1]; s.State != StateFailed || !strings.Contains(s.Reason, "too old") {
		t.Errorf("store 2 is %s with an older folder: %s", s.State, s.Reason)
	}
	if n := l.missing(t, c); n > 0 {
		t.Errorf("%d acknowledged writes are missing", n)
	}
}

// TestLostWithTheJournal: a cluster that lost its power starts without a store of which the journal has bytes. They are
// gone then, and the store does not come back.
func TestLostWithTheJournal(t *testing.T) {
	l := newLostCluster(t, false)
	dir := filepath.Join(l.config.Dir, "store-2")
	c, err := l.open(t)
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, c, 40)
	do(t, c, "kill all")
	copyTree(t, l.config.Dir, l.base+"-killed")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	copyTree(t, l.base+"-killed", l.config.Dir)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if c, err = l.open(t); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := doText(t.Context(), c, "restart 2"); err == nil || !strings.Contains(err.Error(), "is too old") {
		t.Errorf("restart of a store whose last bytes went with the journal: %v", err)
	}
	if n := l.missing(t, c); n > 0 {
		t.Errorf("%d acknowledged writes are missing", n)
	}
}
