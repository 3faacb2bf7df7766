//go:build !linux

package main

// holders says which processes listen on some ports, as far as that can be seen.
func holders([]uint64) []string { return nil }
