// Package session is what a server knows of a client between two of its commands: whether it has given the password,
// the protocol that it speaks, which replies it wants, and the transaction that it is about to send.
//
// A Session has no connection, no clock and no keys. The connection asks Step before it runs a command, and does what
// the answer says. A session that is Plain has nothing to say about any command, so the connection need not ask.
package session

import (
	"fmt"
	"slices"
	"strings"

	"neokv.dev/neokv/internal/redis"
)

// Session is the state of one client. The zero value has not given the password. One goroutine may use it at a time.
type Session struct {
	Info

	state   state
	silence silence
	asked   bool // of asks: ASKING is the command that runs
	queue   Queue
}

// Info is what a client says about itself. A copy may be shown to others.
type Info struct {
	Name            string // as CLIENT SETNAME has it, "" for none
	LibName, LibVer string
	ReadOnly        bool // READONLY: a replica that does not lead may answer it
	Proto           int  // 2 or 3: the version of RESP
}

// state is why a session is not plain. Each bit is one reason.
type state uint8

const (
	known      state = 1 << iota // it has given the password, or needs none; the one bit that makes a session plain
	monitor                      // it gets a line for each command that others run
	multi                        // it has sent MULTI, and neither EXEC nor DISCARD
	broken                       // of multi: a command could not be queued, so EXEC will fail
	silent                       // some replies are kept back
	subscriber                   // it has a subscription
	tracks                       // it is told of changes of what it reads
	asks                         // ASKING came before the command, or before the transaction that it stands in
)

// New returns the session of a client that has just connected. known says that it needs no password.
func New(isKnown bool) Session {
	s := Session{Info: Info{Proto: 2}}
	if isKnown {
		s.state = known
	}
	return s
}

// Plain reports whether Step would answer Run to every command.
func (s *Session) Plain() bool { return s.state == known }

// Together reports whether commands may run together after Step has said Run of the first. So they may in a plain
// session, in that of a client that tracks or, in RESP3, subscribes, and where all replies are kept back, since then
// too Step says Run of all.
func (s *Session) Together() bool {
	return s.state&^(silent|subscriber|tracks) == known && !s.silence.skip && !s.OnlyListens()
}

// Command is a command of the client, as far as a session is concerned.
type Command struct {
	Row  *redis.Command // nil: there is none of this name
	Args [][]byte       // Args[0] is the name
	// Valid says that there is a row and that the number of arguments fits it. A command that is not valid is answered
	// with an error by whoever knows which.
	Valid bool
}

// Action is what to do with a command.
type Action byte

const (
	// Run: the command runs, or is answered with its error if it is not valid. An EXEC that is not valid ends the
	// transaction.
	Run Action = iota
	// Refuse: the command does not run; the error Step.Error is the answer.
	Refuse
	// Enqueue: the command joins the transaction. The caller calls Queue, or Break if the command cannot run anyway.
	Enqueue
	// Exec: the queued commands run as one unit, unless the transaction is Broken. The caller then calls End.
	Exec
)

// Step is what to do with a command.
type Step struct {
	Action Action
	Error  string // of Refuse: the line without the leading '-'
}

// Errors of redis-server 7.0.15.
const (
	errAbortedBy = "EXECABORT Transaction discarded because of: "
	errMonitor   = "ERR Replica can't interact with the keyspace" // for Redis a monitor is a kind of replica
	errNoMulti   = "ERR Command not allowed inside a transaction"
	errListens   = "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
)

// Step says what to do with the next command. password says that clients must give one.
func (s *Session) Step(c *Command, password bool) Step {
	inside := s.state&multi != 0
	switch {
	case !c.Valid:
		if c.Row == nil || c.Row.Name != "exec" {
			s.Break()
		}
		return Step{}
	case password && s.state&known == 0 && c.Row.Flags&redis.FlagNoAuth == 0:
		return s.refuse(c, redis.ErrNoAuth)
	case s.OnlyListens() && !slices.Contains(toListeners, c.Row.FullName()):
		return s.refuse(c, fmt.Sprintf(errListens, c.Row.FullName()))
	case s.state&monitor != 0 && c.Row.Flags&(redis.FlagWrite|redis.FlagReadonly|redis.FlagMayReplicate) != 0:
		return s.refuse(c, errMonitor)
	case inside && c.Row.Flags&redis.FlagNoMulti != 0:
		return s.refuse(c, errNoMulti)
	}
	switch c.Row.FullName() {
	case "multi", "watch", "discard", "quit", "reset":
	case "exec":
		if inside {
			return Step{Action: Exec}
		}
	default:
		if inside {
			return Step{Action: Enqueue}
		}
	}
	return Step{}
}

// refuse refuses a command, and with it the transaction that it stands in. EXEC says that the transaction is over.
func (s *Session) refuse(c *Command, line string) Step {
	if c.Row.Name == "exec" {
		s.End()
		return Step{Refuse, errAbortedBy + strings.TrimPrefix(line, "ERR ")}
	}
	s.Break()
	return Step{Refuse, line}
}

// Break makes EXEC fail, if the session has begun a transaction.
func (s *Session) Break() {
	if s.state&multi != 0 {
		s.state |= broken
		s.queue.clear()
	}
}

// Broken reports whether EXEC fails, since a command of the transaction could not be queued.
func (s *Session) Broken() bool { return s.state&broken != 0 }

// Begin begins a transaction: MULTI.
func (s *Session) Begin() { s.state |= multi }

// Inside reports whether the session has begun a transaction.
func (s *Session) Inside() bool { return s.state&multi != 0 }

// End ends a transaction: EXEC and DISCARD. The queue is empty then.
func (s *Session) End() {
	s.state &^= multi | broken
	s.queue.clear()
}

// Know notes that the client has given the password.
func (s *Session) Know() { s.state |= known }

// Known reports whether the client has given the password, or needed none when it came.
func (s *Session) Known() bool { return s.state&known != 0 }

// Monitor notes whether the client is a monitor.
func (s *Session) Monitor(on bool) {
	s.state &^= monitor
	if on {
		s.state |= monitor
	}
}

// Monitors reports whether the client is a monitor.
func (s *Session) Monitors() bool { return s.state&monitor != 0 }

// Subscribe notes whether the client has a subscription.
func (s *Session) Subscribe(on bool) {
	s.state &^= subscriber
	if on {
		s.state |= subscriber
	}
}

// OnlyListens reports whether the client may send little besides what is about its subscriptions: in RESP2 it cannot
// tell replies from messages.
func (s *Session) OnlyListens() bool { return s.state&subscriber != 0 && s.Proto == 2 }

// toListeners are the commands of a client that only listens.
var toListeners = []string{
	"ping", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe", "quit", "reset",
}

// Track notes whether the client tracks keys.
func (s *Session) Track(on bool) {
	s.state &^= tracks
	if on {
		s.state |= tracks
	}
}

// Ask notes that the command which follows is sent on by ASK, or the transaction which follows, as a whole.
func (s *Session) Ask() {
	s.state |= asks
	s.asked = true
}

// Asks reports whether the command that runs was sent on by ASK.
func (s *Session) Asks() bool { return s.state&asks != 0 }

// Reset makes the session what it was when the client came: RESET. Which replies are kept back until the next command
// stays, since the reply of RESET is one of them. The name of the client's library stays, too.
func (s *Session) Reset(isKnown bool) {
	next := New(isKnown)
	next.LibName, next.LibVer = s.LibName, s.LibVer
	next.setSilence(silence{skip: s.silence.skip})
	next.queue = s.queue
	next.queue.clear()
	*s = next
}

// silence says which replies CLIENT REPLY keeps back.
type silence struct{ off, skip, skipNext bool }

func (s *Session) setSilence(to silence) {
	s.silence = to
	s.state &^= silent
	if to != (silence{}) {
		s.state |= silent
	}
}

// ReplyOn, ReplyOff and ReplySkip are the three forms of CLIENT REPLY. Only the first one is answered.
func (s *Session) ReplyOn() { s.setSilence(silence{skipNext: s.silence.skipNext}) }

func (s *Session) ReplyOff() {
	to := s.silence
	to.off = true
	s.setSilence(to)
}

func (s *Session) ReplySkip() {
	to := s.silence
	if to.skipNext = !to.off; to.skipNext {
		to.skip = true
	}
	s.setSilence(to)
}

// Off reports whether all replies are kept back.
func (s *Session) Off() bool { return s.silence.off }

// Silent reports whether the reply of the present command is kept back.
func (s *Session) Silent() bool { return s.silence.off || s.silence.skip }

// Ran is called after each command, or after commands that ran together.
func (s *Session) Ran() {
	if s.state&silent != 0 {
		s.setSilence(silence{off: s.silence.off, skip: s.silence.skipNext})
	}
	if s.state&(asks|multi) == asks && !s.asked {
		s.state &^= asks
	}
	s.asked = false
}

// Queue is the commands of a transaction.
type Queue struct {
	Commands []Command
	Bytes    int // that the queue holds, about

	kept int // commands whose arguments are the queue's own
}

// queueBytes is what a queued command holds besides its arguments, and what each of them holds besides its bytes.
const (
	commandBytes = 64
	argBytes     = 24
)

// Queue appends a command to the transaction, unless EXEC will fail anyway. Its arguments must stay as they are until
// Keep.
func (s *Session) Queue(c Command) {
	if s.state&broken != 0 {
		return
	}
	q := &s.queue
	q.Bytes += commandBytes + len(c.Args)*argBytes
	for _, a := range c.Args {
		q.Bytes += len(a)
	}
	q.Commands = append(q.Commands, c)
}

// Queued is the commands of the transaction. It is valid until End.
func (s *Session) Queued() *Queue { return &s.queue }

// Keep copies the arguments that have been queued since the last call. The connection calls it before it reads more
// from the client.
func (s *Session) Keep() {
	q := &s.queue
	for i := q.kept; i < len(q.Commands); i++ {
		c := &q.Commands[i]
		size := 0
		for _, a := range c.Args {
			size += len(a)
		}
		room := make([]byte, 0, size)
		c.Args = slices.Clone(c.Args)
		for j, a := range c.Args {
			n := len(room)
			room = append(room, a...)
			c.Args[j] = room[n:len(room):len(room)]
		}
	}
	q.kept = len(q.Commands)
}

// keptCommands is how many commands a queue may have had for its memory to be kept.
const keptCommands = 1 << 10

func (q *Queue) clear() {
	if cap(q.Commands) > keptCommands {
		q.Commands = nil
	}
	clear(q.Commands)
	*q = Queue{Commands: q.Commands[:0]}
}
