package neokv

import (
	"context"

	"neokv.dev/neokv/internal/placement"
)

// Plan is where the replicas of regions would lie, and which stores would be homes, if all went as the cluster's plan
// wants.
type Plan struct {
	// Balance is balance.replicas: without it, only what concerns stores that are gone or draining happens by itself.
	Balance bool `json:"balance"`
	// Given are the orders that are not done yet, Next those that are due now, the most urgent first.
	Given []PlannedOrder `json:"given"`
	Next  []PlannedOrder `json:"next"`
	// Notes say what the plan would do and cannot.
	Notes []string `json:"notes"`
}

// PlannedOrder is one change of a region's replicas or home.
type PlannedOrder struct {
	// Order reads as ctl takes it: "move-replica 3 2 4". "move-home 3 2 4" makes store 4 the home of region 3 in the
	// place of store 2; ctl has no such verb.
	Order string `json:"order"`
	// Why is the kind of reason: gone, draining, replicas, zones, neighbours, balance or leaders.
	Why    string `json:"why"`
	Reason string `json:"reason"` // in English
}

// Plan asks the leader of meta what it would do now with replicas and homes. It changes nothing. An error says that no
// store answers for it.
func (c *Cluster) Plan(ctx context.Context) (Plan, error) {
	if ctx == nil {
		return Plan{}, ErrNilContext
	}
	made, err := c.in.Plan(ctx)
	if err != nil {
		return Plan{}, err
	}
	planned := func(all []placement.Order) []PlannedOrder {
		out := make([]PlannedOrder, len(all))
		for i, o := range all {
			out[i] = PlannedOrder{o.Head(), string(o.Why), o.Reason}
		}
		return out
	}
	return Plan{Balance: c.Settings().Balance.Replicas, Given: planned(made.Given), Next: planned(made.Next),
		Notes: append([]string{}, made.Notes...)}, nil
}
