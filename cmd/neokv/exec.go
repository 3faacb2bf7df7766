package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/neokv"
	"neokv.dev/profiles"
)

// This file is serve --exec: a cluster for as long as a command runs.

// Exit statuses of a shell that serve --exec gives, too.
const (
	statusCannotRun = 126
	statusNoProgram = 127
	statusSignal    = 128 // and the number of the signal
)

// execVariable is a variable in which the command of --exec finds the cluster. A value of "" sets none.
type execVariable struct {
	name  string
	value func(whereabouts) string
}

// execVariables are those that programs and frameworks commonly read; docs/ci.md says who reads which.
var execVariables = []execVariable{
	{"REDIS_URL", whereabouts.proxyURL},
	{"REDIS_PROXY_URL", whereabouts.proxyURL},
	{"REDIS_HOST", func(w whereabouts) string { host, _, _ := net.SplitHostPort(w.proxy); return host }},
	{"REDIS_PORT", func(w whereabouts) string { return portOf(w.proxy) }},
	{"REDIS_ADDR", func(w whereabouts) string { return w.proxy }},
	{"REDIS_PASSWORD", whereabouts.secret},
	{"REDISCLI_AUTH", whereabouts.secret},
	{"REDIS_CLUSTER_URL", func(w whereabouts) string { return w.url(w.stores[0]) }},
	{"REDIS_CLUSTER_NODES", whereabouts.nodes},
	{"REDIS_ADDRS", whereabouts.nodes},
	{"SPRING_DATA_REDIS_CLUSTER_NODES", whereabouts.nodes},
	{"SPRING_DATA_REDIS_PASSWORD", whereabouts.secret},
	{"SPRING_REDIS_CLUSTER_NODES", whereabouts.nodes},
	{"SPRING_REDIS_PASSWORD", whereabouts.secret},
	{"QUARKUS_REDIS_HOSTS", whereabouts.urls},
	{"QUARKUS_REDIS_CLIENT_TYPE", func(whereabouts) string { return "cluster" }},
	{"REDIS_URIS", whereabouts.urls},
	{controlVariable, func(w whereabouts) string { return w.control }},
}

// execNames lists the variables for the help.
func execNames() string {
	var names []string
	for _, v := range execVariables {
		names = append(names, v.name)
	}
	return strings.Join(names, ", ")
}

// whereabouts say where the command of --exec reaches the cluster.
type whereabouts struct {
	stores         []string // host:port
	proxy, control string
	password       string
}

// whereIs returns where a process of this machine reaches a cluster.
func whereIs(cluster *neokv.Cluster, ctl control) whereabouts {
	w := whereabouts{proxy: local(cluster.ProxyAddr()), password: cluster.Settings().Redis.RequirePass}
	for _, addr := range cluster.Addrs() {
		w.stores = append(w.stores, local(addr))
	}
	if ctl.Port != nil {
		w.control = ctl.Addr()
	}
	return w
}

// local returns an address with a loopback host where it has an unspecified one: all addresses are those of IPv4, too,
// while a container often has no IPv6.
func local(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	if !net.ParseIP(host).IsUnspecified() {
		return addr
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func (w whereabouts) secret() string   { return w.password }
func (w whereabouts) nodes() string    { return strings.Join(w.stores, ",") }
func (w whereabouts) proxyURL() string { return w.url(w.proxy) }

func (w whereabouts) url(addr string) string {
	u := url.URL{Scheme: "redis", Host: addr}
	if w.password != "" {
		u.User = url.UserPassword("", w.password)
	}
	return u.String()
}

func (w whereabouts) urls() string {
	var all []string
	for _, addr := range w.stores {
		all = append(all, w.url(addr))
	}
	return strings.Join(all, ",")
}

// environ returns an environment with the variables of --exec. It takes the names of those without a value away, so
// that the command does not find another server there.
func (w whereabouts) environ(env []string) []string {
	out, _ := profiles.SplitVariables(env)
	for _, v := range execVariables {
		out = without(out, v.name)
		if value := v.value(w); value != "" {
			out = append(out, v.name+"="+value)
		}
	}
	return out
}

func without(env []string, name string) (out []string) {
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return out
}

// execute boots the cluster, runs a command with it, and returns a statusError with the status of the command.
func (f *serveFlags) execute(c *cobra.Command, p process, args []string) (err error) {
	signals := make(chan os.Signal, 16)
	notifyAll(signals)
	defer signal.Stop(signals)
	program, err := findProgram(args[0])
	if err != nil {
		return err
	}
	if !c.Flags().Changed("port") {
		f.port = 0
	}
	said := new(keptLog)
	release := said.hold(p.stderr)
	defer func() {
		release()
		if err != nil || said.wrong.Load() { // an error is also that the command has failed
			said.print(p.stderr)
		}
	}()
	quiet := p
	quiet.stderr = said
	cluster, ctl, stop, err := f.start(c, quiet, said.event)
	if c.Context().Err() != nil { // a signal stops the boot
		if err == nil {
			err = stop()
		}
		return errors.Join(&statusError{status: statusSignal + stoppedBy(signals)}, err)
	}
	if err != nil {
		return err
	}
	child := &exec.Cmd{Path: program, Args: args, Env: whereIs(cluster, ctl).environ(p.env),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	err = runWith(cluster, child, signals)
	signal.Stop(signals) // from here on a signal ends neokv at once
	return errors.Join(err, stop())
}

// stoppedBy returns the number of the signal that has stopped the boot.
func stoppedBy(signals <-chan os.Signal) int {
	late := time.After(sameSignal)
	for {
		select {
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && (n == syscall.SIGINT || n == syscall.SIGTERM || n == syscall.SIGHUP) {
				return int(n)
			}
		case <-late: // a caller has ended the context
			return int(syscall.SIGTERM)
		}
	}
}

// findProgram returns the path of a program. Its error has the status that a shell gives.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil && !filepath.IsAbs(path) {
		path, err = filepath.Abs(path)
	}
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &statusError{statusNoProgram, fmt.Sprintf("serve --exec: %s: command not found", name)}
	}
	return "", &statusError{statusCannotRun, fmt.Sprintf("serve --exec: %s: %v", name, cmp.Or(errors.Unwrap(err), err))}
}

// runWith runs a command, hands signals on to it, and returns a statusError with its status, nil for 0. If no store is
// left, the command is asked to end.
func runWith(cluster *neokv.Cluster, child *exec.Cmd, signals <-chan os.Signal) error {
	send, err := startChild(child)
	if err != nil {
		return &statusError{statusCannotRun, fmt.Sprintf("serve --exec: %v", err)}
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	var noStore error
	sent := make(map[os.Signal]time.Time)
	for {
		select {
		case s := <-signals:
			if time.Since(sent[s]) >= sameSignal { // the same one to our group may come late, even behind another
				sent[s] = time.Now()
				send(s)
			}
		case <-cluster.Failed(): // an event has told of it
			if noStore = anyLeft(cluster); noStore != nil {
				send(syscall.SIGTERM)
			}
		case err := <-ended:
			if err != nil && child.ProcessState == nil {
				return err
			}
			status := exitStatusOf(child.ProcessState)
			switch {
			case noStore != nil:
				return &statusError{statusFailed, "serve --exec: " + noStore.Error()}
			case status != statusDone:
				return &statusError{status: status}
			}
			return nil
		}
	}
}

// keptLines is how many lines a keptLog keeps.
const keptLines = 500

// keptLog keeps the last lines of what is said of a cluster, until something fails. Its methods may run concurrently.
type keptLog struct {
	mu    sync.Mutex
	lines []string
	lost  int
	wrong atomic.Bool // a store has failed
}

func (l *keptLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == keptLines {
		l.lines = append(l.lines[:0], l.lines[1:]...)
		l.lost++
	}
	l.lines = append(l.lines, line)
}

func (l *keptLog) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		l.add(strings.TrimSuffix(string(line), "\n"))
	}
	return len(b), nil
}

// event adds an event of the cluster.
func (l *keptLog) event(e neokv.ClusterEvent) {
	l.add(e.String())
	if e.Kind == neokv.EventFailure {
		l.wrong.Store(true)
	}
}

// hold keeps what others write to standard error, until release is called.
func (l *keptLog) hold(stderr io.Writer) (release func()) {
	if s, ok := stderr.(*screen); ok {
		return s.hold(l)
	}
	return func() {}
}

// print prints what is kept, if there is anything.
func (l *keptLog) print(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return
	}
	fmt.Fprintln(w, "neokv: what happened to the cluster:")
	if l.lost > 0 {
		fmt.Fprintf(w, "(%d earlier lines)\n", l.lost)
	}
	for _, line := range l.lines {
		fmt.Fprintln(w, line)
	}
}
