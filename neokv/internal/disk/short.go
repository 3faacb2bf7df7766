package disk

import (
	"errors"
	"runtime"
	"syscall"
	"time"

	"neokv.dev/neokv/fault"
)

// short reports whether an error says that something is short for a moment: file descriptors of the process or of the
// machine, or memory. A signal that interrupts a call counts, too. None of it says anything about the disk.
func short(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.EINTR)
}

// longestShort is the longest pause between two tries. With fault.ShortTries of them an operation gives up after about
// ten seconds.
const longestShort = 100 * time.Millisecond

// retried runs an operation again as long as it fails because something is short, fault.ShortTries times at most. It
// gives up when the file system fails. The operation must have had no effect where it returns such an error. A sync is
// never run again: after a failed one the disk may say that bytes are safe which it has dropped.
//
// In virtual time retried does not pause, since callers hold locks.
func (f *FS) retried(do func() error) error {
	err := do()
	pause := time.Millisecond
	for try := 1; try < fault.ShortTries && short(err) && f.Failed() == nil; try++ {
		if f.waitInLog {
			runtime.Gosched()
		} else {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-f.ended:
				t.Stop()
			}
			pause = min(2*pause, longestShort)
		}
		f.retries.Add(1)
		err = do()
	}
	return err
}

// look runs an operation that reads names of the base: open, list, stat.
func (f *FS) look(do func() error) error {
	return f.retried(func() error {
		if err := f.lacks(); err != nil {
			return err
		}
		return do()
	})
}

// shortErrors are the errors of a drive with the fault Short.
var shortErrors = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR}

// lacks returns the error with which a drive that is short of something answers, nil for none.
func (f *FS) lacks() error {
	d := f.drive.Load()
	if d == nil || d.Short == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tries >= d.Short {
		return nil
	}
	d.tries++
	return shortErrors[d.random.IntN(len(shortErrors))]
}
