package redis

import "slices"

// Flags are Redis's command flags.
type Flags uint32

const (
	FlagWrite Flags = 1 << iota
	FlagReadonly
	FlagDenyOOM
	FlagAdmin
	FlagPubSub
	FlagNoScript
	FlagRandom // not a flag of Redis 7: commands say nondeterministic_output in their tips instead
	FlagBlocking
	FlagLoading
	FlagStale
	FlagSkipMonitor
	FlagAsking
	FlagFast
	FlagNoAuth
	FlagMayReplicate
	FlagNoMulti
	FlagMovableKeys
	FlagNoMandatoryKeys
	FlagAllowBusy
	FlagNoAsyncLoading
)

// flagNames has the order in which COMMAND INFO lists the flags.
var flagNames = []struct {
	flag Flags
	name string
}{
	{FlagWrite, "write"},
	{FlagReadonly, "readonly"},
	{FlagDenyOOM, "denyoom"},
	{FlagAdmin, "admin"},
	{FlagPubSub, "pubsub"},
	{FlagNoScript, "noscript"},
	{FlagBlocking, "blocking"},
	{FlagLoading, "loading"},
	{FlagStale, "stale"},
	{FlagSkipMonitor, "skip_monitor"},
	{FlagAsking, "asking"},
	{FlagFast, "fast"},
	{FlagNoAuth, "no_auth"},
	{FlagMayReplicate, "may_replicate"},
	{FlagNoMandatoryKeys, "no_mandatory_keys"},
	{FlagNoAsyncLoading, "no_async_loading"},
	{FlagNoMulti, "no_multi"},
	{FlagMovableKeys, "movablekeys"},
	{FlagAllowBusy, "allow_busy"},
}

// categoryNames has the order in which COMMAND INFO lists the ACL categories.
var categoryNames = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
	"pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
}

// groupCategories are the categories that follow from Doc.Group.
var groupCategories = map[string]string{
	"generic":      "keyspace",
	"string":       "string",
	"hash":         "hash",
	"list":         "list",
	"set":          "set",
	"sorted-set":   "sortedset",
	"bitmap":       "bitmap",
	"hyperloglog":  "hyperloglog",
	"geo":          "geo",
	"stream":       "stream",
	"pubsub":       "pubsub",
	"connection":   "connection",
	"transactions": "transaction",
	"scripting":    "scripting",
}

// inCategory reports whether the command belongs to an ACL category. As in Redis, that follows from Categories,
// Doc.Group and Flags.
func (c *Command) inCategory(name string) bool {
	for _, own := range c.Categories {
		if own == name {
			return true
		}
	}
	if len(c.Sub) == 0 && groupCategories[c.Doc.Group] == name { // a container has only the categories of its flags
		return name != "keyspace" || !slices.Contains(c.Categories, "list") // SORT is not in keyspace
	}
	switch name {
	case "write":
		return c.Flags&FlagWrite != 0
	case "read":
		return c.Flags&FlagReadonly != 0 && !c.inCategory("scripting")
	case "admin":
		return c.Flags&FlagAdmin != 0
	case "dangerous":
		return c.Flags&FlagAdmin != 0
	case "pubsub":
		return c.Flags&FlagPubSub != 0
	case "blocking":
		return c.Flags&FlagBlocking != 0
	case "fast":
		return c.Flags&FlagFast != 0
	case "slow":
		return c.Flags&FlagFast == 0
	}
	return false
}
