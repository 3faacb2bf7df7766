package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
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

// measured is what the store has measured last. Its goroutine alone uses it.
type measured struct {
	at     time.Time
	meters map[topology.RegionID]*meter
}

// measure returns the loads of the regions that the store leads if it has measured them now. It returns nil between
// measurements, since meta's leader keeps what it has heard, and if no region is ever split or merged for its load.
func (s *Store) measure(leads []meta.Lead, now time.Time) (loads []meta.LedLoad) {
	k := &s.o.Settings.Region
	if k.MaxBytes == 0 && k.MergeBytes == 0 && k.SplitLoad == 0 {
		return nil
	}
	x := &s.measured
	if now.Sub(x.at) < measureEvery {
		return nil
	}
	if s.sampler != nil && !x.at.IsZero() {
		s.sampler.Fold(max(0, 1-now.Sub(x.at).Seconds()/smoothOver.Seconds()))
	}
	x.at = now
	policy := schedule.PolicyOf(&s.o.Settings)
	meters := make(map[topology.RegionID]*meter)
	for _, l := range leads {
		r := s.replicas.get(l.Region)
		if r == nil {
			continue
		}
		b := r.Bounds()
		m := x.meters[l.Region]
		if m == nil || m.version != b.Version {
			m = &meter{version: b.Version, bytes: schedule.Smooth{Over: smoothOver}, commands: schedule.Smooth{Over: smoothOver}}
		}
		meters[l.Region] = m
		load := meta.LedLoad{Region: l.Region, Changing: b.Change.Kind != keys.NoChange}
		c := r.Counters()
		if entries := c.AppliedEntries.Load(); entries != m.entries || now.Sub(m.sized) >= sizeAnew {
			size, err := s.records.sizeOf(b.Slots)
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
			load.Sizes = s.records.bisect(b.Slots)
		}
		if slots && s.sampler != nil {
			load.Slots = s.sampler.Weights(b.Slots, loadWeights)
		}
		loads = append(loads, load)
	}
	x.meters = meters
	return loads
}

// halve returns the slot before which the region's bytes are halved.
func (x *changes) halve(r *region.Replica) topology.Slot {
	slots := r.Bounds().Slots
	return schedule.Halve(slots, x.records.bisect(slots))
}

// plan gives out orders. It runs on the store that leads meta, once per heartbeat.
func (s *Store) plan(group *meta.Group, now time.Time) {
	m, alive := s.cluster.alive()
	survey := schedule.Survey{Now: now, Policy: schedule.PolicyOf(&s.o.Settings), Alive: alive}
	if !survey.Policy.On() || now.Sub(s.plannedAt) < Heartbeat {
		return
	}
	s.plannedAt = now
	loads := make(map[topology.RegionID]meta.HeardLoad)
	for _, l := range group.Loads() {
		loads[l.Region] = l
	}
	if s.boundsSince == nil {
		s.boundsSince = make(map[topology.RegionID]boundsSince)
	}
	since := make(map[topology.RegionID]boundsSince)
	for i := range m.Regions {
		r := &m.Regions[i]
		x := schedule.Surveyed{ID: r.ID, Slots: r.Slots, Version: r.Version}
		for _, p := range r.Peers {
			x.Stores = append(x.Stores, p.Store)
		}
		slices.Sort(x.Stores)
		if l, ok := loads[r.ID]; ok {
			x.Load, x.Changing = l.RegionLoad, l.Changing
		}
		known, ok := s.boundsSince[r.ID]
		if !ok || known.version != r.Version {
			known = boundsSince{version: r.Version}
			if len(s.boundsSince) > 0 {
				known.at = now
			}
		}
		since[r.ID], x.ChangedAt = known, known.at
		survey.Regions = append(survey.Regions, x)
	}
	s.boundsSince = since
	_, notes := s.planner.Plan(survey)
	s.tellNotes(notes)
	for _, o := range s.planner.Open() {
		s.give(o, loads[o.Region].Store)
	}
}

// boundsSince is since when a region has the bounds that it has, zero if it had them when this store began to lead meta.
type boundsSince struct {
	version uint64
	at      time.Time
}

// tellNotes tells of what the policy cannot do, each thing once.
func (s *Store) tellNotes(notes []schedule.Note) {
	told := make(map[string]bool)
	for _, n := range notes {
		key := fmt.Sprintf("%d %s", n.Region, n.About)
		told[key] = true
		if !s.noted[key] {
			s.tell("%s", n)
		}
	}
	s.noted = told
}

// give sends an order to the store that is to carry it out. An order that does not arrive is given again.
func (s *Store) give(o schedule.Order, to topology.StoreID) {
	if to == s.o.ID {
		s.takeOrder(o)
		return
	}
	if to == 0 {
		return
	}
	s.wg.Go(func() { s.ask(s.ctx, to, message{Order: &o}, nil) })
}

// takeOrder leaves an order to the goroutine that carries orders out, one after the other. While that one is busy the
// order is left out: it comes again.
func (s *Store) takeOrder(o schedule.Order) {
	select {
	case s.orders <- o:
	default:
	}
}

// carryOut carries out the orders of meta's leader until the store closes.
func (s *Store) carryOut() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case o := <-s.orders:
			r := s.replicas.get(o.Region)
			if r == nil || r.Bounds().Version != o.Version || s.failed() != nil {
				continue
			}
			if err := s.obey(r, o); err != nil && s.ctx.Err() == nil {
				s.tell("%s: %v", o, err)
			}
		}
	}
}

func (s *Store) obey(r *region.Replica, o schedule.Order) error {
	ctx, cancel := context.WithTimeout(s.ctx, 2*stepTime)
	defer cancel()
	if o.Kind == schedule.SplitRegion {
		_, err := s.changes.split(ctx, o.Region, o.Slot, o.Reason)
		return err
	}
	left, _ := r.Region()
	right, err := s.changes.neighbour(&left)
	if err != nil {
		return err
	}
	if right.ID != o.Right || right.Version != o.RightVersion {
		return nil // the order is stale
	}
	if x := s.replicas.get(right.ID); x == nil || time.Since(x.Thawed()) < heldRest {
		return nil // it comes again
	}
	_, err = s.changes.merge(ctx, o.Region, o.Reason, new(time.Duration))
	return err
}
