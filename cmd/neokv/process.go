package main

import (
	"fmt"
	"io"
	"log"
	"runtime"
	"runtime/debug"

	"github.com/lni/dragonboat/v4/logger"
)

// Settings of the whole process. Only this binary touches them; the library leaves its host process as it is.
const (
	// minProcs is the least GOMAXPROCS: a thread blocked in fdatasync keeps its P until the scheduler takes notice, and with two
	// of them the others wait. 2 -> 4 on two cores tripled the writes of 16 regions; more adds nothing.
	minProcs = 4
	// gcPercent trades memory, of which the process has little on the Go heap, for fewer collections.
	gcPercent = 400
)

// tuneProcess sets them, except for what the environment sets, and lets dragonboat log errors only. It may be called once.
func tuneProcess(getenv func(string) string, stderr io.Writer) {
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU()))
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	out := log.New(stderr, "neokv: ", log.LstdFlags|log.Lmsgprefix)
	logger.SetLoggerFactory(func(pkg string) logger.ILogger { return raftLogger{pkg, out} })
}

// raftLogger prints dragonboat's errors.
type raftLogger struct {
	pkg string
	out *log.Logger
}

func (raftLogger) SetLevel(logger.LogLevel) {}
func (raftLogger) Debugf(string, ...any)    {}
func (raftLogger) Infof(string, ...any)     {}
func (raftLogger) Warningf(string, ...any)  {}
func (l raftLogger) Errorf(f string, a ...any) {
	l.out.Printf("raft: %s: %s", l.pkg, fmt.Sprintf(f, a...))
}

// Panicf must not return.
func (l raftLogger) Panicf(f string, a ...any) {
	panic(fmt.Errorf("raft: %s: "+f, append([]any{l.pkg}, a...)...))
}
