package inside

import "testing"

// TestLinkedNames fails when dragonboat does not have the variables any more that sizes.go sets.
func TestLinkedNames(t *testing.T) {
	for i, s := range raftSizes {
		if found := foundSizes[i]; found != s.theirs {
			t.Errorf("size %d: dragonboat's is %d; want %d", i, found, s.theirs)
		}
	}
}
