package children

import (
	"errors"
	"os"
	"os/exec"
)

// startGuarded starts a process. On Windows it outlives this one if this one is killed.
func startGuarded(cmd *exec.Cmd) (release func(), err error) { return func() {}, cmd.Start() }

// killFamily ends the process alone: none of those that are started here have children.
func killFamily(p *os.Process) { _ = p.Kill() }

func pauseFamily(*os.Process) error { return errors.ErrUnsupported }

func resumeFamily(*os.Process) error { return errors.ErrUnsupported }
