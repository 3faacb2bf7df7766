package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/server"
)

// refusals lets stores and the proxy port refuse commands. What each store refuses its place knows.
type refusals struct {
	places  *placeSet
	servers *servers

	mu         sync.Mutex
	everywhere []fault.Refusal // what the proxy port refuses
}

// refuse lets stores refuse a command, or no longer. The proxy port refuses what all stores do by one fault, until a
// store has another one of the command.
func (x *refusals) refuse(_ context.Context, f fault.Fault) (string, error) {
	if !server.HasCommand(f.Refuse.Command) {
		return "", fmt.Errorf("there is no command %s", f.Refuse.Command)
	}
	for _, n := range x.places.all().of(f.Stores) {
		n.mu.Lock()
		n.faults.refused = withRefusal(n.faults.refused, f.Refuse)
		if n.server != nil {
			n.server.SetRefusals(n.faults.refused)
		}
		n.mu.Unlock()
	}
	everywhere := f.Refuse
	if f.Stores != nil {
		everywhere.Share = 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.everywhere = withRefusal(x.everywhere, everywhere)
	x.servers.proxy.Load().SetRefusals(x.everywhere)
	return "", nil
}

// withRefusal returns refusals with one that takes the place of that of the same command, in the order of commands.
func withRefusal(all []fault.Refusal, r fault.Refusal) []fault.Refusal {
	all = slices.DeleteFunc(slices.Clone(all), func(old fault.Refusal) bool { return old.Command == r.Command })
	if r.Share > 0 {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b fault.Refusal) int { return strings.Compare(a.Command, b.Command) })
	return all
}

// now returns the refusals of all stores and of the proxy port, then those of single stores.
func (x *refusals) now() (all []fault.Fault) {
	x.mu.Lock()
	everywhere := x.everywhere
	x.mu.Unlock()
	for _, r := range everywhere {
		all = append(all, fault.Fault{Verb: fault.Fail, Refuse: r})
	}
	for _, n := range x.places.all() {
		n.mu.Lock()
		for _, r := range n.faults.refused {
			if !slices.Contains(everywhere, r) {
				all = append(all, fault.Fault{Verb: fault.Fail, Stores: []int{int(n.id)}, Refuse: r})
			}
		}
		n.mu.Unlock()
	}
	return all
}
