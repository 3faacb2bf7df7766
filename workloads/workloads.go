// Package workloads says what to send: the operations of a workload, in which shares, on which keys, with which values. A
// workload is a row of one table. Nothing here knows of connections or time.
//
// A record of a key-value benchmark is one Redis string here. YCSB's records have fields (ten of 100 bytes); reading or
// updating one reads or writes the string as a whole, which is what YCSB does with readallfields and writeallfields.
// The workloads A to F are those of Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, section 4 and the
// parameter files that came with it.
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
	// Ops are the kinds of operations of the run phase; their shares add up to 1.
	Ops []Op
	// Load says that every record must exist before the run phase begins.
	Load bool
	// keys draws record numbers, of those loaded or of all that are acknowledged.
	keys func(records uint64, inserts *Inserts) Distribution
	// name appends the key of a record.
	name func(dst []byte, record uint64) []byte
}

// Op is one kind of operation: a command on one key, or on several of one slot.
type Op struct {
	Name    string  // as results call it
	Command string  // the Redis command
	Share   float64 // of all operations of the run phase
	Kind    Kind
	// Then is a second command on the same key, sent once the first is answered; it carries the value. Empty for none.
	Then string
	// TTL is the seconds after which what is written expires, empty for never.
	TTL string
}

// Kind says what an operation does to its record.
type Kind uint8

const (
	Read       Kind = iota
	ReadAbsent      // of a key that nobody writes
	Scan            // reads some records of the chosen one's thread, next to each other
	Write           // the record holds the value from then on
	Insert          // the same for a record that was not there
	Delete
	Increment // of the record's counter, which has a key of its own
)

// Writes reports whether operations of the kind carry a value.
func (k Kind) Writes() bool { return k == Write || k == Insert }

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
		Doc:  "YCSB workload E, short ranges: 95 % scans of 1 to 100 neighbours in a thread (one hash tag) by MGET, 5 % inserts, scrambled zipfian",
		Ops:  []Op{{Name: "scan", Command: "MGET", Kind: Scan, Share: 0.95}, insert.share(0.05)},
		Load: true, keys: growingZipfian, name: threadKey,
	},
	{
		Name: "ycsb-f",
		Doc:  "YCSB workload F, read-modify-write: half reads, half GET and then SET of the same key, scrambled zipfian",
		Ops:  []Op{read.share(0.5), {Name: "rmw", Command: "GET", Then: "SET", Kind: Write, Share: 0.5}},
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
		Doc:  "GET of keys that are absent and lie among loaded ones, uniform: what bloom filters are for",
		Ops:  []Op{{Name: "get", Command: "GET", Kind: ReadAbsent, Share: 1}},
		Load: true, keys: uniform, name: plainKey,
	},
	{
		Name: "set",
		Doc:  "SET over the key space, uniform; nothing is loaded before",
		Ops:  []Op{{Name: "set", Command: "SET", Kind: Write, Share: 1}},
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
			{Name: "set", Command: "SET", Kind: Write, Share: 0.2},
			{Name: "set-ex", Command: "SET", Kind: Write, TTL: "60", Share: 0.05},
			{Name: "del", Command: "DEL", Kind: Delete, Share: 0.1},
			{Name: "incr", Command: "INCR", Kind: Increment, Share: 0.1},
		},
		Load: true, keys: scrambledZipfian, name: plainKey,
	},
}

// YCSB's operations on a record that is one string.
var (
	read   = Op{Name: "read", Command: "GET"}
	update = Op{Name: "update", Command: "SET", Kind: Write}
	insert = Op{Name: "insert", Command: "SET", Kind: Insert}
)

func (o Op) share(s float64) Op {
	o.Share = s
	return o
}

// Loading is the operation of the load phase. Records are numbered before it begins, so it is a write like any other.
var Loading = Op{Name: "insert", Command: "SET", Kind: Write, Share: 1}

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

// Reach returns the most records that one operation of the workload reads or writes.
func (w *Workload) Reach() int {
	for _, op := range w.Ops {
		if op.Kind == Scan {
			return ThreadRecords
		}
	}
	return 1
}

// Request is what to send for one operation. Args and Then belong to whoever filled it and hold until it is filled again.
type Request struct {
	Op     int // index into the workload's Ops, 0 in the load phase
	Record uint64
	Value  ValueID  // of operations that write
	Args   [][]byte // command, key, further arguments
	Then   [][]byte // the same of the second command, empty if there is none
}

// ValueID names one of the values of a Source. There are about a million.
type ValueID uint32

// Source makes requests of one workload, over records numbered from 0. Generators share it.
type Source struct {
	workload *Workload
	keys     Distribution
	inserts  *Inserts
	pool     []byte // random bytes; a value is a window of them
	value    int    // bytes of a value
	ops      []encoded
	loading  encoded
	upTo     []float64 // cumulated shares
}

// encoded is an Op in the bytes that go into requests.
type encoded struct {
	Op
	command, then, ttl []byte
}

func encode(op Op) encoded { return encoded{op, []byte(op.Command), []byte(op.Then), []byte(op.TTL)} }

// poolBytes is how much random data values are cut from. Windows overlap, so a compressor that looks further back than this
// would find repetitions; block compression does not.
const poolBytes = 1 << 20

// NewSource prepares a workload for a number of records and a size of values. The seed fixes the values.
func NewSource(w *Workload, records uint64, valueBytes int, seed uint64) *Source {
	inserts := NewInserts(records)
	s := &Source{
		workload: w, keys: w.keys(records, inserts), inserts: inserts, value: valueBytes,
		pool: make([]byte, poolBytes+valueBytes+8), loading: encode(Loading),
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= len(s.pool); i += 8 {
		binary.LittleEndian.PutUint64(s.pool[i:], rng.Uint64())
	}
	sum := 0.0
	for _, op := range w.Ops {
		sum += op.Share
		s.upTo = append(s.upTo, sum)
		s.ops = append(s.ops, encode(op))
	}
	return s
}

// Keys returns the distribution that record numbers are drawn from.
func (s *Source) Keys() Distribution { return s.keys }

// Inserts returns the numbers of records that operations of kind Insert take: whoever sends one tells it how that ended.
func (s *Source) Inserts() *Inserts { return s.inserts }

// Value returns the bytes of a value. They must not be changed.
func (s *Source) Value(id ValueID) []byte { return s.pool[id : int(id)+s.value] }

// AppendKey appends the key of a record, or of its counter.
func (s *Source) AppendKey(dst []byte, record uint64, counter bool) []byte {
	if counter {
		return counterKey(dst, record)
	}
	return s.workload.name(dst, record)
}

// Generator draws the requests of one client. It is not safe for concurrent use and does not allocate per request.
type Generator struct {
	src  *Source
	rng  *rand.Rand
	keys Distribution
	key  []byte // of the request, several of a scan one behind the other
}

// Generator returns a generator that draws all its choices from rng.
func (s *Source) Generator(rng *rand.Rand) *Generator {
	g := &Generator{src: s, rng: rng, keys: s.keys}
	if l, ok := s.keys.(*Latest); ok {
		own := *l // each follows the inserts by itself
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
	op := &s.ops[r.Op]
	if op.Kind == Insert {
		r.Record = s.inserts.Next()
	} else {
		r.Record = g.keys.Next(g.rng)
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
	g.key = g.key[:0]
	r.Args, r.Then = append(r.Args[:0], op.command), r.Then[:0]
	switch op.Kind {
	case Scan:
		g.scan(r)
		return
	case ReadAbsent:
		g.key = absentKey(g.key, r.Record)
	default:
		g.key = s.AppendKey(g.key, r.Record, op.Kind == Increment)
	}
	r.Args = append(r.Args, g.key)
	if !op.Kind.Writes() {
		return
	}
	r.Value = ValueID(g.rng.Uint64N(poolBytes))
	if len(op.then) > 0 {
		r.Then = append(r.Then, op.then, g.key, s.Value(r.Value))
		return
	}
	r.Args = append(r.Args, s.Value(r.Value))
	if len(op.ttl) > 0 {
		r.Args = append(r.Args, ttlOption, op.ttl)
	}
}

var ttlOption = []byte("EX")

// scan asks for 1 to ThreadRecords records, as many as YCSB's maxscanlength, evenly distributed: from the chosen one on, or from
// further back where the thread ends before. A thread that is still filling has fewer.
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
