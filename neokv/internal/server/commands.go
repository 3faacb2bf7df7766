package server

import (
	"bytes"
	"slices"

	"neokv.dev/neokv/internal/redis"
)

// This file has the command table: which commands clients can call, and who runs each. Package redis has the rows of
// commands about data, and regions run most of them. The server has its own rows, and the functions of those rows of
// redis that run outside of regions.

// What the rows have for Run: a wide with redis.HowEverywhere, else a runner. The arity holds.
type (
	// runner runs a command on the server itself. The reply goes to c.out.
	runner func(c *conn, args [][]byte)
	// wide runs a command that goes over all keys, in every region that the server covers. The reply goes to e.out.
	wide func(e *executor, cmd *command)
)

// inCluster returns the runner of a command that only ports which redirect clients have.
func inCluster(run runner) runner {
	return func(c *conn, args [][]byte) {
		if c.s.proxy() {
			c.out.Error(errNoCluster)
			return
		}
		run(c, args)
	}
}

var (
	commands *redis.CommandTable
	// secretRules has the rows whose arguments other clients may not see: secretsOf, by row.
	secretRules = map[*redis.Command]secretRule{}
)

// init makes the table. It cannot be the variable's initial value, since runners refer to the table.
func init() {
	redis.Bind(map[string]any{
		"scan":                wide(runScan),
		"keys":                wide(runKeys),
		"dbsize":              wide(runDBSize),
		"randomkey":           wide(runRandomKey),
		"flushdb":             wide((*executor).flush),
		"flushall":            wide((*executor).flush),
		"object|help":         runner(runHelp),
		"memory|help":         runner(runHelp),
		"memory|doctor":       runner(runMemoryDoctor),
		"memory|malloc-stats": runner(runMallocStats),
		"memory|purge":        runner(runMemoryPurge),
		"memory|stats":        runner(runMemoryStats),
	})
	rows := slices.Concat(redis.Rows(), ownRows())
	for _, r := range rows {
		for _, s := range r.Sub {
			if s.Doc.Group == "" {
				s.Doc.Group = r.Doc.Group
			}
		}
	}
	commands = redis.NewTable(rows...)
	redis.BindAll(commands)
	for name, rule := range secretsOf {
		secretRules[commands.Named([]byte(name))] = rule
	}
	if secretRules[nil] != nil {
		panic("a rule for secrets is for a command that does not exist")
	}
}

// errSlots is the answer to commands that give slots to nodes of a Redis Cluster, errMoves to those that move slots or
// keys between nodes one by one, as redis-cli --cluster reshard, rebalance and fix do. They would make a region of each
// slot.
const (
	errSlots = "ERR slots move with their region here: see neokv ctl split, neokv ctl merge and neokv ctl transfer"
	errMoves = "ERR slots do not move one by one here: neokv ctl migrate SLOTS FROM TO moves them as clients see it in " +
		"Redis Cluster, neokv ctl migrate SLOTS ok calls that off, neokv ctl transfer REGION STORE moves a region at once"
)

// refused has the commands of Redis that the table lacks because they would do what is done otherwise here, by full
// name, with the error that says so.
var refused = map[string]string{
	"cluster|addslots":      errSlots,
	"cluster|addslotsrange": errSlots,
	"cluster|delslots":      errSlots,
	"cluster|delslotsrange": errSlots,
	"cluster|flushslots":    errSlots,
	"cluster|forget":        "ERR a store leaves the cluster by neokv ctl drain and neokv ctl remove",
	"cluster|meet":          "ERR a store comes to the cluster by neokv ctl add",
	"cluster|setslot":       errMoves,
	"config|rewrite":        "ERR The server is running without a config file",
	"migrate":               errMoves,
	"shutdown":              "ERR SHUTDOWN is not for clients: end the process that serves the cluster, with SIGTERM",
}

// whyRefused returns the error of a call that refused has, else an empty string.
func whyRefused(args [][]byte) string {
	name := bytes.ToLower(args[0])
	if commands.Lookup(name) != nil && len(args) > 1 { // a container
		name = append(append(name, '|'), bytes.ToLower(args[1])...)
	}
	return refused[string(name)]
}

// Flags that go together.
const (
	anytime   = redis.FlagLoading | redis.FlagStale
	ofSession = anytime | redis.FlagNoScript
	greeting  = ofSession | redis.FlagFast | redis.FlagNoAuth | redis.FlagAllowBusy
	// inTransaction has the flags of the commands about transactions, but EXEC.
	inTransaction = ofSession | redis.FlagFast | redis.FlagAllowBusy

	adminNow = ofSession | redis.FlagAdmin
	// ofSubscriber has the flags of the commands about a client's own subscriptions.
	ofSubscriber = ofSession | redis.FlagPubsub
	slow         = anytime | redis.FlagAdmin
	ofScript     = redis.FlagNoScript | redis.FlagStale | redis.FlagSkipMonitor | redis.FlagNoMandatoryKeys |
		redis.FlagMovableKeys
)

// scriptKeys says where the keys of a script are. Redis has no notes at EVALSHA.
func scriptKeys(notes string, flags ...string) []redis.KeySpec {
	return []redis.KeySpec{{First: 2, Step: 1, Counted: true, Flags: flags, Notes: notes}}
}

const keysUnknown = "We cannot tell how the keys will be used so we assume the worst, "

// shardChannels says that the arguments from the first to the last are channels, which are routed like keys.
func shardChannels(last int) []redis.KeySpec {
	return []redis.KeySpec{{First: 1, Last: last, Step: 1, Flags: []string{"not_key"}}}
}

// ownRows lists the server's own rows. What they say of a command is what redis-server 7.0.15 says, or 7.2 for CLIENT
// SETINFO and CLIENT NO-TOUCH; the summaries say what the commands do here.
func ownRows() []*redis.Command {
	doc := func(summary, since, group, complexity string) redis.Doc {
		return redis.Doc{Summary: summary, Since: since, Group: group, Complexity: complexity}
	}
	varying := []string{"nondeterministic_output"}
	unordered := []string{"nondeterministic_output_order"}
	everyNode := []string{"request_policy:all_nodes", "response_policy:all_succeeded"}
	special := []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"}
	return []*redis.Command{
		{Name: "ping", Arity: -1, Flags: redis.FlagFast,
			Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
			Doc:  doc("Answers PONG, or with its argument.", "1.0.0", "connection", "O(1)"),
			How:  redis.HowOwn, Run: runner(runPing)},
		{Name: "echo", Arity: 2, Flags: anytime | redis.FlagFast,
			Doc: doc("Answers with its argument.", "1.0.0", "connection", "O(1)"),
			How: redis.HowOwn, Run: runner(runEcho)},
		{Name: "select", Arity: 2, Flags: anytime | redis.FlagFast,
			Doc: doc("Chooses a database; there is only number 0.", "1.0.0", "connection", "O(1)"),
			How: redis.HowSession, Run: runner(runSelect)},
		{Name: "quit", Arity: -1, Flags: greeting,
			Doc: doc("Closes the connection.", "1.0.0", "connection", "O(1)"),
			How: redis.HowSession, Run: runner(runQuit)},
		{Name: "reset", Arity: 1, Flags: greeting,
			Doc: doc("Brings the connection back to how it began.", "6.2.0", "connection", "O(1)"),
			How: redis.HowSession, Run: runner(runReset)},
		{Name: "multi", Arity: 1, Flags: inTransaction,
			Doc: doc("Begins a transaction: the commands that follow are queued.", "1.2.0", "transactions", "O(1)"),
			How: redis.HowSession, Run: runner(runMulti)},
		{Name: "exec", Arity: 1, Flags: anytime | redis.FlagNoScript | redis.FlagSkipSlowLog,
			Doc: doc("Runs the queued commands at one instant, unless a watched key has changed.", "1.2.0",
				"transactions", "Depends on commands in the transaction"),
			How: redis.HowSession, Run: runner(runExec)},
		{Name: "discard", Arity: 1, Flags: inTransaction,
			Doc: doc("Gives the transaction up.", "2.0.0", "transactions",
				"O(N), when N is the number of queued commands"),
			How: redis.HowSession, Run: runner(runDiscard)},
		{Name: "watch", Arity: -2, Flags: inTransaction,
			Keys: []redis.KeySpec{{First: 1, Last: -1, Step: 1, Flags: []string{"RO"}}},
			Doc: doc("Makes the next EXEC run nothing if one of the keys has changed by then.", "2.2.0",
				"transactions", "O(1) for every key."),
			How: redis.HowSession, Run: runner(runWatch)},
		{Name: "unwatch", Arity: 1, Flags: inTransaction,
			Doc: doc("Watches no keys any more.", "2.2.0", "transactions", "O(1)"),
			How: redis.HowSession, Run: runner(runUnwatch)},
		{Name: "eval", Arity: -3, Flags: ofScript | redis.FlagMayReplicate,
			Keys: scriptKeys(keysUnknown+"RW and UPDATE", "RW", "access", "update"),
			Doc: doc("Runs a script in Lua at one instant.", "2.6.0", "scripting",
				"Depends on the script that is executed."),
			How: redis.HowScript},
		{Name: "evalsha", Arity: -3, Flags: ofScript | redis.FlagMayReplicate,
			Keys: scriptKeys("", "RW", "access", "update"),
			Doc: doc("Runs a script that has been loaded, by the SHA1 of its text.", "2.6.0", "scripting",
				"Depends on the script that is executed."),
			How: redis.HowScript},
		{Name: "eval_ro", Arity: -3, Flags: ofScript | redis.FlagReadonly,
			Keys: scriptKeys(keysUnknown+"RO and ACCESS", "RO", "access"),
			Doc: doc("Runs a script in Lua that only reads.", "7.0.0", "scripting",
				"Depends on the script that is executed."),
			How: redis.HowScript},
		{Name: "evalsha_ro", Arity: -3, Flags: ofScript | redis.FlagReadonly, Keys: scriptKeys("", "RO", "access"),
			Doc: doc("Runs a loaded script that only reads, by the SHA1 of its text.", "7.0.0", "scripting",
				"Depends on the script that is executed."),
			How: redis.HowScript},
		{Name: "script", Arity: -2,
			Doc: doc("Commands about scripts.", "2.6.0", "scripting", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "exists", Arity: -3, Flags: redis.FlagNoScript,
					Tips: []string{"request_policy:all_shards", "response_policy:agg_logical_and"},
					Doc: doc("Tells which scripts are loaded, by the SHA1 of their texts.", "2.6.0", "",
						"O(N) with N being the number of scripts to check (so checking a single script is an O(1) "+
							"operation)."),
					How: redis.HowOwn, Run: runner(runScriptExists)},
				{Name: "flush", Arity: -2, Flags: redis.FlagNoScript, Tips: everyNode,
					Doc: doc("Forgets all scripts.", "2.6.0", "", "O(N) with N being the number of scripts in cache"),
					How: redis.HowOwn, Run: runner(runScriptFlush)},
				{Name: "kill", Arity: 2, Flags: redis.FlagNoScript | redis.FlagAllowBusy,
					Tips: []string{"request_policy:all_shards", "response_policy:one_succeeded"},
					Doc:  doc("Ends the scripts of this port's clients that only read.", "2.6.0", "", "O(1)"),
					How:  redis.HowOwn, Run: runner(runScriptKill)},
				{Name: "debug", Arity: 3, Flags: redis.FlagNoScript,
					Doc: doc("Is refused, but for NO: there is no debugger.", "3.2.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runScriptDebug)},
				{Name: "load", Arity: 3, Flags: redis.FlagNoScript | redis.FlagStale, Tips: everyNode,
					Doc: doc("Loads a script and returns the SHA1 of its text.", "2.6.0", "",
						"O(N) with N being the length in bytes of the script body."),
					How: redis.HowOwn, Run: runner(runScriptLoad)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "subscribe", Arity: -2, Flags: ofSubscriber,
			Doc: doc("Subscribes to channels.", "2.0.0", "pubsub",
				"O(N) where N is the number of channels to subscribe to."),
			How: redis.HowSession, Run: runner(runSubscribe)},
		{Name: "unsubscribe", Arity: -1, Flags: ofSubscriber,
			Doc: doc("Ends subscriptions to channels, to all if none are named.", "2.0.0", "pubsub",
				"O(N) where N is the number of clients already subscribed to a channel."),
			How: redis.HowSession, Run: runner(runUnsubscribe)},
		{Name: "psubscribe", Arity: -2, Flags: ofSubscriber,
			Doc: doc("Subscribes to all channels that match patterns.", "2.0.0", "pubsub",
				"O(N) where N is the number of patterns the client is already subscribed to."),
			How: redis.HowSession, Run: runner(runPSubscribe)},
		{Name: "punsubscribe", Arity: -1, Flags: ofSubscriber,
			Doc: doc("Ends subscriptions to patterns, to all if none are named.", "2.0.0", "pubsub",
				"O(N+M) where N is the number of patterns the client is already subscribed and M is the number of "+
					"total patterns subscribed in the system (by any client)."),
			How: redis.HowSession, Run: runner(runPUnsubscribe)},
		{Name: "publish", Arity: 3, Flags: anytime | redis.FlagPubsub | redis.FlagFast | redis.FlagMayReplicate,
			Doc: doc("Sends a message to all who have subscribed to a channel, at any port of the cluster.", "2.0.0",
				"pubsub", "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the "+
					"total number of subscribed patterns (by any client)."),
			How: redis.HowOwn, Run: runner(runPublish)},
		{Name: "ssubscribe", Arity: -2, Flags: ofSubscriber, Keys: shardChannels(-1),
			Doc: doc("Subscribes to channels at the store that serves their slot.", "7.0.0", "pubsub",
				"O(N) where N is the number of shard channels to subscribe to."),
			How: redis.HowSession, Run: runner(runSSubscribe)},
		{Name: "sunsubscribe", Arity: -1, Flags: ofSubscriber, Keys: shardChannels(-1),
			Doc: doc("Ends subscriptions of SSUBSCRIBE, all if none are named.", "7.0.0", "pubsub",
				"O(N) where N is the number of clients already subscribed to a shard channel."),
			How: redis.HowSession, Run: runner(runSUnsubscribe)},
		{Name: "spublish", Arity: 3, Flags: anytime | redis.FlagPubsub | redis.FlagFast | redis.FlagMayReplicate,
			Keys: shardChannels(0),
			Doc: doc("Sends a message to all who have subscribed to a channel at the store that serves its slot.",
				"7.0.0", "pubsub", "O(N) where N is the number of clients subscribed to the receiving shard channel."),
			How: redis.HowOwn, Run: runner(runSPublish)},
		{Name: "pubsub", Arity: -2,
			Doc: doc("Commands about subscriptions.", "2.8.0", "pubsub", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "channels", Arity: -2, Flags: anytime | redis.FlagPubsub,
					Doc: doc("Lists the channels with subscribers at this port.", "2.8.0", "",
						"O(N) where N is the number of active channels, and assuming constant time pattern matching "+
							"(relatively short channels and patterns)"),
					How: redis.HowOwn, Run: runner(runPubsubChannels)},
				{Name: "numpat", Arity: 2, Flags: anytime | redis.FlagPubsub,
					Doc: doc("Counts the patterns with subscribers at this port.", "2.8.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runPubsubNumPat)},
				{Name: "numsub", Arity: -2, Flags: anytime | redis.FlagPubsub,
					Doc: doc("Counts the subscribers of channels at this port.", "2.8.0", "",
						"O(N) for the NUMSUB subcommand, where N is the number of requested channels"),
					How: redis.HowOwn, Run: runner(runPubsubNumSub)},
				{Name: "shardchannels", Arity: -2, Flags: anytime | redis.FlagPubsub,
					Doc: doc("Lists the channels of SSUBSCRIBE with subscribers at this port.", "7.0.0", "",
						"O(N) where N is the number of active shard channels, and assuming constant time pattern "+
							"matching (relatively short shard channels)."),
					How: redis.HowOwn, Run: runner(runPubsubShardChannels)},
				{Name: "shardnumsub", Arity: -2, Flags: anytime | redis.FlagPubsub,
					Doc: doc("Counts the subscribers of channels of SSUBSCRIBE at this port.", "7.0.0", "",
						"O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels"),
					How: redis.HowOwn, Run: runner(runPubsubShardNumSub)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "6.2.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "hello", Arity: -1, Flags: greeting,
			Doc: doc("Says who the server is, and switches the protocol version.", "6.0.0", "connection", "O(1)"),
			How: redis.HowSession, Run: runner(runHello)},
		{Name: "auth", Arity: -2, Flags: greeting,
			Doc: doc("Gives the password of the user default, the only one.", "1.0.0", "connection", "O(1)"),
			How: redis.HowSession, Run: runner(runAuth)},
		{Name: "client", Arity: -2,
			Doc: doc("Commands about connections.", "2.4.0", "connection", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "setname", Arity: 3, Flags: ofSession,
					Doc: doc("Names the connection.", "2.6.9", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientSetName)},
				{Name: "getname", Arity: 2, Flags: ofSession,
					Doc: doc("Returns the connection's name.", "2.6.9", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientGetName)},
				{Name: "id", Arity: 2, Flags: ofSession,
					Doc: doc("Returns the connection's number.", "5.0.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientID)},
				{Name: "info", Arity: 2, Flags: ofSession, Tips: varying,
					Doc: doc("Describes the connection.", "6.2.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientInfo)},
				{Name: "list", Arity: -2, Flags: adminNow, Tips: varying,
					Doc: doc("Describes all connections.", "2.4.0", "",
						"O(N) where N is the number of client connections"),
					How: redis.HowOwn, Run: runner(runClientList)},
				{Name: "kill", Arity: -3, Flags: adminNow,
					Doc: doc("Closes connections.", "2.4.0", "", "O(N) where N is the number of client connections"),
					How: redis.HowOwn, Run: runner(runClientKill)},
				{Name: "pause", Arity: -3, Flags: adminNow,
					Doc: doc("Holds back commands, or writes alone, of all connections of this port.", "2.9.50", "",
						"O(1)"),
					How: redis.HowOwn, Run: runner(runClientPause)},
				{Name: "unpause", Arity: 2, Flags: adminNow,
					Doc: doc("Ends a pause.", "6.2.0", "", "O(N) Where N is the number of paused clients"),
					How: redis.HowOwn, Run: runner(runClientUnpause)},
				{Name: "reply", Arity: 3, Flags: ofSession,
					Doc: doc("Says whether commands are answered: on, off, or not the next one.", "3.2.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientReply)},
				{Name: "unblock", Arity: -3, Flags: adminNow,
					Doc: doc("Ends another connection's wait; there is none that can be ended.", "5.0.0", "",
						"O(log N) where N is the number of client connections"),
					How: redis.HowOwn, Run: runner(runClientUnblock)},
				{Name: "no-evict", Arity: 3, Flags: adminNow,
					Doc: doc("Spares the connection when memory for clients is short.", "7.0.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientNoEvict)},
				{Name: "no-touch", Arity: 3, Flags: ofSession,
					Doc: doc("Is accepted; no access times are kept that it could keep from changing.", "7.2.0", "",
						"O(1)"),
					How: redis.HowSession, Run: runner(runClientNoTouch)},
				{Name: "setinfo", Arity: 4, Flags: ofSession, Tips: everyNode,
					Doc: doc("Notes the client library's name or version.", "7.2.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientSetInfo)},
				{Name: "tracking", Arity: -3, Flags: ofSession,
					Doc: doc("Has the server tell the connection which keys change that it has read, or not any more.", "6.0.0", "",
						"O(1), but O(N) in the number N of prefixes."),
					How: redis.HowSession, Run: runner(runClientTracking)},
				{Name: "trackinginfo", Arity: 2, Flags: ofSession,
					Doc: doc("Tells which keys are tracked for the connection, and how.", "6.2.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientTrackingInfo)},
				{Name: "getredir", Arity: 2, Flags: ofSession,
					Doc: doc("Returns the connection that is told of changed keys in place of this one, 0 if none is, -1 without "+
						"tracking.", "6.0.0", "", "O(1)"),
					How: redis.HowSession, Run: runner(runClientGetRedir)},
				{Name: "caching", Arity: 3, Flags: ofSession,
					Doc: doc("Says whether keys of the next command are tracked, in the modes OPTIN and OPTOUT.", "6.0.0", "",
						"O(1)"),
					How: redis.HowSession, Run: runner(runClientCaching)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "command", Arity: -1, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
			Doc: doc("Describes all commands.", "2.8.13", "server",
				"O(N) where N is the total number of Redis commands"),
			How: redis.HowOwn, Run: runner(runCommand), Sub: []*redis.Command{
				{Name: "count", Arity: 2, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Counts the commands.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runCommandCount)},
				{Name: "info", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Describes some commands, or all.", "2.8.13", "",
						"O(N) where N is the number of commands to look up"),
					How: redis.HowOwn, Run: runner(runCommandInfo)},
				{Name: "docs", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Documents some commands, or all.", "7.0.0", "",
						"O(N) where N is the number of commands to look up"),
					How: redis.HowOwn, Run: runner(runCommandDocs)},
				{Name: "getkeys", Arity: -4, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Picks the keys out of a call.", "2.8.13", "",
						"O(N) where N is the number of arguments to the command"),
					How: redis.HowOwn, Run: runner(runCommandGetKeys)},
				{Name: "getkeysandflags", Arity: -4, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Picks the keys out of a call, and tells what is done with each.", "7.0.0", "",
						"O(N) where N is the number of arguments to the command"),
					How: redis.HowOwn, Run: runner(runCommandGetKeysAndFlags)},
				{Name: "list", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Names the commands, all or those that a filter lets through.", "7.0.0", "",
						"O(N) where N is the total number of Redis commands"),
					How: redis.HowOwn, Run: runner(runCommandList)},
				{Name: "help", Arity: 2, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "config", Arity: -2,
			Doc: doc("Commands about the configuration.", "2.0.0", "server", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "get", Arity: -3, Flags: adminNow,
					Doc: doc("Returns the parameters that match patterns.", "2.0.0", "",
						"O(N) when N is the number of configuration parameters provided"),
					How: redis.HowOwn, Run: runner(runConfigGet)},
				{Name: "set", Arity: -4, Flags: adminNow, Tips: everyNode,
					Doc: doc("Sets parameters until the next start.", "2.0.0", "",
						"O(N) when N is the number of configuration parameters provided"),
					How: redis.HowOwn, Run: runner(runConfigSet)},
				{Name: "resetstat", Arity: 2, Flags: adminNow,
					Doc: doc("Sets the counters of INFO to zero.", "2.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runConfigResetStat)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "slowlog", Arity: -2,
			Doc: doc("Commands about the calls that took longest.", "2.2.12", "server",
				"Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "get", Arity: -2, Flags: slow,
					Tips: []string{"request_policy:all_nodes", "nondeterministic_output"},
					Doc: doc("Returns the last slow calls, 10 or as many as are asked for.", "2.2.12", "",
						"O(N) where N is the number of entries returned"),
					How: redis.HowOwn, Run: runner(runSlowLogGet)},
				{Name: "len", Arity: 2, Flags: slow,
					Tips: []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
					Doc:  doc("Counts the slow calls that are kept.", "2.2.12", "", "O(1)"),
					How:  redis.HowOwn, Run: runner(runSlowLogLen)},
				{Name: "reset", Arity: 2, Flags: slow, Tips: everyNode,
					Doc: doc("Forgets the slow calls.", "2.2.12", "",
						"O(N) where N is the number of entries in the slowlog"),
					How: redis.HowOwn, Run: runner(runSlowLogReset)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "6.2.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "latency", Arity: -2,
			Doc: doc("Commands about how long commands take.", "2.8.13", "server",
				"Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "latest", Arity: 2, Flags: adminNow, Tips: special,
					Doc: doc("Returns an empty array: events are not watched.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runEmptyArray)},
				{Name: "history", Arity: 3, Flags: adminNow, Tips: special,
					Doc: doc("Returns an empty array: events are not watched.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runEmptyArray)},
				{Name: "graph", Arity: 3, Flags: adminNow, Tips: special,
					Doc: doc("Answers that there are no samples: events are not watched.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runLatencyGraph)},
				{Name: "doctor", Arity: 2, Flags: adminNow, Tips: special,
					Doc: doc("Tells where to look for what takes long.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runLatencyDoctor)},
				{Name: "reset", Arity: -2, Flags: adminNow, Tips: everyNode,
					Doc: doc("Returns 0: no events are kept.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runLatencyReset)},
				{Name: "histogram", Arity: -2, Flags: adminNow, Tips: special,
					Doc: doc("Returns how many calls of commands took how long.", "7.0.0", "",
						"O(N) where N is the number of commands with latency information being retrieved."),
					How: redis.HowOwn, Run: runner(runLatencyHistogram)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "2.8.13", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "monitor", Arity: 1, Flags: adminNow,
			Doc: doc("Sends the connection every command that this port runs, but for administrators' ones.",
				"1.0.0", "server", ""),
			How: redis.HowSession, Run: runner(runMonitor)},
		{Name: "role", Arity: 1, Flags: ofSession | redis.FlagFast, Categories: []string{"admin", "dangerous"},
			Doc: doc("Tells that the server is a master; replicas are regions' own.", "2.8.12", "server", "O(1)"),
			How: redis.HowOwn, Run: runner(runRole)},
		{Name: "lastsave", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"admin", "dangerous"},
			Tips: varying,
			Doc: doc("Returns the Unix time of the last backup that succeeded, or of the server's start.",
				"1.0.0", "server", "O(1)"),
			How: redis.HowOwn, Run: runner(runLastSave)},
		{Name: "save", Arity: 1, Flags: redis.FlagAdmin | redis.FlagNoScript | redis.FlagNoAsyncLoading | redis.FlagNoMulti,
			Doc: doc("Copies the cluster as of one instant into backups/ of the data folder, and waits for that.",
				"1.0.0", "server", "O(N) where N is the total number of keys in all databases"),
			How: redis.HowOwn, Run: runner(runSave)},
		{Name: "bgsave", Arity: -1, Flags: redis.FlagAdmin | redis.FlagNoScript | redis.FlagNoAsyncLoading,
			Doc: doc("Begins to copy the cluster as of one instant into backups/ of the data folder.",
				"1.0.0", "server", "O(1)"),
			How: redis.HowOwn, Run: runner(runBGSave)},
		{Name: "wait", Arity: 3, Flags: redis.FlagNoScript, Categories: []string{"connection"},
			Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
			Doc: doc("Waits until so many replicas have applied the connection's last write.", "3.0.0", "generic",
				"O(1)"),
			How: redis.HowSession, Run: runner(runWait)},
		{Name: "debug", Arity: -2, Flags: adminNow,
			Doc: doc("Is refused, but for SLEEP and SET-ACTIVE-EXPIRE.", "1.0.0", "server", "Depends on subcommand."),
			How: redis.HowOwn, Run: runner(runDebug)},
		{Name: "acl", Arity: -2,
			Doc: doc("Commands about users.", "6.0.0", "server", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "whoami", Arity: 2, Flags: ofSession,
					Doc: doc("Returns the name of the user: default, the only one.", "6.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runACLWhoAmI)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "6.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "module", Arity: -2,
			Doc: doc("Commands about modules.", "4.0.0", "server", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "list", Arity: 2, Flags: redis.FlagAdmin | redis.FlagNoScript, Tips: unordered,
					Doc: doc("Returns an empty array: there are no modules.", "4.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runEmptyArray)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "neokv", Arity: -2,
			Doc: doc("Commands that Redis does not have.", "0.1.0", "server", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "checksum", Arity: -2, Flags: adminNow, Tips: varying,
					Doc: doc("Compares the replicas of a region, or of all, by their checksums at one apply index.",
						"0.1.0", "", "O(N) where N is the size of the regions"),
					How: redis.HowOwn, Run: runner(runChecksum)},
				{Name: "settle", Arity: 2, Flags: adminNow,
					Doc: doc("Applies all entries, writes memtables, compacts L0, and waits for the end of "+
						"compactions.",
						"0.1.0", "", "O(N) where N is what is left to do"),
					How: redis.HowOwn, Run: runner(runSettle)},
				{Name: "docs", Arity: -2, Flags: anytime,
					Doc: doc("Says what some commands do here, or all; COMMAND DOCS says what they do in Redis.", "0.1.0", "",
						"O(N) where N is the number of commands to look up"),
					How: redis.HowOwn, Run: runner(runDocs)},
				redis.LegacySet,
				redis.Batch,
				redis.ScanPrefix,
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "0.1.0", "", "O(1)"),
					How: redis.HowOwn, Run: runner(runHelp)},
			}},
		{Name: "info", Arity: -1, Flags: anytime, Categories: []string{"dangerous"},
			Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
			Doc:  doc("Describes the state of the server.", "1.0.0", "server", "O(1)"),
			How:  redis.HowOwn, Run: runner(runInfo)},
		{Name: "time", Arity: 1, Flags: anytime | redis.FlagFast, Tips: varying,
			Doc: doc("Returns the server's time, in seconds and microseconds.", "2.6.0", "server", "O(1)"),
			How: redis.HowOwn, Run: runner(runTime)},
		{Name: "lolwut", Arity: -1, Flags: redis.FlagReadonly | redis.FlagFast,
			Doc: doc("Draws which store leads which slots.", "5.0.0", "server", ""),
			How: redis.HowOwn, Run: runner(runLolwut)},
		{Name: "cluster", Arity: -2,
			Doc: doc("Commands about the cluster.", "3.0.0", "cluster", "Depends on subcommand."),
			Sub: []*redis.Command{
				{Name: "keyslot", Arity: 3, Flags: redis.FlagStale,
					Doc: doc("Returns the slot of a key.", "3.0.0", "",
						"O(N) where N is the number of bytes in the key"),
					How: redis.HowOwn, Run: inCluster(runClusterKeySlot)},
				{Name: "slots", Arity: 2, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Lists which store serves which slots.", "3.0.0", "",
						"O(N) where N is the total number of Cluster nodes"),
					How: redis.HowOwn, Run: inCluster(runClusterSlots)},
				{Name: "shards", Arity: 2, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Lists the stores and the slots that each serves.", "7.0.0", "",
						"O(N) where N is the total number of cluster nodes"),
					How: redis.HowOwn, Run: inCluster(runClusterShards)},
				{Name: "nodes", Arity: 2, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Describes the stores, one per line.", "3.0.0", "",
						"O(N) where N is the total number of Cluster nodes"),
					How: redis.HowOwn, Run: inCluster(runClusterNodes)},
				{Name: "info", Arity: 2, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Describes the state of the cluster.", "3.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runClusterInfo)},
				{Name: "myid", Arity: 2, Flags: redis.FlagStale,
					Doc: doc("Returns the id of the store.", "3.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runClusterMyID)},
				{Name: "replicas", Arity: 3, Flags: redis.FlagAdmin | redis.FlagStale, Tips: varying,
					Doc: doc("Lists the replicas of a store.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runClusterReplicas)},
				{Name: "slaves", Arity: 3, Flags: redis.FlagAdmin | redis.FlagStale, Tips: varying,
					Doc: doc("Lists the replicas of a store.", "3.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runClusterReplicas)},
				{Name: "countkeysinslot", Arity: 3, Flags: redis.FlagStale,
					Doc: doc("Counts the keys of a slot that this store serves.", "3.0.0", "",
						"O(N) where N is the number of keys in the slot"),
					How: redis.HowOwn, Run: inCluster(runClusterCountKeys)},
				{Name: "getkeysinslot", Arity: 4, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Returns some keys of a slot that this store serves.", "3.0.0", "",
						"O(N) where N is the number of requested keys"),
					How: redis.HowOwn, Run: inCluster(runClusterGetKeys)},
				{Name: "links", Arity: 2, Flags: redis.FlagStale, Tips: varying,
					Doc: doc("Lists the links of the cluster bus, which there are none of.", "7.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runEmptyArray)},
				{Name: "failover", Arity: -2, Flags: redis.FlagAdmin | redis.FlagStale | redis.FlagNoAsyncLoading,
					Doc: doc("Makes the store lead the regions that it follows, until `neokv ctl heal`.", "3.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runClusterFailover)},
				{Name: "help", Arity: 2, Flags: anytime,
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)"),
					How: redis.HowOwn, Run: inCluster(runHelp)},
			}},
		{Name: "readonly", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Allows reads from a store that does not lead.", "3.0.0", "cluster", "O(1)"),
			How: redis.HowSession, Run: inCluster(runReadOnly)},
		{Name: "readwrite", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Takes READONLY back.", "3.0.0", "cluster", "O(1)"),
			How: redis.HowSession, Run: inCluster(runReadWrite)},
		{Name: "asking", Arity: 1, Flags: redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Announces a command that follows an ASK redirection.", "3.0.0", "cluster", "O(1)"),
			How: redis.HowSession, Run: inCluster(runAsking)},
	}
}

// call is what a region runs of the command.
func (cmd *command) call() redis.Call {
	if cmd.script != nil {
		return *cmd.script
	}
	return redis.Call{Command: cmd.runs(), Args: cmd.args}
}

// runs returns the row whose function runs the command: its own, or the one that reads in its place.
func (cmd *command) runs() *redis.Command {
	if cmd.how != cmd.row.How {
		return cmd.row.ReadBy(cmd.args)
	}
	return cmd.row
}
