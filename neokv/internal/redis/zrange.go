package redis

import (
	"bytes"
	"errors"

	"neokv.dev/neokv/internal/keys"
)

// This file has ranges of sorted sets: by index, by score, by name. All commands parse a range into a zspan, and eachIn
// goes over its members in order, whether the command returns, stores or removes them. To reach a range by index,
// eachIn steps from the nearer end, or in a large sorted set uses its counts (zset_counts.go).

// zspan is a range of a sorted set. Fields that its kind does not use are 0.
type zspan struct {
	by  spanKind
	rev bool // from the last member to the first

	// first and last are indexes in the order in which the members come. Negative ones count from the end.
	first, last int64

	min, max scoreLimit
	from, to nameLimit

	// For ranges by score and by name: the first offset members are left out; if limited is set, the range has at most
	// limit members.
	offset, limit int64
	limited       bool
}

type spanKind byte

const (
	anySpan spanKind = iota // the call has not said yet
	byRank
	byScore
	byName
)

// scoreLimit is one end of a range of scores.
type scoreLimit struct {
	score     float64
	exclusive bool
}

// nameLimit is one end of a range of names.
type nameLimit struct {
	end       int // -1 is before all names, 1 behind all
	name      []byte
	exclusive bool
}

// parseLimits reads the two arguments of a range. A range by score or by name from the highest down has its upper end
// first. parseLimits appends Redis's error where it cannot.
func (z *zspan) parseLimits(a, b []byte, out *Reply) (ok bool) {
	if z.rev && z.by != byRank {
		a, b = b, a
	}
	line, ok2 := "", false
	switch z.by {
	case byRank:
		line = ErrNotInteger
		z.first, ok = ParseInt(a)
		z.last, ok2 = ParseInt(b)
	case byScore:
		line = errScoreRange
		ok, ok2 = z.min.parse(a), z.max.parse(b)
	case byName:
		line = errLexRange
		ok, ok2 = z.from.parse(a), z.to.parse(b)
	}
	if ok = ok && ok2; !ok {
		out.Error(line)
	}
	return ok
}

// parse reads a score, with a "(" before one that is excluded. As C's strtod it takes leading space and ends at a NUL;
// nothing is 0.
func (l *scoreLimit) parse(arg []byte) (ok bool) {
	arg = cString(arg, len(arg))
	if l.exclusive = len(arg) > 0 && arg[0] == '('; l.exclusive {
		arg = arg[1:]
	}
	if len(arg) > 0 {
		if l.score, _, ok = parseDouble(bytes.TrimLeft(arg, " \t\n\v\f\r")); !ok {
			return false
		}
	}
	l.score += 0
	return true
}

// parse reads "-", "+", or a name behind a "[" or, if the name is excluded, a "(".
func (l *nameLimit) parse(arg []byte) (ok bool) {
	if len(arg) == 0 {
		return false
	}
	l.name = arg[1:]
	switch arg[0] {
	case '-', '+':
		if l.end, l.exclusive = 1, true; arg[0] == '-' {
			l.end = -1
		}
		return len(arg) == 1 || arg[1] == 0
	case '(':
		l.exclusive = true
		return true
	}
	return arg[0] == '['
}

// compare is the order of the limit and a name: below 0 if the limit comes first.
func (l *nameLimit) compare(name []byte) int {
	if l.end != 0 {
		return l.end
	}
	return bytes.Compare(l.name, name)
}

// side says where a name is: below 0 before the range of names, 0 inside, above 0 behind it.
func (z *zspan) side(name []byte) int {
	if n := z.from.compare(name); n > 0 || n == 0 && z.from.exclusive {
		return -1
	}
	if n := z.to.compare(name); n < 0 || n == 0 && z.to.exclusive {
		return 1
	}
	return 0
}

// empty reports whether no name can be in the range.
func (z *zspan) empty() bool {
	n := 0
	switch {
	case z.from.end != 0 || z.to.end != 0:
		n = z.from.end - z.to.end
	default:
		n = bytes.Compare(z.from.name, z.to.name)
	}
	return n > 0 || n == 0 && (z.from.exclusive || z.to.exclusive)
}

// clip turns first and last into indexes of a sorted set of this size, and returns how many members the range has.
func (z *zspan) clip(size int64) (n int64) {
	if z.first < 0 {
		z.first += size
	}
	if z.last < 0 {
		z.last += size
	}
	z.first = max(z.first, 0)
	z.last = max(min(z.last, size-1), -1) // both are near enough that the difference cannot overflow
	return max(z.last-z.first+1, 0)
}

var errCutShort = errors.New("sorted set: a score key is cut short")

// errStop ends eachIn. It never gets to a caller of eachIn.
var errStop = errors.New("enough")

// eachIn calls f with the members of a range, in order, until f returns errStop or an error. The member is valid until
// f returns. f may change the collection.
func (c *collection) eachIn(z *zspan, f func(score float64, member []byte) error) error {
	if c.Size == 0 || z.limited && z.limit == 0 || z.limited && z.offset < 0 {
		return nil
	}
	var room [2 * scoreBytes]byte
	var lower, upper []byte
	n := int64(-1) // how many members are to come, -1 for all
	if z.limited && z.limit > 0 {
		n = z.limit
	}
	switch z.by {
	case byRank:
		if n = z.clip(int64(c.Size)); n == 0 {
			return nil
		}
	case byScore:
		lower, upper = z.min.bound(room[:0], false), z.max.bound(room[scoreBytes:scoreBytes], true)
		if bytes.Compare(lower, upper) >= 0 {
			return nil
		}
	case byName:
		if z.empty() {
			return nil
		}
	}
	e, err := c.elements(keys.ZSetScore, lower, upper)
	if err != nil {
		return err
	}
	err = c.eachFrom(&e, z, n, f)
	if err == errStop {
		err = nil
	}
	return errors.Join(err, e.Close())
}

// bound returns the limit as a bound of score keys: the lowest score in the range, or the first score above it.
func (l *scoreLimit) bound(dst []byte, upper bool) []byte {
	if dst = keys.AppendScore(dst, l.score); l.exclusive != upper {
		dst = keys.Successor(dst)
	}
	return dst
}

// bound appends the limit to the bytes before names, as a bound: the lowest name in the range, or the first name above
// it.
func (l *nameLimit) bound(front []byte, upper bool) []byte {
	switch {
	case l.end < 0:
		return front
	case l.end > 0:
		return keys.Successor(front)
	}
	front = append(front, l.name...)
	if l.exclusive != upper {
		front = append(front, 0)
	}
	return front
}

// eachFrom is eachIn with an iterator over the range, or over all members if the range is by index or by name. n is how
// many members there are to come, -1 for all.
func (c *collection) eachFrom(e *elements, z *zspan, n int64, f func(score float64, member []byte) error) (err error) {
	step, ok := e.Next, false
	if z.rev {
		step = e.Prev
	}
	uniform := true
	switch {
	case z.by == byRank:
		ok, err = c.toIndex(e, z)
	case z.by == byName:
		ok, uniform = c.toName(e, z)
	case z.rev:
		ok = e.Last()
	default:
		ok = e.First()
	}
	if ok && z.offset > 0 && err == nil {
		ok, err = c.skip(e, z)
	}
	if err != nil {
		return err
	}
	for ; ok && n != 0; ok = step() {
		score, member, err := e.scored()
		if err != nil {
			return err
		}
		if z.by == byName {
			if side := z.side(member); uniform && side != 0 || z.rev && side < 0 || !z.rev && side > 0 {
				break
			}
		}
		if err := f(score, member); err != nil {
			return err
		}
		n--
	}
	if z.by == byRank && n > 0 && e.Error() == nil {
		return c.miscounted(uint64(z.last + 1 - n))
	}
	return e.Error()
}

// toIndex moves an iterator over all members to index z.first.
func (c *collection) toIndex(e *elements, z *zspan) (ok bool, err error) {
	at, end := z.first, int64(c.Size)-1
	if z.rev {
		at = end - at
	}
	if near := min(at, end-at); near > nearSteps && c.Size >= countUntil {
		from := uint64(0)
		if z.rev {
			from = uint64(end)
		}
		if ok, counted, err := c.toPlace(e, uint64(at), from, z.rev); counted || err != nil {
			return ok, err
		}
	}
	if at <= end/2 {
		for ok = e.First(); ok && at > 0; at-- {
			ok = e.Next()
		}
		return ok, nil
	}
	for ok = e.Last(); ok && at < end; at++ {
		ok = e.Prev()
	}
	return ok, nil
}

// skip moves an iterator over a range on by z.offset members.
func (c *collection) skip(e *elements, z *zspan) (ok bool, err error) {
	step := e.Next
	if z.rev {
		step = e.Prev
	}
	ok = true
	near := z.offset
	if c.Size >= countUntil {
		near = min(near, nearSteps)
	}
	for n := near; ok && n > 0; n-- {
		ok = step()
	}
	left := uint64(z.offset - near)
	if !ok || left == 0 {
		return ok, nil
	}
	at, counted, err := c.rank(&passed{}, e.sub())
	if counted && err == nil {
		from := uint64(0) // index of the iterator's first member, with rev of its last
		switch {
		case z.rev && left > at, !z.rev && left >= c.Size-at:
			return false, nil
		case z.rev:
			if from = c.Size - 1; z.by == byScore {
				from = at + uint64(near)
			}
			at -= left
		default:
			if z.by == byScore {
				from = at - uint64(near)
			}
			at += left
		}
		ok, counted, err = c.toPlace(e, at, from, z.rev)
	}
	if counted || err != nil {
		return ok, err
	}
	for ; ok && left > 0; left-- {
		ok = step()
	}
	return ok, nil
}

// toName moves an iterator over all members to the first member of a range of names. Such ranges are meant for sorted
// sets in which all members have the same score; toName returns uniform for these. For others Redis promises nothing,
// and toName goes over all members to find the first one in the range.
func (c *collection) toName(e *elements, z *zspan) (ok, uniform bool) {
	if !e.Last() {
		return false, true
	}
	front := c.front + scoreBytes
	if len(e.Key()) < front {
		return true, true // a damaged key: the caller reports it
	}
	last := append(c.bound[:0], e.Key()...)
	c.bound = last
	if !e.First() || len(e.Key()) < front {
		return e.Valid(), true
	}
	if bytes.Equal(last[:front], e.Key()[:front]) {
		if z.rev {
			last = z.to.bound(last[:front], true)
			ok = e.SeekLT(last)
		} else {
			last = z.from.bound(last[:front], false)
			ok = e.SeekGE(last)
		}
		c.bound = last
		return ok, true
	}
	// Redis does the same for a sorted set that it keeps in one piece of memory: if the first member is behind the
	// range, or the last one before it, no member is in it.
	if z.side(last[front:]) < 0 || z.side(e.Key()[front:]) > 0 {
		return false, false
	}
	if z.rev {
		for ok = e.Last(); ok && z.side(e.Key()[front:]) > 0; ok = e.Prev() {
		}
	} else {
		for ; e.Valid() && z.side(e.Key()[front:]) < 0; e.Next() {
		}
		ok = e.Valid()
	}
	return ok && z.side(e.Key()[front:]) == 0, false
}

// parseRange reads what follows the key of ZRANGE and its older forms. It appends Redis's error where it cannot.
func (z *zspan) parseRange(args [][]byte, auto, store bool, out *Reply) (withScores, ok bool) {
	for i := 2; i < len(args); i++ {
		switch a := args[i]; {
		case !store && IsOption(a, "withscores"):
			withScores = true
		case IsOption(a, "limit") && i+2 < len(args):
			if z.offset, z.limit, ok = parseInts(args[i+1], args[i+2], out); !ok {
				return false, false
			}
			z.limited = true
			i += 2
		case auto && !z.rev && IsOption(a, "rev"):
			z.rev = true
		case z.by == anySpan && IsOption(a, "bylex"):
			z.by = byName
		case z.by == anySpan && IsOption(a, "byscore"):
			z.by = byScore
		default:
			out.Error(ErrSyntax)
			return false, false
		}
	}
	if z.by == anySpan {
		z.by = byRank
	}
	switch {
	case z.limited && z.limit != -1 && z.by == byRank:
		out.Error(errRangeLimit)
		return false, false
	case withScores && z.by == byName:
		out.Error(errRangeScores)
		return false, false
	}
	if z.by == byRank {
		z.offset, z.limited = 0, false
	}
	return withScores, z.parseLimits(args[0], args[1], out)
}

// zrange is ZRANGE, for a z that says nothing yet, and its older forms.
func (r *Reader) zrange(args [][]byte, z zspan, out *Reply) error {
	withScores, ok := z.parseRange(args[2:], z.by == anySpan, false, out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	n := 0
	found := r.aside(out)
	err := c.eachIn(&z, func(score float64, member []byte) error {
		found.member(member, score, withScores)
		n++
		if found.Full {
			return errStop
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.members(n, withScores)
	r.join(out, &found)
	return nil
}

// members opens the array of n members. With scores, RESP3 has an array for each pair, RESP2 one array of members and
// scores in turn.
func (r *Reply) members(n int, withScores bool) {
	if withScores && r.Proto != 3 {
		n *= 2
	}
	r.Array(n)
}

// member appends one of them.
func (r *Reply) member(member []byte, score float64, withScores bool) {
	if withScores && r.Proto == 3 {
		r.Array(2)
	}
	r.Bulk(member)
	if withScores {
		r.Double(score)
	}
}

func zrangestore(w *Writer, args [][]byte, out *Reply) error {
	var z zspan
	if _, ok := z.parseRange(args[3:], true, true, out); !ok {
		return nil
	}
	var c, to collection
	ok, err := w.open(&c, args[2], keys.ZSet, out)
	if err == nil {
		w.looked(args[2], !ok || c.Size > 0)
	}
	if !ok {
		return err
	}
	if err := w.renew(&to, args[1], keys.ZSet); err != nil {
		return err
	}
	// Redis begins with a skiplist if it knows beforehand that there will be too many members for a listpack.
	if whole := z; z.by == byRank && whole.clip(int64(c.Size)) > maxPackedMembers {
		to.Skiplist = true
	}
	if err := w.mayGoThrough(&c, &z); err != nil {
		return err
	}
	err = c.eachIn(&z, func(score float64, member []byte) error {
		if err := w.spend(cost(len(member))); err != nil {
			return err
		}
		return w.storeMember(&to, member, score)
	})
	if err != nil {
		return err
	}
	out.Int(int64(to.Size))
	return w.close(&to)
}

// mayGoThrough counts what a range by name costs besides its members: if the scores differ, all members are gone
// through.
func (w *Writer) mayGoThrough(c *collection, z *zspan) error {
	if z.by != byName || c.Size <= uint64(writeLimit) {
		return nil
	}
	score, err := c.onlyScore()
	if err == nil && score == nil {
		err = w.spend(int(c.Size))
	}
	return err
}

// mayRemove refuses to remove a range if that would write a sorted set anew that has too many members for that.
func (w *Writer) mayRemove(c *collection, z *zspan) error {
	if c.Size <= uint64(writeLimit) {
		return nil
	}
	if err := w.mayGoThrough(c, z); err != nil {
		return err
	}
	bytes, span := 0, *z
	return c.eachIn(&span, func(_ float64, member []byte) error {
		if bytes += c.touchMember(member); bytes >= touchedBytes {
			return errWriteLimit
		}
		return nil
	})
}

func (w *Writer) zremrange(args [][]byte, z zspan, out *Reply) error {
	if !z.parseLimits(args[2], args[3], out) {
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	if err := w.mayRemove(&c, &z); err != nil {
		return err
	}
	n := int64(0)
	var gone removal
	err := c.eachIn(&z, func(score float64, member []byte) error {
		n++
		return gone.remove(w, &c, score, member)
	})
	if err != nil {
		return err
	}
	out.Int(n)
	return gone.close(w, &c)
}

func (r *Reader) zcount(args [][]byte, z zspan, out *Reply) error {
	if !z.parseLimits(args[2], args[3], out) {
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	n, err := c.countSpan(&z)
	out.Int(int64(n))
	return err
}

// countSpan returns how many members a range by score or by name has.
func (c *collection) countSpan(z *zspan) (n uint64, err error) {
	var lower, upper []byte
	switch {
	case c.Size == 0 || z.by == byName && z.empty():
		return 0, nil
	case z.by == byScore:
		lower, upper = z.min.bound(nil, false), z.max.bound(nil, true)
	default:
		if lower, err = c.onlyScore(); err != nil {
			return 0, err
		}
		if lower == nil { // several scores: the members are not in the order of their names
			err := c.eachIn(z, func(float64, []byte) error {
				n++
				return nil
			})
			return n, err
		}
		upper = z.to.bound(bytes.Clone(lower), true)
		lower = z.from.bound(lower, false)
	}
	if bytes.Compare(lower, upper) >= 0 {
		return 0, nil
	}
	return c.membersBetween(lower, upper)
}

// onlyScore returns the score that all members have, nil if there are several scores.
func (c *collection) onlyScore() (score []byte, err error) {
	e, err := c.elements(keys.ZSetScore, nil, nil)
	if err != nil {
		return nil, err
	}
	if e.First() && len(e.sub()) >= scoreBytes {
		score = bytes.Clone(e.sub()[:scoreBytes])
		if e.Last() && !bytes.HasPrefix(e.sub(), score) {
			score = nil
		}
	}
	return score, errors.Join(e.Error(), e.Close())
}

// zrank replies how many members come before a member or, with rev, after it.
func (r *Reader) zrank(args [][]byte, rev bool, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	score, there, err := c.score(args[2])
	switch {
	case err != nil:
		return err
	case !there:
		out.Null()
		return nil
	}
	n, err := c.membersBetween(nil, keys.AppendPlace(nil, score, args[2]))
	if rev {
		n = c.Size - 1 - n
	}
	out.Int(int64(n))
	return err
}
