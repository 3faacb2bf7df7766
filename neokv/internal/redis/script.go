package redis

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/topology"
)

// This file runs scripts: EVAL and its kin. A script is a call of an internal command, which no client may send:
//
//	NEOKV SCRIPT flags text touched numkeys key... arg...
//
// flags is a decimal number of ScriptFlags. touched is the key by which a script without declared keys is routed, or
// empty.
//
// A script that may write runs at apply, on every replica, as a part of its unit. What it finds and does follows from
// the entry and the state before the entry. The calls that it makes run as the calls of a group do, through Writer.Run,
// but reply into memory of the script's own, which has the same room on all replicas. A script that may not write runs
// as reads do.
//
// Limits end a script. They count, on every replica alike, its instructions, the memory that it uses, its calls, and
// what these read and write. A script that exceeds one is undone. A script's own error undoes nothing, as in Redis.

// ScriptFlags say what a script may do.
type ScriptFlags uint8

const (
	// ScriptReadOnly: it may not write.
	ScriptReadOnly ScriptFlags = 1 << iota
	// ScriptCrossSlots: its keys may lie in all slots of the region, and not only in one.
	ScriptCrossSlots
)

// ScriptLimits bound one script.
type ScriptLimits struct {
	Steps int // instructions, and other work in like units: see the constants below
	Bytes int // of strings and tables that it makes, replies to its calls included
	Calls int
}

// ScriptMistakes are errors in how scripts run that a test plants, to see that a checker finds them. None by default.
type ScriptMistakes struct {
	KeptWrites bool // what an ended script has written stays
	Chance     bool // the seed of random numbers is each replica's own
	Capacity   bool // the length of the replica's batch counts toward the limit of instructions
	MapOrder   bool // arguments come in the order of a Go map
	Discard    bool // replies to a script's calls have the room that the script's own reply has
	OldVersion bool // Undo gives versions again
}

// DefaultScriptLimits are for tests that say nothing else.
var DefaultScriptLimits = ScriptLimits{Steps: 1_000_000, Bytes: 32 << 20, Calls: 100_000}

// What a script's calls cost, in instructions.
const (
	callCost = 5 // any call
	argCost  = 5 // each of its arguments, for what it looks up
	unitCost = 8 // a unit of writeLimit, of a write
	workCost = 2 // the same of a read: there it is a unit of engine.Work
	// heldBytes is how many bytes of writes cost as much as an instruction.
	heldBytes = 32
	// skippedBytes is how many bytes of what the script has written cost as much as an instruction in a call that goes
	// over elements: what was deleted lies in the batch, and the call has to pass it.
	skippedBytes = 128
)

// The settings that errors name.
const (
	scriptSteps = "redis.script_steps"
	scriptBytes = "redis.script_bytes"
	scriptCalls = "redis.script_calls"
)

// Where a script's arguments are.
const (
	scriptFlags = 2 + iota
	scriptText
	scriptTouched
	scriptNumKeys
)

// Script is the internal command of scripts that may write. Inside a unit it also runs those that may not.
var Script = &Command{
	Name: "script", Arity: -6, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, How: HowWrite,
	Keys:     []KeySpec{{Unknown: true, Flags: []string{"RW", "access", "update"}}},
	FindKeys: appendScriptKeys, Write: (*Writer).script,
}

// ScriptRead is the internal command of scripts that may not write.
var ScriptRead = &Command{
	Name: "script", Arity: -6, Flags: FlagReadonly | FlagMovableKeys, How: HowRead,
	Keys:     []KeySpec{{Unknown: true, Flags: []string{"RO", "access"}}},
	FindKeys: appendScriptKeys, Read: (*Reader).script,
}

var (
	neokvName  = []byte("neokv")
	scriptName = []byte("script")
)

// NewScriptCall returns the call of a script. touched is the key that FirstKey returned, nil if keys are declared or
// none is touched. rest is numkeys, keys and arguments, which the caller has checked.
func NewScriptCall(flags ScriptFlags, text, touched []byte, rest [][]byte) Call {
	args := make([][]byte, 0, scriptNumKeys+len(rest))
	args = append(args, neokvName, scriptName, strconv.AppendUint(nil, uint64(flags), 10), text, touched)
	row := Script
	if flags&ScriptReadOnly != 0 {
		row = ScriptRead
	}
	return Call{row, append(args, rest...)}
}

// Script reports whether the call is that of a script.
func (c *Call) Script() bool { return c.Command == Script || c.Command == ScriptRead }

// ScriptText returns the text of a script's call, nil if the call is none.
func (c *Call) ScriptText() []byte {
	if !c.Script() {
		return nil
	}
	return c.Args[scriptText]
}

// ScriptSlot returns the slot in which a script may touch keys; one is false if these may be in any slot of the region.
func (c *Call) ScriptSlot() (slot topology.Slot, one bool) {
	flags, err := strconv.Atoi(string(c.Args[scriptFlags]))
	places := appendScriptKeys(nil, c.Args)
	if err != nil || ScriptFlags(flags)&ScriptCrossSlots != 0 || len(places) == 0 {
		return 0, false
	}
	return topology.SlotOf(c.Args[places[0]]), true
}

// InnerCall is a call that a script has made.
type InnerCall struct {
	Row   *Command // the row that the script has named, nil if there is none
	Args  [][]byte // valid until the call ends, as Reply
	Reply []byte
	Took  time.Duration
	Ran   bool // it was not refused before it ran
}

// sees returns whom a call of the run tells of the calls that it makes, nil if it is no script.
func (r *Run) sees(c *Call) func(*InnerCall) {
	if r.Seen == nil || !c.Script() {
		return nil
	}
	return func(x *InnerCall) { r.Seen(c, x) }
}

// SeeCall has the Writer tell the run of what its script calls, if the call is one. A run whose callers have been
// answered already has no calls.
func (w *Writer) SeeCall(r *Run, call int) {
	w.Seen, w.Published = nil, nil
	if call >= len(r.Calls) {
		return
	}
	c := &r.Calls[call]
	if w.Seen = r.sees(c); r.Published != nil && c.Script() {
		w.Published = func(p Publication) { r.Published(c, p) }
	}
}

// Publication is a message that a script publishes.
type Publication struct {
	Shard            bool // by SPUBLISH
	Channel, Payload []byte
}

// ScriptText returns the place of the text in the arguments of a script's call, 0 if the call is none.
func ScriptText(args [][]byte) int {
	if len(args) > scriptNumKeys && string(args[1]) == "script" && string(args[0]) == "neokv" {
		return scriptText
	}
	return 0
}

// appendScriptKeys appends the places of the declared keys, else that of the key that routes the script, if there is
// one.
func appendScriptKeys(dst []int, args [][]byte) []int {
	n := declared(args)
	for i := range n {
		dst = append(dst, scriptNumKeys+1+i)
	}
	if n == 0 && len(args[scriptTouched]) > 0 {
		dst = append(dst, scriptTouched)
	}
	return dst
}

// declared returns how many keys a script's call declares.
func declared(args [][]byte) int {
	n, err := strconv.Atoi(string(args[scriptNumKeys]))
	if err != nil || n < 0 || n > len(args)-scriptNumKeys-1 {
		return 0
	}
	return n
}

// FirstKey runs a script that declares no keys up to its first call that needs a region, and returns the first key of
// that call. The key is nil if the call has none: any region may run it then. touched is false if the script has ended
// without such a call; then out has its reply. nowMS is the time that the script sees. The script ends when work is
// over; then out has nothing to say.
func FirstKey(script *lua.Script, flags ScriptFlags, rest [][]byte, limits ScriptLimits, nowMS uint64,
	log func(level int, text string), published func(Publication), work *engine.Work, out *Reply) (key []byte, touched bool) {
	h := takeHost()
	defer h.release()
	h.publish = published
	h.flags, h.limits, h.log, h.nowMS, h.looking, h.work = flags, limits, log, nowMS, true, work
	reply, ended := h.run(script, nil, rest[1:], rand.Uint64(), out.Proto)
	if h.touched {
		return h.key, true
	}
	if ended != "" {
		out.Error(ended)
	} else {
		out.raw(reply)
		h.send()
	}
	return nil, false
}

// script runs a script at apply.
func (w *Writer) script(args [][]byte, out *Reply) error {
	h := takeHost()
	defer h.release()
	h.w, h.limits, h.log, h.nowMS, h.dearest = w, w.ScriptLimits, w.Log, w.State.TimeMS, w.group.dearest
	h.seen, h.publish = w.Seen, w.Published
	if w.group.begun {
		h.limits.Steps = max(0, h.limits.Steps-w.group.used.Steps)
		h.limits.Bytes = max(0, h.limits.Bytes-w.group.used.Bytes)
		h.limits.Calls = max(0, h.limits.Calls-w.group.used.Calls)
	}
	seed := w.random().Uint64()
	if w.ScriptMistakes.Chance {
		seed = rand.Uint64()
	}
	if w.ScriptMistakes.Discard {
		h.room = out
	}
	err := h.call(args, out, seed)
	if g := &w.group; g.begun {
		left := h.state.Left()
		g.used.Steps += h.limits.Steps - max(0, int(left.Steps))
		g.used.Bytes += h.limits.Bytes - max(0, int(left.Bytes))
		g.used.Calls += h.calls
		g.dearest = h.dearest
	}
	return err
}

// groupOfScripts is what the scripts of a transaction have used. They share the limits of one, since the transaction is
// one unit, for which the region waits.
type groupOfScripts struct {
	begun   bool
	used    ScriptLimits
	dearest int
}

// BeginGroup says that the calls until EndGroup are those of a group.
func (w *Writer) BeginGroup() { w.group = groupOfScripts{begun: true} }

// EndGroup ends a group.
func (w *Writer) EndGroup() { w.group = groupOfScripts{} }

// script runs a script that may not write.
func (r *Reader) script(args [][]byte, out *Reply) error {
	h := takeHost()
	defer h.release()
	h.r, h.limits, h.log, h.nowMS, h.seen, h.work = r, r.limits, r.Log, r.InstantMS, r.seen, r.work
	return h.call(args, out, r.random().Uint64())
}

// raw appends a whole reply.
func (r *Reply) raw(reply []byte) {
	if !r.Full && r.has(len(reply)) {
		r.Buf = append(r.Buf, reply...)
	}
}

// scriptHost is an interpreter, and what surrounds the script that runs on it.
type scriptHost struct {
	state *lua.State
	reply []byte
	inner Reply

	w       *Writer      // at apply, else nil
	r       *Reader      // of reads, else nil
	looking bool         // for the first key: neither of them
	work    *engine.Work // nil at apply
	flags   ScriptFlags
	limits  ScriptLimits
	log     func(level int, text string)
	nowMS   uint64
	seen    func(*InnerCall)  // nil: nobody is told of the calls
	named   *Command          // the row that the present call names
	publish func(Publication) // nil: another replica publishes
	sent    []Publication     // by the script so far

	calls   int
	held    uint64        // bytes that the calls have written
	dearest int           // what the most expensive call has cost, which is not charged
	slot    topology.Slot // of all keys
	slotted bool          // slot is known
	places  []int

	saved  bool
	before Point // the state before the first write, if saved
	err    error // what has gone wrong in the engine

	room *Reply // planted: see ScriptMistakes.Discard

	touched bool // looking has come to a call that needs a region
	key     []byte
}

// hosts keeps idle interpreters: as many as may run at once, since making one takes long.
var hosts struct {
	mu   sync.Mutex
	idle []*scriptHost
}

const (
	idleHosts     = 16
	keptHostBytes = 64 << 10
)

func takeHost() *scriptHost {
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	n := len(hosts.idle)
	if n == 0 {
		return &scriptHost{state: lua.NewState()}
	}
	h := hosts.idle[n-1]
	hosts.idle = hosts.idle[:n-1]
	return h
}

func (h *scriptHost) release() {
	*h = scriptHost{state: h.state, reply: kept(h.reply, keptHostBytes), places: h.places[:0]}
	hosts.mu.Lock()
	defer hosts.mu.Unlock()
	if len(hosts.idle) < idleHosts {
		hosts.idle = append(hosts.idle, h)
	}
}

// call runs a script's call.
func (h *scriptHost) call(args [][]byte, out *Reply, seed uint64) error {
	flags, err := strconv.ParseUint(string(args[scriptFlags]), 10, 8)
	if err != nil {
		return fmt.Errorf("script: flags %q", args[scriptFlags])
	}
	h.flags = ScriptFlags(flags)
	script, err := compiled.script(args[scriptText])
	if err != nil {
		out.Error("ERR " + err.Error())
		return nil
	}
	n := declared(args)
	keys, argv := args[scriptNumKeys+1:scriptNumKeys+1+n], args[scriptNumKeys+1+n:]
	switch {
	case n > 0:
		h.slot, h.slotted = topology.SlotOf(keys[0]), true
	case len(args[scriptTouched]) > 0:
		h.slot, h.slotted = topology.SlotOf(args[scriptTouched]), true
	}
	if h.w != nil && h.w.ScriptMistakes.MapOrder {
		few := min(len(argv), 2) // the others are words in any order
		argv = slices.AppendSeq(argv[:few:few], maps.Values(maps.Collect(slices.All(argv[few:]))))
	}
	reply, ended := h.run(script.Script, keys, argv, seed, out.Proto)
	script.ran(h.limits.Steps - max(0, int(h.state.Left().Steps)))
	switch {
	case h.err != nil:
		return h.err
	case ended == "":
		out.raw(reply)
		h.send()
		return nil
	}
	if h.saved && !h.w.ScriptMistakes.KeptWrites {
		if err := h.w.Undo(h.before); err != nil {
			return err
		}
	}
	if h.w != nil {
		h.w.ScriptsEnded++
	}
	out.Error(ended)
	return nil
}

// run runs a script and returns its reply, which is valid until the host is released. If the script was ended, run
// returns the error line that says why.
func (h *scriptHost) run(script *lua.Script, keys, argv [][]byte, seed uint64, protocol int) (reply []byte, ended string) {
	var look func() bool
	if h.work != nil {
		look = func() bool { return h.work.Spend(engine.LookEvery) }
	}
	reply, err := h.state.Run(h.reply[:0], lua.Run{
		Script: script, Keys: keys, Argv: argv, Seed: seed, Protocol: max(protocol, 2), Host: h,
		Limits: lua.Limits{Steps: int64(h.limits.Steps), Bytes: int64(h.limits.Bytes)}, Look: look,
	})
	h.reply = reply
	if err == nil {
		return reply, ""
	}
	var limit *lua.LimitError
	if !errors.As(err, &limit) {
		return nil, fmt.Sprintf("ERR %v; nothing that it wrote stays", err)
	}
	limits, which := h.limits, ""
	if h.w != nil && h.w.group.begun {
		limits, which = h.w.ScriptLimits, " for all scripts of a transaction"
	}
	name, most := scriptSteps, limits.Steps
	switch limit.What {
	case lua.LimitBytes:
		name, most = scriptBytes, limits.Bytes
	case scriptCalls:
		name, most = scriptCalls, limits.Calls
	}
	return nil, fmt.Sprintf("ERR script ended by %s, %d%s; nothing that it wrote stays", name, most, which)
}

// Log implements lua.Host.
func (h *scriptHost) Log(level int, text string) {
	if h.log != nil {
		h.log(level, text)
	}
}

// end ends the script in the middle of a call.
func (h *scriptHost) end(why string) { panic(&lua.LimitError{What: why}) }

// Errors of redis-server for calls of scripts.
const (
	errScriptUnknown  = "ERR Unknown Redis command called from script"
	errScriptArity    = "ERR Wrong number of args calling Redis command from script"
	errScriptNot      = "ERR This Redis command is not allowed from script"
	errScriptReadOnly = "ERR Write commands are not allowed from read-only scripts."
	errScriptSlots    = "ERR Script attempted to access keys that do not hash to the same slot"
	errScriptNonLocal = "ERR Script attempted to access a non local key in a cluster node"
)

// Call implements lua.Host: it runs a call of the script.
func (h *scriptHost) Call(reply []byte, args [][]byte, protocol int) []byte {
	if h.calls++; h.calls > h.limits.Calls {
		h.end(scriptCalls)
	}
	h.state.Charge(callCost+argCost*len(args), 0)
	out := &h.inner
	*out = Reply{Buf: reply, Proto: protocol, Room: len(reply) + int(h.state.Left().Bytes), More: noMore}
	if h.room != nil && h.room.More != nil {
		out.Room, out.More = len(reply)+h.room.Room, h.room.More
	}
	var begin time.Time
	if h.seen != nil {
		begin = time.Now()
	}
	row, run := h.find(args, out)
	ran := row != nil || run != nil
	switch {
	case run != nil:
		run(h, args, out)
	case row != nil:
		h.runRow(row, args, out)
	}
	switch {
	case out.Full && h.room != nil:
		out.Buf = append(out.Buf[:len(reply)], "$-1\r\n"...)
	case out.Full:
		h.end(lua.LimitBytes)
	}
	if h.seen != nil {
		h.seen(&InnerCall{h.named, args, out.Buf[len(reply):], time.Since(begin), ran})
	}
	return out.Buf
}

// find finds what runs a call of a script: a row, or a function for what no region has. If there is neither, find
// appends Redis's error.
func (h *scriptHost) find(args [][]byte, out *Reply) (row *Command, run inScript) {
	c := lookupFromScript(args)
	if h.named = c; c == nil {
		out.Error(errScriptUnknown)
		return nil, nil
	}
	switch {
	case !c.CheckArity(len(args)):
		out.Error(errScriptArity)
		return nil, nil
	case c.Flags&FlagNoScript != 0:
		out.Error(errScriptNot)
		return nil, nil
	case h.flags&ScriptReadOnly != 0 && c.Flags&(FlagWrite|FlagMayReplicate) != 0:
		out.Error(errScriptReadOnly)
		return nil, nil
	}
	if run, ok := c.Run.(inScript); ok {
		return nil, run
	}
	if c.ReadBy != nil {
		if read := c.ReadBy(args); read != nil {
			c = read
		}
	}
	if c.Read == nil && c.Write == nil && c.InUnit == nil {
		out.Error(errScriptNot)
		return nil, nil
	}
	if !h.local(c, args, out) {
		return nil, nil
	}
	return c, nil
}

// lookupFromScript finds the row that a script names, nil if there is none.
func lookupFromScript(args [][]byte) *Command {
	c := data.Lookup(args[0])
	if c == nil {
		c = ofNoRegion.Lookup(args[0])
	}
	if c == nil && allRows != nil {
		c = allRows.Lookup(args[0])
	}
	if c != nil && len(c.Sub) > 0 && len(args) > 1 {
		c = c.Subcommand(args[1])
	}
	return c
}

// Knows implements lua.Host.
func (h *scriptHost) Knows(args [][]byte) bool { return lookupFromScript(args) != nil }

// local reports whether the script may touch the keys of a call. If not, local appends Redis's error.
func (h *scriptHost) local(c *Command, args [][]byte, out *Reply) bool {
	h.places = c.AppendKeys(h.places[:0], args)
	if h.looking {
		h.touched = true
		if len(h.places) > 0 {
			h.key = bytes.Clone(args[h.places[0]])
		}
		h.end("")
	}
	slots := h.slots()
	for i, p := range h.places {
		slot := topology.SlotOf(args[p])
		switch {
		case !slots.Contains(slot):
			out.Error(errScriptNonLocal)
			return false
		case h.flags&ScriptCrossSlots != 0:
		case i > 0 && slot != topology.SlotOf(args[h.places[0]]):
			out.Error(errScriptNonLocal)
			return false
		case !h.slotted:
			h.slot, h.slotted = slot, true
		case slot != h.slot:
			out.Error(errScriptSlots)
			return false
		}
	}
	return true
}

// slots returns the slots of the region.
func (h *scriptHost) slots() topology.SlotRange {
	if h.w != nil {
		return h.w.State.Slots
	}
	return h.r.Slots
}

// runRow runs a call that a row of the table runs.
func (h *scriptHost) runRow(row *Command, args [][]byte, out *Reply) {
	if why := tooLarge(row, args); why != "" {
		out.Error(why)
		return
	}
	if h.w == nil {
		h.read(row, args, out)
		return
	}
	w := h.w
	if row.Write != nil && !h.saved {
		if h.before, h.err = w.Save(); h.err != nil {
			h.end("")
		}
		h.saved = true
	}
	if w.ScriptMistakes.Capacity {
		h.state.Charge(w.Batch.Len()/16, 0)
	}
	if row.skips() {
		h.state.Charge(int(h.held/skippedBytes), 0)
	}
	held := w.Batch.Held()
	if h.err = w.Run(row, args, out); h.err != nil {
		h.end("")
	}
	if row.Write == nil {
		h.charge(workCost*w.Spent(), 0)
		return
	}
	held = w.Batch.Held() - held
	h.held += held
	h.charge(unitCost*w.Spent()+int(held/heldBytes), int(held))
}

// skips reports whether a call of a command may go over elements in order.
func (c *Command) skips() bool {
	switch c.Name {
	case "renamenx":
		return true
	case "del", "mset", "msetnx", "psetex", "set", "setex": // what was there before is left to the reclaimer
		return false
	}
	return c.Iterates() || c.Write != nil && (c.Flags&FlagFast == 0 || strings.HasPrefix(c.Name, "zpop"))
}

// charge charges the script for a call, but for its most expensive one: a script may make any call that a client may.
func (h *scriptHost) charge(cost, bytes int) {
	if cost > h.dearest {
		cost, h.dearest = h.dearest, cost
	}
	h.state.Charge(cost, bytes)
}

// read runs a read of a script that may not write.
func (h *scriptHost) read(row *Command, args [][]byte, out *Reply) {
	r, run := h.r, row.Read
	if run == nil {
		run = row.InUnit
	}
	before := 0
	if r.work != nil {
		before = r.work.Spent()
	}
	err := run(r, args, out)
	r.opened.release()
	if h.err = err; err != nil || r.work.Ended() != nil { // the caller looks at the latter by itself
		h.end("")
	}
	if r.work != nil {
		h.charge(workCost*(r.work.Spent()-before), 0)
	}
}

// tooLarge returns the error of a write that is too large, as for one that a client sends; it is empty for others.
func tooLarge(row *Command, args [][]byte) string {
	bytes := 0
	for _, a := range args {
		bytes += len(a)
	}
	c := Call{row, args}
	if row.Write == nil {
		return ""
	}
	if n := c.Writes(bytes); n > MaxWrittenBytes {
		return fmt.Sprintf("ERR command too large: it may write %d bytes at once, at most %d", n, MaxWrittenBytes)
	}
	if bytes > MaxNameBytes {
		if n := c.LongestName(); n > MaxNameBytes {
			return fmt.Sprintf("ERR command too large: a key, field or member of %d bytes, at most %d", n, MaxNameBytes)
		}
	}
	return ""
}

// inScript runs a command that needs no region for a script.
type inScript func(h *scriptHost, args [][]byte, out *Reply)

// ofNoRegion has the commands that need no region and that a script may call.
var ofNoRegion = NewTable(
	&Command{Name: "ping", Arity: -1, How: HowOwn, Run: inScript(func(h *scriptHost, args [][]byte, out *Reply) {
		switch len(args) {
		case 1:
			out.Status("PONG")
		case 2:
			out.Bulk(args[1])
		default:
			out.wrongArity([]byte("ping"))
		}
	})},
	&Command{Name: "echo", Arity: 2, How: HowOwn, Run: inScript(func(h *scriptHost, args [][]byte, out *Reply) {
		out.Bulk(args[1])
	})},
	&Command{Name: "select", Arity: 2, How: HowOwn, Run: inScript(func(h *scriptHost, args [][]byte, out *Reply) {
		switch n, ok := ParseInt(args[1]); {
		case !ok:
			out.Error(ErrNotInteger)
		case n != 0:
			out.Error(ErrDBIndex)
		default:
			out.OK()
		}
	})},
	&Command{Name: "time", Arity: 1, How: HowOwn, Run: inScript(func(h *scriptHost, args [][]byte, out *Reply) {
		out.Array(2)
		out.BulkString(strconv.FormatUint(h.nowMS/1000, 10))
		out.BulkString(strconv.FormatUint(h.nowMS%1000*1000, 10))
	})},
	&Command{Name: "publish", Arity: 3, Flags: FlagMayReplicate, How: HowOwn, Run: inScript(published)},
	&Command{Name: "spublish", Arity: 3, Flags: FlagMayReplicate, How: HowOwn, Keys: []KeySpec{{First: 1, Step: 1}},
		Run: inScript(func(h *scriptHost, args [][]byte, out *Reply) {
			if h.local(h.named, args, out) {
				published(h, args, out)
			}
		})},
)

// send publishes what the script has published: it has ended, and nothing undoes it.
func (h *scriptHost) send() {
	for _, p := range h.sent {
		h.publish(p)
	}
}

// published is PUBLISH and SPUBLISH in a script. The reply is 0 on every replica, since each has other subscribers, and
// the script may write what it is told.
func published(h *scriptHost, args [][]byte, out *Reply) {
	bytes := len(args[1]) + len(args[2])
	h.state.Charge(bytes/heldBytes, bytes)
	if h.publish != nil {
		h.sent = append(h.sent, Publication{h.named.Name == "spublish", slices.Clone(args[1]), slices.Clone(args[2])})
	}
	out.Int(0)
}

// allRows has all commands of the server, nil in tests of this package.
var allRows *CommandTable

// BindAll tells scripts of all commands of the server, so that they get Redis's error for those that they may not call.
// Package server calls it once, while it is initialized.
func BindAll(all *CommandTable) { allRows = all }

// compiledScripts keeps scripts that have run at apply.
type compiledScripts struct {
	mu    sync.Mutex
	all   map[string]*ranScript // by text
	bytes int                   // that they take
}

var compiled compiledScripts

const (
	keptScripts     = 1 << 10
	keptScriptBytes = 32 << 20 // a compiled script may be 20 times as long as its text
)

// ranScript is a script, and about the most steps that its runs have taken of late; 0 if it has not run.
type ranScript struct {
	*lua.Script
	steps atomic.Int64
}

// ran notes how many steps a run has taken.
func (s *ranScript) ran(steps int) {
	before := s.steps.Load()
	if now := max(int64(steps), before-before/64); now != before {
		s.steps.Store(now)
	}
}

// ScriptSteps estimates how many steps a script takes, at most limit: what its runs have taken of late, and a quarter
// of the limit if it has not run.
func ScriptSteps(text []byte, limit int) int {
	compiled.mu.Lock()
	s := compiled.all[string(text)]
	compiled.mu.Unlock()
	if s == nil {
		return limit / 4
	}
	if steps := s.steps.Load(); steps > 0 {
		return int(min(steps, int64(limit)))
	}
	return limit / 4
}

// script compiles a script, unless it is kept.
func (c *compiledScripts) script(text []byte) (*ranScript, error) {
	c.mu.Lock()
	s := c.all[string(text)]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	made, err := lua.Compile(string(text))
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s = c.all[made.Text]; s != nil {
		return s, nil
	}
	if c.all == nil || len(c.all) == keptScripts || c.bytes+made.Bytes() > keptScriptBytes {
		c.all, c.bytes = map[string]*ranScript{}, 0
	}
	s = &ranScript{Script: made}
	c.all[made.Text] = s
	c.bytes += made.Bytes()
	return s, nil
}
