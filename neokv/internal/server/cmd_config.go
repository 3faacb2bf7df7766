package server

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// This file has the command CONFIG.

const noTimeLimit = "scripts are bounded by what they do, not by time: see redis.script_steps"

// parameter is one parameter of CONFIG. CONFIG SET refuses parameters without check before it looks at any value.
type parameter struct {
	name   string
	secret bool // only who asks for it by CONFIG GET may see the value
	get    func(s *Server) string
	// check returns why CONFIG SET may not set a value, or "" if it may. apply then sets the value; a nil apply does
	// nothing.
	check func(s *Server, value string) string
	apply func(s *Server, value string)
}

// parameters lists the parameters that clients know by Redis's names, and after them the settings by their own names.
// The settings cannot be changed.
func (s *Server) parameters() []parameter {
	fixed := func(name, value string) parameter {
		return parameter{name: name, get: func(*Server) string { return value }}
	}
	only := func(name, value, why string) parameter { // it may be set, but only to the value that it has
		p := fixed(name, value)
		p.check = func(_ *Server, v string) string {
			if strings.EqualFold(v, value) {
				return ""
			}
			return why
		}
		return p
	}
	now := s.o.Settings
	s.limits.tell(&now.Redis)
	s.o.ClientMemory.tell(&now.Redis)
	out := []parameter{
		only("appendfsync", map[bool]string{true: "always", false: "no"}[now.Engine.WALSync == "always"],
			"it follows from the setting engine.wal_sync"),
		only("appendonly", "no", "every write is in the Raft log already"),
		{
			name:  "client-output-buffer-limit",
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
		bytesOf("client-query-buffer-limit", &s.limits.query, 1<<20, math.MaxInt64),
		only("cluster-announce-hostname", s.hostname(), "it is the setting redis.cluster_announce_hostname"),
		fixed("cluster-enabled", yesNo(!s.proxy())),
		only("cluster-preferred-endpoint-type", now.Redis.ClusterPreferredEndpointType,
			"it is the setting redis.cluster_preferred_endpoint_type"),
		fixed("databases", "1"),
		fixed("enable-debug-command", "no"),
		only("busy-reply-threshold", "5000", noTimeLimit),
		only("lua-time-limit", "5000", noTimeLimit),
		only("latency-monitor-threshold", "0", "events are not watched"),
		only("latency-tracking", "yes", "latencies are always tracked"),
		only("latency-tracking-info-percentiles", latencyPercentiles, "the percentiles of INFO latencystats are fixed"),
		number("maxclients", &s.limits.clients, 1, math.MaxUint32).checked(func(s *Server, v string) string {
			return s.o.Sockets.refuses(mustInt(v))
		}),
		only("maxmemory", "0", "there is no bound that keys could be evicted for"),
		{
			name: "maxmemory-clients",
			get:  func(s *Server) string { return s.o.ClientMemory.text() },
			check: func(_ *Server, v string) string {
				_, percent, problem := parseSizeOrPercent(v)
				if percent > 0 && systemMemory() == 0 {
					return "how much memory there is to have percents of is not known"
				}
				return problem
			},
			apply: func(s *Server, v string) {
				bytes, percent, _ := parseSizeOrPercent(v)
				s.o.ClientMemory.set(bytes, percent)
			},
		},
		only("maxmemory-policy", "noeviction", "no key is ever evicted"),
		{
			name: "notify-keyspace-events",
			get:  func(s *Server) string { return redis.EventClass(s.events.Load()).String() },
			check: func(_ *Server, v string) string {
				if _, ok := redis.ParseEventClass(v); !ok {
					return "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
				}
				return ""
			},
			apply: func(s *Server, v string) { s.setEvents(v) },
		},
		only("port", strconv.Itoa(s.port()), "the server listens where it was told to at its start"),
		bytesOf("proto-max-bulk-len", &s.limits.bulk, 1<<20, 512<<20),
		{
			name:   "requirepass",
			secret: true,
			get:    func(s *Server) string { return *s.limits.password.Load() },
			check: func(s *Server, v string) string {
				if v == "" && s.o.Exposed {
					return "who listens beyond loopback needs a password"
				}
				return ""
			},
			apply: func(s *Server, v string) { s.limits.password.Store(&v) },
		},
		only("save", "", "there are no snapshots on a schedule: every write is in the Raft log"),
		number("slowlog-log-slower-than", &s.slow.limit, -1, math.MaxInt64),
		number("slowlog-max-len", &s.slow.length, 0, maxSlowCalls).applied(func(s *Server, v string) {
			s.slow.resize(mustInt(v))
		}),
		number("tcp-keepalive", &s.limits.keepalive, 0, math.MaxInt32),
		number("tracking-table-max-keys", &s.limits.trackedKeys, 0, math.MaxInt64).applied(func(s *Server, v string) {
			s.tracked.SetMost(int(mustInt(v)))
		}),
		number("timeout", &s.limits.timeout, 0, math.MaxInt32).applied((*Server).setTimeout),
	}
	for _, f := range settings.Fields(&now) {
		if !f.Secret {
			out = append(out, fixed(f.Name, f.Get()))
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

// number returns a parameter whose value is a whole number.
func number(name string, at *atomic.Int64, low, high int64) parameter {
	return parameter{
		name:  name,
		get:   func(*Server) string { return strconv.FormatInt(at.Load(), 10) },
		check: func(_ *Server, v string) string { return wholeNumber(v, low, high) },
		apply: func(_ *Server, v string) { at.Store(mustInt(v)) },
	}
}

// checked returns the parameter with one more check of values that are right otherwise.
func (p parameter) checked(more func(s *Server, value string) string) parameter {
	check := p.check
	p.check = func(s *Server, value string) string {
		if problem := check(s, value); problem != "" {
			return problem
		}
		return more(s, value)
	}
	return p
}

// applied returns the parameter with another apply.
func (p parameter) applied(apply func(s *Server, value string)) parameter {
	p.apply = apply
	return p
}

// bytesOf returns a parameter whose value is a size in bytes, with or without a unit: kb is 1024, k is 1000, and so on.
func bytesOf(name string, at *atomic.Int64, low, high int64) parameter {
	return parameter{
		name: name,
		get:  func(*Server) string { return strconv.FormatInt(at.Load(), 10) },
		check: func(_ *Server, v string) string {
			n, ok := parseMemory(v)
			return outOfRange(n, low, high, ok, "argument must be a memory value")
		},
		apply: func(_ *Server, v string) {
			n, _ := parseMemory(v)
			at.Store(n)
		},
	}
}

// parseSizeOrPercent parses a size, or a percentage.
func parseSizeOrPercent(text string) (bytes, percent int64, problem string) {
	const neither = "argument must be a memory or percent value"
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		percent, ok = redis.ParseInt([]byte(digits))
		switch {
		case !ok || percent < 0:
			return 0, 0, neither
		case percent > 100:
			return 0, 0, "percentage argument must be less or equal to 100"
		}
		return 0, percent, ""
	}
	bytes, ok := parseMemory(text)
	return bytes, 0, outOfRange(bytes, 0, math.MaxInt64, ok, neither)
}

// parseMemory parses a size as Redis's memtoull does.
func parseMemory(text string) (bytes int64, ok bool) {
	digits := strings.TrimRight(strings.ToLower(text), "bkmg")
	unit, ok := map[string]int64{
		"": 1, "b": 1,
		"k": 1000, "m": 1000 * 1000, "g": 1000 * 1000 * 1000,
		"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30,
	}[strings.ToLower(text)[len(digits):]]
	if digits == "" { // Redis reads a unit without digits so
		digits = "0"
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if ok && errors.Is(err, strconv.ErrRange) {
		return -1, true // out of every range
	}
	if !ok || err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
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
		hard, ok := parseMemory(words[1])
		soft, ok2 := parseMemory(words[2])
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

func wholeNumber(value string, low, high int64) (problem string) {
	n, ok := redis.ParseInt([]byte(value))
	return outOfRange(n, low, high, ok, "argument couldn't be parsed into an integer")
}

// outOfRange returns what is wrong with a number, none if ok is false.
func outOfRange(n, low, high int64, ok bool, none string) (problem string) {
	switch {
	case !ok:
		return none
	case n < low || n > high:
		return fmt.Sprintf("argument must be between %d and %d inclusive", low, high)
	}
	return ""
}

func mustInt(value string) int64 {
	n, ok := redis.ParseInt([]byte(value))
	if !ok {
		panic("a checked number is none: " + value)
	}
	return n
}

// hostname returns the host name that clients are told of the store, empty if there is none.
func (s *Server) hostname() string {
	t := s.o.Announce.To(nil, nil)
	return t.Store(int(s.o.Self), "", 0).Hostname
}

// port returns the port that the server listens on, of a server that listens in memory the one of its address.
func (s *Server) port() int {
	s.mu.Lock()
	for _, ln := range s.listeners {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			s.mu.Unlock()
			return a.Port
		}
	}
	s.mu.Unlock()
	if t := s.o.Node.Table(); t != nil {
		if x := t.Store(s.o.Self); x != nil {
			return x.Port
		}
	}
	return 0
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
	for i := 2; i < len(args); i += 2 {
		name := strings.ToLower(string(args[i]))
		at := slices.IndexFunc(all, func(p parameter) bool { return p.name == name })
		if at < 0 {
			c.out.Error("ERR Unknown option or number of arguments for CONFIG SET - '" + oneLine(args[i]) + "'")
			return
		}
		problem := ""
		switch {
		case all[at].check == nil:
			problem = "can't set immutable config"
		case slices.ContainsFunc(found, func(q parameter) bool { return q.name == name }):
			problem = "duplicate parameter"
		}
		if problem != "" {
			c.out.Error("ERR CONFIG SET failed (possibly related to argument '" + oneLine(args[i]) + "') - " + problem)
			return
		}
		found = append(found, all[at])
	}
	for i, p := range found {
		if problem := p.check(c.s, string(args[3+2*i])); problem != "" {
			c.out.Error("ERR CONFIG SET failed (possibly related to argument '" + p.name + "') - " + problem)
			return
		}
	}
	for i, p := range found {
		if p.apply != nil {
			p.apply(c.s, string(args[3+2*i]))
		}
	}
	c.out.OK()
}

func runConfigResetStat(c *conn, args [][]byte) {
	c.s.stats.reset()
	c.s.calls.reset()
	c.out.OK()
}
