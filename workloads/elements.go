package workloads

import (
	"bytes"
	"slices"
	"strconv"
)

// Type is what a record is if it is no string: a collection of elements. Elements are numbered from 0, and all that are
// loaded are there when the run phase begins.
type Type struct {
	prefix string // of keys
	// add is the command that adds elements, element the words for one of them, as in Op.
	add, element string
	// read is the command that answers what an element holds, empty where they hold nothing; count answers how many
	// there are.
	read, count string
}

var (
	hash      = &Type{prefix: "hash:", add: "HSET", element: "member value", read: "HGET", count: "HLEN"}
	list      = &Type{prefix: "list:", add: "RPUSH", element: "value", count: "LLEN"}
	set       = &Type{prefix: "set:", add: "SADD", element: "member", count: "SCARD"}
	sortedSet = &Type{prefix: "zset:", add: "ZADD", element: "score member", read: "ZSCORE", count: "ZCARD"}
)

// PageElements is how many elements an operation of kind ReadPage reads.
const PageElements = 10

// word is an argument behind the key.
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

// arguments appends what follows the key. Elements of a record that is loaded have values of their own, see
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

// appendMember appends the name of an element that is loaded, much as redis-benchmark names it.
func appendMember(dst []byte, element int) []byte { return numbered(dst, "element:", uint64(element)) }

// appendNewMember appends a name that no other element has: of 64 random bits, and longer than those of elements that
// are loaded.
func appendNewMember(dst []byte, random uint64) []byte {
	dst = append(dst, "element:"...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[random>>shift&15])
	}
	return dst
}

// appendScore appends the score that a value's number stands for.
func appendScore(dst []byte, id ValueID) []byte { return strconv.AppendUint(dst, uint64(id), 10) }

// ElementValue is the value, or score, of an element of a record that is loaded: other than those of the record's other
// elements, and in another order than they are.
func ElementValue(record ValueID, element int) ValueID {
	const odd = 0x9e37_79b1 // so that numbers do not repeat
	return (record + ValueID(element)*odd) % poolBytes
}

// maxOwed is by how many elements a client can be ahead with pushing.
const maxOwed = 16

// settle returns the operation to send instead of one that was drawn, where a workload pushes and pops. A client pops
// from the records that it has pushed to before, so that these keep the elements that they were loaded with, and at
// most maxOwed more for each client. A pop that has nothing to take becomes a push, and a push too many a pop; with
// equal shares that is as likely, so the shares hold.
func (g *Generator) settle(op int) int {
	switch s := g.src; {
	case op == s.pop && len(g.owed) == 0:
		return s.push
	case op == s.push && len(g.owed) == maxOwed:
		return s.pop
	}
	return op
}

// Counts reports whether what can be read back of a record is how many elements it has: elements come and go. Otherwise
// they stay, and what each of them holds can be read back.
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

// Look fills r with the command that reads a record back, or its counter, or of a collection an element or how many it
// has. Records that count are told by Workload.Counts.
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

// Is reports whether text, which a command of Look was answered with, is a value, or the score that it stands for.
func (s *Source) Is(text []byte, id ValueID) bool {
	if s.workload.of == sortedSet {
		var score [textBytes]byte
		return bytes.Equal(text, appendScore(score[:0], id))
	}
	return bytes.Equal(text, s.Value(id))
}

// Place names what Look reads, for messages.
func (s *Source) Place(record uint64, element int, counter bool) string {
	name := s.AppendKey(nil, record, counter)
	if s.workload.of != nil && !s.workload.Counts() {
		name = appendMember(append(name, ' '), element)
	}
	return string(name)
}
