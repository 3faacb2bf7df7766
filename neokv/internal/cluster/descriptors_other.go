//go:build !unix

package cluster

// fileLimit returns 0: no limit is known.
func fileLimit() int { return 0 }
