package server

import (
	"bytes"
	"slices"
	"strings"

	"neokv.dev/neokv/internal/redis"
)

// This file has the command table: which commands clients can call, and who runs each. Package redis has the rows of
// commands about data, and regions run them. The server runs its own rows, and those rows of redis for which it has a
// runner.

// runner runs a command on the server itself. The arity of args holds. The reply goes to c.out.
type runner func(c *conn, args [][]byte)

// walker returns the runner of a command that goes over all keys in steps.
func walker(run func(e *executor, args [][]byte)) runner {
	return func(c *conn, args [][]byte) { run(&c.exec, args) }
}

// ownRow is a row of the server's own, with the function that runs it. A container has subcommands instead of a
// function, or besides.
type ownRow struct {
	redis.Command
	run runner
	sub []ownRow
}

// runnersOfRedis has the runners of rows in package redis that have no function of their own, by full name: commands
// that go over all keys in steps, and commands about the server's memory.
var runnersOfRedis = map[string]runner{
	"scan":                walker(runScan),
	"keys":                walker(runKeys),
	"dbsize":              walker(runDBSize),
	"randomkey":           walker(runRandomKey),
	"object|help":         runHelp,
	"memory|help":         runHelp,
	"memory|doctor":       runMemoryDoctor,
	"memory|malloc-stats": runMallocStats,
	"memory|purge":        runMemoryPurge,
	"memory|stats":        runMemoryStats,
}

var (
	commands *redis.CommandTable
	runners  = map[*redis.Command]runner{} // the runner of each row without Read and Write, except containers
	// secretRules has the rows whose arguments other clients may not see: secretsOf, by row.
	secretRules = map[*redis.Command]secretRule{}
)

// init makes the table. It cannot be the variable's initial value, since runners refer to the table.
func init() {
	rows := slices.Clone(redis.Rows())
	for _, r := range ownRows() {
		rows = append(rows, r.register())
	}
	commands = redis.NewTable(rows...)
	for _, r := range redis.Rows() {
		for _, row := range append([]*redis.Command{r}, r.Sub...) {
			if run := runnersOfRedis[row.FullName()]; run != nil {
				runners[row] = run
			}
		}
	}
	for name, rule := range secretsOf {
		container, sub, _ := strings.Cut(name, "|")
		row := commands.Lookup([]byte(container))
		if sub != "" {
			row = row.Subcommand([]byte(sub))
		}
		secretRules[row] = rule
	}
	if secretRules[nil] != nil {
		panic("a rule for secrets is for a command that does not exist")
	}
}

// register notes the runners of a row and of its subcommands, and returns the row as the table has it.
func (r ownRow) register() *redis.Command {
	row := &r.Command
	for _, s := range r.sub {
		s.Doc.Group = row.Doc.Group
		row.Sub = append(row.Sub, s.register())
	}
	if r.run != nil {
		runners[row] = r.run
	}
	if r.run != nil && row.Doc.Group == "cluster" {
		runners[row] = func(c *conn, args [][]byte) {
			if c.s.proxy() {
				c.out.Error(errNoCluster)
				return
			}
			r.run(c, args)
		}
	}
	return row
}

// errSlots is the answer to commands that move slots or keys between nodes of a Redis Cluster, one by one.
const errSlots = "ERR slots move with their region here: see neokv ctl split and neokv ctl merge"

// refused has the commands of Redis that the table lacks because they would do what is done otherwise here, by full
// name, with the error that says so.
var refused = map[string]string{
	"cluster|addslots":      errSlots,
	"cluster|addslotsrange": errSlots,
	"cluster|delslots":      errSlots,
	"cluster|delslotsrange": errSlots,
	"cluster|flushslots":    errSlots,
	"cluster|setslot":       errSlots,
	"config|rewrite":        "ERR The server is running without a config file",
	"migrate":               errSlots,
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
	anytime  = redis.FlagLoading | redis.FlagStale
	session  = anytime | redis.FlagNoScript
	greeting = session | redis.FlagFast | redis.FlagNoAuth | redis.FlagAllowBusy
	adminNow = session | redis.FlagAdmin
	slow     = anytime | redis.FlagAdmin
)

// ownRows lists the server's own rows. What they say of a command is what redis-server 7.0.15 says, or 7.2 for CLIENT
// SETINFO and CLIENT NO-TOUCH; the wording of summaries is ours.
func ownRows() []ownRow {
	type cmd = redis.Command
	doc := func(summary, since, group, complexity string) redis.Doc {
		return redis.Doc{Summary: summary, Since: since, Group: group, Complexity: complexity}
	}
	varying := []string{"nondeterministic_output"}
	unordered := []string{"nondeterministic_output_order"}
	everyNode := []string{"request_policy:all_nodes", "response_policy:all_succeeded"}
	special := []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"}
	return []ownRow{
		{cmd{Name: "ping", Arity: -1, Flags: redis.FlagFast,
			Tips: []string{"request_policy:all_shards", "response_policy:all_succeeded"},
			Doc:  doc("Answers PONG, or with its argument.", "1.0.0", "connection", "O(1)")}, runPing, nil},
		{cmd{Name: "echo", Arity: 2, Flags: anytime | redis.FlagFast,
			Doc: doc("Answers with its argument.", "1.0.0", "connection", "O(1)")}, runEcho, nil},
		{cmd{Name: "select", Arity: 2, Flags: anytime | redis.FlagFast,
			Doc: doc("Chooses a database; there is only number 0.", "1.0.0", "connection", "O(1)")}, runSelect, nil},
		{cmd{Name: "quit", Arity: -1, Flags: greeting,
			Doc: doc("Closes the connection.", "1.0.0", "connection", "O(1)")}, runQuit, nil},
		{cmd{Name: "reset", Arity: 1, Flags: greeting,
			Doc: doc("Brings the connection back to how it began.", "6.2.0", "connection", "O(1)")}, runReset, nil},
		{cmd{Name: "hello", Arity: -1, Flags: greeting,
			Doc: doc("Says who the server is, and switches the protocol version.", "6.0.0", "connection", "O(1)")},
			runHello, nil},
		{cmd{Name: "auth", Arity: -2, Flags: greeting,
			Doc: doc("Gives the password of the user default, the only one.", "1.0.0", "connection", "O(1)")},
			runAuth, nil},
		{cmd{Name: "client", Arity: -2,
			Doc: doc("Commands about connections.", "2.4.0", "connection", "Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "setname", Arity: 3, Flags: session,
				Doc: doc("Names the connection.", "2.6.9", "", "O(1)")}, runClientSetName, nil},
			{cmd{Name: "getname", Arity: 2, Flags: session,
				Doc: doc("Returns the connection's name.", "2.6.9", "", "O(1)")}, runClientGetName, nil},
			{cmd{Name: "id", Arity: 2, Flags: session,
				Doc: doc("Returns the connection's number.", "5.0.0", "", "O(1)")}, runClientID, nil},
			{cmd{Name: "info", Arity: 2, Flags: session, Tips: varying,
				Doc: doc("Describes the connection.", "6.2.0", "", "O(1)")}, runClientInfo, nil},
			{cmd{Name: "list", Arity: -2, Flags: adminNow, Tips: varying,
				Doc: doc("Describes all connections.", "2.4.0", "",
					"O(N) where N is the number of client connections")},
				runClientList, nil},
			{cmd{Name: "kill", Arity: -3, Flags: adminNow,
				Doc: doc("Closes connections.", "2.4.0", "", "O(N) where N is the number of client connections")},
				runClientKill, nil},
			{cmd{Name: "pause", Arity: -3, Flags: adminNow,
				Doc: doc("Holds back commands, or writes alone, of all connections of this port.", "2.9.50", "",
					"O(1)")},
				runClientPause, nil},
			{cmd{Name: "unpause", Arity: 2, Flags: adminNow,
				Doc: doc("Ends a pause.", "6.2.0", "", "O(N) Where N is the number of paused clients")},
				runClientUnpause, nil},
			{cmd{Name: "reply", Arity: 3, Flags: session,
				Doc: doc("Says whether commands are answered: on, off, or not the next one.", "3.2.0", "", "O(1)")},
				runClientReply, nil},
			{cmd{Name: "unblock", Arity: -3, Flags: adminNow,
				Doc: doc("Ends another connection's wait; there is none that can be ended.", "5.0.0", "",
					"O(log N) where N is the number of client connections")},
				runClientUnblock, nil},
			{cmd{Name: "no-evict", Arity: 3, Flags: adminNow,
				Doc: doc("Spares the connection when memory for clients is short.", "7.0.0", "", "O(1)")},
				runClientNoEvict, nil},
			{cmd{Name: "no-touch", Arity: 3, Flags: session,
				Doc: doc("Is accepted; no access times are kept that it could keep from changing.", "7.2.0", "",
					"O(1)")},
				runClientNoTouch, nil},
			{cmd{Name: "setinfo", Arity: 4, Flags: session, Tips: everyNode,
				Doc: doc("Notes the client library's name or version.", "7.2.0", "", "O(1)")}, runClientSetInfo, nil},
			{cmd{Name: "tracking", Arity: -3, Flags: session,
				Doc: doc("Takes OFF; keys are not tracked.", "6.0.0", "", "O(1)")},
				runClientTracking, nil},
			{cmd{Name: "trackinginfo", Arity: 2, Flags: session,
				Doc: doc("Tells that no keys are tracked.", "6.2.0", "", "O(1)")},
				runClientTrackingInfo, nil},
			{cmd{Name: "getredir", Arity: 2, Flags: session,
				Doc: doc("Tells that no other connection hears of changed keys: returns -1.", "6.0.0", "", "O(1)")},
				runClientGetRedir, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "command", Arity: -1, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
			Doc: doc("Describes all commands.", "2.8.13", "server",
				"O(N) where N is the total number of Redis commands")},
			runCommand, []ownRow{
				{cmd{Name: "count", Arity: 2, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Counts the commands.", "2.8.13", "", "O(1)")}, runCommandCount, nil},
				{cmd{Name: "info", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Describes some commands, or all.", "2.8.13", "",
						"O(N) where N is the number of commands to look up")},
					runCommandInfo, nil},
				{cmd{Name: "docs", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Documents some commands, or all.", "7.0.0", "",
						"O(N) where N is the number of commands to look up")},
					runCommandDocs, nil},
				{cmd{Name: "getkeys", Arity: -4, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Picks the keys out of a call.", "2.8.13", "",
						"O(N) where N is the number of arguments to the command")},
					runCommandGetKeys, nil},
				{cmd{Name: "getkeysandflags", Arity: -4, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Picks the keys out of a call, and tells what is done with each.", "7.0.0", "",
						"O(N) where N is the number of arguments to the command")},
					runCommandGetKeysAndFlags, nil},
				{cmd{Name: "list", Arity: -2, Flags: anytime, Categories: []string{"connection"}, Tips: unordered,
					Doc: doc("Names the commands, all or those that a filter lets through.", "7.0.0", "",
						"O(N) where N is the total number of Redis commands")},
					runCommandList, nil},
				{cmd{Name: "help", Arity: 2, Flags: anytime, Categories: []string{"connection"},
					Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)")}, runHelp, nil},
			}},
		{cmd{Name: "config", Arity: -2,
			Doc: doc("Commands about the configuration.", "2.0.0", "server", "Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "get", Arity: -3, Flags: adminNow,
				Doc: doc("Returns the parameters that match patterns.", "2.0.0", "",
					"O(N) when N is the number of configuration parameters provided")},
				runConfigGet, nil},
			{cmd{Name: "set", Arity: -4, Flags: adminNow, Tips: everyNode,
				Doc: doc("Sets parameters until the next start.", "2.0.0", "",
					"O(N) when N is the number of configuration parameters provided")},
				runConfigSet, nil},
			{cmd{Name: "resetstat", Arity: 2, Flags: adminNow,
				Doc: doc("Sets the counters of INFO to zero.", "2.0.0", "", "O(1)")}, runConfigResetStat, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "slowlog", Arity: -2,
			Doc: doc("Commands about the calls that took longest.", "2.2.12", "server",
				"Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "get", Arity: -2, Flags: slow,
				Tips: []string{"request_policy:all_nodes", "nondeterministic_output"},
				Doc: doc("Returns the last slow calls, 10 or as many as are asked for.", "2.2.12", "",
					"O(N) where N is the number of entries returned")},
				runSlowLogGet, nil},
			{cmd{Name: "len", Arity: 2, Flags: slow,
				Tips: []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
				Doc:  doc("Counts the slow calls that are kept.", "2.2.12", "", "O(1)")}, runSlowLogLen, nil},
			{cmd{Name: "reset", Arity: 2, Flags: slow, Tips: everyNode,
				Doc: doc("Forgets the slow calls.", "2.2.12", "",
					"O(N) where N is the number of entries in the slowlog")},
				runSlowLogReset, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "6.2.0", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "latency", Arity: -2,
			Doc: doc("Commands about how long commands take.", "2.8.13", "server",
				"Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "latest", Arity: 2, Flags: adminNow, Tips: special,
				Doc: doc("Returns an empty array: events are not watched.", "2.8.13", "", "O(1)")},
				runEmptyArray, nil},
			{cmd{Name: "history", Arity: 3, Flags: adminNow, Tips: special,
				Doc: doc("Returns an empty array: events are not watched.", "2.8.13", "", "O(1)")},
				runEmptyArray, nil},
			{cmd{Name: "graph", Arity: 3, Flags: adminNow, Tips: special,
				Doc: doc("Answers that there are no samples: events are not watched.", "2.8.13", "", "O(1)")},
				runLatencyGraph, nil},
			{cmd{Name: "doctor", Arity: 2, Flags: adminNow, Tips: special,
				Doc: doc("Tells where to look for what takes long.", "2.8.13", "", "O(1)")}, runLatencyDoctor, nil},
			{cmd{Name: "reset", Arity: -2, Flags: adminNow, Tips: everyNode,
				Doc: doc("Returns 0: no events are kept.", "2.8.13", "", "O(1)")}, runLatencyReset, nil},
			{cmd{Name: "histogram", Arity: -2, Flags: adminNow, Tips: special,
				Doc: doc("Returns how many calls of commands took how long.", "7.0.0", "",
					"O(N) where N is the number of commands with latency information being retrieved.")},
				runLatencyHistogram, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "2.8.13", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "monitor", Arity: 1, Flags: adminNow,
			Doc: doc("Sends the connection every command that this port runs, but for administrators' ones.",
				"1.0.0", "server", "")},
			runMonitor, nil},
		{cmd{Name: "role", Arity: 1, Flags: session | redis.FlagFast, Categories: []string{"admin", "dangerous"},
			Doc: doc("Tells that the server is a master; replicas are regions' own.", "2.8.12", "server", "O(1)")},
			runRole, nil},
		{cmd{Name: "lastsave", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"admin", "dangerous"},
			Tips: varying,
			Doc: doc("Returns the Unix time of the server's start: no snapshot of all data is written.",
				"1.0.0", "server", "O(1)")},
			runLastSave, nil},
		{cmd{Name: "wait", Arity: 3, Flags: redis.FlagNoScript,
			Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
			Doc: doc("Waits until so many replicas have applied the connection's last write.", "3.0.0", "connection",
				"O(1)")},
			runWait, nil},
		{cmd{Name: "debug", Arity: -2, Flags: adminNow,
			Doc: doc("Is refused, but for SLEEP and SET-ACTIVE-EXPIRE.", "1.0.0", "server", "Depends on subcommand.")},
			runDebug, nil},
		{cmd{Name: "neokv", Arity: -2,
			Doc: doc("Commands that Redis does not have.", "0.1.0", "server", "Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "checksum", Arity: -2, Flags: adminNow, Tips: varying,
				Doc: doc("Compares the replicas of a region, or of all, by their checksums at one apply index.",
					"0.1.0", "", "O(N) where N is the size of the regions")},
				runChecksum, nil},
			{cmd{Name: "settle", Arity: 2, Flags: adminNow,
				Doc: doc("Applies all entries, writes memtables, compacts L0, and waits for the end of compactions.",
					"0.1.0", "", "O(N) where N is what is left to do")},
				runSettle, nil},
			{*redis.LegacySet, nil, nil},
			{*redis.Batch, nil, nil},
			{*redis.ScanPrefix, nil, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "0.1.0", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "info", Arity: -1, Flags: anytime, Categories: []string{"dangerous"},
			Tips: []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
			Doc:  doc("Describes the state of the server.", "1.0.0", "server", "O(1)")}, runInfo, nil},
		{cmd{Name: "time", Arity: 1, Flags: anytime | redis.FlagFast, Tips: varying,
			Doc: doc("Returns the server's time, in seconds and microseconds.", "2.6.0", "server", "O(1)")},
			runTime, nil},
		{cmd{Name: "lolwut", Arity: -1, Flags: redis.FlagReadonly | redis.FlagFast,
			Doc: doc("Draws which store leads which slots.", "5.0.0", "server", "")}, runLolwut, nil},
		{cmd{Name: "cluster", Arity: -2,
			Doc: doc("Commands about the cluster.", "3.0.0", "cluster", "Depends on subcommand.")}, nil, []ownRow{
			{cmd{Name: "keyslot", Arity: 3, Flags: redis.FlagStale,
				Doc: doc("Returns the slot of a key.", "3.0.0", "", "O(N) where N is the number of bytes in the key")},
				runClusterKeySlot, nil},
			{cmd{Name: "slots", Arity: 2, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Lists which store serves which slots.", "3.0.0", "",
					"O(N) where N is the total number of Cluster nodes")},
				runClusterSlots, nil},
			{cmd{Name: "shards", Arity: 2, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Lists the stores and the slots that each serves.", "7.0.0", "",
					"O(N) where N is the total number of cluster nodes")},
				runClusterShards, nil},
			{cmd{Name: "nodes", Arity: 2, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Describes the stores, one per line.", "3.0.0", "",
					"O(N) where N is the total number of Cluster nodes")},
				runClusterNodes, nil},
			{cmd{Name: "info", Arity: 2, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Describes the state of the cluster.", "3.0.0", "", "O(1)")}, runClusterInfo, nil},
			{cmd{Name: "myid", Arity: 2, Flags: redis.FlagStale,
				Doc: doc("Returns the id of the store.", "3.0.0", "", "O(1)")}, runClusterMyID, nil},
			{cmd{Name: "countkeysinslot", Arity: 3, Flags: redis.FlagStale,
				Doc: doc("Counts the keys of a slot that this store serves.", "3.0.0", "",
					"O(N) where N is the number of keys in the slot")},
				runClusterCountKeys, nil},
			{cmd{Name: "getkeysinslot", Arity: 4, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Returns some keys of a slot that this store serves.", "3.0.0", "",
					"O(N) where N is the number of requested keys")},
				runClusterGetKeys, nil},
			{cmd{Name: "links", Arity: 2, Flags: redis.FlagStale, Tips: varying,
				Doc: doc("Lists the links of the cluster bus, which there are none of.", "7.0.0", "", "O(1)")},
				runEmptyArray, nil},
			{cmd{Name: "help", Arity: 2, Flags: anytime,
				Doc: doc("Lists the subcommands.", "5.0.0", "", "O(1)")}, runHelp, nil},
		}},
		{cmd{Name: "readonly", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Allows reads from a store that does not lead.", "3.0.0", "cluster", "O(1)")}, runReadOnly, nil},
		{cmd{Name: "readwrite", Arity: 1, Flags: anytime | redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Takes READONLY back.", "3.0.0", "cluster", "O(1)")}, runReadWrite, nil},
		{cmd{Name: "asking", Arity: 1, Flags: redis.FlagFast, Categories: []string{"connection"},
			Doc: doc("Announces a command that follows an ASK redirection.", "3.0.0", "cluster", "O(1)")},
			runAsking, nil},
	}
}

// runs returns the row whose function runs the command: its own, or the one that reads in its place.
func (cmd *command) runs() *redis.Command {
	if cmd.kind == read && cmd.row.Read == nil {
		return cmd.row.ReadBy(cmd.args)
	}
	return cmd.row
}
