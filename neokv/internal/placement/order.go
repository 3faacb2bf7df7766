package placement

import (
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// OrderKind says what an order does.
type OrderKind string

// The kinds of orders.
const (
	MoveReplica   OrderKind = "move-replica"
	AddReplica    OrderKind = "add-replica"
	RemoveReplica OrderKind = "remove-replica"
	MoveHome      OrderKind = "move-home" // another one of the region's stores shall lead it
)

// Why says for which reason of the plan an order is given.
type Why string

// The reasons, the most urgent first.
const (
	Gone       Why = "gone"
	Draining   Why = "draining"
	Replicas   Why = "replicas"
	Zones      Why = "zones"
	Neighbours Why = "neighbours"
	Balance    Why = "balance"
	Leaders    Why = "leaders"
)

// Order is one change of the peers of a region that shall happen. It is safe to repeat: a store that gets it when the
// region's peers are of another Conf does nothing.
type Order struct {
	Kind   OrderKind         `json:"kind"`
	Region topology.RegionID `json:"region"`
	From   topology.StoreID  `json:"from,omitempty"` // 0 for AddReplica
	To     topology.StoreID  `json:"to,omitempty"`   // 0 for RemoveReplica
	// Conf is that of the region's peers when the order was made.
	Conf   uint64 `json:"conf"`
	Why    Why    `json:"why"`
	Reason string `json:"reason"` // in English
}

// Head returns the order as a user types it, a MoveHome in the same manner: "move-replica 3 2 4".
func (o Order) Head() string {
	switch o.Kind {
	case AddReplica:
		return fmt.Sprintf("%s %d %d", o.Kind, o.Region, o.To)
	case RemoveReplica:
		return fmt.Sprintf("%s %d %d", o.Kind, o.Region, o.From)
	}
	return fmt.Sprintf("%s %d %d %d", o.Kind, o.Region, o.From, o.To)
}

// String returns the order with its reason, for people.
func (o Order) String() string { return o.Head() + ": " + o.Reason }

// placed reports whether the peers of a region are as the order wants them.
func (o Order) placed(r *Region) bool {
	if o.Kind == MoveHome {
		return r.home() == o.To
	}
	return (o.From == 0 || !r.on(o.From)) && (o.To == 0 || r.on(o.To))
}
