package announce

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Settings are those of redis.cluster_... that Rules are made of.
type Settings struct {
	Announce, Hostname, PreferredEndpointType string

	Stores int // 0 while their number is not known
	// Addresses is the number of the stores' addresses: twice that of the stores where each has a second one. A list has
	// these behind the first ones of all stores. 0: no store has.
	Addresses int
}

// Parse makes Rules of settings. For each mistake it calls wrong, with the setting's name behind redis., the part of the
// value that is wrong and what would be right; it returns nil then. The form of redis.cluster_announce is
//
//	rules     = rule *( " " rule )
//	rule      = [ clients "=" ] address *( "," address )
//	clients   = "outside" | network | IP address
//	address   = host ":" port
//
// and a host name, a host or a port may have placeholders: {n}, the store's number, and {port}, the port that it
// listens on, each also with a number to add, as in {port+10000}.
func Parse(s Settings, wrong func(setting, value, want string)) *Rules {
	r := &Rules{stores: s.Stores, preferred: s.PreferredEndpointType, machine: thisMachine}
	bad := false
	p := parser{s.Stores, max(s.Stores, s.Addresses), func(setting, value, format string, args ...any) {
		bad = true
		wrong(setting, value, fmt.Sprintf(format, args...))
	}}
	for _, text := range strings.Fields(s.Announce) {
		if n := len(r.rules); n > 0 && r.rules[n-1].all {
			p.wrong(addresses, strconv.Quote(text), "no rule behind one for all clients: the first that fits counts")
		}
		r.rules = append(r.rules, p.rule(text))
	}
	if s.Hostname != "" {
		r.names = p.names(s.Hostname)
	} else if s.PreferredEndpointType == Hostname {
		p.wrong("cluster_preferred_endpoint_type", Hostname, "redis.%s, too", hostnames)
	}
	if bad {
		return nil
	}
	return r
}

const (
	addresses = "cluster_announce"
	hostnames = "cluster_announce_hostname"
)

type parser struct {
	stores int
	count  int // of addresses
	wrong  func(setting, value, format string, args ...any)
}

func (p parser) rule(text string) (r rule) {
	list := text
	clients, rest, found := strings.Cut(text, "=")
	if r.all = !found; found {
		list, r.clients = rest, clients
		ip, notIP := netip.ParseAddr(clients)
		network, err := netip.ParsePrefix(clients)
		switch {
		case clients == "outside":
			r.outside = true
		case notIP == nil && ip.Zone() == "":
			r.network = netip.PrefixFrom(ip, ip.BitLen())
		case err == nil && network == network.Masked():
			r.network = network
		case err == nil:
			p.wrong(addresses, strconv.Quote(clients), "%s: the address of a network", network.Masked())
		default:
			p.wrong(addresses, strconv.Quote(clients), "a network such as 10.1.0.0/16, an IP address, or outside, before =")
		}
	}
	seen := map[string]bool{}
	for item := range strings.SplitSeq(list, ",") {
		a, ok := p.address(item)
		if ok {
			r.addrs = append(r.addrs, a)
		}
	}
	if n := 1 + strings.Count(list, ","); len(r.addrs) < n || !p.enough(addresses, list, n) {
		return r
	}
	for n := 1; n <= p.count; n++ {
		a := pick(r.addrs, n)
		if a.host.has("port") || a.port.has("port") {
			break // no two stores have the same
		}
		one := net.JoinHostPort(a.host.expand(n, 0), a.port.expand(n, 0))
		if seen[one] {
			p.wrong(addresses, strconv.Quote(list), "no address twice: %s is that of %s, too", one, who(n, p.stores))
			break
		}
		seen[one] = true
	}
	return r
}

// enough reports whether n elements are enough: one that has a placeholder, so that Parse can make all others of it, or
// one for each store.
func (p parser) enough(setting, list string, n int) bool {
	if n >= p.count || n == 1 && strings.Contains(list, "{") {
		return true
	}
	also := ""
	if p.count > p.stores {
		also = ", then one for the second address of each (redis.follower_read)"
	}
	p.wrong(setting, strconv.Quote(list), "one for each of cluster.stores (%d)%s, or a single one with {n} or {port}",
		p.stores, also)
	return false
}

func (p parser) address(text string) (a address, ok bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		p.wrong(addresses, strconv.Quote(text), "HOST:PORT, an IPv6 address in brackets")
		return a, false
	}
	a.host, ok = p.template(addresses, host)
	var ok2 bool
	if a.port, ok2 = p.template(addresses, port); !ok || !ok2 {
		return a, false
	}
	for n := 1; n <= max(1, p.count); n++ {
		one := a.host.expand(n, 1)
		if _, err := netip.ParseAddr(one); err != nil && !hostName.MatchString(one) {
			p.wrong(addresses, strconv.Quote(text), "an IP address or a name before the port")
			return a, false
		}
		if one := a.port.expand(n, 65535); !isPort(one) && !(a.port.has("port") && digits.MatchString(one)) {
			p.wrong(addresses, strconv.Quote(text), "a port from 1 to 65535")
			return a, false
		}
	}
	return a, true
}

// names parses host names as Redis allows them.
func (p parser) names(list string) (all []template) {
	for item := range strings.SplitSeq(list, ",") {
		x, ok := p.template(hostnames, item)
		if !ok {
			return nil
		}
		for n := 1; n <= max(1, p.count); n++ {
			if one := x.expand(n, 1); len(one) > 255 || !redisName.MatchString(one) {
				p.wrong(hostnames, strconv.Quote(item), "up to 255 letters, digits, hyphens and dots")
				return nil
			}
		}
		all = append(all, x)
	}
	if len(all) != 1 { // stores may share a name
		p.enough(hostnames, list, len(all))
	}
	return all
}

var (
	hostName    = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	redisName   = regexp.MustCompile(`^[A-Za-z0-9.-]+$`)
	digits      = regexp.MustCompile(`^[0-9]{1,9}$`)
	placeholder = regexp.MustCompile(`\{(n|port)([+-][0-9]{1,5})?\}`)
)

// template is a text with placeholders.
type template []part

// part is a text or, if of is set, a number to compute.
type part struct {
	text string
	of   string // n or port
	plus int
}

func (p parser) template(setting, text string) (t template, ok bool) {
	end := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		x := part{of: text[m[2]:m[3]]}
		if m[4] >= 0 {
			x.plus, _ = strconv.Atoi(text[m[4]:m[5]])
		}
		t = append(t, part{text: text[end:m[0]]}, x)
		end = m[1]
	}
	t = append(t, part{text: text[end:]})
	for _, x := range t {
		if strings.ContainsAny(x.text, "{}") {
			p.wrong(setting, strconv.Quote(text), "placeholders {n}, {port}, {n+NUMBER} and {port+NUMBER} only")
			return nil, false
		}
	}
	return t, true
}

func (t template) has(of string) bool {
	for _, x := range t {
		if x.of == of {
			return true
		}
	}
	return false
}

// expand returns the text for a store. Of a text without placeholders it makes no copy.
func (t template) expand(number, port int) string {
	if len(t) == 1 {
		return t[0].text
	}
	var b []byte
	for _, x := range t {
		switch x.of {
		case "n":
			b = strconv.AppendInt(b, int64(number+x.plus), 10)
		case "port":
			b = strconv.AppendInt(b, int64(port+x.plus), 10)
		default:
			b = append(b, x.text...)
		}
	}
	return string(b)
}
