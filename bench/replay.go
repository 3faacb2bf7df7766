package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// This file sends a recording of MONITOR again. One goroutine reads the file and hands each command to one of the
// clients; those that a client of the recording sent go to one client here, in their order. A client sends a command
// when it is due, or, as fast as possible, when the one before is answered. A command counts as offered when a client
// takes it up.

// Replay says to send a recording instead of a workload.
type Replay struct {
	Path string
	// Speed is how many times faster than recorded; 0 sends as fast as possible.
	Speed float64

	facts   workloads.RecordingFacts
	content *results.Content
}

// ReadReplay looks through a recording. The error names the lines that are wrong.
func ReadReplay(path string, speed float64) (*Replay, error) {
	r := &Replay{Path: path, Speed: speed}
	var wrong problems
	wrong.check(speed >= 0 && speed <= 1e6, "speed: %g, want 0 (as fast as possible) to 1e6", speed)
	in, err := os.Open(path)
	if err != nil {
		wrong.add(fmt.Errorf("replay %s: %w", path, errors.Unwrap(err)))
		return nil, errors.Join(wrong...)
	}
	defer in.Close()
	sum := results.NewContentSum()
	r.facts, err = workloads.ReadFacts(path, io.TeeReader(in, sum))
	wrong.add(err)
	r.content = sum.Content()
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	return r, nil
}

// Clients returns how many clients the recording has.
func (r *Replay) Clients() int { return r.facts.Clients }

// warning says which commands are left out, "" if none is.
func (r *Replay) warning() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(r.facts.Skipped)) {
		names = append(names, fmt.Sprintf("%s %q", results.Count(r.facts.Skipped[name]), name))
	}
	if names == nil {
		return ""
	}
	return "the replay leaves out " + strings.Join(names, ", ")
}

// String says how the recording is sent.
func (r *Replay) String() string {
	switch r.Speed {
	case 0:
		return "" // a closed loop
	case 1:
		return "the recording's pace"
	}
	return fmt.Sprintf("%g times the recording's pace", r.Speed)
}

const (
	// replayAhead is how many commands a client of a replay may have waiting, and replayBytes how many bytes all
	// clients of the group.
	replayAhead = 256
	replayBytes = 128 << 20
)

// replayFeed is a recording while it is sent.
type replayFeed struct {
	*Replay
	clients []chan replayedCommand
	held    *semaphore.Weighted // bytes of commands that wait
	failed  chan error          // has room for one
	reached atomic.Int64        // when the last command that was read is due, in the recording's time
}

type replayedCommand struct {
	workloads.Recorded
	bytes int64
}

func newReplayFeed(r *Replay, clients int) *replayFeed {
	f := &replayFeed{Replay: r, held: semaphore.NewWeighted(replayBytes), failed: make(chan error, 1)}
	for range clients {
		f.clients = append(f.clients, make(chan replayedCommand, replayAhead))
	}
	return f
}

// read hands out all commands, and closes the channels of the clients when there are no more or ctx ends.
func (f *replayFeed) read(ctx context.Context) {
	defer func() {
		for _, c := range f.clients {
			close(c)
		}
	}()
	in, err := os.Open(f.Path)
	if err != nil {
		f.failed <- fmt.Errorf("replay %s: %w", f.Path, errors.Unwrap(err))
		return
	}
	defer in.Close()
	rec := workloads.NewRecording(f.Path, in)
	for {
		x, err := rec.Next()
		if err != nil {
			if err != io.EOF { // the file has changed
				f.failed <- err
			}
			return
		}
		c := replayedCommand{Recorded: x}
		for _, a := range x.Args {
			c.bytes += int64(len(a)) + 32
		}
		c.bytes = min(c.bytes, replayBytes)
		f.reached.Store(int64(c.At))
		if f.held.Acquire(ctx, c.bytes) != nil {
			return
		}
		select {
		case f.clients[x.Client%len(f.clients)] <- c:
		case <-ctx.Done():
			return
		}
	}
}

// due returns when a command is to be sent, since the run's epoch; -1 for as soon as possible.
func (f *replayFeed) due(seg *phaseSegment, c *replayedCommand) time.Duration {
	if f.Speed == 0 {
		return -1
	}
	return seg.start + time.Duration(float64(c.At)/f.Speed)
}

// replay sends the commands of one client.
func (w *worker) replay() {
	seg := w.enter()
	f := w.group.feed
	commands := f.clients[w.number]
	var next replayedCommand
	open := false // there is a next command
	for w.free = w.run.now(); ; {
		if !open {
			select {
			case next, open = <-commands:
			case <-w.run.stop:
				w.dropReplay(seg, &next, false)
			}
			if !open {
				return
			}
		}
		due := f.due(seg, &next)
		now := w.run.now()
		if w.run.stopped() {
			w.dropReplay(seg, &next, true)
			return
		}
		if seg.length > 0 && due >= seg.start+seg.length || f.Speed == 0 && w.run.ending.Load() {
			return
		}
		if wait := due - now; wait > 0 {
			w.sleep(wait)
			continue
		}
		w.woke = now
		w.reset()
		taken, size := int64(0), int64(0)
		for open && len(w.batch) < w.group.o.Pipeline && size < maxInFlight && due <= now {
			w.request(&next, due)
			size, taken = size+next.bytes, taken+next.bytes
			select {
			case next, open = <-commands:
			default:
				open = false
			}
			if open {
				due = f.due(seg, &next)
			}
		}
		w.exchange()
		w.count()
		f.held.Release(taken)
		w.free = w.run.now()
	}
}

// dropReplay drops the client's commands that were due when the run stopped, the first of which may be in hand. The
// reader may still be behind; commands come in the order in which they are due.
func (w *worker) dropReplay(seg *phaseSegment, next *replayedCommand, open bool) {
	<-w.run.stop
	f := w.group.feed
	end := w.run.halted
	if seg.length > 0 {
		end = min(end, seg.start+seg.length-1)
	}
	t := w.rec.begin()
	defer w.rec.end()
	for f.Speed > 0 {
		if open {
			due := f.due(seg, next)
			if due > end {
				return
			}
			t.begun++
			t.drop(uint8(workloads.ReplayOp(next.Name)), -1, w.run.halted-due)
			f.held.Release(next.bytes)
		}
		read := seg.start + time.Duration(float64(f.reached.Load())/f.Speed) // before a look at what has come
		select {
		case *next, open = <-f.clients[w.number]:
			if !open {
				return
			}
		default:
			if open = false; read > end {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// request adds a recorded command to the batch.
func (w *worker) request(c *replayedCommand, due time.Duration) {
	w.req.Op = workloads.ReplayOp(c.Name)
	w.req.Steps = append(w.req.Steps[:0], workloads.RequestStep{
		Args: c.Args, Key: c.Key, Effect: workloads.Effect{Kind: -1}})
	w.append(due)
}
