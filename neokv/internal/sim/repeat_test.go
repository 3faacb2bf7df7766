package sim

import (
	"bufio"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSameSeed: until the run's time is over, each run of a seed has the same faults at the same moments. Where there is
// one store and no fault, clients call the same at the same moments, too. How much else is the same differs from
// scenario to scenario; see TortureRepeat.
func TestSameSeed(t *testing.T) {
	const faulty = "6 clients, draws pause transfer clock every 200ms\nreads 1, writes 1, increments 1"
	const quiet = "cluster.stores 1, cluster.replicas 1\n6 clients\nreads 1, writes 1, increments 1"
	begins := regexp.MustCompile(`^\S+ \S.*: begins$`)
	call := regexp.MustCompile(`\[\d+ \d+\] (client \d: .*) = `)
	for _, x := range []struct {
		plan string
		part func(line string) string // what must be the same, in any order; "" for nothing
	}{
		{faulty, func(line string) string { return begins.FindString(line) }},
		{quiet, func(line string) string {
			m := call.FindStringSubmatch(line)
			if m == nil {
				return ""
			}
			return strings.Fields(line)[0] + " " + m[1]
		}},
	} {
		var first []string
		for n := range 3 {
			j := job{Plan: x.plan, First: 7, Count: 1, Length: 2 * time.Second, Keep: true,
				Dir: filepath.Join(t.TempDir(), "run")}
			if failed, _, err := j.trace(t.Context()); failed || err != nil {
				t.Fatalf("failed: %v, %v", failed, err)
			}
			file, err := openTrace(j.Dir)
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for lines := bufio.NewScanner(file); lines.Scan(); {
				moment, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
				at, err := time.ParseDuration(moment)
				if part := x.part(strings.TrimSpace(lines.Text())); part != "" && err == nil && at < j.Length {
					parts = append(parts, part)
				}
			}
			file.Close()
			slices.Sort(parts)
			if n == 0 {
				first = parts
			}
			if !slices.Equal(parts, first) || len(parts) < 10 {
				t.Errorf("run %d of %s: %d parts\n%s\nwant the %d of the first run\n%s", n+1, x.plan, len(parts),
					strings.Join(parts, "\n"), len(first), strings.Join(first, "\n"))
			}
		}
	}
}

// TestTraceDifference: the first line in which traces differ is told, with its moment.
func TestTraceDifference(t *testing.T) {
	const trace = "  0s scenario:\nkill\n  1ms a\n  2ms b\n"
	for _, x := range []struct{ other, want string }{
		{trace, "<nil>"},
		{strings.Replace(trace, "2ms b", "3ms b", 1), "&{2ms 4 2ms b 3ms b}"},
		{strings.Replace(trace, "kill", "stop", 1), "&{0s 2 kill stop}"},
		{trace + "  5ms c\n", "&{2ms 5  5ms c}"},
	} {
		d, err := traceDifference(strings.NewReader(trace), strings.NewReader(x.other))
		if got := fmt.Sprint(d); got != x.want || err != nil {
			t.Errorf("%q: %s, %v; want %s", x.other, got, err, x.want)
		}
	}
}

// TestRepeat: the runs of a seed are counted, and each repetition has the first one's trace or leaves it somewhere.
func TestRepeat(t *testing.T) {
	ran, dir := 0, t.TempDir()
	r, err := TortureRepeat(t.Context(), RepeatOptions{Times: 4, Ran: func(n int) { ran = n },
		TortureOptions: TortureOptions{Seed: 3, Length: time.Second, Dir: dir,
			Scenario: "2 clients, reads 1, writes 1\nat 500ms: transfer 1 2"}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Runs != 4 || ran != 4 || r.Failed != 0 || r.Equal+len(r.Apart) != 3 || (r.Earliest == nil) != (r.Equal == 3) ||
		(r.Traces == 1) != (r.Equal == 3) {
		t.Errorf("%+v after %d runs", r, ran)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || left != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}
