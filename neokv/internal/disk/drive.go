package disk

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"neokv.dev/neokv/fault"
)

// drive is a drive of which something is wrong. It does not change: SetDrive replaces it.
type drive struct {
	fault.Drive
	replaced chan struct{} // closed when another one takes its place

	mu     sync.Mutex
	random *rand.Rand
	free   time.Time // when the drive has moved the bytes that it has taken
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
	}
	if old := f.drive.Swap(next); old != nil {
		close(old.replaced)
	}
}

// Drive returns what is wrong with the disk.
func (f *FS) Drive() fault.Drive {
	if d := f.drive.Load(); d != nil {
		return d.Drive
	}
	return fault.Drive{}
}

// busy waits for as long as the drive takes longer for an operation on n bytes than a good one. It returns early when
// the file system is fenced, or the fault replaced.
func (f *FS) busy(n int) {
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
		if d.free.Before(now) {
			d.free = now
		}
		d.free = d.free.Add(time.Duration(float64(n) / float64(d.Bandwidth) * float64(time.Second)))
		wait += max(0, d.free.Sub(now)-driveBurst)
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

// fails returns the error with which the drive answers an operation that changes it, nil for none.
func (d *drive) fails(op FileOp) error {
	switch {
	case op == OpSync && d.SyncErrors, op != OpSync && d.WriteErrors:
		return syscall.EIO
	case d.Full && (op == OpCreate || op == OpWrite || op == OpLink || op == OpMkdir):
		return syscall.ENOSPC
	}
	return nil
}

// read passes on a read of a file's bytes.
func (x *file) read(p []byte, read func([]byte) (int, error)) (int, error) {
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
	}
	return n, err
}
