package redis

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"neokv.dev/neokv/internal/keys"
)

// This file has the counts of large sorted sets. With them a command finds a place in the order without stepping over
// all members before it. The score keys of a sorted set are cut into blocks, and the blocks are joined into groups. A
// hash of version and member decides whether a member begins a block or a group. So the counts depend only on the
// members, not on the order in which they came, and nothing needs balancing.
//
//	redis_zset_rank  [...][version u64][1]                   ->  counts of the blocks of the first group
//	                 [...][version u64][1] [score 8][member] ->  ... of the group that begins with this member
//	                 [...][version u64][2] [score 8][member] ->  a block that begins with this member; no group does
//	                 [...][version u64][3]                   ->  counts of the members by the upper bits of their hashes
//
// A place in the order is a score and a member, as in a score key. It need not be the place of a member. A sorted set
// gets its counts from the command that leaves it with more than countFrom members, and loses them to the command that
// leaves it with fewer than countUntil.
const (
	countFrom  = 1024
	countUntil = 512

	// One of blockMembers members begins a block, and one of groupBlocks blocks a group.
	blockMembers = 256
	groupBlocks  = 64

	// nearSteps is how many steps over members a command makes before it uses counts.
	nearSteps = 32
	// maxGroups is how many groups a Writer keeps from one batch to the next.
	maxGroups = 128
	// maxCounted is about how many bytes of counts a Writer keeps from one call to the next.
	maxCounted = 8 << 20
	// maxCountedSets is how many sorted sets a Writer keeps counts of, from one call to the next.
	maxCountedSets = 1 << 14
)

// begins reports whether a member begins a block, and whether it begins a group. The hash is FNV-1a over version and
// member, with its bits mixed at the end.
func begins(version uint64, member []byte) (block, group bool) {
	const prime = 1099511628211
	h := uint64(14695981039346656037) ^ version
	h *= prime
	for _, b := range member {
		h = (h ^ uint64(b)) * prime
	}
	h = (h ^ h>>32) * 0x9fb21c651e98df25
	h ^= h >> 32
	return h%blockMembers == 0, h%(blockMembers*groupBlocks) == 0
}

// counts has the counts of sorted sets that a Writer knows, and those that it has not written to its batch yet. The
// former change nothing but the speed: the batch or the engine has them, too. All changes to a region come through its
// Writer, except a region snapshot and a change of the region's bounds. So when an entry is missing in the sequence
// that the Writer sees, it forgets all counts, and so it does when it is told to (Writer.Forget).
type counts struct {
	index  uint64 // apply index of the entry run last
	sets   map[setVersion]*counted
	groups int           // how many are known, of all sets
	bytes  int           // about how much memory they take
	unsaid []*scoreGroup // those with counts that the batch does not have yet
	parted []*counted    // likewise, those with parts
	values []uint64      // scratch
}

// setVersion names one version of one key. Two keys may have the same version: see popcache.go.
type setVersion struct {
	version uint64
	user    string
}

// counted is one version of one key.
type counted struct {
	front  []byte        // of its keys in redis_zset_rank; nil if it is not counted
	groups []*scoreGroup // in order, those that are known
	parts  []uint64      // members by their hashes
	unsaid bool          // of parts
	gone   bool
}

// scoreGroup is a range of the score index. Where one group ends, the next one begins.
type scoreGroup struct {
	set    *counted
	blocks []block // the first begins where the group does
	end    []byte  // nil for the last group
	unsaid bool
	gone   bool
}

type block struct {
	first []byte // place of the first member, nil before all members
	n     uint64 // members
}

// follow is called with the apply index of each command. If some groups are not in the batch yet, a skipped entry
// belongs to the same batch, so follow forgets nothing.
func (x *counts) follow(index uint64) {
	if index != x.index && index != x.index+1 && len(x.unsaid) == 0 {
		x.forgetAll()
	}
	x.index = index
}

func (x *counts) forgetAll() {
	clear(x.sets)
	x.groups, x.bytes, x.unsaid, x.parted = 0, 0, x.unsaid[:0], x.parted[:0]
}

// forget drops what is known of a version that is gone, or will be counted anew.
func (x *counts) forget(version uint64, user []byte) {
	if s := x.sets[setVersion{version, string(user)}]; s != nil {
		for _, g := range s.groups {
			g.gone = true
		}
		s.gone = true
		x.groups -= len(s.groups)
		delete(x.sets, setVersion{version, string(user)})
	}
}

// change notes that a group's counts differ from those in the batch.
func (x *counts) change(g *scoreGroup) {
	if !g.unsaid {
		g.unsaid = true
		x.unsaid = append(x.unsaid, g)
	}
}

// add adds a group to the known ones of its set, at index i.
func (x *counts) add(s *counted, i int, g *scoreGroup) {
	s.groups = slices.Insert(s.groups, i, g)
	x.groups++
	for _, b := range g.blocks {
		x.bytes += int(unsafe.Sizeof(b)) + len(b.first)
	}
}

// settleCounts writes to the batch the counts that were kept back.
func (w *Writer) settleCounts() error {
	x := &w.counts
	for i, g := range x.unsaid {
		g.unsaid, x.unsaid[i] = false, nil
		if g.gone {
			continue
		}
		x.values = x.values[:0]
		for _, b := range g.blocks {
			x.values = append(x.values, b.n)
		}
		w.key = countKey(append(w.key[:0], g.set.front...), keys.RankGroup, g.blocks[0].first)
		w.value = keys.AppendRankCounts(w.value[:0], x.values)
		if err := w.Batch.Set(w.key, w.value); err != nil {
			return err
		}
	}
	for i, s := range x.parted {
		s.unsaid, x.parted[i] = false, nil
		if s.gone {
			continue
		}
		w.key = countKey(append(w.key[:0], s.front...), keys.RankParts, nil)
		w.value = keys.AppendRankCounts(w.value[:0], s.parts)
		if err := w.Batch.Set(w.key, w.value); err != nil {
			return err
		}
	}
	x.unsaid, x.parted = x.unsaid[:0], x.parted[:0]
	if x.groups > maxGroups || len(x.sets) > maxGroups || x.bytes > maxCounted {
		x.forgetAll()
	}
	return nil
}

// boundCounts calls settleCounts if the counts in memory exceed what the Writer keeps for the next call.
func (w *Writer) boundCounts() error {
	if w.counts.bytes <= maxCounted && len(w.counts.sets) <= maxCountedSets {
		return nil
	}
	return w.settleCounts()
}

func countKey(front []byte, kind keys.RankKind, place []byte) []byte {
	return append(append(front, byte(kind)), place...)
}

// countsOf returns what is known of a sorted set's counts, nil if it has no counts.
func (w *Writer) countsOf(c *collection) (*counted, error) {
	if !c.old.live || c.renewed || c.old.Size < countUntil {
		return nil, nil
	}
	x := &w.counts
	s := x.sets[setVersion{c.Version, string(c.user)}]
	if s == nil {
		stored := *c
		stored.from = w.Batch // an unknown set has no counts that were kept back
		parts, err := stored.parts(nil)
		if err != nil {
			return nil, err
		}
		if s = (&counted{parts: parts}); parts != nil {
			s.front = bytes.Clone(c.key[:c.front])
			s.front[0] = byte(keys.ZSetRank)
		}
		x.know(c, s)
	}
	if s.front == nil {
		return nil, nil
	}
	return s, nil
}

func (x *counts) know(c *collection, s *counted) {
	if x.sets == nil {
		x.sets = make(map[setVersion]*counted)
	}
	x.sets[setVersion{c.Version, string(c.user)}] = s
	x.bytes += len(c.user) + 8*len(s.parts)
}

// countPart counts a member that is new, by 1, or that goes, by -1, among those with hashes like its own.
func (w *Writer) countPart(c *collection, member []byte, by int) error {
	s, err := w.countsOf(c)
	if s == nil || err != nil {
		return err
	}
	n := &s.parts[keys.ElementHash(member)/keys.PartHashes]
	if *n += uint64(by); *n > c.old.Size+c.Size {
		return c.miscounts(member)
	}
	if !s.unsaid {
		s.unsaid = true
		w.counts.parted = append(w.counts.parted, s)
	}
	return nil
}

// parts appends how many members the parts of a sorted set have, by their hashes. It returns nil if that has no counts.
func (c *collection) parts(dst []uint64) ([]uint64, error) {
	c.bound = append(append(c.bound[:0], c.key[:c.front]...), byte(keys.RankParts))
	c.bound[0] = byte(keys.ZSetRank)
	value, there, err := c.from.Get(c.bound)
	if err != nil || !there {
		return nil, err
	}
	if dst, err = keys.ParseRankCounts(dst, value); err == nil && len(dst) != keys.HashParts {
		err = c.miscounts(nil)
	}
	return dst, err
}

// countIn counts a member whose score key has been written.
func (w *Writer) countIn(c *collection, score float64, member []byte) error {
	s, err := w.countsOf(c)
	if s == nil || err != nil {
		return err
	}
	place := w.placeOf(score, member)
	g, err := w.groupBelow(c, s, w.place)
	if err != nil {
		return err
	}
	i := g.find(place)
	g.blocks[i].n++
	w.counts.change(g)
	ofBlock, ofGroup := begins(c.Version, member)
	if !ofBlock {
		return nil
	}
	place = bytes.Clone(place)
	end := g.end
	if i+1 < len(g.blocks) {
		end = g.blocks[i+1].first
	}
	n, err := c.count(place, end, -1)
	if err != nil {
		return err
	}
	if n > g.blocks[i].n {
		return c.miscounts(place)
	}
	g.blocks[i].n -= n
	g.blocks = slices.Insert(g.blocks, i+1, block{place, n})
	if !ofGroup {
		w.key = countKey(append(w.key[:0], s.front...), keys.RankBlock, place)
		w.value = keys.AppendRankBlock(w.value[:0])
		return w.Batch.Set(w.key, w.value)
	}
	behind := &scoreGroup{set: s, blocks: slices.Clone(g.blocks[i+1:]), end: g.end}
	g.blocks, g.end = g.blocks[:i+1], place
	w.counts.add(s, slices.Index(s.groups, g)+1, behind)
	w.counts.change(behind)
	return nil
}

// countOut stops counting a member.
func (w *Writer) countOut(c *collection, score float64, member []byte) error {
	s, err := w.countsOf(c)
	if s == nil || err != nil {
		return err
	}
	place := w.placeOf(score, member)
	g, err := w.groupBelow(c, s, w.place)
	if err != nil {
		return err
	}
	i := g.find(place)
	ofBlock, ofGroup := begins(c.Version, member)
	if g.blocks[i].n == 0 || ofBlock != bytes.Equal(g.blocks[i].first, place) || ofGroup && i > 0 {
		return c.miscounts(place)
	}
	g.blocks[i].n--
	w.counts.change(g)
	if !ofBlock {
		return nil
	}
	// The rest of the block joins the block before it.
	n := g.blocks[i].n
	if !ofGroup {
		g.blocks[i-1].n += n
		g.blocks = slices.Delete(g.blocks, i, i+1)
		w.key = countKey(append(w.key[:0], s.front...), keys.RankBlock, place)
		return w.Batch.Delete(w.key)
	}
	before, err := w.groupBelow(c, s, place)
	if err != nil {
		return err
	}
	before.blocks[len(before.blocks)-1].n += n
	before.blocks, before.end = append(before.blocks, g.blocks[1:]...), g.end
	w.counts.change(before)
	g.gone = true
	at := slices.Index(s.groups, g)
	s.groups = slices.Delete(s.groups, at, at+1)
	w.counts.groups--
	w.key = countKey(append(w.key[:0], s.front...), keys.RankGroup, place)
	return w.Batch.Delete(w.key)
}

// placeOf returns a member's place, and leaves the next possible place in w.place. Both are valid until the next call.
func (w *Writer) placeOf(score float64, member []byte) []byte {
	w.place = append(keys.AppendPlace(w.place[:0], score, member), 0)
	return w.place[:len(w.place)-1]
}

// find returns the index of the group's block that has a place.
func (g *scoreGroup) find(place []byte) int {
	order := func(b block, place []byte) int { return bytes.Compare(b.first, place) }
	i, is := slices.BinarySearchFunc(g.blocks[1:], place, order)
	if is {
		i++
	}
	return i
}

// groupBelow returns the group that has the last place below limit.
func (w *Writer) groupBelow(c *collection, s *counted, limit []byte) (*scoreGroup, error) {
	order := func(g *scoreGroup, limit []byte) int { return bytes.Compare(g.blocks[0].first, limit) }
	i, _ := slices.BinarySearchFunc(s.groups, limit, order)
	if i > 0 {
		if g := s.groups[i-1]; g.end == nil || bytes.Compare(limit, g.end) <= 0 {
			return g, nil
		}
	}
	stored := *c
	stored.from = w.Batch // an unknown group has no counts that were kept back
	g, err := stored.readGroup(limit)
	if err != nil {
		return nil, err
	}
	g.set = s
	w.counts.add(s, i, g)
	return g, nil
}

// readGroup does what groupBelow does, for a group that is not known.
func (c *collection) readGroup(limit []byte) (*scoreGroup, error) {
	e, err := c.countKeys(keys.RankGroup, nil, nil)
	if err != nil {
		return nil, err
	}
	g, counts, err := c.groupAt(&e, limit)
	if err = errors.Join(err, e.Close()); err != nil {
		return nil, err
	}
	err = c.blocks(g.blocks[0].first, g.end, func(first []byte) bool {
		g.blocks = append(g.blocks, block{first: bytes.Clone(first)})
		return len(g.blocks) <= len(counts)
	})
	if err == nil && len(g.blocks) != len(counts) {
		err = c.miscounts(limit)
	}
	if err != nil {
		return nil, err
	}
	for i, n := range counts {
		g.blocks[i].n = n
	}
	return g, nil
}

// groupAt finds the last group that begins below a place, with an iterator over all groups. It returns the group with
// its first place and its end, but without its other blocks, and its counts.
func (c *collection) groupAt(e *elements, limit []byte) (*scoreGroup, []uint64, error) {
	c.key = append(append(c.key[:c.front], byte(keys.RankGroup)), limit...)
	c.key[0] = byte(keys.ZSetRank)
	if !e.SeekLT(c.key) {
		return nil, nil, errors.Join(e.Error(), c.miscounts(limit))
	}
	g := &scoreGroup{blocks: make([]block, 1, groupBlocks)}
	if first := e.sub()[1:]; len(first) > 0 {
		g.blocks[0].first = bytes.Clone(first)
	}
	value, err := e.ValueAndErr()
	if err != nil {
		return nil, nil, err
	}
	counts, err := keys.ParseRankCounts(nil, value)
	if e.Next() {
		g.end = bytes.Clone(e.sub()[1:])
	}
	return g, counts, errors.Join(err, e.Error())
}

// blocks calls f with the places where blocks begin, between that of a group and another place, nil for the end, until
// f returns false. The argument of f is valid during the call.
func (c *collection) blocks(group, to []byte, f func(first []byte) bool) error {
	e, err := c.countKeys(keys.RankBlock, group, to)
	if err != nil {
		return err
	}
	for ok := e.First(); ok && f(e.sub()[1:]); ok = e.Next() {
	}
	return errors.Join(e.Error(), e.Close())
}

// countKeys returns an iterator over the keys of a kind between two places, both included. A nil place is before all
// places, or behind all.
func (c *collection) countKeys(kind keys.RankKind, from, to []byte) (elements, error) {
	c.bound = append(append(c.bound[:0], c.key[:c.front]...), byte(kind))
	if to == nil {
		c.bound = keys.Successor(c.bound)
	} else {
		c.bound = append(append(c.bound, to...), 0)
	}
	c.key = append(append(c.key[:c.front], byte(kind)), from...)
	c.key[0], c.bound[0] = byte(keys.ZSetRank), byte(keys.ZSetRank)
	it, err := c.from.Iter(c.key, c.bound)
	return elements{Iter: it, front: c.front}, err
}

// count counts, by stepping over them, the members from one place up to another, which is excluded. A nil from is
// before all places, a nil to after all. It ends at limit members, unless limit is negative.
func (c *collection) count(from, to []byte, limit int64) (n uint64, err error) {
	e, err := c.elements(keys.ZSetScore, from, to)
	if err != nil {
		return 0, err
	}
	for ok := e.First(); ok && limit != 0; ok = e.Next() {
		n++
		limit--
	}
	return n, errors.Join(e.Error(), e.Close())
}

// membersBetween returns how many members there are between two places, as count does.
func (c *collection) membersBetween(from, to []byte) (n uint64, err error) {
	if c.Size < countUntil {
		return c.count(from, to, -1)
	}
	if from != nil {
		if n, err = c.count(from, to, nearSteps); err != nil || n < nearSteps {
			return n, err
		}
	}
	var at passed
	lower, counted, upper := uint64(0), true, c.Size
	if from != nil {
		lower, counted, err = c.rank(&at, from)
	}
	if to != nil && counted && err == nil {
		upper, counted, err = c.rank(&at, to)
	}
	if counted || err != nil {
		return upper - lower, err
	}
	return c.count(from, to, -1)
}

// passed is a group, nil for the first, and how many members come before it.
type passed struct {
	group []byte
	n     uint64
}

// rank returns, by the counts, how many members come before a place. It returns false if the sorted set has no counts.
// at is a group at or before the place, where rank begins; rank sets it to the place's group.
func (c *collection) rank(at *passed, place []byte) (n uint64, counted bool, err error) {
	e, err := c.countKeys(keys.RankGroup, at.group, place)
	if err != nil {
		return 0, false, err
	}
	var room [8 * groupBlocks]uint64
	counts := room[:0]
	// Group records are written often, and the memtable keeps each version of one: NextPrefix passes all of them at
	// once.
	for ok := e.First(); ok; ok = e.NextPrefix() {
		for _, m := range counts {
			at.n += m
		}
		if counts, err = c.group(&e, counts[:0]); err != nil {
			return 0, false, err
		}
		at.group = append(at.group[:0], e.sub()[1:]...)
	}
	if err := errors.Join(e.Error(), e.Close()); err != nil || len(counts) == 0 {
		return 0, false, err
	}
	n = at.n
	first := bytes.Clone(at.group)
	err = c.blocks(at.group, place, func(begin []byte) bool {
		if len(counts) > 1 {
			n += counts[0]
			first = append(first[:0], begin...)
		}
		counts = counts[1:]
		return len(counts) > 0
	})
	if err == nil && len(counts) == 0 {
		err = c.miscounts(place)
	}
	if err != nil {
		return 0, false, err
	}
	inside, err := c.count(first, place, -1)
	return n + inside, true, err
}

// group appends the counts of the group on which an iterator stands.
func (c *collection) group(e *elements, counts []uint64) ([]uint64, error) {
	value, err := e.ValueAndErr()
	if err == nil {
		counts, err = keys.ParseRankCounts(counts, value)
	}
	if err != nil {
		err = errors.Join(err, e.Close())
	}
	return counts, err
}

// span is a range of members, from one place up to another. A nil place is before all members, or behind all.
type span struct {
	first, end []byte
	at, n      uint64 // index of the first member, and how many there are
}

// blockAt finds the block that has the member of an index, as a range of places. It returns false if there are no
// counts.
func (c *collection) blockAt(index uint64) (s span, counted bool, err error) {
	e, err := c.countKeys(keys.RankGroup, nil, nil)
	if err != nil {
		return s, false, err
	}
	var room [8 * groupBlocks]uint64
	counts := room[:0]
	i := 0
search:
	for ok := e.First(); ok; ok = e.NextPrefix() {
		if counts, err = c.group(&e, counts[:0]); err != nil {
			return s, false, err
		}
		counted = true
		for i, s.n = range counts {
			if index < s.at+s.n {
				s.first = append(s.first, e.sub()[1:]...)
				if e.NextPrefix() {
					s.end = append(s.end, e.sub()[1:]...)
				}
				break search
			}
			s.at += s.n
		}
	}
	if err := errors.Join(e.Error(), e.Close()); err != nil || !counted {
		return s, false, err
	}
	if index >= s.at+s.n {
		return s, false, c.miscounted(s.at)
	}
	err = c.blocks(s.first, s.end, func(begin []byte) bool {
		if i--; i < 0 {
			s.end = append([]byte(nil), begin...)
			return false
		}
		s.first = append(s.first[:0], begin...)
		return true
	})
	if err == nil && i > 0 {
		err = c.miscounts(s.first)
	}
	return s, true, err
}

// toPlace moves an iterator to the member of an index; the caller then goes on to higher indexes, or with rev to lower
// ones. The iterator's first member is that of index from; with rev its last one is. toPlace returns false if there are
// no counts.
func (c *collection) toPlace(e *elements, index, from uint64, rev bool) (ok, counted bool, err error) {
	s, counted, err := c.blockAt(index)
	if err != nil || !counted {
		return false, false, err
	}
	if rev {
		last := min(s.at+s.n-1, from)
		if s.end != nil {
			ok = e.SeekLT(c.in(keys.ZSetScore, s.end))
		} else {
			ok = e.Last()
		}
		for ; ok && last > index; last-- {
			ok = e.Prev()
		}
		return ok, true, nil
	}
	at := max(s.at, from)
	for ok = e.SeekGE(c.in(keys.ZSetScore, s.first)); ok && at < index; at++ {
		ok = e.Next()
	}
	return ok, true, nil
}

// miscounts is the error of counts that are wrong.
func (c *collection) miscounts(place []byte) error {
	return fmt.Errorf("%v %q: version %d: wrong counts at %x", c.Type, c.user, c.Version, place)
}

// closeCounts gives counts to a sorted set that has become large, or takes them from one that has become small.
func (w *Writer) closeCounts(c *collection) error {
	switch s, err := w.countsOf(c); {
	case err != nil:
		return err
	case s != nil && c.Size < countUntil:
		return w.dropCounts(c)
	case s == nil && c.Size > countFrom:
		return w.makeCounts(c)
	}
	return nil
}

// dropCounts deletes all counts of a version.
func (w *Writer) dropCounts(c *collection) error {
	w.counts.forget(c.Version, c.user)
	e, err := c.elements(keys.ZSetRank, nil, nil)
	if err != nil {
		return err
	}
	for ok := e.First(); ok; ok = e.Next() {
		if err := w.Batch.Delete(e.Key()); err != nil {
			return errors.Join(err, e.Close())
		}
	}
	return errors.Join(e.Error(), e.Close())
}

// makeCounts counts all members. No reader knows a version that renew has begun, so its counts need not wait for the
// batch.
func (w *Writer) makeCounts(c *collection) error {
	w.counts.forget(c.Version, c.user)
	set := w.Batch.Set
	if c.renewed {
		set = w.Batch.SetAhead
	}
	front := bytes.Clone(c.key[:c.front])
	front[0] = byte(keys.ZSetRank)
	var first []byte // place of the group
	counts := []uint64{0}
	var parts [keys.HashParts]uint64
	closeGroup := func() error {
		w.key = countKey(append(w.key[:0], front...), keys.RankGroup, first)
		w.value = keys.AppendRankCounts(w.value[:0], counts)
		return set(w.key, w.value)
	}
	e, err := c.elements(keys.ZSetScore, nil, nil)
	if err != nil {
		return err
	}
	for ok := e.First(); ok && err == nil; ok = e.Next() {
		place := e.sub()
		if len(place) < scoreBytes {
			return errors.Join(errCutShort, e.Close())
		}
		member := place[scoreBytes:]
		parts[keys.ElementHash(member)/keys.PartHashes]++
		switch ofBlock, ofGroup := begins(c.Version, member); {
		case ofGroup:
			err = closeGroup()
			first, counts = append(first[:0], place...), append(counts[:0], 0)
		case ofBlock:
			w.key = countKey(append(w.key[:0], front...), keys.RankBlock, place)
			w.value = keys.AppendRankBlock(w.value[:0])
			err = set(w.key, w.value)
			counts = append(counts, 0)
		}
		counts[len(counts)-1]++
	}
	if err := errors.Join(err, e.Error(), e.Close()); err != nil {
		return err
	}
	if err := closeGroup(); err != nil {
		return err
	}
	w.key = countKey(append(w.key[:0], front...), keys.RankParts, nil)
	w.value = keys.AppendRankCounts(w.value[:0], parts[:])
	return set(w.key, w.value)
}
