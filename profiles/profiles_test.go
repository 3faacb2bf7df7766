package profiles

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/settings"
)

func resolve(t *testing.T, q ValueSources) *Resolved {
	t.Helper()
	r, err := Resolve(q)
	if err != nil {
		t.Fatalf("Resolve(%+v): %v", q, err)
	}
	return r
}

func TestDefaultIsTheLibrarysDefault(t *testing.T) {
	if got, want := resolve(t, ValueSources{}).Settings, settings.Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("default.yaml gives\n%+v\nsettings.Default\n%+v", got, want)
	}
}

// default.yaml is the one place where a reader finds every setting.
func TestDefaultSetsEverything(t *testing.T) {
	for _, v := range resolve(t, ValueSources{}).Values() {
		if v.From != "default" {
			t.Errorf("%s comes from %q, want default", v.Name, v.From)
		}
	}
}

func TestEmbeddedProfiles(t *testing.T) {
	if names := Names(); names[0] != "default" || len(names) < 2 {
		t.Errorf("Names() = %v; want default first, and more", names)
	}
	for _, name := range Names() {
		r := resolve(t, ValueSources{Profile: name})
		if r.Name != name || !strings.HasPrefix(r.About, "Take it ") || !strings.HasSuffix(r.About, ".") {
			t.Errorf("profile %s: about %q: want a sentence on when to take it", r.Name, r.About)
		}
	}
}

// The names of two settings must not meet in one environment variable.
func TestEnvNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, v := range resolve(t, ValueSources{}).Values() {
		env := EnvName(v.Name)
		if other, ok := seen[env]; ok {
			t.Errorf("%s is both %s and %s", env, other, v.Name)
		}
		seen[env] = v.Name
	}
	if seen["NEOKV_ENGINE_MEMTABLE_SIZE"] != "engine.memtable_size" {
		t.Errorf("NEOKV_ENGINE_MEMTABLE_SIZE is %q", seen["NEOKV_ENGINE_MEMTABLE_SIZE"])
	}
}

func TestPrecedence(t *testing.T) {
	mine := write(t, "engine:\n  bloom_bits: 11\n  l0_compaction: 11\nload:\n  rate: 1000000\n  duration: 20s"+
		"\nraft.rtt: 20ms\n")
	r := resolve(t, ValueSources{
		Profile: mine,
		Env:     []string{"NEOKV_ENGINE_L0_COMPACTION=12", "NEOKV_ENGINE_L0_STOP=50", "HOME=/", "NEOKVISH=1"},
		Set:     []string{"engine.l0_stop=60", "raft.max_inflight = 8"},
		Flags:   []Flag{{"--stores", "cluster.stores", "5"}},
	})
	want := map[string]ResolvedValue{
		"engine.bloom_bits":    {Value: "11", From: "profile " + mine},
		"raft.rtt":             {Value: "20ms", From: "profile " + mine},
		"load.rate":            {Value: "1000000", From: "profile " + mine},
		"engine.l0_compaction": {Value: "12", From: "env NEOKV_ENGINE_L0_COMPACTION"},
		"engine.l0_stop":       {Value: "60", From: "--set"},
		"raft.max_inflight":    {Value: "8", From: "--set"},
		"cluster.stores":       {Value: "5", From: "--stores"},
		"engine.block_size":    {Value: "16KiB", From: "default"},
	}
	for _, v := range r.Values() {
		if w, ok := want[v.Name]; ok && (v.Value != w.Value || v.From != w.From) {
			t.Errorf("%s = %s from %s; want %s from %s", v.Name, v.Value, v.From, w.Value, w.From)
		}
		delete(want, v.Name)
	}
	if len(want) != 0 {
		t.Errorf("not listed: %v", want)
	}
	if r.Load.Duration != 20*time.Second || r.Engine.L0Stop != 60 {
		t.Errorf("load.duration %v, engine.l0_stop %d: want 20s, 60", r.Load.Duration, r.Engine.L0Stop)
	}
	for name, asked := range map[string]bool{"cluster.stores": true, "engine.l0_stop": true,
		"engine.l0_compaction": true,
		"engine.bloom_bits":    false, "cluster.regions": false} {
		if r.Asked(name) != asked {
			t.Errorf("Asked(%s) = %v; want %v", name, !asked, asked)
		}
	}
}

// A workload that is meant to read from Pebble turns the row cache off, unless the user has set its size.
func TestRowCacheFollowsWorkload(t *testing.T) {
	absent := []Flag{{"--workload", "load.workload", "read-missing"}}
	for _, c := range []struct {
		what string
		q    ValueSources
		want string
	}{
		{"the default workload", ValueSources{}, "64MiB default"},
		{"another workload", ValueSources{Flags: []Flag{{"--workload", "load.workload", "get"}}}, "64MiB default"},
		{"read-missing", ValueSources{Flags: absent}, "0B as load.workload read-missing"},
		{"read-missing with a profile", ValueSources{Profile: "small", Flags: absent}, "0B as load.workload read-missing"},
		{"in a file", ValueSources{Profile: write(t, "load: {workload: read-missing}")},
			"0B as load.workload read-missing"},
		{"both in a file", ValueSources{Profile: write(t, "{load: {workload: read-missing}, engine: {row_cache: 2MiB}}")},
			""},
		{"a row cache asked for", ValueSources{Set: []string{"engine.row_cache=2MiB"}, Flags: absent}, "2MiB --set"},
		{"in the environment", ValueSources{Env: []string{"NEOKV_ENGINE_ROW_CACHE=2MiB"}, Flags: absent},
			"2MiB env NEOKV_ENGINE_ROW_CACHE"},
		{"the profile reference", ValueSources{Profile: "reference"}, "0B profile reference"},
	} {
		if c.want == "" {
			c.want = "2MiB profile " + c.q.Profile
		}
		for _, v := range resolve(t, c.q).Values() {
			if got := v.Value + " " + v.From; v.Name == "engine.row_cache" && got != c.want {
				t.Errorf("%s: engine.row_cache %s; want %s", c.what, got, c.want)
			}
		}
	}
}

func TestReplicasFollowStores(t *testing.T) {
	for _, c := range []struct {
		what string
		q    ValueSources
		want string
	}{
		{"fewer stores on the command line", ValueSources{Flags: []Flag{{"--stores", "cluster.stores", "2"}}},
			"2 as cluster.stores"},
		{"more stores", ValueSources{Flags: []Flag{{"--stores", "cluster.stores", "5"}}}, "3 default"},
		{"fewer stores in a file", ValueSources{Profile: write(t, "cluster: {stores: 1}")}, "1 as cluster.stores"},
		{"replicas asked for", ValueSources{Set: []string{"cluster.replicas=3"},
			Flags: []Flag{{"--stores", "cluster.stores", "2"}}},
			"! --set: cluster.replicas: 3: want at most cluster.stores (2)"},
		{"replicas in the environment", ValueSources{Env: []string{"NEOKV_CLUSTER_REPLICAS=3"},
			Flags: []Flag{{"--stores", "cluster.stores", "2"}}},
			"! env NEOKV_CLUSTER_REPLICAS: cluster.replicas: 3: want at most cluster.stores (2)"},
		{"no stores", ValueSources{Flags: []Flag{{"--stores", "cluster.stores", "0"}}},
			"! --stores: cluster.stores: 0: want 1 to 9\ncluster.replicas: 0: want 1 to 9"},
	} {
		got := ""
		if r, err := Resolve(c.q); err != nil {
			got = "! " + err.Error()
		} else {
			for _, v := range r.Values() {
				if v.Name == "cluster.replicas" {
					got = v.Value + " " + v.From
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: %s; want %s", c.what, got, c.want)
		}
	}
}

func TestProblems(t *testing.T) {
	file := write(t, "about: mine\nengine:\n  blom_bits: 3\n  block_size: 3x\n  bloom_prefix: [key]\n"+
		"raft: 5\ncluster:\n  stores: 99\nload:\n  clients:\n")
	_, err := Resolve(ValueSources{
		Profile: file,
		Env:     []string{"NEOKV_ENGINE_L0STOP=9", "NEOKV_RAFT_RTT=fast"},
		Set:     []string{"raft.tick=1", "raft.rtt", "engine.bloom_bits=33"},
		Flags:   []Flag{{"--clients", "load.clients", "0"}},
	})
	want := strings.ReplaceAll(`profile FILE: engine.block_size: "3x": want a size such as 64MiB, 1KiB to 1MiB
profile FILE: unknown setting: engine.blom_bits; did you mean engine.bloom_bits?
profile FILE: load.clients: "": want a whole number, 1 to 10000
profile FILE: unknown setting: raft; did you mean raft.rtt?
env NEOKV_ENGINE_L0STOP: unknown setting; did you mean NEOKV_ENGINE_L0_STOP?
env NEOKV_RAFT_RTT: raft.rtt: "fast": want a duration such as 10ms, 1ms to 1s
--set: unknown setting: raft.tick; did you mean raft.rtt?
--set raft.rtt: want name=value
profile FILE: cluster.stores: 99: want 1 to 9
--set: engine.bloom_bits: 33: want 0 to 32
profile FILE: engine.bloom_prefix: [key]: want one of region, collection, key
--clients: load.clients: 0: want 1 to 10000`, "FILE", file)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if !errors.As(err, new(settings.Invalid)) {
		t.Errorf("error of type %T: want settings.Invalid", err)
	}
}

func TestUnreadableProfiles(t *testing.T) {
	for _, c := range []struct{ profile, want string }{
		{"smal", "profile smal: no such profile; did you mean small?"},
		{"./none.yaml", "profile ./none.yaml: open ./none.yaml: no such file or directory"},
		{write(t, "engine: {"), "profile FILE: yaml: "},
		{write(t, "engine:\n  bloom_bits: 1\n  bloom_bits: 2\n"), "profile FILE: yaml: "},
		{write(t, "- a\n- b\n"), "profile FILE: yaml: "},
	} {
		_, err := Resolve(ValueSources{Profile: c.profile})
		if want := strings.ReplaceAll(c.want, "FILE", c.profile); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("profile %s: %v; want %s...", c.profile, err, want)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Whatever a profile file holds, it is refused with a reason or gives settings that are valid and print as they are
// read.
func FuzzProfile(f *testing.F) {
	for _, name := range Names() {
		text, err := embedded.ReadFile(name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"about: [1, 2]\nnotes: {a: b}\n", "engine: 5\n", "1: 2\n? [a, b]\n: c\n", "engine: &a\n  x: *a\n", "<<: [x]\n",
		"engine.bloom_bits: 0x10\n",
		"load: {duration: 1h, seed: -1, value_size: 9223372036854775808}\n", "engine:\n  bloom_bits: !!float 3\n",
		"\xff\xfe", "cluster: {stores: ~}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &resolver{Resolved: &Resolved{Name: "fuzz", from: map[string]valueOrigin{},
			Profile: Profile{Settings: settings.Constants()}}}
		r.fields = r.Fields()
		r.file("default", valueOrigin{rankDefault, "default"})
		r.text("profile fuzz", text, valueOrigin{rankProfile, "profile fuzz"})
		r.followStores()
		r.validate()
		if err := r.problems.Err(); err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Error("refused without a reason")
			}
			return
		}
		if err := r.Settings.Validate(); err != nil {
			t.Errorf("taken, but %v", err)
		}
		again := &Profile{Settings: settings.Constants()}
		fields := again.Fields()
		for i, x := range r.Fields() {
			if err := fields[i].Set(x.Get()); err != nil {
				t.Errorf("%s prints as %q, which is refused: %v", x.Name, x.Get(), err)
			}
		}
		if !t.Failed() && !reflect.DeepEqual(*again, r.Profile) {
			t.Errorf("taken\n%+v\nprinted and read\n%+v", r.Profile, *again)
		}
	})
}
