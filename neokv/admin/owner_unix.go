//go:build unix

package admin

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// ownedAlone reports whether a folder belongs to this user, and nobody else can enter it.
func ownedAlone(info fs.FileInfo) bool {
	owner, known := info.Sys().(*syscall.Stat_t)
	return info.Mode().Perm()&0o077 == 0 && known && int(owner.Uid) == os.Getuid()
}

// hasEnded reports whether no process has the number.
func hasEnded(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
