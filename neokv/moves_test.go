package neokv

import (
	"fmt"
	"testing"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

// TestMoveText says which replicas come and go.
func TestMoveText(t *testing.T) {
	r := topology.Region{Peers: []topology.Peer{{Store: 1, Replica: 1}, {Store: 2, Replica: 2}}}
	if got := moveText(&r); got != "" {
		t.Errorf("no move is open: %q", got)
	}
	r.Peers[1].Role = topology.Leaving
	r.Peers = append(r.Peers, topology.Peer{Store: 4, Replica: 9, Role: topology.Joining})
	if got, want := moveText(&r), "loses that on store 2, gets a replica on store 4"; got != want {
		t.Errorf("a move: %q; want %q", got, want)
	}
}

// TestMoveReplicas has a cluster move a replica, add one and remove one, by the texts of ctl.
func TestMoveReplicas(t *testing.T) {
	c := start(t, Config{InMemory: true, Stores: 5, Replicas: 3, Regions: 3})
	for _, x := range []struct{ do, want string }{
		{"move-replica 1 3 4", "region 1 has replicas on stores [1 2 4]"},
		{"add-replica 1 5", "region 1 has replicas on stores [1 2 4 5]"},
		{"remove-replica 1 2", "region 1 has replicas on stores [1 4 5]"},
	} {
		f, err := fault.Parse(x.do)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Inject(t.Context(), f); got != x.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", x.do, got, err, x.want)
		}
	}
	if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.AddReplica, Region: 1, To: 3}); err != nil {
		t.Fatal(err)
	}
	await(t, "plan that removes one of four replicas", func() bool {
		plan, err := c.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return !plan.Balance && len(plan.Next) == 1 && plan.Next[0].Order == "remove-replica 1 4" &&
			plan.Next[0].Why == "replicas" && plan.Next[0].Reason == "it has 4, and cluster.replicas is 3"
	})
	if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.RemoveReplica, Region: 1, From: 3}); err != nil {
		t.Fatal(err)
	}
	var on []int
	for _, r := range c.Status().Regions[0].Replicas {
		on = append(on, r.Store)
	}
	if got := fmt.Sprint(on); got != "[1 4 5]" {
		t.Errorf("status: replicas on stores %s", got)
	}
}
