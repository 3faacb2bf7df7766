package neokv

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	lostSeed = flag.Uint64("lost.seed", 0, "which folder each case of TestLostParts takes, 0 for a fresh draw")
	lostAll  = flag.Bool("lost.all", false, "each case of TestLostParts takes every folder")
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
	for _, n := range c.in.Places() {
		if err := n.Store().Flush(ctx, false); err != nil {
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
		if c.in.Inside().Lacks() != "" {
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

// lostFolder is a folder as a clean stop or a power cut has left it, and as a clean stop had left it before.
type lostFolder struct {
	*lostCluster
	name         string
	older, newer string
	was, parts   []lostPart // of older and newer
	cases        []lostCase
}

// lostCase is what is hurt in a folder, in which way.
type lostCase struct {
	kind   string
	stores []int
	way    string
}

func (c lostCase) String() string {
	return fmt.Sprintf("%s,%v,%s", strings.ReplaceAll(c.kind, "/", "|"), c.stores, c.way)
}

// newLostFolder makes a folder and returns copies of it: after a clean stop, and after one more start and a stop or a
// kill.
func newLostFolder(t *testing.T, apart, clean bool) *lostFolder {
	t.Helper()
	l := newLostCluster(t, apart)
	f := &lostFolder{lostCluster: l, older: l.base + "-older", newer: l.base + "-newer"}
	f.name = fmt.Sprintf("apart=%v,clean=%v", apart, clean)
	for _, to := range []string{f.older, f.newer} {
		c, err := l.open(t)
		if err != nil {
			t.Fatal(err)
		}
		l.use(t, c)
		if to == f.newer && !clean {
			do(t, c, "kill all")
			copyTree(t, l.base, to)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if to == f.older || clean {
			copyTree(t, l.base, to)
		}
	}
	f.was, f.parts = lostParts(t, f.older), lostParts(t, f.newer)
	return f
}

// TestLostParts hurts each kind of part of a data folder, in one, two and all stores, after a clean stop and after a
// power cut, with the logs apart and together. It takes all parts of the kind away, or one alone, or puts older ones in
// their place, as they were after an earlier clean stop, or those of another store; and it damages files, in one store
// and in all. The cluster has all acknowledged writes, or it does not start. Nothing ends the process.
//
// A kind of part of a store that is hurt in one way in one set of stores is a case. It runs once, on one of the four
// folders that have the kind; the seed draws which. The other sets of stores take other folders: so what is hurt in one
// way is seen after a stop and after a power cut, and with the logs apart and together if it is there in both. What is
// of no store runs on each folder, and with -lost.all every case does; make explore has that.
func TestLostParts(t *testing.T) {
	if raceBuild {
		t.Skip("it starts hundreds of clusters: the race detector makes minutes of that, and finds nothing")
	}
	seed := cmp.Or(*lostSeed, rand.Uint64())
	t.Logf("again: go test ./neokv -run TestLostParts -lost.seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var folders []*lostFolder
	kinds := make(map[string][][]int) // with the sets of stores
	for _, x := range [][2]bool{{false, false}, {true, true}, {false, true}, {true, false}} {
		f := newLostFolder(t, x[0], x[1])
		folders = append(folders, f)
		for i := range f.parts {
			kinds[f.parts[i].kind] = f.parts[i].stores()
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, way := range slices.Concat(losses, damages) {
			at, runs := random.IntN(len(folders)), 0
			for _, stores := range kinds[kind] {
				var able []*lostFolder
				for i := range folders {
					// A folder and the one beside it, 0 and 1 or 2 and 3, differ in both.
					if f := folders[at^i]; f.can(kind, stores, way) {
						able = append(able, f)
					}
				}
				if len(able) > 0 && len(kinds[kind]) > 1 && !*lostAll {
					able, runs = able[runs%len(able):][:1], runs+1
				}
				for _, f := range able {
					f.cases = append(f.cases, lostCase{kind, stores, way})
				}
			}
		}
	}
	found := map[bool]*outcomes{false: new(outcomes), true: new(outcomes)} // of what is damaged
	t.Run("folder", func(t *testing.T) {                                   // it has ended when all folders have
		for _, f := range folders {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel() // a start mostly waits for elections
				for _, c := range f.cases {
					t.Run(c.String(), func(t *testing.T) {
						copyTree(t, f.newer, f.base)
						for _, s := range c.stores {
							f.hurt(t, c.kind, s, c.way)
						}
						f.look(t, found[slices.Contains(damages, c.way)])
					})
				}
			})
		}
	})
	for damaged, o := range found {
		refused, failed := o.refused.Load(), o.failed.Load()
		t.Logf("damaged %v: %d starts were refused, %d whole, with %d failed stores",
			damaged, refused, o.whole.Load(), failed)
		if refused == 0 || failed == 0 {
			t.Error("want some of each")
		}
	}
}

// How parts are hurt.
var (
	losses  = []string{"gone", "one gone", "older", "of another store"}
	damages = []string{"cut to 0", "cut to 60", "cut to 200", "cut in half", "a flipped byte",
		"a flipped byte at its beginning", "500 random bytes"}
)

// partOf returns the part of a kind, nil if there is none.
func partOf(parts []lostPart, kind string) *lostPart {
	if i := slices.IndexFunc(parts, func(p lostPart) bool { return p.kind == kind }); i >= 0 {
		return &parts[i]
	}
	return nil
}

// can reports whether the folder has parts of a kind that can be hurt in a way.
func (f *lostFolder) can(kind string, stores []int, way string) bool {
	p := partOf(f.parts, kind)
	if p == nil {
		return false
	}
	switch way {
	case "gone":
		return true
	case "one gone":
		return !slices.ContainsFunc(stores, func(s int) bool { return len(p.paths[s]) < 2 })
	case "older":
		return partOf(f.was, kind) != nil
	case "of another store": // one of the cluster has no other, and all have their own
		return slices.Equal(stores, []int{3}) && p.paths[1] != nil
	}
	return len(stores) != 2 && slices.ContainsFunc(stores, func(s int) bool {
		return slices.ContainsFunc(p.paths[s], func(path string) bool {
			info, err := os.Stat(filepath.Join(f.newer, path))
			return err == nil && !info.IsDir() && info.Size() > int64(cuts[way])
		})
	})
}

// hurt hurts a store's parts of a kind, which can be hurt in that way.
func (f *lostFolder) hurt(t *testing.T, kind string, store int, way string) {
	paths := partOf(f.parts, kind).paths[store]
	if slices.Contains(damages, way) {
		for _, path := range paths {
			damage(t, filepath.Join(f.base, path), way)
		}
		return
	}
	if way == "one gone" {
		paths = paths[len(paths)-1:]
	}
	for _, path := range paths {
		if err := os.RemoveAll(filepath.Join(f.base, path)); err != nil {
			t.Fatal(err)
		}
	}
	switch way {
	case "older":
		for _, path := range partOf(f.was, kind).paths[store] {
			putBack(t, filepath.Join(f.older, path), filepath.Join(f.base, path))
		}
	case "of another store":
		for _, path := range partOf(f.parts, kind).paths[1] {
			to := strings.Replace(path, "store-1", "store-3", 1)
			putBack(t, filepath.Join(f.newer, path), filepath.Join(f.base, to))
		}
	}
}

// outcomes counts what came of starts.
type outcomes struct{ refused, whole, failed atomic.Int64 }

// look starts the cluster: that is refused, or all acknowledged writes are there. What is wrong is told by its name.
func (l *lostCluster) look(t *testing.T, found *outcomes) {
	c, err := l.open(t)
	if err != nil {
		found.refused.Add(1)
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
		found.refused.Add(1)
	default:
		found.whole.Add(1)
	}
	for _, s := range c.Status().Stores {
		if s.State == StateFailed {
			found.failed.Add(1)
			if !strings.Contains(s.Reason, l.base) || strings.Contains(s.Reason, "carrier") {
				t.Errorf("store %d is failed, and names no part: %s", s.Store, s.Reason)
			}
		}
	}
}

// cuts are the lengths of files that are cut to a length.
var cuts = map[string]int{"cut to 60": 60, "cut to 200": 200}

// damage damages a file, if it is long enough for that.
func damage(t *testing.T, path, way string) {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.IsDir() || info.Size() <= int64(cuts[way]) {
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(len(content)), uint64(len(way))))
	switch way {
	case "cut in half":
		content = content[:len(content)/2]
	case "a flipped byte":
		content[rng.IntN(len(content))] ^= 0xff
	case "a flipped byte at its beginning":
		content[rng.IntN(min(40, len(content)))] ^= 0x10
	case "500 random bytes":
		at := rng.IntN(max(1, len(content)-500))
		for i := at; i < min(at+500, len(content)); i++ {
			content[i] = byte(rng.Uint32())
		}
	default:
		content = content[:cuts[way]]
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
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

// TestNewClusterNeedsAll: a cluster serves nobody until all its stores have taken part in one start, so that no store
// with an empty folder becomes a voter beside others that have served.
func TestNewClusterNeedsAll(t *testing.T) {
	l := newLostCluster(t, false)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := l.config // a start that finds its port taken makes the folder, and no store takes part
	taken.NoSockets, taken.ProxyPort = false, ln.Addr().(*net.TCPAddr).Port
	startRefused(t, taken, "address already in use")
	inTheWay := filepath.Join(l.config.Dir, "store-3")
	if err := os.WriteFile(inTheWay, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for start := range 2 {
		c, err := l.open(t)
		if err == nil {
			c.Close()
			t.Fatalf("start %d: the cluster serves, and store 3 has never taken part", start+1)
		}
		if !strings.Contains(err.Error(), "store-3") || !strings.Contains(err.Error(), "needs all of its stores") {
			t.Errorf("start %d: %v; want what is wrong with store 3", start+1, err)
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	c, err := l.open(t)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l.write(t, c, 40)
	if n := l.missing(t, c); n > 0 {
		t.Errorf("%d acknowledged writes are missing", n)
	}
	l.healthy(t, c)
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
