package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"neokv.dev/neokv/counters"
)

// NamedValue is a condition of a run.
type NamedValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Conditions returns what a reader must know of a run before its figures mean anything. Headers have the same
// conditions in the same order; a value that is not known is empty.
func (h *Header) Conditions() []NamedValue {
	measured := "to the end of the work"
	if h.Duration > 0 {
		measured = fmt.Sprintf("%s after %s of warm-up", h.Duration, h.Warmup)
	}
	return []NamedValue{
		{"load", strings.Join(h.Load(), " | ")},
		{"measured", measured},
		{"target", h.What()},
		{"settings", h.inForce()},
		{"durability", cmp.Or(h.Durability(), "not known")},
		{"machine", h.Machine.String()},
		{"date", h.Started.UTC().Format("2006-01-02 15:04 UTC")},
		{"seed", strconv.FormatUint(h.Seed, 10)},
	}
}

// inForce names the settings of the target: its profile, or what a NeoKV that ran already tells of them.
func (h *Header) inForce() string {
	switch {
	case h.Cluster.InProcess:
		return "profile " + h.Profile
	case !h.Target.NeoKV():
		return ""
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(h.Target.Info)) {
		line, known := counters.Find(name)
		if known && line.Kind == counters.Fact && !slices.Contains(shapeFacts, name) {
			words = append(words, name+" "+h.Target.Info[name])
		}
	}
	return strings.Join(words, ", ")
}

// shapeFacts are the facts of INFO that stand beside the settings.
var shapeFacts = []string{"neokv_version", "stores", "replicas", "regions", "in_memory", "wal_sync", "raft_transport"}
