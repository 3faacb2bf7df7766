//go:build unix

package cluster

import "syscall"

// fileLimit returns how many file descriptors the process may have, 0 for no limit. The Go runtime has raised the limit
// as far as an ordinary user may.
func fileLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil || uint64(r.Cur) > 1<<30 {
		return 0
	}
	return int(r.Cur)
}
