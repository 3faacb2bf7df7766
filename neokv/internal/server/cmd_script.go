package server

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// This file has scripts: EVAL, EVALSHA, their _RO forms, and SCRIPT. The server finds the script's text and compiles
// it; a region runs it as a call of redis.Script or redis.ScriptRead. When it is a command's turn, ready makes that
// call of it. From then on the command is a read or a write like others: it shares batches with them.

// Errors of redis-server 7.0.15.
const (
	errNoScript     = "NOSCRIPT No matching script. Please use EVAL."
	errNegativeKeys = "ERR Number of keys can't be negative"
	errTooManyKeys  = "ERR Number of keys can't be greater than number of args"
	errWritesInRO   = "ERR Can not execute a script with write flag using *_ro command."
	errNotInCluster = "ERR Can not run script on cluster, 'no-cluster' flag is set."
	errNotBusy      = "NOTBUSY No scripts in execution right now."
	errUnkillable   = "UNKILLABLE Sorry the script already executed write commands against the dataset. You can " +
		"either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command."
	errFlushMode = "ERR SCRIPT FLUSH only support SYNC|ASYNC option"
	errDebugMode = "ERR Use SCRIPT DEBUG YES/SYNC/NO"
	errKilled    = redis.Refusal("ERR Script killed by user with SCRIPT KILL...")
)

const (
	errLongScript = "ERR the script is longer than 1 MiB"
	errNoDebugger = "ERR there is no debugger for scripts here: redis.log writes to the log of the store"
)

// maxScriptLog is how many lines a script may log that touches no key.
const maxScriptLog = 100

// The positions of EVAL's arguments.
const (
	evalText = 1 + iota
	evalNumKeys
	evalKeys
)

// readiness is what ready has made of a command.
type readiness byte

const (
	isReady   readiness = iota
	isLater             // it takes a while to find the script
	hasRun              // it has run, or could not: the reply is the command's
	isRefused           // it must not run here: the reply says why
)

// anyScript takes the place of one that a stand-in does not know: the stand-in redirects its client.
var anyScript, _ = lua.Compile("")

// ready makes a call of a command that runs a script. With quick set it does so only if the script is known here; else
// it appends the reply of a command that is not to be called.
func (e *executor) ready(cmd *command, quick bool) readiness {
	x, arg := (*lua.Script)(nil), cmd.args[evalText]
	bySHA := strings.HasPrefix(cmd.row.Name, "evalsha")
	switch {
	case !bySHA:
		x = e.loadedScript(lua.SHA1(string(arg)))
	case len(arg) == lua.SHALength:
		x = e.loadedScript(string(arg))
	}
	n, wrong := numKeys(cmd.args)
	switch {
	case quick && x == nil:
		return isLater
	case wrong != "" && (!bySHA || len(arg) == lua.SHALength):
		return e.says(hasRun, wrong, quick)
	case x == nil && bySHA && n > 0 && e.standIn:
		x = anyScript
	case x == nil:
		if n > 0 && !e.serves(cmd) {
			return isRefused
		}
		var why string
		if x, why = e.findScript(arg, bySHA); x == nil {
			return e.says(hasRun, why, quick)
		}
	}
	flags := redis.ScriptFlags(0)
	wrong = ""
	readOnly := strings.HasSuffix(cmd.row.Name, "_ro")
	switch {
	case readOnly && x.Flags&lua.Shebang != 0 && x.Flags&lua.NoWrites == 0:
		wrong = errWritesInRO
	case x.Flags&lua.NoCluster != 0 && !e.proxy():
		wrong = errNotInCluster
	}
	switch {
	case wrong == "":
	case quick:
		return isLater
	case n > 0 && !e.serves(cmd):
		return isRefused
	default:
		return e.says(hasRun, wrong, quick)
	}
	if readOnly || x.Flags&lua.NoWrites != 0 {
		flags |= redis.ScriptReadOnly
	}
	if e.proxy() || x.Flags&lua.AllowCrossSlotKeys != 0 {
		flags |= redis.ScriptCrossSlots
	}
	var first []byte
	if n == 0 {
		if quick {
			return isLater
		}
		if !e.beginScript(0, time.Now().Add(e.knobs.LeaderlessWait)) {
			return e.says(isRefused, redis.ErrClusterDown, false)
		}
		var log []func() // of a run that counts
		touched, start := false, len(e.out.Buf)
		e.work.Begin()
		e.scripting.now.Store(readingScripts)
		first, touched = redis.FirstKey(x, flags, cmd.args[evalNumKeys:], e.scriptLimits(),
			uint64(time.Now().UnixMilli()), func(level int, text string) {
				if len(log) < maxScriptLog {
					log = append(log, func() { e.node.LogScript(level, text) })
				}
			}, func(p redis.Publication) {
				if e.published != nil {
					e.published(cmd.args, p)
				}
			}, &e.work, e.out)
		e.scripting.end()
		e.endScript(0)
		if over := e.work.Ended(); over != nil {
			e.work.Resume()
			e.out.Buf = e.out.Buf[:start]
			if line, ok := over.(redis.Refusal); ok {
				return e.says(hasRun, string(line), false)
			}
			return e.says(hasRun, "ERR "+over.Error(), false) // the client is gone
		}
		if !touched {
			for _, line := range log {
				line()
			}
			return hasRun
		}
	}
	text := arg
	if bySHA {
		text = x.Source() // a short command stands for a long text: many of them must not have copies
	}
	call := redis.NewScriptCall(flags, text, first, cmd.args[evalNumKeys:])
	cmd.script, cmd.how = &call, call.Command.How
	return isReady
}

// says answers a command, unless nobody asked for more than whether it is ready.
func (e *executor) says(what readiness, line string, quick bool) readiness {
	if quick {
		return isLater
	}
	e.out.Error(line)
	return what
}

// numKeys returns how many keys a call of EVAL declares, or the error of a number that is wrong.
func numKeys(args [][]byte) (n int64, wrong string) {
	n, ok := redis.ParseInt(args[evalNumKeys])
	switch {
	case !ok:
		return 0, redis.ErrNotInteger
	case n > int64(len(args)-evalKeys):
		return 0, errTooManyKeys
	case n < 0:
		return 0, errNegativeKeys
	}
	return n, ""
}

func (e *executor) scriptLimits() redis.ScriptLimits {
	return redis.ScriptLimits{Steps: e.knobs.ScriptSteps, Bytes: int(e.knobs.ScriptBytes), Calls: e.knobs.ScriptCalls}
}

// loadedScript returns a script that is loaded here, nil if it is not.
func (e *executor) loadedScript(sha string) *lua.Script {
	if a := &e.ahead; a.on {
		x := a.scripts[strings.ToLower(sha)]
		if x != nil || a.flushed {
			return x
		}
	}
	return e.node.Scripts().Get(sha)
}

// findScript finds a script that was not loaded here, by its text or its SHA1. If there is none, why is the error.
func (e *executor) findScript(arg []byte, bySHA bool) (x *lua.Script, why string) {
	if !bySHA {
		return e.loadScript(arg, false)
	}
	if len(arg) == lua.SHALength && !(e.ahead.flushed && e.proxy()) { // on the proxy port all stores are flushed
		x = e.node.FindScript(string(bytes.ToLower(arg)))
	}
	if x == nil {
		return nil, errNoScript
	}
	return x, ""
}

// loadScript compiles a script and loads it.
func (e *executor) loadScript(text []byte, stay bool) (x *lua.Script, why string) {
	if len(text) > lua.MaxText {
		return nil, errLongScript
	}
	x, err := lua.Compile(string(text))
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\x00") // as C would have it
		return nil, "ERR " + strings.NewReplacer("\r", " ", "\n", " ").Replace(line)
	}
	if e.ahead.on {
		e.ahead.add(x)
	} else {
		e.node.LoadScript(x, stay)
	}
	return x, ""
}

// aheadScripts is how the commands of a transaction will change which scripts are loaded, up to one of these commands.
// At EXEC the server makes calls of all of them before any has run.
type aheadScripts struct {
	on      bool
	flushed bool                   // no other scripts are loaded
	scripts map[string]*lua.Script // by SHA1
	bytes   int                    // of all that were added
}

func (a *aheadScripts) add(x *lua.Script) {
	if a.scripts == nil {
		a.scripts = map[string]*lua.Script{}
	}
	a.scripts[x.SHA] = x
	a.bytes += x.Bytes()
}

// readyInside makes calls of the queued commands of a transaction, or has their replies ready. It returns false if
// clients may not hold so much memory.
func (c *conn) readyInside(cmds []command) bool {
	e := &c.exec
	e.ahead = aheadScripts{on: true}
	defer func(proto int) { e.ahead, e.out.Proto = aheadScripts{}, proto }(e.out.Proto)
	held := 0
	for i := range cmds {
		cmd := &cmds[i]
		switch {
		case cmd.proto > 0:
			e.out.Proto = cmd.proto
		case cmd.how == redis.HowScript:
			start := len(e.out.Buf)
			if e.ready(cmd, false) != isReady {
				cmd.reply = bytes.Clone(e.out.Buf[start:])
				e.out.Buf = e.out.Buf[:start]
			}
			if n := len(e.ahead.scripts); n > 0 && !strings.HasPrefix(cmd.row.Name, "evalsha") {
				cmd.loads = e.ahead.scripts[lua.SHA1(string(cmd.args[evalText]))]
			}
		case cmd.how != redis.HowOwn:
		case cmd.row.FullName() == "script|load":
			e.loadScript(cmd.args[2], true)
		case cmd.row.FullName() == "script|flush" && rightFlush(cmd.args):
			e.ahead.flushed, e.ahead.scripts = true, nil
		}
		if n := e.ahead.bytes - held; n > 0 {
			if held += n; !c.hold(int64(n)) {
				return false
			}
		}
	}
	return true
}

// The scripts that a batch of the executor has.
const (
	noScripts = iota
	readingScripts
	writingScripts
	killedScripts // reading ones, which SCRIPT KILL has ended
)

// scripting is what SCRIPT KILL knows of an executor.
type scripting struct {
	now atomic.Int32 // what the present batch has
}

// begin notes what a batch has.
func (s *scripting) begin(cmds []command, how redis.How) {
	for i := range cmds {
		if cmds[i].script == nil {
			continue
		}
		if how == redis.HowRead {
			s.now.Store(readingScripts)
		} else {
			s.now.Store(writingScripts)
		}
		return
	}
}

func (s *scripting) end() {
	if s.now.Load() != noScripts {
		s.now.Store(noScripts)
	}
}

// beginScript waits for a place among the scripts that run on connections and read from a store, until a deadline.
// There are as many as processors, so that the memory of scripts is bounded; each store has its own, since its disk may
// hang.
func (e *executor) beginScript(on topology.StoreID, deadline time.Time) bool {
	select {
	case e.places[placeOf(on)] <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case e.places[placeOf(on)] <- struct{}{}:
		return true
	case <-timer.C:
	case <-e.gone:
	case <-e.closing:
	}
	return false
}

func (e *executor) endScript(on topology.StoreID) { <-e.places[placeOf(on)] }

// insideScripts is what a connection keeps of the calls that its scripts have made, until the scripts themselves have
// been answered and shown. Each script is known by the first argument of its call, or of its command if it touches no
// key.
type insideScripts struct {
	mu    sync.Mutex         // scripts of several regions may run at once
	lines map[*[]byte][]byte // for monitors; as in Redis the line of the script comes first
	bytes int                // of the lines
	fails map[*[]byte]string // the last error

	published map[*[]byte][]redis.Publication // not yet
}

const (
	// scriptLineBytes bounds the lines that wait, of all scripts that run together.
	scriptLineBytes = 1 << 20
	// scriptFailBytes is how much of an error is kept.
	scriptFailBytes = 128
)

// saw counts a call that a script makes, and tells the slow log and the monitors of it. The goroutine that runs the
// script calls it.
func (c *conn) saw(script *redis.Call, x *redis.InnerCall) {
	key := &script.Args[0]
	if c.s.countInner(x) {
		line, _, _ := bytes.Cut(x.Reply, []byte("\r"))
		c.inside.fail(key, string(line[:min(len(line), scriptFailBytes)]))
	}
	if !x.Ran {
		return
	}
	if limit := c.s.slow.limit.Load(); limit >= 0 && x.Took.Microseconds() >= limit {
		c.s.slow.addCall(c, c.info.Load().Name, x.Args, time.Now(), x.Took)
	}
	if c.s.monitors.all.Load() != nil {
		c.inside.show(key, x.Args)
	}
}

func (s *insideScripts) fail(script *[]byte, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails == nil {
		s.fails = map[*[]byte]string{}
	}
	s.fails[script] = line
}

func (s *insideScripts) show(script *[]byte, args [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes > scriptLineBytes {
		return
	}
	if s.lines == nil {
		s.lines = map[*[]byte][]byte{}
	}
	before := len(s.lines[script])
	lines := appendLine(s.lines[script], time.Now(), "lua", args)
	if s.bytes += len(lines) - before; s.bytes > scriptLineBytes {
		lines = append(lines, "+... (more calls of scripts)\r\n"...)
	}
	s.lines[script] = lines
}

// publish keeps what a script has published.
func (s *insideScripts) publish(args [][]byte, p redis.Publication) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published == nil {
		s.published = map[*[]byte][]redis.Publication{}
	}
	s.published[&args[0]] = append(s.published[&args[0]], p)
}

// takePublished takes what a command's script has published.
func (s *insideScripts) takePublished(cmd *command) []redis.Publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := &cmd.args[0]
	if cmd.script != nil {
		key = &cmd.script.Args[0]
	}
	all := s.published[key]
	delete(s.published, key)
	return all
}

// shown returns the lines of a script's calls. script is nil for other commands.
func (s *insideScripts) shown(script *redis.Call) []byte {
	if script == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines[&script.Args[0]]
}

// counted reports whether the error that a script replies is that of a call of it, which is counted already.
func (s *insideScripts) counted(script *redis.Call, reply []byte) bool {
	if script == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.fails[&script.Args[0]]
	return line != "" && bytes.HasPrefix(reply, []byte(line))
}

// reset forgets all scripts.
func (s *insideScripts) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines, s.fails, s.published, s.bytes = nil, nil, nil, 0
}

func runScriptLoad(c *conn, args [][]byte) {
	x, why := c.exec.loadScript(args[2], true)
	if x == nil {
		c.out.Error(why)
		return
	}
	c.out.BulkString(x.SHA)
}

func runScriptExists(c *conn, args [][]byte) {
	all := c.s.o.Node.Scripts()
	c.out.Array(len(args) - 2)
	for _, sha := range args[2:] {
		if !c.exec.work.Spend(1) {
			return
		}
		if len(sha) == lua.SHALength && all.Has(string(sha)) {
			c.out.Int(1)
		} else {
			c.out.Int(0)
		}
	}
}

// runScriptFlush forgets the scripts at once, whichever mode is asked for.
func runScriptFlush(c *conn, args [][]byte) {
	if !rightFlush(args) {
		c.out.Error(errFlushMode)
		return
	}
	c.s.o.Node.FlushScripts()
	c.out.OK()
}

func rightFlush(args [][]byte) bool {
	return len(args) < 3 || len(args) == 3 && (redis.IsOption(args[2], "sync") || redis.IsOption(args[2], "async"))
}

// runScriptKill ends the scripts of this port's clients that only read. No others can be ended: all replicas run them.
func runScriptKill(c *conn, args [][]byte) {
	reading, writing := 0, 0
	c.s.mu.Lock()
	for x := range c.s.connections() {
		s := &x.exec.scripting
		switch {
		case s.now.CompareAndSwap(readingScripts, killedScripts):
			reading++
		case s.now.Load() == writingScripts:
			writing++
		}
	}
	c.s.mu.Unlock()
	switch {
	case reading > 0:
		c.out.OK()
	case writing > 0:
		c.out.Error(errUnkillable)
	default:
		c.out.Error(errNotBusy)
	}
}

func runScriptDebug(c *conn, args [][]byte) {
	switch mode := args[2]; {
	case redis.IsOption(mode, "no"):
		c.out.OK()
	case redis.IsOption(mode, "yes"), redis.IsOption(mode, "sync"):
		c.out.Error(errNoDebugger)
	default:
		c.out.Error(errDebugMode)
	}
}
