package store

import _ "unsafe" // for go:linkname

// This file holds all that NeoKV reaches of the Raft library past its exported names.
//
// Dragonboat keeps the entries of a region that are not applied yet in a slice. It makes a new slice of entrySliceSize
// entries, of 96 bytes each, whenever all of them have been applied or fewer than minEntrySliceSize places are left.
// Its own values are 512 and 96: where one entry is in flight, each entry costs every replica 48 KiB. Dragonboat reads
// other values only from a file in the working directory, and a program that embeds NeoKV need not have one.
//
// If dragonboat gives these variables up, the program still builds and runs, and the values below have no effect.
// TestLinkedNames fails then. Delete this file, or find the new place of the two sizes.
var (
	//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
	entrySliceSize uint64
	//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
	minEntrySliceSize uint64
)

// libraryEntrySliceSizes are dragonboat's own values. They are 0 where it does not have the variables.
var libraryEntrySliceSizes = [2]uint64{entrySliceSize, minEntrySliceSize}

func init() { entrySliceSize, minEntrySliceSize = 32, 8 }
