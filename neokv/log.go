package neokv

import (
	"io"
	"sync"

	"neokv.dev/neokv/internal/multiraft"
)

var logOnce sync.Once

// LogRaft makes the Raft library write its errors, and nothing else, to w. The choice holds for the whole process. Call
// LogRaft before the first Start, which makes the library silent if nobody has; only the first call counts.
func LogRaft(w io.Writer) { logOnce.Do(func() { multiraft.LogTo(w) }) }
