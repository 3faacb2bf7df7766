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

// runFanOut runs a command in every region that its keys lie in, or that this server covers, and joins the replies.
func (c *conn) runFanOut(cmd *command) {
	m := reads
	if cmd.row.Write != nil {
		m = writes
	}
	b := &c.batch
	b.reset()
	b.alone = true
	t := c.awaitTable(m)
	if t == nil {
		c.out.Error(redis.ErrClusterDown)
		return
	}
	if cmd.row.Everywhere {
		b.cuts, b.order = true, nil
		for i := range t.Regions {
			if r := &t.Regions[i]; c.covers(r) {
				b.tasks = append(b.tasks, b.wholeTask(cmd, r.Slots, r.Slots))
			}
		}
	} else {
		b.addCut(t, cmd)
	}
	b.exec(m)
	if b.note(); b.full() {
		c.out.Full = true
		return
	}
	if !b.takeReply() {
		b.answer(cmd, b.tasks, b.order, &c.out)
	}
}

// addCut adds the tasks of a command that the proxy port cuts, and leaves their order as cut does.
func (b *batch) addCut(t *route.Table, cmd *command) {
	if b.order = b.cut(t, cmd); b.order != nil {
		return
	}
	b.add(cmd, false) // all in one region
	x := &b.tasks[len(b.tasks)-1]
	if b.lacksValue(cmd) {
		x.slots = nil // no region has the missing value, so the command's function fails in any
	} else if x.slots != nil {
		x.scope, b.cuts = cutKeys, true
	}
}

// wholeTask returns the task that runs a command of all regions in some slots of a region, in all or in a part.
func (b *batch) wholeTask(cmd *command, slots, region topology.SlotRange) task {
	x := task{
		call: redis.Call{Command: cmd.row, Args: cmd.args}, whole: cmd, slot: slots.First, span: slots,
		scope: wholeSlots, ledOnly: !b.c.s.proxy(),
	}
	if slots != region {
		x.call = redis.FlushSlots(slots, x.call) // there is no other command of this kind
	}
	return x
}

// awaitTable returns the slot table. It returns nil if there is none at the pipeline's deadline. For prompt reads it
// does not wait. At a stand-in it returns nil: a client that goes over all stores must not take the slots of this one
// for empty.
func (c *conn) awaitTable(m mode) *route.Table {
	if c.s.o.StandIn {
		return nil
	}
	deadline := c.arrived.Add(c.s.o.Settings.Redis.LeaderlessWait)
	for {
		changed := c.s.o.Node.Changed()
		t := c.s.o.Node.Table()
		if t != nil || m == promptReads || !c.batch.wait(changed, deadline) {
			return t
		}
	}
}

// covers reports whether commands without keys cover a region. At a store's port they cover the regions that the store
// leads, as a Redis Cluster node covers its slots; at the proxy port all.
func (c *conn) covers(r *route.LedRegion) bool { return c.s.proxy() || r.Leader == c.s.o.Self }

// cut makes one task per region of a command whose arguments are all keys, or keys with values. It returns the task of
// each key, counted from the command's first and valid until the next call, or nil when one region has all keys.
func (b *batch) cut(t *route.Table, cmd *command) (order []int) {
	b.positions = cmd.row.AppendKeys(b.positions[:0], cmd.args)
	if len(b.positions) < 2 || b.lacksValue(cmd) {
		return nil
	}
	if len(b.partOf) < len(t.Regions) {
		b.partOf = make([]int, len(t.Regions)) // by region: its task plus one, until this returns
	}
	first, slots := len(b.tasks), len(b.slots)
	b.order = b.order[:0]
	b.counts = b.counts[:0] // the number of keys of each task
	nobodys := 0            // the task of the keys that lie in no region, plus one
	for _, p := range b.positions {
		slot := topology.SlotOf(cmd.args[p])
		_, region := t.Region(slot)
		of := &nobodys
		if region >= 0 {
			of = &b.partOf[region]
		}
		if *of == 0 {
			b.tasks = append(b.tasks, task{slot: slot, scope: cutKeys})
			b.counts = append(b.counts, 0)
			*of = len(b.counts)
		}
		i := *of - 1
		b.counts[i]++
		b.order = append(b.order, i)
		b.slots = append(b.slots, slot)
	}
	for i := first; i < len(b.tasks); i++ {
		if _, region := t.Region(b.tasks[i].slot); region >= 0 {
			b.partOf[region] = 0
		}
	}
	if len(b.counts) == 1 {
		b.tasks, b.slots = b.tasks[:first], b.slots[:slots]
		return nil
	}
	b.cuts = true
	step := cmd.row.Keys[0].Step
	ofKeys := b.slots[slots:]
	b.slots = slices.Grow(b.slots, len(ofKeys))
	b.args = slices.Grow(b.args, len(b.counts)+step*len(ofKeys))
	for i, n := range b.counts {
		x := &b.tasks[first+i]
		args, at := len(b.args), len(b.slots)
		b.args, b.slots = b.args[:args+1+step*n], b.slots[:at+n]
		b.args[args] = cmd.args[0]
		x.call = redis.Call{Command: cmd.row, Args: b.args[args : args+1 : len(b.args)]}
		x.slots = b.slots[at:at:len(b.slots)]
	}
	for k, i := range b.order {
		x, p := &b.tasks[first+i], b.positions[k]
		x.call.Args = append(x.call.Args, cmd.args[p:p+step]...)
		x.slots = append(x.slots, ofKeys[k])
	}
	return b.order
}

// recut cuts the open tasks anew whose slots no longer lie in one region of the table. Regions are split and merged
// while a command waits, or has run in some of its regions only. A task that is open was provably not applied. So in the
// end its slots are run exactly once, however often they change hands, and no other slots are.
func (b *batch) recut(t *route.Table) {
	if !b.cuts || t == nil {
		return
	}
	for i := 0; i < len(b.tasks); i++ {
		x := &b.tasks[i]
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
			pieces := b.cutSlots(t, x)
			b.replace(i, pieces)
			i += len(pieces) - 1
		case cutKeys:
			if region != nil && containsAll(region.Slots, x.slots) {
				continue
			}
			pieces, of := cutTask(t, x)
			if len(b.ends) == 0 { // a command that runs alone
				b.reorder(i, len(pieces), of)
			}
			b.replace(i, pieces)
			i += len(pieces) - 1
		}
	}
}

func containsAll(r topology.SlotRange, slots []topology.Slot) bool {
	return !slices.ContainsFunc(slots, func(s topology.Slot) bool { return !r.Contains(s) })
}

// cutSlots returns the tasks that do what x does, one for each region that has some of its slots. Slots without a
// region are one task, too, which fails.
func (b *batch) cutSlots(t *route.Table, x *task) (pieces []task) {
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
		pieces = append(pieces, b.wholeTask(x.whole, slots, of))
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
func (b *batch) reorder(i, pieces int, of []int) {
	if b.order == nil { // the task had all keys
		b.order = make([]int, len(of))
	}
	for k, at := range b.order {
		switch {
		case at == i:
			b.order[k], of = i+of[0], of[1:]
		case at > i:
			b.order[k] += pieces - 1
		}
	}
}

// replace puts tasks in the place of task i.
func (b *batch) replace(i int, with []task) {
	b.tasks = slices.Replace(b.tasks, i, i+1, with...)
	for k, end := range b.ends {
		if end > i {
			b.ends[k] = end + len(with) - 1
		}
	}
}

// lacksValue reports whether the last key in positions has no value (MSET).
func (b *batch) lacksValue(cmd *command) bool {
	n := len(b.positions)
	return n > 0 && b.positions[n-1]+cmd.row.Keys[0].Step != len(cmd.args)
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
