package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// boot starts the stores.
type boot struct {
	*core
	boots   *boots
	journal *journal
	places  *placeSet
	leaders *leaders
	servers *servers
}

// start listens, starts the stores and waits until the cluster serves.
func (b *boot) start(ctx context.Context) error {
	all := b.places.all()
	b.boots.survey(all)
	for _, n := range all {
		if n.wiped.Empty { // again, since the journal may have what a store that has begun did not sync
			if err := n.renew(); err != nil {
				n.failure = err
			}
		}
	}
	if err := b.journal.open(all); err != nil {
		return err
	}
	proxy, err := b.servers.listenAll()
	if err != nil {
		return err
	}

	if b.folder != nil {
		for range b.folder.coming { // their ports are free, and the settings fit
			if _, err := b.folder.grow(); err != nil {
				return err
			}
		}
	}

	// The stores open at the same time, since each waits for its disk.
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, n := range all {
		wg.Go(func() {
			defer n.hasTold()
			defer n.hasEntered()
			if errs[i] = n.failure; errs[i] == nil {
				errs[i] = n.start(true)
			}
		})
	}
	wg.Wait()
	b.servers.startProxy(proxy)
	for i, n := range all {
		if errs[i] != nil {
			n.absent(errs[i])
		}
	}
	if err := errors.Join(errs...); err != nil && (b.boots.began == 1 || all.begin(b.boots)) {
		return err // nobody needs a new cluster that is not whole
	}
	return b.waitServing(ctx)
}

// waitServing returns when every region has a leader that serves, and every store knows where to send clients. If there
// are at least as many regions as stores, it also waits until every store leads one; twice a second it asks leaders to
// hand over to the stores that lead none.
func (b *boot) waitServing(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	told, moved := begin, begin
	for {
		var failed []error
		for _, n := range b.places.all() {
			if err := n.Failure(); err != nil {
				failed = append(failed, err)
			}
		}
		if len(failed) > 0 {
			if lacks := b.lacks(); lacks != "" {
				return fmt.Errorf("boot: %s\n%w", lacks, errors.Join(failed...))
			}
		}
		missing := b.missing()
		if missing == "" {
			return nil
		}
		if b.config.Progress != nil && time.Since(told) > time.Second {
			told = time.Now()
			b.config.Progress(fmt.Sprintf("waiting for %s (%.0fs)", missing, time.Since(begin).Seconds()))
		}
		if time.Since(moved) > 500*time.Millisecond {
			moved = time.Now()
			b.leaders.balance()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("boot: waiting for %s: %w", missing, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// missing says what the cluster still waits for, "" when it serves.
func (b *boot) missing() string {
	leads := make(map[topology.StoreID]int)
	homes := make(map[topology.StoreID]bool)
	served, full := 0, 0 // slots, stores
	run := make(map[topology.StoreID]bool)
	for _, n := range b.places.all() {
		if n.Failure() == nil {
			run[n.id] = true
		}
	}
	for _, n := range b.places.all() {
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
		there := 0
		for id := range run {
			if !slices.Contains(t.Gone, id) { // else the process has ended in the middle of a removal
				there++
			}
		}
		if len(t.Stores) < there {
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
			if home := t.Regions[i].Peers[0].Store; run[home] && !refills(t, home) {
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

// refills reports whether a store was wiped, and need not have all its replicas again.
func refills(t *route.Table, id topology.StoreID) bool {
	return slices.ContainsFunc(t.Wipes, func(w topology.Wipe) bool { return w.Store == id && !w.Done })
}

// lacks says what the stores that run lack to serve every slot, "" for nothing.
func (b *boot) lacks() string {
	run := make(map[topology.StoreID]bool)
	for _, n := range b.places.all() {
		run[n.id] = n.running()
	}
	members := meta.Members(b.founders())
	have := 0
	for _, p := range members {
		if run[p.Store] {
			have++
		}
	}
	if 2*have <= len(members) {
		return fmt.Sprintf("%d of the %d stores with a replica of the cluster map", have, len(members))
	}
	var slots []topology.SlotRange
	for _, n := range b.places.all() {
		s := n.store.Load()
		if s == nil || !run[n.id] {
			continue
		}
		for _, r := range s.Replicas().Regions() {
			// While a replica moves, the voters may still be those that were, or those that shall be.
			was, is, have, haveNow := 0, 0, 0, 0
			for _, p := range r.Peers {
				if p.Role != topology.Joining {
					if was++; run[p.Store] {
						have++
					}
				}
				if p.Role != topology.Leaving {
					if is++; run[p.Store] {
						haveNow++
					}
				}
			}
			if 2*have <= was && 2*haveNow <= is {
				return fmt.Sprintf("region %d has %d of its %d replicas", r.ID, have, was)
			}
			slots = append(slots, r.Slots)
		}
	}
	if rest := topology.Complement(slots); len(rest) > 0 {
		return fmt.Sprintf("no store has slots %s", rest[0])
	}
	return ""
}
