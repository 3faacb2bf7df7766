package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestFieldsSayWhatTheyAre(t *testing.T) {
	s := Default()
	seen := map[string]bool{}
	for _, f := range Fields(&s) {
		if seen[f.Name] {
			t.Errorf("two settings are called %s", f.Name)
		}
		seen[f.Name] = true
		if f.Help == "" || f.Kind == "" || f.Range == "" {
			t.Errorf("%s: help %q, kind %q, range %q: want all of them", f.Name, f.Help, f.Kind, f.Range)
		}
		if f.Name != strings.ToLower(f.Name) {
			t.Errorf("%s: want lower case, as viper has it", f.Name)
		}
		before := s
		if err := f.Set(f.Get()); err != nil || !reflect.DeepEqual(s, before) {
			t.Errorf("%s: Set(%q) = %v and %v, want no change", f.Name, f.Get(), err, s)
		}
	}
	for _, name := range []string{"cluster.stores", "engine.memtable_size", "engine.wal_sync", "raft.rtt",
		"redis.cluster_enabled"} {
		if !seen[name] {
			t.Errorf("no setting %s", name)
		}
	}
}

// Every leaf of the struct but the constants is a setting: none can be forgotten by a missing tag.
func TestEveryFieldIsASetting(t *testing.T) {
	var count func(reflect.Type) int
	count = func(t reflect.Type) (n int) {
		for i := range t.NumField() {
			switch f := t.Field(i); {
			case strings.HasSuffix(f.Type.Name(), "Constants"):
			case f.Type.Kind() == reflect.Struct:
				n += count(f.Type)
			default:
				n++
			}
		}
		return n
	}
	if got, want := len(Fields(&Settings{})), count(reflect.TypeFor[Settings]()); got != want {
		t.Errorf("Fields lists %d settings, the struct has %d fields", got, want)
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"engine.memtable_size", "64m", "64MiB"},
		{"engine.memtable_size", "1gb", "1GiB"},
		{"engine.bloom_bits", "99", "99"}, // the range is Validate's
		{"engine.bloom_prefix", "region", "region"},
		{"raft.rtt", "1m", "1m"},
		{"raft.rtt", "60m", "1h"},
		{"raft.rtt", "90s", "1m30s"},
		{"raft.rtt", "0", "0s"},
		{"redis.cluster_enabled", "false", "false"},
		{"engine.bloom_bits", "ten", `! engine.bloom_bits: "ten": want a whole number, 0 to 32`},
		{"engine.bloom_bits", "", `! engine.bloom_bits: "": want a whole number, 0 to 32`},
		{"engine.bloom_bits", "1.5", `! engine.bloom_bits: "1.5": want a whole number, 0 to 32`},
		{"raft.rtt", "10", `! raft.rtt: "10": want a duration such as 10ms, 1ms to 1s`},
		{"redis.cluster_enabled", "maybe", `! redis.cluster_enabled: "maybe": want true or false`},
		{"engine.block_size", "4x", `! engine.block_size: "4x": want a size such as 64MiB, 1KiB to 1MiB`},
		{"engine.blom_bits", "3", "! unknown setting: engine.blom_bits; did you mean engine.bloom_bits?"},
		{"bloom_bits", "3", "! unknown setting: bloom_bits; did you mean engine.bloom_bits?"},
		{"cluster.storse", "3", "! unknown setting: cluster.storse; did you mean cluster.stores?"},
	} {
		s := Default()
		got := ""
		if err := s.Set(c.name, c.value); err != nil {
			got = "! " + err.Error()
			if !reflect.DeepEqual(s, Default()) {
				t.Errorf("Set(%q, %q) failed and changed the settings", c.name, c.value)
			}
		} else {
			f, err := Find(Fields(&s), c.name)
			if err != nil {
				t.Fatal(err)
			}
			got = f.Get()
		}
		if got != c.want {
			t.Errorf("Set(%q, %q) = %s; want %s", c.name, c.value, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		what string
		set  func(*Settings)
		want []string
	}{
		{"one out of range", func(s *Settings) { s.Engine.BloomBits = 99 },
			[]string{"engine.bloom_bits: 99: want 0 to 32"}},
		{"limits are allowed", func(s *Settings) { s.Engine.BloomBits, s.Raft.ElectionTicks = 32, 5 }, nil},
		{"all problems at once", func(s *Settings) {
			s.Engine.MemtableSize, s.Engine.Compression, s.Raft.BatchMaxDelay, s.Raft.Transport = 1, "lz4", -1, ""
		}, []string{
			"engine.memtable_size: 1B: want 1MiB to 16GiB",
			"engine.compression: lz4: want one of none, snappy, minlz, zstd, tiered",
			"raft.batch_max_delay: -1ns: want 0s to 100ms",
			`raft.transport: "": want one of memory, tcp`,
		}},
		{"no regions", func(s *Settings) { s.Cluster.Regions = 0 }, []string{"cluster.regions: 0: want 1 to 1024"}},
		{"more replicas than stores", func(s *Settings) { s.Cluster.Stores = 2 },
			[]string{"cluster.replicas: 3: want at most cluster.stores (2)"}},
		{"less than a memtable for each store",
			func(s *Settings) { s.Cluster.Stores, s.Engine.MemtableSize = 9, 1<<20 },
			[]string{"engine.memtable_size: 1MiB: want at least 2304KiB, 256KiB for each of cluster.stores (9)"}},
		{"L0 stops as it compacts", func(s *Settings) { s.Engine.L0Stop = 4 },
			[]string{"engine.l0_stop: 4: want more than engine.l0_compaction (16)"}},
		{"a block larger than its table",
			func(s *Settings) { s.Engine.BlockSize, s.Engine.TargetFileSize = 1<<20, 64<<10 },
			[]string{"engine.block_size: 1MiB: want at most engine.target_file_size (64KiB)"}},
		{"a table larger than its level", func(s *Settings) { s.Engine.LevelBase = 1 << 20 },
			[]string{"engine.target_file_size: 4MiB: want at most engine.level_base (1MiB)"}},
		{"a tick of a fraction", func(s *Settings) { s.Raft.RTT = 1500 * time.Microsecond },
			[]string{"raft.rtt: 1.5ms: want whole milliseconds"}},
		{"a merge that is split again", func(s *Settings) { s.Region.MaxBytes, s.Region.MergeBytes = 64<<20, 17<<20 },
			[]string{"region.merge_bytes: 17MiB: want at most a quarter of region.max_bytes (64MiB), so that a merge " +
				"does not make a split due"}},
		{"addresses that cannot be told", func(s *Settings) {
			s.Redis.ClusterAnnounce, s.Redis.ClusterAnnounceHostname = "a,b:0", "a_b"
		}, []string{
			`redis.cluster_announce: "a": want HOST:PORT, an IPv6 address in brackets`,
			`redis.cluster_announce: "b:0": want a port from 1 to 65535`,
			`redis.cluster_announce_hostname: "a_b": want up to 255 letters, digits, hyphens and dots`,
		}},
		{"addresses for a folder of two stores", func(s *Settings) { s.Redis.ClusterAnnounce = "a:1,b:2" }, nil},
		{"merges without splits", func(s *Settings) { s.Region.MaxBytes, s.Region.MergeBytes = 0, 17<<20 }, nil},
	} {
		s := Default()
		c.set(&s)
		err, got := s.Validate(), ""
		if err != nil {
			got = err.Error()
		}
		if want := strings.Join(c.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.what, got, want)
		}
		var all Invalid
		var one *Problem
		if err != nil && (!errors.As(err, &all) || !errors.As(err, &one)) {
			t.Errorf("%s: error of type %T: want an Invalid with Problems", c.what, err)
		}
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		in, want string
		bytes    Bytes
	}{
		{"64MiB", "64MiB", 64 << 20}, {"64MB", "64MiB", 64 << 20}, {"64m", "64MiB", 64 << 20},
		{"64M", "64MiB", 64 << 20}, {"64 mib", "64MiB", 64 << 20}, {"1gb", "1GiB", 1 << 30}, {"64k", "64KiB", 64 << 10},
		{"2TiB", "2TiB", 2 << 40}, {"1024", "1KiB", 1024}, {"1025", "1025B", 1025}, {"7b", "7B", 7}, {"0", "0B", 0},
		{"0MiB", "0B", 0}, {"9223372036854775807", "9223372036854775807B", math.MaxInt64},
		{"8388607TiB", "8388607TiB", 8388607 << 40},
	} {
		got, err := ParseBytes(c.in)
		if err != nil || got != c.bytes || got.String() != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v, prints %s; want %d, %s", c.in, got, err, got, c.bytes, c.want)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "1.5MiB", "1e3", "64mm", "64bb", "64ib", "64mibi", "8388608TiB",
		"9223372036854775808", "0x10", "1_000"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d; want an error", in, got)
		}
	}
}

func FuzzBytes(f *testing.F) {
	f.Add(int64(0), "1MiB")
	f.Add(int64(1<<40+1), "x")
	f.Fuzz(func(t *testing.T, n int64, s string) {
		if b := Bytes(n); n >= 0 {
			if got, err := ParseBytes(b.String()); err != nil || got != b {
				t.Errorf("ParseBytes(%s) = %d, %v; want %d", b, got, err, b)
			}
		}
		if b, err := ParseBytes(s); err == nil && b < 0 {
			t.Errorf("ParseBytes(%q) = %d; want an error", s, b)
		}
	})
}

func TestBytesInJSON(t *testing.T) {
	in := map[string]Bytes{"size": 64 << 20}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"size":"64MiB"}` {
		t.Fatalf("Marshal = %s, %v", text, err)
	}
	var out map[string]Bytes
	if err := json.Unmarshal(text, &out); err != nil || out["size"] != in["size"] {
		t.Errorf("Unmarshal(%s) = %v, %v", text, out, err)
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("editDistance(%q, %q) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestLease(t *testing.T) {
	for _, c := range []struct {
		rtt   time.Duration
		ticks int
		want  time.Duration
	}{{10 * time.Millisecond, 30, 260 * time.Millisecond}, {time.Millisecond, 5, 0}} {
		if got := (RaftKnobs{RTT: c.rtt, ElectionTicks: c.ticks}).Lease(); got != c.want {
			t.Errorf("Lease at %v x %d = %v; want %v", c.rtt, c.ticks, got, c.want)
		}
	}
}

func TestLevels(t *testing.T) {
	all := Default()
	for _, x := range []struct{ name, from, to, want string }{
		{"engine.memtable_size", "4MiB", "128MiB", "[4MiB 8MiB 16MiB 32MiB 64MiB 128MiB] <nil>"},
		{"raft.batch_max_ops", "1", "1024", "[1 4 16 64 256 1024] <nil>"},
		{"engine.bloom_bits", "5", "20", "[5 10 20] <nil>"},
		{"engine.bloom_bits", "10", "11", "[10 11] <nil>"},
		{"engine.open_files", "1000", "9000", "[1000 2000 4000 9000] <nil>"},
		{"raft.rtt", "10ms", "100ms", "[10ms 20ms 40ms 100ms] <nil>"},
		{"engine.bloom_bits", "0", "20",
			"[] engine.bloom_bits: 0..20: a range begins above 0; name the values, with commas between"},
		{"engine.bloom_bits", "20", "5", "[] engine.bloom_bits: 20..5: the range is empty"},
		{"engine.bloom_bits", "5", "33", "[] engine.bloom_bits: 33: want 0 to 32"},
		{"engine.bloom_bits", "5", "x", `[] engine.bloom_bits: "x": want a whole number, 0 to 32`},
		{"raft.transport", "memory", "tcp",
			"[] raft.transport: memory..tcp: only numbers have ranges; name the values, with commas between"},
	} {
		f, err := Find(Fields(&all), x.name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := f.Levels(x.from, x.to)
		if got := fmt.Sprint(values, " ", err); got != x.want {
			t.Errorf("%s from %s to %s: %s; want %s", x.name, x.from, x.to, got, x.want)
		}
	}
}
