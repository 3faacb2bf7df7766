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

// nodeRider returns a rider of a client in JavaScript, by its name in testdata/rider.js.
func nodeRider(client string) func(*testing.T, *Cluster) (rider, error) {
	return func(t *testing.T, c *Cluster) (rider, error) {
		if *clientsNode == "" {
			t.Skip("no -clients.node")
		}
		command := exec.Command("node", append([]string{"testdata/rider.js", client}, c.Addrs()...)...)
		command.Env = append(os.Environ(), "NODE_PATH="+*clientsNode+"/node_modules")
		return programRider(t, command)
	}
}

func redisPyRider(t *testing.T, c *Cluster) (rider, error) {
	if *clientsPython == "" {
		t.Skip("no -clients.python")
	}
	return programRider(t, exec.Command(*clientsPython, append([]string{"testdata/rider.py"}, c.Addrs()...)...))
}

// programRider returns a rider of a client in a program that reads requests and writes replies. A read is asked for
// again where the connection broke, as callers of these clients do.
func programRider(t *testing.T, command *exec.Cmd) (rider, error) {
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		return rider{}, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return rider{}, err
	}
	if err := command.Start(); err != nil {
		return rider{}, err
	}
	t.Cleanup(func() { command.Process.Kill() }) // where the test ends before close
	var (
		mu      sync.Mutex
		last    int
		waiting = make(map[int]chan string)
		ended   = make(chan struct{})
		lines   = bufio.NewScanner(out)
	)
	if !lines.Scan() || lines.Text() != "ready" {
		in.Close()
		return rider{}, fmt.Errorf("%v begins with %q: %w", command.Args, lines.Text(), command.Wait())
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
	ask := func(request string) (n int, err error) {
		reply := make(chan string, 1)
		mu.Lock()
		last++
		waiting[last] = reply
		_, err = fmt.Fprintln(in, last, request)
		mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case said := <-reply:
			if text, failed := strings.CutPrefix(said, "error "); failed {
				if connectionLost.MatchString(text) {
					return 0, fmt.Errorf("%s: %w", text, io.EOF)
				}
				return 0, errors.New(text)
			}
			_, err = fmt.Sscanf(said, "ok %d", &n)
			return n, err
		case <-ended:
			return 0, fmt.Errorf("%v has ended", command.Args)
		}
	}
	return rider{
		set:  func(key string, value int) error { _, err := ask(fmt.Sprint("set ", key, " ", value)); return err },
		incr: func(key string) (int, error) { return ask("incr " + key) },
		get: func(key string) (n int, err error) {
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if n, err = ask("get " + key); !errors.Is(err, io.EOF) || time.Now().After(end) {
					return n, err
				}
			}
		},
		attempts: 20, // more than any of them makes
		close: func() {
			in.Close()
			<-ended
			if err := command.Wait(); err != nil {
				t.Errorf("%v: %v", command.Args, err)
			}
		},
	}, nil
}
