package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"neokv.dev/bench"
	"neokv.dev/results"
)

// display shows how far a run has come.
type display interface {
	tick(results.Header, bench.Tick)
	end() // shows what is left
}

// newDisplay returns the live view where standard error is a terminal that can draw it, unless plain asks for lines.
func newDisplay(ctx context.Context, p process, plain bool) display {
	if s, ok := p.stderr.(*screen); ok && !plain && s.draws(p) {
		return startLive(ctx, s, p.env)
	}
	return &progress{w: p.stderr}
}

// linePause is the time between two lines of progress.
const linePause = 5 * time.Second

// progress prints a line every few seconds, and the first and last of each phase.
type progress struct {
	w     io.Writer
	phase string
	shown time.Time // the last line
	held  string    // the last tick, if it has not been printed yet
}

func (p *progress) tick(_ results.Header, t bench.Tick) { p.show(t.Phase, t.String(), time.Now()) }

func (p *progress) show(phase, text string, now time.Time) {
	if phase != p.phase {
		p.end()
		p.phase, p.shown = phase, time.Time{}
	}
	p.held = text
	if now.Sub(p.shown) >= linePause {
		p.shown = now
		p.end()
	}
}

// end prints what was held back.
func (p *progress) end() {
	if p.held != "" {
		fmt.Fprintln(p.w, p.held)
	}
	p.held = ""
}
