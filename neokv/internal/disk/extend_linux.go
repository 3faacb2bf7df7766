package disk

import "golang.org/x/sys/unix"

// extend makes a file so long that [offset, offset+length) is in it, as zeros. Syncing what is written there need not sync
// the file's length, which costs the disk another write each time. Only logs of which the reader stops at zeros are preallocated.
func extend(fd uintptr, offset, length int64) error {
	return unix.Fallocate(int(fd), 0, offset, length)
}
