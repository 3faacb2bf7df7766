package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a process of a target. It dies with this program.
type server struct {
	cmd *exec.Cmd
	log string // the file with its output
}

// spawn starts a program in a folder of its own. If ready is not empty, spawn waits for a line of standard output that
// begins with it, and returns the line.
func spawn(ctx context.Context, dir, ready, program string, args ...string) (*server, string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, "", err
	}
	defer log.Close()
	s := &server{cmd: exec.CommandContext(ctx, program, args...), log: log.Name()}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if ready == "" {
		return s, "", s.cmd.Start()
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer out.Close()
	s.cmd.Stdout = in
	err = s.cmd.Start()
	in.Close()
	if err != nil {
		return nil, "", err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ready) {
			return s, lines.Text(), nil
		}
	}
	err = fmt.Errorf("%s ended before it was ready: %s", filepath.Base(program), s.said())
	s.kill()
	return nil, "", err
}

// said returns the end of what the process wrote.
func (s *server) said() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b[max(0, len(b)-1000):]))
}

// kill ends the process, as kill -9 does, and waits for its end.
func (s *server) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// use returns the resident memory and the CPU time of a process and its children together.
func (s *server) use() (bytes int64, cpu time.Duration, err error) {
	err = s.each(func(proc string) error {
		stat, err := os.ReadFile(proc + "/stat")
		if err != nil {
			return err
		}
		// The name ends with the last parenthesis. What follows it begins with the third field of proc(5).
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		number := func(field int) int64 {
			n, _ := strconv.ParseInt(fields[field-3], 10, 64)
			return n
		}
		bytes += number(24) * int64(os.Getpagesize())
		cpu += time.Duration(number(14)+number(15)) * time.Second / 100 // USER_HZ is 100 on Linux
		return nil
	})
	return bytes, cpu, err
}

// diskReads returns how many bytes the system has fetched from disks for a process and its children. It does not count
// reads from the page cache.
func (s *server) diskReads() (bytes int64, err error) {
	err = s.each(func(proc string) error {
		io, err := os.ReadFile(proc + "/io")
		if err != nil {
			return err
		}
		_, field, found := strings.Cut(string(io), "\nread_bytes: ")
		field, _, _ = strings.Cut(field, "\n")
		n, err := strconv.ParseInt(field, 10, 64)
		if !found || err != nil {
			return fmt.Errorf("%s/io: read_bytes: %q", proc, io)
		}
		bytes += n
		return nil
	})
	return bytes, err
}

// each calls visit with the folder in /proc of the process and of each of its children.
func (s *server) each(visit func(proc string) error) error {
	for pids := []string{strconv.Itoa(s.cmd.Process.Pid)}; len(pids) > 0; {
		proc := "/proc/" + pids[0]
		if err := visit(proc); err != nil {
			return err
		}
		children, err := filepath.Glob(proc + "/task/*/children")
		if err != nil {
			return err
		}
		pids = pids[1:]
		for _, name := range children {
			b, _ := os.ReadFile(name) // a thread may have ended
			pids = append(pids, strings.Fields(string(b))...)
		}
	}
	return nil
}

// freePorts finds ports on which nobody listens, below those that the system gives to outgoing connections.
func freePorts(n int) (ports []int, err error) {
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, errors.New("no free port between 12000 and 32000")
		}
		port := 12000 + rand.IntN(20000)
		l, err := net.Listen("tcp", addr(port))
		if err != nil {
			continue
		}
		defer l.Close() // not before all are found, so that none is found twice
		ports = append(ports, port)
	}
	return ports, nil
}

func addr(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// loadAverage returns the machine's load average of the last minute.
func loadAverage() float64 {
	f, err := os.Open("/proc/loadavg")
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	first, _, _ := strings.Cut(string(b), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// await calls ask until it returns no error, for at most half a minute.
func await(ctx context.Context, what string, ask func() error) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not after 30 s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
