package results

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// NamedValue is a condition of a run.
type NamedValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Conditions returns what a reader must know of a run before its figures mean anything. Headers have the same conditions
// in the same order.
func (h *Header) Conditions() []NamedValue {
	measured := "to the end of the work"
	if h.Duration > 0 {
		measured = fmt.Sprintf("%s after %s of warm-up", h.Duration, h.Warmup)
	}
	return []NamedValue{
		{"load", strings.Join(h.Load(), " | ")},
		{"measured", measured},
		{"target", h.What()},
		{"durability", cmp.Or(h.Durability(), "not known")},
		{"machine", h.Machine.String()},
		{"date", h.Started.UTC().Format("2006-01-02 15:04 UTC")},
		{"seed", strconv.FormatUint(h.Seed, 10)},
	}
}
