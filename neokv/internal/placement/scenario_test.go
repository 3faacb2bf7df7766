package placement

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var update = flag.Bool("update", false, "write the expected output of the scenarios")

// noon is now in surveys of tests.
var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// TestScenarios runs the scenarios of testdata. A scenario is some lines, a line "----", and what is expected, up to an
// empty line. plan.txt says how to read a survey.
func TestScenarios(t *testing.T) {
	const path = "testdata/plan.txt"
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
		got, err := runPlan(strings.Split(in, "\n"))
		if err != nil {
			t.Errorf("%s\n%v", in, err)
		}
		if want = strings.TrimPrefix(want+"\n", "\n"); got != want && !*update {
			t.Errorf("%s\ngot:\n%swant:\n%s", in, got, want)
		}
		out.WriteString(in + "\n----\n" + got)
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runPlan runs a scenario: surveys, between which a line "later 31s" has the planner plan.
func runPlan(lines []string) (string, error) {
	s := Survey{Now: noon, Policy: Policy{Replicas: 3, DownAfter: 30 * time.Minute, Balance: true}}
	var p Planner
	var out strings.Builder
	plan := func() {
		again := p.Open(&s)
		orders, notes := p.Plan(s)
		for _, o := range again {
			fmt.Fprintf(&out, "open %s\n", o.Head())
		}
		for _, o := range orders {
			fmt.Fprintf(&out, "%s: %s\n", o.Why, o)
		}
		for _, n := range notes {
			fmt.Fprintf(&out, "note (%s) %s\n", n.About, n)
		}
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		var err error
		switch rest := words[1:]; words[0] {
		case "policy":
			err = setPolicy(&s.Policy, rest)
		case "settled":
			p.quiet = settles
			p.stores, p.running = nil, nil
			for _, st := range s.Stores {
				p.stores, p.running = append(p.stores, st.ID), append(p.running, running{st.ID, st.Full})
			}
		case "store":
			err = addStore(&s, rest)
		case "region":
			err = addRegion(&s, rest)
		case "later":
			plan()
			fmt.Fprintf(&out, "%s later\n", rest[0])
			var d time.Duration
			d, err = time.ParseDuration(rest[0])
			s.Now = s.Now.Add(d)
		default:
			err = fmt.Errorf("unknown line")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
	}
	plan()
	return out.String(), nil
}

func setPolicy(p *Policy, words []string) (err error) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "replicas":
			p.Replicas, err = strconv.Atoi(value)
		case "gone":
			p.DownAfter, err = time.ParseDuration(value)
		case "balance":
			p.Balance, err = strconv.ParseBool(value)
		default:
			err = fmt.Errorf("unknown word %s", w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addStore reads "4 zone=a free=1GiB down=31m full draining joining", or several stores: "1-3". A store of the same id
// is replaced.
func addStore(s *Survey, words []string) (err error) {
	ids, err := parseStores(strings.Replace(words[0], "-", "..", 1))
	if err != nil {
		return err
	}
	for _, id := range ids {
		st := Store{ID: id, Free: math.MaxInt64}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "zone":
				st.Zone = value
			case "free":
				var b settings.Bytes
				b, err = settings.ParseBytes(value)
				st.Free = int64(b)
			case "down":
				st.Down, err = time.ParseDuration(value)
			case "full":
				st.Full = true
			case "draining":
				st.Draining = true
			case "joining":
				st.Joining = true
			default:
				err = fmt.Errorf("unknown word %s", w)
			}
			if err != nil {
				return err
			}
		}
		replaced := false
		for i := range s.Stores {
			if s.Stores[i].ID == id {
				s.Stores[i], replaced = st, true
			}
		}
		if !replaced {
			s.Stores = append(s.Stores, st)
		}
	}
	return nil
}

// parseStores reads "1,2,3" or "1..3".
func parseStores(text string) (ids []topology.StoreID, err error) {
	if first, last, ok := strings.Cut(text, ".."); ok {
		a, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		b, err := strconv.Atoi(last)
		for ; a <= b; a++ {
			ids = append(ids, topology.StoreID(a))
		}
		return ids, err
	}
	for _, w := range strings.Split(text, ",") {
		n, err := strconv.Atoi(w)
		if err != nil {
			return nil, err
		}
		ids = append(ids, topology.StoreID(n))
	}
	return ids, nil
}

// addRegion reads "3 2,3,4 1GiB 100/s", or several regions: "3-5 2,3,4 1GiB". A store with "+" joins, one with "-"
// leaves. A region of the same id is replaced.
func addRegion(s *Survey, words []string) (err error) {
	ids, err := parseStores(strings.Replace(words[0], "-", "..", 1))
	if err != nil {
		return err
	}
	for _, id := range ids {
		r := Region{ID: topology.RegionID(id), Conf: 1, Measured: true}
		for _, w := range strings.Split(words[1], ",") {
			p := topology.Peer{Replica: topology.ReplicaID(10*int(id) + len(r.Peers))}
			switch {
			case strings.HasPrefix(w, "+"):
				p.Role = topology.Joining
			case strings.HasPrefix(w, "-"):
				p.Role = topology.Leaving
			}
			n, err := strconv.Atoi(strings.Trim(w, "+-"))
			if err != nil {
				return err
			}
			p.Store = topology.StoreID(n)
			r.Peers = append(r.Peers, p)
		}
		r.Leader = r.Peers[0].Store
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			var n int
			switch {
			case strings.HasSuffix(w, "/s"):
				r.Commands, err = strconv.ParseFloat(strings.TrimSuffix(w, "/s"), 64)
			case key == "held":
				r.Held = "a split of it is open"
			case key == "pinned":
				r.Pinned = true
			case key == "unmeasured":
				r.Measured = false
			case key == "leader":
				n, err = strconv.Atoi(value)
				r.Leader = topology.StoreID(n)
			case key == "merges":
				n, err = strconv.Atoi(value)
				r.Merges = topology.RegionID(n)
			case key == "conf":
				n, err = strconv.Atoi(value)
				r.Conf = uint64(n)
			default:
				var b settings.Bytes
				b, err = settings.ParseBytes(w)
				r.Bytes = float64(b)
			}
			if err != nil {
				return err
			}
		}
		if i := s.index(r.ID); i >= 0 {
			s.Regions[i] = r
		} else {
			s.Regions = append(s.Regions, r)
		}
	}
	return nil
}
