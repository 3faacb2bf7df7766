package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// execProgram makes a neokv that runs a shell script, whose $0 is neokv, with --exec. It has no terminal.
func execProgram(t *testing.T, flags, script string) *exec.Cmd {
	args := append([]string{"serve", "--profile", "small", "--mem", "--exec"}, strings.Fields(flags)...)
	c := exec.CommandContext(t.Context(), os.Args[0], append(args, "--", "sh", "-c", script, os.Args[0])...)
	c.Env = append(os.Environ(), programEnv+"=1", "XDG_RUNTIME_DIR="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c
}

// execRun runs such a program to its end.
func execRun(t *testing.T, flags, stdin, script string) result {
	t.Helper()
	c := execProgram(t, flags, script)
	var stdout, stderr strings.Builder
	c.Stdin, c.Stdout, c.Stderr, c.WaitDelay = strings.NewReader(stdin), &stdout, &stderr, patience
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { c.Process.Kill() })
	defer late.Stop()
	if err := c.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return result{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// stays is a script that does not end, but for a test that has gone wrong.
const stays = `n=0; while [ $((n += 1)) -lt 2000 ]; do sleep 0.05; done`

const happened = "neokv: what happened to the cluster:\n"

// TestExec: the command finds the cluster, has the standard files, and neokv says nothing where all goes well.
func TestExec(t *testing.T) {
	got := execRun(t, "", "of stdin", `"$0" client k && echo to stderr >&2`)
	if got != (result{statusDone, "3 stores\nof stdin", "to stderr\n"}) {
		t.Errorf("%+v", got)
	}
	got = execRun(t, "--set redis.requirepass=p@ss --stores 2", "", `"$0" client k; env | sort`)
	for _, want := range []string{"2 stores\n", "\nREDIS_PASSWORD=p@ss\n", "\nREDISCLI_AUTH=p@ss\n",
		"=redis://:p%40ss@127.0.0.1:", "\nSPRING_DATA_REDIS_CLUSTER_NODES=127.0.0.1:"} {
		if !strings.Contains("\n"+got.stdout, want) {
			t.Errorf("with a password: %+v; want %q", got, want)
		}
	}
	if strings.Contains(got.stdout, "\nNEOKV_") {
		t.Errorf("settings reach the command: %s", got.stdout)
	}
}

// TestExecStatus: the status is that of the command, as a shell gives it.
func TestExecStatus(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		script string
		status int
		stderr string // how it begins
	}{
		{"exit 0", 0, ""},
		{"exit 7", 7, happened},
		{"kill -KILL $$", 137, happened},
		{"sleep 3 >/dev/null 2>&1 & exit 0", 0, ""}, // children that the command leaves are left alone
	} {
		if got := execRun(t, "--stores 1", "", c.script); got.status != c.status || got.stdout != "" ||
			!strings.HasPrefix(got.stderr, c.stderr) || (c.stderr == "") != (got.stderr == "") {
			t.Errorf("%s: %+v; want status %d and %q", c.script, got, c.status, c.stderr)
		}
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"--exec", "--", "no-such-program"}, 127, "neokv: serve --exec: no-such-program: command not found\n"},
		{[]string{"--exec", "--", plain}, 126, "neokv: serve --exec: " + plain + ": permission denied\n"},
		{[]string{"--exec", "--", filepath.Dir(plain)}, 126, "neokv: serve --exec: "},
		{[]string{"--exec"}, 2, "neokv: serve --exec: want a command behind --, as in neokv serve --exec -- npm test\n"},
		{[]string{"--exec", "true"}, 2, "neokv: serve --exec: want a command behind --"},
		{[]string{"--", "true"}, 2, `neokv: serve: unexpected argument "true"`},
		{[]string{"--stores", "1", "--port", portOf(busy.Addr().String()), "--exec", "--", "false"}, 1,
			"neokv: address already in use: "},
	} {
		got := neokvRun(t, nil, append([]string{"serve", "--profile", "small", "--mem"}, c.args...)...)
		if got.status != c.status || !strings.HasPrefix(got.stderr, c.stderr) {
			t.Errorf("serve %v: %+v; want status %d and %q", c.args, got, c.status, c.stderr)
		}
	}
	// A signal that stops the boot is no success.
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if got := run(stopped, process{nil, nil, io.Discard, io.Discard}, []string{"serve", "--mem", "--port", "0", "--exec",
		"--", "true"}); got != statusSignal+int(syscall.SIGTERM) {
		t.Errorf("stopped while it boots: status %d", got)
	}
}

// TestExecSignals: the command gets each signal once, and says itself what it means.
func TestExecSignals(t *testing.T) {
	const script = `for s in INT TERM HUP USR1; do trap "echo $s" $s; done; trap "echo QUIT; exit 9" QUIT; echo ready
` + stays
	c := execProgram(t, "--stores 1", script)
	var stderr strings.Builder
	c.Stderr, c.WaitDelay = &stderr, patience
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the command says %q, want %q; %v, %s", lines.Text(), want, lines.Err(), &stderr)
		}
	}
	expect("ready")
	for _, s := range []struct {
		signal syscall.Signal
		says   string
	}{{syscall.SIGINT, "INT"}, {syscall.SIGTERM, "TERM"}, {syscall.SIGHUP, "HUP"}, {syscall.SIGUSR1, "USR1"}} {
		if signal.Ignored(s.signal) { // by who runs the test, such as nohup; then no shell can trap it
			continue
		}
		syscall.Kill(-c.Process.Pid, s.signal) // to our group, and
		c.Process.Signal(s.signal)             // to the process, as timeout(1) does
		expect(s.says)
	}
	c.Process.Signal(syscall.SIGQUIT)
	expect("QUIT")
	if lines.Scan() {
		t.Errorf("the command says %q, too", lines.Text())
	}
	if c.Wait(); c.ProcessState.ExitCode() != 9 || !strings.Contains(stderr.String(), happened) {
		t.Errorf("%v, %s; want status 9", c.ProcessState, &stderr)
	}
}

// TestExecOnATerminal: the command reads from the terminal, and Ctrl-C reaches it once.
func TestExecOnATerminal(t *testing.T) {
	person, terminal := openTerminal(t)
	c := execProgram(t, "--stores 1", `trap "echo interrupted; exit 5" INT; echo ready; read x; echo "got $x"
`+stays)
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	said := newOutput()
	go io.Copy(said, person) // until the end of the test
	bound, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, step := range []struct{ says, types string }{{"ready", "word\n"}, {"got word", "\x03"}} {
		if !said.waitFor(bound, step.says) {
			t.Fatalf("the command says %q, want %q", said, step.says)
		}
		person.WriteString(step.types)
	}
	if c.Wait(); c.ProcessState.ExitCode() != 5 || !said.waitFor(bound, happened[:20]) ||
		strings.Count(said.String(), "interrupted") != 1 {
		t.Errorf("%v, %q; want status 5 and one interrupt", c.ProcessState, said)
	}
}

// TestExecStores: where a store fails, what happened is told in the end; where all do, the command is asked to end.
func TestExecStores(t *testing.T) {
	got := execRun(t, "", "", `"$0" ctl kill 2 >/dev/null && "$0" ctl heal >/dev/null`)
	if got != (result{}) {
		t.Errorf("after a kill on purpose: %+v; want nothing", got)
	}
	const broken = `i=0; "$0" ctl disk %s write-errors >/dev/null; "$0" client k >/dev/null
until [ $((i += 1)) -gt 500 ] || "$0" ctl status --json | grep -q '"failed"'; do sleep 0.05; done; `
	got = execRun(t, "", "", fmt.Sprintf(broken, "3"))
	if got.status != statusDone || got.stdout != "" || !strings.HasPrefix(got.stderr, happened) ||
		!strings.Contains(got.stderr, "store 3 has failed") {
		t.Errorf("store 3 has failed: %+v; want status 0 and what happened", got)
	}
	begin := time.Now()
	got = execRun(t, "", "", fmt.Sprintf(broken, "all")+stays)
	if got.status != statusFailed || !strings.HasSuffix(got.stderr, "neokv: serve --exec: no store is left\n") {
		t.Errorf("all stores have failed, after %s: %+v; want status 1 and why", time.Since(begin), got)
	}
}

// TestExecIgnoresOthers: what an outer environment says of other servers does not reach the command.
func TestExecIgnoresOthers(t *testing.T) {
	w := whereabouts{stores: []string{"127.0.0.1:1"}, proxy: "127.0.0.1:2"}
	for _, e := range w.environ([]string{"REDIS_URL=redis://elsewhere", "REDIS_PASSWORD=other", "HOME=/h",
		"NEOKV_REDIS_REQUIREPASS=x"}) {
		if strings.Contains(e, "elsewhere") || strings.HasPrefix(e, "REDIS_PASSWORD") || strings.HasPrefix(e, "NEOKV_") {
			t.Errorf("the command gets %s", e)
		}
	}
}
