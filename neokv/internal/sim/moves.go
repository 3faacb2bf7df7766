package sim

import (
	"slices"
	"strings"
)

// A key of the sort t stands in a history for three sets in one slot. These are its cells a, b and c, as in cells.go.
// Clients move members from one set to another: a member that was there before is there afterwards, in one of the two.
//
// Lists are left to the sort l. No command reads several of them at once, so moves of unknown outcome between lists
// leave the checker with more states than it can search.
const (
	smove  opName = "SMOVE"  // value: cell cell member
	sunion opName = "SUNION" // all cells
)

// ofSets reports whether the key of an operation has cells that are sets.
func (o *op) ofSets() bool { return o.key[0] == 't' }

// setArgs is args for operations on cells that are sets. The value of SADD is a cell and a member, that of SMEMBERS a
// cell.
func (o *op) setArgs() []string {
	words, keys := strings.Fields(o.value), 1
	switch o.kind {
	case sunion:
		words = strings.Split(cellNames, "")
		keys = len(words)
	case smove:
		keys = 2
	}
	for i, cell := range words[:keys] {
		words[i] = cellKey(o.key, cell)
	}
	return append([]string{string(o.kind)}, words...)
}

// setEffect is effect for cells that are sets. A state is their members in order, with semicolons between the cells and
// spaces between members, or "" while all are empty.
func (o *op) setEffect(before string) (after, want string) {
	cells := make([][]string, len(cellNames))
	if before != "" {
		for i, cell := range strings.Split(before, ";") {
			cells[i] = strings.Fields(cell)
		}
	}
	words := strings.Fields(o.value)
	at := func(i int) *[]string { return &cells[strings.Index(cellNames, words[i])] }
	// add adds a member to a set, and reports whether it was not there.
	add := func(set *[]string, member string) bool {
		i, there := slices.BinarySearch(*set, member)
		if !there {
			*set = slices.Insert(*set, i, member)
		}
		return !there
	}
	switch o.kind {
	case smembers:
		want = strings.Join(*at(0), " ")
	case sunion:
		var all []string
		for _, set := range cells {
			for _, member := range set {
				add(&all, member)
			}
		}
		want = strings.Join(all, " ")
	case sadd:
		want = "0"
		if add(at(0), words[1]) {
			want = "1"
		}
	case smove:
		want = "0"
		if i, there := slices.BinarySearch(*at(0), words[2]); there {
			*at(0) = slices.Delete(*at(0), i, i+1)
			add(at(1), words[2])
			want = "1"
		}
	}
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = strings.Join(cell, " ")
	}
	if after = strings.Join(texts, ";"); after == ";;" {
		after = ""
	}
	return after, want
}

// onSets chooses a command on three sets of a slot.
func (u *user) onSets(region int) request {
	r := request{key: u.key('t', region)}
	switch u.c.random.IntN(8) {
	case 0, 1:
		r.kind, r.value = sadd, u.cells(1, false)+" "+u.member()
	case 2, 3, 4:
		r.kind, r.value = smove, u.cells(2, false)+" "+u.member()
	case 5:
		r.kind, r.value = smembers, u.cells(1, false)
	default:
		r.kind = sunion
	}
	return r
}
