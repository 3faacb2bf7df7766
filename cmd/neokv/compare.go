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
	c := &cobra.Command{
		Use:   "compare A B | compare FILE",
		Short: "Say how stored results differ, or print what ab has measured again",
		Long: `Say how stored results differ.

A and B are result files of bench; folders of them; or several, with commas between. With one result on a side there is
no telling a difference from noise; from four on, a Mann-Whitney U test does. Runs that did not take turns count every
change of the machine in between as one of B: neokv ab measures in turn. A single FILE is one that ab has written.`,
		Example: `  neokv compare before.jsonl after.jsonl
  neokv compare before/ after/
  neokv compare a1.jsonl,a2.jsonl,a3.jsonl,a4.jsonl b1.jsonl,b2.jsonl,b3.jsonl,b4.jsonl --format md
  neokv compare neokv-ab-20261123T122945Z.jsonl
  neokv compare neokv-ab-20261123T122945Z.jsonl --format html -o compare.html`,
		Args: wantArgs(1, 2, "two sides, or one file of ab"),
		RunE: func(_ *cobra.Command, args []string) error {
			wrong := f.check(inputs(args)...)
			var got *compare.Delta
			var err error
			if len(args) == 1 {
				got, err = compareRun(args[0])
			} else {
				got, err = compareSides(args[0], args[1])
			}
			if err = errors.Join(wrong, err); err != nil {
				return err
			}
			return f.write(p, func(w io.Writer) error { return writeComparison(w, got, f.format) })
		},
	}
	f.register(c.Flags())
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

// write writes to where the flags say, and prints the name of a file.
func (f *pageFlags) write(p process, write func(io.Writer) error) error {
	var text bytes.Buffer // a page that fails half-way is not written at all
	if err := write(&text); err != nil {
		return err
	}
	if f.out == "-" {
		_, err := text.WriteTo(p.stdout)
		return err
	}
	if err := os.WriteFile(f.out, text.Bytes(), 0o666); err != nil {
		return err
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
	return run.Compare(), nil
}

// compareSides reads both sides. Its error names everything that is wrong with any file.
func compareSides(a, b string) (*compare.Delta, error) {
	var wrong mistakes
	var all []results.ResultFile
	var figures [2][][]results.Figure
	c := &compare.Delta{A: a, B: b}
	for i, side := range []string{a, b} {
		paths, err := resultPaths(side)
		wrong.add(err)
		for _, path := range paths {
			r, err := readMeasured(path)
			if err != nil {
				wrong = append(wrong, err)
				continue
			}
			for _, w := range r.Warnings {
				c.Warnings = append(c.Warnings, path+": "+w)
			}
			s := r.Measured()
			figures[i] = append(figures[i], s.Figures(&r.Header))
			all = append(all, results.ResultFile{Name: path, Result: r})
			if err := compare.Comparable(&all[0].Header, &r.Header); err != nil {
				wrong = append(wrong, usageErrors(fmt.Sprintf("%s and %s have different loads", all[0].Name, path), err))
			}
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	c.Rows = compare.Sides(figures[0], figures[1])
	for _, f := range results.Facts([]results.ResultFile{all[0], all[len(figures[0])]}) {
		if f.Differ && f.Name != "command" && f.Name != "seed" {
			c.Conditions = append(c.Conditions, compare.Condition{Name: f.Name, A: f.Values[0], B: f.Values[1]})
		}
	}
	if least := min(len(figures[0]), len(figures[1])); least < compare.FewestRuns {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%d and %d runs: a test needs %d of each side", len(figures[0]),
			len(figures[1]), compare.FewestRuns))
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
