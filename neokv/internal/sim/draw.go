package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
)

// What torture draws beside the verbs of package fault.
const (
	stalls   = "stall"    // writes stall between reading the term and being proposed
	unsynced = "unsynced" // stores are killed that have merged regions, and synced nothing since
	scripted = "scripted" // one seed in four takes a scenario of plans.txt that is made for a mistake
	allKinds = "all"
)

// Kinds returns the kinds of faults that torture draws: verbs, and what no verb says.
func Kinds() (all []string) {
	for _, v := range fault.Drawn() {
		all = append(all, string(v))
	}
	return append(all, stalls, unsynced, scripted)
}

// changesReplicas reports whether a verb changes where the replicas of a region are.
func changesReplicas(v fault.Verb) bool {
	return v == fault.MoveReplica || v == fault.AddReplica || v == fault.RemoveReplica
}

// checkDrawn checks kinds of faults.
func checkDrawn(kinds []string) error {
	var wrong []string
	for _, k := range kinds {
		if !slices.Contains(Kinds(), k) && k != allKinds {
			wrong = append(wrong, fmt.Sprintf("unknown fault %q%s", k, settings.DidYouMean(k, Kinds())))
		}
	}
	if len(kinds) == 0 {
		wrong = append(wrong, "no faults")
	}
	if wrong != nil {
		return fmt.Errorf("%s; want %s, or some of %s", strings.Join(wrong, "; "), allKinds, strings.Join(Kinds(), ", "))
	}
	return nil
}

// draw returns the scenario with all that it leaves to the seed, for a run of some length.
//
// A seed takes each kind of fault or leaves it out, at random: what goes wrong under few faults may have no time to
// under many.
func (x scenario) draw(seed uint64, length time.Duration) scenario {
	if x.drawn == nil {
		return x.fill(rand.New(rand.NewPCG(seed, 53)), length)
	}
	r := rand.New(rand.NewPCG(seed, 50))
	has := func(kind string) bool {
		return slices.Contains(x.drawn, kind) || slices.Contains(x.drawn, allKinds)
	}
	if has(scripted) && (len(x.drawn) == 1 && x.drawn[0] == scripted || r.IntN(4) == 0) {
		all := scriptedScenarios()
		return all[r.IntN(len(all))].fill(r, length)
	}
	out := scenario{anyShape: true, tcp: r.IntN(4) == 0, skewed: r.IntN(2) == 0, clients: 6, proxy: 3}
	if r.IntN(8) == 0 {
		out.settings = append(out.settings, setting{"raft.read_sets", "false"})
	}
	if r.IntN(2) == 0 {
		out.settings = append(out.settings, setting{"reclaim steps of", "5"}, setting{"range deletions from", "3"})
	}
	loads := generalLoads()
	for _, i := range r.Perm(len(loads))[:1+r.IntN(2)] {
		for _, w := range loads[i] {
			if !slices.ContainsFunc(out.mix, func(o weighted) bool { return o.name == w.name }) {
				out.mix = append(out.mix, w)
			}
		}
	}
	if r.IntN(3) == 0 && has(stalls) {
		out.faults = append(out.faults, faultOf(stallPhrase))
	}
	var verbs, chosen []string
	for _, v := range fault.Drawn() {
		if v == fault.Migrate || changesReplicas(v) || !has(string(v)) {
			continue
		}
		verbs = append(verbs, string(v))
		// Regions split and merge in three seeds of four. Other faults leave both in a different state if they hit
		// them.
		if likely := v == fault.Split || v == fault.Merge; likely && r.IntN(4) > 0 || !likely && r.IntN(2) == 0 {
			chosen = append(chosen, string(v))
		}
	}
	if len(chosen) == 0 && len(verbs) > 0 {
		chosen = verbs[r.IntN(len(verbs)):][:1]
	}
	if len(chosen) > 0 {
		out.draws = []draws{{strings.Join(chosen, " "), 300 * time.Millisecond << r.IntN(4)}}
	}
	out.drawMoves(rand.New(rand.NewPCG(seed, 56)), has, len(verbs) == 0)
	if r.IntN(4) == 0 {
		out.chats = 3
	}
	out.messages = rand.New(rand.NewPCG(seed, 54)).IntN(4) == 0
	if rand.New(rand.NewPCG(seed, 55)).IntN(4) == 0 {
		out.queues = 2
	}
	if r.IntN(4) == 0 && has(unsynced) {
		out.faults = append(out.faults, faultOf(killMergedPhrase))
		if r.IntN(2) == 0 { // else the syncs of other stores may make a merge durable, too
			out.settings = append(out.settings, setting{"engine.shared_sync", "false"})
		}
	}
	return out.fill(r, length)
}

// drawMoves draws moves of replicas in one seed of three, and migrations in one of four. They are apart from the other
// verbs, since a region whose replicas are only removed would soon have a single one. In half of the seeds with moves
// there are stores to move to; else a replica has to be removed before.
func (x *scenario) drawMoves(r *rand.Rand, has func(kind string) bool, always bool) {
	var moves []string
	for _, v := range fault.Drawn() {
		if changesReplicas(v) && has(string(v)) {
			moves = append(moves, string(v))
		}
	}
	if chosen := r.IntN(3) == 0; len(moves) > 0 && (chosen || always) {
		x.draws = append(x.draws, draws{strings.Join(moves, " "), 200 * time.Millisecond << r.IntN(4)})
		if r.IntN(2) == 0 {
			x.settings = append(x.settings, setting{"cluster.stores", "5"}, setting{"cluster.replicas", "3"})
		}
	}
	if chosen := r.IntN(4) == 0; has(string(fault.Migrate)) && (chosen || always) {
		x.draws = append(x.draws, draws{string(fault.Migrate), 200 * time.Millisecond << r.IntN(4)})
	}
}

// fill returns the scenario with the shape of the cluster, the clocks and the schedule that it leaves to chance.
func (x scenario) fill(r *rand.Rand, length time.Duration) scenario {
	if x.anyShape {
		x.settings = append(drawShape(r), x.settings...)
	}
	k := simSettings()
	if err := x.set(k); err != nil {
		panic(err) // parseScenario has tried each
	}
	all := slices.Clone(x.schedule)
	if x.skewed {
		most := []time.Duration{0, 50 * time.Millisecond, time.Second, 5 * time.Second}[r.IntN(4)]
		for i := range k.Cluster.Stores {
			ahead := time.Duration((2*r.Float64() - 1) * float64(most)).Truncate(time.Millisecond)
			clock := fault.Fault{Verb: fault.Clock, Stores: []int{i + 1}, Ahead: ahead}
			all = append(all, fault.FaultEvent{Fault: clock})
		}
	}
	for _, d := range x.draws {
		o := fault.DrawOptions{
			Stores: k.Cluster.Stores, Regions: 2 * simRegions, Length: length, Gap: d.gap, Slots: splitSlots,
		}
		for _, verb := range strings.Fields(d.verbs) {
			o.Verbs = append(o.Verbs, fault.Verb(verb))
		}
		all = append(all, fault.Draw(r, o)...)
	}
	for _, e := range x.repeats {
		next := func() time.Duration {
			return max(time.Millisecond, (e.At/2 + time.Duration(r.Int64N(int64(e.At)))).Truncate(time.Millisecond))
		}
		for at := next(); at < length; at += next() + e.For {
			all = append(all, fault.FaultEvent{At: at, For: e.For, Fault: e.Fault})
		}
	}
	slices.SortStableFunc(all, func(a, b fault.FaultEvent) int { return cmp.Compare(a.At, b.At) })
	x.anyShape, x.skewed, x.draws, x.repeats, x.schedule = false, false, nil, nil, all
	return x
}

// drawShape draws the shape of the cluster, how many entries of a region may be in flight, how many commands an entry
// takes, and whether leaders return.
func drawShape(r *rand.Rand) (all []setting) {
	shape := shapes[0]
	if n := r.IntN(8); n < len(shapes) {
		shape = shapes[n]
	}
	all = []setting{
		{"cluster.stores", fmt.Sprint(shape.Stores)}, {"cluster.replicas", fmt.Sprint(shape.Replicas)},
		{"raft.max_inflight", []string{"1", "2", "4", "16"}[r.IntN(4)]},
	}
	if r.IntN(3) == 0 { // pipelines travel in several entries
		all = append(all, setting{"raft.batch_max_ops", fmt.Sprint(1 + r.IntN(4))})
	}
	if d := leaderReturns[r.IntN(len(leaderReturns))]; d > 0 {
		all = append(all, setting{"raft.leader_return", d.String()})
	}
	return all
}

// generalLoads are the operations of the general plans.
func generalLoads() (all [][]weighted) {
	for _, p := range plans {
		if p.anyShape && p.mistake.plant == nil && !p.tcp {
			all = append(all, p.mix)
		}
	}
	return all
}

// scriptedScenarios are the scenarios of the special plans, each once.
func scriptedScenarios() (all []scenario) {
	for _, p := range plans {
		if p.special() && !slices.ContainsFunc(all, func(x scenario) bool { return x.String() == p.scenario.String() }) {
			all = append(all, p.scenario)
		}
	}
	return all
}
