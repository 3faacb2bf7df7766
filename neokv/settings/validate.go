package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/internal/announce"
)

// Problem is one thing that is wrong with settings.
type Problem struct {
	Name string // the setting
	Text string // the whole line: "engine.bloom_bits: 99: want 0 to 32"
}

func (p *Problem) Error() string { return p.Text }

// Invalid is the error for settings that are not allowed: all their problems, one a line.
type Invalid []*Problem

func (v Invalid) Error() string {
	lines := make([]string, len(v))
	for i, p := range v {
		lines[i] = p.Text
	}
	return strings.Join(lines, "\n")
}

// Err returns v as an error, nil if it is empty.
func (v Invalid) Err() error {
	if len(v) == 0 {
		return nil
	}
	return v
}

// Unwrap lets errors.As find one of the problems.
func (v Invalid) Unwrap() []error {
	out := make([]error, len(v))
	for i, p := range v {
		out[i] = p
	}
	return out
}

// minMemtable is the smallest memtable that a store can work with.
const minMemtable Bytes = 256 << 10

// eventClasses are the letters of redis.notify_keyspace_events.
const eventClasses = "Ag$lshzxeKEtmdn"

// Addresses returns how many addresses the stores have. With redis.follower_read each has a second one, at which it is a
// replica of the regions that it follows; without followers, or where every port takes any key, no store has.
func (s Settings) Addresses() int {
	if s.Redis.FollowerRead && s.Redis.ClusterEnabled && s.Cluster.Replicas > 1 {
		return 2 * s.Cluster.Stores
	}
	return s.Cluster.Stores
}

// Validate checks every setting against its range, and settings that depend on each other; the error is an Invalid.
func (s Settings) Validate() error {
	problems := Problems(Fields(&s))
	require := func(ok bool, name string, value any, want string, args ...any) {
		if !ok {
			problems = append(problems,
				&Problem{name, fmt.Sprintf("%s: %v: want %s", name, value, fmt.Sprintf(want, args...))})
		}
	}
	c, e, r := s.Cluster, s.Engine, s.Raft
	require(c.Replicas <= c.Stores, "cluster.replicas", c.Replicas, "at most cluster.stores (%d)", c.Stores)
	least := minMemtable * Bytes(c.Stores)
	require(c.Stores < 1 || e.MemtableSize < 1<<20 || e.MemtableSize >= least, "engine.memtable_size", e.MemtableSize,
		"at least %s, %s for each of cluster.stores (%d)", least, minMemtable, c.Stores)
	require(e.L0Stop > e.L0Compaction, "engine.l0_stop", e.L0Stop, "more than engine.l0_compaction (%d)",
		e.L0Compaction)
	require(e.BlockSize <= e.TargetFileSize, "engine.block_size", e.BlockSize, "at most engine.target_file_size (%s)",
		e.TargetFileSize)
	require(!e.Durable || e.WALSync != "none", "engine.wal_sync", e.WALSync, "always with engine.durable")
	require(e.TargetFileSize <= e.LevelBase, "engine.target_file_size", e.TargetFileSize,
		"at most engine.level_base (%s)", e.LevelBase)
	g := s.Region
	require(g.MaxBytes == 0 || g.MergeBytes <= g.MaxBytes/4, "region.merge_bytes", g.MergeBytes,
		"at most a quarter of region.max_bytes (%s), so that a merge does not make a split due", g.MaxBytes)
	x := s.Redis
	// Whether there is an address for each store, neokv.Start sees: a data folder may have another number of them.
	announce.Parse(announce.Settings{Announce: x.ClusterAnnounce, Hostname: x.ClusterAnnounceHostname,
		PreferredEndpointType: x.ClusterPreferredEndpointType},
		func(name, value, want string) { require(false, "redis."+name, value, "%s", want) })
	require(!strings.ContainsFunc(x.NotifyKeyspaceEvents, func(c rune) bool { return !strings.ContainsRune(eventClasses, c) }),
		"redis.notify_keyspace_events", strconv.Quote(x.NotifyKeyspaceEvents), "letters of %s", eventClasses)
	require(x.Timeout%time.Second == 0, "redis.timeout", x.Timeout, "whole seconds")
	require(x.TCPKeepalive%time.Second == 0, "redis.tcp_keepalive", x.TCPKeepalive, "whole seconds")
	require(x.OutputBufferSoftTime%time.Second == 0, "redis.output_buffer_soft_time", x.OutputBufferSoftTime,
		"whole seconds")
	require(x.PubsubBufferSoftTime%time.Second == 0, "redis.pubsub_buffer_soft_time", x.PubsubBufferSoftTime,
		"whole seconds")
	require(r.RTT%time.Millisecond == 0, "raft.rtt", r.RTT, "whole milliseconds")
	return problems.Err()
}

// Problems checks each field by itself.
func Problems(fields []Field) Invalid {
	var out Invalid
	for i := range fields {
		if p := fields[i].Problem(); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// Set parses a value and stores it under its name. It does not check the range: Validate does, when all are set. The
// error is a *Problem.
func (s *Settings) Set(name, value string) error {
	f, err := Find(Fields(s), name)
	if err != nil {
		return err
	}
	return f.Set(value)
}

// Find returns the field with this name. If there is none, the error is a *Problem that suggests the nearest name.
func Find(fields []Field, name string) (*Field, error) {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i], nil
		}
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return nil, &Problem{name, "unknown setting: " + name + DidYouMean(name, names)}
}

// DidYouMean returns "; did you mean X?" with the known name nearest to name. It returns "" if more than half of name
// would have to change.
func DidYouMean(name string, known []string) string {
	best, least := "", 0
	for _, k := range known {
		if d := editDistance(name, k); best == "" || d < least {
			best, least = k, d
		}
	}
	if 2*least > len(name) && !strings.Contains(best, name) {
		return ""
	}
	return "; did you mean " + best + "?"
}

// editDistance counts the insertions, deletions and substitutions of bytes between a and b (Wagner and Fischer 1974),
// one row at a time.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
