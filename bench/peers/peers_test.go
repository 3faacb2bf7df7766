package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
)

func TestParseCSV(t *testing.T) {
	const out = "WARNING: Could not fetch server CONFIG\n" +
		`"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n" +
		`"SET","46511.63","1.005","0.216","0.935","1.687","2.215","6.311"` + "\n"
	got, err := parseCSV(out)
	if want := (rates{perSecond: 46511.63, p50: 0.935, p95: 1.687, p99: 2.215}); err != nil || got != want {
		t.Errorf("parseCSV = %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", out[:strings.Index(out, `"SET"`)], out + out[strings.Index(out, `"SET"`):], strings.Replace(out, "0.935", "x", 1)} {
		if got, err := parseCSV(bad); err == nil {
			t.Errorf("parseCSV(%q) = %+v; want an error", bad, got)
		}
	}
}

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

func TestReport(t *testing.T) {
	var rec record
	for round, rate := range []float64{100, 300, 200} {
		rec.runs = append(rec.runs,
			run{Round: round, Target: "neokv", Test: "set-50-16", Value: rate, P50: 2, P99: 7, CPU: 30 + rate/100},
			run{Round: round, Target: "neokv", Test: "hset-50-16", Value: 60},
			run{Round: round, Target: "neokv", Test: "hset-proxy-50-16", Value: 50},
			run{Round: round, Target: "redis-cluster", Test: "set-50-16", Value: 200, P50: 1, P99: 5})
	}
	rec.runs = append(rec.runs,
		run{Round: 0, Target: "neokv", Test: "get-50-16", Value: 1000, Misses: 1},
		run{Round: 0, Target: "redcon", Test: "get-50-16", Value: 1000},
		run{Round: 0, Target: "neokv", Test: "boot", Value: 0.3},
		run{Round: 0, Target: "neokv/32", Test: "set-50-16", Failure: "ERR broken"})
	var b strings.Builder
	if err := rec.print(&b); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"median (range) neokv neokv/32 redis-cluster redcon boot, s 0.3 - - - set-50-16, k op/s 200 (100-300) - 200 (200-200) -",
		"p99/p50 neokv neokv/32 redis-cluster redcon set-50-16 2, 7, 3.5 - 1, 5, 5 -",
		"CPU, us per operation neokv neokv/32 redis-cluster redcon set-50-16 32 (31-33) - - -",
		"set-50-16 : redis-cluster 1 (0.5-1.5) must >= 0.65: met aim >= 1.1: not met",
		"boot, s 0.3 must <= 0.8: met aim <= 0.2: not met set-50-16, p99/p50 3.5 (3.5-3.5) must <= 4: met aim <= 3: not met",
		"its own set-50-16, of each round median (range) hset-50-16 0.3 (0.2-0.6) must >= 0.45: not met hset-proxy-50-16 0.25 (0.167-0.5) neokv itself",
		"INVALID: 1 misses, 0 errors", "ERR broken", "2 of 16 runs are invalid",
	} {
		if !strings.Contains(words, want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(words, "get-50-16 : redcon") {
		t.Errorf("an invalid run has a ratio:\n%s", b.String())
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
			for i, word := range p.serve {
				if name, value, set := strings.Cut(word, "="); set {
					f, err := settings.Find(settings.Fields(&settings.Settings{}), name)
					if err == nil {
						err = f.Set(value)
					}
					if err != nil {
						t.Errorf("curve %s: %v", c.name, err)
					}
				} else if i%2 == 0 && !slices.Contains([]string{"--set", "--stores", "--replicas", "--regions"}, word) {
					t.Errorf("curve %s: %q: not a flag", c.name, word)
				}
			}
		}
	}
	for _, bad := range []struct {
		chosen []string
		plan   plan
	}{{[]string{"regions", "colour"}, plan{rounds: 1, length: 1}}, {nil, plan{length: 1}}, {nil, plan{rounds: 1}}} {
		if checkCurves(bad.chosen, bad.plan) == nil {
			t.Errorf("checkCurves(%v, %+v) = nil; want an error", bad.chosen, bad.plan)
		}
	}
	if err := checkCurves(usualCurves(), plan{rounds: 1, length: 1}); err != nil || slices.Contains(usualCurves(), "data-10m") {
		t.Errorf("the usual curves are %v: %v", usualCurves(), err)
	}
}

func TestCurvesReport(t *testing.T) {
	rec := samples{header: header{Commit: "abc", Rounds: 2}}
	for round, rate := range []float64{100, 300} {
		rec.all = append(rec.all,
			sample{Curve: "data", Point: 1, run: run{Round: round, Test: "get", Value: rate, P50: 2, P99: 7, CPU: 30},
				Work: results.Work{"block_cache_misses": 50}, Ops: 100, DiskBytes: 400},
			sample{Curve: "data", Point: 1, run: run{Round: round, Test: "set", Value: 60, P50: 1, P99: 3, CPU: 40},
				Work: results.Work{"raft_commands": 100, "raft_entries": 10, "sync_calls": 2, "wal_bytes": 123_000, "compaction_bytes": 400}, Ops: 100})
	}
	rec.all = append(rec.all, sample{Curve: "data", run: run{Test: "get", Value: 77, Misses: 3}},
		sample{Curve: "stores", Point: 2, run: run{Test: "start", Failure: "no disk"}})
	var file, b strings.Builder
	to := json.NewEncoder(&file)
	to.Encode(rec.header)
	for _, s := range rec.all {
		to.Encode(s)
	}
	read, err := readSamples(strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := read.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 1,000,000 | 16 | 60 (60-60) | 1, 3 | 40 | 10 | 20 | 1,234 | 200 (100-300) | 2, 7 | 30 | 0.5 | 4 |",
		"| 100,000 | 16 | - | -, - | - | - | - | - | - | -, - | - | - | - |",
		"Left out: data, point 0: get", "INVALID: 3 misses", "Left out: stores, point 2: start", "no disk", "commit abc",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	for _, line := range strings.Split(b.String(), "\n") {
		if strings.Contains(line, "77") && !strings.Contains(line, "Left out") {
			t.Errorf("an invalid run counts: %s", line)
		}
	}
	strange := strings.Replace(file.String(), `"curve":"stores"`, `"curve":"colour"`, 1)
	if _, err := readSamples(strings.NewReader(strange)); err == nil {
		t.Error("a curve that is not one of this program's was read")
	}
}
