//go:build linux || darwin

package disk

import "golang.org/x/sys/unix"

// inodes returns how many inodes the disk of a path has free and in all, 0 where it has no fixed number of them.
func inodes(path string) (free, total int64) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0
	}
	return int64(st.Ffree), int64(st.Files)
}
