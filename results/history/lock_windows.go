package history

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock waits for others and keeps them waiting until f is closed.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 1<<31, new(windows.Overlapped))
}
