package server

import (
	"bytes"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
)

// This file has what a store's port does while it shows clients a migration of slots: see route.Window. Where no window
// is open none of it runs.

// keys are the calls of a task, which name its keys.
func (x *task) keys() []redis.Call {
	if x.unit != nil {
		return x.unit.calls
	}
	return []redis.Call{x.call}
}

// show returns what a decision about calls becomes if the port shows a migration of their slot. known is false if the
// region that has the keys does not say which of them exist: the caller decides again when the table has changed, or a
// moment later.
func (e *executor) show(t *route.Table, d route.Decision, calls []redis.Call) (shown route.Decision, known bool) {
	w := t.Window(e.port, d.Slot)
	if w == nil || !d.Shows(w, e.port, e.caller.asking()) {
		return d, true
	}
	var names [][]byte
	for i := range calls {
		e.positions = calls[i].Command.AppendKeys(e.positions[:0], calls[i].Args)
		for _, p := range e.positions {
			names = append(names, calls[i].Args[p])
		}
	}
	if len(names) == 0 {
		return d, true
	}
	k, known := e.held(t, d, w, names)
	if !known {
		return d, false
	}
	return d.Show(t, w, e.port, k), true
}

// held returns which of some keys the port pretends to have, while it shows a migration of their slot.
func (e *executor) held(t *route.Table, d route.Decision, w *route.Window, names [][]byte) (k route.Keys, known bool) {
	r := &t.Regions[d.Index]
	replica := e.node.Replica(r.Leader, r.ID)
	if replica == nil {
		return k, false
	}
	now := time.Now()
	for _, name := range names[1:] {
		k.Several = k.Several || !bytes.Equal(name, names[0])
	}
	if e.port.Store == w.To && !k.Several {
		return k, true // it is served, whether it exists or not
	}
	run := redis.Run{Version: r.Version, Out: redis.Reply{Proto: 2}}
	here := 0
	for _, name := range names {
		if w.Moved(name, now) == (e.port.Store == w.To) {
			run.Calls = append(run.Calls, redis.Call{Command: redis.Held, Args: [][]byte{[]byte("exists"), name}})
			here++
		}
	}
	if here > 0 {
		if err := replica.Read(&run, now.Add(oneTry)); err != nil || len(run.Ends) != here {
			return k, false
		}
		for _, end := range run.Ends {
			if run.Out.Buf[end-len("1\r\n")] == '1' {
				k.Has++
			}
		}
	}
	k.Lacks = len(names) - k.Has
	return k, true
}
