package server

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/parameters"
	"neokv.dev/neokv/settings"
)

// This file has the command CONFIG.

// parameter is one parameter of CONFIG: one that clients know by Redis's names, or a setting by its own name.
type parameter struct {
	name   string
	secret bool // only who asks for it by CONFIG GET may see the value
	get    func(s *Server) string
	// check returns why CONFIG SET may not set a value, or the value in the form that apply sets. A nil check says that
	// CONFIG SET refuses the parameter, for the reason fixed, before it looks at any value. A nil apply does nothing.
	check func(s *Server, text string) (value, problem string)
	apply func(s *Server, value string)
	fixed string
}

const (
	immutable = "can't set immutable config"
	protected = "can't set protected config"
)

// binding has the functions of a row of parameters.All. Rows whose value is always the same have none.
type binding struct {
	get func(s *Server) string
	// check, if it is not nil, checks a value further that the row allows.
	check func(s *Server, value string) (problem string)
	apply func(s *Server, value string)
}

// bindings has the functions of the rows that work, and of those that tell what holds here.
var bindings = map[string]binding{
	"appendfsync": {get: func(s *Server) string {
		return map[bool]string{true: "always", false: "no"}[s.o.Settings.Engine.WALSync == "always"]
	}},
	"bind": {get: func(s *Server) string { host, _ := s.listens(); return host }},
	"client-output-buffer-limit": {
		get:   outputLimits,
		check: func(_ *Server, v string) string { _, problem := parseOutputLimits(v); return problem },
		apply: func(s *Server, v string) {
			next, _ := parseOutputLimits(v)
			for class, at := range s.limits.ofClass() {
				if x := next[class]; x != nil {
					at.Store(x)
				}
			}
		},
	},
	"client-query-buffer-limit": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.query }),
	"cluster-announce-hostname": {get: (*Server).hostname},
	"cluster-announce-ip": {get: func(s *Server) string {
		host, _ := s.listens()
		if told := s.announces(); told.IP != host {
			return told.IP
		}
		return ""
	}},
	"cluster-announce-port": {get: func(s *Server) string {
		_, port := s.listens()
		if told := s.announces(); told.Port != port {
			return strconv.Itoa(told.Port)
		}
		return "0"
	}},
	"cluster-enabled": {get: func(s *Server) string { return yesNo(!s.proxy()) }},
	"cluster-node-timeout": {get: func(s *Server) string {
		raft := &s.o.Settings.Raft
		return strconv.FormatInt(int64(raft.ElectionTicks)*raft.RTT.Milliseconds(), 10)
	}},
	"cluster-preferred-endpoint-type": {get: func(s *Server) string {
		return s.o.Settings.Redis.ClusterPreferredEndpointType
	}},
	"dir": {get: func(*Server) string {
		dir, _ := os.Getwd() // empty where the system does not tell
		return dir
	}},
	"maxclients": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.clients }).checked(
		func(s *Server, v string) string { return s.o.Sockets.refuses(mustInt(v)) }),
	"maxmemory-clients": {
		get: func(s *Server) string { return s.o.ClientMemory.text() },
		check: func(_ *Server, v string) string {
			if _, percent, _ := parameters.ParseSizeOrPercent(v); percent > 0 && systemMemory() == 0 {
				return "how much memory there is to have percents of is not known"
			}
			return ""
		},
		apply: func(s *Server, v string) {
			bytes, percent, _ := parameters.ParseSizeOrPercent(v)
			s.o.ClientMemory.set(bytes, percent)
		},
	},
	"notify-keyspace-events": {
		get: func(s *Server) string { return redis.EventClass(s.events.Load()).String() },
		check: func(_ *Server, v string) string {
			if _, ok := redis.ParseEventClass(v); !ok {
				return "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
			}
			return ""
		},
		apply: (*Server).setEvents,
	},
	"port":               {get: func(s *Server) string { return strconv.Itoa(s.port()) }},
	"proto-max-bulk-len": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.bulk }).within(1<<20, 512<<20),
	"requirepass": {
		get: func(s *Server) string { return *s.limits.password.Load() },
		check: func(s *Server, v string) string {
			if v == "" && s.o.Exposed {
				return "who listens beyond loopback needs a password"
			}
			return ""
		},
		apply: func(s *Server, v string) { s.limits.password.Store(&v) },
	},
	"slowlog-log-slower-than": ofLimit(func(s *Server) *atomic.Int64 { return &s.slow.limit }),
	"slowlog-max-len": ofLimit(func(s *Server) *atomic.Int64 { return &s.slow.length }).within(0, maxSlowCalls).then(
		func(s *Server, v string) { s.slow.resize(mustInt(v)) }),
	"tcp-keepalive": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.keepalive }),
	"tracking-table-max-keys": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.trackedKeys }).then(
		func(s *Server, v string) { s.tracked.SetMost(int(mustInt(v))) }),
	"timeout": ofLimit(func(s *Server) *atomic.Int64 { return &s.limits.timeout }).then((*Server).setTimeout),
}

// ofLimit returns the functions of a parameter whose value is a number.
func ofLimit(at func(s *Server) *atomic.Int64) binding {
	return binding{
		get:   func(s *Server) string { return strconv.FormatInt(at(s).Load(), 10) },
		apply: func(s *Server, v string) { at(s).Store(mustInt(v)) },
	}
}

// checked returns the functions with a check.
func (b binding) checked(check func(s *Server, value string) string) binding {
	b.check = check
	return b
}

// within returns the functions with closer bounds than Redis has.
func (b binding) within(low, high int64) binding {
	return b.checked(func(_ *Server, v string) string { return parameters.OutOfRange(mustInt(v), low, high, true, "") })
}

// then returns the functions with one more to apply a value.
func (b binding) then(apply func(s *Server, value string)) binding {
	store := b.apply
	b.apply = func(s *Server, value string) {
		store(s, value)
		apply(s, value)
	}
	return b
}

// keptValues are what CONFIG SET has set that has no effect. They are this server's alone, as those of a Redis are.
type keptValues struct {
	mu sync.Mutex
	of map[*parameters.Parameter]string
}

func (k *keptValues) get(p *parameters.Parameter) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.of[p]; ok {
		return v
	}
	return p.Value()
}

func (k *keptValues) set(p *parameters.Parameter, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[*parameters.Parameter]string{}
	}
	k.of[p] = value
}

// redisParameters has the parameters that clients know by Redis's names.
var redisParameters = sync.OnceValue(func() (all []parameter) {
	for i := range parameters.All {
		row := &parameters.All[i]
		b := bindings[row.Name]
		p := parameter{name: row.Name, secret: row.Secret, get: b.get}
		if p.get == nil {
			p.get = func(*Server) string { return row.Value() }
		}
		switch row.Effect {
		case parameters.Immutable:
			p.fixed = immutable
		case parameters.Protected:
			p.fixed = protected
		case parameters.Kept:
			p.get = func(s *Server) string { return s.kept.get(row) }
			p.check = func(_ *Server, text string) (string, string) { return row.Values.Parse(text) }
			p.apply = func(s *Server, value string) {
				s.kept.set(row, value)
				if f := s.o.OnKept; f != nil {
					f(row.Name)
				}
			}
		case parameters.Refused:
			p.check = func(s *Server, text string) (string, string) {
				value, problem := row.Values.Parse(text)
				if problem == "" && value != p.get(s) {
					problem = row.Note
				}
				return value, problem
			}
		case parameters.Works:
			p.apply = b.apply
			p.check = func(s *Server, text string) (string, string) {
				value, problem := row.Values.Parse(text)
				if problem == "" && b.check != nil {
					problem = b.check(s, value)
				}
				return value, problem
			}
		}
		all = append(all, p)
		if row.Also != "" {
			p.name = row.Also
			all = append(all, p)
		}
	}
	return all
})

// parameters lists the parameters that clients know by Redis's names, and after them the settings by their own names.
// The settings cannot be changed.
func (s *Server) parameters() []parameter {
	now := s.o.Settings
	s.limits.tell(&now.Redis)
	s.o.ClientMemory.tell(&now.Redis)
	out := slices.Clone(redisParameters())
	for _, f := range settings.Fields(&now) {
		if !f.Secret {
			out = append(out, parameter{name: f.Name, get: func(*Server) string { return f.Get() }, fixed: immutable})
		}
	}
	return out
}

// setTimeout changes how long connections may be idle, also those that are idle now.
func (s *Server) setTimeout(value string) {
	s.limits.timeout.Store(mustInt(value))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.blocking.mu.Lock()
		switch {
		case c.blocking.reads: // linger has a deadline of its own
		case c.guests.Load() > 0: // it may have been woken: see invite
			c.nc.SetReadDeadline(past)
		case !c.mayIdle():
			c.nc.SetReadDeadline(idleUntil(s.limits.timeout.Load()))
		}
		c.blocking.mu.Unlock()
	}
}

// ofClass has the limits on output by class of client. Clients of the other class of Redis, slave, do not exist.
func (l *limits) ofClass() map[string]*atomic.Pointer[outputLimit] {
	return map[string]*atomic.Pointer[outputLimit]{"normal": &l.output, "pubsub": &l.pubsub}
}

// outputLimits lists the limits by class of client.
func outputLimits(s *Server) string {
	show := func(l *outputLimit) string {
		return fmt.Sprintf("%d %d %d", l.hard, l.soft, int64(l.softTime.Seconds()))
	}
	return "normal " + show(s.limits.output.Load()) + " slave 268435456 67108864 60 pubsub " +
		show(s.limits.pubsub.Load())
}

// parseOutputLimits parses what outputLimits lists. It returns the limits of the classes that the text has.
func parseOutputLimits(text string) (next map[string]*outputLimit, problem string) {
	words := strings.Fields(text)
	if len(words)%4 != 0 {
		return nil, "Wrong number of arguments in buffer limit configuration."
	}
	next = map[string]*outputLimit{}
	for ; len(words) > 0; words = words[4:] {
		class := strings.ToLower(words[0])
		switch class {
		case "normal", "slave", "replica", "pubsub":
		default:
			return nil, "Invalid client class specified in buffer limit configuration."
		}
		hard, ok := parameters.ParseSize(words[1])
		soft, ok2 := parameters.ParseSize(words[2])
		seconds, ok3 := redis.ParseInt([]byte(words[3]))
		if !ok || !ok2 || !ok3 || seconds < 0 || seconds > math.MaxInt32 {
			return nil, "Error in hard, soft or soft_seconds setting in buffer limit configuration."
		}
		next[class] = &outputLimit{hard, soft, time.Duration(seconds) * time.Second}
	}
	return next, ""
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func mustInt(value string) int64 {
	n, ok := redis.ParseInt([]byte(value))
	if !ok {
		panic("a checked number is none: " + value)
	}
	return n
}

// hostname returns the host name that clients are told of the store, empty if there is none.
func (s *Server) hostname() string { return s.announces().Hostname }

// announces is what clients are told of the store wherever they are.
func (s *Server) announces() announce.Addr {
	host, port := s.listens()
	told := s.o.Announce.To(nil, nil)
	return told.Store(int(s.o.Self), host, port)
}

// port returns the port that the server listens on.
func (s *Server) port() int {
	_, port := s.listens()
	return port
}

// listens returns where the server listens, a server that listens in memory the address of its store.
func (s *Server) listens() (host string, port int) {
	s.mu.Lock()
	for _, ln := range s.listeners {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			s.mu.Unlock()
			return a.IP.String(), a.Port
		}
	}
	s.mu.Unlock()
	if t := s.o.Node.Table(); t != nil {
		if x := t.Store(s.o.Self); x != nil {
			return x.Host, x.Port
		}
	}
	return "", 0
}

// runConfigGet repeats a name as the client wrote it, as Redis does, unless it is a pattern.
func runConfigGet(c *conn, args [][]byte) {
	all := c.s.parameters()
	var found []parameter
	add := func(p parameter, name string) {
		if !slices.ContainsFunc(found, func(q parameter) bool { return strings.EqualFold(q.name, name) }) {
			p.name = name
			found = append(found, p)
		}
	}
	for _, a := range args[2:] {
		if !c.exec.work.Spend(len(all)) {
			return
		}
		name := bytes.ToLower(a)
		pattern := redis.NewGlob(name, &c.exec.work)
		for _, p := range all {
			switch {
			case p.name == string(name):
				add(p, string(a))
			case pattern.Match([]byte(p.name), &c.exec.work):
				add(p, p.name)
			}
		}
	}
	c.out.Map(len(found))
	for _, p := range found {
		c.out.BulkString(p.name)
		c.out.BulkString(p.get(c.s))
	}
}

// runConfigSet sets all parameters or none.
func runConfigSet(c *conn, args [][]byte) {
	if len(args)%2 != 0 {
		c.out.Error(redis.ErrSyntax)
		return
	}
	all := c.s.parameters()
	var found []parameter
	failed := func(name, problem string) {
		c.out.Error("ERR CONFIG SET failed (possibly related to argument '" + name + "') - " + problem)
	}
	for i := 2; i < len(args); i += 2 {
		name := strings.ToLower(string(args[i]))
		at := slices.IndexFunc(all, func(p parameter) bool { return p.name == name })
		switch {
		case at < 0:
			c.out.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + oneLine(args[i]) + "'")
			return
		case all[at].check == nil:
			failed(oneLine(args[i]), all[at].fixed)
			return
		case slices.ContainsFunc(found, func(q parameter) bool { return q.name == name }):
			failed(oneLine(args[i]), "duplicate parameter")
			return
		}
		found = append(found, all[at])
	}
	values := make([]string, len(found))
	for i, p := range found {
		var problem string
		if values[i], problem = p.check(c.s, string(args[3+2*i])); problem != "" {
			failed(p.name, problem)
			return
		}
	}
	for i, p := range found {
		if p.apply != nil {
			p.apply(c.s, values[i])
		}
	}
	c.out.OK()
}

func runConfigResetStat(c *conn, args [][]byte) {
	c.s.stats.reset(c.s.o.Node.Info())
	c.s.calls.reset()
	c.out.OK()
}
