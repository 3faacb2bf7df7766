// Package lua runs the scripts of EVAL as Redis 7.0 does. It knows nothing of keys and commands: a script's calls go to
// a function that its caller gives, and come back as replies of the protocol.
//
// A run is a function of the script, its arguments, the seed, the limits and what the calls reply. It depends on no
// clock, no address and no processor, so all replicas end it at the same instruction with the same effects.
package lua

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

// Version names this interpreter. It changes whenever a run may come out differently, be it by one counted instruction.
const Version = 2

// Flags of a script's first line: #!lua flags=no-writes,allow-stale.
type Flags uint8

const (
	NoWrites Flags = 1 << iota
	AllowOOM
	AllowStale
	NoCluster
	AllowCrossSlotKeys
	Shebang // the script has such a line; without one it may do anything
)

var flagNames = map[string]Flags{
	"no-writes": NoWrites, "allow-oom": AllowOOM, "allow-stale": AllowStale, "no-cluster": NoCluster,
	"allow-cross-slot-keys": AllowCrossSlotKeys,
}

// Script is a compiled script. Any number of states may run it at once.
type Script struct {
	SHA   string // of the text, in lower-case hexadecimal
	Text  string
	Flags Flags
	proto *vm.Proto
}

// SHALength is the length of a script's name.
const SHALength = 2 * sha1.Size

// SHA1 names a script.
func SHA1(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Bytes is about how much memory the script takes.
func (s *Script) Bytes() int { return len(s.Text) + s.proto.Bytes() + 256 }

// Source is the text, which nobody may change.
func (s *Script) Source() []byte { return vm.Bytes(vm.LString(s.Text)) }

// refuse is an error with a text of Redis.
func refuse(format string, args ...any) error {
	return &vm.SyntaxError{Message: fmt.Sprintf(format, args...)}
}

// Compile compiles a script. The error is the text of Redis's reply, without its code ERR.
func Compile(text string) (*Script, error) {
	flags, body, err := shebang(text)
	if err != nil {
		return nil, err
	}
	p, err := vm.Compile(body, "@user_script")
	if err != nil {
		return nil, refuse("Error compiling script (new function): %v", err)
	}
	return &Script{SHA: SHA1(text), Text: text, Flags: flags, proto: p}, nil
}

// shebang reads the first line of a script that has #! there. What follows keeps the numbers of its lines.
func shebang(text string) (Flags, string, error) {
	if !strings.HasPrefix(text, "#!") {
		return 0, text, nil
	}
	end := strings.IndexByte(text, '\n')
	if end < 0 {
		return 0, "", refuse("Invalid script shebang")
	}
	parts := strings.Fields(text[:end])
	if parts[0] != "#!lua" {
		return 0, "", refuse("Unexpected engine in script shebang: %s", parts[0])
	}
	flags := Shebang
	for _, part := range parts[1:] {
		list, ok := strings.CutPrefix(part, "flags=")
		if !ok {
			return 0, "", refuse("Unknown lua shebang option: %s", part)
		}
		if list == "" {
			continue
		}
		for _, name := range strings.Split(list, ",") {
			flag, ok := flagNames[name]
			if !ok {
				return 0, "", refuse("Unexpected flag in script shebang: %s", name)
			}
			flags |= flag
		}
	}
	return flags, text[end:], nil
}

// Limits bound a run: they are counted, never timed.
type Limits = vm.Limits

// What a LimitError names, unless a Host has made it.
const (
	LimitSteps = vm.LimitSteps
	LimitBytes = vm.LimitBytes
)

// LimitError is what Run returns for a script that went beyond a limit. Its effects must be undone.
type LimitError = vm.LimitError

// Host is what surrounds a script.
type Host interface {
	// Call runs a command for redis.call and appends its reply in a protocol, 2 or 3. The arguments are valid during
	// the call. It may charge the run for its work by a panic of a *LimitError, or by State.Charge.
	Call(reply []byte, args [][]byte, protocol int) []byte
	// Knows reports whether there is a command of the name with which the arguments begin.
	Knows(args [][]byte) bool
	// Log gets what a script says by redis.log, from debug, 0, to warning, 3.
	Log(level int, text string)
}

// Run is one run of a script.
type Run struct {
	Script     *Script
	Keys, Argv [][]byte
	// Look, if it is not nil, is asked now and then whether the script may go on. If not, the error is a LimitError that
	// names nothing.
	Look     func() bool
	Seed     uint64 // of math.random
	Limits   Limits
	Protocol int // of the reply: 2 or 3
	Host     Host
}

// State runs scripts one after the other. Nothing of a run is left for the next. It is not for concurrent use.
type State struct {
	L    *vm.LState
	mark uint64

	run      *Run
	random   drand
	protocol int      // of the replies to calls, as redis.setresp sets it
	args     [][]byte // of the call under way
	numbers  []byte   // the bytes of those that are numbers
	reply    []byte   // to the call
	broken   bool
	outside  bool // a call of Host is under way
	handler  *vm.LFunction
	fresh    []func() // what libraries with settings do before a run
}

// NewState makes a state. It takes some hundred microseconds, so keep it.
func NewState() *State {
	s := &State{}
	s.open()
	return s
}

func (s *State) open() {
	L := vm.NewState()
	s.L, s.fresh, s.broken = L, nil, false
	openBase(L)
	table := func(name string, functions []named) *vm.LTable {
		t := fill(L, L.NewTable(), functions)
		L.Env.RawSetString(name, t)
		return t
	}
	strings := table("string", stringFunctions)
	table("table", tableFunctions)
	table("coroutine", coroutineFunctions)
	m := table("math", mathFunctions)
	m.RawSetString("pi", vm.LNumber(math.Pi))
	m.RawSetString("huge", vm.LNumber(math.Inf(1)))
	fill(L, m, []named{{"random", s.random.random}, {"randomseed", s.random.randomSeed}})
	s.openRedis()
	s.openLibraries()
	meta := L.NewTable()
	meta.RawSetString("__index", strings)
	L.SetStringMetatable(meta)
	globals := L.NewTable()
	globals.RawSetString("__index", L.NewFunction(func(L *vm.LState) int {
		L.RaiseError("Script attempted to access nonexistent global variable '%s'", vm.LVAsString(L.Get(2)))
		return 0
	}))
	L.SetMetatable(L.Env, globals)
	// Room for these, so that no run makes the globals grow.
	L.Env.RawSetString("KEYS", vm.LFalse)
	L.Env.RawSetString("ARGV", vm.LFalse)
	protect(L.Env)
	protect(meta)
	protect(globals)
	s.mark = L.Mark()
}

// protect makes a table and all tables in it readonly.
func protect(t *vm.LTable) {
	t.SetReadonly(true)
	if m := t.Metatable(); m != nil {
		m.SetReadonly(true)
	}
	for k, v, _ := t.Next(vm.LNil); k != vm.LNil; k, v, _ = t.Next(k) {
		if inner, ok := v.(*vm.LTable); ok && !inner.Readonly() {
			protect(inner)
		}
	}
}

// Charge charges the run under way, as a script's own instructions and bytes are. At a limit it does not return: Host
// may call it within Call.
func (s *State) Charge(steps, bytes int) { s.L.Charge(steps, bytes) }

// Left is what the run under way, or the last one, may still use.
func (s *State) Left() Limits { return s.L.Left() }

// InternalError says that the interpreter itself failed. It does so on all replicas alike.
type InternalError struct{ What any }

func (e *InternalError) Error() string {
	return fmt.Sprintf("script failed inside of the interpreter: %v", e.What)
}

// Run runs a script and appends its reply, which is an error if the script raised one. A *LimitError says that the
// script went beyond a limit, an *InternalError that the interpreter has a fault; dst is returned as it was. A panic of
// Host goes on to the caller of Run, but for that of a *LimitError.
func (s *State) Run(dst []byte, r Run) (reply []byte, err error) {
	if s.broken {
		s.open()
	}
	L := s.L
	size := len(dst)
	defer func() {
		if p := recover(); p != nil {
			reply = dst[:size]
			switch limit, ok := p.(*LimitError); {
			case ok:
				err = limit
			case s.outside: // the panic is Host's: perhaps no other replica has it
				s.broken = true
				panic(p)
			default:
				s.broken, err = true, &InternalError{What: p}
			}
		}
		s.run = nil
		L.Env.RawSetString("KEYS", vm.LFalse)
		L.Env.RawSetString("ARGV", vm.LFalse)
		L.Reset(s.mark)
	}()
	s.run, s.protocol, s.outside = &r, 2, false
	s.random.seed(int32(r.Seed ^ r.Seed>>32))
	for _, f := range s.fresh {
		f()
	}
	L.Begin(r.Limits, r.Look)
	L.Env.RawSetString("KEYS", s.list(r.Keys))
	L.Env.RawSetString("ARGV", s.list(r.Argv))
	L.Push(L.Load(r.Script.proto))
	if e := L.PCall(0, 1, s.handler); e != nil {
		return s.errorReply(dst, e.Value), nil
	}
	return s.replyOf(dst, L.Get(-1), 0), nil
}

func (s *State) list(values [][]byte) *vm.LTable {
	t := s.L.NewTable()
	for i, v := range values {
		s.L.Charge(1+len(v)>>6, len(v))
		t.RawSetInt(i+1, vm.LString(v))
	}
	return t
}
