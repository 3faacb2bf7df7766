package neokvtest

import (
	"fmt"
	"strings"
	"sync"
)

// logLines is how many lines an eventLog keeps.
const logLines = 500

// eventLog keeps the last lines that were added. Its methods may run concurrently.
type eventLog struct {
	mu    sync.Mutex
	lines []string
	lost  int
}

func (r *eventLog) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) == logLines {
		r.lines = append(r.lines[:0], r.lines[1:]...)
		r.lost++
	}
	r.lines = append(r.lines, line)
}

// text returns the lines, and how many are lost.
func (r *eventLog) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	if r.lost > 0 {
		fmt.Fprintf(&b, "(%d earlier lines)\n", r.lost)
	}
	for _, line := range r.lines {
		b.WriteString(line + "\n")
	}
	return b.String()
}

// raftErrors has the errors that the Raft library has logged. It logs for the whole process, so they may be of the
// clusters of any test.
var raftErrors = &raftLog{}

type raftLog struct{ eventLog }

// Write is part of io.Writer. It gets a line at a time.
func (l *raftLog) Write(line []byte) (int, error) {
	l.add(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func (l *raftLog) text() string {
	if text := l.eventLog.text(); text != "" {
		return "Errors of the Raft library, of all clusters of this process:\n" + text
	}
	return ""
}
