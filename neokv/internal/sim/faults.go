package sim

import (
	"math/rand/v2"
	"slices"

	"neokv.dev/neokv/internal/region"
)

// happening is something that goes on beside the clients and the schedule until the time is over, and follows what the
// run does; a scenario names it.
type happening struct {
	phrase string
	run    func(*sim, *rand.Rand)
	hook   func(*sim, *region.Hooks) // what run needs in the stores, nil for nothing
}

// faults is the vocabulary of scenarios beside the faults of schedules.
var faults = []happening{
	{stallPhrase, stalling, (*sim).stallWrites},
	{"cut the power while stores catch up", powerCuts, nil},
	{"back the cluster up", backups, nil},
	{"cut leaders off", lonelyLeaders, nil},
	{"restart the voter that a candidate needs", forgetfulVoters, nil},
	{"move leaders away and back", returning, nil},
	{"hold writes while leaders move", lateWrites, (*sim).holdWrites},
	{"hold increments while others pass", overtaken, (*sim).holdWrites},
	{"hold watched increments while others pass", overtakenWatchers, (*sim).holdWrites},
	{"watch counters while leaders move", movedWatchers, nil},
	{"hold pushes while workers come", lateWorkers, (*sim).holdWrites},

	{"hold pushes while regions split", latePushes, (*sim).holdWrites},
	{"split regions whose leaders apply it late", slowSplits, nil},
	{"flush regions without keys", flushing, nil},
	{"hold sweeps while regions merge", lateSweeps, (*sim).holdWrites},
	{killMergedPhrase, killMerged, nil},
	{"kill stores that have frozen regions", killFrozen, nil},
	{"cut logs while children wait", waitingChildren, nil},

	{"part the members of two changes", partedMembers, nil},
	{"kill stores that stay while replicas move", killedStays, nil},
}

// faultOf returns the happening of a phrase.
func faultOf(phrase string) happening {
	return faults[slices.IndexFunc(faults, func(f happening) bool { return f.phrase == phrase })]
}
