package store

import "testing"

// TestLinkedNames fails when dragonboat does not have the variables any more that linkname.go sets.
func TestLinkedNames(t *testing.T) {
	if got, want := libraryEntrySliceSizes, [2]uint64{512, 96}; got != want {
		t.Errorf("dragonboat's sizes are %d; want %d", got, want)
	}
}
