package sim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"

	"neokv.dev/neokv"
)

// roles are the child processes that tests start: the test binary, with the name of the role in its environment.
var roles = map[string]func(){"serve": serveRole, "burn": burnRole}

const roleVariable = "NEOKV_TEST_ROLE"

func TestMain(m *testing.M) {
	Child()
	neokv.LogRaft(io.Discard)
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		role()
		return
	}
	debug.SetGCPercent(400) // a fifth less CPU, as in Child
	os.Exit(m.Run())
}

// notShort skips a test under -short, which has other tests of the same paths.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long simulation")
	}
}

// childProcess is a child in a role. The end of the test kills it; if the parent dies, the input of the child ends.
type childProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	line  string // the first that the child printed
}

// startRole starts a child and waits for the first line that it prints.
func startRole(t *testing.T, role string, env ...string) *childProcess {
	t.Helper()
	p := &childProcess{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if p.line, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("process %s: no first line: %v", role, err)
	}
	p.line = strings.TrimSpace(p.line)
	return p
}

// kill is kill -9. It may be called again.
func (p *childProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// untilOrphaned returns when the parent has died.
func untilOrphaned() { io.Copy(io.Discard, os.Stdin) }

// burnRole keeps a core busy.
func burnRole() {
	fmt.Println("burning")
	go func() {
		untilOrphaned()
		os.Exit(0)
	}()
	for n := 0; ; n++ {
	}
}
