package workloads

import (
	"math/rand/v2"
	"slices"
	"strconv"
)

// Generator draws the requests of one client. It is not safe for concurrent use and does not allocate per request.
type Generator struct {
	src    *Source
	client uint64
	rng    *rand.Rand
	kinds  []kindGenerator
	scans  []openScans // by command that has a cursor
	goesOn openScan    // the one that the present operation goes on with, if it is over a collection
	values exprValues
	token  uint64 // of the present operation, 0 if it has not needed one

	// The request that is made. Its texts stand one behind the other. When text moves to larger memory, arguments that
	// are there already keep what they have in the smaller one.
	text  []byte
	args  [][]byte
	steps []stepArgs
}

// kindGenerator is what a generator knows of the records of one kind.
type kindGenerator struct {
	choose Distribution
	owed   []uint64 // records that the client has pushed to and not popped from, the oldest first
}

// openScan is an iteration that the server has not ended: over a collection, or over the keys of a node.
type openScan struct{ record, cursor uint64 }

// openScans are the iterations of one command that wait for their next call, the oldest first. A client that sends
// several calls at once has as many iterations under way. There are no more of them, since a call goes on with one that
// waits, and begins another one only if none does.
type openScans struct {
	list []openScan
	from int // those before have gone on
}

// take returns the oldest iteration. If there is none it returns a zero cursor, which begins one.
func (s *openScans) take() (x openScan) {
	if s.from < len(s.list) {
		x = s.list[s.from]
		s.from++
	}
	return x
}

func (s *openScans) add(x openScan) {
	if s.from > len(s.list)/2 {
		s.list, s.from = s.list[:copy(s.list, s.list[s.from:])], 0
	}
	s.list = append(s.list, x)
}

// stepArgs says which arguments are those of a step.
type stepArgs struct{ from, to, key int }

// Generator returns the generator of a client. It takes all its choices from the seed and the client's number.
func (s *Source) Generator(client int) *Generator {
	rng := rand.New(rand.NewPCG(s.o.Seed, uint64(client)+1))
	g := &Generator{src: s, client: uint64(client), rng: rng, values: s.values, scans: make([]openScans, s.workload.scans)}
	g.values.rng = rng
	for _, k := range s.kinds {
		d := k.choose.distribution(k.records, k.inserts, k.inserted, client, s.o.Clients, rng)
		if k.owner {
			d = &owned{of: d, records: k.records, client: uint64(client), clients: uint64(s.o.Clients)}
		}
		g.kinds = append(g.kinds, kindGenerator{choose: d})
	}
	return g
}

// Next fills r with the next operation of the run phase.
func (g *Generator) Next(r *Request) { g.NextIn(r, anySlot) }

// Pick draws which operation comes next, and nothing more of it.
func (g *Generator) Pick() (op int) {
	if upTo := g.src.upTo[g.client%uint64(len(g.src.upTo))]; len(upTo) > 1 {
		u := g.rng.Float64()
		for op < len(upTo)-1 && u >= upTo[op] {
			op++
		}
	}
	return op
}

// NextIn is Next for a client that keeps a pipeline to a slot. The operation is about a record there, if that is
// possible. If it is not, its key is in another slot, and the operation begins the client's next pipeline.
func (g *Generator) NextIn(r *Request, slot int) {
	s := g.src
	g.reset(r)
	r.Op = g.settle(g.Pick(), slot)
	op := &s.workload.Ops[r.Op]
	absent := op.absent > 0 && g.rng.Float64() < op.absent
	record := uint64(0)
	if op.kind >= 0 {
		record = g.choose(r.Op, absent, slot)
	}
	unit, first := 0, 0 // the transaction that is made, and its first command
	for _, c := range op.steps {
		g.values.n = int64(record)
		n := int64(record)
		if c.record != nil {
			n = c.record.eval(&g.values)
		}
		if n >= 0 || len(r.Steps) == 0 { // there is no record with a number below 0
			g.command(r, c, uint64(max(0, n)), absent)
			if c.unit > 0 {
				if c.unit != unit {
					unit, first = c.unit, len(r.Steps)-1
				}
				r.Steps[first].Together++
			}
		}
	}
	g.finish(r)
}

// settle returns the operation to send in place of the one that was drawn, where a workload pushes and pops. A client
// pops from the records to which it has pushed before. So records keep the elements that they were loaded with, and
// have at most maxOwed more for each client. A pop that has nothing to take becomes a push, and a push too many becomes
// a pop. With equal shares both are as likely, so the shares hold.
func (g *Generator) settle(op, slot int) int {
	o := &g.src.workload.Ops[op]
	if o.kind < 0 || len(o.steps) != 1 {
		return op
	}
	k := g.src.kinds[o.kind]
	if !k.balanced() {
		return op
	}
	switch does, many := o.steps[0].does, len(g.kinds[o.kind].owed) >= maxOwed; {
	case does == Pop && !many && g.owed(op, slot) < 0:
		return k.push[g.rng.IntN(len(k.push))]
	case does == Push && many:
		return k.pop[g.rng.IntN(len(k.pop))]
	}
	return op
}

// balanced reports whether each client pops what it has pushed.
func (k *recordKind) balanced() bool { return len(k.push) > 0 && len(k.pop) > 0 && !k.apart }

// owed returns the place of the oldest record in a slot that the client has to pop from; -1 if there is none.
func (g *Generator) owed(op, slot int) int {
	o := &g.src.workload.Ops[op]
	owed := g.kinds[o.kind].owed
	if slot == anySlot {
		return min(0, len(owed)-1)
	}
	key, _ := o.steps[0].routedBy()
	defer func() { g.text = g.text[:0] }()
	return slices.IndexFunc(owed, func(n uint64) bool {
		g.text = g.src.kinds[o.kind].appendKey(g.text[:0], &g.values, key, n)
		return int(g.src.o.SlotOf(g.text)) == slot
	})
}

// choose draws the record of an operation.
func (g *Generator) choose(number int, absent bool, slot int) uint64 {
	op := &g.src.workload.Ops[number]
	k, own := g.src.kinds[op.kind], &g.kinds[op.kind]
	c := op.steps[0]
	if c.insert {
		return k.inserts.Next()
	}
	if c.scans && c.kind >= 0 {
		if g.goesOn = g.scans[c.scan].take(); g.goesOn.cursor != 0 {
			return g.goesOn.record
		}
	}
	balanced := k.balanced()
	if balanced && c.does == Pop {
		at := max(0, g.owed(number, slot)) // the oldest of all if the slot has none
		n := own.owed[at]
		own.owed = slices.Delete(own.owed, at, at+1)
		return n
	}
	n := own.choose.Next(g.rng)
	if slot != anySlot {
		n = g.inSlot(number, absent, n, slot)
	}
	if balanced && c.does == Push {
		for range c.added {
			own.owed = append(own.owed, n)
		}
	}
	return n
}

// inSlot returns a record in a slot in place of record n.
func (g *Generator) inSlot(op int, absent bool, n uint64, slot int) uint64 {
	k := g.src.kinds[g.src.workload.Ops[op].kind]
	at := 0
	if absent {
		at = 1
	}
	index := g.src.bySlot[op][at]
	if index == nil {
		return n
	}
	of, client, clients := k.records, uint64(0), uint64(1)
	if k.inserted {
		of = max(of, k.inserts.Acknowledged())
	}
	if k.owner {
		client, clients = g.client, uint64(g.src.o.Clients)
	}
	return index.in(slot, n, of, client, clients)
}

// Load fills r with the insertion of a record before the run phase: item counts the records of all kinds that are
// loaded. It first removes a collection that is there already.
func (g *Generator) Load(r *Request, item uint64) {
	r.Op = 0
	g.reset(r)
	for i, k := range g.src.kinds {
		if !k.load {
			continue
		}
		if item < k.records {
			g.load(r, i, item)
			break
		}
		item -= k.records
	}
	g.finish(r)
}

var (
	wordsDel  = []byte("DEL")
	wordsSet  = []byte("SET")
	wordsMSet = []byte("MSET")
	wordsGet  = []byte("GET")
	wordsMGet = []byte("MGET")
	zero      = []byte("0")
)

func (g *Generator) load(r *Request, kind int, record uint64) {
	k := g.src.kinds[kind]
	id := g.newValue()
	switch {
	case k.counter:
		g.begin(r, wordsSet, Effect{Kind: kind, Record: record, Does: Fill})
		g.key(r, k, 0, record)
		g.bytes(zero)
	case k.of == nil && len(k.keys) == 1:
		g.begin(r, wordsSet, Effect{Kind: kind, Record: record, Does: Write, Value: id})
		g.key(r, k, 0, record)
		g.held(k, 0, record, id)
	case k.of == nil:
		g.begin(r, wordsMSet, Effect{Kind: kind, Record: record, Does: Write, Value: id})
		g.keysValues(r, k, record, id)
	default:
		g.begin(r, wordsDel, Effect{Kind: kind, Record: record, Does: Delete})
		g.key(r, k, 0, record)
		g.end(r)
		g.begin(r, []byte(k.of.add), Effect{Kind: kind, Record: record, Does: Fill, Value: id})
		g.key(r, k, 0, record)
		for e := range k.elementsOf(record) {
			v := ElementValue(id, e)
			switch k.of {
			case hash:
				g.member(e)
				g.bytes(k.value(v, 0))
			case list:
				g.bytes(k.value(v, 0))
			case set:
				g.member(e)
			case sortedSet:
				g.score(v)
				g.member(e)
			}
		}
	}
	g.end(r)
}

// command appends a step: a command of the mix for a record.
func (g *Generator) command(r *Request, c *commandSpec, record uint64, absent bool) {
	step := Effect{Kind: c.kind, Record: record, Does: c.does, Added: c.added, Insert: c.insert, Scan: c.scans,
		scan: c.scan}
	cursor := uint64(0)
	if c.scans {
		if cursor = g.goesOn.cursor; c.kind < 0 {
			cursor = g.scans[c.scan].take().cursor
		}
		step.GoesOn = cursor != 0
	}
	var k *kindSource
	if c.kind >= 0 {
		k = g.src.kinds[c.kind]
	}
	for i := range c.words {
		switch c.words[i].kind {
		case wordMember:
			step.Element = g.rng.IntN(k.elementsOf(record))
		case wordValue, wordScore, wordKeysValues:
			step.Value = g.newValue()
		}
	}
	g.begin(r, c.text, step)
	if c.key > 0 {
		g.steps[len(g.steps)-1].key = len(g.args) - 1 + c.key
	}
	for i := range c.words {
		w := &c.words[i]
		switch w.kind {
		case wordLiteral:
			g.bytes(w.text)
		case wordTemplate:
			from := len(g.text)
			g.values.n = int64(record)
			g.text = w.fill.append(g.text, &g.values)
			g.since(from)
		case wordKey:
			if w.of > 0 {
				g.key(r, g.src.kinds[w.of-1], 0, g.kinds[w.of-1].choose.Next(g.rng))
				continue
			}
			from := len(g.text)
			g.key(r, k, w.key, record)
			if absent {
				g.text = append(g.text, absentMark)
				g.args[len(g.args)-1] = g.text[from:]
			}
		case wordKeys:
			for key := range k.keys {
				g.key(r, k, key, record)
			}
		case wordKeysValues:
			g.keysValues(r, k, record, step.Value)
		case wordValue:
			if w.size != nil {
				g.bytes(window(g.src.pool, w.size, ElementValue(step.Value, i)))
				continue
			}
			g.held(k, 0, record, step.Value)
		case wordMember:
			g.member(step.Element)
		case wordNew:
			from := len(g.text)
			g.text = appendNewMember(g.text, g.rng.Uint64())
			g.since(from)
		case wordScore:
			g.score(step.Value)
		case wordInt:
			from := len(g.text)
			g.text = strconv.AppendInt(g.text, int64(w.size.at(g.rng.Float64())), 10)
			g.since(from)
		case wordCursor:
			from := len(g.text)
			g.text = strconv.AppendUint(g.text, cursor, 10)
			g.since(from)
		case wordToken:
			for g.token == 0 {
				g.token = g.rng.Uint64()
			}
			from := len(g.text)
			g.text = appendNewMember(g.text, g.token)
			g.since(from)
		case wordMessage:
			g.bytes(g.src.messages[:w.size.at(g.rng.Float64())])
		case wordNext:
			g.next(r, k, w, record)
		case wordBack:
			g.back(r, k, w, record)
		}
	}
	x := &r.Steps[len(r.Steps)-1]
	x.Watches, x.Script, x.Message, x.Pops = c.name == "watch", c.script, c.says, c.pops
	g.end(r)
}

// next appends the keys of a record and of those behind it in its block. It begins earlier if the block, or the records
// that are there, would end too soon.
func (g *Generator) next(r *Request, k *kindSource, w *word, record uint64) {
	there := max(1, k.inserts.Acknowledged())
	block := there
	if n := w.step.eval(&g.values); n > 0 {
		block = uint64(n)
	}
	first := record / block * block
	end := max(min(first+block, there), first+1)
	n := min(uint64(w.size.at(g.rng.Float64())), end-first)
	from := max(first, min(record, end-n))
	r.Steps[len(r.Steps)-1].Record = from
	for i := range n {
		g.key(r, k, w.key, from+i)
	}
}

// back appends the keys of a record and of older ones, the newest first.
func (g *Generator) back(r *Request, k *kindSource, w *word, record uint64) {
	step := uint64(max(1, w.step.eval(&g.values)))
	for range w.size.at(g.rng.Float64()) {
		g.key(r, k, w.key, record)
		if record < step {
			return
		}
		record -= step
	}
}

// keysValues appends all keys of a record, each with what it holds then.
func (g *Generator) keysValues(r *Request, k *kindSource, record uint64, id ValueID) {
	for key := range k.keys {
		g.key(r, k, key, record)
		g.held(k, key, record, id)
	}
}

// held appends what a key holds after a write.
func (g *Generator) held(k *kindSource, key int, record uint64, id ValueID) {
	if !k.keys[key].fixed {
		g.bytes(k.value(ElementValue(id, key), key)) // not copied
		return
	}
	from := len(g.text)
	g.text = k.held(g.text, &g.values, key, record, id)
	g.since(from)
}

func (g *Generator) newValue() ValueID { return ValueID(g.rng.Uint64N(poolBytes)) }

func (g *Generator) member(element int) {
	from := len(g.text)
	g.text = appendMember(g.text, element)
	g.since(from)
}

func (g *Generator) score(id ValueID) {
	from := len(g.text)
	g.text = appendScore(g.text, id)
	g.since(from)
}

// key appends a key of a record.
func (g *Generator) key(r *Request, k *kindSource, key int, record uint64) {
	if s := &g.steps[len(g.steps)-1]; s.key < 0 {
		s.key = len(g.args)
	}
	from := len(g.text)
	g.text = k.appendKey(g.text, &g.values, key, record)
	g.since(from)
}

func (g *Generator) bytes(b []byte) { g.args = append(g.args, b) }

// since appends the text behind an offset as an argument.
func (g *Generator) since(from int) { g.bytes(g.text[from:]) }

func (g *Generator) reset(r *Request) {
	r.Steps = r.Steps[:0]
	g.text, g.steps, g.args = g.text[:0], g.steps[:0], g.args[:0]
	g.goesOn, g.token = openScan{}, 0
}

// begin begins a step with its command.
func (g *Generator) begin(r *Request, command []byte, does Effect) {
	r.Steps = slices.Grow(r.Steps, 1)[:len(r.Steps)+1] // in place: a step is large
	x := &r.Steps[len(r.Steps)-1]
	x.Key, x.Effect, x.Together, x.Watches, x.Script, x.Message, x.Pops = nil, does, 0, false, nil, false, false
	g.steps = append(g.steps, stepArgs{from: len(g.args), key: -1})
	g.bytes(command)
}

func (g *Generator) end(r *Request) { g.steps[len(g.steps)-1].to = len(g.args) }

// finish gives all steps their arguments, now that there are all of them.
func (g *Generator) finish(r *Request) {
	for i, s := range g.steps {
		r.Steps[i].Args = g.args[s.from:s.to:s.to]
		if s.key >= 0 {
			r.Steps[i].Key = g.args[s.key]
		}
	}
	for i := range r.Steps {
		x := &r.Steps[i]
		for k := i + 1; x.Key == nil && k < i+x.Together; k++ {
			x.Key = r.Steps[k].Key
		}
	}
}

// Scanned takes the cursor in the reply to a step with Scan. It reports whether the iteration goes on. A call that
// failed has ended its iteration.
func (g *Generator) Scanned(step *Effect, cursor []byte) bool {
	n, err := strconv.ParseUint(string(cursor), 10, 64)
	if err != nil || n == 0 {
		return false
	}
	g.scans[step.scan].add(openScan{step.Record, n})
	return true
}

// absentMark makes a key into one that nobody writes. It sorts right behind the one that is written.
const absentMark = '-'

// Look fills r with the command that reads back a record: all its keys, its number, one of its elements, or, where
// Source.Counts says so, its number of elements.
func (g *Generator) Look(r *Request, kind int, record uint64, element int) {
	g.reset(r)
	r.Op = 0
	k := g.src.kinds[kind]
	step := Effect{Kind: kind, Record: record, Element: element}
	switch {
	case k.of == nil && len(k.keys) > 1:
		g.begin(r, wordsMGet, step)
		for key := range k.keys {
			g.key(r, k, key, record)
		}
	case k.of == nil:
		g.begin(r, wordsGet, step)
		g.key(r, k, 0, record)
	case k.counts():
		g.begin(r, []byte(k.of.count), step)
		g.key(r, k, 0, record)
	default:
		g.begin(r, []byte(k.of.read), step)
		g.key(r, k, 0, record)
		g.member(element)
	}
	g.end(r)
	g.finish(r)
}
