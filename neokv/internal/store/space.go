package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// A store whose disk has less free space than engine.disk_reserve is full. What is left is for what cannot be put off:
// flushes, votes, the entries of meta. Flushes need as much again as the memtables hold, which counts on top. Where the
// disk has a fixed number of inodes, some of them are kept as well. A full store
//
//   - tells meta's leader, which tells the others, so that nobody makes it a leader;
//   - hands over the regions that it leads, and does not propose until then;
//   - drops Raft's messages with entries that write, and snapshots. So its replicas fall behind, as those of a store
//     that is away, but they go on voting and confirming reads.
//
// If the stores that run and are not full have no majority of a region's replicas, its leader refuses writes. Reads go
// on. Once there is space, the leaders send again what the stores lack.

const (
	// spaceEvery is how often a store looks at the free space of its disk. It also looks when it has written the
	// spareShare-th part of what may be used up, or leastWritten: other stores may write as much on the same disk, and
	// each byte of a log goes to the journal, too.
	spaceEvery   = 200 * time.Millisecond
	spareShare   = 16
	leastWritten = 256 << 10
	// keptFiles is how many files a store can still make when it is full, if its disk has room for many more.
	keptFiles = 1000
	// A store keeps an eighth of its disk at most, but so many bytes of a small disk, if that is a third of it at most:
	// that is what may be on its way to the disks when a store becomes full.
	keptOfSmall = 32 << 20
)

// space knows whether the store is full. Its methods may run concurrently, but for look, which spaceWatch calls.
type space struct {
	*core
	full atomic.Bool
	free atomic.Int64 // bytes that the disk has beyond what the store keeps, at the last look; 0: not known
}

// spaceWatch is the goroutine that looks at the disk, and acts when the store is full or others are.
type spaceWatch struct {
	*core
	space      *space
	replicas   *replicaSet
	cluster    *clusterMap
	leadership *leadership
	handed     int // counts hand-overs that have failed; of the goroutine alone
}

// run looks at the disk until the store closes.
func (x *spaceWatch) run() {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for { // from the beginning: within the first tick clients can write more than the store keeps
		var written <-chan struct{}
		if x.failed() == nil {
			written = x.o.FS.Notice(x.look())
			x.refuseWrites()
		}
		select {
		case <-tick.C:
		case <-written:
		case <-x.ctx.Done():
			return
		}
	}
}

// look looks at the disk, and tells what has changed. It returns how much the store may write until it is called
// again.
func (x *spaceWatch) look() int64 {
	write, changed := x.space.look()
	if changed {
		x.cluster.publish()
		x.reporting.ring()
	}
	return write
}

// look finds out whether the store is full, and whether that has changed. It returns how much the store may write until
// look is called again. Once the store is full, it needs a quarter more than it keeps to be well.
func (x *space) look() (write int64, changed bool) {
	full := false
	write = math.MaxInt32
	free := int64(math.MaxInt64)
	for _, r := range x.rooms() {
		full = full || r.free < r.kept || x.full.Load() && r.free < r.kept+r.kept/4
		if !r.files {
			free = min(free, max(1, r.free-r.kept))
			write = min(write, max((r.free-r.kept)/spareShare, leastWritten))
		}
	}
	if free == math.MaxInt64 {
		free = 0
	}
	x.free.Store(free)
	return write, x.full.Swap(full) != full
}

// room is what a store may use up on a disk.
type room struct {
	free, kept int64
	flush      int64 // bytes of kept for flushes
	files      bool  // it is counted in files, not in bytes
}

// rooms returns what is known of the room on the store's disks, that for data and that for its log.
func (x *space) rooms() (all []room) {
	k := &x.o.Settings.Engine
	if k.DiskReserve == 0 {
		return nil
	}
	for _, dir := range []string{x.o.Dir, x.o.WALDir} {
		if dir == "" {
			continue
		}
		if free, total, ok := x.o.FS.Free(dir); ok {
			r := room{free: free, kept: Reserve(k, total)}
			if dir == x.o.Dir && free < 4*(r.kept+int64(k.MemtableSize)) { // else it is not worth asking
				r.flush = x.engine.Unflushed()
				if total < math.MaxInt64 {
					r.flush *= int64(x.o.Settings.Cluster.Stores) // which mostly share the disk, and write equally much
				}
				r.kept += r.flush
			}
			all = append(all, r)
		}
		if free, total, ok := x.o.FS.FreeFiles(dir); ok {
			all = append(all, room{free: free, kept: min(keptFiles, total/8), files: true})
		}
	}
	return all
}

// Reserve returns how many bytes of a disk engine.disk_reserve keeps.
func Reserve(k *settings.EngineKnobs, total int64) int64 {
	return min(int64(k.DiskReserve), max(total/8, min(keptOfSmall, total/3>>20<<20)))
}

// why returns why the store takes no more writes, "" while it does.
func (x *space) why() string {
	if !x.full.Load() {
		return ""
	}
	rooms := x.rooms()
	if len(rooms) == 0 {
		return "its disk does not say how much space it has left"
	}
	least := slices.MinFunc(rooms, func(a, b room) int {
		return cmp.Compare(float64(a.free)/float64(a.kept), float64(b.free)/float64(b.kept))
	})
	if least.files {
		return fmt.Sprintf("its disk has room for %d more files, and engine.disk_reserve keeps %d", least.free,
			least.kept)
	}
	free := least.free
	if free > 1<<20 {
		free = free >> 20 << 20 // it changes all the time
	}
	why := fmt.Sprintf("its disk has %s left, and engine.disk_reserve keeps %s", settings.Bytes(free>>10<<10),
		settings.Bytes(least.kept-least.flush))
	if least.flush > 0 {
		why += fmt.Sprintf(", flushes need %s more", settings.Bytes((least.flush+1023)>>10<<10))
	}
	return why
}

// refuseWrites lets the regions that this store leads take writes or not, by the space that the stores have, and hands
// regions over if this one has none.
func (x *spaceWatch) refuseWrites() {
	t := x.cluster.Table()
	if t == nil {
		return
	}
	away := true
	for i := range t.Regions {
		r := &t.Regions[i]
		replica := x.replicas.get(r.ID)
		if replica == nil {
			continue
		}
		heirs, enough, full := x.takers(t, r)
		switch {
		case full && !enough:
			replica.Refuse(region.ErrNoSpace)
		case x.space.full.Load():
			replica.Refuse(region.ErrNotLeader) // soon it is true
			if r.Leader == x.o.ID && away {
				// One at a time, and no other one if it fails: the next look tries another heir.
				if away = x.leadership.handOver(r.ID, heirs[(int(r.ID)+x.handed)%len(heirs)]); !away {
					x.handed++
				}
			}
		default:
			replica.Refuse(nil)
		}
	}
}

// takers returns the other stores that could lead a region, and whether the stores that take its writes are a majority.
// full says that some store is full.
func (x *spaceWatch) takers(t *route.Table, r *route.LedRegion) (heirs []topology.StoreID, enough, full bool) {
	takers, voters := 0, 0
	for _, p := range r.Peers {
		if p.Role == topology.Joining { // it may be a voter by now, but it is not needed for a majority of the others
			continue
		}
		voters++
		st := t.Store(p.Store)
		switch {
		case p.Store == x.o.ID && x.space.full.Load(), st != nil && p.Store != x.o.ID && st.Full:
			full = true
		case p.Store == x.o.ID:
			takers++
		case st != nil && st.Alive:
			takers++
			heirs = append(heirs, p.Store)
		}
	}
	return heirs, takers > voters/2, full
}
