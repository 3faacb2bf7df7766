package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/torture"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// readFindings reads what sittings of torture have found. A file that does not exist has nothing. The error names ten
// wrong lines at most.
func readFindings(path string) (all []torture.Finding, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer file.Close()
	var wrong []error
	lineOf := map[string]int{}
	in := bufio.NewReader(file)
	for n := 1; len(wrong) < 10; n++ {
		line, err := results.ReadLine(in)
		if err == io.EOF && len(line) == 0 {
			break
		}
		var f torture.Finding
		if err == nil || err == io.EOF { // somebody may have edited the last line
			d := json.NewDecoder(bytes.NewReader(line))
			d.DisallowUnknownFields()
			err = d.Decode(&f)
		}
		if err == nil {
			err = f.Validate()
		}
		if before := lineOf[f.Class]; err == nil && before > 0 {
			err = fmt.Errorf("the finding of line %d again", before)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: line %d: %s", path, n, strings.ReplaceAll(err.Error(), "\n", "; ")))
			continue
		}
		lineOf[f.Class] = n
		all = append(all, f)
	}
	return all, errors.Join(wrong...)
}

// writeFindings replaces the file as a whole, or not at all.
func writeFindings(path string, all []torture.Finding) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	for _, f := range all {
		err = errors.Join(err, results.WriteLine(file, "findings", f))
	}
	err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

// printFindings says what a sitting has found, and what it has tried in vain.
func printFindings(w io.Writer, path string, all []torture.Finding) {
	count, untried := map[torture.FindingState]int{}, 0
	var rows [][]string
	for _, f := range all {
		state := string(f.State)
		what := fmt.Sprintf("seed %d, first seen %s", f.Seed, f.First.Date.Format(time.DateOnly))
		switch {
		case f.Untried != "":
			untried++
			state, what = "not tried", f.Untried
		case !f.Now:
			continue
		case f.State == torture.FindingNew:
			what = fmt.Sprintf("seed %d", f.Seed)
		case f.State == torture.FindingReturned:
			what += ", resolved " + f.Resolved.Date.Format(time.DateOnly)
		case f.State == torture.FindingResolved:
			what += fmt.Sprintf(", last %s; none of %d runs failed, so at most %.1f %% do, with 95 %% confidence",
				f.Last.Date.Format(time.DateOnly), f.Tries, 100*compare.AtMost(0, f.Tries))
		}
		if f.Untried == "" {
			count[f.State]++
		}
		rows = append(rows, []string{state, f.Class, what})
	}
	fmt.Fprintf(w, "\n%s: ", path)
	for _, state := range []torture.FindingState{torture.FindingNew, torture.FindingReturned, torture.FindingOngoing,
		torture.FindingResolved} {
		fmt.Fprintf(w, "%d %s, ", count[state], state)
	}
	fmt.Fprintf(w, "%d not tried\n", untried)
	slices.SortStableFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	for _, row := range rows {
		fmt.Fprintf(w, "  %-9s  %s\n             %s\n", row[0], row[1], row[2])
	}
}
