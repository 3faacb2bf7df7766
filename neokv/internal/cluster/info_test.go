package cluster

import (
	"testing"

	"neokv.dev/neokv/counters"
)

// INFO has a function for the value of each line in the list, and for no other line.
func TestInfoHasAValueForEachLine(t *testing.T) {
	names := map[string]bool{}
	for _, l := range counters.All {
		if names[l.Name] {
			t.Errorf("%s is listed twice", l.Name)
		}
		names[l.Name] = true
		fact, ofStore, ofProcess := factOf[l.Name] != nil, storeValue[l.Name] != nil, processValue[l.Name] != nil
		want := [3]bool{l.Kind == counters.Fact}
		want[1] = !want[0] && l.Scope == counters.Store
		want[2] = !want[0] && l.Scope == counters.Process
		if got := [3]bool{fact, ofStore, ofProcess}; got != want {
			t.Errorf("%s: a value as fact, of a store, of the process: %v; want %v", l.Name, got, want)
		}
	}
	for name := range factOf {
		if !names[name] {
			t.Errorf("%s: a fact that is not in the list", name)
		}
	}
	for name := range storeValue {
		if !names[name] {
			t.Errorf("%s: a value of a store that is not in the list", name)
		}
	}
	for name := range processValue {
		if !names[name] {
			t.Errorf("%s: a value of the process that is not in the list", name)
		}
	}
}
