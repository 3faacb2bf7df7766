package server

import (
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// TestKeyMap: each key lies in one stretch, which counts it; there are not too many stretches, and none begins after a
// long key.
func TestKeyMap(t *testing.T) {
	for _, n := range []int{1, 100, 10_000, 1_200_000} {
		m := &keyMap{limit: stretchKeys, all: []stretch{{}}}
		var last redis.WalkedKey
		keys := 0
		walk := func(f func(k redis.WalkedKey)) { // half of the keys in one slot, some of them long
			for i := range n / 2 {
				f(redis.WalkedKey{Slot: topology.Slot(uint64(i) * 5000 / uint64(n)), Key: fmt.Appendf(nil, "%07d", i)})
			}
			for i := range n - n/2 {
				key := fmt.Appendf(nil, "%07d", i)
				if i >= n/3 {
					key = append(key, strings.Repeat("x", maxStretchStart)...)
				}
				f(redis.WalkedKey{Slot: 9000, Key: key})
			}
		}
		walk(func(k redis.WalkedKey) {
			m.add(k, last)
			last = k
			keys++
		})
		counted, longest := make([]int, len(m.all)), 0
		at := 0
		walk(func(k redis.WalkedKey) {
			for at+1 < len(m.all) && !m.all[at+1].before(k) {
				at++
			}
			counted[at]++
		})
		for i, s := range m.all {
			longest = max(longest, len(s.after))
			if s.keys != counted[i] {
				t.Fatalf("%d keys: stretch %d of %d has %d keys, and counts %d", n, i, len(m.all), counted[i], s.keys)
			}
		}
		if m.keys != n || keys != n || len(m.all) > maxStretches || longest > maxStretchStart {
			t.Errorf("%d keys: %d in %d stretches, which begin after up to %d bytes", n, m.keys, len(m.all), longest)
		}
	}
}
