package redis

import "neokv.dev/neokv/internal/engine"

// Glob is a pattern of KEYS, SCAN and their kin, with the rules of Redis 7.0: * ? [a-z] [^a] and \ before a character.
// It keeps Redis's peculiarities: only the pattern "*" matches the empty string, a class that is not closed ends with
// the pattern, and bytes from 0x80 on are below the others in ranges.
type Glob struct {
	pattern []byte
	// classes are those that Match need not read: the first ones, and all long ones. So Match takes the same time for
	// any class, and a pattern of many short classes takes little more memory than its text.
	classes []class
}

// class is a set of bytes between brackets.
type class struct {
	at, end int // where it stands in the pattern
	bytes   byteSet
}

// keptClasses is how many classes a Glob keeps whatever their length, and longClass the length from which on it keeps
// any.
const keptClasses, longClass = 256, 64

// NewGlob returns the Glob of a pattern, which nobody may change meanwhile. It takes time proportional to the pattern's
// length. If the work is over, the result means nothing.
func NewGlob(pattern []byte, w *engine.Work) *Glob {
	g := &Glob{pattern: pattern}
	for p, counted := 0, -matchSteps; p < len(pattern); p++ {
		if p-counted >= matchSteps {
			if counted = p; !w.Spend(matchSteps / stepsOfUnit) {
				break
			}
		}
		switch pattern[p] {
		case '\\':
			p++
		case '[':
			c := readClass(pattern, p, w)
			if len(g.classes) < keptClasses || c.end-c.at >= longClass {
				g.classes = append(g.classes, c)
			}
			p = c.end - 1
		}
	}
	return g
}

// Match reports whether s matches. At worst it takes time proportional to the length of the pattern times that of s. If
// the work is over, the result means nothing.
func (g *Glob) Match(s []byte, w *engine.Work) bool {
	pattern := g.pattern
	if len(pattern) == 1 && pattern[0] == '*' {
		return true
	}
	if len(s) == 0 {
		return len(pattern) == 0
	}
	p, i := 0, 0
	star, from := -1, 0 // where the pattern goes on after its last star, and where in s that was tried last
	for steps := 1; ; steps++ {
		if steps%matchSteps == 0 && !w.Spend(matchSteps/stepsOfUnit) {
			return false
		}
		switch {
		case p < len(pattern) && pattern[p] == '*':
			for p < len(pattern) && pattern[p] == '*' {
				p++
			}
			if p == len(pattern) {
				return true
			}
			star, from = p, i
			continue
		case i == len(s) && p == len(pattern):
			return true
		case i == len(s):
			return false // the rest of the pattern needs more bytes than there are, also from any later start
		case p < len(pattern):
			if n, ok := g.matchOne(p, s[i]); ok {
				p, i = p+n, i+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star, from
	}
}

// Patterns count their work once in so many steps, and so many make a unit.
const matchSteps, stepsOfUnit = 1 << 10, 16

// matchOne matches one byte against the element at p of the pattern, which is no star. It returns the element's length.
func (g *Glob) matchOne(p int, c byte) (n int, ok bool) {
	switch g.pattern[p] {
	case '?':
		return 1, true
	case '[':
		var room class
		x := g.classAt(p, &room)
		return x.end - p, x.bytes.has(c)
	case '\\':
		if p+1 < len(g.pattern) {
			return 2, g.pattern[p+1] == c
		}
	}
	return 1, g.pattern[p] == c
}

// classAt returns the class at p of the pattern. If the Glob has not kept it, it is in room.
func (g *Glob) classAt(p int, room *class) *class {
	low, high := 0, len(g.classes)
	for low < high {
		switch i := (low + high) / 2; {
		case g.classes[i].at == p:
			return &g.classes[i]
		case g.classes[i].at < p:
			low = i + 1
		default:
			high = i
		}
	}
	*room = readClass(g.pattern, p, nil) // it is short
	return room
}

// readClass reads the class that begins at an index of the pattern.
func readClass(pattern []byte, at int, w *engine.Work) class {
	c, counted := class{at: at}, at
	p := at + 1
	not := p < len(pattern) && pattern[p] == '^'
	if not {
		p++
	}
	for ; p < len(pattern) && pattern[p] != ']'; p++ {
		if p-counted >= matchSteps {
			if counted = p; !w.Spend(matchSteps / stepsOfUnit) {
				break
			}
		}
		switch {
		case pattern[p] == '\\' && p+1 < len(pattern):
			p++
			c.bytes.add(pattern[p], pattern[p])
		case p+2 < len(pattern) && pattern[p+1] == '-':
			c.bytes.add(pattern[p], pattern[p+2])
			p += 2
		default:
			c.bytes.add(pattern[p], pattern[p])
		}
	}
	if not {
		for i := range c.bytes {
			c.bytes[i] = ^c.bytes[i]
		}
	}
	c.end = min(p+1, len(pattern))
	return c
}

// byteSet is a set of bytes, with a bit for each. Bit 0 is of 0x80, the lowest byte in ranges.
type byteSet [4]uint64

// add adds the bytes from one to another, whichever is the lower.
func (s *byteSet) add(a, b byte) {
	low, high := min(a^0x80, b^0x80), max(a^0x80, b^0x80)
	for i := low / 64; i <= high/64; i++ {
		first, last := max(low, 64*i)%64, min(high, 64*i+63)%64
		s[i] |= ^uint64(0) >> (63 - last) &^ (1<<first - 1)
	}
}

func (s *byteSet) has(c byte) bool {
	c ^= 0x80
	return s[c/64]&(1<<(c%64)) != 0
}
