// Package redis runs commands: the table of commands that touch data, their functions, and the replies in Redis's wire
// format. A command is one row and one function. A read function gets a Reader, which cannot write; a write function
// gets a Writer.
package redis

import (
	"errors"
	"math/rand/v2"
	"slices"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// Command is one row of the command table. Arity checks, routing and the replies of COMMAND are made from it.
type Command struct {
	Name  string // lower case; for a subcommand the part after the '|'
	Arity int    // number of arguments, the name included; -n means at least n
	Flags Flags
	// Categories are the ACL categories that do not follow from Flags and Doc.Group.
	Categories []string
	Tips       []string
	Keys       []KeySpec // empty: no keys
	Doc        Doc
	Sub        []*Command

	// How says how the command runs. NewTable sets it for rows that have Read or Write and do not say.
	How How

	// Read and Write run the command. The row of a data command has exactly one of the two. The caller has checked the
	// arity. args[0] is the name as the client wrote it. The function appends its reply to out; that may be an error
	// about the call. A returned error is not a reply: it is one of the engine, or says that the stored data is
	// damaged.
	Read  func(r *Reader, args [][]byte, out *Reply) error
	Write func(w *Writer, args [][]byte, out *Reply) error
	// Run runs a command outside of regions: a function of package server, which has a type for each How.
	Run any

	// ReadBy, if it is not nil, is asked whether a call of this write command only reads. It then returns the row of
	// the read command that runs the call, else nil. The caller has checked the arity.
	ReadBy func(args [][]byte) *Command
	// Reads says what a write looks up besides the records of its keys.
	Reads Reads
	// InUnit, if it is not nil, runs a read without keys inside a unit of writes, for the keys of the region. Elsewhere
	// the server runs such a command.
	InUnit func(r *Reader, args [][]byte, out *Reply) error
	// FindKeys, if it is not nil, finds the keys, since Keys does not describe them all: see AppendKeys.
	FindKeys func(dst []int, args [][]byte) []int

	// Restores, if it is not nil, returns how many short strings a call of this write may store again that are not
	// among its arguments. Commands that restore one string at most leave it out.
	Restores func(args [][]byte) int

	// Blocks, if it is not nil, says that the command waits where there is nothing to pop.
	Blocks *Blocking

	// Split says whether the proxy port may cut the command by region, and how it joins the replies; of a HowEverywhere
	// how the replies of all regions are joined.
	Split Split

	event  Event    // of the keys that a call changes, set by NewTable
	parent *Command // the container of a subcommand, set by NewTable
}

// How says how a command runs.
type How byte

const (
	HowNot   How = iota // not at all: it is a container, whose subcommands run
	HowRead             // by Read, in one region, with other reads
	HowWrite            // by Write, in one region, with other writes
	// HowEverywhere: by Run, in every region that the store leads, or on the proxy port in all regions. It has no keys.
	HowEverywhere
	HowSession  // by Run, on the server; it reads or changes what the server knows of the client
	HowOwn      // by Run, on the server
	HowBlocking // by Write, in one region, alone; in a transaction as HowWrite
	HowScript   // as a call of Script or ScriptRead, which the server makes of it
)

// Doc describes a command. The summary says what the command does here: NEOKV DOCS, HELP and docs/commands.md have it.
// The rest are facts about Redis. COMMAND DOCS has its own texts of the commands that Redis has: see commandDoc.
type Doc struct {
	Summary    string
	Since      string
	Group      string
	Complexity string
}

// Split says how the replies of a command that ran in several regions become one.
type Split byte

const (
	NoSplit    Split = iota // all keys must be in one region
	SplitArray              // one element per key, in the order of the keys (MGET)
	SplitSum                // integers, added up (DEL, EXISTS, DBSIZE)
	SplitOK                 // +OK when every part says so (MSET, FLUSHALL)
	SplitJoin               // arrays, one behind the other (KEYS)
)

// KeySpec says where the keys of a call are, as Redis 7's key specifications do. It is one of three kinds: index and
// range; index and keynum, if Counted is set; or Unknown.
type KeySpec struct {
	First int // index of the first key
	// Last is the index of the last key relative to the first. A negative one counts from the end of the arguments: -1
	// is the last argument.
	Last int
	Step int // distance between keys
	// Counted says that argument First is the number of keys, and that the keys follow it. Last does not count then.
	Counted bool
	// Unknown says that there are keys, and no more.
	Unknown bool
	Flags   []string // RO, RW, OW, RM; access, update, insert, delete ...
	Notes   string
}

// Call is one command to run: its row and its arguments. Args[0] is the name as the client wrote it.
type Call struct {
	Command *Command
	Args    [][]byte
}

// Writes returns an upper bound of the bytes that a write adds to a batch. argBytes is the length of all its arguments.
// Each element that the arguments name is stored with the whole key. Each string that Restores counts may be as long as
// a record holds. Anything else that a call writes is bounded by touchedBytes, or written ahead of the batch. A bound
// of up to fewBytes may be many times what WritesAtMost says: it does not look for the keys.
func (c *Call) Writes(argBytes int) int {
	if c.Command == nil {
		return argBytes
	}
	if most := 2*argBytes + len(c.Args)*(storageKeyBytes+2*argBytes) + c.restored(); most <= fewBytes {
		return most
	}
	return c.WritesAtMost(argBytes)
}

// storageKeyBytes is how many bytes a storage key has besides the user's key and the element.
const storageKeyBytes = 64

// restored is how many bytes of strings a call may store again.
func (c *Call) restored() int {
	if c.Command.Restores == nil {
		return 0
	}
	return c.Command.Restores(c.Args) * pieceBytes
}

// WritesAtMost is the bound of Writes, as close as the arguments tell.
func (c *Call) WritesAtMost(argBytes int) int {
	if c.Command == nil {
		return argBytes
	}
	var room [8]int
	places := c.Command.AppendKeys(room[:0], c.Args)
	key := 0
	if len(places) <= 2 { // otherwise the arguments are keys, or keys and one value for each
		for _, p := range places {
			key = max(key, len(c.Args[p]))
		}
	}
	return 2*argBytes + len(c.Args)*storageKeyBytes + (len(c.Args)-1-len(places))*2*key + c.restored()
}

// LongestName is the length of the longest argument of a write that becomes a part of a storage key: a key, or a field
// or member of a collection.
func (c *Call) LongestName() (longest int) {
	if c.Command == nil {
		return 0
	}
	var room [8]int
	for _, p := range c.Command.AppendKeys(room[:0], c.Args) {
		longest = max(longest, len(c.Args[p]))
	}
	if elements := c.Command.Reads.Elements; elements != nil {
		from, step := elements(c.Args)
		for i := from; i < len(c.Args); i += step {
			longest = max(longest, len(c.Args[i]))
		}
	}
	return longest
}

// fewBytes is the estimate up to which Writes does not calculate more exactly.
const fewBytes = 1 << 20

// Run is a sequence of calls of one connection for one region, all reads or all writes, and their replies.
type Run struct {
	// Version is that of the region's bounds by which the calls were routed, 0 for calls that name no keys. A replica
	// with bounds of another version refuses the run.
	Version uint64
	Calls   []Call
	// Groups are the calls that take effect together, if there are any: disjoint and ascending. The region appends to
	// Dropped those that had no effect.
	Groups  []Group
	Dropped []Drop
	Out     Reply // the replies one after the other
	// Protocols, if there are any, say in which version of the protocol replies are: HELLO inside a transaction changes
	// it. They are ascending; the first is for all calls before the second.
	Protocols []Protocol
	// Limit, if it is not 0, ends a run of reads early: no call begins when the replies have that many bytes.
	Limit int
	Ends  []int // end of each call's reply within Out.Buf
	// Work, if it is not nil, counts what reads do, so that the caller can end one. Within says that they are parts of
	// one call, which has begun; else each is a call of its own.
	Work   *engine.Work
	Within bool
	// ScriptLimits are those of the scripts among the calls.
	ScriptLimits ScriptLimits
	// Seen, if it is not nil, is told of each call that a script of the run makes, while it is made.
	Seen func(script *Call, x *InnerCall)
	// Published, if it is not nil, is told of each message that a script of the run has published, when the script has
	// ended without being undone.
	Published func(script *Call, p Publication)
	// By, if it is not nil, is who tracks what the run reads: no change of it after the run's view escapes the region's
	// Listener. The effects of the run's writes have it, too.
	By any
	// ByRegionTime makes reads judge expiry by the region time alone. So a key may be there for a while after its time by
	// the clock: until the leader deletes it, or says of any key that it has expired.
	ByRegionTime bool
	begun        int // how many calls have begun; a run that is repeated begins none anew
}

// Protocol is the version of the protocol in which the replies are from a call of a run on, 2 or 3.
type Protocol struct{ From, Version int }

// Speak sets Out to the version of the protocol in which the reply of a call is.
func (r *Run) Speak(call int) {
	for _, p := range r.Protocols {
		if p.From <= call {
			r.Out.Proto = p.Version
		}
	}
}

// Ended is the error of a read that was ended before it had a reply. Nothing is wrong with the data.
type Ended struct{ Reason error }

func (e *Ended) Error() string { return "ended: " + e.Reason.Error() }

// Refusal is a reason to end a call that is the call's reply: the error line without the leading '-'.
type Refusal string

func (e Refusal) Error() string { return string(e) }

// Reset empties the run for reuse. It keeps the memory and the protocol version.
func (r *Run) Reset() {
	clear(r.Calls)
	r.Calls, r.Ends, r.Out.Buf, r.Limit, r.Version = r.Calls[:0], r.Ends[:0], r.Out.Buf[:0], 0, 0
	r.Out.Room, r.Out.Full = 0, false
	r.Within, r.ByRegionTime, r.begun, r.By = false, false, 0, nil
	clear(r.Dropped)
	r.Groups, r.Dropped, r.Protocols = r.Groups[:0], r.Dropped[:0], r.Protocols[:0]
}

// Reader gives read commands access to a region: they read from its View. One goroutine may use it at a time.
type Reader struct {
	View  *engine.View       // nil inside a unit
	Slots topology.SlotRange // the region's
	// InstantMS is the leader's time at the start of the read. RegionTimeMS is the region time, loaded before View was
	// opened.
	InstantMS, RegionTimeMS uint64
	// Index is the apply index of Region, loaded before View was opened: View shows that state or a newer one.
	Index  uint64
	Region topology.RegionID
	// Legacy says that the region may hold legacy strings: see legacy.go.
	Legacy bool
	// Ahead is set when the read meets a record that has expired by InstantMS but not by RegionTimeMS. The answer must
	// not be used before the region time has passed InstantMS.
	Ahead bool
	// Hits counts the looked-up keys that exist, Misses those that do not.
	Hits, Misses int
	// Effects, if it is not nil, is told of the keys that do not exist.
	Effects *Effects
	// Halted, if it is not nil, returns why a long read of the region must end, nil if it may go on.
	Halted func() error
	// Log, if it is not nil, gets what scripts log, at a level from debug, 0, to warning, 3.
	Log func(level int, text string)

	limits ScriptLimits     // of the run
	seen   func(*InnerCall) // of the present call
	unit   *Writer          // reads inside a unit of this Writer, see units.go; nil: reads View
	work   *engine.Work     // of the run
	key    []byte           // scratch for storage keys, at first in room
	room   [96]byte
	opened scratch
	found  []byte // scratch of scan

	choices *Choices
	chance  *rand.Rand // draws from numbers
	numbers rand.PCG
	seeded  bool // for the present read
}

// Writer gives write commands access to a region, at apply: to a batch, which reads its own writes, and to the region
// state. The Writer keeps back records of collections and counts of sorted sets; Finish writes them to the batch.
type Writer struct {
	Batch *engine.Batch
	State *keys.RegionState // State.TimeMS is the time of this entry
	Index uint64            // apply index of this entry
	// VersionBase is the entry's base for the versions of new collections.
	VersionBase uint64
	// SoonestMS is the earliest expire time that the Writer has written. The caller sets it to NoExpiry at first.
	SoonestMS uint64
	// PopMemory bounds the pop caches of all regions of a store. If it is nil, the Writer has a bound of its own.
	PopMemory *PopMemory
	// Orphans counts the orphans that the Writer leaves to the reclaimer. Flushed says that a flush has removed all
	// data, and so all orphans from before it.
	Orphans Orphans
	Flushed bool
	// Work, if it is not nil, counts what the calls do. Run returns the reason when it is over.
	Work *engine.Work
	// Effects, if it is not nil, collects what the calls do to keys.
	Effects *Effects
	// Changes rises with each key that has come or gone, or may have come, while the Writer exists.
	Changes uint64
	// ScriptLimits are those of the entry's scripts. Log, if it is not nil, gets what they log, at a level from debug,
	// 0, to warning, 3.
	ScriptLimits   ScriptLimits
	ScriptMistakes ScriptMistakes
	Log            func(level int, text string)
	// Seen, if it is not nil, is told of each call that the present script makes.
	Seen func(*InnerCall)
	// Published, if it is not nil, is told of each message that the present script has published, at the script's end.
	Published func(Publication)
	// ScriptsEnded counts the scripts that a limit has ended.
	ScriptsEnded uint64
	// Choices, if it is not nil, seeds the random choices of reads. Then no choice of a write depends on what is read.
	// The reads of a script need it to be nil: what they choose may be written.
	Choices *Choices
	// Nothing says that the last call was a blocking pop that has found nothing.
	Nothing bool
	// MapOrder is a mistake that tests plant: random choices follow the order of a Go map, so replicas differ.
	MapOrder bool

	hits, misses int // see TakeLookups

	group  groupOfScripts
	event  Event    // what a change of a key is, of the present call
	spent  int      // of writeLimit, by the present call
	unborn unborn   // what the present call has begun
	saved  bool     // Save has been called since the batch was begun
	begun  []unborn // versions since Save whose elements may be written ahead

	key, value []byte // scratch
	opened     scratch
	records    [keptRecords]keptRecord
	chance     *rand.Rand // draws from numbers
	numbers    rand.PCG
	seeded     uint64 // apply index of the entry for which numbers was seeded
	pops       popCache
	counts     counts // of large sorted sets
	place      []byte // scratch of counts
	expected   []engine.Known
	reader     *unitReader // nil before the first read
}

// Orphans is a number of deleted collections and of elements that they had, which the reclaimer has yet to delete.
type Orphans struct{ Collections, Elements uint64 }

// AllChanged is what Writer.Changes rises by when any number of keys may have come or gone.
const AllChanged = 1 << 40

// Follow must be called with the apply index of each entry, even of one without commands. If the index skips an entry,
// the region's data has come from a snapshot, and the Writer forgets what it keeps in memory.
func (w *Writer) Follow(index uint64) {
	w.pops.follow(index, w.PopMemory)
	w.counts.follow(index)
}

// Forget gives up all that the Writer keeps in memory of the region's keys: records, counts of sorted sets, members
// that may be popped next. The caller must call it when the region's bounds change, whether keys leave the region or
// come to it: the Writer does not see what is written to a key while another region has it, so what it knows would be
// wrong when the key comes back with a later merge. It must call it between two batches, after Finish: what the Writer
// has not written to a batch yet is lost.
func (w *Writer) Forget() {
	for i := range w.records {
		w.records[i].there, w.records[i].behind = false, false
	}
	w.counts.forgetAll()
	w.pops.forgetAll()
}

// Release drops references to the memory of entries.
func (w *Writer) Release() {
	for i, all := 0, w.expected[:cap(w.expected)]; i < len(all); i++ {
		all[i].Key, all[i].Value = kept(all[i].Key, 4<<10), nil
	}
}

// Run runs a command: a write or, inside a unit, a read (units.go). If that would do more than a write may do, the
// reply is an error, and nothing changes.
func (w *Writer) Run(c *Command, args [][]byte, out *Reply) error {
	w.Follow(w.Index)
	w.Batch.Watch(w.Work)
	w.spent, w.unborn, w.Nothing, w.event = 0, unborn{}, false, c.event
	start := len(out.Buf)
	var err error
	if c.Write != nil {
		err = c.Write(w, args, out)
	} else {
		err = w.read(c, args, out)
	}
	if over := w.Work.Ended(); over != nil {
		err = over
	} else if errors.Is(err, errWriteLimit) {
		out.Buf = out.Buf[:start]
		out.Error(string(errWriteLimit))
		err = w.giveUp()
	}
	w.opened.release()
	w.key, w.value = kept(w.key, maxScratchBytes), kept(w.value, maxScratchBytes)
	w.place = kept(w.place, maxScratchBytes)
	if err == nil {
		err = w.boundCounts()
	}
	return err
}

// Execute runs the calls of a run of reads, or as many as run.Limit allows. It appends the replies to run.Out and where
// each ends to run.Ends. An error is an *Ended, or one of the engine.
func (r *Reader) Execute(run *Run) error {
	defer r.release()
	r.limits = run.ScriptLimits
	if r.work = run.Work; r.work != nil {
		r.work.Halted = r.Halted
		r.View.Watch(r.work)
	}
	for i := range run.Calls {
		if run.Limit > 0 && len(run.Out.Buf) >= run.Limit {
			return nil
		}
		if run.begun == i && !run.Within && r.work != nil {
			run.begun++
			r.work.Begin()
		}
		c, start := &run.Calls[i], len(run.Out.Buf)
		r.seen = run.sees(c)
		run.Speak(i)
		err := c.Command.Read(r, c.Args, &run.Out)
		r.opened.release()
		if over := r.work.Ended(); over != nil {
			r.work.Resume()
			line, refused := over.(Refusal)
			if !refused {
				return &Ended{over}
			}
			run.Out.Buf = run.Out.Buf[:start]
			run.Out.Error(string(line))
		} else if err != nil {
			return err
		}
		run.Ends = append(run.Ends, len(run.Out.Buf))
		if run.Out.Full {
			return nil
		}
	}
	return nil
}

// release gives up the scratch memory that a large call has left.
func (r *Reader) release() {
	if r.work != nil {
		r.work.Halted, r.work = nil, nil
	}
	r.key, r.found = kept(r.key, maxScratchBytes), kept(r.found, maxScratchBytes)
}

// scratch is memory for the collections of one call, kept for the next call.
type scratch struct {
	bufs [][]byte
	used int
}

const (
	// keptBuffers is how many buffers are kept: two for each collection of most calls that name many keys.
	keptBuffers = 128
	// keptBufferBytes is how large a kept buffer may be.
	keptBufferBytes = 16 << 10
)

// take returns an empty buffer with room for n bytes and a subkey. It is valid until release.
func (s *scratch) take(n int) []byte {
	const subkey = 128
	if s.used == len(s.bufs) {
		s.bufs = append(s.bufs, nil)
	}
	b := &s.bufs[s.used]
	s.used++
	if cap(*b) < n {
		*b = make([]byte, 0, n+subkey)
	}
	return (*b)[:0]
}

// release ends a call: none of its buffers is in use any more.
func (s *scratch) release() {
	for i := range s.bufs[:min(s.used, keptBuffers)] {
		s.bufs[i] = kept(s.bufs[i], keptBufferBytes)
	}
	if len(s.bufs) > keptBuffers {
		s.bufs = slices.Clone(s.bufs[:keptBuffers])
	}
	s.used = 0
}

// kept returns the buffer, or nil if the buffer is too large to be kept for the next call.
func kept(buf []byte, most int) []byte {
	if cap(buf) > most {
		return nil
	}
	return buf
}
