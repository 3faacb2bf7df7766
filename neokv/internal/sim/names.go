package sim

import (
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// simRegions is how many regions a cluster has at first.
const simRegions = 4

// simKey is the key of a sort in a region, of those that there are at first: a letter, the epoch, and a hash tag of the
// region. Each region has one key of each sort in an epoch:
//
//	r     a register, which clients read and write
//	c     a counter
//	n     a lock, which a client sets if it is free
//	e     a string that expires
//	h     a hash with one field
//	l     a list
//	s, z  a set, a sorted set
//	g, j  the cells: strings, and fields of a hash, that commands name together; see cells.go
//	m     the cells: numbers, between which transactions move amounts
//	t     three sets, between which members move; see moves.go
//	w     strings that clients write only to see whether the region takes writes
//	o, p  hashes of many fields, which make work and whose histories are not checked
func simKey(sort byte, epoch string, region int) string {
	return fmt.Sprintf("%c%s{%s}", sort, epoch, sortTags[region][quarterOf[sort]])
}

// key is the simKey of the present epoch.
func (s *sim) key(sort byte, region int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simKey(sort, s.epoch, region)
}

// keyIn is a key of the sort w in one of the slots.
func (s *sim) keyIn(slots topology.SlotRange) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("w%s{%s}", s.epoch, tagIn(slots))
}

// nextEpoch lets clients go on with new keys: the checker takes too long for a key with a long history.
func (s *sim) nextEpoch(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = fmt.Sprint(i)
	s.epochs = append(s.epochs, s.epoch)
}

// quarterOf says in which quarter of a region's slots the keys of a sort are, so that a split of the region leaves some
// sorts here and some there. COPY goes from the sort o to the sort p.
var quarterOf = map[byte]int{
	'r': 0, 'h': 0, 'l': 0, 'w': 0, 'm': 0,
	'c': 1, 's': 1, 'o': 1, 'p': 1,
	'n': 2, 'g': 2, 'z': 2,
	'e': 3, 'j': 3, 't': 3,
}

// sortTags has a hash tag in each quarter of each region's slots.
var sortTags = func() (tags [simRegions][4]string) {
	for i, slots := range topology.SplitEvenly(4 * simRegions) {
		tags[i/4][i%4] = tagIn(slots)
	}
	return tags
}()

// tagIn returns the first of the hash tags t0, t1 and so on that is in one of the slots.
func tagIn(slots topology.SlotRange) string {
	for n := 0; ; n++ {
		if tag := fmt.Sprintf("t%d", n); slots.Contains(topology.SlotOf([]byte(tag))) {
			return tag
		}
	}
}

// regionTags has a hash tag of each region.
var regionTags = func() (tags [simRegions]string) {
	for i := range tags {
		tags[i] = sortTags[i][0]
	}
	return tags
}()

// splitSlots are where drawn schedules split regions: before the slots of keys, and behind them.
var splitSlots = func() (all []int) {
	for _, tags := range sortTags {
		for _, tag := range tags {
			slot := int(topology.SlotOf([]byte(tag)))
			all = append(all, max(1, slot), slot+1)
		}
	}
	return all
}()
