package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// scannedElements is how many elements a collection has at most. An element is e and a number. Elements of even
// numbers are there all the time; the others come and go.
const scannedElements = 10_000

// stays reports whether an element is there all the time.
func stays(element string) bool {
	i, err := strconv.Atoi(element[1:])
	return err == nil && i%2 == 0
}

// scanned is a large collection. The value or score of an element is its number.
type scanned struct {
	region            topology.RegionID
	key               string
	add, remove, scan string
	arguments         func(i int) []string // the arguments of add for an element; a scan returns as many
}

var allScanned = []scanned{
	{1, "h{" + regionTags[0] + "}", "HSET", "HDEL", "HSCAN", func(i int) []string {
		return []string{fmt.Sprint("e", i), fmt.Sprint(i)}
	}},
	{2, "s{" + regionTags[1] + "}", "SADD", "SREM", "SSCAN",
		func(i int) []string { return []string{fmt.Sprint("e", i)} }},
	{3, "z{" + regionTags[2] + "}", "ZADD", "ZREM", "ZSCAN", func(i int) []string {
		return []string{fmt.Sprint(i), fmt.Sprint("e", i)}
	}},
}

// adding is the call that adds elements.
func (c *scanned) adding(elements ...int) []string {
	call := []string{c.add, c.key}
	for _, i := range elements {
		call = append(call, c.arguments(i)...)
	}
	return call
}

// removing is the call that removes elements.
func (c *scanned) removing(elements ...int) []string {
	call := []string{c.remove, c.key}
	for _, i := range elements {
		call = append(call, fmt.Sprint("e", i))
	}
	return call
}

// churn adds and removes elements that may come and go, until stop is closed.
func (c *scanned) churn(x *scanner, random *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(4 * time.Millisecond):
		}
		elements := make([]int, 20)
		for i := range elements {
			elements[i] = 2*random.IntN(scannedElements/2) + 1
		}
		if random.IntN(2) == 0 {
			x.call(c.adding(elements...)...)
		} else {
			x.call(c.removing(elements...)...)
		}
	}
}

// listing is one iteration over a collection.
type listing struct {
	*scanned
	pattern string // of MATCH, empty for none
	cursor  string // 0 at the end
	last    string // the last element that a call returned
	found   map[string]bool
}

// part is one call of the scan.
func (l *listing) part(x *scanner, count int) {
	x.t.Helper()
	call := []string{l.scan, l.key, l.cursor, "COUNT", strconv.Itoa(count)}
	if l.pattern != "" {
		call = append(call, "MATCH", l.pattern)
	}
	v := x.must(call...)
	l.cursor = string(v.Items[0].Text)
	if n, err := strconv.ParseUint(l.cursor, 10, 64); err != nil || n >= 1<<53 {
		x.t.Errorf("%s: cursor %s, which is no number below 2^53", l.scan, l.cursor)
	}
	for piece := range slices.Chunk(v.Items[1].Items, len(l.arguments(0))) {
		l.last = string(piece[0].Text)
		l.found[l.last] = true
		if len(piece) == 2 && "e"+string(piece[1].Text) != l.last {
			x.t.Errorf("%s: %s has the value %s", l.scan, l.last, piece[1].Text)
		}
	}
	if l.cursor != "0" && l.pattern == "" && len(v.Items[1].Items) == 0 {
		x.t.Errorf("%s: a part without elements", l.scan)
	}
}

// check reports elements that the iteration, which is at its end, has left out.
func (l *listing) check(t *testing.T, step string) {
	t.Helper()
	var missing []string
	for i := 0; i < scannedElements; i += 2 {
		if e := fmt.Sprint("e", i); strings.Contains(e, strings.Trim(l.pattern, "*")) && !l.found[e] {
			missing = append(missing, e)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%s: %s, pattern %q, left out %d elements that were there all the time, among them %q",
			step, l.scan, l.pattern, len(missing), missing[:min(5, len(missing))])
	}
	for e := range l.found {
		if !strings.Contains(e, strings.Trim(l.pattern, "*")) {
			t.Errorf("%s: %s, pattern %q, returned %s", step, l.scan, l.pattern, e)
		}
	}
}

// TestScanOfLargeCollections: HSCAN, SSCAN and ZSCAN return every element that is there all the time, while others come
// and go. They do so, too, if a leader moves or the cluster restarts between two calls, and if the element that was
// returned last is gone.
func TestScanOfLargeCollections(t *testing.T) {
	notShort(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	config := neokv.Config{Dir: t.TempDir(), Settings: simSettings()}
	s := &sim{h: newHistory(io.Discard)}
	open := func() {
		hooks := new(seam.Hooks)
		s.attach(startWith(t, config, hooks), hooks)
	}
	open()
	x := &scanner{t, func() (net.Conn, error) { return dialTCP(t.Context(), s.c.ProxyAddr()) }}
	for _, k := range allScanned {
		for part := range slices.Chunk(random.Perm(scannedElements), 1000) {
			x.must(k.adding(part...)...)
		}
	}
	churn := func() (end func()) {
		stop, lanes := make(chan struct{}), new(sync.WaitGroup)
		for _, k := range allScanned {
			r := rand.New(rand.NewPCG(random.Uint64(), 0))
			lanes.Go(func() { k.churn(x, r, stop) })
		}
		return func() {
			close(stop)
			lanes.Wait()
		}
	}
	calls := 0
	for _, step := range []struct {
		name          string
		restart, gone bool
	}{
		{"leaders move", false, false}, {"leaders move, elements are gone", false, true},
		{"restart", true, false}, {"restart, elements are gone", true, true},
	} {
		var listings []*listing
		for i := range allScanned {
			for _, pattern := range []string{"", "*7*"} {
				listings = append(listings, &listing{
					scanned: &allScanned[i], pattern: pattern, cursor: "0", found: make(map[string]bool),
				})
			}
		}
		end := churn()
		for range 5 {
			for _, l := range listings {
				l.part(x, 100+random.IntN(400))
			}
		}
		if step.restart || step.gone {
			end()
		}
		for _, l := range listings {
			if step.gone && l.pattern == "" {
				for l.part(x, 1); l.cursor != "0" && stays(l.last); l.part(x, 1) {
				}
				i, err := strconv.Atoi(l.last[1:])
				if err != nil || stays(l.last) {
					t.Fatalf("%s: cursor %s behind %s", l.scan, l.cursor, l.last)
				}
				x.must(l.removing(i)...)
			}
			if l.cursor == "0" {
				t.Fatalf("%s: %s is at its end", step.name, l.scan)
			}
		}
		if step.restart {
			if err := s.c.Close(); err != nil {
				t.Fatal(err)
			}
			open()
		} else {
			for _, k := range allScanned {
				s.moveLeader(t, k.region)
			}
		}
		if step.gone {
			for _, l := range listings { // before churn adds the element again
				l.part(x, 100)
			}
		}
		if step.restart || step.gone {
			end = churn()
		}
		for _, l := range listings {
			for ; l.cursor != "0"; calls++ {
				if calls > 10_000 {
					t.Fatalf("%s: %s does not end, cursor %s", step.name, l.scan, l.cursor)
				}
				l.part(x, 100+random.IntN(400))
			}
			l.check(t, step.name)
		}
		end()
	}
	t.Logf("%d calls behind the changes", calls)
}

// moveLeader moves the leadership of a region to another store.
func (s *sim) moveLeader(t *testing.T, r topology.RegionID) {
	t.Helper()
	var from seam.StorePlace
	until(t, "leader", func() bool { from, _ = s.leader(r); return from != nil })
	to := s.nodes[int(from.ID())%len(s.nodes)] // each store in turn
	var asked time.Time
	until(t, "other leader", func() bool {
		if time.Since(asked) > 500*time.Millisecond { // Raft may ignore a request
			s.transfer(r, to)
			asked = time.Now()
		}
		leader, _ := s.leader(r)
		return leader == to
	})
}
