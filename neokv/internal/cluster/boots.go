package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/topology"
)

// This file sees to it that no store takes part with a folder that lacks what the store has promised to others.
//
// A boot is one start of the process on a folder; boots count from 1. A store takes part in a boot once it has synced
// the boot's number in its record. Before its replicas start, all other stores that run have synced that, too, and so
// has the folder's record. These numbers only grow. So each number that anybody has on record is true, however old that
// record is, and a store whose record is older than the largest of them has lost something. A store that was stopped,
// or had failed, before it took part in a boot has promised nothing in it, and is not missed.
//
// A cluster serves only once all stores with which it began have taken part in a boot. So one of these that never took
// part belongs to a cluster that has never served: it begins with the replicas of the first map. A store that comes
// later begins without replicas, and so does one that was wiped: see wipes.go. Any other store with an empty folder is
// refused.

// boots are the numbers of boots that the cluster knows of.
type boots struct {
	*core
	mu    sync.Mutex
	began uint64            // the number of this boot as it began
	now   uint64            // its number by now: a store that was wiped begins a new one; mu guards it once stores run
	of    map[uint16]uint64 // the last boot in which each store has taken part; 0 for a store that is new

	// Of the boot itself: each store that opens is counted out of both once, whether it fails or not.
	entered, told sync.WaitGroup
	record        sync.Once
	recordErr     error
}

func (b *boots) last(id topology.StoreID) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[uint16(id)]
}

// current returns the number of this boot.
func (b *boots) current() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// next returns a new number of this boot: what a store had on its disk with the present one will not do any more.
func (b *boots) next() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	return b.now
}

// note notes that a store has taken part in a boot.
func (b *boots) note(id uint16, boot uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[id] = max(b.of[id], boot)
}

func (b *boots) all() map[uint16]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.of)
}

// survey learns which boots there were, from the folder's record and those of the stores. Then it notes why stores are
// not whole.
func (b *boots) survey(nodes Places) {
	b.of = make(map[uint16]uint64)
	if b.folder != nil {
		b.now = b.folder.boot
		maps.Copy(b.of, b.folder.boots)
	}
	for _, n := range nodes {
		i, err := disk.ReadStoreRecord(n.fs, n.dir)
		if err != nil || i.Cluster != hex.EncodeToString(b.identity[:]) || i.Copy != b.copy {
			continue
		}
		b.now = max(b.now, i.Boot)
		for id, boot := range i.Boots {
			b.note(id, boot)
			b.now = max(b.now, boot)
		}
	}
	b.now++
	b.began = b.now
	for _, n := range nodes {
		b.entered.Add(1)
		b.told.Add(1)
		n.hasEntered, n.hasTold = sync.OnceFunc(b.entered.Done), sync.OnceFunc(b.told.Done)
		switch n.failure = n.whole(); {
		case n.failure != nil:
			n.failure = n.lost(n.failure)
		case n.wiped.Empty:
			n.failure = fmt.Errorf("store %d: %w", n.id, errEmpty)
		}
	}
}

// begin reports whether one of the stores with which the cluster began never took part in a boot: the cluster has never
// served.
func (p Places) begin(b *boots) bool {
	return slices.ContainsFunc(p, func(n *Place) bool { return int(n.id) <= b.founders() && b.last(n.id) == 0 })
}

// whole returns an error unless the store's folder has all that the store has promised to others, as far as the numbers
// and the names of its files show; and makes the store's file system keep the record. It changes nothing there.
func (n *Place) whole() error {
	last := n.boots.last(n.id)
	at := n.At()
	i, err := disk.ReadStoreRecord(n.fs, n.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && last == 0:
		i = disk.StoreRecord{Cluster: hex.EncodeToString(n.identity[:]), Copy: n.copy, Store: uint16(n.id)}
	case errors.Is(err, fs.ErrNotExist):
		if _, dir := n.fs.Stat(n.dir); dir != nil {
			return fmt.Errorf("its folder %s is missing", n.dir)
		}
		return fmt.Errorf("%s is missing", n.fs.PathJoin(n.dir, disk.StoreRecordName))
	case err != nil:
		return err
	case i.Cluster != hex.EncodeToString(n.identity[:]) || i.Store != uint16(n.id):
		return fmt.Errorf("folder %s belongs to store %d of cluster %s, not to store %d of cluster %x",
			n.dir, i.Store, i.Cluster, n.id, n.identity)
	case i.Copy != n.copy:
		return fmt.Errorf("folder %s is of another copy of the cluster, made by a backup: a store has promised more "+
			"since, or less; only a backup as a whole takes the place of a cluster", n.dir)
	case i.Boot < last:
		return fmt.Errorf("folder %s is too old: it is as of start %d of the cluster, and what start %d left is needed",
			n.dir, i.Boot, last)
	}
	if err := i.Missing(n.fs, at); err != nil {
		return err
	}
	n.fs.Keep(at, i)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wiped = (disk.Wiped{}); i.Wiped != nil {
		n.wiped = *i.Wiped
	}
	return nil
}

// lost is the error of a store whose folder is not whole.
func (n *Place) lost(err error) error {
	return fmt.Errorf("store %d takes no part: %w; put it back as it was when the store ran last, then neokv ctl "+
		"restart %d; if it is gone for good, neokv ctl wipe %d", n.id, err, n.id, n.id)
}

// enter makes a store whose folder is open and read take part in the boot. It returns when enough others know.
func (n *Place) enter(booting bool) error {
	b := n.boots
	boot, began := b.current(), n.wiped.Empty
	if began {
		if err := n.begin(); err != nil {
			return err
		}
		boot = b.next()
	}
	if err := n.fs.Enter(boot, b.all()); err != nil {
		return err
	}
	b.note(uint16(n.id), boot)
	n.mu.Lock()
	n.wiped.Empty = false
	n.mu.Unlock()
	switch {
	case booting:
		n.entered.Store(true)
		n.hasEntered()
		b.entered.Wait()
		if n.places.all().begin(b) {
			return fmt.Errorf("store %d: the cluster is new, and needs all of its stores to begin", n.id)
		}
		err := n.fs.Enter(0, b.all())
		b.record.Do(func() { b.recordErr = n.recordBoots() })
		n.hasTold()
		b.told.Wait()
		return errors.Join(err, b.recordErr)
	case !n.entered.Load() || began: // also if an earlier try failed here
		if err := errors.Join(n.tell(), n.recordBoots()); err != nil {
			return err
		}
		n.entered.Store(true)
	}
	return nil
}

// tellWait bounds how long a store that starts waits for the disks of others.
const tellWait = 2 * time.Second

// tell makes the stores that run record that this one takes part in the boot. A majority must have, this one included.
func (n *Place) tell() error {
	ctx, cancel := context.WithTimeout(context.Background(), tellWait)
	defer cancel()
	told := make(chan bool, len(n.places.all()))
	for _, other := range n.places.all() {
		if other == n || !other.running() {
			continue
		}
		n.wg.Go(func() { told <- other.FS().Enter(0, n.boots.all()) == nil })
	}
	for know := 1; 2*know <= len(n.places.all()); {
		select {
		case ok := <-told:
			if ok {
				know++
			}
		case <-ctx.Done():
			return fmt.Errorf("%d of %d stores could record that it takes part in this start of the cluster, "+
				"want a majority: start others first", know, len(n.places.all()))
		}
	}
	return nil
}

// recordBoots writes the numbers of boots into the folder's record.
func (n *Place) recordBoots() error {
	f := n.folder
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boot, f.boots, f.journaled = n.boots.current(), n.boots.all(), 0
	if n.journal.now.Load() != nil {
		f.journaled = n.boots.began
	}
	return f.write()
}
