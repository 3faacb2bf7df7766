package server

import (
	"bytes"
	"slices"
	"strconv"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file runs commands that concern several regions: those that the proxy port cuts, and those that run in every
// region.

// runWide runs a command alone, in all regions that it concerns.
func (e *executor) runWide(cmd *command) {
	switch {
	case cmd.how != redis.HowEverywhere:
	case e.writesToReplica(cmd):
		return
	default:
		cmd.row.Run.(wide)(e, cmd)
		return
	}
	e.fanOut(cmd, reads, e.addCut)
}

// writesToReplica reports whether a command over all keys would write at the second address of a store, and then says
// so. Other writes are redirected by their keys.
func (e *executor) writesToReplica(cmd *command) bool {
	refused := e.port.Replica && cmd.row.Flags&redis.FlagWrite != 0
	if refused {
		e.out.Error(errReplica)
	}
	return refused
}

// flush is FLUSHALL and FLUSHDB.
func (e *executor) flush(cmd *command) {
	e.fanOut(cmd, writes, func(t *route.Table, cmd *command) {
		e.cuts, e.order = true, nil
		for i := range t.Regions {
			if r := &t.Regions[i]; e.covers(r) {
				e.tasks = append(e.tasks, e.wholeTask(cmd, r.Slots, r.Slots))
			}
		}
	})
}

// fanOut runs a command in several regions and joins the replies. add adds its tasks.
func (e *executor) fanOut(cmd *command, m mode, add func(*route.Table, *command)) {
	e.reset()
	e.alone = true
	t := e.awaitTable(m)
	if t == nil {
		e.out.Error(redis.ErrClusterDown)
		return
	}
	add(t, cmd)
	e.exec(m)
	if e.note(); e.full() {
		e.out.Full = true
		return
	}
	if !e.takeReply() && !e.breaksOff(e.tasks) {
		e.answer(cmd, e.tasks, e.order, e.out)
	}
}

// addCut adds the tasks of a command that the proxy port cuts, and leaves their order as cut does.
func (e *executor) addCut(t *route.Table, cmd *command) {
	if e.order = e.cut(t, cmd); e.order != nil {
		return
	}
	e.add(cmd, false) // all in one region
	x := &e.tasks[len(e.tasks)-1]
	if e.lacksValue(cmd) {
		x.slots = nil // no region has the missing value, so the command's function fails in any
	} else if x.slots != nil {
		x.scope, e.cuts = cutKeys, true
	}
}

// wholeTask returns the task that runs a command of all regions in some slots of a region, in all or in a part.
func (e *executor) wholeTask(cmd *command, slots, region topology.SlotRange) task {
	x := task{
		call: redis.Call{Command: cmd.row, Args: cmd.args}, whole: cmd, slot: slots.First, span: slots,
		scope: wholeSlots, ledOnly: !e.proxy(),
	}
	if slots != region {
		x.call = redis.FlushSlots(slots, x.call) // there is no other command of this kind
	}
	return x
}

// awaitTable returns the slot table. It returns nil if there is none at the pipeline's deadline. For prompt reads it
// does not wait. At a stand-in it returns nil: a client that goes over all stores must not take the slots of this one
// for empty.
func (e *executor) awaitTable(m mode) *route.Table {
	if e.standIn {
		return nil
	}
	deadline := e.arrived.Add(e.knobs.LeaderlessWait)
	for {
		changed := e.node.Changed()
		t := e.node.Table()
		if t != nil || m == promptReads || !e.wait(changed, deadline) {
			return t
		}
	}
}

// covers reports whether commands without keys cover a region. At a store's port they cover the regions that the store
// leads, as a Redis Cluster node covers its slots; at its second address those that it follows; at the proxy port all.
func (e *executor) covers(r *route.LedRegion) bool {
	return e.port.Covers(r) && (e.except == nil || !e.except.Contains(r.Slots.First))
}

// widen answers a command over all keys that has run in a unit: with the unit's part of the reply, that of the region
// with some slots, and with what the other regions answer now.
func (e *executor) widen(cmd *command, part []byte, slots topology.SlotRange) {
	t := e.node.Table()
	if part[0] == '-' || t == nil || !slices.ContainsFunc(t.Regions, func(r route.LedRegion) bool {
		return e.covers(&r) && !slots.Contains(r.Slots.First)
	}) {
		e.out.Buf = append(e.out.Buf, part...)
		return
	}
	start := len(e.out.Buf)
	switch {
	case cmd.row.Split != redis.NoSplit:
		e.except = &slots
		cmd.row.Run.(wide)(e, cmd)
		e.except = nil
		others := bytes.Clone(e.out.Buf[start:])
		if e.out.Buf = e.out.Buf[:start]; len(others) == 0 || others[0] == '-' {
			e.out.Buf = append(e.out.Buf, others...)
			return
		}
		join(cmd.row.Split, []task{{reply: part}, {reply: others}}, nil, e.out)
	case len(cmd.args) > 1 || part[0] == '_' || bytes.HasPrefix(part, []byte("$-1")): // SCAN, or RANDOMKEY without a key
		cmd.row.Run.(wide)(e, cmd)
	default:
		e.out.Buf = append(e.out.Buf, part...)
	}
}

// cut makes one task per region of a command whose arguments are all keys, or keys with values. It returns the task of
// each key, counted from the command's first and valid until the next call, or nil when one region has all keys.
func (e *executor) cut(t *route.Table, cmd *command) (order []int) {
	e.positions = cmd.row.AppendKeys(e.positions[:0], cmd.args)
	if len(e.positions) < 2 || e.lacksValue(cmd) {
		return nil
	}
	if len(e.partOf) < len(t.Regions) {
		e.partOf = make([]int, len(t.Regions)) // by region: its task plus one, until this returns
	}
	first, slots := len(e.tasks), len(e.slots)
	e.order = e.order[:0]
	e.counts = e.counts[:0] // the number of keys of each task
	nobodys := 0            // the task of the keys that lie in no region, plus one
	for _, p := range e.positions {
		slot := topology.SlotOf(cmd.args[p])
		_, region := t.Region(slot)
		of := &nobodys
		if region >= 0 {
			of = &e.partOf[region]
		}
		if *of == 0 {
			e.tasks = append(e.tasks, task{slot: slot, scope: cutKeys})
			e.counts = append(e.counts, 0)
			*of = len(e.counts)
		}
		i := *of - 1
		e.counts[i]++
		e.order = append(e.order, i)
		e.slots = append(e.slots, slot)
	}
	for i := first; i < len(e.tasks); i++ {
		if _, region := t.Region(e.tasks[i].slot); region >= 0 {
			e.partOf[region] = 0
		}
	}
	if len(e.counts) == 1 {
		e.tasks, e.slots = e.tasks[:first], e.slots[:slots]
		return nil
	}
	e.cuts = true
	step := cmd.row.Keys[0].Step
	ofKeys := e.slots[slots:]
	e.slots = slices.Grow(e.slots, len(ofKeys))
	e.args = slices.Grow(e.args, len(e.counts)+step*len(ofKeys))
	for i, n := range e.counts {
		x := &e.tasks[first+i]
		args, at := len(e.args), len(e.slots)
		e.args, e.slots = e.args[:args+1+step*n], e.slots[:at+n]
		e.args[args] = cmd.args[0]
		x.call = redis.Call{Command: cmd.row, Args: e.args[args : args+1 : len(e.args)]}
		x.slots = e.slots[at:at:len(e.slots)]
	}
	for k, i := range e.order {
		x, p := &e.tasks[first+i], e.positions[k]
		x.call.Args = append(x.call.Args, cmd.args[p:p+step]...)
		x.slots = append(x.slots, ofKeys[k])
	}
	return e.order
}

// recut cuts the open tasks anew whose slots no longer lie in one region of the table. Regions are split and merged
// while a command waits, or has run in some of its regions only. A task that is open was provably not applied. So in the
// end its slots are run exactly once, however often they change hands, and no other slots are.
func (e *executor) recut(t *route.Table) {
	if !e.cuts || t == nil {
		return
	}
	for i := 0; i < len(e.tasks); i++ {
		x := &e.tasks[i]
		if x.outcome != open || x.scope == fixedKeys {
			continue
		}
		region, _ := t.Region(x.slot)
		switch x.scope {
		case walkedSlots:
			if region != nil && x.span.Last > region.Slots.Last {
				x.outcome = scattered
			}
		case wholeSlots:
			pieces := e.cutSlots(t, x)
			e.replace(i, pieces)
			i += len(pieces) - 1
		case cutKeys:
			if region != nil && containsAll(region.Slots, x.slots) {
				continue
			}
			pieces, of := cutTask(t, x)
			if len(e.ends) == 0 { // a command that runs alone
				e.reorder(i, len(pieces), of)
			}
			e.replace(i, pieces)
			i += len(pieces) - 1
		}
	}
}

func containsAll(r topology.SlotRange, slots []topology.Slot) bool {
	return !slices.ContainsFunc(slots, func(s topology.Slot) bool { return !r.Contains(s) })
}

// cutSlots returns the tasks that do what x does, one for each region that has some of its slots. Slots without a
// region are one task, too, which fails.
func (e *executor) cutSlots(t *route.Table, x *task) (pieces []task) {
	for at := x.span.First; ; {
		slots := topology.SlotRange{First: at, Last: at}
		of := slots
		if r, _ := t.Region(at); r != nil {
			of, slots.Last = r.Slots, min(r.Slots.Last, x.span.Last)
		} else {
			for slots.Last < x.span.Last {
				if r, _ := t.Region(slots.Last + 1); r != nil {
					break
				}
				slots.Last++
			}
		}
		pieces = append(pieces, e.wholeTask(x.whole, slots, of))
		if slots.Last >= x.span.Last {
			return pieces
		}
		at = slots.Last + 1
	}
}

// cutTask returns the tasks that do what x does, one for each region that has some of its keys, and the task of each
// key. It copies what it needs of x.
func cutTask(t *route.Table, x *task) (pieces []task, of []int) {
	row := x.call.Command
	step := row.Keys[0].Step
	taskOf := map[int]int{} // by index of the region in the table; all keys without a region are one task
	for k, slot := range x.slots {
		_, region := t.Region(slot)
		i, ok := taskOf[region]
		if !ok {
			i, taskOf[region] = len(pieces), len(pieces)
			pieces = append(pieces, task{
				call: redis.Call{Command: row, Args: [][]byte{x.call.Args[0]}}, slot: slot, scope: cutKeys,
			})
		}
		p := &pieces[i]
		p.call.Args = append(p.call.Args, x.call.Args[1+k*step:1+(k+1)*step]...)
		p.slots = append(p.slots, slot)
		of = append(of, i)
	}
	return pieces, of
}

// reorder makes b.order name the tasks as they are after task i has been cut into so many; of has the piece of each of
// its keys. Only commands that run alone have an order. Replies of those that run together are sums, or OK.
func (e *executor) reorder(i, pieces int, of []int) {
	if e.order == nil { // the task had all keys
		e.order = make([]int, len(of))
	}
	for k, at := range e.order {
		switch {
		case at == i:
			e.order[k], of = i+of[0], of[1:]
		case at > i:
			e.order[k] += pieces - 1
		}
	}
}

// replace puts tasks in the place of task i.
func (e *executor) replace(i int, with []task) {
	e.tasks = slices.Replace(e.tasks, i, i+1, with...)
	for k, end := range e.ends {
		if end > i {
			e.ends[k] = end + len(with) - 1
		}
	}
}

// lacksValue reports whether the last key in positions has no value (MSET).
func (e *executor) lacksValue(cmd *command) bool {
	n := len(e.positions)
	return n > 0 && e.positions[n-1]+cmd.row.Keys[0].Step != len(cmd.args)
}

// join makes one reply of the tasks' replies, none of which is an error.
func join(how redis.Split, tasks []task, order []int, out *redis.Reply) {
	switch how {
	case redis.SplitOK:
		out.OK()
	case redis.SplitSum:
		sum := int64(0)
		for i := range tasks {
			if tasks[i].outcome != gone {
				n, _ := strconv.ParseInt(string(bytes.TrimSpace(tasks[i].reply[1:])), 10, 64)
				sum += n
			}
		}
		out.Int(sum)
	case redis.SplitArray:
		rest := make([][]byte, len(tasks))
		for i := range tasks {
			_, rest[i] = header(tasks[i].reply)
		}
		out.Array(len(order))
		for _, i := range order {
			n := replyLen(rest[i])
			out.Buf = append(out.Buf, rest[i][:n]...)
			rest[i] = rest[i][n:]
		}
	case redis.SplitJoin:
		sum := 0
		for i := range tasks {
			if tasks[i].outcome != gone {
				n, _ := header(tasks[i].reply)
				sum += n
			}
		}
		out.Array(sum)
		for i := range tasks {
			if tasks[i].outcome != gone {
				_, rest := header(tasks[i].reply)
				out.Buf = append(out.Buf, rest...)
			}
		}
	default:
		panic("a command that is not split has several tasks")
	}
}

// header returns the number in a reply's first line, and what follows the line.
func header(reply []byte) (n int, rest []byte) {
	end := bytes.IndexByte(reply, '\n')
	n, _ = strconv.Atoi(string(reply[1 : end-1]))
	return n, reply[end+1:]
}

// replyLen is the length in bytes of the first reply in b. The reply is well formed.
func replyLen(b []byte) int {
	n, rest := header(b)
	at := len(b) - len(rest)
	switch b[0] {
	case '$', '=', '!':
		if n >= 0 {
			at += n + 2
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for ; n > 0; n-- {
			at += replyLen(b[at:])
		}
	}
	return at
}
