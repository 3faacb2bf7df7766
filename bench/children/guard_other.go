//go:build !linux && !windows

package children

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// startGuarded starts a process that dies with this one. A shell beside it reads from a pipe that only this process
// could write to. The read ends when this process has ended, and then the shell kills the group of the process, which
// is its own: a Ctrl-C reaches this process alone, which then ends the other. release ends the shell.
func startGuarded(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	guard := exec.Command("/bin/sh", "-c", `read -r _; kill -KILL "-$1"`, "guard", strconv.Itoa(cmd.Process.Pid))
	guard.Stdin, guard.SysProcAttr = read, &syscall.SysProcAttr{Setpgid: true}
	if err := guard.Start(); err != nil {
		return nil, errors.Join(err, write.Close(), cmd.Process.Kill(), cmd.Wait())
	}
	return func() {
		_ = guard.Process.Kill() // before the pipe closes, at which it would kill whatever has the number by then
		_ = guard.Wait()
		_ = write.Close()
	}, nil
}
