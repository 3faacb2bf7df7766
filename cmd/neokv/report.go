package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/results"
	"neokv.dev/results/report"
)

func reportCommand(p process) *cobra.Command {
	f := pageFlags{forms: []string{"html", "table", "md"}, page: "report.html"}
	c := &cobra.Command{
		Use:   "report RESULT...",
		Short: "Draw results as a page with charts, or as a summary in Markdown",
		Long: `Draw one or more results as one HTML file with charts, which opens in a browser without a network. Several
results are drawn over each other, and the page names in what their load, settings, build and machine differ. Standard
output has the tables. --format table makes no page, and --format md is a summary for a pull request instead.`,
		Example: `  neokv report before.jsonl after.jsonl -o report.html
  neokv report --format md before.jsonl after.jsonl`,
		Args: wantArgs(1, report.MaxResults, fmt.Sprintf("1 to %d results", report.MaxResults)),
		RunE: func(_ *cobra.Command, args []string) error {
			wrong := f.check(args...)
			subjects, missing, err := readSubjects(args)
			if err = errors.Join(wrong, err); err != nil {
				return err
			}
			return errors.Join(f.write(p, func(w io.Writer, format string) error {
				switch format {
				case "html":
					return report.HTML(w, subjects)
				case "md":
					return report.Markdown(w, subjects)
				}
				return report.Table(w, subjects)
			}), missing)
		},
	}
	f.register(c.Flags())
	return c
}

// readSubjects reads the results. Its error names everything that is wrong with any of them. missing says what is
// missing from files that were cut short.
func readSubjects(paths []string) (named []results.ResultFile, missing, err error) {
	var wrong []error
	var subjects []results.ResultFile
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			wrong = append(wrong, &usageError{fmt.Sprintf("%s: named twice", path)})
			continue
		}
		r, err := readResultFile(path)
		if err != nil {
			wrong = append(wrong, err)
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
