//go:build redisserver

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// StartServer runs a real redis-server, or a Redis Cluster of three masters, until the test ends, and returns the
// addresses of the masters. Package children starts them. It imports this package, so a test outside of it sets this.
var StartServer func(t *testing.T, cluster bool, args ...string) (addrs []string)

func startRedis(t *testing.T, args ...string) (addr string) {
	t.Helper()
	return StartServer(t, false, args...)[0]
}

func startRedisCluster(t *testing.T) (addrs []string) {
	t.Helper()
	return StartServer(t, true)
}

// call asks a server one thing.
func call(addr string, args ...string) (any, error) {
	return (&target{dial: tcp}).ask(context.Background(), addr, args...)
}

func runFor(t *testing.T, o Options) (results.Summary, *results.Result) {
	t.Helper()
	var buf bytes.Buffer
	w := results.NewWriter(&buf)
	s, err := Run(context.Background(), usual(o), w)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := results.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := results.PrintTable(&table, w.Header(), s); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	return s, rec
}

func TestRealRedis(t *testing.T) {
	addr := startRedis(t)
	records, step, clients := 2000, 1, 50
	if testing.Short() {
		records, step, clients = 1000, 14, 8 // one workload of fourteen or so
	}
	all := []Options{{Groups: []GroupOptions{{Workload: "ycsb-a", Rate: Steady(5000)}}}}
	for i, name := range workloads.Names() {
		all = append(all, Options{
			Groups: []GroupOptions{{Workload: name, Pipeline: []int{1, 16}[i%2]}},
			Verify: name != "lock" && name != "pubsub", // of these there is nothing to read back
		})
	}
	for i := 0; i < len(all); i += step {
		o := all[i]
		o.Targets, o.Duration, o.Warmup, o.Seed = []string{addr}, 100*time.Millisecond, 50*time.Millisecond, 1
		load := &o.Groups[0]
		load.Clients, load.Records, load.ValueSize = clients, uint64(records), 100
		if strings.Contains(load.Workload, "pop") {
			load.Elements = 600_000 / records // more than are popped
		}
		s, rec := runFor(t, o)
		if s.Groups[0].Total.Count == 0 || len(s.Groups[0].Kinds) > 0 {
			t.Errorf("%s: %d operations, errors %v", load.Workload, s.Groups[0].Total.Count, s.Groups[0].Kinds)
		}
		// Of these no record is ever absent or empty.
		whole := strings.HasPrefix(load.Workload, "ycsb") || slices.Contains([]string{"get", "set", "incr", "counter",
			"hset", "hash", "leaderboard", "members", "queue", "list", "scan", "zadd", "sadd", "lpush", "rpush"},
			load.Workload)
		for _, op := range s.Groups[0].Ops {
			if op.Misses > 0 && whole || load.Workload == "read-missing" && op.Misses != op.Count {
				t.Errorf("%s: %s missed %d of %d times", load.Workload, op.Name, op.Misses, op.Count)
			}
		}
		g := s.Groups[0]
		if o.Verify && (g.Verified == nil || !g.Verified.Complete ||
			g.Verified.Checked == 0 && load.Workload != "info") {
			t.Errorf("%s: verified %+v", load.Workload, g.Verified)
		}
		if s.Work["process_cpu_us"] == 0 || len(s.Work) != 1 {
			t.Errorf("%s: work %v; want the CPU time", load.Workload, s.Work)
		}
		if v, err := call(addr, "DBSIZE"); load.Workload[0] == 'y' && (err != nil || v.(int64) < int64(records)) {
			t.Errorf("%s: DBSIZE %v, %v", load.Workload, v, err)
		}
		if rec.Header.Target.Cluster || rec.Header.Target.Version == "" {
			t.Errorf("target is said to be %+v", rec.Header.Target)
		}
	}
}

// TestSubscribers: the count of messages is that of a server that loses none, of one that closes subscribers, and of a
// cluster with shard channels.
func TestSubscribers(t *testing.T) {
	run := func(addrs []string, workload string, rate Pace, during func()) (*results.Messages, results.Summary) {
		o := Options{Groups: []GroupOptions{{Workload: workload, Clients: 4, Rate: rate}}, Targets: addrs,
			Duration: time.Second, Warmup: 100 * time.Millisecond, Seed: 1}
		if during != nil {
			end := time.AfterFunc(500*time.Millisecond, during)
			defer end.Stop()
		}
		s, _ := runFor(t, o)
		m := s.Groups[0].Messages
		if m == nil {
			t.Fatal("no figures about messages")
		}
		if due := 10 * s.Groups[0].Total.Count; m.Due != due || m.Due == 0 || m.Received+m.Lost != due || m.Odd > 0 {
			t.Errorf("%+v, want %d due", m, due)
		}
		return m, s
	}
	addr := startRedis(t)
	if m, _ := run([]string{addr}, "pubsub", Pace{}, nil); m.Lost > 0 || m.Time.Censored > 0 || m.Time.P50.US <= 0 {
		t.Errorf("%+v", m)
	}
	m, _ := run([]string{addr}, "pubsub", Steady(1000), func() { call(addr, "CLIENT", "KILL", "TYPE", "pubsub") })
	if m.Lost == 0 || m.Received == 0 || m.Time.Censored != m.Lost {
		t.Errorf("%+v of subscribers who were closed", m)
	}
	sharded := filepath.Join(t.TempDir(), "sharded.yaml")
	w, err := workloads.Find("pubsub")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("SUBSCRIBE", "SSUBSCRIBE", "PUBLISH", "SPUBLISH").Replace(string(w.Text))
	if err := os.WriteFile(sharded, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, workload := range []string{"pubsub", sharded} {
		if m, s := run(startRedisCluster(t), workload, Pace{}, nil); m.Lost > 0 || len(s.Groups[0].Kinds) > 0 {
			t.Errorf("%s: %+v, errors %v", workload, m, s.Groups[0].Kinds)
		}
	}
}

func TestRealRedisCluster(t *testing.T) {
	addrs := startRedisCluster(t)
	clients := 50
	if testing.Short() {
		clients = 8
	}
	o := Options{
		Groups: []GroupOptions{
			{Workload: "ycsb-a", Clients: clients, Pipeline: 16, Records: 10_000, ValueSize: 100},
		},
		Targets: addrs[:1], Duration: time.Second,
		Seed: 1, Progress: func(tick Tick) { t.Log(tick) },
	}
	s, rec := runFor(t, o)
	g := s.Groups[0]
	if g.Total.Count == 0 || len(g.Kinds) > 0 || g.Ops[0].Misses > 0 || g.Moved > 0 {
		t.Errorf("%d operations, errors %v, %d misses, %d moved", g.Total.Count, g.Kinds, g.Ops[0].Misses, g.Moved)
	}
	if !rec.Header.Target.Cluster || len(rec.Header.Target.Nodes) != 3 {
		t.Errorf("target is said to be %+v", rec.Header.Target)
	}
	if s.Work["process_cpu_us"] == 0 {
		t.Errorf("work %v; want the CPU time of three processes", s.Work)
	}
	keys := int64(0)
	for _, addr := range addrs {
		v, err := call(addr, "DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		keys += v.(int64)
	}
	if keys != 10_000 {
		t.Errorf("%d keys in the cluster, want 10000", keys)
	}
	for i, name := range workloads.Names() {
		if testing.Short() && i%14 != 7 { // others than of one server
			continue
		}
		o.Groups[0].Workload, o.Groups[0].Records, o.Verify = name, 2000, name != "lock"
		o.Duration, o.Progress = 100*time.Millisecond, nil
		s, _ := runFor(t, o)
		g := s.Groups[0]
		if g.Total.Count == 0 || len(g.Kinds) > 0 || g.Moved > 0 || o.Verify && !g.Verified.Complete {
			t.Errorf("%s: %d operations, errors %v, %d moved, verified %+v", name, g.Total.Count, g.Kinds, g.Moved,
				g.Verified)
		}
	}
	// A node that loses its data when the load has ended.
	o.Groups[0].Workload, o.Verify, o.Progress = "set", true, func(tick Tick) {
		if tick.Phase == results.PhaseRun {
			_, _ = call(addrs[2], "FLUSHALL")
		}
	}
	s, err := Run(context.Background(), usual(o), results.NewWriter(io.Discard))
	if err == nil || s.Groups[0].Verified == nil || s.Groups[0].Verified.Lost < s.Groups[0].Verified.Checked/4 ||
		s.Groups[0].Verified.Lost > s.Groups[0].Verified.Checked/2 {
		t.Errorf("verified %+v, %v; want about a third lost", s.Groups[0].Verified, err)
	}
}

// watchedConn is a connection that checks what is sent at once.
type watchedConn struct {
	net.Conn
	check func([]byte)
}

func (w *watchedConn) Write(b []byte) (int, error) {
	w.check(b)
	return w.Conn.Write(b)
}

// What a client sends a real Redis Cluster at once is about one slot, and all of it is answered.
func TestOneSlotOfRealRedisCluster(t *testing.T) {
	var mu sync.Mutex
	keys := regexp.MustCompile(`(key|counter):\d{12}`)
	var used map[uint16]bool // nil while records are loaded
	var enough context.CancelFunc
	several := 0
	check := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if used == nil {
			return
		}
		slots := map[uint16]bool{}
		for _, key := range keys.FindAll(b, -1) {
			slots[slotOf(key)] = true
		}
		if len(slots) > 1 {
			several++
		}
		if maps.Copy(used, slots); len(used) >= 1000 {
			enough()
		}
	}
	for _, one := range []bool{true, false} {
		used = nil
		var ctx context.Context
		ctx, enough = context.WithCancel(t.Context())
		defer enough()
		o := Options{
			Groups:   []GroupOptions{{Workload: "mixed", Clients: 4, Pipeline: 16, Records: 10_000, ValueSize: 20}},
			Targets:  startRedisCluster(t),
			Duration: time.Minute, Seed: 1,
		}
		if one {
			o.Groups[0].Slots = OneSlot
		}
		o.Progress = func(tick Tick) {
			if tick.Phase == results.PhaseLoad { // it has ended
				mu.Lock()
				defer mu.Unlock()
				used, several = map[uint16]bool{}, 0
			}
		}
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			nc, err := tcp(ctx, addr)
			return &watchedConn{nc, check}, err
		}
		s, err := Run(ctx, usual(o), results.NewWriter(io.Discard))
		if g := s.Groups[0]; err != nil || g.Total.Count == 0 || g.Total.Errors > 0 {
			t.Errorf("%v, %+v", err, g)
		}
		if (several == 0) != one || len(used) < 1000 {
			t.Errorf("%d writes were about several slots; %d slots were used", several, len(used))
		}
	}
}

// Iterations over large collections of a real server go to their end: each calls as often as it takes, and the parts
// together are the collection.
func TestIterationsOfRealRedis(t *testing.T) {
	addr := startRedis(t)
	path := filepath.Join(t.TempDir(), "walk.yaml")
	const text = `
records:
  - {kind: h, type: hash, key: "h<n>", count: 3, elements: 1000}
  - {kind: s, type: set, key: "s<n>", count: 3, elements: 1000}
  - {kind: z, type: zset, key: "z<n>", count: 3, elements: 1000}
mix:
  - {on: h, do: HSCAN <key> <cursor> COUNT 50}
  - {on: s, do: SSCAN <key> <cursor> COUNT 50}
  - {on: z, do: ZSCAN <key> <cursor> COUNT 50}
  - do: SCAN <cursor> COUNT 2
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	began, all := map[string]int{}, map[string]int{}
	cursor := regexp.MustCompile(`\r\n([HSZ]?SCAN)\r\n(?:\$\d\r\n[hsz]\d\r\n)?\$\d+\r\n(\d+)\r\n`)
	check := func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range cursor.FindAllSubmatch(b, -1) {
			if all[string(m[1])]++; string(m[2]) == "0" {
				began[string(m[1])]++
			}
		}
	}
	o := Options{
		Groups:  []GroupOptions{{Workload: path, Clients: 2, Pipeline: 4, Records: 10}},
		Targets: []string{addr}, Duration: 500 * time.Millisecond, Seed: 1,
	}
	o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := tcp(ctx, addr)
		return &watchedConn{nc, check}, err
	}
	s, _ := runFor(t, o)
	if g := s.Groups[0]; g.Total.Errors > 0 || g.Total.Misses > 0 {
		t.Errorf("%+v", g.Total)
	}
	// A thousand elements, fifty or a few more at a time, are at most twenty calls, and never one; so are nine keys,
	// two at a time, at most five. Eight iterations are under way at the end.
	for name, least := range map[string]int{"HSCAN": 10, "SSCAN": 10, "ZSCAN": 10, "SCAN": 2} {
		if began[name] == 0 || all[name] < least*(began[name]-8) || all[name] > 25*began[name] {
			t.Errorf("%s: %d calls, %d began an iteration", name, all[name], began[name])
		}
	}
}

// Of a workload with commands that reading back does not know it follows the other records, and says so.
func TestVerifyWhatCanBeFollowed(t *testing.T) {
	addr := startRedis(t)
	path := filepath.Join(t.TempDir(), "partly.yaml")
	const text = `records: [{kind: log, key: "log<n>"}, {kind: user, key: "user<n>"}]
mix:
  - {on: log, do: APPEND <key> <value>}
  - {on: user, do: SET <key> <value>}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, behind := range []string{"", "DEL user7"} {
		o := Options{
			Groups:  []GroupOptions{{Workload: path, Clients: 2, Pipeline: 4, Records: 20, ValueSize: 10}},
			Targets: []string{addr}, Duration: 100 * time.Millisecond, Seed: 1, Verify: true,
		}
		o.Progress = func(tick Tick) {
			if tick.Phase == results.PhaseRun && behind != "" {
				_, _ = call(addr, strings.Fields(behind)...)
			}
		}
		s, err := Run(context.Background(), usual(o), results.NewWriter(io.Discard))
		v := s.Groups[0].Verified
		if v == nil || !v.Complete || v.Checked != 20 || !slices.Equal(v.NotFollowed,
			[]string{"records of kind log (" + path + ":3: APPEND)"}) {
			t.Fatalf("%+v, %v", v, err)
		}
		if (err != nil) != (behind != "") || (v.Lost == 1) != (behind != "") {
			t.Errorf("%q: %v, %+v", behind, err, v)
		}
	}
}

// Several groups that write keys of their own are read back, each by itself.
func TestVerifyGroups(t *testing.T) {
	addr := startRedis(t)
	group := func(workload string) GroupOptions {
		return GroupOptions{Workload: workload, Clients: 2, Pipeline: 4, Records: 100, Elements: 3, ValueSize: 10}
	}
	for _, behind := range []string{"", "DEL hash:000000000007", "DEL set:000000000007"} {
		o := Options{
			Groups:  []GroupOptions{group("hash"), group("members"), group("info")},
			Targets: []string{addr}, Duration: 100 * time.Millisecond, Seed: 1, Verify: true,
		}
		o.Progress = func(tick Tick) {
			if tick.Phase == results.PhaseRun && behind != "" {
				_, _ = call(addr, strings.Fields(behind)...)
			}
		}
		s, err := Run(context.Background(), usual(o), results.NewWriter(io.Discard))
		key := strings.TrimPrefix(behind, "DEL ")
		if (err == nil) != (behind == "") || err != nil && !strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", behind, err)
		}
		if v := s.Groups[0].Verified; v == nil || !v.Complete || (v.Lost > 0) != strings.HasPrefix(key, "hash") {
			t.Errorf("%q: %+v", behind, v)
		}
		if v := s.Groups[1].Verified; v == nil || !v.Complete || (v.Lost > 0) != strings.HasPrefix(key, "set") {
			t.Errorf("%q: %+v", behind, v)
		}
	}
	o := Options{Groups: []GroupOptions{group("set"), group("get"), group("hash")}, Duration: time.Second, Verify: true}
	want := "verify: groups set and get may write the same keys, key:... and key:...: reading back cannot tell " +
		"whose value is right"
	if err := o.Check(); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestCommandsAreRedis compares the list of commands that a mix is checked against with what a real redis-server says.
func TestCommandsAreRedis(t *testing.T) {
	rows, err := call(startRedis(t), "COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, x := range rows.([]any) {
		row, does := x.([]any), "other"
		for _, flag := range row[2].([]any) {
			switch flag {
			case "readonly":
				does = "read"
			case "write":
				does = "write"
			}
		}
		lines = append(lines, fmt.Sprintf("%s %d %s %d\n", row[0], row[1], does, row[3]))
	}
	slices.Sort(lines)
	got, err := os.ReadFile("../workloads/commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(lines, ""); string(got) != want {
		t.Errorf("commands.txt differs from redis-server's:\n%s", want)
	}
}

// TestTargetsRefused: what is no target for a load is refused before it, and so are events that the target cannot do.
func TestTargetsRefused(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(conf, []byte("port 0\nunixsocket "+filepath.Join(dir, "s")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := exec.Command("redis-server", conf, "--sentinel")
	sentinel.Dir = dir
	if err := sentinel.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		sentinel.Process.Kill()
		sentinel.Wait()
	}()
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		if addr != "sentinel:1" {
			return tcp(ctx, addr)
		}
		for { // until it listens
			nc, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "s"))
			if err == nil || ctx.Err() != nil {
				return nc, err
			}
			time.Sleep(time.Millisecond)
		}
	}
	single, cluster := startRedis(t), startRedisCluster(t)
	for _, c := range []struct {
		targets []string
		at      string
		want    string
	}{
		{[]string{"sentinel:1"}, "", "target sentinel:1 is a Sentinel, which keeps no data"},
		{[]string{cluster[0], single}, "", "target " + cluster[0] + " is a node of a cluster, " + single + " is none"},
		{[]string{single, cluster[1]}, "", "target " + cluster[1] + " is a node of a cluster, " + single + " is none"},
		{[]string{single}, "10ms kil 2",
			"at 10ms kil 2: kil is neither a command of the target nor a fault; did you mean kill?"},
		{[]string{cluster[0]}, "10ms FLUSHAL",
			"flushal is neither a command of the target nor a fault; did you mean flushall?"},
	} {
		o := Options{Groups: []GroupOptions{{Workload: "set", Records: 10}}, Duration: 50 * time.Millisecond,
			Targets: c.targets, Dial: dial}
		if c.at != "" {
			o.Events = []ScheduledEvent{event(c.at)}
		}
		_, err := Run(t.Context(), usual(o), results.NewWriter(io.Discard))
		if !errors.As(err, new(*OptionsError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %s: %v; want %q", c.targets, c.at, err, c.want)
		}
	}
}
