package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
)

// The check value of CRC-16/XMODEM, which the Redis Cluster specification names.
func TestCRC16(t *testing.T) {
	if got := crc16("123456789"); got != 0x31c3 {
		t.Errorf("crc16 = %#x; want 0x31c3", got)
	}
	for i, key := range probeKeys {
		if slot := int(crc16(key)) % 16384; slot != i*probeEvery {
			t.Errorf("key %q is of slot %d; want %d", key, slot, i*probeEvery)
		}
	}
}

// rounds makes runs of one test, one per round.
func rounds(target, test string, runs ...measurement) (out []measurement) {
	for i, r := range runs {
		r.Round, r.Target, r.Test = i, target, test
		out = append(out, r)
	}
	return out
}

func TestReport(t *testing.T) {
	at := func(rates ...float64) (out []measurement) {
		for _, rate := range rates {
			out = append(out, measurement{Value: rate, P50: 2, P99: 7, CPU: 30 + rate/100})
		}
		return out
	}
	rec := resultFile{header: header{Rounds: 3, Commit: "abc"}, runs: slices.Concat(
		rounds("neokv", "set-50-16", at(100, 300, 200)...),
		rounds("neokv", "hset-50-16", at(60, 60, 60)...),
		rounds("neokv", "all-set-50-16", at(50, 50, 50)...),
		rounds("neokv-apart", "all-set-50-16", at(40, 30, 20)...),
		rounds("redis-cluster", "set-50-16", at(200, 200, 200)...),
		rounds("redis-cluster", "all-set-50-16", at(100, 50, 25)...),
		rounds("neokv", "get-50-16", measurement{Value: 1000, Misses: 1}),
		rounds("redcon", "get-50-16", measurement{Value: 2000}),
		rounds("neokv", "boot", measurement{Value: 0.3}),
		rounds("neokv/32", "set-50-16", measurement{Failure: "ERR broken"}),
	)}
	var b strings.Builder
	if err := rec.print(&b); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"commit abc, 3 rounds, interleaved; load average", "Fewer than 5 rounds",
		"its three stores are one process, their Raft messages stay in memory, and one sync makes " +
			"the logs of all three durable",
		"| k op/s | neokv | neokv/32 | neokv-apart | redis-cluster | redcon |",
		"| all-set-50-16 | 50 (50-50) | - | 30 (20-40) | 50 (25-100) | - |",
		"| neokv : the others | neokv/32 | neokv-apart | redis-cluster | redcon |",
		"| all-set-50-16 | - | 1.67 (1.25-2.5) | 1 (0.5-2) ~ | - |",
		"| neokv-apart : the others | neokv/32 | redis-cluster | redcon |", "| all-set-50-16 | - | 0.6 (0.4-0.8) | - |",
		"| set-50-16 | 200 (100-300) | - | - | 200 (200-200) | - |", "| get-50-16 | - | - | - | - | 2,000 |",
		"| p50, ms | neokv | neokv/32 | neokv-apart | redis-cluster | redcon |", "| set-50-16 | 7 (7-7) |",
		"| p99 / p50 | neokv |", "| set-50-16 | 3.5 (3.5-3.5) |",
		"| CPU, us per operation |", "| set-50-16 | 32 (31-33) |",
		"| boot, s | 0.3 |",
		"| set-50-16, neokv : redis-cluster | 1 (0.5-1.5) | >= 0.65: met | >= 1.1: not met |",
		"| boot, s | 0.3 | <= 0.8: met | <= 0.2: not met |",
		"| set-50-16, p99 / p50 | 3.5 (3.5-3.5) | <= 4: met | <= 3: not met |",
		"| hset-50-16 : set-50-16 | 0.3 (0.2-0.6) | >= 0.45: not met | - |",
		"INVALID: 1 misses, 0 errors", "ERR broken", "2 of 22 runs are invalid",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	all, one := strings.Index(b.String(), "## Keys of all slots"),
		strings.Index(b.String(), "## Keys of one slot per node")
	if all < 0 || one < all {
		t.Errorf("keys of all slots at %d, of one slot per node at %d; want all slots first", all, one)
	}
	if strings.Contains(words, "get-50-16, neokv : redcon") {
		t.Errorf("an invalid run has a ratio:\n%s", b.String())
	}
}

var update = flag.Bool("update", false, "write the tables of the committed files")

// Every file of raw figures that is committed has the tables that this program makes of it beside it.
func TestCommittedFiles(t *testing.T) {
	var files []string
	for _, folder := range []string{"testdata", "results"} {
		found, err := filepath.Glob(folder + "/*.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 2 {
		t.Fatalf("files %v; want one of each kind at least", files)
	}
	for _, name := range files {
		var got bytes.Buffer
		if err := report(name, &got); err != nil {
			t.Error(err)
			continue
		}
		tables := strings.TrimSuffix(name, ".jsonl") + ".md"
		if *update {
			if err := os.WriteFile(tables, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(tables)
		if err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s is not what report makes of %s (go test -update writes it), %v:\n%s", tables, name, err,
				got.Bytes())
		}
	}
}

func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                       "header",
		`{"rounds":1}`:                           `kind "": want peers or curves`,
		`{"kind":"peers"}` + `{"test":"colour"}`: `run 1: test "colour"`,
		`{"kind":"peers"}` + `{"test":"boot"`:    "run 1: unexpected EOF",
		`{"kind":"curves"}` + `{"curve":"colour"}`: `run 1: point 0 of curve "colour"`,
	} {
		name := filepath.Join(dir, "x.jsonl")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := report(name, &out); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("report of %q: %v, %q; want an error with %q", text, err, out.String(), want)
		}
	}
}

// A file that is committed names no folder of the machine that it was measured on.
func TestHeaderNamesNoFolder(t *testing.T) {
	got := withoutFolders([]string{"/build/b001/exe/peers", "--dir=/disk/x", "--out", "results/a.jsonl",
		"--set=engine.wal_dir=/disk/y", "--rounds", "5"})
	if want := []string{"peers", "--dir=x", "--out", "a.jsonl", "--set=engine.wal_dir=y", "--rounds",
		"5"}; !slices.Equal(got, want) {
		t.Errorf("withoutFolders = %q; want %q", got, want)
	}
	dir := t.TempDir()
	h, err := newHeader(t.Context(), kindPeers, dir, 5)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(h)
	if err != nil || bytes.Contains(text, []byte(dir)) || h.Disk.FileSystem == "" || h.Disk.SyncP50 == 0 {
		t.Errorf("header %s, %v; want the disk without its path", text, err)
	}
}

// Every point is one of a cluster that can be, and no curve has two of the same row.
func TestCurves(t *testing.T) {
	for _, c := range curves {
		rows := map[string]bool{}
		for _, p := range c.points {
			row := fmt.Sprint(p.label, p.pipeline)
			if rows[row] || p.clients < 1 || p.pipeline < 1 || p.records < 1 || p.valueBytes < 1 {
				t.Errorf("curve %s: row %+v, of %v", c.name, p, rows)
			}
			rows[row] = true
			for _, word := range p.serve {
				if name, value, set := strings.Cut(word, "="); set {
					f, err := settings.Find(settings.Fields(&settings.Settings{}), name)
					if err == nil {
						err = f.Set(value)
					}
					if err != nil {
						t.Errorf("curve %s: %v", c.name, err)
					}
				} else {
					t.Errorf("curve %s: %q: not a setting", c.name, word)
				}
			}
		}
	}
	for _, bad := range []struct {
		chosen []string
		plan   measurePlan
	}{{[]string{"regions", "colour"}, measurePlan{rounds: 1, length: 1}}, {nil, measurePlan{length: 1}},
		{nil, measurePlan{rounds: 1}}} {
		if checkCurves(bad.chosen, bad.plan) == nil {
			t.Errorf("checkCurves(%v, %+v) = nil; want an error", bad.chosen, bad.plan)
		}
	}
	if err := checkCurves(usualCurves(), measurePlan{rounds: 1, length: 1}); err != nil ||
		slices.Contains(usualCurves(), "data-10m") {
		t.Errorf("the usual curves are %v: %v", usualCurves(), err)
	}
}

func TestCurvesReport(t *testing.T) {
	rec := samples{header: header{Commit: "abc", Rounds: 2}}
	for round, rate := range []float64{100, 300} {
		rec.all = append(rec.all,
			sample{Curve: "data", Point: 1,
				measurement: measurement{Round: round, Test: "get", Value: rate, P50: 2, P99: 7, CPU: 30},
				Work:        results.Work{"block_cache_misses": 50}, Ops: 100, DiskBytes: 400},
			sample{Curve: "data", Point: 1,
				measurement: measurement{Round: round, Test: "set", Value: 60, P50: 1, P99: 3, CPU: 40},
				Work: results.Work{"raft_commands": 100, "raft_entries": 10, "sync_calls": 2, "wal_bytes": 123_000,
					"compaction_bytes": 400}, Ops: 100})
	}
	rec.all = append(rec.all, sample{Curve: "data", measurement: measurement{Test: "get", Value: 77, Misses: 3}},
		sample{Curve: "stores", Point: 2, measurement: measurement{Test: "start", Failure: "no disk"}})
	var b strings.Builder
	if err := rec.print(&b); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"| data | pipeline | SET, k/s | p50, ms | p99, ms | CPU, us | commands per entry | syncs per 1,000 | written, B |",
		"| 1,000,000 | 16 | 60 (60-60) | 1 (1-1) | 3 (3-3) | 40 (40-40) | 10 (10-10) | 20 (20-20) | 1,234 (1,234-1,234) " +
			"| 200 (100-300) | 2 (2-2) | 7 (7-7) | 30 (30-30) | 0.5 (0.5-0.5) | 4 (4-4) |",
		"| 100,000 | 16 | - | - | - | - | - | - | - | - | - | - | - | - | - |",
		"Left out: data, point 0: get", "INVALID: 3 misses", "Left out: stores, point 2: start", "no disk",
		"commit abc",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, "77") && !strings.Contains(line, "Left out") {
			t.Errorf("an invalid run counts: %s", line)
		}
	}
}
