package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// This file has migrations of slots as clients of a Redis Cluster see them: see route.Window. A migration has these
// steps, of which the first four are taken by Inject, and the others by a goroutine of the cluster:
//
//	split    at the borders of the slots; the new regions stay with the leader
//	open     the window is on the map
//	learn    the two stores know of it: To takes commands with ASKING
//	begin    From sends clients on
//	wait     for the migration's time
//	move     To gets the lead of the regions, one after the other, and keeps it
//	close    the window goes from the map
//
// What ends the process ends the goroutine, and the regions have leaders of later terms then. So meta's leader takes
// the window off the map, as after any loss of the lead.

// migrations carries out migrations of slots.
type migrations struct {
	*core
	places  *placeSet
	regions *regions
	leaders *leaders
	changes *changes
	power   *power

	beginning chan struct{} // has one place: for the migration that begins
}

// learnTime bounds how long the two stores of a migration may take to learn of it.
const learnTime = 5 * time.Second

// windows returns the windows of the newest map that a store knows, by slots. known says that one knows a map.
func (g *migrations) windows() (all []route.Window, known bool) {
	t := g.places.all().newest()
	if t == nil {
		return nil, false
	}
	all = slices.Clone(t.Windows)
	slices.SortFunc(all, func(a, b route.Window) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	return all, true
}

// migrate begins a migration, and returns when From sends the first clients on; or calls migrations off.
func (g *migrations) migrate(ctx context.Context, f fault.Fault) (outcome string, err error) {
	m := f.Move
	slots := topology.SlotRange{First: topology.Slot(m.First), Last: topology.Slot(m.Last)}
	if m.From == 0 {
		return g.callOff(ctx, func(w *route.Window) bool { return w.Slots.Overlaps(slots) })
	}
	ctx, cancel := context.WithTimeoutCause(ctx, changeWait, fmt.Errorf("the migration has not begun in %s", changeWait))
	defer cancel()
	select {
	case g.beginning <- struct{}{}:
		defer func() { <-g.beginning }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	open, _ := g.windows()
	for _, w := range open {
		if w.Slots.Overlaps(slots) {
			return "", fmt.Errorf("store %d migrates the slots %s to store %d already; \"migrate %s ok\" calls that off", w.From,
				w.Slots, w.To, w.Slots)
		}
	}
	w := route.Window{Slots: slots, From: topology.StoreID(m.From), To: topology.StoreID(m.To), Seed: g.newRand().Uint64(),
		LengthMS: cmp.Or(m.For, fault.DefaultMigration).Milliseconds()}
	if err := g.mayMigrate(&w); err != nil {
		return "", err
	}
	if w.Regions, err = g.carve(ctx, slots, w.From); err != nil {
		return "", err
	}
	if w.ID, err = g.changeWindow(ctx, meta.WindowChange{Open: &w}); err != nil {
		return "", err
	}
	if err = g.begin(ctx, &w); err == nil {
		err = g.power.change(ctx, func() error { // so that Close waits for it
			g.wg.Go(func() { g.seeThrough(w) })
			return nil
		})
	}
	if err != nil {
		g.changeWindow(context.WithoutCancel(ctx), meta.WindowChange{Close: w.ID})
		return "", err
	}
	return fmt.Sprintf("slots %s: store %d sends clients on to store %d by ASK, which leads them in %s", slots, w.From,
		w.To, w.Length()), nil
}

// mayMigrate returns an error unless From leads the window's slots, and To can.
func (g *migrations) mayMigrate(w *route.Window) error {
	for _, r := range g.regions.all() {
		if !r.Slots.Overlaps(w.Slots) {
			continue
		}
		switch leader := g.places.all().LeaderOf(r.ID); {
		case leader == nil:
			return fmt.Errorf("no store leads region %d, which has the slots %s", r.ID, r.Slots)
		case leader.id != w.From:
			return fmt.Errorf("store %d does not lead region %d, which has the slots %s: store %d does", w.From, r.ID, r.Slots,
				leader.id)
		}
		if _, ok := r.PeerOn(w.To); !ok {
			var on []topology.RegionID
			for _, p := range r.Peers {
				on = append(on, topology.RegionID(p.Store))
			}
			return fmt.Errorf("store %d has no replica of region %d, which has the slots %s, and replicas do not move yet; "+
				"want one of stores %s", w.To, r.ID, r.Slots, regionList(on))
		}
	}
	if !g.places.all().At(w.To).running() {
		return fmt.Errorf("store %d does not run", w.To)
	}
	return nil
}

// carve splits regions that a store leads, so that some of them have the slots and no others, and returns these. The
// store leads them all.
func (g *migrations) carve(
	ctx context.Context, slots topology.SlotRange, by topology.StoreID,
) (all []route.WindowRegion, err error) {
	for {
		all = nil
		var wide *topology.Region
		known := 0
		for _, r := range g.regions.all() {
			switch {
			case !r.Slots.Overlaps(slots):
			case r.Slots.First < slots.First || r.Slots.Last > slots.Last:
				wide = &r
			default:
				if _, err := g.leaders.lead(ctx, r.ID, by); err != nil {
					return nil, fmt.Errorf("store %d does not lead region %d: %w", by, r.ID, err)
				}
				x := g.places.all().Replica(by, r.ID)
				if x == nil {
					return nil, fmt.Errorf("store %d does not run", by)
				}
				now, _ := x.Region()
				known += now.Slots.Count()
				_, term, _ := x.Leading()
				all = append(all, route.WindowRegion{ID: now.ID, Slots: now.Slots, Version: now.Version, Term: term})
			}
		}
		switch {
		case wide == nil && known == slots.Count():
			return all, nil
		case wide == nil: // the table of no store has what a change has just made
			if err := g.moment(ctx); err != nil {
				return nil, err
			}
			continue
		}
		at := slots.First
		if wide.Slots.First == at || !wide.Slots.Contains(at) {
			at = slots.Last + 1
		}
		if err := g.changes.atLeader(ctx, wide.ID, func(ctx context.Context, s *store.Store) error {
			if s.ID() != by {
				return fmt.Errorf("store %d leads region %d by now, not store %d", s.ID(), wide.ID, by)
			}
			_, err := s.Split(ctx, wide.ID, at, by, "")
			return err
		}); err != nil {
			return nil, fmt.Errorf("split region %d at slot %d: %w", wide.ID, at, err)
		}
	}
}

// changeWindow has a store that runs change a window of the map.
func (g *migrations) changeWindow(ctx context.Context, x meta.WindowChange) (id uint64, err error) {
	return g.places.all().changeMap(ctx, meta.MapChange{Window: &x})
}

// begin waits until both stores know of a window, and has it begin.
func (g *migrations) begin(ctx context.Context, w *route.Window) error {
	ctx, cancel := context.WithTimeoutCause(ctx, learnTime,
		fmt.Errorf("stores %d and %d have not both learned of the migration in %s", w.From, w.To, learnTime))
	defer cancel()
	if err := g.awaitShown(ctx, w, w.From, w.To); err != nil {
		return err
	}
	w.BeginMS = time.Now().UnixMilli()
	if _, err := g.changeWindow(ctx, meta.WindowChange{Begin: &meta.WindowBegin{ID: w.ID, MS: w.BeginMS}}); err != nil {
		return err
	}
	return g.awaitShown(ctx, w, w.From)
}

// awaitShown waits until stores show a window as it is. The error says that a leader has changed meanwhile, or that ctx
// has ended.
func (g *migrations) awaitShown(ctx context.Context, w *route.Window, stores ...topology.StoreID) error {
	for {
		shown := true
		for _, id := range stores {
			s := g.places.all().At(id).store.Load()
			if s == nil || s.Table() == nil {
				return fmt.Errorf("store %d does not run", id)
			}
			t := s.Table()
			if t.Over(w) > 0 {
				return fmt.Errorf("store %d has lost the lead of some of the slots, or they lie in other regions", w.From)
			}
			for _, r := range w.Regions {
				x := t.Window(route.Port{Store: id}, r.Slots.First)
				shown = shown && x != nil && x.ID == w.ID && x.BeginMS == w.BeginMS
			}
		}
		if shown {
			return nil
		}
		if err := g.moment(ctx); err != nil {
			return err
		}
	}
}

// callOff takes windows off the map before their regions have moved. It says which.
func (g *migrations) callOff(ctx context.Context, which func(*route.Window) bool) (outcome string, err error) {
	n := 0
	open, _ := g.windows()
	for _, w := range open {
		if !which(&w) {
			continue
		}
		if _, err := g.changeWindow(ctx, meta.WindowChange{Close: w.ID}); err != nil {
			return "", err
		}
		n++
	}
	if n == 0 {
		return "none of the slots migrate", nil
	}
	return fmt.Sprintf("migrations that are called off: %d", n), nil
}

// seeThrough waits for the end of a migration, and then moves the lead of its regions.
func (g *migrations) seeThrough(w route.Window) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.event(eventRegion, "slots %s: store %d shows clients a migration to store %d, for %s", w.Slots, w.From, w.To,
		w.Length())
	err := g.waitMigration(ctx, &w)
	for i := 0; i < len(w.Regions) && err == nil; i++ {
		if leader := g.places.all().LeaderOf(w.Regions[i].ID); leader == nil || leader.id != w.From {
			err = fmt.Errorf("store %d does not lead region %d any more", w.From, w.Regions[i].ID)
		} else {
			_, err = g.leaders.transfer(ctx, fault.Fault{Verb: fault.Transfer, Region: int(w.Regions[i].ID), To: int(w.To)})
		}
	}
	if errors.Is(err, ErrClosed) {
		return
	}
	if err != nil {
		g.event(eventRegion, "slots %s: the migration is called off: %v", w.Slots, err)
	} else {
		g.event(eventRegion, "slots %s have migrated to store %d", w.Slots, w.To)
	}
	g.changeWindow(ctx, meta.WindowChange{Close: w.ID})
}

// waitMigration waits until the time of a window is over. The error says why the window has ended before.
func (g *migrations) waitMigration(ctx context.Context, w *route.Window) error {
	for {
		open, known := g.windows()
		if known && !slices.ContainsFunc(open, func(x route.Window) bool { return x.ID == w.ID }) {
			for s := range g.places.all().Running() {
				if t := s.Table(); t != nil && t.Over(w) > 0 {
					return fmt.Errorf("store %d has lost the lead of some of the slots, or they lie in other regions", w.From)
				}
			}
			return errors.New("by command")
		}
		left := time.Until(w.End())
		if left <= 0 {
			return nil
		}
		select {
		case <-g.closing:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(left, lookAgain)):
		}
	}
}

// lookAgain is how often the cluster looks whether a migration has been called off.
const lookAgain = 50 * time.Millisecond
