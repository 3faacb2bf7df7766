package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/gate"
	"neokv.dev/results"
)

// planted is the password that these tests search everything for.
const planted = "pLaNtEd"

// hunt runs the program, and searches for the planted password.
type hunt struct {
	t    *testing.T
	work string // the working folder, with that for temporary files
	file string // of settings, outside of work
	env  []string
	seen map[string]bool // places that have the password
	told bool            // processes are told the password in their environments, on purpose
}

func newHunt(t *testing.T) *hunt {
	h := &hunt{t: t, work: t.TempDir(), file: filepath.Join(t.TempDir(), "settings"), seen: map[string]bool{}}
	for _, dir := range []string{"tmp", "run"} {
		if err := os.Mkdir(filepath.Join(h.work, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.env = append(os.Environ(), programEnv+"=1", "TMPDIR="+filepath.Join(h.work, "tmp"),
		"XDG_RUNTIME_DIR="+filepath.Join(h.work, "run"))
	return h
}

// settings writes the file of --set-from.
func (h *hunt) settings(lines ...string) {
	if err := os.WriteFile(h.file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// search complains of a place that has the password, in any case, once.
func (h *hunt) search(place string, text []byte) {
	if at := bytes.Index(bytes.ToLower(text), []byte(strings.ToLower(planted))); at >= 0 && !h.seen[place] {
		h.seen[place] = true
		h.t.Errorf("%s has the password: %q", place, text[max(0, at-100):min(len(text), at+100)])
	}
}

// processes searches the arguments and the environments of all processes that a process has started and, unless it was
// told the password there, its own.
func (h *hunt) processes(of int, told bool) {
	parents, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		h.t.Fatal(err)
	}
	family := []int{of}
	for grown := true; grown; {
		grown = false
		for _, path := range parents {
			text, err := os.ReadFile(path)
			fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
			if err != nil || len(fields) < 2 {
				continue // it has ended
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			parent, _ := strconv.Atoi(fields[1])
			if slices.Contains(family, parent) && !slices.Contains(family, pid) {
				family, grown = append(family, pid), true
			}
		}
	}
	read := func(pid int, name string) []byte { // nil when it has ended
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		return text
	}
	first := read(of, "cmdline")
	for i, pid := range family {
		arguments := read(pid, "cmdline")
		forked := i > 0 && bytes.Equal(arguments, first) // it is about to become another program
		if forked || i == 0 && told {
			continue
		}
		h.search(fmt.Sprintf("cmdline of process %d in the family", i), arguments)
		if !h.told {
			h.search(fmt.Sprintf("environ of process %d in the family", i), read(pid, "environ"))
		}
	}
}

// files searches what is in the working folder, but for tables and logs of the engines.
func (h *hunt) files() {
	filepath.WalkDir(h.work, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && filepath.Ext(path) != ".sst" && filepath.Ext(path) != ".log" {
			if text, err := os.ReadFile(path); err == nil { // it may have gone
				h.search(path, text)
			}
		}
		return nil
	})
}

// run runs a verb and searches its processes and files all the time, and in the end what it printed. enough ends it, as
// Ctrl-C does, when its standard error has that text; empty for never.
func (h *hunt) run(enough string, told bool, env []string, args ...string) (status int, stdout string) {
	h.t.Helper()
	out, errs := newOutput(), newOutput()
	c := exec.Command(os.Args[0], args...)
	c.Dir, c.Env, c.Stdout, c.Stderr, c.WaitDelay = h.work, append(slices.Clone(h.env), env...), out, errs, patience
	if err := c.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	late := time.After(patience)
	for looking := true; looking; {
		h.processes(c.Process.Pid, told)
		h.files()
		if enough != "" && strings.Contains(errs.String(), enough) {
			c.Process.Signal(os.Interrupt)
			enough = ""
		}
		select {
		case err := <-ended:
			looking = false
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				h.t.Fatal(err)
			}
		case <-late:
			c.Process.Kill()
			h.t.Fatalf("neokv %v does not end: %s", args, errs)
		case <-time.After(20 * time.Millisecond):
		}
	}
	what := "neokv " + strings.ReplaceAll(strings.Join(args, " "), planted, "...")
	h.search("standard output of "+what, []byte(out.String()))
	h.search("standard error of "+what, []byte(errs.String()))
	h.files()
	if status = c.ProcessState.ExitCode(); status != statusDone {
		h.t.Logf("%s: status %d: %s", what, status, errs)
	}
	return status, out.String()
}

// want complains of another exit status.
func (h *hunt) want(want int, enough string, told bool, env []string, args ...string) (stdout string) {
	h.t.Helper()
	got, stdout := h.run(enough, told, env, args...)
	if got != want {
		h.t.Errorf("neokv %v: status %d, want %d", args, got, want)
	}
	return stdout
}

// TestNoVerbShowsPasswords gives the verbs a password in each way that there is. None of it reaches what the verb
// prints, the files that it writes, or the arguments and environments of the processes that it starts.
func TestNoVerbShowsPasswords(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	h := newHunt(t)
	const own, load = "redis.requirepass=" + planted, "load.password=" + planted
	inEnv := []string{"NEOKV_REDIS_REQUIREPASS=" + planted}
	loadInEnv := []string{"NEOKV_LOAD_PASSWORD=" + planted}
	short := strings.Fields("--profile small --workload set --records 100 --clients 2 --warmup 0s")
	verb := func(name string, more ...string) []string { return slices.Concat([]string{name}, short, more) }

	// bench boots a cluster that wants the password.
	boot := func(out string, more ...string) []string {
		return slices.Concat(verb("bench", "--mem", "--duration", "200ms", "--out", out), more)
	}
	h.settings("# for a test", "", own)
	h.want(statusDone, "", false, nil, boot("file.jsonl", "--set-from", h.file)...)
	h.want(statusDone, "", true, nil, boot("set.jsonl", "--set", own)...)
	h.want(statusDone, "", true, inEnv, boot("env.jsonl", "--plain")...)
	for _, command := range []string{"AUTH " + planted, "config set requirepass " + planted, "HELLO 2 AUTH u " + planted,
		"MIGRATE a 1 k 0 9 AUTH " + planted, "ACL SETUSER u >" + planted} {
		h.want(statusInvalid, "", true, nil, boot("at.jsonl", "--at", "100ms "+command)...)
	}
	if text, err := os.ReadFile(filepath.Join(h.work, "set.jsonl")); err != nil ||
		!strings.Contains(string(text), `"--set","redis.requirepass=(set)"`) {
		t.Errorf("the result does not say that there was a password, %v", err)
	}

	// ab hands it on to the processes of its arms.
	ab := func(out string, more ...string) []string {
		return slices.Concat(verb("ab", "--mem", "--rounds", "1", "--block", "100ms", "--out", out), more)
	}
	arms := []string{"--a", "raft.batch_max_ops=1 " + own, "--b", "env=NEOKV_REDIS_REQUIREPASS=" + planted}
	h.want(statusDone, "", true, nil, ab("arms.jsonl", arms...)...)
	h.want(statusDone, "", false, nil, ab("ab.jsonl", "--a", "", "--b", "raft.batch_max_ops=1", "--set-from", h.file)...)
	h.want(statusDone, "", true, inEnv, ab("ab-env.jsonl", "--a", "", "--b", "raft.batch_max_ops=1")...)
	h.want(statusFailed, "", true, nil, ab("broken.jsonl", "--a", own+" program=/bin/false", "--b", "")...)
	page := h.want(statusDone, "", true, nil, ab("page.jsonl", append(arms, "--format", "html")...)...)
	if !strings.Contains(page, "page.html") {
		t.Errorf("ab wrote no page: %q", page)
	}

	// The clusters of these verbs take no password. They are told one for a target, and refuse one for the cluster.
	tune := verb("tune", "--knob", "raft.batch_max_ops=1,512", "--block", "100ms", "--budget", "5m")
	h.settings(load)
	h.want(statusFailed, ", raft.batch_max_ops=", true, loadInEnv, append(tune, "--out", "tune-env.jsonl")...)
	h.want(statusFailed, ", raft.batch_max_ops=", true, nil, append(tune, "--out", "tune.jsonl", "--set", load)...)
	h.want(statusFailed, ", raft.batch_max_ops=", false, nil,
		append(tune, "--out", "tune-file.jsonl", "--set-from", h.file)...)
	h.want(statusInvalid, "", true, nil, append(tune, "--set", own)...)
	h.want(statusInvalid, "", true, nil, append(tune, "--knob", own)...)
	baseline := &gate.Baseline{Format: gate.BaselineFormat, Made: time.Now(), Build: results.NewHeader().Build,
		Runs: gate.FewestRuns, Cases: []gate.CountedCase{{CountCase: smallCase}}}
	err := writeOutput(filepath.Join(h.work, "baseline.json"), os.O_TRUNC, func(w io.Writer) error {
		return results.PrintJSON(w, baseline)
	})
	if err != nil {
		t.Fatal(err)
	}
	check := strings.Fields("check --baseline baseline.json --only counts --junit check.xml --summary check.md " +
		"--history h.jsonl")
	h.run("", true, loadInEnv, append(check, "--set", load, "--env", "NEOKV_LOAD_PASSWORD="+planted)...)
	h.want(statusInvalid, "", true, inEnv, check...)
	h.want(statusInvalid, "", true, nil, append(check, "--env", inEnv[0])...)
	rb := []string{"redis-benchmark", "--rounds", "1", "--spread", "0", "--durability", "none", "--profile", "small"}
	h.run("", true, loadInEnv, slices.Concat(rb, []string{"--set", load, "--", "-t", "set", "-n", "1000"})...)
	h.want(statusInvalid, "", true, nil, append(rb, "--set", own)...)
	h.want(statusDone, "", true, inEnv, "torture", "--seeds", "1", "--duration", "1s", "--log", "torture.jsonl")

	// A target's URL.
	for _, x := range []struct {
		status int
		args   []string
	}{
		{statusFailed, verb("bench", "--target", "redis://u:"+planted+"@127.0.0.1:1", "--out", "target.jsonl")},
		{statusInvalid, verb("bench", "--target", "redis://u:"+planted+"@127.0.0.1:1/9")},
		{statusInvalid, verb("bench", "--target", "redis://u:some,"+planted+"@127.0.0.1:1")},
		{statusInvalid, verb("bench", "--target", "redis://:"+planted+",some@127.0.0.1:1")},
		{statusInvalid, verb("bench", "--user", "v", "--target", "redis://u:"+planted+"@127.0.0.1:1")},
		{statusFailed, []string{"wait", "--timeout", "0s", "rediss://:" + planted + "@127.0.0.1:1"}},
		{statusInvalid, []string{"wait", "redis://u:" + planted + "@127.0.0.1:x"}},
	} {
		h.want(x.status, "", true, nil, x.args...)
	}

	// The command of serve --exec gets the password, in its environment alone.
	h.settings(own)
	h.told = true
	told := h.want(1, "", false, nil, "serve", "--profile", "small", "--mem", "--set-from", h.file, "--exec", "--", "sh",
		"-c",
		`sleep 0.2; test "$REDIS_PASSWORD" = `+strings.ToLower(planted[:4])+`; echo ${#REDIS_PASSWORD}; exit 1`)
	if h.told = false; told != fmt.Sprintln(len(planted)) {
		t.Errorf("serve --exec: the command has a password of %q bytes", told)
	}

	// What shows settings and files.
	shown := h.want(statusDone, "", true, inEnv, "profiles", "show", "default", "--set", load)
	if strings.Count(shown, "(set)") != 2 {
		t.Errorf("profiles show: %s", shown)
	}
	for _, args := range []string{"workloads", "workloads show chat", "profiles", "version", "results set.jsonl env.jsonl",
		"results --format csv set.jsonl", "results --format benchfmt set.jsonl", "results --format hgrm set.jsonl",
		"results --format hlog set.jsonl", "report set.jsonl env.jsonl -o report.html", "report --format md set.jsonl",
		"compare set.jsonl env.jsonl", "compare --format html -o compare.html set.jsonl env.jsonl",
		"history add h2.jsonl set.jsonl env.jsonl", "history show h2.jsonl", "history show h2.jsonl --format html -o h.html",
		"ctl faults"} {
		h.run("", true, inEnv, strings.Fields(args)...)
	}
}

// TestServeShowsNoPassword runs every command of a server that wants a password, and those that have one, and then
// searches all that the server tells of commands. In the end the process dumps its stacks, as at a crash.
func TestServeShowsNoPassword(t *testing.T) {
	h := newHunt(t)
	h.settings("redis.requirepass=" + planted)
	errs := newOutput()
	c := exec.Command(os.Args[0], "serve", "--profile", "small", "--port", "0", "--set-from", h.file)
	out := newOutput()
	c.Dir, c.Env, c.Stdout, c.Stderr = h.work, append(slices.Clone(h.env), "GOTRACEBACK=system"), out, errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	bound, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !out.waitFor(bound, "\n") {
		t.Fatalf("not ready: %s", errs)
	}
	ready := readyForm.FindStringSubmatch(out.String())
	h.processes(c.Process.Pid, false)

	for _, port := range append(strings.Split(ready[2], ","), ready[3]) {
		addr := "127.0.0.1:" + port
		ask := func(words ...string) (string, error) { // on a connection of its own, which gives the password first
			v, err := bench.Ask(t.Context(), addr, planted, words...)
			return fmt.Sprint(v), err
		}
		if got, err := ask("CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "10000"); got != "OK" {
			t.Fatalf("CONFIG SET: %s, %v", got, err)
		}
		monitor, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer monitor.Close()
		monitor.SetDeadline(time.Now().Add(patience))
		lines := bufio.NewReader(monitor)
		fmt.Fprintf(monitor, "AUTH %s\r\nMONITOR\r\n", planted)
		for range 2 {
			if got, err := lines.ReadString('\n'); got != "+OK\r\n" {
				t.Fatalf("a monitor: %q, %v", got, err)
			}
		}
		known, err := bench.Ask(t.Context(), addr, planted, "COMMAND")
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range known.([]any) {
			words, arity := []string{row.([]any)[0].(string)}, int(row.([]any)[1].(int64))
			if slices.Contains([]string{"monitor", "wait"}, words[0]) {
				continue // they do not answer, or late
			}
			for len(words) < max(arity, -arity) {
				words = append(words, "1")
			}
			ask(words...) // most are answered by an error
		}
		for _, words := range []string{
			"AUTH " + planted, "AUTH default " + planted, "AUTH default " + planted + " more", "AUTH",
			"HELLO 2 AUTH default " + planted, "HELLO 2 AUTH default " + planted + " SETNAME me",
			"HELLO 2 SETNAME auth AUTH default " + planted, "HELLO 9 AUTH default " + planted, "HELLO AUTH x " + planted,
			"CONFIG SET timeout 0 requirepass " + planted, "CONFIG SET requirepass " + planted + " nosuch x",
			"CONFIG SET requirepass " + planted + " x", "CONFIG SET requirepas " + planted,
			"CONFIG SET redis.requirepass " + planted, "CONFIG SET " + planted + " requirepass",
			"CONFIG SET masterauth " + planted, "ACL SETUSER x >" + planted, "MIGRATE a 1 k 0 9 AUTH " + planted,
		} {
			ask(strings.Fields(words)...)
		}
		for _, words := range []string{"SLOWLOG GET -1", "CLIENT LIST", "CLIENT INFO", "INFO everything", "LATENCY HISTOGRAM",
			"LATENCY DOCTOR", "LATENCY LATEST", "MEMORY DOCTOR", "COMMAND DOCS", "CLUSTER NODES", "LOLWUT",
			"CONFIG GET redis.*", "CONFIG GET load.*"} {
			got, err := ask(strings.Fields(words)...)
			h.search(words, []byte(got))
			if words == "SLOWLOG GET -1" && (err != nil || strings.Count(got, "[AUTH (redacted)]") < 100) {
				t.Errorf("SLOWLOG GET: %d bytes, %v", len(got), err)
			}
		}
		ask("ECHO", "that-end")
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("MONITOR: %v behind %d lines", err, n)
			}
			if h.search("MONITOR", []byte(line)); strings.Contains(line, "that-end") {
				if n < 100 {
					t.Errorf("MONITOR printed %d lines", n)
				}
				break
			}
		}
	}
	for _, args := range []string{"ctl status", "ctl faults", "ctl kill 2", "ctl status", "ctl restart 2",
		"ctl split 1 5"} {
		h.run("", false, nil, strings.Fields(args)...)
	}
	target := "redis://default:" + planted + "@127.0.0.1:" + ready[1]
	h.want(statusDone, "", true, nil, strings.Fields("bench --workload set --records 100 --clients 2 --warmup 0s "+
		"--duration 100ms --out t.jsonl --json --target "+target)...)
	h.want(statusDone, "", true, nil, "wait", target, "redis://:"+planted+"@127.0.0.1:"+ready[3])
	h.files()
	c.Process.Signal(syscall.SIGQUIT)
	c.Wait()
	if !strings.Contains(errs.String(), "goroutine ") {
		t.Errorf("no stacks: %q", errs)
	}
	h.search("standard error and the stacks", []byte(errs.String()))
	h.search("standard output", []byte(out.String()))
}
