package workloads

import (
	"bytes"
	"slices"
	"strconv"
)

// CollectionType is a type of collection. The elements of a record are numbered from 0. Those that are loaded are there
// when the run phase begins.
type CollectionType struct {
	prefix string // of keys
	// add is the command that adds elements, and element the words for one of them, as in Op.
	add, element string
	// read is the command that returns what an element holds; it is empty for types whose elements hold nothing. count
	// is the command that returns how many elements there are.
	read, count string
}

var (
	hash      = &CollectionType{prefix: "hash:", add: "HSET", element: "member value", read: "HGET", count: "HLEN"}
	list      = &CollectionType{prefix: "list:", add: "RPUSH", element: "value", count: "LLEN"}
	set       = &CollectionType{prefix: "set:", add: "SADD", element: "member", count: "SCARD"}
	sortedSet = &CollectionType{prefix: "zset:", add: "ZADD", element: "score member", read: "ZSCORE", count: "ZCARD"}
)

// PageElements is how many elements an operation of kind ReadPage reads.
const PageElements = 10

// word is an argument after the key.
type word struct {
	kind wordKind
	text []byte // of a literal
}

type wordKind uint8

const (
	wordLiteral wordKind = iota
	wordValue
	wordMember
	wordNew
	wordScore
)

var words = map[string]wordKind{"value": wordValue, "member": wordMember, "new": wordNew, "score": wordScore}

// textBytes bounds the text of a member or a score.
const textBytes = 32

// arguments appends the arguments after the key. Each element of a record that is loaded has a value of its own, see
// ElementValue.
func (g *Generator) arguments(dst [][]byte, r *Request, op *encoded) [][]byte {
	g.text = slices.Grow(g.text[:0], len(op.args)*op.times*textBytes) // so that it does not move under dst
	element, value := r.Element, r.Value
	for i := range op.times {
		if op.Kind == Fill {
			element, value = i, ElementValue(r.Value, i)
		}
		for _, w := range op.args {
			arg, from := w.text, len(g.text)
			switch w.kind {
			case wordValue:
				arg = g.src.Value(value)
			case wordMember:
				g.text = appendMember(g.text, element)
				arg = g.text[from:]
			case wordNew:
				g.text = appendNewMember(g.text, g.rng.Uint64())
				arg = g.text[from:]
			case wordScore:
				g.text = appendScore(g.text, value)
				arg = g.text[from:]
			}
			dst = append(dst, arg)
		}
	}
	return dst
}

// appendMember appends the name of a loaded element, much as redis-benchmark names it.
func appendMember(dst []byte, element int) []byte { return numbered(dst, "element:", uint64(element)) }

// appendNewMember appends a name that no other element has. It is made of 64 random bits and longer than the names of
// loaded elements.
func appendNewMember(dst []byte, random uint64) []byte {
	dst = append(dst, "element:"...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[random>>shift&15])
	}
	return dst
}

// appendScore appends the score that a value's number stands for.
func appendScore(dst []byte, id ValueID) []byte { return strconv.AppendUint(dst, uint64(id), 10) }

// ElementValue returns the value, or score, of an element of a loaded record. It differs from those of the other
// elements of the record, and the order of the values is not that of the elements.
func ElementValue(record ValueID, element int) ValueID {
	const odd = 0x9e37_79b1 // so that numbers do not repeat
	return (record + ValueID(element)*odd) % poolBytes
}

// maxOwed is how many elements a client may have pushed and not popped.
const maxOwed = 16

// settle returns the operation to send in place of the one that was drawn, where a workload pushes and pops. A client
// pops from the records to which it has pushed before. So records keep the elements that they were loaded with, and
// have at most maxOwed more for each client. A pop that has nothing to take becomes a push, and a push too many becomes
// a pop. With equal shares both are as likely, so the shares hold.
func (g *Generator) settle(op int) int {
	switch s := g.src; {
	case op == s.pop && len(g.owed) == 0:
		return s.push
	case op == s.push && len(g.owed) == maxOwed:
		return s.pop
	}
	return op
}

// Counts reports whether reading back compares the number of elements of a record, since elements come and go.
// Otherwise they stay, and reading back compares what each of them holds.
func (w *Workload) Counts() bool {
	return slices.ContainsFunc(w.Ops, func(op Op) bool { return op.Kind == Push || op.Kind == Pop })
}

// Elements returns how many elements a record is loaded with, 0 for a string.
func (s *Source) Elements() int {
	if s.workload.of == nil {
		return 0
	}
	return s.elements
}

// HasValues reports whether records are made of values. Members of sets and scores have sizes of their own.
func (w *Workload) HasValues() bool { return w.of == nil || w.of == hash || w.of == list }

// Look fills r with the command that reads back a record, its counter, an element of it, or, where Workload.Counts says
// so, its number of elements.
func (g *Generator) Look(r *Request, record uint64, element int, counter bool) {
	of := g.src.workload.of
	g.key, g.text = g.src.AppendKey(g.key[:0], record, counter), g.text[:0]
	*r = Request{Record: record, Element: element, Args: r.Args[:0], Then: r.Then[:0]}
	switch {
	case of == nil:
		r.Args = append(r.Args, readString, g.key)
	case g.src.workload.Counts():
		r.Args = append(r.Args, []byte(of.count), g.key)
	default:
		g.text = appendMember(g.text, element)
		r.Args = append(r.Args, []byte(of.read), g.key, g.text)
	}
}

var readString = []byte("GET")

// Is reports whether text, the answer to a command of Look, is a value, or the score that it stands for.
func (s *Source) Is(text []byte, id ValueID) bool {
	if s.workload.of == sortedSet {
		var score [textBytes]byte
		return bytes.Equal(text, appendScore(score[:0], id))
	}
	return bytes.Equal(text, s.Value(id))
}

// Place returns a name for messages of what Look reads.
func (s *Source) Place(record uint64, element int, counter bool) string {
	name := s.AppendKey(nil, record, counter)
	if s.workload.of != nil && !s.workload.Counts() {
		name = appendMember(append(name, ' '), element)
	}
	return string(name)
}
