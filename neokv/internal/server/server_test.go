package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// testTable has three stores and four regions, led by 1, 2, nobody and 1.
func testTable() *route.Table {
	var stores []route.PublicStore
	var peers []topology.Peer
	for i := 1; i <= 3; i++ {
		stores = append(stores, route.PublicStore{ID: topology.StoreID(i), NodeID: strings.Repeat(fmt.Sprint(i), 40),
			Host: "127.0.0.1", Port: 7000 + i, Alive: true})
		peers = append(peers, topology.Peer{Store: topology.StoreID(i), Replica: topology.ReplicaID(i)})
	}
	var regions []route.LedRegion
	for i, leader := range []topology.StoreID{1, 2, 0, 1} {
		regions = append(regions, route.LedRegion{
			Region: topology.Region{ID: topology.RegionID(i + 1), Slots: topology.SplitEvenly(4)[i], Peers: peers},
			Leader: leader,
		})
	}
	return route.NewTable(9, stores, regions)
}

// fakeNode is a Node without replicas. What it does not set has a plain answer: the slot table is testTable's, no store
// fails, and no replica has applied anything.
type fakeNode struct {
	table      func() *route.Table
	replica    func(topology.StoreID, topology.RegionID) *region.Replica
	failed     func() error
	replicated func(context.Context, topology.RegionID, uint64) int
	compare    func(topology.RegionID) (region.Comparison, error)
	settled    error
	info       []Section
	scripts    lua.Scripts
}

var fixedTable = testTable()

func (n *fakeNode) Table() *route.Table {
	if n.table == nil {
		return fixedTable
	}
	return n.table()
}

func (n *fakeNode) Changed() <-chan struct{} { return nil }

func (n *fakeNode) Publish(*Server, bool, []byte, []byte) {}

func (n *fakeNode) Outdated(topology.Slot, *route.LedRegion) bool { return false }

func (n *fakeNode) Replica(id topology.StoreID, r topology.RegionID) *region.Replica {
	if n.replica == nil {
		return nil
	}
	return n.replica(id, r)
}

func (n *fakeNode) Failed() error {
	if n.failed == nil {
		return nil
	}
	return n.failed()
}

func (n *fakeNode) Save() (func(context.Context) error, error) { return nil, errors.New("no folder") }

func (n *fakeNode) Info() []Section { return n.info }

func (n *fakeNode) Replicated(ctx context.Context, r topology.RegionID, index uint64) int {
	if n.replicated == nil {
		return 0
	}
	return n.replicated(ctx, r, index)
}

func (n *fakeNode) Compare(_ context.Context, r topology.RegionID) (region.Comparison, error) {
	if n.compare == nil {
		return region.Comparison{}, errors.New("no replicas")
	}
	return n.compare(r)
}

func (n *fakeNode) Scripts() *lua.Scripts               { return &n.scripts }
func (n *fakeNode) LoadScript(x *lua.Script, stay bool) { n.scripts.Add(x, stay) }
func (n *fakeNode) FindScript(string) *lua.Script       { return nil }
func (n *fakeNode) LogScript(int, string)               {}
func (n *fakeNode) FlushScripts()                       { n.scripts.Flush() }
func (n *fakeNode) SetActiveExpire(bool)                {}
func (n *fakeNode) SaveState() SaveState                { return SaveState{} }
func (n *fakeNode) Settle(context.Context) error        { return n.settled }
func (n *fakeNode) TakeOver(context.Context) error      { return nil }

// testAddr is the address that the tests' servers listen at.
type testAddr struct{}

func (testAddr) Network() string { return "pipe" }
func (testAddr) String() string  { return "pipe:0" }

// start serves over a memconn.Listener and returns a function that dials it.
func start(t testing.TB, o Options) (s *Server, dial func() net.Conn) {
	if o.Settings.Redis.MaxBulkLen == 0 {
		o.Settings = settings.Default()
	}
	if o.Node == nil {
		o.Node = &fakeNode{}
	}
	s = New(o)
	p := memconn.Listen(testAddr{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, func() net.Conn {
		c, err := p.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return c // its server's end is closed with the server
	}
}

// ask sends one inline request and returns its reply as it came.
func ask(t testing.TB, c net.Conn, request string) string {
	if _, err := fmt.Fprintf(c, "%s\r\n", request); err != nil {
		t.Fatal(err)
	}
	return readReply(t, bufio.NewReader(c)) // a fresh buffer does: there is one reply
}

func readReply(t testing.TB, r *bufio.Reader) string {
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reply: %v after %q", err, line)
	}
	n, _ := header([]byte(line))
	switch line[0] {
	case '$', '=':
		if n >= 0 {
			rest := make([]byte, n+2)
			if _, err := io.ReadFull(r, rest); err != nil {
				t.Fatal(err)
			}
			line += string(rest)
		}
	case '%':
		n *= 2
		fallthrough
	case '*', '~', '>':
		for ; n > 0; n-- {
			line += readReply(t, r)
		}
	}
	return line
}

// key returns a key of the i-th region of testTable.
func key(i int) string {
	for n := 0; ; n++ {
		k := fmt.Sprint("k", n)
		if _, index := testTable().Region(topology.SlotOf([]byte(k))); index == i {
			return k
		}
	}
}

// TestSettleOfFailingStores: the errors of several stores are one line.
func TestSettleOfFailingStores(t *testing.T) {
	_, dial := start(t, Options{Node: &fakeNode{settled: errors.Join(errors.New("one"), errors.New("two"))}})
	if got, want := ask(t, dial(), "NEOKV SETTLE"), "-ERR one; two\r\n"; got != want {
		t.Errorf("NEOKV SETTLE = %q; want %q", got, want)
	}
}

func TestReplies(t *testing.T) {
	_, dial := start(t, Options{Self: 1, Version: "1.2.3"})
	c := dial()
	one := strings.Repeat("1", 40)
	two := strings.Repeat("2", 40)
	for _, x := range []struct{ request, want string }{
		{"ping", "+PONG\r\n"},
		{"cluster myid", "$40\r\n" + one + "\r\n"},
		{"cluster keyslot foo", ":12182\r\n"},
		{"cluster slots", "*3\r\n*3\r\n:0\r\n:4095\r\n*4\r\n$9\r\n127.0.0.1\r\n:7001\r\n$40\r\n" + one + "\r\n*0\r\n" +
			"*3\r\n:4096\r\n:8191\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n$40\r\n" + two + "\r\n*0\r\n" +
			"*3\r\n:8192\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:7001\r\n$40\r\n" + one + "\r\n*0\r\n"},
		{"cluster links", "*0\r\n"},
		{"asking", "+OK\r\n"},
		{"cluster setslot 5 migrating " + two, "-" + errMoves + "\r\n"},
		{"Cluster AddSlots 5", "-" + errSlots + "\r\n"},
		{"migrate h 1 k 0 1000", "-" + errMoves + "\r\n"},
		{"cluster setslot\x00", "-ERR unknown subcommand 'setslot'. Try CLUSTER HELP.\r\n"},
		{"migrate|x", "-ERR unknown command 'migrate|x', with args beginning with: \r\n"},
		{"get " + key(1), fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))},
		{"mget " + key(0) + " " + key(1), "-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"mget {" + key(1) + "}a {" + key(1) + "}b",
			fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))},
		{"neokv batch set {" + key(1) + "}a v del {" + key(1) + "}b",
			fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))},
		{"neokv batch set " + key(0) + " v del " + key(1),
			"-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"neokv scanprefix " + key(1) + " a 10",
			fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))},
		{"neokv scanprefix {" + key(1) + "} a 10",
			fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))},
		{"command getkeys neokv batch set a 1 psetex b 9 v pexpire c 9",
			"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"},
		{"command getkeys neokv batch set a", "-ERR Invalid arguments specified for command\r\n"},
		{"command getkeys neokv scanprefix t p 1", "*1\r\n$1\r\nt\r\n"},
		{"client setinfo lib-name go-redis", "+OK\r\n"},
		{"client setinfo LIB-VER 9", "+OK\r\n"},
		{"client setinfo lib-name 'a b'", "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n"},
		{"client setinfo lib-foo x", "-ERR Unrecognized option 'lib-foo'\r\n"},
		{"config get engine.bloom_bits REDIS.MAX_CLIENTS",
			"*4\r\n$17\r\nengine.bloom_bits\r\n$2\r\n10\r\n$17\r\nREDIS.MAX_CLIENTS\r\n$5\r\n10000\r\n"},
		{"config set maxclients 5 engine.bloom_bits 3",
			"-ERR CONFIG SET failed (possibly related to argument 'engine.bloom_bits') - " +
				"can't set immutable config\r\n"},
		{"config set engine.bloom_bits 3",
			"-ERR CONFIG SET failed (possibly related to argument 'engine.bloom_bits') - " +
				"can't set immutable config\r\n"},
		{"config set save \"\" appendonly no", "+OK\r\n"},
		{"config set timeout 100 maxclients 0",
			"-ERR CONFIG SET failed (possibly related to argument 'maxclients') - argument must be between 1 and " +
				"4294967295 inclusive\r\n"},
		{"config get timeout", "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n"},
		{"config set timeout 100 maxclients 77", "+OK\r\n"},
		{"config get timeout maxclients", "*4\r\n$7\r\ntimeout\r\n$3\r\n100\r\n$10\r\nmaxclients\r\n$2\r\n77\r\n"},
	} {
		if got := ask(t, c, x.request); got != x.want {
			t.Errorf("%s: got %q, want %q", x.request, got, x.want)
		}
	}
	nodes := ask(t, c, "cluster nodes")
	for _, line := range []string{
		one + " 127.0.0.1:7001@0 myself,master - 0 0 1 connected 0-4095 8192-16383\n",
		two + " 127.0.0.1:7002@0 master - 0 0 2 connected 4096-8191\n",
		strings.Repeat("3", 40) + " 127.0.0.1:7003@0 master - 0 0 3 connected\n",
	} {
		if !strings.Contains(nodes, line) {
			t.Errorf("cluster nodes: %q lacks %q", nodes, line)
		}
	}
	for request, parts := range map[string][]string{
		"cluster info": {"cluster_state:fail\r\n", "cluster_slots_ok:12288\r\n", "cluster_slots_fail:4096\r\n",
			"cluster_size:2\r\n"},
		"client info":      {" lib-name=go-redis lib-ver=9\n", " cmd=client|info ", " resp=2"},
		"info server nope": {"neokv_version:1.2.3\r\n", "redis_mode:cluster\r\n"},
		"cluster shards":   {"$6\r\nonline", strings.Repeat("3", 40)},
	} {
		got := ask(t, c, request)
		for _, p := range parts {
			if !strings.Contains(got, p) {
				t.Errorf("%s: %q lacks %q", request, got, p)
			}
		}
	}
}

// TestDeadStore sees another replica's store in the place of a dead one in CLUSTER SLOTS, so that no slot is without a
// store, and no slots that are served in CLUSTER INFO.
func TestDeadStore(t *testing.T) {
	table := testTable()
	_, dial := start(t, Options{Self: 3, Node: &fakeNode{table: func() *route.Table { return table }}})
	c := dial()
	table.Stores[0].Alive = false
	got := ask(t, c, "cluster slots")
	if !strings.HasPrefix(got, "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n") {
		t.Errorf("cluster slots with a dead store: %q", got)
	}
	got = ask(t, c, "cluster nodes")
	for _, line := range []string{
		"7001@0 master,fail - 0 0 1 disconnected\n",
		"7002@0 master - 0 0 2 connected 0-16383\n",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("cluster nodes with a dead store: %q lacks %q", got, line)
		}
	}
	if got := ask(t, c, "cluster info"); !strings.Contains(got, "cluster_state:fail\r\n") ||
		!strings.Contains(got, "cluster_slots_ok:4096\r\n") {
		t.Errorf("cluster info with a dead store: %q", got)
	}
	table.Stores[1].Alive, table.Stores[2].Alive = false, false
	if got := ask(t, c, "cluster slots"); got != "*0\r\n" {
		t.Errorf("cluster slots with dead stores alone: %q", got)
	}
}

// TestStandIn asks the stand-in of store 1, which leads by the table: it holds what store 1 would serve until there is
// another leader, and refuses what covers all slots of the store.
func TestStandIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table atomic.Pointer[route.Table]
		table.Store(testTable())
		o := Options{Self: 1, StandIn: true, Settings: settings.Default(), Node: &fakeNode{table: table.Load}}
		o.Settings.Redis.FollowerRead = true
		s := New(o)
		p := memconn.Listen(testAddr{})
		go s.Serve(p)
		defer s.Close()
		c, err := p.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		moved := func(region, port int) string {
			return fmt.Sprintf("-MOVED %d 127.0.0.1:%d\r\n", topology.SlotOf([]byte(key(region))), port)
		}
		for _, x := range []struct{ request, want string }{
			{"readonly", "+OK\r\n"},
			{"get " + key(1), moved(1, 7002)},
			{"ping", "+PONG\r\n"},
			{"dbsize", "-CLUSTERDOWN Hash slot not served\r\n"},
			{"scan 0", "-CLUSTERDOWN Hash slot not served\r\n"},
			{"flushall", "-CLUSTERDOWN Hash slot not served\r\n"},
		} {
			begin := time.Now()
			if got := ask(t, c, x.request); got != x.want || time.Since(begin) > 0 {
				t.Errorf("%s: %q after %v, want %q at once", x.request, got, time.Since(begin), x.want)
			}
		}
		nodes, self := ask(t, c, "cluster nodes"), strings.Repeat("1", 40)
		if want := self + " 127.0.0.1:7001@0 myself,master,fail - 0 0 1 disconnected"; !strings.Contains(nodes, want) {
			t.Errorf("CLUSTER NODES: %q, want %q in it", nodes, want)
		}
		if got := ask(t, c, "cluster shards"); strings.Count(got, "$4\r\nfail\r\n") != 1 ||
			strings.Index(got, "\r\nfail\r\n") > strings.Index(got, strings.Repeat("2", 40)) {
			t.Errorf("CLUSTER SHARDS: %q, want store 1 failed", got)
		}
		time.AfterFunc(700*time.Millisecond, func() {
			x := testTable()
			x.Regions[0].Leader = 3
			table.Store(x)
		})
		begin := time.Now()
		if got, want := ask(t, c, "get "+key(0)), moved(0, 7003); got != want || time.Since(begin) < 700*time.Millisecond ||
			time.Since(begin) > 710*time.Millisecond {
			t.Errorf("a new leader: %q after %v, want %q after 700ms", got, time.Since(begin), want)
		}
	})
}

// TestFollowerWithoutReplica: a store whose replica of a region does not run sends readers to the leader at once.
func TestFollowerWithoutReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default()}
		o.Settings.Redis.FollowerRead = true
		_, dial, stop := serve(t, o)
		defer stop()
		c := dial()
		defer c.Close()
		ask(t, c, "readonly")
		begin := time.Now()
		got := ask(t, c, "get "+key(1))
		if want := fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1)))); got != want ||
			time.Since(begin) > 0 {
			t.Errorf("%q after %v, want %q at once", got, time.Since(begin), want)
		}
	})
}

func TestProxyAnswersAsStandalone(t *testing.T) {
	_, dial := start(t, Options{})
	c := dial()
	for request, want := range map[string]string{
		"cluster slots":            "-" + errNoCluster + "\r\n",
		"cluster info":             "-" + errNoCluster + "\r\n",
		"readonly":                 "-" + errNoCluster + "\r\n",
		"asking":                   "-" + errNoCluster + "\r\n",
		"cluster setslot 1 stable": "-" + errMoves + "\r\n",
		"select 0":                 "+OK\r\n",
		"select 1":                 "-ERR DB index is out of range\r\n",
		"info cluster":             "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n",
		"cluster foo":              "-ERR unknown subcommand 'foo'. Try CLUSTER HELP.\r\n",
	} {
		if got := ask(t, c, request); got != want {
			t.Errorf("%s: got %q, want %q", request, got, want)
		}
	}
}

// TestEveryCommandHasOneFunction looks for rows whose functions do not fit what they say of how they run.
func TestEveryCommandHasOneFunction(t *testing.T) {
	for _, r := range commands.Rows() {
		for _, row := range append([]*redis.Command{r}, r.Sub...) {
			_, run := row.Run.(runner)
			_, everywhere := row.Run.(wide)
			flush := row.How == redis.HowEverywhere && row.Flags&redis.FlagWrite != 0
			own := row.How == redis.HowOwn || row.How == redis.HowSession
			writes := row.How == redis.HowWrite || row.How == redis.HowBlocking || flush
			if run != own || everywhere != (row.How == redis.HowEverywhere) ||
				(row.Read != nil) != (row.How == redis.HowRead) || (row.Write != nil) != writes ||
				row.Run != nil != (run || everywhere) || (row.Blocks != nil) != (row.How == redis.HowBlocking) {
				t.Errorf("%s runs as %d, by Read %v, Write %v, %T", row.FullName(), row.How, row.Read != nil,
					row.Write != nil, row.Run)
			}
			if row.How == redis.HowNot && row.CheckArity(1) {
				t.Errorf("%s does not run, and may be called without a subcommand", row.FullName())
			}
		}
	}
}

// TestCommandListNamesSubcommands: COMMAND LIST names every command that COMMAND INFO knows once, subcommands too, and
// nothing else.
func TestCommandListNamesSubcommands(t *testing.T) {
	_, dial := start(t, Options{Self: 1})
	var want []string
	for _, r := range commands.Rows() {
		for _, x := range append([]*redis.Command{r}, r.Sub...) {
			want = append(want, x.FullName())
		}
	}
	reply, err := redistest.Parse([]byte(ask(t, dial(), "command list")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range reply.Items {
		got = append(got, string(item.Text))
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("COMMAND LIST names %q; want %q", got, want)
	}
}

// TestEveryContainerHelps, as the error of an unknown subcommand says.
func TestEveryContainerHelps(t *testing.T) {
	for _, row := range commands.Rows() {
		if len(row.Sub) > 0 && row.Subcommand([]byte("help")) == nil {
			t.Errorf("%s has subcommands, and no HELP", row.Name)
		}
	}
}

// TestGrouping looks at how a batch is cut by region, without running it.
func TestGrouping(t *testing.T) {
	here := &region.Replica{}
	s := New(Options{
		Self: 1, Settings: settings.Default(),
		Node: &fakeNode{replica: func(id topology.StoreID, r topology.RegionID) *region.Replica {
			if id != 1 {
				t.Errorf("asked for region %d on store %d", r, id)
			}
			return here
		}},
	})
	c := newConn(s, &pieces{}, 1, plainConn)
	var cmds []command
	for _, k := range []int{0, 3, 1, 0, 2, 3, 0} {
		cmds = append(cmds, c.classify([][]byte{[]byte("set"), []byte(key(k)), []byte("v")}))
	}
	for i := range cmds {
		if cmds[i].how != redis.HowWrite {
			t.Fatalf("SET runs as %d", cmds[i].how)
		}
		c.exec.add(&cmds[i], false)
	}
	if open := c.exec.decide(testTable()); open != 1 {
		t.Errorf("%d tasks without an answer, want 1: the region without a leader", open)
	}
	var got [][]int
	for _, p := range c.exec.parts[:c.exec.used] {
		got = append(got, p.tasks)
		if len(p.run.Calls) != len(p.tasks) {
			t.Errorf("%d calls for tasks %v", len(p.run.Calls), p.tasks)
		}
	}
	if want := [][]int{{0, 3, 6}, {1, 5}}; !reflect.DeepEqual(got, want) {
		t.Errorf("parts %v, want %v", got, want)
	}
	if reply := string(c.exec.tasks[2].reply); !strings.HasPrefix(reply, "-MOVED") {
		t.Errorf("the other store's command was answered %q", reply)
	}
	if c.exec.tasks[4].outcome != open {
		t.Error("the command of a region without a leader was answered")
	}
}

func TestCollect(t *testing.T) {
	s := New(Options{Self: 1, Settings: settings.Default()})
	unknown := &region.UnknownOutcome{Reason: "leader lost"}
	for _, x := range []struct {
		err  error
		ends []int
		mode mode
		want []string // "" for a task that is still open
	}{
		{nil, []int{5, 10, 15}, writes, []string{"+OK\r\n", "+NO\r\n", "+HM\r\n"}},
		{region.ErrNotLeader, nil, writes, []string{"", "", ""}},
		{region.ErrNotLeader, []int{5}, writes, []string{"+OK\r\n", "", ""}},
		{region.ErrNotLeader, []int{5}, reads, []string{"", "", ""}},
		{region.ErrStopped, nil, writes, []string{"", "", ""}},
		{unknown, []int{5}, writes, []string{"+OK\r\n", "-ERR write outcome unknown: leader lost\r\n",
			"-ERR write outcome unknown: leader lost\r\n"}},
		{region.ErrTooLarge, []int{5}, writes, []string{"+OK\r\n", "-ERR command too large for a raft entry\r\n", ""}},
		{errors.New("disk"), nil, reads, []string{"-ERR disk\r\n", "-ERR disk\r\n", "-ERR disk\r\n"}},
	} {
		c := newConn(s, &pieces{}, 1, plainConn)
		p := &part{tasks: []int{0, 1, 2}}
		p.run.Out.Buf, p.run.Ends, p.pending.Err = []byte("+OK\r\n+NO\r\n+HM\r\n"), x.ends, x.err
		c.exec.tasks, c.exec.parts, c.exec.used = make([]task, 3), []*part{p}, 1
		waiting := c.exec.collect(testTable(), c.exec.parts, x.mode)
		var got []string
		for _, task := range c.exec.tasks {
			got = append(got, string(task.reply))
			if (task.outcome == open) != (len(task.reply) == 0) {
				t.Errorf("%v: outcome %v with reply %q", x.err, task.outcome, task.reply)
			}
		}
		wantOpen := len(slices.DeleteFunc(slices.Clone(x.want), func(s string) bool { return s != "" }))
		if !reflect.DeepEqual(got, x.want) || waiting != wantOpen {
			t.Errorf("%v, ends %v: replies %q, %d open; want %q, %d", x.err, x.ends, got, waiting, x.want, wantOpen)
		}
	}
}

func TestCutAndJoin(t *testing.T) {
	s := New(Options{Settings: settings.Default(), Node: &fakeNode{}})
	c := newConn(s, &pieces{}, 1, plainConn)
	call := func(words ...string) *command {
		var args [][]byte
		for _, w := range words {
			args = append(args, []byte(w))
		}
		cmd := c.classify(args)
		if cmd.how != redis.HowWrite || !cmd.cut {
			t.Fatalf("%v runs as %d, cut %v", words, cmd.how, cmd.cut)
		}
		return &cmd
	}
	b := &c.exec
	order := b.cut(c.s.o.Node.Table(), call("MSET", key(1), "a", key(0), "b", key(1)+"{"+key(1)+"}", "c", key(3), "d"))
	var got []string
	for _, x := range b.tasks {
		got = append(got, fmt.Sprintf("%s", x.call.Args))
	}
	want := []string{fmt.Sprintf("[MSET %s a %s{%s} c]", key(1), key(1), key(1)), fmt.Sprintf("[MSET %s b]", key(0)),
		fmt.Sprintf("[MSET %s d]", key(3))}
	if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(order, []int{0, 1, 0, 2}) {
		t.Errorf("cut: %q in order %v, want %q", got, order, want)
	}
	if order := b.cut(c.s.o.Node.Table(), call("MSET", key(1), "a", key(0))); order != nil {
		t.Errorf("MSET without a value was cut: %v", order)
	}
	if order := b.cut(c.s.o.Node.Table(), call("DEL", key(1), key(1))); order != nil {
		t.Errorf("DEL within a region was cut: %v", order)
	}
	for _, x := range []struct {
		how     redis.Split
		replies []string
		order   []int
		want    string
	}{
		{redis.SplitSum, []string{":2\r\n", ":0\r\n", ":41\r\n"}, nil, ":43\r\n"},
		{redis.SplitOK, []string{"+OK\r\n", "+OK\r\n"}, nil, "+OK\r\n"},
		{redis.SplitJoin, []string{"*1\r\n$1\r\na\r\n", "*0\r\n", "*2\r\n$1\r\nb\r\n$0\r\n\r\n"}, nil,
			"*3\r\n$1\r\na\r\n$1\r\nb\r\n$0\r\n\r\n"},
		{redis.SplitArray, []string{"*2\r\n$3\r\n\r\n1\r\n_\r\n",
			"*3\r\n$-1\r\n*2\r\n:1\r\n%1\r\n+a\r\n#t\r\n$1\r\nz\r\n"}, []int{1, 0, 1, 0, 1},
			"*5\r\n$-1\r\n$3\r\n\r\n1\r\n*2\r\n:1\r\n%1\r\n+a\r\n#t\r\n_\r\n$1\r\nz\r\n"},
	} {
		b.reset()
		for _, r := range x.replies {
			b.tasks = append(b.tasks, task{outcome: executed, reply: []byte(r)})
		}
		var out redis.Reply
		join(x.how, b.tasks, x.order, &out)
		if string(out.Buf) != x.want {
			t.Errorf("join %q: %q, want %q", x.replies, out.Buf, x.want)
		}
	}
}

// BenchmarkCut cuts a pipeline of 16 MSETs of 10 keys, as the proxy port does.
func BenchmarkCut(b *testing.B) {
	c := newConn(New(Options{Settings: settings.Default(), Node: &fakeNode{}}), &pieces{}, 1, plainConn)
	t := testTable()
	args := [][]byte{[]byte("MSET")}
	for i := range 10 {
		args = append(args, fmt.Appendf(nil, "key:%012d", i*7919), []byte("value"))
	}
	cmd := c.classify(args)
	b.ReportAllocs()
	for b.Loop() {
		c.exec.reset()
		for range 16 {
			c.exec.addCut(t, &cmd)
		}
	}
}

// TestHolding waits in virtual time: for a leader that comes, and for one that does not.
func TestHolding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table atomic.Pointer[route.Table]
		cutOff := testTable()
		cutOff.Alone = true
		table.Store(cutOff)
		s := New(Options{
			Self: 1, Settings: settings.Default(), Node: &fakeNode{table: table.Load},
		})
		p := memconn.Listen(testAddr{})
		go s.Serve(p)
		defer s.Close()
		c, err := p.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		slot := topology.SlotOf([]byte(key(2)))

		for _, want := range []string{"-MOVED %d 127.0.0.1:7002\r\n", "-MOVED %d 127.0.0.1:7003\r\n",
			"-MOVED %d 127.0.0.1:7002\r\n"} {
			begin := time.Now()
			if strings.Contains(want, "%d") {
				want = fmt.Sprintf(want, slot)
			}
			if got := ask(t, c, "set "+key(2)+" x"); got != want || time.Since(begin) != 2*time.Second {
				t.Errorf("no leader: %q after %v, want %q after 2s", got, time.Since(begin), want)
			}
		}
		table.Store(testTable()) // no leader, though a quorum is heard
		if got, want := ask(t, c, "get "+key(2)), "-CLUSTERDOWN Hash slot not served\r\n"; got != want {
			t.Errorf("no leader, not cut off: %q, want %q", got, want)
		}
		// All commands of a pipeline wait at the same time.
		begin := time.Now()
		fmt.Fprintf(c, "set %s x\r\nget %s\r\nset %s y\r\nping\r\n", key(2), key(2), key(2))
		r := bufio.NewReader(c)
		for range 4 {
			readReply(t, r)
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("a pipeline waited %v, want 2s", d)
		}
		begin = time.Now()
		time.AfterFunc(700*time.Millisecond, func() {
			x := testTable()
			x.Regions[2].Leader = 3
			table.Store(x)
		})
		want := fmt.Sprintf("-MOVED %d 127.0.0.1:7003\r\n", slot)
		if got := ask(t, c, "get "+key(2)); got != want || time.Since(begin) > 710*time.Millisecond {
			t.Errorf("a new leader: %q after %v, want %q after 700ms", got, time.Since(begin), want)
		}
	})
}

// TestHeldBytes has one command more wait than there is room for: it is answered at once, the others at their deadline.
func TestHeldBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Self: 1, Settings: settings.Default(), Node: &fakeNode{}}
		o.Settings.Redis.MaxHeldBytes = 2*firstBuffer + firstBuffer/2
		s := New(o)
		p := memconn.Listen(testAddr{})
		go s.Serve(p)
		defer s.Close()
		begin := time.Now()
		var answered []time.Duration
		var mu sync.Mutex
		var clients sync.WaitGroup
		for range 3 {
			clients.Go(func() {
				c, err := p.Dial(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if got, want := ask(t, c, "set "+key(2)+" x"), "-CLUSTERDOWN Hash slot not served\r\n"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				mu.Lock()
				answered = append(answered, time.Since(begin))
				mu.Unlock()
			})
		}
		clients.Wait()
		if want := []time.Duration{0, 2 * time.Second, 2 * time.Second}; !slices.Equal(answered, want) {
			t.Errorf("answered after %v, want %v", answered, want)
		}
		if n := s.waitingBytes.Load(); n != 0 {
			t.Errorf("%d bytes are held by nobody", n)
		}
	})
}

func TestMaxClients(t *testing.T) {
	o := Options{Self: 1, Settings: settings.Default()}
	o.Settings.Redis.MaxClients = 2
	_, dial := start(t, o)
	a, b := dial(), dial()
	ask(t, a, "ping")
	ask(t, b, "ping")
	got, err := io.ReadAll(dial())
	if string(got) != "-ERR max number of clients reached\r\n" || err != nil {
		t.Errorf("third connection: %q, %v", got, err)
	}
	ask(t, a, "ping")
	ask(t, b, "quit")
	if _, err := io.ReadAll(b); err != nil {
		t.Error(err)
	}
	if got := ask(t, dial(), "ping"); got != "+PONG\r\n" {
		t.Errorf("in the place of a client that has left: %q", got)
	}
}

// TestSockets bounds the sockets of two servers together. Connections through memory do not count.
func TestSockets(t *testing.T) {
	var sockets Sockets
	sockets.Bound(3)
	var addrs []string
	for range 2 {
		s, dial := start(t, Options{Self: 1, Sockets: &sockets})
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go s.Serve(ln)
		addrs = append(addrs, ln.Addr().String())
		for range 3 {
			ask(t, dial(), "ping")
		}
	}
	dial := func(to int) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addrs[to])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	a, b, c := dial(0), dial(1), dial(0)
	for _, c := range []net.Conn{a, b, c} {
		ask(t, c, "ping")
	}
	got, err := io.ReadAll(dial(1))
	if string(got) != "-ERR max number of clients reached\r\n" || err != nil {
		t.Errorf("fourth connection: %q, %v", got, err)
	}
	for _, c := range []struct{ call, want string }{
		{"config set maxclients 4", "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating " +
			"system is not able to handle the specified number of clients, try with 3\r\n"},
		{"config set maxclients 3", "+OK\r\n"},
	} {
		if got := ask(t, a, c.call); got != c.want {
			t.Errorf("%s: %q; want %q", c.call, got, c.want)
		}
	}
	ask(t, a, "quit")
	if _, err := io.ReadAll(a); err != nil {
		t.Error(err)
	}
	if got := ask(t, dial(1), "ping"); got != "+PONG\r\n" {
		t.Errorf("in the place of a client that has left: %q", got)
	}
}

// closeSeen is a connection that calls a function before it is closed.
type closeSeen struct {
	net.Conn
	close func()
}

func (c closeSeen) Close() error {
	c.close()
	return c.Conn.Close()
}

// TestEndIsSeenLast: when a client sees its connection end, the server has forgotten it.
func TestEndIsSeenLast(t *testing.T) {
	s, _ := start(t, Options{})
	here, there := net.Pipe()
	defer here.Close()
	left := -1
	s.Take(closeSeen{there, sync.OnceFunc(func() { left = s.count() })})
	if got := ask(t, here, "quit"); got != "+OK\r\n" {
		t.Errorf("%q", got)
	}
	if n, err := here.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after QUIT: %d bytes, %v", n, err)
	}
	if left != 0 {
		t.Errorf("the server has %d clients when it closes the connection of the only one", left)
	}
}

// TestFailedStore closes connections without a reply.
func TestFailedStore(t *testing.T) {
	var failed atomic.Bool
	_, dial := start(t, Options{Self: 1, Node: &fakeNode{failed: func() error {
		if failed.Load() {
			return errors.New("disk")
		}
		return nil
	}}})
	c := dial()
	ask(t, c, "ping")
	failed.Store(true)
	c.Write([]byte("PING\r\n"))
	if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
		t.Errorf("a failed store answered %q, %v", got, err)
	}
}

func TestCloseEndsConnections(t *testing.T) {
	s, dial := start(t, Options{Self: 1})
	idle, half, waiting := dial(), dial(), dial()
	half.Write([]byte("*2\r\n$3\r\nGET\r\n$10\r\nab"))
	waiting.Write([]byte("GET " + key(2) + "\r\n"))
	s.Close()
	for _, c := range []net.Conn{idle, half} {
		if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
			t.Errorf("closed server sent %q, %v", got, err)
		}
	}
}

func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Self: 1, Settings: settings.Default(), Node: &fakeNode{}})
		p := memconn.Listen(testAddr{})
		go s.Serve(p)
		defer s.Close()
		c, err := p.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ask(t, c, "config set timeout 5")
		time.Sleep(4 * time.Second)
		ask(t, c, "ping")
		begin := time.Now()
		if got, err := io.ReadAll(c); len(got) > 0 || err != nil || time.Since(begin) != 5*time.Second {
			t.Errorf("idle connection: %q, %v after %v", got, err, time.Since(begin))
		}
	})
}

// FuzzServer sends anything to a server. It must answer or close, and serve others unharmed. FuzzServer sends bytes to
// a server. The server's goroutines make the coverage of an input vary, so that Go's fuzzer would spend a minute on
// minimizing each find, with a rate of 0 in its reports:
//
//	go test ./neokv/internal/server -run '^$' -fuzz FuzzServer -fuzztime 1m -fuzzminimizetime 20x
func FuzzServer(f *testing.F) {
	for _, c := range readerCases {
		f.Add([]byte(c.in))
	}
	for _, r := range commands.Rows() {
		f.Add([]byte(r.Name + "\r\n" + r.Name + " a b c\r\n"))
		for _, s := range r.Sub {
			f.Add([]byte(r.Name + " " + s.Name + "\r\n" + r.Name + " " + s.Name + " 1 a\r\n"))
		}
	}
	o := Options{Self: 1, Settings: settings.Default()}
	o.Settings.Redis.LeaderlessWait = 0
	s, dial := start(f, o)
	other := dial()
	ln, err := net.Listen("unix", filepath.Join(f.TempDir(), "s")) // the clients of connections in memory end no writing
	if err != nil {
		f.Fatal(err)
	}
	go s.Serve(ln)
	f.Fuzz(func(t *testing.T, in []byte) {
		if lower := bytes.ToLower(in); bytes.Contains(lower, []byte("pause")) || bytes.Contains(lower, []byte("kill")) {
			return // they do harm others, as they should
		}
		c, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		go func() {
			c.Write(in)
			c.(*net.UnixConn).CloseWrite()
		}()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if got := ask(t, other, "config set maxclients 10000 timeout 0"); got != "+OK\r\n" {
			t.Fatalf("another connection: %q", got)
		}
		if got := ask(t, other, "ping"); got != "+PONG\r\n" {
			t.Fatalf("another connection: %q", got)
		}
	})
}

func BenchmarkPing(b *testing.B) {
	_, dial := start(b, Options{Self: 1})
	c := dial()
	const depth = 16
	request := []byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", depth))
	reply := make([]byte, depth*len("+PONG\r\n"))
	b.ReportAllocs()
	for n := 0; n < b.N; n += depth {
		c.Write(request)
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMoved is routing without a replica: every command is answered with a redirection.
func BenchmarkMoved(b *testing.B) {
	_, dial := start(b, Options{Self: 1})
	c := dial()
	const depth = 16
	k := key(1)
	request := []byte(strings.Repeat(fmt.Sprintf("*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(k), k), depth))
	reply := make([]byte, depth*len(fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(k)))))
	b.ReportAllocs()
	for n := 0; n < b.N; n += depth {
		c.Write(request)
		if _, err := io.ReadFull(c, reply); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseCursor(t *testing.T) {
	for _, x := range []struct {
		in   string
		want uint64
		ok   bool
	}{
		{"", 0, true}, {"0", 0, true}, {"007", 7, true}, {"+5", 5, true}, {"-1", 1<<64 - 1, true},
		{"18446744073709551615", 1<<64 - 1, true}, {"18446744073709551616", 0, false}, {"-", 0, false},
		{"-+1", 0, false}, {"+-1", 0, false}, {" 1", 0, false}, {"1 ", 0, false}, {"a", 0, false},
	} {
		if got, ok := redis.ParseCursor([]byte(x.in)); got != x.want || ok != x.ok {
			t.Errorf("redis.ParseCursor(%q) = %d, %v; want %d, %v", x.in, got, ok, x.want, x.ok)
		}
	}
}

// TestEverywhereWaitsForATable asks for all regions before it is known which there are.
func TestEverywhereWaitsForATable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table atomic.Pointer[route.Table]
		var mu sync.Mutex
		asked := map[topology.RegionID]bool{}
		s := settings.Default()
		s.Redis.LeaderlessWait = 300 * time.Millisecond
		_, dial := start(t, Options{Settings: s, Node: &fakeNode{
			table: table.Load,
			replica: func(_ topology.StoreID, r topology.RegionID) *region.Replica {
				mu.Lock()
				defer mu.Unlock()
				asked[r] = true
				return nil
			},
		}})
		c := dial()
		if got, want := ask(t, c, "flushall"), "-CLUSTERDOWN Hash slot not served\r\n"; got != want {
			t.Errorf("FLUSHALL without a table: %q, want %q", got, want)
		}
		time.AfterFunc(50*time.Millisecond, func() {
			x := testTable()
			for i := range x.Regions {
				x.Regions[i].Leader = 3
			}
			table.Store(x)
		})
		ask(t, c, "flushall")
		mu.Lock()
		defer mu.Unlock()
		if want := len(testTable().Regions); len(asked) != want {
			t.Errorf("FLUSHALL went to %d regions of %d: %v", len(asked), want, asked)
		}
	})
}
