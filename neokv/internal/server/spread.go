package server

import (
	"bytes"
	"strconv"
	"strings"
	"sync"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file is the commands that concern several regions: those that the proxy port cuts, and those without keys.

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

// walkSlots walks the part of a slot range that this server covers, in order, and calls step after each step of w while step says so.
// w.Slots is set here. It returns nil, or the error reply of what could not be read.
func (c *conn) walkSlots(slots topology.SlotRange, w *redis.Walk, step func() bool) (failure []byte) {
	t := c.awaitTable()
	if t == nil {
		return []byte("-" + redis.ErrClusterDown + "\r\n")
	}
	for _, r := range c.covered(t) {
		first, last := max(r.First, slots.First), min(r.Last, slots.Last)
		if first > last {
			continue
		}
		w.Slots = topology.SlotRange{First: first, Last: last}
		if first != slots.First {
			w.After = nil
		}
		gone, failure := c.walkStep(w)
		for ; failure == nil && !gone; gone, failure = c.walkStep(w) {
			if !step() {
				return nil
			}
			if !w.Advance() {
				break
			}
		}
		if failure != nil {
			return failure
		}
		w.After = nil
	}
	return nil
}

// walkStep runs a walk's next step; gone says that this store leads the slots no more.
func (c *conn) walkStep(w *redis.Walk) (gone bool, failure []byte) {
	b := &c.batch
	b.reset()
	b.tasks = append(b.tasks, task{call: w.Call(), slot: w.Slots.First, led: !c.s.proxy()})
	b.exec(false)
	x := &b.tasks[0]
	if x.err {
		return false, bytes.Clone(x.reply)
	}
	return x.gone, nil
}

var allSlots = topology.SlotRange{First: 0, Last: topology.SlotCount - 1}

func runDBSize(c *conn, args [][]byte) {
	n := 0
	w := redis.Walk{CountOnly: true}
	failure := c.walkSlots(allSlots, &w, func() bool {
		n += w.Count
		return true
	})
	if failure != nil {
		c.out.Buf = append(c.out.Buf, failure...)
		return
	}
	c.out.Int(int64(n))
}

func runKeys(c *conn, args [][]byte) {
	var found redis.Reply
	n := 0
	w := redis.Walk{}
	failure := c.walkSlots(allSlots, &w, func() bool {
		for _, k := range w.Keys {
			if redis.Match(args[1], k.Key) {
				found.Bulk(k.Key)
				n++
			}
		}
		return true
	})
	if failure != nil {
		c.out.Buf = append(c.out.Buf, failure...)
		return
	}
	c.out.Array(n)
	c.out.Buf = append(c.out.Buf, found.Buf...)
}

// scans remembers where SCAN stopped within a slot of more than redis.WholeSlotKeys keys. All other cursors need no memory.
//
// A cursor is the slot to go on with, plus, in multiples of 2^14, a number that names the place within the slot, 0 for the slot's
// beginning. The last maxScans places are known; a cursor whose place is forgotten goes on at the slot's beginning, so that
// keys come twice but none is left out.
type scans struct {
	mu     sync.Mutex
	last   uint64
	places [maxScans]scanPlace // by number mod maxScans
}

type scanPlace struct {
	number uint64
	slot   topology.Slot
	after  []byte
}

const (
	maxScans   = 1024
	slotBits   = 14
	scanBudget = 16 // steps of one SCAN that find nothing
)

func (s *scans) cursor(slot topology.Slot, after []byte) uint64 {
	if after == nil {
		return uint64(slot)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.places[s.last%maxScans] = scanPlace{s.last, slot, bytes.Clone(after)}
	return s.last<<slotBits | uint64(slot)
}

func (s *scans) place(cursor uint64) (slot topology.Slot, after []byte) {
	slot = topology.Slot(cursor % topology.SlotCount)
	number := cursor >> slotBits
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[number%maxScans]; number > 0 && p.number == number && p.slot == slot {
		after = p.after
	}
	return slot, after
}

func runScan(c *conn, args [][]byte) {
	cursor, ok := parseCursor(args[1])
	if !ok {
		c.out.Error(redis.ErrInvalidCursor)
		return
	}
	var pattern, kind []byte
	count := int64(10)
	for i := 2; i < len(args); i += 2 {
		left := len(args) - i
		switch {
		case left >= 2 && equalFold(args[i], "count"):
			if count, ok = parseInt(args[i+1]); !ok {
				c.out.Error(redis.ErrNotInteger)
				return
			}
			if count < 1 {
				c.out.Error(redis.ErrSyntax)
				return
			}
		case left >= 2 && equalFold(args[i], "match"):
			pattern = args[i+1]
		case left >= 2 && equalFold(args[i], "type"):
			kind = args[i+1]
		default:
			c.out.Error(redis.ErrSyntax)
			return
		}
	}
	from, after := c.s.scans.place(cursor)
	w := redis.Walk{After: after, Limit: int(min(count, redis.MaxWalk)), WholeSlots: true}
	var found redis.Reply
	n, looked, steps := 0, 0, 0
	next := uint64(0)
	failure := c.walkSlots(topology.SlotRange{First: from, Last: topology.SlotCount - 1}, &w, func() bool {
		for _, k := range w.Keys {
			if (pattern == nil || redis.Match(pattern, k.Key)) && (kind == nil || equalFold(kind, k.Type.String())) {
				found.Bulk(k.Key)
				n++
			}
		}
		looked += w.Count
		steps++
		if int64(looked) < count && steps < scanBudget {
			return true
		}
		last := w.Slots.Last
		if w.Advance() {
			next = c.s.scans.cursor(w.Slots.First, w.After)
		} else {
			next = (uint64(last) + 1) % topology.SlotCount
		}
		return false
	})
	if failure != nil {
		c.out.Buf = append(c.out.Buf, failure...)
		return
	}
	c.out.Array(2)
	c.out.BulkString(strconv.FormatUint(next, 10))
	c.out.Array(n)
	c.out.Buf = append(c.out.Buf, found.Buf...)
}

// parseCursor takes what C's strtoul takes without leading space, as Redis does: a sign is allowed, nothing is 0, a range error is one.
func parseCursor(arg []byte) (uint64, bool) {
	text := string(arg)
	if text == "" {
		return 0, true
	}
	negative := strings.HasPrefix(text, "-")
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimPrefix(text, "-"), "+"), 10, 64)
	if err != nil || strings.HasPrefix(text, "-+") {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}
