package neokv

import (
	"fmt"
	"io"
	"log"
	"sync"

	"github.com/lni/dragonboat/v4/logger"
)

var logOnce sync.Once

// LogRaft makes the Raft library write its errors, and nothing else, to w. The choice holds for the whole process. Call
// LogRaft before the first Start, which makes the library silent if nobody has; only the first call counts.
func LogRaft(w io.Writer) {
	logOnce.Do(func() {
		out := log.New(w, "neokv: ", log.LstdFlags|log.Lmsgprefix)
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return raftLogger{pkg, out} })
	})
}

// raftLogger prints errors.
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
