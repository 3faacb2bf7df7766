package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxPath is how many files a SET may cross above the Raft library.
const maxPath = 12

var pathSentence = regexp.MustCompile(`(?s)\nThe SET crosses .*?:\n(.*?)\. Raft\n`)

// TestPathOfOneSet reads the files of the path from design.md. A file calls only those behind it: packages in the order
// of imports, and within a package no function of a file that stands before. It knows functions and methods only by
// their names, so it checks those unexported ones whose names the package declares once.
func TestPathOfOneSet(t *testing.T) {
	text, err := os.ReadFile("design.md")
	if err != nil {
		t.Fatal(err)
	}
	sentence := pathSentence.FindSubmatch(text)
	if sentence == nil {
		t.Fatalf("design.md has no sentence %s", pathSentence)
	}
	var files []string
	for _, m := range regexp.MustCompile("`([a-z/_]+\\.go)`").FindAllSubmatch(sentence[1], -1) {
		files = append(files, string(m[1]))
	}
	if len(files) > maxPath || len(files) < 2 {
		t.Errorf("the path has %d files, want at most %d: %s", len(files), maxPath, files)
	}
	last := len(emulator)
	for i, file := range files {
		at := slices.Index(emulator, "neokv/internal/"+path.Dir(file))
		if at < 0 || at > last {
			t.Errorf("%s stands behind a file of a lower package", file)
		}
		last = at
		if slices.Contains(files[:i], file) {
			t.Errorf("%s is crossed twice", file)
		}
	}
	for _, dir := range slices.Compact(dirs(files)) {
		for _, call := range callsBack(t, dir, files) {
			t.Error(call)
		}
	}
}

func dirs(files []string) (dirs []string) {
	for _, file := range files {
		dirs = append(dirs, path.Dir(file))
	}
	return dirs
}

// callsBack finds calls within a package from one of the files to another that stands before it.
func callsBack(t *testing.T, dir string, files []string) (found []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../neokv/internal", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed := map[string]*ast.File{}
	declared := map[string]string{} // the file of each function, "" if there are several of the name
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		file := path.Join(dir, filepath.Base(name))
		parsed[file] = f
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.IsExported() {
				continue
			}
			if _, again := declared[f.Name.Name]; again {
				declared[f.Name.Name] = ""
			} else {
				declared[f.Name.Name] = file
			}
		}
	}
	for i, file := range files {
		if path.Dir(file) != dir {
			continue
		}
		if parsed[file] == nil {
			t.Errorf("design.md: there is no %s", file)
			continue
		}
		ast.Inspect(parsed[file], func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			if to := declared[name]; to != "" && slices.Contains(files[:i], to) {
				found = append(found, set.Position(call.Pos()).String()+" calls back: "+name+" is in "+to)
			}
			return true
		})
	}
	return found
}
