package disk

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"neokv.dev/neokv/fault"
)

// drive is a drive of which something is wrong. It does not change: SetDrive replaces it.
type drive struct {
	fault.Drive
	replaced chan struct{} // closed when another one takes its place

	left atomic.Int64 // bytes that can still be written, where Drive.Free says so

	mu     sync.Mutex
	random *rand.Rand
	tries  int       // how many have failed because of Drive.Short
	idle   time.Time // when the drive has moved the bytes that it has taken
}

// driveBurst is how far a drive with a bandwidth may fall behind its rate, so that short operations do not wait.
const driveBurst = 10 * time.Millisecond

// SetDrive says what is wrong with the disk from now on; the zero value is a good disk. What waits because of the fault
// before goes on. SetDrive takes a seed from random. Fencing the file system ends what is wrong with it.
func (f *FS) SetDrive(d fault.Drive, random *rand.Rand) {
	var next *drive
	if d != (fault.Drive{}) {
		next = &drive{
			Drive: d, replaced: make(chan struct{}), random: rand.New(rand.NewPCG(random.Uint64(), random.Uint64())),
		}
		next.left.Store(int64(d.Free))
	}
	if old := f.drive.Swap(next); old != nil {
		close(old.replaced)
	}
}

// WaitInLog says, before the file system is used, whether a disk that is slow or hangs waits in LogWait's function
// alone, and not in each operation.
func (f *FS) WaitInLog(on bool) { f.waitInLog = on }

// LogWait returns what the log calls while no lock is held: with WaitInLog, a function that waits while the disk hangs
// and, with sync, for as long as a write of 4 KiB takes. Else it returns nil.
func (f *FS) LogWait() func(sync bool) {
	if !f.waitInLog {
		return nil
	}
	return func(sync bool) {
		f.hang()
		if sync {
			f.delay(4 << 10)
		}
	}
}

// Drive returns what is wrong with the disk.
func (f *FS) Drive() fault.Drive {
	if d := f.drive.Load(); d != nil {
		return d.Drive
	}
	return fault.Drive{}
}

// busy is delay, unless the drive waits elsewhere.
func (f *FS) busy(n int) {
	if !f.waitInLog {
		f.delay(n)
	}
}

// delay waits for as long as the drive takes longer for an operation on n bytes than a good one. It returns early when
// the file system is fenced, or the fault replaced.
func (f *FS) delay(n int) {
	d := f.drive.Load()
	if d == nil {
		return
	}
	wait := d.Latency
	d.mu.Lock()
	if d.Jitter > 0 {
		wait += time.Duration(d.random.Int64N(int64(d.Jitter) + 1))
	}
	if d.Bandwidth > 0 {
		now := time.Now()
		if d.idle.Before(now) {
			d.idle = now
		}
		d.idle = d.idle.Add(time.Duration(float64(n) / float64(d.Bandwidth) * float64(time.Second)))
		wait += max(0, d.idle.Sub(now)-driveBurst)
	}
	d.mu.Unlock()
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-d.replaced:
	case <-f.ended:
	}
}

// hang waits as long as syncs do not return.
func (f *FS) hang() {
	for d := f.drive.Load(); d != nil && d.Hang; d = f.drive.Load() {
		select {
		case <-d.replaced:
		case <-f.ended:
			return
		}
	}
}

// refused returns the error with which the drive answers an operation that changes it and writes n bytes, nil for none.
func (f *FS) refused(op FileOp, n int) error {
	d := f.drive.Load()
	switch {
	case d == nil:
		return nil
	case op == OpSync && d.SyncErrors, op != OpSync && d.WriteErrors:
		return syscall.EIO
	case op != OpCreate && op != OpWrite && op != OpLink && op != OpMkdir:
		return nil
	case d.Full, d.Free > 0 && d.left.Add(-int64(n)) < 0:
		return syscall.ENOSPC
	}
	return f.lacks()
}

// unreadable returns the error with which the drive answers who opens, lists or asks about a file or folder, nil for
// none.
func (f *FS) unreadable(op, name string) error {
	if d := f.drive.Load(); d != nil && d.ReadErrors {
		return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

// space is how many bytes can still be written.
func (d *drive) space() int64 {
	if d.Full {
		return 0
	}
	return max(0, d.left.Load())
}

// failedPause is how long a failed file system takes for a read that fails, or that returns what the drive has changed.
// Pebble retries a compaction that cannot read a table, at once and for ever. On a failed store these retries must not
// keep a core busy.
const failedPause = 10 * time.Millisecond

// read passes on a read of a file's bytes.
func (x *file) read(p []byte, read func([]byte) (int, error)) (n int, err error) {
	n, err = x.driven(p, read)
	if err != nil && err != io.EOF {
		x.fs.pauseFailed()
	}
	return n, err
}

func (f *FS) pauseFailed() {
	if f.Failed() != nil {
		time.Sleep(failedPause)
	}
}

// driven is read with the faults of the drive.
func (x *file) driven(p []byte, read func([]byte) (int, error)) (int, error) {
	d := x.fs.drive.Load()
	if d == nil {
		return read(p)
	}
	x.fs.busy(len(p))
	if d.ReadErrors {
		return 0, fmt.Errorf("read %s: %w", x.name, syscall.EIO)
	}
	n, err := read(p)
	if d.FlippedBit && n > 0 {
		d.mu.Lock()
		at, bit := d.random.IntN(n), d.random.IntN(8)
		d.mu.Unlock()
		p[at] ^= 1 << bit
		x.fs.pauseFailed()
	}
	return n, err
}
