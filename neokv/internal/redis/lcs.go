package redis

import (
	"bytes"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// lcsOptions are LCS's options as given.
type lcsOptions struct {
	length, ranges, withLength bool
	minLength                  int64 // of a range that is shown
}

// lcs runs LCS. It replies the longest common subsequence of two strings, its length, or the ranges of both strings of
// which it consists.
func lcs(r *Reader, args [][]byte, out *Reply) error {
	var recs [2]record
	var text [2][]byte
	for i := range text {
		rec, err := r.load(args[1+i])
		if err != nil {
			return err
		}
		if rec.live {
			text[i] = bytes.Clone(rec.Value) // valid until the next load only
		}
		recs[i] = rec
	}
	for i := range recs {
		if recs[i].live && recs[i].Type != keys.String {
			out.Error(errLCSType)
			return nil
		}
	}
	var o lcsOptions
	for i := 3; i < len(args); i++ {
		switch a := args[i]; {
		case IsOption(a, "idx"):
			o.ranges = true
		case IsOption(a, "len"):
			o.length = true
		case IsOption(a, "withmatchlen"):
			o.withLength = true
		case IsOption(a, "minmatchlen") && i+1 < len(args):
			i++
			var ok bool
			if o.minLength, ok = ParseInt(args[i]); !ok {
				out.Error(ErrNotInteger)
				return nil
			}
		default:
			out.Error(ErrSyntax)
			return nil
		}
	}
	switch {
	case o.ranges && o.length:
		out.Error(errLCSBoth)
		return nil
	case 4*(recs[0].length()+1)*(recs[1].length()+1) > maxStringBytes: // the memory that Redis's table would take
		out.Error(errLCSMemory)
		return nil
	}
	for i := range text {
		if rec := &recs[i]; rec.live && rec.Long() {
			var c collection
			r.begin(&c, topology.SlotOf(args[1+i]), args[1+i], rec, &r.opened)
			var err error
			if text[i], err = c.appendRange(nil, 0, rec.length()); err != nil {
				return err
			}
		}
	}
	l := newSubsequence(text[0], text[1], r.work)
	switch {
	case r.work.Ended() != nil:
	case o.ranges:
		l.writeRanges(out, o)
	case o.length:
		out.Int(int64(l.length))
	default:
		out.Bulk(l.text())
	}
	return nil
}

// subsequence is the longest common subsequence of a and b. If there are several, it is the one that Redis picks: Redis
// goes back from both ends, and shortens the prefix of a only if shortening that of b would cost a byte.
type subsequence struct {
	a, b   []byte
	length int
	work   *engine.Work
	// swapped says that b is the longer string. The table of prefixes has a row for each byte of the longer one, so
	// that a row takes little memory and time.
	swapped bool
	// shorten has a bit for every pair of prefixes, row by row: whether to leave out the last byte of the longer string
	// rather than that of the shorter one.
	shorten []uint64
}

// newSubsequence takes time proportional to len(a) * len(b), and as many bits of memory. If the work is over, the
// result means nothing.
func newSubsequence(a, b []byte, w *engine.Work) *subsequence {
	l := &subsequence{a: a, b: b, work: w, swapped: len(a) < len(b)}
	tie := uint32(0) // added to what the longer string gives: 1 if it is b, which Redis shortens if that costs nothing
	if l.swapped {
		a, b, tie = b, a, 1
	}
	l.shorten = make([]uint64, (len(a)*len(b)+63)/64)
	row := make([]uint32, len(b)+1) // lengths for the prefix of a so far and every prefix of b
	for i := range a {
		if !w.Spend(1 + len(b)/stepsOfUnit) {
			break
		}
		diagonal := uint32(0)
		for j := range b {
			above, left := row[j+1], row[j]
			switch {
			case a[i] == b[j]:
				row[j+1] = diagonal + 1
			case above+tie > left:
				bit := i*len(b) + j
				l.shorten[bit/64] |= 1 << (bit % 64)
			default:
				row[j+1] = left
			}
			diagonal = above
		}
	}
	l.length = int(row[len(b)])
	return l
}

// back goes from the ends of both strings to their beginnings. It calls match with the two indexes of each byte of the
// subsequence, the last byte first. If the work is over, it stops on its way.
func (l *subsequence) back(match func(i, j int)) {
	long, short := l.a, l.b
	if l.swapped {
		long, short = short, long
	}
	for i, j, steps := len(long)-1, len(short)-1, 1; i >= 0 && j >= 0; steps++ {
		if steps%matchSteps == 0 && !l.work.Spend(matchSteps/stepsOfUnit) {
			return
		}
		bit := i*len(short) + j
		switch {
		case long[i] == short[j]:
			if l.swapped {
				match(j, i)
			} else {
				match(i, j)
			}
			i, j = i-1, j-1
		case l.shorten[bit/64]&(1<<(bit%64)) != 0:
			i--
		default:
			j--
		}
	}
}

func (l *subsequence) text() []byte {
	text := make([]byte, l.length)
	n := l.length
	l.back(func(i, _ int) {
		n--
		text[n] = l.a[i]
	})
	return text
}

// writeRanges appends the ranges, the last first, and the length. A range is a stretch without a gap in either string.
func (l *subsequence) writeRanges(out *Reply, o lcsOptions) {
	type stretch struct{ i, j, n int }
	var found []stretch
	l.back(func(i, j int) {
		if k := len(found) - 1; k >= 0 && found[k].i == i+1 && found[k].j == j+1 {
			found[k] = stretch{i, j, found[k].n + 1}
			return
		}
		found = append(found, stretch{i, j, 1})
	})
	shown := found[:0]
	for _, s := range found {
		if int64(s.n) >= o.minLength {
			shown = append(shown, s)
		}
	}
	out.MapOf("matches", func() {
		out.Array(len(shown))
		for _, s := range shown {
			if o.withLength {
				out.Array(3)
			} else {
				out.Array(2)
			}
			for _, first := range [...]int{s.i, s.j} {
				out.Array(2)
				out.Int(int64(first))
				out.Int(int64(first + s.n - 1))
			}
			if o.withLength {
				out.Int(int64(s.n))
			}
		}
	}, "len", l.length)
}
