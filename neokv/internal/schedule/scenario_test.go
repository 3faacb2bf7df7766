package schedule

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var update = flag.Bool("update", false, "write the expected output of the scenarios")

// TestScenarios runs the scenarios of testdata. A scenario is some lines, a line "----", and what is expected, up to an
// empty line. plan.txt says how to read a survey, rounds.txt how to read a model of a cluster.
func TestScenarios(t *testing.T) {
	for name, run := range map[string]func(lines []string) (string, error){"plan.txt": runPlan, "rounds.txt": runRounds} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for i, block := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n\n") {
				if i > 0 {
					out.WriteString("\n")
				}
				in, want, ok := strings.Cut(block, "\n----")
				if !ok {
					out.WriteString(block + "\n") // a comment
					continue
				}
				var lines []string
				for _, l := range strings.Split(in, "\n") {
					if !strings.HasPrefix(l, "#") {
						lines = append(lines, l)
					}
				}
				got, err := run(lines)
				if err != nil {
					t.Errorf("%s:\n%s\n%v", name, in, err)
				}
				if want = strings.TrimPrefix(want+"\n", "\n"); got != want && !*update {
					t.Errorf("%s:\n%s\ngot:\n%swant:\n%s", name, in, got, want)
				}
				out.WriteString(in + "\n----\n" + got)
			}
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// noon is now in surveys of tests.
var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// testPolicy is the policy of tests that name no other.
func testPolicy() Policy {
	s := settings.Default()
	s.Region = settings.RegionKnobs{MaxBytes: 1 << 30, MergeBytes: 64 << 20}
	s.Cluster.Regions = 1
	return PolicyOf(&s)
}

func runPlan(lines []string) (string, error) {
	s := Survey{Now: noon, Policy: testPolicy(), Alive: map[topology.StoreID]bool{1: true, 2: true, 3: true, 4: true}}
	held, resolve := time.Hour, ""
	for _, line := range lines {
		words := strings.Fields(line)
		err := error(nil)
		switch rest := words[1:]; words[0] {
		case "policy":
			err = setPolicy(&s.Policy, rest)
		case "region":
			err = addRegion(&s, rest)
		case "down":
			store, _ := strconv.Atoi(rest[0])
			delete(s.Alive, topology.StoreID(store))
		case "held":
			held, err = time.ParseDuration(rest[0])
		case "open":
			var o Order
			o, err = parseOrder(strings.Join(rest, " "))
			s.Open = append(s.Open, o)
		case "resolve":
			resolve = strings.Join(rest, " ")
		default:
			err = fmt.Errorf("unknown line")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
	}
	if resolve != "" {
		o, err := parseOrder(resolve)
		if err != nil {
			return err.Error() + "\n", nil
		}
		if o, err = s.Resolve(o); err != nil {
			return err.Error() + "\n", nil
		}
		return o.String() + "\n", nil
	}
	s.Now = noon.Add(-held)
	s.History, s.Now = History(nil).Next(&s), noon
	s.History = s.History.Next(&s)
	orders, notes := Plan(s)
	out := ""
	for _, o := range orders {
		out += o.String() + "\n"
	}
	for _, n := range notes {
		out += fmt.Sprintf("note (%s) %s\n", n.About, n)
	}
	return out, nil
}

func setPolicy(p *Policy, words []string) (err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		number, _ := strconv.Atoi(value)
		switch key {
		case "max":
			p.MaxBytes, err = settings.ParseBytes(value)
		case "merge":
			p.MergeBytes, err = settings.ParseBytes(value)
		case "load":
			p.SplitLoad = float64(number)
		case "once":
			p.AtOnce = number
		case "fewest":
			p.Fewest = number
		case "most":
			p.Most = number
		default:
			err = fmt.Errorf("unknown limit %s", key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func addRegion(s *Survey, words []string) (err error) {
	id, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	r := Surveyed{ID: topology.RegionID(id), Version: 1, Stores: []topology.StoreID{1, 2, 3}}
	r.Load.Version = 1
	if r.Slots, err = parseSlots(words[1]); err != nil {
		return err
	}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case strings.HasSuffix(w, "/s"):
			r.Load.Commands, err = strconv.ParseFloat(strings.TrimSuffix(w, "/s"), 64)
		case key == "stores":
			r.Stores = nil
			for _, v := range strings.Split(value, ",") {
				n, _ := strconv.Atoi(v)
				r.Stores = append(r.Stores, topology.StoreID(n))
			}
		case key == "changing":
			r.Changing = true
		case key == "changed":
			var ago time.Duration
			ago, err = time.ParseDuration(value)
			r.ChangedAt = noon.Add(-ago)
		case key == "pinned":
			r.Pinned = true
		case key == "unreported":
			r.Load.Version = 0
		case key == "sizes":
			r.Load.Sizes, err = parseWeights(value)
		case key == "slots":
			r.Load.Slots, err = parseWeights(value)
		default:
			r.Load.Bytes, err = parseSize(w)
		}
		if err != nil {
			return err
		}
	}
	s.Regions = append(s.Regions, r)
	return nil
}

func parseSlots(text string) (r topology.SlotRange, err error) {
	first, last, ok := strings.Cut(text, "-")
	if !ok {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 14)
	if err != nil {
		return r, err
	}
	b, err := strconv.ParseUint(last, 10, 14)
	return topology.SlotRange{First: topology.Slot(a), Last: topology.Slot(b)}, err
}

// parseSize reads a size that may have a fraction: 1.3GiB.
func parseSize(text string) (float64, error) {
	digits := strings.TrimRight(text, "BKMGTi")
	unit, err := settings.ParseBytes("1" + text[len(digits):])
	if err != nil {
		return 0, err
	}
	x, err := strconv.ParseFloat(digits, 64)
	return x * float64(unit), err
}

// parseWeights reads 0-99:5,100:7.
func parseWeights(text string) (out []Weight, err error) {
	for _, w := range strings.Split(text, ",") {
		slots, amount, _ := strings.Cut(w, ":")
		r, err := parseSlots(slots)
		if err != nil {
			return nil, err
		}
		x, err := strconv.ParseFloat(amount, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, Weight{r, x})
	}
	return out, nil
}

// parseOrder reads the head of an order: "split 3 8192", "merge 3", or "split 3", for which Resolve chooses the slot.
func parseOrder(text string) (o Order, err error) {
	n, err := fmt.Sscan(text, &o.Kind, &o.Region, &o.Slot)
	if n >= 2 {
		err = nil
	}
	return o, err
}
