package children

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// startGuarded starts a process that dies with this one. Linux kills it when the thread that started it ends, so one
// thread starts all, and lasts as long as this process. The process has a group of its own: a Ctrl-C reaches this
// process alone, which then ends it.
func startGuarded(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	starter.Do(func() { go startAll() })
	started := make(chan error)
	toStart <- func() { started <- cmd.Start() }
	return func() {}, <-started
}

var (
	starter sync.Once
	toStart = make(chan func())
)

func startAll() {
	runtime.LockOSThread()
	for start := range toStart {
		start()
	}
}
