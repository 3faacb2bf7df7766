package fault

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/settings"
)

// DrawOptions say what schedules Draw makes.
type DrawOptions struct {
	Stores, Regions int           // of the cluster; regions that are there at times
	Length          time.Duration // of the schedule; all of it has ended by then
	Verbs           []Verb        // which faults happen; Drawn lists the allowed ones, and Transfer allows StepDown, too
	Gap             time.Duration // the mean time between two events of one verb
	Slots           []int         // before which regions are split; nil for any
}

// Drawn returns the verbs that Draw can draw.
func Drawn() (all []Verb) {
	for _, row := range rows {
		if row.draw != nil {
			all = append(all, row.verb)
		}
	}
	return all
}

// Draw makes a schedule at random: for each verb a sequence of events of its own, with gaps between them that are
// distributed exponentially. Faults of different verbs overlap. All that happens follows from r and o.
func Draw(r *rand.Rand, o DrawOptions) Schedule {
	var all Schedule
	for _, v := range Drawn() {
		own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) // so that a verb more or less does not shift the others
		if !slices.Contains(o.Verbs, v) {
			continue
		}
		at := gap(own, o.Gap)
		for at < o.Length {
			e := FaultEvent{At: at, Fault: Fault{Verb: v}}
			if e.Fault.Lasts() {
				e.For = min(upTo(own, 20*time.Millisecond, 2*time.Second), max(o.Length-at, time.Millisecond))
			}
			rowOf(v).draw(own, o, &e.Fault)
			all = append(all, e)
			if e.Fault.Disk.Fails() { // a good disk alone does not start the store
				again := Fault{Verb: Restart, Stores: e.Fault.Stores}
				all = append(all, FaultEvent{At: e.At + e.For + time.Millisecond, Fault: again})
			}
			at += e.For + gap(own, o.Gap)
		}
	}
	slices.SortStableFunc(all, func(a, b FaultEvent) int { return cmp.Compare(a.At, b.At) })
	return all
}

// gap draws a time with a mean.
func gap(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean)).Truncate(time.Millisecond)
}

// upTo draws a time between two, whole milliseconds.
func upTo(r *rand.Rand, from, to time.Duration) time.Duration {
	return (from + time.Duration(r.Int64N(int64(to-from)+1))).Truncate(time.Millisecond)
}

// one draws a store.
func one(r *rand.Rand, o DrawOptions) []int { return []int{1 + r.IntN(o.Stores)} }

func drawOne(r *rand.Rand, o DrawOptions, f *Fault) { f.Stores = one(r, o) }

// drawKill kills one store, or all at once, between two steps or in the middle of a sync.
func drawKill(r *rand.Rand, o DrawOptions, f *Fault) {
	if r.IntN(4) > 0 {
		f.Stores = one(r, o)
	}
	f.Kill.Keep = []Portion{0, 0, 0.5, 1}[r.IntN(4)]
	if r.IntN(4) > 0 {
		f.Kill.Sync = 1 + r.IntN(30)
	}
}

// drawTransfer moves a leader to some store, or away from where it is.
func drawTransfer(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Region, f.To = 1+r.IntN(o.Regions), 1+r.IntN(o.Stores)
	if r.IntN(3) == 0 {
		f.Verb, f.To = StepDown, 0
	}
}

// drawPartition cuts one store off from all others or from one.
func drawPartition(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Stores = one(r, o)
	if o.Stores > 2 && r.IntN(2) == 0 {
		other := 1 + r.IntN(o.Stores-1)
		if other >= f.Stores[0] {
			other++
		}
		f.Others = []int{other}
	}
}

// drawLink makes the links of one store bad, or all links.
func drawLink(r *rand.Rand, o DrawOptions, f *Fault) {
	if r.IntN(3) > 0 {
		drawPartition(r, o, f)
	}
	f.OneWay = r.IntN(3) == 0
	n := &f.Link
	switch r.IntN(5) {
	case 0:
		n.Cut = true
	case 1:
		n.Delay = upTo(r, time.Millisecond, 60*time.Millisecond)
		n.Jitter = upTo(r, 0, 60*time.Millisecond)
	case 2:
		n.Bandwidth = settings.Bytes(16<<10) << r.IntN(8)
	default:
		n.Loss = Portion(r.IntN(30)) / 100
		n.Duplicate = Portion(r.IntN(30)) / 100
		n.Reorder = Portion(r.IntN(31)) / 100
		if *n == (Net{}) {
			n.Loss = 0.01
		}
	}
}

func drawNetwork(_ *rand.Rand, _ DrawOptions, f *Fault) { f.Matrix = "3 regions" }

// drawDisk makes the disk of one store slow, or hang, or fail.
func drawDisk(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Stores = one(r, o)
	d := &f.Disk
	switch r.IntN(9) {
	case 0:
		d.Latency = upTo(r, time.Millisecond, 50*time.Millisecond)
		d.Jitter = upTo(r, 0, 50*time.Millisecond)
	case 1, 2:
		d.Hang = true
	case 3:
		d.Bandwidth = settings.Bytes(64<<10) << r.IntN(8)
	case 4:
		if d.Full = r.IntN(2) == 0; !d.Full {
			d.Free = settings.Bytes(64<<10) << r.IntN(5)
		}
	case 5:
		d.ReadErrors = true
	case 6:
		if d.WriteErrors = r.IntN(2) == 0; !d.WriteErrors {
			d.SyncErrors = true
		}
	case 7:
		d.Short = 1 + r.IntN(2*ShortTries)
	default:
		d.FlippedBit = true
	}
}

func drawClock(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Stores = one(r, o)
	for f.Ahead == 0 {
		f.Ahead = upTo(r, 0, 10*time.Second) - 5*time.Second
	}
}

func drawClients(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Stores = one(r, o)
	c := &f.Client
	switch r.IntN(3) {
	case 0:
		c.Refuse = true
	case 1:
		c.Reset = true
	default:
		c.Bandwidth = settings.Bytes(1<<10) << r.IntN(8)
	}
}

// drawSplit draws the region and the slot apart. Which regions there are at that time is not known here: whoever
// carries the schedule out splits the region that has the slot.
func drawSplit(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Region = 1 + r.IntN(o.Regions)
	if o.Slots != nil {
		f.Slot = o.Slots[r.IntN(len(o.Slots))]
	} else {
		f.Slot = 1 + r.IntN(maxSlot)
	}
}

// drawMerge draws a region, which takes its right neighbour over.
func drawMerge(r *rand.Rand, o DrawOptions, f *Fault) { f.Region = 1 + r.IntN(o.Regions) }

// drawMove draws a region and two stores. Where the region's replicas are at that time is not known here: whoever
// carries the schedule out takes other stores.
func drawMove(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Region, f.From = 1+r.IntN(o.Regions), 1+r.IntN(o.Stores)
	if f.To = 1 + r.IntN(max(o.Stores-1, 1)); f.To >= f.From {
		f.To++
	}
}

// drawAdd and drawRemove draw a region and a store, which are taken as those of drawMove.
func drawAdd(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Region, f.To = 1+r.IntN(o.Regions), 1+r.IntN(o.Stores)
}

func drawRemove(r *rand.Rand, o DrawOptions, f *Fault) {
	f.Region, f.From = 1+r.IntN(o.Regions), 1+r.IntN(o.Stores)
}

// drawFail draws an error that clients take for passing. The commands are not those of transactions: where MULTI alone
// is refused, what follows it in a pipeline takes effect at once.
func drawFail(r *rand.Rand, o DrawOptions, f *Fault) {
	if r.IntN(2) == 0 {
		f.Stores = one(r, o)
	}
	f.Refuse = Refusal{
		Command: []string{"GET", "SET", "APPEND", "DEL", "INCRBY", "EVAL"}[r.IntN(6)],
		Share:   Portion(1+r.IntN(50)) / 100,
		Error:   "LOADING Redis is loading the dataset in memory",
	}
}

// drawMigrate draws slots, two stores and a time, or calls off what is under way. Which store leads the slots at that
// time is not known here: whoever carries the schedule out takes that one in place of FROM.
func drawMigrate(r *rand.Rand, o DrawOptions, f *Fault) {
	m := &f.Move
	if o.Slots != nil {
		m.First = o.Slots[r.IntN(len(o.Slots))]
	} else {
		m.First = r.IntN(maxSlot + 1)
	}
	m.Last = min(m.First+r.IntN(1<<r.IntN(14)), maxSlot)
	if r.IntN(4) == 0 {
		return
	}
	m.From = 1 + r.IntN(o.Stores)
	if m.To = 1 + r.IntN(max(o.Stores-1, 1)); m.To >= m.From {
		m.To++
	}
	m.For = upTo(r, time.Millisecond, 2*time.Second)
}
