//go:build unix

package sim

import (
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var processPauses = flag.Int("process.pauses", 6, "how often TestPausedProcess pauses the process")

// TestPausedProcess stops the process of a cluster for longer than a lease and an election time-out, again and again,
// and lets it go on, while its stores are cut off in turn and leaders move. What clients saw is linearizable. Where
// leases are not checked, the same finds stale reads.
func TestPausedProcess(t *testing.T) {
	notShort(t)
	t.Parallel() // beside TestKillNine
	if err := pauseProcess(t, *processPauses, ""); err != nil {
		t.Error(err)
	}
	planted, err := "lease-unchecked", error(nil)
	for range 5 { // mostly once is enough
		if err = pauseProcess(t, 4, planted); evidenceOf(err) == staleRead {
			t.Logf("%s: %.200s", planted, err)
			return
		}
	}
	t.Errorf("%s: %v; want a stale read", planted, err)
}

// pauseProcess returns what the history shows of a process that was paused so many times.
func pauseProcess(t *testing.T, pauses int, planted string) error {
	t.Helper()
	o := newOutside(t)
	random := o.random(1)
	p, addrs := o.start(dirVariable+"="+t.TempDir(), movesVariable+"=yes", mistakeVariable+"="+planted)
	knobs := simSettings().Raft
	least := time.Duration(knobs.ElectionTicks) * knobs.RTT // which is longer than a lease
	over := make(chan struct{})
	var pausing sync.WaitGroup
	var epoch atomic.Int64 // of the keys in use
	pausing.Go(func() {
		defer close(over)
		for i := range pauses {
			time.Sleep(time.Duration(100+random.IntN(900)) * time.Millisecond)
			pause := least + time.Duration(random.Int64N(int64(2*least)))
			if err := p.pause(pause); err != nil {
				t.Error(err)
				return
			}
			o.h.note("the process was paused for %s", pause)
			epoch.Store(int64(i / 4))
		}
		time.Sleep(500 * time.Millisecond)
	})
	o.work(6, addrs, over, func(c *caller) {
		c.readOnly = c.id%3 == 0
		for n := 0; !ended(over); n++ {
			key := func(sort byte) string { return simKey(sort, fmt.Sprint(epoch.Load()), c.random.IntN(simRegions)) }
			var err error
			switch c.random.IntN(8) {
			case 0, 1:
				_, err = c.do(set, key('r'), fmt.Sprintf("%d-%d", c.id, n))
			case 2:
				_, err = c.do(incr, key('c'), "")
			case 3, 4:
				_, err = c.do(get, key('c'), "")
			default:
				_, err = c.do(get, key('r'), "")
			}
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(c.random.IntN(int(4 * time.Millisecond))))
		}
	})
	pausing.Wait()
	o.readAll(addrs)
	p.kill()
	acknowledged, unknown := o.h.count()
	t.Logf("seed %d: %d pauses, %d operations acknowledged, %d unknown", o.seed, pauses, acknowledged, unknown)
	if acknowledged < 20*pauses {
		t.Errorf("seed %d: only %d operations acknowledged", o.seed, acknowledged)
	}
	if err := o.h.check(); err != nil {
		return fmt.Errorf("seed %d: %w\nhistory: %s", o.seed, err, o.out.Name())
	}
	return nil
}

// pause stops the process for a while. It returns when the process goes on.
func (p *childProcess) pause(d time.Duration) error {
	pid := p.cmd.Process.Pid
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for { // until it has stopped
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err == nil {
			break
		} else if err != syscall.EINTR {
			return err
		}
	}
	if !status.Stopped() {
		return fmt.Errorf("the process has ended: %v", status)
	}
	time.Sleep(d)
	return p.cmd.Process.Signal(syscall.SIGCONT)
}
