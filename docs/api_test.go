package docs_test

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages for other modules: stability.md says what of them stays.
var public = []string{"neokv", "neokv/neokvtest", "neokv/fault", "neokv/settings"}

// TestAPI compares what public packages export with the snapshot in testdata, which go test ./docs -update renews. A
// change there is one that users of the module have to learn of: CHANGELOG.md has a line for it.
func TestAPI(t *testing.T) {
	for _, p := range public {
		golden := filepath.Join("testdata", "api-"+filepath.Base(p)+".txt")
		got, inside := exported(t, p)
		for _, name := range inside {
			t.Errorf("package %s names %s, which is internal", p, name)
		}
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the API of package %s has changed; name it in CHANGELOG.md, and run go test ./docs -update; first "+
				"difference:\n%s", p, firstDifference(string(want), got))
		}
	}
}

// exported returns the exported declarations of a package in the order of their text, without comments, bodies, tags
// and values, and which names of internal packages are among them.
func exported(t *testing.T, dir string) (text string, inside []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var all []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		hidden := map[string]string{} // internal packages, by their names in this file
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(path, "/internal/") {
				hidden[filepath.Base(path)] = path
				if spec.Name != nil {
					hidden[spec.Name.Name] = path
				}
			}
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			for _, d := range declarations(decl) {
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && hidden[x.Name] != "" {
							inside = append(inside, hidden[x.Name]+"."+s.Sel.Name)
						}
					}
					return true
				})
				var b strings.Builder
				if err := format.Node(&b, token.NewFileSet(), d); err != nil {
					t.Fatal(err)
				}
				all = append(all, b.String()+"\n")
			}
		}
	}
	if len(all) == 0 {
		t.Errorf("package %s exports nothing", dir)
	}
	slices.Sort(all)
	return strings.Join(all, ""), inside
}

// declarations returns what a declaration declares for others, one by one.
func declarations(decl ast.Decl) (all []ast.Node) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return nil
		}
		d.Body, d.Doc = nil, nil
		return []ast.Node{d}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil
		}
		typ := ast.Expr(nil) // that of the constant before, which the next ones repeat
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				if s.Type != nil {
					typ = s.Type
				}
				if s.Type == nil && s.Values == nil {
					s.Type = typ
				}
				if s.Type != nil {
					s.Values = nil
				}
			case *ast.TypeSpec:
				ast.Inspect(s, func(n ast.Node) bool {
					if f, ok := n.(*ast.Field); ok {
						f.Tag, f.Doc, f.Comment = nil, nil, nil
					}
					return true
				})
			}
			all = append(all, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}})
		}
	}
	return all
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch x := of.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
