package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/results"
)

// resultForms are the formats of the verb results, the default first.
var resultForms = []string{"table", "hgrm", "hlog", "benchfmt", "csv"}

// outFlags say where a verb writes, and whether it may write over a file.
type outFlags struct {
	out   string
	force bool
}

// register registers --out, whose help is usage, and --force.
func (f *outFlags) register(flags *pflag.FlagSet, usage string) {
	flags.StringVarP(&f.out, "out", "o", "", usage)
	flags.BoolVar(&f.force, "force", false, "write over a file that exists")
}

// spare refuses a file that has something in it, unless --force allows it.
func (f *outFlags) spare(path string) error {
	info, err := os.Stat(path)
	if f.force || err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	return &usageError{fmt.Sprintf("--out: %s exists; --force writes over it", path)}
}

// resultsFlags are the flags of results.
type resultsFlags struct {
	format string
	outFlags
}

func resultsCommand(p process) *cobra.Command {
	var f resultsFlags
	c := &cobra.Command{
		Use:   "results FILE...",
		Short: "Print result files, or convert them for other programs",
		Long: `Print result files of bench, or convert them for other programs:

  table     what bench printed
  hgrm      percentiles, as HdrHistogram prints them, in milliseconds; for its plotter
  hlog      interval log of the measured part, version 2, in nanoseconds; for HdrHistogram's log tools
  benchfmt  one line per run and operation; for benchstat, which wants several runs
  csv       one row per interval, group of clients and operation

A folder behind --out, one that exists or a path that ends with a slash, gets a file per result, or per histogram with
hgrm. Without a folder hlog takes one result. A result that was cut short is converted as far as it goes, with a
warning.`,
		Example: `  neokv results neokv-ycsb-a-20260504T030201Z.jsonl
  neokv results run.jsonl --format hgrm --out percentiles/
  neokv results run.jsonl --format hlog --out run.hlog
  neokv results old-*.jsonl --format benchfmt --out old.txt
  neokv results *.jsonl --format csv --out all.csv`,
		Args: wantArgs(1, math.MaxInt, "the name of a result file"),
		RunE: func(_ *cobra.Command, args []string) error { return f.run(p, args) },
	}
	c.Flags().StringVar(&f.format, "format", resultForms[0], "`format`, one of "+strings.Join(resultForms, ", "))
	f.register(c.Flags(), "`file` or folder/ to write to (default standard output)")
	return c
}

// run reads all files, and writes nothing if something is wrong with one of them, other than that it was cut short.
func (f *resultsFlags) run(p process, names []string) error {
	files, err := f.read(names)
	outputs, wrong := f.outputs(files)
	if err = errors.Join(err, wrong); err != nil {
		return err
	}
	for _, o := range outputs {
		if err := o.save(p.stdout); err != nil {
			return err
		}
	}
	for _, file := range files {
		err = errors.Join(err, cutShort(file.Name, file.Result))
	}
	return err
}

// cutShort says what is missing from a result file, nil if it is whole. A verb shows what the file holds, and then ends
// with this error.
func cutShort(name string, r *results.Result) error {
	var wrong []error
	for _, w := range r.Warnings {
		wrong = append(wrong, &usageError{name + ": " + w})
	}
	return errors.Join(wrong...)
}

// read reads the files. Its error names everything that is wrong with the files and the format.
func (f *resultsFlags) read(names []string) (files []results.ResultFile, err error) {
	var wrong mistakes
	wrong.add(checkForm(f.format, resultForms))
	for _, name := range names {
		r, err := readResultFile(name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		why := f.nothing(r)
		wrong.check(why == "", "%s: %s", name, why)
		files = append(files, results.ResultFile{Name: name, Result: r})
	}
	return files, errors.Join(wrong...)
}

// nothing says why a result has nothing for the format, "" if it has.
func (f *resultsFlags) nothing(r *results.Result) string {
	switch f.format {
	case "hgrm", "hlog":
		if len(r.Histograms()) == 0 {
			return "no histogram of the measured part"
		}
	case "benchfmt":
		s := r.Measured()
		if !slices.ContainsFunc(s.Groups, func(g results.GroupSummary) bool { return g.Total.Due() > 0 }) {
			return "nothing was measured"
		}
	}
	return ""
}

// fileKinds are the kinds of files that verbs write, each with the first key of its JSON and the verb that shows it.
var fileKinds = []struct{ key, verb, shows string }{
	{"header", "bench", "neokv results prints it"},
	{"blocks_format", "ab", "neokv compare prints it"},
	{"tuning_format", "tune", "neokv tune --resume goes on with it and prints it"},
	{"history_format", "history", "neokv history show prints it"},
	{"baseline_format", "check", "neokv check --baseline takes it"},
}

// otherKind refuses a file that another verb than want has written. What is none of ours it leaves to its reader.
func otherKind(path, want string) error {
	in, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer in.Close()
	words := json.NewDecoder(io.LimitReader(in, 1<<16))
	if begin, err := words.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	key, _ := words.Token()
	for _, k := range fileKinds {
		if key == k.key && k.verb != want {
			return &usageError{fmt.Sprintf("%s: this is a file of %s: %s", path, k.verb, k.shows)}
		}
	}
	return nil
}

// readResultFile reads a result file. Its error names the file and everything that is wrong with it.
func readResultFile(name string) (*results.Result, error) {
	if err := otherKind(name, "bench"); err != nil {
		return nil, err
	}
	var r *results.Result
	info, err := os.Stat(name)
	switch {
	case err != nil:
		err = errors.Unwrap(err) // the file is named below
	case info.IsDir():
		err = errors.New("a folder, want a result file")
	default:
		var in *os.File
		if in, err = os.Open(name); err == nil {
			r, err = results.Read(in)
			in.Close()
		}
	}
	if err != nil {
		return nil, usageErrors(name, err)
	}
	return r, nil
}

// resultOutput is a file to write.
type resultOutput struct {
	path  string // "" for standard output
	write func(io.Writer) error
}

// outputs returns what to write where.
func (f *resultsFlags) outputs(files []results.ResultFile) ([]resultOutput, error) {
	info, err := os.Stat(f.out)
	folder := f.out != "" && (strings.HasSuffix(f.out, "/") || err == nil && info.IsDir())
	if !folder {
		if f.format == "hlog" && len(files) > 1 {
			return nil, &usageError{fmt.Sprintf("--format hlog: %d results need a folder: want --out folder/",
				len(files))}
		}
		return f.checked([]resultOutput{{f.out, func(w io.Writer) error { return f.write(w, files) }}}, files)
	}
	var out []resultOutput
	for i, file := range files {
		base := strings.TrimSuffix(filepath.Base(file.Name), ".jsonl")
		if f.format != "hgrm" {
			path := filepath.Join(f.out, base+map[string]string{"table": ".txt", "hlog": ".hlog", "benchfmt": ".bench",
				"csv": ".csv"}[f.format])
			out = append(out, resultOutput{path, func(w io.Writer) error { return f.write(w, files[i:i+1]) }})
			continue
		}
		for _, d := range file.Histograms() {
			out = append(out, resultOutput{filepath.Join(f.out, base+"."+d.FileName()+".hgrm"), d.WriteHGRM})
		}
	}
	return f.checked(out, files)
}

// checked refuses outputs that would overwrite each other or a result.
func (f *resultsFlags) checked(out []resultOutput, files []results.ResultFile) ([]resultOutput, error) {
	var wrong mistakes
	seen := map[string]bool{}
	for _, o := range out {
		if o.path == "" {
			continue
		}
		wrong.check(!seen[o.path], "--out: two results would be %s", o.path)
		seen[o.path] = true
		to, err := os.Stat(o.path)
		if err != nil {
			continue // it does not exist
		}
		for _, file := range files {
			from, err := os.Stat(file.Name)
			wrong.check(err != nil || !os.SameFile(from, to), "--out: %s is a result to read", o.path)
		}
		if wrong == nil {
			wrong.add(f.spare(o.path))
		}
	}
	return out, errors.Join(wrong...)
}

// write writes results to one place.
func (f *resultsFlags) write(w io.Writer, files []results.ResultFile) error {
	switch f.format {
	case "hgrm":
		return writeHGRMs(w, files)
	case "hlog":
		return results.WriteHLog(w, files[0].Result)
	case "benchfmt":
		return results.WriteBenchfmt(w, files)
	case "csv":
		return results.WriteCSV(w, files)
	}
	for i, file := range files {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := results.PrintTable(w, file.Header, file.Measured()); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, file.Name); err != nil {
			return err
		}
	}
	return nil
}

// writeHGRMs writes all histograms one after another. If there are several, each has a comment above that names it.
func writeHGRMs(w io.Writer, files []results.ResultFile) error {
	var all []results.OpHistogram
	var from []string
	for _, file := range files {
		for _, d := range file.Histograms() {
			all, from = append(all, d), append(from, file.Name)
		}
	}
	for i, d := range all {
		if len(all) > 1 {
			if _, err := fmt.Fprintf(w, "#[%s: %s]\n", from[i], d.FileName()); err != nil {
				return err
			}
		}
		if err := d.WriteHGRM(w); err != nil {
			return err
		}
	}
	return nil
}

// save writes the output to its place.
func (o resultOutput) save(stdout io.Writer) (err error) {
	if o.path == "" {
		w := bufio.NewWriter(stdout)
		return errors.Join(o.write(w), w.Flush())
	}
	if err := os.MkdirAll(filepath.Dir(o.path), 0o777); err != nil {
		return err
	}
	file, err := os.Create(o.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriter(file)
	return errors.Join(o.write(w), w.Flush())
}
