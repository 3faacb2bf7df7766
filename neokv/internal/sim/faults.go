package sim

import (
	"math/rand/v2"

	"neokv.dev/neokv/internal/store"
)

// happening is something that goes on beside the clients until the time is over; a scenario names it.
type happening struct {
	phrase string
	run    func(*sim, *rand.Rand)
	hook   func(*sim, *store.Hooks) // what run needs in the stores, nil for nothing
}

// faults is the vocabulary of scenarios: first what general plans are made of, then what is made to find one mistake.
var faults = []happening{
	{"kill stores", killing, nil},
	{"cut links and move leaders", partitioning, nil},
	{"lose messages", losing, nil},
	{"pause stores", pausing, (*sim).slowDisks},
	{"set clocks", settingClocks, nil},
	{stallPhrase, stalling, (*sim).stallWrites},

	{"kill all stores at once", blackouts, nil},
	{"cut the power while stores catch up", powerCuts, nil},
	{"kill stores while many count", tearing, nil},
	{"keep a store away until the end", absentAtTheEnd, nil},
	{"delay followers", slowFollowers, nil},
	{"cut leaders off", lonelyLeaders, nil},
	{"restart the voter that a candidate needs", forgetfulVoters, nil},
	{"move leaders", wandering, nil},
	{"move leaders away and back", returning, nil},
	{"hold writes while leaders move", lateWrites, (*sim).holdWrites},
	{"hold increments while others pass", overtaken, (*sim).holdWrites},

	{"split and merge regions", changing, nil},
	{"hold pushes while regions split", latePushes, (*sim).holdWrites},
	{"split regions whose leaders apply it late", slowSplits, nil},
	{"flush regions without keys", flushing, nil},
	{"hold sweeps while regions merge", lateSweeps, (*sim).holdWrites},
}
