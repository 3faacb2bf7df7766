package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the commands about the server and its data as a whole: WAIT, ROLE, NEOKV, DEBUG, LOLWUT
// and TIME.

const errDebug = "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", " +
	"you can run it from a local connection, otherwise you need to set this option in the configuration file, " +
	"and then restart the server."

// errWaitReplica is Redis's answer to WAIT at a replica.
const errWaitReplica = "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a " +
	"replica is configured to be writable (which is not the default) writes to replicas are just local and are not " +
	"propagated."

// waitPause is how long WAIT first waits before it asks the other stores again, maxWaitPause how long it waits at most.
const waitPause, maxWaitPause = time.Millisecond, 50 * time.Millisecond

// lastWrite is the last write of a connection in a region.
type lastWrite struct {
	index uint64        // the apply index
	slot  topology.Slot // one of the region's, by which to find what has become of the region
}

// wrote is part of caller. It remembers where writes went, for WAIT.
func (c *conn) wrote(r topology.RegionID, w lastWrite) {
	if c.written == nil {
		c.written = make(map[topology.RegionID]lastWrite)
	}
	w.index = max(w.index, c.written[r].index)
	c.written[r] = w
}

// writtenRegion is a region that a connection has written to, for WAIT.
type writtenRegion struct {
	region topology.RegionID
	lastWrite
	have int // replicas known to have applied it; -1 while no store has been asked
}

// runWait counts the replicas that have applied all writes of this connection, and waits until there are enough or its
// time is over. If the connection has written to several regions, the region with the fewest such replicas counts. WAIT
// adds nothing to the safety of the writes: each was acknowledged when a majority had it on disk.
func runWait(c *conn, args [][]byte) {
	if c.replica() {
		c.out.Error(errWaitReplica)
		return
	}
	want, ok := redis.ParseInt(args[1])
	if !ok {
		c.out.Error(redis.ErrNotInteger)
		return
	}
	ms, ok := c.timeout(args[2])
	if !ok {
		return
	}
	until := after(ms)
	if ms == 0 {
		until = after(math.MaxInt64)
	}
	if c.session.Inside() { // inside of a transaction nothing waits
		until = time.Now()
	}
	ended := false // by CLIENT UNBLOCK
	defer func() {
		c.block(false)
		c.blocking.leave(ended)
	}()
	have := int64(0)
	var regions []writtenRegion
	for pause := waitPause; ; pause = min(2*pause, maxWaitPause) {
		if regions = c.awaited(regions); len(regions) > 0 {
			ctx, cancel := context.WithDeadline(c.ctx, until)
			have = max(have, c.replicated(ctx, regions, want))
			cancel()
		}
		now := time.Now()
		if have >= want || !now.Before(until) {
			break
		}
		if !c.out.flush() {
			c.closing = true
			return
		}
		c.parkTracked()
		c.block(true)
		c.blocking.enter()
		next := now.Add(pause)
		if until.Before(next) {
			next = until
		}
		end := c.linger(next, nil)
		if end == byDisconnect {
			c.closing = true
			return
		}
		if ended = end == byUnblock; ended {
			break
		}
	}
	if ended && c.blocking.request().byError {
		c.out.Error(errUnblocked)
	} else {
		c.out.Int(have)
	}
	c.since = time.Now() // the time spent waiting counts for no command
}

// awaited returns the regions of which WAIT counts replicas, with what is known of those in known. A region that the
// connection has written to may have been merged into another one meanwhile. Then that one counts, from what its leader
// has applied by now, since with the merge a replica takes over all writes of the merged region.
func (c *conn) awaited(known []writtenRegion) (regions []writtenRegion) {
	t := c.s.o.Node.Table()
	if t == nil {
		return nil
	}
	merged := map[topology.RegionID]lastWrite{}
	for id, w := range c.written {
		if t.ByID(id) != nil {
			continue
		}
		r, _ := t.Region(w.slot)
		if r == nil {
			continue // the next look at the table tells
		}
		replica := c.s.o.Node.Replica(r.Leader, r.ID)
		if replica == nil {
			continue
		}
		delete(c.written, id)
		merged[r.ID] = lastWrite{replica.Applied(), w.slot}
	}
	for id, w := range merged {
		w.index = max(w.index, c.written[id].index)
		c.written[id] = w
	}
	for id, w := range c.written {
		x := writtenRegion{id, w, -1}
		for _, k := range known {
			if k.region == id && k.index == w.index {
				x.have = k.have
			}
		}
		regions = append(regions, x)
	}
	if len(regions) == 0 && len(t.Regions) > 0 {
		// The connection has written nothing: the replicas that answer count.
		regions = []writtenRegion{{t.Regions[0].ID, lastWrite{}, -1}}
	}
	return regions
}

// replicated asks, all at once, about the regions that are not yet known to have enough replicas. It returns the
// smallest count of all regions.
func (c *conn) replicated(ctx context.Context, regions []writtenRegion, enough int64) int64 {
	var wg sync.WaitGroup
	for i := range regions {
		if r := &regions[i]; r.have < 0 || int64(r.have) < enough {
			wg.Go(func() { r.have = max(r.have, c.s.o.Node.Replicated(ctx, r.region, r.index)) })
		}
	}
	wg.Wait()
	least := regions[0].have
	for _, r := range regions {
		least = min(least, r.have)
	}
	return int64(least)
}

// runDebug answers DEBUG as a redis-server that does not allow it. It runs only what test suites need: SLEEP, which
// holds up this connection alone, and SET-ACTIVE-EXPIRE, which changes nothing that a client sees.
func runDebug(c *conn, args [][]byte) {
	switch {
	case !debugAllowed(args):
		c.out.Error(errDebug)
	case redis.IsOption(args[1], "sleep"):
		seconds, err := strconv.ParseFloat(string(args[2]), 64)
		if err != nil || math.IsNaN(seconds) {
			seconds = 0 // as C's strtod
		}
		if seconds > 0 && c.out.flush() {
			c.closing = c.linger(after(int64(min(seconds*1000, math.MaxInt32))), nil) == byDisconnect
		}
		c.out.OK()
	default:
		if on, err := strconv.Atoi(string(args[2])); err == nil {
			c.s.o.Node.SetActiveExpire(on != 0)
		}
		c.out.OK()
	}
}

func debugAllowed(args [][]byte) bool {
	return len(args) == 3 && (redis.IsOption(args[1], "sleep") || redis.IsOption(args[1], "set-active-expire"))
}

// comparedAtOnce is how many regions one command compares at the same time.
const comparedAtOnce = 4

// runChecksum compares the replicas of regions. Its reply is an array of maps.
func runChecksum(c *conn, args [][]byte) {
	compare := c.compareAll
	switch len(args) {
	case 2:
	case 3:
		id, ok := redis.ParseInt(args[2])
		if !ok {
			c.out.Error(redis.ErrNotInteger)
			return
		}
		compare = func() ([]region.Comparison, error) { return c.compareOne(topology.RegionID(id)) }
	default:
		c.out.Error(redis.ErrSyntax)
		return
	}
	if !c.out.flush() {
		c.closing = true
		return
	}
	all, err := compare()
	if err != nil {
		c.out.Error("ERR " + err.Error())
		return
	}
	o := &c.out.Reply
	o.Array(len(all))
	for i := range all {
		one := &all[i]
		o.MapOf("region", int64(one.Region), "apply-index", int64(one.Index), "replicas", one.Verdict(),
			"checksums", func() {
				o.Map(len(one.Replicas))
				for _, r := range one.Replicas {
					o.BulkString(r.Store.RaftAddress())
					if r.Sum == "" {
						o.BulkString("unavailable: " + r.Missing)
					} else {
						o.BulkString(r.Sum)
					}
				}
			})
	}
}

// compareOne compares one region. It waits for a region that the node does not know: another node may have split it off
// a moment ago.
func (c *conn) compareOne(id topology.RegionID) ([]region.Comparison, error) {
	deadline := c.exec.arrived.Add(c.s.o.Settings.Redis.LeaderlessWait)
	for {
		changed := c.s.o.Node.Changed()
		one, err := c.s.o.Node.Compare(c.ctx, id)
		if !errors.Is(err, region.ErrNone) || !c.exec.wait(changed, deadline) {
			return []region.Comparison{one}, err
		}
	}
}

// compareAll compares all regions, in rounds. When a region is split or merged before its turn, others have its slots.
// So each round compares the regions of a newer table that have slots of which no comparison tells yet. In the end each
// slot is in a region that has been compared. If it has changed hands meanwhile, it may be in several.
func (c *conn) compareAll() ([]region.Comparison, error) {
	node, patience := c.s.o.Node, c.s.o.Settings.Redis.LeaderlessWait
	all := make(map[topology.RegionID]region.Comparison)
	for deadline := c.exec.arrived.Add(patience); ; {
		left := missing(all)
		if len(left) == 0 {
			return slices.SortedFunc(maps.Values(all), func(a, b region.Comparison) int {
				return cmp.Or(cmp.Compare(a.Slots.First, b.Slots.First), cmp.Compare(a.Region, b.Region))
			}), nil
		}
		changed := node.Changed()
		t := node.Table()
		round, failed := c.compareRegions(t, left)
		progress := false
		for i, one := range round {
			switch err := failed[i]; {
			case err == nil:
				all[one.Region] = one
				progress = progress || overlap(left, one.Slots)
			case !errors.Is(err, region.ErrNone):
				return nil, err
			}
		}
		switch {
		case progress:
			deadline = time.Now().Add(patience)
		case c.exec.wait(changed, deadline):
		case t == nil:
			return nil, errors.New("no cluster map yet")
		default:
			return nil, fmt.Errorf("slots %v: no region is known that has them", left[0])
		}
	}
}

// missing returns the slots of which no comparison tells.
func missing(all map[topology.RegionID]region.Comparison) []topology.SlotRange {
	var told []topology.SlotRange
	for _, one := range all {
		told = append(told, one.Slots)
	}
	return topology.Complement(told)
}

func overlap(ranges []topology.SlotRange, r topology.SlotRange) bool {
	return slices.ContainsFunc(ranges, r.Overlaps)
}

// compareRegions compares the regions of a table that have any of some slots. Each has a comparison or an error.
func (c *conn) compareRegions(t *route.Table, slots []topology.SlotRange) ([]region.Comparison, []error) {
	var ids []topology.RegionID
	for i := 0; t != nil && i < len(t.Regions); i++ {
		r := &t.Regions[i] // a table may have two parts of a region for a moment
		if overlap(slots, r.Slots) && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	all, failed := make([]region.Comparison, len(ids)), make([]error, len(ids))
	var wg sync.WaitGroup
	places := make(chan struct{}, comparedAtOnce)
	for i, id := range ids {
		places <- struct{}{}
		wg.Go(func() {
			all[i], failed[i] = c.s.o.Node.Compare(c.ctx, id)
			<-places
		})
	}
	wg.Wait()
	return all, failed
}

// settlePatience is how long NEOKV SETTLE waits.
const settlePatience = 10 * time.Minute

// runSettle waits until the node has done all work that it has put off. A benchmark calls it, so that what a load
// leaves undone counts as part of it.
func runSettle(c *conn, _ [][]byte) {
	if !c.out.flush() {
		c.closing = true
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, settlePatience)
	defer cancel()
	if err := c.s.o.Node.Settle(ctx); err != nil { // one line for each store
		c.out.Error("ERR " + strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	c.out.OK()
}

// runRole answers as a master without replicas. The replicas of regions belong to Raft and are not shown.
// runRole names the master that CLUSTER NODES has where it stands for a replica of several.
func runRole(c *conn, args [][]byte) {
	if c.replica() {
		c.out.Array(5)
		c.out.BulkString("slave")
		if m := c.master(); m != nil {
			a := c.told(m)
			c.out.BulkString(a.IP)
			c.out.Int(int64(a.Port))
			c.out.BulkString("connected")
		} else {
			c.out.BulkString("")
			c.out.Int(0)
			c.out.BulkString("connect")
		}
		c.out.Int(0)
		return
	}
	c.out.Array(3)
	c.out.BulkString("master")
	c.out.Int(0)
	c.out.Array(0)
}

const (
	lolwutColumns = 64
	lolwutRows    = 8
)

// runLolwut draws the slots, each place with the number of the store that leads the first of the place's slots.
func runLolwut(c *conn, args [][]byte) {
	if len(args) > 2 && redis.IsOption(args[1], "version") {
		if _, ok := redis.ParseInt(args[2]); !ok {
			c.out.Error(redis.ErrNotInteger)
			return
		}
	}
	var picture []byte
	t := c.s.o.Node.Table()
	for i := range lolwutRows * lolwutColumns {
		place := byte('.')
		if t != nil {
			slot := topology.Slot(i * topology.SlotCount / (lolwutRows * lolwutColumns))
			if r, _ := t.Region(slot); r != nil && r.Leader != 0 {
				place = "0123456789"[r.Leader%10]
			}
		}
		if picture = append(picture, place); (i+1)%lolwutColumns == 0 {
			picture = append(picture, '\n')
		}
	}
	c.out.Verbatim("txt", string(picture)+"\nNeoKV ver. "+c.s.o.Version+"\n")
}

func runTime(c *conn, args [][]byte) {
	us := time.Now().UnixMicro()
	c.out.Array(2)
	c.out.BulkString(strconv.FormatInt(us/1e6, 10))
	c.out.BulkString(strconv.FormatInt(us%1e6, 10))
}
