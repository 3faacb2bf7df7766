package vm

import (
	"math"
	"math/bits"
)

// LTable is a table: an array for the keys from 1 on, and a hash for the others, in which a key that collides lies in a
// free node and is linked to the one at its place. Places, growth, border and order are those of PUC-Rio's Lua 5.1, so
// that pairs goes through strings and numbers in the order in which Redis does.
type LTable struct {
	g     *global
	meta  *LTable
	array []LValue
	nodes []node // a power of two, or none
	free  int    // the nodes from here on are taken
	id    uint64

	readonly bool
	absent   uint8 // bit e is set: no field for metamethod e, as long as no string key is set
}

type node struct {
	key, value LValue // key is Go's nil while the node was never used
	next       int32  // -1: the last
}

// What tables cost, by their logical sizes.
const (
	tableBytes = 88
	nodeBytes  = 40
	valueBytes = 16
)

// NewTable makes a table.
func (L *LState) NewTable() *LTable { return L.g.newTable(0, 0) }

// CreateTable makes a table with room for na elements of the array and nh others.
func (L *LState) CreateTable(na, nh int) *LTable { return L.g.newTable(na, nh) }

func (g *global) newTable(na, nh int) *LTable {
	g.charge(0, tableBytes)
	g.ids++
	t := &LTable{g: g, id: g.ids}
	if na > 0 || nh > 0 {
		t.resize(na, nh)
	}
	return t
}

func stringHash(s string) uint32 {
	h := uint32(len(s))
	for i := len(s) - 1; i >= 0; i-- {
		h ^= h<<5 + h>>2 + uint32(s[i])
	}
	return h
}

// place is where key belongs.
func (t *LTable) place(key LValue) int {
	odd := uint64(len(t.nodes)-1) | 1
	switch k := key.(type) {
	case LString:
		return int(stringHash(string(k))) & (len(t.nodes) - 1)
	case LNumber:
		if k == 0 {
			return 0
		}
		b := math.Float64bits(float64(k))
		return int(uint64(uint32(b)+uint32(b>>32)) % odd)
	case LBool:
		if k {
			return 1 & (len(t.nodes) - 1)
		}
		return 0
	case *LTable:
		return int(k.id % odd)
	case *LFunction:
		return int(k.id % odd)
	case *LUserData:
		return int(k.id % odd)
	case *LState:
		return int(k.id % odd)
	}
	return 0
}

// A chain or a comparison beyond this length is charged: keys can be made to collide.
const freeOfCharge = 32

func (t *LTable) find(key LValue) *node {
	if len(t.nodes) == 0 {
		return nil
	}
	if s, ok := key.(LString); ok {
		return t.findString(string(s), int(stringHash(string(s))))
	}
	steps := 0
	for i := int32(t.place(key)); i >= 0; i = t.nodes[i].next {
		if n := &t.nodes[i]; n.key == key {
			return n
		}
		if steps++; steps > freeOfCharge {
			t.g.charge(1, 0)
		}
	}
	return nil
}

func (t *LTable) findString(key string, hash int) *node {
	if len(t.nodes) == 0 {
		return nil
	}
	steps := 0
	for i := int32(hash & (len(t.nodes) - 1)); i >= 0; {
		n := &t.nodes[i]
		if s, ok := n.key.(LString); ok && len(s) == len(key) {
			if len(key) > 256 {
				t.g.charge(len(key)>>6, 0)
			}
			if string(s) == key {
				return n
			}
		}
		if steps++; steps > freeOfCharge {
			t.g.charge(1, 0)
		}
		i = n.next
	}
	return nil
}

// RawGet is the value at key, without metamethods.
func (t *LTable) RawGet(key LValue) LValue {
	if f, ok := key.(LNumber); ok {
		if i := int64(f); i > 0 && i <= int64(len(t.array)) && LNumber(i) == f {
			return t.array[i-1]
		}
	}
	if n := t.find(key); n != nil {
		return n.value
	}
	return LNil
}

// RawGetInt is the value at an integer.
func (t *LTable) RawGetInt(i int) LValue {
	if i > 0 && i <= len(t.array) {
		return t.array[i-1]
	}
	if len(t.nodes) == 0 {
		return LNil
	}
	return t.RawGet(LNumber(i))
}

// RawGetString is the value at a string.
func (t *LTable) RawGetString(key string) LValue {
	if len(t.nodes) == 0 {
		return LNil
	}
	if n := t.findString(key, int(stringHash(key))); n != nil {
		return n.value
	}
	return LNil
}

// RawSet sets key, which is neither nil nor NaN, without metamethods.
func (t *LTable) RawSet(key, value LValue) {
	switch k := key.(type) {
	case LNumber:
		if i := int64(k); i > 0 && i <= int64(len(t.array)) && LNumber(i) == k {
			t.array[i-1] = value
			return
		}
	case LString:
		t.absent = 0
	}
	if n := t.find(key); n != nil {
		n.value = value
		return
	}
	// A key without a value takes its place, too, as in Lua: it may make the table grow.
	t.insert(key, value)
}

// RawSetInt sets an integer.
func (t *LTable) RawSetInt(i int, value LValue) {
	if i > 0 && i <= len(t.array) {
		t.array[i-1] = value
		return
	}
	t.RawSet(Number(float64(i)), value)
}

// RawSetString sets a string.
func (t *LTable) RawSetString(key string, value LValue) { t.RawSet(LString(key), value) }

// Append adds value behind the border.
func (t *LTable) Append(value LValue) { t.RawSetInt(t.Len()+1, value) }

func (t *LTable) insert(key, value LValue) {
	if len(t.nodes) == 0 {
		t.rehash(key)
		t.RawSet(key, value)
		return
	}
	at := t.place(key)
	n := &t.nodes[at]
	if n.key != nil && n.value != LNil {
		free := t.freeNode()
		if free < 0 {
			t.rehash(key)
			t.RawSet(key, value)
			return
		}
		f := &t.nodes[free]
		if other := t.place(n.key); other != at {
			// The node at key's place is a guest: it moves to the free one.
			for t.nodes[other].next != int32(at) {
				other = int(t.nodes[other].next)
				t.g.charge(1, 0)
			}
			t.nodes[other].next = int32(free)
			*f = *n
			n.next = -1
		} else {
			f.next = n.next
			n.next = int32(free)
			n = f
		}
	} else if n.key == nil {
		n.next = -1
	}
	n.key, n.value = key, value
}

func (t *LTable) freeNode() int {
	for t.free > 0 {
		t.free--
		if t.nodes[t.free].key == nil {
			return t.free
		}
	}
	return -1
}

// arrayIndex is key if it may stand in the array, else 0.
func arrayIndex(key LValue) int {
	if f, ok := key.(LNumber); ok && f >= 1 && f <= 1<<26 {
		if i := int(f); LNumber(i) == f {
			return i
		}
	}
	return 0
}

// rehash chooses new sizes: the array is the largest power of two of whose elements more than half are in use.
func (t *LTable) rehash(extra LValue) {
	var nums [28]int // nums[i]: keys k with 2^(i-1) < k <= 2^i
	inArray, total := 0, 1
	count := func(i int) {
		if i > 0 {
			nums[bits.Len(uint(i-1))]++
			inArray++
		}
	}
	for i, v := range t.array {
		if v != LNil {
			count(i + 1)
			total++
		}
	}
	for i := range t.nodes {
		if n := &t.nodes[i]; n.key != nil && n.value != LNil {
			count(arrayIndex(n.key))
			total++
		}
	}
	count(arrayIndex(extra))
	sum, na, size := 0, 0, 0
	for i, power := 0, 1; power/2 < inArray; i, power = i+1, power*2 {
		if nums[i] > 0 {
			if sum += nums[i]; sum > power/2 {
				size, na = power, sum
			}
		}
		if sum == inArray {
			break
		}
	}
	t.resize(size, total-na)
}

func (t *LTable) resize(na, nh int) {
	if nh > 0 {
		nh = 1 << bits.Len(uint(nh-1))
	}
	// Charged before anything is allocated.
	t.g.charge((na+nh)/4, valueBytes*max(0, na-len(t.array))+nodeBytes*nh)
	array, nodes := t.array, t.nodes
	t.nodes, t.free = nil, nh
	if nh > 0 {
		t.nodes = make([]node, nh)
		for i := range t.nodes {
			t.nodes[i].value, t.nodes[i].next = LNil, -1
		}
	}
	switch {
	case na > len(array):
		t.array = make([]LValue, na)
		for i := copy(t.array, array); i < na; i++ {
			t.array[i] = LNil
		}
	case na < len(array):
		t.array = array[:na:na]
		for i, v := range array[na:] {
			if v != LNil {
				t.RawSet(LNumber(na+i+1), v)
			}
		}
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		if n := &nodes[i]; n.key != nil && n.value != LNil {
			t.RawSet(n.key, n.value)
		}
	}
}

// Len is the border that Lua's # finds.
func (t *LTable) Len() int {
	j := len(t.array)
	if j > 0 && t.array[j-1] == LNil {
		i := 0
		for j-i > 1 {
			if m := (i + j) / 2; t.array[m-1] == LNil {
				j = m
			} else {
				i = m
			}
		}
		return i
	}
	if len(t.nodes) == 0 {
		return j
	}
	i := j
	for j++; t.RawGetInt(j) != LNil; {
		i = j
		if j *= 2; j > math.MaxInt32 {
			for i = 1; t.RawGetInt(i) != LNil; i++ {
				t.g.charge(1, 0)
			}
			return i - 1
		}
	}
	for j-i > 1 {
		if m := (i + j) / 2; t.RawGetInt(m) == LNil {
			j = m
		} else {
			i = m
		}
	}
	return i
}

// MaxN is the largest number among the keys, or 0.
func (t *LTable) MaxN() float64 {
	t.g.charge((len(t.array)+len(t.nodes))/4, 0)
	most := 0.0
	for i, v := range t.array {
		if v != LNil {
			most = float64(i + 1)
		}
	}
	for i := range t.nodes {
		if f, ok := t.nodes[i].key.(LNumber); ok && t.nodes[i].value != LNil && float64(f) > most {
			most = float64(f)
		}
	}
	return most
}

// Next is the entry after that of key, or the first for LNil; LNil ends it. It is false if key is not in the table.
func (t *LTable) Next(key LValue) (k, v LValue, ok bool) {
	i := 0
	if key != LNil {
		if a := arrayIndex(key); a > 0 && a <= len(t.array) {
			i = a
		} else {
			// An entry that lost its value keeps its key until the table is rehashed.
			n := t.findIndex(key)
			if n < 0 {
				return LNil, LNil, false
			}
			i = len(t.array) + n + 1
		}
	}
	from := i
	for ; i < len(t.array); i++ {
		if t.array[i] != LNil {
			t.g.charge((i-from)/4, 0)
			return Number(float64(i + 1)), t.array[i], true
		}
	}
	for j := i - len(t.array); j < len(t.nodes); j++ {
		if n := &t.nodes[j]; n.value != LNil {
			t.g.charge((j+len(t.array)-from)/4, 0)
			return n.key, n.value, true
		}
	}
	t.g.charge((len(t.array)+len(t.nodes)-from)/4, 0)
	return LNil, LNil, true
}

func (t *LTable) findIndex(key LValue) int {
	if len(t.nodes) == 0 {
		return -1
	}
	steps := 0
	for i := int32(t.place(key)); i >= 0; i = t.nodes[i].next {
		if t.nodes[i].key == key {
			return int(i)
		}
		if steps++; steps > freeOfCharge {
			t.g.charge(1, 0)
		}
	}
	return -1
}

// Metatable is the table's metatable, or nil.
func (t *LTable) Metatable() *LTable { return t.meta }

// SetReadonly makes scripts and libraries fail that change the table. RawSet of Go does not look at it.
func (t *LTable) SetReadonly(on bool) { t.readonly = on }

// Readonly says whether SetReadonly was called with true.
func (t *LTable) Readonly() bool { return t.readonly }
