// Package redis runs commands: the table of commands that touch data, their functions, and the replies in Redis's wire format.
// A command is one row and one function; read functions get a Reader, which cannot write, write functions a Writer.
package redis

import (
	"math/rand/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
)

// Command is one row of the command table. Arity checks, routing and COMMAND are made from it.
type Command struct {
	Name  string // lower case; for a subcommand the part after the '|'
	Arity int    // as Redis counts: the name included, negative for "at least"
	Flags Flags
	// Categories are the ACL categories that do not follow from Flags and Doc.Group.
	Categories []string
	Tips       []string
	Keys       []KeySpec // empty: no keys
	Doc        Doc
	Deprecated Deprecated
	Sub        []*Command

	// Read and Write run the command; rows of data commands have exactly one of the two. Arity holds when they are called.
	// args[0] is the name as the client wrote it. The reply goes to out, errors of the command's use included; an error
	// returned is the engine's or the region state's and is no reply.
	Read  func(r *Reader, args [][]byte, out *Reply) error
	Write func(w *Writer, args [][]byte, out *Reply) error

	// ReadBy, if it is not nil, returns the row of a read command by which a call of this write command may be run as well, nil where the
	// call writes. The arity must hold.
	ReadBy func(args [][]byte) *Command
	// Reads is what a write looks up, as far as its arguments name it.
	Reads Reads
	// FindKeys, if it is not nil, takes the place of Keys in finding them, where these are not all known; see AppendKeys.
	FindKeys func(dst []int, args [][]byte) []int

	// Split says how the proxy port cuts the command by region and joins the parts.
	Split Split
	// Everywhere marks a command without keys that runs once in each region that the store leads (proxy: in every region):
	// FLUSHALL, DBSIZE, KEYS. Its parts are joined as Split says.
	Everywhere bool

	parent *Command // of a subcommand, set by NewTable
}

// Doc is what COMMAND DOCS and the documentation print. The sentence is ours, the rest are Redis's facts.
type Doc struct {
	Summary    string
	Since      string
	Group      string
	Complexity string
}

// Deprecated says since when Redis discourages a command, and in favour of what; zero for others.
type Deprecated struct{ Since, ReplacedBy string }

// Split says how the parts of a command that ran in several regions are joined into one reply.
type Split byte

const (
	NoSplit    Split = iota // all keys must be in one region
	SplitArray              // one element per key, in the order of the keys (MGET)
	SplitSum                // integers, added up (DEL, EXISTS, DBSIZE)
	SplitOK                 // +OK when every part says so (MSET, FLUSHALL)
	SplitJoin               // arrays, one behind the other (KEYS)
)

// KeySpec says where keys are, as in Redis 7's key specifications of kind index + range, index + keynum
// where it is Counted, or unknown.
type KeySpec struct {
	First int // index of the first key
	// Last is the index of the last key relative to the first, or if negative one counted from the end of the arguments:
	// -1 is the last argument.
	Last int
	Step int // distance between keys
	// Counted says that argument First is how many keys follow it; Last does not count.
	Counted bool
	// Unknown says that the specification tells no more than that there are keys.
	Unknown bool
	Flags   []string // RO, RW, OW, RM; access, update, insert, delete ...
	Notes   string
}

// Call is one command to run: its row and its arguments, Args[0] the name as the client wrote it.
type Call struct {
	Command *Command
	Args    [][]byte
}

// Writes is about how many bytes a write of arguments of so many bytes adds to a batch, at most: each element that they name is stored under the
// whole of its key. What a call writes beside that is bounded by touchedBytes, or written ahead.
func (c *Call) Writes(argBytes int) int {
	const each = 64 // of a storage key, beside the user's key and the element
	if c.Command == nil {
		return argBytes
	}
	if most := 2*argBytes + len(c.Args)*(each+2*argBytes); most <= fewBytes {
		return most
	}
	var room [8]int
	places := c.Command.AppendKeys(room[:0], c.Args)
	key := 0
	if len(places) <= 2 { // else the arguments are keys, or values of one key each
		for _, p := range places {
			key = max(key, len(c.Args[p]))
		}
	}
	return 2*argBytes + len(c.Args)*each + (len(c.Args)-1-len(places))*2*key
}

// fewBytes are so few that Writes does not look closer.
const fewBytes = 1 << 20

// Run is calls of one connection that belong to one region and are of one kind, reads or writes, with the room for their replies.
type Run struct {
	Calls []Call
	Out   Reply // the replies one after the other
	// Limit, if it is not 0, ends a run of reads early: no call begins when there are so many bytes of replies.
	Limit int
	Ends  []int // end of each call's reply within Out.Buf
}

// Reset empties the run for reuse; it keeps the memory and the protocol version.
func (r *Run) Reset() {
	clear(r.Calls)
	r.Calls, r.Ends, r.Out.Buf, r.Limit = r.Calls[:0], r.Ends[:0], r.Out.Buf[:0], 0
	r.Out.Room, r.Out.Full = 0, false
}

// Reader is what a read command works on. It may be used by one goroutine.
type Reader struct {
	View  *engine.View
	Space keys.Space
	// InstantMS is the leader's time at the start of the read, RegionTimeMS the region time loaded before View was opened.
	InstantMS, RegionTimeMS uint64
	// Index is the apply index loaded before View was opened: what View shows is at least that new.
	Index uint64
	// Legacy says that where redis_metadata has no record of a key the data keyspace may have one: see legacy.go.
	Legacy bool
	// Ahead is set when a record was met that has expired by InstantMS but not by RegionTimeMS: the answer must not be
	// used until the region time has passed InstantMS.
	Ahead bool
	// Hits and Misses count the keys that were looked up: found, or not there.
	Hits, Misses int
	// Cursors remembers the cursors of HSCAN and its kin; without it they are looked for.
	Cursors *Cursors

	key    []byte // scratch for storage keys, at first in room
	room   [96]byte
	opened scratch
	choice choice
	found  []byte // scratch of scan
	last   []byte
}

// Writer is what a write command works on, at apply: the batch that reads its own writes, and the region state. Records of collections and
// counts of sorted sets may reach the batch only with Finish.
type Writer struct {
	Batch *engine.Batch
	Space keys.Space
	State *keys.RegionState // TimeMS is the time of this entry
	Index uint64            // apply index of this entry
	// VersionBase is the entry's base for versions of new collections.
	VersionBase uint64
	// Rules are those that the entry was made under.
	Rules Rules
	// SoonestMS is lowered to the expire time of every record that is written with one. It is NoExpiry to begin with.
	SoonestMS uint64
	// Memory is what is shared with other regions for elements that are popped; nil for memory of its own.
	PopMemory *PopMemory
	// Orphans is raised by what is left to the reclaimer; Flushed is set where all of it went, with all data, before it was raised.
	Orphans Orphans
	Flushed bool
	// MapOrder is a mistake that tests plant: random choices follow from the order of a Go map, which replicas do not share.
	MapOrder bool

	key, value []byte // scratch
	opened     scratch
	records    [keptRecords]keptRecord
	choice     choice // draws from numbers
	numbers    rand.PCG
	seeded     uint64 // apply index of the entry that numbers are of
	pops       popCache
	counts     counts // of large ones
	place      []byte // scratch of counts
	expected   []engine.Known
}

// Rules say what a write stores, where that has changed; older ones are larger. A log may hold entries that an older program has made, and
// some of the replicas may have applied them under it. So each entry is applied under the rules of its time, whichever program does it.
type Rules byte

const (
	// RulesNow are those of the entries that this program makes.
	RulesNow Rules = iota
	// RulesOfRecords: a string is all in its record, however long it is.
	RulesOfRecords
	// RulesOfSlots: a collection also makes SETs look at what they replace in all slots of its region.
	RulesOfSlots
)

// Orphans is how much the reclaimer has to do.
type Orphans struct{ Collections, Elements uint64 }

// Follow is called with the apply index of each entry, also of one without commands. What is kept in memory is forgotten where one has been
// passed over: there the region came from somewhere else.
func (w *Writer) Follow(index uint64) {
	w.pops.follow(index, w.PopMemory)
	w.counts.follow(index)
}

// Forget gives up what is kept in memory for speed.
func (w *Writer) Forget() { w.pops.forgetAll() }

// Release lets the memory of entries go.
func (w *Writer) Release() {
	for i, all := 0, w.expected[:cap(w.expected)]; i < len(all); i++ {
		all[i].Key, all[i].Value = kept(all[i].Key, 4<<10), nil
	}
}

// Run runs a write command, whose Write is not nil, as its function's comment says.
func (w *Writer) Run(c *Command, args [][]byte, out *Reply) error {
	w.Follow(w.Index)
	err := c.Write(w, args, out)
	w.opened.release()
	w.choice.release()
	w.key, w.value = kept(w.key, maxScratchBytes), kept(w.value, maxScratchBytes)
	w.place = kept(w.place, maxScratchBytes)
	if err == nil {
		err = w.boundCounts()
	}
	return err
}

// Execute runs the calls of a read run, appending to run.Out and run.Ends, all of them or as many as run.Limit allows.
func (r *Reader) Execute(run *Run) error {
	defer r.release()
	for i := range run.Calls {
		if run.Limit > 0 && len(run.Out.Buf) >= run.Limit {
			return nil
		}
		c := &run.Calls[i]
		err := c.Command.Read(r, c.Args, &run.Out)
		r.opened.release()
		if err != nil {
			return err
		}
		run.Ends = append(run.Ends, len(run.Out.Buf))
		if run.Out.Full {
			return nil
		}
	}
	return nil
}

// release gives scratch memory up that one large call made, and forgets what holds for its view alone.
func (r *Reader) release() {
	r.choice.release()
	r.choice.version = 0
	r.key, r.found, r.last = kept(r.key, maxScratchBytes), kept(r.found, maxScratchBytes), kept(r.last, maxScratchBytes)
}
