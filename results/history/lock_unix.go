//go:build unix

package history

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock waits for others and keeps them waiting until f is closed.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }
