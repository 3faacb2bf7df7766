package children

import (
	"os/exec"
	"testing"
	"time"
)

// The CPU time of a child's child counts, while it runs and when it has ended. The sum never falls.
func TestUseOfChildren(t *testing.T) {
	c := exec.Command("sh", "-c", "for n in 1 2 3; do sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; done\n"+
		"echo done; read -r _")
	hold, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer hold.Close()
	done := make(chan error, 1)
	go func() {
		_, err := out.Read(make([]byte, 10))
		done <- err
	}()
	for most, over := time.Duration(0), false; ; {
		use, err := processUse(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if use.CPU < most {
			t.Fatalf("CPU time fell from %v to %v", most, use.CPU)
		}
		most = use.CPU
		if over {
			if most < 30*time.Millisecond {
				t.Errorf("three loops of 100,000 took %v", most)
			}
			return
		}
		select {
		case err := <-done:
			if over = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
}
