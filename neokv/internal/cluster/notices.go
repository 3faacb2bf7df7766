package cluster

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/parameters"
)

// notices tells events of what clients and their scripts do, bounded in how much.
type notices struct {
	*core

	mu      sync.Mutex
	unknown map[string]bool // see onUnknown
	kept    map[string]bool // see onKept
	since   time.Time       // when the present logEvery began
	lines   int             // that scripts have logged since
}

// shownUnknown bounds how many names of unknown commands events tell, and so the memory for them.
const shownUnknown = 100

// onUnknown tells, once for each name, that a client called a command that no table has.
func (o *notices) onUnknown(name string) {
	o.tellOnce(o.unknown, shownUnknown, name,
		"a client called %s, which NeoKV does not have; docs/commands.md lists what it has")
}

// onKept tells, once for each name, that a client has set a parameter of Redis that has no effect.
func (o *notices) onKept(name string) {
	o.tellOnce(o.kept, len(parameters.All), name,
		"a client set %s, which has no effect in NeoKV; docs/parameters.md lists what each parameter does")
}

// tellOnce tells of a client that used a name, unless told has the name, or as many as most.
func (o *notices) tellOnce(told map[string]bool, most int, name, format string) {
	o.mu.Lock()
	first := !told[name] && len(told) < most
	if first {
		told[name] = true
	}
	o.mu.Unlock()
	if first {
		o.event(eventClient, format, name)
	}
}

// onUndecided returns what tells, at most once a second, that the outcome of writes at a port is unknown.
func (o *notices) onUndecided(port string) func(why string, n uint64) {
	var last atomic.Int64 // Unix ns
	return func(why string, n uint64) {
		now, before := time.Now().UnixNano(), last.Load()
		if now-before >= int64(time.Second) && last.CompareAndSwap(before, now) {
			o.event(eventClient, "%s: %s; its client's connection is closed, the %dth for such a reason", port, why, n)
		}
	}
}

// The bounds of what scripts log.
const (
	logLevel = 2       // Redis's default: notice
	logBytes = 1 << 10 // of a line
	logLines = 10      // in each logEvery
	logEvery = time.Second
)

// logScript tells what a script logs, as far as it is not too much.
func (o *notices) logScript(where string, level int, text string) {
	if level < logLevel {
		return
	}
	o.mu.Lock()
	if now := time.Now(); now.Sub(o.since) >= logEvery {
		o.since, o.lines = now, 0
	}
	o.lines++
	n := o.lines
	o.mu.Unlock()
	switch {
	case n < logLines:
		text = strings.Map(func(r rune) rune {
			if r < ' ' {
				return ' '
			}
			return r
		}, text[:min(len(text), logBytes)])
		o.event(eventScript, "%s: a script logs: %s", where, text)
	case n == logLines:
		o.event(eventScript, "%s: scripts log more than %d lines a second; the others are left out", where, logLines)
	}
}
