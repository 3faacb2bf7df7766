package redis

// Flags are Redis's command flags.
type Flags uint32

const (
	FlagWrite Flags = 1 << iota
	FlagReadonly
	FlagDenyOOM
	FlagAdmin
	FlagPubSub
	FlagNoScript
	FlagRandom
	FlagBlocking
	FlagLoading
	FlagStale
	FlagSkipMonitor
	FlagSkipSlowlog
	FlagAsking
	FlagFast
	FlagNoAuth
	FlagMayReplicate
	FlagNoMulti
	FlagMovableKeys
	FlagNoMandatoryKeys
	FlagAllowBusy
)
