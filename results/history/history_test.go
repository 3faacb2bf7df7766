package history

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/results"
)

var begin = time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)

// runOf is the entry of a run on some day.
func runOf(day int, figures ...results.Figure) Entry {
	return Entry{
		Header: results.Header{
			Started: begin.Add(time.Duration(day) * 24 * time.Hour), Profile: "default",
			Settings: map[string]string{"engine.memtable_size": "64MiB"},
			Groups: []results.ClientGroup{{Name: "get", Workload: "get", Clients: 4, Pipeline: 1, Keys: "zipfian",
				Records: 10}},
			Build:   results.Build{Commit: fmt.Sprintf("%012x", 0xabc0000+day)},
			Machine: results.Machine{CPU: "a CPU", Cores: 2, Arch: "amd64"},
			Cluster: results.ClusterShape{InProcess: true, Stores: 3, Replicas: 3, Regions: 8, Transport: "memory",
				InMemory: true},
		},
		Figures: figures,
	}
}

func throughput(v float64) results.Figure {
	return results.Figure{Name: "throughput", Unit: "ops/s", Kind: results.Timed, Better: results.Higher, Value: v}
}

func cpu(v float64) results.Figure {
	return results.Figure{Name: "CPU", Unit: "us/op", Kind: results.CPUTime, Better: results.Lower, Value: v}
}

func appendOK(t *testing.T, path string, entries ...Entry) {
	t.Helper()
	if err := Append(path, entries...); err != nil {
		t.Fatal(err)
	}
}

func readOK(t *testing.T, path string) *Contents {
	t.Helper()
	c, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAppend: what was appended comes back, all of a call or nothing of it.
func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	a, b, c := runOf(0, throughput(100), cpu(3)), runOf(1, throughput(101)), runOf(2, throughput(102))
	a.Result, b.Case, c.Warnings = "a.jsonl", "a case", []string{"busy"}
	appendOK(t, path, a)
	appendOK(t, path, b, c)
	got := readOK(t, path)
	want := []Entry{a, b, c}
	for i := range want {
		want[i].Format = Format
	}
	if !reflect.DeepEqual(got.Entries, want) || got.Warnings != nil {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text := fileText(t, path)
	again, d := a, runOf(3, throughput(103))
	again.Header.Started = again.Header.Started.In(time.FixedZone("", 3600))
	for name, x := range map[string][]Entry{
		"a.jsonl is in line 1 already":                         {d, again},
		"the run of 2026-05-02T08:00:00Z is in line 2 already": {b},
		"is the same run as":                                   {d, d},
		"no time at which the run began":                       {d, {Figures: a.Figures}},
		"nothing was measured":                                 {runOf(4, throughput(0))},
		"throughput: NaN, want 0 or more":                      {runOf(4, throughput(math.NaN()))},
		"throughput: -1, want 0 or more":                       {runOf(4, throughput(-1))},
		"throughput: two figures of this name":                 {runOf(4, throughput(1), throughput(1))},
		"figure 1: no name":                                    {runOf(4, results.Figure{Value: 1})},
	} {
		err := Append(path, x...)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Append = %v; want %q", err, name)
		}
		_, wrong := Check(path, x...)
		if fmt.Sprint(wrong) != fmt.Sprint(err) {
			t.Errorf("Check = %v; Append says %v", wrong, err)
		}
	}
	if fileText(t, path) != text {
		t.Errorf("a call that was refused has changed the file")
	}
	// The same time in another setup is another run, and so is another case.
	other := a
	other.Header.Machine.Cores = 8
	again.Case = "a case"
	appendOK(t, path, other, again)
}

// TestCutLine: a last line that is cut off is left out, and gone with the next run.
func TestCutLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	appendOK(t, path, runOf(0, throughput(100)), runOf(1, throughput(101)))
	whole := fileText(t, path)
	second := strings.Index(whole, "\n") + 1
	for cut := second + 1; cut < len(whole); cut += 37 {
		writeFile(t, path, whole[:cut])
		c := readOK(t, path)
		if len(c.Entries) != 1 || len(c.Warnings) != 1 || c.Warnings[0] != "line 2 is cut off and left out" {
			t.Fatalf("cut at %d: %d runs, warnings %q", cut, len(c.Entries), c.Warnings)
		}
		if warnings, err := Check(path); err != nil || !reflect.DeepEqual(warnings, c.Warnings) {
			t.Fatalf("Check = %q, %v; want %q", warnings, err, c.Warnings)
		}
		appendOK(t, path, runOf(1, throughput(101)))
		if fileText(t, path) != whole {
			t.Fatalf("cut at %d: the file is not as before", cut)
		}
	}
	// An editor that leaves out the last end of a line has cut off nothing.
	writeFile(t, path, strings.TrimSuffix(whole, "\n"))
	if c := readOK(t, path); len(c.Entries) != 2 || c.Warnings != nil {
		t.Fatalf("no end of the last line: %d runs, warnings %q", len(c.Entries), c.Warnings)
	}
	appendOK(t, path, runOf(2, throughput(102)))
	if c := readOK(t, path); len(c.Entries) != 3 {
		t.Errorf("%d runs after one was added, want 3", len(c.Entries))
	}
}

// TestWrongLines: every wrong line is named, and nothing is written to such a file.
func TestWrongLines(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	path := filepath.Join(t.TempDir(), "h.jsonl")
	appendOK(t, path, runOf(0, throughput(100)))
	good := fileText(t, path)
	long := strings.Repeat("{}\n", 20)
	for _, c := range []struct {
		text string
		want []string
	}{
		{good + "{\n" + good + "{}\n", []string{"line 2: unexpected end", "line 4: not a line of a history"}},
		{`{"header":{"format":3}}` + "\n", []string{"line 1: not a line of a history"}},
		{`{"header":{"format":3}}`, []string{"line 1: not a line of a history"}},
		{strings.Replace(good, `"history_format":2`, `"history_format":1`, 1),
			[]string{"line 1: history format 1, this"}},
		{strings.Replace(good, `"value":100`, `"value":-100`, 1), []string{"line 1: throughput: -100, want 0 or more"}},
		{long, []string{"line 1: not", "line 10: not"}},
		{strings.Repeat(" ", MaxBytes+1), []string{"a history of more than 64 MiB"}},
	} {
		writeFile(t, path, c.text)
		_, err := Read(path)
		appended := Append(path, runOf(9, throughput(1)))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.40q: %v, want %q", c.text, err, want)
			}
			if appended == nil || !strings.Contains(appended.Error(), path+": "+want) {
				t.Errorf("%.40q: Append = %v, want %q", c.text, appended, want)
			}
		}
		if err != nil && strings.Count(err.Error(), "\n") >= maxWrong {
			t.Errorf("%.40q: %d lines of errors", c.text, strings.Count(err.Error(), "\n")+1)
		}
		if fileText(t, path) != c.text {
			t.Errorf("%.40q: Append has changed the file", c.text)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	writeFile(t, path, "")
	if c := readOK(t, path); len(c.Entries) != 0 {
		t.Errorf("an empty file: %+v", c)
	}
	// A run that would make the file too long is refused, before it is.
	full := strings.TrimSuffix(good, "}\n") + `,"result":"` + strings.Repeat("x", MaxBytes-len(good)-20) + "\"}\n"
	writeFile(t, path, full)
	if err := Append(path, runOf(9, throughput(1))); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("a full history: %v", err)
	}
	if fileText(t, path) != full {
		t.Error("a full history has changed")
	}
}

// TestAppendTogether: programs that append at the same time do not lose or tear lines.
func TestAppendTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	const writers, runs = 8, 10
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range runs {
				if err := Append(path, runOf(w*runs+i, throughput(100))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if c := readOK(t, path); len(c.Entries) != writers*runs || c.Warnings != nil {
		t.Errorf("%d runs, warnings %q; want %d and none", len(c.Entries), c.Warnings, writers*runs)
	}
}

// TestNewEntry: a run that did not come to its end is no entry.
func TestNewEntry(t *testing.T) {
	good := func() *results.Summary {
		g := results.GroupStats{Name: "get", Total: results.OpStats{Count: 10, PerSecond: 7}}
		return &results.Summary{Warnings: []string{"busy"}, Groups: []results.GroupSummary{{GroupStats: g}}}
	}
	failed, interrupted := good(), good()
	failed.Failure, interrupted.Interrupted = "no store left", true
	for _, c := range []struct {
		summary *results.Summary
		want    string
	}{
		{good(), ""}, {nil, "did not come to its end"}, {failed, "the run failed: no store left"},
		{interrupted, "the run was interrupted"}, {&results.Summary{}, "nothing was measured"},
	} {
		r := &results.Result{Header: runOf(0).Header, Summary: c.summary}
		e, err := NewEntry(results.ResultFile{Name: "r.jsonl", Result: r})
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("NewEntry = %v; want %q", err, c.want)
			}
			continue
		}
		if err != nil || e.Result != "r.jsonl" || len(e.Figures) == 0 || e.Figures[0].Value != 7 ||
			len(e.Warnings) != 1 {
			t.Errorf("NewEntry = %+v, %v", e, err)
		}
	}
}

// FuzzRead: whatever a file holds, what is read of it is read again from its good part.
func FuzzRead(f *testing.F) {
	path := filepath.Join(f.TempDir(), "h.jsonl")
	if err := Append(path, runOf(0, throughput(100)), runOf(1, throughput(101), cpu(3))); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(string(text[:len(text)-1]))
	f.Add(string(text[:len(text)-9]))
	f.Add("\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, good, err := read(strings.NewReader(text))
		if err != nil {
			return
		}
		again, all, err := read(strings.NewReader(text[:good]))
		if err != nil || all != good || again.Warnings != nil || !reflect.DeepEqual(again.Entries, c.Entries) {
			t.Errorf("%+v, %d of %d bytes, %v; want %+v", again, all, good, err, c)
		}
		c.Trends(Options{})
	})
}
