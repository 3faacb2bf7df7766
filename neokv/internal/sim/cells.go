package sim

import (
	"strconv"
	"strings"
)

// A key of the sort g stands in a history for three strings in one slot, and a key of the sort j for three fields of
// one hash; one of the sort m for three numbers in one slot. These are its cells a, b and c. A command on several cells takes effect on all of them at once. The value
// of an operation names cells and, behind each one that it writes, what it writes.
const (
	mset   opName = "MSET" // value: cell text ...
	msetNX opName = "MSETNX"
	mget   opName = "MGET"   // all cells
	rename opName = "RENAME" // value: cell cell
	hmget  opName = "HMGET"
)

const cellNames = "abc"

// ofCells reports whether the key of an operation has cells.
func (o *op) ofCells() bool { return strings.Contains("gjm", o.key[:1]) }

// cellKey is the key in Redis of a cell that is a string.
func cellKey(key, cell string) string { return key[:1] + cell + key[1:] }

// cellArgs is args for operations on cells.
func (o *op) cellArgs() []string {
	words := strings.Fields(o.value)
	if o.kind == mget || o.kind == hmget {
		words = strings.Split(cellNames, "")
	}
	if o.key[0] == 'j' {
		return append([]string{string(o.kind), o.key}, words...)
	}
	args := []string{string(o.kind)}
	for i, w := range words {
		if values := o.kind == mset || o.kind == msetNX || o.kind == set; !values || i%2 == 0 {
			w = cellKey(o.key, w)
		}
		args = append(args, w)
	}
	if o.kind == copyTo {
		args = append(args, "REPLACE")
	}
	return args
}

// cellEffect is effect for cells. A state is what the three cells hold, with spaces between them, or "" while all are
// empty.
func (o *op) cellEffect(before string) (after, want string) {
	cells := strings.Split(before, " ")
	if before == "" {
		cells = make([]string, len(cellNames))
	}
	words := strings.Fields(o.value)
	at := func(i int) *string { return &cells[strings.Index(cellNames, words[i])] }
	switch o.kind {
	case get:
		want = *at(0)
	case mget, hmget:
		want = strings.Join(cells, " ")
	case set, mset, msetNX, hfill:
		fresh := 0
		for i := 0; i < len(words); i += 2 {
			if *at(i) == "" {
				fresh++
			}
		}
		want = "OK"
		switch {
		case o.kind == hfill:
			want = strconv.Itoa(fresh)
		case o.kind == msetNX && 2*fresh < len(words):
			return before, "0"
		case o.kind == msetNX:
			want = "1"
		}
		for i := 0; i < len(words); i += 2 {
			*at(i) = words[i+1]
		}
	case move, moveScript:
		n, _ := strconv.Atoi(words[2])
		from, _ := strconv.Atoi(*at(0))
		to, _ := strconv.Atoi(*at(1))
		*at(0), *at(1) = strconv.Itoa(from-n), strconv.Itoa(to+n)
		want = *at(0) + " " + *at(1)
	case rename:
		if *at(0) == "" {
			return before, noSuchKey
		}
		*at(1), *at(0), want = *at(0), "", "OK"
	case copyTo:
		if *at(0) == "" {
			return before, "0"
		}
		*at(1), want = *at(0), "1"
	case del, hdel:
		gone := 0
		for i := range words {
			if *at(i) != "" {
				*at(i) = ""
				gone++
			}
		}
		want = strconv.Itoa(gone)
	}
	if after = strings.Join(cells, " "); strings.TrimSpace(after) == "" {
		after = ""
	}
	return after, want
}
