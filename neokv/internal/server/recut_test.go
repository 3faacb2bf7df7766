package server

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// This file tests what becomes of commands whose regions are split and merged while they run.

// cutAt returns a table with one region between each two of the slots at which it is cut. All are led by store 1. A
// region's id is its first slot plus one, its version the given one.
func cutAt(version uint64, cuts ...topology.Slot) *route.Table {
	var regions []route.LedRegion
	first := topology.Slot(0)
	for _, end := range append(slices.Clone(cuts), topology.SlotCount) {
		regions = append(regions, route.LedRegion{
			Region: topology.Region{ID: topology.RegionID(first) + 1, Version: version,
				Slots: topology.SlotRange{First: first, Last: end - 1}},
			Leader: 1,
		})
		first = end
	}
	return route.NewTable(version, []route.PublicStore{{ID: 1, Alive: true}}, regions)
}

// newExecutor returns the executor of a connection to a server that nobody serves. Store 0 is the proxy port.
func newExecutor(t *testing.T, self topology.StoreID, n *fakeNode) *executor {
	s, _ := start(t, Options{Self: self, Node: n})
	return &newConn(s, &pieces{}, 1, plainConn).exec
}

func commandOf(words ...string) *command {
	row := commands.Lookup([]byte(words[0]))
	cmd := &command{row: row, how: row.How}
	for _, w := range words {
		cmd.args = append(cmd.args, []byte(w))
	}
	return cmd
}

// texts prints the open tasks, with the region that each lies in.
func texts(t *route.Table, tasks []task) (all []string) {
	for i := range tasks {
		if x := &tasks[i]; x.outcome == open {
			r, _ := t.Region(x.slot)
			id := topology.RegionID(0)
			if r != nil {
				id = r.ID
			}
			all = append(all, fmt.Sprintf("%d: %s", id, joinArgs(x.call.Args)))
		}
	}
	return all
}

func joinArgs(args [][]byte) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = string(a)
	}
	return strings.Join(words, " ")
}

// TestFlushIsCutAnew: each slot is flushed once, by an entry of the region that has it then.
func TestFlushIsCutAnew(t *testing.T) {
	e := newExecutor(t, 1, &fakeNode{})
	one := cutAt(1)
	e.cuts = true
	e.tasks = []task{e.wholeTask(commandOf("flushall", "async"), allSlots, allSlots)}
	hole := cutAt(5, 4096, 8192)
	hole = route.NewTable(5, nil, slices.Delete(hole.Regions, 1, 2))
	twice := cutAt(6, 4096, 8192) // a stale region of which newer ones have the middle
	twice.Regions[2].ID = twice.Regions[0].ID
	for _, step := range []struct {
		name  string
		table *route.Table
		done  int // how many of the open tasks are executed then, from the first on
		want  []string
	}{
		{"one region", one, 0, []string{"1: flushall async"}},
		{"a split", cutAt(2, 8192), 0, []string{"1: flushall async", "8193: flushall async"}},
		{"another split", cutAt(3, 4096, 8192), 1,
			[]string{"1: flushall async", "4097: flushall async", "8193: flushall async"}},
		{"a merge with what is done", cutAt(4, 8192), 0,
			[]string{"1: flush-slots 4096 8191 flushall async", "8193: flushall async"}},
		{"a hole", hole, 0, []string{"0: flush-slots 4096 8191 flushall async", "8193: flushall async"}},
		{"a region twice", twice, 0, []string{"4097: flushall async", "1: flushall async"}},
		{"one region again", one, 0,
			[]string{"1: flush-slots 4096 8191 flushall async", "1: flush-slots 8192 16383 flushall async"}},
	} {
		e.recut(step.table)
		got := texts(step.table, e.tasks)
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		for i := 0; i < len(e.tasks) && step.done > 0; i++ {
			if x := &e.tasks[i]; x.outcome == open {
				x.outcome, x.reply = executed, []byte("+OK\r\n")
				step.done--
			}
		}
	}
}

// TestWalkIsScattered: a step of a walk does not run over slots of several regions.
func TestWalkIsScattered(t *testing.T) {
	e := newExecutor(t, 1, &fakeNode{})
	for _, x := range []struct {
		table *route.Table
		want  outcome
	}{
		{cutAt(1), open}, {cutAt(2, 100), open}, {cutAt(2, 300), open}, {cutAt(2, 100, 300), open},
		{cutAt(2, 200), scattered}, {cutAt(2, 101), scattered}, {nil, open},
	} {
		e.reset()
		e.cuts = true
		e.tasks = []task{{slot: 100, span: topology.SlotRange{First: 100, Last: 299}, scope: walkedSlots}}
		if e.recut(x.table); e.tasks[0].outcome != x.want {
			t.Errorf("outcome %d, want %d, by %v", e.tasks[0].outcome, x.want, x.table)
		}
	}
}

// randomTable returns a table with up to 6 regions.
func randomTable(r *rand.Rand, version uint64) *route.Table {
	var cuts []topology.Slot
	for range r.IntN(6) {
		cuts = append(cuts, topology.Slot(1+r.IntN(topology.SlotCount-1)))
	}
	slices.Sort(cuts)
	return cutAt(version, slices.Compact(cuts)...)
}

// TestCutCommandsAreCutAnew runs commands of several keys through tables that change at random: each key is run once,
// by a task all of whose keys lie in one region, and replies come in the order of the keys.
func TestCutCommandsAreCutAnew(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	e := newExecutor(t, 0, &fakeNode{table: func() *route.Table { return cutAt(1) }})
	for range 300 {
		var cmds []command
		words := func(name string, step int) []string {
			words := []string{name}
			for range 1 + r.IntN(12) {
				for range step {
					words = append(words, fmt.Sprint("k", r.IntN(1000)))
				}
			}
			return words
		}
		alone := r.IntN(2) == 0
		table := randomTable(r, 1)
		if alone {
			cmds = []command{*commandOf(words("mget", 1)...)}
			e.reset()
			e.addCut(table, &cmds[0])
		} else {
			for range 1 + r.IntN(4) {
				switch r.IntN(3) {
				case 0:
					cmds = append(cmds, *commandOf(words("del", 1)...))
				case 1:
					cmds = append(cmds, *commandOf(words("mset", 2)...))
				default:
					cmds = append(cmds, *commandOf("set", "k", "v"))
				}
			}
			e.reset()
			for i := range cmds {
				if cmds[i].row.Split == redis.NoSplit {
					e.add(&cmds[i], false)
				} else {
					e.addCut(table, &cmds[i])
				}
				e.ends = append(e.ends, len(e.tasks))
			}
		}
		for round := uint64(2); e.open() > 0; round++ {
			table = randomTable(r, round)
			e.recut(table)
			for i := range e.tasks {
				x := &e.tasks[i]
				if x.outcome != open {
					continue
				}
				slots := x.slots
				if slots == nil {
					slots = []topology.Slot{x.slot}
				}
				if d := route.Decide(table, route.Port{}, slots, false); d.Action != route.Serve {
					t.Fatalf("seed %d: %q is not served: %v", seed, joinArgs(x.call.Args), d)
				}
				if r.IntN(3) > 0 {
					continue
				}
				x.outcome = executed
				out := redis.Reply{}
				switch args := x.call.Args[1:]; x.call.Command.Name {
				case "mget":
					out.Array(len(args))
					for _, key := range args {
						out.Bulk(key)
					}
				case "del":
					out.Int(int64(len(args)))
				default:
					out.OK()
				}
				x.reply = out.Buf
			}
		}
		var want redis.Reply
		from := 0
		e.out.Buf = e.out.Buf[:0]
		if alone {
			e.answer(&cmds[0], e.tasks, e.order, e.out)
		}
		for i := range cmds {
			args := cmds[i].args[1:]
			switch cmds[i].row.Name {
			case "mget":
				want.Array(len(args))
				for _, key := range args {
					want.Bulk(key)
				}
			case "del":
				want.Int(int64(len(args)))
			default:
				want.OK()
			}
			if !alone {
				var ran []string
				for _, x := range e.tasks[from:e.ends[i]] {
					for _, a := range x.call.Args[1:] {
						ran = append(ran, string(a))
					}
				}
				all := strings.Fields(joinArgs(args))
				if slices.Sort(all); len(all) > 0 {
					slices.Sort(ran)
				}
				if !slices.Equal(ran, all) {
					t.Fatalf("seed %d: %q ran as %q", seed, joinArgs(cmds[i].args), ran)
				}
				e.answer(&cmds[i], e.tasks[from:e.ends[i]], nil, e.out)
				from = e.ends[i]
			}
		}
		if string(e.out.Buf) != string(want.Buf) {
			t.Fatalf("seed %d: replies %q, want %q", seed, e.out.Buf, want.Buf)
		}
	}
}

// TestPartsNameTheBounds: what a server hands to a region carries the version of the bounds in the table, and stays
// open when the region has others.
func TestPartsNameTheBounds(t *testing.T) {
	replica := region.New(region.Options{Region: topology.Region{ID: 4097}})
	n := &fakeNode{replica: func(topology.StoreID, topology.RegionID) *region.Replica { return replica }}
	e := newExecutor(t, 0, n)
	table := cutAt(7, 4096)
	e.add(commandOf("set", "foo", "v"), false) // slot 12182
	if waiting := e.decide(table); waiting != 0 || e.used != 1 {
		t.Fatalf("%d tasks wait, %d parts", waiting, e.used)
	}
	p := e.parts[0]
	if p.run.Version != 7 || p.id != 4097 || p.slot != 4096 {
		t.Errorf("part of region %d from slot %d with version %d, want 4097, 4096, 7", p.id, p.slot, p.run.Version)
	}
	p.pending.Err = region.ErrBounds
	if waiting := e.collect(table, e.parts[:1], writes); waiting != 1 {
		t.Errorf("%d tasks are open after ErrBounds, want 1", waiting)
	}
	if e.reset(); p.run.Version != 0 {
		t.Errorf("a part that is reset has version %d", p.run.Version)
	}
}

// TestWaitFollowsMergedRegions: WAIT asks the region that has taken over the one that was written to.
func TestWaitFollowsMergedRegions(t *testing.T) {
	replica := region.New(region.Options{Region: topology.Region{ID: 1}})
	table := cutAt(1, 100, 200)
	e := newExecutor(t, 1, &fakeNode{table: func() *route.Table { return table },
		replica: func(topology.StoreID, topology.RegionID) *region.Replica { return replica }})
	c := e.caller.(*conn)
	c.written = map[topology.RegionID]lastWrite{1: {5, 0}, 101: {9, 100}, 201: {7, 200}}
	known := c.awaited(nil)
	for i := range known {
		known[i].have = 2
	}
	table = cutAt(2, 200)
	got := map[topology.RegionID]writtenRegion{}
	for _, r := range c.awaited(known) {
		got[r.region] = r
	}
	if len(got) != 2 || got[1].index != 5 || got[1].slot != 100 || got[201].index != 7 || got[201].have != 2 {
		t.Errorf("WAIT counts %+v", got)
	}
}

// checksumCase is a NEOKV CHECKSUM during which the table changes.
type checksumCase struct {
	name   string
	words  string // behind NEOKV CHECKSUM
	table  *route.Table
	during topology.RegionID // into whose comparison the change falls, 0 for after half of redis.leaderless_wait
	next   *route.Table
	want   string        // the regions in the reply, or the error
	took   time.Duration // at least; with a little more at most
}

const checksumWait = 2 * time.Second // redis.leaderless_wait

// TestChecksumsAcrossChanges splits and merges regions while NEOKV CHECKSUM goes over them. It compares regions until
// it has compared all slots.
func TestChecksumsAcrossChanges(t *testing.T) {
	six := cutAt(1, 1000, 2000, 3000, 4000, 5000)
	merged, split := cutAt(2, 1000, 2000, 3000, 4000), cutAt(2, 1000, 2000, 3000, 4000, 5000, 6000)
	hole := route.NewTable(2, nil, merged.Regions[1:])
	const wait = checksumWait
	for _, x := range []checksumCase{
		{"nothing changes", "", six, 0, six, "1 1001 2001 3001 4001 5001", 0},
		{"a merge before the turn of both regions", "", six, 1, merged, "1 1001 2001 3001 4001", 0},
		{"a merge between their turns", "", six, 5001, merged, "1 1001 2001 3001 4001", 0},
		{"a split before the turn", "", six, 5001, split, "1 1001 2001 3001 4001 5001 6001", 0},
		{"a merge of what a split has made", "", split, 6001, six, "1 1001 2001 3001 4001 5001", 0},
		{"the table comes late", "", nil, 0, six, "1 1001 2001 3001 4001 5001", wait / 2},
		{"no table", "", nil, 0, nil, "-ERR no cluster map yet", wait},
		{"slots of no region", "", hole, 0, hole, "-ERR slots 0-999: no region is known that has them", wait},
		{"slots of no region at first", "", hole, 0, merged, "1 1001 2001 3001 4001", wait / 2},
		{"one region", " 1001", six, 0, six, "1001", 0},
		{"a new region", " 6001", six, 0, split, "6001", wait / 2},
		{"a region that there is not", " 77", six, 0, six, "-ERR region 77: there is none", wait},
	} {
		t.Run(x.name, func(t *testing.T) { synctest.Test(t, x.run) })
	}
}

func (x *checksumCase) run(t *testing.T) {
	var table atomic.Pointer[route.Table]
	table.Store(x.table)
	if x.during == 0 {
		time.AfterFunc(checksumWait/2, func() { table.Store(x.next) })
	}
	n := &fakeNode{table: table.Load}
	n.compare = func(id topology.RegionID) (region.Comparison, error) {
		switch x.during {
		case id: // those that began before it have ended, or sleep
			synctest.Wait()
			table.Store(x.next)
		case 1:
			time.Sleep(time.Millisecond)
		}
		now := table.Load()
		if now.ByID(id) == nil {
			return region.Comparison{}, fmt.Errorf("region %d: %w", id, region.ErrNone)
		}
		return region.Comparison{Region: id, Slots: now.ByID(id).Slots}, nil
	}
	o := Options{Node: n, Settings: settings.Default()}
	o.Settings.Redis.LeaderlessWait = checksumWait
	_, dial, stop := serve(t, o)
	defer stop()
	c := dial()
	defer c.Close()
	begin := time.Now()
	reply := ask(t, c, "NEOKV CHECKSUM"+x.words)
	took := time.Since(begin)
	var ids []string
	for _, found := range regexp.MustCompile(`region\r\n:(\d+)`).FindAllStringSubmatch(reply, -1) {
		ids = append(ids, found[1])
	}
	got := strings.Join(ids, " ")
	if reply[0] == '-' {
		got = strings.TrimSpace(reply)
	}
	if got != x.want || took < x.took || took > x.took+50*time.Millisecond {
		t.Errorf("%q after %v; want %q after %v", got, took, x.want, x.took)
	}
}
