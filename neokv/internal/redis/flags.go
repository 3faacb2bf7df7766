package redis

import "slices"

// Flags are Redis's command flags.
type Flags uint32

const (
	FlagWrite Flags = 1 << iota
	FlagReadonly
	FlagDenyOOM
	FlagAdmin
	FlagNoScript
	FlagBlocking
	FlagLoading
	FlagStale
	FlagFast
	FlagNoAuth
	FlagMovableKeys
	FlagAllowBusy
	FlagSkipSlowLog
	FlagSkipMonitor
	FlagNoMandatoryKeys
	FlagMayReplicate // it may write, or send to others, in a row that does not say so; COMMAND INFO has no name for it
	FlagPubsub
	FlagNoAsyncLoading
	FlagNoMulti // it is refused between MULTI and EXEC
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
	{FlagPubsub, "pubsub"},
	{FlagNoScript, "noscript"},
	{FlagBlocking, "blocking"},
	{FlagLoading, "loading"},
	{FlagStale, "stale"},
	{FlagSkipMonitor, "skip_monitor"},
	{FlagFast, "fast"},
	{FlagNoAuth, "no_auth"},
	{FlagNoMandatoryKeys, "no_mandatory_keys"},
	{FlagNoAsyncLoading, "no_async_loading"},
	{FlagNoMulti, "no_multi"},
	{FlagMovableKeys, "movablekeys"},
	{FlagAllowBusy, "allow_busy"},
	{FlagSkipSlowLog, "skip_slowlog"},
}

// categoryNames has the order in which COMMAND INFO lists the ACL categories.
var categoryNames = []string{
	"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "pubsub", "admin", "fast", "slow",
	"dangerous", "blocking", "connection", "transaction", "scripting",
}

// groupCategories are the categories that follow from Doc.Group.
var groupCategories = map[string]string{
	"generic":    "keyspace",
	"string":     "string",
	"hash":       "hash",
	"list":       "list",
	"set":        "set",
	"sorted-set": "sortedset",
	"connection": "connection",

	"transactions": "transaction",
	"scripting":    "scripting",
}

// inCategory reports whether the command belongs to an ACL category. As in Redis, that follows from Categories,
// Doc.Group and Flags.
func (c *Command) inCategory(name string) bool {
	if slices.Contains(c.Categories, name) {
		return true
	}
	if len(c.Sub) == 0 && groupCategories[c.Doc.Group] == name { // a container has only the categories of its flags
		// SORT and WAIT are not in keyspace.
		return name != "keyspace" || !slices.Contains(c.Categories, "list") && !slices.Contains(c.Categories, "connection")
	}
	switch name {
	case "write":
		return c.Flags&FlagWrite != 0
	case "read":
		return c.Flags&FlagReadonly != 0 && c.Doc.Group != "scripting"
	case "admin", "dangerous":
		return c.Flags&FlagAdmin != 0
	case "blocking":
		return c.Flags&FlagBlocking != 0
	case "pubsub":
		return c.Flags&FlagPubsub != 0
	case "fast":
		return c.Flags&FlagFast != 0
	case "slow":
		return c.Flags&FlagFast == 0
	}
	return false
}
