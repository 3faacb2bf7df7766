package sim

import (
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
	scripted = "scripted" // one seed in four takes a scenario of plans.txt that is made for a mistake
	allKinds = "all"
)

// Kinds returns the kinds of faults that torture draws: verbs, and what no verb says.
func Kinds() (all []string) {
	for _, v := range fault.Drawn() {
		all = append(all, string(v))
	}
	return append(all, stalls, scripted)
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

// draw returns the scenario that a seed draws, for a run of some length. A scenario that does not leave it to the seed
// stays as it is.
//
// A seed takes each kind of fault or leaves it out, at random: what goes wrong under few faults may have no time to
// under many.
func (x scenario) draw(seed uint64, length time.Duration) scenario {
	if x.drawn == nil {
		return x
	}
	r := rand.New(rand.NewPCG(seed, 50))
	has := func(kind string) bool {
		return slices.Contains(x.drawn, kind) || slices.Contains(x.drawn, allKinds)
	}
	if has(scripted) && (len(x.drawn) == 1 && x.drawn[0] == scripted || r.IntN(4) == 0) {
		all := scriptedScenarios()
		return all[r.IntN(len(all))]
	}
	shape := shapes[0]
	if n := r.IntN(8); n < len(shapes) {
		shape = shapes[n]
	}
	out := scenario{
		tcp: r.IntN(4) == 0, skewed: r.IntN(2) == 0,
		clients: 6, proxy: 3,
		settings: []setting{
			{"cluster.stores", fmt.Sprint(shape.Stores)}, {"cluster.replicas", fmt.Sprint(shape.Replicas)},
			{"raft.max_inflight", []string{"1", "2", "4", "16"}[r.IntN(4)]},
		},
	}
	if r.IntN(3) == 0 {
		out.settings = append(out.settings, setting{"raft.batch_max_ops", fmt.Sprint(1 + r.IntN(4))})
	}
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
		out.faults = append(out.faults, faults[slices.IndexFunc(faults,
			func(f happening) bool { return f.phrase == stallPhrase })])
	}
	verbs := slices.DeleteFunc(fault.Drawn(), func(v fault.Verb) bool { return !has(string(v)) || changesBounds(v) })
	chosen := slices.DeleteFunc(slices.Clone(verbs), func(fault.Verb) bool { return r.IntN(2) == 0 })
	if len(chosen) == 0 && len(verbs) > 0 {
		chosen = verbs[r.IntN(len(verbs)):][:1]
	}
	// Regions split and merge in three seeds of four. Other faults leave both in a different state if they hit them.
	bounds := rand.New(rand.NewPCG(seed, 52))
	for _, v := range []fault.Verb{fault.Split, fault.Merge} {
		if has(string(v)) && (bounds.IntN(4) > 0 || len(verbs)+len(chosen) == 0) {
			chosen = append(chosen, v)
		}
	}
	out.schedule = fault.Draw(r, fault.DrawOptions{
		Stores: shape.Stores, Regions: simRegions, Length: length, Verbs: chosen,
		Gap: 300 * time.Millisecond << r.IntN(4), Slots: splitSlots,
	})
	// It comes last, so that the seeds of before have the same schedules.
	if d := leaderReturns[r.IntN(len(leaderReturns))]; d > 0 {
		out.settings = append(out.settings, setting{"raft.leader_return", d.String()})
	}
	// From a source of its own, for the same reason: one seed in four, since one in four has returned above.
	if rand.New(rand.NewPCG(seed, 51)).IntN(3) == 0 {
		out.chats = 3
	}
	return out
}

// changesBounds reports whether a fault splits or merges regions.
func changesBounds(v fault.Verb) bool { return v == fault.Split || v == fault.Merge }

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
