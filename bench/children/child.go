package children

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// child is a process that this one starts.
type child struct {
	program string
	args    []string
	env     []string // beside the environment of this process
	piped   string   // what it reads from pipePath; empty for no pipe
	ports   []int    // of a redis-server: for clients, and for other nodes

	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{} // closed when the process has ended
	err   error         // how it ended; to be read when ended is closed
}

func (c *child) String() string {
	if c.cmd == nil || c.cmd.Process == nil {
		return filepath.Base(c.program)
	}
	return fmt.Sprintf("%s (process %d)", filepath.Base(c.program), c.cmd.Process.Pid)
}

// start starts the process in a folder of its own, where its output is in the file log.
func (c *child) start(dir string) (err error) {
	if c.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return err
	}
	c.ended = make(chan struct{})
	c.cmd = exec.Command(c.program, c.args...)
	c.cmd.Dir, c.cmd.Stdout, c.cmd.Stderr = dir, c.log, c.log
	c.cmd.Env = append(os.Environ(), c.env...)
	release, err := c.startPiped()
	if err != nil {
		return errors.Join(missing(c.program, err), c.log.Close())
	}
	go func() {
		c.err = c.cmd.Wait()
		release()
		close(c.ended)
		c.log.Close()
	}()
	return nil
}

// pipePath is where a process finds what is piped to it: the first file that it inherits besides the usual three.
const pipePath = "/dev/fd/3"

// startPiped starts the process, with a pipe to it if it needs one.
func (c *child) startPiped() (release func(), err error) {
	if c.piped == "" {
		return startGuarded(c.cmd)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	c.cmd.ExtraFiles = []*os.File{read}
	if release, err = startGuarded(c.cmd); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	go func() { // a pipe holds little, and the process may end before it reads
		defer write.Close()
		_, _ = io.WriteString(write, c.piped)
	}()
	return release, nil
}

// reason says how a process has ended, with the end of its output.
func (c *child) reason() error {
	<-c.ended
	status := "exit status 0"
	if c.err != nil {
		status = c.err.Error()
	}
	if said := c.said(); said != "" {
		status += ": " + said
	}
	return fmt.Errorf("%s ended: %s", c, status)
}

// mostSaid bounds how much of a process's output goes into an error.
const mostSaid = 1000

// said returns the end of what the process wrote.
func (c *child) said() string {
	f, err := os.Open(c.log.Name())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(size, mostSaid))
	n, err := f.ReadAt(text, size-int64(len(text)))
	if err != nil && err != io.EOF {
		return err.Error()
	}
	return strings.TrimSpace(string(text[:n]))
}

// line returns the first whole line of what the process wrote that begins with a prefix.
func (c *child) line(prefix string) (string, error) {
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, "\n") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", fmt.Errorf("%s has not printed %s", c, prefix)
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// terminate asks the process to end.
func (c *child) terminate() { _ = c.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

// kill ends the process and those that it has started, and waits for its end.
func (c *child) kill() {
	if !c.hasEnded() {
		killFamily(c.cmd.Process)
	}
	<-c.ended
}

// debianPackages are the packages that have a program.
var debianPackages = map[string]string{
	"redis-server": "redis-server", "redis-benchmark": "redis-tools",
}

// Find returns the path of the first of some programs that is installed. Its error is a line that says how to install
// the first.
func Find(programs ...string) (string, error) {
	var first error
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			return filepath.Abs(path)
		}
		first = cmp.Or(first, missing(name, err))
	}
	return "", first
}

// missing says how to install a program that is not there.
func missing(program string, err error) error {
	name, known := debianPackages[filepath.Base(program)]
	if !known || !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%s is missing: apt-get install %s (macOS: brew install redis)", program, name)
}
