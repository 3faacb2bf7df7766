package store

import _ "unsafe" // for go:linkname

// This file has the only names of the Raft library that NeoKV uses though they are not exported.
//
// Dragonboat keeps the entries of a region that are not applied yet in a slice. It makes a new slice of entrySliceSize
// entries, of 96 bytes each, whenever all of them have been applied or fewer than minEntrySliceSize places are left.
// Its own values are 512 and 96: if one entry is in flight at a time, each entry costs every replica 48 KiB. Dragonboat
// takes other values only from a file in the working directory, which a program that embeds NeoKV need not have.
//
// If dragonboat drops these variables, the program still builds and runs, the values below have no effect, and
// TestLinkedNames fails. Then delete this file, or find where the two sizes are now.
var (
	//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
	entrySliceSize uint64
	//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
	minEntrySliceSize uint64
)

// libraryEntrySliceSizes are dragonboat's own values. They are 0 if it does not have the variables.
var libraryEntrySliceSizes = [2]uint64{entrySliceSize, minEntrySliceSize}

func init() { entrySliceSize, minEntrySliceSize = 32, 8 }
