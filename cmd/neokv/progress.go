package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"neokv.dev/bench"
)

// linePause is the time between two lines of progress if standard error is no terminal.
const linePause = 5 * time.Second

// progress shows how far a run has come: on a terminal one line that changes, else a line every few seconds and the
// first and last of each phase.
type progress struct {
	w     io.Writer
	live  bool
	phase string
	shown time.Time // the last line
	held  string    // the last tick, if it has not been printed yet
}

func newProgress(w io.Writer) *progress {
	live := false
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return &progress{w: w, live: live}
}

func (p *progress) tick(t bench.Tick) { p.show(t.Phase, t.String(), time.Now()) }

func (p *progress) show(phase, text string, now time.Time) {
	if phase != p.phase {
		p.end()
		p.phase, p.shown = phase, time.Time{}
	}
	p.held = text
	if p.live {
		fmt.Fprintf(p.w, "\r\x1b[K%s", text)
	} else if now.Sub(p.shown) >= linePause {
		p.shown = now
		p.end()
	}
}

// end finishes the line.
func (p *progress) end() {
	if p.held == "" {
		return
	}
	if p.live {
		fmt.Fprintln(p.w)
	} else {
		fmt.Fprintln(p.w, p.held)
	}
	p.held = ""
}
