package server

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/session"
)

// command is one command of a pipeline.
type command struct {
	row *redis.Command // the row that the client has named, nil if there is none; see runs
	how redis.How      // redis.HowNot: it does not run, since its name or arity is wrong
	cut bool           // the proxy port cuts it by region
	// rejected says that an error was the answer instead of running the command, or that nobody knows whether it ran.
	rejected bool
	executed bool // it was EXEC, and its reply has no part that is kept back
	shown    bool // monitors have its line
	args     [][]byte
	script   *redis.Call // what a region runs of EVAL, once it is known
	// Inside a transaction, and of a command that is refused on purpose:
	reply []byte      // what the server answers in place of the region
	loads *lua.Script // what EVAL loads
	proto int         // the version of the protocol that HELLO is about to change to, 0 if it changes none
}

// joins reports whether the command can run together with others that run as the given one does.
func (cmd *command) joins(how redis.How) bool {
	return cmd.how == how && (how == redis.HowWrite || how == redis.HowRead && !cmd.cut)
}

// isScript reports whether the command is EVAL or one of its kin.
func (cmd *command) isScript() bool { return cmd.script != nil || cmd.how == redis.HowScript }

// together returns how many commands run together with the first, which does so, itself included.
func (e *executor) together(cmds []command) (n int) {
	how := cmds[0].how
	limit := e.limit(how)
	for n = 1; n < limit && n < len(cmds); n++ {
		if cmds[n].how == redis.HowScript {
			e.ready(&cmds[n], true)
		}
		if !cmds[n].joins(how) {
			break
		}
	}
	return n
}

// serve answers pipelines until the connection ends, and then returns true. The caller closes it. Where a blocking pop
// waits, serve returns false, and the caller calls it again when await has returned.
func (c *conn) serve() (ended bool) {
	defer func() {
		if ended {
			c.giveBack()
		}
	}()
	c.account()
	for resumes := c.exec.pop != nil; resumes || !c.closing; resumes = false {
		if !resumes && !c.receive() {
			return true
		}
		if c.run(); c.exec.pop != nil {
			return false
		}
		if !c.out.flush() || !c.account() {
			return true
		}
		c.out.settle()
	}
	return true
}

// giveBack gives back what the connection holds in the server and in regions.
func (c *conn) giveBack() {
	c.unwatch()
	c.exec.endTurn()
	c.endTracking()
	c.unsubscribeAll()
	c.endMonitor()
	c.exec.close()
}

// receive waits for a pipeline. It returns false when the connection ends.
func (c *conn) receive() bool {
	for c.welcome() {
		if !c.session.Plain() {
			c.session.Keep()
		}
		c.rd.strange = c.locked()
		if c.rd.tight = c.s.o.ClientMemory.tight(); c.rd.tight {
			c.cmds, c.argv = nil, nil
			c.exec.shed()
		}
		n, err := c.rd.fill()
		c.s.stats.received(n, c.rd.takeReads())
		if err == nil {
			c.exec.arrived = time.Now()
			c.at, c.since = 0, c.exec.arrived
			return c.take() && c.account()
		}
		if c.guests.Load() > 0 == c.hosts || !errors.Is(err, os.ErrDeadlineExceeded) {
			c.refuse(err)
			return false
		}
	}
	return false
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
	if t := c.s.trouble.Load(); t != nil && len(t.refusals) > 0 && !c.trusted && !c.locked() {
		c.refuseSome(t.refusals)
	}
	now := c.exec.arrived.UnixNano()
	c.s.stats.rates.note(&c.s.stats, c.exec.arrived, now)
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
	cmd.how, cmd.cut = row.How, row.Split != redis.NoSplit && c.s.proxy()
	if row.ReadBy != nil && row.ReadBy(args) != nil {
		cmd.how = redis.HowRead
	}
	return cmd
}

// run runs the pipeline's commands, from the one at c.at on. It returns early where the executor has a pop that waits.
func (c *conn) run() {
	for c.exec.pop != nil || c.at < len(c.cmds) && !c.closing {
		start, n := 0, 1
		if c.exec.pop != nil {
			c.resume()
		} else if start, n = c.begin(); n == 0 {
			return
		}
		if c.exec.pop != nil {
			return
		}
		if c.flushed {
			start, c.flushed = 0, false
		}
		if !c.session.Plain() {
			if c.session.Silent() && !c.cmds[c.at].executed {
				c.out.hush(start)
			}
			c.session.Ran()
			if c.track != nil {
				c.endTracked(&c.cmds[c.at+n-1], start)
			}
		}
		c.exec.endTurn()
		if c.out.Full {
			c.overflow()
		}
		c.ran(c.cmds[c.at : c.at+n])
		c.at += n
	}
}

// begin runs the next command of the pipeline, or as many as run together. It returns how many, 0 when the connection
// has ended, and where their replies begin. A blocking pop may have begun only.
func (c *conn) begin() (start, n int) {
	if len(c.out.Buf) >= flushBytes {
		if !c.out.flush() {
			c.closing = true
			return 0, 0
		}
		c.since = time.Now()
	}
	if p := c.s.pause.Load(); p != nil {
		if !c.awaitUnpause(p, &c.cmds[c.at]) {
			return 0, 0
		}
		c.since = time.Now()
	}
	start = len(c.out.Buf)
	if c.session.Plain() {
		return start, c.runNext(c.cmds[c.at:])
	}
	return start, c.step(c.cmds[c.at:])
}

// runNext runs the next command of the pipeline, or as many as run together. It returns how many.
func (c *conn) runNext(cmds []command) (n int) {
	start := len(c.out.Buf)
	if cmds[0].how == redis.HowScript {
		c.exec.work.Begin()
		if is := c.exec.ready(&cmds[0], false); is != isReady {
			c.answered(&cmds[0], start, is == hasRun)
			return 1
		}
	}
	switch how := cmds[0].how; {
	case cmds[0].joins(how):
		return c.exec.runTogether(cmds[:c.exec.together(cmds)], how)
	case how == redis.HowRead || how == redis.HowEverywhere:
		c.exec.work.Begin()
		c.exec.runWide(&cmds[0])
		c.over(start)
		c.answered(&cmds[0], start, true)
	case how == redis.HowBlocking:
		c.exec.work.Begin()
		c.exec.runBlocking(&cmds[0])
	default:
		if cmds[0].is("multi") {
			if n := c.fold(cmds); n > 0 {
				return n
			}
		}
		c.exec.work.Begin()
		c.runOwn(&cmds[0])
	}
	return 1
}

// is reports whether a command is that of a name, with the right number of words.
func (cmd *command) is(name string) bool {
	return cmd.how != redis.HowNot && cmd.row.Name == name
}

// step does what the session, which is not plain, says about the next command. It returns how many commands have run.
func (c *conn) step(cmds []command) (n int) {
	c.out.begin()
	c.noteSubscriptions()
	c.out.top = len(c.out.Buf)
	c.out.drain() // what was pushed before the client sent this comes before its reply
	if c.track != nil {
		cmds = cmds[:c.beginTracked(cmds)]
	}
	cmd, start := &cmds[0], len(c.out.Buf)
	c.out.top = start
	x := c.session.Step(&session.Command{
		Row: cmd.row, Args: cmd.args, Valid: cmd.how != redis.HowNot,
	}, *c.s.limits.password.Load() != "")
	switch {
	case x.Action == session.Refuse:
		c.out.Error(x.Error)
		c.answered(cmd, start, false)
		if !c.session.Inside() && cmd.row.Name == "exec" {
			c.endTransaction()
		}
	case x.Action == session.Enqueue:
		c.enqueue(cmd)
	case x.Action == session.Exec:
		c.execute(cmd)
	case c.session.Together():
		return c.runNext(cmds)
	default:
		c.runNext(cmds[:1])
	}
	return 1
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
	case cmd.reply != nil:
		c.answerRefused(cmd)
		c.answered(cmd, start, false)
	case cmd.row == nil:
		if why := whyRefused(cmd.args); why != "" {
			c.out.Error(why)
		} else if row := commands.Find(cmd.args, &c.out.Reply); row != nil {
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
		if cmd.row.Name == "exec" {
			c.endTransaction()
			c.out.Error(errExecArity)
		} else {
			c.out.WrongArity(cmd.row)
		}
		c.answered(cmd, start, false)
	default:
		cmd.row.Run.(runner)(c, cmd.args)
		start = min(start, len(c.out.Buf)) // the command may have sent the replies before its own
		c.over(start)
		c.answered(cmd, start, true)
	}
}

// isHTTP recognizes a web browser that a hostile page has made connect to this port. As in Redis, it gets no answer.
func isHTTP(name []byte) bool {
	return len(name) <= 5 && (redis.IsOption(name, "post") || redis.IsOption(name, "host:"))
}
