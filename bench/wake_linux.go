package bench

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// wakeApart is the least time between two alarms. At higher rates the replies wake the process often enough.
	wakeApart = 50 * time.Microsecond
	// wakeAfter puts an alarm just behind the timer that it is for.
	wakeAfter = 5 * time.Microsecond
)

// keepAwake makes Go's timers exact while an idle process paces an open loop, until ctx ends. On Linux an idle Go
// process waits in epoll_wait, whose time-out is in whole milliseconds. So timers fire up to a millisecond late, and
// response time would include the sleep of the generator. A timer of the kernel, set to the next intended start, ends
// that wait in time, and Go runs the timers that are due. The plan of due begins at the given instant of the run.
func keepAwake(ctx context.Context, due *dueCounter, start time.Duration, now func() time.Duration) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return // less exact, not wrong
	}
	alarm := os.NewFile(uintptr(fd), "timerfd")
	defer alarm.Close()
	defer context.AfterFunc(ctx, func() { alarm.Close() })()
	raw, err := alarm.SyscallConn()
	if err != nil {
		return
	}
	for expirations := make([]byte, 8); ; {
		at := now() - start
		due.upTo(at + wakeApart)
		next := due.next()
		if next >= due.table.length {
			return
		}
		set := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(next - at + wakeAfter))}
		var failed error
		if err := raw.Control(func(fd uintptr) { failed = unix.TimerfdSettime(int(fd), 0, &set, nil) }); err != nil ||
			failed != nil {
			return
		}
		if _, err := alarm.Read(expirations); err != nil {
			return
		}
	}
}
