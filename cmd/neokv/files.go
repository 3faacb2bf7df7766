//go:build linux || darwin

package main

import "syscall"

// mostFiles is the largest limit of file descriptors that raiseFileLimit asks for. It is that of most systems.
const mostFiles = 1 << 20

// raiseFileLimit raises the limit of file descriptors as far as it goes. The Go runtime has raised it to the hard limit
// already; who has the right to, such as root, may raise that as well.
func raiseFileLimit() {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		return
	}
	for most := uint64(mostFiles); most > now.Cur; most /= 2 {
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: max(most, now.Max)}) == nil {
			return
		}
	}
}
