package cluster

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/topology"
)

// wipes has stores come back empty, whose disks are gone or are to be emptied. It is two calls to meta, and what the
// folder of the store says in between:
//
//	order   meta notes the wipe, with a floor: smaller ids of replicas end on the store. Until the next step the store
//	        may run on with what it has, also in another start of the process.
//	empty   the store is stopped. Its record says that the folder is empty, and has a number that was drawn; all else in
//	        the folder is deleted. What a crash leaves of that is emptied again.
//	begin   as the store opens, meta notes the number; a folder with another one never begins. Then the store takes part,
//	        with no replica, and its record says no longer that it is empty.
//	refill  the leaders of regions give the store new replicas in the place of those that have ended: moves.renew in
//	        package store. Meta's leader does so for meta, and closes the wipe.
//
// So what is to be done follows from the map and the folder: run goes on with a wipe that nobody carries out, also
// after a start of the process. All methods may run concurrently.
type wipes struct {
	*core
	places  *placeSet
	regions *regions
	power   *power
}

const (
	wipeTick  = 500 * time.Millisecond // how often run looks
	beginWait = 5 * time.Second        // bounds the call of a store that begins to meta
	// mostBehind is how many entries the other replicas may be behind when a wipe is ordered.
	mostBehind = 1000
)

// wipe returns the last wipe of a store, as of the newest map that other stores know; nil for none.
func (p Places) wipe(id topology.StoreID) (w *topology.Wipe) {
	newest := uint64(0)
	for s := range p.Running() {
		t := s.Table()
		if s.ID() == id || t == nil || t.Version < newest {
			continue
		}
		newest, w = t.Version, nil
		for i := range t.Wipes {
			if t.Wipes[i].Store == id {
				w = &t.Wipes[i]
			}
		}
	}
	return w
}

// renew empties the store's folder if a wipe says so: one that the folder is not of, or that the store has not begun
// with it. The store must not run.
func (n *Place) renew() error {
	w := n.places.all().wipe(n.id)
	had := n.wipedBefore()
	switch {
	case had.Empty && (w == nil || w.Nth <= had.Nth && (w.Begun == 0 || w.Begun == had.Nonce)):
		return n.empty(had)
	case w != nil && w.Begun == 0 && (had.Nth < w.Nth || had.Empty):
		nonce := uint64(0)
		for random := n.newRand(); nonce == 0; {
			nonce = random.Uint64()
		}
		return n.empty(disk.Wiped{Nth: w.Nth, Floor: uint64(w.Floor), Nonce: nonce, Empty: true})
	}
	return nil
}

// wipedBefore returns what the store's folder has of a wipe. It has nothing if the folder is foreign, or too old.
func (n *Place) wipedBefore() (w disk.Wiped) {
	i, err := disk.ReadStoreRecord(n.fs, n.dir)
	if err == nil && i.Wiped != nil && i.Cluster == hex.EncodeToString(n.identity[:]) && i.Store == uint16(n.id) &&
		i.Copy == n.copy && i.Boot >= n.boots.last(n.id) {
		w = *i.Wiped
	}
	return w
}

// empty deletes all that the store has, and notes of which wipe its folder is.
func (n *Place) empty(w disk.Wiped) error {
	err := n.fs.Empty(n.At(), disk.StoreRecord{Cluster: hex.EncodeToString(n.identity[:]), Copy: n.copy,
		Store: uint16(n.id), Boot: n.boots.current(), Boots: n.boots.all(), Wiped: &w})
	if j := n.journal.now.Load(); err == nil && j != nil {
		err = j.Forget(uint16(n.id)) // the logs to come have names that were used before
	}
	if err != nil {
		return fmt.Errorf("store %d: empty its folder: %w", n.id, err)
	}
	return nil
}

// errEmpty is why a store whose folder is empty does not start with the others: it needs them to begin.
var errEmpty = errors.New("it was wiped, and begins when the other stores serve")

// begin has meta note that the store, whose folder is empty, begins with it.
func (n *Place) begin() error {
	ctx, cancel := context.WithTimeout(context.Background(), beginWait)
	defer cancel()
	_, err := n.places.all().changeMap(ctx, meta.MapChange{Wipe: &meta.WipeChange{Begin: &meta.WipeBegin{
		Store: n.id, Nth: n.wiped.Nth, Nonce: n.wiped.Nonce}}})
	if err != nil {
		return fmt.Errorf("it was wiped, and cannot begin: %w", err)
	}
	return nil
}

// wipe has a store come back empty. It returns when all its replicas are back. If ctx ends before, the wipe goes on.
func (x *wipes) wipe(ctx context.Context, f fault.Fault) (outcome string, err error) {
	n := x.places.all().At(topology.StoreID(f.To))
	last := x.places.all().wipe(n.id)
	if last == nil || last.Done || !n.running() {
		if err := x.check(n); err != nil {
			return "", err
		}
		nth := uint64(0)
		if last != nil {
			nth = last.Nth
		}
		if nth, err = x.order(ctx, n, nth); err != nil {
			return "", err
		}
		x.event(eventCluster, "store %d is wiped: its folder is emptied, and its replicas are made anew", n.id)
		for { // until another store knows
			if last = x.places.all().wipe(n.id); last != nil && last.Nth >= nth {
				break
			}
			if err := x.moment(ctx); err != nil {
				return "", err
			}
		}
		if err := x.carryOut(ctx, n); err != nil {
			return "", err
		}
	}
	for nth := last.Nth; ; {
		switch w := x.places.all().wipe(n.id); {
		case w == nil: // no other store has a map at the moment
		case w.Nth > nth:
			return "", fmt.Errorf("store %d is wiped once more", n.id)
		case w.Done:
			return fmt.Sprintf("store %d has come back empty, and its replicas have been made anew", n.id), nil
		}
		if err := n.Failure(); err != nil {
			return "", err
		}
		if err := x.moment(ctx); err != nil {
			return "", err
		}
	}
}

// order orders a wipe of a store that was wiped after times before, and returns which wipe it is.
func (x *wipes) order(ctx context.Context, n *Place, after uint64) (nth uint64, err error) {
	return x.places.all().changeMap(ctx, meta.MapChange{Wipe: &meta.WipeChange{Order: &meta.WipeOrder{
		Store: n.id, After: after, MS: time.Now().UnixMilli()}}})
}

// carryOut stops a store, if it runs, and starts it again with an empty folder.
func (x *wipes) carryOut(ctx context.Context, n *Place) error {
	return x.power.change(ctx, func() error {
		if w := x.places.all().wipe(n.id); n.running() && (w == nil || n.wiped.Nth >= w.Nth) {
			return nil // somebody else has done it
		}
		return x.power.startStores(ctx, Places{n}, fault.Fault{})
	})
}

// check returns an error that lists why the cluster cannot do without what a store has.
func (x *wipes) check(n *Place) error {
	var wrong []error
	runs := func(id topology.StoreID) bool { at := x.places.all().At(id); return at != nil && at.running() }
	members, up := meta.Members(x.founders()), 0
	for _, p := range members {
		if p.Store != n.id && runs(p.Store) {
			up++
		}
	}
	if meta.IsMember(x.founders(), n.id) && 2*up <= len(members) {
		wrong = append(wrong, fmt.Errorf("without store %d, %d of the %d stores with a replica of the cluster map are up, "+
			"which is no majority", n.id, up, len(members)))
	}
	for _, r := range x.regions.all() {
		if _, ok := r.PeerOn(n.id); !ok {
			continue
		}
		applied := uint64(0)
		for _, p := range r.Peers {
			if replica := x.places.all().Replica(p.Store, r.ID); replica != nil {
				applied = max(applied, replica.Applied())
			}
		}
		voters, up, why := 0, 0, ""
		for _, p := range r.Peers {
			if p.Role == topology.Joining {
				continue
			}
			voters++
			if p.Store == n.id {
				continue
			}
			replica := x.places.all().Replica(p.Store, r.ID)
			switch {
			case replica == nil || !replica.Running() || !runs(p.Store):
				why = cmp.Or(why, fmt.Sprintf("; that on store %d does not run", p.Store))
			case replica.Applied()+mostBehind < applied:
				why = cmp.Or(why, fmt.Sprintf("; that on store %d is %d entries behind", p.Store, applied-replica.Applied()))
			default:
				up++
			}
		}
		switch {
		case voters == 1:
			wrong = append(wrong, fmt.Errorf("region %d has no other replica than that on store %d", r.ID, n.id))
		case 2*up <= voters:
			wrong = append(wrong, fmt.Errorf("region %d: without that on store %d, %d of its %d replicas are up and near the "+
				"end of the log, which is no majority%s", r.ID, n.id, up, voters, why))
		}
	}
	return errors.Join(wrong...)
}

// run goes on with wipes that nobody carries out: those that were ordered before a start of the process, or whose first
// try has failed. rebuild is the store that is to be wiped if it does not run, 0 for none. It returns when the cluster
// closes.
func (x *wipes) run(rebuild topology.StoreID) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.wg.Go(func() {
		select {
		case <-x.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	told := make(map[topology.StoreID]string)
	tick := time.NewTicker(wipeTick)
	defer tick.Stop()
	for {
		for _, n := range x.places.all() {
			var err error
			switch {
			case x.due(n):
				err = x.carryOut(ctx, n)
			case n.id == rebuild && n.running():
				rebuild = 0
			case n.id == rebuild:
				err = x.rebuild(ctx, n)
			}
			if err != nil && ctx.Err() == nil && told[n.id] != err.Error() {
				told[n.id] = err.Error()
				x.tell(fmt.Sprintf("store %d is not rebuilt yet: %s", n.id, oneLine(err)))
			}
		}
		select {
		case <-tick.C:
		case <-x.closing:
			return
		}
	}
}

// rebuild orders a wipe of a store that does not run. due has it carried out.
func (x *wipes) rebuild(ctx context.Context, n *Place) error {
	last := x.places.all().wipe(n.id)
	if last != nil && last.Begun == 0 {
		return nil // it has been ordered
	}
	if err := x.check(n); err != nil {
		return err
	}
	nth := uint64(0)
	if last != nil {
		nth = last.Nth
	}
	if _, err := x.order(ctx, n, nth); err != nil {
		return err
	}
	x.tell(fmt.Sprintf("store %d is rebuilt: its folder is emptied, and its replicas are made anew", n.id))
	return nil
}

// due reports whether a store has to be emptied, or to begin, and nobody has stopped it on purpose.
func (x *wipes) due(n *Place) bool {
	n.mu.Lock()
	runs, stopped, wiped := !n.down && n.failure == nil, n.faults.process != "", n.wiped
	n.mu.Unlock()
	w := x.places.all().wipe(n.id)
	switch {
	case stopped || w == nil:
		return false
	case w.Begun == 0:
		return !runs || wiped.Nth < w.Nth
	}
	return !runs && wiped.Empty && wiped.Nonce == w.Begun
}

// all returns the last wipe of each store, by the newest map that any store knows.
func (x *wipes) all() (all []topology.Wipe) {
	if t := x.places.all().newest(); t != nil {
		return t.Wipes
	}
	return nil
}
