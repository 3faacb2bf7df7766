package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
)

// resultForms are the formats of the verb results, the default first.
var resultForms = []string{"table", "hgrm", "hlog", "benchfmt", "csv", "json"}

// resultsFlags are the flags of results.
type resultsFlags struct {
	format, out string
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
  json      JSON Lines, the format of bench itself; older files become files of the present format

A folder behind --out, one that exists or a path that ends with a slash, gets a file per result, or per histogram with
hgrm. Without a folder hlog and json take one result. A result that was cut short is converted as far as it goes, with a
warning.`,
		Example: `  neokv results neokv-ycsb-a-20260504T030201Z.jsonl
  neokv results run.jsonl --format hgrm --out percentiles/
  neokv results run.jsonl --format hlog --out run.hlog
  neokv results old-*.jsonl --format benchfmt --out old.txt
  neokv results *.jsonl --format csv --out all.csv`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{verb(c) + "want the name of a result file"}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return f.run(p, args) },
	}
	c.Flags().StringVar(&f.format, "format", resultForms[0], "one of "+strings.Join(resultForms, ", "))
	c.Flags().StringVarP(&f.out, "out", "o", "", "`file` or folder/ to write to (default standard output)")
	return c
}

// run reads all files, and writes nothing if something is wrong with one of them, other than that it was cut short.
func (f *resultsFlags) run(p process, names []string) error {
	files, texts, err := f.read(names)
	outputs, wrong := f.outputs(files, texts)
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

// read reads the files. With the format json it also returns their text in the present format. Its error names
// everything that is wrong with the files and the format.
func (f *resultsFlags) read(names []string) (files []results.ResultFile, texts [][]byte, err error) {
	var wrong []error
	if !slices.Contains(resultForms, f.format) {
		wrong = append(wrong, &usageError{fmt.Sprintf("--format %s: want one of %s%s", f.format,
			strings.Join(resultForms, ", "), settings.DidYouMean(f.format, resultForms))})
	}
	for _, name := range names {
		r, text, err := f.readFile(name)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				wrong = append(wrong, &usageError{name + ": " + strings.TrimSpace(line)})
			}
			continue
		}
		if why := f.nothing(r); why != "" {
			wrong = append(wrong, &usageError{name + ": " + why})
		}
		files, texts = append(files, results.ResultFile{Name: name, Result: r}), append(texts, text)
	}
	return files, texts, errors.Join(wrong...)
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
		if !slices.ContainsFunc(s.Groups, func(g results.GroupSummary) bool { return g.Total.Count > 0 }) {
			return "nothing was measured"
		}
	}
	return ""
}

func (f *resultsFlags) readFile(name string) (*results.Result, []byte, error) {
	in, err := os.Open(name)
	if err != nil {
		if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
			err = pathError.Err // the caller names the file
		}
		return nil, nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err == nil && info.IsDir() {
		return nil, nil, errors.New("a folder, want a result file")
	}
	if f.format != "json" {
		r, err := results.Read(in)
		return r, nil, err
	}
	var text bytes.Buffer
	r, err := results.Rewrite(&text, in)
	return r, text.Bytes(), err
}

// resultOutput is a file to write.
type resultOutput struct {
	path  string // "" for standard output
	write func(io.Writer) error
}

// outputs returns what to write where.
func (f *resultsFlags) outputs(files []results.ResultFile, texts [][]byte) ([]resultOutput, error) {
	info, err := os.Stat(f.out)
	folder := f.out != "" && (strings.HasSuffix(f.out, "/") || err == nil && info.IsDir())
	if !folder {
		if (f.format == "hlog" || f.format == "json") && len(files) > 1 {
			return nil, &usageError{fmt.Sprintf("--format %s: %d results need a folder: want --out folder/", f.format,
				len(files))}
		}
		return f.checked([]resultOutput{{f.out, func(w io.Writer) error { return f.write(w, files, texts) }}}, files)
	}
	var out []resultOutput
	for i, file := range files {
		base := strings.TrimSuffix(filepath.Base(file.Name), ".jsonl")
		if f.format != "hgrm" {
			path := filepath.Join(f.out, base+map[string]string{"table": ".txt", "hlog": ".hlog", "benchfmt": ".bench",
				"csv": ".csv", "json": ".jsonl"}[f.format])
			out = append(out, resultOutput{path, func(w io.Writer) error {
				return f.write(w, files[i:i+1], texts[i:i+1])
			}})
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
	var wrong []error
	seen := map[string]bool{}
	for _, o := range out {
		if o.path == "" {
			continue
		}
		if seen[o.path] {
			wrong = append(wrong, &usageError{fmt.Sprintf("--out: two results would be %s", o.path)})
		}
		seen[o.path] = true
		to, err := os.Stat(o.path)
		if err != nil {
			continue // it does not exist
		}
		for _, file := range files {
			if from, err := os.Stat(file.Name); err == nil && os.SameFile(from, to) {
				wrong = append(wrong, &usageError{fmt.Sprintf("--out: %s is a result to read", o.path)})
			}
		}
	}
	return out, errors.Join(wrong...)
}

// write writes results to one place.
func (f *resultsFlags) write(w io.Writer, files []results.ResultFile, texts [][]byte) error {
	switch f.format {
	case "hgrm":
		return writeHGRMs(w, files)
	case "hlog":
		return results.WriteHLog(w, files[0].Result)
	case "benchfmt":
		return results.WriteBenchfmt(w, files)
	case "csv":
		return results.WriteCSV(w, files)
	case "json":
		_, err := w.Write(texts[0])
		return err
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
