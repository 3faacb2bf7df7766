package cluster

import (
	"errors"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/topology"
)

// A stand-in keeps the address of a store that is down. It leads no region, so it redirects a command to the leader as
// soon as there is one, and holds the command until then, as any store does.
//
// Without it the address refuses connections, and clients give up while the cluster fails over. go-redis with its own
// defaults tries the refused address alone, and reads the slot table again only after a redirection or a minute.
// rueidis does not try a write again if it cannot connect.

// newStandIn returns a server that stands in for a store.
func (v *servers) newStandIn(n *Place) *server.Server {
	return server.New(server.Options{
		Node: &standInPort{proxyPort{v}}, Self: n.id, StandIn: true, Settings: v.settings, ClientMemory: v.shared.memory,
		Sockets: &v.shared.sockets, Exposed: v.exposed(), Announce: v.announce, Version: v.config.Version,
		Mistakes: v.hooks.Mistakes.Server,
	})
}

// standInPort is the server.Node of a stand-in. It knows what the proxy knows, and has no replicas.
type standInPort struct{ proxyPort }

var _ server.Node = (*standInPort)(nil)

var errNoStore = errors.New("no store runs")

func (p *standInPort) Replica(topology.StoreID, topology.RegionID) *region.Replica { return nil }

// Failed says that no store runs, so that the process counts as dead, and connections are closed.
func (p *standInPort) Failed() error {
	if p.Table() == nil {
		return errNoStore
	}
	return nil
}

func (p *standInPort) Info() []server.Section { return nil }
