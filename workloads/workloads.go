// Package workloads says what to send: the operations of a workload, in which shares, on which keys, with which values. A
// workload is a row of one table. Nothing here knows of connections or time.
//
// A record of a key-value benchmark is one Redis string here. YCSB's records have fields (ten of 100 bytes); reading or
// updating one reads or writes the string as a whole, which is what YCSB does with readallfields and writeallfields.
package workloads

import (
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
	// keys draws record numbers in [0, records).
	keys func(records uint64) Distribution
	// name appends the key of a record.
	name func(dst []byte, record uint64) []byte
}

// Op is one kind of operation: a command on one key.
type Op struct {
	Name    string  // as results call it
	Command string  // the Redis command
	Share   float64 // of all operations of the run phase
	Value   bool    // whether the command carries a value
}

// All is the table of workloads.
var All = []Workload{
	{
		Name: "ycsb-a",
		Doc:  "YCSB workload A, update heavy: half reads, half updates, scrambled zipfian",
		Ops:  []Op{read.share(0.5), update.share(0.5)},
		Load: true,
		keys: scrambledZipfian,
		name: ycsbKey,
	},
	{
		Name: "get",
		Doc:  "GET of loaded keys, uniform",
		Ops:  []Op{{Name: "get", Command: "GET", Share: 1}},
		Load: true,
		keys: uniform,
		name: plainKey,
	},
	{
		Name: "set",
		Doc:  "SET over the key space, uniform; nothing is loaded before",
		Ops:  []Op{{Name: "set", Command: "SET", Share: 1, Value: true}},
		keys: uniform,
		name: plainKey,
	},
}

// YCSB's operations on a record that is one string.
var (
	read   = Op{Name: "read", Command: "GET"}
	update = Op{Name: "update", Command: "SET", Value: true}
)

func (o Op) share(s float64) Op {
	o.Share = s
	return o
}

// Insert is the operation of the load phase.
var Insert = Op{Name: "insert", Command: "SET", Share: 1, Value: true}

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

// Request is one command to send. Args belong to whoever filled it and hold until it is filled again.
type Request struct {
	Op   int      // index into the workload's Ops, 0 in the load phase
	Args [][]byte // command, key, further arguments
}

// Source makes requests of one workload, over records numbered from 0. It is immutable: generators share it.
type Source struct {
	workload *Workload
	records  uint64
	keys     Distribution
	pool     []byte   // random bytes; a value is a window of them
	windows  uint64   // where a window may begin
	value    int      // bytes of a value
	commands [][]byte // by op
	insert   []byte
	upTo     []float64 // cumulated shares
}

// poolBytes is how much random data values are cut from. Windows overlap, so a compressor that looks further back than this
// would find repetitions; block compression does not.
const poolBytes = 1 << 20

// NewSource prepares a workload for a number of records and a size of values. The seed fixes the values.
func NewSource(w *Workload, records uint64, valueBytes int, seed uint64) *Source {
	s := &Source{
		workload: w, records: records, keys: w.keys(records), value: valueBytes,
		pool: make([]byte, poolBytes+valueBytes+8), windows: poolBytes, insert: []byte(Insert.Command),
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= len(s.pool); i += 8 {
		binary.LittleEndian.PutUint64(s.pool[i:], rng.Uint64())
	}
	sum := 0.0
	for _, op := range w.Ops {
		sum += op.Share
		s.upTo = append(s.upTo, sum)
		s.commands = append(s.commands, []byte(op.Command))
	}
	return s
}

// Keys returns the distribution that record numbers are drawn from.
func (s *Source) Keys() Distribution { return s.keys }

// Generator draws the requests of one client. It is not safe for concurrent use and does not allocate per request.
type Generator struct {
	src *Source
	rng *rand.Rand
	key []byte
}

// Generator returns a generator that draws all its choices from rng.
func (s *Source) Generator(rng *rand.Rand) *Generator { return &Generator{src: s, rng: rng} }

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
	g.fill(r, s.commands[r.Op], s.keys.Next(g.rng), s.workload.Ops[r.Op].Value)
}

// Insert fills r with the insertion of a record.
func (g *Generator) Insert(r *Request, record uint64) {
	r.Op = 0
	g.fill(r, g.src.insert, record, true)
}

func (g *Generator) fill(r *Request, command []byte, record uint64, value bool) {
	s := g.src
	g.key = s.workload.name(g.key[:0], record)
	r.Args = append(r.Args[:0], command, g.key)
	if value {
		at := g.rng.Uint64N(s.windows)
		r.Args = append(r.Args, s.pool[at:at+uint64(s.value)])
	}
}
