package cluster

import (
	"maps"
	"slices"
	"testing"

	"neokv.dev/neokv/fault"
)

// TestActions: the cluster carries out what package fault knows, and nothing else.
func TestActions(t *testing.T) {
	all := new(faults).verbs()
	for _, v := range fault.Verbs() {
		if all[v].do == nil {
			t.Errorf("nothing carries out %s", v)
		}
		if f := (fault.Fault{Verb: v}); f.Lasts() != (all[v].now != nil) {
			t.Errorf("%s lasts: %v; its row does not say so", v, f.Lasts())
		}
		delete(all, v)
	}
	if len(all) > 0 {
		t.Errorf("actions of unknown verbs: %v", slices.Collect(maps.Keys(all)))
	}
}
