// Package schedule decides which regions are split and which are merged. Plan is a pure function from a survey of the
// cluster to orders and notes; a Planner keeps what it needs to know from earlier surveys. Nothing here touches Raft, a
// clock or a network: who has the reports of the stores makes the survey, and who drives splits and merges takes the
// orders. The package also has what a store measures with: SlotSampler, BisectSize and Smooth.
//
// What keeps it stable:
//
//   - Loads are smoothed, and must be beyond a limit for a while without a break.
//   - Two neighbours are merged only if they have less than a quarter of what would have them split again. A split
//     leaves at least a quarter on each side of it, or more than the limit, so neither undoes the other.
//   - A merge waits until the bounds of both have been as they are for a while.
//   - A region changes in one way at a time, and only so many do at once.
package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Policy has the limits.
type Policy struct {
	MaxBytes   settings.Bytes // a region with more is split; 0: none
	MergeBytes settings.Bytes // neighbours with less together are merged; 0: none
	SplitLoad  float64        // commands per second; a region with more is split; 0: none
	MergeLoad  float64        // commands per second; only neighbours with less together are merged

	Fewest int // regions that merges leave at least
	Most   int // regions that there may be
	AtOnce int // changes that may be on their way at once

	Sustain  time.Duration // how long a region is over a limit before it is split
	Calm     time.Duration // how long neighbours are small and quiet before they are merged
	Cooldown time.Duration // how long the bounds of both are unchanged before they are merged
}

// mostRegions is the largest value of cluster.regions, which is what a cluster is made to hold.
const mostRegions = 1024

// quiet is MergeLoad if load splits nothing: a merge stops a region for a moment, which should not matter to many.
const quiet = 1000

// PolicyOf returns the policy of the settings. The times are not settings: nobody needs to tune them.
func PolicyOf(s *settings.Settings) Policy {
	return Policy{
		MaxBytes: s.Region.MaxBytes, MergeBytes: s.Region.MergeBytes, SplitLoad: float64(s.Region.SplitLoad),
		MergeLoad: quiet, Fewest: s.Cluster.Regions, Most: mostRegions, AtOnce: 2,
		Sustain: 10 * time.Second, Calm: time.Minute, Cooldown: 10 * time.Minute,
	}
}

// Merges have to stay below this share of what is split.
const hysteresis = 4

// A split must leave this share on the lighter side, or more than the limit.
const lightest = 0.25

// fewestSamples is how many sampled commands it takes to choose a slot. The error of a share is then a tenth or so.
const fewestSamples = 32

// Survey is what is known of the cluster at one time.
type Survey struct {
	Now     time.Time
	Policy  Policy
	Regions []Surveyed                // all of them, by first slot
	Alive   map[topology.StoreID]bool // the stores that are well
	History History                   // of Planner, this survey included
	Open    []Order                   // that have been given and are not done
}

// Surveyed is a region in a survey. Nothing in it is changed by this package.
type Surveyed struct {
	ID      topology.RegionID
	Slots   topology.SlotRange
	Version uint64             // of the bounds
	Stores  []topology.StoreID // of its replicas, sorted
	// Changing says that a split, a merge or a change of its replicas is open, of which it is a part.
	Changing bool
	// Migrates says that clients are shown a migration of it, which a change of its bounds would end.
	Migrates bool
	// ChangedAt is when its bounds changed last. Zero: longer ago than anybody knows.
	ChangedAt time.Time
	// Pinned says that a user has made its left bound. No merge that Plan makes takes the bound away.
	Pinned bool
	Load   RegionLoad
}

// RegionLoad is what the leader of a region reports of it. All but the samples is smoothed.
type RegionLoad struct {
	Version  uint64   // of the bounds that it was measured under; a report of other bounds does not count
	Bytes    float64  // in the tables of a store
	Commands float64  // per second
	Sizes    []Weight // where the bytes lie, by BisectSize
	Slots    []Weight // where the commands go, in samples, by SlotSampler
}

// measured says whether there is a load of the region as it is.
func (r *Surveyed) measured() bool { return r.Load.Version == r.Version }

// On reports whether the policy ever splits or merges anything.
func (p *Policy) On() bool { return p.MaxBytes > 0 || p.MergeBytes > 0 || p.SplitLoad > 0 }

// Wants says which samples a report of the load should have: those of what comes near to a limit. The others are not
// looked at.
func (p *Policy) Wants(l *RegionLoad) (sizes, slots bool) {
	near := func(x, limit float64) bool { return limit > 0 && x > limit*3/4 }
	return near(l.Bytes, float64(p.MaxBytes)), near(l.Commands, p.SplitLoad)
}

// Note says what the policy would do and cannot.
type Note struct {
	Region topology.RegionID
	About  NoteKind // notes of one region and kind are the same thing, although numbers in the text change
	Text   string
}

// NoteKind says what a note is about.
type NoteKind string

// The kinds of notes.
const (
	HotSlot     NoteKind = "hot slot"
	LargeSlot   NoteKind = "large slot"
	NoSamples   NoteKind = "no samples"
	NoRoom      NoteKind = "no room"
	NoMerge     NoteKind = "no merge"
	OrderFailed NoteKind = "order failed"
)

func (n Note) String() string { return fmt.Sprintf("region %d: %s", n.Region, n.Text) }

// Plan returns what shall happen next, splits first, the most urgent ones first; and what cannot happen. It plans
// nothing for regions of open orders, and no more than Policy.AtOnce with these and with what is changing already.
func Plan(s Survey) (orders []Order, notes []Note) {
	x := planning{s: &s, taken: map[topology.RegionID]bool{}, count: len(s.Regions)}
	x.room = s.Policy.AtOnce - len(s.Open)
	for _, o := range s.Open {
		x.taken[o.Region], x.taken[o.Right] = true, true
		if o.Kind == SplitRegion {
			x.count++
		}
	}
	for i := range s.Regions {
		if r := &s.Regions[i]; r.Changing && !x.taken[r.ID] {
			x.room--
		}
	}
	x.splits()
	x.merges()
	slices.SortStableFunc(x.notes, func(a, b Note) int { return cmp.Compare(a.Region, b.Region) })
	return x.orders, x.notes
}

// planning is the state of one Plan.
type planning struct {
	s      *Survey
	taken  map[topology.RegionID]bool // regions of orders, open or new
	room   int                        // for further orders
	count  int                        // of the regions, with the children of splits that are on their way
	orders []Order
	notes  []Note
}

func (x *planning) note(r *Surveyed, about NoteKind, format string, args ...any) {
	x.notes = append(x.notes, Note{r.ID, about, fmt.Sprintf(format, args...)})
}

// give gives an order if there is room for it.
func (x *planning) give(o Order) bool {
	if x.room <= 0 || x.taken[o.Region] || o.Kind == MergeRegion && x.taken[o.Right] {
		return false
	}
	x.room--
	x.taken[o.Region] = true
	if o.Kind == MergeRegion {
		x.taken[o.Right] = true
	}
	x.orders = append(x.orders, o)
	return true
}

// dueOrder is an order that could be given.
type dueOrder struct {
	Order
	over    string // which limit a split is for
	urgency float64
}

func sortDue(due []dueOrder) {
	slices.SortStableFunc(due, func(a, b dueOrder) int { return cmp.Compare(b.urgency, a.urgency) })
}

func (x *planning) splits() {
	var due []dueOrder
	for i := range x.s.Regions {
		if d, ok := x.split(&x.s.Regions[i]); ok {
			due = append(due, d)
		}
	}
	sortDue(due)
	for _, d := range due {
		if x.count >= x.s.Policy.Most {
			i := x.s.index(d.Region)
			x.note(&x.s.Regions[i], NoRoom, "%s, but there are %d regions, and there may be no more", d.over, x.count)
			continue
		}
		if x.give(d.Order) {
			x.count++
		}
	}
}

// split returns the split of a region that is over a limit, if there is one that helps.
func (x *planning) split(r *Surveyed) (dueOrder, bool) {
	s, p := x.s, &x.s.Policy
	since := s.History[r.ID]
	if since.Version != r.Version || !since.Rests.IsZero() || x.taken[r.ID] || !r.measured() || s.obstacle(r) != "" {
		return dueOrder{}, false
	}
	long := func(t time.Time) bool { return !t.IsZero() && s.Now.Sub(t) >= p.Sustain }
	if long(since.Large) {
		over := fmt.Sprintf("%s, more than region.max_bytes %s", sizeText(r.Load.Bytes), p.MaxBytes)
		if d, ok := x.cutFor(r, LargeSlot, over, r.Load.Bytes, float64(p.MaxBytes), r.Load.Sizes, sizeText); ok {
			return d, true
		}
	}
	if long(since.Busy) {
		over := fmt.Sprintf("%s, more than region.split_load %.0f", loadText(r.Load.Commands), p.SplitLoad)
		sampled := 0.0
		for _, w := range within(r.Slots, r.Load.Slots) {
			sampled += w.Amount
		}
		if sampled < fewestSamples && r.Slots.Count() > 1 {
			x.note(r, NoSamples, "%s, but only %.0f of its commands were sampled, fewer than %d: no slot to split at", over,
				sampled, fewestSamples)
			return dueOrder{}, false
		}
		return x.cutFor(r, HotSlot, over, r.Load.Commands, p.SplitLoad, r.Load.Slots, loadText)
	}
	return dueOrder{}, false
}

// cutFor looks for the slot that halves what a region has too much of. A split helps if both sides get a fair share, or
// if the lighter one is still over the limit by itself, so that it will be split, too.
func (x *planning) cutFor(r *Surveyed, hot NoteKind, over string, amount, limit float64, weights []Weight,
	text func(float64) string) (dueOrder, bool) {
	if r.Slots.Count() == 1 {
		x.note(r, hot, "%s, all in slot %s: a slot is never split", over, r.Slots)
		return dueOrder{}, false
	}
	c := bestCut(r.Slots, weights)
	if c.lesser() < lightest && c.lesser()*amount <= limit {
		top, share := heaviest(r.Slots, weights)
		x.note(r, hot, "%s, but slot %s alone takes %.0f %% of that: a slot is never split", over, top.Slots, 100*share)
		return dueOrder{}, false
	}
	reason := fmt.Sprintf("%s; %s stay", over, text(c.left*amount))
	if len(within(r.Slots, weights)) == 0 {
		reason = over + "; nothing is known of its slots, so in the middle"
	}
	o := Order{Kind: SplitRegion, Region: r.ID, Slot: c.slot, Version: r.Version, Reason: reason}
	return dueOrder{o, over, amount / limit}, true
}

func (x *planning) merges() {
	s, p := x.s, &x.s.Policy
	fewest := len(s.Regions) // once all merges on their way are done
	for _, o := range s.Open {
		if o.Kind == MergeRegion {
			fewest--
		}
	}
	var due []dueOrder
	for i := range s.Regions[:max(len(s.Regions)-1, 0)] {
		l, r := &s.Regions[i], &s.Regions[i+1]
		since := s.History[l.ID]
		small := since.Version == l.Version && since.Right == r.ID && since.RightVersion == r.Version &&
			!since.Small.IsZero() && s.Now.Sub(since.Small) >= p.Calm
		cool := s.Now.Sub(l.ChangedAt) >= p.Cooldown && s.Now.Sub(r.ChangedAt) >= p.Cooldown
		if !small || !cool || r.Pinned || x.taken[l.ID] || x.taken[r.ID] || fewest <= p.Fewest ||
			!since.Rests.IsZero() || !s.History[r.ID].Rests.IsZero() || s.obstacle(l) != "" || s.obstacle(r) != "" {
			continue
		}
		if why := apart(l, r); why != "" {
			x.note(l, NoMerge, "it is small together with region %d, but %s", r.ID, why)
			continue
		}
		bytes, load := l.Load.Bytes+r.Load.Bytes, l.Load.Commands+r.Load.Commands
		o := Order{Kind: MergeRegion, Region: l.ID, Slot: r.Slots.First, Version: l.Version, Right: r.ID,
			RightVersion: r.Version, Reason: fmt.Sprintf("together %s, less than %s, and %s", sizeText(bytes),
				settings.Bytes(p.mergeBytes()), loadText(load))}
		due = append(due, dueOrder{Order: o, urgency: -bytes})
	}
	sortDue(due)
	for _, d := range due {
		if fewest > p.Fewest && x.give(d.Order) {
			fewest--
		}
	}
}

// small says whether two neighbours are small and quiet enough to be one.
func (p *Policy) small(l, r *Surveyed) bool {
	return l.measured() && r.measured() && l.Load.Bytes+r.Load.Bytes < p.mergeBytes() &&
		l.Load.Commands+r.Load.Commands < p.mergeLoad()
}

// mergeBytes and mergeLoad are what merges stay below.
func (p *Policy) mergeBytes() float64 { return share(float64(p.MergeBytes), float64(p.MaxBytes)) }
func (p *Policy) mergeLoad() float64  { return share(p.MergeLoad, p.SplitLoad) }

func share(limit, split float64) float64 {
	if split == 0 {
		return limit
	}
	return min(limit, split/hysteresis)
}

// obstacle says why the bounds of a region cannot change now, or nothing.
func (s *Survey) obstacle(r *Surveyed) string {
	if r.Changing {
		return "another change of it is open"
	}
	if r.Migrates {
		return "clients are shown a migration of it"
	}
	for _, store := range r.Stores {
		if !s.Alive[store] {
			return fmt.Sprintf("store %d, which has a replica, is not well", store)
		}
	}
	return ""
}

// apart says why two neighbours can never be merged as they are, or nothing.
func apart(l, r *Surveyed) string {
	if !slices.Equal(l.Stores, r.Stores) {
		return fmt.Sprintf("regions %d and %d have replicas on different stores, %v and %v", l.ID, r.ID, l.Stores, r.Stores)
	}
	return ""
}

// index returns where a region is in Regions, -1 if it is not.
func (s *Survey) index(id topology.RegionID) int {
	return slices.IndexFunc(s.Regions, func(r Surveyed) bool { return r.ID == id })
}

// begins says whether a region begins at a slot.
func (s *Survey) begins(slot topology.Slot) bool {
	_, found := slices.BinarySearchFunc(s.Regions, slot,
		func(r Surveyed, slot topology.Slot) int { return cmp.Compare(r.Slots.First, slot) })
	return found
}

// sizeText prints bytes with one decimal at most: 1.3GiB, 900MiB, 12B.
func sizeText(bytes float64) string {
	unit := 0
	for ; bytes >= 1024 && unit < 4; unit++ {
		bytes /= 1024
	}
	return number(bytes) + []string{"B", "KiB", "MiB", "GiB", "TiB"}[unit]
}

// loadText prints commands per second.
func loadText(commands float64) string { return number(commands) + " commands/s" }

// number prints a number with one decimal at most, and none from 10 on.
func number(x float64) string {
	if x >= 9.95 {
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
}
