package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/placement"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// Each store measures the regions that it leads, and sends that with its heartbeats. The store that leads meta makes a
// survey of what it has heard, and gives out the orders that package schedule makes of it. A store carries an order out
// if the region's bounds are still those that the order was made for.

const (
	// smoothOver is over how much time loads are averaged.
	smoothOver = 30 * time.Second
	// measureEvery is how often a store measures. A size is asked of each table that holds a part of a region.
	measureEvery = 5 * time.Second
	// sizeAnew is when the size of a region without writes is asked again: a flush or a compaction may have changed it.
	sizeAnew = time.Minute
	// sizeSteps is how finely the bytes of a large region are located, and loadWeights in how many parts its commands are.
	sizeSteps, loadWeights = 32, 64
)

// meter has the averages of a region that the store leads.
type meter struct {
	version         uint64
	size            uint64
	sized           time.Time // when size was estimated, and how many entries had been applied then
	entries         uint64
	bytes, commands schedule.Smooth
}

// loads measures the regions that the store leads. The goroutine that reports alone uses it, but for the sampler, to
// which the replicas add.
type loads struct {
	*core
	records  *records
	replicas *replicaSet
	sampler  *schedule.SlotSampler // nil if no region is split for its load

	at     time.Time // when it has measured last
	meters map[topology.RegionID]*meter
}

// measure returns the loads of the regions that the store leads if it has measured them now. It returns nil between
// measurements, since meta's leader keeps what it has heard, and if no region is ever split, merged or moved for its
// load.
func (x *loads) measure(leads []meta.Lead, now time.Time) (loads []meta.LedLoad) {
	k := &x.o.Settings.Region
	if k.MaxBytes == 0 && k.MergeBytes == 0 && k.SplitLoad == 0 && !x.o.Settings.Balance.Replicas {
		return nil
	}
	if now.Sub(x.at) < measureEvery {
		return nil
	}
	if x.sampler != nil && !x.at.IsZero() {
		x.sampler.Fold(max(0, 1-now.Sub(x.at).Seconds()/smoothOver.Seconds()))
	}
	x.at = now
	policy := schedule.PolicyOf(&x.o.Settings)
	meters := make(map[topology.RegionID]*meter)
	for _, l := range leads {
		r := x.replicas.get(l.Region)
		if r == nil {
			continue
		}
		b := r.Bounds()
		desc, _ := r.Region()
		m := x.meters[l.Region]
		if m == nil || m.version != b.Version {
			m = &meter{version: b.Version, bytes: schedule.Smooth{Over: smoothOver}, commands: schedule.Smooth{Over: smoothOver}}
		}
		meters[l.Region] = m
		load := meta.LedLoad{Region: l.Region, Changing: b.Change.Kind != keys.NoChange || !desc.Settled()}
		c := r.Counters()
		if entries := c.AppliedEntries.Load(); entries != m.entries || now.Sub(m.sized) >= sizeAnew {
			size, err := x.records.sizeOf(b.Slots)
			if err != nil {
				continue // the store has failed, or is about to
			}
			m.entries, m.sized, m.size = entries, now, size
		}
		m.bytes.Add(now, float64(m.size))
		m.commands.AddTotal(now, c.Commands.Load()+c.KeysFound.Load()+c.KeysMissed.Load())
		load.Version, load.Bytes, load.Commands = b.Version, m.bytes.Value(), m.commands.Value()
		sizes, slots := policy.Wants(&load.RegionLoad)
		if sizes {
			load.Sizes = x.records.bisect(b.Slots)
		}
		if slots && x.sampler != nil {
			load.Slots = x.sampler.Weights(b.Slots, loadWeights)
		}
		loads = append(loads, load)
	}
	x.meters = meters
	return loads
}

// plans makes the orders of meta's leader. The goroutine that reports alone uses it, while this store leads meta.
type plans struct {
	*core
	cluster   *clusterMap
	orders    *orders
	placement *placing
	planned
}

// planned is what the leader of meta remembers of its plans.
type planned struct {
	planner     schedule.Planner
	at          time.Time // of the last plan
	boundsSince map[topology.RegionID]boundsSince
	noted       map[string]bool
}

// forget forgets all plans, when another store leads meta.
func (x *plans) forget() {
	x.planned = planned{at: x.at}
	x.placement.forget()
}

// plan gives out orders. It runs on the store that leads meta, once per heartbeat.
func (x *plans) plan(group *meta.Group, now time.Time) {
	if now.Sub(x.at) < Heartbeat {
		return
	}
	x.at = now
	m, alive := x.cluster.alive()
	loads := make(map[topology.RegionID]meta.HeardLoad)
	for _, l := range group.Loads() {
		loads[l.Region] = l
	}
	notes := x.planBounds(m, alive, loads, now)
	x.placement.plan(group, m, loads, x.planner.Open(), notes, now)
}

// planBounds gives out splits and merges, and returns what the policy cannot do.
func (x *plans) planBounds(m *meta.Map, alive map[topology.StoreID]bool, loads map[topology.RegionID]meta.HeardLoad,
	now time.Time) (notes []schedule.Note) {
	survey := schedule.Survey{Now: now, Policy: schedule.PolicyOf(&x.o.Settings), Alive: alive}
	if !survey.Policy.On() {
		return nil
	}
	if x.boundsSince == nil {
		x.boundsSince = make(map[topology.RegionID]boundsSince)
	}
	since := make(map[topology.RegionID]boundsSince)
	for i := range m.Regions {
		r := &m.Regions[i]
		surveyed := schedule.Surveyed{ID: r.ID, Slots: r.Slots, Version: r.Version}
		for _, p := range r.Peers {
			surveyed.Stores = append(surveyed.Stores, p.Store)
		}
		slices.Sort(surveyed.Stores)
		if l, ok := loads[r.ID]; ok {
			surveyed.Load, surveyed.Changing = l.RegionLoad, l.Changing
		}
		surveyed.Migrates = x.cluster.migrates(r.ID)
		known, ok := x.boundsSince[r.ID]
		if !ok || known.version != r.Version {
			known = boundsSince{version: r.Version}
			if len(x.boundsSince) > 0 {
				known.at = now
			}
		}
		since[r.ID], surveyed.ChangedAt = known, known.at
		survey.Regions = append(survey.Regions, surveyed)
	}
	x.boundsSince = since
	_, notes = x.planner.Plan(survey)
	x.tellNotes(notes)
	for _, o := range x.planner.Open() {
		x.orders.give(o, loads[o.Region].Store)
	}
	return notes
}

// boundsSince is when a region's bounds last changed; zero if before this store led meta.
type boundsSince struct {
	version uint64
	at      time.Time
}

// tellNotes tells of what the policy cannot do, each thing once.
func (x *plans) tellNotes(notes []schedule.Note) {
	told := make(map[string]bool)
	for _, n := range notes {
		key := fmt.Sprintf("%d %s", n.Region, n.About)
		told[key] = true
		if !x.noted[key] {
			x.tell("%s", n)
		}
	}
	x.noted = told
}

// orders passes the orders of meta's leader on to the stores, and carries out those of this store on a goroutine of its
// own. give and take may run concurrently.
type orders struct {
	*core
	replicas *replicaSet
	changes  *changes
	moves    *moves
	queue    chan schedule.Order  // one order may wait
	places   chan placement.Order // likewise
}

// give sends an order to the store that is to carry it out. An order that does not arrive is given again.
func (x *orders) give(o schedule.Order, to topology.StoreID) {
	if to == x.o.ID {
		x.take(o)
		return
	}
	if to == 0 {
		return
	}
	x.wg.Go(func() { x.ask(x.ctx, to, message{Order: &o}, nil) })
}

// place is give for an order about a replica or a home.
func (x *orders) place(o placement.Order, to topology.StoreID) {
	if to == x.o.ID {
		x.takePlace(o)
	} else if to != 0 {
		x.wg.Go(func() { x.ask(x.ctx, to, message{Place: &o}, nil) })
	}
}

// takePlace is take for an order about a replica or a home.
func (x *orders) takePlace(o placement.Order) {
	select {
	case x.places <- o:
	default:
	}
}

// take leaves an order to the goroutine that carries orders out, one after the other. While that one is busy the
// order is left out: it comes again.
func (x *orders) take(o schedule.Order) {
	select {
	case x.queue <- o:
	default:
	}
}

// run carries out the orders of meta's leader until the store closes.
func (x *orders) run() {
	for {
		select {
		case <-x.ctx.Done():
			return
		case o := <-x.queue:
			r := x.replicas.get(o.Region)
			if r == nil || r.Bounds().Version != o.Version || x.failed() != nil {
				continue
			}
			if err := x.obey(r, o); err != nil && x.ctx.Err() == nil {
				x.tell("%s: %v", o, err)
			}
		case o := <-x.places:
			if err := x.moves.obey(x.ctx, o); err != nil && !errors.Is(err, ErrAgain) && x.ctx.Err() == nil {
				x.tell("%s: %v", o, err)
			}
		}
	}
}

func (x *orders) obey(r *region.Replica, o schedule.Order) error {
	ctx, cancel := context.WithTimeout(x.ctx, 2*stepTime)
	defer cancel()
	if o.Kind == schedule.SplitRegion {
		_, err := x.changes.split(ctx, o.Region, o.Slot, 0, o.Reason)
		return err
	}
	left, _ := r.Region()
	right, err := x.changes.neighbour(&left)
	if err != nil {
		return err
	}
	if right.ID != o.Right || right.Version != o.RightVersion {
		return nil // the order is stale
	}
	if mine := x.replicas.get(right.ID); mine == nil || time.Since(mine.Thawed()) < heldRest {
		return nil // it comes again
	}
	_, err = x.changes.merge(ctx, o.Region, o.Reason, new(time.Duration))
	return err
}
