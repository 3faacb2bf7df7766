// Package workloads says what to send: the operations of a workload and their shares, their keys and values. A workload
// is a file: one of those embedded here, or one of the user's. The package knows nothing of connections or time.
//
// A record is what an operation is about: a string, several strings that are written together, a number, or a
// collection of elements. Records have kinds; those of a kind are numbered from 0. The workloads ycsb-a to ycsb-f are
// those of Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, section 4 and the parameter files
// that came with it. YCSB's records have ten fields of 100 bytes. Here an operation reads or writes a string as a
// whole, which is what YCSB does with readallfields and writeallfields.
package workloads

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"neokv.dev/neokv/settings"
)

//go:embed *.yaml
var embedded embed.FS

// Workload is what a workload file says.
type Workload struct {
	Name string // of the embedded file, or the path of the user's
	Doc  string
	Text []byte // the file
	// Ops are the operations of the run phase; their shares add up to 1.
	Ops []Op
	// Storage says that reads are meant to reach the storage engine. A cache of records in front of it must be off.
	Storage bool

	// Subscribers get what the operations publish; nil for none.
	Subscribers *Subscribers

	kinds []*recordKind
	scans int // commands with a cursor
}

// Subscribers are clients that receive messages.
type Subscribers struct {
	Clients int
	Command string // SUBSCRIBE or SSUBSCRIBE

	channel template
}

// Channel returns the channel of a subscriber, by its number from 0 on.
func (s *Subscribers) Channel(number int) string {
	return string(s.channel.append(nil, &exprValues{n: int64(number)}))
}

// StampBytes is how long the beginning of a message is that the sender fills in: by whom and when it was published.
const StampBytes = 48

// Op is one kind of operation: a command, or several that are sent one after the other, each when the one before is
// answered.
type Op struct {
	Name  string  // its name in results
	Share float64 // its share of all operations of the run phase
	Reads bool    // it changes nothing, so an answer is a hit or a miss

	kind   int // of the record that it chooses, -1 for none
	absent float64
	steps  []*commandSpec
	// Of each so many clients, the one with this remainder sends the operation. of is 0 if all clients do.
	remainder, of int
}

// sends reports whether a client sends the operation.
func (o *Op) sends(client uint64) bool {
	return o.of == 0 || client%uint64(o.of) == uint64(o.remainder)
}

// Absent returns the share of the operations that are meant to find nothing.
func (o Op) Absent() float64 { return o.absent }

// Names lists the embedded workloads.
func Names() []string {
	files, err := embedded.ReadDir(".")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// All returns the embedded workloads.
func All() (out []*Workload) {
	for _, name := range Names() {
		w, err := Find(name)
		if err != nil {
			panic(err) // they are tested
		}
		out = append(out, w)
	}
	return out
}

// Find returns the embedded workload of that name, or the one in a file if the name has a slash or ends with .yaml. The
// error is an FileError with everything that is wrong.
func Find(name string) (*Workload, error) {
	if strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, ".yaml") {
		return open(name)
	}
	in, err := embedded.Open(name + ".yaml")
	if err != nil {
		return nil, &FileError{fmt.Errorf("workload %q: unknown, want one of %s, or the path of a YAML file%s", name,
			strings.Join(Names(), ", "), settings.DidYouMean(name, Names()))}
	}
	defer in.Close()
	return read(name, name+".yaml", in)
}

// Verifiable returns an error if there are records and reading back can follow none of them.
func (w *Workload) Verifiable() error {
	left := w.NotFollowed()
	if len(w.kinds) == 0 || slices.ContainsFunc(w.kinds, func(k *recordKind) bool { return k.followed() }) {
		return nil
	}
	return fmt.Errorf("workload %s: verify: reading back cannot follow %s", w.Name, strings.Join(left, ", nor "))
}

// NotFollowed says which kinds of records reading back cannot follow, and why.
func (w *Workload) NotFollowed() (out []string) {
	for _, k := range w.kinds {
		if !k.followed() {
			out = append(out, fmt.Sprintf("records of kind %s (%s)", k.name, strings.Join(k.left, ", ")))
		}
	}
	return out
}

// followed reports whether reading back can tell what the records of a kind must hold.
func (k *recordKind) followed() bool { return len(k.left) == 0 }

// leave finds the kinds that reading back cannot follow.
func (w *Workload) leave() {
	for i, k := range w.kinds {
		for _, op := range w.Ops {
			for _, c := range op.steps {
				if c.does == Untracked && c.kind == i || changesAll(c.name) {
					k.left = append(k.left, fmt.Sprintf("%s:%d: %s", w.Name, c.line, c.text))
				}
			}
		}
		if k.counts() && (k.deleted || k.fades) && !k.owner {
			k.left = append(k.left, "their sizes change and they are removed, without `owner: true`")
		}
		if k.counter && (k.deleted || k.fades) {
			k.left = append(k.left, "counters that are removed")
		}
	}
}

// roles is how many parts the clients fall into that send different operations.
func (w *Workload) roles() int {
	return max(1, slices.MaxFunc(w.Ops, func(a, b Op) int { return a.of - b.of }).of)
}

// cumulated returns the cumulated shares of a client's operations. The others have none.
func (w *Workload) cumulated(client uint64) (upTo []float64) {
	all, sum, last := 0.0, 0.0, 0
	for i, op := range w.Ops {
		if op.sends(client) {
			all += op.Share
			last = i
		}
	}
	for i, op := range w.Ops {
		if op.sends(client) {
			sum += op.Share / all
		}
		if i >= last {
			sum = 1
		}
		upTo = append(upTo, sum)
	}
	return upTo
}

// counts reports whether reading back compares the number of elements of a record, since elements come and go or hold
// nothing. Otherwise they stay, and reading back compares what each of them holds.
func (k *recordKind) counts() bool {
	return k.of != nil && (k.of.read == "" || len(k.push)+len(k.pop) > 0)
}

// Request is what to send for one operation. Steps are memory of the generator that filled them in, and valid until it
// fills the request again.
type Request struct {
	Op    int // index into the workload's Ops, 0 in the load phase
	Steps []RequestStep
}

// RequestStep is one command of a request.
type RequestStep struct {
	Args [][]byte
	Key  []byte // the first key, by which a cluster routes the command, or its transaction; nil if there is none
	Effect
	// Together counts the commands that are sent as one transaction, this one and those behind it. It is 0 for a
	// command that is sent by itself, and for those behind the first one.
	Together int
	// Watches says that the transaction that follows must go to the node that this command has gone to.
	Watches bool
	// Message says that the last argument is a message, whose first StampBytes the sender fills in. The one before is
	// its channel, or the key of a list.
	Message bool
	// Pops says that the reply may have messages that were pushed.
	Pops bool
	// Script is the text that the command names by its SHA1, as EVALSHA does; nil for none. It is the workload's own.
	Script []byte
}

// Effect says what a command does to which record. It refers to no memory of the request.
type Effect struct {
	Does   OpKind
	Insert bool // the record is a new one, see Source.Inserted
	Scan   bool // the first string of the reply is the cursor of the next call, see Generator.Scanned
	GoesOn bool // it goes on with an iteration
	// The record, and what the command changes there.
	Kind    int // of the record, -1 for none
	Record  uint64
	Element int     // for commands about a loaded element
	Value   ValueID // the value or score, for commands that write one
	Added   int     // elements that a Push adds

	scan int // the number of the command among those with a cursor
}

// ValueID is the number of a value of a Source, which has about a million.
type ValueID uint64

// SourceOptions is what a load says about its records.
type SourceOptions struct {
	Records   uint64 // the value of `records` in a workload file
	Elements  int    // of a collection that is loaded, unless the file says otherwise
	ValueSize int    // bytes of a value, unless the file says otherwise
	Clients   int
	Seed      uint64
	// SlotOf returns the slot of a key, below 16384. It is set if clients keep their pipelines to one slot, see
	// Generator.NextIn.
	SlotOf func(key []byte) uint16
}

// Source holds what the generators of one workload share.
type Source struct {
	workload *Workload
	o        SourceOptions
	messages []byte // of which messages are the beginning; the sender fills in their stamps
	pool     []byte // of which values with sizes of their own are windows
	kinds    []*kindSource
	upTo     [][]float64 // cumulated shares, by the client's number modulo their count
	loaded   uint64      // records to load, of all kinds
	values   exprValues
	bySlot   [][2]*slotIndex // by operation, and then by whether the key is absent; nil entries have no index
}

// kindSource is what a source knows of the records of one kind.
type kindSource struct {
	*recordKind
	records  uint64 // before the run begins
	inserts  *Inserts
	pool     []byte // a value is a window of it
	sizes    []sizes
	elements sizes
}

// poolBytes is the size of the random data from which values are cut. Values overlap, so a compressor that looks
// further back than this would find repetitions; block compression does not look that far.
const poolBytes = 1 << 20

// NewSource prepares a workload. The error names records that would be too many.
func NewSource(w *Workload, o SourceOptions) (*Source, error) {
	s := &Source{workload: w, o: o}
	pools := map[float64][]byte{}
	s.values = exprValues{records: int64(o.Records), count: s.count, last: s.last}
	var wrong []error
	for _, k := range w.kinds {
		n := k.count.eval(&s.values)
		if k.owner {
			n = max(n, int64(o.Clients))
		}
		if n = max(n, 1); n > maxCount {
			wrong = append(wrong, fmt.Errorf("workload %s: %d records of kind %s, want at most %g", w.Name, n, k.name,
				float64(maxCount)))
		}
		ks := &kindSource{recordKind: k, records: uint64(n), inserts: NewInserts(uint64(n)), elements: k.many}
		if !k.load && k.inserted {
			ks.inserts = NewInserts(0)
		}
		if k.many == nil {
			ks.elements = fixedSize(o.Elements)
		}
		for _, key := range k.keys {
			switch {
			case key.value != nil:
				ks.sizes = append(ks.sizes, key.value)
			case k.value != nil:
				ks.sizes = append(ks.sizes, k.value)
			default:
				ks.sizes = append(ks.sizes, fixedSize(o.ValueSize))
			}
		}
		most := 0
		for _, x := range ks.sizes {
			most = max(most, x.max())
		}
		if len(pools[k.ratio]) < poolBytes+most {
			pools[k.ratio] = newPool(poolBytes+most, k.ratio, o.Seed)
		}
		s.kinds = append(s.kinds, ks)
		if k.load {
			s.loaded += ks.records
		}
	}
	longest, own := 0, -1
	for _, op := range w.Ops {
		for _, c := range op.steps {
			if c.says {
				longest = max(longest, c.words[1].size.max())
			}
			for _, x := range c.ownSizes() {
				own = max(own, x.max())
			}
		}
	}
	s.messages = newPool(longest, 1, o.Seed)
	if own >= 0 && len(pools[1]) < poolBytes+own {
		pools[1] = newPool(poolBytes+own, 1, o.Seed)
	}
	s.pool = pools[1]
	for _, k := range s.kinds {
		k.pool = pools[k.ratio]
	}
	for client := range uint64(w.roles()) {
		s.upTo = append(s.upTo, w.cumulated(client))
	}
	if o.SlotOf != nil && wrong == nil {
		if err := s.index(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return s, errors.Join(wrong...)
}

// newPool returns bytes that snappy compresses to about 1/ratio of their length. In every block the first bytes are
// random and the rest is zero. A block is short, so that even short values differ.
func newPool(length int, ratio float64, seed uint64) []byte {
	const block, run = 64, 4 // run: what a run of zeros costs
	pool := make([]byte, length+8)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= len(pool); i += 8 {
		binary.LittleEndian.PutUint64(pool[i:], rng.Uint64())
	}
	if random := max(1, int(math.Round(block/ratio))-run); ratio > 1 {
		for i := range pool {
			if i%block >= random {
				pool[i] = 0
			}
		}
	}
	return pool[:length]
}

func (s *Source) count(kind string) int64 { return int64(s.kindNamed(kind).records) }

func (s *Source) last(kind string) int64 { return int64(s.kindNamed(kind).inserts.Acknowledged()) - 1 }

func (s *Source) kindNamed(name string) *kindSource {
	return s.kinds[slices.IndexFunc(s.kinds, func(k *kindSource) bool { return k.name == name })]
}

// Loaded returns how many records the load phase inserts, of all kinds.
func (s *Source) Loaded() uint64 { return s.loaded }

// Kinds describes the kinds of records for the header of a result: their numbers and how they are chosen.
func (s *Source) Kinds() string {
	var out []string
	for _, k := range s.kinds {
		out = append(out, fmt.Sprintf("%s: %d, %s", k.name, k.records, k.choose))
	}
	return strings.Join(out, "; ")
}

// Elements returns how many elements a record of the first kind of collections is loaded with at most, 0 if there is no
// such kind.
func (s *Source) Elements() int {
	for _, k := range s.kinds {
		if k.of != nil {
			return k.elements.max()
		}
	}
	return 0
}

// ValueSizes describes the sizes of values: one, a few, or "various"; "" if no record has any.
func (s *Source) ValueSizes() string {
	var out []string
	add := func(x sizes) {
		if !slices.Contains(out, x.String()) {
			out = append(out, x.String())
		}
	}
	for _, k := range s.kinds {
		for i, key := range k.keys {
			if !key.fixed && !k.counter && k.of != set && k.of != sortedSet {
				add(k.sizes[i])
			}
		}
	}
	for _, op := range s.workload.Ops {
		for _, c := range op.steps {
			for _, x := range c.ownSizes() {
				add(x)
			}
		}
	}
	if len(out) > 3 {
		return "various"
	}
	return strings.Join(out, "; ")
}

// Inserted tells how the insertion of a record ended, which a step with Insert began.
func (s *Source) Inserted(kind int, record uint64, acknowledged bool) {
	s.kinds[kind].inserts.Done(record, acknowledged)
}

// value returns the bytes of a value for one of the keys of a kind. The caller must not change them.
func (k *kindSource) value(id ValueID, key int) []byte {
	return window(k.pool, k.sizes[key], id)
}

// window returns the bytes of a value in a pool.
func window(pool []byte, size sizes, id ValueID) []byte {
	id %= poolBytes
	return pool[id : int(id)+size.at(fraction(uint64(id)))]
}

// ownSizes returns the sizes of values that are not those of a kind of records.
func (c *commandSpec) ownSizes() (out []sizes) {
	for _, w := range c.words {
		if w.kind == wordValue && w.size != nil {
			out = append(out, w.size)
		}
	}
	return out
}

// fraction returns a number from 0 to 1, not included, that a hash of n stands for.
func fraction(n uint64) float64 { return float64(fnv64(n)>>10) / (1 << 53) }

// elementsOf returns how many elements a record is loaded with.
func (k *kindSource) elementsOf(record uint64) int { return k.elements.at(fraction(record)) }

// appendKey appends a key of a record.
func (k *kindSource) appendKey(dst []byte, v *exprValues, key int, record uint64) []byte {
	from := len(dst)
	v.n = int64(record)
	dst = k.keys[key].name.append(dst, v)
	if k.length != nil {
		for n := k.length.at(fraction(record)); len(dst)-from < n; {
			dst = append(dst, '~')
		}
	}
	return dst
}

// held appends what a key of a record holds after a write of a value.
func (k *kindSource) held(dst []byte, v *exprValues, key int, record uint64, id ValueID) []byte {
	if x := &k.keys[key]; x.fixed {
		v.n = int64(record)
		return x.text.append(dst, v)
	}
	return append(dst, k.value(ElementValue(id, key), key)...)
}

// RequestBytes returns about how many bytes the longest request and reply of an operation have together.
func (s *Source) RequestBytes() int {
	most := 1
	of := func(c *commandSpec) int {
		n := 0
		if c.says {
			n = c.words[1].size.max()
		}
		for _, x := range c.ownSizes() {
			n += x.max()
		}
		if c.kind < 0 {
			return n + 64
		}
		k := s.kinds[c.kind]
		value := 0
		for _, x := range k.sizes {
			value = max(value, x.max())
		}
		value += 128 // of a key, and of a reply beside the value
		n += len(c.script)
		for _, w := range c.words {
			switch w.kind {
			case wordKeys, wordKeysValues:
				n += len(k.keys) * value
			case wordNext, wordBack:
				n += w.size.max() * value
			case wordInt, wordLiteral, wordToken, wordMessage:
			default:
				n += value
			}
		}
		if k.of != nil && knownCommands[c.name].reads && len(c.words) != 2 {
			n += k.elements.max() * value
		}
		return n + value
	}
	for _, op := range s.workload.Ops {
		together := 0
		for i, c := range op.steps {
			if c.unit == 0 || i == 0 || op.steps[i-1].unit != c.unit {
				together = 0
			}
			together += of(c)
			most = max(most, together)
		}
	}
	return most
}

// LoadBytes is RequestBytes of the load phase.
func (s *Source) LoadBytes() int {
	most := 1
	for _, k := range s.kinds {
		for _, x := range k.sizes {
			each := len(k.keys)
			if k.of != nil {
				each = k.elements.max()
			}
			most = max(most, each*(x.max()+64)+128)
		}
	}
	return most
}
