package announce

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func parse(s Settings) (r *Rules, problems []string) {
	r = Parse(s, func(setting, value, want string) {
		problems = append(problems, fmt.Sprintf("%s: %s: want %s", setting, value, want))
	})
	return r, problems
}

func at(addr string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr)) }

// container is a machine like a container of a compose file, whose network has IPv6, too.
func container() machine {
	m := machine{gateways: []netip.Addr{netip.MustParseAddr("172.18.0.1"), netip.MustParseAddr("fd00::1")}}
	for _, p := range []string{"127.0.0.0/8", "172.18.0.0/16", "::1/128", "fd00::/64"} {
		m.networks = append(m.networks, netip.MustParsePrefix(p))
	}
	return m
}

// TestStore tells clients of a container with three stores, which listen on the ports from 7001 on, of store 2.
func TestStore(t *testing.T) {
	const (
		beside  = "172.18.0.3:50000"
		gateway = "172.18.0.1:50000"
		distant = "203.0.113.7:50000"
	)
	for _, x := range []struct {
		announce, from, local, want string
	}{
		{"", beside, "172.18.0.2:7001", "172.18.0.2:7002"},
		{"", distant, "[::ffff:172.18.0.2]:7001", "172.18.0.2:7002"},
		{"", "[fd00::3]:50000", "[fd00::2]:7001", "[fd00::2]:7002"},
		{"", "[fe80::3%eth0]:50000", "[fe80::2%eth0]:7001", "[fe80::2]:7002"},
		{"10.1.2.3:17001,10.1.2.4:27001,10.1.2.5:37001", beside, "172.18.0.2:7001", "10.1.2.4:27001"},
		{"10.1.2.3:1{port}", beside, "172.18.0.2:7001", "10.1.2.3:17002"},
		{"10.1.2.3:{port+10000}", beside, "172.18.0.2:7001", "10.1.2.3:17002"},
		{"10.1.2.3:{port-2}", beside, "172.18.0.2:7001", "10.1.2.3:7000"},
		{"10.1.2.3:3000{n}", beside, "172.18.0.2:7001", "10.1.2.3:30002"},
		{"10.1.2.3:{n+6378}", beside, "172.18.0.2:7001", "10.1.2.3:6380"},
		{"store-{n}.example.org:6379", beside, "172.18.0.2:7001", "store-2.example.org:6379"},
		{"[2001:db8::{n}]:6379", beside, "172.18.0.2:7001", "[2001:db8::2]:6379"},
		{"outside=127.0.0.1:1{port}", beside, "172.18.0.2:7001", "172.18.0.2:7002"},
		{"outside=127.0.0.1:1{port}", gateway, "172.18.0.2:7001", "127.0.0.1:17002"},
		{"outside=127.0.0.1:1{port}", gateway, "[::ffff:172.18.0.2]:7001", "127.0.0.1:17002"},
		{"outside=127.0.0.1:1{port}", distant, "172.18.0.2:7001", "127.0.0.1:17002"},
		{"outside=127.0.0.1:1{port}", "127.0.0.1:50000", "127.0.0.1:7001", "127.0.0.1:7002"},
		{"outside=127.0.0.1:1{port}", "[fd00::3]:50000", "[fd00::2]:7001", "[fd00::2]:7002"},
		{"outside=127.0.0.1:1{port}", "[fd00::1]:50000", "[fd00::2]:7001", "127.0.0.1:17002"},
		{"outside=127.0.0.1:1{port}", "[2001:db8::1]:50000", "[fd00::2]:7001", "127.0.0.1:17002"},
		{"203.0.113.0/24=db:{port} outside=127.0.0.1:1{port}", distant, "172.18.0.2:7001", "db:7002"},
		{"203.0.113.7=db:{port} outside=127.0.0.1:1{port}", distant, "172.18.0.2:7001", "db:7002"},
		{"203.0.113.8=db:{port} outside=127.0.0.1:1{port}", distant, "172.18.0.2:7001", "127.0.0.1:17002"},
		{"203.0.113.8=db:{port} other:{port}", distant, "172.18.0.2:7001", "other:7002"},
		{"fd00::/8=[fd00::9]:{port}", "[fd00::3]:50000", "[fd00::2]:7001", "[fd00::9]:7002"},
	} {
		r, problems := parse(Settings{Announce: x.announce, PreferredEndpointType: IP, Stores: 3})
		if problems != nil {
			t.Errorf("%s: %q", x.announce, problems)
			continue
		}
		r.machine = container
		told := r.To(at(x.local), at(x.from))
		a := told.Store(2, "0.0.0.0", 7002)
		if got := net.JoinHostPort(a.IP, fmt.Sprint(a.Port)); got != x.want || a.Endpoint != a.IP || a.Hostname != "" {
			t.Errorf("%q, from %s to %s: %+v; want %s", x.announce, x.from, x.local, a, x.want)
		}
	}
}

// TestInMemory has a connection that no address can be told by: Dial knows the address listened on alone.
func TestInMemory(t *testing.T) {
	r, _ := parse(Settings{Announce: "10.1.2.3:{port}", Hostname: "db", PreferredEndpointType: UnknownEndpoint, Stores: 1})
	told := r.To(&net.UnixAddr{}, &net.UnixAddr{})
	if a, want := told.Store(1, "127.0.0.1", 7001), (Addr{"127.0.0.1", 7001, "db", "127.0.0.1"}); a != want ||
		told.Preferred != IP {
		t.Errorf("%+v, %s; want %+v, %s", a, told.Preferred, want, IP)
	}
}

func TestEndpoints(t *testing.T) {
	for _, x := range []struct {
		hostname, preferred string
		want                Addr
	}{
		{"", IP, Addr{"::1", 7002, "", "::1"}},
		{"", UnknownEndpoint, Addr{"::1", 7002, "", ""}},
		{"db.example.org", IP, Addr{"::1", 7002, "db.example.org", "::1"}},
		{"db-{n}", Hostname, Addr{"::1", 7002, "db-2", "db-2"}},
		{"a,b,c", Hostname, Addr{"::1", 7002, "b", "b"}},
		{"a,b,c", UnknownEndpoint, Addr{"::1", 7002, "b", ""}},
	} {
		r, problems := parse(Settings{Hostname: x.hostname, PreferredEndpointType: x.preferred, Stores: 3})
		if problems != nil {
			t.Fatal(problems)
		}
		told := r.To(at("[::1]:7001"), at("[::1]:50000"))
		if a := told.Store(2, "::", 7002); a != x.want {
			t.Errorf("%q, %s: %+v; want %+v", x.hostname, x.preferred, a, x.want)
		}
	}
}

func TestProblems(t *testing.T) {
	const list = "cluster_announce: "
	for _, x := range []struct {
		s    Settings
		want []string
	}{
		{Settings{Announce: "a:1,b:2,c:3,d:4", Hostname: "a_b", Stores: 3},
			[]string{`cluster_announce_hostname: "a_b": want up to 255 letters, digits, hyphens and dots`}},
		{Settings{Announce: "a:1,b:2"}, nil},
		{Settings{Announce: "a:1", Stores: 1}, nil},
		{Settings{Announce: "a:1,b:2", Stores: 1, Addresses: 2}, nil},
		{Settings{Announce: "a:1", Hostname: "a,b,c", Stores: 2, Addresses: 4}, []string{
			`cluster_announce: "a:1": want one for each of cluster.stores (2), then one for the second address of each ` +
				`(redis.follower_read), or a single one with {n} or {port}`,
			`cluster_announce_hostname: "a,b,c": want one for each of cluster.stores (2), then one for the second address ` +
				`of each (redis.follower_read), or a single one with {n} or {port}`}},
		{Settings{Announce: "a:1,b:2,c:3,a:1", Stores: 2, Addresses: 4}, []string{
			`cluster_announce: "a:1,b:2,c:3,a:1": want no address twice: a:1 is that of store 2 as a replica, too`}},
		{Settings{Announce: "a:1,b:2", Stores: 3},
			[]string{list + `"a:1,b:2": want one for each of cluster.stores (3), or a single one with {n} or {port}`}},
		{Settings{Announce: "127.0.0.1:7001", Stores: 3},
			[]string{list + `"127.0.0.1:7001": want one for each of cluster.stores (3), or a single one with {n} or {port}`}},
		{Settings{Announce: "a:1,b:2,a:1", Stores: 3},
			[]string{list + `"a:1,b:2,a:1": want no address twice: a:1 is that of store 3, too`}},
		{Settings{Announce: "x=a:{port} 10.0.0.1/8=b:{port} 10.0.0.0/33=c:{port} =d:{port} fe80::1%eth0=e:{port}", Stores: 3},
			[]string{
				list + `"x": want a network such as 10.1.0.0/16, an IP address, or outside, before =`,
				list + `"10.0.0.1/8": want 10.0.0.0/8: the address of a network`,
				list + `"10.0.0.0/33": want a network such as 10.1.0.0/16, an IP address, or outside, before =`,
				list + `"": want a network such as 10.1.0.0/16, an IP address, or outside, before =`,
				list + `"fe80::1%eth0": want a network such as 10.1.0.0/16, an IP address, or outside, before =`,
			}},
		{Settings{Announce: "a:{port} outside=b:{port}", Stores: 3},
			[]string{list + `"outside=b:{port}": want no rule behind one for all clients: the first that fits counts`}},
		{Settings{Announce: "a,:1,b:,::1:7001,a/b:1,c:0,d:65536,e:x,f:{n}x,g:{m},h:{port}},[::{n}x]:1", Stores: 3},
			[]string{
				list + `"a": want HOST:PORT, an IPv6 address in brackets`,
				list + `":1": want HOST:PORT, an IPv6 address in brackets`,
				list + `"b:": want HOST:PORT, an IPv6 address in brackets`,
				list + `"::1:7001": want HOST:PORT, an IPv6 address in brackets`,
				list + `"a/b:1": want an IP address or a name before the port`,
				list + `"c:0": want a port from 1 to 65535`,
				list + `"d:65536": want a port from 1 to 65535`,
				list + `"e:x": want a port from 1 to 65535`,
				list + `"f:{n}x": want a port from 1 to 65535`,
				list + `"{m}": want placeholders {n}, {port}, {n+NUMBER} and {port+NUMBER} only`,
				list + `"{port}}": want placeholders {n}, {port}, {n+NUMBER} and {port+NUMBER} only`,
				list + `"[::{n}x]:1": want an IP address or a name before the port`,
			}},
		{Settings{Announce: "a:6553{n}", Stores: 9},
			[]string{list + `"a:6553{n}": want a port from 1 to 65535`}},
		{Settings{PreferredEndpointType: Hostname, Stores: 3},
			[]string{"cluster_preferred_endpoint_type: hostname: want redis.cluster_announce_hostname, too"}},
		{Settings{Hostname: "a,b", Stores: 3}, []string{
			`cluster_announce_hostname: "a,b": want one for each of cluster.stores (3), or a single one with {n} or {port}`}},
		{Settings{Hostname: "a, ", Stores: 3},
			[]string{`cluster_announce_hostname: " ": want up to 255 letters, digits, hyphens and dots`}},
	} {
		r, got := parse(x.s)
		if !slices.Equal(got, x.want) || (r == nil) != (x.want != nil) {
			t.Errorf("%+v:\n%s\nwant\n%s", x.s, strings.Join(got, "\n"), strings.Join(x.want, "\n"))
		}
	}
}

func TestLines(t *testing.T) {
	r, problems := parse(Settings{Announce: "10.0.0.0/8=[::1]:{port} outside=h:1{port} a:1,b:2", Stores: 2})
	if problems != nil {
		t.Fatal(problems)
	}
	lines, err := r.Lines([]int{7001, 7002})
	want := "clients of 10.0.0.0/8 are told [::1]:7001, [::1]:7002\nclients from outside are told h:17001, h:17002\n" +
		"all clients are told a:1, b:2"
	if got := strings.Join(lines, "\n"); err != nil || got != want {
		t.Errorf("%s, %v; want\n%s", got, err, want)
	}
	_, err = r.Lines([]int{5001, 60001})
	if want := "redis.cluster_announce: port 160001 of store 2, which listens on 60001: want 1 to 65535"; err == nil ||
		err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestGateways reads tables as the kernel of a machine with little-endian numbers writes them.
func TestGateways(t *testing.T) {
	routes := `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010012AC	0003	0	0	0	00000000	0	0	0
eth0	000012AC	00000000	0001	0	0	0	0000FFFF	0	0	0
eth1	0000000A	FE01000A	0003	0	0	0	000000FF	0	0	0
`
	routes6 := `fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
short
`
	got := fmt.Sprint(gateways(routes, routes6))
	if want := "[172.18.0.1 10.0.1.254 fd00::1]"; got != want {
		t.Errorf("gateways: %s; want %s", got, want)
	}
	t.Logf("this machine: %v", thisMachine())
}
