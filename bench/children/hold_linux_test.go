package children

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// TestHold: a process is stopped and runs on by turns, and runs when it is released.
func TestHold(t *testing.T) {
	c := &child{program: "sh", args: []string{"-c", "while :; do :; done"}}
	if err := c.start(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer c.kill()
	state := func() byte {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return text[bytes.LastIndexByte(text, ')')+2]
	}
	r := &Running{children: []*child{c}}
	release, err := r.Hold(0.5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bool]bool{}
	for turns, stopped := 0, false; turns < 6 || len(seen) < 2; {
		now := state() == 'T'
		if seen[now] = true; now != stopped {
			turns, stopped = turns+1, now
		}
	}
	held, err := release()
	if err != nil || held <= 0 || held >= 1 || state() == 'T' {
		t.Errorf("held for %.3f of the time, %v; the state is %c", held, err, state())
	}
	t.Logf("held for %.3f of the time", held)
	if _, err := (&Running{what: Existing{}}).Hold(0.5); err == nil {
		t.Error("held what this process has not started")
	}
	c.kill()
	if release, err = r.Hold(0.5); err != nil {
		t.Fatal(err)
	}
	if _, err := release(); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}
