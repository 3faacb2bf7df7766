package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

func compareCommand(p process) *cobra.Command {
	f := pageFlags{forms: compareForms, page: "compare.html"}
	anyway := false
	c := &cobra.Command{
		Use:   "compare A B | compare FILE",
		Short: "Say how stored results differ, or print what ab has measured again",
		Long: `Say how stored results differ.

A and B are result files of bench; folders of them; or several, with commas between. A run counts once, however often it
is given. With one result on a side there is no telling a difference from noise; from six on a Mann-Whitney U test does,
if the runs of A and B alternated in time. Runs that did not take turns count every change of the machine in between as
one of B, so they get no verdict: neokv ab measures in turn. A single FILE is one that ab has written.`,
		Example: `  neokv compare before.jsonl after.jsonl
  neokv compare before/ after/
  neokv compare a1.jsonl,a2.jsonl,a3.jsonl,a4.jsonl b1.jsonl,b2.jsonl,b3.jsonl,b4.jsonl --format md
  neokv compare neokv-ab-20261123T122945Z.jsonl
  neokv compare neokv-ab-20261123T122945Z.jsonl --format html -o compare.html`,
		Args: wantArgs(1, 2, "two sides, or one file of ab"),
		RunE: func(c *cobra.Command, args []string) error {
			wrong := f.check(inputs(args)...)
			var got *compare.Delta
			var err error
			if len(args) == 1 {
				got, err = compareRun(args[0])
			} else {
				got, err = compareSides(args[0], args[1], anyway)
			}
			if err = errors.Join(wrong, err); err != nil {
				return err
			}
			return f.write(p, func(w io.Writer, format string) error {
				return writeComparison(w, c, got, format)
			})
		},
	}
	f.register(c.Flags())
	c.Flags().
		BoolVar(&anyway, "anyway", false, "also compare runs that were interrupted, failed or had faults, and sides "+
			"whose runs have several setups; the output marks them")
	return c
}

// inputs returns the files that a comparison reads.
func inputs(args []string) (out []string) {
	for _, side := range args {
		paths, _ := resultPaths(side) // whose errors compareSides returns
		out = append(out, paths...)
	}
	return out
}

// pageFlags are the flags of verbs that print what they found in several forms, of which html is a file of its own.
type pageFlags struct {
	forms  []string // the default first
	page   string   // the default of --out for html
	format string
	outFlags
}

func (f *pageFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "format", f.forms[0], "`format`, one of "+strings.Join(f.forms, ", "))
	f.outFlags.register(flags, "`file` to write, - for standard output (default "+f.page+" for html, else -)")
}

// check checks the flags and fills in --out. It refuses to write over a file that the verb reads.
func (f *pageFlags) check(inputs ...string) error {
	wrong := checkForm(f.format, f.forms)
	if f.out == "" {
		f.out = "-"
		if f.format == "html" {
			f.out = f.page
		}
	}
	to, err := os.Stat(f.out)
	if f.out == "-" || err != nil {
		return wrong
	}
	for _, name := range inputs {
		if from, err := os.Stat(name); err == nil && os.SameFile(from, to) {
			wrong = errors.Join(wrong, &usageError{fmt.Sprintf("--out: %s is a file to read", f.out)})
		}
	}
	if wrong != nil || f.out == f.page { // the page's name says what it is, and it can be made again
		return wrong
	}
	return f.spare(f.out)
}

// write writes to where the flags say. Of a page that goes to a file it prints the table, too, and the name of any
// file.
func (f *pageFlags) write(p process, write func(w io.Writer, format string) error) error {
	var text bytes.Buffer // a page that fails half-way is not written at all
	if err := write(&text, f.format); err != nil {
		return err
	}
	if f.out == "-" {
		_, err := text.WriteTo(p.stdout)
		return err
	}
	if err := os.WriteFile(f.out, text.Bytes(), 0o666); err != nil {
		return err
	}
	if f.format == "html" {
		if err := write(p.stdout, "table"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(p.stdout, f.out)
	return err
}

// compareRun reads a file of blocks.
func compareRun(path string) (*compare.Delta, error) {
	if err := otherKind(path, "ab"); err != nil {
		return nil, fmt.Errorf("%w; to compare results, name two sides", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	defer f.Close()
	run, err := compare.ReadTurns(f)
	switch {
	case errors.Is(err, results.ErrOtherFile):
		return nil, &usageError{path + ": not a file that ab has written"}
	case err != nil:
		return nil, &usageError{path + ": " + err.Error()}
	case len(run.Rounds()) == 0:
		return nil, &usageError{path + ": no complete round"}
	}
	return compareTurns(run), nil
}

// compareSides reads both sides. Its error names everything that is wrong with any file.
func compareSides(a, b string, anyway bool) (*compare.Delta, error) {
	var wrong mistakes
	var sides [2]compare.Runs
	for i, name := range []string{a, b} {
		sides[i].Name = name
		paths, err := resultPaths(name)
		wrong.add(err)
		for _, path := range paths {
			r, err := readMeasured(path)
			wrong.add(err)
			sides[i].Files = append(sides[i].Files, results.ResultFile{Name: path, Result: r})
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	c, err := compare.OfRuns(sides[0], sides[1], anyway)
	if err != nil {
		return nil, usageErrors("", err)
	}
	return c, nil
}

// resultPaths returns the files of a side: those of a folder, or those that are listed.
func resultPaths(side string) (paths []string, err error) {
	var wrong mistakes
	for path := range strings.SplitSeq(side, ",") {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			wrong.check(false, "%v", err)
			continue
		case !info.IsDir():
			paths = append(paths, path)
			continue
		}
		found, err := fs.Glob(os.DirFS(path), "*.jsonl")
		wrong.check(err == nil && len(found) > 0, "%s: no *.jsonl in this folder", path)
		for _, name := range found {
			paths = append(paths, filepath.Join(path, name))
		}
	}
	return paths, errors.Join(wrong...)
}

func readMeasured(path string) (*results.Result, error) {
	r, err := readResultFile(path)
	if err != nil {
		return nil, err
	}
	if s := r.Measured(); !s.Measured() {
		return nil, &usageError{path + ": nothing was measured"}
	}
	return r, nil
}
