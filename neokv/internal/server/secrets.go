package server

import (
	"slices"
	"strings"

	"neokv.dev/neokv/internal/redis"
)

// This file says which arguments of a call are secrets. SLOWLOG and MONITOR have "(redacted)" in their place, as in
// Redis. Redis reads a call until it finds a mistake, and shows what it has not read; here a call with a mistake shows
// fewer arguments, since nobody knows what its sender meant by the others.

var redacted = []byte("(redacted)")

// shownArgs is how many arguments SLOWLOG and MONITOR show at most.
const shownArgs = monitorLineBytes / 2

// secretRule calls hide with the position of each argument that only its sender may see. Positions may lie beyond args.
type secretRule func(s *Server, args [][]byte, hide func(i int))

// secretsOf has the rules of the rows with secrets, by full name.
var secretsOf = map[string]secretRule{
	"auth":       func(_ *Server, args [][]byte, hide func(int)) { hideFrom(1, args, hide) },
	"hello":      secretsOfHello,
	"config|set": secretsOfConfigSet,
}

// shown returns the arguments of a command that other clients may see.
func (c *conn) shown(cmd *command) [][]byte {
	rule := secretRules[cmd.row]
	if rule == nil {
		return cmd.args
	}
	args := slices.Clone(cmd.args)
	rule(c.s, cmd.args, func(i int) {
		if i < len(args) {
			args[i] = redacted
		}
	})
	return args
}

func hideFrom(i int, args [][]byte, hide func(int)) {
	for ; i < min(len(args), shownArgs); i++ {
		hide(i)
	}
}

// secretsOfHello hides user and password, and what no HELLO has.
func secretsOfHello(_ *Server, args [][]byte, hide func(int)) {
	i := 1
	if len(args) > 1 {
		if _, ok := redis.ParseInt(args[1]); ok {
			i = 2
		}
	}
	for i < min(len(args), shownArgs) {
		switch {
		case redis.IsOption(args[i], "auth"):
			hide(i + 1)
			hide(i + 2)
			i += 3
		case redis.IsOption(args[i], "setname"):
			i += 2
		default:
			hideFrom(i, args, hide)
			return
		}
	}
}

// secretsOfConfigSet shows parameters that exist, and the values of those that are no secrets. Where a name or a value
// is missing nobody knows which word is a value.
func secretsOfConfigSet(s *Server, args [][]byte, hide func(int)) {
	if len(args)%2 != 0 {
		hideFrom(2, args, hide)
		return
	}
	all := s.parameters()
	for i := 2; i < min(len(args), shownArgs); i += 2 {
		name := strings.ToLower(string(args[i]))
		at := slices.IndexFunc(all, func(p parameter) bool { return p.name == name })
		if at < 0 {
			hide(i)
		}
		if at < 0 || all[at].secret {
			hide(i + 1)
		}
	}
}
