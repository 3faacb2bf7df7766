package redisbenchmark

import (
	"encoding/csv"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// PrintedRow is a row of redis-benchmark --csv; latencies are in milliseconds.
type PrintedRow struct {
	Test                     string
	PerSecond, P50, P95, P99 float64
}

// ofCluster matches the lines about the nodes of a cluster, which redis-benchmark prints in front of its table.
var ofCluster = regexp.MustCompile(`^Cluster has \d+ (master |primary )?nodes:$|` +
	`^(Master|Primary|Node) \d+[^:]*: [0-9a-f]{40} \S+$`)

// ParseCSV reads what redis-benchmark --csv prints, from version 6.2 on. It refuses lines that it does not know, and a
// test without a figure.
func ParseCSV(out string) (rows []PrintedRow, err error) {
	const heading = `"test","rps"`
	for !strings.HasPrefix(out, heading) {
		line, rest, more := strings.Cut(out, "\n")
		if line = strings.TrimSuffix(line, "\r"); line != "" && !ofCluster.MatchString(line) {
			return nil, fmt.Errorf("redis-benchmark printed %q, want %s", line, heading)
		}
		if out = rest; !more {
			return nil, fmt.Errorf("redis-benchmark printed no table")
		}
	}
	cells, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: table %q: %w", out, err)
	}
	for _, c := range cells[1:] {
		row := PrintedRow{Test: c[0]}
		for name, to := range map[string]*float64{"rps": &row.PerSecond, "p50_latency_ms": &row.P50,
			"p95_latency_ms": &row.P95, "p99_latency_ms": &row.P99} {
			column := slices.Index(cells[0], name)
			if column < 0 {
				return nil, fmt.Errorf("redis-benchmark: the table has no column %s", name)
			}
			v, err := strconv.ParseFloat(c[column], 64)
			hint := ""
			if math.IsInf(v, 0) {
				hint = ": the test took less than a millisecond, so ask for more requests (-n)"
			}
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && name == "rps" {
				return nil, fmt.Errorf("redis-benchmark: %s: %s is %q, want a figure%s", row.Test, name, c[column], hint)
			}
			*to = v
		}
		rows = append(rows, row)
	}
	return rows, nil
}
