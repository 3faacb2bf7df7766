package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
	"neokv.dev/results/report"
)

// reportFormats are the values of --format, with the file that each goes to.
var reportFormats = []struct {
	name, out string
	write     func(io.Writer, []results.ResultFile) error
}{
	{"html", "report.html", report.HTML},
	{"md", "-", report.Markdown},
}

func reportCommand(p process) *cobra.Command {
	var format, out string
	c := &cobra.Command{
		Use:   "report RESULT...",
		Short: "Draw results as a page with charts, or as a summary in Markdown",
		Long: `Draw one or more results as one HTML file with charts, which opens in a browser without a network. Several
results are drawn over each other, and the page names in what their load, settings, build and machine differ. With
--format md it is a summary for a pull request instead.`,
		Example: `  neokv report before.jsonl after.jsonl -o report.html
  neokv report --format md before.jsonl after.jsonl`,
		Args: func(c *cobra.Command, args []string) error {
			if n := len(args); n < 1 || n > report.MaxResults {
				return &usageError{fmt.Sprintf("%s%d results, want 1 to %d", verb(c), n, report.MaxResults)}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return writeReport(c, p, args, format, out) },
	}
	c.Flags().StringVar(&format, "format", "html", "`html` or md")
	c.Flags().StringVarP(&out, "out", "o", "",
		"`file` to write, - for standard output (default report.html, and standard output for md)")
	return c
}

func writeReport(c *cobra.Command, p process, args []string, format, out string) error {
	var wrong []error
	var names []string
	chosen := -1
	for i, f := range reportFormats {
		names = append(names, f.name)
		if f.name == format {
			chosen = i
		}
	}
	if chosen < 0 {
		wrong = append(wrong, &usageError{fmt.Sprintf("%sunknown format %q, want %s%s", verb(c), format,
			strings.Join(names, " or "), settings.DidYouMean(format, names))})
	} else if !c.Flags().Changed("out") {
		out = reportFormats[chosen].out
	}
	if out == "" {
		wrong = append(wrong, &usageError{verb(c) + "--out names no file"})
	}
	subjects, missing, err := readSubjects(args, out)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := reportFormats[chosen].write(&page, subjects); err != nil {
		return err
	}
	if out == "-" {
		_, err = page.WriteTo(p.stdout)
		return errors.Join(err, missing)
	}
	if err := os.WriteFile(out, page.Bytes(), 0o666); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err = fmt.Fprintln(p.stdout, out)
	return errors.Join(err, missing)
}

// readSubjects reads the results. Its error names everything that is wrong with any of them, and refuses to write the
// report over one. missing says what is missing from files that were cut short.
func readSubjects(paths []string, out string) (named []results.ResultFile, missing, err error) {
	var wrong []error
	var subjects []results.ResultFile
	target, _ := os.Stat(out) // nil where nothing is overwritten
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			wrong = append(wrong, &usageError{fmt.Sprintf("%s: named twice", path)})
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			wrong = append(wrong, &usageError{fmt.Sprintf("result file: %v", err)})
			continue
		}
		if info, err := f.Stat(); err == nil && target != nil && os.SameFile(info, target) {
			wrong = append(wrong, &usageError{fmt.Sprintf("%s: the report would overwrite this result", path)})
		}
		r, err := results.Read(f)
		f.Close()
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				wrong = append(wrong, &usageError{path + ": " + strings.TrimSpace(line)})
			}
			continue
		}
		missing = errors.Join(missing, cutShort(path, r))
		subjects = append(subjects, results.ResultFile{Name: path, Result: r})
	}
	return shortNames(subjects), missing, errors.Join(wrong...)
}

// shortNames names the results by their files without folder and ending, where that tells them apart.
func shortNames(subjects []results.ResultFile) []results.ResultFile {
	short := slices.Clone(subjects)
	for i := range short {
		short[i].Name = strings.TrimSuffix(filepath.Base(short[i].Name), ".jsonl")
		if slices.ContainsFunc(short[:i], func(s results.ResultFile) bool { return s.Name == short[i].Name }) {
			return subjects
		}
	}
	return short
}
