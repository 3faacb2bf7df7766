package sim

import (
	"math/rand/v2"
	"time"

	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/settings"
)

// plantedPlans are schedules each made to find one planted mistake, which it does within bound seeds: so many that by the share of seeds that
// were seen to find it, one search in thousands does not. Without the mistake the very
// same schedules find nothing.
var plantedPlans = []plan{
	{
		name: "log-unsynced", mistake: "the log is not synced",
		shows: []evidence{lostWrite}, bound: 6,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "apply-index-apart", mistake: "the apply index is committed in a batch of its own",
		shows: []evidence{replicasDiffer, doubled}, bound: 25,
		plant: func(f *store.Faults) { f.Region.SplitApply = true },
		// An increment with a read set that holds is the same when it is applied again; of entries in flight together only the first has one.
		settings: func(k *settings.Settings) { k.Raft.MaxInflight, k.Raft.BatchMaxOps = 16, 2 },
		lanes:    []func(*sim, *rand.Rand){tearing}, clients: 2, each: 50 * time.Millisecond, mix: "+#",
	},
	{
		name: "lease-unchecked", mistake: "a lease is never checked",
		shows: []evidence{staleRead}, bound: 10,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
		lanes: []func(*sim, *rand.Rand){lonelyLeaders}, clients: 2, each: 50 * time.Millisecond, mix: "R",
	},
	{
		name: "lease-promise", mistake: "the voters' promise is not held",
		shows: []evidence{staleRead}, bound: 12,
		plant: func(f *store.Faults) { f.Transport.NoPromise = true },
		lanes: []func(*sim, *rand.Rand){forgetfulVoters}, clients: 2, each: 50 * time.Millisecond, mix: "R",
	},
	{
		name: "snapshot-dropped", mistake: "a received snapshot's file is dropped before it is in the engine",
		shows: []evidence{lags}, bound: 5,
		plant: func(f *store.Faults) { f.Region.LazyInstall = true },
		lanes: []func(*sim, *rand.Rand){absentAtTheEnd}, clients: 4, each: 5 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "term-tag", mistake: "the term tag is ignored",
		shows: []evidence{logsDiffer}, bound: 5,
		plant: func(f *store.Faults) { f.Region.NoTermTag = true },
		seams: (*sim).holdWrites,
		lanes: []func(*sim, *rand.Rand){lateWrites}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "read-set-stale", mistake: "a read set is taken for good whatever has been applied since",
		shows: []evidence{lostWrite, replicasDiffer}, bound: 5,
		plant:    func(f *store.Faults) { f.Region.AnyBase = true },
		seams:    (*sim).holdWrites,
		settings: func(s *settings.Settings) { s.Raft.MaxInflight = 8 },
		lanes:    []func(*sim, *rand.Rand){overtaken}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "unknown-retried", mistake: "the server tries a write of unknown outcome again",
		shows: []evidence{doubled}, bound: 30,
		serve: server.Faults{RetryUnknown: true},
		lanes: []func(*sim, *rand.Rand){killing}, clients: 6, proxied: true, each: 5 * time.Millisecond, mix: "+++#",
	},
	{
		name: "rows-kept", mistake: "rows of an earlier term are taken for the present records",
		shows: []evidence{staleRead}, bound: 5,
		plant: func(f *store.Faults) { f.Region.KeptRows = true },
		lanes: []func(*sim, *rand.Rand){returning}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "follower-read", mistake: "a follower reads without an index",
		shows: []evidence{staleRead}, bound: 5,
		plant: func(f *store.Faults) { f.Region.NoReadIndex = true },
		lanes: []func(*sim, *rand.Rand){slowFollowers}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "expiry-clock", mistake: "expiry is judged by the local clock alone",
		shows: []evidence{wrongEffect, replicasDiffer, staleRead}, bound: 12,
		plant: func(f *store.Faults) { f.Region.LocalClock = true },
		seams: (*sim).skewClocks,
		lanes: []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "XEEEE",
	},
	{
		name: "version-repeated", mistake: "behind a change of leader a new collection gets a version that has been in use",
		shows: []evidence{lostWrite, wrongEffect, unreadable}, bound: 30,
		plant:    func(f *store.Faults) { f.Region.SameVersions = true },
		settings: reclaimSteps,
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "HHhhG",
	},
	{
		name: "live-reclaimed", mistake: "the reclaimer takes what a key holds for what it held",
		shows: []evidence{lostWrite}, bound: 6,
		plant:    func(f *store.Faults) { f.Region.AnyVersion = true },
		settings: reclaimMembers,
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "HHHHhhG",
	},
	{
		name: "map-order", mistake: "which member SPOP takes follows from the order of a Go map",
		shows: []evidence{replicasDiffer}, bound: 6,
		plant:    func(f *store.Faults) { f.Region.MapOrder = true },
		settings: func(k *settings.Settings) { k.Raft.ReadSets = false }, // likewise
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "ssssdm",
	},
	{
		name: "journal-unsynced", mistake: "the journal's groups are not synced",
		shows: []evidence{lostWrite}, bound: 5,
		plant: func(f *store.Faults) { f.Journal.NoSync = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "journal-not-replayed", mistake: "what the journal holds is thrown away when the process starts again",
		shows: []evidence{lostWrite}, bound: 5,
		plant: func(f *store.Faults) { f.Journal.NoReplay = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
}

// plantedInGeneral are mistakes that a general plan finds, whose schedule is made for none.
var plantedInGeneral = []plan{
	chaos.with("log-unsynced", plan{
		mistake: "the log is not synced", shows: []evidence{lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
	}),
	chaos.with("log-late", plan{
		mistake: "every other round of the log is synced with the next", shows: []evidence{lostWrite}, bound: 120,
		plant: func(f *store.Faults) { f.Log.LateSync = true },
	}),
	chaos.with("early-reply", plan{
		mistake: "a SET is answered when it is proposed", shows: []evidence{lostWrite, staleRead, outOfOrder}, bound: 12,
		plant: func(f *store.Faults) { f.Region.EarlyReply = true },
	}),
	chaos.with("lease-unchecked", plan{
		mistake: "a lease is never checked", shows: []evidence{staleRead}, bound: 120,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
	}),
	chaos.with("follower-read", plan{
		mistake: "a follower reads without an index", shows: []evidence{staleRead}, bound: 60,
		plant: func(f *store.Faults) { f.Region.NoReadIndex = true },
	}),
	chaos.with("rows-kept", plan{
		mistake: "rows of an earlier term are taken for the present records", shows: []evidence{staleRead, lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Region.KeptRows = true },
	}),
	chaos.with("retried-backward", plan{
		mistake: "what the server tries again goes in the reverse order", shows: []evidence{outOfOrder}, bound: 120,
		serve: server.Faults{RetryBackward: true},
	}),
	overTCP.with("log-unsynced", plan{
		mistake: "the log is not synced", shows: []evidence{lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
	}),
	overTCP.with("lease-unchecked", plan{
		mistake: "a lease is never checked", shows: []evidence{staleRead}, bound: 120,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
	}),
	expiries.with("expiry-clock", plan{
		mistake: "expiry is judged by the local clock alone", shows: []evidence{replicasDiffer, staleRead, lostWrite}, bound: 30,
		plant: func(f *store.Faults) { f.Region.LocalClock = true },
	}),
	collections.with("live-reclaimed", plan{
		mistake: "the reclaimer takes what a key holds for what it held", shows: []evidence{lostWrite, replicasDiffer}, bound: 40,
		plant: func(f *store.Faults) { f.Region.AnyVersion = true },
	}),
	members.with("live-reclaimed", plan{
		mistake: "the reclaimer takes what a key holds for what it held", shows: []evidence{lostWrite, replicasDiffer}, bound: 60,
		plant: func(f *store.Faults) { f.Region.AnyVersion = true },
	}),
	members.with("map-order", plan{
		mistake: "which member SPOP takes follows from the order of a Go map", shows: []evidence{replicasDiffer}, bound: 30,
		plant: func(f *store.Faults) { f.Region.MapOrder = true },
	}),
}
