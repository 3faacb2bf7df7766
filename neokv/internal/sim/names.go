package sim

import (
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// simRegions is how many regions a cluster has.
const simRegions = 4

// simKey is the key of a sort in a region: a letter, the epoch, and a hash tag of the region. Each region has one key
// of each sort in an epoch:
//
//	r     a register, which clients read and write
//	c     a counter
//	n     a lock, which a client sets if it is free
//	e     a string that expires
//	h     a hash with one field
//	l     a list
//	s, z  a set, a sorted set
//	g, j  the cells: strings, and fields of a hash, that commands name together; see cells.go
//	t     three sets, between which members move; see moves.go
//	w     strings that clients write only to see whether the region takes writes
//	o, p  hashes of many fields, which make work and whose histories are not checked
func simKey(sort byte, epoch string, region int) string {
	return fmt.Sprintf("%c%s{%s}", sort, epoch, regionTags[region])
}

// key is the simKey of the present epoch.
func (s *sim) key(sort byte, region int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simKey(sort, s.epoch, region)
}

// nextEpoch lets clients go on with new keys: the checker takes too long for a key with a long history.
func (s *sim) nextEpoch(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = fmt.Sprint(i)
	s.epochs = append(s.epochs, s.epoch)
}

// regionTags has a hash tag of each region.
var regionTags = func() (tags [simRegions]string) {
	for i, slots := range topology.SplitEvenly(simRegions) {
		for n := 0; tags[i] == ""; n++ {
			if tag := fmt.Sprintf("t%d", n); slots.Contains(topology.SlotOf([]byte(tag))) {
				tags[i] = tag
			}
		}
	}
	return tags
}()
