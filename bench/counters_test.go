package bench

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/counters"
	"neokv.dev/results"
)

// say sets what INFO tells from now on: two stores of one process answer the same.
func (m *memoryServer) say(syncs, cpu, goroutines int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.info["server"] = "# Server\r\nprocess_id:77\r\n"
	m.info["neokv"] = fmt.Sprintf(
		"# Neokv\r\nstores:2\r\nsync_calls:%d\r\nprocess_cpu_us:%d\r\nprocess_goroutines:%d\r\n",
		syncs, cpu, goroutines)
}

// Counters are added up over the stores, a process's are taken once, and the summary has those of the measured part
// alone.
func TestCountersOfStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		m.say(1000, 500, 9)
		seconds := 0
		var nodes []string
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups:  []GroupOptions{{Workload: "set", Clients: 1, Records: 10}},
			Targets: []string{"memory:1", "memory:2"}, Duration: 3 * time.Second,
			Warmup: 2 * time.Second,
			Progress: func(tick Tick) { // after the interval's sample: this is what the next one finds
				for _, n := range tick.Nodes {
					nodes = append(nodes, fmt.Sprintln(n.Addr, n.Slots, n.Work))
				}
				switch seconds++; seconds {
				case 3:
					m.say(7, 900, 5) // less than before: it began anew
				default:
					m.say(1000+10*seconds, 500+100*seconds, 9+seconds)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, iv := range rec.Intervals {
			got = append(got, fmt.Sprintf("%s %d %d %d", iv.Phase, iv.Work["sync_calls"], iv.Work["process_cpu_us"],
				iv.Work["process_goroutines"]))
		}
		// The fourth second finds the smaller counts on connections that lasted, so nobody knows what was done in it;
		// of the CPU time 700 became 900. The fifth begins from there.
		want := []string{"warmup 0 0 9", "warmup 20 100 10", "run 20 100 11", "run 0 200 5", "run 2066 0 13"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("intervals %q; want %q", got, want)
		}
		// Each node has its own store's share.
		want = nil
		for _, syncs := range []int{0, 10, 10, 0, 1033} {
			want = append(want, fmt.Sprintf("memory:1 0 map[sync_calls:%d]\n", syncs),
				fmt.Sprintf("memory:2 0 map[sync_calls:%d]\n", syncs))
		}
		if fmt.Sprint(nodes) != fmt.Sprint(want) {
			t.Errorf("nodes %q; want %q", nodes, want)
		}
		if w := s.Work; w["sync_calls"] != 2086 || w["process_cpu_us"] != 300 || w["process_goroutines"] != 13 ||
			w["stores"] != 0 || len(w) != 3 {
			t.Errorf("summary %v", w)
		}
	})
}

// A store that restarts breaks its connections: what it has counted since then was done.
func TestCountersOfRestartedStore(t *testing.T) {
	for _, c := range []struct {
		before, now int64
		anew        bool
		want        int64
	}{{10, 15, false, 5}, {10, 15, true, 5}, {10, 3, true, 3}, {10, 3, false, 0}, {10, 0, true, 0}} {
		if got := increase(c.before, c.now, c.anew); got != c.want {
			t.Errorf("increase(%d, %d, %v) = %d; want %d", c.before, c.now, c.anew, got, c.want)
		}
	}
	s := newSampler(nil)
	n := &sampledNode{process: "host 1", last: map[string]int64{}}
	take := func(process string, anew bool, now map[string]int64) results.Work {
		n.process, n.anew = process, anew
		work := results.Work{}
		s.take(work, n, now, true)
		return work
	}
	for i, c := range []struct {
		process string
		anew    bool
		now     map[string]int64
		want    results.Work
	}{
		{"host 1", true, map[string]int64{"sync_calls": 50, "process_cpu_us": 900},
			results.Work{"sync_calls": 0, "process_cpu_us": 0}},
		{"host 1", false, map[string]int64{"sync_calls": 53, "process_cpu_us": 950},
			results.Work{"sync_calls": 3, "process_cpu_us": 50}},
		{"host 1", true, map[string]int64{"sync_calls": 7, "process_cpu_us": 970},
			results.Work{"sync_calls": 7, "process_cpu_us": 20}},
		{"host 2", true, map[string]int64{"sync_calls": 5, "process_cpu_us": 2000},
			results.Work{"sync_calls": 5, "process_cpu_us": 2000}},
	} {
		if got := take(c.process, c.anew, c.now); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("sample %d: %v; want %v", i, got, c.want)
		}
	}
}

// A result holds every counter and gauge of INFO neokv, and no fact.
func TestCountsOfInfo(t *testing.T) {
	var info strings.Builder
	want := map[string]int64{}
	for i, l := range counters.All {
		fmt.Fprintf(&info, "%s:%d\r\n", l.Name, i)
		if l.Kind != counters.Fact {
			want[l.Name] = int64(i)
		}
	}
	if got := readCounts(info.String()); !maps.Equal(got, want) || want["row_cache_hits"] == 0 ||
		want["process_procs"] == 0 {
		t.Errorf("readCounts = %v; want %v", got, want)
	}
}

// Of a Redis there is the CPU time; a target that tells nothing leaves nothing behind.
func TestCountersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		seconds := 0
		s, _, err := inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "set", Clients: 1, Records: 10}}, Duration: 2 * time.Second})
		if err != nil || s.Work != nil {
			t.Errorf("work %v, %v; want none", s.Work, err)
		}
		tell := func(user float64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.info["cpu"] = fmt.Sprintf("# CPU\r\nused_cpu_sys:1.25\r\nused_cpu_user:%f\r\nused_cpu_sys_children:9\r\n",
				user)
		}
		tell(2.5)
		s, _, err = inBubble(t, m, t.Context(),
			Options{Groups: []GroupOptions{{Workload: "set", Clients: 1, Records: 10}}, Duration: 2 * time.Second,
				Progress: func(Tick) {
					seconds++
					tell(2.5 + 0.125*float64(seconds))
				}})
		if err != nil || len(s.Work) != 1 || s.Work["process_cpu_us"] != 125_000 {
			t.Errorf("work %v, %v; want 125 ms of CPU", s.Work, err)
		}
	})
}
