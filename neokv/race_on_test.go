//go:build race

package neokv

// raceBuild says whether the race detector is part of the test binary.
const raceBuild = true
