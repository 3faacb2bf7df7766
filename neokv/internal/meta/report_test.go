package meta

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// parseRegions reads regions as formatRegions prints them. Each has a replica of its id on store 1.
func parseRegions(t *testing.T, text string) (regions []topology.Region) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		r := topology.Region{ConfVersion: 1}
		if before, conf, ok := strings.Cut(word, "/"); ok {
			word = before
			if _, err := fmt.Sscanf(conf, "%d", &r.ConfVersion); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
		}
		if _, err := fmt.Sscanf(word, "%d@%d:%d-%d", &r.ID, &r.Version, &r.Slots.First, &r.Slots.Last); err != nil {
			t.Fatalf("%q: %v", word, err)
		}
		r.Peers = []topology.Peer{{Store: 1, Replica: topology.ReplicaID(r.ID)}}
		regions = append(regions, r)
	}
	return regions
}

// formatRegions prints regions as ID@VERSION:FIRST-LAST/CONFVERSION, without the last if it is 1.
func formatRegions(regions []topology.Region) string {
	var words []string
	for i := range regions {
		r := &regions[i]
		word := fmt.Sprintf("%d@%d:%d-%d", r.ID, r.Version, r.Slots.First, r.Slots.Last)
		if r.ConfVersion != 1 {
			word += fmt.Sprintf("/%d", r.ConfVersion)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// TestReports plays testdata/reports.txt. A block is a comment, `map` with the regions that a map begins with, and
// lines `report`; the line below each of them is what the map then has, or `=` for no change. Reports are played in
// the order given and with their regions reversed.
func TestReports(t *testing.T) {
	text, err := os.ReadFile("testdata/reports.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		var m *Map
		for i, line := range lines {
			verb, rest, _ := strings.Cut(line, " ")
			switch verb {
			case "map":
				m = &Map{Version: 5, Regions: parseRegions(t, rest), NextReplica: 50, NextRegion: 50}
			case "report":
				regions := parseRegions(t, rest)
				after, taken := m.take(regions)
				if news := m.News(regions); (news == nil) != (after == m) || news != nil &&
					!reflect.DeepEqual(news.Regions, taken) {
					t.Errorf("%s\n%s: News = %+v", lines[0], line, news)
				}
				got := formatRegions(after.Regions)
				if after == m {
					got = "="
				} else if after.Version != m.Version+1 {
					t.Errorf("%s\n%s: version %d behind %d", lines[0], line, after.Version, m.Version)
				}
				if i+1 == len(lines) || got != lines[i+1] {
					t.Errorf("%s\n%s\n%s", lines[0], line, got)
				}
				slices.Reverse(regions)
				if other, _ := m.take(regions); !reflect.DeepEqual(other, after) {
					t.Errorf("%s\n%s\nreversed: %s", lines[0], line, formatRegions(other.Regions))
				}
				if again, _ := after.take(regions); again != after {
					t.Errorf("%s\n%s\nonce more: %s", lines[0], line, formatRegions(again.Regions))
				}
				checkCovers(t, line, m, after)
				m = after
			}
		}
	}
}

// checkCovers fails unless after is a map that covers what before did, with no smaller versions.
func checkCovers(t *testing.T, what string, before, after *Map) {
	t.Helper()
	if err := after.Check(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	owners := func(m *Map) []int32 {
		var ranges []topology.SlotRange
		for i := range m.Regions {
			ranges = append(ranges, m.Regions[i].Slots)
		}
		return topology.Cover(ranges)
	}
	now := owners(after)
	for s, old := range owners(before) {
		if old >= 0 && (now[s] < 0 || after.Regions[now[s]].Version < before.Regions[old].Version) {
			t.Fatalf("%s: slot %d is lost: %s", what, s, formatRegions(after.Regions))
		}
	}
	for i := range after.Regions {
		r := &after.Regions[i]
		if r.ID >= after.NextRegion || len(r.Peers) > 0 && r.Peers[0].Replica >= after.NextReplica {
			t.Fatalf("%s: region %d is yet to be handed out", what, r.ID)
		}
	}
}

// TestReportsOfNonsense: regions that cannot be on a map are passed over.
func TestReportsOfNonsense(t *testing.T) {
	m := &Map{Version: 1, Regions: parseRegions(t, "1@1:0-16383"), NextReplica: 2}
	good := parseRegions(t, "1@2:0-16383")[0]
	for name, change := range map[string]func(*topology.Region){
		"id 0":            func(r *topology.Region) { r.ID = 0 },
		"negative id":     func(r *topology.Region) { r.ID = -1 },
		"huge id":         func(r *topology.Region) { r.ID = maxID },
		"no slots":        func(r *topology.Region) { r.Slots = topology.SlotRange{First: 2, Last: 1} },
		"slots too large": func(r *topology.Region) { r.Slots.Last = topology.SlotCount },
		"replica 0":       func(r *topology.Region) { r.Peers = []topology.Peer{{Store: 1}} },
		"store 0":         func(r *topology.Region) { r.Peers = []topology.Peer{{Replica: 1}} },
		"huge replica":    func(r *topology.Region) { r.Peers = []topology.Peer{{Store: 1, Replica: maxID}} },
	} {
		bad := good
		change(&bad)
		if after, taken := m.take([]topology.Region{bad}); after != m || taken != nil {
			t.Errorf("%s: taken", name)
		}
	}
	if after, _ := m.take([]topology.Region{good}); after == m {
		t.Error("without any of it: not taken")
	}
	if after, _ := new(Map).take([]topology.Region{good}); after.Version != 0 {
		t.Error("a cluster without a map takes a report")
	}
}

// splitModel is a cluster whose regions split and merge. facts are all descriptors that were ever true.
type splitModel struct {
	random  *rand.Rand
	regions []topology.Region // by first slot
	facts   []topology.Region
	reports [][]topology.Region // what the leader of a change would send
	next    topology.RegionID
	replica topology.ReplicaID
}

func newModel(random *rand.Rand) *splitModel {
	c := &splitModel{random: random, next: 1, replica: 2}
	for _, slots := range topology.SplitEvenly(1 + random.IntN(5)) {
		c.regions = append(c.regions, topology.Region{
			ID: c.next, Slots: slots, Peers: []topology.Peer{{Store: 1, Replica: 1}}, Version: 1, ConfVersion: 1,
		})
		c.next++
	}
	return c
}

// step changes one region.
func (c *splitModel) step() {
	i := c.random.IntN(len(c.regions))
	r := &c.regions[i]
	var changed []topology.Region
	switch k := c.random.IntN(5); {
	case k < 2 && r.Slots.Count() > 1:
		child := *r
		child.ID, child.ConfVersion = c.next, 1
		c.next++
		r.Version++
		child.Version = r.Version
		child.Slots.First += topology.Slot(1 + c.random.IntN(r.Slots.Count()-1))
		r.Slots.Last = child.Slots.First - 1
		changed = []topology.Region{*r, child}
		c.regions = slices.Insert(c.regions, i+1, child)
	case k < 4 && i+1 < len(c.regions):
		right := c.regions[i+1]
		r.Version = max(r.Version, right.Version) + 1
		r.Slots.Last = right.Slots.Last
		changed = []topology.Region{*r}
		c.regions = slices.Delete(c.regions, i+1, i+2)
	default:
		r.Peers = []topology.Peer{{Store: topology.StoreID(1 + c.random.IntN(3)), Replica: c.replica}}
		r.ConfVersion++
		c.replica++
		changed = []topology.Region{*r}
	}
	c.facts = append(c.facts, changed...)
	c.reports = append(c.reports, changed)
}

// TestReportsRandom splits and merges at random, and delivers what was ever true in any order and grouping, late and
// repeated. The map always covers all slots, no slot's version falls, and it is what the regions are once all of them
// have been reported. Half of the runs deliver through directories of heartbeats, each region by a store of its own.
func TestReportsRandom(t *testing.T) {
	for n := range 60 {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		c := newModel(random)
		m := &Map{Version: 1, Regions: slices.Clone(c.regions), NextReplica: 2, NextRegion: c.next}
		deliver := func(what string, regions []topology.Region) {
			after, taken := m.take(regions)
			checkCovers(t, fmt.Sprintf("seed %d: %s %s on %s", seed, what, formatRegions(regions),
				formatRegions(m.Regions)), m, after)
			if (after == m) != (len(taken) == 0) {
				t.Fatalf("seed %d: %d regions taken, changed %v", seed, len(taken), after != m)
			}
			shuffled := slices.Clone(regions)
			random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if other, _ := m.take(shuffled); formatRegions(other.Regions) != formatRegions(after.Regions) {
				t.Fatalf("seed %d: %s: the order matters", seed, formatRegions(regions))
			}
			// What News proposes says the same as the whole.
			if news := m.News(regions); news != nil {
				if other, _ := m.take(news.Regions); !reflect.DeepEqual(other, after) {
					t.Fatalf("seed %d: %s: the news alone give %s", seed, formatRegions(regions),
						formatRegions(other.Regions))
				}
			}
			m = after
		}
		d := newDirectory(time.Second, time.Time{})
		for range 1 + random.IntN(60) {
			c.step()
			for range random.IntN(3) {
				switch k := random.IntN(4); {
				case k == 0: // a change as its leader reports it, new or old
					deliver("change", c.reports[random.IntN(len(c.reports))])
				case k == 1: // any facts together
					var some []topology.Region
					for range random.IntN(6) {
						some = append(some, c.facts[random.IntN(len(c.facts))])
					}
					deliver("facts", some)
				case k == 2: // a few regions as they are
					var some []topology.Region
					for range random.IntN(4) {
						some = append(some, c.regions[random.IntN(len(c.regions))])
					}
					deliver("regions", some)
				default:
					d.Hear(Beat{Store: 1, Regions: c.facts[random.IntN(len(c.facts)):][:1]}, m, time.Unix(1000, 0))
				}
			}
		}
		if n%2 == 0 {
			deliver("all regions", c.regions)
		} else {
			for i := range c.regions {
				d.Hear(Beat{Store: topology.StoreID(i + 1), Regions: c.regions[i : i+1]}, m, time.Unix(1000, 0))
				if news := d.News(m); news != nil {
					deliver("beats", news.Regions)
				}
			}
			if news := d.News(m); news != nil || len(d.reported) != 0 {
				t.Fatalf("seed %d: all is known, and the directory has news %v, %v", seed, news, d.reported)
			}
		}
		if got, want := formatRegions(m.Regions), formatRegions(c.regions); got != want {
			t.Fatalf("seed %d: the map has %s; want %s", seed, got, want)
		}
		for i := range c.facts {
			deliver("late", c.facts[i:i+1])
		}
		if got, want := formatRegions(m.Regions), formatRegions(c.regions); got != want {
			t.Fatalf("seed %d: after late reports the map has %s; want %s", seed, got, want)
		}
	}
}

// BenchmarkNews looks whether one split is news to a map of 1,024 regions.
func BenchmarkNews(b *testing.B) {
	m := &Map{Version: 1}
	for i, slots := range topology.SplitEvenly(1024) {
		m.Regions = append(m.Regions, topology.Region{
			ID: topology.RegionID(i + 1), Slots: slots, Peers: []topology.Peer{{Store: 1, Replica: 1}}, Version: 1,
		})
	}
	parent := m.Regions[500]
	parent.Version = 2
	child := parent
	child.ID, child.Slots.First = 2000, parent.Slots.First+5
	parent.Slots.Last = child.Slots.First - 1
	for b.Loop() {
		if m.News([]topology.Region{parent, child}) == nil {
			b.Fatal("no news")
		}
	}
}
