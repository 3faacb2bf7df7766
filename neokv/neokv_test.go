package neokv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// small are settings for clusters in tests. In race builds, which are several times slower, a tick is twice as long, so
// that stores have time to hear their leaders. An election then still ends well within redis.leaderless_wait.
func small() *settings.Settings {
	s := settings.Default()
	s.Engine.MemtableSize, s.Engine.BlockCache = 12<<20, 12<<20
	s.Redis.UnknownOutcome = settings.ErrorUnknown // tests read why
	if raceBuild {
		s.Raft.RTT *= 2
	}
	return &s
}

// start boots a cluster, and closes it at the end of the test.
func start(t *testing.T, c Config) *Cluster {
	t.Helper()
	return startWith(t, c, new(seam.Hooks))
}

// startWith is start with hooks.
func startWith(t *testing.T, c Config, hooks *seam.Hooks) *Cluster {
	t.Helper()
	if c.Settings == nil {
		c.Settings = small()
	}
	ctx, cancel := context.WithTimeout(seam.With(t.Context(), hooks), 30*time.Second)
	defer cancel()
	cluster, err := Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
		for t.Failed() && len(cluster.Failed()) > 0 {
			t.Log(<-cluster.Failed())
		}
	})
	return cluster
}

// startRefused expects Start to refuse a configuration, with an error that has all of want.
func startRefused(t *testing.T, c Config, want ...string) {
	t.Helper()
	if c.Settings == nil {
		c.Settings = small()
	}
	cluster, err := Start(t.Context(), c)
	if err == nil {
		cluster.Close()
		t.Errorf("Start(%+v) booted; want %q", c, want)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Start(%+v) = %v; want %q", c, err, part)
		}
	}
}

// goRedis returns a client that reaches the cluster through memory.
func goRedis(t *testing.T, c *Cluster) *redis.ClusterClient {
	r := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:  c.Addrs(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	t.Cleanup(func() { r.Close() })
	return r
}

func TestStartInMemory(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true})
	r := goRedis(t, c)
	for i := range 100 {
		if err := r.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		if v, err := r.Get(t.Context(), fmt.Sprint("k", i)).Int(); err != nil || v != i {
			t.Errorf("k%d = %d, %v", i, v, err)
		}
	}
	if got, want := c.Shape(), (settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 8}); got != want {
		t.Errorf("shape %+v; want %+v", got, want)
	}
	if dir, _ := c.Dir(); dir != "" {
		t.Errorf("a cluster in memory has the folder %s", dir)
	}
	// Sockets serve the same as connections in memory.
	p := redis.NewClient(&redis.Options{Addr: c.ProxyAddr()})
	defer p.Close()
	if n, err := p.DBSize(t.Context()).Result(); err != nil || n != 100 {
		t.Errorf("DBSIZE on the proxy port = %d, %v; want 100", n, err)
	}
}

// TestEveryStoreLeads boots clusters whose numbers of regions and replicas do not divide evenly among the stores.
func TestEveryStoreLeads(t *testing.T) {
	for _, shape := range []settings.ClusterKnobs{
		{Stores: 1, Replicas: 1, Regions: 1}, {Stores: 2, Replicas: 2, Regions: 3},
		{Stores: 3, Replicas: 1, Regions: 3}, {Stores: 5, Replicas: 3, Regions: 7},
		{Stores: 4, Replicas: 2, Regions: 2},
	} {
		c := start(t, Config{
			Stores: shape.Stores, Replicas: shape.Replicas, Regions: shape.Regions, InMemory: true, NoSockets: true,
		})
		leads := 0
		for _, n := range c.in.Places() {
			if len(n.Store().Replicas().Leads()) > 0 {
				leads++
			}
		}
		if want := min(shape.Stores, shape.Regions); leads != want {
			t.Errorf("%+v: %d stores lead a region; want %d", shape, leads, want)
		}
		r := goRedis(t, c)
		for i := range 30 {
			if err := r.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
				t.Errorf("%+v: SET: %v", shape, err)
			}
		}
	}
}

func TestFolderKeepsDataAndShape(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	c := start(t, Config{Dir: dir, Stores: 3, Regions: 5})
	if err := goRedis(t, c).Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ids := c.in.Places()[0].Store().Table().Stores
	startRefused(t, Config{Dir: dir}, "in use by another process")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir, Stores: 2, Regions: 6},
		"has 3 stores, asked for 2", "folder "+dir+" was made with 5 regions, asked for 6")
	startRefused(t, Config{Dir: dir, InMemory: true}, "a cluster in memory has none")

	// A copy of the folder boots on other ports, and with the other transport, with the same data and names.
	other := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for i, d := range []string{dir, other, other} {
		k := small()
		k.Raft.Transport = []string{"memory", "tcp", "memory"}[i]
		c := start(t, Config{Dir: d, Settings: k})
		if v, err := goRedis(t, c).Get(t.Context(), "kept").Result(); err != nil || v != "yes" {
			t.Errorf("%s: GET = %q, %v", d, v, err)
		}
		if got := c.Shape(); got.Stores != 3 || got.Regions != 5 {
			t.Errorf("%s: shape %+v", d, got)
		}
		for i, s := range c.in.Places()[0].Store().Table().Stores {
			if s.NodeID != ids[i].NodeID {
				t.Errorf("%s: store %d has node id %s; it was %s", d, s.ID, s.NodeID, ids[i].NodeID)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRefusedFolders(t *testing.T) {
	dir := t.TempDir()
	record := filepath.Join(dir, recordName)
	write := func(text string) {
		if err := os.WriteFile(record, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rest := `"cluster": "00112233445566778899aabbccddeeff", "stores": 3, "replicas": 3, "regions": 8}`
	for format := range keys.FormatVersion + 3 {
		if format == keys.FormatVersion {
			continue
		}
		text := fmt.Sprintf(`{"format": %d, %s`, format, rest)
		write(text)
		startRefused(t, Config{Dir: dir},
			fmt.Sprintf("folder %s has format %d; this program reads format %d", dir, format, keys.FormatVersion))
		if left, err := os.ReadFile(record); err != nil || string(left) != text {
			t.Errorf("a refused folder has the record %s, %v; want %s", left, err, text)
		}
	}
	write(fmt.Sprintf(`{"format": %d, "cluster": "zz", "stores": 3, "replicas": 3, "regions": 8}`, keys.FormatVersion))
	startRefused(t, Config{Dir: dir}, `cluster id "zz": want 32 hex digits`)
	write(`{`)
	startRefused(t, Config{Dir: dir}, record)
	if err := errors.Join(os.Remove(record), os.Mkdir(filepath.Join(dir, "store-1"), 0o755)); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir}, "its record was removed")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: file}, "not a directory")
}

func TestUnsyncedFolder(t *testing.T) {
	dir := t.TempDir()
	s := small()
	s.Engine.WALSync = "none"
	marker := filepath.Join(dir, unsyncedName)
	c := start(t, Config{Dir: dir, Settings: s})
	if err := goRedis(t, c).Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); err != nil {
		t.Errorf("no marker while the cluster runs: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("marker after a clean close: %v", err)
	}
	c = start(t, Config{Dir: dir})
	if v, err := goRedis(t, c).Get(t.Context(), "k").Result(); err != nil || v != "v" {
		t.Errorf("after a clean close GET = %q, %v", v, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir}, "--discard starts it empty")
	c = start(t, Config{Dir: dir, Discard: true})
	if n, err := goRedis(t, c).DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("DBSIZE after --discard = %d, %v; want 0", n, err)
	}
}

func TestTemporaryFolderIsRemoved(t *testing.T) {
	c := start(t, Config{})
	dir, temporary := c.Dir()
	if !temporary {
		t.Errorf("folder %s is not temporary", dir)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder %s after Close: %v", dir, err)
	}
}

func TestRefusedConfigs(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	bad := small()
	bad.Engine.BloomBits, bad.Raft.MaxInflight = 99, 0
	dir := t.TempDir()
	startRefused(t, Config{Settings: bad, Dir: dir, Bind: "example.org", Port: 7001, ProxyPort: 7002}, // nothing is opened
		"bind example.org", "engine.bloom_bits", "raft.max_inflight", "proxy port 7002")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in the folder of what was refused: %v, %v", left, err)
	}
	for _, x := range []struct {
		c    Config
		want string
	}{
		{Config{Bind: "0.0.0.0"}, "bind 0.0.0.0: want a loopback address"},
		{Config{Bind: "example.org"}, "bind example.org: want an IP address"},
		{Config{Port: 65534}, "3 stores need the ports 65534 to 65536"},
		{Config{Port: 7001, ProxyPort: 7002}, "proxy port 7002: it is the port of store 2"},
		{Config{Port: port}, fmt.Sprintf("address already in use: 127.0.0.1:%d of store 1", port)},
		{Config{ProxyPort: port}, fmt.Sprintf("address already in use: 127.0.0.1:%d of the proxy", port)},
		{Config{Stores: 2, Replicas: 3}, "replicas"},
		{Config{Settings: bad}, "engine.bloom_bits"},
		{Config{Settings: bad}, "raft.max_inflight"},
	} {
		x.c.InMemory = true
		startRefused(t, x.c, x.want)
	}
}

// TestStoreFailureStopsThatStoreOnly makes the disk of a store fail under load. The others go on, and no acknowledged
// write is lost.
func TestStoreFailureStopsThatStoreOnly(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	r := redis.NewClient(&redis.Options{ // the proxy port outlives the store
		Addr: c.ProxyAddr(), Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return c.Dial(ctx, addr)
		},
	})
	defer r.Close()
	set := func(i int) error { return r.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err() }
	for i := range 50 {
		if err := set(i); err != nil {
			t.Fatal(err)
		}
	}
	c.in.Places()[1].FS().Fence(errors.New("planted"))
	select {
	case err := <-c.Failed():
		if want := "store 2: planted"; err.Error() != want {
			t.Errorf("Failed told %q; want %q", err, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Failed told nothing")
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		bad := 0
		for i := 50; i < 100; i++ {
			if set(i) != nil {
				bad++
			}
		}
		if bad == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of 50 writes still fail without store 2", bad)
		}
	}
	for i := range 100 {
		if v, err := r.Get(t.Context(), fmt.Sprint("k", i)).Int(); err != nil || v != i {
			t.Errorf("k%d = %d, %v", i, v, err)
		}
	}
}

// TestPortsTaken: Start names all ports that are taken together, and leaves none open.
func TestPortsTaken(t *testing.T) {
	var taken []net.Listener
	listen := func(addr string) net.Listener {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Skip("no two ports in a row are free: ", err)
		}
		taken = append(taken, ln)
		return ln
	}
	defer func() {
		for _, ln := range taken {
			ln.Close()
		}
	}()
	port := listen("127.0.0.1:0").Addr().(*net.TCPAddr).Port
	listen(fmt.Sprintf("127.0.0.1:%d", port+1))
	proxy := listen("127.0.0.1:0").Addr().(*net.TCPAddr).Port
	_, err := Start(t.Context(), Config{Port: port, ProxyPort: proxy, InMemory: true, Settings: small()})
	var e *PortsTakenError
	if want := []string{fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("127.0.0.1:%d", port+1),
		fmt.Sprintf("127.0.0.1:%d", proxy)}; !errors.As(err, &e) || !slices.Equal(e.Addrs, want) {
		t.Errorf("%v; want %v taken", err, want)
	}
	listen(fmt.Sprintf("127.0.0.1:%d", port+2)) // store 3 would have it
	second := fmt.Sprintf("127.0.0.1:%d", port+4)
	listen(second)
	k := small()
	k.Redis.FollowerRead = true
	_, err = Start(t.Context(), Config{Port: port, InMemory: true, Settings: k})
	if want := second + " of store 2 as a replica"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q in it", err, want)
	}
}

// TestNoSockets: nobody can dial the addresses of a cluster without sockets, and clients are sent to them all the same.
func TestNoSockets(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true, Seed: 42})
	want := []string{"255.255.255.255:1", "255.255.255.255:2",
		"255.255.255.255:3"}
	if got := c.Addrs(); !slices.Equal(got, want) || c.ProxyAddr() != "255.255.255.255:100" {
		t.Errorf("addresses %v, %s; want %v", got, c.ProxyAddr(), want)
	}
	asked := map[string]bool{}
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1],
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
			asked[addr] = true
			return c.Dial(ctx, addr)
		}})
	defer r.Close()
	for i := range 30 {
		if err := r.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(asked) != 3 {
		t.Errorf("the client dialled %v; want all stores", asked)
	}
	if conn, err := net.Dial("tcp", c.Addrs()[0]); err == nil || !strings.Contains(err.Error(), noSocket) {
		t.Errorf("a client without the dialer: %v, %v; want an error that names %s", conn, err, noSocket)
	}
}

// TestUnknownCommandsAreTold: an event names each command that the cluster lacks once, and a hundred at most.
func TestUnknownCommandsAreTold(t *testing.T) {
	var mu sync.Mutex
	var told []string
	c := start(t, Config{InMemory: true, NoSockets: true, OnEvent: func(e ClusterEvent) {
		if mu.Lock(); e.Kind == EventClient {
			told = append(told, e.Text)
		}
		mu.Unlock()
	}})
	for range 3 {
		for _, call := range [][]any{{"frobnicate", "x"}, {"CLIENT", "frob"}, {"get", "k"}, {"shutdown"},
			{strings.Repeat("x", 1000)}} {
			if call[0] == "CLIENT" {
				conn, err := c.Dial(t.Context(), c.Addrs()[1])
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(conn, "CLIENT frob\r\n")
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				conn.Close()
				continue
			}
			c.Do(t.Context(), call...)
		}
	}
	want := []string{
		"a client called FROBNICATE, which NeoKV does not have; docs/commands.md lists what it has",
		"a client called CLIENT FROB, which NeoKV does not have; docs/commands.md lists what it has"}
	mu.Lock()
	if !slices.Equal(told, want) {
		t.Errorf("told %q; want %q", told, want)
	}
	mu.Unlock()
	for i := range 1000 {
		c.Do(t.Context(), fmt.Sprint("x", i))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != shownUnknown {
		t.Errorf("%d names were told; want %d", len(told), shownUnknown)
	}
}

// TestKeptParametersAreTold: an event names each parameter without an effect once, when a client first sets it. The
// value is that of one port, as it is that of one node of a Redis Cluster. A parameter that would falsify what is
// measured is refused, by the name of the setting to use.
func TestKeptParametersAreTold(t *testing.T) {
	var mu sync.Mutex
	var told []string
	c := start(t, Config{InMemory: true, NoSockets: true, OnEvent: func(e ClusterEvent) {
		if mu.Lock(); e.Kind == EventClient {
			told = append(told, e.Text)
		}
		mu.Unlock()
	}})
	call := func(store int, line string) string {
		conn, err := c.Dial(t.Context(), c.Addrs()[store-1])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s\r\nQUIT\r\n", line)
		reply, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(reply)), " ")
	}
	for _, x := range []struct {
		store      int
		line, want string
	}{
		{1, "CONFIG SET hz 20 lfu-decay-time 7", "+OK +OK"},
		{1, "CONFIG SET hz 30", "+OK +OK"},
		{2, "CONFIG SET hz 40", "+OK +OK"},
		{1, "CONFIG GET hz", "*2 $2 hz $2 30 +OK"},
		{2, "CONFIG GET hz", "*2 $2 hz $2 40 +OK"},
		{3, "CONFIG GET hz", "*2 $2 hz $2 10 +OK"},
		{1, "CONFIG SET hz 50 maxmemory 100mb", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - " +
			"no key is evicted: the settings engine.memtable_size, engine.block_cache and engine.row_cache bound memory +OK"},
		{1, "CONFIG SET appendfsync everysec", "-ERR CONFIG SET failed (possibly related to argument 'appendfsync') - " +
			"it follows from the setting engine.wal_sync +OK"},
		{1, "CONFIG SET save \"3600 1\"", "-ERR CONFIG SET failed (possibly related to argument 'save') - there are no " +
			"snapshots on a schedule: every write is in the Raft log, see the setting engine.wal_sync +OK"},
		{1, "CONFIG GET hz", "*2 $2 hz $2 30 +OK"},
	} {
		if got := call(x.store, x.line); got != x.want {
			t.Errorf("store %d: %s: %s\nwant %s", x.store, x.line, got, x.want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	const no = ", which has no effect in NeoKV; docs/parameters.md lists what each parameter does"
	if want := []string{"a client set hz" + no, "a client set lfu-decay-time" + no}; !slices.Equal(told, want) {
		t.Errorf("told %q; want %q", told, want)
	}
}

// TestStartIsSilent: a program that says nothing of the Raft library's logger gets nothing on standard error, whatever
// happens to its stores.
func TestStartIsSilent(t *testing.T) {
	const child = "NEOKV_TEST_SILENT"
	if os.Getenv(child) != "" {
		c := start(t, Config{InMemory: true, NoSockets: true})
		for _, text := range []string{"kill 1", "partition 2 3", "heal"} {
			if _, err := c.Inject(t.Context(), fault.MustParse(text)); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^TestStartIsSilent$")
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), child+"=1"), &stdout, &stderr
	if err := cmd.Run(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v\n%s\nstandard error:\n%s", err, stdout.String(), stderr.String())
	}
}
