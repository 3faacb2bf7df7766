package sim

// counted lists the counters of a run.
var counted = []struct {
	what string
	in   func(*simStats) *int
}{
	{"operations acknowledged", func(s *simStats) *int { return &s.Acknowledged }},
	{"unknown", func(s *simStats) *int { return &s.Unknown }},
	{"kills", func(s *simStats) *int { return &s.Kills }},
	{"ends of the process", func(s *simStats) *int { return &s.Ends }},
	{"of them in the middle of an installation", func(s *simStats) *int { return &s.Installing }},
	{"cuts", func(s *simStats) *int { return &s.Cuts }},
	{"transfers", func(s *simStats) *int { return &s.Transfers }},
	{"moves of replicas", func(s *simStats) *int { return &s.Moved }},
	{"commands sent on by ASK", func(s *simStats) *int { return &s.SentOn }},
	{"commands put off by TRYAGAIN", func(s *simStats) *int { return &s.PutOff }},
	{"comparisons", func(s *simStats) *int { return &s.Compared }},
	{"snapshots installed", func(s *simStats) *int { return &s.Snapshots }},
	{"looks at what clients have cached", func(s *simStats) *int { return &s.Cached }},
	{"clusters started from backups", func(s *simStats) *int { return &s.Backups }},
	{"elements reclaimed", func(s *simStats) *int { return &s.Reclaimed }},
}

// least has the floors of each plan in plans.txt: what its runs must reach together in 100 s of virtual time, without
// a planted mistake. Each single run must acknowledge a quarter of its share of the operations. Runs that do next to
// nothing prove nothing; the floors are half of what runs do, or less.
var least = map[string]simStats{
	"chaos":       {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"tcp":         {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"expiries":    {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"collections": {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15, Reclaimed: 1000},
	"members":     {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15, Reclaimed: 150},

	"transactions": {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},
	"scripts":      {Acknowledged: 9000, Transfers: 80, Compared: 70},

	"queues": {Acknowledged: 1200, Kills: 10, Ends: 1, Cuts: 3, Transfers: 2, Compared: 15},

	"chat": {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},

	"moves": {Acknowledged: 1200, Kills: 10, Cuts: 3, Transfers: 4, Moved: 20, Compared: 15},

	"migrations": {Acknowledged: 3000, Kills: 15, Cuts: 5, Transfers: 5, Compared: 30, SentOn: 900, PutOff: 400},

	"messages": {Acknowledged: 400, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 15},

	"caches": {Acknowledged: 4000, Kills: 30, Ends: 3, Cuts: 15, Transfers: 20, Compared: 10, Cached: 40000},

	"backups": {Acknowledged: 1200, Kills: 20, Ends: 2, Cuts: 5, Transfers: 4, Compared: 5, Backups: 20},

	"power-cuts": {Acknowledged: 3600, Kills: 60, Ends: 20, Installing: 5, Snapshots: 20},

	"torture": {Acknowledged: 600, Kills: 2, Cuts: 1, Compared: 5},

	"log-unsynced":         {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
	"apply-index-apart":    {Acknowledged: 3000, Kills: 400, Compared: 1},
	"lease-unchecked":      {Acknowledged: 3000, Cuts: 30, Compared: 40},
	"lease-promise":        {Acknowledged: 5000, Kills: 20, Cuts: 40, Compared: 30},
	"snapshot-dropped":     {Acknowledged: 9000, Kills: 10, Compared: 30, Snapshots: 10},
	"term-tag":             {Acknowledged: 2000, Transfers: 500, Compared: 50},
	"read-set-stale":       {Acknowledged: 2000, Compared: 50},
	"rows-kept":            {Acknowledged: 2000, Transfers: 500, Compared: 50},
	"follower-read":        {Acknowledged: 4000, Compared: 50},
	"expiry-clock":         {Acknowledged: 3000, Transfers: 100, Compared: 50},
	"version-repeated":     {Acknowledged: 3000, Transfers: 100, Compared: 50, Reclaimed: 900},
	"live-reclaimed":       {Acknowledged: 2800, Transfers: 100, Compared: 50, Reclaimed: 600},
	"unknown-retried":      {Acknowledged: 5000, Kills: 30, Ends: 2, Compared: 15},
	"map-order":            {Acknowledged: 3000, Transfers: 100, Compared: 50},
	"journal-unsynced":     {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
	"old-bounds":           {Acknowledged: 1000, Compared: 20},
	"lease-split":          {Acknowledged: 1000, Compared: 20},
	"freeze-unsynced":      {Acknowledged: 2000, Kills: 20, Compared: 5},
	"end-early":            {Acknowledged: 1000, Kills: 20, Compared: 5},
	"log-cut":              {Acknowledged: 500, Kills: 20, Compared: 2},
	"merge-stubborn":       {Acknowledged: 1000, Compared: 5},
	"two-changes":          {Acknowledged: 300, Compared: 2},
	"non-voter-counted":    {Acknowledged: 300, Compared: 2},
	"flush-neighbours":     {Acknowledged: 1000, Compared: 20},
	"sweep-straddles":      {Acknowledged: 1000, Compared: 20},
	"waiter-late":          {Acknowledged: 1800, Compared: 50},
	"waiter-inexact":       {Acknowledged: 1800, Compared: 50},
	"watch-any-base":       {Acknowledged: 2000, Compared: 50},
	"watch-kept":           {Acknowledged: 2000, Transfers: 500, Compared: 50},
	"journal-not-replayed": {Acknowledged: 3600, Kills: 120, Ends: 40, Compared: 30},
}
