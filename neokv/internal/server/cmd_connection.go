package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"slices"

	"neokv.dev/neokv/internal/redis"
)

// This file has the commands about the connection.

// redisVersion is the version of Redis that the server claims to be. Clients decide by it which commands they may send.
const redisVersion = "7.0.15"

const (
	errClientName = "ERR Client names cannot contain spaces, newlines or special characters."
	errWrongPass  = "WRONGPASS invalid username-password pair or user is disabled."
	errNoPassword = "ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?"
	errNotInt32  = "ERR value is out of range, value must between -2147483648 and 2147483647"
	errSelect    = "ERR SELECT is not allowed in cluster mode"
	errHelloAuth = "NOAUTH HELLO must be called with the client already authenticated, " +
		"otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client " +
		"and select the RESP protocol version at the same time"
	errNoCluster = "ERR This instance has cluster support disabled"
)

func runPing(c *conn, args [][]byte) {
	switch n := len(args); {
	case n <= 2 && c.session.OnlyListens():
		c.out.Array(2)
		c.out.BulkString("pong")
		c.out.Bulk(bytes.Join(args[1:], nil))
	case n == 1:
		c.out.Status("PONG")
	case n == 2:
		c.out.Bulk(args[1])
	default:
		c.out.WrongArity(commands.Lookup(args[0]))
	}
}

// runACLWhoAmI names the only user that there is.
func runACLWhoAmI(c *conn, args [][]byte) { c.out.BulkString("default") }

func runEcho(c *conn, args [][]byte) { c.out.Bulk(args[1]) }

func runSelect(c *conn, args [][]byte) {
	n, ok := redis.ParseInt(args[1])
	switch {
	case !ok:
		c.out.Error(redis.ErrNotInteger)
	case n != int64(int32(n)):
		c.out.Error(errNotInt32)
	case n == 0:
		c.out.OK()
	case c.s.proxy():
		c.out.Error(redis.ErrDBIndex)
	default:
		c.out.Error(errSelect)
	}
}

func runQuit(c *conn, args [][]byte) {
	c.out.drain()
	c.out.OK()
	c.closing = true
}

func runReset(c *conn, args [][]byte) {
	c.endTransaction()
	c.endMonitor()
	c.unsubscribeAll()
	c.endTracking()
	c.session.Reset(*c.s.limits.password.Load() == "")
	c.session.Track(c.hosts)
	c.out.Proto = c.session.Proto
	c.tell()
	c.mute.Store(false)
	c.out.Status("RESET")
}

func runAuth(c *conn, args [][]byte) {
	user := []byte("default")
	switch {
	case len(args) > 3:
		c.out.Error(redis.ErrSyntax)
		return
	case len(args) == 3:
		user = args[1]
	case *c.s.limits.password.Load() == "":
		c.out.Error(errNoPassword)
		return
	}
	if !c.rightPassword(user, args[len(args)-1]) {
		c.out.Error(errWrongPass)
		return
	}
	c.session.Know()
	c.out.OK()
}

// rightPassword reports whether the password is right. The only user is default. While no password is set, any is
// right.
func (c *conn) rightPassword(user, password []byte) bool {
	want := *c.s.limits.password.Load()
	if string(user) != "default" {
		return false
	}
	if want != "" { // digests, so that the time taken does not tell how long the password is
		a, b := sha256.Sum256(password), sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(a[:], b[:]) != 1 {
			return false
		}
	}
	return true
}

func runHello(c *conn, args [][]byte) {
	version, wrong := c.hello(args, true)
	switch {
	case c.exec.work.Ended() != nil:
		return
	case wrong != "":
		c.out.Error(wrong)
		return
	case version > 0:
		c.out.drain()
		c.session.Proto, c.out.Proto = version, version
		c.tell()
	}
	c.out.MapOf("server", "redis", "version", redisVersion, "proto", c.session.Proto, "id", int64(c.id),
		"mode", c.s.mode(), "role", c.role(), "modules", func() { c.out.Array(0) })
}

// hello looks at the arguments of HELLO and returns the version of the protocol that it asks for, 0 for none, or the
// error. With act set it does what AUTH and SETNAME say, up to the first option that is wrong.
func (c *conn) hello(args [][]byte, act bool) (version int, wrong string) {
	if len(args) > 1 {
		n, ok := redis.ParseInt(args[1])
		if !ok {
			return 0, redis.ErrProtoVersion
		}
		if n < 2 || n > 3 {
			return 0, redis.ErrNoProto
		}
		version = int(n)
	}
	locked := c.locked()
	for i := 2; i < len(args) && c.exec.work.Spend(2); i++ {
		left := len(args) - 1 - i
		switch {
		case redis.IsOption(args[i], "auth") && left >= 2:
			if !c.rightPassword(args[i+1], args[i+2]) {
				return 0, errWrongPass
			}
			if locked = false; act {
				c.session.Know()
			}
			i += 2
		case redis.IsOption(args[i], "setname") && left >= 1:
			if !plain(args[i+1]) {
				return 0, errClientName
			}
			if act {
				c.setName(args[i+1])
			}
			i++
		default:
			return 0, "ERR Syntax error in HELLO option '" + oneLine(args[i]) + "'"
		}
	}
	if locked {
		return 0, errHelloAuth
	}
	return version, ""
}

// role is what the address that the client has asked is in a cluster.
func (c *conn) role() string {
	if c.replica() {
		return "replica"
	}
	return "master"
}

// mode is what the server calls itself to clients.
func (s *Server) mode() string {
	if s.proxy() {
		return "standalone"
	}
	return "cluster"
}

// oneLine shows an argument within an error.
func oneLine(arg []byte) string {
	return string(bytes.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, arg[:min(len(arg), 128)]))
}

// plain reports whether a name has visible ASCII characters only, so that it does not break CLIENT LIST.
func plain(name []byte) bool {
	return !slices.ContainsFunc(name, func(x byte) bool { return x < '!' || x > '~' })
}

// setName names the connection. An empty name removes its name.
func (c *conn) setName(name []byte) bool {
	if !plain(name) {
		return false
	}
	c.session.Name = string(name)
	c.tell()
	return true
}

func runReadOnly(c *conn, args [][]byte)  { c.setReadOnly(true) }
func runReadWrite(c *conn, args [][]byte) { c.setReadOnly(false) }

func (c *conn) setReadOnly(readOnly bool) {
	c.session.ReadOnly = readOnly
	c.tell()
	c.out.OK()
}

// runAsking has the next command, or transaction, served where clients are shown that its slot is imported. See
// show.go.
func runAsking(c *conn, args [][]byte) {
	if !c.out.within { // as in Redis it has no effect inside of EXEC
		c.session.Ask()
	}
	c.out.OK()
}
