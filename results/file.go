package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A result file is JSON Lines: a header, intervals, a summary. Every line is an object with one member, whose name says
// what the line is.
type line struct {
	Header   *Header   `json:"header,omitempty"`
	Interval *Interval `json:"interval,omitempty"`
	Summary  *Summary  `json:"summary,omitempty"`
}

// DefaultPath returns the name of a result file in the current folder.
func DefaultPath(workload string, t time.Time) string {
	name := strings.TrimSuffix(filepath.Base(workload), filepath.Ext(workload)) // it may be the path of a file
	return fmt.Sprintf("neokv-%s-%s.jsonl", name, t.UTC().Format("20060102T150405Z"))
}

// RecordWriter writes a result file line by line. Each line is one write, so a run that is killed leaves whole lines. A
// RecordWriter is not safe for concurrent use.
type RecordWriter struct {
	w      io.Writer
	file   *os.File
	header Header
}

// Create creates a result file. It empties a file that exists.
func Create(path string) (*RecordWriter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("result file: %w", err)
	}
	return &RecordWriter{w: f, file: f}, nil
}

// NewWriter returns a RecordWriter that writes to w.
func NewWriter(w io.Writer) *RecordWriter { return &RecordWriter{w: w} }

// Begin writes the header.
func (w *RecordWriter) Begin(h Header) error {
	h.Format = Format
	w.header = h
	return w.write(line{Header: &h})
}

// Header returns the header that Begin wrote.
func (w *RecordWriter) Header() Header { return w.header }

// Interval writes one interval.
func (w *RecordWriter) Interval(iv Interval) error { return w.write(line{Interval: &iv}) }

// End writes the summary.
func (w *RecordWriter) End(s Summary) error { return w.write(line{Summary: &s}) }

// Close syncs and closes the file that Create made.
func (w *RecordWriter) Close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.file.Sync(), w.file.Close())
	if w.file = nil; err != nil {
		return fmt.Errorf("result file: %w", err)
	}
	return nil
}

func (w *RecordWriter) write(l line) error { return WriteLine(w.w, "result file", l) }

// WriteLine writes a value as a line of a file of JSON Lines, in one write. what names the file in an error.
func WriteLine(w io.Writer, what string, value any) error {
	b, err := json.Marshal(value)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ErrOtherFile is the error of ReadLines for a file of another kind.
var ErrOtherFile = errors.New("a file of another kind")

// ReadLines reads a file of JSON Lines that WriteLine has written: a header with the version of the format, and a line
// per record. what names the format, of which this program reads one version. A last line that is cut off is left out;
// size is how many bytes the others have.
func ReadLines[H, R any](r io.Reader, what string, version int, of func(*H) int) (header H, all []R, size int64,
	err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		line, err := ReadLine(in)
		switch {
		case err == io.EOF && n > 1:
			return header, all, size, nil // whatever is behind the last line feed was cut off
		case err == io.EOF:
			return header, nil, 0, ErrOtherFile
		case err != nil:
		case n > 1:
			all = append(all, *new(R))
			err = json.Unmarshal(line, &all[len(all)-1])
		default:
			err = json.Unmarshal(line, &header) // of another version fields may have other types
			if f := of(&header); f == 0 {
				return header, nil, 0, ErrOtherFile
			} else if f != version {
				err = fmt.Errorf("%s format %d, this program reads %d", what, f, version)
			}
		}
		if err != nil {
			return header, nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		size += int64(len(line))
	}
}

// PrintJSON prints a value for programs.
func PrintJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// Result is a result file that was read back.
type Result struct {
	Header    Header
	Intervals []Interval
	Summary   *Summary // nil if the run did not end properly
	// Warnings says what is missing from a file that was cut short.
	Warnings []string
}

// maxLine bounds the memory that ReadLine needs for a line. The histograms of a summary take some tens of kilobytes.
const maxLine = 64 << 20

// maxWrong bounds how many wrong lines an error names.
const maxWrong = 10

// Read reads a result file and checks it. A last line that is cut off, or a missing summary, gives a warning. Anything
// else that is wrong is an error, which names every line, ten at most.
func Read(r io.Reader) (*Result, error) {
	res := &Result{}
	var wrong []error
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		b, err := ReadLine(in)
		if err != nil && err != io.EOF {
			return nil, errors.Join(append(wrong, fmt.Errorf("line %d: %w", n, err))...)
		}
		last := err == io.EOF
		if last && len(bytes.TrimSpace(b)) == 0 {
			if n == 1 {
				return nil, errors.New("empty record")
			}
			break
		}
		if n == 1 {
			// A header of another format may not even decode, so Read looks at the version first.
			if err := checkFormat(b); err != nil {
				return nil, err
			}
		}
		err = res.add(b, n)
		switch {
		case err == nil:
		case last && n > 1:
			res.Warnings = append(res.Warnings, fmt.Sprintf("line %d is cut off and left out", n))
		default:
			wrong = append(wrong, fmt.Errorf("line %d: %w", n, err))
		}
		if last || n == 1 && err != nil || len(wrong) == maxWrong {
			break
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	if res.Summary == nil {
		res.Warnings = append(res.Warnings, "no summary: the run did not come to its end")
	}
	return res, nil
}

// ReadLine reads a line of at most 64 MiB, with its line feed. At the end of the file it returns the rest, with io.EOF.
func ReadLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return nil, fmt.Errorf("more than %d bytes", maxLine)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func checkFormat(b []byte) error {
	var first struct {
		Header *struct {
			Format int `json:"format"`
		} `json:"header"`
	}
	if err := json.Unmarshal(b, &first); err != nil || first.Header == nil {
		return errors.New("line 1: not the header of a result record")
	}
	if f := first.Header.Format; f != Format {
		return fmt.Errorf("line 1: result format %d, this program reads %d", f, Format)
	}
	return nil
}

// add checks a line and adds it to the result.
func (res *Result) add(b []byte, n int) error {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	switch {
	case res.Summary != nil:
		return errors.New("a line after the summary")
	case n == 1:
		res.Header = *l.Header
		return nil
	case l.Interval != nil:
		if err := l.Interval.check(); err != nil {
			return err
		}
		if err := res.balance(l.Interval); err != nil {
			return err
		}
		res.Intervals = append(res.Intervals, *l.Interval)
		return nil
	case l.Summary != nil:
		if err := l.Summary.check(); err != nil {
			return err
		}
		res.Summary = l.Summary
		return nil
	}
	return errors.New("neither an interval nor a summary")
}

// balance checks that the ledgers of an interval go on from those of the interval before. Each phase begins at zero.
func (res *Result) balance(iv *Interval) error {
	var before []GroupStats
	if n := len(res.Intervals); n > 0 && iv.Since > 0 && res.Intervals[n-1].Phase == iv.Phase {
		before = res.Intervals[n-1].Groups
	}
	for i, g := range iv.Groups {
		inFlight := int64(0)
		if i < len(before) {
			inFlight = before[i].Ledger.InFlight
		}
		if missing := g.Ledger.Balance(inFlight); missing != 0 {
			return fmt.Errorf("group %s: the ledger is off by %d operations", g.Name, missing)
		}
	}
	return nil
}

func (iv *Interval) check() error {
	if !slices.Contains([]string{PhaseLoad, PhaseWarmup, PhaseStep, PhaseRun, PhaseVerify}, iv.Phase) {
		return fmt.Errorf("phase %q: unknown", iv.Phase)
	}
	for i := range iv.Groups {
		if err := iv.Groups[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Summary) check() error {
	for i := range s.Groups {
		g := &s.Groups[i]
		if err := g.check(); err != nil {
			return err
		}
		if missing := g.Ledger.Balance(0); missing != 0 {
			return fmt.Errorf("group %s: the ledger is off by %d operations", g.Name, missing)
		}
	}
	return nil
}

// check compares sums, and counts with what the histograms hold.
func (g *GroupStats) check() error {
	var sum OpStats
	for _, op := range g.Ops {
		sum.Count, sum.Errors, sum.Unanswered = sum.Count+op.Count, sum.Errors+op.Errors, sum.Unanswered+op.Unanswered
		for _, l := range []*Latency{&op.Service, op.Response} {
			if l == nil || l.HDR == "" && l.CensoredHDR == "" {
				continue
			}
			d, err := l.Distribution()
			if err != nil {
				return fmt.Errorf("operation %s: %w", op.Name, err)
			}
			answered, censored := d.Count()
			if answered != op.Count {
				return fmt.Errorf("operation %s: histogram of %d values, count %d", op.Name, answered, op.Count)
			}
			if failed := op.Errors + op.Unanswered; censored != l.Censored || censored > failed ||
				l == op.Response && censored != failed {
				return fmt.Errorf("operation %s: histogram of %d censored values, %d counted of %d", op.Name, censored,
					l.Censored, failed)
			}
		}
	}
	if p := g.PushToPop; p != nil {
		d, err := p.Time.Distribution()
		if n, _ := d.Count(); err != nil || n != p.Elements {
			return fmt.Errorf("from push to pop: histogram of %d values, %d elements: %v", n, p.Elements, err)
		}
	}
	t := g.Total
	if sum.Count != t.Count || sum.Errors != t.Errors || sum.Unanswered != t.Unanswered {
		return fmt.Errorf("total count %d, %d errors, %d unanswered; operations add up to %d, %d, %d", t.Count,
			t.Errors, t.Unanswered, sum.Count, sum.Errors, sum.Unanswered)
	}
	return nil
}
