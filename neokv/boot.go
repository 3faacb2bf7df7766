package neokv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// start listens, starts the stores and waits until the cluster serves.
func (c *Cluster) start(ctx context.Context) error {
	c.hooks.Cluster = inside{c}
	c.survey()
	if err := c.openJournal(); err != nil {
		return err
	}
	proxy, err := c.listenAll()
	if err != nil {
		return err
	}

	// The stores open at the same time, since each waits for its disk.
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() {
			defer n.hasTold()
			defer n.hasEntered()
			if errs[i] = n.failure; errs[i] == nil {
				errs[i] = n.start(true)
			}
		})
	}
	wg.Wait()
	c.startProxy(proxy)
	c.serveInside()
	for i, n := range c.nodes {
		if errs[i] != nil {
			n.absent(errs[i])
		}
	}
	if err := errors.Join(errs...); err != nil && (c.boots.now == 1 || c.boots.begins(c.nodes)) {
		return err // nobody needs a new cluster that is not whole
	}
	return c.waitServing(ctx)
}

// makeNodes makes a place for each store.
func (c *Cluster) makeNodes() {
	c.initial = meta.Initial(fmt.Sprintf("%x", c.identity), c.settings.Cluster)
	var disks []*disk.FS
	if c.config.From != nil {
		disks = disk.Freeze(c.config.From.disks)
	}
	for i := range c.settings.Cluster.Stores {
		n := &storePlace{c: c, id: topology.StoreID(i + 1), cluster: c.identity, initial: c.initial, down: true,
			doors: []*door{{}}}
		if c.settings.Addresses() > c.settings.Cluster.Stores {
			n.doors = append(n.doors, &door{replica: true})
		}
		switch {
		case c.folder != nil:
			n.dir, n.walDir, n.fs = c.folder.store(n.id), c.folder.wal(n.id), disk.OS()
		case disks != nil:
			n.dir, n.fs = c.config.From.dirs[i], disks[i]
		default:
			n.dir, n.fs = "/"+n.id.RaftAddress(), disk.Mem()
		}
		c.nodes = append(c.nodes, n)
	}
}

// openJournal copies into the stores' logs the writes that only the journal holds. Then it opens a new journal, unless
// each store syncs its own log.
func (c *Cluster) openJournal() (err error) {
	o := disk.JournalOptions{
		Logs: make(map[uint16]string), Boot: c.boots.now, OnChange: c.journalChanged, Mistakes: c.hooks.Mistakes.Journal,
	}
	for _, n := range c.nodes {
		if n.failure == nil {
			o.Logs[uint16(n.id)] = store.Places(n.dir, n.walDir).Logs
		}
	}
	shared := c.settings.Engine.SharedSync && c.settings.Engine.WALSync == "always" && len(c.nodes) > 1
	switch {
	case c.folder == nil && c.hooks.JournalBytes == nil:
		return nil
	case c.folder == nil:
		if c.journalFS == nil {
			c.journalFS = disk.Mem()
		}
		o.FS, o.Bytes, o.Disks = c.journalFS, c.hooks.JournalBytes(), make(map[uint16]vfs.FS)
		shared = shared && o.Bytes > 0
		for _, n := range c.nodes {
			n.fs.SetDrive(fault.Drive{}, nil) // it goes bad again when its store starts, after the journal's bytes are there
			o.Disks[uint16(n.id)] = n.fs
		}
	default:
		// A segment holds twice as much as the memtables. So when it is nearly full, the stores have flushed and
		// removed the logs that the other segment covers. The lower bound, 64 MiB, holds a few large groups of writes;
		// the upper one, 1 GiB, is what a start reads in a few seconds.
		o.Dir, o.Bytes = c.folder.journal(), max(64<<20, min(2*int64(c.settings.Engine.MemtableSize), 1<<30))
		o.Needed = c.folder.journaled
		// A store that takes no part loses what only the journal has. So its folder will not do any more.
		o.Lost = func(id uint16) { c.boots.note(id, c.boots.now) }
		o.Emptied = func() error {
			c.folder.journaled = 0
			return c.folder.write()
		}
	}
	if !shared {
		return disk.DropJournal(o)
	}
	j, err := disk.OpenJournal(o)
	if err == nil {
		c.journal.Store(j)
	}
	return err
}

// waitServing returns when every region has a leader that serves, and every store knows where to send clients. If there
// are at least as many regions as stores, it also waits until every store leads one; twice a second it asks leaders to
// hand over to the stores that lead none.
func (c *Cluster) waitServing(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	told, moved := begin, begin
	for {
		var failed []error
		for _, n := range c.nodes {
			if err := n.Failure(); err != nil {
				failed = append(failed, err)
			}
		}
		if len(failed) > 0 {
			if lacks := c.lacks(); lacks != "" {
				return fmt.Errorf("boot: %s\n%w", lacks, errors.Join(failed...))
			}
		}
		missing := c.missing()
		if missing == "" {
			return nil
		}
		if c.config.Progress != nil && time.Since(told) > time.Second {
			told = time.Now()
			c.config.Progress(fmt.Sprintf("waiting for %s (%.0fs)", missing, time.Since(begin).Seconds()))
		}
		if time.Since(moved) > 500*time.Millisecond {
			moved = time.Now()
			c.balanceLeaders()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("boot: waiting for %s: %w", missing, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// missing says what the cluster still waits for, "" when it serves.
func (c *Cluster) missing() string {
	leads := make(map[topology.StoreID]int)
	homes := make(map[topology.StoreID]bool)
	served, full := 0, 0 // slots, stores
	run := make(map[topology.StoreID]bool)
	for _, n := range c.nodes {
		if n.Failure() == nil {
			run[n.id] = true
		}
	}
	for _, n := range c.nodes {
		if !run[n.id] {
			continue
		}
		s := n.store.Load()
		if s == nil {
			return n.id.RaftAddress() + " to start"
		}
		t := s.Table()
		if t == nil {
			return "the cluster map"
		}
		if len(t.Stores) < len(run) {
			return fmt.Sprintf("store %d to know the others", n.id)
		}
		if s.Full() != "" {
			full++
		}
		for i := range t.Regions {
			if t.Regions[i].Leader == n.id {
				leads[n.id]++
				served += t.Regions[i].Slots.Count()
			}
			if home := t.Regions[i].Peers[0].Store; run[home] {
				homes[home] = true
			}
			if t.Regions[i].Leader == 0 {
				return fmt.Sprintf("the leader of region %d", t.Regions[i].ID)
			}
		}
	}
	if served < topology.SlotCount {
		return fmt.Sprintf("leaders of %d of %d slots", topology.SlotCount-served, topology.SlotCount)
	}
	if len(leads) < len(homes)-full {
		return fmt.Sprintf("leaders on %d of %d stores", len(homes)-full-len(leads), len(homes)-full)
	}
	return ""
}

// shutdown ends everything that start has started.
func (c *Cluster) shutdown() error {
	close(c.closing)
	c.inside.close()
	c.saves.wait()
	for _, n := range c.nodes {
		n.release()
	}
	c.changing <- struct{}{} // a change that is under way ends first; no other one begins
	// Clients go first, those of all stores at once: what a client still waits for needs the other stores.
	var clients sync.WaitGroup
	if proxy := c.proxy.Load(); proxy != nil {
		clients.Go(func() { proxy.Close() })
	}
	for _, n := range c.nodes {
		clients.Go(n.leave)
	}
	clients.Wait()
	errs := []error{onAll(c.nodes, (*storePlace).stop)}
	c.network.Close()
	c.wg.Wait()
	if j := c.journal.Load(); j != nil {
		err := j.Close()
		if err == nil && c.folder != nil {
			c.folder.journaled = 0
			err = c.folder.write()
		}
		errs = append(errs, err)
	}
	if c.folder != nil {
		errs = append(errs, c.folder.close(errors.Join(errs...) == nil && !c.anyFailed.Load()))
	}
	return errors.Join(errs...)
}
