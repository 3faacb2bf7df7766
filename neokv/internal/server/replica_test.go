package server

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// replicaTable is testTable with second addresses.
func replicaTable() *route.Table {
	t := testTable()
	for i := range t.Stores {
		t.Stores[i].ReplicaPort = 7004 + i
	}
	return t
}

// startReplica starts a server of a store that has a second address, and returns a connection to each address.
func startReplica(t *testing.T, self topology.StoreID, table *route.Table) (own, second net.Conn) {
	o := Options{Self: self, Settings: settings.Default(), Node: &fakeNode{table: func() *route.Table { return table }}}
	o.Settings.Redis.FollowerRead = true
	s, dial := start(t, o)
	p := memconn.Listen(testAddr{})
	go Accept(p, nil, s.TakeReplica)
	t.Cleanup(func() { p.Close() })
	second, err := p.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return dial(), second
}

// TestReplicasAreListed: a store's second address is a replica of each master that leads a region which the store
// follows, in CLUSTER SLOTS and SHARDS, and of one of them in NODES, where a line has room for one.
func TestReplicasAreListed(t *testing.T) {
	table := replicaTable()
	ids := func(i int) (own, replica string) {
		s := table.Store(topology.StoreID(i))
		return s.NodeID, s.ReplicaID()
	}
	node := func(i int, replica bool) string {
		own, second := ids(i)
		port, id := 7000+i, own
		if replica {
			port, id = 7003+i, second
		}
		return fmt.Sprintf("*4\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n%s\r\n*0\r\n", port, id)
	}
	slots := func(first, last int, nodes ...string) string {
		return fmt.Sprintf("*%d\r\n:%d\r\n:%d\r\n%s", 2+len(nodes), first, last, strings.Join(nodes, ""))
	}
	one, one2 := ids(1)
	two, two2 := ids(2)
	three, three2 := ids(3)
	own, second := startReplica(t, 1, table)
	for _, at := range []struct {
		c            net.Conn
		own, replica string // the flag of each line of store 1
	}{{own, "myself,master", "slave"}, {second, "master", "myself,slave"}} {
		if got, want := ask(t, at.c, "cluster slots"), "*3\r\n"+
			slots(0, 4095, node(1, false), node(2, true), node(3, true))+
			slots(4096, 8191, node(2, false), node(1, true), node(3, true))+
			slots(8192, 16383, node(1, false), node(2, true), node(3, true)); got != want {
			t.Errorf("cluster slots:\n got %q\nwant %q", got, want)
		}
		_, nodes, _ := strings.Cut(ask(t, at.c, "cluster nodes"), "\r\n")
		if want := one + " 127.0.0.1:7001@0 " + at.own + " - 0 0 1 connected 0-4095 8192-16383\n" +
			two + " 127.0.0.1:7002@0 master - 0 0 2 connected 4096-8191\n" +
			three + " 127.0.0.1:7003@0 master - 0 0 3 connected\n" +
			one2 + " 127.0.0.1:7004@0 " + at.replica + " " + two + " 0 0 1 connected\n" +
			two2 + " 127.0.0.1:7005@0 slave " + one + " 0 0 2 connected\n" +
			three2 + " 127.0.0.1:7006@0 slave " + one + " 0 0 3 connected\n\r\n"; nodes != want {
			t.Errorf("cluster nodes:\n got %q\nwant %q", nodes, want)
		}
		lines := func(replicas ...string) string {
			out := fmt.Sprintf("*%d\r\n", len(replicas))
			for _, line := range replicas {
				out += fmt.Sprintf("$%d\r\n%s\r\n", len(line), line)
			}
			return out
		}
		for request, want := range map[string]string{
			"cluster replicas " + one: lines(two2+" 127.0.0.1:7005@0 slave "+one+" 0 0 2 connected",
				three2+" 127.0.0.1:7006@0 slave "+one+" 0 0 3 connected"),
			"cluster slaves " + two: lines(one2+" 127.0.0.1:7004@0 "+at.replica+" "+two+" 0 0 1 connected",
				three2+" 127.0.0.1:7006@0 slave "+two+" 0 0 3 connected"),
			"cluster replicas " + three:  "*0\r\n",
			"cluster replicas " + three2: "-ERR The specified node is not a master\r\n",
			"cluster replicas abc":       "-ERR Unknown node abc\r\n",
		} {
			if got := ask(t, at.c, request); got != want {
				t.Errorf("%s:\n got %q\nwant %q", request, got, want)
			}
		}
		shards := ask(t, at.c, "cluster shards")
		for part, want := range map[string]int{
			"$6\r\nmaster\r\n": 3, "$7\r\nreplica\r\n": 4, one2: 1, two2: 1, three2: 2, "$6\r\nonline\r\n": 7,
		} {
			if got := strings.Count(shards, part); got != want {
				t.Errorf("cluster shards has %q %d times, want %d: %q", part, got, want, shards)
			}
		}
		if got := ask(t, at.c, "cluster info"); !strings.Contains(got, "cluster_known_nodes:6\r\n") ||
			!strings.Contains(got, "cluster_size:2\r\n") {
			t.Errorf("cluster info: %q", got)
		}
	}
	// A replica of a store that is down, or whose disk is full, is not to be read.
	table.Stores[1].Alive, table.Stores[2].Full = false, true
	if got := ask(t, own, "cluster slots"); strings.Contains(got, two2) || strings.Contains(got, three2) {
		t.Errorf("cluster slots with a store that is dead and one that is full: %q", got)
	}
	if got, want := ask(t, own, "cluster nodes"), two2+" 127.0.0.1:7005@0 slave,fail "+one; !strings.Contains(got, want) {
		t.Errorf("cluster nodes with a dead store: %q lacks %q", got, want)
	}
}

// TestReplicaAddress asks the second address of store 1, which follows region 2 alone: it is a replica there, and
// redirects for what the store leads.
func TestReplicaAddress(t *testing.T) {
	table := replicaTable()
	table.Regions[2].Leader = 1
	_, c := startReplica(t, 1, table)
	moved := func(region, port int) string {
		return fmt.Sprintf("-MOVED %d 127.0.0.1:%d\r\n", topology.SlotOf([]byte(key(region))), port)
	}
	const noWrites = "-READONLY You can't write against a read only replica.\r\n"
	for _, x := range []struct{ request, want string }{
		{"cluster myid", "$40\r\n" + table.Stores[0].ReplicaID() + "\r\n"},
		{"role", "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:7002\r\n$9\r\nconnected\r\n:0\r\n"},
		{"wait 0 0", "-" + errWaitReplica + "\r\n"},
		{"flushall", noWrites},
		{"flushdb", noWrites},
		{"multi", "+OK\r\n"},
		{"flushall", noWrites},
		{"exec", "-EXECABORT Transaction discarded because of previous errors.\r\n"},
		{"get " + key(0), moved(0, 7001)},
		{"get " + key(1), moved(1, 7002)},
		{"set " + key(0) + " v", moved(0, 7001)},
		{"set " + key(1) + " v", moved(1, 7002)},
		{"blpop " + key(0) + " 0", moved(0, 7001)},
		{"watch " + key(0), moved(0, 7001)},
		{"ssubscribe " + key(0), moved(0, 7001)},
		{"readonly", "+OK\r\n"},
		{"get " + key(0), moved(0, 7001)},
		{"set " + key(0) + " v", moved(0, 7001)},
		{"set " + key(1) + " v", moved(1, 7002)},
		{"mget " + key(0) + " " + key(1), "-CROSSSLOT Keys in request don't hash to the same slot\r\n"},
		{"readwrite", "+OK\r\n"},
		{"ping", "+PONG\r\n"},
	} {
		if got := ask(t, c, x.request); got != x.want {
			t.Errorf("%s: got %q, want %q", x.request, got, x.want)
		}
	}
	for request, parts := range map[string][]string{
		"hello 2": {"$4\r\nrole\r\n$7\r\nreplica\r\n"},
		"info replication": {"role:slave\r\nmaster_host:127.0.0.1\r\nmaster_port:7002\r\nmaster_link_status:up\r\n",
			"slave_read_only:1\r\n", "connected_slaves:0\r\n"},
		"info server": {"tcp_port:7004\r\n"},
	} {
		got := ask(t, c, request)
		for _, p := range parts {
			if !strings.Contains(got, p) {
				t.Errorf("%s: %q lacks %q", request, got, p)
			}
		}
	}
	// Without a master: the store leads all that it has a replica of.
	table.Regions[1].Leader = 1
	if got, want := ask(t, c, "role"), "*5\r\n$5\r\nslave\r\n$0\r\n\r\n:0\r\n$7\r\nconnect\r\n:0\r\n"; got != want {
		t.Errorf("role without a master: %q, want %q", got, want)
	}
}
