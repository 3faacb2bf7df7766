package server

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/settings"
)

// This file is CONFIG and INFO.

// parameter is one that CONFIG knows. Those without check are fixed.
type parameter struct {
	name string
	get  func(s *Server) string
	// check returns what CONFIG SET says against a value, empty if it may be set; apply then sets it, nil if there is nothing to do.
	check func(s *Server, value string) string
	apply func(s *Server, value string)
}

// parameters are those that clients ask for, under Redis's names; then the settings, which are fixed, under their own.
func (s *Server) parameters() []parameter {
	fixed := func(name, value string) parameter {
		return parameter{name: name, get: func(*Server) string { return value }}
	}
	only := func(name, value, why string) parameter {
		p := fixed(name, value)
		p.check = func(_ *Server, v string) string {
			if strings.EqualFold(v, value) {
				return ""
			}
			return why
		}
		return p
	}
	k := &s.o.Settings
	out := []parameter{
		fixed("appendfsync", map[bool]string{true: "always", false: "no"}[k.Engine.WALSync == "always"]),
		only("appendonly", "no", "every write is in the Raft log already"),
		fixed("client-query-buffer-limit", strconv.Itoa(maxQuery(int(k.Redis.MaxBulkLen)))),
		fixed("cluster-enabled", yesNo(!s.proxy())),
		fixed("databases", "1"),
		{
			name:  "maxclients",
			get:   func(s *Server) string { return strconv.FormatInt(s.maxClients.Load(), 10) },
			check: func(_ *Server, v string) string { return wholeNumber(v, 1, math.MaxUint32) },
			apply: func(s *Server, v string) { s.maxClients.Store(mustInt(v)) },
		},
		fixed("maxmemory", "0"),
		fixed("maxmemory-policy", "noeviction"),
		fixed("port", strconv.Itoa(s.port())),
		fixed("proto-max-bulk-len", strconv.FormatInt(int64(k.Redis.MaxBulkLen), 10)),
		fixed("requirepass", ""),
		only("save", "", "there are no snapshots on a schedule: every write is in the Raft log"),
		{
			name:  "timeout",
			get:   func(s *Server) string { return strconv.FormatInt(s.timeout.Load(), 10) },
			check: func(_ *Server, v string) string { return wholeNumber(v, 0, math.MaxInt32) },
			apply: func(s *Server, v string) { s.timeout.Store(mustInt(v)) },
		},
	}
	for _, f := range settings.Fields(k) {
		out = append(out, fixed(f.Name, f.Get()))
	}
	return out
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func wholeNumber(value string, low, high int64) (problem string) {
	n, ok := parseInt([]byte(value))
	if !ok {
		return "argument couldn't be parsed into an integer"
	}
	if n < low || n > high {
		return fmt.Sprintf("argument must be between %d and %d inclusive", low, high)
	}
	return ""
}

func mustInt(value string) int64 {
	n, ok := parseInt([]byte(value))
	if !ok {
		panic("a checked number is none: " + value)
	}
	return n
}

// port is what the store advertises, else what the first listener listens on.
func (s *Server) port() int {
	if t := s.o.Table(); t != nil {
		if x := t.Store(s.o.Self); x != nil {
			return x.Port
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.listeners {
		if a, ok := ln.Addr().(*net.TCPAddr); ok {
			return a.Port
		}
	}
	return 0
}

// runConfigGet answers a parameter asked for by its name under the name as it was asked for, as Redis does.
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
		pattern := bytes.ToLower(a)
		for _, p := range all {
			switch {
			case p.name == string(pattern):
				add(p, string(a))
			case redis.Match(pattern, []byte(p.name)):
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
		switch p := all[at]; {
		case p.check == nil:
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
	c.out.OK()
}

func (s *stats) reset() {
	s.connections.Store(0)
	s.rejected.Store(0)
	s.commands.Store(0)
	s.errors.Store(0)
	s.bytesIn.Store(0)
	s.bytesOut.Store(0)
}

func newRunID() string {
	b := make([]byte, 20)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func runInfo(c *conn, args [][]byte) {
	want := map[string]bool{}
	for _, a := range args[1:] {
		switch name := strings.ToLower(string(a)); name {
		case "default", "all", "everything":
			want = nil
		default:
			if want != nil {
				want[name] = true
			}
		}
	}
	if len(args) == 1 {
		want = nil
	}
	var b strings.Builder
	for _, section := range c.infoSections(func(name string) bool { return want == nil || want[strings.ToLower(name)] }) {
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + section.Name + "\r\n")
		for _, line := range section.Lines {
			b.WriteString(line + "\r\n")
		}
	}
	c.out.Verbatim("txt", b.String())
}

// infoSections makes the wanted sections of INFO: the server's own, then those of Options.Info.
func (c *conn) infoSections(want func(string) bool) (out []Section) {
	s := c.s
	add := func(name string, lines func() []string) {
		if want(name) {
			out = append(out, Section{name, lines()})
		}
	}
	add("Server", func() []string {
		up := int64(time.Since(s.started).Seconds())
		return lines("redis_version", redisVersion, "neokv_version", s.o.Version, "redis_mode", s.mode(), "os", runtime.GOOS, "arch_bits", strconv.IntSize, "process_id", os.Getpid(),
			"go_version", runtime.Version(), "run_id", s.runID, "tcp_port", s.port(), "store_id", s.o.Self,
			"server_time_usec", time.Now().UnixMicro(), "uptime_in_seconds", up, "uptime_in_days", up/86400)
	})
	add("Clients", func() []string {
		s.mu.Lock()
		n := len(s.clients)
		s.mu.Unlock()
		return lines("connected_clients", n, "maxclients", s.maxClients.Load(), "blocked_clients", 0)
	})
	add("Memory", func() []string {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return lines("used_memory", m.HeapAlloc, "used_memory_rss", m.Sys-m.HeapReleased, "maxmemory", 0, "maxmemory_policy", "noeviction", "mem_allocator", "go")
	})
	add("Persistence", func() []string {
		return lines("loading", 0, "rdb_bgsave_in_progress", 0, "aof_enabled", 0)
	})
	add("Stats", func() []string {
		x := &s.stats
		return lines("total_connections_received", x.connections.Load(), "total_commands_processed", x.commands.Load(),
			"total_net_input_bytes", x.bytesIn.Load(), "total_net_output_bytes", x.bytesOut.Load(), "rejected_connections", x.rejected.Load(),
			"total_error_replies", x.errors.Load())
	})
	add("Replication", func() []string {
		return lines("role", "master", "connected_slaves", 0)
	})
	add("Cluster", func() []string {
		return lines("cluster_enabled", map[bool]int{true: 0, false: 1}[s.proxy()])
	})
	add("Keyspace", c.keyspace)
	if s.o.Info == nil {
		return out
	}
	for _, x := range s.o.Info() {
		at := slices.IndexFunc(out, func(y Section) bool { return strings.EqualFold(y.Name, x.Name) })
		switch {
		case at >= 0:
			out[at].Lines = append(out[at].Lines, x.Lines...)
		case want(x.Name):
			out = append(out, x)
		}
	}
	return out
}

// lines makes lines of names and values in turn.
func lines(pairs ...any) (out []string) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf("%v:%v", pairs[i], pairs[i+1]))
	}
	return out
}

// keyspaceSteps bounds how many steps INFO walks to count keys.
const keyspaceSteps = 20

// keyspace counts the keys. When there are many it goes by the first slots: CRC16 spreads keys evenly.
func (c *conn) keyspace() []string {
	t := c.s.o.Table()
	if t == nil {
		return nil
	}
	covered, total := c.covered(t), 0
	for _, r := range covered {
		total += r.Count()
	}
	c.batch.impatient = true // INFO answers while there is an election too
	defer func() { c.batch.impatient = false }()
	n, steps, estimated := 0, 0, 0
	w := redis.Walk{CountOnly: true}
	var seen int // slots

	failure := c.walkSlots(allSlots, &w, func() bool {
		n += w.Count
		steps++
		if steps < keyspaceSteps || w.Done() {
			return true
		}
		next := w
		next.Advance()
		for _, r := range covered {
			if r.Last < next.Slots.First {
				seen += r.Count()
			} else if r.Contains(next.Slots.First) {
				seen += int(next.Slots.First-r.First) + 1
			}
		}
		estimated = 1
		return false
	})
	if failure != nil || n == 0 {
		return nil
	}
	if estimated == 1 {
		n = int(int64(n) * int64(total) / int64(seen))
		return []string{fmt.Sprintf("db0:keys=%d,expires=0,avg_ttl=0,estimated=1", n)}
	}
	return []string{fmt.Sprintf("db0:keys=%d,expires=0,avg_ttl=0", n)}
}
