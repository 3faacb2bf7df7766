// Systems checks the types of all packages of a module and of their tests as the compilers for other systems see them:
// a system call that only Linux has is found. A build would compile hundreds of packages of others; of those only the
// declarations are read here.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	root, err := filepath.Abs(os.Args[1])
	if err != nil {
		fail(err)
	}
	check(root, "darwin", "arm64")
	check(root, "windows", "amd64")
}

// check ends the program if something is wrong.
func check(root, system, processor string) {
	all, err := packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax,
		Dir:  root, Tests: true, BuildFlags: []string{"-tags=redisserver,chromium"},
		Env: append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
		ParseFile: func(set *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
			ours := strings.HasPrefix(name, root+string(filepath.Separator)) || filepath.Ext(name) != ".go" // the main of a test
			if file != nil && !ours {
				for _, d := range file.Decls {
					if f, ok := d.(*ast.FuncDecl); ok {
						f.Body = nil
					}
				}
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		fail(err)
	}
	wrong := 0
	for _, p := range all {
		for _, err := range p.Errors {
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.ID, err)
			wrong++
		}
	}
	if wrong > 0 || len(all) == 0 {
		fail(fmt.Errorf("%d mistakes in %d packages", wrong, len(all)))
	}
	fmt.Printf("%s/%s: the types of %d packages are right\n", system, processor, len(all))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "systems:", err)
	os.Exit(1)
}
