package server

import (
	"bytes"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file is the commands that concern several regions: those that the proxy port cuts, and those that run in each region.

// runSpread runs a command in every region that its keys lie in, or that this server covers, and joins the replies.
func (c *conn) runSpread(cmd *command) {
	b := &c.batch
	b.reset()
	t := c.awaitTable()
	if t == nil {
		c.out.Error(redis.ErrClusterDown)
		return
	}
	var order []int // by key: its task
	if cmd.row.Everywhere {
		for _, r := range c.covered(t) {
			b.tasks = append(b.tasks, task{call: redis.Call{Command: cmd.row, Args: cmd.args}, slot: r.First, led: !c.s.proxy()})
		}
	} else if order = b.cut(t, cmd); order == nil { // all in one region
		b.add(cmd)
		if b.lacksValue(cmd) { // wrong as a whole, as its function says in any region
			b.tasks[0].slots = nil
		}
	}
	b.exec(cmd.row.Write != nil)
	if b.note(); b.full() {
		c.out.Full = true
		return
	}
	if len(b.tasks) == 1 && !b.tasks[0].gone {
		c.out.Buf = append(c.out.Buf, b.tasks[0].reply...)
		return
	}
	failure, succeeded := []byte(nil), 0
	for i := range b.tasks {
		switch x := &b.tasks[i]; {
		case x.gone:
		case x.reply[0] != '-':
			succeeded++
		case failure == nil:
			failure = x.reply
		}
	}
	switch {
	case failure != nil && succeeded > 0 && cmd.row.Write != nil:
		reason := strings.TrimPrefix(string(failure[1:len(failure)-2]), "ERR ")
		c.out.Error("ERR partly applied: " + reason)
	case failure != nil:
		c.out.Buf = append(c.out.Buf, failure...)
	default:
		b.join(cmd.row.Split, order, &c.out)
	}
}

// awaitTable returns the slot table, nil if there is none by the pipeline's deadline.
func (c *conn) awaitTable() *route.Table {
	deadline := c.arrived.Add(c.s.o.Settings.Redis.LeaderlessWait)
	for {
		var changed <-chan struct{}
		if c.s.o.Changed != nil {
			changed = c.s.o.Changed()
		}
		t := c.s.o.Table()
		if t != nil || c.batch.impatient || !c.batch.wait(changed, deadline) {
			return t
		}
	}
}

// covered returns the slot ranges of the regions that commands without keys cover: those that this store leads, as a Redis
// Cluster node covers its slots; on the proxy port all.
func (c *conn) covered(t *route.Table) (ranges []topology.SlotRange) {
	for i := range t.Regions {
		if r := &t.Regions[i]; c.s.proxy() || r.Leader == c.s.o.Self {
			ranges = append(ranges, r.Slots)
		}
	}
	return ranges
}

// cut makes one task per region of a command whose arguments are all keys, or keys with values. It returns the task of each key,
// nil when one region has all keys.
func (b *batch) cut(t *route.Table, cmd *command) (order []int) {
	b.positions = cmd.row.AppendKeys(b.positions[:0], cmd.args)
	if len(b.positions) < 2 {
		return nil
	}
	if b.lacksValue(cmd) {
		return nil
	}
	step := cmd.row.Keys[0].Step
	tasks := map[int]int{} // by region
	var parts []task
	for _, p := range b.positions {
		slot := topology.SlotOf(cmd.args[p])
		_, region := t.Region(slot)
		i, ok := tasks[region]
		if !ok {
			i = len(parts)
			tasks[region] = i
			parts = append(parts, task{call: redis.Call{Command: cmd.row, Args: [][]byte{cmd.args[0]}}, slot: slot})
		}
		x := &parts[i]
		x.call.Args = append(x.call.Args, cmd.args[p:p+step]...)
		x.slots = append(x.slots, slot)
		order = append(order, i)
	}
	if len(parts) == 1 {
		return nil
	}
	b.tasks = append(b.tasks, parts...)
	return order
}

// lacksValue reports whether the last key, of those in positions, has no value (MSET).
func (b *batch) lacksValue(cmd *command) bool {
	n := len(b.positions)
	return n > 0 && b.positions[n-1]+cmd.row.Keys[0].Step != len(cmd.args)
}

// join writes one reply made of the tasks' replies, none of which is an error.
func (b *batch) join(how redis.Split, order []int, out *redis.Reply) {
	switch how {
	case redis.SplitOK:
		out.OK()
	case redis.SplitSum:
		sum := int64(0)
		for i := range b.tasks {
			if !b.tasks[i].gone {
				n, _ := strconv.ParseInt(string(bytes.TrimSpace(b.tasks[i].reply[1:])), 10, 64)
				sum += n
			}
		}
		out.Int(sum)
	case redis.SplitArray:
		rest := make([][]byte, len(b.tasks))
		for i := range b.tasks {
			_, rest[i] = header(b.tasks[i].reply)
		}
		out.Array(len(order))
		for _, i := range order {
			n := replyLen(rest[i])
			out.Buf = append(out.Buf, rest[i][:n]...)
			rest[i] = rest[i][n:]
		}
	case redis.SplitJoin:
		sum := 0
		for i := range b.tasks {
			if !b.tasks[i].gone {
				n, _ := header(b.tasks[i].reply)
				sum += n
			}
		}
		out.Array(sum)
		for i := range b.tasks {
			if !b.tasks[i].gone {
				_, rest := header(b.tasks[i].reply)
				out.Buf = append(out.Buf, rest...)
			}
		}
	default:
		panic("a command that is not split came in parts")
	}
}

// header returns the number in a reply's first line, and what follows the line.
func header(reply []byte) (n int, rest []byte) {
	end := bytes.IndexByte(reply, '\n')
	n, _ = strconv.Atoi(string(reply[1 : end-1]))
	return n, reply[end+1:]
}

// replyLen is the length in bytes of the first reply in b, which is well formed.
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
