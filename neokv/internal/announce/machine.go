package announce

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// machine is what this machine, or this container, knows of its networks.
type machine struct {
	networks []netip.Prefix // of its interfaces
	gateways []netip.Addr
}

// outside reports whether a client comes from outside: it is on no network that the address is on at which it came in,
// or it is the gateway. A container's gateway is the machine that runs it: what is sent to a mapped port comes from
// there, or from wherever the client is.
func (m machine) outside(local, client netip.Addr) bool {
	beside := func(p netip.Prefix) bool { return p.Contains(local) && p.Contains(client) }
	return slices.Contains(m.gateways, client) || !slices.ContainsFunc(m.networks, beside)
}

// thisMachine asks the system anew each time: networks come and go. A system without /proc has no containers.
func thisMachine() (m machine) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			m.networks = append(m.networks, p.Masked())
		}
	}
	routes, _ := os.ReadFile("/proc/net/route")
	routes6, _ := os.ReadFile("/proc/net/ipv6_route")
	m.gateways = gateways(string(routes), string(routes6))
	return m
}

// gateways returns the gateways of the kernel's tables of routes. In the first one an address is the number that its
// bytes are on this processor.
func gateways(routes, routes6 string) (all []netip.Addr) {
	const isGateway = 2 // RTF_GATEWAY of the flags
	add := func(line string, gateway, flags int, parse func(string) (netip.Addr, error)) {
		fields := strings.Fields(line)
		if len(fields) <= max(gateway, flags) {
			return
		}
		bits, err := strconv.ParseUint(fields[flags], 16, 32)
		if err != nil || bits&isGateway == 0 {
			return
		}
		if a, err := parse(fields[gateway]); err == nil && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	for line := range strings.Lines(routes) {
		add(line, 2, 3, func(text string) (netip.Addr, error) {
			n, err := strconv.ParseUint(text, 16, 32)
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], uint32(n))
			return netip.AddrFrom4(b), err
		})
	}
	for line := range strings.Lines(routes6) {
		add(line, 4, 8, func(text string) (netip.Addr, error) {
			b, err := hex.DecodeString(text)
			a, _ := netip.AddrFromSlice(b)
			return a, err
		})
	}
	return all
}
