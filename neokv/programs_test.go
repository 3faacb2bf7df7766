package neokv

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tests need Go alone, so clients in other languages are only used where flags name them. .ci/clients installs them.
var (
	clientsNode   = flag.String("clients.node", "", "folder whose node_modules has ioredis and redis, for tests with them")
	clientsPython = flag.String("clients.python", "", "interpreter that has redis-py, for tests with it")
)

// connectionLost are errors by which clients in other languages say that a connection broke or could not be opened.
// redis-py's IndexError is among them: it takes turns at the nodes of a slot, and fails once where these are fewer than
// they were.
var connectionLost = regexp.MustCompile(`^((Connection|Disconnects|Client|Socket|Timeout)\w*Error: ` +
	`|Error: ((connect|read|write) E[A-Z]+|Connection is closed)|IndexError: list index out of range)`)

// nodeProgram is a client in JavaScript, by its name in testdata/rider.js. Without -clients.node the test is skipped.
func nodeProgram(t *testing.T, c *Cluster, client string) *exec.Cmd {
	if *clientsNode == "" {
		t.Skip("no -clients.node")
	}
	command := exec.Command("node", append([]string{"testdata/rider.js", client}, c.Addrs()...)...)
	command.Env = append(os.Environ(), "NODE_PATH="+*clientsNode+"/node_modules")
	return command
}

// nodeRider returns a rider of a client in JavaScript, by its name in testdata/rider.js.
func nodeRider(client string) func(*testing.T, *Cluster) (rider, error) {
	return func(t *testing.T, c *Cluster) (rider, error) {
		return programRider(t, nodeProgram(t, c, client))
	}
}

func redisPyRider(t *testing.T, c *Cluster) (rider, error) {
	if *clientsPython == "" {
		t.Skip("no -clients.python")
	}
	return programRider(t, exec.Command(*clientsPython, append([]string{"testdata/rider.py"}, c.Addrs()...)...))
}

// programRider returns a rider of a client in a program. A read is asked for again where the connection broke, as
// callers of these clients do.
func programRider(t *testing.T, command *exec.Cmd) (rider, error) {
	ask, end, err := startProgram(t, command)
	if err != nil {
		return rider{}, err
	}
	number := func(request ...any) (n int, err error) {
		reply, err := ask(request...)
		if err == nil && reply != "" {
			n, err = strconv.Atoi(reply)
		}
		return n, err
	}
	return rider{
		set:  func(key string, value int) error { _, err := ask("set", key, value); return err },
		incr: func(key string) (int, error) { return number("incr", key) },
		get: func(key string) (n int, err error) {
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if n, err = number("get", key); !errors.Is(err, io.EOF) || time.Now().After(end) {
					return n, err
				}
			}
		},
		attempts: 20, // more than any of them makes
		close:    end,
	}, nil
}

// startProgram starts a program that reads requests and writes replies, a line each. ask returns the reply to a request
// of some words, "" for none; where the connection to the cluster broke, the error is io.EOF. end ends the program.
func startProgram(t *testing.T, command *exec.Cmd) (ask func(request ...any) (string, error), end func(), err error) {
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { command.Process.Kill() }) // where the test ends before end
	var (
		mu      sync.Mutex
		last    int
		waiting = make(map[int]chan string)
		ended   = make(chan struct{})
		lines   = bufio.NewScanner(out)
	)
	if !lines.Scan() || lines.Text() != "ready" {
		in.Close()
		return nil, nil, fmt.Errorf("%v begins with %q: %w", command.Args, lines.Text(), command.Wait())
	}
	go func() {
		defer close(ended)
		for lines.Scan() {
			id, said, _ := strings.Cut(lines.Text(), " ")
			n := 0
			fmt.Sscan(id, &n)
			mu.Lock()
			reply := waiting[n]
			delete(waiting, n)
			mu.Unlock()
			if reply != nil {
				reply <- said
			}
		}
	}()
	ask = func(request ...any) (string, error) {
		reply := make(chan string, 1)
		mu.Lock()
		last++
		waiting[last] = reply
		_, err := fmt.Fprintln(in, append([]any{last}, request...)...)
		mu.Unlock()
		if err != nil {
			return "", err
		}
		select {
		case said := <-reply:
			if text, failed := strings.CutPrefix(said, "error "); failed {
				if connectionLost.MatchString(text) {
					return "", fmt.Errorf("%s: %w", text, io.EOF)
				}
				return "", errors.New(text)
			}
			text, ok := strings.CutPrefix(said, "ok ")
			if !ok {
				return "", fmt.Errorf("%v replies %q", command.Args, said)
			}
			return text, nil
		case <-ended:
			return "", fmt.Errorf("%v has ended", command.Args)
		}
	}
	return ask, func() {
		in.Close()
		<-ended
		if err := command.Wait(); err != nil {
			t.Errorf("%v: %v", command.Args, err)
		}
	}, nil
}
