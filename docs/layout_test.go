// Package docs_test keeps what the documents say about the code true.
package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "neokv.dev"

// The order of the packages, each column from the bottom up. A package imports only what stands before it in its own
// column. The emulator and the load never import each other, since load crosses a real socket. Both stand on the
// ground, names and values alone, and what joins them may import both.
var (
	ground = []string{
		"neokv/internal/announce", // what clients are told of addresses
		"workloads/forms",         // calls of any size, for tests of everything above
		"neokv/counters",          // what the emulator prints and the load reads
		"neokv/settings",
		"neokv/parameters", // those of Redis's CONFIG
		"neokv/fault",      // what can be done to a cluster on purpose, also in the middle of a load
	}
	emulator = []string{
		"neokv/internal/chat",   // a load that checks itself, on any database: it knows nothing of this one
		"neokv/internal/lua/vm", // Lua 5.1, which knows nothing of this program
		"neokv/internal/lua",    // the scripts of EVAL, which know nothing of keys and commands
		"neokv/internal/topology",
		"neokv/internal/schedule",  // when regions split and merge: a pure function of what is known
		"neokv/internal/placement", // where their replicas lie: the same
		"neokv/internal/keys",
		"neokv/internal/memconn",
		"neokv/internal/disk",
		"neokv/internal/engine",
		"neokv/internal/multiraft/inside", // what the Raft library does not export
		"neokv/internal/transport",
		"neokv/internal/multiraft/raftlog",
		"neokv/internal/multiraft", // the Raft library's room: nobody above imports the library
		"neokv/internal/redis/redistest",
		"neokv/internal/redis",
		"neokv/internal/region",
		"neokv/internal/janitor", // above region: it works over all replicas of a store
		"neokv/internal/route",
		"neokv/internal/meta",
		"neokv/internal/store",
		"neokv/internal/session",
		"neokv/internal/tracking", // who caches what: it knows no connection
		"neokv/internal/server",
		"neokv/internal/seam",
		"neokv/internal/cluster", // all of a cluster that runs; neokv is its façade
		"neokv",
		"neokv/internal/chat/direct",
		"neokv/neokvtest",
		"neokv/admin",
		"neokv/internal/sim",
		"neokv/torture", // the door to sim for the program
	}
	load = []string{
		"workloads",
		"results",
		"results/compare",
		"results/changepoint",
		"results/history",
		"results/tuning",
		"results/report",
		"bench",
		"bench/children",
		"bench/ab",
		"bench/gate",
		"bench/gate/planted",
		"bench/tune",
		"bench/redisbenchmark",
	}
	joined = []string{
		"profiles",
		"cmd/neokv",
	}
)

// upward says why a package may not import another one of this module, or nothing if it may.
func upward(from, to string) string {
	for _, p := range []string{from, to} {
		if !slices.Contains(slices.Concat(ground, emulator, load, joined), p) {
			return p + " has no place in the order of packages"
		}
	}
	for _, column := range [][]string{slices.Concat(ground, emulator, joined), slices.Concat(ground, load, joined)} {
		if i, j := slices.Index(column, from), slices.Index(column, to); i >= 0 && j >= 0 {
			if j < i {
				return ""
			}
			return from + " imports upward: " + to
		}
	}
	return from + " imports " + to + ": the emulator and the load stay apart"
}

func TestImportsGoDownward(t *testing.T) {
	root := os.DirFS("..")
	files := 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "docs"):
			return fs.SkipDir
		case d.IsDir() && name != "." && exists(root, path.Join(name, "go.mod")):
			// Another module, with imports of its own.
			return fs.SkipDir
		// A test may look at its package from above, over the whole cluster.
		case d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", name), nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := path.Dir(name)
		if why := upward("cmd/neokv", from); why != "" && from != "cmd/neokv" {
			t.Errorf("%s: %s", name, why)
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			to, ours := strings.CutPrefix(imported, module+"/")
			if !ours {
				continue
			}
			if why := upward(from, to); why != "" {
				t.Errorf("%s: %s", name, why)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 {
		t.Error("no Go files found")
	}
}

// TestPlacesAreTaken: the order names packages that exist, and no others.
func TestPlacesAreTaken(t *testing.T) {
	for _, p := range slices.Concat(ground, emulator, load, joined) {
		if files, err := filepath.Glob(filepath.Join("..", p, "*.go")); err != nil || len(files) == 0 {
			t.Errorf("%s has a place in the order of packages, but no Go files", p)
		}
	}
}

// raftRoom are the packages that may import the Raft library: multiraft, and the adapters by which it stands on disk,
// engine and network. raftAdapters are those that nobody but multiraft imports.
var (
	raftRoom = []string{"neokv/internal/multiraft", "neokv/internal/multiraft/raftlog",
		"neokv/internal/multiraft/inside", "neokv/internal/transport", "neokv/internal/disk"}
	raftAdapters = []string{module + "/neokv/internal/multiraft/raftlog", module + "/neokv/internal/multiraft/inside"}
)

// TestRaftHasOneRoom: outside of its room nobody knows the Raft library, nor do tests.
func TestRaftHasOneRoom(t *testing.T) {
	used := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		from := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../")
		room := slices.Contains(raftRoom, from)
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			switch library := strings.HasPrefix(imported, "github.com/lni/"); {
			case err != nil:
				return err
			case library && room:
				used[from] = true
			case library, slices.Contains(raftAdapters, imported) && !room:
				t.Errorf("%s imports %s, which belongs to the Raft library's room: see neokv/internal/multiraft", name,
					imported)
			}
		}
		return nil
	})
	if err != nil || len(used) != len(raftRoom) {
		t.Errorf("%d packages import the library, %v; want %d", len(used), err, len(raftRoom))
	}
}

// TestOnlySimPlantsMistakes: a cluster hands Mistakes to its parts, and the parts look at them. Besides tests, sim
// alone plants any. The compiler keeps cmd and bench from it, which cannot import what is internal to neokv.
func TestOnlySimPlantsMistakes(t *testing.T) {
	plants := regexp.MustCompile(`\bMistakes(\.\w+)* :?= |\bMistakes\{\w|` +
		`[*&][\w.]*\bMistakes\b|\bvar \w+ [\w.]*\bMistakes\b`)
	planted := 0
	err := filepath.WalkDir("../neokv", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		switch found := plants.Find(text); {
		case found == nil:
		case strings.HasPrefix(name, "../neokv/internal/sim/"):
			planted++
		default:
			t.Errorf("%s: %s", name, found)
		}
		return err
	})
	if err != nil || planted == 0 {
		t.Errorf("%d files of sim plant mistakes, %v", planted, err)
	}
}

func exists(in fs.FS, name string) bool {
	_, err := fs.Stat(in, name)
	return err == nil
}

func TestUpward(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allowed  bool
	}{
		{"neokv/internal/region", "neokv/internal/engine", true},
		{"neokv/internal/engine", "neokv/internal/region", false},
		{"neokv", "neokv/internal/store", true},
		{"neokv/internal/store", "neokv", false},
		{"neokv", "neokv", false},
		{"bench", "results", true},
		{"results", "bench", false},
		{"bench", "neokv", false},
		{"results", "neokv/settings", true},
		{"bench", "neokv/fault", true},
		{"results", "neokv/internal/topology", false},
		{"results", "neokv/counters", true},
		{"neokv", "neokv/counters", true},
		{"neokv/counters", "neokv/settings", false},
		{"neokv/counters", "results", false},
		{"neokv", "bench", false},
		{"profiles", "neokv/settings", true},
		{"neokv/settings", "profiles", false},
		{"cmd/neokv", "bench", true},
		{"cmd/neokv", "profiles", true},
		{"bench", "profiles", false},
		{"neokv/internal/misc", "neokv/settings", false},
	} {
		if why := upward(c.from, c.to); (why == "") != c.allowed {
			t.Errorf("upward(%s, %s) = %q; want allowed %v", c.from, c.to, why, c.allowed)
		}
	}
}
