package server

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// command is one command of a pipeline.
type command struct {
	row  *redis.Command // the row that the client has named, nil if there is none; see runs
	kind runKind
	cut  bool // a write that the proxy port cuts
	// rejected says that an error was the answer instead of running the command, or that nobody knows whether it ran.
	rejected bool
	args     [][]byte
}

// runKind says how a command is run.
type runKind byte

const (
	own    runKind = iota // run by the server itself, or answered with an error
	read                  // run in one region, with other reads
	write                 // run in one region, or in several if it is cut, with other writes
	fanOut                // run in several regions, alone
)

// serve answers pipelines until the connection ends. The caller closes it.
func (c *conn) serve() {
	defer c.batch.close()
	defer c.endMonitor()
	defer c.endTurn()
	c.account()
	for !c.closing {
		c.rd.strange = c.locked()
		if c.rd.tight = c.s.o.ClientMemory.tight(); c.rd.tight {
			c.cmds, c.argv = nil, nil
			c.batch.shed()
		}
		n, err := c.rd.fill()
		c.s.stats.bytesIn.Add(uint64(n))
		if err != nil {
			c.refuse(err)
			return
		}
		c.arrived = time.Now()
		if !c.take() || !c.account() {
			return
		}
		c.run()
		if !c.flush() || !c.account() {
			return
		}
	}
}

// take makes a command of each complete one that the reader has. It returns false if clients may not hold that many
// arguments; the connection is closed then.
func (c *conn) take() bool {
	clear(c.cmds)
	c.cmds = c.cmds[:0]
	if cap(c.argv) > 1<<14 {
		c.argv = nil
	}
	clear(c.argv)
	c.argv = c.argv[:0]
	if words := c.rd.words; words > cap(c.argv) {
		if !c.hold(argBytes * int64(words-cap(c.argv))) {
			return false
		}
		c.argv = make([][]byte, 0, max(words, 16))
	}
	for {
		n := len(c.argv)
		args, ok := c.rd.next(c.argv[n:n])
		if !ok {
			break
		}
		c.argv = c.argv[:n+len(args)]
		c.cmds = append(c.cmds, c.classify(args[:len(args):len(args)]))
	}
	now := c.arrived.UnixNano()
	c.s.stats.rates.note(&c.s.stats, c.arrived, now)
	if n := len(c.cmds); n > 0 {
		c.last.Store(c.cmds[n-1].row)
		c.seen.Store(now)
	}
	return true
}

// classify finds a command's row and how the command is run. If its name or arity is wrong, runOwn says so when it is
// the command's turn.
func (c *conn) classify(args [][]byte) command {
	row := commands.Lookup(args[0])
	if row != nil && len(row.Sub) > 0 && len(args) > 1 {
		row = row.Subcommand(args[1])
	}
	cmd := command{row: row, args: args}
	if row == nil || !row.CheckArity(len(args)) {
		return cmd
	}
	switch {
	case row.Read == nil && row.Write == nil:
	case row.ReadBy != nil && row.ReadBy(args) != nil:
		cmd.kind = read
	case row.Everywhere, row.Split != redis.NoSplit && row.Read != nil && c.s.proxy():
		cmd.kind = fanOut
	case row.Write != nil:
		cmd.kind, cmd.cut = write, row.Split != redis.NoSplit && c.s.proxy()
	case row.Read != nil:
		cmd.kind = read
	}
	return cmd
}

// runs returns the row whose function runs the command: its own, or the one that reads in its place.
func (cmd *command) runs() *redis.Command {
	if cmd.kind == read && cmd.row.Read == nil {
		return cmd.row.ReadBy(cmd.args)
	}
	return cmd.row
}

// run runs the pipeline's commands.
func (c *conn) run() {
	c.since = c.arrived
	for i := 0; i < len(c.cmds) && !c.closing; {
		if len(c.out.Buf) >= flushBytes {
			if !c.flush() {
				c.closing = true
				return
			}
			c.since = time.Now()
		}
		if p := c.s.pause.Load(); p != nil {
			if !c.awaitUnpause(p, &c.cmds[i]) {
				return
			}
			c.since = time.Now()
		}
		start, n := len(c.out.Buf), 1
		switch k := c.cmds[i].kind; {
		case c.locked() && !c.cmds[i].open():
			c.out.Error(redis.ErrNoAuth)
			c.answered(&c.cmds[i], start, false)
		case c.monitor != nil && c.cmds[i].touchesKeys():
			c.out.Error(errMonitor)
			c.answered(&c.cmds[i], start, false)
		case k == read || k == write:
			if !c.quiet.skip {
				for limit := c.batch.limit(k); n < limit && i+n < len(c.cmds) && c.cmds[i+n].kind == k; n++ {
				}
			}
			n = c.batch.runTogether(c.cmds[i:i+n], k)
		case k == fanOut:
			c.work.Begin()
			c.runFanOut(&c.cmds[i])
			c.answered(&c.cmds[i], start, true)
		default:
			c.work.Begin()
			c.runOwn(&c.cmds[i])
		}
		c.endTurn()
		if c.quiet.holds() {
			c.out.Buf = c.out.Buf[:min(start, len(c.out.Buf))]
		}
		c.quiet.next()
		if c.out.Full {
			c.overflow()
		}
		c.ran(c.cmds[i : i+n])
		i += n
	}
}

// open reports whether the server deals with a command before the client has given the password.
func (cmd *command) open() bool {
	return cmd.row == nil || !cmd.row.CheckArity(len(cmd.args)) || cmd.row.Flags&redis.FlagNoAuth != 0
}

// maxUnknown is how long a name is, in bytes, that OnUnknown hears of. Those of Redis are shorter.
const maxUnknown = 32

// runOwn runs one of the server's own commands. For a command that is unknown or has a wrong arity it answers with the
// error.
func (c *conn) runOwn(cmd *command) {
	start := len(c.out.Buf)
	switch {
	case cmd.row == nil:
		if why := whyRefused(cmd.args); why != "" {
			c.out.Error(why)
		} else if row := commands.Find(cmd.args, &c.out); row != nil {
			panic("a command was found the second time: " + row.Name)
		} else if f := c.s.o.OnUnknown; f != nil && !isHTTP(cmd.args[0]) {
			name := cmd.args[:1]
			if commands.Lookup(name[0]) != nil { // a container
				name = cmd.args[:2]
			}
			if text := bytes.Join(name, []byte(" ")); len(text) <= maxUnknown {
				f(strings.ToUpper(string(text)))
			}
		}
		c.answered(cmd, start, false)
		if isHTTP(cmd.args[0]) {
			c.out.Buf, c.closing = c.out.Buf[:0], true
		}
	case !cmd.row.CheckArity(len(cmd.args)):
		c.out.WrongArity(cmd.row)
		c.answered(cmd, start, false)
	default:
		runners[cmd.row](c, cmd.args)
		start = min(start, len(c.out.Buf)) // the command may have sent the replies before its own
		c.over(start)
		c.answered(cmd, start, true)
	}
}

// isHTTP recognizes a web browser that a hostile page has made connect to this port. As in Redis, it gets no answer.
func isHTTP(name []byte) bool {
	return len(name) <= 5 && (redis.IsOption(name, "post") || redis.IsOption(name, "host:"))
}

// limit returns how many commands of a kind a batch may have.
func (b *batch) limit(k runKind) int {
	if k == read {
		return b.readLimit
	}
	return maxWrites
}

// runTogether runs reads or writes of the pipeline and appends their replies in order. Writes that concern several
// regions are cut. It returns how many commands it has run: of reads with large replies not all, but at least one.
func (b *batch) runTogether(cmds []command, k runKind) (ran int) {
	b.prepare(cmds, k)
	if k == read {
		b.exec(someReads)
	} else {
		b.exec(writes)
	}
	before := len(b.c.out.Buf)
	if b.full() { // the connection ends
		b.c.out.Full = true
		return len(cmds)
	}
	if b.takeReply() {
		b.c.answered(&cmds[0], 0, true)
		b.readLimit = 1
		return 1
	}
	ran = b.answerAll(cmds)
	if k == read {
		perRead := (len(b.c.out.Buf)-before)/ran + 1
		b.readLimit = max(1, min(maxReads, wantReplies/perRead, 4*b.readLimit))
	} else {
		b.note()
	}
	kept := 0
	for _, p := range b.parts[:b.used] { // the replies have been copied
		if kept += cap(p.run.Out.Buf); kept > wantReplies {
			p.run.Out.Buf = nil
		}
	}
	return ran
}

// prepare makes tasks of commands that run together.
func (b *batch) prepare(cmds []command, k runKind) {
	b.reset()
	follow := k == read && b.c.s.o.Settings.Redis.FollowerRead && !b.c.s.o.StandIn && b.c.info.Load().readOnly
	for i := range cmds {
		if cmd := &cmds[i]; !cmd.cut {
			b.add(cmd, follow)
		} else if t := b.c.awaitTable(writes); t != nil {
			b.addCut(t, cmd)
		} else {
			b.tasks = append(b.tasks, task{})
			b.fail(&b.tasks[len(b.tasks)-1], redis.ErrClusterDown)
		}
		b.ends = append(b.ends, len(b.tasks))
	}
}

// add adds a command of the pipeline as one task. Where follow is set, a replica that does not lead may read its keys.
func (b *batch) add(cmd *command, follow bool) {
	t := task{call: redis.Call{Command: cmd.runs(), Args: cmd.args}}
	b.positions = t.call.Command.AppendKeys(b.positions[:0], cmd.args)
	t.follow = follow && len(b.positions) > 0
	switch len(b.positions) {
	case 0: // a wrong number of keys: the command fails in any region
		t.slot = b.anySlot()
	case 1:
		t.slot = topology.SlotOf(cmd.args[b.positions[0]])
	default:
		n := len(b.slots)
		for _, p := range b.positions {
			b.slots = append(b.slots, topology.SlotOf(cmd.args[p]))
		}
		t.slots = b.slots[n:len(b.slots):len(b.slots)]
		t.slot = t.slots[0]
	}
	b.tasks = append(b.tasks, t)
}

// anySlot returns a slot that this store leads, or 0 if it leads none.
func (b *batch) anySlot() topology.Slot {
	if t := b.c.s.o.Node.Table(); t != nil {
		if led := t.Led(b.c.s.self()); len(led) > 0 {
			return led[0].First
		}
	}
	return 0
}

// answerAll appends the replies of commands that ran together, up to the first that was postponed, and counts them.
func (b *batch) answerAll(cmds []command) (ran int) {
	size := 0
	for i := range b.tasks {
		size += len(b.tasks[i].reply)
	}
	b.c.out.Buf = slices.Grow(b.c.out.Buf, size) // once: growing step by step copies large replies several times
	from := 0
	for ; ran < len(b.ends) && b.tasks[from].outcome != postponed; ran++ {
		tasks, start := b.tasks[from:b.ends[ran]], len(b.c.out.Buf)
		b.answer(&cmds[ran], tasks, nil, &b.c.out)
		b.c.answered(&cmds[ran], start, len(tasks) > 1 || tasks[0].outcome != failed)
		from = b.ends[ran]
	}
	return ran
}

// answer appends the reply of a command, made of the replies of the command's tasks.
func (b *batch) answer(cmd *command, tasks []task, order []int, out *redis.Reply) {
	if len(tasks) == 1 && tasks[0].outcome != gone {
		out.Buf = append(out.Buf, tasks[0].reply...)
		return
	}
	failure, succeeded := []byte(nil), 0
	for i := range tasks {
		switch x := &tasks[i]; {
		case x.outcome == gone:
		case x.reply[0] != '-':
			succeeded++
		case failure == nil:
			failure = x.reply
		}
	}
	switch {
	case failure != nil && succeeded > 0 && cmd.row.Write != nil:
		reason := strings.TrimPrefix(string(failure[1:len(failure)-2]), "ERR ")
		out.Error("ERR partly applied: " + reason)
	case failure != nil:
		out.Buf = append(out.Buf, failure...)
	default:
		join(cmd.row.Split, tasks, order, out)
	}
}

// takeReply hands a single large reply of a read to the connection without copying it, and reports whether it did.
func (b *batch) takeReply() bool {
	if b.c.turn == nil || len(b.tasks) != 1 || b.tasks[0].outcome != executed || b.used != 1 || len(b.c.out.Buf) > 0 {
		return false
	}
	b.c.out.Buf = b.parts[0].run.Out.Buf
	b.parts[0].run.Out.Buf = nil
	return true
}

// note remembers where the writes of the batch went, for WAIT.
func (b *batch) note() {
	for _, p := range b.parts[:b.used] {
		if p.pending.Index == 0 {
			continue
		}
		if b.c.wrote == nil {
			b.c.wrote = make(map[topology.RegionID]lastWrite)
		}
		b.c.wrote[p.id] = lastWrite{max(b.c.wrote[p.id].index, p.pending.Index), p.slot}
	}
}
