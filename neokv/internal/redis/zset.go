package redis

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"

	"neokv.dev/neokv/internal/keys"
)

// This file has sorted sets, except their ranges (zrange.go) and combinations (zcombine.go). A member is an element of
// the collection, and its score is the value. Each member also has a score key in redis_zset_score, which the record
// does not count:
//
//	data              [...][version u64] [member]           ->  [score 8]
//	redis_zset_score  [...][version u64] [score 8] [member] ->  [sign]
//
// A large sorted set has counts beside its score index: zset_counts.go.
//
// A stored score is never NaN. It may be -0, which Redis takes as equal to 0: such members come in the order of their
// names. So the score in a score key is 0 then, and the value has the sign. Redis loses the sign in a listpack, but not
// in a skiplist, which it makes of a listpack that becomes too large and never turns back. So the record says whether
// the sorted set is a skiplist; in others -0 is stored as 0.

var zsetCommands = []*Command{
	{
		Name: "zadd", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: with((*Writer).zadd, zaddOptions{}), Reads: Reads{Elements: zaddMembers, Values: true},
		Doc: Doc{"Gives members of a sorted set the scores that stand before them; options say under which condition.",
			"1.2.0", zsets, "O(log(N)) for each member, N being the size of the sorted set."},
	},
	{
		Name: "zincrby", Arity: 4, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Keys: oneKey("", "RW", "access", "update"), Write: with((*Writer).zadd, zaddOptions{incr: true}),
		Reads: Reads{Elements: zaddMembers, Values: true},
		Doc: Doc{"Adds a number to the score of a member of a sorted set; that of an absent member counts as 0.",
			"1.2.0", zsets, "O(log(N)) where N is the size of the sorted set."},
	},
	{
		Name: "zrem", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "delete"), Write: zrem,
		Reads: Reads{Elements: named(2, 1), Values: true},
		Doc: Doc{"Removes members of a sorted set, and returns how many there were.", "1.2.0", zsets,
			"O(M*log(N)) where N is the size of the sorted set and M the number of members to be removed."},
	},
	{
		Name: "zscore", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).element, look{keys.ZSet, contents}),
		Doc:  Doc{"Returns the score of a member of a sorted set, null if there is none.", "1.2.0", zsets, "O(1)"},
	},
	{
		Name: "zmscore", Arity: -3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).eachElement, look{keys.ZSet, contents}),
		Doc: Doc{"Returns the scores of members of a sorted set, null for each that is absent.", "6.2.0", zsets,
			"O(N) where N is the number of members that are asked for."},
	},
	{
		Name: "zcard", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).size, keys.ZSet),
		Doc:  Doc{"Counts the members of a sorted set.", "1.2.0", zsets, "O(1)"},
	},
	{
		Name: "zcount", Arity: 4, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zcount, zspan{by: byScore}),
		Doc: Doc{"Counts the members of a sorted set whose scores lie in a range.", "2.0.0", zsets,
			"O(log(N)+M) where N is the size of the sorted set and M the number of members counted, up to some " +
				"hundreds: beyond they are counted by blocks."},
	},
	{
		Name: "zlexcount", Arity: 4, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zcount, zspan{by: byName}),
		Doc: Doc{"Counts the members of a sorted set, all of one score, that lie in a range of names.", "2.8.9", zsets,
			"O(log(N)+M) where N is the size of the sorted set and M the number of members counted, up to some " +
				"hundreds: beyond they are counted by blocks."},
	},
	{
		Name: "zrank", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrank, false),
		Doc: Doc{"Returns how many members of a sorted set come before one, null if that is absent.", "2.0.0", zsets,
			"O(log(N)+M) where N is the size of the sorted set and M the number of members before, up to some " +
				"hundreds: beyond they are counted by blocks."},
	},
	{
		Name: "zrevrank", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrank, true),
		Doc: Doc{"Returns how many members of a sorted set come behind one, null if that is absent.", "2.0.0", zsets,
			"O(log(N)+M) where N is the size of the sorted set and M the number of members before, up to some " +
				"hundreds: beyond they are counted by blocks."},
	},
	{
		Name: "zrange", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{}),
		Doc: Doc{"Returns members of a sorted set in order: from one index to another, or those whose scores or " +
			"names lie in a range.", "1.2.0", zsets, rangeCost},
	},
	{
		Name: "zrevrange", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{by: byRank, rev: true}),
		Doc: Doc{"Returns members of a sorted set from one index to another, from the highest score down.",
			"1.2.0", zsets, rangeCost},
	},
	{
		Name: "zrangebyscore", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{by: byScore}),
		Doc:  Doc{"Returns the members of a sorted set whose scores lie in a range.", "1.0.5", zsets, rangeCost},
	},
	{
		Name: "zrevrangebyscore", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{by: byScore, rev: true}),
		Doc: Doc{"Returns the members of a sorted set whose scores lie in a range, from the highest score down.",
			"2.2.0", zsets, rangeCost},
	},
	{
		Name: "zrangebylex", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{by: byName}),
		Doc: Doc{"Returns the members of a sorted set, all of one score, that lie in a range of names.", "2.8.9",
			zsets, rangeCost},
	},
	{
		Name: "zrevrangebylex", Arity: -4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).zrange, zspan{by: byName, rev: true}),
		Doc: Doc{"Returns the members of a sorted set, all of one score, that lie in a range of names, " +
			"from the last name down.", "2.8.9", zsets, rangeCost},
	},
	{
		Name: "zrangestore", Arity: -5, Flags: FlagWrite | FlagDenyOOM,
		Keys: fromTo([]string{"OW", "update"}, []string{"RO", "access"}), Write: zrangestore,
		Doc: Doc{"Makes a key hold what ZRANGE returns of another one, with the scores.", "6.2.0", zsets, rangeCost},
	},
	{
		Name: "zremrangebyrank", Arity: 4, Flags: FlagWrite, Keys: oneKey("", "RW", "delete"),
		Write: with((*Writer).zremrange, zspan{by: byRank}),
		Doc:   Doc{"Removes the members of a sorted set from one index to another.", "2.0.0", zsets, rangeCost},
	},
	{
		Name: "zremrangebyscore", Arity: 4, Flags: FlagWrite, Keys: oneKey("", "RW", "delete"),
		Write: with((*Writer).zremrange, zspan{by: byScore}),
		Doc:   Doc{"Removes the members of a sorted set whose scores lie in a range.", "1.2.0", zsets, rangeCost},
	},
	{
		Name: "zremrangebylex", Arity: 4, Flags: FlagWrite, Keys: oneKey("", "RW", "delete"),
		Write: with((*Writer).zremrange, zspan{by: byName}),
		Doc: Doc{"Removes the members of a sorted set, all of one score, that lie in a range of names.", "2.8.9", zsets,
			rangeCost},
	},
	{
		Name: "zpopmin", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"),
		Write: with((*Writer).zpop, false),
		Doc: Doc{"Removes and returns the members of a sorted set with the lowest scores.", "5.0.0", zsets,
			"O(log(N)*M) where N is the size of the sorted set and M the number of members removed."},
	},
	{
		Name: "zpopmax", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"),
		Write: with((*Writer).zpop, true),
		Doc: Doc{"Removes and returns the members of a sorted set with the highest scores.", "5.0.0", zsets,
			"O(log(N)*M) where N is the size of the sorted set and M the number of members removed."},
	},
	{
		Name: "zmpop", Arity: -4, Flags: FlagWrite | FlagMovableKeys, Keys: countedKeys(1, "RW", "access", "delete"),
		Write: zmpop,
		Doc: Doc{"Removes and returns members with the lowest or highest scores of the first of some sorted sets " +
			"that is there.", "7.0.0", zsets,
			"O(K)+O(M*log(N)) where K is the number of keys, N the size of the sorted set and M the number of " +
				"members removed."},
	},
	{
		Name: "zrandmember", Arity: -2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: zrandmember,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns one or several random members of a sorted set.", "6.2.0", zsets,
			"O(N) where N is the number of members returned; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "zscan", Arity: -3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: zscan,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Lists the members of a sorted set with their scores part by part, from a cursor.", "2.8.0", zsets,
			"O(1) for every call, O(N) for all calls of one listing, N being the size of the sorted set; up to " +
				"128 members are one part."},
	},
	{
		Name: "zunion", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: countedKeys(1, "RO", "access"),
		Read: with((*Reader).combineScored, combine{how: (*inputs).union}),
		Doc:  Doc{"Returns the members of all of some sorted sets and sets.", "6.2.0", zsets, unionCost},
	},
	{
		Name: "zinter", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: countedKeys(1, "RO", "access"),
		Read: with((*Reader).combineScored, combine{how: (*inputs).inter}),
		Doc:  Doc{"Returns the members that each of some sorted sets and sets has.", "6.2.0", zsets, interCost},
	},
	{
		Name: "zdiff", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: countedKeys(1, "RO", "access"),
		Read: with((*Reader).combineScored, combine{how: (*inputs).diff, unweighted: true}),
		Doc: Doc{"Returns the members of the first of some sorted sets and sets that no other one has.", "6.2.0", zsets,
			diffCost},
	},
	{
		Name: "zunionstore", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, Keys: storedKeys,
		Write: with((*Writer).combineScored, combine{how: (*inputs).union}),
		Doc:   Doc{"Makes a key hold what ZUNION returns.", "2.0.0", zsets, unionCost},
	},
	{
		Name: "zinterstore", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, Keys: storedKeys,
		Write: with((*Writer).combineScored, combine{how: (*inputs).inter}),
		Doc:   Doc{"Makes a key hold what ZINTER returns.", "2.0.0", zsets, interCost},
	},
	{
		Name: "zdiffstore", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, Keys: storedKeys,
		Write: with((*Writer).combineScored, combine{how: (*inputs).diff, unweighted: true}),
		Doc:   Doc{"Makes a key hold what ZDIFF returns.", "6.2.0", zsets, diffCost},
	},
	{
		Name: "zintercard", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: countedKeys(1, "RO", "access"),
		Read: with((*Reader).combineScored, combine{how: (*inputs).inter, unweighted: true, count: true}),
		Doc: Doc{"Counts the members that each of some sorted sets and sets has, up to a limit.", "7.0.0", zsets,
			"O(N*K) where N is the size of the smallest and K the number of them."},
	},
}

const (
	zsets     = "sorted-set"
	rangeCost = "O(log(N)+M) where N is the size of the sorted set and M the number of members in the range; " +
		"what is before it is counted by blocks."
	unionCost = "O(N)+O(M*log(M)) where N is the sum of the sizes and M the size of the result."
	interCost = "O(N*K)+O(M*log(M)) where N is the size of the smallest, K the number of them and M the size of the " +
		"result."
	diffCost = "O(N*K)+O(M*log(M)) where N is the size of the first, K the number of them and M the size of the " +
		"result."
)

// countedKeys is the key specification of a command with a number of keys at an index and the keys behind it.
func countedKeys(at int, flags ...string) []KeySpec {
	return []KeySpec{{First: at, Step: 1, Flags: flags, Counted: true}}
}

// storedKeys is the key specification of a command with a destination, a number of keys, and the keys.
var storedKeys = append(oneKey("", "OW", "update"), countedKeys(2, "RO", "access")...)

const scoreBytes = 8

// parseDouble reads a number as C's strtod does, but the whole of b, without NUL and leading space, and no NaN. A
// number that is too large for a double is infinite, and one that is too small is 0. Neither is exact.
func parseDouble(b []byte) (f float64, exact, ok bool) {
	if len(b) == 0 || bytes.IndexByte(b, '_') >= 0 {
		return 0, false, false
	}
	if n, ok := ParseInt(b); ok && -1<<53 < n && n < 1<<53 {
		return float64(n), true, true
	}
	text := string(b)
	digits := b
	if digits[0] == '-' || digits[0] == '+' {
		digits = digits[1:]
	}
	hex := len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x'
	if hex && !bytes.ContainsAny(digits, "pP") {
		text += "p0"
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false, false
	}
	exact = err == nil
	if f == 0 { // 0 is exact only if all digits are zeros
		if hex {
			digits = digits[2:]
		}
		for _, c := range digits {
			if c|0x20 == 'p' || !hex && c|0x20 == 'e' {
				break
			}
			exact = exact && (c == '0' || c == '.')
		}
	}
	return f, exact, true
}

// parseScore reads a score, an increment or a weight.
func parseScore(b []byte) (score float64, ok bool) {
	score, exact, ok := parseDouble(b)
	return score, ok && exact
}

// score reads the score of a member.
func (c *collection) score(member []byte) (score float64, there bool, err error) {
	value, there, err := c.get(member)
	if there {
		score, err = c.scoreOf(value)
	}
	return score, there, err
}

// scoreOf returns the score in a member's value. A member of a set has the score 1.
func (c *collection) scoreOf(value []byte) (float64, error) {
	switch {
	case c.Type == keys.Set:
		return 1, nil
	case len(value) != scoreBytes: // of another type, or damaged
		return 0, fmt.Errorf("%v %q: a score of %d bytes, want %d", c.Type, c.user, len(value), scoreBytes)
	}
	return keys.Score(value), nil
}

// scored returns score and member of the score key that the iterator stands on. The member is valid until the iterator
// moves.
func (e elements) scored() (score float64, member []byte, err error) {
	sub := e.sub()
	if len(sub) < scoreBytes {
		return 0, nil, errCutShort
	}
	if score = keys.Score(sub); score == 0 {
		var sign []byte
		if sign, err = e.ValueAndErr(); len(sign) > 0 {
			score = math.Copysign(0, -1)
		}
	}
	return score, sub[scoreBytes:], err
}

// scoreKey returns the storage key of a member in redis_zset_score. It is valid until the next call on c.
func (c *collection) scoreKey(score float64, member []byte) []byte {
	c.key = keys.AppendPlace(c.key[:c.front], score, member)
	c.key[0] = byte(keys.ZSetScore)
	return c.key
}

// outgrow makes a skiplist of a sorted set that has too many members for a listpack, or gets one that is too long.
func (c *collection) outgrow(member []byte) {
	if c.Size > maxPackedMembers || len(member) > maxPackedBytes {
		c.Skiplist = true
	}
}

// keptScore returns a score as the sorted set keeps it.
func (c *collection) keptScore(score float64) float64 {
	if c.Skiplist {
		return score
	}
	return score + 0 // -0 becomes 0
}

// insertMember stores a member that certainly does not exist.
func (w *Writer) insertMember(c *collection, member []byte, score float64) error {
	w.grow(c, 1)
	c.outgrow(member)
	if err := w.countPart(c, member, +1); err != nil {
		return err
	}
	return w.setMember(c, member, score)
}

// setMember stores a member and its score. It has no score key yet.
func (w *Writer) setMember(c *collection, member []byte, score float64) error {
	score = c.keptScore(score)
	w.value = keys.AppendScore(w.value[:0], score)
	if err := w.set(c, member, w.value); err != nil {
		return err
	}
	key, sign := c.scoreKey(score, member), keys.ScoreSign(score)
	w.pops.inserted(c, key[c.front:], sign != nil)
	if err := w.Batch.Set(key, sign); err != nil {
		return err
	}
	return w.countIn(c, score, member)
}

// storeMember is like insertMember, for a collection that renew has begun.
func (w *Writer) storeMember(c *collection, member []byte, score float64) error {
	w.grow(c, 1)
	c.outgrow(member)
	score = c.keptScore(score)
	w.value = keys.AppendScore(w.value[:0], score)
	if err := w.Batch.SetAhead(c.at(member), w.value); err != nil {
		return err
	}
	return w.Batch.SetAhead(c.scoreKey(score, member), keys.ScoreSign(score))
}

// eraseMember deletes a member that certainly exists and has this score.
func (w *Writer) eraseMember(c *collection, member []byte, score float64) error {
	if err := w.erase(c, member); err != nil {
		return err
	}
	if err := w.countPart(c, member, -1); err != nil {
		return err
	}
	return w.deleteScore(c, member, score)
}

// deleteScore deletes the score key of a member.
func (w *Writer) deleteScore(c *collection, member []byte, score float64) error {
	key := c.scoreKey(score, member)
	w.pops.removed(c, key[c.front:])
	if err := w.Batch.Delete(key); err != nil {
		return err
	}
	return w.countOut(c, score, member)
}

// zaddOptions say which members ZADD changes, and how.
type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// parse reads options from args[2] on. It returns the index of the first argument behind them.
func (o *zaddOptions) parse(args [][]byte) (n int) {
	for n = 2; n < len(args); n++ {
		switch a := args[n]; {
		case IsOption(a, "nx"):
			o.nx = true
		case IsOption(a, "xx"):
			o.xx = true
		case IsOption(a, "gt"):
			o.gt = true
		case IsOption(a, "lt"):
			o.lt = true
		case IsOption(a, "ch"):
			o.ch = true
		case IsOption(a, "incr"):
			o.incr = true
		default:
			return n
		}
	}
	return n
}

// zaddMembers is the Reads.Elements of ZADD.
func zaddMembers(args [][]byte) (from, step int) { return new(zaddOptions).parse(args) + 1, 2 }

// zadd runs ZADD and ZINCRBY. In Redis, ZINCRBY happens to take the same options.
func (w *Writer) zadd(args [][]byte, o zaddOptions, out *Reply) error {
	pairs := args[o.parse(args):]
	switch {
	case len(pairs) == 0 || len(pairs)%2 != 0:
		out.Error(ErrSyntax)
		return nil
	case o.nx && o.xx:
		out.Error(errZAddNXXX)
		return nil
	case o.gt && o.nx, o.lt && o.nx, o.gt && o.lt:
		out.Error(errZAddGTLT)
		return nil
	case o.incr && len(pairs) > 2:
		out.Error(errZAddIncr)
		return nil
	}
	var room [16]float64
	scores := room[:0]
	for i := 0; i < len(pairs); i += 2 {
		score, ok := parseScore(pairs[i])
		if !ok {
			out.Error(ErrNotFloat)
			return nil
		}
		scores = append(scores, score)
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	added, updated, score, done := int64(0), int64(0), float64(0), false
	for i := range scores {
		member := pairs[2*i+1]
		present, there, err := c.score(member)
		if err != nil {
			return err
		}
		score = scores[i]
		if there && o.incr {
			score += present
		}
		switch {
		case there && o.nx, !there && o.xx:
			continue
		case math.IsNaN(score):
			out.Error(errNaNScore)
			return nil
		case there && (o.lt && score >= present || o.gt && score <= present):
			continue
		case !there:
			added++
			err = w.insertMember(&c, member, score)
		case score != present:
			updated++
			if err = w.deleteScore(&c, member, present); err == nil {
				err = w.setMember(&c, member, score)
			}
		}
		if err != nil {
			return err
		}
		done = true
	}
	if o.incr {
		w.event = EventZIncr
	}
	switch {
	case o.incr && done:
		out.Double(score)
	case o.incr:
		out.Null()
	case o.ch:
		out.Int(added + updated)
	default:
		out.Int(added)
	}
	return w.close(&c)
}

func zrem(w *Writer, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	n := int64(0)
	for _, member := range args[2:] {
		score, there, err := c.score(member)
		if err == nil && there {
			n++
			err = w.eraseMember(&c, member, score)
		}
		if err != nil {
			return err
		}
	}
	out.Int(n)
	return w.close(&c)
}

// zpop runs ZPOPMIN, or ZPOPMAX if max is set.
func (w *Writer) zpop(args [][]byte, max bool, out *Reply) error {
	if len(args) > 3 {
		out.Error(ErrSyntax)
		return nil
	}
	n, ok := parsePopCount(args, out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.ZSet, out); !ok {
		return err
	}
	n = min(n, int64(c.Size))
	nested := len(args) == 3 && out.Proto == 3
	if nested {
		out.Array(int(n))
	} else {
		out.Array(int(2 * n))
	}
	return w.popScored(&c, n, max, nested, out)
}

// popScored replies and removes n members, not more than there are, and closes the sorted set. nested says that each
// member and its score are an array.
func (w *Writer) popScored(c *collection, n int64, max, nested bool, out *Reply) error {
	if n == 0 {
		return nil
	}
	at := below
	if max {
		at = above
	}
	if err := w.spend(int(n)); err != nil {
		return err
	}
	if err := w.mayRemove(c, &zspan{by: byRank, rev: max, last: n - 1}); err != nil {
		return err
	}
	var gone removal
	take := func(score float64, member []byte) error {
		if nested {
			out.Array(2)
		}
		out.Bulk(member)
		out.Double(score)
		return gone.remove(w, c, score, member)
	}
	for ; n > 0 && !gone.full(); n-- {
		sub, err := w.pops.end(c, at, n)
		if err != nil {
			return err
		}
		taken := append(w.pops.taken[:0], sub...)
		w.pops.taken = kept(taken, maxScratchBytes)
		score, member := keys.Score(taken), taken[scoreBytes:]
		if score == 0 && w.pops.signs(c) {
			if score, _, err = c.score(member); err != nil {
				return err
			}
		}
		if err := take(score, member); err != nil {
			return err
		}
	}
	w.pops.tidy(c)
	if n > 0 {
		if err := c.eachIn(&zspan{by: byRank, rev: max, last: n - 1}, take); err != nil {
			return err
		}
	}
	return gone.close(w, c)
}

// removal removes consecutive members of a sorted set. It deletes them one by one up to touchedBytes. If there are
// more, it makes a new version of the sorted set without all of them.
type removal struct {
	bytes int
	// low and high are the places of the first and the last member that the new version leaves out.
	low, high []byte
}

// touchMember returns how much of touchedBytes a member of a sorted set takes, with its score key.
func (c *collection) touchMember(member []byte) int { return 2*c.touch(member, nil) + scoreBytes }

// full reports whether there are too many members to delete one by one.
func (x *removal) full() bool { return x.bytes >= touchedBytes }

// remove removes a member, which may still be there until close.
func (x *removal) remove(w *Writer, c *collection, score float64, member []byte) error {
	if !x.full() {
		x.bytes += c.touchMember(member)
		return w.eraseMember(c, member, score)
	}
	place := w.placeOf(score, member)
	switch {
	case x.low == nil:
		x.low, x.high = bytes.Clone(place), bytes.Clone(place)
	case bytes.Compare(place, x.low) < 0:
		x.low = append(x.low[:0], place...)
	default:
		x.high = append(x.high[:0], place...)
	}
	return nil
}

// close closes the sorted set.
func (x *removal) close(w *Writer, c *collection) error {
	if x.low == nil {
		return w.close(c)
	}
	if c.Size < countUntil { // the orphan record of this size tells the reclaimer that there are no counts
		if err := w.closeCounts(c); err != nil {
			return err
		}
	}
	var to collection
	c.old.Size = c.Size // the old version still has as many members
	w.renewOver(&to, c.user, keys.ZSet, &c.old)
	to.ExpireMS, to.Skiplist = c.ExpireMS, c.Skiplist
	for _, span := range [2]struct{ from, to []byte }{{nil, x.low}, {append(x.high, 0), nil}} {
		e, err := c.elements(keys.ZSetScore, span.from, span.to)
		if err != nil {
			return err
		}
		for ok := e.First(); ok && err == nil; ok = e.Next() {
			score, member, scoreErr := e.scored()
			if err = scoreErr; err == nil {
				err = w.storeMember(&to, member, score)
			}
		}
		if err := errors.Join(err, e.Error(), e.Close()); err != nil {
			return err
		}
	}
	return w.close(&to)
}

func zmpop(w *Writer, args [][]byte, out *Reply) error {
	return w.popFirst(args, keys.ZSet, "min", "max", out, func(c *collection, lowest bool, n uint64) error {
		if w.event = EventZPopMax; lowest {
			w.event = EventZPopMin
		}
		return w.popScored(c, int64(n), !lowest, true, out)
	})
}

func zrandmember(r *Reader, args [][]byte, out *Reply) error {
	score := func(out *Reply, value []byte) { out.Double(keys.Score(value)) }
	return r.randomElements(args, keys.ZSet, "withscores", score, out)
}

func zscan(r *Reader, args [][]byte, out *Reply) error {
	return r.scan(args, keys.ZSet, 2, out, func(c *collection, out *Reply, sub, value []byte) {
		out.Bulk(sub)
		var room [40]byte
		f, skiplist := keys.Score(value), c.Skiplist || c.Size > maxPackedMembers
		if !skiplist && f == math.Trunc(f) && math.Abs(f) <= 1<<62 { // a listpack has the digits of an integer
			out.Bulk(appendInt(room[:0], int64(f)))
		} else {
			out.Bulk(appendDouble(room[:0], f))
		}
	})
}
