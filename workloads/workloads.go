// Package workloads says what to send: the operations of a workload and their shares, their keys and values. A workload
// is a row of one table. The package knows nothing of connections or time.
//
// A record of a key-value benchmark is one key here: a string, or a collection of elements (see Type). YCSB's records
// have ten fields of 100 bytes. Here an operation reads or writes the string as a whole, which is what YCSB does with
// readallfields and writeallfields. The workloads A to F are those of Cooper et al., "Benchmarking Cloud Serving
// Systems with YCSB", SoCC 2010, section 4 and the parameter files that came with it.
package workloads

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Workload is one row of the table.
type Workload struct {
	Name string
	Doc  string
	// Ops are the operations of the run phase; their shares add up to 1.
	Ops []Op
	// Load says that every record must be there before the run phase begins.
	Load bool
	// Storage says that reads are meant to reach the storage engine. A cache of records in front of it must be off.
	Storage bool
	// keys makes the distribution of record numbers, over the loaded records or over all acknowledged ones.
	keys func(records uint64, inserts *Inserts) Distribution
	// name appends the key of a record, if records are strings.
	name func(dst []byte, record uint64) []byte
	// of is the type of the records, nil for strings.
	of *CollectionType
}

// Op is one kind of operation: a command on one key, or on several of one slot.
type Op struct {
	Name    string // its name in results
	Command string // the Redis command
	// Args are the words after the key. Four words are replaced: `value` by a value, `member` by one of the loaded
	// elements, `new` by a member that was never there, `score` by a score. Any other word stands for itself.
	Args  string
	Share float64 // its share of all operations of the run phase
	Kind  OpKind
	// Then is a second command on the same key, sent when the first is answered. Args are then the arguments of the
	// second command. It is empty if there is none.
	Then string
}

// OpKind says what an operation does to its record.
type OpKind uint8

const (
	Read        OpKind = iota
	ReadAbsent         // reads a key that nobody writes
	Scan               // reads some neighbours in the thread of the chosen record
	ReadPage           // reads PageElements elements, or all if there are fewer
	ReadAll            // reads all elements
	Write              // the record or element then holds the value or score
	WriteFading        // as Write, until the record expires
	Insert             // as Write, of a record that is not there
	Delete
	Increment // of the counter of the record, under a key of its own
	Fill      // the record then has the elements that are loaded, and no others
	Push      // one more element
	Pop       // one element less, unless there is none
)

// Reads reports whether an operation of the kind only reads.
func (k OpKind) Reads() bool { return k <= ReadAll }

// All is the table of workloads.
var All = []Workload{
	{
		Name: "ycsb-a",
		Doc:  "YCSB workload A, update heavy: half reads, half updates, scrambled zipfian",
		Ops:  []Op{read.share(0.5), update.share(0.5)},
		Load: true, keys: scrambledZipfian, name: ycsbKey,
	},
	{
		Name: "ycsb-b",
		Doc:  "YCSB workload B, read mostly: 95 % reads, 5 % updates, scrambled zipfian",
		Ops:  []Op{read.share(0.95), update.share(0.05)},
		Load: true, keys: scrambledZipfian, name: ycsbKey,
	},
	{
		Name: "ycsb-c",
		Doc:  "YCSB workload C, read only, scrambled zipfian",
		Ops:  []Op{read.share(1)},
		Load: true, keys: scrambledZipfian, name: ycsbKey,
	},
	{
		Name: "ycsb-d",
		Doc:  "YCSB workload D, read latest: 95 % reads that favour the newest records, 5 % inserts",
		Ops:  []Op{read.share(0.95), insert.share(0.05)},
		Load: true, keys: latest, name: ycsbKey,
	},
	{
		Name: "ycsb-e",
		Doc: "YCSB workload E, short ranges: 95 % scans of 1 to 100 neighbours in a thread (one hash tag) by MGET, " +
			"5 % inserts, scrambled zipfian",
		Ops:  []Op{{Name: "scan", Command: "MGET", Kind: Scan, Share: 0.95}, insert.share(0.05)},
		Load: true, keys: growingZipfian, name: threadKey,
	},
	{
		Name: "ycsb-f",
		Doc: "YCSB workload F, read-modify-write: half reads, half GET and then SET of the same key, " +
			"scrambled zipfian",
		Ops:  []Op{read.share(0.5), {Name: "rmw", Command: "GET", Then: "SET", Args: "value", Kind: Write, Share: 0.5}},
		Load: true, keys: scrambledZipfian, name: ycsbKey,
	},
	{
		Name: "get",
		Doc:  "GET of loaded keys, uniform",
		Ops:  []Op{{Name: "get", Command: "GET", Share: 1}},
		Load: true, keys: uniform, name: plainKey,
	},
	{
		Name: "get-absent",
		Doc: "GET of keys that are absent and lie among loaded ones, uniform: what bloom filters are for; without " +
			"row cache",
		Ops:  []Op{{Name: "get", Command: "GET", Kind: ReadAbsent, Share: 1}},
		Load: true, Storage: true, keys: uniform, name: plainKey,
	},
	{
		Name: "set",
		Doc:  "SET over the key space, uniform; nothing is loaded before",
		Ops:  []Op{{Name: "set", Command: "SET", Args: "value", Kind: Write, Share: 1}},
		keys: uniform, name: plainKey,
	},
	{
		Name: "incr",
		Doc:  "INCR of counters, uniform; nothing is loaded before",
		Ops:  []Op{{Name: "incr", Command: "INCR", Kind: Increment, Share: 1}},
		keys: uniform, name: plainKey,
	},
	{
		Name: "mixed",
		Doc:  "45 % GET, 10 % EXISTS, 20 % SET, 5 % SET EX 60, 10 % DEL, 10 % INCR of counters, scrambled zipfian",
		Ops: []Op{
			{Name: "get", Command: "GET", Share: 0.45},
			{Name: "exists", Command: "EXISTS", Share: 0.1},
			{Name: "set", Command: "SET", Args: "value", Kind: Write, Share: 0.2},
			{Name: "set-ex", Command: "SET", Args: "value EX 60", Kind: WriteFading, Share: 0.05},
			{Name: "del", Command: "DEL", Kind: Delete, Share: 0.1},
			{Name: "incr", Command: "INCR", Kind: Increment, Share: 0.1},
		},
		Load: true, keys: scrambledZipfian, name: plainKey,
	},
	{
		Name: "hset",
		Doc:  "HSET of one of the fields of loaded hashes, uniform",
		Ops:  []Op{{Name: "hset", Command: "HSET", Args: "member value", Kind: Write, Share: 1}},
		Load: true, keys: uniform, of: hash,
	},
	{
		Name: "lpush",
		Doc:  "LPUSH of one value to loaded lists, which grow by what is sent, uniform",
		Ops:  []Op{{Name: "lpush", Command: "LPUSH", Args: "value", Kind: Push, Share: 1}},
		Load: true, keys: uniform, of: list,
	},
	{
		Name: "rpush",
		Doc:  "RPUSH of one value to loaded lists, which grow by what is sent, uniform",
		Ops:  []Op{{Name: "rpush", Command: "RPUSH", Args: "value", Kind: Push, Share: 1}},
		Load: true, keys: uniform, of: list,
	},
	{
		Name: "lpop",
		Doc: "LPOP from loaded lists, uniform; load more elements than the run takes, the result says how often a " +
			"list was empty",
		Ops:  []Op{{Name: "lpop", Command: "LPOP", Kind: Pop, Share: 1}},
		Load: true, keys: uniform, of: list,
	},
	{
		Name: "sadd",
		Doc:  "SADD of one new member to loaded sets, which grow by what is sent, uniform",
		Ops:  []Op{{Name: "sadd", Command: "SADD", Args: "new", Kind: Push, Share: 1}},
		Load: true, keys: uniform, of: set,
	},
	{
		Name: "spop",
		Doc: "SPOP from loaded sets, uniform; load more elements than the run takes, the result says how often a set " +
			"was empty",
		Ops:  []Op{{Name: "spop", Command: "SPOP", Kind: Pop, Share: 1}},
		Load: true, keys: uniform, of: set,
	},
	{
		Name: "zadd",
		Doc:  "ZADD of another score for one of the members of loaded sorted sets, uniform",
		Ops:  []Op{{Name: "zadd", Command: "ZADD", Args: "score member", Kind: Write, Share: 1}},
		Load: true, keys: uniform, of: sortedSet,
	},
	{
		Name: "zpopmin",
		Doc: "ZPOPMIN from loaded sorted sets, uniform; load more elements than the run takes, the result says how " +
			"often one was empty",
		Ops:  []Op{{Name: "zpopmin", Command: "ZPOPMIN", Kind: Pop, Share: 1}},
		Load: true, keys: uniform, of: sortedSet,
	},
	{
		Name: "hash",
		Doc:  "objects: 60 % HGET and 30 % HSET of a field, 10 % HGETALL, scrambled zipfian",
		Ops: []Op{
			{Name: "hget", Command: "HGET", Args: "member", Share: 0.6},
			{Name: "hset", Command: "HSET", Args: "member value", Kind: Write, Share: 0.3},
			{Name: "hgetall", Command: "HGETALL", Kind: ReadAll, Share: 0.1},
		},
		Load: true, keys: scrambledZipfian, of: hash,
	},
	{
		Name: "queue",
		Doc: "queues that keep their length: 45 % RPUSH, 45 % LPOP from where the client has pushed, 10 % LRANGE of " +
			"the first 10, scrambled zipfian",
		Ops: []Op{
			{Name: "rpush", Command: "RPUSH", Args: "value", Kind: Push, Share: 0.45},
			{Name: "lpop", Command: "LPOP", Kind: Pop, Share: 0.45},
			{Name: "lrange", Command: "LRANGE", Args: "0 9", Kind: ReadPage, Share: 0.1},
		},
		Load: true, keys: scrambledZipfian, of: list,
	},
	{
		Name: "members",
		Doc: "sets that keep their size: 50 % SISMEMBER, 20 % SADD of a new member, 20 % SPOP from where the client " +
			"has added, 10 % SMEMBERS, scrambled zipfian",
		Ops: []Op{
			{Name: "sismember", Command: "SISMEMBER", Args: "member", Share: 0.5},
			{Name: "sadd", Command: "SADD", Args: "new", Kind: Push, Share: 0.2},
			{Name: "spop", Command: "SPOP", Kind: Pop, Share: 0.2},
			{Name: "smembers", Command: "SMEMBERS", Kind: ReadAll, Share: 0.1},
		},
		Load: true, keys: scrambledZipfian, of: set,
	},
	{
		Name: "leaderboard",
		Doc: "40 % ZADD of another score for a member, 30 % ZREVRANK and 10 % ZSCORE of one, 20 % ZREVRANGE of the " +
			"first 10 with scores, scrambled zipfian",
		Ops: []Op{
			{Name: "zadd", Command: "ZADD", Args: "score member", Kind: Write, Share: 0.4},
			{Name: "zrevrank", Command: "ZREVRANK", Args: "member", Share: 0.3},
			{Name: "zscore", Command: "ZSCORE", Args: "member", Share: 0.1},
			{Name: "zrevrange", Command: "ZREVRANGE", Args: "0 9 WITHSCORES", Kind: ReadPage, Share: 0.2},
		},
		Load: true, keys: scrambledZipfian, of: sortedSet,
	},
}

// YCSB's operations on a record that is one string.
var (
	read   = Op{Name: "read", Command: "GET"}
	update = Op{Name: "update", Command: "SET", Args: "value", Kind: Write}
	insert = Op{Name: "insert", Command: "SET", Args: "value", Kind: Insert}
)

func (o Op) share(s float64) Op {
	o.Share = s
	return o
}

// Loading returns the operation of the load phase. Records have their numbers before it begins, so it is a write like
// any other. It first removes a collection that is there already.
func (w *Workload) Loading() Op {
	if w.of == nil {
		return Op{Name: insert.Name, Command: "SET", Args: "value", Kind: Write, Share: 1}
	}
	return Op{Name: insert.Name, Command: "DEL", Then: w.of.add, Args: w.of.element, Kind: Fill, Share: 1}
}

// Names lists the workloads in the table's order.
func Names() []string {
	var names []string
	for i := range All {
		names = append(names, All[i].Name)
	}
	return names
}

// Find returns the workload of that name.
func Find(name string) (*Workload, error) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], nil
		}
	}
	return nil, fmt.Errorf("workload %q: unknown, want one of %s", name, strings.Join(Names(), ", "))
}

// Reach returns how many records or elements one of the operations reads or writes at most, if a collection has this
// many elements. A collection that grows may have some more.
func Reach(ops []Op, elements int) int {
	most := 1
	for _, op := range ops {
		switch op.Kind {
		case Scan:
			most = max(most, ThreadRecords)
		case ReadPage:
			most = max(most, PageElements)
		case ReadAll, Fill:
			most = max(most, elements)
		}
	}
	return most
}

// Request is what to send for one operation. Args and Then are memory of the generator that filled them in, and valid
// until it fills the request again.
type Request struct {
	Op      int // index into the workload's Ops, 0 in the load phase
	Record  uint64
	Element int      // the element, for operations on a loaded one
	Value   ValueID  // the value or score, for operations that write one
	Args    [][]byte // command, key, further arguments
	Then    [][]byte // the same of the second command, empty if there is none
}

// ValueID is the number of a value of a Source, which has about a million.
type ValueID uint32

// Source holds what the generators of one workload share. Records are numbered from 0.
type Source struct {
	workload  *Workload
	keys      Distribution
	inserts   *Inserts
	elements  int    // of a collection that is loaded
	pool      []byte // random bytes; a value is a window of them
	value     int    // bytes of a value
	ops       []encoded
	loading   encoded
	upTo      []float64 // cumulated shares
	push, pop int       // the operations of these kinds, -1 for none
}

// encoded is an Op in the form from which requests are made.
type encoded struct {
	Op
	command, then []byte
	args          []word
	times         int // how often args are repeated
	// What args need.
	value, member bool
}

func encode(op Op, elements int) encoded {
	e := encoded{Op: op, command: []byte(op.Command), then: []byte(op.Then), times: 1}
	if op.Kind == Fill {
		e.times = elements
	}
	for _, text := range strings.Fields(op.Args) {
		w := word{kind: words[text], text: []byte(text)}
		e.args = append(e.args, w)
		e.value = e.value || w.kind == wordValue || w.kind == wordScore
		e.member = e.member || w.kind == wordMember && op.Kind != Fill
	}
	return e
}

// poolBytes is the size of the random data from which values are cut. Values overlap, so a compressor that looks
// further back than this would find repetitions; block compression does not look that far.
const poolBytes = 1 << 20

// NewSource prepares a workload for a number of records, of elements of a collection, and a size of values. The seed
// determines the values.
func NewSource(w *Workload, records uint64, elements, valueBytes int, seed uint64) *Source {
	inserts := NewInserts(records)
	s := &Source{
		workload: w, keys: w.keys(records, inserts), inserts: inserts, elements: elements, value: valueBytes,
		pool: make([]byte, poolBytes+valueBytes+8), loading: encode(w.Loading(), elements), push: -1, pop: -1,
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= len(s.pool); i += 8 {
		binary.LittleEndian.PutUint64(s.pool[i:], rng.Uint64())
	}
	sum := 0.0
	for i, op := range w.Ops {
		sum += op.Share
		s.upTo = append(s.upTo, sum)
		s.ops = append(s.ops, encode(op, elements))
		switch op.Kind {
		case Push:
			s.push = i
		case Pop:
			s.pop = i
		}
	}
	return s
}

// Keys returns the distribution of record numbers.
func (s *Source) Keys() Distribution { return s.keys }

// Inserts returns the numbering of records that operations of kind Insert add. A client that has sent one tells it how
// the operation ended.
func (s *Source) Inserts() *Inserts { return s.inserts }

// Value returns the bytes of a value. The caller must not change them.
func (s *Source) Value(id ValueID) []byte { return s.pool[id : int(id)+s.value] }

// AppendKey appends the key of a record, or of its counter.
func (s *Source) AppendKey(dst []byte, record uint64, counter bool) []byte {
	switch {
	case counter:
		return counterKey(dst, record)
	case s.workload.of != nil:
		return numbered(dst, s.workload.of.prefix, record)
	}
	return s.workload.name(dst, record)
}

// Generator draws the requests of one client. It is not safe for concurrent use and does not allocate per request.
type Generator struct {
	src  *Source
	rng  *rand.Rand
	keys Distribution
	key  []byte   // of the request, several of a scan one behind the other
	text []byte   // of members and scores, one behind the other
	owed []uint64 // records that the client has pushed to and not popped from, the oldest first
}

// Generator returns a generator that takes all its choices from rng.
func (s *Source) Generator(rng *rand.Rand) *Generator {
	g := &Generator{src: s, rng: rng, keys: s.keys}
	if l, ok := s.keys.(*Latest); ok {
		own := *l // each generator follows the inserts by itself
		g.keys = &own
	}
	return g
}

// Next fills r with the next operation of the run phase.
func (g *Generator) Next(r *Request) {
	s := g.src
	r.Op = 0
	if len(s.upTo) > 1 {
		u := g.rng.Float64()
		for r.Op < len(s.upTo)-1 && u >= s.upTo[r.Op] {
			r.Op++
		}
	}
	if s.push >= 0 && s.pop >= 0 {
		r.Op = g.settle(r.Op)
	}
	op := &s.ops[r.Op]
	switch {
	case op.Kind == Insert:
		r.Record = s.inserts.Next()
	case op.Kind == Pop && s.push >= 0:
		r.Record = g.owed[0]
		g.owed = g.owed[:copy(g.owed, g.owed[1:])]
	default:
		r.Record = g.keys.Next(g.rng)
	}
	if op.Kind == Push && s.pop >= 0 {
		g.owed = append(g.owed, r.Record)
	}
	g.fill(r, op)
}

// Load fills r with the insertion of a record before the run phase.
func (g *Generator) Load(r *Request, record uint64) {
	r.Op, r.Record = 0, record
	g.fill(r, &g.src.loading)
}

func (g *Generator) fill(r *Request, op *encoded) {
	s := g.src
	g.key, r.Then = g.key[:0], r.Then[:0]
	switch op.Kind {
	case Scan:
		r.Args = append(r.Args[:0], op.command)
		g.scan(r)
		return
	case ReadAbsent:
		g.key = absentKey(g.key, r.Record)
	default:
		g.key = s.AppendKey(g.key, r.Record, op.Kind == Increment)
	}
	r.Args = append(r.Args[:0], op.command, g.key)
	r.Element = 0
	if op.member {
		r.Element = int(g.rng.Uint64N(uint64(s.elements)))
	}
	if op.value {
		r.Value = ValueID(g.rng.Uint64N(poolBytes))
	}
	if len(op.then) > 0 {
		r.Then = g.arguments(append(r.Then, op.then, g.key), r, op)
	} else {
		r.Args = g.arguments(r.Args, r, op)
	}
}

// scan reads 1 to ThreadRecords records, evenly distributed; 100 is YCSB's maxscanlength. It begins at the chosen
// record, or earlier if the thread would end too soon. A thread that is still filling has fewer.
func (g *Generator) scan(r *Request) {
	first := r.Record / ThreadRecords * ThreadRecords
	end := min(first+ThreadRecords, g.src.inserts.Acknowledged())
	n := min(1+g.rng.Uint64N(ThreadRecords), end-first)
	r.Record = min(r.Record, end-n)
	for i := range n {
		g.key = append(g.src.workload.name(g.key, r.Record+i), ' ')
	}
	for rest := g.key; len(rest) > 0; {
		var key []byte
		key, rest, _ = bytes.Cut(rest, space)
		r.Args = append(r.Args, key)
	}
}

var space = []byte(" ") // in no key
