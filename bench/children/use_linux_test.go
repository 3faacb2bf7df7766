package children

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const head = " R 1 2 3 4 5 6 7 8 9 10 "
	page := int64(os.Getpagesize())
	for _, c := range []struct {
		line string
		want Usage
		ok   bool
	}{
		{"12 (sh)" + head + "100 20 3 1 20 0 7 0 999 4096 5 18446744073709551615",
			Usage{CPU: 1240 * time.Millisecond, Memory: 5 * page}, true},
		{"12 (a) (b c)" + head + "1 0 0 0 20 0 7 0 999 4096 1 0", Usage{CPU: 10 * time.Millisecond, Memory: page}, true},
		{"12 (sh)" + head + "1 0 0 0 20 0", Usage{}, false},
		{"12 (sh)" + head + "x 0 0 0 20 0 7 0 999 4096 1 0", Usage{}, false},
		{"", Usage{}, false},
	} {
		got, err := parseStat(c.line)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("parseStat(%q) = %+v, %v; want %+v, %v", c.line, got, err, c.want, c.ok)
		}
	}
}

func TestParseIO(t *testing.T) {
	const before = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\n"
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{before + "read_bytes: 4096\nwrite_bytes: 5\n", 4096, true},
		{before + "read_bytes: x\nwrite_bytes: 5\n", 0, false},
		{before + "read_bytes: 40", 0, false},
		{before, 0, false},
	} {
		if got, err := parseIO(c.text); got != c.want || (err == nil) != c.ok {
			t.Errorf("parseIO(%q) = %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

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
