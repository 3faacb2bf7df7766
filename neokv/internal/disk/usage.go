package disk

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// usages are what the machine's disks have said last of the space in folders.
//
// A disk that hangs may not answer for ever, and nobody can call a question to it off. So a goroutine asks, one at a
// time for a folder, and callers wait a while for it. Otherwise a store could not end while its disk hangs: both the
// store and Pebble ask about space.
type usages struct {
	mu      sync.Mutex
	folders map[string]*usage
}

// diskSpace is what a disk says of itself.
type diskSpace struct {
	vfs.DiskUsage
	files, allFiles int64 // how many inodes are free and how many there are, 0 if that is not known
}

// usage is the last answer about a folder.
type usage struct {
	diskSpace
	err   error         // vfs.ErrUnsupported before the first answer
	asked chan struct{} // closed when the next answer has come; nil while nobody asks
	since time.Time     // when that question was asked
}

// usageWait is how long a question may take until callers make do with the last answer.
const usageWait = 100 * time.Millisecond

// of returns what ask says of a folder, or the last answer if the disk takes longer than usageWait.
func (u *usages) of(dir string, ask func() (diskSpace, error)) (diskSpace, error) {
	u.mu.Lock()
	last := u.folders[dir]
	if last == nil {
		last = &usage{err: vfs.ErrUnsupported}
		u.folders[dir] = last
	}
	if last.asked == nil {
		last.asked, last.since = make(chan struct{}), time.Now()
		go func() {
			answer, err := ask()
			u.mu.Lock()
			defer u.mu.Unlock()
			close(last.asked)
			last.diskSpace, last.err, last.asked = answer, err, nil
		}()
	}
	answered, patience := last.asked, usageWait-time.Since(last.since)
	u.mu.Unlock()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-answered:
	case <-timeout.C:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return last.diskSpace, last.err
}

// GetDiskUsage is part of vfs.FS. Where the disk does not answer soon, it returns the last answer, or
// vfs.ErrUnsupported if there is none.
func (f *FS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	s, err := f.spaceIn(path)
	return s.DiskUsage, err
}

func (f *FS) spaceIn(path string) (diskSpace, error) {
	if f.usages == nil {
		usage, err := f.base.GetDiskUsage(path)
		return diskSpace{DiskUsage: usage}, err
	}
	return f.usages.of(path, func() (s diskSpace, err error) {
		f.reached(BeforeUsage, 0)
		if s.DiskUsage, err = f.base.GetDiskUsage(path); err == nil {
			s.files, s.allFiles = inodes(path)
		}
		return s, err
	})
}
