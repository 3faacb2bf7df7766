//go:build !linux && !darwin

package main

// raiseFileLimit does nothing where it is not known how.
func raiseFileLimit() {}
