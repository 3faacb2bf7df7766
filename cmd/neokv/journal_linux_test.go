package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// TestJournalComesBack limits the size of the program's files for a while, so that the journal breaks and the logs do
// not. INFO, status, a load and its report tell of it, and the journal comes back by itself.
func TestJournalComesBack(t *testing.T) {
	p := startProgram(t, "serve", "--port", "0", "--dir", t.TempDir())
	ready := p.fields(t)
	limit := func(bytes uint64) {
		t.Helper()
		next := &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
		if err := unix.Prlimit(p.Process.Pid, unix.RLIMIT_FSIZE, next, nil); err != nil {
			t.Fatal(err)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ready["proxy"]})
	defer c.Close()
	said := func(what string) bool {
		t.Helper()
		info, err := c.Info(t.Context(), "neokv").Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(info, what)
	}
	await := func(what string) {
		t.Helper()
		for end := time.Now().Add(patience); !said(what); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("INFO does not say %q", what)
			}
		}
	}
	own := func(args ...string) string {
		t.Helper()
		command := exec.Command(os.Args[0], args...)
		command.Env = append(os.Environ(), programEnv+"=1")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("neokv %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if !said("journal:shared\r\n") || !said("alone_syncs:0\r\n") {
		t.Error("INFO of a new cluster: want journal:shared and alone_syncs:0")
	}
	result := filepath.Join(t.TempDir(), "run.jsonl")
	out, errs := newOutput(), newOutput()
	load := exec.Command(os.Args[0], "bench", "--target", "127.0.0.1:"+ready["proxy"], "--workload", "set", "--records",
		"10", "--clients", "1", "--rate", "50", "--warmup", "0s", "--duration", "1h", "--plain", "--out", result)
	load.Env, load.Stdout, load.Stderr, load.WaitDelay = append(os.Environ(), programEnv+"=1"), out, errs, patience
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { load.Process.Kill() })
	bound, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !errs.waitFor(bound, "run ") {
		t.Fatalf("no load: %s", errs)
	}
	limit(20 << 20) // the stores' three logs have 16 MiB together with the first half of what follows
	value := strings.Repeat("v", 50_000)
	written := 0
	// untilBroken writes until something tells of the broken journal. The journal is mended after a second, and breaks
	// again when it has grown again.
	untilBroken := func(tells func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !tells(); written++ {
			if time.Now().After(end) {
				t.Fatalf("nothing told of a broken journal, after %d writes", written)
			}
			if err := c.Set(t.Context(), fmt.Sprint("key", written%200), value, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	untilBroken(func() bool { return said("journal:broken: journal: ") })
	const told = "the journal that the stores share is broken"
	untilBroken(func() bool {
		return said("journal:broken: journal: ") &&
			strings.Contains(own("ctl", "status", "--control", ready["control"]), told)
	})
	if said("alone_syncs:0\r\n") {
		t.Error("no sync was counted that a store made for itself")
	}
	load.Process.Signal(os.Interrupt)
	load.Wait() // its status says that it was interrupted
	const marked = "the journal that the stores share was broken: "
	if !strings.Contains(out.String(), "warning: "+marked) {
		t.Errorf("the load printed %s%s; want it to tell of the journal", out, errs)
	}
	page := own("report", "--format", "md", result)
	if !strings.Contains(page, marked) {
		t.Errorf("its report: %s", page)
	}
	limit(unix.RLIM_INFINITY)
	await("journal:shared\r\n")
	if status := own("ctl", "status", "--control", ready["control"]); strings.Contains(status, told) {
		t.Errorf("status after it has come back: %s", status)
	}
	if !said("store_1_state:ok\r\n") || !said("store_2_state:ok\r\n") || !said("store_3_state:ok\r\n") {
		t.Error("a store has failed")
	}
	for i := range min(written, 200) {
		if got, err := c.Get(t.Context(), fmt.Sprint("key", i)).Result(); err != nil || got != value {
			t.Fatalf("GET key%d: %d bytes, %v", i, len(got), err)
		}
	}
	p.Process.Signal(unix.SIGTERM)
	if status := p.status(t); status != statusDone {
		t.Errorf("status %d, %s", status, p.stderr.String())
	}
	printed := p.stderr.String()
	if !strings.Contains(printed, told) || !strings.Contains(printed, "the journal is mended") {
		t.Errorf("serve printed %q; want it to tell of the journal", printed)
	}
}
