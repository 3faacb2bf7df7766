package neokv

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// treeSum is a checksum of all files beneath a folder, with their names.
func treeSum(t *testing.T, dir string) [32]byte {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(h, "%s %d\n", rel, len(text))
		h.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

// inspect looks at a folder and checks that it is as before.
func inspect(t *testing.T, dir string) (Inspection, error) {
	t.Helper()
	was := treeSum(t, dir)
	x, err := Inspect(t.Context(), dir, 3)
	if treeSum(t, dir) != was {
		t.Errorf("%s: Inspect has changed it", dir)
	}
	return x, err
}

// TestInspect looks at folders with keys of all types: in use, closed, killed, and a backup.
func TestInspect(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "data")
	c := start(t, Config{Stores: 3, Regions: 3, Dir: dir, NoSockets: true})
	call := func(args ...any) {
		t.Helper()
		if _, err := c.Do(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	fillKeys(t, c, 30)
	call("SET", "long", strings.Repeat("x", 300_000))
	call("SET", "expires", "1", "EX", "10000")
	for i := range 2000 {
		call("ZADD", "ranks", i, fmt.Sprint("member", i))
	}
	call("HSET", "hash", "a", "1", "b", "2")
	call("RPUSH", "list", "a", "b", "c")
	call("SADD", "set", "a")
	call("SADD", "gone", "a", "b")
	call("DEL", "gone")
	call("NEOKV", "LEGACYSET", "old", "value")
	if _, err := Inspect(t.Context(), dir, 3); err == nil ||
		!strings.Contains(err.Error(), "is in use by another process") {
		t.Errorf("a folder in use: %v", err)
	}
	for _, n := range c.in.Places() { // what is applied need not be in the write-ahead log yet
		if err := n.Store().Engine().Sync(); err != nil {
			t.Fatal(err)
		}
	}
	copied := filepath.Join(base, "copy")
	if _, err := c.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	do(t, c, "kill all")
	crashed := filepath.Join(base, "crashed")
	copyTree(t, dir, crashed)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"string": 33, "zset": 1, "hash": 1, "list": 1, "set": 1}
	for _, at := range []string{copied, crashed} {
		x, err := inspect(t, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(x.Wrong) > 0 {
			t.Errorf("%s: %v", at, x.Wrong)
		}
		if !reflect.DeepEqual(x.Types, want) || x.Keys != 37 || x.Expire != 1 {
			t.Errorf("%s: %v, %d keys, %d expire; want %v", at, x.Types, x.Keys, x.Expire, want)
		}
		if len(x.Largest) != 3 || x.Largest[0].Key != "long" || x.Largest[0].Elements != 300_000 ||
			x.Largest[1].Key != "ranks" || x.Largest[1].Elements != 2000 {
			t.Errorf("%s: largest %+v", at, x.Largest)
		}
		if (x.Copy != "") != (at == copied) || x.Closed != (at == copied) || len(x.Stores) != 3 {
			t.Errorf("%s: copy %q, closed %t, %d stores", at, x.Copy, x.Closed, len(x.Stores))
		}
		for _, s := range x.Stores {
			names := make(map[string]bool)
			for _, k := range s.Keyspaces {
				names[k.Name] = k.Keys > 0 && k.Bytes > 0
			}
			for _, name := range []string{"raft_log", "meta_info", "data", "redis_metadata", "redis_zset_score",
				"redis_zset_rank"} {
				if !names[name] {
					t.Errorf("%s: store %d: keyspace %s is empty: %+v", at, s.Store, name, s.Keyspaces)
				}
			}
			for _, r := range s.Regions {
				if r.Applied == 0 || r.Logged < r.Applied {
					t.Errorf("%s: store %d: %+v", at, s.Store, r)
				}
			}
			if len(s.Regions) != 3 {
				t.Errorf("%s: store %d has %d regions", at, s.Store, len(s.Regions))
			}
		}
	}
	if err := os.Remove(filepath.Join(crashed, "journal-1")); err != nil {
		t.Fatal(err)
	}
	if x, err := inspect(t, crashed); err != nil || len(x.Wrong) != 1 ||
		!strings.Contains(x.Wrong[0].What, "journal-1") {
		t.Errorf("a folder that was not closed, without half of its journal: %+v, %v", x.Wrong, err)
	}
	for _, no := range []string{filepath.Join(base, "none"), base, filepath.Join(dir, "cluster.json")} {
		if _, err := Inspect(t.Context(), no, 3); err == nil {
			t.Errorf("%s: no error", no)
		}
	}
}

// TestInspectDamage takes a file of each kind away from a backup and from a folder that was closed, or flips a bit in
// it. Inspect names what a start would miss. What it finds nothing wrong with, starts, with all that was acknowledged.
func TestInspectDamage(t *testing.T) {
	if raceBuild {
		t.Skip("it starts many clusters, one after the other")
	}
	for _, apart := range []bool{false, true} {
		l := newLostCluster(t, apart)
		c, err := l.open(t)
		if err != nil {
			t.Fatal(err)
		}
		l.use(t, c)
		copied := filepath.Join(filepath.Dir(l.base), "copied")
		if _, err := c.Backup(t.Context(), filepath.Join(copied, "data")); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		closed := l.base + "-closed"
		copyTree(t, l.base, closed)
		if apart {
			damageEach(t, l, closed, "closed")
		} else {
			damageEach(t, l, copied, "backup")
		}
	}
}

// mustName are the kinds of files of which each damage has to be told, with the file's name.
var mustName = []string{"cluster.json", "store-#/store.json", "store-#/engine/#.sst", "store-#/engine/#.log",
	"store-#/engine/MANIFEST-#", "wal/#/store-#/#.log"}

func damageEach(t *testing.T, l *lostCluster, from, name string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(from, "wal")); err != nil { // a backup has its logs beside the data
		s := *l.config.Settings
		s.Engine.WALDir = ""
		was := l.config.Settings
		l.config.Settings = &s
		defer func() { l.config.Settings = was }()
	}
	seen := make(map[string]bool)
	for _, part := range lostParts(t, from) {
		for _, way := range []string{"gone", "flipped"} {
			for store := range 4 {
				if part.paths[store] == nil || store != 0 && store != 2 {
					continue
				}
				rel := part.paths[store][len(part.paths[store])/2]
				if info, err := os.Stat(filepath.Join(from, rel)); err != nil || info.IsDir() ||
					way == "flipped" && info.Size() == 0 {
					continue
				}
				copyTree(t, from, l.base)
				path := filepath.Join(l.base, rel)
				if way == "gone" {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				} else {
					text, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					text[len(text)/2] ^= 4
					if err := os.WriteFile(path, text, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				x, err := inspect(t, filepath.Join(l.base, "data"))
				var told []string
				for _, d := range x.Wrong {
					told = append(told, d.String())
				}
				if err != nil {
					told = append(told, err.Error())
				}
				t.Logf("%s: %s %s: %.200q", name, part.kind, way, told)
				must := slices.Contains(mustName, part.kind)
				seen[part.kind] = true
				named := slices.ContainsFunc(told, func(text string) bool {
					return strings.Contains(text, filepath.Base(rel))
				})
				switch {
				case must && !named:
					t.Errorf("%s: %s %s: Inspect says %q", name, rel, way, told)
				case len(told) > 0:
					continue
				}
				c, err := l.open(t)
				if err != nil {
					t.Errorf("%s: %s %s: Inspect finds nothing, and a start fails: %v", name, rel, way, err)
					continue
				}
				for _, s := range c.Status().Stores {
					if s.State != StateOK {
						t.Errorf("%s: %s %s: Inspect finds nothing, and store %d: %s", name, rel, way, s.Store,
							s.Reason)
					}
				}
				if n := l.missing(t, c); n != 0 {
					t.Errorf("%s: %s %s: Inspect finds nothing, and %d writes are missing", name, rel, way, n)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for _, kind := range mustName[:5] {
		if !seen[kind] && !strings.Contains(kind, ".log") {
			t.Errorf("%s: there is no file %s", name, kind)
		}
	}
}
