package inside

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4"
)

// TestTypes compares what this package links by name with dragonboat's own source: a name that has another type than it
// had still links, and then memory is overwritten.
func TestTypes(t *testing.T) {
	file, _ := runtime.FuncForPC(reflect.ValueOf(dragonboat.NewNodeHost).Pointer()).FileLine(0)
	if file == "" || !filepath.IsAbs(file) {
		t.Fatalf("dragonboat's source is in %q; want a test that is built without -trimpath", file)
	}
	declared := declarations(t, filepath.Dir(file))
	own, err := os.ReadFile("sizes.go")
	if err != nil {
		t.Fatal(err)
	}
	linked := regexp.MustCompile(`go:linkname \w+ github.com/lni/dragonboat/v4(\S*)\.(\w+)`).FindAllSubmatch(own, -1)
	if len(linked) != len(raftSizes) {
		t.Errorf("%d variables are linked; want %d", len(linked), len(raftSizes))
	}
	for _, m := range linked {
		name := strings.TrimPrefix(string(m[1])+"."+string(m[2]), "/")
		want := "uint64"
		if name == ".nodeReloadInterval" {
			want = "time.Duration"
		}
		if got := declared[name]; got != want {
			t.Errorf("%s: dragonboat has %q; want %s", name, got, want)
		}
	}
	if got, want := declared[".(*engine).setApplyReady"], "func(uint64)"; got != want {
		t.Errorf("setApplyReady: dragonboat has %q; want %s", got, want)
	}
}

// declarations returns the types of what the last test looks for, by folder below dir and name. That of a variable
// which is made of dragonboat's soft settings is the setting's.
func declarations(t *testing.T, dir string) map[string]string {
	found, soft := map[string]string{}, map[string]string{}
	var made []func() // what can be told when all settings are known
	for _, folder := range []string{"internal/settings", "internal/raft", ""} {
		files, err := filepath.Glob(filepath.Join(dir, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "soft" {
						for _, f := range s.Fields.List {
							soft[f.Names[0].Name] = f.Type.(*ast.Ident).Name
						}
					}
				case *ast.ValueSpec:
					for i, name := range n.Names {
						if i < len(n.Values) && n.Type == nil {
							made = append(made, func() { found[folder+"."+name.Name] = madeOf(n.Values[i], soft) })
						}
					}
				case *ast.FuncDecl:
					if n.Name.Name == "setApplyReady" && n.Recv != nil && n.Type.Results == nil {
						arg := n.Type.Params.List
						if len(arg) == 1 && len(arg[0].Names) == 1 {
							found[".(*engine).setApplyReady"] = "func(" + arg[0].Type.(*ast.Ident).Name + ")"
						}
					}
				}
				return true
			})
		}
	}
	for _, f := range made {
		f()
	}
	return found
}

// madeOf returns the type of settings.Soft.X, and of a product of which one factor is time.Millisecond.
func madeOf(e ast.Expr, soft map[string]string) string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.SelectorExpr); ok && x.Sel.Name == "Soft" {
			return soft[e.Sel.Name]
		}
		if e.Sel.Name == "Millisecond" {
			return "time.Duration"
		}
	case *ast.BinaryExpr:
		return madeOf(e.X, soft)
	}
	return ""
}
