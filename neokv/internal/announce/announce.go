// Package announce says at which addresses clients are told to find the stores. Rules are made of settings; a
// connection is Told by the first rule that fits it.
//
// All stores of a process listen on the same host, so what a connection is told depends on where it comes from and where
// it came in, and of the store on its number and its port alone.
package announce

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The values of redis.cluster_preferred_endpoint_type: what clients are told to connect to. With UnknownEndpoint they
// are told a port only, and take the host that they have.
const (
	IP              = "ip"
	Hostname        = "hostname"
	UnknownEndpoint = "unknown-endpoint"
)

// Rules say what which clients are told. The zero value has each client told the address at which it came in.
type Rules struct {
	stores    int
	preferred string
	rules     []rule
	names     []template // host names: one for all stores, or one for each; none if there are none
	machine   func() machine
}

// rule is one of redis.cluster_announce.
type rule struct {
	clients string // as the setting has it
	all     bool
	outside bool
	network netip.Prefix
	addrs   []address // one for all stores, or one for each
}

type address struct{ host, port template }

// Addr is what a client is told of a store. Its fields are those of CLUSTER SHARDS.
type Addr struct {
	IP       string // no IP address if the setting gives a name
	Port     int
	Hostname string // empty if there is none
	Endpoint string // the preferred one of IP and Hostname, or empty
}

// Told is what one connection is told.
type Told struct {
	Preferred string // one of IP, Hostname, UnknownEndpoint
	rules     *Rules
	rule      *rule  // nil: local and the port listened on
	local     string // the IP address at which the connection came in; empty if it has none
}

// To returns what a connection is told that came from client to local. Without a rule that fits, it is told the address
// at which it came in, which it can reach. A connection in memory is told the addresses that Dial knows.
func (r *Rules) To(local, client net.Addr) Told {
	at, from := ipOf(local), ipOf(client)
	if !at.IsValid() {
		return Told{Preferred: IP, rules: r}
	}
	t := Told{Preferred: cmp.Or(r.preferred, IP), rules: r, local: at.String()}
	for i := range r.rules {
		x := &r.rules[i]
		if x.all || x.network.Contains(from) || x.outside && r.machine().outside(at, from) {
			t.rule = x
			break
		}
	}
	return t
}

// ipOf returns the IP address of a TCP address, without a zone, which means something on one machine only.
func ipOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// Store returns what the connection is told of a store, by its number from 1, that listens on host and port. The second
// addresses of stores, if there are any, have the numbers behind.
func (t *Told) Store(number int, host string, port int) Addr {
	a := Addr{IP: t.local, Port: port}
	if a.IP == "" {
		a.IP = host
	}
	if t.rule != nil {
		if x := pick(t.rule.addrs, number); x != nil {
			a.IP = x.host.expand(number, port)
			a.Port, _ = strconv.Atoi(x.port.expand(number, port)) // Lines has checked it
		}
	}
	if x := pick(t.rules.names, number); x != nil {
		a.Hostname = x.expand(number, port)
	}
	switch t.Preferred {
	case Hostname:
		a.Endpoint = a.Hostname
	case IP:
		a.Endpoint = a.IP
	}
	return a
}

// pick returns the element for a store: the only one, or the one of its number; nil if there is none.
func pick[T any](all []T, number int) *T {
	switch {
	case len(all) == 1:
		return &all[0]
	case number > 0 && number <= len(all):
		return &all[number-1]
	}
	return nil
}

// Lines says what clients are told of the stores that listen on ports, a line for each rule. It returns an error if a
// port that follows from one of these is none.
func (r *Rules) Lines(ports []int) (lines []string, err error) {
	for i := range r.rules {
		x := &r.rules[i]
		told := make([]string, len(ports))
		for j, port := range ports {
			a := pick(x.addrs, j+1)
			host, text := a.host.expand(j+1, port), a.port.expand(j+1, port)
			if !isPort(text) {
				return nil, fmt.Errorf("redis.cluster_announce: port %s of %s, which listens on %d: want 1 to 65535",
					text, who(j+1, r.stores), port)
			}
			told[j] = net.JoinHostPort(host, text)
		}
		who := "clients of " + x.clients
		switch {
		case x.all:
			who = "all clients"
		case x.outside:
			who = "clients from outside"
		}
		lines = append(lines, who+" are told "+strings.Join(told, ", "))
	}
	return lines, nil
}

// who names the store that has the n-th address.
func who(n, stores int) string {
	if n > stores {
		return fmt.Sprintf("store %d as a replica", n-stores)
	}
	return fmt.Sprintf("store %d", n)
}

func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 65535
}

// Grows returns an error if the rules do not say what clients are told of one store more, of this number and port. A list
// names the stores that there were at the start, and so does the number of a second address.
func (r *Rules) Grows(number, port int, seconds bool) error {
	lists := len(r.names) > 1 || seconds && len(r.names)+len(r.rules) > 0
	for i := range r.rules {
		x := &r.rules[i]
		lists = lists || len(x.addrs) > 1
		if text := x.addrs[0].port.expand(number, port); !lists && !isPort(text) {
			return fmt.Errorf("redis.cluster_announce: port %s of %s, which listens on %d: want 1 to 65535", text,
				who(number, number), port)
		}
	}
	if lists {
		return fmt.Errorf("redis.cluster_announce, or its host names, say nothing of store %d: start the cluster with "+
			"one store more (--stores), and with its address in the lists", number)
	}
	return nil
}
