package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neokv.dev/neokv"
)

// ctl runs ctl, and returns its exit status, standard output and standard error.
func ctl(runtime string, args ...string) (int, string, string) {
	stdout, stderr := newOutput(), newOutput()
	p := process{[]string{"XDG_RUNTIME_DIR=" + runtime}, strings.NewReader(""), stdout, stderr}
	status := run(context.Background(), p, append([]string{"ctl"}, args...))
	return status, stdout.String(), stderr.String()
}

func TestCtl(t *testing.T) {
	runtime := t.TempDir()
	if status, _, stderr := ctl(runtime, "status"); status != statusFailed ||
		!strings.Contains(stderr, "no cluster of this user runs") {
		t.Errorf("without a cluster: %d, %q", status, stderr)
	}
	s := startServeIn(t, []string{"XDG_RUNTIME_DIR=" + runtime}, "--mem", "--port", "0")
	control := s.ready[5]
	for _, c := range []struct {
		args   string
		status int
		out    string // a part of standard output, or of standard error if the status is not 0
	}{
		{"status", 0, "127.0.0.1:" + s.ready[0] + "  ok "},
		{"faults", 0, "no faults\n"},
		{"plan", 0, "nothing to do\n"},
		{"plan --json", 0, `"balance": false,`},
		{"kill 2", 0, "kill 2\n"},
		{"status", 0, "  killed  0 "},
		{"status", 0, "2 down"},
		{"kill 2", 1, "neokv: kill 2: store 2 does not run\n"},
		{"restart 2", 0, "no faults\n"},
		{"--control " + control + " clock 2 -500ms", 0, "clock 2 -500ms\n"},
		{"--control 127.0.0.1:" + control + " faults", 0, "clock 2 -500ms\n"},
		{"network 3 regions", 0, "network 3 regions\nclock 2 -500ms\n"},
		{"heal", 0, "no faults\n"},
		{"split 3", 0, "region 3 is split at slot 10240: region 5 has slots 10240-12287\n"},
		{"split 3 8193", 0, "region 3 is split at slot 8193: region 6 has slots 8193-10239\n"},
		{"status", 0, "\n3       8192         3        "},
		{"split 3", 1, "neokv: split 3: region 3 has the single slot 8192\n"},
		{"split 6 8193", 1, "slot 8193 does not divide region 6, which has the slots 8193-10239; want 8194 to 10239\n"},
		{"merge 3", 0, "region 3 has taken region 6 over: it has slots 8192-10239\n"},
		{"merge 6", 2, "neokv: ctl: merge 6: there is no region 6; want one of 1-5\n"},
		{"split 6", 2, "there is no region 6; want one of 1-5\n"},
		{"transfer 6 1", 2, "there is no region 6; want one of 1-5\n"},
		{"merge 4", 1, "neokv: merge 4: region 4 has the last slot: there is no region to its right\n"},
		{"transfer 1 2", 0, "store 2 leads region 1\n"},
		{"split 1 16384", 2, `"16384" is no slot from 1 to 16383; want split REGION [SLOT]`},
		{"merge", 2, "no region; want merge REGION"},
		{"kill 7", 2, `neokv: ctl: fault "kill 7": there is no store 7; want 1 to 3`},
		{"kil 2", 2, `neokv: ctl: unknown verb "kil"; did you mean kill?`},
		{"kill", 2, "no stores; want kill STORES [keep=SHARE] [sync=N]"},
		{"disk 2 hung", 2, `unknown property "hung": want latency=TIME`},
		{"status --format yaml", 2, `--format "yaml": want table or json`},
		{"--control 1 status", 1, "there are:\n"},
		{"", 2, "want a verb"},
	} {
		status, stdout, stderr := ctl(runtime, strings.Fields(c.args)...)
		got := stdout
		if c.status != 0 {
			got = stderr
		}
		if status != c.status || !strings.Contains(got, c.out) {
			t.Errorf("ctl %s: %d, stdout %q, stderr %q; want %d and %q", c.args, status, stdout, stderr, c.status, c.out)
		}
	}
	// A cluster in memory, backed up to the disk and looked at there.
	copied := filepath.Join(t.TempDir(), "copy")
	if status, stdout, stderr := ctl(runtime, "backup", copied); status != 0 ||
		!strings.HasPrefix(stdout, copied+": the cluster as of ") {
		t.Errorf("backup: %d, %q, %q", status, stdout, stderr)
	}
	if status, _, stderr := ctl(runtime, "backup", copied); status != 1 ||
		stderr != "neokv: backup: folder "+copied+" is not empty\n" {
		t.Errorf("backup to the same folder: %d, %q", status, stderr)
	}
	status, stdout, stderr := ctl(runtime, "backup", copied+"2", "--json")
	var made neokv.Backup
	if err := json.Unmarshal([]byte(stdout), &made); status != 0 || err != nil ||
		made.Dir != copied+"2" || made.Bytes == 0 {
		t.Errorf("backup --json: %d, %q, %q: %v", status, stdout, stderr, err)
	}
	looked := neokvRun(t, nil, "inspect", copied)
	if looked.status != 0 || !strings.Contains(looked.stdout, "data folder, made as a backup") ||
		!strings.HasSuffix(looked.stdout, "\nnothing is wrong\n") {
		t.Errorf("inspect: %+v", looked)
	}
	if err := os.Remove(filepath.Join(copied, "store-2", "store.json")); err != nil {
		t.Fatal(err)
	}
	looked = neokvRun(t, nil, "inspect", copied, "--json")
	var found neokv.Inspection
	if err := json.Unmarshal([]byte(looked.stdout), &found); looked.status != statusBroken || err != nil ||
		len(found.Wrong) != 1 || found.Wrong[0].Store != 2 ||
		looked.stderr != "neokv: inspect: 1 wrong in "+copied+"\n" {
		t.Errorf("inspect of a damaged folder: %+v, %v", looked, err)
	}
	if looked = neokvRun(t, nil, "inspect", t.TempDir()); looked.status != statusFailed {
		t.Errorf("inspect of no data folder: %+v", looked)
	}

	_, stdout, _ = ctl(runtime, "status", "--format", "json")
	var told neokv.ClusterStatus
	if err := json.Unmarshal([]byte(stdout), &told); err != nil || len(told.Stores) != 3 {
		t.Errorf("status --format json: %q, %v", stdout, err)
	}

	watching, end := context.WithCancel(context.Background())
	screen := newOutput()
	watched := make(chan int, 1)
	go func() {
		p := process{[]string{"XDG_RUNTIME_DIR=" + runtime}, strings.NewReader(""), screen, newOutput()}
		watched <- run(watching, p, []string{"ctl", "watch"})
	}()
	patient, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !screen.waitFor(patient, "no faults\n") {
		t.Errorf("watch shows %q; want no faults", screen)
	}
	if status, _, stderr := ctl(runtime, "pause", "3"); status != 0 {
		t.Errorf("pause 3: %d, %q", status, stderr)
	}
	if !screen.waitFor(patient, "\npause 3\n") {
		t.Errorf("watch shows %q; want the pause, too", screen)
	}
	end()
	if status := <-watched; status != statusDone {
		t.Errorf("the end of watch: %d; want %d", status, statusDone)
	}
	if status, _, stderr := ctl(runtime, "heal"); status != 0 {
		t.Errorf("heal: %d, %q", status, stderr)
	}

	other := startServeIn(t, []string{"XDG_RUNTIME_DIR=" + runtime}, "--mem", "--port", "0")
	if status, _, stderr := ctl(runtime, "status"); status != statusInvalid ||
		!strings.Contains(stderr, "--control 127.0.0.1:"+control) ||
		!strings.Contains(stderr, "--control 127.0.0.1:"+other.ready[5]) {
		t.Errorf("beside another cluster: %d, %q", status, stderr)
	}
	if status, _, stderr := ctl(runtime, "--control", other.ready[5], "kill", "all"); status != 0 {
		t.Errorf("kill all of the other cluster: %d, %q", status, stderr)
	}
	if status, stdout, _ := ctl(runtime, "--control", control, "faults"); status != 0 || stdout != "no faults\n" {
		t.Errorf("faults of the first cluster: %d, %q", status, stdout)
	}
	other.stop(t)
	s.stop(t)
	if status, _, _ := ctl(runtime, "status"); status != statusFailed {
		t.Errorf("after the end of both: %d", status)
	}
}
