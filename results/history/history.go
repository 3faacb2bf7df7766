// Package history keeps what runs have measured in a file of JSON Lines, a line per run, and finds the runs at which a
// figure changes.
package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"neokv.dev/results"
)

// Format is the version of the lines of a history.
const Format = 2

// MaxBytes is how long a history may be: some ten thousand runs. A longer one is refused, since readers hold all of it.
const MaxBytes = 64 << 20

// maxWrong bounds how many wrong lines an error names.
const maxWrong = 10

// Entry is a line of a history: what one run measured.
type Entry struct {
	Format int `json:"history_format"` // Append sets it
	// Header says when the run began, and with what, on what and of which load. Entries of equal loads, targets and
	// machines can be compared; see Setup.
	Header results.Header `json:"header"`
	// Case is what was measured, if the groups of Header do not say it: the name of a case of a gate.
	Case     string           `json:"case,omitempty"`
	Figures  []results.Figure `json:"figures"`
	Result   string           `json:"result,omitempty"`   // the file that has the run as a whole
	Warnings []string         `json:"warnings,omitempty"` // of the run
}

// NewEntry returns the entry of a result. It refuses a run that did not come to its end, since its figures are those of
// another load.
func NewEntry(file results.ResultFile) (Entry, error) {
	r := file.Result
	switch s := r.Summary; {
	case s == nil:
		return Entry{}, errors.New("no summary: the run did not come to its end")
	case s.Failure != "":
		return Entry{}, fmt.Errorf("the run failed: %s", s.Failure)
	case s.Interrupted:
		return Entry{}, errors.New("the run was interrupted")
	}
	e := Entry{Header: r.Header, Result: file.Name, Figures: r.Summary.Figures(&r.Header), Warnings: r.Summary.Warnings}
	return e, e.check()
}

// check returns what is wrong with an entry.
func (e *Entry) check() error {
	if e.Header.Started.IsZero() {
		return errors.New("no time at which the run began")
	}
	measured := false
	for i, f := range e.Figures {
		switch {
		case f.Name == "":
			return fmt.Errorf("figure %d: no name", i+1)
		case math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Value < 0:
			return fmt.Errorf("%s: %g, want 0 or more", f.Name, f.Value)
		case slices.ContainsFunc(e.Figures[:i], func(x results.Figure) bool { return x.Name == f.Name }):
			return fmt.Errorf("%s: two figures of this name", f.Name)
		}
		measured = measured || f.Value > 0
	}
	if !measured {
		return errors.New("nothing was measured")
	}
	return nil
}

// runKey tells runs apart.
type runKey struct {
	setup Setup
	at    time.Time
}

func (e *Entry) key() runKey { return runKey{e.Setup(), e.Header.Started.UTC().Round(0)} }

// Contents is what a history holds.
type Contents struct {
	Entries []Entry // in the order of the lines
	// Warnings says what is missing from a file that was cut short.
	Warnings []string
}

// Read reads a history. A last line that is cut off gives a warning. Anything else that is wrong is an error, which
// names every line, ten at most.
func Read(path string) (*Contents, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, _, err := read(f)
	return c, err
}

// read reads a history. good is the length of its whole lines.
func read(r io.Reader) (c *Contents, good int, err error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return nil, 0, err
	case len(text) > MaxBytes:
		return nil, 0, errors.New(tooLong)
	}
	c = &Contents{}
	var wrong []error
	n := 0
	for line := range bytes.Lines(text) {
		n++
		var e Entry
		err := decode(line, &e)
		switch {
		case err == nil:
			c.Entries = append(c.Entries, e)
			good += len(line)
		case line[len(line)-1] != '\n' && n > 1:
			c.Warnings = append(c.Warnings, fmt.Sprintf("line %d is cut off and left out", n))
		default:
			wrong = append(wrong, fmt.Errorf("line %d: %w", n, err))
		}
		if len(wrong) == maxWrong {
			break
		}
	}
	return c, good, errors.Join(wrong...)
}

var tooLong = fmt.Sprintf("a history of more than %s; begin another one", results.Bytes(MaxBytes))

func decode(line []byte, e *Entry) error {
	err := json.Unmarshal(line, e)
	if err == nil && e.Format == Format {
		return e.check()
	}
	var version struct {
		Format int `json:"history_format"`
	}
	if err := json.Unmarshal(line, &version); err != nil {
		return err
	}
	switch version.Format {
	case 0:
		return errors.New("not a line of a history")
	case Format:
		return err
	}
	return fmt.Errorf("history format %d, this program reads %d", version.Format, Format)
}

// Append adds runs to a history, all of them or none, and makes the file if it is missing. It takes away a last line
// that is cut off. It refuses a run that the history has already. Programs that append at the same time wait for each
// other.
func Append(path string, entries ...Entry) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // and give the lock back
	if err := lock(f); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	c, good, err := read(f)
	if err != nil {
		return named(path, err)
	}
	if err := c.refuse(entries); err != nil {
		return named(path, err)
	}
	text, err := lines(f, good, entries)
	if err != nil {
		return named(path, err)
	}
	if err := f.Truncate(int64(good)); err != nil {
		return err
	}
	if _, err := f.WriteAt(text, int64(good)); err != nil {
		return errors.Join(err, f.Truncate(int64(good)))
	}
	return f.Sync()
}

// lines returns what to write after the good lines of a file.
func lines(f io.ReaderAt, good int, entries []Entry) ([]byte, error) {
	var text bytes.Buffer
	if good > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, int64(good-1)); err != nil {
			return nil, err
		}
		if last[0] != '\n' { // an editor left it out
			text.WriteByte('\n')
		}
	}
	for _, e := range entries {
		e.Format = Format
		line, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		text.Write(append(line, '\n'))
	}
	if good+text.Len() > MaxBytes {
		return nil, errors.New(tooLong)
	}
	return text.Bytes(), nil
}

// Check says what Append would refuse, and what is missing from the file.
func Check(path string, entries ...Entry) (warnings []string, err error) {
	c, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		c, err = &Contents{}, nil
	}
	if err != nil {
		return nil, named(path, err)
	}
	return c.Warnings, named(path, c.refuse(entries))
}

// refuse returns an error for each entry that is wrong, or that the history or the entries before have already.
func (c *Contents) refuse(entries []Entry) error {
	known := map[runKey]string{}
	for i := range c.Entries {
		known[c.Entries[i].key()] = fmt.Sprintf("is in line %d already", i+1)
	}
	var wrong []error
	for i := range entries {
		e := &entries[i]
		name := e.Result
		if name == "" {
			name = "the run of " + e.Header.Started.UTC().Format(time.RFC3339)
		}
		if err := e.check(); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if where, ok := known[e.key()]; ok {
			wrong = append(wrong, fmt.Errorf("%s %s", name, where))
			continue
		}
		known[e.key()] = "is the same run as " + name
	}
	return errors.Join(wrong...)
}

// named puts the name of a file before each line of an error.
func named(path string, err error) error {
	if err == nil {
		return nil
	}
	if pathError := (*fs.PathError)(nil); errors.As(err, &pathError) {
		return err // which names the file
	}
	var out []error
	all, several := err.(interface{ Unwrap() []error })
	if !several {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, err := range all.Unwrap() {
		out = append(out, fmt.Errorf("%s: %w", path, err))
	}
	return errors.Join(out...)
}
