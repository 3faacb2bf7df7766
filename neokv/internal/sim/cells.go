package sim

import (
	"strconv"
	"strings"
)

// A history's key of the sort g stands for three strings in one slot, and one of the sort j for three fields of one hash: its cells, a, b and c.
// A command on several of them takes effect at once. Its words name cells, and values behind them.
const (
	mset   kind = "MSET" // cell value ...
	msetNX kind = "MSETNX"
	mget   kind = "MGET"   // all of them
	rename kind = "RENAME" // cell cell
	hmget  kind = "HMGET"
)

const cellNames = "abc"

func (o *op) ofCells() bool { return o.key[0] == 'g' || o.key[0] == 'j' }

// cellKey is the key of a string among the cells.
func cellKey(key, cell string) string { return key[:1] + cell + key[1:] }

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

// cellEffect is effect for cells. What they hold has a space between two of them, and is "" while none holds anything.
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
