package sim

import (
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// simRegions is how many regions there are; each has a register, a counter and a lock per epoch.
const simRegions = 4

// Keys: r, c, n, e, h, l, s or z (register, counter, lock, what expires, hash, list, set, sorted set), g or j (see mset), or o or p (hashes that make work), the
// epoch, and a tag that lies in the region.

func (s *sim) nextEpoch(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = fmt.Sprint(i)
	s.epochs = append(s.epochs, s.epoch)
}

func simKey(sort byte, epoch string, region int) string {
	return fmt.Sprintf("%c%s{%s}", sort, epoch, regionTags[region])
}

// regionTags has a hash tag for each region.
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

func (s *sim) key(sort byte, region int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simKey(sort, s.epoch, region)
}
