package history

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"neokv.dev/results"
)

// Setup says by which runs can be compared. Settings and builds are not in it: what they change is what a history is
// there to show.
type Setup struct {
	Load    string `json:"load"`
	Target  string `json:"target"`
	Machine string `json:"machine"`
}

// Setup returns the setup of a run.
func (e *Entry) Setup() Setup {
	h := &e.Header
	loads := h.Load()
	if e.Case != "" {
		loads = append([]string{e.Case}, loads...)
	}
	m := h.Machine
	return Setup{
		Load:    strings.Join(loads, " | "),
		Target:  target(h),
		Machine: fmt.Sprintf("%s, %d cores, %s", cmp.Or(m.CPU, "unknown CPU"), m.Cores, m.Arch),
	}
}

// target says on what a run was measured, without what differs from one start to the next, such as ports.
func target(h *results.Header) string {
	c := h.Cluster
	var words []string
	if h.Profile != "" {
		words = append(words, "profile "+h.Profile)
	}
	if !c.InProcess {
		kind := h.Target.Kind()
		var hosts []string
		for _, addr := range h.Target.Addrs {
			if host, _, err := net.SplitHostPort(addr); err == nil && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		if hosts != nil {
			kind += " at " + strings.Join(hosts, ", ")
		}
		words = append(words, kind)
		if durable := h.Durability(); durable != "" {
			words = append(words, durable)
		}
		return strings.Join(words, ", ")
	}
	words = append(words,
		fmt.Sprintf("%s, %s and %s in one process", results.Plural(int64(c.Stores), "store"),
			results.Plural(int64(c.Replicas), "replica"), results.Plural(int64(c.Regions), "region")),
		c.Transport+" transport")
	switch {
	case c.InMemory:
	case c.Logs != (results.DataFolder{}):
		words = append(words, fmt.Sprintf("sync %s, data on %s, logs on %s", c.Sync, c.Data.FileSystem,
			c.Logs.FileSystem))
	default:
		words = append(words, fmt.Sprintf("sync %s, data on %s", c.Sync, c.Data.FileSystem))
	}
	if why := h.NotDurable(); why != "" {
		words = append(words, "not durable ("+why+")")
	}
	return strings.Join(words, ", ")
}

// Workloads returns the workloads of a run.
func (e *Entry) Workloads() (out []string) {
	if e.Case != "" {
		out = append(out, e.Case)
	}
	for _, g := range e.Header.Groups {
		if !slices.Contains(out, g.Workload) {
			out = append(out, g.Workload)
		}
	}
	return out
}
